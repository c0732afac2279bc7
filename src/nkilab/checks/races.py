"""Races: two accesses of one memory, one of them a write, that nothing orders.

Which pairs the vendor's framework orders says the table in `place/edges.py`, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import numpy as np

from ..isa.collectives import Collective
from ..place.walk import KINDS, REUSE, SPILL
from ..trace.run_notes import BlockUse
from .conflicts import BETA_1_DIRECT, CORES, DIRECT, Pair, Touch
from .evidence import Evidence, Track
from .finding import Finding, Severity, Site, once
from .graph import Graph
from .race_rules import LIFETIME, OPEN_RACE, RANKS, RANKS_RACE, RECEIVED, RULES_OF_KIND, UNORDERED
from .registers import unscheduled


def find(graph: Graph) -> Iterator[Finding]:
    """Races of a launch."""
    evidence = graph.evidence
    lost = {(pair.earlier, pair.later) for pair in graph.conflicts.destroyed}
    tiles = {_tiles(graph, pair) for pair in graph.conflicts.destroyed}
    yield from once(_lifetime(graph, pair) for pair in graph.conflicts.destroyed)
    yield from once(finding for track in evidence.tracks for finding in _overtaken_blocks(track))
    # a pair of tiles of which one destroys the other is told of once
    left = (p for p in graph.open if (p.earlier, p.later) not in lost and _tiles(graph, p) not in tiles)
    yield from once(_race(graph, p) for p in _races(graph, left))
    yield from once(_open_schedule(graph))
    if evidence.leaves_open(RANKS):
        yield from once(finding for track in evidence.tracks for finding in _in_place(track))
    yield from once(_placed(evidence))


def may_fail(evidence: Evidence) -> bool:
    """Whether an error may be among the races: some memory is touched in more than one way.

    Accesses through one tensor at addresses that are known are ordered.
    """
    marks = [track.marks for track in evidence.tracks]
    if (
        len(marks) > 1
        or any(mark.patterns for mark in marks)
        or any(track.program.addresses for track in evidence.tracks)
    ):
        return True
    return any(form.is_indirect for track in evidence.tracks for form in track.program.forms)


def _races(graph: Graph, pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Of the pairs of two lines the first that nothing orders."""
    line = np.concatenate([np.asarray(track.program.line_column, np.int64) for track in graph.tracks])
    seen: set[tuple[str, int, int]] = set()
    is_before = graph.order.is_before
    for pair in pairs:
        key = (pair.kind, int(line[pair.later]), int(line[pair.earlier]))
        if key in seen or is_before(pair.earlier, pair.later) or is_before(pair.later, pair.earlier):
            continue
        if pair.kind == CORES and _is_repetition(graph, pair):
            continue
        seen.add(key)
        yield pair


def _tiles(graph: Graph, pair: Pair) -> frozenset[tuple[int, int]]:
    """The tiles of a pair; none where only rows are known."""
    sides = [t for t in (pair.first, pair.second) if t.slot >= 0]
    return frozenset((t.track, int(graph.tracks[t.track].slots.storage[t.slot])) for t in sides)


def _side(graph: Graph, touch: Touch, node: int) -> tuple[Track, int, str]:
    """The program, row and tile of one side of a pair."""
    number = graph.track_of(node)
    track, row = graph.tracks[number], int(node - graph.base[number])
    if touch.slot < 0:
        return track, row, "what the other one touches"
    return track, row, track.describe(int(track.slots.storage[touch.slot]))


def _verb(graph: Graph, touch: Touch) -> str:
    if touch.slot < 0:
        return "touches"
    return "writes" if graph.tracks[touch.track].slots.is_written[touch.slot] else "reads"


def _lifetime(graph: Graph, pair: Pair) -> Finding:
    track, row, tile = _side(graph, pair.second, pair.later)
    _, writer, other = _side(graph, pair.first, pair.earlier)
    return LIFETIME.finding(
        f"{track.called(row)} reads {tile} after {track.called(writer)} wrote {other} over it",
        track.site(row), track.site(writer), f"{track.called(writer)} writes {other}, on the same bytes",
    )  # fmt: skip


def _is_repetition(graph: Graph, pair: Pair) -> bool:
    """Whether both cores store the same values to the same elements by one line, so that either may be first.

    A core may read what the other one stores again, if it stored these elements itself before.
    """
    first, second = (_store_of(graph, touch, pair) for touch in (pair.first, pair.second))
    if first is None or second is None:
        return False
    (one, row), (other, other_row) = first, second
    if one.site(row) != other.site(other_row):
        return False
    is_same = {(one.rank, row), (other.rank, other_row)} & set(graph.evidence.repeated)
    # in published kernels both cores of a rank call a collective on the same shared memory
    here, there = _collective_of(graph, one, row), _collective_of(graph, other, other_row)
    return bool(is_same) or (here is not None and here == there)


