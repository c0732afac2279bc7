"""Blocks whose turns read neighbours of their state: it stays on chip, with a halo around it.

A partition has rows of the first axis that lie side by side, so that most neighbours along it, and all along
the other axes, are elsewhere in its own tile. Around these lie zeros, and beside the first and last rows
those of the partitions beside it, which come there by DMA once a turn has written them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from ...machine import Machine
from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Iterate, Kind, Operand, Scalar
from ..plan.context import Context
from ..plan.values import Tile, Value
from ..tree import nodes
from ..tree.expr import Expr, expr
from ..tree.nodes import SBUF, Buffer, Cut, View, all_of, upto
from ..tree.rewrite import Change, copied

# axes of a state at most, part of the room on chip that its tiles take, bytes of their elements
MOST_AXES, SHARE, WIDE = 3, 0.8, 4
# tiles of values on the way, elements of a lane from which more lanes are wanted
MORE_TILES, LEAST_EACH = 4, 64
# parts in which instructions go through the elements of a turn, the best first
PARTS = (4, 3, 2, 5, 6, 7)

Edges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Stencil:
    """A block that is one."""

    block: Iterate
    body: tuple[Einsum, ...]  # what a turn computes that something reads
    sizes: tuple[int, ...]  # of the axes: on the partitions, of a partition, and of the others
    # of each tensor that has a tile: how far it is read beyond its elements, before and behind them, by axis
    edges: Mapping[str, Edges]
    carried: frozenset[str]  # tensors that a turn reads before it writes them
    begun: Mapping[str, str]  # tensors that they begin with
    results: tuple[tuple[str, str], ...]  # tensors that last states go to, with these
    copies: tuple[Einsum, ...]  # Einsums outside of the block that say so

    @property
    def tensors(self) -> set[str]:
        """What it reads and writes."""
        return {t for e in self.body for t in (e.name, *e.reads)} | {e.name for e in self.copies}


def stencils_in(cascade: Cascade, machine: Machine) -> list[Stencil]:
    """Blocks, without the iterated rank, whose turns read neighbours of a state; every rank has an extent."""
    sizes = (int(machine["partitions"]), int(machine["sbuf_bytes_per_partition"]))
    return [s for block in cascade.blocks if (s := _stencil(block, cascade, *sizes)) is not None]


def with_whole_operands(cascade: Cascade, machine: Machine) -> Cascade:
    """The cascade whose blocks are stencils where repeating makes them so what turns read of fewer ranks."""
    for number in range(len(cascade.blocks)):
        wide = _repeated(cascade, cascade.blocks[number])
        if len(stencils_in(wide, machine)) > len(stencils_in(cascade, machine)):
            cascade = wide
    return cascade


def _repeated(cascade: Cascade, block: Iterate) -> Cascade:
    """The cascade with all ranks of a block's last result in what its turns read of other tensors."""
    added, copies, own = Additions(cascade), dict[Access, Einsum](), {e.name for e in block.body}
    result = block.body[-1].output

    def wide(access: Access) -> Access:
        names = [i.plain for i in access.indices]
        is_part = all(names) and len({*names}) == len(names) < len({*names} | {*result.variables})
        if access.tensor in own or not is_part or not {*names} <= {*result.variables}:
            return access
        if access not in copies:
            name = added.tensor(
                f"{access.tensor}_repeated", added.tensors[result.tensor].ranks, access.tensor, Kind.REPEATED
            )
            copies[access] = Einsum(replace(result, tensor=name), (access,), place=block.place)
        return copies[access].output

    inner, place = replace(block, body=tuple(e.reading(wide) for e in block.body)), cascade.steps.index(block)
    return added.applied((*cascade.steps[:place], *copies.values(), inner, *cascade.steps[place + 1 :]))


