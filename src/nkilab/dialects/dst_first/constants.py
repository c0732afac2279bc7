"""`nki.tensor` and `nki.meta.tensor` of 0.1 and 0.2: arrays of the host, for `nl.shared_constant`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import UseError
from ...tiles.dtypes import as_dtype
from ..indexing import allocated_shape, whole_number
from ..places import placed


@placed("zeros")
def zeros(shape: Any, dtype: Any = "float32") -> np.ndarray:
    """An array of zeros."""
    return np.zeros(allocated_shape(shape), as_dtype(dtype).storage)


@placed("identity")
def identity(n: Any, dtype: Any = "float32") -> np.ndarray:
    """An array [n, n] with ones on the diagonal."""
    (extent,) = allocated_shape((whole_number(n, "n"),))
    return np.eye(extent).astype(as_dtype(dtype).storage)


@placed("arange")
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = "int32") -> np.ndarray:
    """An array of start, start + step, ... below stop; from 0 where only one bound is given.

    Raises:
        UseError: if a bound is no number, or there is no element.
    """
    first, last = (0, start) if stop is None else (start, stop)
    for name, number in (("start", first), ("stop", last), ("step", step)):
        if not isinstance(number, int | float | np.number):
            raise UseError(f"{name} is {number!r}; it must be a number")
    if not step or (last - first) / step <= 0:
        raise UseError(f"an array from {first} to {last} by {step} is empty; it has an element or more")
    return np.arange(first, last, step).astype(as_dtype(dtype).storage)


TRACE_TIME: dict[str, Any] = {"zeros": zeros, "identity": identity, "arange": arange}
