"""How many buffers the compiler gives to the tiles of one place in the source.

Tiles that one line allocates again and again take turns in a few buffers: as many as are live at once in
program order, times the number by which the compiler multiplies them (`tile_buffers`). A tile waits for the
last access of the one whose buffer it gets, even where SBUF has room for more. Tiles at addresses that the
kernel gives have those instead.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from itertools import pairwise
from operator import attrgetter

import numpy as np

from ..tiles.tile import SBUF
from ..trace.program import Program
from .direct_allocation import has_address
from .slots import Kinds, Slots
from .walk import REUSE

Edges = tuple[np.ndarray, np.ndarray, np.ndarray]


def buffer_edges(program: Program, slots: Slots, factor: int) -> Edges:
    """Per tile that gets the buffer of an earlier one: its first row, the last row of that one, and why."""
    count = len(program.storages)
    first, last = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    first[slots.storage[::-1]] = slots.row[::-1]
    last[slots.storage] = slots.row
    site = np.where(has_address(program), -1, _sites(program, slots.kinds))
    tiles = np.flatnonzero((first >= 0) & (site >= 0))
    tiles = tiles[np.lexsort((first[tiles], site[tiles]))]
    bounds = np.flatnonzero(np.diff(site[tiles], prepend=-1)).tolist()
    later: list[np.ndarray] = []
    earlier: list[np.ndarray] = []
    for start, stop in pairwise([*bounds, len(tiles)]):
        own = tiles[start:stop]
        buffers = factor * _most_at_once(first[own], last[own])
        if len(own) > buffers:
            later.append(first[own[buffers:]])
            earlier.append(_given_up(last[own], buffers))
    if not later:
        return (np.zeros(0, np.int64),) * 3
    rows = np.concatenate(later)
    return rows, np.concatenate(earlier), np.full(len(rows), REUSE)


def _sites(program: Program, kinds: Kinds) -> np.ndarray:
    """Per storage a number for the line, shape and type it is one of; -1 outside of SBUF."""
    count = len(program.storages)
    line = np.fromiter(map(attrgetter("line"), program.storages), np.int64, count)
    number = (line + 1) * len(kinds.samples) + kinds.of_storage
    return np.where(kinds.lie_in(SBUF), number, -1)


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
