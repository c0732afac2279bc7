"""Packed elements of microscaling tensors: four small floats each, and the scales of their groups.

The first of the four lies in the lowest bits. Source: MXFP matmul guide, "Data Tensor"; OCP Microscaling
Formats 1.0.
"""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np

from .convert import round_eight_bits
from .dtypes import FLOAT4_E2M1FN_X4, FLOAT8_E4M3FN, FLOAT8_E4M3FN_X4, FLOAT8_E5M2, FLOAT8_E5M2_X4, DType

# The 8-bit type of one of the four numbers.
_EIGHT_BITS = {FLOAT8_E4M3FN_X4: FLOAT8_E4M3FN, FLOAT8_E5M2_X4: FLOAT8_E5M2}


def unpacked(words: np.ndarray, dtype: DType) -> np.ndarray:
    """The numbers in packed elements.

    Args:
        words: [P, F] of a packed `dtype`.

    Returns:
        float32[P, 4, F]: the four numbers of an element stand along the middle axis.
    """
    rows, columns = words.shape
    plain = np.ascontiguousarray(words)
    if dtype is FLOAT4_E2M1FN_X4:
        shifts = np.arange(0, 16, 4, dtype=np.uint16)[:, None]
        patterns = (plain.view(np.uint16)[:, None, :] >> shifts) & np.uint16(0xF)
    else:
        patterns = plain.view(np.uint8).reshape(rows, columns, 4).transpose(0, 2, 1)
    return _values(dtype).take(patterns, mode="clip")


def packed(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Numbers rounded to nearest even and packed by four, those beyond the largest finite one saturated.

    Args:
        values: float32[P, F, 4].
        dtype: a packed type of 8-bit floats.

    Returns:
        [P, F] of `dtype`; NaN stays NaN.
    """
    patterns = round_eight_bits(values, _EIGHT_BITS[dtype], saturates=True)
    return np.ascontiguousarray(patterns).view(dtype.storage)[..., 0]


def largest_exponent(dtype: DType) -> int:
    """The exponent of the largest finite number that one of the four may be: 8, 15 or 2."""
    if dtype is FLOAT4_E2M1FN_X4:
        return int(ml_dtypes.finfo(ml_dtypes.float4_e2m1fn).maxexp) - 1
    return int(ml_dtypes.finfo(_EIGHT_BITS[dtype].storage).maxexp) - 1


@cache
def scale_values() -> np.ndarray:
    """float32 of each of the 256 scales: 2^(pattern - 127), and NaN."""
    return np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)


@cache
def _values(dtype: DType) -> np.ndarray:
    """float32 of each pattern of one of the four numbers."""
    if dtype is FLOAT4_E2M1FN_X4:
        return np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    return np.arange(256, dtype=np.uint8).view(_EIGHT_BITS[dtype].storage).astype(np.float32)
