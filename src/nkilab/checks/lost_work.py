"""Work that iterations of a loop lose: results that are written over, and sums that go on as the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ..tiles.tile import HBM, SBUF
from .declare import Example, rule
from .evidence import Evidence, Track
from .finding import Finding, once
from .lineage import Lineage
from .loops import carrier_of, updates_by
from .restarts import Stretch, restarts

_BLOCKS = """
tiles: out f32[640,512] hbm
nisa.dma_copy(out[nl.ds(128, 512)], x)
for i in nl.static_range(4):
    tiles: tile f32[128,512] sbuf < x[nl.ds(i * 128, 128)]
    nisa.dma_copy(out[nl.ds({} * 128, 128)], tile)
"""
OVERWRITTEN = rule("overwritten-result", "loops", "warning",
    title="what one iteration stores, the next one does not write over",
    what="a line stores to the same elements of a tensor in HBM again, in another iteration, before "
    "anything reads what it stored first, and nothing of the first iteration is in the second value",
    why="all but the last iteration work in vain: an index lacks the variable of a loop, or a sum that "
    "should go on over the iterations is made anew in each of them",
    fix="index the destination with the variable of the loop, or add up and store after the loop",
    source="nkilab: a value that is stored and never read is lost",
    kernel=Example(_BLOCKS, {"x": "f32[512,512]"}), wrong="0", right="i",
)  # fmt: skip

_ROWS = """
tiles: left bf16[128,256] sbuf < a; right bf16[128,512] sbuf; total f32[128,256] sbuf; out f32[256,512] hbm
nisa.dma_copy(right, b)
nisa.memset(total, 0.0)
for m in range(2):
    for n in range(2):
        {}product = nl.ndarray((128, 256), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(product, left[:, nl.ds(m * 128, 128)], right[:, nl.ds(n * 256, 256)])
        nisa.tensor_tensor(total, total, product, op=nl.add)
        nisa.dma_copy(out[nl.ds(m * 128, 128), nl.ds(n * 256, 256)], total)
"""
GOES_ON = rule("sbuf-sum-goes-on", "loops", "warning",
    title="a sum in SBUF that was stored as one result does not begin the next one",
    what="products are added to a sum in SBUF that was stored to HBM; their operands are in it already and "
    "meet other partners now, and what comes out is stored elsewhere",
    why="the second result has the first one in it. A running sum that is stored takes new operands",
    fix="clear the sum within the loop over the results: nisa.memset(total, 0.0)",
    source="nkilab: the same for sums in PSUM is psum-sum-goes-on",
    kernel=Example(_ROWS, {"a": "bf16[128,256]", "b": "bf16[128,512]"}),
    wrong="", right="nisa.memset(total, 0.0)\n        ",
)  # fmt: skip

# pairs of stores of one line that are looked at
_MOST_PAIRS = 8


def find(evidence: Evidence) -> Iterator[Finding]:
    """Work that is lost, once per line."""
    reported = (
        f for t in evidence.tracks for f in (*_Stores(t, evidence).overwritten(), *_Sums(t).findings())
    )
    yield from once(reported)


class _Stores:
    """What one program stores in HBM."""

    def __init__(self, track: Track, evidence: Evidence) -> None:
        self.track = track
        self.lineage = Lineage(track)
        # of Beta 1: what iterations of affine_range write twice is an error, which `loops` tells
        self.has_rule_for_affine_loops = evidence.kernel.spelling == "neuronxcc"
        self.position = np.asarray(track.program.position_column, np.int64)
        self.masked = {row for rank, row in evidence.masked if rank == track.rank}
        shared = (of for of in evidence.memories.values() if sum(s is not None for s in of) > 1)
        self.shared = {of[track.rank] for of in shared}

    def overwritten(self) -> Iterator[Finding]:
        """Stores that the same line writes over in a later iteration."""
        slots, reported = self.track.slots, Counter[int]()
        for line, before, after in self._pairs():
            reported[line] += 1
            if reported[line] <= _MOST_PAIRS and self._is_lost(before, after):
                reported[line] = _MOST_PAIRS
                yield self._finding(int(slots.row[before]), after)

    def _pairs(self) -> Iterator[tuple[int, int, int]]:
        """Slots by which one line stores to the same elements twice in a row, in different iterations."""
        slots, boxes, program = self.track.slots, self.track.boxes, self.track.program
        in_hbm = slots.kinds.lie_in(HBM)[slots.storage]
        written = np.flatnonzero(in_hbm & slots.is_written & boxes.is_exact[boxes.of_slot])
        written = written[np.argsort(boxes.of_slot[written], kind="stable")]
        line = np.asarray(program.line_column, np.int64)[slots.row[written]]
        position = self.position[slots.row[written]]
        again = np.flatnonzero(
            (np.diff(boxes.of_slot[written]) == 0) & (np.diff(line) == 0) & (np.diff(position) != 0)
        )
        yield from sorted(
            zip(line[again].tolist(), written[again].tolist(), written[again + 1].tolist(), strict=True)
        )

    def _is_lost(self, before: int, after: int) -> bool:
        """Whether what one slot stored is lost when another one stores there."""
        slots, lineage = self.track.slots, self.lineage
        rows = int(slots.row[before]), int(slots.row[after])
        if int(slots.storage[after]) in self.shared or any(self._is_partial(row) for row in rows):
            return False
        if (
            self.has_rule_for_affine_loops
            and carrier_of(self.track, *(self.position[row] for row in rows)) is not None
        ):
            return False
        was, now = (lineage.operands(row) for row in rows)
        if lineage.is_read(before, rows[1]) or [*map(lineage.value, was)] == [*map(lineage.value, now)]:
            return False
        return not lineage.depends(now, self._iteration(*rows))

    def _is_partial(self, row: int) -> bool:
        """Whether a row writes where a mask or indices say, or adds to what is there."""
        slots, own = self.track.slots, self.lineage.slots_in(row)
        layouts = [slots.layouts[slots.layout[slot]] for slot in own]
        is_update = any(slots.is_read[slot] and slots.is_written[slot] for slot in own)
        return row in self.masked or is_update or any(layout.indices for layout in layouts)

    def _iteration(self, before: int, after: int) -> np.ndarray:
        """Per row whether it lies in the iteration of the first row that the second one is not in."""
        here, there = (self.track.loops_of_position[int(self.position[row])] for row in (before, after))
        own = next(step for step in here if step not in there)
        inside = np.array([own in loops for loops in self.track.loops_of_position], np.bool_)
        return inside[self.position]

    def _finding(self, before: int, after: int) -> Finding:
        track, slots = self.track, self.track.slots
        row, storage = int(slots.row[after]), int(slots.storage[after])
        part = list(slots.layouts[slots.layout[after]].shape)
        earlier = f"{track.called(before)} of this line stored in an earlier iteration and nothing has read"
        message = f"{track.called(row)} writes over {part} of {track.describe(storage)}, which {earlier}"
        return track.finding(OVERWRITTEN, message, row, storage)


class _Sums:
    """The sums that one program makes in SBUF."""

    def __init__(self, track: Track) -> None:
        self.track = track
        self.lineage = Lineage(track)

    def findings(self) -> Iterator[Finding]:
        """Sums that go on as the next result."""
        updates = self._updates()
        for first in {self.track.boxes.of_slot[slot]: slot for slot in reversed(updates.values())}.values():
            sums = self._sums_from(first, updates)
            restarted = (pair for stretches in sums for pair in restarts(self.lineage, stretches))
            yield from (self._finding(*pair, int(self.track.slots.storage[first])) for pair in restarted)

    def _updates(self) -> dict[int, int]:
        """Rows that add to what a place in SBUF holds, and the slots by which they write it."""
        track, slots, boxes = self.track, self.track.slots, self.track.boxes
        in_sbuf = np.flatnonzero(slots.kinds.lie_in(SBUF)[slots.storage])
        count = np.int64(boxes.of_slot.max(initial=0)) + 1
        places = slots.row[in_sbuf] * count + boxes.of_slot[in_sbuf]
        is_written = slots.is_written[in_sbuf]
        in_place = np.isin(places, places[slots.is_read[in_sbuf]]) & is_written
        rows = ((int(slots.row[slot]), slot) for slot in in_sbuf[in_place].tolist())
        return {
            row: slot for row, slot in rows if updates_by(track, row, track.program.form_of(row)) == "add"
        }

    def _sums_from(self, first: int, updates: dict[int, int]) -> Iterator[list[Stretch]]:
        """The sums that a place holds one after the other: their products, and who reads them."""
        slots, boxes, lineage = self.track.slots, self.track.boxes, self.lineage
        stretches: list[Stretch] = []
        for slot in lineage.slots_of(first):
            row, is_written = int(slots.row[slot]), bool(slots.is_written[slot])
            meets, covers = lineage.meets(slot, first)
            is_update = boxes.of_slot[slot] == boxes.of_slot[first] and row in updates
            if is_update and is_written:
                stretches += [Stretch()] if not stretches or stretches[-1].reads else []
                stretches[-1].rows += self._products(row, int(slots.storage[slot]))
            elif is_written and covers and not is_update:
                yield stretches
                stretches = []
            elif meets and not is_update and slots.is_read[slot] and stretches:
                stretches[-1].reads.append(slot)
        yield stretches

    def _products(self, row: int, total: int) -> list[int]:
        """The matmuls whose sums an update adds to what a storage holds."""
        others = (s for s in self.lineage.operands(row) if self.track.slots.storage[s] != total)
        return [product for slot in others for product in self.lineage.products(slot)]

    def _finding(self, row: int, read: int, storage: int) -> Finding:
        track = self.track
        return GOES_ON.finding(
            "this product is the first of another result, and is added to the sum in "
            f"{track.describe(storage)} that was stored before",
            track.site(row), track.site(read), f"{track.called(read)} reads the sum that is stored",
        )  # fmt: skip
