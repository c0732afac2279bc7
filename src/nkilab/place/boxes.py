"""Accesses as boxes in the coordinates of their storage, and which boxes overlap.

A box holds, per axis of the storage, positions `low`, `low + step`, ... each `width` long, below `high`. The
last axis counts bytes, so that views of other types compare; the others count indices. A layout that does not
decompose along the axes of its storage (a reshape that mixes them) is known by its flat byte interval alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

import numpy as np
from msgspec import Struct

from ..tiles.tile import HBM, Layout, compact_strides, may_repeat
from ..trace.program import Program
from .slots import Kinds, Slots, distinct_numbers, pieces, runs

_PAIRS_AT_ONCE = 1 << 20


class Boxes(Struct, frozen=True):
    """The distinct boxes of a program, and the box of each slot."""

    of_slot: np.ndarray  # per slot, the number of its box
    # per box, which storages may hold it: one HBM tensor, or all tiles of one shape and type
    group: np.ndarray
    # low, high, step, width: per box and axis
    low: np.ndarray
    high: np.ndarray
    step: np.ndarray
    width: np.ndarray
    # flat_low, flat_high: per box, the byte interval from its first to its last element
    flat_low: np.ndarray
    flat_high: np.ndarray
    is_flat: np.ndarray  # whether only the byte interval is known
    is_exact: np.ndarray  # whether every position of the box is accessed


def boxes_of(program: Program, slots: Slots) -> Boxes:
    """The box of every slot; slots with the same elements of storages of one shape share a box."""
    groups, shapes = _groups(slots.kinds)
    width = max(len(slots.layouts), 1)
    least = int(slots.offset.min(initial=0))
    reach = int(slots.offset.max(initial=0)) - least + 1
    assert int(groups.max(initial=0) + 1) * width * reach < 1 << 63, "a view so far from others has no number"
    key = np.empty(len(slots.storage), np.int64)
    for piece in pieces(len(key)):
        kind = groups[slots.storage[piece]] * width + slots.layout[piece]
        key[piece] = kind * reach + (slots.offset[piece] - least)
    keys, of_slot = distinct_numbers(key)
    kinds, offset = keys // reach, keys % reach + least
    axes = max((len(shape) for shape, _ in shapes), default=1) or 1
    table = np.zeros((len(keys), 4 * axes + 4), np.int64)
    for start, stop in runs(kinds):
        number = int(kinds[start]) // len(slots.layouts)
        layout = slots.layouts[int(kinds[start]) % len(slots.layouts)]
        table[start:stop] = _decomposed(*shapes[number], layout, offset[start:stop], axes)
    return _distinct(table, kinds // max(len(slots.layouts), 1), of_slot, axes)


def boxes_for(accesses: Sequence[tuple[int, tuple[int, ...], int, Layout, int]]) -> Boxes:
    """The boxes of accesses that are given one by one, in their order.

    Args:
        accesses: group, shape and bytes per element of the memory, layout and offset of the view. Accesses of
            one group lie in memories of one shape.
    """
    axes = max((len(shape) for _, shape, _, _, _ in accesses), default=1) or 1
    table = np.zeros((len(accesses), 4 * axes + 4), np.int64)
    group = np.array([own for own, *_ in accesses], np.int64)
    offsets = np.array([offset for *_, offset in accesses], np.int64)
    alike: dict[tuple[tuple[int, ...], int, Layout], list[int]] = {}
    for number, (_, shape, itemsize, layout, _) in enumerate(accesses):
        alike.setdefault((shape or (1,), itemsize, layout), []).append(number)
    for (shape, itemsize, layout), numbers in alike.items():
        table[numbers] = _decomposed(shape, itemsize, layout, offsets[numbers], axes)
    return _distinct(table, group, np.arange(len(accesses)), axes)


def _distinct(table: np.ndarray, group: np.ndarray, of_slot: np.ndarray, axes: int) -> Boxes:
    """`table` with equal exact boxes merged; inexact ones stay apart, for they may differ inside."""
    marked = np.column_stack([group, table, np.where(table[:, -1] == 1, -1, np.arange(len(table)))])
    _, first, back = np.unique(marked, axis=0, return_index=True, return_inverse=True)
    rows = table[first]
    low, high, step, width = (rows[:, i * axes : (i + 1) * axes] for i in range(4))
    flat_low, flat_high, is_flat, is_exact = rows[:, 4 * axes :].T
    return Boxes(
        back.reshape(-1).astype(np.int32)[of_slot], group[first], low, high, step, width, flat_low, flat_high,
        is_flat.astype(np.bool_), is_exact.astype(np.bool_),
    )  # fmt: skip


def _groups(kinds: Kinds) -> tuple[np.ndarray, list[tuple[tuple[int, ...], int]]]:
    """Per storage the number of its group, and per group shape and bytes per element."""
    numbers: dict[tuple[object, ...], int] = {}
    keys = [(s.memory, s.shape, s.dtype.itemsize) for s in kinds.samples]
    alike = [numbers.setdefault(key, kind) for kind, key in enumerate(keys)]
    group = np.array(alike, np.int64)[kinds.of_storage]
    tensors = np.flatnonzero(kinds.lie_in(HBM))
    group[tensors] = len(kinds.samples) + np.arange(len(tensors))
    own = [kinds.samples[kind] for kind in kinds.of_storage[tensors].tolist()]
    return group, [(s.shape or (1,), s.dtype.itemsize) for s in (*kinds.samples, *own)]


def _anywhere(rows: np.ndarray, sizes: tuple[int, ...], axes: int) -> np.ndarray:
    """Rows for accesses whose address is known at run time only: they may touch the whole storage."""
    rows[:, axes : 4 * axes] = 1
    rows[:, axes : axes + len(sizes)] = sizes
    rows[:, 4 * axes + 1] = prod(sizes)
    return rows


def _decomposed(
    shape: tuple[int, ...], itemsize: int, layout: Layout, offset: np.ndarray, axes: int
) -> np.ndarray:
    """Rows of the table of boxes for one layout at several offsets in storages of one shape."""
    sizes = (*shape[:-1], shape[-1] * itemsize)
    strides = compact_strides(sizes)
    span, step, count = _spans(sizes, strides, layout)
    first = offset * layout.itemsize
    rows = np.zeros((len(offset), 4 * axes + 4), np.int64)
    if layout.indices:
        return _anywhere(rows, sizes, axes)
    fits = np.full(len(offset), span is not None)
    reach = (
        sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True) if s > 0) * layout.itemsize
    )
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        is_last = axis == len(sizes) - 1
        low = first // stride % size if axis else first // stride
        width = layout.itemsize if is_last else 1
        extent = span[axis] + width if span is not None else size
        fits &= low + extent <= size
        pace = step[axis] if step[axis] > width else 1
        rows[:, axis], rows[:, axes + axis] = low, low + extent
        rows[:, 2 * axes + axis], rows[:, 3 * axes + axis] = pace, width if pace > 1 else 1
    for axis in range(len(sizes), axes):
        rows[:, axes + axis] = rows[:, 2 * axes + axis] = 1
    moved = [(n, s) for n, s in zip(layout.shape, layout.strides, strict=True) if s != 0]
    # windows that overlap may leave gaps that their count does not show
    is_counted = not may_repeat([n for n, _ in moved], [s for _, s in moved])
    distinct = prod(n for n, _ in moved) * layout.itemsize if is_counted else 0
    rows[:, 4 * axes], rows[:, 4 * axes + 1] = first, first + reach + layout.itemsize
    rows[:, 4 * axes + 2] = ~fits
    rows[:, 4 * axes + 3] = np.where(fits, count == distinct, reach + layout.itemsize == distinct)
    return rows


def _spans(
    sizes: tuple[int, ...], strides: tuple[int, ...], layout: Layout
) -> tuple[list[int] | None, list[int], int]:
    """Per axis of the storage how far a layout reaches and in which steps, and how many bytes the box holds.

    The reach is None where an axis of the layout runs over several axes of the storage.
    """
    span, step = [0] * len(sizes), [0] * len(sizes)
    for extent, stride in zip(layout.shape, layout.strides, strict=True):
        pieces = _pieces(sizes, strides, extent, stride * layout.itemsize)
        if pieces is None:
            return None, step, 0
        for axis, places, pace in pieces:
            span[axis] += (places - 1) * pace
            # two axes of a view along one of the storage: the box holds both, and perhaps more
            step[axis] = gcd(step[axis], pace)
    count = 1
    for axis, (reach, pace) in enumerate(zip(span, step, strict=True)):
        width = layout.itemsize if axis == len(sizes) - 1 else 1
        count *= (reach // pace + 1) * width if pace > width else reach + width
    return span, step, count


def _pieces(
    sizes: tuple[int, ...], strides: tuple[int, ...], extent: int, stride: int
) -> list[tuple[int, int, int]] | None:
    """(axis of the storage, places, step) that one axis of a layout runs over; None if that is no box."""
    if extent == 1 or stride == 0:
        return []
    if stride < 0:
        return None
    axis = next(i for i, s in enumerate(strides) if s <= stride)
    if stride % strides[axis]:
        return None
    pace = stride // strides[axis]
    pieces = []
    while axis > 0 and extent * pace > sizes[axis] and sizes[axis] % pace == 0:
        # the axis is covered to its end and the run goes on in the next outer one
        places = sizes[axis] // pace
        if extent % places:
            return None
        pieces.append((axis, places, pace))
        extent, axis, pace = extent // places, axis - 1, 1
    if extent > 1:
        pieces.append((axis, extent, pace))
    return pieces


class Overlaps(Struct, frozen=True):
    """Per box b the others that overlap it, `other[start[b]:start[b + 1]]`, and whether b covers them."""

    start: np.ndarray
    other: np.ndarray
    covers: np.ndarray


def overlaps_of(boxes: Boxes, slots: Slots | None = None) -> Overlaps:
    """All pairs of distinct boxes of one group that share an element.

    With the slots that they are of, boxes that nothing written reaches have none: nobody waits there.
    """
    count = len(boxes.group)
    label = _clusters(boxes)
    order = np.argsort(label, kind="stable")
    starts = np.flatnonzero(np.diff(label[order], prepend=-1))
    sizes = np.diff(starts, append=count)
    if slots is not None:
        is_reached = np.zeros(int(label.max(initial=-1)) + 1, np.bool_)
        is_reached[label[boxes.of_slot[slots.is_written]]] = True
        kept = is_reached[label[order[starts]]]
        starts, sizes = starts[kept], sizes[kept]
    twos = starts[sizes == 2]
    one, two = order[twos], order[twos + 1]
    shared = _overlap(boxes, one, two)
    chunks = [(one[shared], two[shared])]
    for start, size in zip(starts[sizes > 2].tolist(), sizes[sizes > 2].tolist(), strict=True):
        chunks.extend(_pairs(boxes, order[start : start + size]))
    one, two = (np.concatenate(column) for column in zip(*chunks, strict=True))
    box, other = np.concatenate([one, two]), np.concatenate([two, one])
    by_box = np.lexsort((other, box))
    box, other = box[by_box], other[by_box]
    begins = np.searchsorted(box, np.arange(count + 1))
    return Overlaps(begins, other, _covers(boxes, box, other))


def _clusters(boxes: Boxes) -> np.ndarray:
    """Per box a label; boxes with different labels share nothing.

    Along one axis after the other, boxes of one label are told apart where no interval bridges a gap.
    """
    if np.bincount(boxes.group, minlength=1).max() < 2:
        return boxes.group
    has_flat = np.zeros(int(boxes.group.max(initial=-1)) + 1, np.bool_)
    has_flat[boxes.group[boxes.is_flat]] = True
    by_flat = has_flat[boxes.group]
    intervals = [(np.where(by_flat, boxes.flat_low, 0), np.where(by_flat, boxes.flat_high, 1))]
    for low, high in zip(boxes.low.T, boxes.high.T, strict=True):
        intervals.append((np.where(by_flat, 0, low), np.where(by_flat, 1, high)))
    label = boxes.group
    # what one axis tells apart may open gaps along those before it
    for low, high in intervals * 2:
        label = told_apart(label, low, high)
        if label.max(initial=-1) == len(label) - 1:
            break
    return label


def told_apart(label: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Labels, ascending with `label` and `low`, that also part intervals which no chain of overlaps joins."""
    apart = int(high.max(initial=0)) + 1
    begin, end = label * apart + low, label * apart + high
    order = np.argsort(begin, kind="stable")
    reached = np.maximum.accumulate(end[order])
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = begin[order][1:] >= reached[:-1]
    is_new[1:] |= np.diff(label[order]) != 0
    result = np.empty(len(order), np.int64)
    result[order] = np.cumsum(is_new) - 1
    return result


