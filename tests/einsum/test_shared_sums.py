"""Sums over the loop that other Einsums share, results that outlive it on chip, diagonals, and numbers."""

import re

import numpy as np
import pytest

from nkilab import einsum


def whole_numbers(*shape: int) -> np.ndarray:
    """Numbers from -3 to 3, of which sums are exact."""
    return np.random.default_rng(5).integers(-3, 4, shape).astype(np.float32)


def moved(kernel: einsum.CompiledEinsum) -> tuple[int, int]:
    """Bytes that a kernel moves, and those of its inputs and outputs, as its report has them."""
    match = re.search(r"moves ([\d,]+) bytes; inputs and outputs have ([\d,]+)", kernel.report)
    assert match
    return int(match[1].replace(",", "")), int(match[2].replace(",", ""))


@pytest.mark.parametrize("rows", [512, 300])
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_sums_of_rows_and_columns_and_of_all_read_a_matrix_once(dialect: str, rows: int) -> None:
    x = whole_numbers(rows, 700)
    spec = """R[i] = sum(X[i, j]**2, j)
    S[j] = sum(X[i, j], i)
    T[] = sum(R[i], i)"""
    kernel = einsum.compile(spec, shapes={"X": x.shape}, outputs=["R", "S", "T"], dialect=dialect)
    bytes_moved, least = moved(kernel)
    assert bytes_moved < 1.1 * least
    by_name = dict(zip(kernel.outputs, kernel(X=x), strict=True))
    assert np.array_equal(by_name["R"], (x**2).sum(1))
    assert np.array_equal(by_name["S"], x.sum(0))
    assert np.array_equal(np.ravel(by_name["T"]), [(x**2).sum()])


def test_the_greatest_of_columns_is_kept_over_turns() -> None:
    x = whole_numbers(384, 96) * np.arange(1, 385, dtype=np.float32)[:, None]
    spec = """Q[i, j] = X[i, j] * 2
    M[j] = max(Q[i, j], i)
    N[i] = max(Q[i, j], j)"""
    kernel = einsum.compile(spec, shapes={"X": x.shape}, outputs=["M", "N"])
    by_name = dict(zip(kernel.outputs, kernel(X=x), strict=True))
    assert np.array_equal(by_name["M"], 2 * x.max(0))
    assert np.array_equal(by_name["N"], 2 * x.max(1))


def test_a_diagonal_comes_in_one_transfer() -> None:
    x = whole_numbers(200, 200)
    kernel = einsum.compile("Y[] = sum(X[i, i], i)", shapes={"X": x.shape})
    assert np.array_equal(np.ravel(kernel(X=x)), [np.trace(x)])
    # one that reads and one that writes
    assert kernel.estimate.summary.values["dma_transfer_count"] == 2


def test_a_mean_multiplies_with_a_number() -> None:
    x = whole_numbers(130, 64)
    kernel = einsum.compile("M[i] = mean(X[i, j], j)", shapes={"X": x.shape})
    assert "iota" not in kernel.source
    assert "reciprocal" not in kernel.source
    # one over 64 is exact
    assert np.array_equal(kernel(X=x), x.mean(1))


def test_a_number_times_a_number_of_all_rows_scales_them() -> None:
    x = whole_numbers(130, 70)
    spec = """A[] = sum(X[i, j], i, j)
    Z[i, j] = 0.5 * A[] * X[i, j]"""
    kernel = einsum.compile(spec, shapes={"X": x.shape}, outputs=["Z"])
    assert np.array_equal(kernel(X=x), 0.5 * x.sum() * x)


def test_one_value_that_a_comparison_leaves_is_computed_alone() -> None:
    a, b = whole_numbers(150, 20), whole_numbers(150, 20)
    spec = """S[i, j] = A[i, d] * B[j, d]
    Y[i] = sum(S[i, j] if j == i else 0, j)"""
    kernel = einsum.compile(spec, shapes={"A": a.shape, "B": b.shape}, outputs=["Y"])
    # the dot product of each pair of rows, no matrix of all
    assert "nc_matmul" not in kernel.source
    assert np.array_equal(kernel(A=a, B=b), (a * b).sum(1))


def test_a_comparison_that_leaves_none_in_some_rows_stays() -> None:
    x = whole_numbers(40, 40)
    kernel = einsum.compile("Y[i] = sum(X[i, j] if j == i - 1 else 0, j)", shapes={"X": x.shape})
    assert np.array_equal(kernel(X=x), [0, *np.diag(x, -1)])


def test_a_total_of_tiles_of_several_blocks_adds_to_those_before() -> None:
    u, v = (
        np.random.default_rng(n).normal(size=(s, 64)).astype(np.float32) / 8 for n, s in ((0, 256), (1, 512))
    )
    spec = """L[i, j] = U[i, d] * V[j, d]
    C[j] = max(L[i, j], i)
    E[j] = log(sum(exp(L[i, j] - C[j]), i)) + C[j]
    Z[] = sum(E[j], j)"""
    kernel = einsum.compile(spec, shapes={"U": u.shape, "V": v.shape}, outputs=["Z"])
    assert any("share loops over j in tiles of 256" in c for c in kernel.changes)
    assert not any("PLANNED ANOTHER WAY" in c for c in kernel.changes)
    # 512 logarithms, each within 1e-5
    assert abs(float(np.ravel(kernel(U=u, V=v))[0]) - np.log(np.exp(u @ v.T).sum(0)).sum()) < 1e-2
