"""Sharing out what VectorE can leave to others: sums of rows, copies, scalings, and operators of two tiles.

All are VectorE's by rule. Where it has more to do in a part of a kernel than the other engines, ScalarE
takes over sums, which it adds up while it copies, copies, squares and scalings, and GpSimdE operators of two
tiles in SBUF, whole or blocks of them, until all are done at the same time. Short steps of what turns hand on
stay: elsewhere they are late.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from functools import cache
from operator import itemgetter

from ...tiles.dtypes import as_dtype
from ..hardware import Hardware
from ..room import views_of
from ..tree import nodes
from ..tree.expr import expr
from .pipeline import Unit, needed_for, state_of, units_of

# when the last engine is done, when each is, and the statements
Shared = tuple[float, dict[str, float], list[nodes.Statement]]
# columns from which a sum takes longer than it takes to begin; one with more is no step of a chain,
# but work that VectorE does faster
BANK = 512
# VectorE is relieved where it has so many times as much to do as the other engines
MARGIN = 1.1


def columns_of(view: nodes.View) -> int:
    """Elements per partition of a view; a ragged one as many as its tile has."""
    found = 1
    held = zip(view.index, view.buffer.shape, strict=False)
    for index, extent in list(held)[1:] if len(view.index) == len(view.buffer.shape) else ():
        if isinstance(index, nodes.Cut):
            found *= index.count.value or expr(extent).value or 1
    return found


def balanced(
    kernel: nodes.Kernel, hardware: Hardware, is_short_moved: Callable[[], bool] = lambda: True
) -> nodes.Kernel:
    """A kernel in which ScalarE takes over copies, nest after nest, where VectorE has most to do.

    Short ones move, too, if asked, of which each alone saves hardly anything.
    """
    for statement in kernel.body:
        if isinstance(statement, nodes.Loop):
            _Part(statement, hardware, is_short_moved).relieve()
    return kernel


class _Part:
    def __init__(self, loop: nodes.Loop, hardware: Hardware, is_short_moved: Callable[[], bool]) -> None:
        self.loop, self.hardware, self.is_short_moved = loop, hardware, is_short_moved
        # columns of a piece of a copy
        self.least = int(hardware.machine["partitions"])
        times = hardware.total([loop])
        self.times = {engine: times.get(engine, 0.0) for engine in ("vector", "scalar", "gpsimd")}
        # turns that wait for each other wait for TensorE as well
        self.others = 0.0 if loop.is_sequential else times.get("tensor", 0.0)

    def relieve(self) -> None:
        """Move what others can do, that with most to do first, as long as that helps."""
        if self.times["vector"] <= MARGIN * max(self.times["scalar"], self.others):
            return
        chained = {*_on_chains([self.loop])}
        free = [(s, times) for s, times in nodes.weighted([self.loop]) if id(s) not in chained]
        for statement, times in free:
            if isinstance(statement, nodes.Reduce) and statement.op == "add":
                self.summed(statement, times)
        movable = [(s, times) for s, times in free if elsewhere(s)]
        for statement, times in sorted(movable, key=lambda c: -c[1] * columns_of(c[0].dst)):  # type: ignore[attr-defined]
            self.share(statement, times)

    def summed(self, reduce: nodes.Reduce, times: int) -> None:
        """Give a sum of rows to ScalarE, which copies them onto themselves, if both end sooner."""
        src = reduce.src
        if len(src.cuts) != 2 or not as_dtype(src.buffer.dtype).is_float:
            return
        other = nodes.Activate(src, "copy", src, total=reduce.dst)
        ends = self.after([(reduce, -times), (other, times)])
        if max(ends.values()) < max(self.times.values()):
            self.times = ends
            _exchange(self.loop.body, reduce, [other])

    def after(self, changes: list[tuple[nodes.Statement, int]]) -> dict[str, float]:
        """When engines are done with some statements more or less, so many times."""
        ends = dict(self.times)
        for statement, times in changes:
            engine, time = self.hardware.of(statement)
            ends[engine] += time * times
        return ends

    def share(self, statement: nodes.Statement, times: int) -> None:
        """Give as many blocks of a statement to another engine as lets all end soonest."""
        ways = [self.shared(statement, other, times) for other in elsewhere(statement)]
        longest, ends, made = min(ways, key=itemgetter(0))
        before, least = max(self.times.values()), MARGIN**0.25
        # one of many is a small part of all, but leaves room for the next
        is_one = (
            len(made) == 1
            and max(t for engine, t in ends.items() if engine != "vector") * least < longest < before
        )
        if longest * least < before or (is_one and self.is_short_moved()):
            self.times = ends
            _exchange(self.loop.body, statement, made)

    def shared(self, statement: nodes.Statement, other: nodes.Statement, times: int) -> Shared:
        """The way in which all end soonest if another engine makes some blocks of a statement."""

        @cache
        def way(own: int) -> Shared:
            made = [*_split(statement, other, own, self.least)]
            ends = self.after([(statement, -times), *((s, times) for s in made)])
            return max(ends.values()), ends, made

        # more blocks on one engine are fewer on the other: the longest falls, then grows
        count = _pieces(statement, self.least)[0]
        turn = bisect_left(range(1, count - 1), True, key=lambda own: way(own)[0] <= way(own + 1)[0]) + 1
        return min(way(0), way(min(turn, count - 1)), key=itemgetter(0))


def elsewhere(statement: nodes.Statement) -> list[nodes.Statement]:
    """The same on other engines than VectorE, first on that which fewer other statements can go to."""
    views = [v for _, v in views_of(statement)]
    types = [as_dtype(v.buffer.dtype) for v in views]
    # float32, in which every engine computes, has all whole numbers of two bytes
    if getattr(statement, "engine", "") or not all(t.is_float or t.itemsize <= 2 for t in types):
        return []
    is_in_sbuf = all(v.buffer.memory == nodes.SBUF for v in views)
    match statement:
        case nodes.Copy(dst, src):
            return [replace(statement, engine="scalar")]
        case nodes.Combine(dst, left, op, right) if is_in_sbuf and op != "power":
            square = [nodes.Activate(dst, "square", left)] if left == right and op == "multiply" else []
            return [*square, replace(statement, engine="gpsimd")]
        case nodes.Scale(dst, src, "multiply", factor, False, ""):
            place = (factor.buffer.memory, factor.buffer.dtype) if isinstance(factor, nodes.View) else ()
            is_near = place in ((), (nodes.SBUF, "float32"))
            return [nodes.Activate(dst, "copy", src, factor)] if is_near else []
    return []


def _on_chains(body: Sequence[nodes.Statement]) -> Iterator[int]:
    """Short steps of what turns hand on, which are late on another engine."""
    for loop in (s for s in body if isinstance(s, nodes.Loop)):
        yield from _on_chains(loop.body)
        units = units_of(loop.body) if loop.is_sequential else []
        chain = [u.statement for u in _from_state_to_state(units, state_of(units, loop.variable))]
        short = nodes.Combine | nodes.Scale | nodes.Reduce
        steps = ((s, times) for s, times in nodes.weighted(chain) if isinstance(s, short))
        yield from (id(s) for s, n in steps if columns_of(getattr(s, "src", s.dst)) * n < BANK)


def _from_state_to_state(units: Sequence[Unit], state: Set[int]) -> list[Unit]:
    """The units of a turn that need what the turn before hands on, and that what it hands on needs."""
    reached, found = set(state), list[Unit]()
    for unit in units:
        if unit.reads & reached:
            reached |= unit.writes
            found.append(unit)
    needed = needed_for(state, units)
    return [u for u in found if u in needed]


def _tiles(statement: nodes.Statement) -> dict[str, nodes.View]:
    """The tiles that a statement goes through, columns apart."""
    return {n: v for n, v in views_of(statement) if n in ("dst", "src", "left", "right")}


def _pieces(statement: nodes.Statement, least: int) -> tuple[int, int, int]:
    """Pieces that a statement may be cut into, the axis, and how much of it each has.

    The least columns make a piece, as other instructions made them and will read them; of tiles of several
    blocks with no more columns, a block does.
    """
    tiles = list(_tiles(statement).values())
    cuts = [v.cuts for v in tiles]
    axis = len(cuts[0]) - 1
    # what is noted of a sum is noted of one statement
    is_one = tiles[0] in tiles[1:] or any(v.has_parts for v in tiles)
    if is_one or axis < 1 or any([c.count for c in own] != [c.count for c in cuts[0]] for own in cuts):
        return 1, 1, 0
    columns = cuts[0][axis].count.value or 1
    if columns % least == 0 and columns > least:
        return columns // least, axis, least
    blocks = (cuts[0][1].count.value or 1) if axis > 1 else 1
    return blocks, 1, 1


def _split(
    statement: nodes.Statement, other: nodes.Statement, first: int, least: int
) -> Iterator[nodes.Statement]:
    """A statement of which VectorE makes so many pieces, the last ones, and another engine the others."""
    if not first:
        yield other
        return
    pieces, axis, each = _pieces(statement, least)
    rest = (pieces - first) * each
    for held, start, count in ((other, 0, rest), (statement, rest, first * each)):
        views = {n: _piece(v, axis, start, count) for n, v in _tiles(held).items()}
        yield replace(held, **views)


def _piece(view: nodes.View, axis: int, start: int, count: int) -> nodes.View:
    place = view.order[axis] if view.order else axis
    if not isinstance(place, int):
        return replace(view, order=(*view.order[:axis], expr(count), *view.order[axis + 1 :]))
    place = [n for n, i in enumerate(view.index) if isinstance(i, nodes.Cut)][place]
    held = view.index[place]
    assert isinstance(held, nodes.Cut)
    cut = nodes.Cut(held.start + start * held.step, expr(count), held.step)
    return replace(view, index=(*view.index[:place], cut, *view.index[place + 1 :]))


def _exchange(body: list[nodes.Statement], old: nodes.Statement, new: list[nodes.Statement]) -> None:
    for place, statement in enumerate(body):
        if statement is old:
            body[place : place + 1] = new
            return
        if isinstance(statement, nodes.Loop):
            _exchange(statement.body, old, new)
