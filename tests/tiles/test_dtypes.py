"""Data types: promotion as documented, spellings, what never-written elements read as."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest

from nkilab.errors import RuleError
from nkilab.tiles.dtypes import DTYPES, as_dtype, integer_bounds, promoted, unwritten_value, weak_dtype

# NKI API common fields, "NKI type promotion" (SDK 2.26), typed by hand: two types, their result
DOCUMENTED = """
float32 int32 float32
float32 int8 float32
bfloat16 int32 bfloat16
float16 uint8 float16
float8_e4m3 int32 float8_e4m3
float8_e5m2 int8 float8_e5m2
float32 bfloat16 float32
float32 float16 float32
float32 float8_e4m3 float32
float16 bfloat16 float32
float8_e4m3 float16 float16
float8_e5m2 float16 float16
float8_e4m3 bfloat16 bfloat16
float8_e5m2 bfloat16 bfloat16
float8_e4m3 float8_e5m2 bfloat16
tfloat32 float32 float32
tfloat32 bfloat16 tfloat32
tfloat32 float16 tfloat32
int8 int16 int16
int8 int32 int32
int16 int32 int32
uint8 uint16 uint16
uint8 uint32 uint32
uint16 uint32 uint32
int8 uint8 int16
int8 uint16 int32
int8 uint32 float32
int16 uint8 int16
int16 uint16 int32
int16 uint32 float32
int32 uint8 int32
int32 uint16 int32
int32 uint32 float32
"""
TRIPLES = [line.split() for line in DOCUMENTED.strip().splitlines()]


@pytest.mark.parametrize(("a", "b", "expected"), TRIPLES)
def test_two_types_promote_as_documented(a: str, b: str, expected: str) -> None:
    assert promoted(DTYPES[a], DTYPES[b]).name == expected
    assert promoted(DTYPES[b], DTYPES[a]).name == expected


@pytest.mark.parametrize("name", DTYPES)
def test_a_type_promotes_with_itself_to_itself(name: str) -> None:
    assert promoted(DTYPES[name], DTYPES[name]) is DTYPES[name]


def test_promotion_does_not_depend_on_the_order() -> None:
    for a, b in product((d for d in DTYPES.values() if not d.is_packed), repeat=2):
        assert promoted(a, b) is promoted(b, a), (a, b)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(True, "uint8"), (1, "int32"), (1.5, "float32"), (np.float16(1), "float16"), (np.int8(1), "int8")],
)
def test_a_number_has_its_documented_weak_type(number: object, expected: str) -> None:
    assert weak_dtype(number).name == expected


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        ("float32", "float32"), (np.float32, "float32"), (np.dtype("int8"), "int8"), ("bf16", "bfloat16"),
        (ml_dtypes.bfloat16, "bfloat16"), (np.dtype(ml_dtypes.float8_e4m3), "float8_e4m3"),
        (ml_dtypes.float8_e4m3fn, "float8_e4m3fn"), (bool, "bool"), (np.bool_, "bool"), ("bool_", "bool"),
        ("tf32", "tfloat32"), ("fp8e5", "float8_e5m2"), (DTYPES["uint16"], "uint16"),
        (ml_dtypes.float8_e8m0fnu, "float8_e8m0fnu"),
        (np.dtype([("float8_e4m3fn_x4", np.uint32)]), "float8_e4m3fn_x4"),
        (np.dtype([("float8_e5m2_x4", np.uint8, (4,))]), "float8_e5m2_x4"),
        (np.dtype("float4_e2m1fn_x4"), "float4_e2m1fn_x4"),
    ],
)  # fmt: skip
def test_a_type_is_known_by_its_spellings(spelled: object, expected: str) -> None:
    assert as_dtype(spelled) is DTYPES[expected]


@pytest.mark.parametrize(
    ("spelled", "name"), [("float64", "float64"), (np.int64, "int64"), (float, "float64")]
)
def test_a_64_bit_type_is_refused_with_a_hint(spelled: object, name: str) -> None:
    with pytest.raises(RuleError) as caught:
        as_dtype(spelled)
    assert str(caught.value) == (
        f"dtype is {name}; it must be one of float32, tfloat32, bfloat16, float16, float8_e4m3, float8_e5m2, "
        "float8_e4m3fn, int32, int16, int8, uint32, uint16, uint8, bool, float8_e8m0fnu, float8_e5m2_x4, "
        "float8_e4m3fn_x4, float4_e2m1fn_x4\n  hint: cast it on the host first"
    )


def test_an_unhashable_type_is_refused() -> None:
    with pytest.raises(RuleError, match=r"^dtype is of type list; it must be one of float32, "):
        as_dtype([])


class Elements:
    """Shows its elements on several lines, as arrays do."""

    def __str__(self) -> str:
        return "[[1]\n [2]]"


# hand: two's complement
BOUNDS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535),
          "int32": (-2147483648, 2147483647), "uint32": (0, 4294967295)}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_integers_have_their_bounds_and_read_most_negative_unwritten(name: str) -> None:
    assert integer_bounds(DTYPES[name]) == BOUNDS[name]
    assert unwritten_value(DTYPES[name]) == BOUNDS[name][0]


@pytest.mark.parametrize("name", [d.name for d in DTYPES.values() if d.is_float])
def test_floats_read_nan_unwritten(name: str) -> None:
    assert np.isnan(unwritten_value(DTYPES[name]).astype(np.float32))


# NKI API common fields, "Supported data types": bits, stored mantissa bits, largest finite value
FORMATS = {"float32": (4, 23, 3.4028234663852886e38), "bfloat16": (2, 7, 3.3895313892515355e38),
           "float16": (2, 10, 65504.0), "float8_e4m3": (1, 3, 240.0), "float8_e5m2": (1, 2, 57344.0),
           "float8_e4m3fn": (1, 3, 448.0), "float8_e8m0fnu": (1, 0, 2.0**127)}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_a_float_has_its_documented_size_and_range(name: str) -> None:
    dtype, (itemsize, mantissa, largest) = DTYPES[name], FORMATS[name]
    assert (dtype.itemsize, dtype.mantissa_bits) == (itemsize, mantissa)
    assert float(ml_dtypes.finfo(dtype.storage).max) == largest


# MXFP matrix multiplication guide, "Data Tensor": four floats in 32 bits, four 4-bit floats in 16
@pytest.mark.parametrize(
    ("name", "size"), [("float8_e5m2_x4", 4), ("float8_e4m3fn_x4", 4), ("float4_e2m1fn_x4", 2)]
)
def test_a_packed_type_has_its_size_and_is_no_number(name: str, size: int) -> None:
    dtype = DTYPES[name]
    assert (dtype.itemsize, dtype.is_packed, dtype.is_float, dtype.is_integer) == (size, True, False, False)
    assert unwritten_value(dtype).tobytes() == b"\xff" * size


def test_tfloat32_has_ten_mantissa_bits_in_four_bytes() -> None:
    # NKI API common fields: 19 bits, 10 of them mantissa
    assert (DTYPES["tfloat32"].mantissa_bits, DTYPES["tfloat32"].itemsize) == (10, 4)


@pytest.mark.parametrize(("spelled", "kind"), [(None, "NoneType"), (Elements(), "Elements")])
def test_what_is_no_type_is_told_by_its_kind(spelled: object, kind: str) -> None:
    # None is no float64, and an array does not show its elements
    with pytest.raises(RuleError, match=rf"^dtype is of type {kind}; it must be one of float32, "):
        as_dtype(spelled)


def test_numpy_makes_arrays_of_a_packed_type_by_its_name() -> None:
    array = np.zeros((2, 3), "float8_e4m3fn_x4")
    assert as_dtype(array.dtype) is DTYPES["float8_e4m3fn_x4"]
    assert array.tobytes() == bytes(24)


@pytest.mark.parametrize(
    "record",
    [
        np.dtype([("float8_e4m3fn_x4", np.uint16)]),
        np.dtype([("float8_e4m3fn_x4", np.uint16), ("b", np.uint16)]),
        np.dtype([("a", np.uint32)]),
    ],
)
def test_a_record_of_another_size_or_name_is_no_packed_type(record: np.dtype) -> None:
    with pytest.raises(RuleError, match=r"^dtype is void(16|32); it must be one of float32, "):
        as_dtype(record)


def test_a_packed_type_promotes_with_nothing_else() -> None:
    with pytest.raises(RuleError) as caught:
        promoted(DTYPES["float8_e4m3fn_x4"], DTYPES["float32"])
    assert str(caught.value) == "float8_e4m3fn_x4 and float32 have no common type"


def test_an_object_of_ours_may_say_which_type_it_is() -> None:
    class Spelled:
        dtype_of_nkilab = DTYPES["bfloat16"]

    assert as_dtype(Spelled()) is DTYPES["bfloat16"]
