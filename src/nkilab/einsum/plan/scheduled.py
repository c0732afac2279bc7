"""Einsums in the loops that a mapping gives: each loop once, tiles where makers and readers are together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile

from ...errors import UnsupportedError
from ..language.ast import Cascade, Einsum
from ..language.operators import OPERATORS
from ..tree import nodes
from ..tree.expr import ZERO, expr
from ..tree.nodes import PSUM, At, Cut, View, all_of
from .build import Span, whole
from .context import Context
from .deliver import targets_of
from .given import Turn
from .groups import Group
from .homes import Homes
from .storage import Storage, positions

# what loops chose of the variables of each Einsum
Chosen = Mapping[str, dict[str, Span]]
LOADS = ("Load", "BroadcastTo")


class Scheduled:
    """Opens the loops of a mapping and has the Einsums in them planned.

    Args:
        lower_run: lowers consecutive Einsums, given what loops chose and what is read behind them.
    """

    def __init__(
        self, ctx: Context, homes: Homes,
        lower_run: Callable[[Sequence[Einsum], dict[str, Span], set[str]], None],
    ) -> None:  # fmt: skip
        self.ctx, self.homes, self.lower_run = ctx, homes, lower_run
        self.cascade: Cascade = ctx.cascade
        self.einsums = {e.name: e for e in ctx.cascade.einsums}
        self.depths = {name: self.depth_of(name) for name in self.einsums}

    def lower(self) -> list[Group]:
        """Append all Einsums; returns the groups that are left, none."""
        ctx, mapping = self.ctx, self.ctx.given
        self.homes.settle_homes(Group(self.cascade.steps, ()), True, {})
        for name in self.einsums:
            ctx.homes[name] = "hbm" if mapping.instruction(name) == "Store" else "chip"
        for name, memory in mapping.memories.items():
            ctx.memories.pop(name, None)
            ctx.memories |= {name: PSUM} if memory == PSUM else {}
        self.emit([*self.einsums], 0, {name: {} for name in self.einsums})
        return []

    def nest(self, name: str) -> tuple[Turn, ...]:
        """The loops around an Einsum."""
        return self.ctx.given.nests.get(name, ())

    def depth_of(self, name: str) -> int:
        """How many loops stand around the tile of a result: those that all its readers are in, too."""
        numbers = [t.number for t in self.nest(name)]
        depths = [len(numbers), self.ctx.given.depths.get(name, len(numbers))]
        for reader in (e.name for e in self.cascade.einsums if name in e.reads):
            pairs = zip(numbers, (t.number for t in self.nest(reader)))
            depths.append(len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))))
        return min(depths)

    def emit(self, names: Sequence[str], depth: int, chosen: Chosen) -> None:
        """Statements and loops of Einsums at a depth, in order; those with the same next loop share it."""
        run: list[str] = []
        for together in self.in_turns(names, depth):
            if len(self.nest(together[0])) == depth:
                run += together
                continue
            self.flush(run, chosen)
            run = []
            for name in (n for n in together if self.depths[n] == depth):
                self.place(self.einsums[name], chosen[name])
            with self.opened(together, depth, chosen) as inner:
                self.emit(together, depth + 1, inner)
        self.flush(run, chosen)

    def in_turns(self, names: Sequence[str], depth: int) -> Iterator[list[str]]:
        """Einsums at a depth: those that share the next loop together, others one by one; makers first."""
        units: dict[object, list[str]] = {}
        for name in names:
            key = next((t.number for t in self.nest(name)[depth:]), name)
            units.setdefault(key, []).append(name)
        left = list(units.values())
        while left:
            ready = (u for u in left if not any(self.is_behind(u, v) for v in left if v is not u))
            unit = next(ready, None)
            if unit is None:
                problem = f"the loops of {' and '.join(u[0] for u in left)} wait for one another"
                raise self.einsums[left[0][0]].located(UnsupportedError(problem))
            left.remove(unit)
            yield unit

    def is_behind(self, names: Sequence[str], others: Sequence[str]) -> bool:
        """Whether some Einsums read what others make."""
        return any(t in others for n in names for t in self.einsums[n].reads)

    @contextmanager
    def opened(self, names: Sequence[str], depth: int, chosen: Chosen) -> Iterator[Chosen]:
        """A loop that Einsums share; yields what it and those around it chose."""
        ctx, first = self.ctx, names[0]
        turns = {name: self.nest(name)[depth] for name in names}
        spans = {n: ctx.spans(self.einsums[n], chosen[n])[t.variable] for n, t in turns.items()}
        is_carried = any(t.variable in self.einsums[n].reduced for n, t in turns.items())
        assert len({span.most for span in spans.values()}) == 1, f"ranks of one loop differ: {turns}"
        with ctx.build.tiles(
            turns[first].name, spans[first], turns[first].block, is_sequential=is_carried,
            over=turns[first].variable,
        ) as local:  # fmt: skip
            inner = {n: {**chosen[n], t.variable: spans[n].tile(local)} for n, t in turns.items()}
            yield {**chosen, **inner}

    def place(self, einsum: Einsum, outer: dict[str, Span]) -> None:
        """Make the tile of a result before the loops in which it is written, and begin its sum."""
        ctx, name = self.ctx, einsum.name
        if "chip" not in ctx.homes[name] or ctx.chip(name) is not None:
            return
        wide = [v for v in einsum.output.variables if v not in outer or not outer[v].is_point]
        side = ctx.given.sides.get(name, ctx.wanted.get(name, "") or None)
        widest = max(wide, key=lambda v: ctx.cascade.extent(v, einsum), default="")
        part = side if side is not None and side in (*wide, "") else widest
        carried = {t.variable for t in self.nest(name)} & {*einsum.reduced}
        if carried and ctx.memories.get(name) != PSUM:
            ctx.chip_dtypes[name] = "float32"
        tile = targets_of(ctx, einsum, outer, part).tile
        if tile is not None and carried and ctx.memories.get(name) != PSUM:
            identity = float(OPERATORS[einsum.reduce_op].identity or 0.0)
            ctx.build.add(nodes.Fill(all_of(tile.buffer), identity))

    def flush(self, names: Sequence[str], chosen: Chosen) -> None:
        """Einsums whose loops are all open, one after the other."""
        later = {t for e in self.cascade.einsums if e.name not in names for t in e.reads}
        run: list[Einsum] = []
        spans: dict[str, Span] = {}
        for number, einsum in enumerate(self.einsums[n] for n in names):
            behind = later | {t for n in names[number:] for t in self.einsums[n].reads}
            is_load = self.ctx.given.instruction(einsum.name) in LOADS
            own = chosen[einsum.name]
            if is_load or any(spans.get(v, s) != s for v, s in own.items()):
                self.lower_all(run, spans, behind)
                run, spans = [], {}
            if is_load:
                self.place(einsum, own)
                self.load(einsum, self.ctx.spans(einsum, own))
            else:
                run.append(einsum)
                spans |= own
        self.lower_all(run, spans, later)

    def lower_all(self, run: Sequence[Einsum], spans: dict[str, Span], later: set[str]) -> None:
        """Have Einsums planned in the loops that are open."""
        for einsum in run:
            if {t.variable for t in self.nest(einsum.name)} & {*einsum.reduced}:
                self.place(einsum, {v: s for v, s in spans.items() if v in einsum.variables})
        if run:
            self.lower_run(run, spans, later)

    def load(self, einsum: Einsum, spans: dict[str, Span]) -> None:
        """Transfers of what loops leave of a copy of what lies in HBM: block of partitions by block."""
        ctx, access = self.ctx, einsum.accesses[0]
        tile, source = ctx.chip(einsum.name), ctx.hbm(access.tensor)
        assert tile is not None
        assert source is not None, f"{access.tensor} is loaded and is not in HBM"
        part = tile.part_variable(einsum.output)
        ctx.build.add(nodes.Comment(einsum.title))
        rows = spans[part] if part else whole(1)
        with ctx.build.pieces(part, rows, tile.lanes, over=part) as local:
            spans = {**spans, part: rows.tile(local)} if part else spans
            first = len(ctx.build.scopes[-1].body)
            ctx.build.add(self.transfer(einsum, spans, tile, source))
            own = tuple(ctx.build.scopes[-1].body[first:])
            ctx.build.note(einsum.name, spans, part, statements=own)
        tile.changed()

    def transfer(
        self, einsum: Einsum, spans: dict[str, Span], tile: Storage, source: Storage
    ) -> nodes.Statement:
        """One transfer: axes in HBM come in the order of the tile's."""
        access, part = einsum.accesses[0], tile.part_variable(einsum.output)
        dst, at = tile.view(positions(einsum.output, spans)), positions(access, spans)
        have = [i.plain for i, cut in zip(access.affine, at, strict=True) if isinstance(cut, Cut)]
        wide = [v for v in dict.fromkeys((part, *einsum.output.variables)) if v and not spans[v].is_point]
        repeat = spans[part].count if part in wide and part not in have else None
        axes = [v for v in wide if repeat is None or v != part]
        order = tuple(have.index(v) if v in have else spans[v].count for v in axes)
        index = tuple(at) or (At(ZERO),)
        if part not in wide:
            order = (0, *(n + 1 if isinstance(n, int) else n for n in order))
            index = (Cut(ZERO, expr(1)), *index)
        order = () if order == tuple(range(len(order))) else order
        return nodes.Load(dst, View(source.buffer, index, repeat=repeat, order=order))
