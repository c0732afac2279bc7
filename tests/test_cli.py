"""The program `nkilab` as a user calls it: exit codes, what stands where, no line of ours in his "
"tracebacks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import nkilab
from nkilab import kept_estimates
from tests.command_line import KERNEL, SOURCE, call, outcome_of, script


@pytest.fixture
def kernels(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNEL)
    return tmp_path


VERBS = (
    "demo",
    "run",
    "estimate",
    "check",
    "advise",
    "watch",
    "profile",
    "diff",
    "compare",
    "einsum",
    "tune",
    "validate",
    "calibrate",
    "neuron-profile",
    "explain",
    "migrate",
    "ops",
    "init",
    "stubs",
    "doctor",
    "completion",
)


def test_help_lists_every_verb():
    done = call("--help")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.split("Verbs:\n")[1].splitlines()
    assert [line.split()[0] for line in lines if not line.startswith("   ")] == list(VERBS)


@pytest.mark.parametrize("verb", [v for v in VERBS if v != "neuron-profile"])
def test_every_verb_has_help(verb):
    done = call(verb, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: nkilab {verb} [OPTIONS]")


def test_neuron_profile_has_help_of_its_own():
    done = call("neuron-profile", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: neuron-profile [OPTIONS] COMMAND")
    assert "--session-file" in call("neuron-profile", "capture", "--help").stdout


def test_a_verb_or_option_that_does_not_exist_is_wrong_usage():
    assert call("simulate").returncode == 2
    assert call("doctor", "--verbose").returncode == 2
    assert call("run").returncode == 2


def test_version_is_that_of_the_package():
    assert outcome_of(call("--version")) == (0, f"nkilab, version {nkilab.__version__}\n", "")


# run


def test_run_passes_everything_after_the_script_on(tmp_path):
    path = script(tmp_path, "import sys\nprint(sys.argv, __name__, __file__)\n")
    done = call("run", path, "--target", "x", "-m", "--json", "-h", folder=tmp_path)
    assert outcome_of(done) == (
        0,
        f"{[str(path), '--target', 'x', '-m', '--json', '-h']} __main__ {path}\n",
        "",
    )


def test_run_takes_a_module_by_name(tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    script(package, "")
    script(package, "import sys\nprint(sys.argv[1:], __name__, __package__)\n", "tool.py")
    assert outcome_of(call("run", "-m", "pack.tool", "-x", "1", folder=tmp_path)) == (
        0,
        "['-x', '1'] __main__ pack\n",
        "",
    )


def test_run_lets_a_script_import_its_neighbours_and_the_names_of_nki(kernels):
    path = script(
        kernels,
        "import numpy as np\nfrom kernels import added\nx = np.ones((2, 3), np.float32)\nprint(added(x, "
        "x))\n",
    )
    assert outcome_of(call("run", path, folder="/")) == (0, "imported\n[[2. 2. 2.]\n [2. 2. 2.]]\n", "")


@pytest.mark.parametrize(
    ("ending", "status", "error"),
    [
        ("sys.exit(0)", 0, ""), ("sys.exit()", 0, ""), ("sys.exit(7)", 7, ""), ("sys.exit('no luck')", 1,
         "no luck\n"),
        ("sys.exit(None)", 0, ""), ("raise SystemExit(3)", 3, ""), ("raise KeyboardInterrupt", 130, ""),
    ],
)  # fmt: skip
def test_run_returns_the_status_of_the_script(tmp_path, ending, status, error):
    path = script(tmp_path, f"import sys\nprint('begun')\n{ending}\n")
    assert outcome_of(call("run", path)) == (status, "begun\n", error)


def test_run_refuses_a_script_that_is_not_there(tmp_path):
    expected = "nkilab: there is no file nowhere.py\n  hint: pass the path of a Python script\n"
    assert outcome_of(call("run", "nowhere.py", folder=tmp_path)) == (2, "", expected)
    assert call("run", tmp_path).returncode == 2


def test_run_refuses_a_module_that_is_not_there(tmp_path):
    expected = "nkilab: there is no module no_such_module\n  hint: pass one that python3 -m would run\n"
    assert outcome_of(call("run", "-m", "no_such_module", folder=tmp_path)) == (2, "", expected)


def test_run_shows_a_syntax_error_as_python_does(tmp_path):
    path = script(tmp_path, "x = 1\ndef broken(:\n")
    done = call("run", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == f'  File "{path}", line 2\n    def broken(:\n               ^\nSyntaxError: invalid syntax\n'
    )


RAISING = """\
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x):
    tile = nl.load(x)
    return helper(tile)

