"""Transfers of several turns of a loop as one, where issuing each takes longer than moving it.

A tile that a turn loads, or stores, becomes a part of one that several turns have; what is moved is then a
wider part of the tensor in HBM, in one transfer before these turns, or behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..hardware import Hardware
from ..room import buffers_that_fit, size_of, views_of
from ..tree import nodes
from ..tree.along import in_order
from ..tree.expr import ZERO, Atom, Expr, Whole, expr, name_of
from ..tree.nodes import At, Buffer, Cut, Kernel, Loop, Statement, View
from ..tree.rewrite import Change, copied
from .build import Builder

# times that moving takes as long as issuing, from which a transfer is large enough
ENOUGH = 4.0
# turns that share what issuing takes, from which more save nothing
MOST_TURNS = 32
# times as long that transfers of single turns take, from which turns that lie between each other share one
CLOSER = 2.0
# times as long as together that a turn's share of a transfer may take, for one of fewer turns
NEARLY = 1.2
# part of the busiest engine's time that transfers take at least, where they are worth a change
LEAST = 0.25
# axes of what one transfer moves, at most
MOST_AXES = 4


Moved = nodes.Load | nodes.Store | nodes.Copy


@dataclass(frozen=True)
class Transfer:
    """What every turn of a loop moves, and how several turns move it at once."""

    statement: Moved  # the load, store or copy of a turn
    far: View  # what turns move to or from
    tile: View  # what a turn has for itself
    number: int  # axis of the tensor in HBM along which turns move
    axis: int  # of the tile: a new one, or that which has more elements
    each: int  # elements that it has of a turn; 0 for a new axis
    # of the axes in HBM, the new one in its place; () where it is that of the tensor
    order: tuple[int | Expr, ...]
    folded: tuple[int, Whole] | None
    needed: int  # turns that make it large enough

    def part(self, held: View, turn: Expr) -> View:
        """A view of the wide tile, for one of a turn's."""
        index = list(held.index)
        if not self.each:
            return replace(held, index=(*index[: self.axis], At(turn), *index[self.axis :]))
        old = index[self.axis]
        at = turn * self.each
        index[self.axis] = At(old.at + at) if isinstance(old, At) else replace(old, start=old.start + at)
        return replace(held, index=tuple(index))

    def buffer(self, turns: int) -> Buffer:
        """The wide tile."""
        old, axis = self.tile.buffer, self.axis
        rest = old.shape[axis + 1 :] if self.each else old.shape[axis:]
        return replace(old, shape=(*old.shape[:axis], turns * max(self.each, 1), *rest))

    def wide(self, buffer: Buffer, variable: str, turns: int) -> Moved:
        """The transfer of several turns, the first of which a variable counts."""
        first: dict[Atom, Expr] = {variable: name_of(variable) * turns}
        index, old = [*self.far.index], self.far.index[self.number]
        at = old.at if isinstance(old, At) else old.start
        own = old.count if isinstance(old, Cut) else expr(1)
        step = grown(at, variable) if isinstance(old, At) else old.step
        index[self.number] = Cut(at.replaced(first), own * turns, step)
        moved = replace(self.far, index=tuple(index), order=self.order, folded=self.folded)
        parts, count = [*self.tile.index], Cut(ZERO, expr(turns * max(self.each, 1)))
        parts[self.axis : self.axis + bool(self.each)] = [count]
        tile = View(buffer, tuple(parts))
        dst, src = (tile, moved) if isinstance(self.statement, nodes.Load) else (moved, tile)
        return replace(self.statement, dst=dst, src=src)


def grown(at: Expr, variable: str) -> int:
    """By how much a position grows from turn to turn; 0 if it is no number."""
    held = [(factors, c) for factors, c in at.terms if variable in Expr(((factors, c),)).names]
    return held[0][1] if [factors for factors, _ in held] == [(variable,)] else 0


def _sides(statement: Moved) -> tuple[View, View]:
    """What turns move to or from, and the tile that a turn has for itself."""
    is_load = isinstance(statement, nodes.Load)
    return (statement.src, statement.dst) if is_load else (statement.dst, statement.src)


def _labels(view: View) -> list[int | Expr]:
    """Axes of a view in HBM as they are seen, blocks of partitions as numbers below zero."""
    cuts: list[int | Expr] = [n for n, i in enumerate(view.index) if isinstance(i, Cut)]
    return in_order(replace(view, repeat=None), cuts, _with_blocks, lambda count: count)


def _with_blocks(axis: int | Expr, _: Whole) -> list[int | Expr]:
    """An axis that is seen as partitions and blocks."""
    return [axis, -1 - axis]


