"""`nkilab profile` as a user calls it: text, JSON, files, exit codes."""

from __future__ import annotations

import json

import pytest

from tests.command_line import KERNEL, call, outcome_of, script

ADDED = ("kernels.py:added", "--arg", "f32[64,512]", "--arg", "f32[64,512]")


@pytest.fixture
def kernels(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNEL)
    return tmp_path


def profile(folder, *args, **options):
    return call("profile", *args, folder=folder, **options)


def test_profile_prints_text(kernels):
    done = profile(kernels, *ADDED)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "imported"
    assert lines[1].startswith("added on trn2: ")
    for heading in ("timeline: ", "critical path: ", "engines: ", "costliest lines: "):
        assert any(line.startswith(heading) for line in lines), heading
    assert any(line.startswith("│ kernels.py:16 ") for line in lines)


def test_profile_prints_json_alone(kernels):
    done = profile(kernels, *ADDED, "--json")
    assert (done.returncode, done.stderr) == (0, "imported\n")
    document = json.loads(done.stdout)
    assert (document["schema"], document["kernel"], document["target"]) == (
        "nkilab.profile/1",
        "added",
        "trn2",
    )


def test_profile_of_several_chips_prints_each(kernels):
    done = profile(kernels, *ADDED, "--json", "--target", "trn1,trn2")
    assert [one["target"] for one in json.loads(done.stdout)] == ["trn1", "trn2"]


