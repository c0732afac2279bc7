"""Placement in an SBUF that does not hold everything: tiles are saved to HBM and read back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from ..errors import LimitError
from ..isa.declare import Instruction
from ..tiles.tile import SBUF, Layout
from ..trace.program import Program
from ..trace.source import assigned_name
from .edges import REUSE, SPILL
from .lifetimes import Parts
from .memory import Ring
from .plan import Finding, Placements, Transfer
from .slots import DMA, Slots, runs

_NEVER = 1 << 60
_LARGEST = 5


def place_text(program: Program, storage: int) -> str:
    """A tile by name, type, shape and the line that made it."""
    record = program.storages[storage]
    filename, line = program.lines[record.line]
    name = record.name or assigned_name(filename, line) or "(unnamed)"
    return (
        f"{name}: {record.dtype}{list(record.shape)}, {record.bytes_per_partition} bytes per partition, "
        f"{filename.rsplit('/', 1)[-1]}:{line}"
    )


def operand_facts(form: Instruction) -> list[str]:
    """One line per tile operand of a form."""
    operands = zip(form.operands, form.layouts, strict=True)
    return [f"{name} = {given}" for name, given in operands if isinstance(given, Layout)]


@dataclass
class Spilled:
    """What placement with spills yields: stays, edges, transfers, findings."""

    transfers: list[Transfer] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    peak: int = 0
    part: list[int] = field(default_factory=list)
    address: list[int] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    later: list[int] = field(default_factory=list)
    earlier: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)

    def placements(self, parts: Parts) -> Placements:
        """The stays as columns."""
        part = np.array(self.part, np.int64)
        return Placements(
            parts.storage[part], parts.offset[part], parts.size[part], np.array(self.address, np.int64),
            np.array(self.pieces, np.int64), np.array(self.first, np.int64), np.array(self.last, np.int64),
        )  # fmt: skip

    def edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(later node, earlier node, kind) of every wait that placement adds."""
        return (
            np.array(self.later, np.int64),
            np.array(self.earlier, np.int64),
            np.array(self.kinds, np.int64),
        )


@dataclass
class _Stay:
    """One stay of a part on chip.

    Args:
        number: of the stay; what the ring knows it by.
        before: nodes that must be done before the bytes may be touched.
        reload: node that brings the content back, -1 if none does.
        frontier: nodes after which the part is idle: per engine the last, of transfers all.
    """

    number: int
    before: list[int]
    reload: int = -1
    frontier: dict[int, int] = field(default_factory=dict)


def place_with_spills(program: Program, slots: Slots, parts: Parts, capacity: int) -> Spilled:
    """Place the parts of SBUF row by row; where a part finds no room, the one used farthest ahead makes it.

    Raises:
        LimitError: if the operands of one row do not fit together.
    """
    spiller = _Spiller(program, slots, parts, capacity)
    row = slots.row[parts.slot]
    for start, stop in runs(row):
        spiller.row(int(row[start]), range(start, stop))
    spiller.out.peak = spiller.ring.peak
    return spiller.out