def _way(loop: Loop, statement: Moved) -> Transfer | None:
    """How several turns of a loop move at once what a statement does; None if they cannot."""
    far, tile = _sides(statement)
    if far.has_parts:
        return None
    if far.is_turned and not far.order and far.folded is None and len(far.cuts) == 2:
        far = replace(far, is_turned=False, order=(1, 0))
    if far.is_turned and len(far.index) > len(far.buffer.shape):
        # a column, with an axis of one in front
        far = replace(far, index=far.index[1:], is_turned=False)
    moving = [n for n, i in enumerate(far.index) if loop.variable in nodes.names_in([i])]
    seen, has_row = _labels(far), far.repeat is not None
    own = [n for n, i in enumerate(tile.index) if isinstance(i, Cut)]
    if len(own) == len(seen) + has_row + 1 > 1 and tile.index[own[-1]] == Cut(ZERO, expr(1)):
        # columns of one
        tile = replace(tile, index=(*tile.index[: own[-1]], At(ZERO), *tile.index[own.pop() + 1 :]))
    is_plain = len(moving) == 1 and not (far.is_turned or tile.is_turned or tile.order or tile.folded)
    is_plain &= own[:1] == [0] and len(own) == len(seen) + has_row
    if not is_plain or loop.variable in nodes.names_in(tile.index) or len(own) > MOST_AXES:
        return None
    index = far.index[moving[0]]
    each = grown(index.at if isinstance(index, At) else index.start, loop.variable)
    if isinstance(index, At):
        return _with_axis(statement, far, tile, moving[0], own) if each > 0 else None
    is_next = index.count.value is not None and each == index.count.value * index.step > 0
    return _with_longer_axis(statement, far, tile, moving[0], own) if is_next else None


def _with_axis(statement: Moved, far: View, tile: View, number: int, own: list[int]) -> Transfer:
    """Turns that each have one position of an axis, which becomes an axis of the tile, too."""
    seen, has_row = _labels(far), far.repeat is not None
    later = (n for n, a in enumerate(seen) if isinstance(a, int) and max(a, -1 - a) > number and n + has_row)
    place = next(later, len(seen))
    wanted = [*seen[:place], number, *seen[place:]]
    index = (*far.index[:number], Cut(ZERO, expr(1)), *far.index[number + 1 :])
    plain = _labels(replace(far, index=index, order=()))
    order = tuple(plain.index(a) if isinstance(a, int) else a for a in wanted)
    order = () if order == tuple(range(len(plain))) else order
    axis = own[place + has_row] if place + has_row < len(own) else own[-1] + 1
    return Transfer(statement, far, tile, number, axis, 0, order, far.folded, 0)


def _with_longer_axis(
    statement: Moved, far: View, tile: View, number: int, own: list[int]
) -> Transfer | None:
    """Turns that each have the next positions of an axis, which has more of them in the tile, too."""
    index, label, has_row = far.index[number], number, far.repeat is not None
    assert isinstance(index, Cut)
    count = index.count.value or 0
    if far.folded is not None and far.folded[0] == number:
        # turns move along the blocks of partitions
        count, label = count // (expr(far.folded[1]).value or 1), -1 - number
    axis = own[_labels(far).index(label) + has_row]
    if tile.index[axis] != Cut(ZERO, expr(count)) or tile.buffer.shape[axis] != count:
        return None
    if axis:
        return Transfer(statement, far, tile, number, axis, count, far.order, far.folded, 0)
    is_free = far.folded is None and not far.order and not has_row and index.step == 1
    return Transfer(statement, far, tile, number, 1, 0, (), (number, count), 0) if is_free else None


def _is_apart(loop: Loop, statement: Moved) -> bool:
    """Whether a transfer may go before a loop, or behind it, and nothing else of the loop notices."""
    is_load, (far, tile) = isinstance(statement, nodes.Load), _sides(statement)
    place = next(n for n, s in enumerate(loop.body) if s is statement)
    is_own = any(isinstance(s, nodes.Alloc) and s.buffer is tile.buffer for s in loop.body)
    behind = {id(s) for s in nodes.statements(loop.body[place:])}
    others = (other for other in nodes.statements(loop.body) if other is not statement)
    for s, name, view in ((other, *named) for other in others for named in views_of(other)):
        is_written = name in ("dst", "total")
        if view.buffer is tile.buffer:
            is_own &= len(view.index) == len(view.buffer.shape)
            is_own &= not (is_written and (is_load or id(s) in behind))
        elif view.buffer.root is far.buffer.root:
            is_own &= (
                _are_disjoint(loop, view, far) if not is_load and is_written else not is_written and is_load
            )
    return is_own


