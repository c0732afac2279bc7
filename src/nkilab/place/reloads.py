"""A transformation of the compiler: loads that do not fit are made where they are used, each time anew.

Where the tiles that live at once need more than SBUF has, but would fit without those that one line loads,
these loads move: each use loads what it reads, uses within a few rows (`spill_rest_rows`) once. Of several
such lines it is the one that then loads the fewest more bytes. What is loaded in one piece and read in
several the middle end of Beta 1 loads in those pieces; the stand-alone compiler leaves it to spilling.

Evidence (docs/timing-model.md): a product of NKIBench whose right side takes 160 KiB of 176, where 25 KiB
more live, reads 9,059,762,176 bytes in its profile, the right side once per row of blocks, half a tile at a
time. Of the guide's products under `nki` the third moves 8.66 GB where its loops move 4.56, and reads whole
tiles; the fourth moves 1.82 where they move 1.48, and reads columns of tiles.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..tiles.tile import SBUF, Layout, layout
from ..trace.program import Program
from .blocks import with_blocks_apart
from .boxes import boxes_of, told_apart
from .direct_allocation import is_fixed, reserved
from .lifetimes import Lives, free_intervals, only_fills
from .plan import Finding
from .redundant import loads_of_whole_tiles
from .slots import Slots, distinct, slots_of
from .spills import crowded


def with_reloads(program: Program, *, in_pieces: bool) -> Program:
    """A program whose loads stand where they are used as far as SBUF does not hold them all; else itself.

    Args:
        program: as it is so far.
        in_pieces: whether tiles that are read in pieces move, too.
    """
    capacity = program.machine.limit("sbuf_bytes_per_partition") - len(reserved(program, SBUF, 1))
    if not len(program) or _lives(program, slots_of(program)).used.max() <= capacity:
        return program
    result, current = program, with_blocks_apart(program)
    helpless = set[int]()
    while (candidate := _cheapest(current, capacity, helpless, in_pieces=in_pieces)) is not None:
        result = current = candidate
    if result is not program:
        result.findings = [*program.findings, _finding(program, result, capacity)]
    return result


def _cheapest(program: Program, capacity: int, helpless: set[int], *, in_pieces: bool) -> Program | None:
    """The program with the loads of a kind moved that make it fit and load the fewest more bytes, if any do.

    Kinds that would not help join `helpless`. One that moved lives only where SBUF holds all that lives, and
    no later move makes that more: it is no candidate again.
    """
    options: list[tuple[int, int, Program]] = []
    for loads in _candidates(program, capacity, helpless):
        if not in_pieces and not _are_read_whole(program, loads):
            helpless.update(_kind(program, loads).tolist())
            continue
        other, again = _with_loads_at_uses(*_with_pieces(program, loads))
        if _fits(other, again, capacity):
            options.append((_bytes(other, again) - _bytes(program, loads), len(options), other))
        else:
            helpless.update(_kind(program, loads).tolist())
    if not options:
        return None
    return min(options)[2]


def _bytes(program: Program, loads: np.ndarray) -> int:
    """What some rows load, in bytes."""
    numbers, counts = np.unique(program.form_column[loads], return_counts=True)
    tiles = [program.forms[number].layouts[0] for number in numbers.tolist()]
    return sum(tile.size * tile.itemsize * count for tile, count in zip(tiles, counts.tolist(), strict=True))


def _finding(program: Program, result: Program, capacity: int) -> Finding:
    """What lives at the first row at which SBUF does not hold it all."""
    lives = _lives(program, slots_of(program))
    row = int(np.flatnonzero(lives.used > capacity)[0])
    live = np.flatnonzero((lives.first <= row) & (lives.last >= row))
    largest = live[np.argsort(-lives.sizes[live], kind="stable")].tolist()
    more = len(result) - len(program)
    consequence = f", so {more} loads are made again" if more else ", so loads are made late"
    return crowded(program, capacity, largest, row, consequence)


def _lives(program: Program, slots: Slots) -> Lives:
    """The lives of the tiles in SBUF that the compiler places, in bytes per partition.

    Fills move to the first use of what they fill, if need be: see `parts_of`.
    """
    in_sbuf = slots.kinds.lie_in(SBUF) & ~is_fixed(program)
    here = in_sbuf[slots.storage] & ~only_fills(program, slots)
    return Lives(program, slots, [s.bytes_per_partition for s in program.storages], here)


def _kind(program: Program, loads: np.ndarray) -> np.ndarray:
    """Per load a number that those of one line and one form share."""
    return program.line_column[loads].astype(np.int64) << 32 | program.form_column[loads]


def _fits(program: Program, loads: np.ndarray, capacity: int) -> bool:
    """Whether SBUF holds all that lives wherever what some rows load does."""
    lives = _lives(program, slots_of(program))
    live = lives.of(program.storage_column[program.operand_start[loads]])
    return bool((lives.used[live > 0] <= capacity).all())


def _candidates(program: Program, capacity: int, helpless: set[int]) -> Iterator[np.ndarray]:
    """The loads of each kind whose tiles live where SBUF is too full and would not be without them."""
    slots = slots_of(program)
    lives, loads = _lives(program, slots), loads_of_whole_tiles(program, slots)
    kind = _kind(program, loads)
    tile = program.storage_column[program.operand_start[loads]]
    for own in distinct(kind[~np.isin(kind, list(helpless))]).tolist():
        live = lives.of(tile[kind == own])
        is_full = (live > 0) & (lives.used > capacity)
        if is_full.any() and (lives.used - live)[is_full].max() <= capacity:
            yield loads[kind == own]


def _uses(program: Program, slots: Slots, loads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tiles that some rows load, and the slots in which others read them."""
    places = program.operand_start[loads]
    is_use = np.isin(slots.storage, slots.storage[places])
    is_use[places] = False
    return slots.storage[places], np.flatnonzero(is_use)


