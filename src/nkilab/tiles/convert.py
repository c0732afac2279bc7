"""Widening stored elements to float32 and rounding float32 results into storage, once.

The engines compute in float32 and round on the write: to nearest even, integers saturate.
Source: NKI API common fields, "Supported math operators"; release notes of NKI 0.6, simulator.
Not documented, our choice: NaN becomes 0 in an integer.
"""

from __future__ import annotations

from functools import cache
from time import perf_counter
from typing import Any

import ml_dtypes
import numpy as np

from .._lazy import half_kernels
from ..errors import RuleError
from .dtypes import BFLOAT16, FLOAT8_E8M0FNU, FLOAT16, FLOAT32, TFLOAT32, DType, integer_bounds

# Below this many elements NumPy's own conversion costs less than a call into compiled code.
SMALL = 2048
# Seconds that compiled conversions of float16 take to load, and those that NumPy's took so far
LOADING = 0.5
_spent = [0.0]


def widen(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Elements of `values` as float32; the same array if they are already.

    Raises:
        RuleError: for packed types, whose elements are no numbers.
    """
    if dtype is FLOAT32 or dtype is TFLOAT32:
        return values
    if dtype.is_float and dtype.itemsize == 1:
        return _values_of_patterns(dtype).take(values.view(np.uint8), mode="clip")
    if dtype.is_packed:
        raise _no_number(dtype)
    if values.size >= SMALL:
        if dtype is FLOAT16:
            wide = np.empty(values.shape, np.float32)
            _convert_halves(values, wide)
            return wide
        if dtype is BFLOAT16:
            return widen_bfloat16(values)
    return values.astype(np.float32)


def _convert_halves(values: np.ndarray, dst: np.ndarray) -> None:
    """float16 to float32 or back, in compiled loops once NumPy's took as long as those take to load."""
    if _spent[0] > LOADING:
        half_kernels().convert_halves(values, dst)
        return
    began = perf_counter()
    dst[...] = values
    _spent[0] += perf_counter() - began


def _no_number(dtype: DType) -> RuleError:
    return RuleError(
        f"an element of {dtype} is four numbers; it is copied to the same type, not converted",
        hint=f"view the tile as uint{dtype.itemsize * 8} to move its bits, or compute with nc_matmul_mx",
    )


@cache
def _values_of_patterns(dtype: DType) -> np.ndarray:
    """float32 of each of the 256 patterns of an 8-bit float."""
    return np.arange(256, dtype=np.uint8).view(dtype.storage).astype(np.float32)


@cache
def _patterns_of_halves(dtype: DType, saturates: bool) -> np.ndarray:
    """The pattern of an 8-bit float nearest to each float32 whose lower half is zero, by its upper half."""
    values = (np.arange(65536, dtype=np.uint32) << np.uint32(16)).view(np.float32)
    if saturates:
        most = np.float32(ml_dtypes.finfo(dtype.storage).max)
        values = np.clip(values, -most, most)
    with np.errstate(all="ignore"):
        patterns = values.astype(dtype.storage).view(np.uint8)
    if dtype is FLOAT8_E8M0FNU:
        # no zero: the least scale is nearest, as quantize_mx writes it for a group of zeros
        patterns[[0, 0x8000]] = 0
    return patterns


def round_eight_bits(values: np.ndarray, dtype: DType, *, saturates: bool = False) -> np.ndarray:
    """Patterns of float32 `values` rounded to an 8-bit float, to nearest even.

    What lies beyond the largest finite number becomes that number if `saturates`, else infinity or NaN.
    """
    bits = values.view(np.uint32)
    halves = (bits >> np.uint32(16)).astype(np.uint16)
    # 8 significant bits, rounded to odd, round to the 4 or fewer of the result as all 24 would
    halves |= (bits & np.uint32(0xFFFF)) != 0
    return _patterns_of_halves(dtype, saturates).take(halves, mode="clip")


def widen_bfloat16(values: np.ndarray) -> np.ndarray:
    """bfloat16 to float32: the bits move to the upper half."""
    wide = values.view(np.uint16).astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32)


def store(dst: np.ndarray, values: Any, dtype: DType) -> None:
    """Round float32 `values` (an array or a number, broadcastable) into `dst`, which holds `dtype`.

    Raises:
        RuleError: for packed types, into which only 0 is stored.
    """
    if dtype is FLOAT32:
        dst[...] = values
    elif dtype is TFLOAT32:
        dst[...] = round_tfloat32(np.asarray(values, np.float32))
    elif dtype.is_integer:
        dst[...] = to_integer(np.asarray(values), dtype)
    elif dtype.kind == "b":
        dst[...] = np.asarray(values) != 0
    elif dtype.is_packed:
        if np.any(values):
            raise _no_number(dtype)
        dst[...] = np.zeros((), dtype.storage)
    elif dtype.itemsize == 1:
        dst.view(np.uint8)[...] = round_eight_bits(np.asarray(values, np.float32), dtype)
    elif dtype is FLOAT16 and dst.size >= SMALL and np.shape(values) == dst.shape:
        _convert_halves(np.asarray(values, np.float32), dst)
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
    """Copy `src` into `dst`: bit for bit if the types agree, through float32 otherwise.

    Raises:
        RuleError: if one type is packed and the other is not that type.
    """
    if src_dtype is dst_dtype:
        dst[...] = src
    elif dst_dtype.is_packed:
        raise _no_number(dst_dtype)
    elif src_dtype.is_integer and dst_dtype.is_integer and max(src_dtype.itemsize, dst_dtype.itemsize) < 4:
        dst[...] = to_integer(src, dst_dtype)
    else:
        store(dst, widen(src, src_dtype), dst_dtype)
