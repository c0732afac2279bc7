"""The activation of trn3's ScalarE, with two arithmetic stages of choice before the function."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import RuleError
from ..tiles.convert import store, widen
from ..tiles.tile import Layout
from . import common_rules
from .accumulators import read_out
from .activations import ACTIVATIONS, Activation, activation_named, applied
from .attributes import Attr, Flag, Spelled
from .costs import engine_step
from .declaration_parts import Example, Step
from .declare import In, Instruction, OptionalOut, Out, ScalarOrVector, rule
from .elementwise import as_column, as_shape, optional_operator, widen_operand
from .operators import Operator, apply, operator_named

# multiplies what is below 0 by relu_param, which only activate2 has
PRELU = Activation("prelu", lambda x: x)
REDUCTIONS = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf, "abs_max": 0.0, "abs_min": np.inf}
STAGES = {("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"), ("add", "bypass"),
          ("subtract", "bypass"), ("bypass", "bypass")}  # fmt: skip
_OPS = ", ".join([*(n for n, f in ACTIVATIONS.items() if f.is_documented), "prelu"])


def _name(spelled: Any) -> str:
    return spelled if isinstance(spelled, str) else str(getattr(spelled, "__name__", ""))


def _function(spelled: Any) -> Activation:
    return PRELU if spelled is PRELU or _name(spelled) == "prelu" else activation_named(spelled)


def _stage(spelled: Any) -> str:
    if spelled is None or _name(spelled) == "bypass":
        return "bypass"
    name = operator_named(spelled).name
    if name not in ("multiply", "add", "subtract"):
        raise RuleError(
            f"a stage is {name}; it must be one of multiply, add, subtract, bypass",
            source="nki.isa.activate2",
        )
    return name


def _folded(op: Operator, rows: np.ndarray) -> np.ndarray:
    """Each row reduced; of equal magnitudes the last one counts, as the operators of two inputs have it."""
    if op.name in ("abs_max", "abs_min"):
        backwards = rows[:, ::-1]
        sizes = np.abs(backwards)
        at = sizes.argmax(axis=1) if op.name == "abs_max" else sizes.argmin(axis=1)
        return backwards[np.arange(len(rows)), at]
    function: Any = op.function
    return function.reduce(rows, axis=1, dtype=np.float32)


class Activate2(Instruction):
    """Apply two arithmetic stages and a function on ScalarE: dst = op((data op0 imm0) op1 imm1).

    Immediates are numbers or tiles [P, 1]; `reverse0` and `reverse1` put them on the left. `relu_param` is
    what prelu multiplies negative numbers by. With `reduce_op` the results of a row are also reduced into the
    register of its partition, which activation shares; `reduce_cmd` resets it or adds to it and `reduce_res`
    reads it out. All of it is float32, rounded once.
    """

    engines = ("scalar",)
    registers = "scalar"
    dst = Out("P F*")
    op = Spelled(_function, _OPS)
    data = In("P F*")
    imm0 = ScalarOrVector()
    imm1 = ScalarOrVector()
    op0 = Spelled(_stage, "multiply, add, subtract, bypass")
    op1 = Spelled(_stage, "add, subtract, bypass")
    relu_param = ScalarOrVector(default=0.0)
    reverse0 = Flag()
    reverse1 = Flag()
    reduce_op = Spelled(optional_operator, f"None, {', '.join(REDUCTIONS)}", None)
    reduce_res = OptionalOut("P 1")
    reduce_cmd = Attr("idle", ("idle", "reset", "reduce", "reset_reduce"))
    example = Example(
        {"data": [[1, 2], [3, -4]], "imm0": [[2], [3]], "imm1": 10},
        {"dst": [[8, 6], [1, 22]], "reduce_res": [[14], [23]]},
        {"op": "relu", "op0": "multiply", "op1": "subtract", "reverse1": True, "reduce_op": "add",
         "reduce_cmd": "reset_reduce"},
    )  # fmt: skip

    chip_has_it = common_rules.chip_has_it(
        4, "activate2 exists from trn3 on", hint="use activation, or tensor_scalar before it"
    )

    @rule(
        "op0 and op1 are not multiply with add, subtract or bypass, nor add, subtract or bypass with bypass",
        broken_by={"op0": "add", "op1": "add"},
    )
    def stages_go_together(self) -> bool:
        return (self.op0, self.op1) in STAGES

    @rule(
        "reverse0 or reverse1 is True and its stage is bypass",
        source=", constraints",
        broken_by={"op0": "multiply", "op1": "bypass", "reverse1": True},
    )
    def stages_to_reverse_exist(self) -> bool:
        pairs = ((self.reverse0, self.op0), (self.reverse1, self.op1))
        return not any(is_reversed and stage == "bypass" for is_reversed, stage in pairs)

    @rule(
        "imm0 and imm1 are tiles of two types", source=", constraints", broken_by={"imm0.dtype": "bfloat16"}
    )
    def immediates_agree(self) -> bool:
        if not (isinstance(self.imm0, Layout) and isinstance(self.imm1, Layout)):
            return True
        return self.imm0.dtype is self.imm1.dtype

    @rule(
        "reduce_op is not add, maximum, minimum, abs_max or abs_min",
        source=", reduce_op",
        broken_by={"reduce_op": "multiply"},
    )
    def operator_reduces_here(self) -> bool:
        return self.reduce_op is None or self.reduce_op.name in REDUCTIONS

    @rule(
        "reduce_cmd reduces and reduce_op is missing", source=", reduce_cmd",
        broken_by={"reduce_cmd": "reset_reduce", "reduce_op": None}, hint="give reduce_op=nl.add",
    )  # fmt: skip
    def reduction_has_an_operator(self) -> bool:
        return self.reduce_op is not None or self.reduce_cmd in ("idle", "reset")

    def compute(
        self, dst: Any, data: Any, imm0: Any, imm1: Any, relu_param: Any, reduce_res: Any, registers: Any
    ) -> str:
        wide = widen(as_shape(data, dst.shape), self.data.dtype)
        stages = ((self.op0, imm0, self.imm0, self.reverse0), (self.op1, imm1, self.imm1, self.reverse1))
        for name, immediate, layout, is_reversed in stages:
            if name != "bypass":
                column = widen_operand(as_column(immediate, dst.ndim), layout)
                wide = apply(operator_named(name), wide, column, is_reversed)
        result, warning = wide, ""
        if self.op is PRELU:
            slope = widen_operand(as_column(relu_param, dst.ndim), self.relu_param)
            result = np.where(wide < 0, wide * slope, wide)
        else:
            result, warning = applied(self.op, wide)
        store(dst, result, self.dst.dtype)
        active = registers[self.dst.start_partition :][: dst.shape[0]]
        if self.reduce_cmd in ("reset", "reset_reduce"):
            active[...] = 0.0 if self.reduce_op is None else REDUCTIONS[self.reduce_op.name]
        if self.reduce_cmd in ("reduce", "reset_reduce"):
            rows = _folded(self.reduce_op, result.reshape(len(active), -1))
            active[...] = self.reduce_op.function(active, rows)
        read_out(reduce_res, active, self.reduce_res)
        return warning

    def cost(self) -> list[Step]:
        # assumed: as activation, an element a cycle; reading the registers out is a second instruction
        machine = self.machine
        steps = [
            engine_step(machine, "scalar", "ACTIVATE2", self.sizes["F*"], table=self.op.name, widening=1.5)
        ]
        if self.reduce_res is not None:
            cycles = machine["accumulator_read_cycles"]
            steps.append(
                Step("scalar", "ACTIVATE2", busy_ns=cycles / machine["scalar_clock_ghz"], widening=1.5)
            )
        return steps
