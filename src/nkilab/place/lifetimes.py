"""What must lie on chip from when to when: the parts of tiles that are placed by themselves.

A tile whose accesses fall into groups that share no byte of a partition (the blocks of a block tensor) is as
many parts, each with its own lifetime: no instruction needs them side by side. In PSUM a part
is whole units: see `psum_unit`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ..tiles.tile import HBM, PSUM
from ..trace.program import MIDDLE_END, Program
from .boxes import Boxes, told_apart
from .direct_allocation import has_address
from .edges import Waits
from .slots import DMA, Slots, by_storage, pieces


class Parts(Struct, frozen=True):
    """The parts of tiles in one memory."""

    slot: np.ndarray  # the slots that access this memory, in trace order
    of_slot: np.ndarray  # per such slot, the part that it accesses
    storage: np.ndarray  # per part
    offset: np.ndarray  # per part, its first byte in each partition of the storage
    size: np.ndarray  # per part, bytes per partition; in PSUM whole units
    # first, last: per part, the rows of the first and the last access
    first: np.ndarray
    last: np.ndarray
    # per such slot, whether it writes a box of the part for the first time; these accesses wait for those who
    # held the bytes before, the others wait for one of these
    is_root: np.ndarray
    is_whole: np.ndarray  # per such slot, whether it writes every byte of the part


def parts_of(
    program: Program, slots: Slots, boxes: Boxes, memory: str, tiles: np.ndarray, *, has_fills: bool = True
) -> Parts:
    """The parts of tiles of `memory` that `program` accesses.

    Args:
        program: whose tiles they are.
        slots: of the program.
        boxes: of the slots.
        memory: "sbuf" or "psum".
        tiles: per storage whether it is one of them.
        has_fills: whether an instruction that only fills a tile is an access; if not, fills are taken to be
            moved to the first use of what they fill, block by block, as a compiler does with zeroed blocks.
    """
    here = slots.kinds.lie_in(memory) & tiles
    counts = here[slots.storage] if has_fills else here[slots.storage] & ~only_fills(program, slots)
    low, high = free_intervals(slots, boxes)
    if memory == PSUM:
        unit = psum_unit(program)
        low, high = low // unit * unit, -(-high // unit) * unit
    slot = np.flatnonzero(counts).astype(np.int32)
    of_slot, is_root = np.empty(len(slot), np.int32), np.zeros(len(slot), np.bool_)
    columns: list[np.ndarray] = [np.zeros((3, 0), np.int64)]
    count, width = 0, len(boxes.group) + 1
    for own in by_storage(slots, here):
        own = own[counts[own]]
        if not len(own):
            continue
        keys = slots.storage[own] * width + boxes.of_slot[own]
        pairs, first_slot, back = np.unique(keys, return_index=True, return_inverse=True)
        storage, box = np.divmod(pairs, width)
        part = told_apart(storage, low[box], high[box])
        begins = np.flatnonzero(np.diff(part, prepend=-1))
        least, most = np.minimum.reduceat(low[box], begins), np.maximum.reduceat(high[box], begins)
        columns.append(np.stack([storage[begins], least, most]))
        place = np.searchsorted(slot, own)
        of_slot[place] = count + part[back]
        is_root[place[first_slot]] = slots.is_written[own[first_slot]]
        count += len(begins)
    owner, offset, end = np.concatenate(columns, axis=1).astype(np.int32)
    first, last = ends_of(of_slot, slots.row[slot], count)
    is_root |= slots.row[slot] == first[of_slot]
    is_whole = slots.is_written[slot] & _is_whole(slots, slot, (end - offset)[of_slot])
    return Parts(slot, of_slot, owner, offset, end - offset, first, last, is_root, is_whole)


def psum_unit(program: Program) -> int:
    """Bytes per partition of PSUM that one tile may take without the rest of its bank.

    The automatic allocation of Beta 1 lets small tiles share a bank; where a kernel gives addresses, and
    under the stand-alone compiler, a tile takes whole banks.
    """
    shares_banks = program.compiler == MIDDLE_END and not has_address(program).any()
    return program.machine.limit("psum_shared_bytes" if shares_banks else "psum_bank_bytes")


def only_fills(program: Program, slots: Slots) -> np.ndarray:
    """Per slot whether its row writes it and touches nothing else, and the tile is used by other rows too."""
    tiles = np.bincount(slots.row, minlength=len(program))
    fills = (tiles[slots.row] == 1) & slots.is_written & ~slots.is_read & (slots.engine[slots.row] != DMA)
    is_used = np.zeros(len(program.storages), np.bool_)
    is_used[slots.storage[~fills]] = True
    return fills & is_used[slots.storage]


def free_intervals(slots: Slots, boxes: Boxes) -> tuple[np.ndarray, np.ndarray]:
    """Per box on chip the bytes of a partition that it lies in: all, if only its flat interval is known."""
    low = np.zeros(len(boxes.group), np.int64)
    high = np.zeros(len(boxes.group), np.int64)
    kind = np.zeros(len(boxes.group), np.int64)
    kind[boxes.of_slot] = slots.kinds.of_storage[slots.storage]
    for number, record in enumerate(slots.kinds.samples):
        if record.memory == HBM:
            continue
        here = np.flatnonzero(kind == number)
        high[here] = record.bytes_per_partition
        if len(record.shape) < 2:
            continue
        here = here[~boxes.is_flat[here]]
        stride, last = 1, np.zeros(len(here), np.int64)
        sizes = (*record.shape[1:-1], record.shape[-1] * record.dtype.itemsize)
        for axis in range(len(sizes), 0, -1):
            low[here] += boxes.low[here, axis] * stride
            last += (boxes.high[here, axis] - 1) * stride
            stride *= sizes[axis - 1]
        high[here] = last + 1
    return low, high


def ends_of(number: np.ndarray, row: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each of `count` things the first and the last row that accesses it, 0 and -1 if none does.

    Args:
        number, row: per access the thing and the row; rows ascend.
        count: of the things.
    """
    first, last = np.zeros(count, np.int64), np.full(count, -1, np.int64)
    # of several assignments to one place the last one stays
    first[number[::-1]] = row[::-1]
    last[number] = row
    return first, last


