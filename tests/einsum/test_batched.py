"""Products of a batch, and what reads a product out of PSUM: few transfers, and the values of NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest

import nkilab.einsum
from nkilab.einsum.compiled import CompiledEinsum

pytestmark = pytest.mark.corpus

TRIANGLE = "Z[i, j, c] = A[k, i, c] . B[k, j, c] ;; M mul V add"
SIZES = {"I": 48, "J": 40, "K": 130, "C": 12}


def loaded(kernel: CompiledEinsum) -> int:
    """How many transfers a kernel makes."""
    program = kernel.estimate.program
    return sum(program.forms[f].name.startswith("dma") for f in program.form_column)


def values(
    kernel: CompiledEinsum, subscripts: str, *shapes: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel gives for whole numbers, which no type rounds, and what NumPy does."""
    rng = np.random.default_rng(7)
    arrays = [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    return np.asarray(kernel(*arrays)), np.einsum(subscripts, *arrays)


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_a_batch_that_lies_innermost_is_moved_whole(dialect: str) -> None:
    kernel = nkilab.einsum.compile(TRIANGLE, sizes=SIZES, dialect=dialect)
    values_of_kernel, expected = values(kernel, "kic,kjc->ijc", (130, 48, 12), (130, 40, 12))
    assert np.array_equal(values_of_kernel, expected)
    # one load of each operand per block of partitions, where there were two of every value of c
    assert loaded(kernel) < 2 * SIZES["C"]


def test_matrices_that_lie_turned_are_transposed_side_by_side() -> None:
    kernel = nkilab.einsum.compile("bik,bkj->bij", sizes={"B": 96, "I": 64, "J": 32, "K": 16})
    values_of_kernel, expected = values(kernel, "bik,bkj->bij", (96, 64, 16), (96, 16, 32))
    assert np.array_equal(values_of_kernel, expected)
    assert loaded(kernel) < 96


def test_a_bias_is_added_to_what_lies_in_psum() -> None:
    kernel = nkilab.einsum.compile(
        "P[m, n] = A[m, k] . B[k, n] ;; M mul V add\nZ[m, n] = P[m, n] . C[n] ;; M add",
        sizes={"M": 512, "K": 256, "N": 2048},
    )
    assert not re.search(r"tensor_copy\([^)]*src=p_sum", kernel.source)
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(-3, 4, s).astype(np.float32) for s in ((512, 256), (256, 2048), (2048,)))
    assert np.array_equal(np.asarray(kernel(a, b, c)), a @ b + c)


@pytest.mark.corpus(drawn=False)
def test_the_order_of_factors_is_the_faster_of_those_that_are_close() -> None:
    sizes = {"I": 128, "J": 256, "K": 128, "R": 16}
    kernel = nkilab.einsum.compile("ijk,ir,kr->jr", sizes=sizes, dtypes="bfloat16")
    # either order by the rules takes 65.7 us, with small factors first and the other layout 51.6
    assert kernel.estimate.latency_us < 52
    assert all(verdict.is_fine for verdict in kernel.verify())


# subscripts, the shape of both operands, and half of what four bytes at a time take in 16 queues of 20 ns:
# 2 * 256 * 128 * 32 of them 2.6 ms, 2 * 130 * 192 * 32 of them 2 ms; no 128 rows divide those of the second
ALONG_THE_LAST = [("ikc,jkc->ijc", (256, 128, 32), 1300), ("kic,kjc->ijc", (130, 192, 32), 1000)]


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize(("subscripts", "shape", "most_us"), ALONG_THE_LAST)
def test_a_batch_along_the_last_axis_of_more_rows_than_partitions_comes_in_blocks(
    subscripts: str, shape: tuple[int, ...], most_us: float, dialect: str
) -> None:
    """Updates of triangles: what one channel has in HBM are single elements, never read one by one."""
    x, y = (np.random.default_rng(n).integers(-3, 4, shape).astype(np.float32) for n in range(2))
    kernel = nkilab.einsum.compile(
        subscripts, shapes={"A": x.shape, "B": y.shape}, dtypes="float32", dialect=dialect
    )
    # sums of 130 products of whole numbers up to 3 are exact in float32
    assert np.array_equal(kernel(x, y), np.einsum(subscripts, x, y))
    assert kernel.estimate.latency_us < most_us


@pytest.mark.parametrize("order", ["p, q, b, c", "q, p, b, c"])
def test_sums_over_windows_in_front_of_a_batch_take_images_one_by_one(order: str) -> None:
    window = order.replace("p", "p+r").replace("q", "q+s")
    sizes = {"P": 12, "Q": 10, "B": 3, "C": 96, "R": 5, "S": 5}
    sizes |= {f"X_{n}": sizes[v.upper()] + 4 for n, v in enumerate(order.split(", ")[:2])}
    compiled = nkilab.einsum.compile(
        f"Y[{order}] = X[{window}] * F[r, s, c]", sizes=sizes, dtypes="bfloat16", target="trn2"
    )
    # 25 taps of 12 rows, one after the other on VectorE, take 99 us
    assert compiled.estimate.latency_us < 50
    x, f = (np.random.default_rng(4).standard_normal(compiled.specs[n].shape) for n in "XF")
    x, f = (a.astype(compiled.specs[n].dtype) for a, n in ((x, "X"), (f, "F")))
    views = np.lib.stride_tricks.sliding_window_view(x.astype(float), (5, 5), axis=(0, 1))
    taps = f.astype(float) if order[0] == "p" else f.astype(float).swapaxes(0, 1)
    wanted = np.einsum("pqbcrs,rsc->pqbc", views, taps)
    # one rounding to bfloat16 of sums of 25 products
    np.testing.assert_allclose(np.asarray(compiled(x, f), float), wanted, rtol=2**-7, atol=0.05)


def test_rows_that_blocks_of_partitions_do_not_divide_are_cut_evenly() -> None:
    """All of both operands has no room; 96 of 192 rows of each have, with every channel beside them."""
    shape = (192, 192, 64)
    kernel = nkilab.einsum.compile("ikc,jkc->ijc", shapes={"A": shape, "B": shape}, dtypes="float32")
    assert "I_BLOCK = 96" in kernel.source
    # half of what they take element by element is 2.9 ms; a channel at a time they took 585 us
    assert kernel.estimate.latency_us < 400


def test_a_number_per_head_costs_no_more_where_the_kernel_computes_it() -> None:
    """`exp(T[h])` lies on chip, as a row that every partition reads."""
    text, sizes = "Z[w, h, i] = max(X[w, h, i, j] * {} + B[h, i, j], j)", {"W": 64, "H": 4, "I": 64, "J": 64}
    loaded, computed = (nkilab.einsum.compile(text.format(f), sizes=sizes) for f in ("T[h]", "exp(T[h])"))
    assert computed.estimate.latency_us < 1.2 * loaded.estimate.latency_us
    assert all(verdict.is_fine for verdict in computed.verify())
