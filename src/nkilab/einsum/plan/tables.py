"""Functions that a power computes, on GpSimdE, where ScalarE would load tables for them turn by turn.

ScalarE has the table of one function at a time. A turn that takes an exponential and a logarithm loads both:
that takes longer than most small tiles. Powers need no table.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import e

from ...tiles.dtypes import as_dtype
from ...timing.work import TABLELESS
from ..hardware import Hardware
from ..room import views_of
from ..tree import nodes

# functions that are powers: of what, and whether the argument is the exponent
POWERS = {"exp": (e, True), "sqrt": (0.5, False), "rsqrt": (-0.5, False)}


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
    tables = [table for s in calls if (table := hardware.steps(s)[0].table) not in TABLELESS]
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
