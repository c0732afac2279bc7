"""`nkilab profile` as a user calls it: text, JSON, files, exit codes."""

from __future__ import annotations

import json

import pytest

from tests.program import KERNEL, call, told

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
    found = json.loads(done.stdout)
    assert (found["schema"], found["kernel"], found["target"]) == ("nkilab.profile/1", "added", "trn2")


def test_profile_of_several_chips_prints_each(kernels):
    done = profile(kernels, *ADDED, "--json", "--target", "trn1,trn2")
    assert [one["target"] for one in json.loads(done.stdout)] == ["trn1", "trn2"]


def test_profile_writes_a_report_and_says_so(kernels):
    done = profile(kernels, *ADDED, "--html", "report.html")
    assert told(done) == (0, "imported\n", "nkilab: wrote report.html\n")
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
    assert told(profile(kernels, *ADDED, *args)) == (2, "", f"nkilab: {message}\n")


def test_a_report_that_cannot_be_written_leaves_nothing_behind(kernels):
    done = profile(kernels, *ADDED, "--html", "no/such/report.html")
    assert told(done) == (
        1,
        "imported\n",
        "nkilab: no/such/report.html cannot be written: no such file or directory\n",
    )
    assert sorted(path.name for path in kernels.iterdir() if path.is_file()) == ["kernels.py"]


def test_a_fault_of_the_kernel_writes_no_report(kernels):
    done = profile(kernels, "kernels.py:added", "--arg", "f32[64,8]", "--html", "report.html")
    assert done.returncode == 1
    assert not (kernels / "report.html").exists()


def test_profile_writes_traces_and_tables(kernels):
    pytest.importorskip("perfetto")
    pytest.importorskip("pyarrow")
    done = profile(kernels, *ADDED, "--trace", "t.json", "--parquet", "tables", "--html", "r.html")
    assert told(done) == (
        0, "imported\n", "nkilab: wrote r.html\nnkilab: wrote t.json\nnkilab: wrote tables\n"
    )  # fmt: skip
    assert json.loads((kernels / "t.json").read_text())["traceEvents"]
    assert (kernels / "tables" / "Summary.parquet").is_file()
    assert told(profile(kernels, *ADDED, "--trace", "t.pftrace"))[0] == 0
    assert (kernels / "t.pftrace").stat().st_size > 1000
    # a second time into the same folder
    assert told(profile(kernels, *ADDED, "--parquet", "tables"))[0] == 0
    assert not [path for path in kernels.iterdir() if path.name.startswith(".")]


def test_files_of_one_name_are_refused(kernels):
    done = profile(kernels, *ADDED, "--trace", "same", "--html", "./same")
    message = "nkilab: ./same is named twice\n  hint: give each file a name of its own\n"
    assert told(done) == (2, "", message)
