"""Functions of one table together: ScalarE loads a table where a function needs another than the last one.

A function goes up to the last one of its table, with what it needs in between, if no others between them
touch what these write, or write what they read, and no other table is loaded among them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..hardware import Hardware
from ..tree import nodes
from .pipeline import Unit, are_in_order, listed, units_of


def by_table(body: list[nodes.Statement], hardware: Hardware) -> None:
    """Order the statements of a body, and of its loops, in place."""
    for statement in body:
        if isinstance(statement, nodes.Loop):
            by_table(statement.body, hardware)
    units = units_of(body)
    tables = {id(u): hardware.tables(u.statement) for u in units}
    ordered = units
    for unit in units:
        ordered = _raised(ordered, unit, tables)
    if ordered != units:
        body[:] = listed(ordered)


def _raised(units: list[Unit], unit: Unit, tables: dict[int, list[str]]) -> list[Unit]:
    """Units with one of them, and what it needs, behind the last before it that has its table."""
    place, own = units.index(unit), tables[id(unit)]
    users = [n for n in range(place) if tables[id(units[n])]]
    same = [n for n in users if tables[id(units[n])][-1:] == own[:1]]
    if len(set(own)) != 1 or not same or same[-1] == users[-1]:
        return units
    between = units[same[-1] + 1 : place]
    moved = _needed(unit, between)
    left = [u for u in between if u not in moved]
    if any(tables[id(u)] for u in moved[:-1]) or any(are_in_order(u, m) for u in left for m in moved):
        return units
    return [*units[: same[-1] + 1], *moved, *left, *units[place + 1 :]]


def _needed(unit: Unit, between: Sequence[Unit]) -> list[Unit]:
    """A unit behind those of the ones before it that it needs."""
    moved = [unit]
    for other in reversed(between):
        if any(other.writes & m.touches for m in moved):
            moved.insert(0, other)
    return moved
