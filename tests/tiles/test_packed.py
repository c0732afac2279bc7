"""Packed elements: which bits are which number, by the definition of each small format."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nkilab.isa.microscaling import largest_exponent, packed, scale_values, unpacked
from nkilab.tiles.dtypes import DTYPES

# OCP Microscaling Formats 1.0: bits of exponent and mantissa, bias
FORMATS = {"float8_e4m3fn_x4": (4, 3, 7), "float8_e5m2_x4": (5, 2, 15), "float4_e2m1fn_x4": (2, 1, 1)}


def decoded(bits: int, name: str) -> float:
    """One number by its definition."""
    exponent_bits, mantissa_bits, bias = FORMATS[name]
    sign = -1.0 if bits >> (exponent_bits + mantissa_bits) else 1.0
    exponent = bits >> mantissa_bits & (1 << exponent_bits) - 1
    fraction = bits & (1 << mantissa_bits) - 1
    if name == "float8_e4m3fn_x4" and exponent == 15 and fraction == 7:
        return math.nan
    if name == "float8_e5m2_x4" and exponent == 31:
        return math.nan if fraction else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(fraction, 1 - bias - mantissa_bits)
    return sign * math.ldexp((1 << mantissa_bits) + fraction, exponent - bias - mantissa_bits)


@pytest.mark.parametrize("name", FORMATS)
def test_every_pattern_is_its_number_and_the_first_lies_in_the_lowest_bits(name: str) -> None:
    width = DTYPES[name].itemsize * 2
    patterns = np.arange(1 << width)
    numbers = np.stack([patterns, np.roll(patterns, 1), np.roll(patterns, 2), np.roll(patterns, 3)])
    words = sum(row.astype(np.int64) << width * k for k, row in enumerate(numbers))
    bits = np.asarray(words).astype(f"u{DTYPES[name].itemsize}")
    got = unpacked(bits.reshape(2, -1).view(DTYPES[name].storage), DTYPES[name])
    assert got.shape == (2, 4, len(patterns) // 2)
    expected = np.array([[decoded(int(b), name) for b in row] for row in numbers], np.float32)
    np.testing.assert_array_equal(got.transpose(1, 0, 2).reshape(4, -1), expected)


@pytest.mark.parametrize("name", ["float8_e4m3fn_x4", "float8_e5m2_x4"])
def test_a_strided_tile_unpacks_as_its_copy(name: str) -> None:
    words = np.random.default_rng(1).integers(0, 2**32, (8, 12), np.uint32).view(DTYPES[name].storage)
    np.testing.assert_array_equal(
        unpacked(words[::2, 1::3], DTYPES[name]), unpacked(words[::2, 1::3].copy(), DTYPES[name])
    )


# hand: the nearest pattern, ties to the even one; beyond the largest number, the largest
PATTERNS = [
    ("float8_e4m3fn_x4", [1.0, -1.0, 448.0, 1e9], 0x7E7EB838),
    ("float8_e4m3fn_x4", [1.0625, 1.1875, 2.0**-9, 2.0**-10], 0x00013A38),
    ("float8_e4m3fn_x4", [-math.inf, 0.0, -0.0, 465.0], 0x7E8000FE),
    ("float8_e5m2_x4", [1.0, -2.0, 57344.0, math.inf], 0x7B7BC03C),
    ("float8_e5m2_x4", [1.125, 1.375, 2.0**-16, -1e9], 0xFB013E3C),
]


@pytest.mark.parametrize(("name", "numbers", "word"), PATTERNS)
def test_numbers_are_rounded_saturated_and_packed(name: str, numbers: list[float], word: int) -> None:
    got = packed(np.float32([[numbers]]), DTYPES[name])
    assert got.dtype == DTYPES[name].storage
    assert hex(int(got.view(np.uint32)[0, 0])) == hex(word)


def test_nan_stays_nan() -> None:
    for name in ("float8_e4m3fn_x4", "float8_e5m2_x4"):
        got = unpacked(packed(np.float32([[[math.nan, 1, 2, 3]]]), DTYPES[name]), DTYPES[name])
        np.testing.assert_array_equal(got[0, :, 0], [math.nan, 1, 2, 3])


@pytest.mark.parametrize(
    ("name", "exponent"), [("float8_e4m3fn_x4", 8), ("float8_e5m2_x4", 15), ("float4_e2m1fn_x4", 2)]
)
def test_the_largest_exponent_is_documented(name: str, exponent: int) -> None:
    # nki.isa.quantize_mx, scale calculation; OCP for the 4-bit type
    assert largest_exponent(DTYPES[name]) == exponent


def test_a_scale_is_a_power_of_two_and_255_is_nan() -> None:
    values = scale_values()
    assert values[:255].tolist() == [2.0 ** (k - 127) for k in range(255)]
    assert math.isnan(values[255])
