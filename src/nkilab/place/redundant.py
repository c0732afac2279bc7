"""A transformation of the compiler: loads of what SBUF still holds are left out.

A load of a whole tile from HBM that nobody writes is redundant if an equal one came before and what it loaded
has not been overwritten: the tile is the earlier one. How long a loaded tile stays is a window in bytes per
partition, counted over the loads that are kept, in order: a ring that new loads overwrite, oldest first. A
tile that is found there does not become younger.

Evidence for the window of the stand-alone compiler (docs/timing-model.md): published transfer counts of tiled
products on trn2 lie between those of windows of 40 and of 80 KiB.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..isa.data_movement import DmaCopy
from ..tiles.tile import HBM, SBUF
from ..trace.program import Program
from .slots import Slots, slots_of


def without_redundant_loads(program: Program, window_bytes: float) -> Program:
    """A program without the loads of what a window of `window_bytes` per partition still holds.

    Returns:
        The program itself if there are none.
    """
    if window_bytes <= 0 or not len(program):
        return program
    slots = slots_of(program)
    loads = _candidates(program, slots)
    if not len(loads):
        return program
    removed, stands_for = _found(program, slots, loads, window_bytes)
    if not removed:
        return program
    keep = np.ones(len(program), np.bool_)
    keep[removed] = False
    stored = np.arange(len(program.storages))
    for tile, earlier in stands_for.items():
        stored[tile] = earlier
    return program.selected(keep, stored)


def _candidates(program: Program, slots: Slots) -> np.ndarray:
    """Rows that load a whole tile, which nothing else writes, from HBM that nothing writes."""
    writes = np.bincount(slots.storage[slots.is_written], minlength=len(program.storages))
    form_loads = np.array([_is_load(form) for form in program.forms], np.bool_)
    rows = np.flatnonzero(form_loads[program.form_column])
    start = program.operand_start
    dst, src = slots.storage[start[rows]], slots.storage[start[rows] + 1]
    fixed = (writes[dst] == 1) & (writes[src] == 0)
    held = np.array([prod(s.shape) for s in slots.kinds.samples], np.int64)[slots.kinds.of_storage[dst]]
    loaded = np.array([g.size for g in slots.layouts], np.int64)[slots.layout[start[rows]]]
    return rows[fixed & (held == loaded) & (slots.offset[start[rows]] == 0)]


def loads_of(program: Program, slots: Slots) -> np.ndarray:
    """Per row, whether it loads from HBM that nothing writes."""
    writes = np.bincount(slots.storage[slots.is_written], minlength=len(program.storages))
    form_loads = np.array([_is_load(form, has_gaps=True) for form in program.forms], np.bool_)
    found = form_loads[program.form_column]
    rows = np.flatnonzero(found)
    found[rows] = writes[slots.storage[program.operand_start[rows] + 1]] == 0
    return found


def _is_load(form: object, *, has_gaps: bool = False) -> bool:
    if not isinstance(form, DmaCopy):
        return False
    dst, src = form.layouts
    return (
        dst.memory == SBUF and src.memory == HBM and (dst.is_compact or has_gaps)
        and not dst.indices and not src.indices
        and form.dst_rmw_op is None
    )  # fmt: skip


def _found(
    program: Program, slots: Slots, loads: np.ndarray, window: float
) -> tuple[list[int], dict[int, int]]:
    """Loads that are redundant, and per tile they fill the earlier tile that holds the same."""
    start = program.operand_start
    held: dict[tuple[int, int, int], tuple[int, float]] = {}
    removed: list[int] = []
    stands_for: dict[int, int] = {}
    loaded = 0.0
    forms = program.form_column[loads].tolist()
    places = start[loads].tolist()
    for row, form, at in zip(loads.tolist(), forms, places, strict=True):
        tile, source, offset = int(slots.storage[at]), int(slots.storage[at + 1]), int(slots.offset[at + 1])
        size = program.storages[tile].bytes_per_partition
        known = held.get((form, source, offset))
        if known is not None and loaded - known[1] + size <= window:
            removed.append(row)
            stands_for[tile] = known[0]
            continue
        held[form, source, offset] = (tile, loaded)
        loaded += size
    return removed, stands_for
