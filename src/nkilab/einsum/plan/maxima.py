"""Maxima of what VectorE chooses, which the instructions that choose it have anyway, piece by piece.

    for h: for n: S[:, h, n*512 : n*512 + 512] = X if T else -inf
    for h: M[:, h] = maximum of S[:, h, :]

goes over S once where each piece keeps its own maximum, and M is that of the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..room import views_of
from ..tree import nodes
from ..tree.expr import ZERO, Atom, Expr, expr, name_of
from ..tree.nodes import Alloc, At, Buffer, Choose, Cut, Loop, Reduce, Statement, View, upto
from ..tree.rewrite import Change, view_of


@dataclass
class _Place:
    """A statement in a list of them, and the loops around it inside of a body, the outermost first."""

    body: list[Statement]
    statement: Statement
    loops: tuple[Loop, ...]

    def take(self, other: Statement) -> None:
        """Put another statement in its place."""
        self.body[next(n for n, s in enumerate(self.body) if s is self.statement)] = other


def with_maxima_of_choices(body: list[Statement], fresh: Callable[[str], str]) -> None:
    """Change statements in place."""
    for loop in [s for s in body if isinstance(s, Loop)]:
        with_maxima_of_choices(loop.body, fresh)
    for place in [p for p in _places(body, ()) if isinstance(p.statement, Reduce)]:
        if choice := _choice_of(place, body):
            _merge(place, choice, body, fresh)


def _places(body: list[Statement], loops: tuple[Loop, ...]) -> Iterator[_Place]:
    for statement in body:
        yield _Place(body, statement, loops)
        if isinstance(statement, Loop):
            yield from _places(statement.body, (*loops, statement))


def _choice_of(reduction: _Place, body: list[Statement]) -> _Place | None:
    """What alone writes the rows of which a reduction has the maxima, before it, piece by piece."""
    reduce = reduction.statement
    if not isinstance(reduce, Reduce) or reduce.op != "maximum" or reduce.axes != 1:
        return None
    buffer, every = reduce.src.buffer, [(p, views_of(p.statement)) for p in _places(body, ())]
    first, *others = [(p, name) for p, views in every for name, v in views if v.buffer is buffer]
    choice = first[0].statement
    if not isinstance(choice, Choose) or first[1] != "dst" or choice.total or choice.left:
        return None
    is_written_again = any(name in ("dst", "total") for _, name in others)
    is_free = buffer.dtype == "float32" and not is_written_again
    return first[0] if is_free and _are_pieces(reduction, first[0]) else None


def _are_pieces(reduction: _Place, choice: _Place) -> bool:
    """Whether what is written are the rows that are reduced, or, in a loop more, pieces of one length."""
    src, dst = (getattr(p.statement, name) for p, name in ((reduction, "src"), (choice, "dst")))
    outer, more = choice.loops[: len(reduction.loops)], choice.loops[len(reduction.loops) :]
    trips = [[expr(loop.trips).value for loop in loops] for loops in (reduction.loops, outer, more)]
    is_plain = all(v == View(v.buffer, v.index) and v.turn is None and len(v.cuts) == 2 for v in (src, dst))
    if trips[0] != trips[1] or None in (*trips[0], *trips[2]) or len(more) > 1 or not is_plain:
        return False
    pairs = zip(reduction.loops, outer, strict=True)
    names: dict[Atom, Expr] = {own.variable: name_of(other.variable) for own, other in pairs}
    row = view_of(src, Change(names, lambda view: view, {})).index
    piece, length = dst.index[-1], dst.cuts[-1].count.value
    start = name_of(more[0].variable) * (length or 0) if more else ZERO
    is_piece = length is not None and (piece, row[:-1]) == (Cut(start, expr(length)), dst.index[:-1])
    return is_piece and row[-1] == upto(length * (trips[2][0] if more else 1))


def _merge(reduction: _Place, choice: _Place, body: list[Statement], fresh: Callable[[str], str]) -> None:
    """Have the pieces keep their maxima, and reduce these."""
    chosen, reduce, depth = choice.statement, reduction.statement, len(reduction.loops)
    assert isinstance(chosen, Choose)
    assert isinstance(reduce, Reduce)
    trips = [loop.trips for loop in choice.loops]
    shape = (chosen.dst.buffer.shape[0], *trips[:depth], *(trips[depth:] or [1]))
    maxima = Buffer(fresh("maxima"), shape, "float32", nodes.SBUF)

    def at(loops: tuple[Loop, ...], rows: Cut | At, last: Cut) -> View:
        return View(maxima, (rows, *(At(name_of(loop.variable)) for loop in loops), last))

    first = choice.loops[0] if choice.loops else chosen
    body.insert(next(n for n, s in enumerate(body) if s is first), Alloc(maxima))
    own = Cut(name_of(choice.loops[-1].variable) if len(choice.loops) > depth else ZERO, expr(1))
    choice.take(replace(chosen, total=at(choice.loops[:depth], chosen.dst.index[0], own)))
    reduction.take(replace(reduce, src=at(reduction.loops, reduce.src.index[0], upto(shape[-1]))))
