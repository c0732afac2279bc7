"""A transformation of the compiler: blocks that no instruction needs side by side are tiles of their own.

A block tensor of Beta 1 is declared at once and used block by block. Each group of accesses that share no
byte of a partition with the others becomes a tile; the transformations after this one then see what the
kernel means: that a block is loaded again, copied, or made a second time. Tensors at addresses stay whole.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..tiles.tile import HBM, Layout, layout
from ..trace.program import Program, StorageRecord
from .boxes import boxes_of, told_apart
from .direct_allocation import has_address
from .lifetimes import free_intervals
from .slots import Slots, distinct, slots_of


def with_blocks_apart(program: Program) -> Program:
    """A program whose block tensors are a tile per block; itself if it has none."""
    if not any(s.memory != HBM and len(s.shape) > 1 for s in program.storages):
        return program
    slots = slots_of(program)
    groups = _groups(program, slots)
    if groups is None:
        return program
    return _Apart(program, slots, *groups).program()


def _groups(program: Program, slots: Slots) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Per slot its group, -1 where the tile stays whole; per group the bytes of a partition it spans."""
    boxes = boxes_of(program, slots)
    low, high = free_intervals(slots, boxes)
    may_be_cut = ~slots.kinds.lie_in(HBM) & ~has_address(program)
    indirect = np.array([form.is_indirect for form in program.forms], np.bool_)
    may_be_cut[slots.storage[indirect[program.form_column][slots.row]]] = False
    slot = np.flatnonzero(may_be_cut[slots.storage])
    if not len(slot):
        return None
    box = boxes.of_slot[slot]
    groups = told_apart(slots.storage[slot], low[box], high[box])
    count = int(groups.max()) + 1
    begin, end = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(begin, groups, low[box])
    np.maximum.at(end, groups, high[box])
    owner = np.zeros(count, np.int64)
    owner[groups] = slots.storage[slot]
    is_block = np.bincount(owner, minlength=len(program.storages))[owner] > 1
    # a cut leaves whole elements of whatever type the block is looked at in
    is_even = np.ones(count, np.bool_)
    itemsize = np.array([layout.itemsize for layout in slots.layouts], np.int64)[slots.layout[slot]]
    np.logical_and.at(is_even, groups, (begin[groups] % itemsize == 0) & (end[groups] % itemsize == 0))
    odd = np.zeros(len(program.storages), np.bool_)
    odd[owner[~is_even]] = True
    is_block &= ~odd[owner]
    if not is_block.any():
        return None
    of_slot = np.full(len(slots.row), -1, np.int64)
    of_slot[slot] = np.where(is_block[groups], groups, -1)
    return of_slot, begin, end


class _Apart:
    """A program on its way to tiles of single blocks."""

    def __init__(
        self, program: Program, slots: Slots, of_slot: np.ndarray, begin: np.ndarray, end: np.ndarray
    ) -> None:
        self._program, self._slots = program, slots
        self._of_slot, self._begin, self._end = of_slot, begin, end
        self._forms = list(program.forms)
        self._storages = list(program.storages)

    def program(self) -> Program:
        """The program with a tile per block."""
        cut = np.flatnonzero(self._of_slot >= 0)
        stored, offset = self._slots.storage.copy(), self._slots.offset.copy()
        offset[cut] = self._offsets(cut)
        stored[cut] = self._tiles(cut)
        rows = distinct(self._slots.row[cut])
        column = np.array(self._program.form_column, np.int32)
        column[rows] = self._columns(rows)
        return self._program.with_forms(self._forms, column).with_operands(self._storages, stored, offset)

    def _tiles(self, cut: np.ndarray) -> np.ndarray:
        """Per slot in a block the number of its tile; new tiles join the storages in order of first use."""
        number: dict[int, int] = {}
        for group, storage in zip(
            self._of_slot[cut].tolist(), self._slots.storage[cut].tolist(), strict=True
        ):
            if group not in number:
                number[group] = len(self._storages)
                size = int(self._end[group] - self._begin[group])
                self._storages.append(_block_of(self._program.storages[storage], size))
        return np.array([number[group] for group in self._of_slot[cut].tolist()], np.int64)

    def _offsets(self, cut: np.ndarray) -> np.ndarray:
        """Per slot in a block its offset in the tile, in elements of its type."""
        group = self._of_slot[cut]
        itemsize = np.array([layout.itemsize for layout in self._slots.layouts], np.int64)
        item = itemsize[self._slots.layout[cut]]
        per_partition = np.array([s.bytes_per_partition for s in self._program.storages], np.int64)
        before = per_partition[self._slots.storage[cut]] // item
        partition, free = np.divmod(self._slots.offset[cut], before)
        begin, size = self._begin[group] // item, (self._end - self._begin)[group] // item
        return partition * size + free - begin

    def _columns(self, rows: np.ndarray) -> list[int]:
        """Per row that names a block the number of its form."""
        start = self._program.operand_start
        size = np.where(self._of_slot >= 0, (self._end - self._begin)[self._of_slot], 0)
        per_partition = [s.bytes_per_partition for s in self._program.storages]
        known: dict[tuple[object, ...], int] = {}
        columns = []
        for row in rows.tolist():
            places = slice(int(start[row]), int(start[row + 1]))
            sizes = tuple(size[places].tolist())
            before = tuple(per_partition[s] for s in self._slots.storage[places].tolist())
            key = int(self._program.form_column[row]), sizes, before
            if key not in known:
                known[key] = self._form(*key)
            columns.append(known[key])
        return columns

    def _form(self, number: int, sizes: tuple[int, ...], before: tuple[int, ...]) -> int:
        """The number of a form whose tiles are blocks of `sizes` bytes per partition; 0 for what stays."""
        form = self._forms[number]
        layouts = list(form.layouts)
        for place, size, offset_before in zip(form.view_slots, sizes, before, strict=True):
            if size:
                layouts[place] = _in_block(layouts[place], offset_before, size)
        if layouts == list(form.layouts):
            return number
        self._forms.append(type(form)(form.machine, layouts, form.attribute_values))
        return len(self._forms) - 1


def _block_of(tensor: StorageRecord, size: int) -> StorageRecord:
    """The tile of a block of `size` bytes per partition: the inner axes, where they make it up."""
    inner = tensor.shape[1:]
    while len(inner) > 1 and prod(inner) * tensor.dtype.itemsize > size:
        inner = inner[1:]
    if prod(inner) * tensor.dtype.itemsize != size:
        inner = (-(-size // tensor.dtype.itemsize),)
    return tensor._replace(shape=(tensor.shape[0], *inner))


def _in_block(whole: Layout, before: int, size: int) -> Layout:
    """A layout with `size` bytes from partition to partition, where there were `before`."""
    axis = whole.partition_axis
    if axis is None:
        return whole
    strides = list(whole.strides)
    strides[axis] = strides[axis] * whole.itemsize // before * size // whole.itemsize
    return layout(
        whole.shape, tuple(strides), whole.dtype, whole.memory, axis, whole.start_partition, whole.indices
    )
