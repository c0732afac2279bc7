"""Instructions of GpSimdE that select by position or by value, or reduce over partitions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import RuleError
from ..tiles.convert import cast, store, widen
from ..tiles.tile import SBUF
from . import common_rules
from .attributes import Immediate, Spelled
from .costs import engine_step
from .declaration_parts import Example, Fresh, Step
from .declare import Argument, In, Instruction, Out, UsedElements, call_rule, rule
from .elementwise import as_shape, store_bits
from .gather import CORE_PARTITIONS
from .gpsimd import access_pattern, affine_values, is_int32
from .operators import Operator, operator_named
from .reduction import TensorReduce

COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
BOUNDS_DTYPES = ("float32", "int32")
# the mean over partitions, which only tensor_partition_reduce has
AVERAGE = Operator("average", np.add, reduces=True, engines=("gpsimd",))
PARTITION_OPERATORS = ("add", "average", "maximum", "bitwise_or", "bitwise_and")


class AffineSelect(Instruction):
    """Take an element where an affine function of its position compares true with 0, else a constant.

    The function is that of iota: offset + channel_multiplier * p + sum of step * i, in 32-bit integers.
    An element taken is copied as it is, or through float32 where the types differ.
    """

    engines = ("gpsimd",)
    dst = Out("P F*", ("sbuf",))
    pattern = Spelled(access_pattern, "a list of up to four [step, count]")
    channel_multiplier = Immediate(allowed="an int32")
    on_true_tile = In("P F*", ("sbuf",))
    on_false_value = Immediate(allowed="a float32 number")
    cmp_op = Spelled(operator_named, ", ".join(COMPARISONS), "equal")
    offset = Immediate(0, "an int32")
    smallest = {"pattern": [[1, 16]]}
    example = Example(
        {"on_true_tile": [[1, 2, 3], [4, 5, 6], [7, 8, 9]]},
        {"dst": [[1, -8, -8], [4, 5, -8], [7, 8, 9]]},
        {"pattern": [[-1, 3]], "channel_multiplier": 1, "on_false_value": -8.0, "cmp_op": "greater_equal"},
    )

    pattern_has_up_to_four_axes = common_rules.PATTERN_HAS_UP_TO_FOUR_AXES
    pattern_fills_dst = common_rules.pattern_fills_dst(", tile size")

    @rule("cmp_op is no comparison", source=", cmp_op", broken_by={"cmp_op": "add"})
    def operator_compares(self) -> bool:
        return self.cmp_op.name in COMPARISONS

    @call_rule("offset or channel_multiplier is not an int32", broken_by={"offset": 2**40})
    def places_are_int32(self, channel_multiplier: Any, on_false_value: Any, offset: Any) -> bool:
        return is_int32(offset) and is_int32(channel_multiplier)

    @call_rule("on_false_value is not a number", source=", data types", broken_by={"on_false_value": "none"})
    def constant_is_a_number(self, channel_multiplier: Any, on_false_value: Any, offset: Any) -> bool:
        return isinstance(on_false_value, int | float | np.generic)

    def used_elements(self, *arguments: Argument) -> UsedElements:
        """Those that are taken."""
        _, _, channel_multiplier, _, offset = arguments
        places = affine_values(self.pattern, self.dst.shape[0], offset, channel_multiplier)
        return {"on_true_tile": self.cmp_op.function(places, 0).reshape(self.dst.shape) != 0}

    def compute(
        self, dst: Any, on_true_tile: Any, channel_multiplier: Any, on_false_value: Any, offset: Any
    ) -> None:
        used = self.used_elements(dst, on_true_tile, channel_multiplier, on_false_value, offset)
        other = np.empty((), self.dst.dtype.storage)
        store(other, np.float32(on_false_value), self.dst.dtype)
        cast(dst, self.dst.dtype, as_shape(on_true_tile, dst.shape), self.on_true_tile.dtype)
        np.copyto(dst, other, where=~used["on_true_tile"])

    def cost(self) -> list[Step]:
        # 2.26 costs: 150 + N
        return [engine_step(self.machine, "gpsimd", "AFFINE_SELECT", self.sizes["F*"])]


def _partition_operator(spelled: Any) -> Operator:
    name = spelled if isinstance(spelled, str) else getattr(spelled, "__name__", getattr(spelled, "name", ""))
    op = AVERAGE if name == "average" else operator_named(spelled)
    if op.name not in PARTITION_OPERATORS:
        raise RuleError(
            f"op is {op.name}; it must be one of {', '.join(PARTITION_OPERATORS)}",
            source="nki.isa.tensor_partition_reduce",
        )
    return op


class TensorPartitionReduce(Instruction):
    """Reduce over the partitions, in float32, rounded once: dst[0, i] = op over p of data[p, i].

    Bitwise operators work on integers as they are. An average is the sum over the number of partitions.
    """

    engines = ("gpsimd",)
    dst = Out("1 F*", ("sbuf",))
    op = Spelled(_partition_operator, ", ".join(PARTITION_OPERATORS))
    data = In("P F*", ("sbuf",))
    example = Example({"data": [[1, 5], [2, -7], [3, 4]]}, {"dst": [[6, 2]]}, {"op": "add"})

    bitwise_needs_integers = TensorReduce.bitwise_needs_integers

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """data with one partition."""
        return Fresh((1, *layouts["data"].shape[1:]), layouts["data"].dtype, SBUF)

    def compute(self, dst: Any, data: Any) -> None:
        function: Any = self.op.function
        if self.op.is_bitvec:
            store_bits(dst, function.reduce(data, axis=0).reshape(dst.shape), self.dst.dtype)
            return
        total = function.reduce(widen(data, self.data.dtype), axis=0)
        if self.op is AVERAGE:
            total = total / np.float32(data.shape[0])
        store(dst, total.reshape(dst.shape), self.dst.dtype)

    def cost(self) -> list[Step]:
        # assumed: each core folds its 16 partitions, an element a cycle and partition; nothing is documented
        cycles = self.sizes["F*"] * min(self.sizes["P"], CORE_PARTITIONS)
        return [engine_step(self.machine, "gpsimd", "TENSOR_PARTITION_REDUCE", cycles, widening=4)]


class SequenceBounds(Instruction):
    """Give, for each position of a row of segment numbers, where its segment begins and ends.

    A segment is a run of equal numbers; its end is the position after its last. Number 0 is padding, with
    begin n, the length of the row, and end -1.
    """

    engines = ("gpsimd",)
    dst = Out("1 2 N", ("sbuf",), BOUNDS_DTYPES)
    segment_ids = In("1 N", ("sbuf",), BOUNDS_DTYPES)
    example = Example(
        {"segment_ids": [[0, 1, 1, 2, 0, 3]]}, {"dst": [[[6, 1, 1, 3, 6, 5], [-1, 3, 3, 4, -1, 6]]]}
    )

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """[1, 2, n], of the type of segment_ids."""
        ids = layouts["segment_ids"]
        return Fresh((ids.shape[0], 2, *ids.shape[1:]), ids.dtype, SBUF)

    def compute(self, dst: Any, segment_ids: Any) -> None:
        ids = segment_ids.reshape(-1)
        size = len(ids)
        changes = ids[1:] != ids[:-1]
        places = np.arange(size)
        begins = np.maximum.accumulate(np.where(np.append(True, changes), places, 0))
        ends = np.where(np.append(changes, True), places + 1, size)
        ends = np.minimum.accumulate(ends[::-1])[::-1]
        store(dst[0, 0], np.where(ids == 0, size, begins), self.dst.dtype)
        store(dst[0, 1], np.where(ids == 0, -1, ends), self.dst.dtype)

    def cost(self) -> list[Step]:
        # assumed: a pass forward and one back; nothing is documented
        return [engine_step(self.machine, "gpsimd", "SEQUENCE_BOUNDS", 2 * self.sizes["N"], widening=4)]


class NonzeroWithCount(Instruction):
    """Find where a row is not 0: dst[p] = positions, padding, and in the last element their number.

    Each GpSimd core reads and writes the first of its 16 partitions; the others of dst stay as they are.
    """

    engines = ("gpsimd",)
    dst = Out("P G*", ("sbuf",), ("int32",))
    src = In("P F*", ("sbuf",), ("float32", "int32"))
    index_offset = Immediate(0, "an int32")
    padding_val = Immediate(-1, "an int32")
    smallest = {"G": 17}
    example = Example(
        {"src": [[0, 4, -1, 0, 0, 2]]},
        {"dst": [[17, 18, 21, -1, -1, -1, 3]]},
        {"index_offset": 16},
        dtypes={"dst": "int32"},
    )

    chip_has_it = common_rules.chip_has_it(3, "trn1 has no nonzero_with_count", source=", constraints")

    @rule(
        "dst does not hold one element per partition more than src",
        source=", constraints",
        broken_by={"G": 16},
    )
    def count_fits(self) -> bool:
        return self.sizes["G*"] == self.sizes["F*"] + 1

    @call_rule(
        "index_offset or padding_val is not an int32", source=", constraints", broken_by={"padding_val": 0.5}
    )
    def values_are_int32(self, index_offset: Any, padding_val: Any) -> bool:
        return is_int32(index_offset) and is_int32(padding_val)

    @property
    def reads_dst(self) -> bool:
        """Always: most partitions stay as they are."""
        return True

    @cached_property
    def written_part(self) -> Any:
        """The first of every 16 partitions."""
        is_first = np.arange(self.sizes["P"]) % CORE_PARTITIONS == 0
        return is_first.reshape(-1, *(1,) * (len(self.dst.shape) - 1))

    def compute(self, dst: Any, src: Any, index_offset: Any, padding_val: Any) -> None:
        rows = src[::CORE_PARTITIONS]
        is_found = rows.reshape(len(rows), -1) != 0
        places = np.argsort(~is_found, axis=1, kind="stable") + int(index_offset)
        counts = is_found.sum(axis=1, keepdims=True)
        kept = np.where(np.arange(is_found.shape[1]) < counts, places, int(padding_val))
        result = np.hstack([kept, counts]).astype(np.int32)
        dst[::CORE_PARTITIONS] = result.reshape(-1, *dst.shape[1:])

    def cost(self) -> list[Step]:
        # assumed: an element a cycle; nothing is documented
        return [engine_step(self.machine, "gpsimd", "NONZERO_WITH_COUNT", self.sizes["F*"], widening=4)]
