"""Gathered operands: what TensorE multiplies, slices by one index, columns of indices; as NumPy has them."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.compiled import CompiledEinsum
from nkilab.einsum.rewrite.gathered import with_one_index
from nkilab.errors import KernelError

EXPERTS = "Y[t, f] = X[t, d] * W[E[t // 64], d, f]"
RNG = np.random.default_rng(5)


def _experts(dialect: str, *, experts: int = 5) -> CompiledEinsum:
    shapes = {"X": (192, 40), "W": (experts, 40, 24), "E": (3,)}
    return einsum.compile(EXPERTS, shapes=shapes, dialect=dialect)


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_a_block_of_rows_is_multiplied_with_the_matrix_that_its_index_chooses(dialect: str) -> None:
    kernel = _experts(dialect)
    x, w = RNG.standard_normal((192, 40)), RNG.standard_normal((5, 40, 24))
    chosen = np.array([4, 0, 4], np.int32)
    expected = np.einsum("utd,udf->utf", x.reshape(3, 64, 40), w[chosen]).reshape(192, 24)
    got = kernel(X=x.astype(np.float32), W=w.astype(np.float32), E=chosen)
    assert np.abs(got - expected).max() < 1e-4
    assert "nc_matmul" in kernel.source
    # one index moves a whole slice: no partition has an index of its own
    assert ("scalar_offset" in kernel.source) == (dialect == "nki")
    assert "vector_offset" not in kernel.source


def test_the_report_counts_the_bytes_that_are_gathered() -> None:
    # of float32 and 32-bit integers: rows, three chosen matrices of five, indices and results once
    moved = 4 * (192 * 40 + 3 * 40 * 24 + 3 + 192 * 24)
    assert f"  moves {moved:,} bytes; inputs and outputs have {moved:,}" in _experts("nki").report


def test_an_index_beyond_a_table_is_told() -> None:
    kernel, rows = _experts("nki", experts=2), np.ones((192, 40), np.float32)
    with pytest.raises(KernelError, match=r"the index of W: .* at a run-time offset is 2; the axis has 2 "):
        kernel(X=rows, W=np.ones((2, 40, 24), np.float32), E=np.array([0, 2, 1], np.int32))


def test_edges_are_gathered_in_columns_of_indices_for_all_lanes() -> None:
    shapes = {"X": (90, 64), "Y": (70, 64), "I": (4096,), "J": (4096,)}
    kernel = einsum.compile("S[e] = sum(X[I[e], f] * Y[J[e], f], f)", shapes=shapes)
    assert "indices in columns, some for each lane: " in kernel.report
    x, y = RNG.standard_normal((90, 64)), RNG.standard_normal((70, 64))
    i, j = RNG.integers(0, 90, 4096), RNG.integers(0, 70, 4096)
    got = kernel(X=x.astype(np.float32), Y=y.astype(np.float32), I=i.astype(np.int32), J=j.astype(np.int32))
    assert np.abs(got - (x[i] * y[j]).sum(1)).max() < 1e-4


def test_the_largest_and_their_places_are_found_once() -> None:
    places = "I[m, k] = X[m, n] ;; V argtopk"
    known = {"shapes": {"X": (40, 60)}, "sizes": {"K": 4}}
    of_places = einsum.compile(places, **known)
    both = einsum.compile(f"{places}\nV[m, k] = X[m, n] ;; V topk", outputs=["I", "V"], **known)
    x = RNG.permuted(np.tile(np.arange(60.0), (40, 1)), axis=1).astype(np.float32)
    rows, values = both(X=x)
    assert np.array_equal(rows, np.argsort(-x, axis=1)[:, :4])
    assert np.array_equal(values, -np.sort(-x, axis=1)[:, :4])
    assert [k.source.count("nisa.max8") for k in (both, of_places)] == [1, 1]


def test_what_places_index_is_as_long_as_what_was_searched() -> None:
    """A step of k-means without an extent for the sums."""
    nearest = "J[n] = argmin(sum(C[k, d]**2, d) - 2 * sum(X[n, d] * C[k, d], d), k)"
    kernel = einsum.compile(f"{nearest}\nS[J[n], d] += X[n, d]", shapes={"C": (7, 9), "X": (70, 9)})
    x, c = (np.random.default_rng(n).standard_normal((e, 9)).astype(np.float32) for n, e in ((0, 70), (1, 7)))
    sums = np.zeros((7, 9))
    np.add.at(sums, ((x[:, None] - c) ** 2).sum(-1).argmin(1), x)
    assert np.allclose(kernel(C=c, X=x), sums, atol=1e-4)


@pytest.mark.parametrize(
    ("step", "table", "indices", "chosen"),
    [
        ("B[h, i, j] = T[P[i, j], Q[i, j], h]", (5, 6, 3), {"P": (40, 50), "Q": (40, 50)}, "pq:ij"),
        ("B[h, i, j] = T[P[i], Q[j], h]", (5, 6, 3), {"P": (40,), "Q": (50,)}, "i:,j"),
        ("B[c, e] = T[c, P[e], Q[e]]", (7, 5, 6), {"P": (300,), "Q": (300,)}, "c behind"),
        ("B[e] = T[P[e], Q[e], R[e]]", (5, 6, 7), {"P": (300,), "Q": (300,), "R": (300,)}, "three"),
    ],
    ids=["rows", "each with each", "of each row", "three"],
)
def test_several_indices_side_by_side_choose_as_in_numpy(
    step: str, table: tuple[int, ...], indices: dict[str, tuple[int, ...]], chosen: str
) -> None:
    kernel = einsum.compile(step, shapes={"T": table, **indices})
    values = RNG.standard_normal(table).astype(np.float32)
    first = 1 if chosen == "c behind" else 0
    own = {
        name: RNG.integers(0, size, shape).astype(np.int32)
        for (name, shape), size in zip(indices.items(), table[first:], strict=False)
    }
    wide = [own["P"][:, None], own["Q"][None]] if chosen == "i:,j" else [*own.values()]
    expected = values[:, wide[0], wide[1]] if first else values[tuple(wide)]
    expected = np.moveaxis(expected, -1, 0) if len(table) == 3 and chosen in ("pq:ij", "i:,j") else expected
    assert np.array_equal(kernel(T=values, **own), expected)
    # one number in place of several, computed on chip for all elements together
    assert "T_index" in kernel.source


def test_a_table_of_more_rows_than_float32_counts_keeps_its_indices() -> None:
    step, shapes = "B[e] = T[P[e], Q[e]]", {"P": (300,), "Q": (300,)}
    for rows, is_one in ((1 << 12, True), ((1 << 12) + 1, False)):
        cascade = einsum.compile(step, shapes={"T": (rows, 1 << 12), **shapes}).cascade
        assert ("T_index" in str(with_one_index(cascade).einsums[0])) == is_one


def test_a_table_that_is_read_by_other_indices_too_keeps_its_axes() -> None:
    steps = "B[e] = T[P[e], Q[e]]\nS[m] = sum(T[m, n], n)"
    kernel = einsum.compile(steps, shapes={"T": (5, 6), "P": (300,), "Q": (300,)}, outputs=["B", "S"])
    assert "T_index" not in kernel.source


def test_two_tables_are_chosen_from_by_indices_computed_once() -> None:
    """Indices that were computed twice became one, and what they choose still read the other."""
    steps = "F[e] = 6 * P[e] + Q[e]\nG[e] = 6 * P[e] + Q[e]\nB[e, c] = T[F[e], c] + U[G[e], c]"
    shapes = {"T": (30, 4), "U": (30, 4), "P": (300,), "Q": (300,)}
    kernel = einsum.compile(steps, shapes=shapes, dtypes={"P": "int32", "Q": "int32"}, outputs=["B"])
    t, u = (RNG.standard_normal((30, 4)).astype(np.float32) for _ in range(2))
    p, q = RNG.integers(0, 5, 300).astype(np.int32), RNG.integers(0, 6, 300).astype(np.int32)
    assert np.array_equal(kernel(T=t, U=u, P=p, Q=q), t[6 * p + q] + u[6 * p + q])


def test_a_scan_over_values_that_indices_choose_in_each_turn() -> None:
    text = "A[b, k] = U[b, k] * Q[b, k, D[b, k]]\nR[b, 0] = 1\nR[b, k+1] = R[b, k] * A[b, k]"
    u, q = RNG.uniform(0.5, 1.5, (5, 40)), RNG.uniform(0.5, 1.5, (5, 40, 150))
    d = RNG.integers(0, 150, (5, 40)).astype(np.int32)
    kernel = einsum.compile(text, shapes={"Q": q.shape})
    got = kernel(U=u.astype(np.float32), Q=q.astype(np.float32), D=d)
    expected = np.cumprod(u * np.take_along_axis(q, d[..., None], 2)[..., 0], axis=1)
    assert np.allclose(got, np.pad(expected, ((0, 0), (1, 0)), constant_values=1), rtol=1e-4)
