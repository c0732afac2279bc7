"""Instructions of VectorE that compute a tile and reduce its rows in the same pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tiles.convert import store, widen
from . import common_rules
from .accumulators import accumulated, read_out, read_step
from .attributes import NUMBER, Attr, Flag, Spelled
from .costs import engine_step
from .declaration_parts import Example, Step
from .declare import In, Instruction, OptionalOut, Out, ScalarOrVector, rule
from .elementwise import as_column, as_shape, widen_operand
from .operators import OPERATORS, apply, operator_named

REDUCTIONS = ("add", "multiply", "maximum", "minimum")
EXP_FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2")
EXP_INTEGERS = ("int8", "int16", "int32", "uint8", "uint16")


class TensorScalarReduce(Instruction):
    """Apply one operator with an operand per partition, and reduce each row: dst = data <op0> operand0.

    `operand0` is a number or a tile [P, 1], None or 0 for an operator of one input. The float32 results of a
    row enter VectorE's register of the partition, which `reduce_cmd` resets to the identity of reduce_op,
    loads from `reduce_init`, or leaves as it is; `reduce_res` reads it out, with its sign turned under
    `reduce_res_negate`.
    """

    engines = ("vector",)
    registers = "vector"
    dst = Out("P F*")
    data = In("P F*")
    op0 = Spelled(operator_named, ", ".join(OPERATORS))
    operand0 = ScalarOrVector(optional=True)
    reduce_op = Spelled(operator_named, ", ".join(REDUCTIONS))
    reduce_res = OptionalOut("P 1")
    reverse0 = Flag()
    reduce_cmd = Attr("reset_reduce", ("reset_reduce", "reduce", "load_reduce"))
    reduce_init = ScalarOrVector(("float32",), default=None, optional=True)
    reduce_res_negate = Flag()
    example = Example(
        {"data": [[1, 2, 3], [4, 5, 6]], "operand0": [[2], [10]]},
        {"dst": [[2, 4, 6], [40, 50, 60]], "reduce_res": [[12], [150]]},
        {"op0": "multiply", "reduce_op": "add"},
    )

    @rule("op0 is bitwise; it must be arithmetic", broken_by={"op0": "bitwise_or"})
    def operator_is_arithmetic(self) -> bool:
        return not self.op0.is_bitvec

    @rule("op0 takes two inputs and operand0 is missing", broken_by={"operand0": None})
    def operand_is_given(self) -> bool:
        return self.op0.is_unary or self.operand0 is not None

    @rule("op0 takes one input and operand0 is a tile; it must be None or 0", broken_by={"op0": "abs"})
    def operand_is_left_out(self) -> bool:
        return not self.op0.is_unary or self.operand0 is None or self.operand0 is NUMBER

    @rule("reduce_op is none of add, multiply, maximum, minimum", broken_by={"reduce_op": "logical_and"})
    def operator_reduces(self) -> bool:
        return self.reduce_op.name in REDUCTIONS

    @rule("reverse0 is True, which the instruction does not support yet", broken_by={"reverse0": True})
    def operands_stand_in_order(self) -> bool:
        return not self.reverse0

    registers_are_loaded_from_something = common_rules.registers_are_loaded_from("reduce_init")

    @rule(
        "reduce_init is given and reduce_cmd is not load_reduce, which alone reads it",
        broken_by={"reduce_init": 1.0},
    )
    def initial_value_is_read(self) -> bool:
        return self.reduce_cmd == "load_reduce" or self.reduce_init is None

    operator_exists = common_rules.operators_exist("op0")

    def compute(
        self, dst: Any, data: Any, operand0: Any, reduce_res: Any, reduce_init: Any, registers: Any
    ) -> str:
        wide = widen(as_shape(data, dst.shape), self.data.dtype)
        if self.operand0 is not None:
            operand0 = widen_operand(as_column(operand0, dst.ndim), self.operand0)
        result = apply(self.op0, wide, operand0)
        active, warning = accumulated(self, registers, self.reduce_op, result, reduce_init, self.reduce_init)
        store(dst, result, self.dst.dtype)
        read_out(reduce_res, -active if self.reduce_res_negate else active, self.reduce_res)
        return warning

    def cost(self) -> list[Step]:
        # 2.26 costs: max(MIN_II, N) + MIN_II, of a call that reads the registers out
        steps = [engine_step(self.machine, "vector", "TENSOR_SCALAR_REDUCE", self.sizes["F*"])]
        return steps if self.reduce_res is None else [*steps, read_step(self, "TENSOR_SCALAR_REDUCE")]


class Exponential(Instruction):
    """Take e to the power of each element less a maximum, and sum each row: dst = exp(src - max_value).

    `max_value` is a number or a float32 tile [P, 1]. Unless `reduce_cmd` is idle, the float32 results of a
    row are added to VectorE's register of the partition, which `reduce_cmd` first resets, loads from
    `reduce_init`, or leaves as it is, and which `reduce_res` reads out; idle leaves the registers unknown.
    """

    engines = ("vector",)
    registers = "vector"
    dst = Out("P F*", dtypes=(*EXP_FLOATS, "tfloat32", *EXP_INTEGERS))
    src = In("P F*", dtypes=(*EXP_FLOATS, *EXP_INTEGERS, "uint32"))
    max_value = ScalarOrVector(("float32",), default=0.0)
    reduce_res = OptionalOut("P 1", dtypes=(*EXP_FLOATS, "tfloat32"))
    reduce_cmd = Attr("idle", ("idle", "reset_reduce", "reduce", "load_reduce"))
    reduce_init = ScalarOrVector(("float32",), default=0.0)
    example = Example(
        {"src": [[3, 3, 3], [5, 5, 5]], "max_value": [[3], [5]], "reduce_init": [[10], [20]]},
        {"dst": [[1, 1, 1], [1, 1, 1]], "reduce_res": [[13], [23]]},
        {"reduce_cmd": "load_reduce"},
    )

    chip_has_it = common_rules.chip_has_it(4, "it exists from trn3 on")
    registers_are_known = common_rules.registers_are_known(', "Accumulator behavior"')

    @rule(
        "reduce_init is a tile and reduce_cmd is not load_reduce, which alone reads it",
        broken_by={"reduce_init.dtype": "float32"},
    )
    def initial_value_is_read(self) -> bool:
        return self.reduce_cmd == "load_reduce" or self.reduce_init is NUMBER

    def compute(
        self, dst: Any, src: Any, max_value: Any, reduce_res: Any, reduce_init: Any, registers: Any
    ) -> str:
        wide = widen(as_shape(src, dst.shape), self.src.dtype)
        lowered = wide - widen_operand(as_column(max_value, dst.ndim), self.max_value)
        result = np.exp(lowered.astype(np.float64)).astype(np.float32)
        add = OPERATORS["add"]
        active, warning = accumulated(self, registers, add, result, reduce_init, self.reduce_init)
        store(dst, result, self.dst.dtype)
        read_out(reduce_res, active, self.reduce_res)
        return warning

    def cost(self) -> list[Step]:
        # trn3 guide: four times the throughput of exp on ScalarE; no cycle table was published
        cycles = self.sizes["F*"] / 4
        return [engine_step(self.machine, "vector", "EXPONENTIAL", cycles, widening=2.0)]
