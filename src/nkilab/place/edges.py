"""Which rows must wait for which: one table of dependence kinds, and the walk that applies it.

The table models what the *vendor's* framework orders. A pair of accesses whose kind is not ordered there is
no wait in time, and a race for the checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from ..machine.model import Certainty
from ..trace.program import Program
from .boxes import Boxes, Overlaps, boxes_of, overlaps_of
from .direct_allocation import Edges, direct_edges
from .slots import DMA, Slots, by_storage, pieces, slots_of
from .walk import ANTI, FLOW, KINDS, OUTPUT, edges_of


class Dependence(Struct, frozen=True):
    """A kind of pair of accesses to one place, the first earlier in the program than the second."""

    name: str  # of the kind
    pair: str  # what the two are
    is_ordered: bool  # whether the vendor's framework makes the second wait for the first
    source: str  # page and heading
    certainty: Certainty  # how sure that is


DEPENDENCES: dict[str, Dependence] = {
    d.name: d
    for d in (
        Dependence("flow", "a write and a later read through one tensor", True,
                   "trn1 guide, engines synchronize by semaphores that the compiler inserts", "documented"),
        Dependence("anti", "a read and a later write through one tensor", True,
                   "profile schema, Flow: anti dependencies", "documented"),
        Dependence("output", "a write and a later write through one tensor", True,
                   "profile schema, Flow: output dependencies", "documented"),
        Dependence("reuse", "the last accesses of a tile and the first of the tile placed on its bytes", True,
                   "direct allocation guide: automatic allocation inserts the waits", "documented"),
        Dependence("spill", "a spill or reload and the accesses around it", True,
                   "profile schema, spill_save_bytes and spill_reload_bytes", "assumed"),
        Dependence("engine order", "two instructions of one engine", True,
                   "trn1 guide, each engine runs its instruction stream in order", "documented"),
        Dependence("queue order", "two transfers of one DMA queue", True,
                   "DMA overview, rings are in order", "documented"),
        Dependence("semaphore", "a transfer and the consumer of its semaphore", True,
                   "DMA overview, the last act of each engine is a semaphore write", "documented"),
        Dependence("direct overlap", "two tensors of nki at overlapping direct addresses", True,
                   "migration guide, direct allocation: blocks of a tensor become tensors, several at one "
                   "address; nki-library, Scope: overlapping addresses make an antidependency",
                   "documented"),
        Dependence("direct overlap, Beta 1", "two tensors of Beta 1 at overlapping direct addresses", False,
                   "direct allocation guide, known limitations", "assumed"),
        Dependence("pattern overlap", "two access patterns (.ap) on one storage", True,
                   "access pattern guide, note: slices and other views are made of .ap()", "documented"),
        Dependence("dynamic hbm", "HBM regions on two queues, one index known at run time only", False,
                   "NKI 0.4 release notes, race conditions in dynamic loops; nki-library has a core_barrier "
                   "on one core between scattered stores and later gathers", "assumed"),
        Dependence("open schedule", "what no_reorder and schedules leave open", False,
                   "nki.isa scheduling", "assumed"),
        Dependence("two cores", "accesses of two cores, except through sendrecv and core_barrier", False,
                   "logical core guide", "documented"),
        Dependence("two ranks", "what other ranks of a collective read and what one receives", False,
                   "nki.collectives, which says nothing of src and dst that overlap", "assumed"),
    )
}  # fmt: skip


class Waits(Struct, frozen=True):
    """Per row (or node) r the earlier ones it waits for, `node[start[r]:start[r + 1]]`, and why."""

    start: np.ndarray
    node: np.ndarray
    kind: np.ndarray

    def of(self, row: int) -> list[tuple[int, str]]:
        """The rows that `row` waits for, ascending, each with the name of its kind."""
        span = slice(int(self.start[row]), int(self.start[row + 1]))
        return [(int(n), KINDS[k]) for n, k in zip(self.node[span], self.kind[span], strict=True)]


def waits_from(count: int, *chunks: Sequence[np.ndarray] | Waits) -> Waits:
    """Waits of `count` nodes from edges; of several kinds between one pair the first counts."""
    # one number per edge sorts faster than three columns
    row_bits, kind_bits = count.bit_length(), len(KINDS).bit_length()
    edges = np.concatenate([_numbered(chunk, row_bits, kind_bits) for chunk in chunks])
    edges.sort()
    fresh = np.ones(len(edges), np.bool_)
    for piece in pieces(len(edges) - 1):
        own = edges[piece.start : piece.stop + 1] >> kind_bits
        fresh[piece.start + 1 : piece.stop + 1] = own[1:] != own[:-1]
    edges = edges[fresh]
    start = np.zeros(count + 1, np.int32)
    node, own_kind = np.empty(len(edges), np.int32), np.empty(len(edges), np.int8)
    for piece in pieces(len(edges)):
        own = edges[piece]
        node[piece], own_kind[piece] = (
            (own >> kind_bits) & ((1 << row_bits) - 1),
            own & ((1 << kind_bits) - 1),
        )
    edges >>= row_bits + kind_bits
    np.cumsum(np.bincount(edges, minlength=count), out=start[1:])
    return Waits(start, node, own_kind)


def _numbered(edges: Sequence[np.ndarray] | Waits, row_bits: int, kind_bits: int) -> np.ndarray:
    """A number for each edge: later node, earlier node and kind after each other."""
    if isinstance(edges, Waits):
        numbers = np.repeat(np.arange(len(edges.start) - 1), np.diff(edges.start))
        columns = [edges.node, edges.kind]
    else:
        numbers, columns = edges[0].astype(np.int64), [*edges[1:]]
    for bits, column in zip((row_bits, kind_bits), columns, strict=True):
        numbers <<= bits
        numbers |= column
    return numbers


def dependences(program: Program, table: Mapping[str, Dependence] = DEPENDENCES) -> Waits:
    """Per row of `program`, the earlier rows it must wait for because both touch the same elements.

    Reads wait for writes, writes for writes and reads. What a later write covered is no longer waited for,
    and of several reads of one in-order engine only the last is.

    Args:
        program: the rows.
        table: the kinds; one that is absent or not ordered makes nobody wait.
    """
    slots = slots_of(program)
    boxes = boxes_of(program, slots)
    waits = waits_of(program, slots, boxes, overlaps_of(boxes, slots), table)
    return with_edges(waits, direct_edges(program, slots), table=table)


class Within(NamedTuple):
    """What is known of tensors before anything is placed: their accesses, and who waits for whom."""

    slots: Slots
    boxes: Boxes
    waits: Waits


def within_tensors(program: Program) -> Within:
    """The accesses of a program, and who waits within tensors."""
    slots = slots_of(program)
    boxes = boxes_of(program, slots)
    return Within(slots, boxes, waits_of(program, slots, boxes, overlaps_of(boxes, slots)))


def with_edges(
    waits: Waits, *more: Edges, table: Mapping[str, Dependence] = DEPENDENCES, count: int = 0
) -> Waits:
    """`waits` and further edges, as far as a table orders their kinds.

    Args:
        waits: of nodes.
        more: later node, earlier node and kind of each further edge.
        table: the kinds.
        count: of nodes, where the further edges name more of them.
    """
    if not count and not any(len(kind) for *_, kind in more):
        return waits
    is_ordered = ordered_kinds(table)
    kept = ([column[is_ordered[edges[2]]] for column in edges] for edges in more)
    return waits_from(count or len(waits.start) - 1, waits, *kept)


def ordered_kinds(table: Mapping[str, Dependence]) -> np.ndarray:
    """Per kind of wait whether a table orders it."""
    return np.array([name in table and table[name].is_ordered for name in KINDS])


def waits_of(
    program: Program, slots: Slots, boxes: Boxes, overlaps: Overlaps,
    table: Mapping[str, Dependence] = DEPENDENCES,
) -> Waits:  # fmt: skip
    """`dependences` within tensors, where slots, boxes and overlaps are known already."""
    is_ordered = ordered_kinds(table)
    is_written = np.zeros(len(program.storages), np.bool_)
    is_written[slots.storage[slots.is_written]] = True
    chunks = [_no_edges()]
    for some in by_storage(slots, is_written):
        ordered = _ordered(slots, some)
        crowded = _is_crowded(slots.storage[ordered], boxes.of_slot[ordered], overlaps)
        for edges in (
            _edges_within(slots, boxes, ordered[~crowded]),
            _edges_across(slots, overlaps, boxes, ordered[crowded]),
        ):
            kept = (edges[0] != edges[1]) & is_ordered[edges[2]]
            chunks.append(tuple(column[kept] for column in edges))
    return waits_from(len(program), *chunks)


def _ordered(slots: Slots, some: np.ndarray) -> np.ndarray:
    """Slots by storage, then row, reads of a row before its writes."""
    key = (slots.storage[some] * (len(slots.engine) + 1) + slots.row[some]) * 2 + slots.is_written[some]
    return some[np.argsort(key, kind="stable")]


def _is_crowded(storage: np.ndarray, box: np.ndarray, overlaps: Overlaps) -> np.ndarray:
    """Per ordered slot, whether its storage is also accessed through another box that overlaps this one.

    Decided per storage: one pair of overlapping boxes makes all its slots crowded.
    """
    has_neighbours = np.diff(overlaps.start)[box] > 0
    result = np.zeros(len(box), np.bool_)
    suspects = np.flatnonzero(has_neighbours)
    if not len(suspects):
        return result
    several = _holds_several(storage, box)
    result[:] = np.isin(storage, storage[suspects]) & several
    return result


def _holds_several(storage: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Per ordered slot, whether its storage is accessed through more than one box."""
    starts = np.flatnonzero(np.diff(storage, prepend=-1))
    lowest, highest = np.minimum.reduceat(box, starts), np.maximum.reduceat(box, starts)
    return np.repeat(lowest != highest, np.diff(np.append(starts, len(storage))))