def _stencil(block: Iterate, cascade: Cascade, lanes: int, room: int) -> Stencil | None:
    """A block as a stencil on a chip of so many partitions and bytes of each; None if it is none."""
    place = cascade.steps.index(block)
    before, behind = cascade.steps[:place], cascade.steps[place + 1 :]
    later = {t for s in behind for e in s.body for t in e.reads} | {*cascade.outputs}
    body = tuple(e for e in block.body if e.name in later or any(e.name in o.reads for o in block.body))
    variables, own = body[-1].output.variables if body else (), {e.name for e in body}
    if not 0 < len(variables) <= MOST_AXES or not all(_is_pointwise(e, variables, own) for e in body):
        return None
    shape = tuple(cascade.extent(v, body[-1]) for v in variables)
    names = [e.name for e in body]
    carried = {t for n, e in enumerate(body) for t in e.reads if t in own and t not in names[:n]}
    edges, read = _edges(body, carried | (own & later)), own | {t for e in body for t in e.reads}
    rows = max(n for n in range(1, lanes + 1) if shape[0] % n == 0)
    sizes = (rows, shape[0] // rows, *shape[1:])
    most = [
        tuple(max(e[axis][side] for e in edges.values()) for side in (0, 1)) for axis in range(len(shape))
    ]
    each = prod(n + sum(edge) for n, edge in zip(sizes[1:], most, strict=True))
    is_full = rows * 2 > min(lanes, prod(shape) // LEAST_EACH)
    is_small = each * (len(edges) + len(read - own) + MORE_TILES) * WIDE <= room * SHARE
    has_edges = any(map(any, most)) and max(most[0]) <= sizes[1]
    if not (has_edges and is_full and is_small) or any(cascade.shape(t) != shape for t in read):
        return None
    begins = [s for s in before if isinstance(s, Einsum) and s.name in carried and _is_copy(s, cascade)]
    begins = [s for s in begins if sum(s.name in {e.name for e in o.body} for o in before) == 1]
    ends = [s for s in behind if isinstance(s, Einsum) and s.reads[:1] and s.reads[0] in edges]
    ends = [s for s in ends if _is_copy(s, cascade) and s.name not in cascade.views]
    others = {t for s in behind if s not in ends for e in s.body for t in e.reads} | {*cascade.outputs}
    results = [(s.name, s.reads[0]) for s in ends] + [(t, t) for t in edges if t in others]
    begun, copies = {s.name: s.reads[0] for s in begins}, (*begins, *ends)
    return Stencil(block, body, sizes, edges, frozenset(carried), begun, tuple(results), copies)


def _is_pointwise(einsum: Einsum, variables: Sequence[str], own: set[str]) -> bool:
    """Whether an Einsum computes elements of others at their place, and of what the block writes near it."""
    plain = [Affine(((v, 1),)) for v in variables]

    def is_near(access: Access) -> bool:
        indices = [i for i in access.indices if isinstance(i, Affine)]
        known = [Affine(i.terms) for i in indices] if access.tensor in own else indices
        return known == plain and len(indices) == len(access.indices)

    is_plain = not (einsum.reduced or einsum.reduce_op or einsum.is_placed)
    return is_plain and [*einsum.output.indices] == plain and all(map(is_near, einsum.accesses))


def _is_copy(einsum: Einsum, cascade: Cascade) -> bool:
    """Whether an Einsum is a copy of a whole tensor."""
    is_plain = not (einsum.map_op or einsum.reduced or einsum.is_placed) and len(einsum.accesses) == 1
    if not is_plain or einsum.output.indices != einsum.accesses[0].indices:
        return False
    return all(i.plain for i in einsum.output.indices) and (
        cascade.shape(einsum.name) == cascade.shape(einsum.reads[0])
    )


def _edges(body: Sequence[Einsum], kept: set[str]) -> dict[str, Edges]:
    """How far tensors are read beyond their elements: those that are kept, and those that neighbours read."""
    edges, own = dict[str, Edges](), {e.name for e in body}
    for access in (a for e in body for a in e.every_access if a.tensor in own):
        known = edges.get(access.tensor, ((0, 0),) * len(access.indices))
        pairs = zip(known, access.affine, strict=True)
        edges[access.tensor] = tuple((max(a, -i.constant), max(b, i.constant)) for (a, b), i in pairs)
    return {name: edge for name, edge in edges.items() if name in kept or any(map(any, edge))}


def _part(view: View, axis: int, start: Expr, count: Expr) -> View:
    """A part of what a view has along an axis."""
    cut = view.index[axis]
    assert isinstance(cut, Cut)
    return replace(view, index=(*view.index[:axis], Cut(cut.start + start, count), *view.index[axis + 1 :]))


class StencilNest:
    """Lowers one.

    Args:
        ctx: the plan.
        stencil: the block.
    """

    def __init__(self, ctx: Context, stencil: Stencil) -> None:
        self.ctx, self.stencil, self.body = ctx, stencil, stencil.body
        self.tiles: dict[str, Buffer] = {}
        self.values: dict[str, Value] = {}

    def lower(self) -> None:
        """Append the nest."""
        ctx, stencil, turn = self.ctx, self.stencil, self.stencil.block.variable
        own = {e.name for e in self.body}
        ctx.choices.append(f"{', '.join(stencil.edges)}: on chip over all turns, with a halo")
        others = dict.fromkeys(t for e in self.body for t in e.reads if t not in own)
        for tensor in (*stencil.edges, *others):
            self.begin(tensor)
        turns = ctx.cascade.sizes[turn.upper()]
        with ctx.build.tiles(turn, turns, 1, is_sequential=True, comment=f"turns of {turn}", over=turn):
            self.values, tile = {}, Tile(ctx, self.new, self.new)
            for number, einsum in enumerate(self.body):
                self.compute(number, einsum, tile)
            self.in_parts(ctx.build.scopes[-1].body)
        for tensor, state in stencil.results:
            self.end(tensor, state)

    # places

    def edges(self, tensor: str) -> Edges:
        """How far a tensor is read beyond its elements."""
        return self.stencil.edges.get(tensor, ((0, 0),) * (len(self.stencil.sizes) - 1))

    def new(self, hint: str) -> View:
        """A new tile without edges."""
        return all_of(self.ctx.build.buffer(hint, self.stencil.sizes, "float32", SBUF))

    def view(self, tensor: str, moved: Sequence[int]) -> View:
        """The elements of a tensor so far from their places, by axis."""
        own = zip(self.stencil.sizes[1:], self.edges(tensor), moved, strict=True)
        cuts = (Cut(expr(before + by), expr(size)) for size, (before, _), by in own)
        return View(self.tiles[tensor], (upto(self.stencil.sizes[0]), *cuts))

    def inner(self, tensor: str) -> View:
        """The elements of a tensor at their places."""
        return self.view(tensor, [0] * (len(self.stencil.sizes) - 1))

    def in_hbm(self, tensor: str) -> View:
        """A tensor in HBM with its rows as they lie on partitions."""
        ctx = self.ctx
        source = ctx.hbm(tensor) or ctx.add_hbm(tensor, "scratch")
        base = source.buffer.root
        name = ctx.build.fresh(f"{tensor.lower()}_rows")
        with ctx.build.hoisted(0):
            view = ctx.build.allocated(replace(base, name=name, shape=self.stencil.sizes, base=base))
        return all_of(view)

    def begin(self, tensor: str) -> None:
        """Make the tile of a tensor, with what it begins with and zeros around it."""
        build, source = self.ctx.build, self.stencil.begun.get(tensor, tensor)
        extents = (n + sum(e) for n, e in zip(self.stencil.sizes[1:], self.edges(tensor), strict=True))
        shape = (self.stencil.sizes[0], *extents)
        self.tiles[tensor] = build.buffer(f"{tensor.lower()}_tile", shape, "float32", SBUF)
        if any(map(any, self.edges(tensor))):
            build.add(nodes.Fill(all_of(self.tiles[tensor]), 0.0))
        if tensor in {e.name for e in self.body} - self.stencil.carried:
            return
        src, dst = self.in_hbm(source), self.inner(tensor)
        narrow = self.narrow(tensor, src)
        build.add(nodes.Load(narrow or dst, src))
        if narrow is not None:
            build.add(nodes.Copy(dst, narrow))
        self.exchange(tensor)

    def end(self, tensor: str, state: str) -> None:
        """Store the last state."""
        build, dst, src = self.ctx.build, self.in_hbm(tensor), self.inner(state)
        narrow = self.narrow(tensor, dst)
        if narrow is not None:
            build.add(nodes.Copy(narrow, src))
        build.add(nodes.Store(dst, narrow or src))
        for storage in self.ctx.storages[tensor]:
            storage.changed()

    def narrow(self, tensor: str, hbm: View) -> View | None:
        """A new tile of the type that a tensor has in HBM, if that is another."""
        hint, dtype = f"{tensor.lower()}_rows", hbm.buffer.dtype
        if dtype == "float32":
            return None
        return all_of(self.ctx.build.buffer(hint, self.stencil.sizes, dtype, SBUF))

    # turns

    def compute(self, number: int, einsum: Einsum, tile: Tile) -> None:
        """The value of an Einsum; written at once where it has a tile."""
        operands = [self.operand(o) for o in einsum.operands]
        value = tile.operator(einsum.map_op, operands) if einsum.map_op else operands[0]
        if einsum.name in self.tiles:
            self.write(number, einsum.name, value, tile)
            return
        readers = sum(e.reads.count(einsum.name) for e in self.body[number + 1 :])
        value.uses += max(readers - 1, 0)
        if value.is_pending_op:
            value.place = partial(self.new, f"{einsum.name.lower()}_values")
        self.values[einsum.name] = value

    def operand(self, operand: Operand) -> Value:
        """An operand: elements of a tile near their places, a value of this turn, or a number."""
        if not isinstance(operand, Access):
            assert isinstance(operand, Scalar)
            return Value(number=self.ctx.number(operand))
        if operand.tensor in self.values:
            return self.values[operand.tensor]
        return Value(view=self.view(operand.tensor, [i.constant for i in operand.affine]))

    def write(self, number: int, name: str, value: Value, tile: Tile) -> None:
        """Write a value to its tile, once all is computed that reads what lies there elsewhere."""
        own, dst = self.tiles[name], self.inner(name)

        def reads(one: Value, *, is_elsewhere: bool) -> bool:
            views = [v.view for v in one.of if v.view is not None and v.view.buffer is own]
            return any(v != dst or not is_elsewhere for v in views)

        for one in (value, *value.inside(is_pending=True)):
            if one.is_pending_op and reads(one, is_elsewhere=True):
                tile.view(one)
        later = {t for e in self.body[number + 1 :] for t in e.reads}
        for other in (self.values[t] for t in sorted(later & self.values.keys())):
            every = (other, *other.inside(is_pending=True))
            if other.is_pending_op and any(
                reads(one, is_elsewhere=False) for one in every if one.is_pending_op
            ):
                tile.view(other)
            elif other.view is not None and other.view.buffer is own:
                tile.into(other, copied := self.new(f"{name.lower()}_before"))
                other.view = copied
        tile.into(value, dst)
        self.exchange(name)

    def in_parts(self, body: list[nodes.Statement]) -> None:
        """Have instructions of a turn go through its elements part by part, so that engines share them."""
        wide = [axis for axis, n in enumerate(self.stencil.sizes) if axis and n > 1]
        ways = [(axis, n) for axis in wide for n in PARTS if self.stencil.sizes[axis] % n == 0]
        statements, body[:] = list(body), []
        for statement in statements:
            if not ways or isinstance(statement, nodes.Alloc | nodes.Move):
                body.append(statement)
                continue
            axis, parts = ways[0]
            with self.ctx.build.loop("part", parts) as part:
                each = self.stencil.sizes[axis] // parts
                change = Change({}, partial(_part, axis=axis, start=part * each, count=expr(each)), {})
                self.ctx.build.scopes[-1].body += copied([statement], change)

    def exchange(self, tensor: str) -> None:
        """Bring the first and last rows of partitions beside the rows of those next to them."""
        (before, behind), (rows, each) = self.edges(tensor)[0], self.stencil.sizes[:2]
        buffer = self.tiles[tensor]
        rest = [upto(n) for n in buffer.shape[2:]]
        # from which row on, to which, how many; whether partitions take them of the one before
        ways = [(each, 0, before, True), (before, before + each, behind, False)]
        for source, place, count, is_down in ways:
            if not count or rows == 1:
                continue
            first, second = (Cut(expr(n), expr(rows - 1)) for n in (0, 1))
            src, dst = (first, second) if is_down else (second, first)
            own, to = (Cut(expr(n), expr(count)) for n in (source, place))
            self.ctx.build.add(nodes.Move(View(buffer, (dst, to, *rest)), View(buffer, (src, own, *rest))))
