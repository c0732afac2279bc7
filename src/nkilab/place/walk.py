"""The walk through storages that are accessed through overlapping boxes: who waits for whom."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec import Struct

from ..records import AT_ONCE, PAUSED, Job, numbers, table
from .boxes import Overlaps
from .slots import DMA

NOBODY = -1
# Kinds that a wait can have, by the code that columns hold.
KINDS = ("flow", "output", "anti", "reuse", "spill", "direct overlap")
FLOW, OUTPUT, ANTI, REUSE, SPILL, DIRECT = range(len(KINDS))


class Access(Struct):
    """One access of a storage."""

    # row, engine, box: what accesses, and through which box
    row: int
    engine: int
    box: int
    storage: int  # that is accessed
    # is_read, is_written: how
    is_read: bool
    is_written: bool
    is_awaited: bool  # whether a write of the storage comes later
    next: int = NOBODY  # of two transfers that read through one box, the one before


class Box(Struct):
    """A box and who accessed it last."""

    # first, end: of its neighbours
    first: int
    end: int
    writer: int = NOBODY  # the row that wrote it, if no later write covered it
    has_readers: bool = False  # whether it was read since
    transfers: int = NOBODY  # the last access of a transfer that read it


class Neighbour(Struct):
    """A box that overlaps another one, and whether that one covers it."""

    box: int
    is_covered: bool


class Total(Struct):
    """How far the walk came."""

    edges: int = 0  # that were found, though the columns may hold fewer
    # begin, number: the first access of the storage, and the next one
    begin: int = 0
    number: int = 0


class Walk(NamedTuple):
    """The accesses, in order, storage by storage, and what is known on the way."""

    # accesses, boxes, neighbours, total: tables
    accesses: list[Access]
    boxes: list[Box]
    neighbours: list[Neighbour]
    total: Total
    readers: list[int]  # per box and engine that runs in order, the last row that read through it
    # later, earlier, kind: the edges
    later: list[int]
    earlier: list[int]
    kind: list[int]


def edges_of(columns: dict[str, np.ndarray], overlaps: Overlaps) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The edges (later row, earlier row, kind) among accesses.

    Args:
        columns: of the accesses, as the first fields of `Access`; ordered by storage, then row, reads of a
            row before its writes.
        overlaps: of the boxes.
    """
    count = len(columns["row"])
    run, as_array = _JOB.chosen(count)
    room = 4 * count
    while True:
        walk = _walk(columns, overlaps, room, as_array=as_array)
        run(walk)
        edge_count = int(walk.total.edges)
        if edge_count <= room:
            break
        room = edge_count
    later, earlier, kind = (np.array(column[:edge_count], np.int32) for column in walk[-3:])
    return later, earlier, kind.astype(np.int8)


def _walk(columns: dict[str, np.ndarray], overlaps: Overlaps, room: int, *, as_array: bool) -> Walk:
    boxes = len(overlaps.start) - 1
    neighbours = {"box": overlaps.other, "is_covered": overlaps.covers}
    spans = {"first": overlaps.start[:-1], "end": overlaps.start[1:]}
    edges = [numbers(np.zeros(room, np.int64), as_array=as_array) for _ in range(3)]
    return Walk(
        table(Access, columns, len(columns["row"]), as_array=as_array),
        table(Box, spans, boxes, as_array=as_array),
        table(Neighbour, neighbours, len(overlaps.other), as_array=as_array),
        table(Total, {}, 1, as_array=as_array)[0],
        numbers(np.full(boxes * DMA, NOBODY), as_array=as_array),
        *edges,
    )


def walk_all(walk: Walk) -> int:
    """Walk the accesses of all storages that are left; returns whether it paused, or how many there are."""
    total = walk.total
    for number in range(total.number, min(total.number + AT_ONCE, len(walk.accesses))):
        access = walk.accesses[number]
        if access.storage != walk.accesses[total.begin].storage:
            _forget_storage(walk, total.begin, number)
            total.begin = number
        if access.is_read:
            _read(walk, access.row, access.box)
        if access.is_written:
            _write(walk, access.row, access.box)
        elif access.is_awaited:
            _note_reader(walk, number)
        total.number = number + 1
    return PAUSED if total.number < len(walk.accesses) else total.number


def _forget_storage(walk: Walk, begin: int, end: int) -> None:
    """Forget the accesses of a storage: the next one may have the same boxes."""
    for number in range(begin, end):
        _forget(walk, walk.accesses[number].box)


def _forget(walk: Walk, box: int) -> None:
    """Forget who accessed a box."""
    walk.boxes[box].writer = NOBODY
    if walk.boxes[box].has_readers:
        walk.boxes[box].has_readers = False
        walk.boxes[box].transfers = NOBODY
        for engine in range(DMA):
            walk.readers[box * DMA + engine] = NOBODY


def _read(walk: Walk, row: int, box: int) -> None:
    """Wait for the writers of what is read."""
    read = walk.boxes[box]
    if read.writer != NOBODY:
        _wait(walk, row, read.writer, FLOW)
    for place in range(read.first, read.end):
        writer = walk.boxes[walk.neighbours[place].box].writer
        if writer != NOBODY:
            _wait(walk, row, writer, FLOW)


def _note_reader(walk: Walk, number: int) -> None:
    """Remember a read that a later write must wait for; of one engine that runs in order only the last."""
    access = walk.accesses[number]
    box = walk.boxes[access.box]
    box.has_readers = True
    if access.engine == DMA:
        access.next = box.transfers
        box.transfers = number
    else:
        walk.readers[access.box * DMA + access.engine] = access.row


def _write(walk: Walk, row: int, box: int) -> None:
    """Wait for writers and readers of what is written, forget those it covers."""
    _clear_for(walk, row, box)
    for place in range(walk.boxes[box].first, walk.boxes[box].end):
        other = walk.neighbours[place]
        _clear_for(walk, row, other.box)
        if other.is_covered:
            _forget(walk, other.box)
    _forget(walk, box)
    walk.boxes[box].writer = row


def _clear_for(walk: Walk, row: int, number: int) -> None:
    """Wait for the live accesses through a box."""
    box = walk.boxes[number]
    if box.writer != NOBODY:
        _wait(walk, row, box.writer, OUTPUT)
    if not box.has_readers:
        return
    for engine in range(DMA):
        reader = walk.readers[number * DMA + engine]
        if reader != NOBODY:
            _wait(walk, row, reader, ANTI)
    transfer = box.transfers
    while transfer != NOBODY:
        _wait(walk, row, walk.accesses[transfer].row, ANTI)
        transfer = walk.accesses[transfer].next


def _wait(walk: Walk, later: int, earlier: int, kind: int) -> None:
    """Record that a row waits, if there is room."""
    place = walk.total.edges
    if place < len(walk.later):
        walk.later[place], walk.earlier[place], walk.kind[place] = later, earlier, kind
    walk.total.edges += 1


_JOB = Job(walk_all, "the dependences")