def _collective_of(graph: Graph, track: Track, row: int) -> tuple[Any, ...] | None:
    """What a collective does to which memory that all cores see; None if it is none, or some is its own."""
    program, form = track.program, track.program.form_of(row)
    if not isinstance(form, Collective):
        return None
    number = graph.tracks.index(track)
    keys = {number_of[number]: key for key, number_of in graph.evidence.memories.items()}
    own = slice(*program.operand_start[row : row + 2].tolist())
    memories = [keys.get(storage) for storage in program.storage_column[own].tolist()]
    if None in memories:
        return None
    offsets = program.offset_column[own].tolist()
    return type(form), form.layouts, form.attribute_values, memories, offsets


def _store_of(graph: Graph, touch: Touch, pair: Pair) -> tuple[Track, int] | None:
    """The row by which the core of one side stored what the other side stores; None if it did not."""
    track = graph.tracks[touch.track]
    slots = track.slots
    if slots.is_written[touch.slot]:
        return track, int(slots.row[touch.slot])
    stored = pair.second if touch is pair.first else pair.first
    line = graph.tracks[stored.track].site(int(graph.tracks[stored.track].slots.row[stored.slot]))
    mine = (slots.storage == slots.storage[touch.slot]) & slots.is_written
    rows = slots.row[mine & (slots.row < slots.row[touch.slot])]
    return next(((track, row) for row in rows[::-1].tolist() if track.site(row) == line), None)


def _place(graph: Graph, touch: Touch) -> str:
    """Where an access lies in its tensor, if only the run knows."""
    slots = graph.tracks[touch.track].slots
    layout = slots.layouts[slots.layout[touch.slot]] if touch.slot >= 0 else None
    if layout is None or not layout.indices:
        return ""
    return " at rows that indices choose" if layout.is_gathered else " at an offset that only the run knows"


def _race(graph: Graph, pair: Pair) -> Finding:
    rule = RULES_OF_KIND.get(pair.kind, UNORDERED)
    track, row, tile = _side(graph, pair.second, pair.later)
    other_track, other_row, other = _side(graph, pair.first, pair.earlier)
    row_of_table = graph.evidence.table.get(pair.kind)
    severity: Severity = (
        "error" if row_of_table is None or row_of_table.certainty == "documented" else "warning"
    )
    at, other_at = _place(graph, pair.second), _place(graph, pair.first)
    end = "nothing orders the two"
    if at or other_at:
        severity, end = "warning", f"{end}; whether they share elements, only the run knows"
    cores = f" on core {track.rank}" if pair.kind == CORES else ""
    others = f" on core {other_track.rank}" if pair.kind == CORES else ""
    verb, other_verb = _verb(graph, pair.second), _verb(graph, pair.first)
    place = "the same tensor" if at or other_at else "the same elements"
    place = other if pair.kind in (DIRECT, BETA_1_DIRECT) else place
    notes = () if row_of_table is None else (f"kind of pair: {pair.kind}; source: {row_of_table.source}",)
    return rule.finding(
        f"{track.called(row)}{cores} {verb} {tile}{at}; {other_track.called(other_row)}{others} "
        f"{other_verb} {place}{other_at}, and {end}", track.site(row), other_track.site(other_row),
        f"{other_track.called(other_row)}{others} {other_verb} here", notes=notes, severity=severity,
    )  # fmt: skip


def _open_schedule(graph: Graph) -> Iterator[Finding]:
    """Instructions that go on with registers which another one left, where only their engine orders them."""
    for pair in unscheduled(graph):
        track, row, _ = _side(graph, pair.second, pair.later)
        _, before, _ = _side(graph, pair.first, pair.earlier)
        yield OPEN_RACE.finding(
            f"{track.called(row)} goes on with the {_REGISTERS[track.program.form_of(row).registers]} as "
            f"{track.called(before)} left them, and nothing but their engine orders the two",
            track.site(row), track.site(before), f"{track.called(before)} leaves them here",
        )  # fmt: skip


_REGISTERS = {
    "scalar": "accumulator registers of ScalarE",
    "vector": "accumulator registers of VectorE",
    "random": "random generators",
}


