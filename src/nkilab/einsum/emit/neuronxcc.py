"""Loop trees as `neuronxcc.nki` kernels of Beta 1: instructions return their results."""

from __future__ import annotations

from ...errors import UnsupportedError
from ..room import views_of
from ..tree.expr import expr
from ..tree.nodes import (
    HBM,
    PSUM,
    TURNS,
    Activate,
    At,
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
    statements,
)
from .text import Printer, number


class NeuronxccPrinter(Printer):
    """The spelling `neuronxcc.nki`."""

    imports = (
        "import neuronxcc.nki as nki",
        "import neuronxcc.nki.isa as nisa",
        "import neuronxcc.nki.language as nl",
    )

    def range(self, loop: Loop) -> str:
        # what min() decides, and the version of a tile, must be known when the loop is traced
        ragged = loop.count_name or any(isinstance(s, Loop) and s.count_name for s in statements(loop.body))
        if ragged or is_ahead(loop) or cuts(loop):
            kind = "static_range"
        else:
            kind = "sequential_range" if loop.is_sequential else "affine_range"
        return f"nl.{kind}({expr(loop.trips)})"

    def made(self, buffer: Buffer) -> str:
        shape = buffer.shape or (1,)
        if buffer.memory == HBM:
            memory = "shared_hbm" if buffer.role == "output" else "private_hbm"
            return f"nl.ndarray({self.shape(shape)}, dtype=nl.{buffer.dtype}, buffer=nl.{memory})"
        rest = "".join(f", {expr(s)}" for s in shape[1:])
        # sums of products begin at zeros, the documented form of an accumulation in PSUM
        maker = "zeros" if buffer.memory == PSUM and buffer.role == "sum" else "ndarray"
        return (
            f"nl.{maker}((nl.par_dim({expr(shape[0])}){rest}), dtype=nl.{buffer.dtype}, "
            f"buffer=nl.{buffer.memory})"
        )

    def hbm(self, view: View) -> str:
        """A part of an HBM tensor: slices, or grids of indices where it is turned or repeated."""
        if view.folded is not None:
            return self.in_blocks(view)
        if view.order:
            return self.in_order(view)
        if view.is_turned:
            return self.in_grids(view)
        if view.repeat is not None:
            counts = ", ".join(str(c.count) for c in view.cuts) or "1"
            return f"{self.view(self.with_row(view))}.broadcast_to(({view.repeat}, {counts}))"
        return self.view(view)

    def in_grids(self, view: View) -> str:
        """A part of an HBM tensor that is turned: grids of indices, the first along the free axis."""
        first, second = "[None, :]", "[:, None]"
        parts, seen = [], 0
        for index in view.index:
            if isinstance(index, At):
                parts.append(str(index.at))
                continue
            shape = first if seen == 0 else second
            step = f" * {index.step}" if index.step != 1 else ""
            start = f"{index.start} + " if index.start.value != 0 else ""
            parts.append(f"{start}nl.arange({index.count}){shape}{step}")
            seen += 1
        return f"{self.base(view)}[{', '.join(parts)}]"

    def in_blocks(self, view: View) -> str:
        """A view one of whose axes is seen as blocks of 128: grids of indices, then partitions come first."""
        count = len(view.cuts) + 1
        parts, place = [], 2

        def grid(extent: object, axis: int) -> str:
            return f"nl.arange({extent})[{', '.join(':' if n == axis else 'None' for n in range(count))}]"

        for axis, index in enumerate(view.index):
            if isinstance(index, At):
                parts.append(str(index.at))
                continue
            start = f"{index.start} + " if index.start.value != 0 else ""
            if axis == view.folded:
                first, second = (1, 0) if view.is_turned else (0, 1)
                parts.append(f"{start}{grid(128, first)} + 128 * {grid(index.count // 128, second)}")
            else:
                step = f"{index.step} * " if index.step != 1 else ""
                parts.append(f"{start}{step}{grid(index.count, place)}")
                place += 1
        return f"{self.base(view)}[{', '.join(parts)}]"

    def in_order(self, view: View) -> str:
        """A view whose axes come in another order than in HBM: grids of indices."""
        parts, seen = [], 0
        for index in view.index:
            if isinstance(index, At):
                parts.append(str(index.at))
                continue
            axis = view.order.index(seen)
            grid = ", ".join(":" if n == axis else "None" for n in range(len(view.order)))
            start = f"{index.start} + " if index.start.value != 0 else ""
            step = f"{index.step} * " if index.step != 1 else ""
            parts.append(f"{start}{step}nl.arange({index.count})[{grid}]")
            seen += 1
        return f"{self.base(view)}[{', '.join(parts)}]"

    def with_row(self, view: View) -> View:
        """A row or an element of an HBM tensor as [1, columns]."""
        index = list(view.index)
        if not view.cuts:
            last = index.pop()
            assert isinstance(last, At)
            index.append(Cut(last.at, expr(1)))
        place = next(i for i, part in enumerate(index) if isinstance(part, Cut))
        if place == 0:
            return View(view.buffer, (Cut(expr(0), expr(1)), *index))
        before = index[place - 1]
        assert isinstance(before, At)
        index[place - 1] = Cut(before.at, expr(1))
        return View(view.buffer, tuple(index))

    def any(self, view: View) -> str:
        return self.hbm(view) if view.buffer.memory == HBM else self.view(view)

    def result(self, dst: View, name: str, *arguments: str, sign: str = "=", **given: str) -> None:
        """dst = nisa.name(...), in the type of dst."""
        self.call(f"{self.view(dst)} {sign} {name}", [*arguments, *self.keywords(**given)])

    def typed(self, dst: View) -> dict[str, str]:
        return {"dtype": f"nl.{dst.buffer.dtype}"}

    def statement(self, statement: Statement) -> None:
        match statement:
            case Load(dst, src):
                self.result(dst, "nl.load", self.hbm(src))
            case Store(dst, src):
                self.call("nl.store", [self.any(dst), f"value={self.view(src)}"])
            case Move(dst, src):
                self.call("nisa.dma_copy", self.keywords(dst=self.view(dst), src=self.view(src)))
            case Gather():
                self.gather(statement)
            case Copy(dst, src, engine):
                asked = {"engine": f"nisa.engine.{engine}"} if engine else {}
                self.result(dst, "nisa.tensor_copy", self.view(src), **self.typed(dst), **asked)
            case Fill(dst, value):
                shape = ", ".join(str(c.count) for c in dst.cuts)
                self.result(dst, "nisa.memset", f"({shape})", number(value), dtype=f"nl.{dst.buffer.dtype}")
            case MatMul(dst, stationary, moving, _):
                # a tile that earlier turns wrote is overwritten
                sign = "=" if dst.buffer.role == TURNS else "+="
                self.result(dst, "nisa.nc_matmul", self.view(stationary), self.view(moving), sign=sign)
            case _:
                self.computed(statement)

    def computed(self, statement: Statement) -> None:
        """Instructions of one operator."""
        match statement:
            case Transpose(dst, src):
                self.result(dst, "nisa.nc_transpose", self.view(src))
            case Combine(dst, left, op, right, engine):
                self.result(
                    dst,
                    "nisa.tensor_tensor",
                    self.view(left),
                    self.view(right),
                    op=f"nl.{op}",
                    **({"engine": f"nisa.engine.{engine}"} if engine else {}),
                    **self.typed(dst),
                )
            case Invert(dst, src):
                self.result(dst, "nisa.reciprocal", self.view(src), **self.typed(dst))
            case Reduce(dst, op, src):
                self.result(
                    dst,
                    "nisa.tensor_reduce",
                    f"nl.{op}",
                    self.view(src),
                    axis=str(len(src.cuts) - 1),
                    keepdims="True",
                    **self.typed(dst),
                )
            case _:
                self.fused(statement)

    def fused(self, statement: Statement) -> None:
        """Instructions of several operators."""
        match statement:
            case Scale(dst, src, op0, operand0, reverse0, op1, operand1, reverse1):
                given = {"op0": f"nl.{op0}", "operand0": self.operand(operand0)}
                if op1:
                    given |= {"op1": f"nl.{op1}", "operand1": self.operand(operand1)}
                given |= {n: "True" for n, on in (("reverse0", reverse0), ("reverse1", reverse1)) if on}
                self.result(dst, "nisa.tensor_scalar", self.view(src), **given, **self.typed(dst))
            case ScaleCombine(dst, src, op0, operand0, op1, right, reverse0, reverse1):
                given = {"data": self.view(src), "op0": f"nl.{op0}", "operand0": self.operand(operand0)}
                given |= {"op1": f"nl.{op1}", "operand1": self.view(right)}
                given |= {n: "True" for n, on in (("reverse0", reverse0), ("reverse1", reverse1)) if on}
                self.result(dst, "nisa.scalar_tensor_tensor", **given, **self.typed(dst))
            case Activate(dst, function, src, scale, bias, total):
                given = {} if bias is None else {"bias": self.view(bias)}
                if scale != 1.0:
                    given["scale"] = self.operand(scale)
                name = "nisa.activation"
                if total is not None:
                    name = "nisa.activation_reduce"
                    given |= {"reduce_op": "nl.add", "reduce_res": self.view(total)}
                self.result(dst, name, f"nl.{function}", self.view(src), **given, **self.typed(dst))
            case _:
                self.positioned(statement)

    def positioned(self, statement: Statement) -> None:
        """Instructions that know where elements stand."""
        match statement:
            case Scan(dst, left, right, initial, op0, op1, reverse0, reverse1):
                given = {n: "True" for n, on in (("reverse0", reverse0), ("reverse1", reverse1)) if on}
                self.result(
                    dst,
                    "nisa.tensor_tensor_scan",
                    self.view(left),
                    self.view(right),
                    initial=self.operand(initial),
                    op0=f"nl.{op0}",
                    op1=f"nl.{op1}",
                    **given,
                    **self.typed(dst),
                )
            case Select(dst, src, offset, p, i, relation, otherwise):
                rows, columns = (c.count for c in dst.cuts)
                place = f"{offset} + {p} * nl.arange({rows})[:, None] + {i} * nl.arange({columns})[None, :]"
                self.result(
                    dst,
                    "nisa.affine_select",
                    pred=f"({place} {relation} 0)",
                    on_true_tile=self.view(src),
                    on_false_value=number(otherwise),
                    **self.typed(dst),
                )
            case _:
                raise AssertionError(f"{type(statement).__name__} has no spelling")

    def gather(self, s: Gather) -> None:
        if s.axis:
            raise UnsupportedError(
                f"{s.table.buffer.name} is gathered along axis {s.axis}; a transfer gathers along the first",
                hint="declare the tensor with the gathered rank first",
            )
        rows, column = s.rows.index[0], s.rows.index[1:]
        assert isinstance(rows, Cut)
        places = ", ".join(str(c.start if isinstance(c, Cut) else c.at) for c in column)
        chosen = f"{s.rows.buffer.name}[nl.arange({rows.count})[:, None], {places}]"
        parts = []
        for index in s.table.index[1:]:
            if isinstance(index, Cut):
                start = f"{index.start} + " if index.start.value != 0 else ""
                step = f" * {index.step}" if index.step != 1 else ""
                parts.append(f"{start}nl.arange({index.count})[None, :]{step}")
            else:
                parts.append(str(index.at))
        self.result(s.dst, "nl.load", f"{s.table.buffer.name}[{', '.join([chosen, *parts])}]")


def is_ahead(loop: Loop) -> bool:
    """Whether the turns of a loop choose versions of a tile."""
    views = (v for s in statements(loop.body) for _, v in views_of(s) if v.buffer.role == TURNS)
    return any(f"({loop.variable} % 2)" in i.at.names for v in views for i in v.index if isinstance(i, At))


def cuts(loop: Loop) -> bool:
    """Whether the turn of a loop is how many elements something has."""
    views = (v for s in statements(loop.body) for _, v in views_of(s))
    return any(loop.variable in c.count.names for v in views for c in v.cuts)
