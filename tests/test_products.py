"""Products that wait to be computed together leave what products computed at once leave."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nkilab
from nkilab.execute import joined_products as products
from nkilab.execute.joined_products import joined
from tests.examples import examples

with nkilab.activate():
    import nki
    import nki.isa as nisa
    import nki.language as nl


@pytest.fixture(autouse=True, scope="module")
def nobody_looks_on() -> Iterator[None]:
    """Where a debugger looks on nothing waits; what measures coverage looks on, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "gettrace", lambda: None)
        yield


# tiles of a drawn program: wide enough that their calls are computed behind the caller
TILES, SUMS, K, N = 4, 3, 128, 256

# types of the tiles by turns: of the input, and another one that products mix with it
KINDS = [(np.float32, None), (ml_dtypes.bfloat16, nl.float16)]

tile, psum, part = st.integers(0, TILES - 1), st.integers(0, SUMS - 1), st.integers(0, 1)
steps = st.one_of(
    st.tuples(st.just("load"), tile, part),
    st.tuples(st.just("copy"), tile, tile),
    st.tuples(st.just("overwrite"), tile, part),
    st.tuples(st.just("multiply"), psum, tile, tile, part, st.sampled_from([None, True, False])),
    st.tuples(st.just("multiply half"), psum, tile, tile, part, st.booleans()),
    st.tuples(st.just("clip"), tile, psum, part),
    st.tuples(st.just("look"), psum),
)


@nki.jit
def drawn(x: Any, program: Any, other: Any) -> Any:
    """A program of steps on tiles; all tiles are its results."""
    out = nl.ndarray((TILES + SUMS, K, N), nl.float32, buffer=nl.shared_hbm)
    kinds = [x.dtype, other or x.dtype]
    tiles = [nl.ndarray((K, N), kinds[n % 2], buffer=nl.sbuf, name=f"t{n}") for n in range(TILES)]
    sums = [nl.ndarray((K, N), nl.float32, buffer=nl.psum, name=f"s{n}") for n in range(SUMS)]
    for n in range(TILES):
        nisa.dma_copy(tiles[n], x[n])
    for n in range(SUMS):
        nisa.nc_matmul(sums[n], tiles[0][:, 0:K], tiles[1], accumulate=False)
    for kind, *operands in program:
        if kind == "load":
            nisa.dma_copy(tiles[operands[0]], x[TILES + operands[1]])
        elif kind == "copy":
            nisa.tensor_copy(tiles[operands[0]], tiles[operands[1]])
        elif kind == "overwrite":
            half = slice(operands[1] * K, (operands[1] + 1) * K)
            nisa.tensor_scalar(
                tiles[operands[0]][:, half], tiles[operands[0]][:, half], op0=nl.multiply, operand0=-1.0
            )
        elif kind == "multiply":
            dst, left, right, half, adds = operands
            nisa.nc_matmul(
                sums[dst], tiles[left][:, half * K : (half + 1) * K], tiles[right], accumulate=adds
            )
        elif kind == "multiply half":
            dst, left, right, half, adds = operands
            columns = slice(half * K, (half + 1) * K)
            nisa.nc_matmul(
                sums[dst][:, columns], tiles[left][:, 0:K], tiles[right][:, columns], accumulate=adds
            )
        elif kind == "clip":
            dst, src, half = operands
            nisa.tensor_scalar(
                tiles[dst][:, half * K : (half + 1) * K], sums[src][:, half * K : (half + 1) * K],
                op0=nl.minimum, operand0=1.0, op1=nl.maximum, operand1=-1.0,
            )  # fmt: skip
        else:
            str(sums[operands[0]])
    for n in range(TILES + SUMS):
        result = nl.ndarray((K, N), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(result, (tiles + sums)[n])
        nisa.dma_copy(out[n], result)
    return out


def expected(x: np.ndarray, program: Any) -> np.ndarray:
    """The same in NumPy, step by step; sums of whole numbers are exact in any order."""
    x = x.astype(np.float32)
    tiles = [x[n].copy() for n in range(TILES)]
    sums = [tiles[0][:, :K].T @ tiles[1] for _ in range(SUMS)]
    for kind, *operands in program:
        if kind == "load":
            tiles[operands[0]] = x[TILES + operands[1]].copy()
        elif kind == "copy":
            tiles[operands[0]] = tiles[operands[1]].copy()
        elif kind == "overwrite":
            tiles[operands[0]][:, operands[1] * K : (operands[1] + 1) * K] *= -1
        elif kind == "multiply":
            dst, left, right, half, adds = operands
            product = tiles[left][:, half * K : (half + 1) * K].T @ tiles[right]
            # only products write the sums: where nothing is said, they add
            sums[dst] = product if adds is False else sums[dst] + product
        elif kind == "multiply half":
            dst, left, right, half, adds = operands
            columns = slice(half * K, (half + 1) * K)
            product = tiles[left][:, :K].T @ tiles[right][:, columns]
            sums[dst][:, columns] = product + adds * sums[dst][:, columns]
        elif kind == "clip":
            dst, src, half = operands
            columns = slice(half * K, (half + 1) * K)
            tiles[dst][:, columns] = sums[src][:, columns].clip(-1, 1)
    return np.stack(tiles + sums)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(steps, max_size=30), st.sampled_from(KINDS), st.integers(1, 40))
