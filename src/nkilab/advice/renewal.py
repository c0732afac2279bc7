"""Tiles that are used again and again, as one tile for each use."""

from __future__ import annotations

import numpy as np

from ..trace.program import Program
from .draft import Draft, movable, whole_tile
from .subject import Subject


def renewed(subject: Subject, lines: np.ndarray, begins: np.ndarray) -> Program | None:
    """The program where what some lines begin to write goes into a tile of its own each time.

    Args:
        subject: of `base`, whose values stay: a tile is written whole where it is renewed.
        lines: numbers in the program's table.
        begins: per operand whether a write there begins anew; one that also reads never does.

    Returns:
        None if the program may not be edited, or a beginning writes a part of a tile.
    """
    base, slots = subject.base, subject.slots
    begins = begins & slots.is_written & ~slots.is_read & movable(base)[slots.storage]
    starts = np.flatnonzero(begins & np.isin(np.asarray(base.line_column)[slots.row], lines))
    if not subject.may_be_edited or not len(starts):
        return None
    if not all(whole_tile(base, *subject.slot(at)) for at in starts.tolist()):
        return None
    draft = Draft(base)
    for storage in np.unique(slots.storage[starts]).tolist():
        own = slots.row[starts[slots.storage[starts] == storage]]
        rows = np.unique(slots.row[slots.storage == storage])
        shape = base.storages[storage].shape
        tiles = [storage, storage, *(draft.new_tile(storage, shape) for _ in own[1:])]
        for row, turn in zip(rows.tolist(), np.searchsorted(own, rows, "right").tolist(), strict=True):
            operands = [(tiles[turn], *o[1:]) if o[0] == storage else o for o in draft.slots(row)]
            draft.set_slots(row, operands)
    return draft.program()
