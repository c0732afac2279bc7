"""Copies of statements with names of loops replaced and buffers exchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from .expr import Atom, Expr
from .nodes import Alloc, At, Buffer, Cut, Loop, Statement, Summed, View


@dataclass(frozen=True)
class Change:
    """What is different in a copy.

    Args:
        names: what stands for a name of a loop.
        view: of a view whose names are replaced already, the one that stands for it.
        buffers: what stands for a buffer that the copied statements make.
    """

    names: Mapping[Atom, Expr]
    view: Callable[[View], View]
    buffers: Mapping[int, Buffer]


def copied(body: Iterable[Statement], change: Change) -> list[Statement]:
    """Statements, those in loops too, with a change made."""
    return [_copied(statement, change) for statement in body]


def _copied(statement: Statement, change: Change) -> Statement:
    if isinstance(statement, Alloc):
        return Alloc(change.buffers.get(id(statement.buffer), statement.buffer))
    found: dict[str, Any] = {}
    for field in fields(statement):
        value = getattr(statement, field.name)
        if isinstance(value, View):
            found[field.name] = view_of(value, change)
        elif isinstance(value, Expr):
            found[field.name] = value.replaced(change.names)
        elif isinstance(value, tuple) and value and isinstance(value[0], Summed):
            found[field.name] = tuple(_summed(one, change) for one in value)
    if isinstance(statement, Loop):
        found["body"] = copied(statement.body, change)
    return replace(statement, **found)


def _summed(given: Summed, change: Change) -> Summed:
    start, count, whole_start, whole_count = (
        e.replaced(change.names) for e in (given.start, given.count, given.whole_start, given.whole_count)
    )
    return Summed(given.variable, start, count, whole_start, whole_count, given.extent)


def view_of(view: View, change: Change) -> View:
    """A view with a change made."""
    index: list[At | Cut] = []
    for i in view.index:
        if isinstance(i, At):
            index.append(At(i.at.replaced(change.names)))
        else:
            start, count = (e.replaced(change.names) for e in (i.start, i.count))
            index.append(Cut(start, count, i.step))
    repeat = None if view.repeat is None else view.repeat.replaced(change.names)
    return change.view(replace(view, index=tuple(index), repeat=repeat))
