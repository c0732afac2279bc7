"""Widening and rounding against NumPy, ml_dtypes, and formats decoded by hand."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from nkilab.errors import RuleError
from nkilab.tiles import convert
from nkilab.tiles.convert import (
    SMALL,
    cast,
    round_bfloat16,
    round_tfloat32,
    store,
    to_integer,
    widen,
    widen_bfloat16,
)
from nkilab.tiles.dtypes import DTYPES
from nkilab.tiles.half import convert_halves

HALVES = np.arange(65536, dtype=np.uint32).astype(np.uint16)
SPECIAL = np.array(
    [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-45,
        -1e-45,
        1e-40,
        2.0**-126,
        3.4e38,
        -3.4e38,
        1.0,
        -1.0,
        0.1,
        -0.1,
    ],
    np.float32,
)


def random_bits(seed: int, count: int = 200_000) -> np.ndarray:
    """float32 of any pattern, and some near where 16-bit and 8-bit formats live."""
    draw = np.random.default_rng(seed)
    anything = draw.integers(0, 2**32, count, np.uint32).view(np.float32)
    near = (draw.standard_normal(count) * 10.0 ** draw.integers(-9, 6, count)).astype(np.float32)
    return np.concatenate([anything, near, SPECIAL])


def half_way_points() -> np.ndarray:
    """Every float32 half-way between two neighbouring float16, and its two neighbours."""
    values = np.sort(HALVES.view(np.float16).astype(np.float32)[np.isfinite(HALVES.view(np.float16))])
    middle = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    edge = np.float32([65520.0, -65520.0])
    points = np.concatenate([middle, edge])
    return np.concatenate(
        [points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))]
    )


def assert_same_numbers(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal bit for bit, but any NaN equals any other."""
    nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    assert got[~nan].tobytes() == expected[~nan].tobytes()


def stored(values: np.ndarray, name: str) -> np.ndarray:
    dst = np.empty(values.shape, DTYPES[name].storage)
    with np.errstate(all="ignore"):
        store(dst, values, DTYPES[name])
    return dst


def widened(halves: np.ndarray) -> np.ndarray:
    wide = np.empty(halves.shape, np.float32)
    convert_halves(halves, wide)
    return wide


def test_every_float16_widens_as_numpy_widens_it() -> None:
    assert_same_numbers(widened(HALVES.view(np.float16)), HALVES.view(np.float16).astype(np.float32))


def test_compiled_conversions_of_float16_take_over_with_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # arithmetic leaves quiet NaNs alone, whatever is written in them
    is_loud = (HALVES & 0x7E00 == 0x7C00) & (HALVES & 0x1FF != 0)
    halves, values = HALVES[~is_loud].view(np.float16), random_bits(4)
    values = values[~np.isnan(values) | (values.view(np.uint32) & 0x400000 != 0)]
    results = []
    for spent in (0.0, 2 * convert.LOADING):
        monkeypatch.setattr(convert, "_spent", [spent])
        results.append((widen(halves, DTYPES["float16"]).tobytes(), stored(values, "float16").tobytes()))
        assert (convert._spent[0] > spent) == (not spent)
    assert results[0] == results[1]


def test_every_float16_comes_back_as_it_was() -> None:
    dst = np.empty(65536, np.float16)
    convert_halves(HALVES.view(np.float16).astype(np.float32), dst)
    assert_same_numbers(dst, HALVES.view(np.float16))


@pytest.mark.parametrize("values", [half_way_points(), random_bits(2)], ids=["half-way", "random"])
def test_float16_rounds_as_numpy_rounds(values: np.ndarray) -> None:
    dst = np.empty(values.shape, np.float16)
    convert_halves(values, dst)
    with np.errstate(all="ignore"):
        assert_same_numbers(dst, values.astype(np.float16))


def test_every_bfloat16_widens_exactly_and_comes_back() -> None:
    brains = HALVES.view(ml_dtypes.bfloat16)
    wide = widen_bfloat16(brains)
    assert_same_numbers(wide, brains.astype(np.float32))
    assert_same_numbers(round_bfloat16(wide).view(ml_dtypes.bfloat16), brains)


