"""Where the values of tiles come from, and where they are stored, as far as the rows of a program tell."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property

import numpy as np

from ..tiles.tile import HBM
from .evidence import Track

# rows between a value and what it is computed from, beyond which it counts as a value of its own
_MOST_STEPS = 12


class Lineage:
    """What the rows of one program tell of the values in its tiles.

    Args:
        track: of the program.
    """

    def __init__(self, track: Track) -> None:
        self.track = track
        self._numbers: dict[Hashable, int] = {}
        self._values: dict[int, int] = {}

    @cached_property
    def _by_storage(self) -> tuple[np.ndarray, np.ndarray]:
        """The slots in the order of their storages, and per storage where its slots begin."""
        storage = self.track.slots.storage
        order = np.argsort(storage, kind="stable")
        count = int(storage.max(initial=-1)) + 2
        return order, np.searchsorted(storage[order], np.arange(count))

    def _slots_of(self, slot: int) -> list[int]:
        """All slots of the storage of one, in the order of rows."""
        order, start = self._by_storage
        storage = int(self.track.slots.storage[slot])
        own: list[int] = order[start[storage] : start[storage + 1]].tolist()
        return own

    def _meets(self, slot: int, other: int) -> tuple[bool, bool]:
        """Whether two slots of one storage share elements, and whether the first has all of the other's."""
        boxes, overlaps = self.track.boxes, self.track.overlaps
        box, second = int(boxes.of_slot[slot]), int(boxes.of_slot[other])
        if box == second:
            return True, True
        near = slice(int(overlaps.start[box]), int(overlaps.start[box + 1]))
        places = np.flatnonzero(overlaps.other[near] == second)
        return bool(len(places)), bool(overlaps.covers[near][places].any())

    def value(self, slot: int, steps: int = 0) -> int:
        """A number for what a slot reads: equal ones were computed alike from the same elements of inputs."""
        known = self._values.get(slot)
        if known is None:
            key: Hashable = ("own", slot)
            if steps <= _MOST_STEPS:
                writers = [(self._result(w, steps), self._box(w)) for w in self._writers(slot)]
                memory = () if writers else (int(self.track.slots.storage[slot]),)
                key = (self._box(slot), *memory, *writers)
            known = self._values[slot] = self._numbers.setdefault(key, len(self._numbers))
        return known

    def _box(self, slot: int) -> int:
        return int(self.track.boxes.of_slot[slot])

    def _writers(self, slot: int) -> Iterator[int]:
        """The slots that wrote what a slot reads, the latest first."""
        slots = self.track.slots
        for other in reversed(self._slots_of(slot)):
            if slots.row[other] >= slots.row[slot] or not slots.is_written[other]:
                continue
            meets, covers = self._meets(other, slot)
            if meets:
                yield other
            if covers and not slots.is_read[other]:
                return

    def _result(self, slot: int, steps: int) -> Hashable:
        """What a row computes: its form and values, and what it reads."""
        program, row = self.track.program, int(self.track.slots.row[slot])
        if program.form_of(row).registers:
            return "row", row
        own = range(self.track.slot_start[row], self.track.slot_start[row + 1])
        read = [s for s in own if self.track.slots.is_read[s]]
        form, values = int(program.form_column[row]), int(program.value_column[row])
        return form, values, *(self.value(s, steps + 1) for s in read)

    def stored(self, slot: int) -> set[tuple[int, int]]:
        """Tensors in HBM, and the box in each, where what a slot reads is stored element by element."""
        places, wanted, known = set(), [slot], {slot}
        while wanted:
            row = int(self.track.slots.row[wanted.pop()])
            for result in self._results_as_large(row):
                storage = int(self.track.slots.storage[result])
                if self.track.program.storages[storage].memory == HBM:
                    places.add((storage, self._box(result)))
                new = [s for s in self._readers(result) if s not in known]
                known.update(new)
                wanted += new
        return places

    def _results_as_large(self, row: int) -> Iterator[int]:
        """What a row writes that has as many elements as what it reads: neither reductions nor products."""
        slots = self.track.slots
        if self.track.program.form_of(row).accumulates:
            return
        own = range(self.track.slot_start[row], self.track.slot_start[row + 1])
        size = max(slots.layouts[slots.layout[s]].size for s in own if slots.is_read[s])
        yield from (s for s in own if slots.is_written[s] and slots.layouts[slots.layout[s]].size == size)

    def _readers(self, slot: int) -> Iterator[int]:
        """The slots on chip that read what a slot wrote, until it is written over."""
        slots = self.track.slots
        if self.track.program.storages[int(slots.storage[slot])].memory == HBM:
            return
        for other in self._slots_of(slot):
            if slots.row[other] <= slots.row[slot]:
                continue
            if slots.is_read[other] and not slots.is_written[other] and self._meets(slot, other)[0]:
                yield other
            if slots.is_written[other] and self._meets(other, slot)[1]:
                return
