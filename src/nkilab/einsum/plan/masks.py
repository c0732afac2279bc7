"""Columns that comparisons of indices rule out: they are neither computed nor read.

In a turn of a loop whole columns of a tile may fail the comparison of a `Select` on every partition. Where
readers would make of its other number what changes no result (a sum of zeros, a maximum with what stands for
minus infinity), loops over columns end earlier or begin later, and views are cut. The comparison stays where
it decides. That what is left out fails it is proved (`Select.left`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf

from ..room import views_of
from ..tree import nodes
from ..tree.along import Along, floored, partners
from ..tree.expr import ZERO, Expr, at_most, expr, name_of
from ..tree.neutral import reducer, summed, value_of
from ..tree.nodes import Cut, Loop, Select, Statement, Tally, View

MIRRORED = {">=": "<=", ">": "<"}
Ends = tuple[Expr, Expr]


class Unfit(Exception):
    """A loop has something of which it is not known how to do less."""


@dataclass(frozen=True)
class Turn:
    """Positions that a turn of a loop goes through, as the plan has it and as it will be."""

    start: Expr
    count: Expr
    new_start: Expr
    new_count: Expr


@dataclass(frozen=True)
class Bound:
    """Up to where, or from where on, a comparison keeps positions.

    Args:
        is_end: whether it is the first position behind those that are kept, not the first of them.
        any, all: it, for what is kept on some partition, and for what is kept on all.
        rows: it on the first and on the last partition.
    """

    is_end: bool
    any: Expr
    all: Expr
    rows: tuple[Expr, Expr]


def without_ruled_out(kernel: nodes.Kernel, lanes: int, fresh: Callable[[str], str]) -> list[str]:
    """Cut the loops of a kernel in place; what was done, for the report.

    Args:
        kernel: the tree.
        lanes: partitions of the chip.
        fresh: makes names.
    """
    told: list[str] = []
    done: list[Loop] = []
    for body, loop, around in list(_loops(kernel.body, ())):
        selects = [s for s in nodes.statements(loop.body) if isinstance(s, Select)]
        is_decided = any(loop.variable in s.offset.names for s in selects)
        if not is_decided or any(one is other for one in around for other in done):
            continue
        try:
            mask = Mask(kernel, loop, around, lanes, fresh)
            body[next(n for n, s in enumerate(body) if s is loop)] = mask.cut()
        except Unfit:
            continue
        done.append(loop)
        told.append(f"turns of {loop.variable} go through what comparisons leave, and no more")
    return told


def _loops(
    body: list[Statement], around: tuple[Loop, ...]
) -> Iterator[tuple[list[Statement], Loop, tuple[Loop, ...]]]:
    """Every loop with the body that it stands in and the loops around it."""
    for loop in (s for s in body if isinstance(s, Loop)):
        yield body, loop, around
        yield from _loops(loop.body, (*around, loop))


def _inside(body: list[Statement], loops: tuple[Loop, ...]) -> Iterator[tuple[Statement, tuple[Loop, ...]]]:
    """Statements with the loops around them."""
    for statement in body:
        if isinstance(statement, Loop):
            yield from _inside(statement.body, (*loops, statement))
        else:
            yield statement, loops


class Mask:
    """A loop whose turns have columns that comparisons rule out.

    Args:
        kernel: whose loop it is.
        loop: it.
        around: the loops around it.
        lanes: partitions of the chip.
        fresh: makes names.
    """

    def __init__(
        self,
        kernel: nodes.Kernel,
        loop: Loop,
        around: tuple[Loop, ...],
        lanes: int,
        fresh: Callable[[str], str],
    ) -> None:
        self.loop, self.lanes, self.fresh, self.outer = loop, lanes, fresh, (*around, loop)
        allocs = [(s, loops) for s, loops in _inside(kernel.body, ()) if isinstance(s, nodes.Alloc)]
        self.homes = {id(s.buffer): frozenset(e.variable for e in loops) for s, loops in allocs}
        self.local = {id(s.buffer) for s, loops in allocs if any(e is loop for e in loops)}
        self.every = [
            (s, loops)
            for s, loops in _inside(loop.body, ())
            if not isinstance(s, nodes.Alloc | nodes.Comment | Tally)
        ]
        self.where: dict[int, Along] = {}
        self.begun()
        self.spread()
        self.values = self.values_left_out()
        self.shorter = self.cut_in_part()
        if not self.shorter:
            raise Unfit
        self.extent, self.bounds = self.compared()
        self.low, self.high = self.ends()
        # columns of a turn about in the middle
        self.share = int(sum(self.range_of(self.high - self.low))) // 2

    # what goes along with the columns

    def begun(self) -> None:
        """The columns of the first comparison that the loop decides, in a tile that has all of them."""
        for s in (s for s, _ in self.every if isinstance(s, Select)):
            columns = [n for n, i in enumerate(s.dst.index) if n and isinstance(i, Cut) and i.step == 1]
            if columns and self.loop.variable in s.offset.names and id(s.dst.buffer) in self.local:
                self.where[id(s.dst.buffer)] = Along(columns[-1], 0, ZERO)
                return
        raise Unfit

    def spread(self) -> None:
        """Where the columns lie in every operand."""
        known = 0
        while known < len(self.where):
            known = len(self.where)
            for s, _ in self.every:
                self.spread_by(s)

    def spread_by(self, s: Statement) -> None:
        """What goes along in one statement."""
        for name, view in views_of(s):
            if id(view.buffer) not in self.local or id(view.buffer) not in self.where:
                continue
            for other, options in partners(s, name, self.where[id(view.buffer)], view):
                buffer = getattr(s, other).buffer
                home = self.homes.get(id(buffer), frozenset())
                found = next((o for o in options if o.base.names <= home), None)
                if found is None or self.where.setdefault(id(buffer), found) != found:
                    raise Unfit

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
        found: dict[tuple[int, str], float | None] = {}
        for s, _ in self.every:
            for name, view in views_of(s):
                found[id(s), name] = now.get(id(view.buffer))
            for name, view in views_of(s):
                if name == "dst":
                    now[id(view.buffer)] = value_of(s, {n: found[id(s), n] for n, _ in views_of(s)})
                elif name == "total":
                    now[id(view.buffer)] = summed("add", value_of(s, {"src": found[id(s), "src"]}))
        return found

    def cut_in_part(self) -> set[int]:
        """The tiles of which nothing needs what is ruled out."""
        found = self.where.keys() & self.local
        while True:
            needed = {
                id(view.buffer)
                for s, _ in self.every
                for name, view in views_of(s)
                if id(view.buffer) in found and not self.may_be_part(s, name, found)
            }
            if not needed:
                return found
            found -= needed

    def may_be_part(self, s: Statement, name: str, found: set[int]) -> bool:
        """Whether a statement may read a part of an operand: its results have no more, or miss nothing."""
        if name in ("dst", "total"):
            return True
        view = getattr(s, name)
        outs = {n for n, _ in views_of(s) if n in ("dst", "total")}
        along = {n for n, _ in partners(s, name, self.where[id(view.buffer)], view)} & outs
        if any(id(getattr(s, n).buffer) not in found for n in along):
            return False
        if isinstance(s, nodes.MatMul) and not along:
            return 0.0 in (self.values[id(s), "stationary"], self.values[id(s), "moving"])
        if isinstance(s, nodes.Reduce) and not along:
            return s.axes == 1 and summed(reducer(s.op), self.values[id(s), name]) is not None
        if outs - along == {"total"}:
            return value_of(s, {"src": self.values[id(s), "src"]}) == 0.0
        return outs == along

    # how much

    def compared(self) -> tuple[int, list[tuple[Select, Bound]]]:
        """How many columns there are, and what comparisons keep."""
        extent, found = 0, []
        for s, loops in self.every:
            held = self.where.get(id(s.dst.buffer)) if isinstance(s, Select) else None
            if held is None or held.lanes or not isinstance(s, Select):
                continue
            reached = held.start(s.dst) + held.count(s.dst)
            extent = max(extent, _least_and_most(reached, loops)[1].value or 0)
            bound = self.bound_of(s, loops)
            found += [(s, bound)] if bound is not None else []
        if extent % self.lanes:
            raise Unfit
        return extent, found

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
        ends = [_least_and_most(most - s.per_partition * sign * row, loops) for row in (0, last)]
        if any(e.names - {loop.variable for loop in self.outer} for end in ends for e in end):
            return None

        def edge(value: Expr) -> Expr:
            return floored(value, abs(each)) + 1 if each > 0 else floored(value, abs(each)) * -1

        up = -s.per_partition * sign > 0
        least, most = ends[not up][0], ends[up][1]
        return Bound(each > 0, edge(most), edge(least), (edge(ends[0][0]), edge(ends[1][0])))

    def rounded(self, value: Expr, is_up: bool) -> Expr:
        """A position as a multiple of a block of partitions."""
        return floored(value + (self.lanes - 1) * is_up, self.lanes) * self.lanes

    def ends(self) -> Ends:
        """The columns that all comparisons keep, in whole blocks."""
        lows, highs = ([b for _, b in self.bounds if b.is_end == is_end] for is_end in (False, True))
        if len(lows) > 1 or len(highs) > 1 or not self.keeps_some(lows, highs):
            raise Unfit
        low, high = ZERO, expr(self.extent)
        if lows:
            low = self.no_less(self.rounded(lows[0].any, False), ZERO)
        if highs:
            high = self.no_more(self.rounded(highs[0].any, True), expr(self.extent))
        least, most = self.range_of(high - low)
        is_less = (low, high) != (ZERO, expr(self.extent))
        if least < self.lanes or most > self.extent or self.range_of(low)[0] < 0 or not is_less:
            raise Unfit
        return low, high

    def keeps_some(self, lows: Sequence[Bound], highs: Sequence[Bound]) -> bool:
        """Whether there is something on every partition that is more than what stands for minus infinity."""
        if all(s.otherwise == 0.0 for s, _ in self.bounds):
            return True
        for row in (0, 1):
            starts = [ZERO, *(b.rows[row] for b in lows)]
            stops = [expr(self.extent), *(b.rows[row] for b in highs)]
            if any(self.range_of(stop - start)[0] < 1 for start, stop in product(starts, stops)):
                return False
        return True

    def no_more(self, value: Expr, most: Expr) -> Expr:
        """The smaller of two multiples of a block of partitions."""
        if self.range_of(most - value)[0] >= 0:
            return value
        number = most.value
        assert number is not None
        return at_most(number // self.lanes, floored(value, self.lanes)) * self.lanes

    def no_less(self, value: Expr, least: Expr) -> Expr:
        """The greater of two multiples: for a - b that is a less the smaller of a and b."""
        if self.range_of(value - least)[0] >= 0:
            return value
        size = floored(value - least, self.lanes)
        added = next((c for f, c in size.terms if not f), 0)
        return (size - added - at_most(-added, size - added)) * self.lanes + least

    def range_of(self, value: Expr) -> tuple[float, float]:
        """The least and the greatest value over all turns of the loops around."""
        sizes = [expr(e.trips).value for e in self.outer if e.variable in value.names]
        if None in sizes or value.names - {e.variable for e in self.outer}:
            return -inf, inf
        turning = [e for e in self.outer if e.variable in value.names]
        # minima bend at some turn: all turns of one loop, both ends of more
        turns = [range(n) if len(sizes) == 1 else (0, n - 1) for n in sizes if n is not None]
        every = [
            value.at({e.variable: n for e, n in zip(turning, at, strict=True)}) for at in product(*turns)
        ]
        return min(every), max(every)

    # the loop as it will be

    def cut(self) -> Loop:
        """The loop with less to do."""
        whole = Turn(ZERO, expr(self.extent), self.low, self.high - self.low)
        return replace(self.loop, body=self.body(self.loop.body, [whole], ()))

    def body(self, body: list[Statement], turns: list[Turn], loops: tuple[Loop, ...]) -> list[Statement]:
        """Statements of a turn."""
        found: list[Statement] = []
        before: Statement | None = None
        for s in body:
            if isinstance(s, Loop):
                found += self.of_loop(s, turns, loops)
            elif isinstance(s, Tally):
                found.append(self.tally(s, before, turns))
            elif isinstance(s, nodes.Alloc | nodes.Comment) or not self.positions(s):
                found.append(s)
            elif isinstance(s, Select):
                found.append(self.select(s, turns, loops))
            else:
                found.append(replace(s, **self.views(s, turns)))
            before = s if not isinstance(s, Tally | nodes.Alloc | nodes.Comment) else before
        return found

    def views(self, s: Statement, turns: list[Turn]) -> dict[str, View]:
        """The operands of a statement that go along, as far as they are kept."""
        found = {}
        for name, (view, along) in self.positions(s).items():
            turn = _of(turns, along.start(view), along.count(view))
            moved = turn.new_start - turn.start if not self.is_moved(view) else ZERO
            found[name] = along.part(view, moved, turn.new_count)
        return found

    def is_moved(self, view: View) -> bool:
        """Whether a buffer is made anew for the columns of a turn, and begins where they do."""
        return bool(self.where[id(view.buffer)].base.names - {e.variable for e in self.outer})

    def of_loop(self, loop: Loop, turns: list[Turn], loops: tuple[Loop, ...]) -> list[Statement]:
        """A loop inside, over the columns or not; before it the comparisons that it need not repeat."""
        inside = list(_inside(loop.body, (*loops, loop)))
        starts = [a.start(v) for s, _ in inside for v, a in self.positions(s).values()]
        every = {factor(start, loop.variable) for start in starts}
        if every <= {0}:
            return [replace(loop, body=self.body(loop.body, turns, (*loops, loop)))]
        if len(every) > 1 or not self.may_be_shorter(loop):
            raise Unfit
        each = every.pop()
        inner = {e.variable for _, around in inside for e in around[len(loops) :]}
        (rest, *others) = {_without(start, inner) for start in starts}
        parent = turns[-1]
        trips = expr(loop.trips).value or 0
        if others or rest != parent.start or not -each < (parent.count.value or 0) - trips * each <= 0:
            raise Unfit
        total, begun = parent.new_count, name_of(loop.variable) * each
        is_even = each == self.lanes
        name = "" if is_even else loop.count_name or self.fresh(f"{loop.variable}_count")
        new = Turn(
            rest + begun, name_of(loop.count_name) if loop.count_name else expr(each),
            parent.new_start + begun, expr(each) if is_even else name_of(name),
        )  # fmt: skip
        return [
            *self.before(loop),
            replace(
                loop, trips=floored(total + (each - 1) * (not is_even), each), total=total, each=each,
                count_name=name, usual=-(-trips * self.share // self.extent),
                count=None if is_even else at_most(each, total - begun),
                body=self.body(self.rest_of(loop), [*turns, new], (*loops, loop)),
            ),
        ]  # fmt: skip

    def may_be_shorter(self, loop: Loop) -> bool:
        """Whether turns whose columns are all ruled out do nothing that outlives them."""
        inside = list(_inside(loop.body, ()))
        own = {id(s.buffer) for s, _ in inside if isinstance(s, nodes.Alloc)}
        written = [
            (s, n, v) for s, _ in inside if not isinstance(s, Tally) for n, v in views_of(s)
            if n in ("dst", "total") and id(v.buffer) not in own
        ]  # fmt: skip
        return all(id(v.buffer) in self.shorter or self.adds_nothing(s, loop) for s, _, v in written)

    def adds_nothing(self, s: Statement, loop: Loop) -> bool:
        """Whether a statement changes nothing where all columns are ruled out."""
        if isinstance(s, nodes.MatMul):
            return loop.variable in s.over
        is_adding = isinstance(s, nodes.Combine) and s.dst == s.left
        return is_adding and summed(reducer(s.op), self.values[id(s), "right"]) is not None  # type: ignore[attr-defined]

    # comparisons

    def hoisted(self, loop: Loop) -> list[Select]:
        """Comparisons that turns of a loop make in place, on what lies there before it."""
        direct = [s for s in loop.body if not isinstance(s, nodes.Alloc | nodes.Comment | Tally)]
        made = {id(s.buffer) for s in nodes.statements(loop.body) if isinstance(s, nodes.Alloc)}
        held = [
            s for s in direct if isinstance(s, Select) and s.dst == s.src and id(s.dst.buffer) not in made
        ]
        every = [v.buffer for s in nodes.statements(loop.body) for n, v in views_of(s) if n == "dst"]
        return [s for s in held if sum(b is s.dst.buffer for b in every) == sum(
            h.dst.buffer is s.dst.buffer for h in held) and id(s.dst.buffer) in self.where]  # fmt: skip

    def rest_of(self, loop: Loop) -> list[Statement]:
        """What turns of a loop do besides."""
        held = self.hoisted(loop)
        return [s for s in loop.body if not any(s is h for h in held)]

    def before(self, loop: Loop) -> list[Statement]:
        """The comparisons that stand before a loop, where they decide."""
        found: list[Statement] = []
        for s in self.hoisted(loop):
            along = self.where[id(s.dst.buffer)]
            view = along.part(s.dst, -1 * along.start(s.dst), expr(self.extent))
            offset = s.offset - along.start(s.dst) * s.per_element
            whole = replace(s, dst=view, src=view, offset=offset)
            found.append(self.deciding(whole, ()))
        return found

    def select(self, s: Select, turns: list[Turn], loops: tuple[Loop, ...]) -> Statement:
        """A comparison over what is kept."""
        along = self.where[id(s.dst.buffer)]
        turn = _of(turns, along.start(s.dst), along.count(s.dst))
        if s.dst == s.src and len(turns) == 1:
            return self.deciding(s, loops)
        offset = s.offset + (turn.new_start - turn.start) * s.per_element
        view = self.views(s, turns)
        held = replace(s, dst=view["dst"], src=view.get("src", s.src), offset=offset)
        return self.told(held, turn.new_start, self.bound_of(s, loops))

    def deciding(self, s: Select, loops: Sequence[Loop]) -> Statement:
        """A comparison in place: what it keeps on all partitions it leaves as it is."""
        bound, low, count = self.bound_of(s, loops), self.low, self.high - self.low
        if bound is not None and bound.is_end:
            count = self.no_more_than(self.rounded(bound.any, True) - self.rounded(bound.all, False), count)
            low = self.high - count
        elif bound is not None:
            count = self.no_more_than(self.rounded(bound.all, True) - self.rounded(bound.any, False), count)
        along = self.where[id(s.dst.buffer)]
        view = along.part(s.dst, low - along.start(s.dst), count)
        held = replace(s, dst=view, src=view, offset=s.offset + low * s.per_element)
        return self.told(held, low, bound)

    def no_more_than(self, width: Expr, count: Expr) -> Expr:
        """The smaller of two counts."""
        number = width.value
        if number is None or number <= 0:
            return count
        return expr(number) if self.range_of(count)[0] >= number else at_most(number, count)

    def told(self, held: Select, start: Expr, bound: Bound | None) -> Select:
        """A comparison that says what it leaves out of its axis, as positions of its own columns."""
        if bound is None:
            return held
        first, last = (self.high, expr(self.extent)) if bound.is_end else (ZERO, self.low)
        return replace(held, left=(Cut(first - start, last - first),) if first != last else ())

    def tally(self, tally: Tally, before: Statement | None, turns: list[Turn]) -> Tally:
        """What is told of a sum over the columns."""
        assert before is not None
        held = self.positions(before)
        if isinstance(before, nodes.Activate):
            is_sum = bool(held) and before.total is not None and tally.into.buffer is before.total.buffer
        elif held:
            is_sum = not any(
                o == "dst" for n, (v, a) in held.items() if n != "dst" for o, _ in partners(before, n, a, v)
            )
        else:
            is_sum = len(turns) > 1 and isinstance(before, nodes.Combine)
        return replace(tally, added=tuple(self.added(one, turns) for one in tally.added)) if is_sum else tally

    def added(self, one: nodes.Summed, turns: list[Turn]) -> nodes.Summed:
        """Values of one variable of a sum."""
        own, whole = (
            next((t for t in turns[::-1] if (t.start, t.count) == held), None)
            for held in ((one.start, one.count), (one.whole_start, one.whole_count))
        )
        if own is None or whole is None:
            return one
        return replace(
            one, start=own.new_start, count=own.new_count, whole_start=whole.new_start,
            whole_count=whole.new_count, all_start=self.low, all_count=self.high - self.low,
        )  # fmt: skip


def _of(turns: list[Turn], start: Expr, count: Expr) -> Turn:
    """The turn that goes through some positions."""
    found = next((t for t in turns[::-1] if (t.start, t.count) == (start, count)), None)
    if found is None:
        raise Unfit
    return found


def factor(value: Expr, name: str) -> int:
    """What a name is multiplied with."""
    return next((c for f, c in value.terms if f == (name,)), 0)


def _without(value: Expr, names: set[str]) -> Expr:
    """An expression in the first turn of some loops."""
    return value.replaced(dict.fromkeys(names, ZERO))


def _least_and_most(value: Expr, loops: Sequence[Loop]) -> tuple[Expr, Expr]:
    """The least and the greatest value over all turns of some loops."""
    least = most = value
    for loop in loops:
        ends = ZERO, expr((expr(loop.trips).value or 1) - 1)
        down, up = ends[:: 1 if factor(value, loop.variable) > 0 else -1]
        least, most = least.replaced({loop.variable: down}), most.replaced({loop.variable: up})
    return least, most
