"""Columns that comparisons of indices rule out: what of a loop may do without them, and which they are.

In an iteration whole columns of a tile may fail the comparison of a `Select` on every partition. Where its
readers would make of its other number what changes no result (a sum of zeros, a maximum with what stands for
minus infinity), loops over columns end earlier or begin later, and views are cut (`shortened.py`). The
comparison stays where it decides. That what is left out fails it is proved (`Select.left`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import inf

from ..room import views_of
from ..tree import nodes
from ..tree.along import Along, floored, partners
from ..tree.expr import ZERO, Expr, at_most, expr
from ..tree.neutral import reducer, summed, value_of
from ..tree.nodes import Cut, Loop, Select, Statement, Tally, View

MIRRORED = {">=": "<=", ">": "<"}
RESULTS = ("dst", "total")


class Unfit(Exception):
    """A loop has something of which it is not known how to do less."""


@dataclass(frozen=True)
class Bound:
    """Up to where, or from where on, a comparison keeps positions."""

    is_end: bool  # whether it is the first position behind those that are kept, not the first of them
    # any, all: it, for what is kept on some partition, and for what is kept on all
    any: Expr
    all: Expr
    rows: tuple[Expr, Expr]  # it on the first and on the last partition
    is_zero: bool  # whether zero stands elsewhere


# what is kept: where all comparisons of one way hold, or all of another
Ways = tuple[tuple[Bound, ...], ...]


class Mask:
    """A loop whose iterations have columns that comparisons rule out."""

    def __init__(self, kernel: nodes.Kernel, loop: Loop, around: tuple[Loop, ...], lanes: int) -> None:
        self.loop, self.lanes, self.outer = loop, lanes, (*around, loop)
        self.names = {e.variable for e in self.outer}
        allocs = [(s, loops) for s, loops in nodes.walked(kernel.body) if isinstance(s, nodes.Alloc)]
        self.known_in = {id(s.buffer): frozenset(e.variable for e in loops) for s, loops in allocs}
        self.local = {id(s.buffer) for s, loops in allocs if any(e is loop for e in loops)}
        skipped = nodes.Alloc | nodes.Comment | Tally | Loop
        self.every = [(s, loops) for s, loops in nodes.walked(loop.body) if not isinstance(s, skipped)]
        self.where = self.first_columns()
        while any(self.is_spread_by(s) for s, _ in self.every):
            pass
        self.values = self.values_left_out()
        self.shorter = self.cut_in_part()
        self.extent, self.kept = self.compared()
        self.low, self.high = self.ends()

    # what goes along with the columns

    def first_columns(self) -> dict[int, Along]:
        """The columns of the first comparison that the loop decides."""
        selects = (s for s, _ in self.every if isinstance(s, Select) and id(s.dst.buffer) in self.local)
        for s in (s for s in selects if self.loop.variable in s.offset.names):
            columns = [n for n, i in enumerate(s.dst.index) if n and isinstance(i, Cut) and i.step == 1]
            if columns:
                return {id(s.dst.buffer): Along(columns[-1], 0, ZERO)}
        raise Unfit

    def is_spread_by(self, s: Statement) -> bool:
        """Whether a statement tells where columns lie in a further operand."""
        size = len(self.where)
        tiles = [(n, v) for n, v in views_of(s) if id(v.buffer) in self.local & self.where.keys()]
        pairs = (p for n, v in tiles for p in partners(s, n, self.where[id(v.buffer)], v))
        for other, options in pairs:
            buffer = id(getattr(s, other).buffer)
            home = self.known_in.get(buffer, frozenset())
            place = next((o for o in options if o.base.names <= home), None)
            if place is None or self.where.setdefault(buffer, place) != place:
                raise Unfit
        return len(self.where) > size

    def positions(self, s: Statement) -> dict[str, tuple[View, Along]]:
        """The operands of a statement that go along, if some of them are cut."""
        views = dict(views_of(s))
        if not any(id(v.buffer) in self.shorter for v in views.values()):
            return {}
        return {n: (v, self.where[id(v.buffer)]) for n, v in views.items() if id(v.buffer) in self.where}

    # what may be left out

    def values_left_out(self) -> dict[tuple[int, str], float | None]:
        """What operands would be where all columns are ruled out; None if that is not known."""
        now: dict[int, float | None] = {}
        values: dict[tuple[int, str], float | None] = {}
        for s, _ in self.every:
            operands = {name: now.get(id(view.buffer)) for name, view in views_of(s)}
            values |= {(id(s), name): value for name, value in operands.items()}
            result = value_of(s, operands)
            results = {"dst": result, "total": summed("add", result)}
            now |= {id(view.buffer): results[name] for name, view in views_of(s) if name in RESULTS}
        return values

    def cut_in_part(self) -> set[int]:
        """The tiles of which nothing needs what is ruled out."""
        cut, needed = self.where.keys() & self.local, {0}
        while needed:
            views = ((s, n, id(v.buffer)) for s, _ in self.every for n, v in views_of(s))
            needed = {b for s, n, b in views if b in cut and not self.may_be_part(s, n, cut)}
            cut -= needed
        if not cut:
            raise Unfit
        return cut

    def may_be_part(self, s: Statement, name: str, cut: set[int]) -> bool:
        """Whether a statement may read a part of an operand: its results have no more, or miss nothing."""
        view, results = getattr(s, name), {n for n, _ in views_of(s) if n in RESULTS}
        along = {n for n, _ in partners(s, name, self.where[id(view.buffer)], view)} & results
        if name in RESULTS or any(id(getattr(s, n).buffer) not in cut for n in along):
            return name in RESULTS
        if isinstance(s, nodes.MatMul) and not along:
            return 0.0 in (self.values[id(s), "stationary"], self.values[id(s), "moving"])
        if isinstance(s, nodes.Reduce) and not along:
            return s.axes == 1 and summed(reducer(s.op), self.values[id(s), name]) is not None
        if results - along == {"total"}:
            return value_of(s, {"src": self.values[id(s), "src"]}) == 0.0
        return results == along

    def adds_nothing(self, s: Statement, loop: Loop) -> bool:
        """Whether a statement changes nothing where all columns of an iteration are ruled out."""
        if isinstance(s, nodes.Combine):
            is_neutral = summed(reducer(s.op), self.values[id(s), "right"]) is not None
            return s.dst == s.left and is_neutral
        return isinstance(s, nodes.MatMul) and loop.variable in s.over

    # how much

    def compared(self) -> tuple[int, list[Ways]]:
        """How many columns there are, and what is kept of them of each tile that is not just handed on."""
        extent, kept, read, ends = 0, dict[int, Ways](), set[int](), list[Ways]()
        for s, loops in self.every:
            views = {n: v for n, v in views_of(s) if id(v.buffer) in self.where}
            own = {id(v.buffer): None for n, v in views.items() if n not in RESULTS}
            ways = [kept[b] for b in own if b in kept]
            if "dst" not in views:
                ends += ways
                continue
            dst, along = id(views["dst"].buffer), self.where[id(views["dst"].buffer)]
            if isinstance(s, Select) and not along.lanes:
                reached = along.start(s.dst) + along.count(s.dst)
                extent = max(extent, least_and_most(reached, loops)[1].value or 0)
                bound = self.bound_of(s, loops)
                ways = [tuple((*way, bound) for way in (ways or [((),)])[0])] if bound is not None else ways
            elif isinstance(s, nodes.Combine) and ways:
                ways = [tuple(dict.fromkeys(way for every in ways for way in every))]
            if len({*ways}) > 1:
                raise Unfit
            read |= own.keys() - {dst}
            kept |= dict.fromkeys([dst], ways[0]) if ways else {}
        if extent % self.lanes:
            raise Unfit
        return extent, [*ends, *(ways for b, ways in kept.items() if b not in read)]

    def bound_of(self, s: Select, loops: Sequence[Loop]) -> Bound | None:
        """Where a comparison of offset + per_partition * p + per_element * (x - start) with 0 ends."""
        sign = -1 if s.relation in MIRRORED else 1
        relation = MIRRORED.get(s.relation, s.relation)
        each, rows = s.per_element * sign, s.dst.index[0]
        if relation not in ("<", "<=") or not each or not isinstance(rows, Cut):
            return None
        last = (rows.count.value or expr(s.dst.buffer.shape[0]).value or 0) - 1
        start = self.where[id(s.dst.buffer)].start(s.dst)
        # each * x is at most this
        most = (s.offset - start * s.per_element) * -sign - (relation == "<")
        ends = [least_and_most(most - s.per_partition * sign * row, loops) for row in (0, last)]
        if any(e.names - self.names for end in ends for e in end):
            return None

        is_up = -s.per_partition * sign > 0
        every = (ends[is_up][1], ends[not is_up][0], ends[0][0], ends[1][0])
        quotients = (floored(value, abs(each)) for value in every)
        some, all_, first, last_row = (q + 1 if each > 0 else q * -1 for q in quotients)
        return Bound(each > 0, some, all_, (first, last_row), s.otherwise == 0.0)

    def rounded(self, value: Expr, is_up: bool) -> Expr:
        """A position as a multiple of a block of partitions."""
        return floored(value + (self.lanes - 1) * is_up, self.lanes) * self.lanes

    def ends(self) -> tuple[Expr, Expr]:
        """The first and the last columns that comparisons keep, in whole blocks."""
        if not self.kept or not all(any(map(self.keeps_some, ways)) for ways in self.kept):
            raise Unfit
        lows, highs = zip(*(self.ends_of(way) for ways in self.kept for way in ways), strict=True)
        low = next((a for a in lows if all(self.range_of(b - a)[0] >= 0 for b in lows)), ZERO)
        high = next((a for a in highs if all(self.range_of(a - b)[0] >= 0 for b in highs)), expr(self.extent))
        least, most = self.range_of(high - low)
        is_less = (low, high) != (ZERO, expr(self.extent))
        if least < self.lanes or most > self.extent or self.range_of(low)[0] < 0 or not is_less:
            raise Unfit
        return low, high

    def ends_of(self, way: tuple[Bound, ...]) -> tuple[Expr, Expr]:
        """The first and the last columns that some comparisons keep, all of which must hold."""
        low, high = ZERO, expr(self.extent)
        for bound in way:
            # of two on one side either will do: what it keeps has all of what both keep
            if bound.is_end:
                high = self.no_more(self.rounded(bound.any, True), expr(self.extent))
            else:
                low = self.no_less(self.rounded(bound.any, False), ZERO)
        return low, high

    def keeps_some(self, way: tuple[Bound, ...]) -> bool:
        """Whether there is something on every partition that is more than what stands for minus infinity."""
        if all(b.is_zero for b in way):
            return True
        for row in (0, 1):
            starts = [ZERO, *(b.rows[row] for b in way if not b.is_end)]
            stops = [expr(self.extent), *(b.rows[row] for b in way if b.is_end)]
            if any(self.range_of(stop - start)[0] < 1 for start, stop in product(starts, stops)):
                return False
        return True

    def no_more(self, value: Expr, most: Expr) -> Expr:
        """The smaller of two multiples of a block of partitions."""
        if self.range_of(most - value)[0] >= 0:
            return value
        return at_most((most.value or 0) // self.lanes, floored(value, self.lanes)) * self.lanes

    def no_less(self, value: Expr, least: Expr) -> Expr:
        """The greater of two multiples: for a - b that is a less the smaller of a and b."""
        if self.range_of(value - least)[0] >= 0:
            return value
        size = floored(value - least, self.lanes)
        added = next((c for f, c in size.terms if not f), 0)
        return (size - added - at_most(-added, size - added)) * self.lanes + least

    def range_of(self, value: Expr) -> tuple[float, float]:
        """The least and the greatest value over all iterations of the loops around."""
        sizes = [expr(e.trips).value for e in self.outer if e.variable in value.names]
        if None in sizes or value.names - self.names:
            return -inf, inf
        moving = [e for e in self.outer if e.variable in value.names]
        # minima bend at some iteration: all iterations of one loop, both ends of more
        iterations = [range(n) if len(sizes) == 1 else (0, n - 1) for n in sizes if n is not None]
        every = [
            value.at({e.variable: n for e, n in zip(moving, at, strict=True)}) for at in product(*iterations)
        ]
        return min(every), max(every)


def factor(value: Expr, name: str) -> int:
    """What a name is multiplied with."""
    return next((c for f, c in value.terms if f == (name,)), 0)


def least_and_most(value: Expr, loops: Sequence[Loop]) -> tuple[Expr, Expr]:
    """The least and the greatest value over all iterations of some loops."""
    least = most = value
    for loop in loops:
        ends = ZERO, expr((expr(loop.trips).value or 1) - 1)
        down, up = ends[:: 1 if factor(value, loop.variable) > 0 else -1]
        least, most = least.replaced({loop.variable: down}), most.replaced({loop.variable: up})
    return least, most
