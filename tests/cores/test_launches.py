"""What the programs of a launch share, return and cost."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import nkilab
from tests.cores.kernels import exchanged, launched, loaded, output_like, parts
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki1, nl1
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl
from tests.isa.warned import heard


@nki.jit
def uneven(x):
    """Core 1 has a tile and rows that core 0 has not, before the shared tensor is made."""
    rank = nl.program_id(0)
    tile = loaded(x)
    if rank == 1:
        spare = nl.ndarray((2, 2), nl.float32, buffer=nl.sbuf)
        nisa.memset(spare, value=0.0)
    out = output_like(x)
    nisa.dma_copy(out[rank], tile)
    return out


def test_memory_that_both_see_has_a_number_of_its_own_in_each_program() -> None:
    x = parts(4, 8)
    left = launched(uneven[2], x)
    np.testing.assert_array_equal(left.results, x)
    # by hand: x, tile, out on core 0; x, tile, spare, out on core 1
    assert left.memories == {("input", "x", 0): (0, 0), ("shared", "", 0): (2, 3)}
    for rank, program in enumerate(left.programs):
        written = [a for a in program.accesses(len(program) - 1) if a.is_written]
        assert [a.storage for a in written] == [left.memories["shared", "", 0][rank]]
        assert [a.offset for a in written] == [32 * rank]


@nki.jit
def named(x):
    """The programs make their shared tensors in different orders; the names tell which is which."""
    a, b = ("a", "b") if nl.program_id(0) == 0 else ("b", "a")
    tensors = {n: nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm, name=n) for n in (a, b)}
    tile = loaded(x)
    nisa.dma_copy(tensors["a" if nl.program_id(0) == 0 else "b"], tile)
    return tensors["a"], tensors["b"]


def test_shared_tensors_are_the_same_by_name() -> None:
    first, second = named[2](np.array([7, 9], np.float32).reshape(2, 1, 1))
    assert (first.item(), second.item()) == (7, 9)


@nki.jit
def named_alike(x):
    """Two tensors of one name in one program are two."""
    tensors = [nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm, name="t") for _ in range(2)]
    nisa.dma_copy(tensors[nl.program_id(0)], loaded(x))
    return tuple(tensors)


def test_the_second_tensor_of_a_name_is_another_one() -> None:
    first, second = named_alike[2](np.array([7, 9], np.float32).reshape(2, 1, 1))
    assert (first.item(), second.item()) == (7, 9)


@nki.jit
def with_private_memory(x):
    """private_hbm is each program's own."""
    out, own = output_like(x), nl.ndarray(x.shape[1:], x.dtype, buffer=nl.private_hbm)
    rank = nl.program_id(0)
    tile = loaded(x)
    nisa.dma_copy(own, tile)
    exchanged(tile, tile)
    nisa.dma_copy(out[rank], own)
    return out


def test_private_memory_is_not_seen_by_the_other_core() -> None:
    x = parts(4, 8)
    np.testing.assert_array_equal(with_private_memory[2](x), x)


@nki.jit
def written_input(x):
    """Each program changes its part of the input, and returns the other's."""
    out = output_like(x)
    rank = nl.program_id(0)
    tile = loaded(x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=10.0)
    nisa.dma_copy(x[rank], tile)
    nisa.core_barrier(x, (0, 1))
    nisa.dma_copy(out[rank], x[1 - rank])
    return out


def test_an_input_written_on_two_cores_is_one_memory() -> None:
    x = parts(4, 8)
    expected = 10 * x
    np.testing.assert_array_equal(written_input[2](x), expected[::-1])
    np.testing.assert_array_equal(x, expected)


@nki.jit
def placed(x):
    out = nl.ndarray((2, 3), nl.int32, buffer=nl.shared_hbm)
    rank = nl.program_id(0)
    row = nl.ndarray((1, 3), nl.int32, buffer=nl.sbuf)
    for column, value in enumerate((rank, nl.num_programs(0), nl.program_ndim())):
        nisa.memset(row[:, column : column + 1], value=value)
    nisa.dma_copy(out[rank : rank + 1], row)
    return out


