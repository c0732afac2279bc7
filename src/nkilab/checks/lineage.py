"""Where the values of tiles come from, and where they are stored, as far as the rows of a program tell."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property

import numpy as np

from ..tiles.tile import HBM
from .evidence import Track

# rows between a value and what it is computed from, beyond which it counts as a value of its own
_MOST_STEPS = 12
# operands beyond which it is not asked any more where a value comes from
_MOST_OPERANDS = 2000


class Lineage:
    """What the rows of one program tell of the values in its tiles."""

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

    def slots_in(self, row: int) -> range:
        """The slots of a row."""
        return range(self.track.slot_start[row], self.track.slot_start[row + 1])

    def operands(self, row: int) -> list[int]:
        """The slots that a row reads."""
        return [slot for slot in self.slots_in(row) if self.track.slots.is_read[slot]]

    def slots_of(self, slot: int) -> list[int]:
        """All slots of the storage of one, in the order of rows."""
        order, start = self._by_storage
        storage = int(self.track.slots.storage[slot])
        return order[start[storage] : start[storage + 1]].tolist()

    def meets(self, slot: int, other: int) -> tuple[bool, bool]:
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
        for other in reversed(self.slots_of(slot)):
            if slots.row[other] >= slots.row[slot] or not slots.is_written[other]:
                continue
            meets, covers = self.meets(other, slot)
            if meets:
                yield other
            if covers and not slots.is_read[other]:
                return

    def _result(self, slot: int, steps: int) -> Hashable:
        """What a row computes: its form and values, and what it reads."""
        program, row = self.track.program, int(self.track.slots.row[slot])
        if program.form_of(row).registers:
            return "row", row
        form, values = int(program.form_column[row]), int(program.value_column[row])
        return form, values, *(self.value(s, steps + 1) for s in self.operands(row))

    def stored(self, slot: int) -> set[tuple[int, int]]:
        """Tensors in HBM, and the box in each, where what a slot reads is stored element by element."""
        wanted, results = [slot], dict[int, None]()
        while wanted:
            new = set(self._results_as_large(int(self.track.slots.row[wanted.pop()]))) - results.keys()
            results |= dict.fromkeys(new)
            wanted += [reader for result in new for reader in self._readers(result)]
        places = {(int(self.track.slots.storage[result]), self._box(result)) for result in results}
        return {place for place in places if self.track.program.storages[place[0]].memory == HBM}

    def _results_as_large(self, row: int) -> Iterator[int]:
        """What a row writes that has as many elements as what it reads: neither reductions nor products."""
        slots = self.track.slots
        if self.track.program.form_of(row).accumulates:
            return
        size = max((slots.layouts[slots.layout[s]].size for s in self.operands(row)), default=0)
        yield from (
            s
            for s in self.slots_in(row)
            if slots.is_written[s] and slots.layouts[slots.layout[s]].size == size
        )

    def _readers(self, slot: int) -> Iterator[int]:
        """The slots on chip that read what a slot wrote, until it is written over."""
        slots = self.track.slots
        if self.track.program.storages[int(slots.storage[slot])].memory == HBM:
            return
        for other in self.slots_of(slot):
            if slots.row[other] <= slots.row[slot]:
                continue
            if slots.is_read[other] and not slots.is_written[other] and self.meets(slot, other)[0]:
                yield other
            if slots.is_written[other] and self.meets(other, slot)[1]:
                return

    def products(self, slot: int, steps: int = 0) -> Iterator[int]:
        """The matmuls whose results a slot reads, copied or changed element by element at most."""
        slots = self.track.slots
        for writer in self._writers(slot):
            row = int(slots.row[writer])
            if self.track.program.form_of(row).accumulates:
                yield row
            elif steps < _MOST_STEPS and writer in self._results_as_large(row):
                yield from (p for operand in self.operands(row) for p in self.products(operand, steps + 1))

    def is_read(self, written: int, end: int) -> bool:
        """Whether a row reads what a slot wrote, before the row `end`."""
        slots = self.track.slots
        rows = range(int(slots.row[written]) + 1, end)
        others = (o for o in self.slots_of(written) if slots.row[o] in rows and slots.is_read[o])
        return any(self.meets(other, written)[0] for other in others)

    def depends(self, operands: Sequence[int], among: np.ndarray) -> bool:
        """Whether what slots read comes from rows that a column marks; true if that takes too long."""
        first, rows = int(among.argmax()), self.track.slots.row
        wanted, seen = list(operands), set(operands)
        while wanted and len(seen) < _MOST_OPERANDS:
            writers = {int(rows[writer]) for writer in self._writers(wanted.pop())}
            if any(among[row] for row in writers):
                return True
            new = {o for row in writers if row >= first for o in self.operands(row)} - seen
            seen |= new
            wanted += new
        return bool(wanted)
