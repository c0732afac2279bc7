"""Data types: their names, how NumPy holds them, how a float32 result is rounded into them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

import ml_dtypes
import numpy as np
from msgspec import Struct

from ..errors import RuleError, did_you_mean


class DType(Struct, frozen=True, eq=False):
    """A type that tiles may hold. Instances are unique; compare them with `is`."""

    name: str  # as in nki.language
    storage: np.dtype  # how NumPy holds one element
    kind: str  # "f" float, "i" signed, "u" unsigned, "b" boolean, "p" packed: four numbers in one element
    mantissa_bits: int = 0  # stored mantissa bits of floats; 0 otherwise

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.storage.itemsize

    @property
    def is_float(self) -> bool:
        """Whether elements are floating point."""
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        """Whether elements are signed or unsigned integers."""
        return self.kind in "iu"

    @property
    def is_packed(self) -> bool:
        """Whether an element holds four numbers, which only the microscaling instructions compute on."""
        return self.kind == "p"

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"DType({self.name})"


def _float(name: str, storage: Any, mantissa_bits: int) -> DType:
    return DType(name, np.dtype(storage), "f", mantissa_bits)


def _packed(name: str, word: Any) -> DType:
    # NumPy has no packed type: a record of one field that bears the name, whose bytes are those of the word
    return DType(name, np.dtype([(name, word)]), "p")


FLOAT32 = _float("float32", np.float32, 23)
# tfloat32 has the range of float32 and 10 mantissa bits; it occupies 4 bytes.
TFLOAT32 = _float("tfloat32", np.float32, 10)
BFLOAT16 = _float("bfloat16", ml_dtypes.bfloat16, 7)
FLOAT16 = _float("float16", np.float16, 10)
FLOAT8_E4M3 = _float("float8_e4m3", ml_dtypes.float8_e4m3, 3)
FLOAT8_E5M2 = _float("float8_e5m2", ml_dtypes.float8_e5m2, 2)
FLOAT8_E4M3FN = _float("float8_e4m3fn", ml_dtypes.float8_e4m3fn, 3)
# a power of two from 2^-127 to 2^127 without sign, the scale of a microscaling group; it has no zero
FLOAT8_E8M0FNU = _float("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, 0)
INT32 = DType("int32", np.dtype(np.int32), "i")
INT16 = DType("int16", np.dtype(np.int16), "i")
INT8 = DType("int8", np.dtype(np.int8), "i")
UINT32 = DType("uint32", np.dtype(np.uint32), "u")
UINT16 = DType("uint16", np.dtype(np.uint16), "u")
UINT8 = DType("uint8", np.dtype(np.uint8), "u")
BOOL = DType("bool", np.dtype(np.bool_), "b")
FLOAT8_E5M2_X4 = _packed("float8_e5m2_x4", np.uint32)
FLOAT8_E4M3FN_X4 = _packed("float8_e4m3fn_x4", np.uint32)
FLOAT4_E2M1FN_X4 = _packed("float4_e2m1fn_x4", np.uint16)

# integers that bfloat16, which TensorE reads, has exactly; it has not all of 16 bits
SMALL_INTEGERS = (INT8.name, UINT8.name)

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        FLOAT32, TFLOAT32, BFLOAT16, FLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT8_E4M3FN,
        INT32, INT16, INT8, UINT32, UINT16, UINT8, BOOL,
        FLOAT8_E8M0FNU, FLOAT8_E5M2_X4, FLOAT8_E4M3FN_X4, FLOAT4_E2M1FN_X4,
    )
}  # fmt: skip

_BY_STORAGE: dict[np.dtype, DType] = {d.storage: d for d in reversed(DTYPES.values()) if d is not TFLOAT32}
SYNONYMS = {"bool_": "bool", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "tf32": "tfloat32",
             "i32": "int32", "i16": "int16", "i8": "int8", "u32": "uint32", "u16": "uint16", "u8": "uint8",
             "fp8e4": "float8_e4m3", "fp8e5": "float8_e5m2"}  # fmt: skip
# A kernel's host names types by string: np.zeros(shape, dtype=nl.float8_e4m3fn_x4). ml_dtypes makes its
# names known to NumPy in this table; those that only Trainium has are added to it.
cast("dict[str, Any]", np.sctypeDict).update({d.name: d.storage for d in DTYPES.values() if d.is_packed})
_KNOWN: dict[Any, DType] = {}


def as_dtype(spelled: Any) -> DType:
    """The data type meant by a name, a NumPy, ml_dtypes, torch or jax dtype, or a DType.

    Raises:
        RuleError: if no tile can hold it (float64, int64, complex, ...).
    """
    try:
        known = _KNOWN.get(spelled)
    except TypeError:
        kind = type(spelled).__name__
        raise RuleError(f"dtype is of type {kind}; it must be one of {', '.join(DTYPES)}") from None
    if known is None:
        known = _KNOWN[spelled] = _resolve(spelled)
    return known


def _resolve(spelled: Any) -> DType:
    if isinstance(spelled, DType):
        return spelled
    if hasattr(spelled, "dtype_of_nkilab"):
        return spelled.dtype_of_nkilab
    name = spelled if isinstance(spelled, str) else str(spelled).removeprefix("torch.")
    name = SYNONYMS.get(name, name)
    if name in DTYPES:
        return DTYPES[name]
    if "\n" in name or spelled is None:
        # an array or tensor shows its elements; to NumPy None is float64
        name = spelled = f"of type {type(spelled).__name__}"
    record = None
    with suppress(TypeError, ValueError, SyntaxError):
        numpy_type = np.dtype(spelled)
        record, name = _BY_STORAGE.get(numpy_type) or _record(numpy_type), numpy_type.name
    if record is None:
        wide = "cast it on the host first" if name.endswith("64") else ""
        if isinstance(spelled, int):
            wide = "the shape is one tuple, as in (128, 512)"
        hint = wide or did_you_mean(name, [*DTYPES, *SYNONYMS])
        raise RuleError(f"dtype is {name}; it must be one of {', '.join(DTYPES)}", hint=hint)
    return record


def _record(numpy_type: np.dtype) -> DType | None:
    """The packed type of a NumPy record: one field of its name, whatever holds the bytes."""
    packed = DTYPES.get((numpy_type.names or ("",))[0])
    is_one = packed is not None and len(numpy_type.names or ()) == 1 and packed.is_packed
    return packed if is_one and packed is not None and packed.itemsize == numpy_type.itemsize else None


def promoted(a: DType, b: DType) -> DType:
    """The type of an arithmetic result over two types, as Beta 1 documents.

    Raises:
        RuleError: for a packed type and another, which have no common type.

    Source: NKI API common fields, NKI type promotion (SDK 2.26).
    """
    if a is b:
        return a
    if a.is_packed or b.is_packed:
        raise RuleError(f"{a} and {b} have no common type")
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        return _promoted_floats(a, b)
    return _promoted_integers(a, b)


def _promoted_floats(a: DType, b: DType) -> DType:
    wide, narrow = (a, b) if a.itemsize >= b.itemsize else (b, a)
    if FLOAT32 in (a, b):
        return FLOAT32
    if wide is TFLOAT32 or wide.itemsize > narrow.itemsize:
        return wide
    return FLOAT32 if wide.itemsize == 2 else BFLOAT16


def _promoted_integers(a: DType, b: DType) -> DType:
    a, b = (UINT8 if d is BOOL else d for d in (a, b))
    wide, narrow = (a, b) if a.itemsize >= b.itemsize else (b, a)
    if a.kind == b.kind or (wide.kind == "i" and wide.itemsize > narrow.itemsize):
        return wide
    # signed and unsigned of a size that neither covers: the next wider signed type, or float32 beyond int32
    return {1: INT16, 2: INT32, 4: FLOAT32}[wide.itemsize]


# What counts as a number. A tuple: a union written where it is asked for is made anew each time.
NUMBERS = (int, float, np.generic)


def weak_dtype(number: Any) -> DType:
    """The type Beta 1 infers for a Python number: bool uint8, int int32, float float32.

    NumPy scalars keep theirs.
    """
    if isinstance(number, np.generic):
        return as_dtype(number.dtype)
    if isinstance(number, bool):
        return UINT8
    return INT32 if isinstance(number, int) else FLOAT32


def integer_bounds(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    info = np.iinfo(dtype.storage)
    return int(info.min), int(info.max)


def unwritten_value(dtype: DType) -> Any:
    """What reading a never-written element yields: NaN, or the most negative value of integers.

    In packed types every bit is set: four NaN, or four times -6 where the format has no NaN.
    """
    if dtype.is_packed:
        return np.full(dtype.itemsize, 0xFF, np.uint8).view(dtype.storage)[0]
    if dtype.is_float:
        return np.array(np.nan, dtype.storage)
    return np.array(False) if dtype.kind == "b" else np.array(integer_bounds(dtype)[0], dtype.storage)