def _are_read_whole(program: Program, loads: np.ndarray) -> bool:
    """Whether everybody reads all columns of what some rows load."""
    slots = slots_of(program)
    _, use = _uses(program, slots, loads)
    boxes = boxes_of(program, slots)
    low, high = (ends[boxes.of_slot[use]] for ends in free_intervals(slots, boxes))
    size = np.array([s.bytes_per_partition for s in program.storages], np.int64)
    return bool(((low == 0) & (high == size[slots.storage[use]])).all())


def _with_pieces(program: Program, loads: np.ndarray) -> tuple[Program, np.ndarray]:
    """A program that loads the pieces in which tiles are read into tiles of their own, and those loads."""
    cuts = _Cuts(program)
    pieces = _pieces(program, loads)
    parts = [
        cuts.of(int(program.form_column[row]), own) for row, own in zip(loads.tolist(), pieces, strict=True)
    ]
    counts = np.ones(len(program), np.int64)
    counts[loads] = [len(own) for own in parts]
    order = np.repeat(np.arange(len(program)), counts)
    rearranged = program.arranged(order)
    moved = np.flatnonzero(np.isin(order, loads))
    column, offset = rearranged.form_column.copy(), rearranged.offset_column.copy()
    places = rearranged.operand_start[moved]
    cut = [one for own in parts for one in own]
    column[moved] = [form for form, _, _ in cut]
    offset[places] += [dst for _, dst, _ in cut]
    offset[places + 1] += [src for _, _, src in cut]
    rearranged = rearranged.with_forms(cuts.forms, column).with_operands(
        program.storages, rearranged.storage_column, offset
    )
    return with_blocks_apart(rearranged), moved


def _pieces(program: Program, loads: np.ndarray) -> list[list[tuple[int, int]]]:
    """Per load the intervals of bytes of a partition, side by side, in which others read its tile."""
    slots = slots_of(program)
    tile, use = _uses(program, slots, loads)
    boxes = boxes_of(program, slots)
    low, high = (ends[boxes.of_slot[use]] for ends in free_intervals(slots, boxes))
    piece = told_apart(slots.storage[use], low, high)
    count = int(piece.max(initial=-1)) + 1
    begin, (end, owner) = np.full(count, np.iinfo(np.int64).max), np.zeros((2, count), np.int64)
    np.minimum.at(begin, piece, low)
    np.maximum.at(end, piece, high)
    owner[piece] = slots.storage[use]
    pieces_of_load: dict[int, list[tuple[int, int]]] = {}
    for storage, first, last in zip(owner.tolist(), begin.tolist(), end.tolist(), strict=True):
        pieces_of_load.setdefault(storage, []).append((first, last))
    return [pieces_of_load.get(storage, []) for storage in tile.tolist()]


