"""Sums that their first value begins: short loops over wide tiles add to no zeros."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from ..language.operators import OPERATORS
from ..room import views_of
from ..tree import nodes
from ..tree.expr import ZERO, Expr, expr, name_of
from ..tree.nodes import Alloc, Combine, Copy, Fill, Loop, Scale, ScaleCombine, Statement, Tally, View
from ..tree.rewrite import Change, copied

# iterations of a loop, and statements of one, at most; elements per partition of a sum, at least
MOST_TRIPS, MOST_STATEMENTS, FEWEST_ELEMENTS = 8, 4, 256


def peeled(kernel: nodes.Kernel) -> nodes.Kernel:
    """A kernel whose sums begin with their first value, changed in place."""
    _peel(kernel.body)
    return kernel


def _peel(body: list[Statement]) -> None:
    for inner in [s for s in body if isinstance(s, Loop)]:
        _peel(inner.body)
    for fill in [s for s in body if isinstance(s, Fill)]:
        users = [s for s in body if s is not fill and fill.dst.buffer in _buffers(s)]
        loop = users[0] if users else None
        size = prod(cut.count.value or 0 for cut in fill.dst.cuts[1:])
        if not isinstance(loop, Loop) or size < FEWEST_ELEMENTS or not _is_short(loop, fill):
            continue
        place = next(n for n, s in enumerate(body) if s is loop)
        body[place : place + 1] = _apart(loop, fill.dst)
        body[:] = [s for s in body if s is not fill]


def _buffers(statement: Statement) -> list[nodes.Buffer]:
    return [
        v.buffer for s in nodes.statements([statement]) for _, v in views_of(s) if not isinstance(s, Tally)
    ]


def _is_short(loop: Loop, fill: Fill) -> bool:
    """Whether a loop does little but add to what is filled, in one statement."""
    every = [s for s in nodes.statements([loop]) if not isinstance(s, Alloc | nodes.Comment | Tally)]
    loops, work = [s for s in every if isinstance(s, Loop)], [s for s in every if not isinstance(s, Loop)]
    touching = [s for s in work if fill.dst.buffer in _buffers(s)]
    is_plain = all(s.total is None and not s.count_name and expr(s.trips).value for s in loops)
    is_few = prod(expr(s.trips).value or 0 for s in loops) <= MOST_TRIPS
    begun = [_begun(s, fill.dst) for s in touching]
    is_neutral = len(begun) == 1 and begun[0] is not None and fill.value == begun[0][1]
    return is_plain and is_few and len(work) <= MOST_STATEMENTS and is_neutral


def _begun(s: Statement, total: View) -> tuple[Statement, float] | None:
    """What writes the first value of a sum, for what adds it, and the number that it needs no more."""
    if isinstance(s, Combine) and s.dst == total and total in (s.left, s.right) and s.left != s.right:
        operator, first = s.op, Copy(total, s.right if s.left == total else s.left, s.engine)
    elif isinstance(s, ScaleCombine) and s.dst == s.right == total != s.src:
        operator, first = s.op1, Scale(total, s.src, s.op0, s.operand0, s.reverse0)  # type: ignore[assignment]
    else:
        return None
    known = next((o for o in OPERATORS.values() if o.alu == operator and o.identity is not None), None)
    return None if known is None or known.identity is None else (first, known.identity)


def _apart(loop: Loop, total: View) -> Iterator[Statement]:
    """The first iteration, which begins a sum, and the others."""
    yield from _at(loop, ZERO, total)
    trips = expr(loop.trips).value or 1
    if trips == 2:
        yield from _at(loop, expr(1), None)
    elif trips > 2:
        rest = _at(loop, name_of(loop.variable) + 1, None)
        yield replace(loop, trips=trips - 1, body=list(rest), apart=1)


def _at(loop: Loop, at: Expr, total: View | None) -> Iterator[Statement]:
    """One iteration, with tiles of its own; that which begins a sum if one is given."""
    copies = {id(s.buffer): replace(s.buffer) for s in nodes.statements(loop.body) if isinstance(s, Alloc)}

    def view(old: View) -> View:
        return replace(old, buffer=copies.get(id(old.buffer), old.buffer))

    for s in copied(loop.body, Change({loop.variable: at}, view, copies)):
        if total is not None and isinstance(s, Loop):
            yield from _apart(s, total)
        else:
            first = _begun(s, total) if total is not None else None
            yield s if first is None else first[0]
