"""Tiles that are used again and again, as one tile for each use."""

from __future__ import annotations

import numpy as np

from ..place.slots import Slots
from ..trace.program import Program
from .draft import Draft, movable, whole_tile


def renewed(base: Program, slots: Slots, begins: np.ndarray, *, every: bool = True) -> Program | None:
    """The program where what is begun anew goes into a tile of its own each time.

    Args:
        base: the program, whose values stay: a tile is written whole where it is renewed.
        slots: its operands.
        begins: per operand whether a write there may begin anew; one that also reads never does.
        every: whether a beginning that writes a part of a tile ends it; otherwise it is none.

    Returns:
        None if there is nothing to renew.
    """
    begins = begins & slots.is_written & ~slots.is_read & movable(base)[slots.storage]
    starts = np.flatnonzero(begins)
    whole = np.array([_is_whole(base, slots, at) for at in starts.tolist()], np.bool_)
    if every and not whole.all():
        return None
    starts = starts[whole]
    if not len(starts):
        return None
    draft = Draft(base)
    for storage in np.unique(slots.storage[starts]).tolist():
        own = slots.row[starts[slots.storage[starts] == storage]]
        rows = np.unique(slots.row[slots.storage == storage])
        shape = base.storages[storage].shape
        tiles = [storage, storage, *(draft.new_tile(storage, shape) for _ in own[1:])]
        for row, turn in zip(rows.tolist(), np.searchsorted(own, rows, "right").tolist(), strict=True):
            # a row that begins anew still reads what the tile held before
            writes = slots.is_written[base.operand_start[row] : base.operand_start[row + 1]].tolist()
            before = tiles[turn - 1] if turn and own[turn - 1] == row else tiles[turn]
            operands = [
                (tiles[turn] if is_written else before, *o[1:]) if o[0] == storage else o
                for o, is_written in zip(draft.slots(row), writes, strict=True)
            ]
            draft.set_slots(row, operands)
    return draft.program()


def _is_whole(base: Program, slots: Slots, at: int) -> bool:
    own = slots.layouts[slots.layout[at]]
    return whole_tile(base, int(slots.storage[at]), own, int(slots.offset[at]))
