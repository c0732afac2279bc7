"""Automatic placement on chip: lifetimes, rotation, addresses, capacity."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..errors import LimitError
from ..tiles.tile import PSUM, SBUF
from ..trace.program import Program
from .boxes import Boxes, boxes_of, overlaps_of
from .edges import REUSE, Waits, waits_from, waits_of
from .lifetimes import Parts, frontier_of, parts_of
from .memory import Ring
from .plan import Placements, Plan
from .slots import Slots, slots_of
from .spills import Spilled, operand_facts, place_text, place_with_spills

_LARGEST = 5


@dataclass
class Stays:
    """Columns of `Placements` while they grow."""

    part: list[int] = field(default_factory=list)
    address: list[int] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)

    def placements(self, parts: Parts, unit: int) -> Placements:
        """The columns; addresses are counted in `unit` bytes."""
        part = np.array(self.part, np.int64)
        address, pieces = np.array(self.address, np.int64) * unit, np.array(self.pieces, np.int64)
        return Placements(
            parts.storage[part], parts.offset[part], parts.size[part], address, pieces,
            parts.first[part], parts.last[part],
        )  # fmt: skip


Edges = tuple[np.ndarray, np.ndarray, np.ndarray]


def plan(program: Program) -> Plan:
    """Place the tiles of a program, spill what does not fit, and say who waits for whom.

    Raises:
        LimitError: if one instruction's own operands do not fit into SBUF, or PSUM runs out.
    """
    slots = slots_of(program)
    boxes = boxes_of(program, slots)
    waits = waits_of(program, slots, boxes, overlaps_of(boxes))
    machine = program.machine
    bank = machine.limit("psum_bank_bytes")
    capacity = machine.limit("sbuf_bytes_per_partition")

    psum = _parts(program, slots, boxes, PSUM, machine.psum_bytes_per_partition)
    banks = Ring(machine.limit("psum_banks"))
    psum_stays, psum_edges = _place(program, slots, psum, banks, bank, waits)
    sbuf = _parts(program, slots, boxes, SBUF, capacity)
    spilled = Spilled()
    if _most_live(sbuf, len(program)) <= capacity:
        ring = Ring(capacity)
        sbuf_stays, sbuf_edges = _place(program, slots, sbuf, ring, 1, waits)
        sbuf_placements, peak = sbuf_stays.placements(sbuf, 1), ring.peak
    else:
        spilled = place_with_spills(program, slots, sbuf, capacity)
        sbuf_placements, sbuf_edges, peak = spilled.placements(sbuf), spilled.edges(), spilled.peak

    nodes = len(program) + len(spilled.transfers)
    later = np.repeat(np.arange(len(program)), np.diff(waits.start))
    columns = zip((later, waits.node, waits.kind), psum_edges, sbuf_edges, strict=True)
    return Plan(
        len(program),
        waits_from(nodes, *(np.concatenate(column) for column in columns)),
        tuple(spilled.transfers),
        sbuf_placements,
        psum_stays.placements(psum, bank),
        peak,
        banks.peak,
        tuple(spilled.findings),
    )


def _parts(program: Program, slots: Slots, boxes: Boxes, memory: str, capacity: int) -> Parts:
    """The parts of tiles in a memory; if they do not fit, fills move to the first use of what they fill."""
    parts = parts_of(program, slots, boxes, memory)
    if _most_live(parts, len(program)) > capacity:
        return parts_of(program, slots, boxes, memory, has_fills=False)
    return parts


def _most_live(parts: Parts, rows: int) -> int:
    """Most bytes per partition that are live at one row."""
    change = np.zeros(rows + 1, np.int64)
    np.add.at(change, parts.first, parts.size)
    np.add.at(change, parts.last + 1, -parts.size)
    return int(np.cumsum(change).max())


def _place(
    program: Program, slots: Slots, parts: Parts, ring: Ring, unit: int, waits: Waits
) -> tuple[Stays, Edges]:
    """Place parts by first access, each living to its last access; returns the stays and the reuse edges."""
    stays = Stays()
    takers: list[int] = []
    formers: list[int] = []
    begin, end = np.argsort(parts.first, kind="stable"), np.argsort(parts.last, kind="stable")
    first, last, sizes = parts.first.tolist(), parts.last.tolist(), (-(-parts.size // unit)).tolist()
    leaving = iter(end.tolist())
    next_to_leave = next(leaving, None)
    for part in begin.tolist():
        while next_to_leave is not None and last[next_to_leave] < first[part]:
            ring.give_back(next_to_leave)
            next_to_leave = next(leaving, None)
        taken = ring.take(part, sizes[part])
        if taken is None:
            raise _psum_error(program, parts, part, ring)
        pieces, former = taken
        stays.part.append(part)
        stays.address.append(pieces[0][0])
        stays.pieces.append(len(pieces))
        takers.extend([part] * len(former))
        formers.extend(former)
    return stays, _reuse_edges(slots, parts, np.array(takers, np.int64), np.array(formers, np.int64), waits)


def _reuse_edges(slots: Slots, parts: Parts, takers: np.ndarray, formers: np.ndarray, waits: Waits) -> Edges:
    """The first accesses of each taker wait for the last accesses of each former holder of its bytes."""
    start, frontier = frontier_of(slots, parts, waits)
    roots = np.flatnonzero(parts.is_root)
    roots = roots[np.argsort(parts.of_slot[roots], kind="stable")]
    root_start = np.searchsorted(parts.of_slot[roots], np.arange(len(parts.size) + 1))
    root_row = slots.row[parts.slot[roots]]
    one, pair = _expanded(root_start[takers], root_start[takers + 1])
    later, former = root_row[one], formers[pair]
    two, edge = _expanded(start[former], start[former + 1])
    later, earlier = later[edge], frontier[two]
    return later, earlier, np.full(len(later), REUSE)


def _expanded(start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All numbers of the ranges [start, stop), one after the other, and which range each is of."""
    counts = stop - start
    which = np.repeat(np.arange(len(counts)), counts)
    begins = np.cumsum(counts) - counts
    return np.arange(len(which)) - begins[which] + start[which], which


def _psum_error(program: Program, parts: Parts, part: int, ring: Ring) -> Exception:
    row = int(parts.first[part])
    bank = program.machine.limit("psum_bank_bytes")
    live = np.flatnonzero((parts.first < row) & (parts.last >= row))
    live = live[np.argsort(-parts.size[live], kind="stable")][:_LARGEST]
    form = program.form_of(row)
    facts = operand_facts(form)
    facts += [f"live: {place_text(program, int(parts.storage[p]))}" for p in live]
    need = int(parts.size[part]) // bank
    error = LimitError(
        f"psum is full: {need} bank{'s' * (need > 1)} needed, {ring.free} free; "
        f"{program.machine.name} has {ring.size} (psum banks)",
        hint="copy finished tiles to sbuf before the next one is computed",
        source="trn1 architecture guide, PSUM; a tile takes whole banks of 2 KiB per partition",
    )
    return error.located(program.place_of(row), form.name, facts)
