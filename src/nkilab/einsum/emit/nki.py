"""Loop trees as `nki` kernels: destinations first, loops of Python."""

from __future__ import annotations

from ...errors import UnsupportedError
from ..tree.expr import ZERO, Expr, expr
from ..tree.nodes import (
    HBM,
    Activate,
    Buffer,
    Combine,
    Copy,
    Cut,
    Fill,
    Gather,
    Invert,
    Load,
    Loop,
    MatMul,
    Move,
    Reduce,
    Scale,
    ScaleCombine,
    Scan,
    Select,
    Statement,
    Store,
    Transpose,
    View,
)
from .text import Printer, number, strides

RELATIONS = {
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "==": "equal",
    "!=": "not_equal",
}


class NkiPrinter(Printer):
    """The spelling `nki`, 0.3 and later."""

    imports = ("import nki", "import nki.isa as nisa", "import nki.language as nl")

    def range(self, loop: Loop) -> str:
        return f"range({expr(loop.trips)})"

    def made(self, buffer: Buffer) -> str:
        memory = {"output": "shared_hbm", "scratch": "private_hbm"}.get(buffer.role, buffer.memory)
        return f"nl.ndarray({self.shape(buffer.shape or (1,))}, dtype=nl.{buffer.dtype}, buffer=nl.{memory})"

    def put_call(self, name: str, **given: str) -> None:
        self.call(f"nisa.{name}", self.keywords(**given))

    def hbm(self, view: View) -> str:
        """A part of an HBM tensor: slices, or an access pattern where it is turned or repeated."""
        if not view.is_turned and view.repeat is None and view.folded is None and not view.order:
            return self.view(view)
        steps = strides(view.buffer)
        steps = [ZERO] * (len(view.index) - len(steps)) + steps
        offset = ZERO
        pattern = []
        for axis, index in enumerate(view.index):
            if isinstance(index, Cut):
                offset += index.start * steps[axis]
                pattern.append(f"[{steps[axis] * index.step}, {index.count}]")
            else:
                offset += index.at * steps[axis]
        if view.folded is not None:
            pattern = self.in_blocks(view, steps)
        if view.order:
            pattern = [pattern[n] for n in view.order]
        if view.is_turned:
            pattern.reverse()
        if view.repeat is not None:
            pattern = [f"[0, {view.repeat}]", *(pattern or ["[1, 1]"])]
        return f"{view.buffer.name}.ap([{', '.join(pattern)}], offset={offset})"

    def in_blocks(self, view: View, steps: list[Expr]) -> list[str]:
        """The pattern of a view one of whose axes is seen as blocks of 128: partitions first, then blocks."""
        front: list[str] = []
        pattern: list[str] = []
        for axis, index in enumerate(view.index):
            if isinstance(index, Cut) and axis == view.folded:
                front = [f"[{steps[axis]}, 128]", f"[{steps[axis] * 128}, {index.count // 128}]"]
            elif isinstance(index, Cut):
                pattern.append(f"[{steps[axis] * index.step}, {index.count}]")
        return [*front, *pattern]

    def any(self, view: View) -> str:
        return self.hbm(view) if view.buffer.memory == HBM else self.view(view)

    def statement(self, statement: Statement) -> None:
        match statement:
            case Load(dst, src) | Store(dst, src) | Move(dst, src):
                self.put_call("dma_copy", dst=self.any(dst), src=self.any(src))
            case Gather():
                self.gather(statement)
            case Copy(dst, src, engine):
                asked = {"engine": f"nisa.engine.{engine}"} if engine else {}
                self.put_call("tensor_copy", dst=self.view(dst), src=self.view(src), **asked)
            case Fill(dst, value):
                self.put_call("memset", dst=self.view(dst), value=number(value))
            case MatMul(dst, stationary, moving, over):
                adds = " or ".join(f"{variable} > 0" for variable in over) or "False"
                self.put_call(
                    "nc_matmul",
                    dst=self.view(dst),
                    stationary=self.view(stationary),
                    moving=self.view(moving),
                    accumulate=adds,
                )
            case Transpose(dst, src):
                self.put_call("nc_transpose", dst=self.view(dst), data=self.view(src))
            case Combine(dst, left, op, right, engine):
                self.put_call(
                    "tensor_tensor",
                    dst=self.view(dst),
                    data1=self.view(left),
                    data2=self.view(right),
                    op=f"nl.{op}",
                    **({"engine": f"nisa.engine.{engine}"} if engine else {}),
                )
            case _:
                self.single(statement)

    def single(self, statement: Statement) -> None:
        """Instructions of one tile and one operator."""
        match statement:
            case Invert(dst, src):
                self.put_call("reciprocal", dst=self.view(dst), data=self.view(src))
            case Reduce(dst, op, src):
                self.put_call(
                    "tensor_reduce",
                    dst=self.view(dst),
                    op=f"nl.{op}",
                    data=self.view(src),
                    axis=str(len(src.cuts) - 1),
                )
            case _:
                self.fused(statement)

    def fused(self, statement: Statement) -> None:
        """Instructions of several operators."""
        match statement:
            case Scale():
                self.put_call("tensor_scalar", **self.scale(statement))
            case ScaleCombine(dst, src, op0, operand0, op1, right, reverse0, reverse1):
                given = {"dst": self.view(dst), "data": self.view(src), "op0": f"nl.{op0}"}
                given |= {
                    "operand0": self.operand(operand0),
                    "op1": f"nl.{op1}",
                    "operand1": self.view(right),
                }
                given |= {n: "True" for n, on in (("reverse0", reverse0), ("reverse1", reverse1)) if on}
                self.put_call("scalar_tensor_tensor", **given)
            case Activate():
                name = "activation" if statement.total is None else "activation_reduce"
                self.put_call(name, **self.activation(statement))
            case Scan(dst, left, right, initial, op0, op1, reverse0, reverse1):
                self.put_call(
                    "tensor_tensor_scan",
                    dst=self.view(dst),
                    data0=self.view(left),
                    data1=self.view(right),
                    initial=self.operand(initial),
                    op0=f"nl.{op0}",
                    op1=f"nl.{op1}",
                    **{n: "True" for n, on in (("reverse0", reverse0), ("reverse1", reverse1)) if on},
                )
            case Select(dst, src, offset, p, i, relation, otherwise):
                self.put_call(
                    "affine_select",
                    dst=self.view(dst),
                    pattern=f"[[{i}, {dst.cuts[1].count}]]",
                    offset=str(offset),
                    channel_multiplier=str(p),
                    on_true_tile=self.view(src),
                    on_false_value=number(otherwise),
                    cmp_op=f"nl.{RELATIONS[relation]}",
                )
            case _:
                raise AssertionError(f"{type(statement).__name__} has no spelling")

    def scale(self, s: Scale) -> dict[str, str]:
        given = {"dst": self.view(s.dst), "data": self.view(s.src)}
        given |= {"op0": f"nl.{s.op0}", "operand0": self.operand(s.operand0)}
        if s.reverse0:
            given["reverse0"] = "True"
        if s.op1:
            given |= {"op1": f"nl.{s.op1}", "operand1": self.operand(s.operand1)}
        if s.reverse1:
            given["reverse1"] = "True"
        return given

    def activation(self, s: Activate) -> dict[str, str]:
        given = {"dst": self.view(s.dst), "op": f"nl.{s.function}", "data": self.view(s.src)}
        if s.bias is not None:
            given["bias"] = self.view(s.bias)
        if s.scale != 1.0:
            given["scale"] = self.operand(s.scale)
        if s.total is not None:
            given |= {"reduce_op": "nl.add", "reduce_res": self.view(s.total)}
        return given

    def gather(self, s: Gather) -> None:
        steps = strides(s.table.buffer)
        if s.axis:
            raise UnsupportedError(
                f"{s.table.buffer.name} is gathered along axis {s.axis}; a transfer gathers along the first",
                hint="declare the tensor with the gathered rank first",
            )
        rest = [(axis, i) for axis, i in enumerate(s.table.index) if axis]
        offset = ZERO
        pattern = [f"[{steps[0]}, {s.dst.cuts[0].count}]"]
        for axis, index in rest:
            if isinstance(index, Cut):
                offset += index.start * steps[axis]
                pattern.append(f"[{steps[axis] * index.step}, {index.count}]")
            else:
                offset += index.at * steps[axis]
        chosen = (
            f"{s.table.buffer.name}.ap([{', '.join(pattern)}], offset={offset}, "
            f"vector_offset={self.view(s.rows)}, indirect_dim=0)"
        )
        self.put_call("dma_copy", dst=self.view(s.dst), src=chosen)
