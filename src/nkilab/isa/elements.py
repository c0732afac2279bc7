"""Elements of operands as arrays: shapes brought together, bits and numbers written."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tiles.convert import cast, store
from ..tiles.dtypes import INT32, DType, integer_bounds


def as_shape(array: Any, shape: tuple[int, ...]) -> Any:
    """`array` under another shape of the same elements; numbers stay numbers."""
    if type(array) is not np.ndarray or array.shape == shape:
        return array
    return array.reshape(shape)


def as_column(array: Any, dims: int) -> Any:
    """A [P, 1] operand under `dims` axes, so that it broadcasts along the free ones."""
    return array.reshape(-1, *(1,) * (dims - 1)) if isinstance(array, np.ndarray) else array


def store_bits(dst: Any, bits: Any, dtype: DType) -> None:
    """Write integer results: bit for bit within one width, saturated into a narrower type."""
    if bits.dtype.itemsize > 4:
        # int32 with uint32 becomes int64 in NumPy; the engine has 32 bits
        bits = bits.astype(np.uint32)
    if bits.dtype.itemsize == dtype.itemsize:
        dst[...] = bits.view(dtype.storage)
    else:
        cast(dst, dtype, bits, INT32)


def store_number(dst: Any, number: Any, dtype: DType) -> None:
    """Write a Python number: integers exactly into integer types, saturated; all else through float32."""
    if dtype.is_integer and isinstance(number, int | np.integer):
        low, high = integer_bounds(dtype)
        dst[...] = min(max(int(number), low), high)
    else:
        store(dst, np.float32(number), dtype)
