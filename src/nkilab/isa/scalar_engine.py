"""Instructions of ScalarE: activation functions with scale, bias and a running row sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tiles.convert import store, widen
from ..tiles.tile import Layout
from .accumulators import read_out
from .activations import ACTIVATIONS, activation_named, applied
from .attributes import NUMBER, Attr, Spelled
from .costs import engine_step
from .declaration_parts import Example, Step
from .declare import In, Instruction, OptionalOut, Out, ScalarOrVector, rule
from .elementwise import as_column, as_shape, optional_operator, widen_operand

# whose rules activation_reduce keeps, too
PAGE = "nki.isa.activation"
# any but tfloat32; Beta 1 takes fewer, which its spelling checks
BIAS_DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn",
               "int32", "int16", "int8", "uint32", "uint16", "uint8", "bool")  # fmt: skip
_OPS = ", ".join(n for n, f in ACTIVATIONS.items() if f.is_documented)


def _activated(form: Any, dst: Any, data: Any, bias: Any, scale: Any) -> Any:
    """The float32 results f(data * scale + bias), and a warning of inputs outside the documented range."""
    wide = widen(as_shape(data, dst.shape), form.data.dtype)
    if not (form.scale is NUMBER and scale == 1):
        wide = wide * widen_operand(as_column(scale, dst.ndim), form.scale)
    if form.bias is not None and not (form.bias is NUMBER and bias == 0):
        wide = wide + widen_operand(as_column(bias, dst.ndim), form.bias)
    return applied(form.op, wide)


def _row_sums(result: Any) -> Any:
    return result.reshape(result.shape[0], -1).sum(axis=1, dtype=np.float32)


def _steps(form: Any, reads_registers: bool) -> list[Step]:
    later = 0.0 if form.op.name == "copy" else form.machine["scalar_function_ns"]
    size, table = form.sizes["F*"], form.op.name
    steps = [engine_step(form.machine, "scalar", "ACTIVATE", size, table=table, later_ns=later)]
    if reads_registers:
        cycles = form.machine["accumulator_read_cycles"]
        steps.append(Step("scalar", "ACTIVATE", busy_ns=cycles / form.machine["scalar_clock_ghz"]))
    return steps


class Activation(Instruction):
    """Apply a function on ScalarE: dst = op(data * scale + bias), in float32, rounded once.

    `scale` is a number or float32 tile [P, 1]; `bias` a tile [P, 1], or a number from trn2 on. With
    `reduce_op` add, row sums of the results go to one register per partition, which `reduce_cmd` resets
    or adds to and `reduce_res` reads out. Inputs outside the documented range of a function give a warning.
    """

    engines = ("scalar",)
    registers = "scalar"
    dst = Out("P F*")
    op = Spelled(activation_named, _OPS)
    data = In("P F*")
    bias = ScalarOrVector(BIAS_DTYPES, default=None, optional=True)
    scale = ScalarOrVector(default=1.0)
    reduce_op = Spelled(optional_operator, "None, add", None)
    reduce_res = OptionalOut("P 1")
    reduce_cmd = Attr("idle", ("idle", "reset", "reduce", "reset_reduce"))
    example = Example(
        {"data": [[-3, 2], [1, 4]], "bias": [[1], [-5]], "scale": 2.0},
        {"dst": [[0, 5], [0, 3]]},
        {"op": "relu"},
    )

    @rule(
        "scale is a tile that is not float32", source=PAGE, broken_by={"scale.dtype": "bfloat16"},
        hint="cast it with tensor_copy", key="err_activation_scale_invalid_type",
    )  # fmt: skip
    def scale_is_float32(self) -> bool:
        return not isinstance(self.scale, Layout) or self.scale.dtype.name == "float32"

    @rule(
        "bias is a number; on trn1 it is a tile [P, 1] but for copy", source=PAGE, broken_by={"bias": 1.0},
        chips=("trn1",), hint="fill a tile [P, 1] with memset",
    )  # fmt: skip
    def bias_is_a_tile_on_trn1(self) -> bool:
        # a copy takes a number alone there: kernels on trn1, NKI 0.6
        return self.bias is not NUMBER or self.machine.generation >= 3 or self.op.name == "copy"

    @rule("reduce_op is not add", broken_by={"reduce_op": "maximum", "reduce_cmd": "reduce"})
    def reduction_adds(self) -> bool:
        return self.reduce_op is None or self.reduce_op.name == "add"

    @rule(
        "reduce_cmd reduces and reduce_op is missing",
        broken_by={"reduce_cmd": "reset_reduce"},
        hint="give reduce_op=nl.add",
    )
    def reduction_has_an_operator(self) -> bool:
        return self.reduce_op is not None or self.reduce_cmd in ("idle", "reset")

    def compute(self, dst: Any, data: Any, bias: Any, scale: Any, reduce_res: Any, registers: Any) -> str:
        result, warning = _activated(self, dst, data, bias, scale)
        store(dst, result, self.dst.dtype)
        active = registers[self.dst.start_partition :][: dst.shape[0]]
        if self.reduce_cmd in ("reset", "reset_reduce"):
            active[...] = 0
        if self.reduce_cmd in ("reduce", "reset_reduce"):
            active += _row_sums(result)
        read_out(reduce_res, active, self.reduce_res)
        return warning

    def cost(self) -> list[Step]:
        return _steps(self, self.reduce_res is not None)


class ActivationReduce(Instruction):
    """Apply a function and sum each row: dst = op(data * scale + bias); reduce_res = row sums of dst.

    The row sums replace what the registers held; they are read out by a second, short instruction.
    """

    engines = ("scalar",)
    registers = "scalar"
    dst = Out("P F*")
    op = Spelled(activation_named, _OPS)
    data = In("P F*")
    reduce_op = Spelled(optional_operator, "add")
    reduce_res = OptionalOut("P 1")
    bias = ScalarOrVector(BIAS_DTYPES, default=None, optional=True)
    scale = ScalarOrVector(default=1.0)
    example = Example(
        {"data": [[1, 2], [3, 4]]},
        {"dst": [[1, 4], [9, 16]], "reduce_res": [[5], [25]]},
        {"op": "square", "reduce_op": "add"},
    )

    scale_is_float32 = Activation.scale_is_float32

    bias_is_a_tile_on_trn1 = Activation.bias_is_a_tile_on_trn1

    @rule("reduce_op is not add", broken_by={"reduce_op": "maximum"})
    def reduction_adds(self) -> bool:
        return self.reduce_op is not None and self.reduce_op.name == "add"

    def compute(self, dst: Any, data: Any, reduce_res: Any, bias: Any, scale: Any, registers: Any) -> str:
        result, warning = _activated(self, dst, data, bias, scale)
        store(dst, result, self.dst.dtype)
        active = registers[self.dst.start_partition :][: dst.shape[0]]
        active[...] = _row_sums(result)
        read_out(reduce_res, active, self.reduce_res)
        return warning

    def cost(self) -> list[Step]:
        return _steps(self, True)
