"""A transformation of the compiler: zeroes that a product overwrites are not written.

A tile in PSUM that is filled with zeroes and then accumulated on starts with the first product, which
overwrites; where products cover a part of it alone, the zeroes of the rest are needed.

Evidence for the middle end of Beta 1: in published profiles of products on trn1, whose kernels fill every
tile in PSUM, VectorE is idle (NKIBench).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ..isa.elementwise import Memset
from ..isa.tensor_engine import NcMatmul
from ..tiles.tile import PSUM
from ..trace.program import Program, StorageRecord
from .boxes import Boxes, boxes_of
from .direct_allocation import has_address
from .slots import Slots, runs, slots_of


def without_zero_fills(program: Program) -> Program:
    """A program without the zeroes that TensorE alone writes over; itself if there are none."""
    forms = program.forms
    is_fill = np.array([isinstance(f, Memset) and f.dst.memory == PSUM for f in forms], np.bool_)
    if not is_fill.any():
        return program
    slots = slots_of(program)
    is_product = np.array([isinstance(f, NcMatmul) for f in forms], np.bool_)
    form = program.form_column[slots.row]
    # the tiles that something but a fill with zeroes or a product writes, or through which others may
    others = has_address(program)
    others[slots.storage[slots.is_written & ~is_product[form] & ~_is_zero(program, is_fill)[slots.row]]] = (
        True
    )
    fills = np.flatnonzero(slots.is_written & is_fill[form] & ~others[slots.storage])
    is_needed = ~others[slots.storage]
    products = np.flatnonzero(slots.is_written & is_product[form] & is_needed)
    reads = np.flatnonzero(~slots.is_written & is_needed)
    removed = slots.row[_covered(program, slots, fills, products, reads)]
    return program.without(removed, {})


def _covered(
    program: Program, slots: Slots, fills: np.ndarray, products: np.ndarray, reads: np.ndarray
) -> np.ndarray:
    """Of slots that are filled, those of which products write every element before anything reads."""
    boxes = boxes_of(program, slots)
    written, read = _by_storage(slots, products), _by_storage(slots, reads)

    @cache
    def are_covered(kind: int, box: int, by: frozenset[int]) -> bool:
        if box in by:
            return True
        rest = np.zeros(_sizes(slots.kinds.samples[kind]), np.bool_)
        _set_box(rest, boxes, box, True)
        for other in by:
            if boxes.is_exact[other] and not boxes.is_flat[other]:
                _set_box(rest, boxes, other, False)
        return not rest.any()

    def is_spare(fill: int) -> bool:
        storage, row = int(slots.storage[fill]), slots.row[fill]
        after = read.get(storage, fills[:0])
        after = after[slots.row[after] > row]
        until = slots.row[after[0]] if len(after) else len(program)
        by = written.get(storage, fills[:0])
        by = by[(slots.row[by] > row) & (slots.row[by] < until)]
        kind, box = int(slots.kinds.of_storage[storage]), int(boxes.of_slot[fill])
        return are_covered(kind, box, frozenset(boxes.of_slot[by].tolist()))

    return fills[np.array([is_spare(fill) for fill in fills.tolist()], np.bool_)]


def _by_storage(slots: Slots, some: np.ndarray) -> dict[int, np.ndarray]:
    """Some slots, in the order of the program, by their storage."""
    ordered = some[np.argsort(slots.storage[some], kind="stable")]
    storage = slots.storage[ordered]
    return {int(storage[start]): ordered[start:stop] for start, stop in runs(storage)}


def _sizes(record: StorageRecord) -> tuple[int, ...]:
    """The extents of a tile in the coordinates of boxes: the last axis counts bytes."""
    return (*record.shape[:-1], record.shape[-1] * record.dtype.itemsize)


def _set_box(positions: np.ndarray, boxes: Boxes, box: int, value: bool) -> None:
    """Set the positions of a box; all, if only its byte interval is known."""
    if boxes.is_flat[box]:
        positions[...] = value
        return
    places = []
    for axis in range(positions.ndim):
        low, high = int(boxes.low[box, axis]), int(boxes.high[box, axis])
        along = np.arange(low, high)
        places.append(along[(along - low) % boxes.step[box, axis] < boxes.width[box, axis]])
    positions[np.ix_(*places)] = value


def _is_zero(program: Program, is_fill: np.ndarray) -> np.ndarray:
    """Per row whether it fills a tile in PSUM with zeroes."""
    zero = np.array([bool(values) and values[0] == 0 for values in program.values], np.bool_)
    return is_fill[program.form_column] & zero[program.value_column]
