"""Special functions over arrays that NumPy does not have."""

from __future__ import annotations

from functools import cache
from math import erf as scalar_erf
from math import erfc as scalar_erfc
from typing import Any

import numpy as np

from .._lazy import numba


@cache
def _vectorized(function: Any) -> Any:
    return numba().vectorize(["float64(float64)"], cache=True)(function)


def _erf(x: float) -> float:
    return scalar_erf(x)


def _erfc(x: float) -> float:
    return scalar_erfc(x)


def erf(x: Any) -> Any:
    """The error function, element by element, float64."""
    return _vectorized(_erf)(np.asarray(x, np.float64))


def erfc(x: Any) -> Any:
    """1 - erf(x) without the cancellation at large x, element by element, float64."""
    return _vectorized(_erfc)(np.asarray(x, np.float64))
