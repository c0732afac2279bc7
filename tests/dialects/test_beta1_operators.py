"""Operators, elementwise functions, promotion and views of tiles in Beta 1."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.dialects.spellings import nisa1 as nisa
from tests.dialects.spellings import nki1 as nki
from tests.dialects.spellings import nl1 as nl
from tests.dialects.spellings import ramp

from nkilab.isa.activations import ACTIVATIONS

SIGNED = np.array([[-3.5, -1.25, -0.0, 0.5], [1.0, 2.75, 7.5, -8.0]], np.float32)


def elementwise(body, dtype=None):
    """A kernel of one tile that stores what `body` makes of it."""

    @nki.jit
    def kernel(x):
        result = body(nl.load(x))
        out = nl.ndarray(result.shape, dtype or result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    return kernel


def pairwise(body, dtype=None):
    """A kernel of two tiles that stores what `body` makes of them."""

    @nki.jit
    def kernel(x, y):
        result = body(nl.load(x), nl.load(y))
        out = nl.ndarray(result.shape, dtype or result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    return kernel


OPERATORS = {
    "+": (lambda x, y: x + y),
    "-": (lambda x, y: x - y),
    "*": (lambda x, y: x * y),
    "/": (lambda x, y: x / y),
    "%": (lambda x, y: x % y),
    "<": (lambda x, y: x < y),
    "<=": (lambda x, y: x <= y),
    ">": (lambda x, y: x > y),
    ">=": (lambda x, y: x >= y),
    "==": (lambda x, y: x == y),
    "!=": (lambda x, y: x != y),
}


@pytest.mark.parametrize("word", OPERATORS)
def test_an_operator_on_two_tiles_means_what_it_means_on_numpy_arrays(word):
    body = OPERATORS[word]
    other = np.array([[2, -1.25, 3, 0.5], [4, -2, 0.5, 16]], np.float32)
    np.testing.assert_array_equal(pairwise(body)(SIGNED, other), body(SIGNED, other))


@pytest.mark.parametrize("word", OPERATORS)
def test_an_operator_takes_a_number_on_either_side(word):
    body = OPERATORS[word]
    np.testing.assert_array_equal(elementwise(lambda t: body(t, 2.5))(SIGNED), body(SIGNED, np.float32(2.5)))
    x = SIGNED + np.float32(0.25)
    np.testing.assert_array_equal(elementwise(lambda t: body(2.5, t))(x), body(np.float32(2.5), x))


INTEGERS = np.array([[5, -7, 0, 1], [127, -128, 2**20, 3]], np.int32)


@pytest.mark.parametrize("word", ["&", "|", "^"])
def test_a_bitwise_operator_works_on_bit_patterns(word):
    body = {"&": lambda x, y: x & y, "|": lambda x, y: x | y, "^": lambda x, y: x ^ y}[word]
    other = np.full((2, 4), 6, np.int32)
    np.testing.assert_array_equal(pairwise(body)(INTEGERS, other), body(INTEGERS, other))
    np.testing.assert_array_equal(elementwise(lambda t: body(t, 6))(INTEGERS), body(INTEGERS, 6))
    np.testing.assert_array_equal(elementwise(lambda t: body(6, t))(INTEGERS), body(6, INTEGERS))


def test_shifts_and_inversion_work_on_bit_patterns():
    x = np.array([[1, 2, 3, 1024]], np.uint32)
    np.testing.assert_array_equal(elementwise(lambda t: t << 3)(x), x << 3)
    np.testing.assert_array_equal(elementwise(lambda t: t >> 1)(x), x >> 1)
    np.testing.assert_array_equal(elementwise(lambda t: t & 0xFF)(x), x & 0xFF)
    np.testing.assert_array_equal(elementwise(lambda t: ~t)(INTEGERS), ~INTEGERS)


def test_negation_and_power_are_elementwise():
    np.testing.assert_array_equal(elementwise(lambda t: -t)(SIGNED), -SIGNED)
    np.testing.assert_array_equal(elementwise(lambda t: t**2)(SIGNED), SIGNED**2)
    np.testing.assert_array_equal(
        elementwise(lambda t: 2**t)(np.array([[1, 3, -1, 0]], np.float32)), [[2, 8, 0.5, 1]]
    )


def test_a_number_that_numpy_computed_on_the_host_is_a_number():
    np.testing.assert_array_equal(elementwise(lambda t: t * np.sqrt(4.0))(SIGNED), SIGNED * 2)
    np.testing.assert_array_equal(elementwise(lambda t: np.float64(2) * t)(SIGNED), SIGNED * 2)
    np.testing.assert_array_equal(elementwise(lambda t: t + np.int64(2))(SIGNED), SIGNED + 2)


# Source: NKI API common fields, type promotion: (left, right, result)
PROMOTIONS = [
    ("float32", "int8", "float32"), ("bfloat16", "int32", "bfloat16"), ("float16", "float32", "float32"),
    ("float16", "bfloat16", "float32"), ("float8_e4m3", "float16", "float16"),
    ("float8_e5m2", "bfloat16", "bfloat16"), ("float8_e4m3", "float8_e5m2", "bfloat16"), ("int8", "int32",
     "int32"),
    ("int8", "uint8", "int16"), ("int8", "uint16", "int32"), ("int32", "uint32", "float32"),
    ("uint8", "uint16", "uint16"),
]  # fmt: skip


def _storage(name):
    return np.dtype(getattr(np, name, None) or getattr(ml_dtypes, name))


@pytest.mark.parametrize(("left", "right", "result"), PROMOTIONS)
def test_two_types_promote_as_documented(left, right, result):
    x, y = (np.ones((2, 2)).astype(_storage(n)) for n in (left, right))
    for first, second in ((x, y), (y, x)):
        out = pairwise(lambda a, b: a + b)(first, second)
        assert out.dtype == _storage(result)
        np.testing.assert_array_equal(out.astype(np.float32), 2)


@pytest.mark.parametrize(
    ("tile", "number", "result"),
    [
        ("float16", 1.2, "float32"), ("float16", 1, "float16"), ("bfloat16", 1.5, "float32"), ("int32", 1.5,
         "float32"),
        ("int8", 1, "int32"), ("uint8", True, "uint8"), ("bfloat16", np.float16(1), "float32"),
        ("float16", np.float16(1), "float16"),
    ],
)  # fmt: skip
def test_a_number_promotes_as_its_weak_type(tile, number, result):
    x = np.ones((2, 2)).astype(_storage(tile))
    assert elementwise(lambda t: t + number)(x).dtype == _storage(result)


def test_a_comparison_is_boolean_and_dtype_overrides_it():
    assert elementwise(lambda t: t > 0)(SIGNED).dtype == np.bool_
    out = elementwise(lambda t: nl.greater(t, 0.0, dtype=nl.bfloat16))(SIGNED)
    assert out.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(out.astype(np.float32), (SIGNED > 0).astype(np.float32))


def test_logical_functions_take_numbers_for_truth():
    x = np.array([[0, 1, -2.5, 0]], np.float32)
    y = np.array([[0, 0, 1, 3]], np.float32)
    for function, expected in (
        (nl.logical_and, np.logical_and), (nl.logical_or, np.logical_or), (nl.logical_xor, np.logical_xor),
    ):  # fmt: skip
        np.testing.assert_array_equal(pairwise(lambda a, b, f=function: f(a, b))(x, y), expected(x, y))
    np.testing.assert_array_equal(elementwise(nl.logical_not)(x), x == 0)


def test_maximum_minimum_mod_and_fmod_follow_numpy():
    y = np.array([[2, -2, 3, -3], [3, 3, -4, 3]], np.float32)
    for function, expected in (
        (nl.maximum, np.maximum), (nl.minimum, np.minimum), (nl.mod, np.mod), (nl.fmod, np.fmod),
    ):  # fmt: skip
        np.testing.assert_array_equal(
            pairwise(lambda a, b, f=function: f(a, b))(SIGNED, y), expected(SIGNED, y)
        )


UNARY = {
    "exp": np.exp, "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0), "square": np.square, "abs": np.abs,
    "sign": np.sign, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0, x), "ceil": np.ceil, "floor": np.floor, "trunc": np.trunc,
    "cos": np.cos,
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)), "negative": np.negative, "tan": np.tan,
}  # fmt: skip
POSITIVE = {"log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x)}


# One float32 step: the reference is float64 rounded once, and so is the function
ONE_STEP = 2.0**-23


@pytest.mark.parametrize("name", [*UNARY, *POSITIVE])
def test_a_function_is_the_float64_value_rounded_once(name):
    x = np.linspace(-4, 4, 96, dtype=np.float32).reshape(2, 48)
    x = np.abs(x) + np.float32(0.1) if name in POSITIVE else x
    function = {**UNARY, **POSITIVE}[name]
    out = elementwise(getattr(nl, name))(x)
    np.testing.assert_allclose(out, function(x.astype(np.float64)), rtol=ONE_STEP, atol=0)


def test_sin_and_arctan_take_their_documented_range():
    x = np.linspace(-1.5, 1.5, 64, dtype=np.float32).reshape(2, 32)
    np.testing.assert_allclose(elementwise(nl.sin)(x), np.sin(x.astype(np.float64)), rtol=ONE_STEP)
    np.testing.assert_allclose(elementwise(nl.arctan)(x), np.arctan(x.astype(np.float64)), rtol=ONE_STEP)


def test_reciprocal_is_exact_to_a_step():
    x = np.array([[1, -3, 7, 1e-3]], np.float32)
    np.testing.assert_allclose(elementwise(nl.reciprocal)(x), 1 / x.astype(np.float64), rtol=ONE_STEP)


def test_every_documented_activation_is_a_function_of_nl():
    absent = [n for n, f in ACTIVATIONS.items() if f.is_documented and not hasattr(nl, n)]
    # a spelling of the next dialect
    assert absent == ["gelu_apprx_sigmoid_dx"]


def test_a_function_rounds_into_the_type_asked_for():
    x = np.array([[1.00390625, 1.01171875, -1.00390625]], np.float32)  # ties of bfloat16
    out = elementwise(lambda t: nl.copy(t, dtype=nl.bfloat16))(x)
    np.testing.assert_array_equal(out.astype(np.float32), [[1.0, 1.015625, -1.0]])


def test_astype_to_an_integer_rounds_to_even_and_saturates():
    x = np.array([[0.5, 1.5, -2.5, 300, -1e9]], np.float32)
    np.testing.assert_array_equal(elementwise(lambda t: t.astype(nl.int8))(x), [[0, 2, -2, 127, -128]])
    np.testing.assert_array_equal(elementwise(lambda t: t.astype(nl.uint8))(x), [[0, 2, 0, 255, 0]])


def test_a_column_and_a_row_broadcast_over_a_tile():
    x, column, row = ramp(4, 6), -ramp(4, 1), ramp(1, 6) * 10
    np.testing.assert_array_equal(pairwise(lambda a, b: a + b)(x, column), x + column)
    np.testing.assert_array_equal(pairwise(lambda a, b: b - a)(x, column), column - x)
    np.testing.assert_array_equal(pairwise(lambda a, b: a * b)(x, row), x * row)
    np.testing.assert_array_equal(pairwise(lambda a, b: a + b)(column, row), column + row)


def test_an_integer_row_broadcasts_exactly_over_partitions():
    x, row = np.zeros((4, 2), np.int32), np.array([[2**24 + 1, -(2**31)]], np.int32)
    np.testing.assert_array_equal(pairwise(lambda a, b: a | b)(x, row), np.broadcast_to(row, (4, 2)))


def test_the_middle_axis_of_three_broadcasts():
    x, y = ramp(2, 3, 4), ramp(2, 1, 4) * 100
    np.testing.assert_array_equal(pairwise(lambda a, b: a + b)(x, y), x + y)


def test_nisa_tensor_tensor_repeats_a_column():
    x, column = ramp(4, 6), -ramp(4, 1)
    body = pairwise(lambda a, b: nisa.tensor_tensor(a, b, op=np.multiply))
    np.testing.assert_array_equal(body(x, column), x * column)


def test_in_place_operators_write_the_tile_again():
    x, column = ramp(4, 6), ramp(4, 1) - 2

    @nki.jit
    def kernel(x, column):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        same = t
        t += 1.0
        t -= t * 0.5
        t *= nl.load(column)
        t[:, 0:3] /= 4.0
        assert same is t
        nl.store(out, t)
        return out

    expected = (x + 1) / 2 * column
    expected[:, :3] /= 4
    np.testing.assert_array_equal(kernel(x, column), expected)


def test_reshape_splits_and_joins_free_axes():
    x = ramp(4, 12)
    body = elementwise(lambda t: nl.add(t.reshape((4, 3, 4)), 0.0))
    np.testing.assert_array_equal(body(x), x.reshape(4, 3, 4))
    back = elementwise(lambda t: nl.add(t.reshape((4, 3, -1)).reshape(4, 12), 0.0))
    np.testing.assert_array_equal(back(x), x)


def test_broadcast_to_and_expand_dims_repeat_without_copying():
    x = ramp(4, 3)
    body = elementwise(lambda t: nl.add(t.expand_dims(2).broadcast_to((4, 3, 5)), 0.0))
    np.testing.assert_array_equal(body(x), np.repeat(x[:, :, None], 5, axis=2))
    again = elementwise(lambda t: nl.add(nl.expand_dims(t, 1).broadcast_to((4, 2, 3)), 0.0))
    np.testing.assert_array_equal(again(x), np.repeat(x[:, None], 2, axis=1))


def test_nl_broadcast_to_repeats_one_partition():
    row = ramp(1, 700)
    body = elementwise(lambda t: nl.broadcast_to(t, shape=(128, 700)))
    np.testing.assert_array_equal(body(row), np.broadcast_to(row, (128, 700)))


def test_view_reads_the_same_bytes_as_another_type():
    x = np.array([[1.0, -2.0, 0.5]], np.float32)
    np.testing.assert_array_equal(elementwise(lambda t: nl.copy(t.view(nl.int32)))(x), x.view(np.int32))
    np.testing.assert_array_equal(elementwise(lambda t: nl.copy(t.view(nl.uint8)))(x), x.view(np.uint8))


def test_shape_dtype_rank_and_item_size_describe_a_tile():
    @nki.jit
    def kernel(x):
        t = nl.load(x)
        assert (t.shape, t.ndim, t.dtype, t.itemsize) == ((4, 3), 2, np.float16, 2)
        assert t.assert_shape((4, 3)) is t
        assert t.dtype == nl.float16

    kernel(ramp(4, 3, dtype=np.float16))


def test_creation_functions_fill_tiles():
    @nki.jit
    def kernel():
        out = nl.ndarray((4, 30), nl.float32, buffer=nl.shared_hbm)
        like = nl.zeros_like(nl.ones((4, 5), nl.float32))
        empty = nl.empty_like(like, dtype=nl.bfloat16)
        empty[...] = 6.0
        tiles = (
            nl.zeros((4, 5), nl.float32), nl.ones((4, 5), nl.bfloat16), nl.full((4, 5), -2.5, nl.float32),
            like, empty, nisa.memset((4, 5), 7, nl.int32),
        )  # fmt: skip
        for i, tile in enumerate(tiles):
            nl.store(out[:, 5 * i : 5 * i + 5], tile)
        return out

    expected = np.repeat([0, 1, -2.5, 0, 6, 7], 5)
    np.testing.assert_array_equal(kernel(), np.broadcast_to(expected, (4, 30)))


def test_iota_writes_a_program_id_and_a_loop_variable():
    # as published attention makes the number of its head a tile
    @nki.jit
    def numbers():
        out = nl.ndarray((2, 3), nl.int32, buffer=nl.shared_hbm)
        head = nl.program_id(0)
        column = nl.transpose(nisa.iota(head, dtype=nl.int32).broadcast_to((1, 1)))
        for i in nl.affine_range(3):
            row = nisa.iota(10 * i, dtype=nl.int32)
            nl.store(out[nl.ds(head, 1), nl.ds(i, 1)], row.reshape((1, 1)) + column)
        return out

    np.testing.assert_array_equal(numbers[2](), [[0, 10, 20], [1, 11, 21]])


def test_iota_writes_the_values_of_an_index_expression():
    @nki.jit
    def kernel():
        out = nl.ndarray((4, 6), nl.int32, buffer=nl.shared_hbm)
        i_p, i_f = nl.mgrid[0:4, 0:6]
        nl.store(out, nisa.iota(10 * i_p - i_f + 3, dtype=nl.int32))
        return out

    p, f = np.mgrid[0:4, 0:6]
    np.testing.assert_array_equal(kernel(), 10 * p - f + 3)
