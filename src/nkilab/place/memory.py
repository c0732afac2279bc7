"""A memory that tiles are placed in: segments in a ring, where what was given back first is taken first.

Each segment is free or taken, and remembers who held it last. A tile takes the free run whose holders ended
first in program order: short-lived tiles rotate through everything that is free, which is as much
multi-buffering as the memory allows, and a tile waits for as little as possible. A tile for which no run of
free segments is long enough while enough is free in all is placed in pieces: a compiler that sees the whole
program would have placed its neighbours closer together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from ..records import AT_ONCE, PAUSED, Job, numbers, table

NOBODY = -1
# What `place_all` says when it did not stop at a tile that finds no room.
ALL_PLACED, REUSES_FULL = -1, -2


class Segment(Struct):
    """Neighbouring units of the memory: bytes per partition, or banks."""

    # start, length: in units
    start: int = 0
    length: int = 0
    next: int = NOBODY  # the segment after it, of the last one the first; or the next one that is not in use
    previous: int = NOBODY  # the segment before it, of the first one the last
    holder: int = NOBODY  # the tile that holds it, or held it last
    is_free: bool = True  # whether nobody holds it now
    mate: int = NOBODY  # the next segment that the same tile holds
    # older, younger: free segments that were given back before and after it
    older: int = NOBODY
    younger: int = NOBODY
    search: int = 0  # the search for a run that looked at it last
    # reach, begin: of neighbours that a search looked at: one nearer to the last of them, and, where it is
    # the last, the first
    reach: int = NOBODY
    begin: int = NOBODY


class Tile(Struct):
    """What is placed: its size, its first and last row, and where it lies."""

    size: int  # in units
    # first, last: rows between which it needs its place
    first: int = 0
    last: int = 0
    segment: int = NOBODY  # its first segment
    address: int = 0  # start of the first piece
    pieces: int = 0  # how many it lies in


class Extent(Struct):
    """A memory as a whole."""

    # size, free, peak: in units; `peak` is the most that was taken at once
    size: int
    free: int
    peak: int = 0
    cursor: int = 0  # the segment after the one that was taken last
    # oldest, youngest: the free segments that were given back first and last
    oldest: int = 0
    youngest: int = 0
    created: int = 1  # how many segments were ever in use
    unused: int = NOBODY  # the first of those that were in use and are not
    reuses: int = 0  # how many entries of the columns of reuses are in use
    # began, ended: how many tiles were placed, and how many left
    began: int = 0
    ended: int = 0
    searches: int = 0  # how many runs were searched for


class Memory(NamedTuple):
    """A memory and what is placed in it."""

    extent: Extent  # its state
    segments: list[Segment]  # of the memory
    tiles: list[Tile]  # to be placed
    # begin, end: the tiles in the order in which they come and go
    begin: list[int]
    end: list[int]
    # taker, former: reuses, a tile and one that held some of its units before; no pair twice in a row
    taker: list[int]
    former: list[int]


def memory_sized(size: int, sizes: Any, first: Any, last: Any, *, as_array: bool) -> Memory:
    """An empty memory of `size` units, and the tiles to place in it, by size, first and last row."""
    count = len(sizes)
    # a taking cuts one segment at most
    segments = table(Segment, {}, min(size, count + 1), as_array=as_array)
    segments[0].length, segments[0].next, segments[0].previous = size, 0, 0
    reuses = np.zeros(count, np.int64)
    return Memory(
        table(Extent, {"size": size, "free": size}, 1, as_array=as_array)[0],
        segments,
        table(Tile, {"size": sizes, "first": first, "last": last}, count, as_array=as_array),
        numbers(np.argsort(first, kind="stable"), as_array=as_array),
        numbers(np.argsort(last, kind="stable"), as_array=as_array),
        numbers(reuses, as_array=as_array),
        numbers(reuses, as_array=as_array),
    )


def place(size: int, sizes: np.ndarray, first: np.ndarray, last: np.ndarray, rows: int) -> tuple[Memory, int]:
    """Place tiles in a memory in the order of their first rows.

    Args:
        size: of the memory, in units.
        sizes, first, last: of the tiles; one that ends before it begins is never used, and takes no room.
        rows: of the program.

    Returns:
        The memory, and the tile that found no room or `ALL_PLACED`.
    """
    sizes = np.where(last < first, 0, sizes)
    # a tile looks at free runs, of which there are hardly more than tiles that live at once
    live = np.arange(1, len(sizes) + 1) - np.searchsorted(np.sort(last), np.sort(first))
    run, as_array = _JOB.chosen(max(rows, len(sizes) * int(live.max(initial=0)) // 4))
    memory = memory_sized(size, sizes, first, last, as_array=as_array)
    stopped = run(memory)
    while stopped == REUSES_FULL:
        room = 2 * len(memory.former) + int(memory.extent.created) + 1
        grown = [numbers(np.resize(reuses, room), as_array=as_array) for reuses in memory[-2:]]
        memory = memory._replace(taker=grown[0], former=grown[1])
        stopped = run(memory)
    return memory, stopped


def place_all(memory: Memory) -> int:
    """Place the tiles that are left; returns why it stopped, or the tile for which not enough is free."""
    ring, tiles = memory.extent, memory.tiles
    pause = ring.began + AT_ONCE
    while ring.began < len(memory.begin):
        if ring.began == pause:
            return PAUSED
        number = memory.begin[ring.began]
        if ring.reuses + ring.created + 1 > len(memory.former):
            return REUSES_FULL
        while tiles[memory.end[ring.ended]].last < tiles[number].first:
            give_back(memory, memory.end[ring.ended])
            ring.ended += 1
        if not take(memory, number):
            return number
        ring.began += 1
    return ALL_PLACED


def take(memory: Memory, number: int) -> bool:
    """Place a tile in free segments; False if not enough is free."""
    ring, tile = memory.extent, memory.tiles[number]
    if tile.size > ring.free:
        return False
    at = _run(memory, tile.size)
    left, last, end = tile.size, NOBODY, NOBODY
    while left > 0:
        segment = memory.segments[at]
        if not segment.is_free:
            at = segment.next
            continue
        if segment.length > left:
            _split(memory, at, left)
        left -= segment.length
        if segment.start != end:
            tile.pieces += 1
        end = segment.start + segment.length
        _hold(memory, number, at, last)
        last, at = at, segment.next
    tile.address = memory.segments[tile.segment].start
    ring.cursor = at
    ring.free -= tile.size
    ring.peak = max(ring.peak, ring.size - ring.free)
    return True


def give_back(memory: Memory, number: int) -> None:
    """Free what a tile took; it stays known as the last holder of those units."""
    at = memory.tiles[number].segment
    while at != NOBODY:
        segment = memory.segments[at]
        segment.is_free = True
        memory.extent.free += segment.length
        _enqueue(memory, at, memory.extent.youngest)
        _absorb(memory, at)
        at = segment.mate


def _run(memory: Memory, size: int) -> int:
    """Where neighbouring free segments that hold `size` begin; the cursor itself if there are none.

    Of all runs the one whose last holder ended first: who takes it waits least. Segments join in the order in
    which they were given back, until neighbours among them hold enough; of those that were given back
    together all join.
    """
    ring = memory.extent
    ring.searches += 1
    is_found, latest = False, NOBODY
    at = ring.oldest
    while at != NOBODY:
        segment = memory.segments[at]
        last = NOBODY if segment.holder == NOBODY else memory.tiles[segment.holder].last
        if is_found and last > latest:
            break
        if _join(memory, at) >= size:
            is_found, latest = True, last
        at = segment.younger
    if not is_found:
        return ring.cursor
    at = ring.oldest
    while _room_from(memory, at) < size:
        at = memory.segments[at].younger
    return at


def _join(memory: Memory, at: int) -> int:
    """Let a search look at a free segment; how much it holds with neighbours that the search looked at."""
    search, segment = memory.extent.searches, memory.segments[at]
    begin = end = at
    before, after = memory.segments[segment.previous], memory.segments[segment.next]
    if segment.start > 0 and before.search == search:
        # the last of its neighbours until now
        begin = before.begin
        before.reach = at
    if after.start > segment.start and after.search == search:
        end = _last_of(memory, segment.next)
    segment.search, segment.reach = search, end
    memory.segments[end].begin = begin
    return memory.segments[end].start + memory.segments[end].length - memory.segments[begin].start


def _last_of(memory: Memory, at: int) -> int:
    """The last of the neighbours of a segment that a search looked at; the ways there get shorter."""
    while memory.segments[at].reach != at:
        nearer = memory.segments[at].reach
        memory.segments[at].reach = memory.segments[nearer].reach
        at = nearer
    return at


def _room_from(memory: Memory, at: int) -> int:
    """How much a segment that a search looked at holds with those behind it."""
    last = memory.segments[_last_of(memory, at)]
    return last.start + last.length - memory.segments[at].start


def _hold(memory: Memory, number: int, at: int, last: int) -> None:
    """Give a segment to a tile, after the one that it took last, and note who held it before."""
    ring, segment = memory.extent, memory.segments[at]
    if last == NOBODY:
        memory.tiles[number].segment = at
    else:
        memory.segments[last].mate = at
    _dequeue(memory, at)
    former = segment.holder
    segment.holder, segment.is_free, segment.mate = number, False, NOBODY
    if former == NOBODY:
        return
    count = ring.reuses
    if count == 0 or memory.former[count - 1] != former or memory.taker[count - 1] != number:
        memory.taker[count], memory.former[count] = number, former
        ring.reuses += 1


def _split(memory: Memory, at: int, length: int) -> None:
    """Cut a segment after `length`; the rest becomes a segment of its own."""
    ring, rest = memory.extent, memory.extent.unused
    if rest == NOBODY:
        rest = ring.created
        ring.created += 1
    else:
        ring.unused = memory.segments[rest].next
    segment, other = memory.segments[at], memory.segments[rest]
    other.start, other.length = segment.start + length, segment.length - length
    other.next, other.holder, other.is_free = segment.next, segment.holder, segment.is_free
    other.previous, memory.segments[other.next].previous = at, rest
    segment.next, segment.length = rest, length
    _enqueue(memory, rest, at)


def _absorb(memory: Memory, at: int) -> None:
    """Join a segment with the free segments after it that had the same holder."""
    ring, segment = memory.extent, memory.segments[at]
    follower = segment.next
    while follower != at:
        other = memory.segments[follower]
        if other.start < segment.start or not other.is_free or other.holder != segment.holder:
            return
        _dequeue(memory, follower)
        segment.length += other.length
        segment.next = other.next
        memory.segments[other.next].previous = at
        if ring.cursor == follower:
            ring.cursor = at
        other.next, ring.unused = ring.unused, follower
        follower = segment.next


def _enqueue(memory: Memory, at: int, older: int) -> None:
    """Put a free segment behind one that was given back before it, first of all if that is nobody."""
    ring, segment = memory.extent, memory.segments[at]
    younger = ring.oldest if older == NOBODY else memory.segments[older].younger
    segment.older, segment.younger = older, younger
    if older == NOBODY:
        ring.oldest = at
    else:
        memory.segments[older].younger = at
    if younger == NOBODY:
        ring.youngest = at
    else:
        memory.segments[younger].older = at


def _dequeue(memory: Memory, at: int) -> None:
    """Take a segment out of those that are free."""
    ring, segment = memory.extent, memory.segments[at]
    if segment.older == NOBODY:
        ring.oldest = segment.younger
    else:
        memory.segments[segment.older].younger = segment.younger
    if segment.younger == NOBODY:
        ring.youngest = segment.older
    else:
        memory.segments[segment.younger].older = segment.older


_JOB = Job(place_all, "the placement of tiles")
