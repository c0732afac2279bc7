"""What turns compute besides the state that they hand on: GpSimdE has it, so that the chain is not late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...machine import Machine
from ..hardware import Hardware
from ..room import views_of
from ..tree.nodes import SBUF, Combine, Kernel, Loop, Statement
from .balance import columns_of
from .pipeline import Unit, state_of, units_of

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
        elif loop.is_sequential:
            _relieved(loop.body, hardware)


def _relieved(body: list[Statement], hardware: Hardware) -> None:
    """Change the instructions of one turn in place."""
    units = units_of(body)
    chain = _chain(units)
    if not chain:
        return
    held = hardware.total(body)
    vector, gpsimd = held.get("vector", 0.0), held.get("gpsimd", 0.0)
    for unit in units:
        statement = unit.statement
        if unit in chain or not isinstance(statement, Combine) or not _may_move(statement):
            continue
        moved = replace(statement, engine="gpsimd")
        vector, gpsimd = vector - hardware.of(statement)[1], gpsimd + hardware.of(moved)[1]
        if gpsimd > vector:
            return
        body[next(n for n, s in enumerate(body) if s is statement)] = moved


def _chain(units: Sequence[Unit]) -> list[Unit]:
    """The units that the state of the next turn depends on."""
    needed = set(state_of(units))
    found: list[Unit] = []
    for unit in reversed(units):
        if unit.writes & needed:
            found.append(unit)
            needed |= unit.reads
    return found


def _may_move(combine: Combine) -> bool:
    """Whether GpSimdE may compute a tile, and soon enough."""
    in_sbuf = all(v.buffer.memory == SBUF for _, v in views_of(combine))
    return in_sbuf and not combine.engine and 1 < columns_of(combine.dst) <= MOST
