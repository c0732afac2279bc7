"""Turns of a loop as one instruction, where each does little more than begin.

What a turn has of a tile becomes one position along an axis behind the partitions.
"""

from __future__ import annotations

from dataclasses import fields, replace

from ..hardware import Hardware
from ..tree import nodes
from ..tree.along import DATA, ELEMENTWISE
from ..tree.expr import ZERO, Atom, Expr, expr
from .coalesced import MOST_AXES, grown
from .pipeline import WRITTEN, state_of, units_of

# part of the time of single turns that one instruction takes at most
WORTH = 0.85


def with_merged_turns(body: list[nodes.Statement], hardware: Hardware, *, is_chain: bool = False) -> None:
    """Have one instruction in place of loops of one, where others wait for all of it and that saves much.

    Args:
        is_chain: whether turns hand on a state. Elsewhere what comes next begins with what is there first.
    """
    for place, loop in ((n, s) for n, s in enumerate(body) if isinstance(s, nodes.Loop)):
        with_merged_turns(loop.body, hardware, is_chain=is_chain or loop.is_sequential)
        body[place] = (_instead(loop, hardware) if is_chain else None) or loop


def _instead(loop: nodes.Loop, hardware: Hardware) -> nodes.Statement | None:
    """The instruction that does what a loop does in much less time; None if there is none."""
    turns, (unit, *more) = expr(loop.trips).value, [*units_of(loop.body), None]
    if unit is None or more != [None] or not turns or loop.count_name or loop.total is not None:
        return None
    if unit.before or unit.after or state_of([unit], loop.variable):
        return None
    one = merged(unit.statement, loop.variable, turns)
    is_less = one is not None and hardware.of(one)[1] <= WORTH * turns * hardware.of(unit.statement)[1]
    return one if is_less else None


def merged(statement: nodes.Statement, variable: str, turns: int) -> nodes.Statement | None:
    """What a statement does in all turns of a loop at once; None if no instruction does."""
    views = {f.name: v for f in fields(statement) if isinstance(v := getattr(statement, f.name), nodes.View)}
    data = {n: _wide(v, variable, turns, n in WRITTEN) for n, v in views.items() if n in DATA}
    is_column = any(variable in nodes.names_in(v.index) for n, v in views.items() if n not in DATA)
    is_plain = isinstance(statement, ELEMENTWISE) and not isinstance(statement, nodes.Select)
    if not is_plain or is_column or None in data.values() or "total" in views:
        return None
    return replace(statement, **data)


def _wide(view: nodes.View, variable: str, turns: int, is_written: bool) -> nodes.View | None:
    """A view of what some turns have, with an axis for these behind the partitions; None if there is none."""
    moving = [n for n, i in enumerate(view.index) if variable in nodes.names_in([i])]
    is_plain = view.buffer.memory != nodes.HBM and len(view.index) == len(view.buffer.shape)
    is_plain &= not (view.order or view.has_parts) and len(view.cuts) < MOST_AXES
    if not is_plain or len(moving) > 1 or moving == [0] or (is_written and not moving):
        return None
    if not moving:
        return replace(view, order=(0, expr(turns), *range(1, len(view.cuts))))
    (place,) = moving
    index, start = view.index[place], dict[Atom, Expr]({variable: ZERO})
    at = index.start if isinstance(index, nodes.Cut) else index.at
    own = nodes.Cut(ZERO, index.count, index.step) if isinstance(index, nodes.Cut) else None
    if (step := grown(at, variable)) <= 0 or (own is not None and variable in own.count.names):
        return None
    cut = nodes.Cut(at.replaced(start), expr(turns), step, own)
    wide = replace(view, index=(*view.index[:place], cut, *view.index[place + 1 :]))
    axis = sum(isinstance(i, nodes.Cut) for i in view.index[:place])
    rest = (n for n in range(1, len(wide.cuts)) if n != axis)
    return wide if axis == 1 else replace(wide, order=(0, axis, *rest))
