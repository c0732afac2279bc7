"""Programs that no memory could hold, refused where nothing else asks for a plan."""

from __future__ import annotations

import numpy as np

from ..tiles.tile import PSUM, SBUF
from ..trace.program import Program
from .addresses import plan
from .compiler_passes import compiled
from .slots import kinds_of, slots_of


def refuse_what_cannot_exist(program: Program) -> None:
    """Refuse a program in which one row alone needs more of a memory than there is.

    Only where the whole tiles in which the operands of a row lie are together more than the memory holds is
    the program planned, which tells.

    Raises:
        LimitError: as `plan`.
    """
    machine = program.machine
    most = max((len(form.view_slots) for form in program.forms), default=0)
    for memory, capacity in (
        (SBUF, machine.limit("sbuf_bytes_per_partition")),
        (PSUM, machine.psum_bytes_per_partition),
    ):
        if _most_of_a_row(program, memory, most, capacity) > capacity:
            plan(compiled(program))
            return


def _most_of_a_row(program: Program, memory: str, operands: int, capacity: int) -> int:
    """Most bytes per partition of the tiles of a memory that one row touches; quick where all are small."""
    kinds = kinds_of(program)
    sizes = np.array([s.bytes_per_partition if s.memory == memory else 0 for s in kinds.samples], np.int64)
    most = int(sizes.max(initial=0))
    if most * operands <= capacity:
        return most
    slots = slots_of(program)
    pairs = np.unique(np.stack([slots.row, slots.storage]), axis=1)
    return int(np.bincount(pairs[0], sizes[kinds.of_storage[pairs[1]]]).max(initial=0))
