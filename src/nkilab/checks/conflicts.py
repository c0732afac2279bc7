"""Pairs of accesses of one memory that disturb each other, and which kind of pair each is.

The kinds are the rows of the table of dependences (`place.edges`). Most memory is touched through one tensor
whose accesses the framework orders. What is left is looked at access by access: memory that is touched
through tensors at overlapping addresses, at run-time offsets or by several programs, and access patterns
where a table does not order them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from ..place.boxes import Overlaps, boxes_for, overlaps_of
from ..place.direct_allocation import Accesses, chains_of, crowded_spaces, in_space, reads_first
from ..place.edges import waits_of
from ..place.slots import DMA, distinct
from ..place.walk import DIRECT as DIRECT_CODE
from ..tiles.tile import HBM, Layout
from .evidence import Evidence, Track

DIRECT, PATTERN, DYNAMIC, CORES = "direct overlap", "pattern overlap", "dynamic hbm", "two cores"
BETA_1_DIRECT = "direct overlap, Beta 1"
SEMAPHORE = "semaphore"

# what stands for accesses that are alike: program, engine, whether they write, and which they are
_Live = tuple[int, int, bool, int]


class Touch(NamedTuple):
    """One operand of one row: the position of its program among the tracks, and its own among the slots."""

    track: int
    slot: int


class Pair(NamedTuple):
    """Two accesses of one memory of which one writes; operands are -1 where only the row is known."""

    kind: str
    first: Touch
    second: Touch
    earlier: int
    later: int


class _Space(NamedTuple):
    """Tiles at addresses of one memory: whose program, their accesses, and neighbouring pairs of these."""

    track: int
    accesses: Accesses
    earlier: np.ndarray
    later: np.ndarray


class Conflicts:
    """The pairs of a launch; `sequence`: all nodes in an order that rendezvous allow."""

    def __init__(self, evidence: Evidence, sequence: np.ndarray) -> None:
        self.evidence = evidence
        self.tracks = evidence.tracks
        sizes = [len(track.program) for track in self.tracks]
        self.base = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._rank_of = np.empty(len(sequence), np.int64)
        self._rank_of[sequence] = np.arange(len(sequence))
        # what one line of Beta 1 allocates in a loop is one tensor, whose iterations the direct allocation
        # guide calls serialized
        self._is_traced = evidence.kernel.spelling == "neuronxcc"

    def node(self, touch: Touch) -> int:
        """The row of an operand."""
        return int(self.base[touch.track] + self.tracks[touch.track].slots.row[touch.slot])

    def pairs(self) -> list[Pair]:
        """Neighbouring pairs in memory that is touched in more than one way."""
        pairs: list[Pair] = []
        for number, track in enumerate(self.tracks):
            for storage in self._special(track):
                pairs += self._within(number, storage)
        if self._is_traced and BETA_1_DIRECT in self.evidence.table:
            pairs += [pair for space in self._walked for pair in self._direct(space)]
        if len(self.tracks) > 1 and CORES in self.evidence.table:
            pairs += self._across()
        return pairs

    def _special(self, track: Track) -> list[int]:
        """Storages that are touched through access patterns, or at run-time offsets, that nothing orders."""
        slots = track.slots
        rows: set[int] = set()
        if not self.evidence.orders(PATTERN):
            several: dict[int, int] = {}
            for storage, _, _ in track.marks.patterns:
                several[storage] = several.get(storage, 0) + 1
            rows |= {s for s, count in several.items() if count > 1}
        if self.evidence.leaves_open(DYNAMIC):
            indexed = np.array([bool(layout.indices) for layout in slots.layouts], np.bool_)
            if indexed.any():
                here = distinct(slots.storage[indexed[slots.layout]]).tolist()
                rows |= {s for s in here if track.program.storages[s].memory == HBM}
        return sorted(rows & set(distinct(slots.storage[slots.is_written]).tolist())) if rows else []

    def through_one(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Pairs of rows of one program that share a tensor, or bytes at addresses: later, earlier, kind."""
        for number, track in enumerate(self.tracks):
            special = self._special(track)
            waits = track.within.waits
            if special:
                # as if these tensors were never touched
                slots, out = track.slots, np.isin(track.slots.storage, special)
                slots = replace(slots, is_read=slots.is_read & ~out, is_written=slots.is_written & ~out)
                waits = waits_of(track.program, slots, track.boxes, track.overlaps)
            later = np.repeat(np.arange(len(track.program)), np.diff(waits.start))
            base = int(self.base[number])
            yield later + base, waits.node + base, waits.kind
        if not self._is_traced:
            for space in self._walked:
                row, base = self.tracks[space.track].slots.row, int(self.base[space.track])
                later, earlier = (
                    row[space.accesses.slot[side]] + base for side in (space.later, space.earlier)
                )
                yield later, earlier, np.full(len(later), DIRECT_CODE)

    @cached_property
    def _walked(self) -> list[_Space]:
        """Memory in which tiles at addresses overlap."""
        spaces = []
        for number, track in enumerate(self.tracks):
            for storages in crowded_spaces(track.program):
                accesses = in_space(track.program, track.slots, storages)
                spaces.append(_Space(number, accesses, *accesses.neighbours(track.slots)))
        return spaces

    @cached_property
    def destroyed(self) -> list[Pair]:
        """Reads of what another tile wrote over after the tile itself was written: (that write, the read)."""
        return [pair for space in self._walked for pair in self._destroyed(space)]

    def _within(self, number: int, storage: int) -> Iterator[Pair]:
        """Pairs in a storage that is touched in several ways."""
        track = self.tracks[number]
        own = reads_first(track.slots, np.flatnonzero(track.slots.storage == storage))
        accesses = Accesses(own, track.boxes.of_slot[own], track.overlaps)
        earlier, later = accesses.neighbours(track.slots)
        for first, second in zip(own[earlier].tolist(), own[later].tolist(), strict=True):
            kind = self._kind_within(track, first, second)
            yield self._pair(kind, Touch(number, first), Touch(number, second))

    def _kind_within(self, track: Track, one: int, two: int) -> str:
        slots = track.slots
        rows = slots.row[[one, two]]
        if self.evidence.leaves_open(DYNAMIC) and (slots.engine[rows] == DMA).all():
            indexed = any(slots.layouts[slots.layout[s]].indices for s in (one, two))
            if indexed and queue_of(track, int(rows[0])) != queue_of(track, int(rows[1])):
                return DYNAMIC
        if not self.evidence.orders(PATTERN) and track.boxes.of_slot[one] != track.boxes.of_slot[two]:
            patterns_of_track = track.marks.patterns
            if all(
                (int(slots.storage[s]), int(slots.offset[s]), slots.layouts[slots.layout[s]])
                in patterns_of_track
                for s in (one, two)
            ):
                return PATTERN
        if slots.is_written[one] and slots.is_read[two]:
            return "flow"
        return "output" if slots.is_written[one] else "anti"

    def _direct(self, space: _Space) -> Iterator[Pair]:
        """Pairs of different tiles of Beta 1 at overlapping addresses."""
        track, slot = self.tracks[space.track], space.accesses.slot
        one, two = track.slots.storage[slot[space.earlier]], track.slots.storage[slot[space.later]]
        chain = chains_of(track.program)
        apart = (one != two) & (chain[one] != chain[two])
        firsts, seconds = slot[space.earlier[apart]], slot[space.later[apart]]
        for first, second in zip(firsts.tolist(), seconds.tolist(), strict=True):
            yield self._pair(BETA_1_DIRECT, Touch(space.track, first), Touch(space.track, second))

    def _destroyed(self, space: _Space) -> Iterator[Pair]:
        number, accesses, earlier, later = space.track, space.accesses, space.earlier, space.later
        slots = self.tracks[number].slots
        storage = slots.storage[accesses.slot]
        flow = slots.is_written[accesses.slot[earlier]] & slots.is_read[accesses.slot[later]]
        writer, reader = earlier[flow], later[flow]
        is_own = storage[writer] == storage[reader]
        mine, theirs = (np.full(len(storage), -1) for _ in range(2))
        np.maximum.at(mine, reader[is_own], writer[is_own])
        np.maximum.at(theirs, reader[~is_own], writer[~is_own])
        first_writes = _FirstWrites(accesses, storage, slots.is_written[accesses.slot])
        for read in np.flatnonzero(mine < theirs).tolist():
            # where the tile was never written before, the read is one of what was never written
            if first_writes.of(read) < theirs[read]:
                first = int(accesses.slot[theirs[read]])
                yield self._pair(DIRECT, Touch(number, first), Touch(number, int(accesses.slot[read])))

    def _across(self) -> Iterator[Pair]:
        """Pairs of accesses of two cores to memory that both see."""
        # a barrier touches no byte; as a write it would cover what came before it
        shared = [(touch, place) for touch, place in self._to_shared() if not self._only_orders(touch)]
        if not shared:
            return
        touches = [touch for touch, _ in shared]
        boxes = boxes_for([place for _, place in shared])
        ranks = [2 * self._rank_of[self.node(t)] + self._writes(t) for t in touches]
        order = np.argsort(ranks, kind="stable").tolist()
        overlaps = overlaps_of(boxes)
        for first, second in self._walk([touches[i] for i in order], boxes.of_slot[order].tolist(), overlaps):
            yield self._pair(CORES, first, second)

    def _to_shared(self) -> Iterator[tuple[Touch, tuple[int, tuple[int, ...], int, Layout, int]]]:
        """Accesses to memory that several cores see, each with its place as `boxes_for` takes it."""
        seen = (
            (group, number, storage)
            for group, numbers in enumerate(self.evidence.memories.values())
            for number, storage in enumerate(numbers)
            if storage is not None
        )
        for group, number, storage in seen:
            slots = self.tracks[number].slots
            record = self.tracks[number].program.storages[storage]
            for slot in np.flatnonzero(slots.storage == storage).tolist():
                layout, offset = slots.layouts[slots.layout[slot]], int(slots.offset[slot])
                yield Touch(number, slot), (group, record.shape, record.dtype.itemsize, layout, offset)

    def _writes(self, touch: Touch) -> bool:
        return bool(self.tracks[touch.track].slots.is_written[touch.slot])

    def _only_orders(self, touch: Touch) -> bool:
        """Whether a row moves no byte: a barrier."""
        track = self.tracks[touch.track]
        return bool(getattr(track.program.form_of(int(track.slots.row[touch.slot])), "only_orders", False))

    def _walk(
        self, touches: list[Touch], box_of: list[int], overlaps: Overlaps
    ) -> Iterator[tuple[Touch, Touch]]:
        """Neighbouring pairs of two programs; what a later write of the same program covers is forgotten."""
        live: dict[int, dict[_Live, Touch]] = {}
        for touch, box in zip(touches, box_of, strict=True):
            slots = self.tracks[touch.track].slots
            writes = self._writes(touch)
            span = slice(int(overlaps.start[box]), int(overlaps.start[box + 1]))
            near = zip(overlaps.other[span].tolist(), overlaps.covers[span].tolist(), strict=True)
            for close, is_covered in ((box, True), *near):
                yield from _disturbed(live.get(close, {}), touch, writes=writes, covers=is_covered)
            engine = int(slots.engine[slots.row[touch.slot]])
            # of several reads of one engine the last stands for all; transfers stand for themselves
            own = touch.slot if engine == DMA else -1
            key = (touch.track, engine, writes, own if not writes else -int(slots.storage[touch.slot]) - 2)
            live.setdefault(box, {})[key] = touch

    def _pair(self, kind: str, first: Touch, second: Touch) -> Pair:
        return Pair(kind, first, second, self.node(first), self.node(second))


