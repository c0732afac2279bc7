"""How many buffers the compiler gives to the tiles of one place in the source.

Tiles that one line allocates again and again rotate through a few buffers: as many as are live at once in
program order, times the number by which the compiler multiplies them (`tile_buffers`). Blocks, tiles with
several free axes that are filled and used in parts, get as many as are live of one line and one source,
and `spare_block_buffers` more: double buffering for a block that is the only one. The first access of a tile
waits for the last access of the one whose buffer it gets, even where SBUF has room for more. Tiles at
addresses that the kernel gives have those instead. Loops that hand on tensors through HBM wait in turn.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from itertools import pairwise
from operator import attrgetter

import numpy as np

from ..machine import Machine
from ..tiles.tile import HBM, SBUF
from ..trace.program import MIDDLE_END, Program
from .direct_allocation import has_address
from .lifetimes import ends_of
from .slots import DMA, Slots
from .walk import FLOW, REUSE

Edges = tuple[np.ndarray, np.ndarray, np.ndarray]


def buffer_edges(program: Program, slots: Slots) -> Edges:
    """Per tile that gets the buffer of an earlier one: its first row, the last row of that one, and why."""
    count = len(program.storages)
    first, last = ends_of(slots.storage, slots.row, count)
    site = np.where(has_address(program), -1, _sites(program, slots))
    tiles = np.flatnonzero((last >= 0) & (site >= 0))
    tiles = tiles[np.lexsort((first[tiles], site[tiles]))]
    bounds = np.flatnonzero(np.diff(site[tiles], prepend=-1)).tolist()
    given_up = np.full(count, -1, np.int64)
    for start, stop in pairwise([*bounds, len(tiles)]):
        own = tiles[start:stop]
        is_block = len(program.storages[own[0]].shape) > 2
        buffers = _buffers(program.machine, _most_at_once(first[own], last[own]), is_block=is_block)
        if len(own) > buffers:
            given_up[own[buffers:]] = _given_up(last[own], buffers)
    later = np.flatnonzero(given_up >= 0)
    rows = first[later]
    if not program.machine["block_first_part"]:
        writes = np.flatnonzero(slots.is_written & (given_up[slots.storage] >= 0))
        later, rows = slots.storage[writes], slots.row[writes]
    return rows, given_up[later], np.full(len(later), REUSE)


def order_edges(program: Program, slots: Slots) -> Edges:
    """Per instruction the one before it on its engine, where engines take them in program order."""
    engine = slots.engine[: len(program) * int(program.machine["engines_in_order"])]
    rows = np.flatnonzero(engine != DMA)
    rows = rows[np.argsort(engine[rows], kind="stable")]
    is_next = np.diff(engine[rows]) == 0
    return rows[1:][is_next], rows[:-1][is_next], np.full(int(is_next.sum()), REUSE)


def phase_edges(program: Program, slots: Slots) -> Edges:
    """Per load of a tensor that the kernel stores, the last store to it before the loop of the load.

    Beta 1 follows a tensor in HBM by the element within a loop, whose iterations are independent by contract,
    and as a whole from one loop to the next: what one stores, the other reads when all of it is there.
    Transfers of one line are of one loop; those of one queue end in order.
    """
    in_hbm = slots.kinds.lie_in(HBM)[slots.storage]
    stride = len(program) + 1
    key = slots.storage * stride + slots.row
    stores = np.sort(key[in_hbm & slots.is_written])
    loads = np.flatnonzero(in_hbm & slots.is_read & np.isin(slots.storage, stores // stride))
    if program.compiler != MIDDLE_END or not program.machine["scratch_phases"] or not len(loads):
        none = np.zeros(0, np.int64)
        return none, none, none
    site = slots.storage[loads] * len(program.lines) + program.line_column[slots.row[loads]]
    _, first, of_load = np.unique(site, return_index=True, return_inverse=True)
    # slots stand in the order of rows
    before = np.searchsorted(stores, key[loads[first[of_load]]]) - 1
    kept = (before >= 0) & (stores[before] // stride == slots.storage[loads])
    return slots.row[loads[kept]], stores[before[kept]] % stride, np.full(int(kept.sum()), FLOW)


def _buffers(machine: Machine, live: int, *, is_block: bool) -> int:
    """How many buffers tiles get of which so many are live at once."""
    spare = machine.limit("spare_block_buffers")
    return live + spare if is_block and spare else live * machine.limit("tile_buffers")


def _sites(program: Program, slots: Slots) -> np.ndarray:
    """Per storage a number for line, shape and type, of blocks also the source; -1 outside of SBUF."""
    kinds, count = slots.kinds, len(program.storages)
    line = np.fromiter(map(attrgetter("line"), program.storages), np.int64, count)
    number = line * len(kinds.samples) + kinds.of_storage
    is_block = np.array([len(s.shape) > 2 for s in kinds.samples], np.bool_)[kinds.of_storage]
    source = np.where(is_block, _sources(program, slots), count)
    return np.where(kinds.lie_in(SBUF), number * (count + 1) + source, -1)


def _sources(program: Program, slots: Slots) -> np.ndarray:
    """Per storage the tensor in HBM that the first row to write it reads; the number of storages if none.

    A helper that loads blocks of either operand of a product has one line for both.
    """
    count = len(program.storages)
    read = np.full(len(program), count, np.int64)
    from_hbm = slots.is_read & slots.kinds.lie_in(HBM)[slots.storage]
    read[slots.row[from_hbm]] = slots.storage[from_hbm]
    writes = np.flatnonzero(slots.is_written)[::-1]
    sources = np.full(count, count, np.int64)
    sources[slots.storage[writes]] = read[slots.row[writes]]
    return sources


def _most_at_once(first: np.ndarray, last: np.ndarray) -> int:
    """How many of some tiles are live at once, most."""
    order = np.argsort(np.concatenate([2 * first, 2 * last + 1]), kind="stable")
    change = np.where(order < len(first), 1, -1)
    return int(np.cumsum(change).max())


def _given_up(last: np.ndarray, buffers: int) -> np.ndarray:
    """Per tile after the first `buffers`, the last row of the one before it in the buffer free first."""
    if (np.diff(last) >= 0).all():
        return last[:-buffers]
    ends = last[:buffers].tolist()
    heapify(ends)
    return np.array([heapreplace(ends, row) for row in last[buffers:].tolist()], np.int64)
