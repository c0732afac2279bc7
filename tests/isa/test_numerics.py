"""What the elementwise engines compute, against scalar arithmetic, NumPy integers and numbers by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nkilab.isa import REGISTRY
from nkilab.isa.operators import OPERATORS
from nkilab.machine import MACHINES
from nkilab.tiles.dtypes import DTYPES
from nkilab.tiles.tile import array_of
from tests.uses import Tile, call, new_tile, open_session, result

Scalar = Callable[..., float]
TENSOR_TENSOR, TENSOR_SCALAR = REGISTRY["tensor_tensor"], REGISTRY["tensor_scalar"]
TENSOR_COPY, MEMSET, IOTA = REGISTRY["tensor_copy"], REGISTRY["memset"], REGISTRY["iota"]
DMA_COPY, RECIPROCAL = REGISTRY["dma_copy"], REGISTRY["reciprocal"]
NUMBERS = [0.0, 1.0, -1.0, 0.1, -0.3, 2.5, -7.25, 1e-3, 3e5, 1e-40, 123456.789]


def quotient(x: float, y: float) -> float:
    if y == 0:
        return math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1, y)
    return x / y


def power(x: float, y: float) -> float:
    if x < 0 and y != int(y):
        return math.nan
    try:
        return x**y
    except (ZeroDivisionError, OverflowError):
        # zero to a negative power, or beyond double precision; the exponents here are not odd
        return math.inf


# NKI API common fields, "Supported math operators", as scalar functions
BINARY: dict[str, Scalar] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "maximum": max,
    "minimum": min,
    "divide": quotient,
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
    "greater_equal": lambda x, y: x >= y,
    "greater": lambda x, y: x > y,
    "less_equal": lambda x, y: x <= y,
    "less": lambda x, y: x < y,
    "logical_and": lambda x, y: bool(x) and bool(y),
    "logical_or": lambda x, y: bool(x) or bool(y),
    "logical_xor": lambda x, y: bool(x) != bool(y),
    "power": power,
    "abs_max": lambda x, y: x if abs(x) > abs(y) else y,
    "abs_min": lambda x, y: x if abs(x) < abs(y) else y,
    # nl.mod takes the sign of the divisor, nl.fmod that of the dividend
    "mod": lambda x, y: math.nan if y == 0 else x % y,
    "fmod": lambda x, y: math.nan if y == 0 else math.fmod(x, y),
}
UNARY: dict[str, Scalar] = {
    "logical_not": lambda x: x == 0,
    "rsqrt": lambda x: math.inf if x == 0 else math.nan if x < 0 else 1 / math.sqrt(x),
    "reciprocal": lambda x: quotient(1.0, x),
    "abs": abs,
    "square": lambda x: x * x,
    "relu": lambda x: x if x > 0 or x != x else 0.0,
}
BITS: dict[str, Callable[..., int]] = {
    "invert": lambda x, width: ~x,
    "bitwise_and": lambda x, y, width: x & y,
    "bitwise_or": lambda x, y, width: x | y,
    "bitwise_xor": lambda x, y, width: x ^ y,
    "left_shift": lambda x, y, width: x << y if y < width else 0,
    "right_shift": lambda x, y, width: (x % 2**width) >> y,
}
INTEGER_NAMES = ("int8", "uint8", "int16", "uint16", "int32", "uint32")


def rounded(function: Scalar, *columns: np.ndarray) -> np.ndarray:
    """A scalar function over float32 numbers, in double precision, rounded to float32."""
    with np.errstate(over="ignore"):
        return np.array([function(*map(float, row)) for row in zip(*columns, strict=True)]).astype(np.float32)


def wrapped(value: int, name: str) -> int:
    """An integer as the bits of a type hold it."""
    width = DTYPES[name].itemsize * 8
    value %= 2**width
    return value - 2**width if name[0] == "i" and value >= 2 ** (width - 1) else value


def test_every_operator_has_a_formula_here() -> None:
    assert set(OPERATORS) == {*BINARY, *UNARY, *BITS}


@pytest.mark.parametrize("name", BINARY)
def test_an_operator_of_two_tiles_computes_its_formula_in_float32(name: str) -> None:
    x, y = np.float32(list(product(NUMBERS, NUMBERS))).T
    got = result(TENSOR_TENSOR, (1, x.size), machine="trn3", data1=x[None], data2=y[None], op=name)[0]
    expected = rounded(BINARY[name], x, y)
    if name == "power":
        # power is not correctly rounded: one unit in the last place of float32
        np.testing.assert_allclose(got, expected, rtol=2.0**-23)
    else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", UNARY)
def test_an_operator_of_one_tile_computes_its_formula_in_float32(name: str) -> None:
    x = np.float32(NUMBERS)
    got = result(TENSOR_SCALAR, (1, x.size), machine="trn3", data=x[None], op0=name)[0]
    np.testing.assert_array_equal(got, rounded(UNARY[name], x))


@pytest.mark.parametrize("name", [n for n in BINARY if n not in ("abs_max", "abs_min")])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_reverse_puts_the_operand_on_the_left(name: str, is_reversed: bool) -> None:
    x = np.float32(NUMBERS)
    got = result(TENSOR_SCALAR, (1, x.size), data=x[None], op0=name, operand0=2.5, reverse0=is_reversed)[0]
    y = np.full_like(x, 2.5)
    expected = rounded(BINARY[name], *((y, x) if is_reversed else (x, y)))
    np.testing.assert_allclose(got, expected, rtol=2.0**-23 if name == "power" else 0)


@pytest.mark.parametrize("name", INTEGER_NAMES)
@pytest.mark.parametrize("op", BITS)
def test_bitwise_operators_are_exact_and_shift_right_logically(name: str, op: str) -> None:
    width = DTYPES[name].itemsize * 8
    draw = np.random.default_rng(1)
    x = draw.integers(0, 256, (1, 40 * width // 8), np.uint8).view(DTYPES[name].storage)
    y = draw.integers(0, width, (1, 40)) if "shift" in op else x[:, ::-1]
    operands = {"data": (x, name), "op0": op}
    if op == "invert":
        got = result(TENSOR_SCALAR, Tile((1, 40), name), **operands)
    else:
        got = result(TENSOR_TENSOR, Tile((1, 40), name), data1=(x, name), data2=(y, name), op=op)
    rows = [x[0].tolist()] if op == "invert" else [x[0].tolist(), y[0].tolist()]
    expected = [wrapped(BITS[op](*row, width), name) for row in zip(*rows, strict=True)]
    assert got[0].tolist() == expected


@pytest.mark.parametrize("op", ["left_shift", "right_shift"])
def test_a_shift_by_the_width_leaves_nothing(op: str) -> None:
    got = result(
        TENSOR_SCALAR, Tile((1, 2), "int32"), data=(np.array([[-1, 5]]), "int32"), op0=op, operand0=32
    )
    assert got.tolist() == [[0, 0]]


@pytest.mark.parametrize("dst", ["int32", "uint32"])
def test_bits_of_int32_and_uint32_mix_without_loss(dst: str) -> None:
    # 0xfffffff1 & -1
    got = result(
        TENSOR_TENSOR, Tile((1, 1), dst), op="bitwise_and",
        data1=(np.array([[0xFFFFFFF1]]), "uint32"), data2=(np.array([[-1]]), "int32"),
    )  # fmt: skip
    assert got[0, 0] == wrapped(0xFFFFFFF1, dst)


def test_bits_of_int16_and_uint16_mix_without_loss() -> None:
    got = result(
        TENSOR_TENSOR, Tile((1, 1), "int16"), op="bitwise_or",
        data1=(np.array([[0x8000]]), "uint16"), data2=(np.array([[1]]), "int16"),
    )  # fmt: skip
    assert got[0, 0] == -32767


def test_two_bitwise_operators_follow_each_other() -> None:
    # hand: (0xabcd >> 4) & 0xf = 0xc
    got = result(
        TENSOR_SCALAR, Tile((1, 1), "int32"), data=(np.array([[0xABCD]]), "int32"),
        op0="right_shift", operand0=4, op1="bitwise_and", operand1=0xF,
    )  # fmt: skip
    assert got.tolist() == [[0xC]]


def test_an_all_ones_mask_keeps_the_bits_of_int32() -> None:
    got = result(
        TENSOR_SCALAR,
        Tile((1, 1), "int32"),
        data=(np.array([[-7]]), "int32"),
        op0="bitwise_and",
        operand0=0xFFFFFFFF,
    )
    assert got.tolist() == [[-7]]


@pytest.mark.parametrize("name", ["int32", "uint32"])
@pytest.mark.parametrize(
    ("op", "exact"), [("add", int.__add__), ("subtract", int.__sub__), ("multiply", int.__mul__)]
)
def test_32_bit_integers_are_exact_on_gpsimd_and_wrap_around(name: str, op: str, exact: Any) -> None:
    bits = np.random.default_rng(2).integers(0, 2**32, (2, 1, 50), np.uint32)
    bits[:, 0, :3] = [[2**31 - 1, 2**24 + 1, 0], [1, 0, 2**31]]
    x, y = bits.view(DTYPES[name].storage)
    got = result(TENSOR_TENSOR, Tile((1, 50), name), data1=(x, name), data2=(y, name), op=op)
    assert got[0].tolist() == [
        wrapped(exact(a, b), name) for a, b in zip(x[0].tolist(), y[0].tolist(), strict=True)
    ]


@pytest.mark.parametrize("where", [{"engine": "vector"}, {"memory": "psum"}])
def test_32_bit_integers_round_to_float32_on_vector(where: dict[str, str]) -> None:
    memory = where.pop("memory", "sbuf")
    got = result(
        TENSOR_TENSOR, Tile((1, 1), "int32"), op="add",
        data1=(np.array([[2**24 + 1]]), "int32", memory), data2=(np.array([[0]]), "int32"), **where,
    )  # fmt: skip
    assert got.tolist() == [[2**24]]


@pytest.mark.parametrize(
    "name", [n for n, d in DTYPES.items() if n not in ("tfloat32", "bool") and not d.is_packed]
)
def test_a_result_is_rounded_once_on_the_write(name: str) -> None:
    # 0.3 * 3 + 0.1 has float32 steps that a narrower intermediate would lose
    x = np.float32([[0.3, -0.7, 100.0, 1000.0, 1e-3, 2.5, -2.5]])
    dtype = DTYPES[name]
    got = result(
        TENSOR_SCALAR, Tile(x.shape, name), data=x, op0="multiply", operand0=3.0, op1="add", operand1=0.1
    )
    exact = (x * np.float32(3) + np.float32(0.1)).astype(np.float32)
    if dtype.is_integer:
        info = np.iinfo(dtype.storage)
        expected = [min(max(round(float(v)), info.min), info.max) for v in exact[0]]
        assert got[0].tolist() == expected
    else:
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(
                got.astype(np.float32), exact.astype(dtype.storage).astype(np.float32)
            )


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3"])
def test_narrow_inputs_are_summed_in_float32(name: str) -> None:
    # 16 + 2^-6 needs eleven bits: no bfloat16 or float8 intermediate holds it
    x = np.array([[16.0]]), name
    y = np.array([[2.0**-6]]), name
    got = result(TENSOR_TENSOR, (1, 1), data1=x, data2=y, op="add")
    assert got[0, 0] == 16.015625


def test_a_comparison_writes_one_and_zero_in_the_type_of_dst() -> None:
    got = result(
        TENSOR_SCALAR, Tile((1, 3), "uint8"), data=np.float32([[1, 2, 3]]), op0="greater", operand0=1.5
    )
    assert got.tolist() == [[0, 1, 1]]


def test_comparisons_with_nan_are_false() -> None:
    nan = np.float32([[np.nan]])
    assert result(TENSOR_TENSOR, (1, 1), data1=nan, data2=nan, op="equal")[0, 0] == 0
    assert result(TENSOR_TENSOR, (1, 1), data1=nan, data2=nan, op="not_equal")[0, 0] == 1


def test_a_column_operand_spreads_over_all_free_axes() -> None:
    data = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    got = result(TENSOR_SCALAR, (2, 2, 3), data=data, op0="subtract", operand0=np.float32([[1], [10]]))
    np.testing.assert_array_equal(got, data - np.float32([1, 10])[:, None, None])


def test_tiles_of_other_shapes_combine_in_the_order_of_their_elements() -> None:
    data1, data2 = np.float32([[1, 2, 3, 4]]), np.float32([[[10, 20], [30, 40]]])
    got = result(TENSOR_TENSOR, (1, 2, 2), data1=data1, data2=data2, op="add")
    assert got.tolist() == [[[11, 22], [33, 44]]]


def test_scalar_tensor_tensor_reverses_each_operator_alone() -> None:
    # hand: 10 - 3 = 7; 20 / 7 rounded to float32
    got = result(
        REGISTRY["scalar_tensor_tensor"], (1, 1), data=np.float32([[3]]), op0="subtract", operand0=10.0,
        reverse0=True, op1="divide", operand1=np.float32([[20]]), reverse1=True,
    )  # fmt: skip
    assert got[0, 0] == np.float32(20 / 7)


def test_reciprocal_of_zero_is_infinite_and_silent() -> None:
    got = result(RECIPROCAL, (1, 3), data=np.float32([[0.0, -0.0, 3.0]]))
    assert got[0].tolist() == [np.inf, -np.inf, np.float32(1 / 3)]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("float32", 0.1, np.float32(0.1)), ("bfloat16", 0.1, 0.10009765625), ("int32", 2**31 - 1, 2**31 - 1),
        ("uint32", 0xDEADBEEF, 0xDEADBEEF), ("int32", 2**40, 2**31 - 1), ("uint8", -5, 0), ("int8", 2.5, 2),
        ("float16", 1e6, np.inf), ("int32", 16777217, 16777217), ("bool", 7, True), ("float32", 3, 3.0),
    ],
)  # fmt: skip
def test_memset_writes_its_value_rounded_to_the_type(name: str, value: float, expected: float) -> None:
    got = result(MEMSET, Tile((2, 3), name), value=value)
    assert (got == np.array(expected).astype(got.dtype)).all()


def test_a_copy_of_equal_types_keeps_the_bits_of_nan() -> None:
    bits = np.array([[0x7FC01234, 0xFF812345]], np.uint32)
    assert result(TENSOR_COPY, (1, 2), src=bits.view(np.float32)).view(np.uint32).tolist() == bits.tolist()


def test_a_copy_of_int32_is_exact_on_vector_and_rounds_on_the_scalar_engine_of_trn1() -> None:
    src = np.array([[2**24 + 1]]), "int32"
    tile = Tile((1, 1), "int32")
    assert result(TENSOR_COPY, tile, machine="trn1", src=src)[0, 0] == 2**24 + 1
    assert result(TENSOR_COPY, tile, machine="trn1", src=src, engine="scalar")[0, 0] == 2**24
    assert result(TENSOR_COPY, tile, machine="trn2", src=src, engine="scalar")[0, 0] == 2**24 + 1


def test_iota_wraps_around_at_32_bits() -> None:
    got = result(
        IOTA, Tile((3, 2), "int32"), pattern=[[2**30, 2]], offset=2**31 - 1, channel_multiplier=2**30
    )
    expected = [[wrapped(2**31 - 1 + 2**30 * p + 2**30 * i, "int32") for i in range(2)] for p in range(3)]
    assert got.tolist() == expected


def test_iota_nests_its_axes_from_the_outside_in() -> None:
    got = result(IOTA, Tile((1, 6), "float32"), pattern=[[100, 2], [-1, 3]], offset=1)
    assert got.tolist() == [[1, 0, -1, 101, 100, 99]]


def test_iota_saturates_in_a_narrow_type() -> None:
    assert result(IOTA, Tile((1, 3), "uint8"), pattern=[[200, 3]], offset=-100).tolist() == [[0, 100, 255]]


@pytest.mark.parametrize(
    ("source", "target", "number", "expected"),
    [("float32", "int8", 2.5, 2), ("float32", "bfloat16", 1.01171875, 1.015625),
     ("int32", "float16", 2049, 2048.0), ("int32", "uint32", -1, 0), ("float32", "float8_e4m3", 1e9, np.inf)],
)  # fmt: skip
def test_a_transfer_casts_through_float32(source: str, target: str, number: float, expected: float) -> None:
    got = result(DMA_COPY, Tile((2, 4), target, "hbm"), src=(np.full((4, 2), number), source))
    assert (got == np.array(expected).astype(got.dtype)).all()


def test_a_transfer_keeps_the_order_of_elements_under_another_shape() -> None:
    src = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(result(DMA_COPY, Tile((6, 4), memory="hbm"), src=src), src.reshape(6, 4))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int32"])
def test_a_transfer_with_add_adds_to_what_dst_holds(name: str) -> None:
    session = open_session(MACHINES["trn2"])
    dst = new_tile(session, np.array([[10, 20]]), name, "hbm")
    src = new_tile(session, np.array([[1, -2]]), name)
    for _ in range(3):
        call(session, DMA_COPY, dst=dst, src=src, dst_rmw_op="add")
    assert array_of(dst).astype(np.float32).tolist() == [[13, 14]]


def test_a_write_into_a_slice_leaves_its_neighbours() -> None:
    session = open_session(MACHINES["trn2"])
    dst = new_tile(session, np.full((4, 8), 5.0))
    part = type(dst)(dst.storage, 2, type(dst.layout)((4, 3), (8, 1), dst.layout.dtype, "sbuf", 0, 0))
    call(session, MEMSET, dst=part, value=1)
    expected = np.full((4, 8), 5.0)
    expected[:, 2:5] = 1
    np.testing.assert_array_equal(array_of(dst), expected)


def test_bfloat16_storage_is_read_and_written_as_bfloat16() -> None:
    got = result(TENSOR_COPY, Tile((1, 2), "bfloat16"), src=np.float32([[1.0, 2.01]]))
    assert got.dtype == ml_dtypes.bfloat16
    assert got.view(np.uint16).tolist() == [[0x3F80, 0x4001]]
