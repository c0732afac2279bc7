"""Copies of statements with names of loops replaced and buffers exchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from operator import is_
from typing import Any

from .expr import Atom, Expr
from .nodes import Alloc, At, Buffer, Cut, Loop, MatMul, Statement, Summed, View


@dataclass(frozen=True)
class Change:
    """What is different in a copy."""

    names: Mapping[Atom, Expr]  # what stands for a name of a loop
    view: Callable[[View], View]  # of a view whose names are replaced already, the one that stands for it
    buffers: Mapping[int, Buffer]  # what stands for a buffer that the copied statements make


def copied(body: Iterable[Statement], change: Change) -> list[Statement]:
    """Statements, those in loops too, with a change made."""
    return [_copied(statement, change) for statement in body]


def _copied(statement: Statement, change: Change) -> Statement:
    if isinstance(statement, Alloc):
        return Alloc(change.buffers.get(id(statement.buffer), statement.buffer))
    found = {f.name: _replaced(getattr(statement, f.name), change) for f in fields(statement)}
    if isinstance(statement, Loop):
        found["body"] = copied(statement.body, change)
    if isinstance(statement, MatMul):
        # a turn by itself adds to the sum that the first one begins; of two loops instead of one both go on
        own = {v: change.names[v] for v in statement.over if v in change.names}
        over = [v for v in statement.over if v not in own or v in own[v].names]
        found["over"] = (*over, *(n for at in own.values() for n in sorted(at.names.difference(over))))
        found["is_begun"] = statement.is_begun or any(at.value for at in own.values())
    return replace(statement, **found)


def _replaced(value: object, change: Change) -> Any:
    """What a field of a statement has, with a change made."""
    if isinstance(value, View):
        return view_of(value, change)
    if isinstance(value, Expr):
        return value if value.names.isdisjoint(change.names) else value.replaced(change.names)
    if isinstance(value, tuple):
        return tuple(_replaced(part, change) for part in value)
    if isinstance(value, At | Cut | Summed):
        parts = [_replaced(part, change) for part in vars(value).values()]
        return value if all(map(is_, parts, vars(value).values())) else type(value)(*parts)
    return value


def view_of(view: View, change: Change) -> View:
    """A view with a change made."""
    parts = {name: _replaced(getattr(view, name), change) for name in ("index", "repeat", "order", "turn")}
    return change.view(replace(view, **parts))
