"""Element-wise and reducing Einsums over tiles with more axes than lanes and columns.

Where Einsums have further variables, one instruction goes through several of them: a tile is
[partitions, axes...]. An operand lies as it does in HBM; views of it put its axes in order, and repeat it
along those that it has not. Variables that share an index with another (`X[2*p + r]`) run one value at a time
over what is loaded once.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import prod

from ..language.ast import Access, Affine, Einsum, Index
from ..language.operators import OPERATORS
from ..plan.build import Span
from ..plan.choose import (
    BYTES_PER_NS,
    INSTRUCTION_NS,
    READS,
    ROW_NS,
    SMALL_ROW_BYTES,
    TRANSFER_NS,
    TURN_NS,
    Choice,
    Cluster,
    is_barred,
    sums_last,
    tiles_of_axes,
)
from ..plan.context import Context
from ..plan.deliver import Target, deliver, lies_right, targets_of
from ..plan.fetch import fetch
from ..plan.fold import Partial
from ..plan.nest import Nest
from ..plan.reach import MOST_STRIDE, leaving
from ..plan.stage import stage
from ..plan.storage import Storage, positions
from ..plan.values import Tile, Value
from ..plan.want import Want
from ..tree import nodes
from ..tree.expr import ZERO, Expr, expr
from ..tree.nodes import Cut, View

# axes of a tile behind the partitions, and elements of one on a partition
MOST_AXES, MOST_ELEMENTS = 3, 4096


@dataclass(frozen=True)
class Planes:
    """How Einsums run over tiles of several axes."""

    part: str  # the variable on the partitions
    axes: tuple[str, ...]  # variables of a tile behind them, the outermost first
    blocks: Mapping[str, int]  # elements of a turn, of every variable that a loop cuts
    # variables that run one value at a time over what all of their values have brought on chip
    single: frozenset[str]
    cost_ns: float  # what it was judged by


def planes_for(ctx: Context, einsums: Sequence[Einsum], spans: dict[str, Span]) -> Planes | None:
    """The cheapest way to run Einsums over the same variables in tiles of several axes; None if none does."""
    wide = [v for v in dict.fromkeys(v for e in einsums for v in e.variables) if not spans[v].is_point]
    accesses = [a for e in einsums for a in (e.output, *e.accesses)]
    is_watched = ctx.given.is_watched or any(ctx.given.instruction(e.name) for e in einsums)
    has_more = any(e.is_placed for e in einsums) or not all(map(_is_simple, accesses))
    is_plain = all(i.plain or not i.variables for a in accesses for i in a.indices)
    if len(wide) < (MOST_AXES if is_plain else 2) or is_watched or has_more:
        return None
    indices = [i for a in accesses for i in a.indices]
    shortest = sorted(indices, key=lambda i: sum(not spans[v].is_point for v in i.variables))
    reduced = {v for e in einsums for v in e.reduced}
    ways = {_single(order, spans, reduced) for order in (indices, shortest)}
    options = (_planes(ctx, einsums, spans, p, single) for single in sorted(ways, key=sorted) for p in wide)
    return min((p for p in options if p is not None), key=lambda p: p.cost_ns, default=None)


def _is_simple(access: Access) -> bool:
    """Whether all indices count upwards, and each variable stands in one alone."""
    indices = [i for i in access.indices if isinstance(i, Affine)]
    variables = [v for i in indices for v in i.variables]
    is_upwards = len(indices) == len(access.indices) and all(c > 0 for i in indices for _, c in i.terms)
    return is_upwards and len(set(variables)) == len(variables)


def _single(indices: Sequence[Index], spans: Mapping[str, Span], reduced: Container[str]) -> frozenset[str]:
    """Variables without which no index has two of several values: those of sums, and of few values."""
    single: set[str] = set()
    for index in indices:
        wide = [v for v in index.variables if not spans[v].is_point and v not in single]
        single |= set(sorted(wide, key=lambda v: (v not in reduced, spans[v].most))[:-1])
    return frozenset(single)


def _planes(
    ctx: Context, einsums: Sequence[Einsum], spans: dict[str, Span], part: str, single: frozenset[str]
) -> Planes | None:
    """The way with a variable on the partitions, if it can lie there."""
    reduced = {v for e in einsums for v in e.reduced}
    own = {e.name for e in einsums}
    outputs = [e.output for e in einsums if not e.reduced]
    read = [a for e in einsums for a in e.accesses if a.tensor not in own]
    behind = {t for e in ctx.cascade.einsums if e not in einsums for t in e.reads} | {*ctx.cascade.outputs}
    written = [e.output for e in einsums if "hbm" in ctx.homes.get(e.name, "hbm") and e.name in behind]
    is_whole = all(part in o.variables for o in outputs) and part not in reduced and part not in single
    is_whole &= not any(is_barred(ctx, e.output, part) for e in einsums)
    for einsum in (e for e in einsums if "chip" in ctx.homes.get(e.name, "hbm")):
        chip, output = ctx.chip(einsum.name), einsum.output
        plain = [i.plain for i in output.indices]
        is_whole &= part in plain if chip is None else chip.part_variable(output) == part
    is_whole &= all(_is_staged(ctx, a, spans, part) or _can_lie(ctx, a, spans, part) for a in read)
    if not is_whole or not all(_can_lie(ctx, a, spans, part) for a in written):
        return None
    natural = max((*read, *outputs), key=lambda a: len(a.variables)).variables
    every = tuple(dict.fromkeys((*natural, *(v for e in einsums for v in e.variables))))
    axes = [v for v in every if not spans[v].is_point and v not in single and v != part]
    axes = sums_last(einsums, (*read, *outputs), spans, axes)
    blocks = {v: 1 for v in every if v in single}
    if spans[part].most > ctx.lanes:
        blocks[part] = ctx.lanes
    moved = (*read, *written)
    parts = {str(o): prod(spans[v].most for v in o.variables if v in single) for o in written}
    each = {str(a): ctx.bytes_of(ctx.dtypes[a.tensor]) * parts.get(str(a), 1) for a in moved}
    bytes_of_all = 2 * (sum(each.values()) + 4 * len(einsums))
    room = max(1, min(MOST_ELEMENTS, int(ctx.room() * 0.8) // bytes_of_all))
    options = []
    for sizes in tiles_of_axes(axes, {v: spans[v].most for v in axes}, moved, room):
        tile = [v for v in axes if sizes.get(v) != 1][-MOST_AXES:]
        cut = {**blocks, **sizes, **{v: 1 for v in axes if v not in tile}}
        if any(spans[v].count.value is None for v in cut if v != part or spans[v].most > ctx.lanes):
            return None
        planes = Planes(part, tuple(tile), cut, single, 0.0)
        options.append(replace(planes, cost_ns=_cost(ctx, einsums, spans, planes, moved)))
    return min(options, key=lambda p: p.cost_ns)


def _can_lie(ctx: Context, access: Access, spans: dict[str, Span], part: str) -> bool:
    """Whether an operand or a result lies with a variable on the partitions, or comes there in long rows."""
    wide = [v for v in access.variables if not spans[v].is_point]
    chip = ctx.chip(access.tensor)
    if not wide:
        return True
    if chip is not None:
        is_right = chip.part_dim is not None and access.indices[chip.part_dim].plain == part
        return is_right or _is_turned(chip, access, spans, part)
    is_across = wide != [part] and part in access.indices[-1].variables
    return not is_across and not leaving(ctx, access, spans)


def _is_staged(ctx: Context, access: Access, spans: dict[str, Span], part: str) -> bool:
    """Whether an operand in HBM is transposed on its way, or has zeros around it."""
    wide = [v for v in access.variables if not spans[v].is_point]
    is_alone = [i.plain for i in access.affine if part in i.variables] == [part]
    is_across = is_alone and wide != [part] and access.indices[-1].plain == part
    return access.tensor in ctx.storages and is_alone and (is_across or bool(leaving(ctx, access, spans)))


def _is_turned(chip: Storage, access: Access, spans: dict[str, Span], part: str) -> bool:
    """Whether a small matrix on chip, its other axis on partitions, may be transposed for a nest."""
    wide = [v for v in access.variables if not spans[v].is_point]
    is_plain = all(i.plain for i in access.indices) and chip.part_dim is not None
    elements = prod(spans[v].most for v in wide)
    is_across = chip.part_variable(access) in wide
    return is_plain and is_across and part in wide and len(wide) == 2 and elements <= MOST_ELEMENTS * 8


def _cost(
    ctx: Context, einsums: Sequence[Einsum], spans: dict[str, Span], planes: Planes, moved: Sequence[Access]
) -> float:
    trips = {v: -(-spans[v].most // b) for v, b in planes.blocks.items()}
    elements = prod(min(spans[v].most, planes.blocks.get(v, spans[v].most)) for v in planes.axes)
    count = sum(max(1, len(e.operands) - 1 + bool(e.reduced)) for e in einsums)
    cost = prod(trips.values()) * count * (INSTRUCTION_NS + elements)
    for access in {str(a): a for a in moved if ctx.chip(a.tensor) is None}.values():
        size = ctx.bytes_of(ctx.dtypes[access.tensor])
        wide = [v for v in access.variables if not spans[v].is_point]
        total = prod(spans[v].most for v in wide) * size
        if planes.part not in wide:
            # every block of partitions has all of it, anew where loops inside take parts of it
            is_cut = any(trips.get(v, 1) > 1 and v not in planes.single for v in wide)
            total *= ctx.lanes * (trips.get(planes.part, 1) if is_cut else 1)
        if _is_staged(ctx, access, spans, planes.part):
            cost += total / BYTES_PER_NS + TURN_NS * total / size / ctx.lanes**2
            continue
        row = size * _run(access, spans, planes)
        cost += total / BYTES_PER_NS + (total / row * ROW_NS if row < SMALL_ROW_BYTES else 0.0)
        cost += prod(t for v, t in trips.items() if v in wide and v not in planes.single) * TRANSFER_NS
    return cost


def _run(access: Access, spans: dict[str, Span], planes: Planes) -> int:
    """Elements side by side of what a tile takes of an access."""
    run, cut = 1, {v: n for v, n in planes.blocks.items() if v not in planes.single}
    for index in reversed(access.indices):
        own = (v for v in index.variables if v != planes.part)
        run *= prod(min(spans[v].most, cut.get(v, spans[v].most)) for v in own)
        if planes.part in index.variables or any(v in planes.blocks for v in index.variables):
            break
    return run


@dataclass(frozen=True)
class _Axis:
    """What a nest moves along one axis of a tensor: where, whether to partitions, the most elements."""

    cut: Cut
    dim: str
    most: int


def _constants(accesses: Sequence[Access], number: int) -> tuple[int, int]:
    """The least and the greatest constant of an index."""
    constants = [i.constant for a in accesses if isinstance(i := a.indices[number], Affine)]
    return min(constants), max(constants)


def _whole(storage: Storage, axes: Sequence[_Axis], rows: Expr) -> View:
    """All of a tile that is moved."""
    counts = [a.cut.count for a in axes if a.dim == "free"] or [expr(1)]
    return View(storage.buffer, (Cut(ZERO, rows), *(Cut(ZERO, count) for count in counts)))


class PlaneNest(Nest):
    """Lowers one cluster over tiles of several axes.

    Args:
        ctx: the plan.
        cluster: what it computes.
        outer: spans that loops around it have chosen.
        planes: how.
    """

    def __init__(self, ctx: Context, cluster: Cluster, outer: dict[str, Span], planes: Planes) -> None:
        super().__init__(ctx, cluster, outer, Choice(planes.part, "", tuple(planes.blocks), planes.blocks))
        self.planes, self.base, self.copies = planes, dict(self.spans), 1
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

    def new(self, hint: str, dtype: str = "float32", without: Sequence[str] = ()) -> View:
        """A tile, without some of its axes."""
        axes = [self.spans[v] for v in self.planes.axes if v not in without] or [Span(ZERO, expr(1), 1)]
        shape = (self.rows.most, *(s.most for s in axes))
        made = self.ctx.build.buffer(hint, shape, dtype, nodes.SBUF)
        return View(made, (Cut(ZERO, self.rows.count), *(Cut(ZERO, s.count) for s in axes)))

    def fetched(self, operand: Access) -> Value:
        """An operand that no Einsum of the cluster computes."""
        if all(self.base[v].is_point for v in operand.variables):
            return Value(view=fetch(self.ctx, Want(operand, self.spans, self.choice.part)), is_column=True)
        ctx, part, storage = self.ctx, self.choice.part, self.ctx.chip(operand.tensor)
        if storage is None and not _is_staged(ctx, operand, self.base, part):
            storage = self.loaded(operand)
        elif storage is None or part != storage.part_variable(operand):
            turns = self.base if storage else {v: self.base[v] for v in self.planes.single}
            spans = {**self.spans, **turns, part: self.rows}
            is_number = not {*self.planes.axes} & {*operand.variables}
            dtype = "float32" if is_number else ctx.dtypes[operand.tensor]  # numbers of partitions are
            storage = stage(ctx, operand, spans, part, dtype)
        axes = self.axes_in(storage, operand)
        view = self.arranged(self.side_by_side(self.rows_in(storage, operand), axes), axes)
        return Value(view=view, is_column=not axes)

    def side_by_side(self, view: View, axes: list[str]) -> View:
        """A view [partitions, axes...]; in the order of the tile, by a copy, where it is read many times."""
        order = [v for v in self.planes.axes if v in axes]
        repeated = [self.spans[v].most for v in self.planes.axes if v not in axes]
        if order[-1:] == axes[-1:] or prod(repeated) < READS:
            return view
        copy = self.new(
            "neighbours", view.buffer.dtype, without=[v for v in self.planes.axes if v not in axes]
        )
        self.ctx.build.add(nodes.Copy(copy, replace(view, order=(0, *(1 + axes.index(v) for v in order)))))
        axes[:] = order
        return copy

    def axes_in(self, storage: Storage, access: Access) -> list[str]:
        """Variables along the free axes of a part of a tensor, in its order."""
        axes = (i for i, dim in zip(access.indices, storage.dims, strict=True) if dim == "free")
        return [v for i in axes for v in i.variables if not self.spans[v].is_point]

    def rows_in(self, storage: Storage, access: Access) -> View:
        """A part of a tile on chip, whose partitions are those of the nest."""
        view = storage.view(positions(access, self.spans))
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

    def loaded(self, access: Access) -> Storage:
        """An operand of HBM on chip, with all that variables of one value at a time want of it."""
        ctx, source = self.ctx, next(s for s in self.ctx.storage_of(access) if s.is_hbm)
        like = [a for e in self.cluster.einsums for a in e.accesses if self.is_beside(a, access)]
        axes = [self.axis(access, n, *_constants(like, n)) for n in range(len(access.indices))]
        names = frozenset[str]().union(*(nodes.names_in([a.cut]) for a in axes))
        depth = max(ctx.build.depth_of(names), source.depth)
        key = ("loaded", access.tensor, tuple(axes), self.rows.most, source.version)
        cache = ctx.build.scopes[depth].cache
        if key not in cache:
            with ctx.build.hoisted(depth):
                has_part = any(a.dim == "part" for a in axes)
                rows = self.rows.count if has_part else expr(self.rows.most)
                cache[key] = self.block(f"{access.tensor.lower()}_block", axes, source.buffer.dtype)
                dst = _whole(cache[key], axes, rows)
                src = self.in_hbm(source, axes, None if has_part else rows)
                ctx.build.add(nodes.Load(dst, src))
        made: Storage = cache[key]
        return made

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
        spans = {**self.spans, **{v: self.base[v] for v in self.planes.single if not is_exact}}
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
        value = self.widened(value, tile) if value.is_scalar else value
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
        return self.arranged(self.rows_in(storage, einsum.output), axes, einsum.reduced)

    def store(self, einsum: Einsum, value: Value, hbm: Storage, tile: Tile) -> None:
        """Store a value, and all that is written beside it, by way of a tile with the axes of HBM."""
        output, numbers = einsum.output, range(len(einsum.output.indices))
        writers = [e for e in self.cluster.einsums if self.is_beside(e.output, output)]
        axes = [self.axis(output, n, *_constants([e.output for e in writers], n)) for n in numbers]
        elements = prod(a.most for a in axes if a.dim == "free")
        parts = {v for v in output.variables if v in self.planes.single and not self.base[v].is_point}
        spans = {**self.spans, **{v: self.base[v] for v in parts}}
        if elements != prod(spans[v].most for v in output.variables if v != self.choice.part) * len(writers):
            writers, parts = [einsum], set()
            axes = [self.axis(output, n, *_constants([output], n), is_exact=True) for n in numbers]
        if writers[0] is einsum:
            with self.ctx.build.hoisted(self.depth if parts else self.ctx.build.depth):
                self.results[einsum.name] = self.block(f"{einsum.name.lower()}_out", axes, hbm.buffer.dtype)
        made = self.results[einsum.name]
        tile.into(
            value, self.arranged(self.rows_in(made, output), self.axes_in(made, output), einsum.reduced)
        )
        if writers[-1] is einsum:
            store = nodes.Store(self.in_hbm(hbm, axes), _whole(made, axes, self.rows.count))
            if parts:
                self.whole.append((store, hbm))
                return
            self.ctx.build.add(store)
            hbm.changed()

    def sum_along(self, einsum: Einsum, value: Value, sums: list[Partial], tile: Tile) -> None:
        """No instruction sums a part of the axes of a tile that it computes."""

    def new_sum(self, einsum: Einsum, hint: str) -> View:
        """A place of its own for a sum, or for the largest of some values: that is one of them."""
        is_one = not einsum.map_op and einsum.reduce_op != "add" and self.targets[einsum.name].tile is None
        is_read = is_one and einsum.reads[0] in self.ctx.cascade.inputs
        dtype = self.ctx.dtypes[einsum.reads[0]] if is_read else "float32"
        return self.new(hint, dtype, without=einsum.reduced)

    def summed(self, one: Partial, value: Value, tile: Tile) -> None:
        """Take one tile into a sum."""
        einsum = one.einsum
        inside = [v for v in self.planes.axes if v in einsum.reduced]
        if not inside:
            wide = self.widened(value, tile) if value.is_scalar else value
            total = wide if one.is_single else tile.node(einsum.reduce_op, (Value(view=one.into), wide))
            tile.into(total, one.into)
        else:
            view = tile.view(self.widened(value, tile) if value.is_scalar else value)
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