def _pairs(boxes: Boxes, members: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Overlapping pairs of boxes of one label: a sweep along the axis that tells most of them apart."""
    low, high = boxes.flat_low, boxes.flat_high
    if not boxes.is_flat[members].any():
        ordered = np.sort(boxes.low[members], axis=0)
        best = int(np.argmax((ordered[1:] != ordered[:-1]).sum(axis=0)))
        low, high = boxes.low[:, best], boxes.high[:, best]
    ordered = members[np.argsort(low[members], kind="stable")]
    stop = np.searchsorted(low[ordered], high[ordered], "left")
    counts = np.maximum(stop - np.arange(len(ordered)) - 1, 0)
    reached = np.cumsum(counts)
    chunks = []
    begin = 0
    while begin < len(ordered):
        done = reached[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(reached, done + _PAIRS_AT_ONCE, "right")))
        one = np.repeat(np.arange(begin, end), counts[begin:end])
        firsts = np.cumsum(counts[begin:end]) - counts[begin:end]
        two = one + 1 + np.arange(len(one)) - firsts[one - begin]
        a, b = ordered[one], ordered[two]
        shared = _overlap(boxes, a, b)
        chunks.append((a[shared], b[shared]))
        begin = end
    return chunks


def _overlap(boxes: Boxes, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Whether pairs of boxes of one group share an element (of two with different steps: perhaps).

    Of those known by their byte interval alone only pairs whose intervals overlap come here.
    """
    meets = ((boxes.low[a] < boxes.high[b]) & (boxes.low[b] < boxes.high[a])).all(axis=1)
    # both repeat with this period, a run without a step with any; one may lie in the gaps of the other
    period = np.gcd(_period(boxes, a), _period(boxes, b))
    between = (boxes.low[b] - boxes.low[a]) % np.maximum(period, 1)
    misses = (period > 1) & (between >= _run(boxes, a)) & (period - between >= _run(boxes, b))
    return boxes.is_flat[a] | boxes.is_flat[b] | (meets & ~misses.any(axis=1))


def _period(boxes: Boxes, some: np.ndarray) -> np.ndarray:
    return np.where(boxes.step[some] > 1, boxes.step[some], 0)


def _run(boxes: Boxes, some: np.ndarray) -> np.ndarray:
    """How long the runs of a box are along each axis."""
    return np.where(boxes.step[some] > 1, boxes.width[some], boxes.high[some] - boxes.low[some])


def _covers(boxes: Boxes, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Whether every element of box b lies in box a."""
    inside = (boxes.low[a] <= boxes.low[b]) & (boxes.high[a] >= boxes.high[b])
    paced = (boxes.step[a] == boxes.step[b]) & ((boxes.low[b] - boxes.low[a]) % boxes.step[a] == 0)
    same_width = boxes.width[a] == boxes.width[b]
    by_axis = (inside & ((boxes.step[a] == 1) | (paced & same_width))).all(axis=1)
    flat = (boxes.flat_low[a] <= boxes.flat_low[b]) & (boxes.flat_high[a] >= boxes.flat_high[b])
    neither = ~boxes.is_flat[a] & ~boxes.is_flat[b]
    return boxes.is_exact[a] & ((neither & by_axis) | (boxes.is_flat[a] & flat))
