"""Fewer loads of tables: ScalarE loads one where a function needs another than the last one.

A function goes up to the last one of its table, with what it needs in between, if no others between them
touch what these write, or write what they read, and no other table is loaded among them. What a power
computes goes to GpSimdE, which needs no table, where loads take longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import e

from ...tiles.dtypes import as_dtype
from ..hardware import Hardware
from ..room import views_of
from ..tree import nodes
from .pipeline import Unit, are_in_order, listed, needed_for, units_of

# functions that are powers: of what, and whether the argument is the exponent
POWERS = {"exp": (e, True), "sqrt": (0.5, False), "rsqrt": (-0.5, False)}


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
    moved = [*reversed(needed_for(unit.touches, between)), unit]
    left = [u for u in between if u not in moved]
    if any(tables[id(u)] for u in moved[:-1]) or any(are_in_order(u, m) for u in left for m in moved):
        return units
    return [*units[: same[-1] + 1], *moved, *left, *units[place + 1 :]]


def without_table_loads(kernel: nodes.Kernel, hardware: Hardware) -> None:
    """Change a kernel where that saves more loads of tables than powers take."""
    loops = [s for s in nodes.statements(kernel.body) if isinstance(s, nodes.Loop)]
    for loop, function in product(loops, POWERS):
        if _saved_ns(loop, function, hardware) > 0.0:
            _exchange(loop.body, function)


def _saved_ns(loop: nodes.Loop, function: str, hardware: Hardware) -> float:
    """How much less a turn takes with the powers for all of a function."""
    calls = [s for s in nodes.statements(loop.body) if isinstance(s, nodes.Activate)]
    own, others = ([s for s in calls if (s.function == function) is side] for side in (True, False))
    powers = [_power(s) for s in own]
    if not own or not others or None in powers:
        return 0.0
    loads = _loads(calls, hardware) - _loads(others, hardware)
    times = {id(s): n for s, n in nodes.weighted(loop.body)}
    taken = sum(hardware.of(p)[1] * times[id(s)] for p, s in zip(powers, own, strict=True) if p is not None)
    return float(loads * hardware.machine["activation_table_load_ns"]) - taken


def _loads(calls: Sequence[nodes.Activate], hardware: Hardware) -> int:
    """Tables that ScalarE loads in a turn after another."""
    tables = [table for s in calls for table in hardware.tables(s)]
    return sum(table != before for table, before in zip(tables, tables[-1:] + tables[:-1], strict=True))


def _power(call: nodes.Activate) -> nodes.Scale | None:
    """A function as a power; None where it is none, or GpSimdE cannot take it over."""
    views = [v for _, v in views_of(call)]
    is_near = all(v.buffer.memory == nodes.SBUF and as_dtype(v.buffer.dtype).is_float for v in views)
    if call.function not in POWERS or call.total is not None or not is_near:
        return None
    operand, is_base = POWERS[call.function]
    first = ("multiply", call.scale) if call.bias is None else ("add", call.bias)
    if call.scale == 1.0 and call.bias is None:
        return nodes.Scale(call.dst, call.src, "power", operand, is_base)
    if call.scale != 1.0 and call.bias is not None:
        return None
    return nodes.Scale(call.dst, call.src, *first, False, "power", operand, is_base)


def _exchange(body: list[nodes.Statement], function: str) -> None:
    for place, statement in enumerate(body):
        if isinstance(statement, nodes.Loop):
            _exchange(statement.body, function)
        elif isinstance(statement, nodes.Activate) and statement.function == function:
            body[place] = _power(statement) or statement
