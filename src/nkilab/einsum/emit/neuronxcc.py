"""Loop trees as `neuronxcc.nki` kernels of Beta 1: instructions return their results."""

from __future__ import annotations

from ..room import views_of
from ..tree import nodes
from ..tree.along import axes_of, in_order, windowed
from ..tree.expr import expr
from .text import Printer, number


class NeuronxccPrinter(Printer):
    """The spelling `neuronxcc.nki`."""

    imports = (
        "import neuronxcc.nki as nki",
        "import neuronxcc.nki.isa as nisa",
        "import neuronxcc.nki.language as nl",
    )

    def range(self, loop: nodes.Loop) -> str:
        # what min() decides, and the version of a tile, must be known when the loop is traced
        ragged = loop.count_name or any(
            isinstance(s, nodes.Loop) and s.count_name for s in nodes.statements(loop.body)
        )
        if ragged or loop.apart or cuts(loop):
            kind = "static_range"
        else:
            kind = "sequential_range" if loop.is_sequential else "affine_range"
        return f"nl.{kind}({expr(loop.trips)})"

    def made(self, buffer: nodes.Buffer) -> str:
        shape = buffer.shape or (1,)
        if buffer.memory == nodes.HBM:
            memory = "shared_hbm" if buffer.role == "output" else "private_hbm"
            return f"nl.ndarray({self.shape(shape)}, dtype=nl.{buffer.dtype}, buffer=nl.{memory})"
        rest = "".join(f", {expr(s)}" for s in shape[1:])
        # sums of products begin at zeros, the documented form of an accumulation in PSUM
        maker = "zeros" if buffer.memory == nodes.PSUM and buffer.role == "sum" else "ndarray"
        return (
            f"nl.{maker}((nl.par_dim({expr(shape[0])}){rest}), dtype=nl.{buffer.dtype}, "
            f"buffer=nl.{buffer.memory})"
        )

    def hbm(self, view: nodes.View) -> str:
        """A part of an HBM tensor: slices, or grids of indices where its axes lie otherwise."""
        is_other = view.has_parts or any(cut.step < 0 for cut in view.cuts)
        if view.folded or view.order or view.is_turned or view.buffer.window or is_other:
            return self.in_grids(view)
        if view.repeat is not None:
            counts = ", ".join(str(c.count) for c in view.cuts) or "1"
            return f"{self.view(self.with_row(view))}.broadcast_to(({view.repeat}, {counts}))"
        return self.view(view)

    def in_grids(self, view: nodes.View) -> str:
        """A view whose axes come in another order, or one as blocks of partitions: grids of indices."""
        whole = [
            (n, cut is not i) for n, i in enumerate(view.index) if isinstance(i, nodes.Cut) for cut in i.axes
        ]
        axes = in_order(view, whole, lambda axis, _: [axis, (axis[0], True)], lambda _: (-1, False))
        count = max(len(axes), 2)

        def grid(extent: object, axis: tuple[int, bool]) -> str:
            own = axes.index(axis)
            return f"nl.arange({extent})[{', '.join(':' if n == own else 'None' for n in range(count))}]"

        parts = []
        for axis, index in enumerate(view.index):
            if isinstance(index, nodes.At):
                parts.append(str(index.at))
                continue
            start = f"{index.start} + " if index.start.value != 0 else ""
            if view.folded is not None and axis == view.folded[0]:
                rows = view.folded[1]
                blocks = grid(index.count // rows, (axis, True))
                parts.append(f"{start}{grid(rows, (axis, False))} + {rows} * {blocks}")
            else:
                step = f"{index.step} * " if index.step != 1 else ""
                inner = f" + {grid(index.each.count, (axis, True))}" if index.each else ""
                parts.append(f"{start}{step}{grid(index.count, (axis, False))}{inner}")
        counts, window = ", ".join(str(c) for _, c in axes_of(view)), view.buffer.window
        name, is_repeated = self.base(view), any(number < 0 for number, _ in axes)
        if window:
            own, name = parts[len(parts) - len(window) :], windowed(view.buffer).name
            starts = ([str(n)] if n else [] for n in view.buffer.first)
            terms = (
                [p if c == 1 else f"{c} * ({p})" for c, p in zip(each, own, strict=True) if c]
                for each in zip(*window)
            )
            parts = [" + ".join([*start, *axis]) or "0" for start, axis in zip(starts, terms, strict=True)]
        return f"{name}[{', '.join(parts)}]{f'.broadcast_to(({counts}))' if is_repeated else ''}"

    def counts(self, view: nodes.View) -> str:
        """The shape of a view."""
        return f"({', '.join(str(c.count) for c in view.cuts)})"

    def with_row(self, view: nodes.View) -> nodes.View:
        """A row or an element of an HBM tensor as [1, columns]."""
        index = list(view.index)
        if not view.cuts:
            last = index.pop()
            assert isinstance(last, nodes.At)
            index.append(nodes.Cut(last.at, expr(1)))
        place = next(i for i, part in enumerate(index) if isinstance(part, nodes.Cut))
        if place == 0:
            return nodes.View(view.buffer, (nodes.Cut(expr(0), expr(1)), *index))
        before = index[place - 1]
        assert isinstance(before, nodes.At)
        index[place - 1] = nodes.Cut(before.at, expr(1))
        return nodes.View(view.buffer, tuple(index))

    def result(self, dst: nodes.View, name: str, *arguments: str, sign: str = "=", **given: str) -> None:
        """dst = nisa.name(...), in the type of dst."""
        target = self.any(dst)
        # a name alone would be another tile
        target += "[...]" if target == dst.buffer.name else ""
        self.call(f"{target} {sign} {name}", [*arguments, *self.keywords(**given)])

    def typed(self, dst: nodes.View) -> dict[str, str]:
        return {"dtype": f"nl.{dst.buffer.dtype}"}

    def statement(self, statement: nodes.Statement) -> None:
        match statement:
            case nodes.Load(dst, src):
                self.result(dst, "nl.load", self.hbm(src))
            case nodes.Store(dst, src):
                self.call("nl.store", [self.any(dst), f"value={self.any(src)}"])
            case nodes.Move(dst, src):
                self.call("nisa.dma_copy", self.keywords(dst=self.view(dst), src=self.view(src)))
            case nodes.Gather():
                self.gather(statement)
            case nodes.Pick(dst):
                _, arguments = self.arguments(statement)
                self.result(dst, "nl.gather_flattened", arguments["data"], arguments["indices"])
            case nodes.Choose():
                name, arguments = self.arguments(statement)
                self.call(f"nisa.{name}", self.keywords(**arguments))
            case nodes.Fill(dst, value):
                self.result(dst, "nisa.memset", self.counts(dst), number(value), **self.typed(dst))
            case nodes.MatMul(dst, stationary, moving, _, at, size):
                # a tile that earlier turns wrote is overwritten
                sign = "=" if dst.buffer.role == nodes.TURNS else "+="
                operands = (self.view(stationary), self.view(moving))
                tile = {"tile_position": str(at), "tile_size": str(size)} if size else {}
                self.result(dst, "nisa.nc_matmul", *operands, sign=sign, **tile)
            case nodes.Transpose(dst, src):
                self.result(dst, "nisa.nc_transpose", self.view(src))
            case nodes.Count(dst):
                self.result(dst, "nisa.iota", self.places(statement), **self.typed(dst))
            case nodes.Select():
                self.selected(statement)
            case _:
                self.computed(statement)

    def computed(self, statement: nodes.Statement) -> None:
        """An instruction that takes what the other spelling takes, and returns its result."""
        name, arguments = self.arguments(statement)
        del arguments["dst"]
        dst: nodes.View = statement.dst  # type: ignore[attr-defined]
        is_kept = isinstance(statement, nodes.Reduce) and len(dst.cuts) == len(statement.src.cuts)
        kept = {"keepdims": "True"} if is_kept else {}
        self.result(dst, f"nisa.{name}", **arguments, **kept, **self.typed(dst))

    def selected(self, s: nodes.Select) -> None:
        self.result(
            s.dst, "nisa.affine_select", pred=f"({self.places(s)} {s.relation} 0)",
            on_true_tile=self.view(s.src), on_false_value=number(s.otherwise), **self.typed(s.dst),
        )  # fmt: skip

    def places(self, s: nodes.Select | nodes.Count) -> str:
        """A number for each element, as a grid of indices."""
        rows, columns = (c.count for c in s.dst.cuts)
        place = f"{s.offset} + {s.per_partition} * nl.arange({rows})[:, None]"
        return f"{place} + {s.per_element} * nl.arange({columns})[None, :]"

    def gather(self, s: nodes.Gather) -> None:
        places = [str(c.start if isinstance(c, nodes.Cut) else c.at) for c in s.rows.index]
        if not s.is_slice:
            places[0] = f"nl.arange({s.rows.cuts[0].count})[:, None]"
        chosen = f"{s.rows.buffer.name}[{', '.join(places)}]"
        behind = [str(i.at) if isinstance(i, nodes.At) else i for i in s.table.index[s.axis + 1 :]]
        count = len(s.dst.cuts)
        order = [*s.table.order] or [*range(count)]
        axis = int(not s.is_slice)
        for n, index in enumerate(behind):
            if isinstance(index, nodes.Cut):
                start = f"{index.start} + " if index.start.value != 0 else ""
                step = f" * {index.step}" if index.step != 1 else ""
                own = ", ".join(":" if place == axis else "None" for place in order)
                behind[n], axis = f"{start}nl.arange({index.count})[{own}]{step}", axis + 1
        self.result(s.dst, "nl.load", f"{self.rows_of(s)}[{', '.join(map(str, [chosen, *behind]))}]")


def cuts(loop: nodes.Loop) -> bool:
    """Whether the turn of a loop is how many elements something has."""
    views = (v for s in nodes.statements(loop.body) for _, v in views_of(s))
    return any(loop.variable in c.count.names for v in views for c in v.cuts)
