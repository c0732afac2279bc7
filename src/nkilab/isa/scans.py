"""Instructions of VectorE in which each element depends on the one before it in its row."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tiles.convert import store, widen
from . import common_rules
from .accumulators import IDENTITY, prepared
from .costs import engine_step
from .declare import Attr, Example, Flag, In, Instruction, Out, ScalarOrVector, Spelled, Step, rule
from .elementwise import as_column, widen_operand
from .operators import OPERATORS, Operator, apply, operator_named

# All types but those of 32-bit integers, tfloat32 and bool.
CUMULATIVE_DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn",
                     "uint8", "uint16", "int8", "int16")  # fmt: skip


def _columns(array: Any, layout: Any) -> Any:
    """A tile as float32 [F, P]: what one step of a scan reads lies together."""
    return np.ascontiguousarray(widen(array, layout.dtype).reshape(array.shape[0], -1).T)


class TensorTensorScan(Instruction):
    """Run a recurrence along each row: r = (data0 <op0> r) <op1> data1, dst holds every r.

    The first r on the right is `initial`, a number or a tile [P, 1]. Free axes count as one. `reverse0` puts
    r on the left of op0, `reverse1` data1 on the left of op1. Arithmetic is float32, rounded on the write.
    """

    engines = ("vector",)
    mixes = "F"
    dst = Out("P F*")
    data0 = In("P F*")
    data1 = In("P F*")
    initial = ScalarOrVector()
    op0 = Spelled(operator_named, ", ".join(OPERATORS))
    op1 = Spelled(operator_named, ", ".join(OPERATORS))
    reverse0 = Flag()
    reverse1 = Flag()
    example = Example(
        {"data0": [[2, 3, 4]], "data1": [[1, 1, 5]], "initial": 10},
        {"dst": [[21, 64, 261]]},
        {"op0": "multiply", "op1": "add"},
    )

    one_input_in_sbuf = common_rules.one_input_in_sbuf("data0", "data1")

    @rule(
        "an operator is bitwise or takes one input; both must be arithmetic and take two",
        broken_by={"op0": "bitwise_and"},
    )
    def operators_are_binary(self) -> bool:
        return not any(op.is_bitvec or op.is_unary for op in (self.op0, self.op1))

    operators_exist = common_rules.operators_exist("op0", "op1", broken="op1")

    def compute(self, dst: Any, data0: Any, data1: Any, initial: Any) -> None:
        first, second = _columns(data0, self.data0), _columns(data1, self.data1)
        state = np.reshape(widen_operand(initial, self.initial), -1)
        result = np.empty_like(first)
        for k, (x, y) in enumerate(zip(first, second, strict=True)):
            state = apply(self.op1, apply(self.op0, x, state, self.reverse0), y, self.reverse1)
            result[k] = state
        store(dst, np.ascontiguousarray(result.T).reshape(dst.shape), self.dst.dtype)

    def cost(self) -> list[Step]:
        # 2.26 costs: 2N
        return [engine_step(self.machine, "vector", "TENSOR_TENSOR_SCAN", 2 * self.sizes["F*"])]


class TensorScalarCumulative(Instruction):
    """Accumulate along each row: r = (src <op0> imm0) <op1> r, dst holds every r.

    r is VectorE's register of the partition: `reduce_cmd` resets it to the identity of op1 (0, 1, -inf, inf),
    loads it from `imm1`, or continues from what it holds. `imm0` and `imm1` are numbers or float32 tiles
    [P, 1]. Free axes count as one. Arithmetic is float32, rounded on the write.
    """

    engines = ("vector",)
    mixes = "F"
    registers = "vector"
    dst = Out("P F*", dtypes=CUMULATIVE_DTYPES)
    src = In("P F*", dtypes=CUMULATIVE_DTYPES)
    op0 = Spelled(operator_named, ", ".join(OPERATORS))
    op1 = Spelled(operator_named, ", ".join(IDENTITY))
    imm0 = ScalarOrVector(("float32",))
    imm1 = ScalarOrVector(("float32",), default=None, optional=True)
    reduce_cmd = Attr("reset_reduce", ("reset_reduce", "reduce", "load_reduce"))
    example = Example(
        {"src": [[1, 2, 3], [4, 5, 6]], "imm0": [[10], [20]]},
        {"dst": [[11, 23, 36], [24, 49, 75]]},
        {"op0": "add", "op1": "add"},
    )

    @rule("op0 is bitwise; it must be arithmetic", broken_by={"op0": "bitwise_or"})
    def scalar_operator_is_arithmetic(self) -> bool:
        return not self.op0.is_bitvec

    @rule("op1 is none of add, subtract, multiply, maximum, minimum", broken_by={"op1": "greater"})
    def operator_accumulates(self) -> bool:
        return self.op1.name in IDENTITY

    registers_are_loaded_from_something = common_rules.registers_are_loaded_from("imm1")
    operator_exists = common_rules.operators_exist("op0")

    def compute(self, dst: Any, src: Any, imm0: Any, imm1: Any, registers: Any) -> str:
        column = widen_operand(as_column(imm0, 2), self.imm0)
        rows = widen(src, self.src.dtype).reshape(src.shape[0], -1)
        scaled = apply(self.op0, rows, column)
        active, warning = prepared(self, registers, self.op1, imm1, self.imm1)
        result = _running(self.op1, active, scaled)
        active[...] = result[:, -1]
        store(dst, result.reshape(dst.shape), self.dst.dtype)
        return warning

    def cost(self) -> list[Step]:
        # not published; one element a cycle as in tensor_scalar on trn1
        return [
            engine_step(self.machine, "vector", "TENSOR_SCALAR_CUMULATIVE", self.sizes["F*"], widening=2.0)
        ]


def _running(op: Operator, first: Any, rows: Any) -> Any:
    """Every state r = x <op> r over float32 rows [P, F], from r = `first`, [P]."""
    if op.name != "subtract":
        # the order of two operands makes no difference
        function: Any = op.function
        return function.accumulate(np.concatenate([first[:, None], rows], axis=1), axis=1)[:, 1:]
    result, state = np.empty_like(rows), first
    for k in range(rows.shape[1]):
        state = rows[:, k] - state
        result[:, k] = state
    return result