def _are_disjoint(loop: Loop, one: View, other: View) -> bool:
    """Whether two parts of a buffer have nothing in common in all turns of a loop, as one axis shows."""
    turns = (ZERO, expr(loop.trips) - 1)

    def ends(i: At | Cut) -> list[int]:
        """Those that are known, of four."""
        start, count = (i.at, expr(1)) if isinstance(i, At) else (i.start, i.count * i.step)
        every = (end.replaced({loop.variable: at}).value for at in turns for end in (start, start + count))
        return [n for n in every if n is not None]

    both = ((ends(a), ends(b)) for a, b in zip(one.index, other.index, strict=False))
    pairs = [(a, b) for a, b in both if len(a) == len(b) == 2 * len(turns)]
    return any(max(a) <= min(b) or max(b) <= min(a) for a, b in pairs)


class Coalescing:
    """Makes transfers of a kernel wider.

    Args:
        kernel: changed in place.
        is_given: whether a mapping names parts: then loops stay, and transfers of parts, too.
    """

    def __init__(self, kernel: Kernel, hardware: Hardware, build: Builder, is_given: bool) -> None:
        self.kernel, self.hardware, self.build, self.is_given = kernel, hardware, build, is_given
        times = hardware.total(kernel.body)
        busiest = max((t for e, t in times.items() if e != "dma"), default=0.0)
        self.is_moving = times.get("dma", 0.0) > LEAST * busiest
        self.fitting = buffers_that_fit(kernel, hardware.machine)

    def change(self) -> None:
        """Change all loops."""
        self.in_body(self.kernel.body)

    def in_body(self, body: list[Statement]) -> None:
        """Change the loops of a body, the innermost first."""
        for loop in [s for s in body if isinstance(s, Loop)]:
            self.in_body(loop.body)
            self.change_loop(loop, body)

    def change_loop(self, loop: Loop, body: list[Statement]) -> None:
        """Change one loop of a body, and what comes of it, as long as that is possible."""
        trips = expr(loop.trips).value
        if trips is None or loop.count_name or loop.total is not None:
            return
        self.keep_handed_on(loop, trips)
        transfers = [t for s in loop.body if isinstance(s, Moved) for t in self.wanted(loop, s, trips)]
        # what is loaded into a tile and stored from it makes the tile wider in one way: that of the first
        first = {id(t.tile.buffer): (t.axis, t.each) for t in reversed(transfers)}
        transfers = [t for t in transfers if first[id(t.tile.buffer)] == (t.axis, t.each)]
        before, place = list(body), next(n for n, s in enumerate(body) if s is loop)
        # what is loaded and stored has one shape
        shapes = {(id(t.tile.buffer), t.axis, t.each) for t in transfers}
        tiles = [tile for tile, _, _ in shapes]
        transfers = [t for t in transfers if tiles.count(id(t.tile.buffer)) == 1]
        if not transfers:
            return
        # what all turns share goes before the loop, or behind it; for the others a loop is divided once
        parts = [t for t in transfers if t.needed < trips and not self.is_given]
        ways = [(trips, [t for t in transfers if t.needed == trips])]
        ways += [(n, parts) for n in sorted({t.needed for t in parts}, reverse=True)]
        # without room for as many as are wanted, fewer share one
        moved = [t for t in transfers if not isinstance(t.statement, nodes.Copy) and not self.is_given]
        least = min((t.needed for t in moved), default=0)
        ways += [(n, moved) for n in range(least - 1, 1, -1) if trips % n == 0 and least % n == 0]
        for turns, kept in (way for way in ways if way[1]):
            body[place : place + 1] = made = list(self.divided(loop, kept, trips, turns))
            if buffers_that_fit(self.kernel, self.hardware.machine) != self.fitting:
                body[:] = before
                continue
            around = body if turns == trips else next(s.body for s in made if isinstance(s, Loop))
            for inner in [s for s in (made if turns == trips else around) if isinstance(s, Loop)]:
                self.change_loop(inner, around)
            return

    def keep_handed_on(self, loop: Loop, trips: int) -> None:
        """Store what a turn hands on from a copy of its own: the next turn need not wait to write it."""
        inside = {id(s.buffer) for s in loop.body if isinstance(s, nodes.Alloc)}
        stores = [s for s in loop.body if isinstance(s, nodes.Store)]
        for store in (s for s in stores if id(s.src.buffer) not in inside):
            buffer = replace(store.src.buffer, name=self.build.fresh(store.src.buffer.name), role="tile")
            later = replace(store, src=replace(store.src, buffer=buffer))
            place = next(n for n, s in enumerate(loop.body) if s is store)
            steps = [nodes.Alloc(buffer), nodes.Copy(later.src, store.src), later]
            body = [*loop.body[:place], *steps, *loop.body[place + 1 :]]
            is_whole = store.src.index == tuple(Cut(ZERO, expr(n)) for n in buffer.shape)
            if is_whole and any(self.wanted(replace(loop, body=body), later, trips)):
                loop.body[:] = body
                self.fitting = buffers_that_fit(self.kernel, self.hardware.machine)

    def wanted(self, loop: Loop, statement: Moved, trips: int) -> Iterator[Transfer]:
        """How a transfer is made wider, if it is worth it."""
        way = _way(loop, statement)
        is_part = self.is_given and way is not None and isinstance(way.far.index[way.number], Cut)
        if way is None or is_part or not _is_apart(loop, statement):
            return
        parts = [n for n in range(2, trips + 1) if trips % n == 0]
        if isinstance(statement, nodes.Copy):
            most = int(self.hardware.machine["psum_bank_bytes"]) // size_of(way.tile.buffer)
            fitting = [n for n in parts if n <= most]
            if way.tile.buffer.memory == nodes.PSUM and fitting:
                yield replace(way, needed=fitting[-1])
            return
        start_ns = ENOUGH * self.hardware.machine["dma_issue_ns"]
        moving_ns = self.hardware.moving_ns(self.hardware.steps(statement)[0])
        if not self.is_moving:
            return

        def work_ns(turns: int) -> float:
            together = way.wide(way.buffer(turns), loop.variable, turns)
            return self.hardware.work_ns(self.hardware.steps(together)[0]) / turns

        # what turns move may lie between each other
        if (least_ns := work_ns(trips)) * CLOSER < work_ns(1):
            parts = [n for n in parts if work_ns(n) <= NEARLY * least_ns]
            moving_ns *= least_ns / work_ns(1)
        elif moving_ns >= start_ns:
            return
        enough = (n for n in parts if n * moving_ns >= start_ns or n >= MOST_TURNS)
        yield replace(way, needed=next(enough, trips))

    def divided(
        self, loop: Loop, transfers: Sequence[Transfer], trips: int, turns: int
    ) -> Iterator[Statement]:
        """A loop over so many turns at once, with a loop over these inside."""
        variable = loop.variable
        inner = variable if turns == trips else self.build.fresh(variable)
        outer = name_of(variable) * turns
        wide = {id(t.tile.buffer): t for t in transfers}
        allocs = [s.buffer for s in nodes.statements(loop.body) if isinstance(s, nodes.Alloc)]
        # a first iteration that stands apart has a tile of the same name as the others'
        taken = {b.name for b in allocs if id(b) not in wide}
        buffers = {n: t.buffer(turns) for n, t in wide.items()}
        buffers |= {
            n: replace(b, name=self.build.fresh(b.name)) for n, b in buffers.items() if b.name in taken
        }

        def view(held: View) -> View:
            way, buffer = wide.get(id(held.buffer)), buffers.get(id(held.buffer), held.buffer)
            return held if way is None else replace(way.part(held, name_of(inner)), buffer=buffer)

        names: dict[Atom, Expr] = {} if inner == variable else {variable: outer + name_of(inner)}
        moved = {id(t.statement) for t in transfers}
        rest = [
            s for s in loop.body
            if id(s) not in moved and not (isinstance(s, nodes.Alloc) and id(s.buffer) in wide)
        ]  # fmt: skip
        kept = copied(rest, Change(names, view, {}))
        made = [t.wide(buffers[id(t.tile.buffer)], variable, turns) for t in transfers]
        loads, stores = ([t for t in made if isinstance(t, nodes.Load) is way] for way in (True, False))
        body: list[Statement] = [*map(nodes.Alloc, buffers.values()), *loads]
        is_empty = all(isinstance(s, nodes.Alloc | nodes.Comment) for s in kept)
        body += [] if is_empty else [replace(loop, variable=inner, trips=turns, body=kept, comment="")]
        body += stores
        if turns == trips:
            start: dict[Atom, Expr] = {variable: ZERO}
            unchanged = Change(start, lambda held: held, {})
            body = [s if isinstance(s, Loop | nodes.Alloc) else copied([s], unchanged)[0] for s in body]
            yield from [nodes.Comment(loop.comment)] if loop.comment else []
            yield from body
        else:
            yield replace(loop, trips=trips // turns, body=body)
