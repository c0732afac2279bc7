"""Instructions of VectorE that choose per element between two sources."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import RuleError
from ..tiles.convert import store, widen
from ..tiles.tile import PSUM, Layout
from . import common_rules
from .accumulators import SOURCE as ACCUMULATORS
from .accumulators import accumulated, read_out
from .attributes import NUMBER, Attr, Flag, Immediate, Spelled
from .costs import engine_step
from .declaration_parts import Example, Step
from .declare import (
    ANY_DTYPE,
    FLOATS,
    Argument,
    In,
    Instruction,
    OptionalOut,
    Out,
    ScalarOrVector,
    UsedElements,
    call_rule,
    rule,
)
from .elementwise import as_column, as_shape, memories, store_number, widen_operand
from .operators import OPERATORS, operator_named

FP32_MIN = float(np.finfo(np.float32).min)
COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
# Beyond 2^24 float32 has no longer every integer.
INDEX_MAX = 2**24
_NO_SELECT = ("tfloat32", "int32", "uint32")


def _is_chosen(predicate: Any, shape: tuple[int, ...], reverse: bool) -> Any:
    """Where a predicate, of any rank, selects the first source."""
    chosen = as_shape(predicate, shape) != 0
    return ~chosen if reverse else chosen


def _two_tile_cycles(form: Any, tile: Any) -> float:
    """Cycles of a call that reads a tile and a predicate: N if exactly one lies in PSUM, else 2N.

    Source: 2.26 costs, tensor_copy_predicated.
    """
    is_fast = memories(tile, form.predicate).count(PSUM) == 1
    return float(form.sizes["F*"]) * (1 if is_fast else 2)


class TensorCopyPredicated(Instruction):
    """Copy src to dst where predicate is not zero; elsewhere dst stays as it is.

    `src` is a tile of the type of dst, or a number. `reverse_pred` copies where predicate is zero instead.
    Ranks may differ as long as partitions and elements per partition agree.
    """

    engines = ("vector",)
    decided_by = "predicate"
    dst = Out("P F*")
    src = In("P F*", number=True)
    # bool: what the public example passes, a tile loaded from a comparison
    predicate = In("P F*", dtypes=("uint8", "uint16", "uint32", "bool"))
    reverse_pred = Flag()
    example = Example(
        {"dst": [[9, 9, 9]], "src": [[1, 2, 3]], "predicate": [[1, 0, 7]]},
        {"dst": [[1, 9, 3]]},
        dtypes={"predicate": "uint8"},
    )

    one_input_in_sbuf = common_rules.one_input_in_sbuf("src", "predicate")

    @rule(
        "src and dst have different types; they must have the same",
        broken_by={"src.dtype": "bfloat16"},
        hint="cast src with tensor_copy first",
    )
    def types_agree(self) -> bool:
        return self.src is NUMBER or self.src.dtype is self.dst.dtype

    @property
    def reads_dst(self) -> bool:
        return True

    def written_where(self, dst: Any, src: Any, predicate: Any) -> Any:
        return _is_chosen(predicate, dst.shape, self.reverse_pred)

    def compute(self, dst: Any, src: Any, predicate: Any) -> None:
        chosen = _is_chosen(predicate, dst.shape, self.reverse_pred)
        if self.src is NUMBER:
            number = np.empty((1,), dst.dtype)
            store_number(number, src, self.dst.dtype)
            src = number
        np.copyto(dst, as_shape(src, dst.shape) if isinstance(self.src, Layout) else src, where=chosen)

    def cost(self) -> list[Step]:
        # trn2 reads the two tiles of tensor_tensor at twice the documented rate: not published for this one
        widening = 1.0 if self.machine.generation == 2 else 2.0
        cycles = _two_tile_cycles(self, self.src)
        return [engine_step(self.machine, "vector", "COPY_PREDICATED", cycles, widening=widening)]


class SelectReduce(Instruction):
    """Select per element, dst = on_true where predicate is not zero, else on_false; and keep the row maximum.

    `on_false` is a number or a tile [P, 1]; `reverse_pred` swaps the two. Unless `reduce_cmd` is idle, the
    maximum of each row of float32 results enters VectorE's registers, which `reduce_res` reads out; idle
    leaves the registers unknown.
    """

    engines = ("vector",)
    registers = "vector"
    dst = Out("P F*")
    # bool: what the public example passes
    predicate = In("P F*", dtypes=("uint8", "int8", "uint16", "int16", "bool"))
    on_true = In("P F*", dtypes=tuple(d for d in ANY_DTYPE if d not in _NO_SELECT))
    on_false = ScalarOrVector()
    reduce_res = OptionalOut("P 1", dtypes=FLOATS)
    reduce_cmd = Attr("idle", ("idle", "reset", "reduce", "reset_reduce"))
    reduce_op = Spelled(operator_named, ", ".join(OPERATORS), "maximum")
    reverse_pred = Flag()
    example = Example(
        {"predicate": [[1, 0], [0, 0]], "on_true": [[5, 6], [7, 8]], "on_false": [[-1], [-2]]},
        {"dst": [[5, -1], [-2, -2]], "reduce_res": [[5], [-2]]},
        {"reduce_cmd": "reset_reduce"},
        dtypes={"predicate": "uint8"},
    )

    one_input_in_sbuf = common_rules.one_input_in_sbuf("on_true", "predicate", ", memory constraints")
    reduction_is_maximum = common_rules.REDUCTION_IS_MAXIMUM
    registers_are_known = common_rules.registers_are_known(ACCUMULATORS)

    def used_elements(self, *arguments: Argument) -> UsedElements:
        """Of each source where the predicate selects it; of a column the partitions in which it does."""
        chosen = _is_chosen(arguments[1], self.dst.shape, self.reverse_pred)
        return {"on_true": chosen, "on_false": ~chosen.reshape(len(chosen), -1).all(axis=1)}

    def compute(
        self, dst: Any, predicate: Any, on_true: Any, on_false: Any, reduce_res: Any, registers: Any
    ) -> str:
        chosen = _is_chosen(predicate, dst.shape, self.reverse_pred)
        other = widen_operand(as_column(on_false, dst.ndim), self.on_false)
        result = np.where(chosen, widen(as_shape(on_true, dst.shape), self.on_true.dtype), other)
        active, warning = accumulated(self, registers, self.reduce_op, result)
        store(dst, result, self.dst.dtype)
        read_out(reduce_res, active, self.reduce_res)
        return warning

    def cost(self) -> list[Step]:
        # not published: taken from tensor_copy_predicated, which reads the same operands
        cycles = _two_tile_cycles(self, self.on_true)
        return [engine_step(self.machine, "vector", "SELECT_REDUCE", cycles, widening=2.0)]


def _float32(spelled: Any) -> float:
    if isinstance(spelled, int | float | np.generic):
        return float(np.float32(spelled))
    raise RuleError(f"on_false_value is {spelled!r}; it must be a number")


class RangeSelect(Instruction):
    """Keep elements whose index lies in a range per partition, FP32_MIN elsewhere; and keep the row maximum.

    The index is `range_start` plus the position in the row. dst = on_true_tile where both index <comp_op0>
    bound0 and index <comp_op1> bound1 hold, compared in float32. FP32_MIN becomes -inf in 16-bit and 8-bit
    floats. Unless `reduce_cmd` is idle, the maximum of each row of float32 results enters VectorE's
    registers, which `reduce_res` reads out; idle leaves the registers unknown.
    """

    engines = ("vector",)
    registers = "vector"
    dst = Out("P F*")
    on_true_tile = In("P F*", dtypes=FLOATS)
    comp_op0 = Spelled(operator_named, ", ".join(COMPARISONS))
    comp_op1 = Spelled(operator_named, ", ".join(COMPARISONS))
    bound0 = In("P 1", dtypes=("float32",))
    bound1 = In("P 1", dtypes=("float32",))
    reduce_cmd = Attr("reset_reduce", ("idle", "reset", "reduce", "reset_reduce"))
    reduce_res = OptionalOut("P 1")
    reduce_op = Spelled(operator_named, ", ".join(OPERATORS), "maximum")
    range_start = Immediate(0, "a whole number")
    on_false_value = Spelled(_float32, "FP32_MIN", FP32_MIN)
    example = Example(
        {"on_true_tile": [[1, 2, 3, 4], [5, 6, 7, 8]], "bound0": [[11], [10]], "bound1": [[13], [11]]},
        {"dst": [[FP32_MIN, 2, 3, FP32_MIN], [5, FP32_MIN, FP32_MIN, FP32_MIN]], "reduce_res": [[3], [5]]},
        {"comp_op0": "greater_equal", "comp_op1": "less", "range_start": 10},
    )

    chip_has_it = common_rules.chip_has_it(3, "it exists from trn2 on")

    @rule(
        "comp_op0 or comp_op1 is none of equal, less, less_equal, greater, greater_equal",
        broken_by={"comp_op0": "not_equal"},
    )
    def operators_compare(self) -> bool:
        return self.comp_op0.name in COMPARISONS and self.comp_op1.name in COMPARISONS

    @rule(
        "on_false_value is not FP32_MIN, -3.4028235e38, which is all that the hardware writes",
        broken_by={"on_false_value": 0.0},
        hint="leave on_false_value out",
    )
    def filling_is_the_lowest(self) -> bool:
        return self.on_false_value == FP32_MIN

    reduction_is_maximum = common_rules.REDUCTION_IS_MAXIMUM
    registers_are_known = common_rules.registers_are_known(ACCUMULATORS, reduce_cmd="idle")

    @call_rule("range_start is not a whole number", broken_by={"range_start": 0.5})
    def start_is_whole(self, range_start: Any) -> bool:
        return isinstance(range_start, int | float | np.generic) and float(range_start).is_integer()

    @call_rule(
        "an index leaves the range of -2^24 to 2^24, in which float32 has every integer",
        broken_by={"range_start": INDEX_MAX},
    )
    def indices_are_exact(self, range_start: Any) -> bool:
        return range_start >= -INDEX_MAX and range_start + self.sizes["F*"] <= INDEX_MAX

    def used_elements(self, *arguments: Argument) -> UsedElements:
        """Those in the range."""
        _, _, bound0, bound1, _, range_start = arguments
        index = np.arange(self.sizes["F*"], dtype=np.float32) + np.float32(range_start)
        first = self.comp_op0.function(index, bound0.reshape(-1, 1)) != 0
        second = self.comp_op1.function(index, bound1.reshape(-1, 1)) != 0
        return {"on_true_tile": first & second}

    def compute(
        self, dst: Any, on_true_tile: Any, bound0: Any, bound1: Any, reduce_res: Any, range_start: Any,
        registers: Any,
    ) -> str:  # fmt: skip
        used = self.used_elements(dst, on_true_tile, bound0, bound1, reduce_res, range_start)
        kept = as_shape(used["on_true_tile"], dst.shape)
        data = widen(as_shape(on_true_tile, dst.shape), self.on_true_tile.dtype)
        result = np.where(kept, data, np.float32(FP32_MIN))
        active, warning = accumulated(self, registers, self.reduce_op, result)
        store(dst, result, self.dst.dtype)
        read_out(reduce_res, active, self.reduce_res)
        return warning

    def cost(self) -> list[Step]:
        # 2.26 costs: N, whether or not the registers are read out
        return [engine_step(self.machine, "vector", "RANGE_SELECT", self.sizes["F*"])]