def test_bfloat16_rounds_as_ml_dtypes_rounds() -> None:
    patterns = np.arange(65536, dtype=np.uint32) << np.uint32(16)
    ties = np.concatenate([(patterns + np.uint32(low)).view(np.float32) for low in (0x7FFF, 0x8000, 0x8001)])
    values = np.concatenate([ties, random_bits(3)])
    with np.errstate(all="ignore"):
        expected = values.astype(ml_dtypes.bfloat16)
    assert_same_numbers(round_bfloat16(values).view(ml_dtypes.bfloat16), expected)


def test_a_nan_whose_payload_lies_in_the_low_bits_stays_nan_in_bfloat16() -> None:
    values = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(round_bfloat16(values).view(ml_dtypes.bfloat16).astype(np.float32)).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["rows", "columns", "every second"])
def test_large_and_small_tiles_round_alike_in_any_layout(name: str, layout: str) -> None:
    values = random_bits(4, 4096)[: 64 * 128].reshape(64, 128)
    full = np.zeros((64, 256), DTYPES[name].storage)
    dst = {"rows": full[:, :128], "columns": full.reshape(128, 128)[:, :64].T, "every second": full[:, ::2]}[
        layout
    ]
    assert dst.size >= SMALL
    with np.errstate(all="ignore"):
        store(dst, values, DTYPES[name])
        parts = np.concatenate([stored(values[k : k + 1], name) for k in range(64)])
        assert_same_numbers(np.ascontiguousarray(dst), parts)
        assert_same_numbers(widen(dst, DTYPES[name]), parts.astype(np.float32))


def nearest_tfloat32(x: float) -> float:
    """x with 11 significant bits, by scalar arithmetic: ties to even, least step 2^-136."""
    if x == 0 or not math.isfinite(x):
        return x
    step = max(math.frexp(x)[1] - 11, -136)
    rounded = round(math.ldexp(x, -step))
    return (
        math.copysign(math.ldexp(rounded, step), x)
        if abs(rounded) * 2.0**step < 2.0**128
        else math.copysign(math.inf, x)
    )


def test_tfloat32_keeps_ten_mantissa_bits() -> None:
    values = random_bits(5, 2000)
    expected = np.array([nearest_tfloat32(float(v)) for v in values], np.float32)
    assert_same_numbers(round_tfloat32(values), expected)


def test_ties_of_tfloat32_go_to_the_even_neighbour() -> None:
    # patterns with 13 bits below the last one that stays: half-way is 0x1000
    draw = np.random.default_rng(8)
    kept = draw.integers(0, 0x7F800000 >> 13, 2000, np.uint32) << np.uint32(13)
    for low in (0x0FFF, 0x1000, 0x1001, 0x1FFF):
        values = (kept | np.uint32(low)).view(np.float32)
        expected = np.array([nearest_tfloat32(float(v)) for v in values], np.float32)
        assert_same_numbers(round_tfloat32(values), expected)
        assert_same_numbers(round_tfloat32(-values), -expected)


def decode(bits: int, mantissa: int, bias: int) -> float:
    """A positive 8-bit float by its definition; the top exponent counts as any other."""
    exponent, fraction = bits >> mantissa, bits & (1 << mantissa) - 1
    if exponent == 0:
        return math.ldexp(fraction, 1 - bias - mantissa)
    return math.ldexp((1 << mantissa) + fraction, exponent - bias - mantissa)


# bits of the mantissa, exponent bias, largest finite pattern, what lies above it
EIGHT_BITS = {
    "float8_e4m3": (3, 7, 0b1110111, math.inf),
    "float8_e5m2": (2, 15, 0b1111011, math.inf),
    "float8_e4m3fn": (3, 7, 0b1111110, math.nan),
}


def nearest_eight_bits(x: float, name: str) -> float:
    """x in an 8-bit float format: nearest pattern, ties to the even one; by search over all patterns."""
    mantissa, bias, last, beyond = EIGHT_BITS[name]
    if math.isnan(x):
        return x
    # one pattern above the largest stands for overflow
    patterns = [decode(bits, mantissa, bias) for bits in range(last + 2)]
    if abs(x) >= patterns[-1]:
        return math.copysign(beyond, x)
    best = min(range(last + 2), key=lambda bits: (abs(patterns[bits] - abs(x)), bits & 1))
    return math.copysign(beyond if best > last else patterns[best], x)


