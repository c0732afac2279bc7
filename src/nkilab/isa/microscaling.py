"""Microscaled (MX) tensors: quantising on VectorE, products on TensorE.

Four numbers of the contraction axis lie in one packed element. A group is 8 partitions of packed elements,
32 numbers, and has one scale, a power of two. The data of a quadrant of 32 partitions have 4 rows of scales,
which lie in the same quadrant, from its partition 0, 4, 8 or 12 on: four tensors can share a tile of scales.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from ..tiles.convert import round_eight_bits, widen
from ..tiles.dtypes import (
    FLOAT4_E2M1FN_X4,
    FLOAT8_E4M3FN,
    FLOAT8_E4M3FN_X4,
    FLOAT8_E5M2,
    FLOAT8_E5M2_X4,
    DType,
)
from ..tiles.tile import Layout, layout
from . import common_rules
from .array_tiles import TILING, pair, tiled
from .costs import engine_step
from .declare import Attr, Example, Immediate, In, Instruction, Out, Rule, Spelled, Step, rule
from .tensor_engine import (
    LIMITS,
    agree_on_axes,
    multiplication,
    product_limits,
    resolved_accumulate,
    weight_load,
    write_product,
)

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


SCALES = "MXFP matrix multiplication guide, scale tensor"
PACKING = "MXFP matrix multiplication guide, packing scale values"
EIGHT_BITS = ("float8_e4m3fn_x4", "float8_e5m2_x4")
PACKED = (*EIGHT_BITS, "float4_e2m1fn_x4")
SCALE_DTYPES = ("uint8", "float8_e8m0fnu")
QUADRANT = 32
GROUP = 8
# scales of a quadrant, and where in it they may begin
ROWS = QUADRANT // GROUP
STARTS = (0, 4, 8, 12)
_TILED = {"tile_size": (64, 128), "tile_position": (0, 0)}


def quadrants(data: Layout) -> int:
    """How many quadrants a tile of packed elements spans, the last perhaps in part."""
    return -(-data.partitions // QUADRANT)


def is_rows_alone(scale: Layout, data: Layout) -> bool:
    """Whether a view of scales is [quadrants, 4, F]: the rows in use, without the partitions between them."""
    count = quadrants(data)
    return count > 1 and scale.shape[:2] == (count, ROWS) and scale.strides[0] == QUADRANT * scale.strides[1]


def tile_around(scale: Layout, data: Layout) -> Layout:
    """The tile [P, F] that a view of scales belongs to: itself, unless it is the rows in use alone."""
    if not is_rows_alone(scale, data):
        return scale
    reach = QUADRANT * (quadrants(data) - 1) + ROWS
    return layout(
        (reach, *scale.shape[2:]), scale.strides[1:], scale.dtype, scale.memory, 0, scale.start_partition
    )


def _parts(scale: np.ndarray, layout: Layout, data: Layout) -> Iterator[np.ndarray]:
    """The rows in use of an array of scales, 4 of each quadrant; they share memory with it."""
    by_itself = is_rows_alone(layout, data)
    for k in range(quadrants(data)):
        yield scale[k] if by_itself else scale[k * QUADRANT : k * QUADRANT + ROWS]


def _scale_rules(*, data_axis: str, scale: str, scale_axis: str) -> tuple[Rule, ...]:
    """What holds for every tile of scales.

    Args:
        data_axis: the partition axis of the data, for the counterexamples.
        scale: the operand in them.
        scale_axis: its partition axis.
    """

    @rule(
        "scales have too few partitions: those of each 32 partitions of data are 4 rows, 32 partitions apart",
        source=SCALES,
        broken_by={data_axis: 64, scale_axis: 4},
        hint="allocate the scales with as many partitions as the data",
    )
    def scales_have_their_rows(self: Any) -> bool:
        return all(
            tile_around(layout, data).partitions >= QUADRANT * (quadrants(data) - 1) + ROWS
            for layout, data in self.scaled()
        )

    @rule(
        "scales do not start at partition 0, 4, 8 or 12 of a quadrant",
        source=PACKING,
        broken_by={f"{scale}.start": 2},
    )
    def scales_start_at_a_slot(self: Any) -> bool:
        return all(layout.start_partition % QUADRANT in STARTS for layout, _ in self.scaled())

    @rule(
        "scales lie in another quadrant than their data", source=SCALES, broken_by={f"{scale}.start": 32},
        hint="put the scales of partitions 32 to 63 at partition 32, 36, 40 or 44",
    )  # fmt: skip
    def scales_lie_by_their_data(self: Any) -> bool:
        return all(
            layout.start_partition // QUADRANT == data.start_partition // QUADRANT
            for layout, data in self.scaled()
        )

    return scales_have_their_rows, scales_start_at_a_slot, scales_lie_by_their_data


class QuantizeMx(Instruction):
    """Quantise groups of 32 numbers, 8 partitions of 4 neighbours each, to 8-bit floats with one scale.

    dst holds one packed element for every 4 numbers along the free axes of src. The scale of a group with
    largest magnitude m is 2^(floor(log2 m) - E + `headroom`), where E is 8 in float8_e4m3fn and 15 in
    float8_e5m2; it is stored as its exponent plus 127, from 0 on. Numbers are divided by it and rounded to
    nearest even; with `headroom` 0 those beyond the largest finite number saturate. No call gives
    `headroom`: it is 0 before NKI 0.5. Of dst_scale only the rows in use are written. Not documented, our
    choice: an infinity saturates, a NaN stays NaN, and both count as the largest exponent.
    """

    engines = ("vector",)
    dst = Out("P G*", ("sbuf",), EIGHT_BITS)
    src = In("P F*", ("sbuf",), ("bfloat16", "float16"))
    dst_scale = Out("S G*", ("sbuf",), SCALE_DTYPES)
    headroom = Attr(1, (0, 1))
    smallest = {"P": QUADRANT, "G": 4, "S": 128}
    example = Example(
        {"src": [[1, 1, 1, 1]] * 8 + [[6, 1.5, 0, -1]] * 8 + [[0, 0, 0, 0]] * 16},
        # hand: 1 / 2^(0 - 7) = 2^7 is 0x70; 6, 1.5, 0, -1 over 2^(2 - 7) are 192, 48, 0, -32: 74 64 00 e0
        {"dst": [[0x70707070]] * 8 + [[0xE0006474]] * 8 + [[0]] * 16, "dst_scale": [[120], [122], [0], [0]]},
        dtypes={"src": "bfloat16", "dst": "float8_e4m3fn_x4", "dst_scale": "uint8"},
    )

    chip_has_it = common_rules.chip_has_it(4, "it exists from trn3 on")

    @rule("src has partitions that are no multiple of 32", broken_by={"P": 48})
    def quadrants_are_whole(self) -> bool:
        return self.src.partitions % QUADRANT == 0

    @rule("the free axes of src do not hold 4 numbers for each element of dst", broken_by={"F": 12})
    def dst_packs_by_four(self) -> bool:
        return self.sizes["F*"] == 4 * self.sizes["G*"]

    scales_have_their_rows, scales_start_at_a_slot, scales_lie_by_their_data = _scale_rules(
        data_axis="P", scale="dst_scale", scale_axis="S"
    )

    def scaled(self) -> tuple[tuple[Layout, Layout], ...]:
        """The layouts of scales and of their data."""
        return ((self.dst_scale, self.dst),)

    def _check_operand(self, name: str, spec: Any, layout: Any) -> None:
        super()._check_operand(name, spec, tile_around(layout, self.dst) if name == "dst_scale" else layout)

    def _check_partitions(self, name: str, layout: Layout) -> None:
        if name != "dst_scale":
            super()._check_partitions(name, layout)

    def compute(self, dst: Any, src: Any, dst_scale: Any) -> None:
        wide = widen(src, self.src.dtype).reshape(-1, GROUP, self.sizes["F*"])
        magnitudes = wide.view(np.uint32) & np.uint32(0x7FFFFFFF)
        columns = magnitudes.max(axis=1)
        largest = np.maximum.reduce([columns[:, k::4] for k in range(4)])
        exponents = (largest >> np.uint32(23)).astype(np.int32)
        scales = np.maximum(exponents - largest_exponent(self.dst.dtype) + self.headroom, 0)
        # powers of two: the product is what the division gives
        inverse = scale_values().take(254 - scales).repeat(4, axis=1)
        numbers = (wide * inverse[:, None, :]).reshape(len(src), -1, 4)
        dst[...] = packed(numbers, self.dst.dtype).reshape(dst.shape)
        patterns = scales.astype(np.uint8).reshape(-1, ROWS, self.sizes["G*"])
        for part, rows in zip(_parts(dst_scale, self.dst_scale, self.dst), patterns, strict=True):
            part.view(np.uint8)[...] = rows.reshape(part.shape)

    def cost(self) -> list[Step]:
        # trn3 guide, MX data-type quantization: four numbers per partition and cycle
        return [engine_step(self.machine, "vector", "QUANTIZE_MX", self.sizes["G*"])]


class NcMatmulMx(Instruction):
    """Multiply microscaled tiles: dst[M, N] = sum over K and the 4 numbers of an element, times the scales.

    Each group of 8 partitions and 4 numbers, of either operand, is multiplied by its scale 2^(s - 127); 255
    is NaN. stationary and moving may be of different packed types. Products accumulate in float32;
    `accumulate` means what it means in nc_matmul. A tile of scales is [P, F], of which the first 4 rows of
    each quadrant are read, or [P / 8, F] where the data have 32 partitions.
    """

    engines = ("tensor",)
    accumulates = True
    dst = Out("M N*", ("psum",), ("float32", "bfloat16"))
    stationary = In("K M*", ("sbuf",), PACKED)
    moving = In("K N*", ("sbuf",), PACKED)
    stationary_scale = In("S M*", ("sbuf",), SCALE_DTYPES)
    moving_scale = In("R N*", ("sbuf",), SCALE_DTYPES)
    tile_position = Spelled(pair, "(row, column)", None)
    tile_size = Spelled(pair, "(rows, columns)", None)
    accumulate = Immediate(None, "None, True, False")
    limits = LIMITS
    smallest = {"K": QUADRANT, "S": 128, "R": 128}
    example = Example(
        {"stationary": [[0x38383838, 0x38383838]] * 32,
         "moving": [[0x38383838]] * 32,
         "stationary_scale": [[127, 128], [127, 127], [127, 127], [127, 127]],
         "moving_scale": [[127], [126], [127], [127]]},
        # hand: 0x38 is 1; groups of 32 ones count 1, 1/2, 1, 1 times; the first twice in the second column
        {"dst": [[112], [144]]},
        dtypes={"stationary": "float8_e4m3fn_x4", "moving": "float8_e4m3fn_x4", "stationary_scale": "uint8",
                "moving_scale": "uint8"},
    )  # fmt: skip

    chip_has_it = common_rules.chip_has_it(4, "it exists from trn3 on", key="NCC_IBIR530")

    @rule(
        "stationary and moving have partitions that are no multiple of 32", source=", tile size",
        broken_by={"K": 48}, hint="fill the data up with zeros",
    )  # fmt: skip
    def quadrants_are_whole(self) -> bool:
        return self.sizes["K"] % QUADRANT == 0

    @rule(
        "the free size of stationary is odd", source=", tile size", broken_by={"M": 15},
        hint="add a column of zeros",
    )  # fmt: skip
    def stationary_is_even(self) -> bool:
        return self.sizes["M"] % 2 == 0

    scales_have_their_rows, scales_start_at_a_slot, scales_lie_by_their_data = _scale_rules(
        data_axis="K", scale="moving_scale", scale_axis="R"
    )

    @rule(
        "one of tile_position and tile_size is given without the other", source=TILING,
        broken_by={"tile_size": (64, 128)},
    )  # fmt: skip
    def tiling_is_complete(self) -> bool:
        return bool(self.tile_position) == bool(self.tile_size)

    @rule(
        "tile_size is not (32, 128), (64, 128) or (128, 128); only rows are tiled",
        source=", tiling", broken_by={**_TILED, "tile_size": (64, 64)},
    )  # fmt: skip
    def only_rows_are_tiled(self) -> bool:
        return not self.tile_size or (self.tile_size[0] in (32, 64, 128) and self.tile_size[1] == 128)

    @rule(
        "tile_position is not (a multiple of the rows of tile_size below 128, 0)", source=", tiling",
        broken_by={**_TILED, "tile_position": (32, 0)},
    )  # fmt: skip
    def tile_position_is_aligned(self) -> bool:
        if not self.tile_position:
            return True
        row, column = self.tile_position
        return column == 0 and 0 <= row < 128 and row % self.tile_size[0] == 0

    @rule(
        "stationary has more partitions than tile_size has rows", source=", tiling",
        broken_by={**_TILED, "K": 96},
    )  # fmt: skip
    def stationary_fits_its_tile(self) -> bool:
        return not self.tile_size or self.sizes["K"] <= self.tile_size[0]

    def scaled(self) -> tuple[tuple[Layout, Layout], ...]:
        """The layouts of scales and of their data."""
        return ((self.stationary_scale, self.stationary), (self.moving_scale, self.moving))

    def _check_operand(self, name: str, spec: Any, layout: Any) -> None:
        if name.endswith("_scale"):
            layout = tile_around(layout, self.stationary)
        super()._check_operand(name, spec, layout)
        agree_on_axes(self, name)

    def _check_partitions(self, name: str, layout: Layout) -> None:
        if not name.endswith("_scale"):
            super()._check_partitions(name, layout)

    def _check_limits(self) -> None:
        vars(self)["limits"] = product_limits(self)
        super()._check_limits()

    resolve = classmethod(resolved_accumulate)

    @classmethod
    def reads_result(cls, values: tuple[Any, ...]) -> bool:
        return bool(values[0])

    def compute(
        self, dst: Any, stationary: Any, moving: Any, stationary_scale: Any, moving_scale: Any,
        accumulate: bool,
    ) -> None:  # fmt: skip
        (first, second) = self.scaled()
        left = _dequantised(stationary, stationary_scale, *first)
        write_product(self, dst, left, _dequantised(moving, moving_scale, *second), accumulate)

    def cost(self) -> list[Step]:
        # trn3 guide, Quad-MXFP8/MXFP4: four times the contraction in the time of a bf16 product
        load = weight_load(self, self.sizes["M"])
        return tiled(self, [load, multiplication(self, self.sizes["N"], "MATMUL")])


def _dequantised(words: np.ndarray, scale: np.ndarray, layout: Layout, data: Layout) -> np.ndarray:
    """Numbers of a packed tile times the scales of their groups: float32[4 K, F]."""
    numbers = unpacked(words.reshape(len(words), -1), data.dtype)
    columns = numbers.shape[2]
    rows = np.concatenate([p.reshape(ROWS, columns).view(np.uint8) for p in _parts(scale, layout, data)])
    numbers.reshape(-1, GROUP * 4, columns)[...] *= scale_values().take(rows, mode="clip")[:, None, :]
    return numbers.reshape(-1, columns)
