"""What turns compute besides the state that they hand on: GpSimdE has it, so that the chain is not late.

Beside scans, which keep VectorE busy for two cycles a column, GpSimdE has whole tiles, and ScalarE products
with columns and numbers.
"""

from __future__ import annotations

from dataclasses import replace

from ...machine import Machine
from ..hardware import Hardware
from ..room import views_of
from ..tree.nodes import SBUF, Activate, Combine, Kernel, Loop, Scale, Scan, Statement, View
from .balance import columns_of
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
    """The same on another engine than VectorE; None if none has it."""
    if isinstance(statement, Combine):
        return replace(statement, engine="gpsimd") if _may_move(statement, has_scan) else None
    if not has_scan or not isinstance(statement, Scale) or statement.op0 != "multiply" or statement.op1:
        return None
    factor = statement.operand0
    is_column = isinstance(factor, View) and (factor.buffer.memory, factor.buffer.dtype) == (SBUF, "float32")
    is_taken = is_column or isinstance(factor, float | int)
    return Activate(statement.dst, "copy", statement.src, factor) if is_taken else None


def _may_move(combine: Combine, is_wide: bool) -> bool:
    """Whether GpSimdE may compute a tile, and soon enough, or however wide it is."""
    in_sbuf = all(v.buffer.memory == SBUF for _, v in views_of(combine))
    return (
        in_sbuf
        and not combine.engine
        and columns_of(combine.dst) > 1
        and (is_wide or columns_of(combine.dst) <= MOST)
    )
