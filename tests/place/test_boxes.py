"""Boxes of accesses against the set of bytes that each access touches, by enumeration."""

from __future__ import annotations

from itertools import product
from math import prod
from random import Random

import numpy as np
import pytest

from nkilab.place.boxes import Boxes, boxes_for, overlaps_of, told_apart
from nkilab.tiles.dtypes import DTYPES
from nkilab.tiles.tile import HBM, IndexLayout, Layout, compact_strides, layout

TYPES = {1: "uint8", 2: "bfloat16", 4: "float32"}
# a view: layout and first element
Seen = tuple[Layout, int]


def seen(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, itemsize: int = 4) -> Seen:
    return layout(shape, strides, DTYPES[TYPES[itemsize]], HBM, None, 0), offset


def touched(view: Seen) -> set[int]:
    """The bytes of a view."""
    known, offset = view
    places = product(*(range(n) for n in known.shape))
    firsts = {offset + sum(i * s for i, s in zip(at, known.strides, strict=True)) for at in places}
    return {first * known.itemsize + byte for first in firsts for byte in range(known.itemsize)}


def in_box(boxes: Boxes, number: int, shape: tuple[int, ...], itemsize: int) -> set[int]:
    """The bytes that a box says it holds."""
    if boxes.is_flat[number]:
        return set(range(boxes.flat_low[number], boxes.flat_high[number]))
    sizes = (*shape[:-1], shape[-1] * itemsize)
    along = []
    for axis in range(len(sizes)):
        low, high = int(boxes.low[number, axis]), int(boxes.high[number, axis])
        step, width = int(boxes.step[number, axis]), int(boxes.width[number, axis])
        along.append([at for at in range(low, high) if (at - low) % step < width])
    strides = compact_strides(sizes)
    return {sum(i * s for i, s in zip(at, strides, strict=True)) for at in product(*along)}