def _in_place(track: Track) -> Iterator[Finding]:
    """Collectives of several ranks that receive where other ranks read."""
    shared = np.array([isinstance(form, Collective) for form in track.program.forms], np.bool_)
    rows = np.flatnonzero(shared[track.program.form_column]) if shared.any() else np.zeros(0, np.int64)
    received: dict[int, int] = {}
    for row in rows.tolist():
        written = next(access.storage for access in track.program.accesses(row) if access.is_written)
        first = received.setdefault(written, row)
        if first != row:
            sentence = f"{track.called(row)} receives into {track.describe(written)}, as another one does"
            yield RECEIVED.finding(sentence, track.site(row), track.site(first), "the first one")
        for storage in _read_where_written(track, row):
            yield RANKS_RACE.finding(
                f"{track.called(row)} receives into {track.describe(storage)} where other ranks read "
                "what it brings, and nothing orders the two",
                track.site(row), track.birthplace(storage), "src and dst lie here",
            )  # fmt: skip


def _read_where_written(track: Track, row: int) -> Iterator[int]:
    """Per operand that a row writes its storage, where it reads elements of it too."""
    slots, overlaps = track.slots, track.overlaps
    own = np.arange(track.slot_start[row], track.slot_start[row + 1])
    box = track.boxes.of_slot[own]
    for target in np.flatnonzero(slots.is_written[own]).tolist():
        one = int(box[target])
        near = [one, *overlaps.other[overlaps.start[one] : overlaps.start[one + 1]].tolist()]
        same = slots.storage[own] == slots.storage[own[target]]
        if (same & ~slots.is_written[own] & np.isin(box, near)).any():
            yield int(slots.storage[own[target]])


def _placed(evidence: Evidence) -> Iterator[Finding]:
    """Tiles that planning places on bytes of others, where the table does not order that."""
    wanted = {name for name in (KINDS[REUSE], KINDS[SPILL]) if not evidence.orders(name)}
    if not wanted:
        return
    for track in evidence.tracks:
        plan, program = track.plan, track.compiled
        later = np.repeat(np.arange(len(plan.waits.start) - 1), np.diff(plan.waits.start))
        codes = [KINDS.index(name) for name in wanted]
        for edge in np.flatnonzero(np.isin(plan.waits.kind, codes)).tolist():
            nodes = (int(later[edge]), int(plan.waits.node[edge]))
            rows = [n if n < plan.rows else plan.transfers[n - plan.rows].before_row for n in nodes]
            sites = [Site(*program.lines[int(program.line_column[row])]) for row in rows]
            names = [program.form_of(row).name for row in rows]
            yield UNORDERED.finding(
                f"{names[0]} touches bytes that {names[1]} used before, and the table does not order "
                f"{KINDS[plan.waits.kind[edge]]}", sites[0], sites[1], f"{names[1]} uses them here",
            )  # fmt: skip


def _overtaken_blocks(track: Track) -> Iterator[Finding]:
    """Reads of a block whose tile has become another block since the block was written."""
    by_tile = sorted(track.marks.block_uses, key=lambda use: use.storage)
    for storage, uses in groupby(by_tile, key=lambda use: use.storage):
        yield from _of_tile(track, storage, list(uses))


def _of_tile(track: Track, storage: int, uses: list[BlockUse]) -> Iterator[Finding]:
    allotted = {use.row: use.block for use in uses if use.is_given}
    read = _read(track, storage, [use for use in uses if not use.is_given])
    holder, holder_row = -1, -1
    written: set[int] = set()
    for row in sorted({*read, *allotted}):
        late = [block for block in read.get(row, ()) if block in written and block != holder]
        for block in late:
            yield _finding_of(track, row, storage, block, holder_row, holder)
        if row in allotted:
            holder, holder_row = allotted[row], row
            written.add(holder)


def _read(track: Track, storage: int, uses: list[BlockUse]) -> dict[int, list[int]]:
    """By row, the blocks of a tile that it reads: as many as it reads tiles, those taken last before it."""
    slots = track.slots
    reads = slots.row[(slots.storage == storage) & slots.is_read]
    rows, counts = np.unique(reads, return_counts=True)
    taken: dict[int, list[int]] = {}
    for use in uses:
        place = int(np.searchsorted(rows, use.row))
        if place < len(rows):
            taken.setdefault(place, []).append(use.block)
    return {
        int(rows[place]): list(dict.fromkeys(blocks[-int(counts[place]) :]))
        for place, blocks in taken.items()
    }


def _finding_of(track: Track, row: int, storage: int, block: int, writer: int, holder: int) -> Finding:
    return LIFETIME.finding(
        f"{track.called(row)} reads block {block} of {track.describe(storage)} after {track.called(writer)} "
        f"wrote block {holder} over it",
        track.site(row), track.site(writer), f"{track.called(writer)} writes block {holder} on its bytes",
        fix="give the tensor as many tiles as blocks are needed at once, by num_free_tiles or the addresses",
    )  # fmt: skip