# an operand is overwritten in place between two products of one sum
@example([("multiply", 0, 0, 1, 0, False), ("overwrite", 1, 0), ("multiply", 0, 0, 1, 0, True)], KINDS[0], 40)
# a product between two of another sum reads what the first one left
@example(
    [("multiply", 0, 0, 1, 0, False), ("clip", 2, 0, 0), ("multiply", 1, 2, 1, 0, None),
     ("multiply", 0, 2, 3, 1, None)], KINDS[0], 40,
)  # fmt: skip
# what a late product and then an early one read is overwritten
@example(
    [("clip", 2, 0, 0), ("multiply", 1, 2, 3, 0, None), ("multiply", 2, 1, 3, 0, None), ("overwrite", 3, 0)],
    KINDS[1], 40,
)  # fmt: skip
# two sums that hold something get products of one moving tile
@example([("look", 0), ("multiply", 0, 0, 1, 0, True), ("multiply", 1, 2, 1, 0, True)], KINDS[0], 40)
# types that differ, and places in one tile that differ, add up apart
@example([("multiply", 0, 0, 0, 0, False), ("multiply", 0, 1, 1, 0, True)], KINDS[1], 40)
@example([("multiply half", 0, 0, 1, 0, False), ("multiply half", 0, 0, 1, 1, True)], KINDS[0], 40)
def test_any_program_of_products_copies_and_overwrites_computes_what_numpy_does(
    program: Any, kinds: Any, most: int
) -> None:
    dtype, other = kinds
    x = np.random.default_rng(0).integers(-1, 2, (TILES + 2, K, N)).astype(dtype)
    before = products.LONGEST
    products.LONGEST = most
    try:
        computed = nkilab.simulate(drawn)(x, program, other)
    finally:
        products.LONGEST = before
    np.testing.assert_array_equal(computed, expected(x, program))


def product(lhsT: Any, rhs: Any) -> Any:
    """lhsT.T @ rhs, every operand tile loaded."""
    (k_size, m_size), n_size = lhsT.shape, rhs.shape[1]
    out = nl.ndarray((m_size, n_size), nl.float32, buffer=nl.shared_hbm)
    for m in range(0, m_size, 128):
        for n in range(0, n_size, 512):
            total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
            for k in range(0, k_size, 128):
                left = nl.ndarray((128, 128), lhsT.dtype, buffer=nl.sbuf)
                right = nl.ndarray((128, 512), rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(left, lhsT[k : k + 128, m : m + 128])
                nisa.dma_copy(right, rhs[k : k + 128, n : n + 512])
                nisa.nc_matmul(total, left, right)
            result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(result, total)
            nisa.dma_copy(out[m : m + 128, n : n + 512], result)
    return out


@pytest.fixture
def operands() -> list[np.ndarray]:
    draw = np.random.default_rng(1)
    return [draw.standard_normal((512, n), dtype=np.float32) for n in (384, 1024)]


def test_a_product_in_tiles_is_few_products_of_the_blas(
    operands: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[tuple[int, int]] = []
    compute = products.compute
    monkeypatch.setattr(
        "nkilab.execute.batch.compute",
        lambda block, *factors: (shapes.append((len(block), len(block[0]))), compute(block, *factors)),
    )
    nkilab.simulate(nki.jit(product))(*operands)
    # three tiles of rows share their moving tiles, two of columns their stationary ones
    assert shapes == [(2, 3)]


def test_two_runs_of_a_product_leave_the_same_bits(operands: list[np.ndarray]) -> None:
    first, second = (nkilab.simulate(nki.jit(product))(*operands) for _ in range(2))
    assert first.tobytes() == second.tobytes()
    np.testing.assert_allclose(first, operands[0].T @ operands[1], rtol=1e-4, atol=1e-4)


def test_tiles_that_lie_side_by_side_are_joined_without_a_copy() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for axis, tiles in ((0, [x[:1, 1:3], x[1:4, 1:3]]), (1, [x[1:, :2], x[1:, 2:5]])):
        whole = joined(tiles, axis)
        assert np.shares_memory(whole, x)
        np.testing.assert_array_equal(whole, np.concatenate(tiles, axis))


@pytest.mark.parametrize(
    "tiles",
    [
        lambda x: [x[:2], x[3:]],
        lambda x: [x[2:], x[:2]],
        lambda x: [x[:2], x[2:].copy()],
        lambda x: [x[:2, :3], x[2:, ::2]],
    ],
)
def test_tiles_that_lie_elsewhere_are_joined_by_a_copy(tiles: Any) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    whole = joined(tiles(x), 0)
    assert not np.shares_memory(whole, x)
    np.testing.assert_array_equal(whole, np.concatenate(tiles(x)))