def random_view(draw: Random, shape: tuple[int, ...], itemsize: int, is_plain: bool) -> Seen:
    """A rectangle of a tensor; if it need not be plain also with steps, of other types and shapes."""
    kind = "rectangle" if is_plain else draw.choice(["rectangle", "steps", "steps", "type", "shape", "any"])
    if kind == "any":
        last, axes, steps = prod(shape) - 1, [], []
        for _ in range(draw.randint(1, 3)):
            extent, stride = draw.randint(1, 4), draw.randint(0, 9)
            if (extent - 1) * stride <= last:
                axes.append(extent)
                steps.append(stride)
                last -= (extent - 1) * stride
        return seen(tuple(axes), tuple(steps), draw.randint(0, last), itemsize)
    if kind == "type":
        other = draw.choice([1, 2, 4])
        shape, itemsize = (*shape[:-1], shape[-1] * itemsize // other), other
    if kind == "shape":
        shape = draw.choice(
            [(prod(shape),), (prod(shape) // 2, 2), (2, prod(shape) // 2), (2, 3, prod(shape) // 6)]
        )
    strides, offset, extents = compact_strides(shape), 0, []
    paces = [draw.choice([1, 1, 2, 3]) if kind == "steps" else 1 for _ in shape]
    for size, stride, pace in zip(shape, strides, paces, strict=True):
        first = draw.randrange(size)
        offset += first * stride
        extents.append(draw.randint(1, (size - first - 1) // pace + 1))
    return seen(tuple(extents), tuple(s * p for s, p in zip(strides, paces, strict=True)), offset, itemsize)


SHAPES = [(4, 6), (2, 3, 4), (24,), (1, 12), (3, 1, 8)]


@pytest.mark.parametrize("seed", range(30))
def test_a_box_holds_what_its_access_touches_and_no_more_if_it_says_so(seed: int) -> None:
    draw = Random(seed)
    for shape in SHAPES:
        views = [random_view(draw, shape, 4, is_plain=False) for _ in range(8)]
        boxes = boxes_for([(0, shape, 4, *view) for view in views])
        for view, number in zip(views, boxes.of_slot.tolist(), strict=True):
            box = in_box(boxes, number, shape, 4)
            assert touched(view) <= box
            if boxes.is_exact[number]:
                assert touched(view) == box
            assert boxes.flat_low[number] == min(touched(view))
            assert boxes.flat_high[number] == max(touched(view)) + 1


@pytest.mark.parametrize("seed", range(30))
def test_rectangles_are_exact(seed: int) -> None:
    draw = Random(seed)
    for shape in SHAPES:
        views = [random_view(draw, shape, 2, is_plain=True) for _ in range(8)]
        boxes = boxes_for([(0, shape, 2, *view) for view in views])
        assert boxes.is_exact.all()
        assert not boxes.is_flat.any()
        # equal ones are one
        assert len(boxes.group) == len({frozenset(touched(view)) for view in views})


@pytest.mark.parametrize("is_plain", [True, False], ids=["rectangles", "any views"])
@pytest.mark.parametrize("seed", range(30))
def test_boxes_that_share_bytes_are_found_and_who_covers_whom(seed: int, is_plain: bool) -> None:
    draw = Random(seed)
    accesses, views = [], []
    for group, shape in enumerate(SHAPES):
        for _ in range(8):
            views.append(random_view(draw, shape, 4, is_plain))
            accesses.append((group, shape, 4, *views[-1]))
    boxes = boxes_for(accesses)
    overlaps = overlaps_of(boxes)
    for (one, a), (two, b) in product(enumerate(views), repeat=2):
        first, second = int(boxes.of_slot[one]), int(boxes.of_slot[two])
        if first == second:
            continue
        others = overlaps.other[overlaps.start[first] : overlaps.start[first + 1]].tolist()
        assert len(others) == len(set(others))
        shares = accesses[one][0] == accesses[two][0] and bool(touched(a) & touched(b))
        assert shares <= (second in others)
        if second in others:
            is_covered = overlaps.covers[overlaps.start[first] + others.index(second)]
            assert is_covered <= (touched(a) >= touched(b))
        if is_plain:
            assert (second in others) == shares
            assert not shares or is_covered == (touched(a) >= touched(b))


def test_columns_with_a_step_cover_those_of_the_same_step_within() -> None:
    # of twelve columns 0 2 4 6 8 10; 2 4 6; 1 3 5; 0 3 6 9
    views = [seen((6,), (2,), 0), seen((3,), (2,), 2), seen((3,), (2,), 1), seen((4,), (3,), 0)]
    boxes = boxes_for([(0, (12,), 4, *view) for view in views])
    overlaps = overlaps_of(boxes)
    even, few, odd, third = boxes.of_slot.tolist()
    covers = {
        number: dict(zip(*(column[overlaps.start[number] : overlaps.start[number + 1]].tolist()
                           for column in (overlaps.other, overlaps.covers)), strict=True))
        for number in (even, few, odd, third)
    }  # fmt: skip
    assert covers[even][few] is True
    assert covers[few][even] is False
    assert odd not in covers[even]
    assert odd not in covers[few]
    assert covers[even][third] is covers[third][even] is False


def test_accesses_known_by_their_interval_alone_are_not_taken_for_one() -> None:
    # [4, 6] seen as [3, 8]: columns 0 2 4 and columns 0 4 of it begin and end alike
    views = [seen((3, 3), (8, 2), 0), seen((3, 2), (8, 4), 0)]
    boxes = boxes_for([(0, (4, 6), 4, *view) for view in views])
    assert boxes.is_flat.all()
    assert len(set(boxes.of_slot.tolist())) == 2
    assert not overlaps_of(boxes).covers.any()


def test_an_access_at_an_index_that_the_run_knows_may_touch_everything() -> None:
    index = IndexLayout(layout((1, 1), (1, 1), DTYPES["int32"], "sbuf", 0, 0), False)
    moved = layout((1, 2), (6, 1), DTYPES["float32"], HBM, None, 0, (index,))
    boxes = boxes_for([(0, (4, 6), 4, moved, 0), (0, (4, 6), 4, *seen((1, 1), (6, 1), 23))])
    anywhere, last = boxes.of_slot.tolist()
    assert in_box(boxes, anywhere, (4, 6), 4) == set(range(96))
    assert not boxes.is_exact[anywhere]
    overlaps = overlaps_of(boxes)
    assert overlaps.other.tolist() == ([last, anywhere] if anywhere < last else [last, anywhere][::-1])
    assert not overlaps.covers.any()


def test_a_run_over_whole_rows_is_a_box_of_them() -> None:
    # elements 6 to 17 of [4, 6] are rows 1 and 2; of [2, 3, 4] elements 4 to 11 two rows of the first block
    boxes = boxes_for([(0, (4, 6), 4, *seen((12,), (1,), 6)), (1, (2, 3, 4), 4, *seen((8,), (1,), 4))])
    assert boxes.is_exact.all()
    assert not boxes.is_flat.any()
    one, two = boxes.of_slot.tolist()
    assert (boxes.low[one, :2].tolist(), boxes.high[one, :2].tolist()) == ([1, 0], [3, 24])
    assert (boxes.low[two].tolist(), boxes.high[two].tolist()) == ([0, 1, 0], [1, 3, 16])


def test_a_run_that_ends_within_a_row_is_known_by_its_interval() -> None:
    boxes = boxes_for([(0, (4, 6), 4, *seen((8,), (1,), 6))])
    assert (boxes.is_flat.tolist(), boxes.is_exact.tolist()) == ([True], [True])
    assert (boxes.flat_low.tolist(), boxes.flat_high.tolist()) == ([24], [56])


def test_tensors_without_axes_have_a_box() -> None:
    boxes = boxes_for([(0, (), 4, *seen((), (), 0))])
    assert (boxes.low.tolist(), boxes.high.tolist()) == ([[0]], [[4]])


@pytest.mark.parametrize("seed", range(5))
def test_accesses_of_one_memory_of_bytes_have_the_boxes_of_their_bytes(seed: int) -> None:
    draw = Random(seed)
    views = [random_view(draw, (6, 8), 1, is_plain=False) for _ in range(12)]
    plain = [view for view in views if view[0].itemsize == 1]
    boxes = boxes_for([(0, (6, 8), 1, *view) for view in plain])
    for view, number in zip(plain, boxes.of_slot.tolist(), strict=True):
        assert touched(view) <= in_box(boxes, number, (6, 8), 1)


def test_intervals_are_told_apart_where_no_chain_joins_them() -> None:
    # of label 0: 0-2 and 1-4 overlap, 4-5 only touches; label 1 begins anew; an interval within another joins
    label = np.array([0, 0, 1, 0, 1, 1])
    low = np.array([1, 4, 0, 0, 2, 9])
    high = np.array([4, 5, 8, 2, 3, 10])
    assert told_apart(label, low, high).tolist() == [0, 1, 2, 0, 2, 3]


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_the_same_boxes_overlap_however_many_pairs_are_looked_at_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of [32]: a long run, and runs of four that begin every three elements
    views = [seen((32,), (1,), 0), *(seen((4,), (1,), 3 * i) for i in range(9))]
    boxes = boxes_for([(0, (32,), 4, *view) for view in views])
    monkeypatch.setattr("nkilab.place.boxes._PAIRS_AT_ONCE", at_once)
    overlaps = overlaps_of(boxes)
    for one, first in zip(views, boxes.of_slot.tolist(), strict=True):
        others = overlaps.other[overlaps.start[first] : overlaps.start[first + 1]].tolist()
        expected = {
            second for two, second in zip(views, boxes.of_slot.tolist(), strict=True)
            if second != first and touched(one) & touched(two)
        }  # fmt: skip
        assert sorted(others) == sorted(expected)


def test_intervals_that_only_touch_share_nothing_though_a_third_joins_them() -> None:
    # [4, 6] seen as [3, 8]: none of these is a box; elements 0 to 6, 7 to 13 and 4 to 10
    views = [seen((7,), (1,), 0), seen((7,), (1,), 7), seen((7,), (1,), 4)]
    boxes = boxes_for([(0, (4, 6), 4, *view) for view in views])
    assert boxes.is_flat.all()
    left, right, middle = boxes.of_slot.tolist()
    overlaps = overlaps_of(boxes)
    neighbours = {n: overlaps.other[overlaps.start[n] : overlaps.start[n + 1]].tolist() for n in range(3)}
    assert neighbours == {left: [middle], right: [middle], middle: sorted([left, right])}


@pytest.mark.parametrize(("first", "count"), [(6, 7), (7, 7), (8, 5)])
def test_an_interval_covers_what_lies_in_it_up_to_its_ends(first: int, count: int) -> None:
    # elements 6 to 13 of [4, 6] end within a row: no box
    views = [seen((8,), (1,), 6), seen((count,), (1,), first)]
    boxes = boxes_for([(0, (4, 6), 4, *view) for view in views])
    overlaps = overlaps_of(boxes)
    long, short = boxes.of_slot.tolist()
    assert overlaps.covers[overlaps.start[long]]
    assert not overlaps.covers[overlaps.start[short]]
