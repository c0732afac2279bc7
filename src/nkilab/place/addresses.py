"""Automatic placement on chip: lifetimes, rotation, addresses, capacity."""

from __future__ import annotations

import numpy as np

from ..errors import LimitError
from ..records import column
from ..tiles.tile import PSUM, SBUF
from ..trace.program import Program
from .boxes import Boxes, boxes_of, overlaps_of
from .buffers import buffer_edges
from .edges import REUSE, Waits, waits_from, waits_of
from .lifetimes import Parts, frontier_of, parts_of
from .memory import ALL_PLACED, place
from .plan import Finding, Placements, Plan, Transfer
from .slots import Slots, slots_of
from .spills import operand_facts, place_text, place_with_spills

_LARGEST = 5


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
    banks = machine.limit("psum_banks")
    psum_placements, psum_edges, peak_banks = _placed(program, slots, psum, banks, bank, waits)
    sbuf = _parts(program, slots, boxes, SBUF, capacity)
    transfers: tuple[Transfer, ...] = ()
    findings: tuple[Finding, ...] = tuple(program.findings)
    if _most_live(sbuf, len(program)) <= capacity:
        sbuf_placements, sbuf_edges, peak = _placed(program, slots, sbuf, capacity, 1, waits)
    else:
        spilled = place_with_spills(program, slots, sbuf, capacity)
        sbuf_placements, sbuf_edges, peak = spilled.placements, spilled.edges, spilled.peak
        transfers, findings = spilled.transfers, (*findings, *spilled.findings)

    nodes = len(program) + len(transfers)
    later = np.repeat(np.arange(len(program)), np.diff(waits.start))
    turns = buffer_edges(program, slots, machine.limit("tile_buffers"))
    columns = zip((later, waits.node, waits.kind), psum_edges, sbuf_edges, turns, strict=True)
    return Plan(
        len(program),
        waits_from(nodes, *(np.concatenate(column) for column in columns)),
        transfers,
        sbuf_placements,
        psum_placements,
        peak,
        peak_banks,
        findings,
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


def _placed(
    program: Program, slots: Slots, parts: Parts, size: int, unit: int, waits: Waits
) -> tuple[Placements, Edges, int]:
    """Place parts by first access, each living to its last access.

    Args:
        size: of the memory, in units.
        unit: bytes per partition.

    Returns:
        Where the parts lie, the reuse edges, and the most units that were taken at once.
    """
    memory, stopped = place(size, -(-parts.size // unit), parts.first, parts.last, len(program))
    if stopped != ALL_PLACED:
        raise _psum_error(program, parts, stopped, size, memory.extent.free)
    part = np.array(memory.begin, np.int64)
    placements = Placements(
        parts.storage[part], parts.offset[part], parts.size[part],
        column(memory.tiles, "address")[part].astype(np.int64) * unit,
        column(memory.tiles, "pieces")[part].astype(np.int64), parts.first[part], parts.last[part],
    )  # fmt: skip
    count = memory.extent.reuses
    taker, former = (np.array(reuses[:count], np.int64) for reuses in (memory.taker, memory.former))
    return placements, _reuse_edges(slots, parts, taker, former, waits), int(memory.extent.peak)


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


def _psum_error(program: Program, parts: Parts, part: int, banks: int, free: int) -> Exception:
    row = int(parts.first[part])
    bank = program.machine.limit("psum_bank_bytes")
    live = np.flatnonzero((parts.first < row) & (parts.last >= row))
    live = live[np.argsort(-parts.size[live], kind="stable")][:_LARGEST]
    form = program.form_of(row)
    facts = operand_facts(form)
    facts += [f"live: {place_text(program, int(parts.storage[p]))}" for p in live]
    need = int(parts.size[part]) // bank
    error = LimitError(
        f"psum is full: {need} bank{'s' * (need > 1)} needed, {free} free; "
        f"{program.machine.name} has {banks} (psum banks)",
        hint="copy finished tiles to sbuf before the next one is computed",
        source="trn1 architecture guide, PSUM; a tile takes whole banks of 2 KiB per partition",
    )
    return error.located(program.place_of(row), form.name, facts)