def helper(tile):
    {0}

kernel(np.ones((4, 4), np.float32))
"""


def test_run_shows_the_users_frames_alone_of_an_exception_of_his_kernel(tmp_path):
    path = script(tmp_path, RAISING.format("raise LookupError('mine')"))
    done = call("run", path)
    assert (done.returncode, done.stdout) == (1, "")
    places = [line for line in done.stderr.splitlines() if line.startswith("  File ")]
    assert places == [
        f'  File "{path}", line 13, in <module>', f'  File "{path}", line 8, in kernel',
        f'  File "{path}", line 11, in helper',
    ]  # fmt: skip
    assert done.stderr.splitlines()[-1] == "LookupError: mine"


def test_run_tells_an_error_of_ours_in_one_message(tmp_path):
    path = script(tmp_path, RAISING.format("return nl.store(tile, tile)"))
    assert outcome_of(call("run", path)) == (
        1,
        "",
        "host.py:11: store: dst is in sbuf; store needs it in hbm\n"
        "  hint: use nl.copy or nisa.tensor_copy within the chip\n  key: err_unsupported_memory\n",
    )


def test_run_names_the_nearest_name_that_is_served(tmp_path):
    path = script(tmp_path, RAISING.format("return nl.affine_rang(3)"))
    assert outcome_of(call("run", path)) == (
        1,
        "",
        "host.py:11: neuronxcc.nki.language: nkilab serves no name affine_rang here\n"
        "  hint: did you mean affine_range?\n",
    )


def test_a_wrong_call_of_a_served_function_is_the_users_fault(tmp_path):
    for body, problem in (
        (
            "nl.load(tile, tile)",
            "host.py:11: load: takes 1 positional argument but 2 were given\n"
            "  hint: it takes src, mask, dtype, mode",
        ),
        ("nl.program_id(row=1)", "host.py:11: program_id: there is no keyword row; it takes axis"),
        (
            "tile.no_such_thing",
            "host.py:11: a tensor: a tensor has no no_such_thing; it has assert_shape, astype, broadcast_to, "
            "buffer, dtype, expand_dims, itemsize, ndim, reshape, shape, view",
        ),
    ):
        done = call("run", script(tmp_path, RAISING.format(body)))
        assert done.returncode == 1
        assert "\n".join(done.stderr.splitlines()[-problem.count("\n") - 1 :]) == problem
        assert SOURCE not in done.stderr


def test_a_bug_of_ours_is_told_as_one(tmp_path):
    text = RAISING.format("pass").replace(
        "kernel(np", "import nkilab.launches\nnkilab.launches.Program = None\nkernel(np"
    )
    done = call("run", script(tmp_path, text))
    assert done.returncode == 3
    last = "nkilab: this is a bug of nkilab; please report it with the lines above"
    assert done.stderr.splitlines()[-1] == last


def test_run_holds_a_kernel_to_a_version_and_a_chip(tmp_path):
    text = "import nki\n\n@nki.jit(platform_target='trn2')\ndef kernel(x):\n    return x\n"
    path = script(tmp_path, text)
    assert call("run", "--nki", "0.2", path).returncode == 0
    done = call("run", "--nki", "0.6", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("host.py:3: nki.jit: NKI 0.6 does not accept nki.jit(platform_target=...)")
    done = call("run", path)
    assert done.returncode == 0
    assert done.stderr.startswith(
        "nkilab: notice: nki.jit(platform_target=...): NKI 0.1 added it and NKI 0.3"
    )


def test_run_refuses_a_version_or_chip_that_does_not_exist(tmp_path):
    path = script(tmp_path, "print('ran')\n")
    assert outcome_of(call("run", "--nki", "9.9", path)) == (
        2, "", "nkilab: NKI version is 9.9; it must be one of beta1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7\n",
    )  # fmt: skip
    assert outcome_of(call("run", "--target", "tpu", path)) == (
        2, "",
        "nkilab: target is tpu; it must be one of trn1, trn2, trn3, inf2, trn1n, trn3pre, gen2, gen3, gen4\n"
        "  hint: a chip with constants of its own is the path of a machine file, MACHINE.yaml\n",
    )  # fmt: skip


@pytest.mark.parametrize("root", ["nki", "neuronxcc"])
def test_run_stops_where_another_distribution_provides_a_name(tmp_path, root):
    package = tmp_path / "site" / root
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / {"nki": "language.py", "neuronxcc": "nki.py"}[root]).write_text("")
    path = script(tmp_path, "print('ran')\n")
    done = call("run", path, env={"PYTHONPATH": f"{SOURCE}{os.pathsep}{package.parent}"})
    assert outcome_of(done) == (
        2,
        "",
        f"nkilab: {root} is installed at {package / '__init__.py'}; nkilab serves the name only where "
        "nobody else "
        "does\n  hint: choose with nkilab run --backend sim or vendor, or use an environment without it\n",
    )


def test_a_child_of_the_script_finds_neuron_profile(tmp_path):
    path = script(tmp_path, "import subprocess\nsubprocess.run(['neuron-profile', '--help'], check=True)\n")
    done = call("run", path)
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: neuron-profile")


# neuron-profile


@pytest.fixture
def captured(tmp_path):
    """A NEFF and its NTFF in a folder of their own."""
    host = (
        "import numpy as np\nfrom kernels import added\nimport neuronxcc.nki as nki\n"
        "nki.benchmark(added, save_neff_name='k.neff', save_trace_name='k.ntff')(np.ones((64, 512), "
        "np.float32), "
        "np.ones((64, 512), np.float32))\n"
    )
    capture_folder = tmp_path / "made"
    capture_folder.mkdir()
    (capture_folder / "kernels.py").write_text(KERNEL)
    assert call("run", script(capture_folder, host), folder=capture_folder).returncode == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("k.neff", "k.ntff"):
        (capture_folder / name).rename(elsewhere / name)
    (capture_folder / "kernels.py").unlink()
    return elsewhere


def profile(folder, *args):
    return call("neuron-profile", *args, folder=folder)


def test_files_are_profiled_wherever_they_are_copied(captured):
    done = profile(captured, "capture", "-n", "k.neff", "-s", "again.ntff", "--profile-nth-exec", "2")
    assert done.returncode == 0
    assert done.stdout.startswith("wrote again_exec_2.ntff: ")
    assert (captured / "again_exec_2.ntff").read_bytes() == (captured / "k.ntff").read_bytes()
    for options in ((), ("-s", "k.ntff")):
        done = profile(captured, "summary", "--json", "-n", "k.neff", *options)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["instructions"] == {"dma_copy": 3, "tensor_tensor": 1}
    shown = profile(captured, "view", "-n", "k.neff", "-s", "k.ntff").stdout
    assert shown == profile(captured, "view", "-n", "k.neff").stdout
    assert "critical path: what the time went to" in shown


def test_view_prints_and_writes_the_vendors_formats(captured):
    done = profile(captured, "view", "--output-format", "summary-text", "-n", "k.neff", "-s", "k.ntff")
    values = dict(line.split() for line in done.stdout.splitlines())
    assert list(values) == sorted(values)
    assert values["dma_transfer_count"] == "3"
    # three transfers of [64, 512] float32
    assert values["dma_transfer_total_bytes"] == str(3 * 64 * 512 * 4)
    done = profile(captured, "view", "--output-format=summary-json", "-n", "k.neff", "-s", "k.ntff")
    ((name, metrics),) = json.loads(done.stdout).items()
    assert name.startswith("n_")
    # seconds
    assert metrics["total_time"] == pytest.approx(float(values["total_time"]), rel=1e-8)
    assert 1e-5 < metrics["total_time"] < 1e-4
    assert 0 < metrics["dma_active_time_percent"] < 1
    done = profile(captured, "view", "--output-format", "json", "-n", "k.neff", "-s", "k.ntff")
    assert outcome_of(done) == (0, "wrote ntff.json\n", "")
    whole = json.loads((captured / "ntff.json").read_text())
    assert list(whole) == ["summary", "instruction", "dma"]
    assert whole["summary"][0] == metrics
    assert whole["instruction"][0]["opcode"] == "TENSOR_TENSOR"
    assert whole["instruction"][0]["label"] == "Vector"
    assert {"timestamp", "duration", "operands"} <= set(whole["instruction"][0])
    assert [event["op"] for event in whole["dma"]] == ["read", "read", "write"]


def test_view_writes_where_it_is_told(captured):
    done = profile(captured, "view", "--output-format=json", "--output-file=p.json", "-n", "k.neff")
    assert outcome_of(done) == (0, "wrote p.json\n", "")
    assert json.loads((captured / "p.json").read_text())["summary"]
    for kind, package in (("perfetto", "json"), ("parquet", "pyarrow")):
        pytest.importorskip(package)
        done = profile(captured, "view", "--output-format", kind, "--output-file", kind, "-n", "k.neff")
        assert outcome_of(done) == (0, f"wrote {kind}\n", "")
        assert (captured / kind).exists()


@pytest.mark.parametrize("verb", ["capture", "view", "summary"])
@pytest.mark.parametrize("damage", ["garbage", "truncated", "flipped", "empty", "missing", "other kind"])
def test_a_file_that_is_foreign_or_damaged_is_refused_in_one_message(captured, verb, damage):
    good = (captured / "k.neff").read_bytes()
    content = {
        "garbage": b"\x7fELF" + bytes(range(200)), "truncated": good[:-7], "empty": b"",
        "flipped": good[:-20] + bytes([good[-20] ^ 1]) + good[-19:],
        "other kind": (captured / "k.ntff").read_bytes(),
    }  # fmt: skip
    if damage != "missing":
        (captured / "bad.neff").write_bytes(content[damage])
    before = sorted(p.name for p in captured.iterdir())
    done = profile(captured, verb, "-n", "bad.neff")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("neuron-profile: bad.neff ")
    assert "Traceback" not in done.stderr
    assert sorted(p.name for p in captured.iterdir()) == before


def test_a_trace_of_another_program_is_refused(captured):
    capture_folder = captured.parent / "made"
    (capture_folder / "kernels.py").write_text(KERNEL)
    host = (
        "import numpy as np\nfrom kernels import doubled\nimport neuronxcc.nki as nki\n"
        "nki.benchmark(doubled, save_neff_name='k.neff', save_trace_name='k.ntff')(np.ones((64, 8), "
        "np.float32))\n"
    )
    assert call("run", script(capture_folder, host), folder=capture_folder).returncode == 0
    done = profile(captured, "view", "-n", "k.neff", "-s", capture_folder / "k.ntff")
    assert (done.returncode, done.stdout) == (1, "")
    assert "k.ntff is the timeline of another program: kernel doubled, sha256 " in done.stderr


def test_neuron_profile_without_a_file_is_wrong_usage(tmp_path):
    assert profile(tmp_path, "capture").returncode == 2
    assert profile(tmp_path, "inspect").returncode == 2


# explain, doctor, demo


def test_explain_shows_an_instruction_a_chip_and_a_metric():
    for name, words in (
        ("nc_matmul", ["nc_matmul", "stationary", "moving", "source: nki.isa.nc_matmul"]),
        ("nki.isa.tensor_copy", ["tensor_copy", "neuronxcc.nki"]),
        ("trn2", ["trn2, NeuronCore-v3", "partitions", "documented"]),
    ):
        done = call("explain", name)
        assert (done.returncode, done.stderr) == (0, "")
        assert all(word in done.stdout for word in words)


def test_explain_of_an_unknown_name_suggests_the_nearest():
    done = call("explain", "nc_matmull")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nkilab: there is no page of nc_matmull\n  hint: did you mean nc_matmul")


def test_doctor_names_versions_and_who_serves_the_names():
    document = json.loads(call("doctor", "--json").stdout)
    assert document["schema"] == "nkilab.doctor/1"
    assert document["nkilab"] == nkilab.__version__
    assert document["names"] == {"neuronxcc": "served by nkilab", "nki": "served by nkilab"}
    assert call("doctor").stdout.startswith(f"nkilab {nkilab.__version__} on Python ")


def test_doctor_shows_and_clears_what_is_kept_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("NKILAB_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    place = kept_estimates.FOLDER.place()
    kept_estimates.FOLDER.write(place / "a", bytes(1_000_000))
    shown = f"estimates are kept: 1 files of 1.0 MB in {place}"
    assert " ".join(call("doctor", "--cache").stdout.split()).endswith(shown)
    assert [own["files"] for own in json.loads(call("doctor", "--cache", "--json").stdout)["kept"]] == [0, 1]
    cleared = call("doctor", "--cache", "--clear").stdout
    assert " ".join(cleared.split()).endswith(shown.replace("kept", "taken away"))
    assert [*place.iterdir()] == []
    done = call("doctor", "--clear")
    assert (done.returncode, done.stderr) == (
        2, "nkilab: --clear deletes what --cache shows\n  hint: give both\n",
    )  # fmt: skip


def test_demo_runs_checks_times_and_writes(tmp_path):
    done = call("demo", "--output", "files", "--json", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["schema"] == "nkilab.demo/1"
    assert all(k["matches_numpy"] and k["estimate"]["latency_us"] > 0 for k in document["kernels"])
    assert sorted(p.name for p in (tmp_path / "files").iterdir()) == sorted(
        Path(f).name for k in document["kernels"] for f in k["files"]
    )


def test_demo_refuses_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "taken").write_text("")
    done = call("demo", "--output", "taken", folder=tmp_path)
    assert outcome_of(done) == (
        2, "", "nkilab: taken is a file; a folder is to be written there\n  hint: name another folder\n"
    )  # fmt: skip


# NKILAB=1


def test_a_plain_python_serves_the_names_once_the_pth_line_runs(kernels):
    line = (Path(SOURCE) / "nkilab.pth").read_text()
    code = f"{line}\nimport sys\nassert 'nkilab.api' not in sys.modules\n"
    code += "import kernels\nprint(kernels.doubled)\n"
    done = call(folder=kernels, env={"NKILAB": "1"}, python=("-c", code))
    assert outcome_of(done) == (0, "imported\n<nki kernel doubled>\n", "")
    done = call(folder=kernels, env={"NKILAB": "0"}, python=("-c", code))
    assert done.returncode == 1
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'neuronxcc'\n")


def test_a_plain_python_takes_its_version_from_the_environment(tmp_path):
    code = "import nkilab.autostart\nimport nki\nnki.jit(lambda x: x, platform_target='trn2')\n"
    done = call(folder=tmp_path, env={"NKILAB_NKI": "0.6"}, python=("-c", code))
    assert done.returncode == 1
    assert "NKI 0.6 does not accept nki.jit(platform_target=...)" in done.stderr
    assert call(folder=tmp_path, env={"NKILAB_NKI": "0.2"}, python=("-c", code)).returncode == 0


def test_the_names_are_not_served_before_anybody_asks(tmp_path):
    code = "import nkilab, sys\ntry:\n    import nki\nexcept ModuleNotFoundError as e:\n    print(e)\n"
    assert outcome_of(call(folder=tmp_path, python=("-c", code))) == (0, "No module named 'nki'\n", "")
