"""A transformation of the compiler: arithmetic that a loop repeats on operands that stay the same is hoisted.

A row repeats an earlier one of the same outermost loop if both use the same instruction in the same way on
the same tiles, each of which is written once in the whole program. What the first one computes stands for the
result of the later ones, whether or not SBUF has room for it: what does not fit is spilled. Only results that
fill a tile take part, and no instruction that uses registers: sums that are carried on and random numbers
differ from call to call. What lies in PSUM is left out with all that reads it, or not at all: no bank is
kept for it.

The transposition of a stationary tile right before its product stays: to the compiler both are one product,
of an operand that lies the other way (`nl.matmul`). Evidence, under the middle end of Beta 1, stands in
docs/timing-model.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ..isa.declare import Instruction
from ..tiles.tile import PSUM, SBUF
from ..trace.program import Program
from .direct_allocation import has_address
from .slots import Slots, slots_of


def without_loop_invariants(program: Program) -> Program:
    """A program without the arithmetic that an earlier iteration of the same loop did already.

    Returns:
        The program itself if there is none.
    """
    if not len(program):
        return program
    slots = slots_of(program)
    repeats = _repeated(program, _candidates(program, slots))
    _keep_read_in_psum(program, slots, repeats)
    return program.without(list(repeats), dict(repeats.values()))


def _candidates(program: Program, slots: Slots) -> np.ndarray:
    """Rows of loops that fill a tile in SBUF from tiles, all of which are written by one row alone.

    A tile at an address may be written through another one.
    """
    writes = np.bincount(slots.storage[slots.is_written], minlength=len(program.storages))
    memories = (SBUF, PSUM) if program.machine["loop_invariants"] > 1 else (SBUF,)
    pure = np.array([_is_pure(form, memories) for form in program.forms], np.bool_)
    several = np.zeros(len(program), np.bool_)
    several[slots.row[(writes > 1)[slots.storage] | has_address(program)[slots.storage]]] = True
    in_loop = _loops(program) >= 0
    is_candidate = pure[program.form_column] & ~several & in_loop[program.position_column]
    is_candidate[_of_products(program)] = False
    rows = np.flatnonzero(is_candidate)
    start, stored, offset = program.operand_start, program.storage_column, program.offset_column
    result = [
        row
        for row, at in zip(rows.tolist(), start[rows].tolist(), strict=True)
        if offset[at] == 0
        and prod(program.storages[stored[at]].shape) == program.form_of(row).layouts[0].size
    ]
    return np.array(result, np.int64)


def _is_pure(form: Instruction, memories: Sequence[str]) -> bool:
    """Whether a form computes a tile in some memories from its operands alone, its result standing first."""
    return (
        form.written_slots == (0,) and bool(form.read_slots) and form.layouts[0].memory in memories
        and form.layouts[0].is_compact and form.steps[0].engine != "dma" and not form.is_indirect
        and (not form.registers or getattr(form, "reduce_cmd", "") == "idle")
        and not form.reads_dst and not form.keeps
    )  # fmt: skip


def _of_products(program: Program) -> np.ndarray:
    """Rows that transpose a stationary tile, and copy it to SBUF, right before its product."""
    calls = ("nc_transpose", "tensor_copy", "nc_matmul")
    names = np.array([form.name for form in program.forms])[program.form_column]
    start, stored = program.operand_start[:-1], program.storage_column
    count = max(len(names) - 2, 0)
    is_call = np.all([names[i : count + i] == name for i, name in enumerate(calls)], axis=0)
    first = np.flatnonzero(is_call)
    for row in (first, first + 1):
        # the source of a copy, and the stationary tile of a product, stand second
        is_call[first] &= stored[start[row]] == stored[start[row + 1] + 1]
    first = np.flatnonzero(is_call)
    return np.concatenate([first, first + 1])


def _keep_read_in_psum(program: Program, slots: Slots, repeats: dict[int, tuple[int, int]]) -> None:
    """Make again what lies in PSUM and is read by a row that stays, the last ones first."""
    in_psum = [tile for tile, _ in repeats.values() if program.storages[tile].memory == PSUM]
    reads = np.flatnonzero(np.isin(slots.storage, in_psum) & slots.is_read)
    readers: dict[int, list[int]] = {tile: [] for tile in in_psum}
    for tile, row in zip(slots.storage[reads].tolist(), slots.row[reads].tolist(), strict=True):
        readers[tile].append(row)
    for row in reversed(list(repeats)):
        own = readers.get(repeats[row][0], ())
        if repeats[row][0] in readers and not (own and all(reader in repeats for reader in own)):
            del repeats[row]


def _repeated(program: Program, rows: np.ndarray) -> dict[int, tuple[int, int]]:
    """Per row that need not run again, in order, the tile that it fills and the one that stands for it."""
    start, stored, offset = program.operand_start, program.storage_column, program.offset_column
    loops = _loops(program)[program.position_column[rows]]
    seen: dict[tuple[object, ...], int] = {}
    stands_for: dict[int, int] = {}
    repeats: dict[int, tuple[int, int]] = {}
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
            repeats[row] = tile, earlier
    return repeats


def _loops(program: Program) -> np.ndarray:
    """Per position the outermost loop that the compiler sees, or the innermost one; -1 outside of all."""
    unrolled, is_nested = set(program.unrolled), program.machine["loop_invariants"] > 1
    result: list[int] = []
    for outer, loop, _ in program.positions:
        around = result[outer] if result else -1
        is_within = loop in unrolled or (is_nested and around >= 0)
        result.append(around if is_within else loop)
    return np.array(result, np.int64)
