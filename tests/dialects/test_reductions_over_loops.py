"""Reductions over loops: what takes part, where they begin, and who else wrote their destination."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dialects.spellings import nisa1 as nisa
from tests.dialects.spellings import nki1 as nki
from tests.dialects.spellings import nl1 as nl
from tests.dialects.spellings import program_of, ramp

import nkilab
from nkilab import checking

RNG = np.random.default_rng(20)


@nki.jit
def reduced_into_a_tile(x):
    out = nl.ndarray((4, 6), x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((4, 6), nl.float32)
    for i in nl.affine_range(3):
        for j in nl.affine_range(2):
            total[...] = nl.loop_reduce(nl.load(x[i, j]), op=np.add, loop_indices=[i, j], dtype=nl.float32)
    nl.store(out, total)
    return out


@nki.jit
def reduced_in_a_name(x):
    out = nl.ndarray((4, 6), x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(3):
        for j in nl.affine_range(2):
            total = nl.loop_reduce(nl.load(x[i, j]), op=np.add, loop_indices=[i, j])
    nl.store(out, total)
    return out


@pytest.mark.parametrize("kernel", [reduced_into_a_tile, reduced_in_a_name])
def test_loop_reduce_adds_the_iterations_up(kernel):
    x = RNG.integers(-9, 9, (3, 2, 4, 6)).astype(np.float32)
    np.testing.assert_array_equal(kernel(x), x.sum(axis=(0, 1)))


@nki.jit
def reduced_over_the_inner_loop(x):
    out = nl.ndarray((3, 4, 6), x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(3):
        for j in nl.affine_range(2):
            largest = nl.loop_reduce(nl.load(x[i, j]), op=np.maximum, loop_indices=[j])
        nl.store(out[i], largest)
    return out


def test_loop_reduce_over_an_inner_loop_starts_anew_in_the_outer_one():
    x = RNG.integers(-9, 9, (3, 2, 4, 6)).astype(np.float32)
    np.testing.assert_array_equal(reduced_over_the_inner_loop(x), x.max(axis=1))
    assert program_of(reduced_over_the_inner_loop, x).opcodes() == {
        "dma_copy": 9, "tensor_copy": 3, "tensor_tensor": 3,
    }  # fmt: skip


def reduced_in_place(op, dtype=np.float32):
    """Sums or the like over the inner loop, into one tile that nothing else writes."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((x.shape[0], 4, 6), np.float32, buffer=nl.shared_hbm)
        total = nl.ndarray((4, 6), dtype, buffer=nl.sbuf)
        for i in nl.affine_range(x.shape[0]):
            for j in nl.affine_range(x.shape[1]):
                total[...] = nl.loop_reduce(nl.load(x[i, j]), op=op, loop_indices=[j])
            nl.store(out[i], total)
        return out

    return kernel


@pytest.mark.parametrize("dtype", [np.float32, nl.bfloat16, np.int32])
@pytest.mark.parametrize("op", [np.add, np.multiply, np.maximum, np.minimum])
def test_loop_reduce_into_a_fresh_tile_begins_anew_each_time_the_loop_is_entered(op, dtype):
    # small whole numbers, which every type holds exactly
    x = RNG.integers(1, 4, (3, 4, 4, 6)).astype(np.float32)
    np.testing.assert_array_equal(reduced_in_place(op, dtype)(x), op.reduce(x, axis=1))