def test_profile_writes_a_report_and_says_so(kernels):
    done = profile(kernels, *ADDED, "--html", "report.html")
    assert outcome_of(done) == (0, "imported\n", "nkilab: wrote report.html\n")
    assert (kernels / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_files_and_text_can_be_asked_for_together(kernels):
    done = profile(kernels, *ADDED, "--html", "report.html", "--text")
    assert "critical path: " in done.stdout
    assert (kernels / "report.html").exists()


WRONG_USAGE = [
    (["--html", "a.html", "--target", "trn1,trn2"],
     "--target names trn1,trn2; a file shows one chip\n  hint: name one chip"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "message"), WRONG_USAGE)
def test_profile_tells_wrong_usage_before_it_runs_anything(kernels, args, message):
    assert outcome_of(profile(kernels, *ADDED, *args)) == (2, "", f"nkilab: {message}\n")


def test_a_report_that_cannot_be_written_leaves_nothing_behind(kernels):
    done = profile(kernels, *ADDED, "--html", "no/such/report.html")
    assert outcome_of(done) == (
        2,
        "",
        "nkilab: the folder of no/such/report.html does not exist\n"
        "  hint: make no/such, or name another file\n",
    )
    assert sorted(path.name for path in kernels.iterdir() if path.is_file()) == ["kernels.py"]


def test_a_fault_of_the_kernel_writes_no_report(kernels):
    done = profile(kernels, "kernels.py:added", "--arg", "f32[64,8]", "--html", "report.html")
    assert done.returncode == 1
    assert not (kernels / "report.html").exists()


def test_profile_writes_traces_and_tables(kernels):
    pytest.importorskip("pyarrow")
    done = profile(kernels, *ADDED, "--trace", "t.json", "--parquet", "tables", "--html", "r.html")
    assert outcome_of(done) == (
        0, "imported\n", "nkilab: wrote r.html\nnkilab: wrote t.json\nnkilab: wrote tables\n"
    )  # fmt: skip
    assert json.loads((kernels / "t.json").read_text())["traceEvents"]
    assert (kernels / "tables" / "Summary.parquet").is_file()
    # a second time into the same folder
    assert outcome_of(profile(kernels, *ADDED, "--parquet", "tables"))[0] == 0
    assert not [path for path in kernels.iterdir() if path.name.startswith(".")]


def test_files_of_one_name_are_refused(kernels):
    done = profile(kernels, *ADDED, "--trace", "same", "--html", "./same")
    message = "nkilab: --html and --trace both name same\n  hint: give each file a name of its own\n"
    assert outcome_of(done) == (2, "", message)


HOST = """
import sys
import numpy as np
from kernels import added, doubled

x = np.ones((64, 512), np.float32)
print(added(x, x).sum(), doubled(x).sum(), added(x, x).sum(), *sys.argv[1:])
"""


def test_run_writes_a_report_of_every_launch_and_an_index(kernels):
    host = script(kernels, HOST)
    done = call("run", "--profile", "reports", host, "--profile", folder=kernels)
    # what stands behind the script is the script's
    assert (done.returncode, done.stdout) == (0, "imported\n65536.0 65536.0 65536.0 --profile\n")
    names = ["001-added.html", "002-doubled.html", "003-added.html"]
    assert done.stderr == "".join(f"nkilab: wrote reports/{name}\n" for name in names)
    assert sorted(path.name for path in (kernels / "reports").iterdir()) == [*names, "index.html"]
    index = (kernels / "reports" / "index.html").read_text()
    assert index.count("<a href=") == 3
    assert "<script" not in index
    first, third = ((kernels / "reports" / name).read_text() for name in (names[0], names[2]))
    assert first == third
    assert "<title>added on trn2</title>" in first


def test_run_with_a_folder_that_cannot_be_made_says_so(kernels):
    (kernels / "taken").write_text("")
    host = script(kernels, HOST)
    done = call("run", "--profile", "taken", host, folder=kernels)
    assert (done.returncode, done.stderr) == (
        2, "nkilab: taken is a file; a folder is to be written there\n  hint: name another folder\n"
    )  # fmt: skip


def test_a_kernel_with_a_hostile_name_stays_in_the_folder(kernels):
    host = script(
        kernels,
        "import numpy as np\nimport neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n"
        "def k(x):\n    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)\n"
        "    nl.store(out, nl.load(x))\n    return out\n"
        "k.__name__ = '../../<b>' + 'x' * 300\n"
        "nki.jit(k)(np.ones((8, 8), np.float32))\n",
    )
    done = call("run", "--profile", "reports", host, folder=kernels)
    assert done.returncode == 0
    (name,) = [p.name for p in (kernels / "reports").iterdir() if p.name != "index.html"]
    assert name == f"001-{'_' * 6}_b_{'x' * 51}.html"
    assert "&lt;b&gt;" in (kernels / "reports" / "index.html").read_text()


def diff(folder, *args):
    return call("diff", *args, folder=folder)


def test_diff_compares_two_kernels(kernels):
    args = ("--arg", "f32[64,512]")
    done = diff(kernels, "kernels.py:doubled", "kernels.py:doubled", *args, "--kw-b", "factor=3.0")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    # the module of both is run once
    assert lines[0] == "imported"
    assert lines[1].startswith("doubled factor=3.0 takes as long as doubled: ")
    done = diff(kernels, "kernels.py:doubled", "kernels.py:doubled", *args, "--json")
    document = json.loads(done.stdout)
    assert (document["schema"], document["speedup"]) == ("nkilab.diff/1", 1.0)


def test_diff_reads_neffs_and_writes_a_page(kernels):
    host = (
        "import numpy as np\nfrom kernels import added, doubled\nimport neuronxcc.nki as nki\n"
        "x = np.ones((64, 512), np.float32)\nnki.benchmark(added, save_neff_name='a.neff')(x, x)\n"
        "nki.benchmark(doubled, save_neff_name='b.neff')(x)\n"
    )
    assert call("run", script(kernels, host), folder=kernels).returncode == 0
    done = diff(kernels, "a.neff", "b.neff", "--html", "d.html")
    assert outcome_of(done) == (0, "", "nkilab: wrote d.html\n")
    page = (kernels / "d.html").read_text()
    assert [page.count(f'"core":"{name}"') for name in ("a.neff", "b.neff")] == [1, 1]
    done = diff(kernels, "a.neff", "gone.neff")
    assert outcome_of(done) == (1, "", "nkilab: gone.neff cannot be read: no such file or directory\n")


def test_diff_with_a_profile_writes_no_page_and_predicts_one_kernel(kernels):
    # the option was left out without a word
    (kernels / "card.txt").write_text("total_time 5e-5\n")
    (first, *args) = ADDED
    for option, value in (("--html", "d.html"), ("--kw-b", "factor=3.0")):
        done = diff(kernels, first, "card.txt", *args, option, value)
        assert outcome_of(done) == (
            2, "", f"nkilab: {option} is of two kernels, and card.txt is a profile\n  hint: leave it out\n"
        )  # fmt: skip
    assert not (kernels / "d.html").exists()
    done = diff(kernels, "card.txt", first, *args)
    words = "nkilab: card.txt is a profile; name it after the kernel that predicts it\n"
    assert outcome_of(done) == (2, "", words)


def test_what_if_shows_the_change(kernels):
    done = profile(kernels, *ADDED, "--what-if", "dma_bandwidth=2x")
    assert done.stdout.splitlines()[1].startswith("with dma_bandwidth=2x it is ")
    done = profile(kernels, *ADDED, "--what-if", "dma_bandwidth=2x", "--json")
    document = json.loads(done.stdout)
    assert (document["changes"], document["schema"]) == ("dma_bandwidth=2x", "nkilab.diff/1")
    assert document["speedup"] > 1


def test_what_if_refuses_files_of_one_run_before_it_runs(kernels):
    done = profile(kernels, *ADDED, "--what-if", "psum_banks=16", "--trace", "t.json")
    message = (
        "nkilab: --trace and --what-if are both given; a trace file shows one run\n"
        "  hint: leave one of them out, or write both runs with --html\n"
    )
    assert outcome_of(done) == (2, "", message)
    assert outcome_of(profile(kernels, *ADDED, "--what-if", "psum_banks"))[0] == 2


def test_a_kernel_that_is_only_measured_has_a_report_too(kernels):
    host = script(
        kernels,
        "import numpy as np\nfrom kernels import added\nimport neuronxcc.nki as nki\n"
        "x = np.ones((64, 512), np.float32)\nnki.benchmark(added)(x, x)\n",
    )
    done = call("run", "--profile", "reports", host, folder=kernels)
    assert (done.returncode, done.stderr) == (0, "nkilab: wrote reports/001-added.html\n")
