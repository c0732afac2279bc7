"""What turns compute besides the state that they hand on: GpSimdE has it, so that the chain is not late.

Beside scans, which keep VectorE busy for two cycles a column, GpSimdE has whole tiles, and ScalarE products
with columns and numbers.
"""

from __future__ import annotations

from math import inf

from ...machine import Machine
from ..hardware import Hardware
from ..tree.nodes import Combine, Kernel, Loop, Scale, Scan, Statement
from .balance import columns_of, elsewhere
from .pipeline import needed_for, state_of, units_of

# columns beyond which an instruction is no step of a chain, but work that VectorE does faster
MOST = 512


def set_aside(kernel: Kernel, machine: Machine) -> Kernel:
    """A kernel whose turns compute on VectorE what the next one waits for, as far as GpSimdE has time."""
    _loops(kernel.body, Hardware(machine))
    return kernel


def _loops(body: list[Statement], hardware: Hardware) -> None:
    for loop in [s for s in body if isinstance(s, Loop)]:
        if any(isinstance(s, Loop) for s in loop.body):
            _loops(loop.body, hardware)
        elif loop.is_sequential or any(isinstance(s, Scan) for s in loop.body):
            _relieved(loop.body, hardware)


def _relieved(body: list[Statement], hardware: Hardware) -> None:
    """Change the instructions of one turn in place."""
    units = units_of(body)
    has_scan = any(isinstance(u.statement, Scan) for u in units)
    state = state_of(units)
    chain = [u for u in units if u.writes & state] if has_scan else needed_for(state, units)
    if not chain and not has_scan:
        return
    busy = {"vector": 0.0, "gpsimd": 0.0, "scalar": 0.0, **hardware.total(body)}
    for unit in (u for u in units if u not in chain):
        moved = _elsewhere(unit.statement, has_scan)
        if moved is None:
            continue
        (engine, time), vector = hardware.of(moved), busy["vector"] - hardware.of(unit.statement)[1]
        if busy[engine] + time <= vector:
            busy |= {"vector": vector, engine: busy[engine] + time}
            body[next(n for n, s in enumerate(body) if s is unit.statement)] = moved


def _elsewhere(statement: Statement, has_scan: bool) -> Statement | None:
    """The same on another engine than VectorE; None if none has it, or has it soon enough."""
    if isinstance(statement, Combine):
        is_step = 1 < columns_of(statement.dst) <= (inf if has_scan else MOST)
    else:
        is_step = has_scan and isinstance(statement, Scale)
    return next(iter(elsewhere(statement)), None) if is_step else None