@pytest.mark.parametrize("name", EIGHT_BITS)
def test_eight_bit_floats_round_to_the_nearest_pattern(name: str) -> None:
    mantissa, bias, last, _ = EIGHT_BITS[name]
    exact = np.array([decode(bits, mantissa, bias) for bits in range(last + 2)])
    middle = (exact[1:] + exact[:-1]) / 2
    points = np.concatenate(
        [exact, middle, np.nextafter(middle.astype(np.float32), np.float32(np.inf)), SPECIAL]
    )
    values = np.concatenate([points, -points, random_bits(6, 300)]).astype(np.float32)
    expected = np.array([nearest_eight_bits(float(v), name) for v in values], np.float32)
    assert_same_numbers(stored(values, name).astype(np.float32), expected)


@pytest.mark.parametrize("name", EIGHT_BITS)
def test_every_eight_bit_float_widens_exactly(name: str) -> None:
    mantissa, bias, last, _ = EIGHT_BITS[name]
    patterns = np.arange(last + 1, dtype=np.uint8)
    expected = np.array([decode(int(bits), mantissa, bias) for bits in patterns], np.float32)
    got = widen(patterns.view(DTYPES[name].storage), DTYPES[name])
    np.testing.assert_array_equal(got, expected)


BOUNDS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535),
          "int32": (-2147483648, 2147483647), "uint32": (0, 4294967295)}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_floats_become_integers_to_nearest_even_and_saturate(name: str) -> None:
    low, high = BOUNDS[name]
    floats = [
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        -2.5,
        0.49,
        126.5,
        127.5,
        3e9,
        5e9,
        -5e9,
        1e38,
        -1e38,
        math.inf,
        -math.inf,
    ]
    # Python's round is to nearest even
    expected = [low if x < low else high if x > high else round(x) for x in floats]
    assert stored(np.array(floats, np.float32), name).tolist() == expected


@pytest.mark.parametrize("name", BOUNDS)
def test_nan_becomes_zero_in_an_integer(name: str) -> None:
    assert stored(np.float32([np.nan, -np.nan]), name).tolist() == [0, 0]


def test_anything_but_zero_is_true() -> None:
    values = np.float32([0.0, -0.0, 1e-45, -3.0, np.inf, np.nan])
    assert stored(values, "bool").tolist() == [False, False, True, True, True, True]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2"])
def test_overflow_of_negative_numbers_is_minus_infinity(name: str) -> None:
    # NKI 0.6 release notes: FP32_MIN stored to narrower floats becomes -inf
    expected = -np.inf if name != "float32" else np.finfo(np.float32).min
    assert stored(np.array([np.finfo(np.float32).min]), name).astype(np.float32)[0] == expected


def test_integers_are_not_rounded_through_float32_when_they_are_integers() -> None:
    # 2^24 + 1 has no float32
    assert to_integer(np.array([16777217, -(2**40), 2**40]), DTYPES["int32"]).tolist() == [
        16777217, -(2**31), 2**31 - 1,
    ]  # fmt: skip


def copied(values: np.ndarray, source: str, target: str) -> np.ndarray:
    dst = np.empty(values.shape, DTYPES[target].storage)
    with np.errstate(all="ignore"):
        cast(dst, DTYPES[target], values.astype(DTYPES[source].storage), DTYPES[source])
    return dst


@pytest.mark.parametrize("name", DTYPES)
def test_equal_types_copy_bit_for_bit(name: str) -> None:
    storage = DTYPES[name].storage
    raw = np.random.default_rng(7).integers(0, 2 if name == "bool" else 256, 64 * storage.itemsize, np.uint8)
    src, dst = raw.view(storage), np.empty(64, storage)
    cast(dst, DTYPES[name], src, DTYPES[name])
    assert dst.tobytes() == src.tobytes()


