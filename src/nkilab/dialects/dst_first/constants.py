"""`nki.tensor` and `nki.meta.tensor` of 0.1 and 0.2: arrays of the host, for `nl.shared_constant`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tiles.dtypes import as_dtype
from ..indexing import as_shape, whole_number
from ..places import placed


@placed("zeros")
def zeros(shape: Any, dtype: Any = "float32") -> np.ndarray:
    """An array of zeros."""
    return np.zeros(as_shape(shape), as_dtype(dtype).storage)


@placed("identity")
def identity(n: Any, dtype: Any = "float32") -> np.ndarray:
    """An array [n, n] with ones on the diagonal."""
    return np.eye(whole_number(n, "n")).astype(as_dtype(dtype).storage)


@placed("arange")
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = "int32") -> np.ndarray:
    """An array of start, start + step, ... below stop; from 0 where only one bound is given."""
    first, last = (0, start) if stop is None else (start, stop)
    return np.arange(first, last, step).astype(as_dtype(dtype).storage)


TRACE_TIME: dict[str, Any] = {"zeros": zeros, "identity": identity, "arange": arange}
