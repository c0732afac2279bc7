"""Widening stored elements to float32 and rounding float32 results into storage, once.

The engines compute in float32 and round on the write: to nearest even, integers saturate.
Source: NKI API common fields, "Supported math operators"; release notes of NKI 0.6, simulator.
Not documented, our choice: NaN becomes 0 in an integer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._lazy import half_kernels
from .dtypes import BFLOAT16, FLOAT16, FLOAT32, TFLOAT32, DType, integer_bounds

# Below this many elements NumPy's own conversion costs less than a call into compiled code.
SMALL = 2048


def widen(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Elements of `values` as float32; the same array if they are already."""
    if dtype is FLOAT32 or dtype is TFLOAT32:
        return values
    if values.size >= SMALL:
        if dtype is FLOAT16:
            return half_kernels().widen_float16(values)
        if dtype is BFLOAT16:
            return widen_bfloat16(values)
    return values.astype(np.float32)


def widen_bfloat16(values: np.ndarray) -> np.ndarray:
    """bfloat16 to float32: the bits move to the upper half."""
    wide = values.view(np.uint16).astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32)


def store(dst: np.ndarray, values: Any, dtype: DType) -> None:
    """Round float32 `values` (an array or a number, broadcastable) into `dst`, which holds `dtype`."""
    if dtype is FLOAT32:
        dst[...] = values
    elif dtype is TFLOAT32:
        dst[...] = round_tfloat32(np.asarray(values, np.float32))
    elif dtype.is_integer:
        dst[...] = to_integer(np.asarray(values), dtype)
    elif dtype.kind == "b":
        dst[...] = np.asarray(values) != 0
    elif dtype is FLOAT16 and dst.size >= SMALL and np.shape(values) == dst.shape:
        half_kernels().round_float16(np.asarray(values, np.float32), dst)
    elif dtype is BFLOAT16 and dst.size >= SMALL and np.shape(values) == dst.shape:
        dst.view(np.uint16)[...] = round_bfloat16(np.asarray(values, np.float32))
    else:
        # float64 would be rounded twice: to float32 first, as the engine does
        dst[...] = np.asarray(values, np.float32).astype(dtype.storage)


def round_bfloat16(values: np.ndarray) -> np.ndarray:
    """Bits of float32 `values` rounded to bfloat16, to nearest even; NaN stays a quiet NaN."""
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    odd += np.uint32(0x7FFF)
    odd += bits
    odd >>= np.uint32(16)
    rounded = odd.astype(np.uint16)
    is_nan = np.isnan(values)
    if is_nan.any():
        rounded[is_nan] = ((bits[is_nan] >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    return rounded


def round_tfloat32(values: np.ndarray) -> np.ndarray:
    """float32 with the mantissa rounded to 10 bits, to nearest even."""
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(13)) & np.uint32(1)
    rounded = (bits + np.uint32(0x0FFF) + odd) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values)


def to_integer(values: np.ndarray, dtype: DType) -> np.ndarray:
    """`values` to nearest even, saturated to the range of `dtype`; integers keep every bit that fits."""
    low, high = integer_bounds(dtype)
    if values.dtype.kind in "iub":
        return np.clip(values.astype(np.int64), low, high).astype(dtype.storage)
    wide = np.nan_to_num(np.rint(values.astype(np.float64)), nan=0.0, posinf=high, neginf=low)
    return np.clip(wide, low, high).astype(dtype.storage)


def cast(dst: np.ndarray, dst_dtype: DType, src: np.ndarray, src_dtype: DType) -> None:
    """Copy `src` into `dst`: bit for bit if the types agree, through float32 otherwise."""
    if src_dtype is dst_dtype:
        dst[...] = src
    elif src_dtype.is_integer and dst_dtype.is_integer and max(src_dtype.itemsize, dst_dtype.itemsize) < 4:
        dst[...] = to_integer(src, dst_dtype)
    else:
        store(dst, widen(src, src_dtype), dst_dtype)
