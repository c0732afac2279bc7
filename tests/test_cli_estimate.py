"""`nkilab estimate` as a user calls it: arguments, JSON, exit codes."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from nkilab.machine import MACHINES
from tests.command_line import KERNEL, SOURCE, call, outcome_of, script


@pytest.fixture
def kernels(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNEL)
    return tmp_path


def estimate(folder, *args, **options):
    return call("estimate", *args, folder=folder, **options)


def test_estimate_prints_json_alone_and_its_schema_is_stable(kernels):
    done = estimate(kernels, "kernels.py:added", "--arg", "f32[64,512]", "--arg", "y=bf16[64,512]", "--json")
    assert done.returncode == 0
    assert done.stderr == "imported\n"
    document = json.loads(done.stdout)
    assert list(document) == [
        "schema", "kernel", "target", "model_version", "latency_us", "interval_us", "bound",
        "nearest_measured", "is_unlike_measured", "window_us", "profile_us", "notes", "instructions",
        "summary", "cores", "together", "advice",
    ]  # fmt: skip
    assert (document["schema"], document["kernel"], document["target"]) == (
        "nkilab.estimate/1",
        "added",
        "trn2",
    )
    assert document["instructions"] == {"dma_copy": 3, "tensor_tensor": 1}
    assert document["interval_us"][0] < document["latency_us"] < document["interval_us"][1]


def test_estimate_takes_several_targets_a_grid_and_keywords(kernels):
    args = ["kernels.py:doubled", "--arg", "x=f32[256,128]", "--kw", "factor=3", "--grid", "4", "--json"]
    done = estimate(kernels, *args, "--target", "trn1, trn2,gen4")
    document = json.loads(done.stdout)
    assert [f["target"] for f in document] == ["trn1", "trn2", "trn3"]
    # on trn1 the compiler makes an ACTIVATE of a multiplication by a number (place/balance.py)
    scales = ["activation", "tensor_scalar", "tensor_scalar"]
    assert [f["instructions"] for f in document] == [{"dma_copy": 8, scale: 4} for scale in scales]


def test_parameters_of_a_kernel_may_be_called_as_options_are(kernels):
    text = (kernels / "kernels.py").read_text().replace("def doubled(x, factor", "def doubled(x, ranks")
    (kernels / "kernels.py").write_text(text.replace("factor", "ranks"))
    done = estimate(kernels, "kernels.py:doubled", "--arg", "x=f32[256,128]", "--kw", "ranks=3", "--json")
    assert (done.returncode, json.loads(done.stdout)["instructions"]["dma_copy"]) == (0, 2)


def test_several_targets_are_columns_of_one_table(kernels):
    targets = tuple(MACHINES)
    args = ["kernels.py:doubled", "--arg", "x=f32[256,128]"]
    done = estimate(kernels, *args, "--target", ",".join(targets))
    assert done.returncode == 0
    rows = [[cell.strip() for cell in line.strip("│┃").split("│")] for line in done.stdout.splitlines()]
    by_name = {row[0]: row[1:] for row in rows if len(row) == 1 + len(targets)}
    for place, target in enumerate(targets):
        document = json.loads(estimate(kernels, *args, "--target", target, "--json").stdout)
        assert by_name["predicted latency"][place] == f"{document['latency_us']:.2f} us"
        assert by_name["at least"][place] == f"{document['interval_us'][0]:.2f} us"
        assert by_name["bound by"][place] == document["summary"]["bound"]
    assert "doubled on trn1, trn2, trn3 (timing model" in done.stdout


def test_estimate_takes_an_array_from_a_file(kernels):
    np.save(kernels / "x.npy", np.ones((64, 8), np.float32))
    done = estimate(kernels, "kernels.py:doubled", "--arg", "@x.npy")
    assert done.returncode == 0
    assert "doubled" in done.stdout


def test_estimate_follows_the_environment_for_its_target(kernels):
    env = {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn1"}
    done = estimate(kernels, "kernels.py:doubled", "--arg", "f32[64,8]", "--json", env=env)
    assert json.loads(done.stdout)["target"] == "trn1"
    done = estimate(
        kernels, "kernels.py:doubled", "--arg", "f32[64,8]", "--json", "--target", "trn3", env=env
    )
    assert json.loads(done.stdout)["target"] == "trn3"
    bad = estimate(
        kernels, "kernels.py:doubled", "--arg", "f32[64,8]", env={"NEURON_PLATFORM_TARGET_OVERRIDE": "tpu"}
    )
    assert bad.returncode == 2


TYPES = (
    "float32, tfloat32, bfloat16, float16, float8_e4m3, float8_e5m2, float8_e4m3fn, int32, int16, int8, "
    "uint32, uint16, uint8, bool, float8_e8m0fnu, float8_e5m2_x4, float8_e4m3fn_x4, float4_e2m1fn_x4"
)
DOUBLED = "kernels.py:doubled"
WRONG_USAGE = [
    (["kernels.py"],
     "kernels.py does not name a kernel\n  hint: write kernels.py:doubled or kernels.py:added"),
    (["nowhere.py"], "nowhere.py does not name a kernel\n  hint: write nowhere.py:KERNEL"),
    (["nowhere.py:doubled"], "there is no file nowhere.py\n  hint: pass FILE.py:KERNEL"),
    (["kernels.py:tripled"], "kernels.py has no tripled\n  hint: its kernels are doubled, added"),
    (["kernels.py:plain"], "plain is no NKI kernel; decorate it with nki.jit of either spelling"),
    ([DOUBLED, "--arg", "64"], "--arg is '64'; write DTYPE[N,...], as in f32[128,512], or @FILE.npy"),
    ([DOUBLED, "--arg", "f32[64,x]"], "--arg is 'f32[64,x]'; write DTYPE[N,...], as in f32[128,512], or "
     "@FILE.npy"),
    ([DOUBLED, "--arg", "f99[64]"], f"--arg is 'f99[64]': dtype is f99; it must be one of {TYPES}"),
    ([DOUBLED, "--arg", "x=f64[64]"], f"--arg is 'f64[64]': dtype is f64; it must be one of {TYPES}"
     "\n  hint: cast it on the host first"),
    ([DOUBLED, "--arg", "f32[64,0]"], "a spec has shape [64, 0]; extents are at least 1"),
    ([DOUBLED, "--arg", "@no.npy"],
     "no.npy cannot be read: no such file or directory\n  hint: save the array with numpy.save"),
    ([DOUBLED, "--arg", "f32[64,8]", "--kw", "factor"], "--kw is 'factor'; write name=value"),
    ([DOUBLED, "--arg", "f32[64,8]", "--grid", "2,x"],
     "--grid is '2,x'; write whole numbers of at least 1, as in 4,8"),
    ([DOUBLED, "--arg", "f32[64,8]", "--grid", "0"], "--grid is '0'; write whole numbers of at least 1, as "
     "in 4,8"),
    ([DOUBLED, "--arg", "f32[64,8]", "--target", "trn2,tpu"],
     "target is tpu; it must be one of trn1, trn2, trn3, inf2, trn1n, trn3pre, gen2, gen3, gen4"
     "\n  hint: a chip with constants of its own is the path of a machine file, MACHINE.yaml"),
    ([DOUBLED, "--arg", "f32[64,8]", "--trips", "kernels:3"],
     "--trips is 'kernels:3'; write FILE.py:LINE=N, as in kernel.py:41=8"),
    ([DOUBLED, "--arg", "f32[64,8]", "--target", "trn2,"],
     "target is ; it must be one of trn1, trn2, trn3, inf2, trn1n, trn3pre, gen2, gen3, gen4"
     "\n  hint: a chip with constants of its own is the path of a machine file, MACHINE.yaml"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "message"), WRONG_USAGE, ids=[" ".join(a) for a, _ in WRONG_USAGE])
def test_estimate_tells_wrong_usage_in_one_message_and_exits_2(kernels, args, message):
    done = estimate(kernels, *args)
    assert (done.returncode, done.stderr) == (2, f"nkilab: {message}\n")
    assert done.stdout in ("", "imported\n")


FAULTS = [
    (["kernels.py:added", "--arg", "f32[64,8]"],
     "kernels.py:13: added: the arguments do not fit the kernel: missing a required argument: 'y'"
     "\n  hint: added takes x, y; give an array with --arg, as in f32[128,512], "
     "anything else with --kw NAME=VALUE"),
    ([DOUBLED, "--arg", "f32[8,8]"],
     "kernels.py:10: load: indices 0 to 63 reach outside axis 0 of x: float32[8, 8] in hbm, which has 8 "
     "elements\n  src = x: float32[64, 8] in hbm\n"
     "  hint: mask the access: mask=(index < size)\n  key: err_tensor_access_out_of_bound"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "message"), FAULTS, ids=[" ".join(a) for a, _ in FAULTS])
def test_estimate_tells_a_fault_of_the_kernel_in_one_message_and_exits_1(kernels, args, message):
    assert outcome_of(estimate(kernels, *args)) == (1, "imported\n", message + "\n")


def test_estimate_of_an_array_with_pickles_or_garbage_is_refused(kernels):
    np.save(kernels / "objects.npy", np.array([{}], object), allow_pickle=True)
    (kernels / "garbage.npy").write_bytes(b"\x93NUMPY\x01\x00garbage")
    for name in ("objects.npy", "garbage.npy"):
        done = estimate(kernels, DOUBLED, "--arg", f"@{name}")
        message = f"nkilab: {name} holds no array\n  hint: save it with numpy.save, without pickles\n"
        assert outcome_of(done) == (1, "", message)


def test_estimate_shows_why_a_file_does_not_import(kernels):
    path = script(kernels, "import kernels\n\nimport no_such_module\n", "broken.py")
    done = estimate(kernels, "broken.py:kernel", "--json")
    text = json.loads(done.stdout)["text"]
    assert (done.returncode, done.stderr) == (1, f"imported\n{text}\n")
    shown, told_last = done.stderr.split("ModuleNotFoundError: No module named 'no_such_module'\n")
    assert shown.startswith("imported\nTraceback (most recent call last):\n")
    assert shown.endswith(f'{path.name}", line 3, in <module>\n    import no_such_module\n')
    assert told_last == f"nkilab: the environment of {sys.executable} has no module no_such_module\n"
    assert SOURCE not in done.stderr
    assert "importlib" not in done.stderr