@nki.jit
def reduced_in_blocks(x):
    out = nl.ndarray((3, 4, 1), x.dtype, buffer=nl.shared_hbm)
    part = nl.ndarray((3, 2, nl.par_dim(4), 1), nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((3, nl.par_dim(4), 1), nl.float32, buffer=nl.sbuf)
    i_p = nl.arange(4)[:, None]
    for i in nl.affine_range(3):
        for j in nl.affine_range(2):
            part[i, j, i_p, 0] = nisa.tensor_reduce(np.add, nl.load(x[i, j]), axis=[1])
            total[i, i_p, 0] = nl.loop_reduce(part[i, j, i_p, 0], op=np.add, loop_indices=[j])
        nl.store(out[i, i_p, 0], total[i, i_p, 0])
    return out


def test_loop_reduce_into_blocks_of_a_fresh_tensor_is_no_nan():
    x = RNG.integers(-9, 9, (3, 2, 4, 6)).astype(np.float32)
    np.testing.assert_array_equal(reduced_in_blocks(x), x.sum(axis=(1, 3))[..., None])
    assert program_of(reduced_in_blocks, x).opcodes() == {
        "dma_copy": 9, "tensor_reduce": 6, "tensor_copy": 3, "tensor_tensor": 3,
    }  # fmt: skip
    assert [f.rule for f in checking.check(reduced_in_blocks, x) if f.fails] == []


@nki.jit
def reduced_over_the_outer_loop(x):
    out = nl.ndarray((2, 4, 6), x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((2, nl.par_dim(4), 6), nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(3):
        for j in nl.affine_range(2):
            total[j] = nl.loop_reduce(nl.load(x[i, j]), op=np.add, loop_indices=[i])
    for j in nl.affine_range(2):
        nl.store(out[j], total[j])
    return out


@nki.jit
def reduced_by_two_lines(x):
    out = nl.ndarray((3, 4, 6), x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((4, 6), nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(3):
        for j in nl.affine_range(1):
            total[...] = nl.loop_reduce(nl.load(x[i, 0]), op=np.add, loop_indices=[j])
            total[...] = nl.loop_reduce(nl.load(x[i, 1]), op=np.add, loop_indices=[j])
        nl.store(out[i], total)
    return out


@nki.jit
def reduced_by_two_loops(x):
    out = nl.ndarray((4, 6), x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((4, 6), nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(3):
        total[...] = nl.loop_reduce(nl.load(x[i, 0]), op=np.add, loop_indices=[i])
    total[...] = nl.multiply(total, 2.0)
    for i in nl.affine_range(3):
        total[...] = nl.loop_reduce(nl.load(x[i, 1]), op=np.add, loop_indices=[i])
    nl.store(out, total)
    return out


@nki.jit
def reduced_under_growing_masks(x):
    out = nl.ndarray((4, 6), x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((4, 6), nl.float32, buffer=nl.sbuf)
    i_p, i_f = nl.mgrid[0:4, 0:6]
    for i in nl.affine_range(3):
        tile = nl.load(x[i, 0, i_p, i_f])
        total[i_p, i_f] = nl.loop_reduce(tile, op=np.add, loop_indices=[i], mask=(i_p < i + 2))
    nl.store(out, total)
    return out


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (reduced_over_the_outer_loop, lambda x: x.sum(axis=0)),
        (reduced_by_two_lines, lambda x: x.sum(axis=1)),
        # the document of the function: what the destination holds takes part
        (reduced_by_two_loops, lambda x: 2 * x[:, 0].sum(axis=0) + x[:, 1].sum(axis=0)),
        (
            reduced_under_growing_masks,
            lambda x: sum(np.where(np.arange(4)[:, None] < i + 2, x[i, 0], 0) for i in range(3)),
        ),
    ],
)  # fmt: skip
def test_loop_reduce_goes_on_with_what_takes_part_and_begins_elsewhere(kernel, expected):
    x = RNG.integers(-9, 9, (3, 2, 4, 6)).astype(np.float32)
    np.testing.assert_array_equal(kernel(x), expected(x))


@nki.jit
def reduced_with_other_writers(x):
    """Sums of the inner loop into a fresh tile; before the third, its first two columns get a 5."""
    out = nl.ndarray((4, 4, 6), x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((4, 6), nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(4):
        if i == 2:
            total[:, 0:2] = 5
        for j in nl.affine_range(2):
            total[:, 0:2] = nl.loop_reduce(nl.load(x[i, j, :, 0:2]), op=np.add, loop_indices=[j])
            total[:, 2:6] = nl.loop_reduce(nl.load(x[i, j, :, 2:6]), op=np.add, loop_indices=[j])
        nl.store(out[i], total)
    return out


def test_what_others_wrote_between_two_entries_takes_part_from_then_on_where_they_wrote_it():
    x = RNG.integers(-9, 9, (4, 2, 4, 6)).astype(np.float32)
    expected = x.sum(axis=1)
    expected[2, :, 0:2] += 5
    expected[3, :, 0:2] += expected[2, :, 0:2]
    np.testing.assert_array_equal(reduced_with_other_writers(x), expected)


@pytest.mark.parametrize("make", [nl.zeros, nl.ones])
def test_a_value_that_a_tile_was_made_with_takes_part_however_often_the_loop_is_entered(make):
    @nki.jit
    def running(x):
        out = nl.ndarray((3, 4, 6), x.dtype, buffer=nl.shared_hbm)
        total = make((4, 6), nl.float32)
        for i in nl.static_range(3):
            for j in nl.affine_range(2):
                total[...] = nl.loop_reduce(nl.load(x[i, j]), op=np.add, loop_indices=[j])
            nl.store(out[i], total)
        return out

    x = RNG.integers(-9, 9, (3, 2, 4, 6)).astype(np.float32)
    first = 0 if make is nl.zeros else 1
    np.testing.assert_array_equal(running(x), first + x.sum(axis=1).cumsum(axis=0))


def test_shapes_alone_give_the_same_program_as_data():
    x = ramp(3, 2, 4, 6)
    for kernel in (reduced_into_a_tile, reduced_in_a_name, reduced_in_blocks, reduced_by_two_lines):
        shapes = nkilab.estimate(kernel, nkilab.spec(x.shape, x.dtype)).program
        assert shapes.opcodes() == program_of(kernel, x).opcodes()
