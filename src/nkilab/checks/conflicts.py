"""Pairs of accesses of one memory that disturb each other, and which kind of pair each is.

The kinds are the rows of the table of dependences (`place.edges`). Most memory is touched through one tensor
whose accesses the framework orders; the walk there is that of `place`. What is left, memory that is touched
through tensors at overlapping addresses, through access patterns, at run-time offsets or by several cores, is
walked here, access by access.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..place.boxes import Overlaps, boxes_for, overlaps_of
from ..place.edges import Dependence, waits_of
from ..place.slots import DMA, Slots
from ..place.walk import KINDS
from ..tiles.tile import HBM
from .evidence import Evidence, Track
from .regions import SHAPE, in_memory

DIRECT, PATTERN, DYNAMIC, CORES = "direct overlap", "pattern overlap", "dynamic hbm", "two cores"
SEMAPHORE = "semaphore"
# every kind through one tensor counts as ordered while pairs are looked for
_ALL = {name: Dependence(name, name, True, name, "assumed") for name in KINDS}


class Touch(NamedTuple):
    """One operand of one row: the position of its program among the tracks, and its own among the slots."""

    track: int
    slot: int


class Pair(NamedTuple):
    """Two accesses of one memory of which one writes, the first earlier in the program.

    Args:
        kind: row of the table.
        first, second: the operands; -1 for the slot where only the row is known.
        earlier, later: nodes: rows, numbered through all programs.
    """

    kind: str
    first: Touch
    second: Touch
    earlier: int
    later: int


@dataclass
class _Group:
    """Accesses of one memory, in an order in which each follows what it waits for.

    Args:
        touches: the accesses.
        box: per access.
        boxes, overlaps: of the memory.
    """

    touches: list[Touch] = field(default_factory=list)
    box: Sequence[int] = ()
    overlaps: Overlaps | None = None


class Conflicts:
    """The pairs of a launch.

    Args:
        evidence: what the run left.
        sequence: all nodes in an order that meetings allow; ascending where there is one program.
    """

    def __init__(self, evidence: Evidence, sequence: np.ndarray) -> None:
        self.evidence = evidence
        self.tracks = evidence.tracks
        sizes = [len(track.program) for track in self.tracks]
        self.base = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._rank_of = np.empty(len(sequence), np.int64)
        self._rank_of[sequence] = np.arange(len(sequence))
        self.destroyed: list[Pair] = []

    def node(self, touch: Touch) -> int:
        """The row of an operand."""
        return int(self.base[touch.track] + self.tracks[touch.track].slots.row[touch.slot])

    def pairs(self) -> list[Pair]:
        """Neighbouring pairs in memory that is touched in more than one way."""
        found: list[Pair] = []
        for number, track in enumerate(self.tracks):
            for storage in self._special(track):
                found += self._within(number, storage)
            if DIRECT in self.evidence.table:
                for space in _spaces(track):
                    found += self._direct(number, space)
        if len(self.tracks) > 1 and CORES in self.evidence.table:
            found += self._across()
        return found

    def _special(self, track: Track) -> list[int]:
        """Storages that are touched through several access patterns, or at run-time offsets in HBM."""
        table, slots = self.evidence.table, track.slots
        written = set(np.unique(slots.storage[slots.is_written]).tolist())
        found: set[int] = set()
        if PATTERN in table:
            several: dict[int, int] = {}
            for storage, _, _ in track.marks.patterns:
                several[storage] = several.get(storage, 0) + 1
            found |= {s for s, count in several.items() if count > 1}
        if DYNAMIC in table:
            indexed = np.array([bool(given.indices) for given in slots.layouts], np.bool_)
            if indexed.any():
                here = np.unique(slots.storage[indexed[slots.layout]]).tolist()
                found |= {s for s in here if track.program.storages[s].memory == HBM}
        return sorted(found & written)

    def through_one(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Per program the pairs of rows that touch what one tensor has: later and earlier nodes, kind."""
        for number, track in enumerate(self.tracks):
            slots = _without(track.slots, self._special(track))
            waits = waits_of(track.program, slots, track.boxes, track.overlaps, _ALL)
            later = np.repeat(np.arange(len(track.program)), np.diff(waits.start))
            base = int(self.base[number])
            yield later + base, waits.node + base, waits.kind

    def _within(self, number: int, storage: int) -> Iterator[Pair]:
        """Pairs in a storage that is touched in several ways."""
        track = self.tracks[number]
        slots = track.slots
        own = _reads_first(slots, np.flatnonzero(slots.storage == storage))
        touches = [Touch(number, slot) for slot in own.tolist()]
        group = _Group(touches, track.boxes.of_slot[own].tolist(), track.overlaps)
        for first, second in self._walk(group, lambda a, b: True):
            yield self._pair(self._kind_within(track, first, second), first, second)

    def _kind_within(self, track: Track, first: Touch, second: Touch) -> str:
        slots, table = track.slots, self.evidence.table
        one, two = first.slot, second.slot
        rows = slots.row[[one, two]]
        if DYNAMIC in table and (slots.engine[rows] == DMA).all():
            indexed = any(slots.layouts[slots.layout[s]].indices for s in (one, two))
            if indexed and queue_of(track, int(rows[0])) != queue_of(track, int(rows[1])):
                return DYNAMIC
        if PATTERN in table and track.boxes.of_slot[one] != track.boxes.of_slot[two]:
            made = track.marks.patterns
            if all(
                (int(slots.storage[s]), int(slots.offset[s]), slots.layouts[slots.layout[s]]) in made
                for s in (one, two)
            ):
                return PATTERN
        return self._through_one(track, one, two)

    @staticmethod
    def _through_one(track: Track, one: int, two: int) -> str:
        slots = track.slots
        if slots.is_written[one] and slots.is_read[two]:
            return "flow"
        return "output" if slots.is_written[one] else "anti"

    def _direct(self, number: int, storages: list[int]) -> Iterator[Pair]:
        """Pairs of different tiles at overlapping addresses."""
        track = self.tracks[number]
        slots, program = track.slots, track.program
        own = _reads_first(slots, np.flatnonzero(np.isin(slots.storage, storages)))
        touches = [Touch(number, slot) for slot in own.tolist()]
        # accesses that are alike touch one box
        alike: dict[tuple[int, int, int], int] = {}
        keys = zip(
            slots.storage[own].tolist(), slots.layout[own].tolist(), slots.offset[own].tolist(), strict=True
        )
        which = [alike.setdefault(key, len(alike)) for key in keys]
        places = []
        for storage, given, offset in alike:
            known, first = in_memory(
                program.storages[storage], slots.layouts[given], offset, track.marks.addresses[storage]
            )
            places.append((0, SHAPE, 1, known, first))
        boxes = boxes_for(places)
        group = _Group(touches, boxes.of_slot[which].tolist(), overlaps_of(boxes))
        self.destroyed += self._destroyed(group)
        # Beta 1 traces the body of a loop once: what one line allocates there is one tensor, whose iterations
        # the direct allocation guide calls serialized
        is_traced = self.evidence.kernel.spelling == "neuronxcc"

        def is_apart(a: Touch, b: Touch) -> bool:
            one, two = int(slots.storage[a.slot]), int(slots.storage[b.slot])
            return one != two and not (is_traced and program.storages[one].line == program.storages[two].line)

        for first_touch, second in self._walk(group, is_apart):
            yield self._pair(DIRECT, first_touch, second)

    def _destroyed(self, group: _Group) -> Iterator[Pair]:
        """Reads of what another tile wrote over after the tile itself was written: (that write, the read)."""
        assert group.overlaps is not None
        start, other = group.overlaps.start, group.overlaps.other
        # per box and tile the last write: number of the access
        written: dict[int, dict[int, int]] = {}
        for place, (touch, box) in enumerate(zip(group.touches, group.box, strict=True)):
            slots = self.tracks[touch.track].slots
            own = int(slots.storage[touch.slot])
            if slots.is_read[touch.slot]:
                near = [box, *other[start[box] : start[box + 1]].tolist()]
                last = [(w, s) for b in near for s, w in written.get(b, {}).items()]
                mine = max((w for w, s in last if s == own), default=-1)
                theirs = max((w for w, s in last if s != own), default=-1)
                if 0 <= mine < theirs:
                    yield self._pair(DIRECT, group.touches[theirs], touch)
            if slots.is_written[touch.slot]:
                written.setdefault(box, {})[own] = place

    def _across(self) -> Iterator[Pair]:
        """Pairs of accesses of two cores to memory that both see."""
        places: list[tuple[int, tuple[int, ...], int, object, int]] = []
        touches: list[Touch] = []
        for group, numbers in enumerate(self.evidence.memories.values()):
            for number, storage in enumerate(numbers):
                if storage is None:
                    continue
                slots = self.tracks[number].slots
                record = self.tracks[number].program.storages[storage]
                for slot in np.flatnonzero(slots.storage == storage).tolist():
                    touches.append(Touch(number, slot))
                    given = slots.layouts[slots.layout[slot]]
                    shape = record.shape
                    places.append((group, shape, record.dtype.itemsize, given, int(slots.offset[slot])))
        if not touches:
            return
        boxes = boxes_for(places)  # type: ignore[arg-type]
        ranks = [2 * self._rank_of[self.node(t)] + self._writes(t) for t in touches]
        order = np.argsort(ranks, kind="stable").tolist()
        ordered = _Group([touches[i] for i in order], boxes.of_slot[order].tolist(), overlaps_of(boxes))
        for first, second in self._walk(ordered, lambda a, b: a.track != b.track):
            if not self._only_orders(first) and not self._only_orders(second):
                yield self._pair(CORES, first, second)

    def _writes(self, touch: Touch) -> bool:
        return bool(self.tracks[touch.track].slots.is_written[touch.slot])

    def _only_orders(self, touch: Touch) -> bool:
        """Whether a row moves no byte: a barrier."""
        track = self.tracks[touch.track]
        return bool(getattr(track.program.form_of(int(track.slots.row[touch.slot])), "only_orders", False))

    def _walk(self, group: _Group, is_apart: Callable[[Touch, Touch], bool]) -> Iterator[tuple[Touch, Touch]]:
        """Neighbouring pairs of which one writes; what a later write of the same core covers is forgotten."""
        assert group.overlaps is not None
        start, other, covers = group.overlaps.start, group.overlaps.other, group.overlaps.covers
        live: dict[int, dict[tuple[int, int, bool, int], Touch]] = {}
        for touch, box in zip(group.touches, group.box, strict=True):
            slots = self.tracks[touch.track].slots
            writes = self._writes(touch)
            span = slice(int(start[box]), int(start[box + 1]))
            near = [(box, True), *zip(other[span].tolist(), covers[span].tolist(), strict=True)]
            for close, is_covered in near:
                entries = live.get(close)
                if not entries:
                    continue
                for key, held in list(entries.items()):
                    if (writes or key[2]) and is_apart(held, touch) and self.node(held) != self.node(touch):
                        yield held, touch
                    if writes and is_covered and held.track == touch.track:
                        del entries[key]
            engine = int(slots.engine[slots.row[touch.slot]])
            # of several reads of one engine the last stands for all; transfers stand for themselves
            own = touch.slot if engine == DMA else -1
            storage = int(slots.storage[touch.slot])
            live.setdefault(box, {})[(touch.track, engine, writes, own if not writes else -storage - 2)] = (
                touch
            )

    def _pair(self, kind: str, first: Touch, second: Touch) -> Pair:
        return Pair(kind, first, second, self.node(first), self.node(second))


