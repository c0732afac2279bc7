"""Instructions of GpSimdE that pick elements by indices that a tile holds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..errors import RuleError
from ..tiles.convert import widen
from ..tiles.dtypes import DType, unwritten_value
from ..tiles.tile import SBUF
from . import common_rules
from .costs import engine_step
from .declare import Attr, Example, Fresh, In, Instruction, Out, Spelled, Step, rule

# hw: each of the eight GpSimd cores reaches 16 partitions (nki.isa.local_gather)
CORE_PARTITIONS = 16


def _whole(name: str, spelled: Any) -> int:
    if isinstance(spelled, bool) or not isinstance(spelled, int | np.integer):
        raise RuleError(f"{name} is {spelled!r}; it must be an integer")
    return int(spelled)


def picked(rows: np.ndarray, positions: np.ndarray, dtype: DType) -> np.ndarray:
    """Elements of `rows` [..., F] at `positions` [..., N]; outside of a row the value of unwritten memory.

    What the hardware reads there is not defined (nki.isa.local_gather).
    """
    size = rows.shape[-1]
    outside = positions >= size
    picks = np.take_along_axis(rows, np.minimum(positions, size - 1), axis=-1)
    if outside.any():
        picks[np.broadcast_to(outside, picks.shape)] = unwritten_value(dtype)
    return picks


class LocalGather(Instruction):
    """Gather along the free axis, with one list of indices for each group of 16 partitions.

    Each GpSimd core flattens its 16 rows of `index`, partitions first, and copies for each of the first
    `num_valid_indices` the `num_elem_per_idx` elements from that position on, in all of its 16 rows of
    `src_buffer`. Positions count elements. Beyond the end of a row it gives NaN or the smallest integer;
    the hardware gives anything there.
    """

    engines = ("gpsimd",)
    mixes = "P"
    dst = Out("P D*", ("sbuf",))
    src_buffer = In("P S*", ("sbuf",))
    index = In("P I*", ("sbuf",), ("uint16",))
    num_elem_per_idx = Attr(1, (1, 2, 4, 8, 16, 32))
    num_valid_indices = Spelled(
        lambda spelled: None if spelled is None else _whole("num_valid_indices", spelled),
        "None or an integer", None,
    )  # fmt: skip
    smallest = {"D": 256}
    example = Example(
        {
            "src_buffer": [[10 * p, 10 * p + 1, 10 * p + 2] for p in range(16)],
            "index": [[2], [0], [1], *[[0]] * 13],
        },
        {"dst": [[10 * p + 2, 10 * p, 10 * p + 1] for p in range(16)]},
        {"num_valid_indices": 3},
        dtypes={"index": "uint16"},
    )

    types_agree = common_rules.types_agree(
        "dst", "src_buffer", "dst and src_buffer differ in type; a gather does not cast",
        broken_by={"dst.dtype": "bfloat16"},
        hint="gather first and cast with tensor_copy",
    )  # fmt: skip

    @rule(
        "the number of partitions is no multiple of 16, which one GpSimd core reaches",
        source=", tile size",
        broken_by={"P": 20},
    )
    def cores_are_whole(self) -> bool:
        return self.sizes["P"] % CORE_PARTITIONS == 0

    @rule(
        "num_valid_indices is not between 1 and the elements of index in 16 partitions",
        source=", num_valid_indices",
        broken_by={"num_valid_indices": 257},
    )
    def valid_indices_exist(self) -> bool:
        return 1 <= self.indices <= CORE_PARTITIONS * self.sizes["I*"]

    @rule(
        "there are more than 4096 indices per GpSimd core", source=", tile size",
        broken_by={"I": 257, "D": 4112}, hint="split the indices over several calls",
    )  # fmt: skip
    def indices_fit_the_core(self) -> bool:
        return self.indices <= 4096

    @rule(
        "dst does not hold num_valid_indices * num_elem_per_idx elements per partition",
        source="release notes of NKI 0.6, known issues",
        broken_by={"num_elem_per_idx": 2},
    )
    def result_fits(self) -> bool:
        return self.sizes["D*"] == self.indices * self.num_elem_per_idx

    @cached_property
    def indices(self) -> int:
        """How many indices each core follows."""
        count_layout = self.num_valid_indices
        return CORE_PARTITIONS * self.sizes["I*"] if count_layout is None else count_layout

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """[P, *free axes of index, 16, num_elem_per_idx]; [P, indices, num_elem_per_idx] if not all count."""
        source, index = layouts["src_buffer"], layouts["index"]
        valid, each = attributes["num_valid_indices"], attributes["num_elem_per_idx"]
        if valid in (None, CORE_PARTITIONS * index.free_size):
            return Fresh((*index.shape, CORE_PARTITIONS, each), source.dtype, SBUF)
        return Fresh((index.shape[0], valid, each), source.dtype, SBUF)

    def compute(self, dst: Any, src_buffer: Any, index: Any) -> None:
        cores = dst.shape[0] // CORE_PARTITIONS
        flat = index.reshape(cores, CORE_PARTITIONS, -1).transpose(0, 2, 1).reshape(cores, -1)
        first = flat[:, : self.indices].astype(np.int64)
        positions = (first[:, :, None] + np.arange(self.num_elem_per_idx)).reshape(cores, 1, -1)
        rows = src_buffer.reshape(cores, CORE_PARTITIONS, -1)
        dst[...] = picked(rows, positions, self.src_buffer.dtype).reshape(dst.shape)

    def cost(self) -> list[Step]:
        # 2.26 costs: 150 + n / C with C = (28 + 4 e) / (4 e) / min(4 / bytes, e). As printed, longer runs get
        # slower, against the text beside it: both readings of C lie within a factor of 8
        each = self.num_elem_per_idx
        per_cycle = (28 + 4 * each) / (4 * each) / min(4 / self.src_buffer.itemsize, each)
        cycles = self.indices * each / per_cycle
        return [engine_step(self.machine, "gpsimd", "LOCAL_GATHER", cycles, widening=8)]


class NcNGather(Instruction):
    """Gather within each partition: dst[p, i] = data[p, indices[p, i]], free axes flattened.

    Beyond the end of a row it gives NaN or the smallest integer; the hardware gives anything there.
    """

    engines = ("gpsimd",)
    dst = Out("P I*", ("sbuf",))
    data = In("P F*", ("sbuf",))
    indices = In("P I*", ("sbuf",), ("uint32",))
    example = Example(
        {"data": [[5, 6, 7], [1, 2, 3]], "indices": [[2, 0, 2, 1], [0, 0, 1, 2]]},
        {"dst": [[7, 5, 7, 6], [1, 1, 2, 3]]},
        dtypes={"indices": "uint32"},
    )

    types_agree = common_rules.types_agree(
        "dst", "data", "dst and data differ in type; a gather does not cast",
        source=", data types", broken_by={"dst.dtype": "bfloat16"},
        hint="gather first and cast with tensor_copy",
    )  # fmt: skip

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """The shape of indices and the type of data."""
        return Fresh(layouts["indices"].shape, layouts["data"].dtype, SBUF)

    def compute(self, dst: Any, data: Any, indices: Any) -> None:
        rows = data.reshape(data.shape[0], -1)
        positions = indices.reshape(data.shape[0], -1).astype(np.int64)
        dst[...] = picked(rows, positions, self.data.dtype).reshape(dst.shape)

    def cost(self) -> list[Step]:
        # documented: a group of instructions per 512 elements; assumed: a group starts up anew and takes an
        # element a cycle
        size = self.sizes["I*"]
        starts = (-(-size // 512) - 1) * self.machine["gpsimd_overhead_cycles"]
        return [engine_step(self.machine, "gpsimd", "NC_N_GATHER", size + starts, widening=4)]


class Topk(Instruction):
    """Find the K largest of the first n elements of a snake over 16 partitions, ascending, with positions.

    Elements 0 to 15 of a snake stand in column 0 of its 16 partitions, 16 to 31 in column 1. Not documented,
    our choice: each of the 16 partitions receives the result of its snake, and of equal values the one that
    comes first is taken first.
    """

    engines = ("gpsimd",)
    mixes = "P"
    val_dst = Out("P K*", ("sbuf",), ("bfloat16",))
    idx_dst = Out("P K*", ("sbuf",), ("uint32",))
    src = In("P X*", ("sbuf",), ("bfloat16",))
    n = Spelled(partial(_whole, "n"), "an integer from 8 to 65535")
    smallest = {"K": 8, "n": 42}
    example = Example(
        {"src": [[5, 1], [9, 8], [0, 7], [2, 3], *[[-p, 100] for p in range(12)]]},
        {"val_dst": [[7, 8, 9]] * 16, "idx_dst": [[18, 17, 1]] * 16},
        {"n": 20},
        dtypes={"src": "bfloat16", "val_dst": "bfloat16", "idx_dst": "uint32"},
    )

    @rule("n is not between 8 and 65535", source=", constraints", broken_by={"n": 7})
    def count_is_in_range(self) -> bool:
        return 8 <= self.n < 65536

    @rule(
        "the number of partitions is no multiple of 16, over which a snake runs",
        source=", constraints",
        broken_by={"P": 20},
    )
    def snakes_are_whole(self) -> bool:
        return self.sizes["P"] % CORE_PARTITIONS == 0

    @rule("src holds fewer than n elements in 16 partitions", source=", constraints",
          broken_by={"n": 257})  # fmt: skip
    def source_holds_the_snake(self) -> bool:
        return self.sizes["X*"] * CORE_PARTITIONS >= self.n

    @rule("more values are asked for than the snake has", source=", constraints", broken_by={"K": 43})
    def no_more_than_there_are(self) -> bool:
        return self.sizes["K*"] <= self.n

    @rule(
        "32768 or more values are asked for",
        source=", constraints",
        broken_by={"K": 32768, "n": 40000, "X": 2500},
    )
    def result_is_short(self) -> bool:
        return self.sizes["K*"] < 32768

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """As idx_dst, in the type of src."""
        return Fresh(layouts["idx_dst"].shape, layouts["src"].dtype, SBUF)

    def compute(self, val_dst: Any, idx_dst: Any, src: Any) -> None:
        cores = src.shape[0] // CORE_PARTITIONS
        snakes = src.reshape(cores, CORE_PARTITIONS, -1).transpose(0, 2, 1).reshape(cores, -1)[:, : self.n]
        order = np.argsort(-widen(snakes, self.src.dtype), axis=1, kind="stable")[:, : self.sizes["K*"]]
        best = order[:, ::-1]
        values = np.take_along_axis(snakes, best, axis=1)
        val_dst[...] = np.repeat(values, CORE_PARTITIONS, axis=0).reshape(val_dst.shape)
        idx_dst[...] = np.repeat(best, CORE_PARTITIONS, axis=0).reshape(idx_dst.shape)

    def cost(self) -> list[Step]:
        # documented: 4 n + K cycles; the eight cores work at once
        cycles = 4 * self.n + self.sizes["K*"]
        return [Step("gpsimd", "TOPK", busy_ns=cycles / self.machine["gpsimd_clock_ghz"])]
