"""Element-wise and reducing Einsums over tiles with more axes than lanes and columns.

Where Einsums have further variables, one instruction goes through several of them: a tile is
[partitions, axes...]. An operand lies as it does in HBM; views of it put its axes in order, and repeat it
along those that it has not. Variables that share an index with another (`X[2*p + r]`) run one value at a time
over what is loaded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import prod

from ..language.ast import Access, Affine, Einsum, Index
from ..language.operators import OPERATORS
from ..plan.build import Span
from ..plan.choose import READS, Choice, Cluster
from ..plan.context import Context
from ..plan.deliver import Target, deliver, lies_right, targets_of
from ..plan.fetch import fetch
from ..plan.fold import Partial
from ..plan.nest import Nest
from ..plan.reach import MOST_STRIDE, around, constants, leaving
from ..plan.stage import stage
from ..plan.storage import Storage, positions
from ..plan.values import Tile, Value
from ..plan.want import Want
from ..tree import nodes
from ..tree.expr import ZERO, Expr, expr
from ..tree.nodes import Cut, View, columns_of, upto
from .chosen import chosen, tile_of
from .plane_tiles import Planes, is_row, is_staged


@dataclass(frozen=True)
class _Axis:
    """What a nest moves along one axis of a tensor: where, whether to partitions, the most elements."""

    cut: Cut
    dim: str
    most: int


def _whole(storage: Storage, axes: Sequence[_Axis], rows: Expr) -> View:
    """All of a tile that is moved."""
    counts = [a.cut.count for a in axes if a.dim == "free"] or [expr(1)]
    return View(storage.buffer, (Cut(ZERO, rows), *(Cut(ZERO, count) for count in counts)))


class PlaneNest(Nest):
    """Lowers one cluster over tiles of several axes."""

    def __init__(self, ctx: Context, cluster: Cluster, outer: dict[str, Span], planes: Planes) -> None:
        super().__init__(ctx, cluster, outer, Choice(planes.part, "", tuple(planes.blocks), planes.blocks))
        self.planes, self.base, self.copies = planes, dict(self.spans), 1
        # no instruction that computes a tile of several axes sums a part of them
        self.summable = {*planes.axes} if len(planes.axes) == 1 else {""}
        self.outside = ctx.build.depth
        self.results: dict[str, Storage] = {}
        # where loops over parts of results begin, and stores of what they make
        self.depth, self.whole = ctx.build.depth, list[tuple[nodes.Store, Storage]]()

    def lower(self) -> None:
        """Append the nest."""
        self.targets = {e.name: targets_of(self.ctx, e, self.outer, self.choice.part) for e in self.kept}
        self.summed_up()

    @contextmanager
    def result_loops(self) -> Iterator[None]:
        """Loops over what no Einsum reduces."""
        looped = [v for v in self.planes.blocks if v not in self.reduced]
        with ExitStack() as stack:
            self.ctx.build.add(nodes.Comment(self.cluster.title))
            for v in (v for v in looped if v not in self.planes.single):
                stack.enter_context(self.tiled(v, ""))
            self.depth = self.ctx.build.depth
            parts = stack.enter_context(ExitStack())
            for v in (v for v in looped if v in self.planes.single):
                parts.enter_context(self.tiled(v, ""))
            yield
            parts.close()
            for store, hbm in self.whole:
                self.ctx.build.add(store)
                hbm.changed()

    # tiles

    @property
    def columns(self) -> Span:
        """All elements of a tile on a partition."""
        count = prod(self.spans[v].most for v in self.planes.axes)
        return Span(ZERO, expr(count), count)

    def new(
        self, hint: str, dtype: str = "float32", without: Sequence[str] = (), axes: Sequence[str] = ()
    ) -> View:
        """A tile, without some of its axes, or with some alone."""
        own = axes or [v for v in self.planes.axes if v not in without]
        spans = [self.spans[v] for v in own] or [Span(ZERO, expr(1), 1)]
        shape = (self.rows.most, *(s.most for s in spans))
        made = self.ctx.build.buffer(hint, shape, dtype, nodes.SBUF)
        return View(made, (Cut(ZERO, self.rows.count), *(Cut(ZERO, s.count) for s in spans)))

    def fetched(self, operand: Access) -> Value:
        """An operand that no Einsum of the cluster computes."""
        ctx, part, storage = self.ctx, self.choice.part, self.ctx.chip(operand.tensor)
        own = [v for v in operand.variables if not self.base[v].is_point]
        if not own or (storage is not None and is_row(operand, self.base, part)):
            return self.row(operand, *own)
        like = [a for e in self.cluster.einsums for a in e.accesses if self.is_beside(a, operand)]
        if operand.gathers:
            operand, storage = chosen(self, operand, self.planes.axes)
        elif storage is None and not any(is_staged(ctx, a, self.base, part) for a in like):
            storage = self.loaded(operand, like)
        elif storage is None or part != storage.part_variable(operand):
            edges = {v for a in like for i in leaving(ctx, a, self.base) for v in i.variables}
            turns = self.base if storage else {v: self.base[v] for v in {*self.planes.whole, *edges}}
            spans = {**self.spans, **turns, part: self.rows}
            wide, more = around(operand, like) if edges else (operand, {})
            is_number = not {*self.planes.axes} & {*operand.variables}
            dtype = "float32" if is_number else ctx.dtypes[operand.tensor]  # numbers of partitions are
            storage = stage(ctx, wide, {**spans, **more}, part, dtype)
        axes = self.axes_in(storage, operand)
        view = self.arranged(self.side_by_side(storage, operand, axes), axes)
        return Value(view=view, is_column=not axes)

    def row(self, operand: Access, free: str = "") -> Value:
        """A number, or a row that lies on chip, on every partition."""
        spans = {**self.spans, free: self.base[free]} if free else self.spans
        view = fetch(self.ctx, Want(operand, spans, self.choice.part, free))
        if free:
            view = columns_of(view, self.spans[free].start - self.base[free].start, self.spans[free].count)
        is_column = not free or self.spans[free].is_point
        return Value(view=self.arranged(view, [] if is_column else [free]), is_column=is_column)

    def side_by_side(self, storage: Storage, access: Access, axes: list[str]) -> View:
        """A part [partitions, axes...]; in the order of the tile, by a copy, where it is read many times."""
        ctx, every = self.ctx, {**self.spans, **{v: self.base[v] for v in self.planes.parted}}
        view = self.rows_in(storage, access, every)
        order = [v for v in self.planes.axes if v in axes]
        repeated = [self.spans[v].most for v in self.planes.axes if v not in axes]
        depth = max(ctx.build.depth_of(nodes.names_in(view.index)), storage.depth)
        if order[-1:] == axes[-1:] or (prod(repeated) < READS and depth >= self.outside):
            return self.rows_in(storage, access, self.spans)

        def copy() -> View:
            shape = (self.rows.most, *(every[v].most for v in order))
            made = ctx.build.buffer("neighbours", shape, storage.buffer.dtype, nodes.SBUF)
            tile = View(made, (upto(self.rows.count), *(upto(every[v].count) for v in order)))
            ctx.build.add(nodes.Copy(tile, replace(view, order=(0, *(1 + axes.index(v) for v in order)))))
            return tile

        copied = ctx.build.once(("neighbours", view, storage.version, self.rows.most), depth, copy)
        axes[:] = order
        cuts = (Cut(self.spans[v].start - every[v].start, self.spans[v].count) for v in order)
        return View(copied.buffer, (Cut(ZERO, self.rows.count), *cuts))

    def axes_in(self, storage: Storage, access: Access) -> list[str]:
        """Variables along the free axes of a part of a tensor, in its order."""
        every = zip(access.indices, storage.dims, strict=True)
        axes = (i for i, dim in every if dim == "free" and isinstance(i, Affine))
        outer_first = (v for i in axes for v, _ in sorted(i.terms, key=lambda term: -term[1]))
        return [v for v in outer_first if v in self.spans and not self.spans[v].is_point]

    def rows_in(self, storage: Storage, access: Access, spans: dict[str, Span]) -> View:
        """A part of a tile on chip, whose partitions are those of the nest."""
        view = storage.view(positions(access, spans, is_apart=True))
        if storage.has_blocks:
            return view
        return replace(view, index=(Cut(ZERO, self.rows.count), *view.index[1:]))

    def arranged(self, view: View, axes: Sequence[str], without: Sequence[str] = ()) -> View:
        """A view [partitions, axes...] in the order of the tile, repeated along those that it has not."""
        if not axes:
            return view
        wanted = [v for v in self.planes.axes if v not in without and not self.spans[v].is_point]
        order: list[int | Expr] = [1 + axes.index(v) if v in axes else self.spans[v].count for v in wanted]
        return view if order == [*range(1, len(axes) + 1)] else replace(view, order=(0, *order))

    def loaded(self, access: Access, like: Sequence[Access]) -> Storage:
        """An operand of HBM on chip, with all that variables of one value at a time want of it."""
        ctx, source = self.ctx, next(s for s in self.ctx.storage_of(access) if s.is_hbm)
        axes = [self.axis(access, n, *constants(like, n)) for n in range(len(access.indices))]
        names = frozenset[str]().union(*(nodes.names_in([a.cut]) for a in axes))
        depth = max(ctx.build.depth_of(names), source.depth)
        key = ("loaded", access.tensor, tuple(axes), self.rows.most, source.version)

        def block() -> Storage:
            repeat = None if any(a.dim == "part" for a in axes) else expr(self.rows.most)
            made = self.block(f"{access.tensor.lower()}_block", axes, source.buffer.dtype)
            dst = _whole(made, axes, repeat or self.rows.count)
            ctx.build.add(nodes.Load(dst, self.in_hbm(source, axes, repeat)))
            return made

        return ctx.build.once(key, depth, block)

    def is_beside(self, one: Access, other: Access) -> bool:
        """Whether two accesses of a tensor differ in constants alone, those of the partitions apart."""
        part = self.choice.part

        def is_like(a: Index, b: Index) -> bool:
            is_same = isinstance(a, Affine) and isinstance(b, Affine) and a.terms == b.terms
            return a == b if not is_same or part in a.variables or not a.variables else True

        return one.tensor == other.tensor and all(map(is_like, one.indices, other.indices))

    def axis(self, access: Access, number: int, low: int, high: int, is_exact: bool = False) -> _Axis:
        """What is moved along one axis, for constants from `low` to `high`; no more if it is exact."""
        index, part = access.indices[number], self.choice.part
        assert isinstance(index, Affine)
        spans = {**self.spans, **{v: self.base[v] for v in self.planes.whole if not is_exact}}
        wide = [name for name in index.variables if not spans[name].is_point]
        if high - low > sum(index.coefficient(v) * spans[v].most for v in wide):
            low = high = index.constant
        start, count, most = expr(low), expr(1 + high - low), 1 + high - low
        if part in index.variables:
            spans |= self.spans
        for name, c in index.terms:
            start = start + spans[name].start * c
            count, most = count + (spans[name].count - 1) * c, most + (spans[name].most - 1) * c
        step = index.coefficient(wide[0]) if len(wide) == 1 else 1
        if part in index.variables:
            return _Axis(Cut(start, self.rows.count, index.coefficient(part)), "part", self.rows.most)
        if len(wide) == 1 and low == high and (is_exact or step > MOST_STRIDE):
            return _Axis(Cut(start, spans[wide[0]].count, step), "free", spans[wide[0]].most)
        return _Axis(Cut(start, count), "gone" if most == 1 else "free", most)

    def block(self, hint: str, axes: Sequence[_Axis], dtype: str) -> Storage:
        """A new tile for what is moved along some axes."""
        shape = (self.rows.most, *([a.most for a in axes if a.dim == "free"] or [1]))
        tile = self.ctx.build.buffer(hint, shape, dtype, nodes.SBUF)
        dims, bases, steps = (
            [*each] for each in zip(*((a.dim, a.cut.start, a.cut.step) for a in axes), strict=True)
        )
        return Storage(tile, tuple(dims), tuple(bases), depth=self.ctx.build.depth, steps=tuple(steps))

    def in_hbm(self, hbm: Storage, axes: Sequence[_Axis], repeat: Expr | None = None) -> View:
        """A part of a tensor in HBM with the partitions in front."""
        kinds = [a.dim for a in axes if a.dim != "gone"]
        order = tuple(sorted(range(len(kinds)), key=lambda n: kinds[n] != "part"))
        at = tuple(nodes.At(a.cut.start) if a.dim == "gone" else a.cut for a in axes)
        return View(hbm.buffer, at, repeat=repeat, order=() if order == tuple(sorted(order)) else order)

    # results

    def keep(self, einsum: Einsum, value: Value, tile: Tile, along: Partial | None = None) -> None:
        """Write a value where the tensor lies."""
        target = self.targets[einsum.name]
        value = tile.widened(value) if value.is_scalar else value
        if target.tile is not None:
            self.into(value, self.place_in(target, einsum), tile, along)
            target.tile.changed()
        if target.hbm is None:
            return
        self.store(einsum, value, target.hbm, tile)

    def place_in(self, target: Target, einsum: Einsum) -> View:
        """Where a tile on chip has the present part of a result."""
        storage = target.tile
        assert storage is not None
        assert lies_right(storage, einsum, self.spans, self.choice.part)
        axes = self.axes_in(storage, einsum.output)
        view = replace(self.rows_in(storage, einsum.output, self.spans), turn=storage.turns[1])
        return self.arranged(view, axes, einsum.reduced)

    def store(self, einsum: Einsum, value: Value, hbm: Storage, tile: Tile) -> None:
        """Store a value, and all that is written beside it, by way of a tile with the axes of HBM."""
        output, numbers = einsum.output, range(len(einsum.output.indices))
        writers = [e for e in self.cluster.einsums if self.is_beside(e.output, output)]
        axes = [self.axis(output, n, *constants([e.output for e in writers], n)) for n in numbers]
        elements = prod(a.most for a in axes if a.dim == "free")
        parts = {v for v in output.variables if v in self.planes.single and not self.base[v].is_point}
        spans = {**self.spans, **{v: self.base[v] for v in parts}}
        if elements != prod(spans[v].most for v in output.variables if v != self.choice.part) * len(writers):
            writers, parts = [einsum], set()
            axes = [self.axis(output, n, *constants([output], n), is_exact=True) for n in numbers]
            own = [v for v in output.variables if v != self.choice.part]
            if prod(a.most for a in axes if a.dim == "free") != prod(self.spans[v].most for v in own):
                return self.store_apart(einsum, value, hbm, tile)
        order = [v for v in output.variables if v != self.choice.part and not spans[v].is_point]
        lying = tile_of(value, hbm) if order == [*self.planes.axes] and not parts else None
        if lying is not None and writers == [einsum]:
            self.ctx.build.add(nodes.Store(self.in_hbm(hbm, axes), lying))
            return hbm.changed()
        if writers[0] is einsum:
            with self.ctx.build.hoisted(self.depth if parts else self.ctx.build.depth):
                self.results[einsum.name] = self.block(f"{einsum.name.lower()}_out", axes, hbm.buffer.dtype)
        made = self.results[einsum.name]
        tile.into(
            value,
            self.arranged(self.rows_in(made, output, self.spans), self.axes_in(made, output), einsum.reduced),
        )
        if writers[-1] is einsum:
            store = nodes.Store(self.in_hbm(hbm, axes), _whole(made, axes, self.rows.count))
            if parts:
                self.whole.append((store, hbm))
                return
            self.ctx.build.add(store)
            hbm.changed()

    def store_apart(self, einsum: Einsum, value: Value, hbm: Storage, tile: Tile) -> None:
        """Store a value along an axis of HBM on which places that others write lie between its own."""
        output, part = einsum.output, self.choice.part
        at = positions(output, self.spans, is_apart=True)
        dims = tuple("part" if part in i.variables else "free" for i in output.indices)
        axes = self.axes_in(replace(hbm, dims=dims), output)
        result = self.new(f"{einsum.name.lower()}_out", hbm.buffer.dtype, axes=axes)
        tile.into(value, self.arranged(result, axes, einsum.reduced))
        kinds = [dim for dim, i in zip(dims, at, strict=True) if isinstance(i, Cut) for _ in i.axes]
        order = tuple(sorted(range(len(kinds)), key=lambda n: kinds[n] != "part"))
        self.ctx.build.add(nodes.Store(View(hbm.buffer, tuple(at), order=order), result))
        hbm.changed()

    def new_sum(self, einsum: Einsum, hint: str) -> View:
        """A place of its own for a sum, or for the largest of some values: that is one of them."""
        is_one = not einsum.map_op and einsum.reduce_op != "add" and self.targets[einsum.name].tile is None
        is_read = is_one and einsum.reads[0] in self.ctx.cascade.inputs
        dtype = self.ctx.dtypes[einsum.reads[0]] if is_read else "float32"
        return self.new(hint, dtype, without=einsum.reduced)

    def summed(self, one: Partial, value: Value, tile: Tile) -> None:
        """Take one tile into a sum."""
        einsum = one.einsum
        if one.is_taken:
            return
        inside = [v for v in self.planes.axes if v in einsum.reduced]
        if not inside:
            wide = tile.widened(value) if value.is_scalar else value
            total = wide if one.is_single else tile.node(einsum.reduce_op, (Value(view=one.into), wide))
            tile.into(total, one.into)
        else:
            view = tile.view(tile.widened(value) if value.is_scalar else value)
            part = one.into if one.is_single else self.new("partial", without=einsum.reduced)
            op = OPERATORS[einsum.reduce_op].alu
            self.ctx.build.add(nodes.Reduce(part, op, self.inside_last(view, inside), len(inside)))
            if not one.is_single:
                self.ctx.build.add(nodes.Combine(one.into, one.into, op, part))
        self.tally(one, one.into)

    def inside_last(self, view: View, inside: Sequence[str]) -> View:
        """A tile with the axes that are summed over behind the others."""
        axes = self.planes.axes
        places = [*range(1, 1 + len(axes))]
        kept, summed = (
            [p for p, v in zip(places, axes, strict=True) if (v in inside) is side] for side in (False, True)
        )
        if [*kept, *summed] == places:
            return view
        before = view.order or (0, *places)
        return replace(view, order=tuple(before[n] for n in (0, *kept, *summed)))

    def finished(self, one: Partial, free: str) -> None:
        """Deliver a sum."""
        einsum, target = one.einsum, self.targets[one.einsum.name]
        kept = [v for v in self.planes.axes if v not in einsum.reduced]
        if len(kept) < 2:
            deliver(self.ctx, einsum, one.into, self.spans, self.choice.part, kept[0] if kept else "", target)
            return
        tile = Tile(self.ctx, self.new, self.new_column)
        if target.tile is not None:
            tile.into(Value(view=one.into), self.place_in(target, einsum))
            target.tile.changed()
        if target.hbm is not None:
            self.store(einsum, Value(view=one.into), target.hbm, tile)
