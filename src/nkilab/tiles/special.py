"""Special functions over arrays that NumPy does not have."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ..code_cache import compiled


@cache
def _loop(function: Callable[[float], float]) -> Any:
    """A compiled loop of a function over the elements of an array."""

    def each(values: np.ndarray, out: np.ndarray) -> None:
        for i in range(values.size):
            out[i] = function(values[i])

    return compiled(each, function.__name__ + sha256(Path(__file__).read_bytes()).hexdigest())


def _of_each(function: Callable[[float], float], x: Any) -> Any:
    values = np.asarray(x, np.float64)
    out = np.empty(values.shape)
    _loop(function)(values.reshape(-1), out.reshape(-1))
    return out[()]


def erf(x: Any) -> Any:
    """The error function, element by element, float64."""
    return _of_each(math.erf, x)


def erfc(x: Any) -> Any:
    """1 - erf(x) without the cancellation at large x, element by element, float64."""
    return _of_each(math.erfc, x)
