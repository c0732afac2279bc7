"""Kernels, their errors and what is made of them go to other processes, and copies of models share them."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nkilab
from nkilab.dialects.kernel import Kernel
from nkilab.dialects.references import Reference
from nkilab.errors import KernelError, LimitError, UsageError

MODULE = """
import neuronxcc.nki as nki1
import nki
import nki.isa as nisa
import nki.language as nl
import nkilab


@nki.jit
def copied(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki1.jit
def of_beta1(x):
    return x


measured = nki1.benchmark(of_beta1)
tuned = nkilab.tune.autotune({"n": [1, 2]})(of_beta1)


def scope():
    @nki.jit
    def local(x):
        return x

    return local
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user's that is imported by name."""
    (tmp_path / "pickled_kernels.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    with nkilab.activate():
        import pickled_kernels
    yield pickled_kernels
    del sys.modules["pickled_kernels"]


def again(value):
    return pickle.loads(pickle.dumps(value))


def test_a_kernel_at_the_top_of_a_module_is_pickled_as_its_name(module):
    assert again(module.copied) is module.copied
    assert again(module.of_beta1) is module.of_beta1
    assert copy.deepcopy(module.copied) is module.copied


def test_a_grid_goes_with_a_kernel(module):
    unpickled = again(module.copied[2])
    assert (unpickled.grid, unpickled.function) == ((2,), module.copied.function)


def test_what_measures_and_tunes_a_kernel_is_pickled_with_it(module):
    assert again(module.measured).kernel is module.of_beta1
    unpickled = again(module.tuned)
    assert (unpickled.kernel, unpickled.space) == (module.of_beta1, module.tuned.space)


def test_a_local_kernel_is_refused_as_pythons_functions_are(module):
    # pickle.PicklingError from Python 3.12 on
    with pytest.raises((AttributeError, pickle.PicklingError), match="local object"):
        pickle.dumps(module.scope())


def test_a_kernel_that_is_gone_is_named(module):
    text = pickle.dumps(module.copied)
    path = module.__file__
    del module.copied
    with pytest.raises(UsageError) as error:
        pickle.loads(text)
    assert str(error.value) == f"{path} has no kernel copied any more"


def test_a_module_that_breaks_off_is_run_anew_the_next_time(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "breaks_off.py"
    path.write_text("import nki\n\n@nki.jit\ndef kept(x):\n    return x\n\nopen('there').close()\n")
    reference = Reference("breaks_off", "kept", str(path))
    monkeypatch.chdir(tmp_path)
    with nkilab.activate():
        # the module's own error, not one about its file
        with pytest.raises(FileNotFoundError, match="there"):
            reference.kernel(Kernel)
        assert "breaks_off" not in sys.modules
        (tmp_path / "there").touch()
        assert reference.kernel(Kernel).function.__name__ == "kept"
    del sys.modules["breaks_off"]


def test_a_process_in_which_nobody_serves_the_names_says_so(module, tmp_path):
    (tmp_path / "kernel.pickle").write_bytes(pickle.dumps(module.copied))
    environment = {k: v for k, v in os.environ.items() if k != "NKILAB"}
    environment["PYTHONPATH"] = str(Path(nkilab.__file__).parents[1])
    code = "import pickle; pickle.load(open('kernel.pickle', 'rb'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-2:] == [
        f"nkilab.errors.UsageError: {module.__file__} imports neuronxcc, which nobody serves in this process",
        "  hint: start it by nkilab run, or with NKILAB=1",
    ]


def test_an_error_keeps_its_type_and_all_parts_of_its_message(module):
    with pytest.raises(LimitError) as raised:
        module.copied(np.zeros((256, 4), np.float32))
    unpickled = again(raised.value)
    assert type(unpickled) is type(raised.value)
    assert isinstance(unpickled, ValueError)
    assert isinstance(unpickled, KernelError)
    assert str(unpickled) == str(raised.value)
    assert "number of partitions 256 exceed" in str(unpickled)


def test_a_compiled_einsum_is_pickled_after_its_kernel_was_used():
    compiled = nkilab.einsum.compile("mk,kn->mn", sizes={"M": 128, "K": 128, "N": 128})
    a, b = np.eye(128, dtype=np.float32), np.full((128, 128), 2, np.float32)
    assert np.array_equal(compiled(a, b), b)
    assert np.array_equal(again(compiled)(a, b), b)
    assert again(compiled.estimate).latency_us == compiled.estimate.latency_us


SCRIPT = (
    MODULE
    + """

if __name__ == "__main__":
    import multiprocessing

    import numpy as np

    ones = np.ones((128, 4), np.float32)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(sum(float(r.sum()) for r in pool.map(copied, [ones, 2 * ones])))
        try:
            pool.map(copied, [np.ones((256, 4), np.float32)])
        except ValueError as error:
            print(type(error).__name__, "number of partitions 256" in str(error))
"""
)


def test_workers_that_a_script_spawns_run_its_kernels(tmp_path):
    """128 * 4 ones and as many twos: 1536."""
    (tmp_path / "script.py").write_text(SCRIPT)
    # as the file nkilab.pth does where nkilab is installed
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nif os.environ.get('NKILAB') == '1':\n    import nkilab.autostart\n"
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(nkilab.__file__).parents[1])])
    environment = {**{k: v for k, v in os.environ.items() if k != "NKILAB"}, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-m", "nkilab", "run", "script.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("1536.0\nLimitError True\n", 0), done.stderr