def _edges_within(slots: Slots, boxes: Boxes, ordered: np.ndarray) -> Edges:
    """Edges among accesses through the same box, where no other box overlaps it."""
    # by storage and box; within, rows stay in order
    key = slots.storage[ordered] * (len(boxes.group) + 1) + boxes.of_slot[ordered]
    order = ordered[np.argsort(key, kind="stable")]
    if not len(order):
        return _no_edges()
    row, is_read, is_written = slots.row[order], slots.is_read[order], slots.is_written[order]
    place = np.arange(len(order))
    storage, box = slots.storage[order], boxes.of_slot[order]
    is_first = (np.diff(storage, prepend=-1) != 0) | (np.diff(box, prepend=-1) != 0)
    cell = np.cumsum(is_first)
    first = np.maximum.accumulate(np.where(is_first, place, 0))
    latest = np.maximum.accumulate(np.where(is_written, place, -1))
    before = np.concatenate([[-1], latest[:-1]])
    has_before = before >= first
    flow, output = has_before & is_read, has_before & is_written
    # the next write in the same cell, seen from the end
    following = np.where(is_written, place, len(order))
    after = np.concatenate([np.minimum.accumulate(following[::-1])[::-1][1:], [len(order)]])
    has_after = (
        is_read & ~is_written & (after < len(order)) & (cell[np.minimum(after, len(order) - 1)] == cell)
    )
    readers = np.flatnonzero(has_after)
    readers = readers[_is_last_of_engine(after[readers], slots.engine[row[readers]], readers)]
    later = [row[flow], row[output], row[after[readers]]]
    earlier = [row[before[flow]], row[before[output]], row[readers]]
    kinds = [
        np.full(len(rows), kind, np.int8) for rows, kind in zip(later, (FLOW, OUTPUT, ANTI), strict=True)
    ]
    return np.concatenate(later), np.concatenate(earlier), np.concatenate(kinds)