class _Cuts:
    """Loads of pieces of what a form loads; new forms join those of the program."""

    def __init__(self, program: Program) -> None:
        self.forms = list(program.forms)
        self._known: dict[tuple[int, tuple[int, int]], tuple[int, int, int] | None] = {}

    def of(self, number: int, pieces: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Per piece its form, and what to add to the offsets of dst and src; the whole if it has none."""
        cuts = [self._cut(number, piece) for piece in pieces]
        cut = [one for one in cuts if one is not None]
        return cut if len(cut) == len(cuts) > 1 else [(number, 0, 0)]

    def _cut(self, number: int, piece: tuple[int, int]) -> tuple[int, int, int] | None:
        key = number, piece
        if key not in self._known:
            self._known[key] = self._new_load(number, *piece)
        return self._known[key]

    def _new_load(self, number: int, begin: int, end: int) -> tuple[int, int, int] | None:
        """The load of the bytes from begin to end of each partition: an interval along one axis."""
        form = self.forms[number]
        dst, src = form.layouts
        if dst.shape != src.shape or dst.partition_axis != 0:
            return None
        axis = next((a for a, extent in enumerate(dst.shape) if a and extent > 1), 0)
        inner = dst.strides[axis] * dst.itemsize
        if not axis or begin % inner or end % inner:
            return None
        first, count = begin // inner, (end - begin) // inner
        layouts = [_sliced(layout, axis, count) for layout in (dst, src)]
        self.forms.append(type(form)(form.machine, layouts, form.attribute_values))
        return len(self.forms) - 1, first * dst.strides[axis], first * src.strides[axis]


def _sliced(whole: Layout, axis: int, count: int) -> Layout:
    """A layout with `count` elements along an axis."""
    shape = (*whole.shape[:axis], count, *whole.shape[axis + 1 :])
    return layout(
        shape, whole.strides, whole.dtype, whole.memory, whole.partition_axis, whole.start_partition
    )


def _with_loads_at_uses(program: Program, loads: np.ndarray) -> tuple[Program, np.ndarray]:
    """A program that makes some loads before each use, one for those within a few rows; and the loads."""
    slots = slots_of(program)
    tile, use = _uses(program, slots, loads)
    load_of = np.full(len(program.storages), -1, np.int64)
    load_of[tile] = loads
    use = use[np.lexsort((slots.row[use], slots.storage[use]))]
    row, storage = slots.row[use], slots.storage[use]
    begins = np.diff(storage, prepend=-1) != 0
    again = ~begins & (np.diff(row, prepend=0) > program.machine.limit("spill_rest_rows"))
    stored = slots.storage.copy()
    storages = [*program.storages, *(program.storages[s] for s in storage[again].tolist())]
    own = storage.copy()
    own[again] = np.arange(len(program.storages), len(storages))
    run = np.cumsum(begins | again) - 1
    stored[use] = own[begins | again][run]
    # every run begins with a load, right before its first row
    before, load = row[begins | again], load_of[storage[begins | again]]
    others = np.setdiff1d(np.arange(len(program)), loads)
    rows = np.concatenate([load, others])
    keys = np.concatenate([2 * before, 2 * others + 1])
    order = np.argsort(keys, kind="stable")
    rearranged = program.with_operands(storages, stored, program.offset_column).arranged(rows[order])
    moved = np.flatnonzero(order < len(load))
    column = rearranged.storage_column.copy()
    column[rearranged.operand_start[moved]] = own[begins | again][order[moved]]
    return rearranged.with_operands(storages, column, rearranged.offset_column), moved
