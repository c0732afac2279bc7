"""The same rows in another order, or with fewer trips to HBM and back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from math import prod

import numpy as np

from ...isa.declare import Instruction
from ...isa.scans import TensorTensorScan
from ...place.slots import DMA
from ...tiles.tile import HBM, SBUF, Layout, layout
from ...trace.program import Program
from ..declare import Candidate, Edit, Subject, plural, transformation
from ..draft import Draft, Slot, Unfit, cut, whole_tile
from ..equal_values import is_at_rest, live_rows
from ..jam import interchanged
from ..reorder import as_needed, reordered
from ..subject import rows_where

# where in a tensor: offset, shape, strides
Region = tuple[int, tuple[int, ...], tuple[int, ...]]
# a result is made with about so many tiles at once
_FEW_TILES = 8


@transformation(
    "avoid_spill", relieves=("dma",), title="what is live at once fits into SBUF",
    what="tiles are written to HBM and read back because SBUF does not hold all that is live",
    why="each spilled byte crosses HBM twice, and engines wait for it",
    fix="finish one result before beginning the next, or make tiles smaller",
    source="NKI performance guide, spilling; allocation guide",
)  # fmt: skip
def spills(subject: Subject) -> Iterator[Candidate]:
    """Results one after another, where the plan spills or loads again."""
    plan = subject.plan
    moved = plan.spill_save_bytes + plan.spill_reload_bytes + plan.loaded_again_bytes
    if not moved:
        return
    inserted = [t.before_row for t in plan.transfers if t.before_row < len(subject.program)]
    lines = np.asarray(subject.program.line_column, np.int64)[inserted or [0]]
    timeline = subject.timeline
    own = timeline.node >= len(subject.program)
    spent = float((timeline.end_ns - timeline.start_ns)[own].sum())
    edits: list[tuple[str, Edit]] = [
        ("each result finished before the next", lambda: _in_need_order(subject.base))
    ]
    whole = np.union1d(_elementwise(subject), subject.rows_of("tensor_tensor_scan"))
    widest = max((subject.base.storages[t].bytes_per_partition for t in subject.writers), default=0)
    # a few tiles of one result fill SBUF
    if _FEW_TILES * widest > subject.base.machine.limit("sbuf_bytes_per_partition") and len(whole):
        words = "rows in {} pieces, each finished before the next"
        pieces = [(words.format(n), partial(_in_pieces, subject, whole, n)) for n in (16, 4)]
        edits = [*pieces, *edits]
    yield Candidate(
        int(np.bincount(lines).argmax()),
        f"{moved} bytes are spilled, reloaded or loaded again because SBUF is full",
        max(min(spent, subject.latency_ns), 0.05 * subject.latency_ns), tuple(edits),
    )  # fmt: skip


def _in_pieces(subject: Subject, rows: np.ndarray, count: int) -> Program:
    """A program that finishes a piece of each row before the next; scans go on where the last piece ended."""
    return _in_need_order(_cut(subject, rows, count))


def _in_need_order(program: Program) -> Program:
    key = as_needed(program)
    return reordered(program, key.astype(np.float64) * len(program) + np.arange(len(program)))[0]


@transformation(
    "keep_on_chip", relieves=("dma",), title="intermediate results stay on the chip",
    what="a tensor in HBM is written and read back by the kernel itself",
    why="it crosses HBM twice, and the reader waits until the last byte has arrived",
    fix="keep the tile in SBUF, and let its reader use it there",
    source="NKI performance guide, operator fusion; fused attention tutorial",
)  # fmt: skip
def scratch(subject: Subject) -> Iterator[Candidate]:
    """Tensors in HBM that are written in parts and read in the same or in wider parts."""
    by_line: dict[int, list[int]] = {}
    for storage, record in enumerate(subject.base.storages):
        readers, writers = subject.readers.get(storage), subject.writers.get(storage)
        if record.memory == HBM and readers and writers and writers[0] <= readers[0]:
            by_line.setdefault(int(subject.base.line_column[readers[0]]), []).append(storage)
    for line, tensors in by_line.items():
        record = subject.base.storages[tensors[0]]
        rows = np.array([r for s in tensors for r in subject.writers[s] + subject.readers[s]], np.int64)
        yield Candidate(
            line,
            f"{plural(len(rows), 'transfer', 'write')} {record.dtype}{list(record.shape)} to HBM and read it "
            "back",
            subject.weight(rows),
            (("read from the tiles that were stored", lambda own=tensors: _kept(subject, own)),),  # type: ignore[misc]
        )


def _kept(subject: Subject, tensors: Sequence[int]) -> Program:
    """A program whose loads of some tensors are the tiles that were stored to them."""
    draft = Draft(subject.base)
    places: dict[int, tuple[int, int, int]] = {}
    for storage in tensors:
        _keep(subject, draft, storage, places)
    if not places.keys().isdisjoint(whole for whole, _, _ in places.values()):
        raise Unfit
    draft.relocate(places)
    edited = draft.program()
    alive = live_rows(edited)
    return edited.without(np.flatnonzero(~alive), {})


def _keep(subject: Subject, draft: Draft, storage: int, places: dict[int, tuple[int, int, int]]) -> None:
    """Leave out the loads of a tensor: each that reads of what one store wrote, or stores that make it up."""
    base = subject.base
    stores: dict[Region, int] = {}
    writers = set(subject.writers[storage])
    for row in sorted((*writers, *subject.readers[storage])):
        (target, source) = _pair(draft, row)
        if row in writers and not whole_tile(base, source[0], source[2], source[1]):
            raise Unfit
        if row in writers:
            stores[target[1], target[2].shape, target[2].strides] = source[0]
            continue
        if not whole_tile(base, target[0], target[2], target[1]) or len(subject.writers[target[0]]) != 1:
            raise Unfit
        part = _part_of_store(stores, source)
        if part is not None and base.storages[part[0]].dtype is base.storages[target[0]].dtype:
            places[target[0]] = part
        else:
            _gather(base, stores, source, target[0], places)
        draft.drop([row])
    if base.storages[storage].scope not in ("shared", "output", "input"):
        draft.drop(subject.writers[storage])


def _pair(draft: Draft, row: int) -> tuple[Slot, ...]:
    """What a plain transfer writes and reads."""
    form = draft.base.form_of(row)
    slots = draft.slots(row)
    if form.name != "dma_copy" or len(slots) != 2 or form.is_indirect or form.reads_dst:
        raise Unfit
    return tuple(slots)


def _part_of_store(stores: Mapping[Region, int], source: Slot) -> tuple[int, int, int] | None:
    """The tile stored around what is loaded, and from which partition and column of it; None if none was."""
    _, offset, own = source
    known = stores.get((offset, own.shape, own.strides))
    if known is not None:
        return known, 0, 0
    for (start, shape, strides), stored in stores.items():
        if strides != own.strides or len(shape) != 2 or strides[0] < shape[1] or strides[1] != 1:
            continue
        row, column = divmod(offset - start, strides[0])
        if 0 <= row <= shape[0] - own.shape[0] and column <= shape[1] - own.shape[1]:
            return stored, row, column
    return None


def _gather(
    base: Program, stores: Mapping[Region, int], source: Slot, tile: int,
    places: dict[int, tuple[int, int, int]],
) -> None:  # fmt: skip
    """Find the stores whose regions lie side by side in what is loaded, and make their tiles parts of it.

    Where a load puts their rows into other partitions, so must whatever makes the tiles: it takes as long.
    """
    _, offset, own = source
    shape, strides = own.shape, own.strides
    inside = {
        stored: (start - offset, part[1])
        for (start, part, steps), stored in stores.items()
        if steps == strides and len(part) == len(shape) == 2 and part[0] == shape[0]
        and 0 <= start - offset <= shape[1] - part[1] and stored not in places
    }  # fmt: skip
    if sum(width for _, width in inside.values()) != shape[1]:
        inside = _one_after_another(base, stores, source, tile, places)
    if len({(base.storages[own].dtype, base.storages[own].partitions) for own in (tile, *inside)}) > 1:
        raise Unfit
    places.update({stored: (tile, 0, column) for stored, (column, _) in inside.items()})


def _one_after_another(
    base: Program, stores: Mapping[Region, int], source: Slot, tile: int,
    places: Collection[int],
) -> dict[int, tuple[int, int]]:  # fmt: skip
    """Per tile that is stored in what is loaded whole, the first of its columns and how many it has."""
    _, offset, own = source
    within = (
        stored for (start, _, _), stored in sorted(stores.items())
        if own.is_compact and 0 <= start - offset < own.size and stored not in places
    )  # fmt: skip
    inside, column = dict[int, tuple[int, int]](), 0
    for stored in within:
        inside[stored] = column, prod(base.storages[stored].shape[1:])
        column += inside[stored][1]
    if column != prod(base.storages[tile].shape[1:]):
        raise Unfit
    return inside


@transformation(
    "interchange_loops", title="loops stand in the order that moves least",
    what="another order of the same iterations loads less, or keeps less alive",
    why="a tile that the inner loop uses again stays; one that comes back later is loaded or kept",
    fix="exchange the inner loop and the outer one", source="fused Mamba tutorial, loop reordering",
)  # fmt: skip
def interchange(subject: Subject) -> Iterator[Candidate]:
    """Two perfect loops exchanged; equal tiles that follow each other within one outer iteration are one."""
    for loop in subject.loops[:4]:
        for period in loop.periods(subject.base)[:1]:
            rows = loop.rows().ravel()
            transfers = rows[np.isin(rows, np.flatnonzero(subject.slots.engine == DMA))]
            yield Candidate(
                loop.line, f"two loops of {len(loop.start) // period} and {period} trips",
                subject.weight(transfers) / 2,
                (("the loops exchanged", lambda own=loop, n=period: interchanged(subject.equals, own, n)),),  # type: ignore[misc]
            )  # fmt: skip
            break


@transformation(
    "finer_tiles", relieves=(), title="the first tile is small enough to begin soon",
    what="one large tile is loaded before anything is computed, and stored after everything is",
    why="transfers overlap with computation only from the second tile on",
    fix="cut the tile into parts along its free axis, each loaded, computed and stored by itself",
    source="NKI performance guide, overlap data loading with computation",
)  # fmt: skip
def finer(subject: Subject) -> Iterator[Candidate]:
    """Rows that work element by element, in parts along the free axis."""
    rows = _elementwise(subject)
    if not len(rows) or len(rows) * 8 > 40_000:
        return
    yield Candidate(
        int(subject.base.line_column[rows[0]]),
        f"{plural(len(rows), 'instruction', 'work')} on whole tiles at a time",
        0.6 * subject.weight(rows),
        tuple((f"each in {count} parts", lambda n=count: _cut(subject, rows, n)) for count in (2, 4, 7)),  # type: ignore[misc]
    )


def _elementwise(subject: Subject) -> np.ndarray:
    """Rows whose result depends on the same element of their operands alone, on wide tiles."""
    return rows_where(
        subject.base,
        lambda form: form.mixes == "" and not form.accumulates and not form.is_indirect and is_at_rest(form)
        and not form.keeps and len(form.written_slots) == 1 and not form.reads_dst
        and form.layouts[form.written_slots[0]].free_size >= 256
        and form.name not in ("dma_transpose", "iota"),
    )  # fmt: skip


def _cut(subject: Subject, rows: np.ndarray, count: int) -> Program:
    """A program in which rows are cut into parts, where every part keeps 512 bytes a row."""
    draft = Draft(subject.base)
    changed = False
    for row in rows.tolist():
        slots = draft.slots(row)
        parts = [[cut(own, number, count) for _, _, own in slots] for number in range(count)]
        wide = {own.free_size for _, _, own in slots if own.free_size > 1}
        if len(wide) != 1 or any(one is None for part in parts for one in part):
            continue
        form = subject.base.form_of(row)
        layouts = [one[1] for one in parts[0] if one is not None]
        if any(
            g.memory == SBUF and g.free_size * g.itemsize < 512 < 1024 for g in layouts if g.free_size > 1
        ):
            continue
        if not draft.accepts(form, layouts):
            continue
        changed = True
        _insert(draft, row, draft.form_with(row, layouts), parts)
        draft.drop([row])
    if not changed:
        raise Unfit
    return draft.program()


def _insert(
    draft: Draft, row: int, form: Instruction, parts: Sequence[Sequence[tuple[int, Layout] | None]]
) -> None:
    """Put the parts of a row in its place; each of a scan goes on where the one before it ended."""
    values = draft.base.values_of(row)
    for number, part in enumerate(parts):
        pairs = zip(draft.slots(row), part, strict=True)
        moved = [(s, o + one[0], one[1]) for (s, o, _), one in pairs if one is not None]
        if number and isinstance(form, TensorTensorScan):
            moved = [*moved[:3], _last_column(moved[0])]
            form, values = _continued(draft, form, moved), ()
        draft.insert(row, form, values, moved)


def _last_column(slot: Slot) -> Slot:
    """The column before what a part of a scan writes."""
    storage, offset, own = slot
    column = layout(
        (own.shape[0], 1), (own.strides[0], own.strides[1]), own.dtype, own.memory, own.partition_axis,
        own.start_partition,
    )  # fmt: skip
    return storage, offset - own.strides[1], column


def _continued(draft: Draft, form: Instruction, slots: Sequence[Slot]) -> Instruction:
    """A scan that begins with a column."""
    layouts = tuple(own for _, _, own in slots)
    return draft.shared_form(TensorTensorScan, draft.base.machine, layouts, form.attribute_values)
