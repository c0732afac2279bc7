"""A transformation of the compiler: arithmetic that a loop repeats on operands that stay the same is hoisted.

A row repeats an earlier one of the same loop if both use the same instruction in the same way on the same
tiles, each of which is written once in the whole program. What the first one made stands for the result of
the later ones. Only results that fill a tile in SBUF take part, and no instruction that uses registers: sums
that are carried on and random numbers differ from call to call.

Assumed, for the middle end of Beta 1, which also leaves out loads that repeat (docs/timing-model.md).
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..isa.declare import Instruction
from ..tiles.tile import SBUF
from ..trace.program import Program
from .direct_allocation import has_address
from .slots import Slots, slots_of


def without_loop_invariants(program: Program) -> Program:
    """A program without the arithmetic that an earlier turn of the same loop did already.

    Returns:
        The program itself if there is none.
    """
    rows = _candidates(program, slots_of(program)) if len(program) else np.zeros(0, np.int64)
    stands_for, removed = _repeated(program, rows)
    return program.without(removed, stands_for)


def _candidates(program: Program, slots: Slots) -> np.ndarray:
    """Rows of loops that fill a tile in SBUF from tiles, all of which are written by one row alone.

    A tile at an address may be written through another one.
    """
    writes = np.bincount(slots.storage[slots.is_written], minlength=len(program.storages))
    pure = np.array([_is_pure(form) for form in program.forms], np.bool_)
    several = np.zeros(len(program), np.bool_)
    several[slots.row[(writes > 1)[slots.storage] | has_address(program)[slots.storage]]] = True
    in_loop = _loops(program) >= 0
    rows = np.flatnonzero(pure[program.form_column] & ~several & in_loop[program.position_column])
    start, stored, offset = program.operand_start, program.storage_column, program.offset_column
    result = [
        row
        for row, at in zip(rows.tolist(), start[rows].tolist(), strict=True)
        if offset[at] == 0
        and prod(program.storages[stored[at]].shape) == program.form_of(row).layouts[0].size
    ]
    return np.array(result, np.int64)


def _is_pure(form: Instruction) -> bool:
    """Whether a form computes a tile in SBUF from its operands alone, its result standing first."""
    return (
        form.written_slots == (0,) and bool(form.read_slots) and form.layouts[0].memory == SBUF
        and form.layouts[0].is_compact and form.steps[0].engine != "dma" and not form.is_indirect
        and (not form.registers or getattr(form, "reduce_cmd", "") == "idle")
        and not form.reads_dst and not form.keeps
    )  # fmt: skip


def _repeated(program: Program, rows: np.ndarray) -> tuple[dict[int, int], list[int]]:
    """Per tile that need not be made again the one that stands for it, and the rows that make them."""
    start, stored, offset = program.operand_start, program.storage_column, program.offset_column
    loops = _loops(program)[program.position_column[rows]]
    seen: dict[tuple[object, ...], int] = {}
    stands_for: dict[int, int] = {}
    removed: list[int] = []
    numbers = zip(
        rows.tolist(), loops.tolist(), program.form_column[rows].tolist(),
        program.value_column[rows].tolist(), start[rows].tolist(), start[rows + 1].tolist(), strict=True,
    )  # fmt: skip
    for row, loop, form, value, at, end in numbers:
        tile = int(stored[at])
        read = [stands_for.get(s, s) for s in stored[at + 1 : end].tolist()]
        key = (loop, form, value, *read, *offset[at + 1 : end].tolist())
        earlier = seen.setdefault(key, tile)
        if earlier != tile:
            stands_for[tile] = earlier
            removed.append(row)
    return stands_for, removed


def _loops(program: Program) -> np.ndarray:
    """Per position the innermost loop that the compiler sees; -1 outside of all."""
    unrolled = set(program.unrolled)
    result: list[int] = []
    for outer, loop, _ in program.positions:
        result.append(result[outer] if loop in unrolled else loop)
    return np.array(result, np.int64)
