"""Tiles of Beta 1 that stand for several blocks of a tensor in turn, read after the turn of a block."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from ..trace.run_notes import BlockUse
from .evidence import Track
from .finding import Finding
from .race_rules import LIFETIME


def find(track: Track) -> Iterator[Finding]:
    """Reads of a block whose tile has become another block since the block was written."""
    by_tile = sorted(track.marks.block_uses, key=lambda use: use.storage)
    for storage, uses in groupby(by_tile, key=lambda use: use.storage):
        yield from _of_tile(track, storage, list(uses))


def _of_tile(track: Track, storage: int, uses: list[BlockUse]) -> Iterator[Finding]:
    allotted = {use.row: use.block for use in uses if use.is_given}
    read = _read(track, storage, [use for use in uses if not use.is_given])
    holder, holder_row = -1, -1
    written: set[int] = set()
    for row in sorted({*read, *allotted}):
        late = [block for block in read.get(row, ()) if block in written and block != holder]
        for block in late:
            yield _finding_of(track, row, storage, block, holder_row, holder)
        if row in allotted:
            holder, holder_row = allotted[row], row
            written.add(holder)


def _read(track: Track, storage: int, uses: list[BlockUse]) -> dict[int, list[int]]:
    """By row, the blocks of a tile that it reads: as many as it reads tiles, those taken last before it."""
    slots = track.slots
    reads = slots.row[(slots.storage == storage) & slots.is_read]
    rows, counts = np.unique(reads, return_counts=True)
    taken: dict[int, list[int]] = {}
    for use in uses:
        place = int(np.searchsorted(rows, use.row))
        if place < len(rows):
            taken.setdefault(place, []).append(use.block)
    return {
        int(rows[place]): list(dict.fromkeys(blocks[-int(counts[place]) :]))
        for place, blocks in taken.items()
    }


def _finding_of(track: Track, row: int, storage: int, block: int, writer: int, holder: int) -> Finding:
    return LIFETIME.finding(
        f"{track.called(row)} reads block {block} of {track.describe(storage)} after {track.called(writer)} "
        f"wrote block {holder} over it",
        track.site(row), track.site(writer), f"{track.called(writer)} writes block {holder} on its bytes",
        fix="give the tensor as many tiles as blocks are needed at once, by num_free_tiles or the addresses",
    )  # fmt: skip
