"""Placement in an SBUF that does not hold everything: tiles are saved to HBM and read back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ..errors import LimitError
from ..isa.declare import Instruction
from ..records import Entry, column, numbers, table
from ..tiles.tile import SBUF, Layout
from ..trace.program import Program
from ..trace.source import assigned_name
from .lifetimes import Parts
from .memory import memory_sized
from .plan import Finding, Placements, Transfer
from .redundant import loads_of
from .residency import (
    ALL_PASSED,
    JOB,
    LOAD_AGAIN,
    NEVER,
    NO_ROOM,
    NOBODY,
    RELOAD,
    SAVE,
    Access,
    Inserted,
    Link,
    Part,
    Progress,
    Residency,
    State,
)
from .slots import DMA, Slots

_LARGEST = 5
_KINDS = {SAVE: "spill_save", RELOAD: "spill_reload", LOAD_AGAIN: "load_again"}


def place_text(program: Program, storage: int) -> str:
    """A tile by name, type, shape and the line that made it."""
    record = program.storages[storage]
    filename, line = program.lines[record.line]
    name = record.name or assigned_name(filename, line) or "(unnamed)"
    return (
        f"{name}: {record.dtype}{list(record.shape)}, {record.bytes_per_partition} bytes per partition, "
        f"{filename.rsplit('/', 1)[-1]}:{line}"
    )


def largest_of(program: Program, storages: Sequence[int]) -> list[str]:
    """The first tiles of a list, each with its size and line; those that read the same are counted."""
    counts = Counter(place_text(program, storage) for storage in dict.fromkeys(storages))
    return [f"{count} x {text}" if count > 1 else text for text, count in counts.items()][:_LARGEST]


def operand_facts(form: Instruction) -> list[str]:
    """One line per tile operand of a form."""
    operands = zip(form.operands, form.layouts, strict=True)
    return [f"{name} = {operand}" for name, operand in operands if isinstance(operand, Layout)]


Edges = tuple[np.ndarray, np.ndarray, np.ndarray]


class Spilled(Struct, frozen=True):
    """What placement with spills yields; edges are (later node, earlier node, kind)."""

    placements: Placements
    edges: Edges
    transfers: tuple[Transfer, ...]
    findings: tuple[Finding, ...]
    peak: int


def place_with_spills(program: Program, slots: Slots, parts: Parts, capacity: int) -> Spilled:
    """Place the parts of SBUF row by row; where a part finds no room, the one used farthest ahead makes it.

    Raises:
        LimitError: if the operands of one row do not fit together.
    """
    run, as_array = JOB.chosen(len(program))
    columns = _accesses(program, slots, parts)
    room, edges, stopped = 4 * len(parts.size), 4 * len(parts.slot), NO_ROOM
    while stopped == NO_ROOM:
        room, edges = 2 * room, 2 * edges
        rest = int(program.machine["spill_rest_rows"])
        state = _state(len(program), rest, columns, parts, capacity, (room, edges), as_array=as_array)
        stopped = run(state)
    if stopped != ALL_PASSED:
        raise _too_large(program, slots, parts, stopped, capacity)
    return _spilled(program, parts, state, capacity)


def _accesses(program: Program, slots: Slots, parts: Parts) -> dict[str, np.ndarray]:
    """The accesses of parts, as columns of `Access`."""
    row = slots.row[parts.slot]
    return {
        "row": row, "engine": slots.engine[row], "part": parts.of_slot, "next": _next_slots(parts.of_slot),
        "is_written": slots.is_written[parts.slot], "is_root": parts.is_root,
        "needs_content": _needs_content(slots, parts),
        "is_loaded": parts.is_whole & loads_of(program, slots)[row],
    }  # fmt: skip


def _state(
    rows: int, rest: int, columns: dict[str, np.ndarray], parts: Parts, capacity: int,
    rooms: tuple[int, int], *, as_array: bool,
) -> State:  # fmt: skip
    """Nothing on chip yet; `rooms` is how many stays and transfers there may be, and how many edges."""
    accesses, (room, most_edges) = len(columns["row"]), rooms
    sizes = np.zeros(room, np.int64)
    edges = [numbers(np.zeros(most_edges, np.int64), as_array=as_array) for _ in range(3)]
    return State(
        table(Progress, {"rows": rows, "rest": rest}, 1, as_array=as_array)[0],
        table(Access, columns, accesses, as_array=as_array),
        table(Part, {"size": parts.size}, len(parts.size), as_array=as_array),
        table(Residency, {}, room, as_array=as_array),
        table(Link, {}, room, as_array=as_array),
        table(Inserted, {}, room, as_array=as_array),
        memory_sized(capacity, sizes, sizes, sizes, as_array=as_array),
        numbers(np.full(room * DMA, NOBODY), as_array=as_array),
        table(Entry, {}, accesses + 1, as_array=as_array),
        numbers(np.zeros(accesses, np.int64), as_array=as_array),
        *edges,
    )


def _spilled(program: Program, parts: Parts, state: State, capacity: int) -> Spilled:
    """What a finished pass yields."""
    progress = state.progress
    rows = slice(0, progress.residencies)
    part, first, last = (
        column(state.residencies, name)[rows].astype(np.int64) for name in ("part", "first", "last")
    )
    address, pieces = (column(state.memory.tiles, name)[rows] for name in ("address", "pieces"))
    placements = Placements(
        parts.storage[part], parts.offset[part], parts.size[part], address.astype(np.int64),
        pieces.astype(np.int64), first, last,
    )  # fmt: skip
    later, earlier, kind = (np.array(edges[: progress.edges], np.int64) for edges in state[-3:])
    findings = () if progress.first_spill == NEVER else (_finding(program, parts, state, capacity),)
    return Spilled(
        placements, (later, earlier, kind), _transfers(program, parts, state), findings,
        int(state.memory.extent.peak),
    )  # fmt: skip


def _transfers(program: Program, parts: Parts, state: State) -> tuple[Transfer, ...]:
    """The inserted transfers: one descriptor per partition of a whole part."""
    names = ("kind", "part", "row")
    kinds, part, rows = (column(state.inserted, name)[: state.progress.inserted] for name in names)
    storages, sizes = parts.storage[part].tolist(), parts.size[part].tolist()
    return tuple(
        Transfer(_KINDS[kind], storage, row, program.storages[storage].partitions, size)
        for kind, storage, row, size in zip(kinds.tolist(), storages, rows.tolist(), sizes, strict=True)
    )


def _finding(program: Program, parts: Parts, state: State, capacity: int) -> Finding:
    """The finding of the first spill: what is live there."""
    live = np.flatnonzero(column(state.parts, "was_live")).tolist()
    live.sort(key=lambda part: -parts.size[part])
    storages = parts.storage[live].tolist()
    return crowded(program, capacity, storages, int(state.progress.first_spill))


def crowded(program: Program, capacity: int, live: Sequence[int], row: int, consequence: str = "") -> Finding:
    """The finding that SBUF does not hold some tiles, largest first, that live at a row."""
    listed = "; ".join(largest_of(program, live))
    return Finding(
        "spill",
        f"sbuf does not hold all live tiles: {program.machine.name} has {capacity} bytes "
        f"per partition{program.machine.sbuf_note(capacity)}{consequence}; the largest live here are "
        f"{listed}",
        program.place_of(row),
        fix="make the tiles smaller, or use one up before the next is loaded",
    )


def _too_large(program: Program, slots: Slots, parts: Parts, access: int, capacity: int) -> Exception:
    """The error of a row whose own operands do not fit; `access` is its first."""
    row = int(slots.row[parts.slot[access]])
    form = program.form_of(row)
    facts = operand_facts(form)
    names = [a.operand for a in program.accesses(row) if a.layout.memory == SBUF]
    largest_of_tile: dict[int, str] = {}
    for name, part in zip(names, parts.of_slot[access:].tolist(), strict=False):
        largest_of_tile.setdefault(part, name)
    facts += [
        f"{name} lies in {place_text(program, int(parts.storage[p]))}" for p, name in largest_of_tile.items()
    ]
    total = sum(int(parts.size[p]) for p in largest_of_tile)
    error = LimitError(
        f"its operands lie in tiles of {total} bytes per partition; {program.machine.name} allows "
        f"{capacity} bytes of sbuf{program.machine.sbuf_note(capacity)}",
        hint="split the tile along a free axis into tiles of their own",
        source="architecture guides, SBUF",
    )
    return error.located(program.place_of(row), form.name, facts)


def _needs_content(slots: Slots, parts: Parts) -> np.ndarray:
    """Per access, whether its row needs what the part holds: reads some, or does not write all."""
    here = parts.slot
    key = slots.row[here] * np.int64(len(parts.size) + 1) + parts.of_slot
    rows, number = np.unique(key, return_inverse=True)
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
