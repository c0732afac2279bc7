"""Sums over few values, in wide tiles, begin with the first value and not with zeros."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum

TAPS = "Z[c, t] = X[c, t + r] . F[c, r] ;; M mul V add"
POOL = "Z[c, p, q] = X[c, 2*p + r, 2*q + s] ;; V max"
POOLED = {"C": 128, "P": 24, "Q": 20, "R": 2, "S": 2, "X_1": 48, "X_2": 40}


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_taps_of_a_filter_are_added_to_the_first(dialect: str) -> None:
    kernel = einsum.compile(TAPS, sizes={"C": 128, "T": 600, "R": 3, "X_1": 602}, dialect=dialect)
    assert "memset" not in kernel.source
    random = np.random.default_rng(4)
    x, f = (random.normal(size=s).astype(np.float32) for s in ((128, 602), (128, 3)))
    inputs = {"X": x, "F": f}
    result = np.asarray(kernel.kernel(*(inputs[name] for name in kernel.inputs)))
    wanted = sum(x[:, r : r + 600] * f[:, r : r + 1] for r in range(3))
    assert np.abs(result - wanted).max() <= 1e-5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_the_largest_of_a_window_has_the_type_of_what_it_is_taken_from(dialect: str, dtype: str) -> None:
    kernel = einsum.compile(POOL, sizes=POOLED, dialect=dialect, dtypes={"X": dtype, "Z": dtype})
    assert "memset" not in kernel.source
    assert dtype == "float32" or "float32" not in kernel.source
    # whole numbers up to 256 have a bfloat16 of their own
    x = np.random.default_rng(5).integers(-256, 257, (128, 48, 40)).astype(np.float32)
    if dtype == "bfloat16":
        x = x.astype(pytest.importorskip("ml_dtypes").bfloat16)
    result = np.asarray(kernel.kernel(x)).astype(np.float32)
    assert np.array_equal(result, x.astype(np.float32).reshape(128, 24, 2, 20, 2).max((2, 4)))


@pytest.mark.parametrize(("taps", "width"), [(12, 600), (3, 40)])
def test_long_loops_and_narrow_tiles_keep_their_zeros(taps: int, width: int) -> None:
    kernel = einsum.compile(TAPS, sizes={"C": 128, "T": width, "R": taps, "X_1": width + taps - 1})
    assert "memset" in kernel.source
