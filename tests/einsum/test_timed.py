"""Options that are judged close are timed, and the faster is taken; products over rows of several axes."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum import timed
from tests.einsum.numbers import numbers_of

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


def test_a_small_convolution_takes_the_engine_that_the_timing_model_prefers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, f = small()
    shapes = {"X": x.shape, "F": f.shape, "Z": (5, 10, 10)}
    best = einsum.compile(SMALL, shapes=shapes)
    monkeypatch.setattr(timed, "MOST_TIMED", 0)
    by_rules = einsum.compile(SMALL, shapes=shapes)
    assert any(change.endswith(BY_CLOCK) for change in best.changes)
    assert not any(change.endswith(BY_CLOCK) for change in by_rules.changes)
    assert best.estimate.latency_us < 0.98 * by_rules.estimate.latency_us
    expected = np.einsum("cpqrs,kcrs->kpq", windows(x, 3, 3), f)
    assert np.array_equal(best(x, f), expected)
    assert np.array_equal(by_rules(x, f), expected)


def test_a_kernel_of_many_statements_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "MOST_STATEMENTS", 3)
    x, f = small()
    kernel = einsum.compile(SMALL, shapes={"X": x.shape, "F": f.shape, "Z": (5, 10, 10)})
    assert not any(change.endswith(BY_CLOCK) for change in kernel.changes)


def test_rows_of_a_depthwise_convolution_lie_side_by_side_on_tensor_engine() -> None:
    x, f = whole_numbers(128, 26, 34), whole_numbers(128, 3, 3)
    shapes = {"X": x.shape, "F": f.shape, "Z": (128, 24, 32)}
    kernel = einsum.compile(DEPTHWISE, shapes=shapes, dtypes="bfloat16")
    # 512 columns of a bank are 16 rows of 32: of 24 rows the most that divide are 12
    assert "z_sum = nl.ndarray((128, 12, 32)" in numbers_of(kernel)
    assert "Z: summed by TensorE, as products with diagonal matrices" in kernel.changes
    # sums of nine products of numbers up to 3 are at most 81: bfloat16 has all whole numbers up to 256
    expected = np.einsum("cpqrs,crs->cpq", windows(x, 3, 3), f)
    assert np.array_equal(np.asarray(kernel(x, f), np.float32), expected)


def test_rows_read_one_before_themselves_need_no_transposition() -> None:
    x = whole_numbers(512, 256)
    kernel = einsum.compile(SHIFT, shapes={"X": x.shape, "Z": x.shape})
    assert "nc_transpose" not in kernel.source
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
