"""Sums of rows times numbers of their own: products with diagonal matrices on TensorE.

`Z[c, t] = X[c, t + r] . W[c, r]`, summed over r, has c everywhere, so there is no matrix in it. VectorE
takes a pass over all columns for each r. But X times the diagonal matrix of W[:, r] is the same, and TensorE
adds up all r in PSUM, which VectorE and ScalarE empty together.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import prod

from ...tiles.dtypes import as_dtype
from ..language.ast import Access, Affine, Einsum
from ..tree import nodes
from ..tree.expr import ZERO
from ..tree.nodes import At, Cut, View
from .build import Span, whole
from .choose import INSTRUCTION_NS
from .context import Context, part_of, tally
from .deliver import Target, deliver, targets_of
from .stage import stage, staged_bytes
from .storage import Storage, positions


@dataclass(frozen=True)
class Diagonal:
    """How an Einsum is a sum of products with diagonal matrices."""

    ctx: Context  # the plan
    einsum: Einsum  # that is computed
    rows: Access  # operand that has columns
    factors: Access  # operand with a number per partition for each value that is summed
    part: str  # variable on the partitions
    free: str  # variable along the columns
    row: str  # variable several of whose values lie side by side as columns; "" for none
    outer: tuple[str, ...]  # other variables of the output, one value at a time
    around: dict[str, Span]  # spans that loops around it have chosen

    def costs_ns(self) -> tuple[float, float]:
        """What the sums take on TensorE, with the making of its matrices, and on VectorE."""
        ctx, spans = self.ctx, self.ctx.spans(self.einsum, {})
        columns = prod(spans[v].most for v in self.einsum.output.variables if v != self.part)
        blocks = -(-spans[self.part].most // ctx.lanes)
        products = blocks * prod(spans[v].most for v in self.einsum.reduced)
        tensor, vector = (ctx.machine[f"{engine}_clock_ghz"] for engine in ("tensor", "vector"))
        # one value of other variables after the other is a tile of its own, which is loaded and stored
        moved = 2 * blocks * ctx.machine["dma_start_ns"] * prod(spans[v].most for v in self.outer)
        on_tensor = products * (INSTRUCTION_NS + ctx.lanes / vector + columns / tensor) + moved
        return on_tensor, products * (INSTRUCTION_NS + columns / vector)

    def lower(self) -> None:
        """Append the nest."""
        ctx, spans = self.ctx, self.ctx.spans(self.einsum, self.around)
        target, comment = targets_of(ctx, self.einsum, self.around, self.part), self.einsum.title
        with ExitStack() as stack:
            for variable in (self.part, *self.outer):
                block = ctx.lanes if variable == self.part else 1
                tiles = ctx.build.tiles(variable, spans[variable].most, block, comment=comment)
                spans[variable] = spans[variable].tile(stack.enter_context(tiles))
                comment = ""
            self.tile(spans, target)

    def tile(self, spans: dict[str, Span], target: Target) -> None:
        """One tile of the result: as many columns as a bank holds at a time, stored together."""
        ctx, build, output = self.ctx, self.ctx.build, self.einsum.output
        rows = stage(ctx, self.rows, spans, self.part, ctx.dtypes[self.rows.tensor])
        apart = [spans[v] for v in self.factors.variables if v == self.part or v in self.outer]
        key = ("diagonals", str(self.factors), *(str(s.start) for s in apart))
        depth = build.depth_of(frozenset().union(*(s.start.names | s.count.names for s in apart)))
        diagonals = build.once(key, depth, partial(self.diagonals, spans))
        cut, near = self.row or self.free, target.tile if self.row else None
        name, columns, shape = f"{output.tensor.lower()}_tile", spans[cut], [spans[v].most for v in self.axes]
        buffer = near.buffer if near else build.buffer(name, tuple(shape), target.dtype, nodes.SBUF)
        with build.tiles(cut, columns.most, self.columns_at_once(columns)) as tile:
            piece = {**spans, cut: Span(columns.start + tile.start, tile.count, tile.most)}
            psum = self.summed(piece, rows, diagonals)
            own = near.place(positions(output, piece)) if near else self.tile_of(buffer, {**spans, cut: tile})
            build.add(nodes.Copy(own, psum))
        whole = self.tile_of(buffer, {**spans, cut: Span(ZERO, columns.count, columns.most)})
        if near:
            near.changed()
        elif self.row:
            assert target.hbm is not None
            build.add(nodes.Store(View(target.hbm.buffer, tuple(positions(output, spans))), whole))
            target.hbm.changed()
        else:
            deliver(ctx, self.einsum, whole, spans, self.part, self.free, target)

    @property
    def axes(self) -> tuple[str, ...]:
        """Variables along the axes of a tile."""
        return tuple(v for v in (self.part, self.row, self.free) if v)

    def columns_at_once(self, columns: Span) -> int:
        """How many values of what is cut one product takes: a bank of columns, or the rows that it holds."""
        if not self.row:
            return self.ctx.bank
        most = self.ctx.bank // self.ctx.cascade.extent(self.free, self.einsum)
        return max(n for n in range(1, most + 1) if columns.most % n == 0)

    def tile_of(self, buffer: nodes.Buffer, spans: dict[str, Span]) -> View:
        """A part of a tile: the values of spans along what is cut, all others."""
        first = {self.row or self.free: spans[self.row or self.free].start}
        return View(buffer, tuple(Cut(first.get(v, ZERO), spans[v].count) for v in self.axes))

    def diagonals(self, spans: dict[str, Span]) -> nodes.Buffer:
        """A matrix per value that is summed, side by side."""
        ctx, build = self.ctx, self.ctx.build
        dtype, part = ctx.dtypes[self.factors.tensor], spans[self.part]
        numbers = stage(ctx, self.factors, spans, self.part, "float32")
        shape = (part.most, *(spans[v].most for v in self.einsum.reduced), part.most)
        matrices = build.buffer(f"{self.factors.tensor.lower()}_diagonal", shape, dtype, nodes.SBUF)
        identity = ctx.diagonal(dtype)
        with ExitStack() as stack:
            at = {}
            for variable in self.einsum.reduced:
                at[variable] = stack.enter_context(build.tiles(variable, spans[variable].most, 1))
            factor = numbers.view(positions(self.factors, {**spans, **at}))
            whole = part_of(identity, part.count, part.count)
            build.add(nodes.Scale(self.one(matrices, spans, at), whole, "multiply", factor))
        return matrices

    def one(self, diagonals: nodes.Buffer, spans: dict[str, Span], at: dict[str, Span]) -> View:
        """The matrix of one value."""
        square = Cut(ZERO, spans[self.part].count)
        places = [At(at[v].start - spans[v].start) for v in self.einsum.reduced]
        return View(diagonals, (square, *places, square))

    def summed(self, spans: dict[str, Span], rows: Storage, diagonals: nodes.Buffer) -> View:
        """Products of one tile, accumulated in PSUM."""
        ctx, build = self.ctx, self.ctx.build
        shape = tuple(spans[v].most for v in self.axes)
        psum = build.buffer(f"{self.einsum.name.lower()}_sum", shape, "float32", nodes.PSUM, "sum")
        view = View(psum, tuple(Cut(ZERO, spans[v].count) for v in self.axes))
        with ExitStack() as stack:
            at: dict[str, Span] = {}
            for variable in self.einsum.reduced:
                at[variable] = stack.enter_context(
                    build.tiles(variable, spans[variable].most, 1, is_sequential=True)
                )
            running = tuple(n for s in at.values() for n in s.start.names)
            moving = rows.view(positions(self.rows, {**spans, **at}))
            build.add(nodes.MatMul(view, self.one(diagonals, spans, at), moving, running))
            every = ctx.spans(self.einsum, self.around)
            build.add(tally(ctx, self.einsum, view, {**spans, **at}, every))
        return view


def diagonal_of(ctx: Context, einsum: Einsum, around: dict[str, Span]) -> Diagonal | None:
    """An Einsum as a sum of products with diagonal matrices; None if it is none, or VectorE is as fast."""
    is_pair = einsum.is_product and len(einsum.operands) == len(einsum.accesses) == 2
    if not is_pair or not einsum.reduced:
        return None
    spans = ctx.spans(einsum, around)
    for rows, factors in (einsum.accesses, einsum.accesses[::-1]):
        variables = _parted(ctx, einsum, rows, factors, spans)
        if variables is not None:
            return Diagonal(ctx, einsum, rows, factors, *variables, around)
    return None


def _parted(
    ctx: Context, einsum: Einsum, rows: Access, factors: Access, spans: dict[str, Span]
) -> tuple[str, str, str, tuple[str, ...]] | None:
    """Variables of partitions, columns, rows and loops, if the second operand gives numbers to the first."""
    dtype, output = ctx.dtypes[rows.tensor], einsum.output.variables
    if ctx.dtypes[factors.tensor] != dtype or as_dtype(dtype).storage.itemsize != 2:
        return None
    if any(not all(s.is_hbm for s in ctx.storages.get(a.tensor, ())) for a in (rows, factors)):
        return None
    shared = [v for v in output if v in factors.variables and v in rows.variables]
    own = [v for v in output if v not in factors.variables]
    if len(shared) != 1 or not own or not set(einsum.reduced) <= set(factors.variables):
        return None
    part, free = shared[0], max(reversed(own), key=lambda v: spans[v].most)
    # what numbers alone have are results beside each other
    accesses = (rows, factors, einsum.output)
    if any([i.plain == part for i in a.indices if part in i.variables] != [True] for a in accesses):
        return None
    if any(not isinstance(i, Affine) for a in accesses for i in a.indices):
        return None
    return _worth(ctx, einsum, rows, spans, part, free)


def _worth(
    ctx: Context, einsum: Einsum, rows: Access, spans: dict[str, Span], part: str, free: str
) -> tuple[str, str, str, tuple[str, ...]] | None:
    """The variables, if there are enough columns and values, and a tile of rows fits."""
    order = [v for i in einsum.output.indices for v in i.variables]
    index = next(i for i in rows.indices if free in i.variables)
    values = prod(spans[v].most for v in einsum.reduced)
    row = _row(ctx, einsum, spans, part, free)
    outer = tuple(v for v in order if v not in (part, row, free))
    # loops around it may have chosen a tile of the partitions
    if any((v != part and s.start.names) or s.count.value is None for v, s in spans.items()):
        return None
    columns = spans[free].most * (spans[row].most if row else 1)
    if values > ctx.lanes:
        return None
    if not isinstance(index, Affine) or index.coefficient(free) < 1 or order.index(part) > order.index(free):
        return None
    one, block = dict.fromkeys(outer, whole(1)), {part: whole(ctx.lanes)}
    size = staged_bytes(ctx, rows, {**spans, **one, **block}, part, ctx.dtypes[rows.tensor])
    size += columns * 4 + values * ctx.lanes * 2
    return (part, free, row, outer) if size * 2 <= ctx.room() * 0.6 else None


def _row(ctx: Context, einsum: Einsum, spans: dict[str, Span], part: str, free: str) -> str:
    """The variable whose values lie side by side as columns, where one has too few; "" for none."""
    order = [i.plain for i in einsum.output.indices]
    is_last = order[-1:] == [free] and order[-2:-1] != [part] and part in order[:-2]
    is_both = ctx.homes.get(einsum.name, "hbm") == "chip hbm"
    if not is_last or 2 * spans[free].most > ctx.bank or is_both:
        return ""
    return order[-2]
