"""Tiles that hold equal values, proved by the data flow: the same instructions on the same values.

A tile counts where every row that writes it does so before the first one that reads it, and computes from its
operands alone; products may add up in it. Elements of HBM are what they were at the launch where no
row writes the tensor.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from ..isa.declare import Instruction
from ..place.direct_allocation import has_address
from ..place.slots import slots_of
from ..tiles.tile import HBM
from ..trace.program import Program


class Equals(Struct, frozen=True, dict=True):
    """Tiles with equal values."""

    program: Program
    value: list[int]  # per storage the number of its value; -1 where nothing is known
    writers: dict[int, list[int]]  # per storage of known value the rows that write it

    @cached_property
    def first(self) -> dict[int, int]:
        """Per tile that repeats the value of an earlier one, that one."""
        return self.first_within(np.zeros(len(self.program), np.int64))

    def first_within(self, group: np.ndarray) -> dict[int, int]:
        """Per tile that repeats the value of an earlier one of its group, the first of these."""
        seen: dict[tuple[int, int], int] = {}
        result: dict[int, int] = {}
        of_row = group.tolist()
        for tile, rows in sorted(self.writers.items(), key=lambda own: own[1][0]):
            groups = {of_row[row] for row in rows}
            if len(groups) > 1 or -1 in groups:
                continue
            earlier = seen.setdefault((*groups, self.value[tile]), tile)
            if earlier != tile:
                result[tile] = earlier
        return result


def equals_of(program: Program) -> Equals:
    """The tiles of a program with equal values."""
    slots = slots_of(program)
    start = program.operand_start.tolist()
    stored, offset, layouts = slots.storage.tolist(), slots.offset.tolist(), slots.layout.tolist()
    written = slots.is_written.tolist()
    rows_of = _writers(program)
    numbers: dict[tuple[object, ...], int] = {}
    value = [-1] * len(program.storages)
    for number, record in enumerate(program.storages):
        if record.memory == HBM and not rows_of.get(number):
            value[number] = numbers.setdefault(("hbm", number), len(numbers))
    pure = [is_pure(form) for form in program.forms]
    forms, values = program.form_column.tolist(), program.value_column.tolist()
    parts: dict[int, list[tuple[object, ...]]] = {}
    for row in range(len(program)):
        span = range(start[row], start[row + 1])
        (target, *_) = [at for at in span if written[at]] or [-1]
        if target < 0 or not pure[forms[row]] or stored[target] not in rows_of:
            continue
        tile = stored[target]
        inputs = [(value[stored[at]], offset[at], layouts[at]) for at in span if at != target]
        if any(one[0] < 0 for one in inputs):
            parts.setdefault(tile, []).append(("alone", row))
        else:
            key = (forms[row], values[row], offset[target], layouts[target], *inputs)
            parts.setdefault(tile, []).append(key)
        if len(parts[tile]) == len(rows_of[tile]):
            record = program.storages[tile]
            key = (record.shape, record.dtype, record.memory, *parts[tile])
            value[tile] = numbers.setdefault(key, len(numbers))
    known = {tile: rows for tile, rows in rows_of.items() if value[tile] >= 0 and rows}
    return Equals(program, value, known)


def is_pure(form: Instruction) -> bool:
    """Whether a form computes one tile on chip from its operands alone."""
    return (
        len(form.written_slots) == 1 and form.layouts[form.written_slots[0]].memory != HBM
        and not form.is_indirect and is_at_rest(form)
        and not form.reads_dst and not form.keeps
    )  # fmt: skip


def is_at_rest(form: Instruction) -> bool:
    """Whether a form leaves the registers of its engine as they are."""
    return not form.registers or getattr(form, "reduce_cmd", "") == "idle"


def _writers(program: Program) -> dict[int, list[int]]:
    """Per tile on chip that is written before it is read, by rows that write apart, these rows."""
    slots = slots_of(program)
    has_own_address = has_address(program)
    rows, stored = slots.row, slots.storage
    first_read = np.full(len(program.storages), len(program), np.int64)
    reads = slots.is_read & ~slots.is_written
    np.minimum.at(first_read, stored[reads], rows[reads])
    last_write = np.full(len(program.storages), -1, np.int64)
    np.maximum.at(last_write, stored[slots.is_written], rows[slots.is_written])
    adds = np.zeros(len(program.storages), np.bool_)
    adds[stored[slots.is_written & slots.is_read]] = True
    result: dict[int, list[int]] = {}
    begun: set[tuple[int, int, int]] = set()
    for at in np.flatnonzero(slots.is_written).tolist():
        tile, row = int(stored[at]), int(rows[at])
        region = tile, int(slots.offset[at]), int(slots.layout[at])
        # a sum of products that begins with what the tile held before is not known
        adds[tile] |= region not in begun and program.form_of(row).reads_result(program.values_of(row))
        begun.add(region)
        result.setdefault(tile, []).append(row)
    hbm = np.array([s.memory == HBM for s in program.storages], np.bool_)
    fine = (last_write < first_read) & ~adds & ~has_own_address
    return {tile: own for tile, own in result.items() if hbm[tile] or fine[tile]}


def without_copies(program: Program, again: dict[int, int], equals: Equals) -> tuple[Program, np.ndarray]:
    """A program in which tiles of equal value are one, and which row each of its rows was.

    Args:
        program: that `equals` is of.
        again: per tile that goes, the earlier one.
        equals: what is known of values.
    """
    dropped = sorted(row for tile in again for row in equals.writers[tile])
    keep = np.ones(len(program), np.bool_)
    keep[dropped] = False
    shorter = program.without(dropped, again)
    rows = np.flatnonzero(keep)
    alive = live_rows(shorter)
    return (shorter.without(np.flatnonzero(~alive), {}) if not alive.all() else shorter), rows[alive]


def live_rows(program: Program) -> np.ndarray:
    """Per row whether something that leaves the kernel depends on it; only pure rows are ever without use."""
    slots = slots_of(program)
    start = program.operand_start.tolist()
    stored, written = slots.storage.tolist(), slots.is_written.tolist()
    pure = [len(f.written_slots) == 1 and f.layouts[f.written_slots[0]].memory != HBM and
            not f.registers and not f.is_indirect for f in program.forms]  # fmt: skip
    forms = program.form_column.tolist()
    read = [False] * len(program.storages)
    alive = np.ones(len(program), np.bool_)
    for row in range(len(program) - 1, -1, -1):
        span = range(start[row], start[row + 1])
        targets = [at for at in span if written[at]]
        if pure[forms[row]] and targets and not any(read[stored[at]] for at in targets):
            alive[row] = False
            continue
        for tile in [stored[at] for at in span if not written[at]]:
            read[tile] = True
    return alive