def _disturbed(
    entries: dict[_Live, Touch], touch: Touch, *, writes: bool, covers: bool
) -> Iterator[tuple[Touch, Touch]]:
    """The pairs of an access with those that live in one box, of which it ends what it covers."""
    for key, access in list(entries.items()):
        if access.track != touch.track and (writes or key[2]):
            yield access, touch
        elif access.track == touch.track and writes and covers:
            del entries[key]


class _FirstWrites:
    """Per access the first write of its own tile to elements that it touches."""

    def __init__(self, accesses: Accesses, storage: np.ndarray, is_written: np.ndarray) -> None:
        self._accesses = accesses
        self._storage = storage
        self._is_written = is_written
        self._known: dict[tuple[int, int], int] = {}

    def of(self, place: int) -> int:
        """Its place; beyond all accesses where there is none."""
        key = (int(self._storage[place]), int(self._accesses.box[place]))
        if key not in self._known:
            start, other = self._accesses.overlaps.start, self._accesses.overlaps.other
            near = np.append(other[start[key[1]] : start[key[1] + 1]], key[1])
            mine = self._is_written & (self._storage == key[0]) & np.isin(self._accesses.box, near)
            self._known[key] = int(np.argmax(mine)) if mine.any() else len(mine)
        return self._known[key]


def queue_of(track: Track, row: int) -> int:
    """Which queues carry a transfer."""
    return int(track.queue_of_form[track.program.form_column[row]])