def _is_last_of_engine(epoch: np.ndarray, engine: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Whether no later reader of the same epoch runs on the same engine; transfers are not in order."""
    own = np.where(engine == DMA, DMA + 1 + place, engine)
    order = np.lexsort((own, epoch))
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = (np.diff(epoch[order]) != 0) | (np.diff(own[order]) != 0)
    result = np.zeros(len(order), np.bool_)
    result[order] = is_last
    return result


def _no_edges() -> Edges:
    empty = np.zeros(0, np.int32)
    return empty, empty, np.zeros(0, np.int8)


def _edges_across(slots: Slots, overlaps: Overlaps, boxes: Boxes, ordered: np.ndarray) -> Edges:
    """Edges in storages that are accessed through overlapping boxes."""
    if not len(ordered):
        return _no_edges()
    row, storage = slots.row[ordered], slots.storage[ordered]
    place = np.arange(len(ordered))
    last_write = np.full(int(storage.max(initial=-1)) + 1, -1)
    writes = np.flatnonzero(slots.is_written[ordered])
    last_write[storage[writes]] = writes
    columns = {
        "row": row, "engine": slots.engine[row], "box": boxes.of_slot[ordered], "storage": storage,
        "is_read": slots.is_read[ordered], "is_written": slots.is_written[ordered],
        "is_awaited": place < last_write[storage],
    }  # fmt: skip
    return edges_of(columns, overlaps)