class Lives:
    """From where to where tiles live, and how much of a memory they take row by row.

    Args:
        program: whose tiles they are.
        slots: of the program.
        sizes: per tile what it takes of the memory, 0 if it lies elsewhere.
        counts: per slot whether it is an access for which its tile must live.
    """

    def __init__(
        self, program: Program, slots: Slots, sizes: Sequence[int], counts: np.ndarray | slice = slice(None)
    ) -> None:
        self.sizes, self._rows = np.array(sizes, np.int64), len(program)
        self.first, self.last = ends_of(slots.storage[counts], slots.row[counts], len(self.sizes))
        self.used = self.of(np.arange(len(self.sizes)))

    def of(self, tiles: np.ndarray) -> np.ndarray:
        """Per row what some tiles take."""
        change = np.zeros(self._rows + 1, np.int64)
        # one that nothing accesses begins and ends before row 0
        np.add.at(change, self.first[tiles], self.sizes[tiles])
        np.add.at(change, self.last[tiles] + 1, -self.sizes[tiles])
        return np.cumsum(change)[:-1]

    def keep(self, size: int, begin: int, end: int, most: int) -> bool:
        """Take so much more from one row to before another, if no more than `most` is then taken."""
        between = self.used[begin:end]
        if len(between) and between.max() + size > most:
            return False
        between += size
        return True

    def extend(self, known: int, tile: int, row: int, most: int) -> bool:
        """Keep a tile until a row and take it for another one from there on, if `most` is enough for it."""
        size = self.sizes[tile]
        if not self.keep(size, self.last[known] + 1, row, most):
            return False
        # where both would have lived there is one of them from here on
        self.used[row : min(self.last[known], self.last[tile]) + 1] -= size
        self.last[known] = max(self.last[known], self.last[tile])
        return True


def _is_whole(slots: Slots, slot: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Per slot whether it touches as many bytes as its part has in all partitions."""
    touched = np.array([g.size * g.itemsize if 0 not in g.strides else 0 for g in slots.layouts], np.int64)
    partitions = np.array([s.partitions for s in slots.kinds.samples], np.int64)[slots.kinds.of_storage]
    return touched[slots.layout[slot]] >= size * partitions[slots.storage[slot]]


def frontier_of(slots: Slots, parts: Parts, waits: Waits) -> tuple[np.ndarray, np.ndarray]:
    """The rows after which a part is idle: `row[start[p]:start[p + 1]]` for part p; returns (start, row).

    Of each in-order engine the last access, of transfers all, but none that a later access of the part
    waits for.
    """
    row = slots.row[parts.slot]
    is_last = ~_is_awaited(row, parts, waits)
    engine = slots.engine[row]
    # of several assignments to one place the last one stays
    last = np.full((len(parts.size), DMA + 1), -1, np.int32)
    last[parts.of_slot, engine] = np.arange(len(row), dtype=np.int32)
    is_of_engine = engine == DMA
    is_of_engine[last[last >= 0]] = True
    kept = np.flatnonzero(is_last & is_of_engine)
    kept = kept[np.argsort(parts.of_slot[kept], kind="stable")]
    start = np.searchsorted(parts.of_slot[kept], np.arange(len(parts.size) + 1))
    return start, row[kept]


def _is_awaited(row: np.ndarray, parts: Parts, waits: Waits) -> np.ndarray:
    """Per access, whether a row that accesses the same part waits for its row."""
    nodes, count = len(waits.start) - 1, len(parts.size) + 1
    accesses = row * np.int64(count) + parts.of_slot
    accesses.sort()
    result = np.zeros(len(row), np.bool_)
    start = np.zeros(nodes + 2, np.int32)
    np.cumsum(np.bincount(row, minlength=nodes + 1), out=start[1:])
    later = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(waits.start))
    for piece in pieces(len(later)):
        begin, stop = start[waits.node[piece]], start[waits.node[piece] + 1]
        for place in range(int((stop - begin).max(initial=0))):
            edges = np.flatnonzero(begin + place < stop)
            access = begin[edges] + place
            wanted = later[piece][edges] * np.int64(count) + parts.of_slot[access]
            places = np.searchsorted(accesses, wanted)
            result[access] |= accesses[np.minimum(places, len(accesses) - 1)] == wanted
    return result
