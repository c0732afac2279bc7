"""Placement on chip: lifetimes, rotation, addresses, capacity."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..errors import LimitError
from ..records import column, give_back
from ..tiles.tile import PSUM, SBUF
from ..trace.program import Program
from .boxes import Boxes
from .buffers import buffer_edges, order_edges, phase_edges
from .direct_allocation import Edges, direct_edges, is_fixed, reserved
from .edges import Waits, Within, with_edges, within_tensors
from .lifetimes import Parts, frontier_of, parts_of, psum_unit
from .memory import ALL_PLACED, place
from .plan import Finding, Placements, Plan, Transfer
from .slots import Slots, pieces
from .spills import largest_of, operand_facts, place_with_spills
from .walk import REUSE


def plan(program: Program, known: Within | None = None) -> Plan:
    """Place the tiles of a program, spill what does not fit, and say who waits for whom.

    Tiles at addresses lie there; the others lie where none of these ever does.

    Args:
        program: to be placed.
        known: `within_tensors` of it, where that was worked out before.

    Raises:
        LimitError: if one instruction's own operands do not fit into SBUF, or one tile into PSUM.
    """
    slots, boxes, within = known or within_tensors(program)
    waits = with_edges(within, direct_edges(program, slots))
    machine = program.machine
    bank, unit = machine.limit("psum_bank_bytes"), psum_unit(program)
    psum = _Room.of(program, PSUM, machine.limit("psum_banks") * bank // unit, unit)
    sbuf = _Room.of(program, SBUF, machine.limit("sbuf_bytes_per_partition"), 1)
    task = _Task(program, slots, boxes, waits)
    in_psum, in_sbuf = task.placed(psum), task.placed(sbuf)

    nodes = len(program) + len(in_sbuf.transfers)
    added = [edges(program, slots) for edges in (buffer_edges, phase_edges, order_edges)]
    # of a long program the largest columns by far, which nothing reads from here on
    del known, slots, boxes, within, task
    edges = with_edges(waits, in_psum.edges, in_sbuf.edges, *added, count=nodes)
    del waits, added
    give_back()
    return Plan(
        len(program),
        edges,
        in_sbuf.transfers,
        in_sbuf.placements,
        in_psum.placements,
        in_sbuf.peak,
        -(-in_psum.peak * unit // bank),
        (*program.findings, *in_psum.findings, *in_sbuf.findings),
    )


class _Room(Struct, frozen=True):
    """A memory, and what is left of it beside tiles at addresses."""

    memory: str  # "sbuf" or "psum"
    unit: int  # bytes per partition
    size: int  # of the memory, in units
    reserved: np.ndarray  # units that tiles at addresses lie on, ascending

    @classmethod
    def of(cls, program: Program, memory: str, size: int, unit: int) -> _Room:
        """The room of a program in a memory of `size` units."""
        return cls(memory, unit, size, reserved(program, memory, unit))

    @property
    def taken(self) -> int:
        """How many units tiles at addresses lie on."""
        return len(self.reserved)

    @property
    def free(self) -> int:
        """How many units are left."""
        return self.size - self.taken

    def whole(self) -> _Room:
        """As if no tile had an address."""
        return replace(self, reserved=self.reserved[:0])

    def in_memory(self, placements: Placements) -> Placements:
        """Placements in what is left as such in the memory."""
        if not self.taken or not len(placements.address):
            return placements
        first, size = placements.address // self.unit, -(-placements.size // self.unit)
        units = np.setdiff1d(np.arange(self.size), self.reserved, assume_unique=True)
        address = units[first]
        # one that runs over a tile at an address lies on both sides of it
        split = units[np.minimum(first + size - 1, len(units) - 1)] - address >= size
        return replace(placements, address=address * self.unit, pieces=placements.pieces + split)


class _Placed(Struct, frozen=True):
    """What placing in one memory yields: placements, edges, transfers, findings, most units at once."""

    placements: Placements
    edges: Edges
    peak: int
    transfers: tuple[Transfer, ...] = ()
    findings: tuple[Finding, ...] = ()


class _Task(Struct, frozen=True):
    """A program to be placed, and what is known of it."""

    program: Program
    slots: Slots
    boxes: Boxes
    waits: Waits

    def placed(self, room: _Room) -> _Placed:
        """The tiles of a memory in their places."""
        fixed = is_fixed(self.program)
        parts = self._parts(room, ~fixed)
        if not room.taken:
            return self._crammed(room, parts)
        free = self._around_fixed(room, parts)
        parts_in_memory = parts_of(self.program, self.slots, self.boxes, room.memory, fixed)
        return replace(
            free, placements=_joined(free.placements, _at_addresses(self.program, parts_in_memory)),
            peak=min(free.peak + room.taken, room.size),
        )  # fmt: skip

    def _around_fixed(self, room: _Room, parts: Parts) -> _Placed:
        """Tiles without addresses beside the others; or, if there is too little room, as if alone."""
        if not len(parts.size):
            return self._free(room.whole(), parts)
        try:
            if room.free:
                return self._free(room, parts)
        except LimitError:
            pass
        free = self._crammed(room.whole(), parts)
        return replace(free, findings=(*free.findings, self._crowded(room, parts)))

    def _parts(self, room: _Room, tiles: np.ndarray) -> Parts:
        """The parts of tiles; if they do not fit, fills move to the first use of what they fill."""
        parts = parts_of(self.program, self.slots, self.boxes, room.memory, tiles)
        if _most_live(parts, len(self.program)) > room.free * room.unit:
            return parts_of(self.program, self.slots, self.boxes, room.memory, tiles, has_fills=False)
        return parts

    def _free(self, room: _Room, parts: Parts) -> _Placed:
        """Tiles without addresses; what SBUF does not hold is spilled."""
        capacity = room.free * room.unit
        if room.memory == SBUF and _most_live(parts, len(self.program)) > capacity:
            spilled = place_with_spills(self.program, self.slots, parts, capacity)
            return _Placed(
                room.in_memory(spilled.placements), spilled.edges, spilled.peak, spilled.transfers,
                spilled.findings,
            )  # fmt: skip
        return self._fitting(room, parts)

    def _crammed(self, room: _Room, parts: Parts) -> _Placed:
        """Tiles without addresses; where PSUM runs out of banks, as if it had enough, and a finding says so.

        Raises:
            LimitError: if one tile alone, or the operands of one row together, are too large.
        """
        try:
            return self._free(room, parts)
        except LimitError as error:
            if room.memory == SBUF or self._most_of_a_row(parts) > room.size * room.unit:
                raise
            enough = replace(room, size=-(-_most_live(parts, len(self.program)) // room.unit))
            return replace(self._fitting(enough, parts), findings=(_full(error),))

    def _most_of_a_row(self, parts: Parts) -> int:
        """Most bytes per partition of the parts that one row touches."""
        pairs = np.unique(np.stack([self.slots.row[parts.slot], parts.of_slot]), axis=1)
        return int(np.bincount(pairs[0], parts.size[pairs[1]]).max())

    def _fitting(self, room: _Room, parts: Parts) -> _Placed:
        """Parts by first access, each living to its last access."""
        sizes = -(-parts.size // room.unit)
        memory, stopped = place(room.free, sizes, parts.first, parts.last, len(self.program))
        if stopped != ALL_PLACED:
            raise _psum_error(self.program, parts, stopped, room, memory.extent.free)
        part = np.array(memory.begin, np.int32)
        address = column(memory.tiles, "address").astype(np.int32, copy=False)[part] * room.unit
        placements = _placements(parts, part, address, column(memory.tiles, "pieces").astype(np.int32)[part])
        count = memory.extent.reuses
        taker, former = (np.array(reuses[:count], np.int32) for reuses in (memory.taker, memory.former))
        peak = int(memory.extent.peak)
        del memory
        edges = _reuse_edges(self.slots, parts, taker, former, self.waits)
        return _Placed(room.in_memory(placements), edges, peak)

    def _crowded(self, room: _Room, parts: Parts) -> Finding:
        """The finding that tiles at addresses leave too little room for the others."""
        unit = "bytes per partition" if room.unit == 1 else "banks"
        return Finding(
            "mixed-addresses",
            f"tiles at addresses take {room.taken} of {room.size} {unit} of {room.memory}; the others do not "
            "fit beside them, so they are timed as if they lay apart",
            self.program.place_of(int(parts.first.min(initial=0))),
            fix="give every tile an address, or none",
        )


def _most_live(parts: Parts, rows: int) -> int:
    """Most bytes per partition that are live at one row."""
    change = np.bincount(parts.first, parts.size, rows + 1)
    change -= np.bincount(parts.last + 1, parts.size, rows + 1)
    return int(np.cumsum(change, out=change).max())


def _at_addresses(program: Program, parts: Parts) -> Placements:
    """Where the parts of tiles at addresses lie."""
    part = np.argsort(parts.first, kind="stable")
    byte = [program.addresses[storage].byte for storage in parts.storage[part].tolist()]
    address = np.array(byte, np.int64) + parts.offset[part]
    return _placements(parts, part, address, np.ones(len(part), np.int64))


def _placements(parts: Parts, part: np.ndarray, address: np.ndarray, pieces: np.ndarray) -> Placements:
    return Placements(
        parts.storage[part], parts.offset[part], parts.size[part], address, pieces, parts.first[part],
        parts.last[part],
    )  # fmt: skip


def _joined(one: Placements, other: Placements) -> Placements:
    """Both, in order of their beginning."""
    columns = {
        name: np.concatenate([getattr(one, name), getattr(other, name)])
        for name in Placements.__struct_fields__
    }
    order = np.argsort(columns["first_row"], kind="stable")
    return Placements(**{name: column[order] for name, column in columns.items()})


def _reuse_edges(slots: Slots, parts: Parts, takers: np.ndarray, formers: np.ndarray, waits: Waits) -> Edges:
    """The first accesses of each taker wait for the last accesses of each former holder of its bytes."""
    if not len(takers):
        return slots.row[:0], slots.row[:0], np.zeros(0, np.int8)
    start, frontier = frontier_of(slots, parts, waits)
    roots = np.flatnonzero(parts.is_root)
    roots = roots[np.argsort(parts.of_slot[roots], kind="stable")]
    root_start = np.searchsorted(parts.of_slot[roots], np.arange(len(parts.size) + 1))
    root_row = slots.row[parts.slot[roots]]
    later, earlier = [root_row[:0]], [frontier[:0]]
    for piece in pieces(len(takers)):
        own, before = takers[piece], formers[piece]
        one, pair = _expanded(root_start[own], root_start[own + 1])
        former = before[pair]
        two, edge = _expanded(start[former], start[former + 1])
        later.append(root_row[one][edge])
        earlier.append(frontier[two])
    rows = np.concatenate(later)
    return rows, np.concatenate(earlier), np.full(len(rows), REUSE, np.int8)


def _expanded(start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All numbers of the ranges [start, stop), one after the other, and which range each is of."""
    counts = stop - start
    which = np.repeat(np.arange(len(counts)), counts)
    begins = np.cumsum(counts) - counts
    return np.arange(len(which)) - begins[which] + start[which], which