def _spaces(track: Track) -> list[list[int]]:
    """Groups of tiles at addresses of one space, where two of them overlap."""
    spaces: dict[tuple[int, str], list[int]] = {}
    for storage, address in track.marks.addresses.items():
        memory = track.program.storages[storage].memory
        spaces.setdefault((address.space, memory), []).append(storage)
    return [own for own in spaces.values() if len(own) > 1 and _overlap(track, own)]


def _overlap(track: Track, storages: list[int]) -> bool:
    """Whether two of some tiles share bytes, as far as their first bytes and sizes tell."""
    spans = []
    for storage in storages:
        address = track.marks.addresses[storage]
        spans.append((address.byte, address.byte + track.program.storages[storage].bytes_per_partition))
    spans.sort()
    reached = 0
    for low, high in spans:
        if low < reached:
            return True
        reached = max(reached, high)
    return False


def _reads_first(slots: Slots, own: np.ndarray) -> np.ndarray:
    """Slots by row, reads of a row before its writes."""
    return own[np.argsort(slots.row[own] * 2 + slots.is_written[own], kind="stable")]


def _without(slots: Slots, storages: list[int]) -> Slots:
    """Slots as if some storages were never touched."""
    if not storages:
        return slots
    out = np.isin(slots.storage, storages)
    return replace(slots, is_read=slots.is_read & ~out, is_written=slots.is_written & ~out)


def queue_of(track: Track, row: int) -> int:
    """Which queues carry a transfer."""
    return int(track.queue_of_form[track.program.form_column[row]])
