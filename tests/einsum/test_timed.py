"""Options that are judged close are timed, and the faster is taken; products over rows of several axes."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum import timed
from nkilab.einsum.plan.groups import ordered_steps
from tests.einsum.numbers import numbers_of

pytestmark = pytest.mark.corpus

SMALL = "Z[k, p, q] = X[c, p + r, q + s] . F[k, c, r, s] ;; M mul V add"
DEPTHWISE = "Z[c, p, q] = X[c, p + r, q + s] . F[c, r, s] ;; M mul V add"
SHIFT = "Z[t, d] = X[t, d] . X[t-1, d] ;; M binary(subtract)"
BY_CLOCK = " by the timing model"


def whole_numbers(*shape: int) -> np.ndarray:
    """Small whole numbers, which float32 sums exactly."""
    return np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)


def windows(x: np.ndarray, r: int, s: int) -> np.ndarray:
    """Windows of the last two axes, one behind the other."""
    return np.lib.stride_tricks.sliding_window_view(x, (r, s), axis=(-2, -1))  # type: ignore[call-overload, no-any-return]


def small() -> tuple[np.ndarray, np.ndarray]:
    """An image of 3 channels and 5 filters."""
    return whole_numbers(3, 12, 12), whole_numbers(5, 3, 3, 3)


def test_a_small_convolution_takes_the_operands_that_the_timing_model_prefers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, f = whole_numbers(3, 30, 30), whole_numbers(5, 3, 3, 3)
    shapes = {"X": x.shape, "F": f.shape, "Z": (5, 28, 28)}
    best = einsum.compile(SMALL, shapes=shapes)
    monkeypatch.setattr(timed, "MOST_TIMED", 0)
    by_rules = einsum.compile(SMALL, shapes=shapes)
    assert any(change.endswith(BY_CLOCK) for change in best.changes)
    assert not any(change.endswith(BY_CLOCK) for change in by_rules.changes)
    assert best.estimate.latency_us < 0.98 * by_rules.estimate.latency_us
    expected = np.einsum("cpqrs,kcrs->kpq", windows(x, 3, 3), f)
    assert np.array_equal(best(x, f), expected)
    assert np.array_equal(by_rules(x, f), expected)


def test_of_kernels_of_many_statements_engines_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "MOST_STATEMENTS", 3)
    x, f = small()
    kernel = einsum.compile(SMALL, shapes={"X": x.shape, "F": f.shape, "Z": (5, 10, 10)})
    assert not any(change.endswith(BY_CLOCK) for change in kernel.changes)
    assert kernel.alternatives
    assert all(": its busiest engine works " in line for line in kernel.alternatives)


def test_heads_of_few_values_are_not_summed_over_first_where_the_other_axis_fills_more_rows() -> None:
    """By hand: sums over h use 16 of 128 rows of TensorE, 64 times; those over e 64 rows, 16 times."""
    sizes = {"B": 4, "H": 16, "T": 1024, "E": 64, "D": 1024}
    kernel = einsum.compile("bhte,hed->btd", sizes=sizes, dtypes="bfloat16")
    products = 4 * (1024 // 128) * (1024 // 512) * 16
    assert kernel.estimate.summary["matmul_instruction_count"] <= 2 * products


def test_rows_of_a_depthwise_convolution_lie_side_by_side_on_tensor_engine() -> None:
    x, f = whole_numbers(128, 26, 34), whole_numbers(128, 3, 3)
    shapes = {"X": x.shape, "F": f.shape, "Z": (128, 24, 32)}
    kernel = einsum.compile(DEPTHWISE, shapes=shapes, dtypes="bfloat16")
    # 512 columns of a bank are 16 rows of 32: of 24 rows the most that divide are 12
    assert "z_sum = nl.ndarray((128, 12, 32)" in numbers_of(kernel)
    assert any("numbers of rows on diagonals of matrices" in change for change in kernel.changes)
    # sums of nine products of numbers up to 3 are at most 81: bfloat16 has all whole numbers up to 256
    expected = np.einsum("cpqrs,crs->cpq", windows(x, 3, 3), f)
    assert np.array_equal(np.asarray(kernel(x, f), np.float32), expected)


def test_rows_read_one_before_themselves_may_have_zeros_around_them() -> None:
    x = whole_numbers(512, 256)
    kernel = einsum.compile(SHIFT, shapes={"X": x.shape, "Z": x.shape})
    (edged,) = (a for a in kernel.alternatives if a.startswith("zeros around copies in HBM: "))
    assert kernel.estimate.latency_us < float(edged.split()[-2])
    expected = x - np.concatenate([np.zeros((1, 256), np.float32), x[:-1]])
    assert np.array_equal(kernel(x), expected)


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize(("operator", "function"), [("add", np.sum), ("max", np.max)])
def test_a_few_long_rows_lie_on_all_partitions_where_that_is_faster(
    dialect: str, operator: str, function: np.ufunc, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, spec = whole_numbers(3, 16384), f"Z[m] = X[m, k] ;; V {operator}"
    best = einsum.compile(spec, shapes={"X": x.shape}, dialect=dialect)
    assert any(change.startswith("long rows over all partitions: ") for change in best.changes)
    monkeypatch.setattr(timed, "MOST_TIMED", 0)
    by_rules = einsum.compile(spec, shapes={"X": x.shape}, dialect=dialect)
    # 3 of 128 lanes do the work of all
    assert best.estimate.latency_us < 0.7 * by_rules.estimate.latency_us
    assert np.array_equal(best(x), function(x, axis=1))
    assert np.array_equal(by_rules(x), function(x, axis=1))


def test_many_rows_and_rows_of_products_stay_as_they_are() -> None:
    for spec, shapes in (
        ("Z[m] = X[m, k] ;; V add", {"X": (33, 16384)}),
        ("Z[m] = X[m, k] ;; V add", {"X": (3, 16384 + 64)}),
        ("Z[m, n] = X[m, k] . Y[k, n] ;; M mul V add", {"X": (3, 4096), "Y": (4096, 256)}),
    ):
        kernel = einsum.compile(spec, shapes=shapes)
        assert not any(change.startswith("long rows") for change in kernel.changes)


SOFTMAX = """G[p] = S[p, m] ;; V max
N[p, m] = S[p, m] . G[p] ;; M binary(subtract_exp)
D[p] = N[p, m] ;; V add
Z[p, m] = N[p, m] . D[p] ;; M binary(divide)"""
RMSNORM = """Q[m] = X[m, n] . X[m, n] ;; M mul V add
U[m] = Q[m] . 0.0001220703125 ;; M mul
R[m] = U[m] ;; M unary(rsqrt)
Y[m, n] = X[m, n] . R[m] ;; M mul
Z[m, n] = Y[m, n] . W[n] ;; M mul"""


def softmax_of(x: np.ndarray) -> np.ndarray:
    """Along rows, in float64."""
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def numbers(*shape: int) -> np.ndarray:
    """Standard normal numbers."""
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("rows", [1, 4])
def test_factors_of_long_rows_reach_all_partitions_in_one_product_for_all_rows(
    dialect: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = numbers(rows, 16384)
    best = einsum.compile(SOFTMAX, shapes={"S": s.shape, "Z": s.shape}, dialect=dialect)
    assert any(change.startswith("long rows over all partitions: ") for change in best.changes)
    # one brings the greatest of all rows to all partitions, one adds up what they have: none per row
    assert best.source.count("nisa.nc_matmul(") == 2
    assert "z_spread" not in best.source
    assert "d_spread" not in best.source
    monkeypatch.setattr(timed, "MOST_TIMED", 0)
    by_rules = einsum.compile(SOFTMAX, shapes={"S": s.shape, "Z": s.shape}, dialect=dialect)
    assert best.estimate.latency_us < 0.5 * by_rules.estimate.latency_us
    # sums of 128 lanes of 128 rounded exponentials
    np.testing.assert_allclose(best(s), softmax_of(s), rtol=1e-5)
    # the output is declared with the names of its ranks, though the kernel has it in three axes
    assert f"Z = nl.ndarray(({'P' if rows > 1 else 1}, M)" in best.source


@pytest.mark.parametrize("rows", [1, 4])
def test_small_operators_on_factors_run_on_the_copies_of_all_partitions(rows: int) -> None:
    x, w = numbers(rows, 8192), numbers(8192)
    kernel = einsum.compile(RMSNORM, shapes={"X": x.shape, "W": w.shape, "Z": x.shape})
    assert any(change.startswith("long rows over all partitions: ") for change in kernel.changes)
    assert kernel.source.count("nisa.nc_matmul(") == 1
    expected = x / np.sqrt((x.astype(np.float64) ** 2).sum(axis=1, keepdims=True) / 8192) * w
    np.testing.assert_allclose(kernel(x, w), expected, rtol=1e-5)


def test_a_factor_on_all_partitions_is_read_along_rows_along_columns_and_from_hbm_too() -> None:
    spec = """G[p] = X[p, m] ;; V max
    H[p] = G[p] . 2.0 ;; M mul
    Y[p, m] = X[p, m] . H[p] ;; M add
    C[p, q] = B[p, q] . G[p] ;; M mul
    R[t, p] = A[t, p] . H[p] ;; M mul"""
    x, b, a = whole_numbers(4, 16384), whole_numbers(4, 300), whole_numbers(200, 4)
    shapes = {"X": x.shape, "B": b.shape, "A": a.shape, "Y": x.shape, "C": b.shape, "R": a.shape}
    kernel = einsum.compile(spec, shapes={**shapes, "G": (4,)}, outputs=["G", "Y", "C", "R"])
    assert any(change.startswith("long rows over all partitions: ") for change in kernel.changes)
    g = x.max(axis=1)
    for got, expected in zip(
        kernel(x, b, a), (g, x + 2 * g[:, None], b * g[:, None], a * 2 * g), strict=True
    ):
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("columns", [131072, 131073])
def test_softmax_of_two_rows_that_are_longer_than_a_partition_has_a_plan(columns: int) -> None:
    # 4 * 131072 bytes are more than twice what a partition of SBUF has; 131073 is no multiple of 128
    s = numbers(2, columns)
    kernel = einsum.compile(SOFTMAX, shapes={"S": s.shape, "Z": s.shape})
    np.testing.assert_allclose(kernel(s), softmax_of(s), rtol=1e-4)


DECODING = """L[h, s] = Q[h, e] . K[h, e, s] ;; M mul V add
G[h] = L[h, s] ;; V max
P[h, s] = L[h, s] . G[h] ;; M binary(subtract_exp)
D[h] = P[h, s] ;; V add
A[h, e] = P[h, s] . V[h, s, e] ;; M mul V add
Z[h, e] = A[h, e] . D[h] ;; M binary(divide)"""


def test_scores_of_one_token_lie_as_the_product_behind_softmax_wants_them() -> None:
    q, k, v = numbers(2, 128), numbers(2, 128, 8192), numbers(2, 8192, 128)
    shapes = {"Q": q.shape, "K": k.shape, "V": v.shape, "Z": q.shape}
    kernel = einsum.compile(DECODING, shapes=shapes, dtypes="bfloat16")
    # 64 blocks of keys, all partitions each: no row of scores is spread, no value is turned
    assert "p_spread" not in kernel.source
    assert "v_turned" not in kernel.source
    scores = np.einsum("he,hes->hs", q, k).astype(np.float64)
    expected = np.einsum("hs,hse->he", softmax_of(scores), v)
    got = np.asarray(kernel(*(np.asarray(x) for x in (q, k, v))), np.float64)
    # bfloat16 has 8 bits
    assert np.abs(got - expected).max() < 0.05 * np.abs(expected).max()


DISTANCES = """P[n, k] = X[n, d] . C[k, d] ;; M mul V add
S[k] = C[k, d] . C[k, d] ;; M mul V add
E[n, k] = P[n, k] . S[k] ;; M binary(subtract)
Z[n] = E[n, k] ;; V max"""


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_what_lies_between_steps_over_one_loop_comes_first(dialect: str) -> None:
    """S has no n: between P and E it would keep them from sharing the loop over n, and P would lie in HBM."""
    x, c = whole_numbers(8192, 64), whole_numbers(256, 64)
    kernel = einsum.compile(DISTANCES, shapes={"X": x.shape, "C": c.shape}, dialect=dialect)
    assert any(line.startswith("what lies between steps over one loop") for line in kernel.changes)
    assert "private_hbm" not in kernel.source
    assert np.array_equal(kernel(x, c), (x @ c.T - (c * c).sum(axis=1)).max(axis=1))


def test_a_step_stays_behind_what_it_needs() -> None:
    text = "A[n, k] = X[n, k] . X[n, k] ;; M mul\nS[k] = A[n, k] ;; V add\nB[n, k] = A[n, k] . S[k] ;; M mul"
    cascade = einsum.compile(text, sizes={"N": 64, "K": 32}).cascade
    assert ordered_steps(cascade) == cascade
