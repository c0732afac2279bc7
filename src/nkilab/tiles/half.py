"""float16 to float32 and back in compiled loops, with integer arithmetic that vectorizes.

NumPy converts one element at a time (2 to 5 ns each); these loops take a tenth of that.
`ndarray.astype` is the definition: the tests compare every one of the 65,536 patterns and the ties.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from .._lazy import numba_extending
from ..code_cache import compiled

_SOURCE = sha256(Path(__file__).read_bytes()).hexdigest()
jit = partial(compiled, digest=_SOURCE)
_types, _intrinsic, _ir = numba_extending()


@_intrinsic
def _as_float(_context: Any, _bits: Any) -> Any:
    """The float32 whose pattern is a uint32."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _ir.FloatType())

    return _types.float32(_types.uint32), generate


@_intrinsic
def _as_bits(_context: Any, _number: Any) -> Any:
    """The uint32 that is the pattern of a float32."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _ir.IntType(32))

    return _types.uint32(_types.float32), generate


@jit
def _widen(bits: np.ndarray, out: np.ndarray) -> None:
    for i in range(bits.size):
        half = np.uint32(bits[i])
        magnitude = (half & np.uint32(0x7FFF)) << np.uint32(13)
        # exponent bias 15 to 127 by a product, which also turns a subnormal half into a normal float
        wide = _as_bits(_as_float(magnitude) * np.float32(2.0**112))
        special = np.uint32(0x7F800000) if magnitude >= np.uint32(0x0F800000) else np.uint32(0)
        out[i] = _as_float(wide | special | ((half & np.uint32(0x8000)) << np.uint32(16)))


@jit
def _round(wide: np.ndarray, out: np.ndarray) -> None:
    for i in range(wide.size):
        bits = wide[i]
        magnitude = bits & np.uint32(0x7FFFFFFF)
        # the first product overflows what half cannot hold, the second brings the rest near 1
        scaled = (_as_float(magnitude) * np.float32(2.0**112)) * np.float32(2.0**-110)
        # adding a power of two 2**13 units above the last kept bit rounds to nearest even in hardware
        exponent = magnitude & np.uint32(0x7F800000)
        exponent = exponent if exponent > np.uint32(0x38800000) else np.uint32(0x38800000)
        rounded = _as_bits(scaled + _as_float(exponent + np.uint32(0x07800000)))
        half = ((rounded >> np.uint32(13)) & np.uint32(0x7C00)) + (rounded & np.uint32(0x0FFF))
        half = half if magnitude <= np.uint32(0x7F800000) else np.uint32(0x7E00)
        out[i] = np.uint16(((bits >> np.uint32(16)) & np.uint32(0x8000)) | half)


def widen_float16(values: np.ndarray) -> np.ndarray:
    """float32 copy of float16 `values`, any strides; exact."""
    flat = np.ascontiguousarray(values).reshape(-1)
    out = np.empty(flat.size, np.float32)
    _widen(flat.view(np.uint16), out)
    return out.reshape(values.shape)


def round_float16(values: np.ndarray, dst: np.ndarray) -> None:
    """Round float32 `values` into float16 `dst` of the same shape, to nearest even; overflow to infinity."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if dst.flags.c_contiguous:
        _round(flat.view(np.uint32), dst.reshape(-1).view(np.uint16))
        return
    out = np.empty(flat.size, np.float16)
    _round(flat.view(np.uint32), out.view(np.uint16))
    dst[...] = out.reshape(dst.shape)
