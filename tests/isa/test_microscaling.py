"""quantize_mx and nc_matmul_mx: numbers, scales in their quadrants, tiling, accumulation."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nkilab.errors import NkilabWarning, RuleError
from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.tiles.tile import View, array_of
from nkilab.tiles.views import derived
from nkilab.trace.session import Session
from tests.uses import Tile, call, new_tile, open_session, part_of, refused

QUANTIZE, MATMUL, MEMSET = REGISTRY["quantize_mx"], REGISTRY["nc_matmul_mx"], REGISTRY["memset"]
ELEMENTS = {
    "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn,
    "float8_e5m2_x4": ml_dtypes.float8_e5m2,
    "float4_e2m1fn_x4": ml_dtypes.float4_e2m1fn,
}


def words_of(numbers: np.ndarray, name: str) -> np.ndarray:
    """Numbers [P, F, 4] packed by hand, the first in the lowest bits."""
    bits = numbers.astype(ELEMENTS[name]).view(np.uint8).astype(np.uint32)
    width = 4 if name.startswith("float4") else 8
    words = sum(bits[..., k] << np.uint32(width * k) for k in range(4))
    word = np.uint16 if width == 4 else np.uint32
    return np.asarray(words).astype(word).view(np.dtype([(name, word)]))


def spread(scales: np.ndarray, partitions: int, first: int = 0) -> np.ndarray:
    """Rows of scales [P / 8, F] where the hardware wants them in a tile of `partitions`; 255 elsewhere."""
    tile = np.full((partitions, scales.shape[1]), 255, np.uint8)
    for row, scale in enumerate(scales):
        tile[row // 4 * 32 + row % 4 + first] = scale
    return tile


def dequantised(numbers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """float64 [P, F, 4]: each group of 8 partitions and 4 numbers times 2^(scale - 127)."""
    return numbers * np.repeat(2.0 ** (scales.astype(int) - 127), 8, axis=0)[:, :, None]


def small_integers(seed: int, *shape: int) -> np.ndarray:
    """Numbers that every element format has."""
    return np.random.default_rng(seed).choice([-4, -3, -2, -1, 0, 1, 2, 3, 4], shape).astype(np.float32)


def some_scales(seed: int, *shape: int) -> np.ndarray:
    """1/2, 1, 2: sums of products stay exact in float32."""
    return np.random.default_rng(seed).integers(126, 129, shape).astype(np.uint8)


class Product:
    """Random operands of a product, and what it gives."""

    def __init__(self, k: int, m: int, n: int, left: str, right: str) -> None:
        self.left, self.right = small_integers(1, k, m, 4), small_integers(2, k, n, 4)
        self.left_scale, self.right_scale = some_scales(3, k // 8, m), some_scales(4, k // 8, n)
        self.types = (left, right)
        self.expected = np.einsum(
            "kmq,knq->mn",
            dequantised(self.left, self.left_scale),
            dequantised(self.right, self.right_scale),
        )

    def operands(self, session: Session, scale_type: str = "uint8") -> dict[str, View]:
        """Tiles of the data, and of the scales as large as the data where they need be."""
        rows = len(self.left) if len(self.left) > 32 else 4
        scales = {
            "stationary_scale": spread(self.left_scale, rows),
            "moving_scale": spread(self.right_scale, rows),
        }
        return {
            "stationary": placed(session, words_of(self.left, self.types[0]), self.types[0]),
            "moving": placed(session, words_of(self.right, self.types[1]), self.types[1]),
            **{name: placed(session, scale_array, scale_type, name) for name, scale_array in scales.items()},
        }


def placed(session: Session, array: np.ndarray, dtype: str, name: str = "") -> View:
    """A written tile in SBUF of the bits of `array`."""
    view = new_tile(session, Tile(array.shape, dtype), name=name)
    view.storage.allocate(np.ascontiguousarray(array).view(view.storage.dtype.storage))
    return view


def trn3() -> Session:
    return open_session(MACHINES["trn3"])


def psum(session: Session, m: int, n: int, dtype: str = "float32") -> View:
    return new_tile(session, Tile((m, n), dtype, "psum"), name="acc")


@pytest.mark.parametrize("left", ELEMENTS)
@pytest.mark.parametrize("right", ELEMENTS)
@pytest.mark.parametrize("scale_type", ["uint8", "float8_e8m0fnu"])
def test_a_product_of_any_two_formats_is_that_of_the_dequantised_numbers(
    left: str, right: str, scale_type: str
) -> None:
    session, product = trn3(), Product(128, 16, 24, left, right)
    dst = psum(session, 16, 24)
    call(session, MATMUL, dst=dst, **product.operands(session, scale_type))
    np.testing.assert_array_equal(array_of(dst), product.expected)


@pytest.mark.parametrize("k", [32, 64, 96, 128])
def test_the_scales_of_each_quadrant_are_its_first_four_rows(k: int) -> None:
    session, product = trn3(), Product(k, 6, 5, "float8_e4m3fn_x4", "float4_e2m1fn_x4")
    dst = psum(session, 6, 5)
    call(session, MATMUL, dst=dst, **product.operands(session))
    np.testing.assert_array_equal(array_of(dst), product.expected)


def test_one_quadrant_may_have_a_tile_of_scales_as_large_as_its_data() -> None:
    session, product = trn3(), Product(32, 4, 4, "float8_e5m2_x4", "float8_e5m2_x4")
    operands = product.operands(session)
    operands["moving_scale"] = placed(session, spread(product.right_scale, 32), "uint8")
    dst = psum(session, 4, 4)
    call(session, MATMUL, dst=dst, **operands)
    np.testing.assert_array_equal(array_of(dst), product.expected)


@pytest.mark.parametrize("first", [0, 4, 8, 12])
def test_scales_of_several_tensors_share_a_tile(first: int) -> None:
    session, product = trn3(), Product(128, 8, 10, "float8_e4m3fn_x4", "float8_e4m3fn_x4")
    operands = product.operands(session)
    shared = placed(session, spread(product.right_scale, 128, first), "uint8")
    operands["moving_scale"] = part_of(shared, (first, 0), (128 - first, 10))
    dst = psum(session, 8, 10)
    call(session, MATMUL, dst=dst, **operands)
    np.testing.assert_array_equal(array_of(dst), product.expected)


def test_free_axes_count_as_one() -> None:
    session, product = trn3(), Product(64, 6, 8, "float8_e4m3fn_x4", "float8_e4m3fn_x4")
    operands = product.operands(session)
    for name, inner in (("stationary", (1, 6)), ("moving", (2, 4))):
        for operand in (name, f"{name}_scale"):
            view = operands[operand]
            shape, count = (view.layout.shape[0], *inner), inner[0] * inner[1]
            operands[operand] = derived(view, 0, shape, (count, inner[1], 1), 0)
    dst = psum(session, 6, 8)
    call(session, MATMUL, dst=dst, **operands)
    np.testing.assert_array_equal(array_of(dst), product.expected)


def test_a_row_tile_gives_the_same_product() -> None:
    session, product = trn3(), Product(64, 8, 8, "float8_e4m3fn_x4", "float8_e4m3fn_x4")
    dst = psum(session, 8, 8)
    operands = product.operands(session)
    call(session, MATMUL, dst=dst, tile_position=(64, 0), tile_size=(64, 128), **operands)
    np.testing.assert_array_equal(array_of(dst), product.expected)


def test_the_first_product_overwrites_and_later_ones_add() -> None:
    session, product = trn3(), Product(32, 4, 4, "float8_e4m3fn_x4", "float8_e4m3fn_x4")
    dst, operands = psum(session, 4, 4), product.operands(session)
    for count in (1, 2, 3):
        call(session, MATMUL, dst=dst, **operands)
        np.testing.assert_array_equal(array_of(dst), count * product.expected)
    call(session, MATMUL, dst=dst, accumulate=False, **operands)
    np.testing.assert_array_equal(array_of(dst), product.expected)
    # one group with products of plain types
    ones = {"stationary": new_tile(session, np.ones((1, 4))), "moving": new_tile(session, np.ones((1, 4)))}
    call(session, REGISTRY["nc_matmul"], dst=dst, **ones)
    np.testing.assert_array_equal(array_of(dst), product.expected + 1)
    call(session, MEMSET, dst=dst, value=7)
    call(session, MATMUL, dst=dst, **operands)
    np.testing.assert_array_equal(array_of(dst), product.expected)
    assert [session.program.values_of(row) for row in range(3)] == [(False,), (True,), (True,)]


def test_a_bfloat16_result_is_rounded_once_from_float32() -> None:
    session, product = trn3(), Product(128, 32, 32, "float8_e4m3fn_x4", "float8_e4m3fn_x4")
    dst = psum(session, 32, 32, "bfloat16")
    call(session, MATMUL, dst=dst, **product.operands(session))
    expected = product.expected.astype(np.float32).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(array_of(dst), expected)


def test_a_scale_of_255_makes_its_group_nan() -> None:
    session, product = trn3(), Product(32, 4, 4, "float8_e4m3fn_x4", "float8_e4m3fn_x4")
    product.left_scale[1, 2] = 255
    dst = psum(session, 4, 4)
    call(session, MATMUL, dst=dst, **product.operands(session))
    assert np.isnan(array_of(dst)).all(axis=1).tolist() == [False, False, True, False]


# PSUM of 16 KiB per partition: nki.isa.nc_matmul_mx, tile size
@pytest.mark.parametrize(("dtype", "most"), [("float32", 4096), ("bfloat16", 8192)])
@pytest.mark.parametrize("called", ["nc_matmul", "nc_matmul_mx"])
def test_the_moving_tile_fills_psum_on_trn3(called: str, dtype: str, most: int) -> None:
    use: dict[str, Any] = {"dst.dtype": dtype, "N": most}
    assert refused(REGISTRY[called], use, "trn3") == ""
    words = "moving free max" + (" two bytes" if dtype == "bfloat16" else "")
    assert refused(REGISTRY[called], {**use, "N": most + 1}, "trn3") == (
        f"N is {most + 1}; trn3 allows {most} ({words})\n"
        "  hint: split the free axis of `moving`\n"
        "  source: nki.isa.nc_matmul, tile size\n"
        "  key: err_size_of_dimension_exceed_arch_limit"
    )


def test_a_misfit_of_scales_and_data_is_named() -> None:
    session, product = trn3(), Product(32, 4, 6, "float8_e4m3fn_x4", "float8_e4m3fn_x4")
    operands = product.operands(session)
    operands["moving_scale"] = placed(session, some_scales(1, 4, 8), "uint8", "scales")
    with pytest.raises(RuleError) as caught:
        call(session, MATMUL, dst=psum(session, 4, 6), **operands)
    assert caught.value.problem == "moving_scale is 8 along N; it must be 6, as in the operands before it"


def test_columns_of_dst_are_those_of_stationary() -> None:
    session, product = trn3(), Product(32, 4, 6, "float8_e4m3fn_x4", "float8_e4m3fn_x4")
    with pytest.raises(RuleError) as caught:
        call(session, MATMUL, dst=psum(session, 8, 6), **product.operands(session))
    assert caught.value.problem == "axis M of stationary is 4; it is 8 in dst"


def test_too_many_partitions_are_refused_as_in_other_products() -> None:
    assert refused(MATMUL, {"K": 160}, "trn3").startswith("K is 160; trn3 allows 128 (partitions)\n")


# quantising


def quantised(
    src: np.ndarray, name: str, *, dtype: str = "bfloat16", headroom: int = 1, scale: str = "uint8"
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers, float32[P, F], and the scales, uint8[P / 8, F / 4], that quantize_mx makes."""
    session = trn3()
    p, f = src.shape
    dst = new_tile(session, Tile((p, f // 4), name))
    scales = placed(session, np.zeros((p, f // 4), np.uint8), scale)
    call(session, QUANTIZE, dst=dst, src=new_tile(session, src, dtype), dst_scale=scales, headroom=headroom)
    rows = [row // 4 * 32 + row % 4 for row in range(p // 8)]
    exponents = array_of(scales).view(np.uint8)
    others = np.delete(exponents, rows, axis=0)
    assert not others.any()
    numbers = np.ascontiguousarray(array_of(dst)).view(ELEMENTS[name]).astype(np.float32)
    return numbers, exponents[rows]


def quantised_by_scalars(src: np.ndarray, emax: int, largest: float, element: Any, headroom: int) -> Any:
    """The documented formula, group by group, in Python floats."""
    p, f = src.shape
    numbers, scales = np.zeros((p, f), np.float32), np.zeros((p // 8, f // 4), np.uint8)
    for i in range(p // 8):
        for j in range(f // 4):
            group = src[8 * i : 8 * i + 8, 4 * j : 4 * j + 4].astype(float)
            top = float(np.abs(group).max())
            # floor(log2 m) exactly
            exponent = int(np.frexp(top)[1]) - 1 - (emax - headroom) if top else -127
            exponent = max(exponent, -127)
            scales[i, j] = exponent + 127
            limited = np.clip(group / 2.0**exponent, -largest, largest).astype(np.float32)
            numbers[8 * i : 8 * i + 8, 4 * j : 4 * j + 4] = limited.astype(element).astype(np.float32)
    return numbers, scales


# nki.isa.quantize_mx, scale calculation: the largest exponent; OCP: the largest number
DOCUMENTED = {"float8_e4m3fn_x4": (8, 448.0), "float8_e5m2_x4": (15, 57344.0)}


@pytest.mark.parametrize("name", DOCUMENTED)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("headroom", [0, 1])
@pytest.mark.parametrize("partitions", [32, 96, 128])
def test_quantising_follows_the_documented_formula(
    name: str, dtype: str, headroom: int, partitions: int
) -> None:
    draw = np.random.default_rng(partitions)
    src = draw.standard_normal((partitions, 24)) * 2.0 ** draw.integers(-12, 8, (partitions, 24))
    src[:8, :4] = 0
    converted = src.astype({"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}[dtype]).astype(np.float32)
    numbers, scales = quantised(src, name, dtype=dtype, headroom=headroom)
    expected, documented = quantised_by_scalars(converted, *DOCUMENTED[name], ELEMENTS[name], headroom)
    np.testing.assert_array_equal(scales, documented)
    np.testing.assert_array_equal(numbers, expected)


def test_the_scale_leaves_room_for_rounding_up() -> None:
    # hand: 1.9375 = 2^0 * 31/16; with scale 2^-7 it is 248, half-way between 240 and 256, to the even 256;
    # with scale 2^-8 it is 496, beyond 448
    src = np.full((32, 4), 1.9375)
    assert quantised(src, "float8_e4m3fn_x4")[0][0, 0] == 256
    assert quantised(src, "float8_e4m3fn_x4", headroom=0)[0][0, 0] == 448


def test_the_smallest_and_largest_magnitudes_have_scales() -> None:
    # hand: 2^-133 is the least bfloat16, floor(log2) - 7 < -127; 2^127 has 127 - 7 + 127
    least, most = np.full((32, 4), 2.0**-133), np.full((32, 4), 2.0**127)
    numbers, scales = quantised(least, "float8_e4m3fn_x4")
    assert (scales == 0).all()
    assert (numbers == 2.0**-6).all()
    numbers, scales = quantised(most, "float8_e4m3fn_x4")
    assert (scales == 247).all()
    assert (numbers == 128).all()


def test_an_infinity_saturates_and_nan_stays_nan() -> None:
    src = np.ones((32, 8))
    src[0, 0], src[0, 1], src[8, 4] = np.inf, -np.inf, np.nan
    numbers, scales = quantised(src, "float8_e5m2_x4")
    assert numbers[0, :2].tolist() == [57344, -57344]
    assert np.isnan(numbers[8, 4])
    assert np.isfinite(np.delete(numbers.ravel(), 8 * 8 + 4)).all()
    # hand: 255 - 15 + 1
    assert scales[:2].tolist() == [[241, 113], [113, 241]]


def test_numbers_of_three_bits_survive_quantising_and_multiply_exactly() -> None:
    left, right = small_integers(5, 128, 16 * 4), small_integers(6, 128, 24 * 4)
    session = trn3()
    tiles = []
    for source in (left, right):
        f = source.shape[1] // 4
        dst, scale = (
            new_tile(session, Tile((128, f), "float8_e4m3fn_x4")),
            placed(session, np.zeros((128, f), np.uint8), "float8_e8m0fnu"),
        )
        call(session, QUANTIZE, dst=dst, src=new_tile(session, source, "bfloat16"), dst_scale=scale)
        tiles.append((dst, scale))
    acc = psum(session, 16, 24)
    call(
        session, MATMUL, dst=acc, stationary=tiles[0][0], moving=tiles[1][0], stationary_scale=tiles[0][1],
        moving_scale=tiles[1][1],
    )  # fmt: skip
    exact = np.einsum("kmq,knq->mn", left.reshape(128, 16, 4), right.reshape(128, 24, 4))
    np.testing.assert_array_equal(array_of(acc), exact)


def rows_alone(tile: View, quadrants: int) -> View:
    """The rows of scales in use of a tile [P, F], as the dialects record them."""
    step, free = tile.layout.strides
    shape = (quadrants, 4, tile.layout.shape[1])
    return derived(tile, tile.offset, shape, (32 * step, step, free), 0)


def test_rows_of_scales_alone_stand_for_their_tile_and_leave_the_rest_unwritten() -> None:
    session = trn3()
    src = new_tile(session, np.ones((64, 8)), "bfloat16")
    dst, tile = (
        new_tile(session, Tile((64, 2), "float8_e4m3fn_x4")),
        new_tile(session, Tile((64, 2), "uint8")),
    )
    call(session, QUANTIZE, dst=dst, src=src, dst_scale=rows_alone(tile, 2))
    written = tile.storage.written.bits.reshape(64, 2).all(axis=1)
    assert np.flatnonzero(written).tolist() == [0, 1, 2, 3, 32, 33, 34, 35]
    assert (array_of(tile)[written] == 120).all()
    acc = psum(session, 2, 2)
    scales = {"stationary_scale": rows_alone(tile, 2), "moving_scale": rows_alone(tile, 2)}
    call(session, MATMUL, dst=acc, stationary=dst, moving=dst, **scales)
    # hand: 64 partitions of 4 ones
    assert (array_of(acc) == 256).all()


def test_scales_never_written_are_told() -> None:
    session, product = trn3(), Product(32, 4, 4, "float8_e4m3fn_x4", "float8_e4m3fn_x4")
    operands = product.operands(session)
    operands["moving_scale"] = new_tile(session, Tile((4, 4), "uint8"), name="scales")
    with pytest.warns(NkilabWarning, match=r"^reads scales: uint8\[4, 4\] in sbuf, which was never written"):
        call(session, MATMUL, dst=psum(session, 4, 4), **operands)
