"""Serving the names: where, how long, and beside what else is installed."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

import nkilab
from nkilab import doctor
from nkilab.errors import UsageError
from nkilab.hook import ServedFinder, switch_off, switch_on

SPELLINGS = {
    "nki": ["nki", "nki.isa", "nki.language", "nki.isa.constants", "nki.typing"],
    "neuronxcc": [
        "neuronxcc", "neuronxcc.nki", "neuronxcc.nki.isa", "neuronxcc.nki.language", "neuronxcc.nki.compiler",
        "neuronxcc.nki.typing", "neuronxcc.nki.isa.constants",
    ],
}  # fmt: skip
NAMES = [name for names in SPELLINGS.values() for name in names]


def served():
    return sorted(n for n in sys.modules if n.partition(".")[0] in SPELLINGS)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_importable_inside_an_activation_and_gone_afterwards(name):
    before = list(sys.meta_path)
    with nkilab.activate():
        module = importlib.import_module(name)
        assert module.__name__ == name
    assert served() == []
    assert sys.meta_path == before
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


def test_both_ways_of_importing_give_one_module():
    with nkilab.activate():
        import neuronxcc.nki.language as first
        from neuronxcc import nki
        from neuronxcc.nki import language as second

        assert first is second is nki.language


def test_the_names_are_gone_after_an_exception():
    with pytest.raises(LookupError), nkilab.activate():
        import nki  # noqa: F401

        raise LookupError
    assert served() == []


def test_an_inner_activation_has_its_own_version_and_gives_the_outer_one_back():
    with nkilab.activate(nki="0.2"):
        import nki as outer

        with nkilab.activate(nki="0.6"):
            import nki as inner

            assert inner is not outer
            with pytest.raises(TypeError, match=r"NKI 0\.6 does not accept"):
                inner.jit(lambda x: x, platform_target="trn1")
        assert sys.modules["nki"] is outer
        assert importlib.import_module("nki.language") is outer.language
        assert outer.jit(lambda x: x, platform_target="trn1").platform_target == "trn1"
    assert served() == []


def test_a_kernel_outlives_its_activation():
    with nkilab.activate():
        import neuronxcc.nki.language as nl
        from neuronxcc import nki

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(kernel(x), x)


def test_the_target_of_an_activation_holds_inside_it():
    with nkilab.activate():
        import neuronxcc.nki.language as nl
        from neuronxcc import nki

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    shape = nkilab.spec((2, 3), "float32")
    with nkilab.activate(target="trn3"):
        assert nkilab.estimate(kernel, shape).target == "trn3"
        assert nkilab.estimate(kernel, shape, target="trn1").target == "trn1"
    assert nkilab.estimate(kernel, shape).target == "trn2"


def test_an_unknown_target_is_refused():
    with pytest.raises(UsageError) as caught, nkilab.activate(target="tpu"):
        pass
    assert str(caught.value).startswith(
        "target is tpu; it must be one of trn1, trn2, trn3, inf2, trn1n, trn3pre, gen2, gen3, gen4\n"
    )


@pytest.mark.parametrize("root", SPELLINGS)
def test_an_installed_package_of_the_name_is_not_hidden(tmp_path, monkeypatch, root):
    package = tmp_path / root
    package.mkdir()
    (package / "__init__.py").write_text("theirs = True\n")
    (package / {"nki": "language.py", "neuronxcc": "nki.py"}[root]).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError) as caught, nkilab.activate():
        pass
    assert str(caught.value) == (
        f"{root} is installed at {package / '__init__.py'}; nkilab serves the name only where nobody else "
        "does\n"
        "  hint: use an environment without it"
    )
    # and where it is switched on all the same, it stands last
    finder = switch_on()
    try:
        assert importlib.import_module(root).theirs
    finally:
        switch_off(finder)
        sys.modules.pop(root, None)


def test_a_name_that_is_not_served_is_left_to_others():
    finder = ServedFinder("", serves_shims=False)
    assert finder.find_spec("torch_xla") is None
    assert finder.find_spec("nki.no_such_part") is None
    assert finder.find_spec("numpy") is None


def test_shims_are_served_to_scripts_alone():
    finder = ServedFinder("", serves_shims=True)
    assert finder.find_spec("torch_xla.core.xla_model").origin == "nkilab"


def test_beta_1_gives_logging_its_level_off():
    with nkilab.activate():
        import neuronxcc.nki  # noqa: F401
    assert logging.OFF > logging.CRITICAL


def test_a_missing_name_is_an_attribute_error_that_names_the_nearest():
    with nkilab.activate():
        import nki.isa as nisa
        import nki.typing as nt
    assert not hasattr(nisa, "tensor_tenor")
    with pytest.raises(AttributeError) as caught:
        _ = nisa.tensor_tenor
    assert str(caught.value).split(": ", 1)[1] == (
        "nki.isa: nkilab serves no name tensor_tenor here\n  hint: did you mean tensor_tensor?"
    )
    with pytest.raises(AttributeError) as caught:
        _ = nt.xyz
    assert str(caught.value).split(": ", 1)[1] == (
        "nki.typing: nkilab serves no name xyz here; it has mutable, mutable_tensor, scalar, tensor"
    )


@pytest.mark.parametrize("root", SPELLINGS)
def test_a_placeholder_without_content_counts_as_absent(tmp_path, monkeypatch, root):
    package = tmp_path / root
    package.mkdir()
    (package / "__init__.py").write_text("placeholder = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, root, raising=False)
    with nkilab.activate():
        served = importlib.import_module(root)
        assert not hasattr(served, "placeholder")
    assert doctor.report()["names"][root] == (
        f"served by nkilab; {package / '__init__.py'} is a placeholder without content"
    )


LIBRARIES = ("kernels", "_private_kernels", "_pre_prod_kernels")
IMPORTS = (
    "import neuronxcc.nki.{0}",
    "from neuronxcc.nki import {0}",
    "from neuronxcc.nki.{0}.attention import f",
)


@pytest.mark.parametrize("statement", IMPORTS)
@pytest.mark.parametrize("name", LIBRARIES)
def test_an_import_of_the_vendors_kernels_says_what_they_are(name, statement):
    message = (
        f"neuronxcc.nki.{name} belongs to the vendor's library of kernels, which neuronx-cc brings; nkilab "
        "has no copy\n"
        "  hint: take the kernel from aws-neuron/nki-samples or aws-neuron/nki-library on GitHub, or put a "
        "module of this name on the path"
    )
    with nkilab.activate():
        code = compile(statement.format(name), "kernel.py", "exec")
        # what user code that has another way catches
        for kind in (ImportError, ModuleNotFoundError):
            with pytest.raises(kind) as caught:
                exec(code, {"__name__": "kernel"})
            assert str(caught.value) == f"kernel.py:1: import: {message}"
        assert importlib.util.find_spec(f"neuronxcc.nki.{name}") is None
        served_nki = importlib.import_module("neuronxcc.nki")
        assert not hasattr(served_nki, name)
        with pytest.raises(AttributeError) as missing:
            getattr(served_nki, name)
        assert str(missing.value).partition(": neuronxcc.nki: ")[2] == message


def test_an_import_that_is_refused_shows_no_frame_of_nkilab():
    with nkilab.activate(), pytest.raises(ImportError) as caught:
        exec(compile("import neuronxcc.nki.kernels.attention", "kernel.py", "exec"), {"__name__": "kernel"})
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert [Path(file).name for file in files if "importlib" not in file] == ["test_hook.py", "kernel.py"]


def test_kernels_that_the_user_has_on_the_path_are_imported(tmp_path, monkeypatch):
    package = tmp_path / "neuronxcc" / "nki" / "_pre_prod_kernels"
    package.mkdir(parents=True)
    (package / "blockwise_mm.py").write_text(
        "import neuronxcc.nki.language as nl\nTILE_SIZE = nl.tile_size.pmax\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with nkilab.activate():
        module = importlib.import_module("neuronxcc.nki._pre_prod_kernels.blockwise_mm")
        from neuronxcc.nki import _pre_prod_kernels, jit

        assert _pre_prod_kernels.blockwise_mm is module
        assert callable(jit)
        assert module.TILE_SIZE == 128
        with pytest.raises(ModuleNotFoundError, match=r"_pre_prod_kernels\.other"):
            importlib.import_module("neuronxcc.nki._pre_prod_kernels.other")
    for name in [n for n in sys.modules if n.partition(".")[0] == "neuronxcc"]:
        del sys.modules[name]


def test_a_plain_script_finds_the_kernels_that_lie_on_its_path(tmp_path):
    package = tmp_path / "neuronxcc" / "nki" / "kernels"
    package.mkdir(parents=True)
    (package / "attention.py").write_text("NAME = 'mine'\n")
    text = (
        "from neuronxcc.nki.kernels.attention import NAME; import neuronxcc.nki as nki; print(NAME, nki.jit)"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False,
        env={**os.environ, "NKILAB": "1", "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.startswith("mine <function "), done.stderr