def test_a_copy_between_int32_and_uint32_goes_through_float32() -> None:
    # 2^24 + 1 rounds to 2^24 in float32; negative numbers saturate at 0
    assert copied(np.array([16777217, -5]), "int32", "uint32").tolist() == [16777216, 0]


@pytest.mark.parametrize(
    ("source", "target", "numbers", "expected"),
    [
        ("int8", "uint8", [-1, 5, 127], [0, 5, 127]),
        ("int16", "int8", [300, -300, 7], [127, -128, 7]),
        ("uint16", "int16", [65535, 12], [32767, 12]),
        ("int32", "int16", [70000, -70000], [32767, -32768]),
        ("int32", "float32", [16777217, -3], [16777216.0, -3.0]),
        ("bool", "float32", [True, False], [1.0, 0.0]),
        ("bfloat16", "int8", [2.5, -3.5], [2, -4]),
        ("float16", "bfloat16", [1.00390625, 65504.0], [1.0, 65536.0]),
    ],
)
def test_types_that_differ_are_converted(
    source: str, target: str, numbers: list[float], expected: list[float]
) -> None:
    assert copied(np.array(numbers), source, target).astype(np.float64).tolist() == expected


def test_a_float64_result_is_rounded_to_float32_first() -> None:
    # it lies above the float16 tie 1 + 2^-11, but float32 rounds it onto the tie, which goes to even
    assert stored(np.array([1 + 2.0**-11 + 2.0**-30]), "float16")[0] == 1.0


# hand: OCP Microscaling Formats 1.0, E8M0 is 2^(pattern - 127), 255 is NaN; of two as near, the larger
SCALES = [(1.0, 127), (2.0, 128), (3.0, 129), (6.0, 130), (5.9, 129), (0.75, 127), (0.7, 126),
          (2.0**-127, 0), (2.0**127, 254), (3.4e38, 255), (math.inf, 255), (math.nan, 255), (-1.0, 255),
          (0.0, 0), (-0.0, 0), (1e-45, 0)]  # fmt: skip


@pytest.mark.parametrize(("value", "pattern"), SCALES)
def test_a_number_becomes_the_nearest_scale_and_zero_the_least(value: float, pattern: int) -> None:
    assert stored(np.float32([value]), "float8_e8m0fnu").view(np.uint8).tolist() == [pattern]


def test_every_scale_widens_to_its_power_of_two() -> None:
    got = widen(np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu), DTYPES["float8_e8m0fnu"])
    assert got[:255].tolist() == [math.ldexp(1, k - 127) for k in range(255)]
    assert math.isnan(got[255])


PACKED = ["float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4"]


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("other", ["float32", "uint32", "bool"])
def test_packed_elements_are_not_converted(name: str, other: str) -> None:
    bits = "uint16" if name.startswith("float4") else "uint32"
    text = (
        f"an element of {name} is four numbers; it is copied to the same type, not converted\n"
        f"  hint: view the tile as {bits} to move its bits, or compute with nc_matmul_mx"
    )
    packed, plain = np.zeros((2, 4), DTYPES[name].storage), np.zeros((2, 4), DTYPES[other].storage)
    for dst, target, src, source in ((plain, other, packed, name), (packed, name, plain, other)):
        with pytest.raises(RuleError) as caught:
            cast(dst, DTYPES[target], src, DTYPES[source])
        assert str(caught.value) == text


@pytest.mark.parametrize("name", PACKED)
def test_zero_alone_is_stored_into_packed_elements(name: str) -> None:
    dst = np.full((2, 4 * DTYPES[name].itemsize), 0xFF, np.uint8).view(DTYPES[name].storage)
    store(dst[:, ::2], 0, DTYPES[name])
    assert dst[:, ::2].tobytes() == bytes(dst.nbytes // 2)
    assert dst[:, 1::2].tobytes() == b"\xff" * (dst.nbytes // 2)
    with pytest.raises(RuleError, match=r"^an element of .* is four numbers"):
        store(dst, 1, DTYPES[name])


@pytest.mark.parametrize("name", ["float32", "tfloat32"])
def test_what_is_float32_is_not_copied_to_be_widened(name: str) -> None:
    values = np.arange(4, dtype=np.float32)
    assert widen(values, DTYPES[name]) is values
