"""The names of `neuron_dtypes`: NumPy types of what Trainium holds, and the cast between them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike

from ..errors import UnsupportedError
from ..tiles.dtypes import DTYPES, as_dtype

# Four elements of a microscaled tensor in one word: the word, and the type of each element.
PACKED: dict[str, tuple[type, type]] = {
    "float8_e4m3fn_x4": (np.uint32, ml_dtypes.float8_e4m3fn),
    "float8_e5m2_x4": (np.uint32, ml_dtypes.float8_e5m2),
    "float4_e2m1fn_x4": (np.uint16, ml_dtypes.float4_e2m1fn),
}
PACKED_TYPES = {name: DTYPES[name].storage for name in PACKED}


def packed_name(dtype: Any) -> str:
    """The name of a packed type, given as name or NumPy type; "" for any other."""
    if isinstance(dtype, np.dtype):
        return next((name for name, dtype_of_name in PACKED_TYPES.items() if dtype_of_name == dtype), "")
    return dtype if isinstance(dtype, str) and dtype in PACKED else ""


def numpy_type(dtype: Any) -> np.dtype:
    """The NumPy type meant by a name or type; float64 and int64 are NumPy's own.

    Raises:
        RuleError: if neither NumPy nor Trainium has it.
    """
    if isinstance(dtype, str) or not isinstance(dtype, type | np.dtype):
        return as_dtype(dtype).storage
    return np.dtype(dtype)


def static_cast(data: Any, dtype: Any) -> Any:
    """`data` as `dtype`, rounded to nearest even.

    Args:
        data: array or number; of a packed type, it is unpacked first.
        dtype: a packed type makes one word of four elements along the last axis, [..., F] to [..., F / 4].

    Returns:
        An array; a NumPy scalar for a number.
    """
    array = np.asarray(data)
    if packed_name(array.dtype) and packed_name(array.dtype) != packed_name(dtype):
        array = _unpacked(array)
    target = packed_name(dtype)
    if target and packed_name(array.dtype) != target:
        return _packed(array, target)
    cast = array.astype(numpy_type(dtype))
    return cast if isinstance(data, np.ndarray) else cast[()]


def _packed(array: np.ndarray, name: str) -> np.ndarray:
    word, element = PACKED[name]
    bits = array.astype(np.float32).astype(element).view(np.uint8)
    width = np.dtype(word).itemsize * 8 // 4
    fours: np.ndarray = bits.reshape(*array.shape[:-1], -1, 4).astype(word)
    shifts = np.arange(4, dtype=word) * word(width)
    words: np.ndarray = np.bitwise_or.reduce((fours & word((1 << width) - 1)) << shifts, axis=-1)
    return np.ascontiguousarray(words.astype(word)).view(PACKED_TYPES[name])


def _unpacked(array: np.ndarray) -> np.ndarray:
    word, element = PACKED[packed_name(array.dtype)]
    width = np.dtype(word).itemsize * 8 // 4
    words: np.ndarray = np.ascontiguousarray(array).view(word)[..., None]
    shifts = np.arange(4, dtype=word) * word(width)
    bits: np.ndarray = ((words >> shifts) & word((1 << width) - 1)).astype(np.uint8).view(element)
    return bits.astype(np.float32).reshape(*array.shape[:-1], -1)


def allclose(
    actual: ArrayLike, desired: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, *, verbose: int = 0,
    **kinds: object,
) -> bool:  # fmt: skip
    """Whether all are within `atol + rtol * |desired|`, as NumPy's; `verbose` counts those that are not.

    `kinds` are `equal_nan` of NumPy, and `equal_inf=True` and `mode="max"`, which change nothing; no public
    page says what others mean.
    """
    ours, theirs = (np.asarray(values, np.float64) for values in (actual, desired))
    far = ~np.isclose(ours, theirs, rtol, atol, bool(kinds.pop("equal_nan", False)))
    for name, kind in kinds.items():
        if (name, kind) not in (("equal_inf", True), ("mode", "max")):
            raise UnsupportedError(f"allclose takes equal_inf=True and mode='max'; got {name}={kind!r}")
    if verbose and far.any():
        print(f"{far.sum()} of {far.size} elements are too far from what is desired")
    return not far.any()


def is_float_type(dtype: Any) -> bool:
    """Whether elements of a type are floating point."""
    if packed_name(dtype):
        return True
    known_type = numpy_type(dtype)
    return known_type.kind == "f" or known_type.name.startswith(("bfloat", "float"))


def sizeinbytes(dtype: Any) -> int:
    """Bytes of one element; of one word of four for packed types."""
    return numpy_type(dtype).itemsize


def finfo(dtype: Any) -> ml_dtypes.finfo:
    """The limits of a floating-point type, as NumPy's finfo tells them."""
    return ml_dtypes.finfo(numpy_type(dtype))


_FLOATS = ("bfloat16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float4_e2m1fn")
NAMES: dict[str, Any] = {
    "static_cast": static_cast, "is_float_type": is_float_type, "sizeinbytes": sizeinbytes, "finfo": finfo,
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in _FLOATS},
    **PACKED_TYPES,
}  # fmt: skip