def test_a_program_knows_its_rank_and_how_many_there_are() -> None:
    np.testing.assert_array_equal(placed[2](parts(1, 1)), [[0, 2, 1], [1, 2, 1]])


def test_without_a_grid_there_is_one_program_of_rank_0() -> None:
    with heard():
        np.testing.assert_array_equal(placed(parts(1, 1))[0], [0, 1, 0])
        np.testing.assert_array_equal(placed[1](parts(1, 1))[0], [0, 1, 1])


def test_a_launch_on_one_core_has_no_thread() -> None:
    seen: list[Any] = []

    @nki.jit
    def looks(x):
        seen.append((threading.current_thread(), [t.name for t in threading.enumerate()]))
        return uneven(x)

    with heard():
        looks(parts(4, 8))
    ((thread, names),) = seen
    assert thread is threading.current_thread()
    assert not [name for name in names if name.startswith("nkilab program")]


@nki.jit
def slow_on_one(x, repeats):
    out, tile = output_like(x), loaded(x)
    for _ in range(repeats if nl.program_id(0) == 1 else 1):
        nisa.activation(tile, op=nl.exp, data=tile)
    nisa.dma_copy(out[nl.program_id(0)], tile)
    return out


def test_an_estimate_shows_the_slower_core_and_says_so() -> None:
    spec = nkilab.spec((2, 64, 512), "float32")
    few, many = (nkilab.estimate(slow_on_one[2], spec, n) for n in (1, 50))
    assert many.program.opcodes()["activation"] == 50
    assert many.latency_us > few.latency_us
    assert many.program.title == "program 1"
    assert [core.titles for core in many.cores] == [("program 0",), ("program 1",)]
    # both share what HBM gives for a part of the time
    times = [core.estimate.latency_us for core in many.cores]
    assert times == pytest.approx([few.latency_us, many.latency_us], rel=0.01)
    assert nkilab.estimate(slow_on_one, spec, 1).cores == ()


def test_two_cores_are_not_timed_one_after_the_other() -> None:
    spec = nkilab.spec((2, 64, 512), "float32")
    single, both = nkilab.estimate(slow_on_one, spec, 1), nkilab.estimate(slow_on_one[2], spec, 1)
    assert both.latency_us == pytest.approx(single.latency_us, rel=0.01)


@nki1.jit
def on_two_cores(x):
    out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
    i, j = nl1.program_id(0), nl1.program_id(1)
    nl1.store(out[i, j], nl1.load(x[i, j]) * (i + 1.0))
    return out


@pytest.mark.parametrize("axis", [nl1.nc(2) * 2, 2 * nl1.nc(2), nl1.spmd_dim(2, nl1.nc(2))])
def test_a_beta1_grid_over_two_cores_makes_two_programs(axis: Any) -> None:
    x = np.arange(4 * 3 * 8, dtype=np.float32).reshape(4, 3, 8, 1)
    left = launched(on_two_cores[axis, 3], x)
    np.testing.assert_array_equal(left.results, x * np.arange(1, 5).reshape(4, 1, 1, 1))
    assert [len(p) for p in left.programs] == [18, 18]


def test_a_plain_beta1_grid_stays_on_one_core() -> None:
    x = np.arange(4 * 3 * 8, dtype=np.float32).reshape(4, 3, 8, 1)
    assert len(launched(on_two_cores[4, 3], x).programs) == 1


@pytest.mark.parametrize("grid", [1, 2])
def test_a_launch_leaves_no_memory_to_the_collector_of_cycles(grid: int) -> None:
    @nki.jit
    def kernel(x):
        out = output_like(x)
        nisa.dma_copy(out[nl.program_id(0)], loaded(x))
        return out

    x = parts(4, 8)[:grid]
    launch = nki.simulate(kernel[grid])
    launch(x)
    gc.collect()
    gc.disable()
    try:
        launch(x)
        assert gc.collect() == 0
    finally:
        gc.enable()
