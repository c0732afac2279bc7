"""Turns apart from their loops: the first, which begins a sum without zeros, and the last, if it has less.

Short loops over wide tiles add to no zeros. Ragged loops inside even ones leave their last turn behind them:
where each turn of the loop around has tiles of one size, its transfers are one, and its turns go together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod

from ..language.operators import OPERATORS
from ..room import views_of
from ..tree import nodes
from ..tree.expr import ZERO, Atom, Expr, expr, name_of
from ..tree.nodes import Alloc, Combine, Copy, Fill, Loop, Scale, ScaleCombine, Statement, Tally, View
from ..tree.rewrite import Change, copied
from .context import Context

# iterations of a loop, and statements of one, at most; elements per partition of a sum, at least
MOST_TRIPS, MOST_STATEMENTS, FEWEST_ELEMENTS = 8, 4, 256
# statements of a ragged loop, at most
MOST_RAGGED = 60


def peel(kernel: nodes.Kernel, ctx: Context) -> None:
    """Change a kernel in place."""
    _peel(kernel.body)
    ways, loops = ("behind their loops", "in them"), nodes.walked(kernel.body)
    is_ragged = any(_is_ragged(s) and not all(loop.count for loop in around) for s, around in loops)
    if is_ragged and ctx.pick("ragged turns", ways, costs=(1.0, 1.9)) == ways[0]:
        without_ragged_turns(kernel.body, ctx.build.fresh)


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
    """One iteration; that which begins a sum if one is given."""
    for s in _turn(loop, {loop.variable: at}, str):
        if total is not None and isinstance(s, Loop):
            yield from _apart(s, total)
        else:
            first = _begun(s, total) if total is not None else None
            yield s if first is None else first[0]


def _turn(loop: Loop, names: Mapping[Atom, Expr], called: Callable[[str], str]) -> list[Statement]:
    """What one iteration does, with tiles of its own."""
    tiles = [s.buffer for s in nodes.statements(loop.body) if isinstance(s, Alloc)]
    own = {id(b): replace(b, name=called(b.name)) for b in tiles}
    change = Change(names, lambda view: replace(view, buffer=own.get(id(view.buffer), view.buffer)), own)
    return copied(loop.body, change)


def without_ragged_turns(body: list[Statement], fresh: Callable[[str], str], is_inside: bool = False) -> None:
    """Change the loops of a body, the innermost first; tiles of last turns have new names."""
    for loop in [s for s in body if isinstance(s, Loop)]:
        without_ragged_turns(loop.body, fresh, is_inside or not loop.count)
        if is_inside and _is_ragged(loop):
            place = next(n for n, s in enumerate(body) if s is loop)
            body[place : place + 1] = _even(loop, fresh)


def _is_ragged(loop: Statement) -> bool:
    """Whether a statement is a loop of which only a known last turn has fewer elements."""
    if not isinstance(loop, Loop) or loop.count is None or loop.total is not None or not loop.most_count:
        return False
    is_known = loop.count.names <= {loop.variable} and expr(loop.trips).value is not None
    return is_known and len([*nodes.statements(loop.body)]) <= MOST_RAGGED


def _even(loop: Loop, fresh: Callable[[str], str]) -> Iterator[Statement]:
    """The full turns of a ragged loop, and the last one."""
    trips, full = expr(loop.trips).value or 0, expr(loop.most_count)
    yield from [nodes.Comment(loop.comment)] if loop.comment else []
    if trips > 2:
        body = copied(loop.body, Change({loop.count_name: full}, lambda view: view, {}))
        yield replace(loop, trips=trips - 1, body=body, count_name="", count=None, comment="")
    else:
        yield from _turn(loop, {loop.variable: ZERO, loop.count_name: full}, str)
    last: dict[Atom, Expr] = {loop.variable: expr(trips - 1), loop.count_name: expr(loop.last_count({}))}
    yield from _turn(loop, last, fresh)