class _Spiller:
    """The state of SBUF while the rows of a program pass."""

    def __init__(self, program: Program, slots: Slots, parts: Parts, capacity: int) -> None:
        self.program, self.parts, self.capacity = program, parts, capacity
        self.rows = len(program)
        self.ring = Ring(capacity)
        self.out = Spilled()
        self.part = parts.of_slot.tolist()
        self.size = parts.size.tolist()
        self.engine = slots.engine.tolist()
        self.is_read = slots.is_read[parts.slot].tolist()
        self.is_written = slots.is_written[parts.slot].tolist()
        self.is_root = parts.is_root.tolist()
        self.needs = _needs_content(slots, parts).tolist()
        self.next_slot = _next_slots(parts.of_slot).tolist()
        self.slot_row = slots.row[parts.slot].tolist()
        # per part
        self.stay: dict[int, _Stay] = {}
        self.next_use = [_NEVER] * len(self.size)
        self.next_access = [-1] * len(self.size)
        self.is_dirty = [False] * len(self.size)
        self.save_node = [-1] * len(self.size)
        # per stay
        self.frontiers: list[list[int]] = []
        self.farthest: list[tuple[int, int]] = []

    def row(self, row: int, accesses: range) -> None:
        """Bring the operands of a row on chip, account for its accesses, free what is not used again."""
        needed: dict[int, int] = {}
        for i in accesses:
            needed.setdefault(self.part[i], i)
        if sum(self.size[p] for p in needed) > self.capacity:
            raise self.too_large(row, needed, accesses.start)
        for part, access in needed.items():
            if part not in self.stay:
                self.bring(part, row, needed, self.needs[access])
        for i in accesses:
            self.access(row, i)
        for part in needed:
            if self.next_use[part] == _NEVER:
                self.leave(part, row)
            else:
                heappush(self.farthest, (-self.next_use[part], part))

    def access(self, row: int, i: int) -> None:
        """Account for one access: its waits, and what the part is afterwards."""
        part = self.part[i]
        stay = self.stay[part]
        if stay.reload >= 0:
            self.wait(row, stay.reload, SPILL)
        if self.is_root[i]:
            for node in stay.before:
                self.wait(row, node, REUSE)
        engine = self.engine[row]
        stay.frontier[engine if engine != DMA else DMA + 1 + row] = row
        if self.is_written[i]:
            self.is_dirty[part] = True
        following = self.next_slot[i]
        self.next_access[part] = following
        self.next_use[part] = self.slot_row[following] if following >= 0 else _NEVER

    def bring(self, part: int, row: int, needed: dict[int, int], needs_content: bool) -> None:
        """Give `part` a place, and its content if it was saved and is needed."""
        number = len(self.frontiers)
        self.frontiers.append([])
        taken = self.ring.take(number, self.size[part])
        while taken is None:
            self.evict(row, needed)
            taken = self.ring.take(number, self.size[part])
        pieces, former = taken
        before = [node for holder in former for node in self.frontiers[holder]]
        stay = self.stay[part] = _Stay(number, before)
        self.out.part.append(part)
        self.out.address.append(pieces[0][0])
        self.out.pieces.append(len(pieces))
        self.out.first.append(row)
        self.out.last.append(row)
        if needs_content and self.save_node[part] >= 0:
            node = stay.reload = self.transfer("spill_reload", part, row)
            self.wait(node, self.save_node[part], SPILL)
            for earlier in before:
                self.wait(node, earlier, REUSE)
            stay.frontier[DMA + 1 + node] = node

    def evict(self, row: int, needed: dict[int, int]) -> None:
        """Make room: the part used farthest ahead leaves, saved if it holds what HBM does not."""
        kept = []
        while True:
            use, part = heappop(self.farthest)
            is_current = part in self.stay and -use == self.next_use[part]
            if is_current and part not in needed:
                break
            if is_current:
                kept.append((use, part))
        for entry in kept:
            heappush(self.farthest, entry)
        if not self.out.findings:
            self.report(row)
        if self.is_dirty[part] and self.needs[self.next_access[part]]:
            node = self.transfer("spill_save", part, row)
            stay = self.stay[part]
            for earlier in stay.frontier.values():
                self.wait(node, earlier, SPILL)
            stay.frontier = {DMA + 1 + node: node}
            self.save_node[part] = node
            self.is_dirty[part] = False
        self.leave(part, row)

    def leave(self, part: int, row: int) -> None:
        """Free the bytes of `part`."""
        stay = self.stay.pop(part)
        self.frontiers[stay.number] = list(stay.frontier.values())
        self.out.last[stay.number] = row
        self.ring.give_back(stay.number)

    def transfer(self, kind: str, part: int, row: int) -> int:
        """Insert a transfer of a whole part before `row`; returns its node."""
        storage = int(self.parts.storage[part])
        partitions = self.program.storages[storage].partitions
        self.out.transfers.append(Transfer(kind, storage, row, partitions, self.size[part]))
        return self.rows + len(self.out.transfers) - 1

    def wait(self, later: int, earlier: int, kind: int) -> None:
        """Record that a node waits."""
        self.out.later.append(later)
        self.out.earlier.append(earlier)
        self.out.kinds.append(kind)

    def report(self, row: int) -> None:
        """The finding of the first spill: what is live there."""
        live = sorted(self.stay, key=lambda p: (-self.size[p], p))
        storages = dict.fromkeys(int(self.parts.storage[p]) for p in live)
        counts = Counter(place_text(self.program, s) for s in storages)
        several = [f"{count} x {text}" if count > 1 else text for text, count in counts.items()]
        listed = "; ".join(several[:_LARGEST])
        self.out.findings.append(
            Finding(
                "spill",
                f"sbuf does not hold all live tiles: {self.program.machine.name} has {self.capacity} bytes "
                f"per partition; the largest live here are {listed}",
                self.program.place_of(row),
                fix="make the tiles smaller, or use one up before the next is loaded",
            )
        )

    def too_large(self, row: int, needed: dict[int, int], start: int) -> Exception:
        """The error of a row whose own operands do not fit."""
        form = self.program.form_of(row)
        facts = operand_facts(form)
        names = [access.operand for access in self.program.accesses(row) if access.layout.memory == SBUF]
        held = {part: names[access - start] for part, access in needed.items()}
        facts += [
            f"{name} lies in {place_text(self.program, int(self.parts.storage[p]))}"
            for p, name in held.items()
        ]
        total = sum(self.size[p] for p in needed)
        error = LimitError(
            f"its operands lie in tiles of {total} bytes per partition; {self.program.machine.name} allows "
            f"{self.capacity} (sbuf bytes per partition)",
            hint="split the tile along a free axis into tiles of their own",
            source="architecture guides, SBUF",
        )
        return error.located(self.program.place_of(row), form.name, facts)


def _needs_content(slots: Slots, parts: Parts) -> np.ndarray:
    """Per access, whether its row needs what the part holds: reads some, or does not write all."""
    here = parts.slot
    rows, number = np.unique(slots.row[here] * (len(parts.size) + 1) + parts.of_slot, return_inverse=True)
    is_read, is_whole = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    np.logical_or.at(is_read, number, slots.is_read[here])
    np.logical_or.at(is_whole, number, parts.is_whole)
    return (is_read | ~is_whole)[number]


def _next_slots(of_slot: np.ndarray) -> np.ndarray:
    """Per access the next one of the same part, -1 if there is none."""
    order = np.argsort(of_slot, kind="stable")
    result = np.full(len(of_slot), -1, np.int64)
    same = of_slot[order][1:] == of_slot[order][:-1]
    result[order[:-1][same]] = order[1:][same]
    return result