def _full(error: LimitError) -> Finding:
    """The finding that PSUM runs out of banks, with what is live there."""
    listed = "; ".join(fact.removeprefix("live: ") for fact in error.facts if fact.startswith("live: "))
    return Finding(
        "psum-full",
        f"{error.called}: {error.problem}; it is timed as if there were enough; the largest live here are "
        f"{listed}",
        error.where, fix=error.hint,
    )  # fmt: skip


def _psum_error(program: Program, parts: Parts, part: int, room: _Room, free_units: int) -> Exception:
    row = int(parts.first[part])
    bank = program.machine.limit("psum_bank_bytes")
    live = np.flatnonzero((parts.first < row) & (parts.last >= row))
    live = live[np.argsort(-parts.size[live], kind="stable")]
    form = program.form_of(row)
    facts = operand_facts(form)
    facts += [f"live: {text}" for text in largest_of(program, parts.storage[live].tolist())]
    need, free = -(-int(parts.size[part]) // bank), free_units * room.unit // bank
    error = LimitError(
        f"psum is full: {need} bank{'s' * (need > 1)} needed, {free} free; "
        f"{program.machine.name} has {room.free * room.unit // bank} (psum banks)",
        hint="copy finished tiles to sbuf before the next one is computed",
        source="trn1 architecture guide, PSUM; a tile takes whole banks of 2 KiB per partition",
    )
    return error.located(program.place_of(row), form.name, facts)
