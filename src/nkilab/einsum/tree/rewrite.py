"""Copies of statements with names of loops replaced and buffers exchanged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from .expr import Expr, expr, name_of
from .nodes import Alloc, At, Buffer, Cut, Loop, Statement, Summed, View


@dataclass(frozen=True)
class Change:
    """What is different in a copy.

    Args:
        names: what stands for a name of a loop.
        view: of a view whose names are replaced already, the one that stands for it.
        buffers: what stands for a buffer that the copied statements make.
    """

    names: Mapping[str, Expr]
    view: Callable[[View], View]
    buffers: Mapping[int, Buffer]


def replaced(value: Expr, names: Mapping[str, Expr]) -> Expr:
    """An expression with names replaced.

    Raises:
        ValueError: if an atom such as a quotient or a minimum has one of them inside.
    """
    for atom in (f for factors, _ in value.terms for f in factors if f not in names):
        if any(re.search(rf"\b{name}\b", atom) for name in names):
            raise ValueError(f"{atom} is no sum of products")
    total = expr(0)
    for factors, c in value.terms:
        term = expr(c)
        for factor in factors:
            term = term * names.get(factor, name_of(factor))
        total = total + term
    return total


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
            found[field.name] = replaced(value, change.names)
        elif isinstance(value, tuple) and value and isinstance(value[0], Summed):
            found[field.name] = tuple(_summed(one, change) for one in value)
    if isinstance(statement, Loop):
        found["body"] = copied(statement.body, change)
    return replace(statement, **found)


def _summed(given: Summed, change: Change) -> Summed:
    start, count, whole_start, whole_count = (
        replaced(e, change.names) for e in (given.start, given.count, given.whole_start, given.whole_count)
    )
    return Summed(given.variable, start, count, whole_start, whole_count, given.extent)


def view_of(view: View, change: Change) -> View:
    """A view with a change made."""
    index: list[At | Cut] = []
    for i in view.index:
        if isinstance(i, At):
            index.append(At(replaced(i.at, change.names)))
        else:
            start, count = (replaced(e, change.names) for e in (i.start, i.count))
            index.append(Cut(start, count, i.step))
    repeat = None if view.repeat is None else replaced(view.repeat, change.names)
    return change.view(replace(view, index=tuple(index), repeat=repeat))
