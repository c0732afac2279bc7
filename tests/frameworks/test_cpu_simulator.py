"""The names of `nki_cpu_simulator`, `nki.compiler.frontend` and what else host scripts import beside NKI."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from nkilab.dialects.serve import ROOTS
from nkilab.errors import LimitError, UnsupportedError, UseError
from nkilab.frameworks.shims import SHIM_ROOTS, simulator_tree
from nkilab.hook import switch_off, switch_on

PARTS = ["builtin", "compiler", "isa", "isa.constants", "language", "language.dtypes", "tensor", "typing"]


@pytest.fixture
def served():
    finder = switch_on(serves_shims=True)
    yield
    switch_off(finder)


@pytest.fixture
def sim():
    tree = simulator_tree("")
    return tree["nki_cpu_simulator.nki"]


def doubled(sim):
    nl, nisa = sim.language, sim.isa

    @sim.jit
    def kernel(x, factor=2.0):
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    return kernel


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("part", PARTS)
def test_every_module_of_the_simulator_is_importable(part):
    module = importlib.import_module(f"nki_cpu_simulator.nki.{part}")
    assert module is importlib.import_module(f"nki_cpu_simulator.nki.{part}")


def test_cores_stand_before_the_arguments(sim):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(sim.cpu_simulate(doubled(sim))[1](x=x, factor=3.0), 3 * x)


def test_a_plain_function_is_a_kernel_too(sim):
    x = np.ones((2, 2), np.float32)
    np.testing.assert_array_equal(sim.cpu_simulate(doubled(sim).function)[1](x), 2 * x)


@pytest.mark.parametrize(("generation_name", "generation"), [("gen2", 2), ("gen3", 3), ("gen4", 4)])
def test_a_variable_of_the_environment_names_the_generation(sim, monkeypatch, generation_name, generation):
    seen = []

    @sim.jit
    def kernel(x):
        seen.append(sim.isa.get_nc_version())
        return doubled(sim)(x)

    monkeypatch.setenv("NKI_NC_VERSION", generation_name)
    sim.cpu_simulate(kernel)[1](np.ones((2, 2), np.float32))
    assert seen == [generation]


def test_what_is_no_kernel_is_refused(sim):
    with pytest.raises(UseError) as caught:
        sim.cpu_simulate(3)
    assert str(caught.value) == "nki.cpu_simulate takes a kernel; got int"


@pytest.mark.usefixtures("served")
def test_a_front_end_compiles_from_shapes():
    frontend = importlib.import_module("nki.compiler.frontend").ParserFrontend()
    kernel = doubled(importlib.import_module("nki"))
    program = frontend.compile(kernel, inputs={"x": np.ones((4, 8), np.float32)}, target="trn2", lnc=1)
    names = [program.form_of(row).name for row in range(len(program))]
    assert names == ["dma_copy", "tensor_scalar", "dma_copy"]
    with pytest.raises(LimitError, match="number of partitions 129 exceed"):
        frontend.compile(kernel, inputs={"x": np.ones((129, 8), np.float32)}, target="trn2", lnc=1)


@pytest.mark.usefixtures("served")
def test_the_cast_of_the_older_package_is_that_of_neuron_dtypes():
    support = importlib.import_module("neuronxcc.starfish.support.dtype")
    assert support.static_cast is importlib.import_module("neuron_dtypes").static_cast


@pytest.mark.usefixtures("served")
def test_a_script_that_takes_no_simulator_module_finds_its_call_in_nki():
    nki = importlib.import_module("nki")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(nki.cpu_simulate(doubled(nki))[1](x=x, factor=3.0), 3 * x)


@pytest.mark.usefixtures("served")
def test_the_comparison_of_public_suites_counts_what_is_too_far(capsys):
    allclose = importlib.import_module("neuronxcc.starfish.support.util").allclose
    desired = np.array([[1.0, np.inf, 200.0], [0.0, np.nan, 3.0]])
    # by hand: 0.0005 <= 0.01 + 0.001 * 1, 0.3 > 0.01 + 0.001 * 200 = 0.21, 0.011 > 0.01
    actual = desired + np.array([[0.0005, 0, 0.3], [0.011, 0, 0]])
    assert not allclose(actual, desired, atol=0.01, rtol=0.001, equal_nan=True, verbose=1)
    assert capsys.readouterr().out == "2 of 6 elements are too far from what is desired\n"
    near = {"atol": 0.02, "rtol": 0.0015, "equal_inf": True, "mode": "max"}
    assert allclose(actual, desired, equal_nan=True, **near)
    assert not allclose(actual, desired, **near)
    with pytest.raises(UnsupportedError, match="and mode='max'; got mode='mean'"):
        allclose(actual, desired, mode="mean")


@pytest.mark.usefixtures("served")
def test_a_shim_has_the_names_of_its_table_alone():
    with pytest.raises(AttributeError) as caught:
        _ = importlib.import_module("neuron_dtypes").float7
    assert "float7" in str(caught.value)


def test_a_plain_interpreter_watches_for_every_served_root():
    # not imported: that would set its finder up
    source = Path(find_spec("nkilab.autostart").origin).read_text()
    names = next(line for line in source.splitlines() if line.startswith("_NAMES = "))
    assert set(ast.literal_eval(names.removeprefix("_NAMES = "))) == {*ROOTS, *SHIM_ROOTS}
