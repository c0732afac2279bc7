"""Windows of one tensor that overlap, as a convolution loads them: all that they cover may be one tile."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

import numpy as np
from msgspec import Struct

from ...isa.data_movement import DmaCopy
from ...tiles.tile import HBM, SBUF, Layout, layout
from ...trace.program import Program
from ..declare import Candidate, Subject, of_rows, plural
from ..draft import Draft, Slot, Unfit, whole_tile
from ..equal_values import live_rows

# how often the elements that windows cover are loaded at least, and bytes of a partition that a tile may take
LEAST_OFTEN, MOST_BYTES = 1.5, 1 << 16


class Window(Struct, frozen=True):
    """A load of part of each row of some rows of a tensor."""

    row: int  # of the program
    tile: int  # that it fills, alone and whole
    source: Slot  # what it reads
    # begin, end: from which element of each row of the tensor until which
    begin: int
    end: int


def windows(subject: Subject) -> Iterator[Candidate]:
    """Loads of windows that overlap, as one load of what they cover."""
    groups: dict[tuple[object, ...], list[Window]] = {}
    for row in subject.rows_of("dma_copy").tolist():
        for key, window in _window(subject, row):
            groups.setdefault(key, []).append(window)
    several = _kept(subject, [own for own in groups.values() if _overlap(subject, own)])
    rows = [window.row for own in several for window in own]
    message = f"{plural(len(rows), 'load', 'bring')} parts of the same rows several times"
    yield from of_rows(
        subject, rows, message, ("all that they cover loaded once", partial(_covered, subject, several))
    )


def _window(subject: Subject, row: int) -> Iterator[tuple[tuple[object, ...], Window]]:
    """The window that a row loads, with what those have in common that may be of one tile."""
    accesses = list(subject.base.accesses(row))
    if len(accesses) != 2:
        return
    target, source = sorted(accesses, key=lambda own: not own.is_written)
    own, tile, pitch = source.layout, target.storage, source.layout.strides[0]
    is_whole = whole_tile(subject.base, tile, target.layout, target.offset)
    is_input = subject.lies_in_hbm(source.storage) and source.storage not in subject.writers
    if not is_whole or not is_input or own.indices or len(subject.writers[tile]) > 1 or len(own.shape) < 2:
        return
    first, begin = divmod(source.offset, max(pitch, 1))
    end = begin + 1 + sum((n - 1) * step for n, step in zip(own.shape[1:], own.strides[1:], strict=True))
    if own.shape == target.layout.shape and min(own.strides) > 0 and end <= pitch:
        key = source.storage, first, own.shape[0], pitch, subject.base.storages[tile].dtype
        yield key, Window(row, tile, (source.storage, source.offset, own), begin, end)


def _overlap(subject: Subject, group: list[Window]) -> bool:
    covered = max(own.end for own in group) - min(own.begin for own in group)
    loaded = sum(prod(own.source[2].shape[1:]) for own in group)
    size = subject.base.storages[group[0].tile].dtype.itemsize
    return loaded > LEAST_OFTEN * covered and covered * size <= MOST_BYTES


def _kept(subject: Subject, groups: list[list[Window]]) -> list[list[Window]]:
    """Those of the groups whose tiles SBUF holds at once, each from its first load to the last use."""
    base, left = (
        subject.base,
        np.full(len(subject.base), subject.base.machine.limit("sbuf_bytes_per_partition")),
    )
    result = []
    for own in groups:
        last = max((row for window in own for row in subject.readers.get(window.tile, ())), default=0)
        size = max(w.end for w in own) - min(w.begin for w in own)
        size *= base.storages[own[0].tile].dtype.itemsize
        alive = left[own[0].row : last + 1]
        if len(alive) and alive.min() >= size:
            alive -= size
            result.append(own)
    return result


def _covered(subject: Subject, groups: list[list[Window]]) -> Program:
    """A program that loads once what the windows of each group cover, and reads them there."""
    draft = Draft(subject.base)
    for group in groups:
        _cover(draft, group)
    edited = draft.program()
    return edited.without(np.flatnonzero(~live_rows(edited)), {})


def _cover(draft: Draft, group: list[Window]) -> None:
    """Load what windows cover before the first of them, in their place."""
    first, begin = group[0], min(own.begin for own in group)
    width = max(own.end for own in group) - begin
    storage, offset, own = first.source
    shape = own.shape[0], width
    whole = draft.new_tile(first.tile, shape)
    filled = layout(shape, (width, 1), draft.storages[whole].dtype, SBUF, 0, 0)
    read = layout(shape, (own.strides[0], 1), own.dtype, HBM, own.partition_axis, own.start_partition)
    attributes = draft.base.form_of(first.row).attribute_values
    form = draft.shared_form(DmaCopy, draft.base.machine, (filled, read), attributes)
    source = storage, offset - first.begin + begin, read
    draft.insert(first.row, form, (), [(whole, 0, filled), source])
    draft.drop([window.row for window in group])
    # of windows of one row each, parts may be read
    narrow = {w.tile: (whole, 0, w.begin - begin) for w in group if len(w.source[2].shape) == 2}
    draft.relocate(narrow)
    for window in group:
        if window.tile not in narrow:
            _read_in(draft, window, whole, width, begin)


def _read_in(draft: Draft, window: Window, whole: int, width: int, begin: int) -> None:
    """Let readers of all of a window's tile read the window in a wider tile."""
    shape, strides = window.source[2].shape, window.source[2].strides[1:]

    def change(slot: Slot) -> Slot:
        storage, offset, own = slot
        if not whole_tile(draft.base, storage, own, offset):
            raise Unfit
        seen: Layout = layout(shape, (width, *strides), own.dtype, own.memory, 0, 0)
        return whole, window.begin - begin, seen

    draft.each_slot(change, {window.tile: None})
