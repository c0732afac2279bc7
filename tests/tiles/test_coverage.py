"""Shadow bits against a NumPy array with one boolean per element."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkilab.tiles.coverage import Coverage, covers_all
from nkilab.tiles.dtypes import DTYPES
from nkilab.tiles.tile import Storage, View, layout

ITEM_DTYPES = {1: "uint8", 2: "uint16", 4: "float32"}


def storage_of(shape: tuple[int, ...], itemsize: int = 4) -> Storage:
    return Storage(0, "", shape, DTYPES[ITEM_DTYPES[itemsize]], "hbm", "tile", 0)


def view_of(
    storage: Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int = 4
) -> View:
    return View(storage, offset, layout(shape, strides, DTYPES[ITEM_DTYPES[itemsize]], "hbm", None, 0))


def elements(view: View) -> np.ndarray:
    """The storage's elements each position of a view touches, [*shape, 1 or more], by index arithmetic."""
    known, own = view.layout, view.storage.dtype.itemsize
    first = np.full(known.shape, view.offset)
    for axis, stride in enumerate(known.strides):
        first = first + stride * np.indices(known.shape)[axis]
    byte = first[..., None] * known.itemsize + np.arange(known.itemsize)
    return byte // own


@st.composite
def views(draw: st.DrawFn, storage: Storage) -> View:
    """Any view within a storage: overlapping, broadcast, reinterpreted."""
    itemsize = draw(st.sampled_from([storage.dtype.itemsize] * 3 + [1, 2, 4]))
    size = prod(storage.shape) * storage.dtype.itemsize // itemsize
    shape, strides, left = [], [], max(size - 1, 0)
    for _ in range(draw(st.integers(1, 3))):
        extent, stride = draw(st.integers(1, 6)), draw(st.integers(0, 9))
        if (extent - 1) * stride <= left:
            shape.append(extent)
            strides.append(stride)
            left -= (extent - 1) * stride
    if draw(st.booleans()):
        whole = (*storage.shape[:-1], storage.shape[-1] * storage.dtype.itemsize // itemsize)
        steps = tuple(prod(whole[axis + 1 :]) for axis in range(len(whole)))
        return view_of(storage, 0, whole, steps, itemsize)
    offset = draw(st.integers(0, left))
    return view_of(storage, offset, tuple(shape or [1]), tuple(strides or [1]), itemsize)


@given(st.data())
def test_add_remove_and_ask_agree_with_one_boolean_per_element(data: st.DataObject) -> None:
    storage = storage_of(data.draw(st.sampled_from([(4, 6), (24,), (2, 3, 4), (1, 8)])))
    covered, expected = Coverage(storage), np.zeros(prod(storage.shape), bool)
    for _ in range(data.draw(st.integers(1, 8))):
        view = data.draw(views(storage))
        cells = elements(view)
        match data.draw(st.sampled_from(["add", "add", "add_where", "remove"])):
            case "add":
                covered.add(view)
                expected[cells] = True
            case "remove":
                covered.remove(view)
                expected[cells] = False
            case "add_where":
                mask = np.array(
                    data.draw(
                        st.lists(st.booleans(), min_size=cells[..., 0].size, max_size=cells[..., 0].size)
                    )
                )
                mask = mask.reshape(view.layout.shape)
                covered.add_where(view, mask)
                expected[cells[mask]] = True
        np.testing.assert_array_equal(covered.bits, expected)
        assert covered.is_full == expected.all()
        asked = data.draw(views(storage))
        seen = expected[elements(asked)]
        assert covered.of(asked) == ("all" if seen.all() else "part" if seen.any() else "none")
        chosen = np.arange(seen[..., 0].size).reshape(asked.layout.shape) % 3 > 0
        some = seen[chosen]
        assert covered.of(asked, chosen) == ("all" if some.all() else "part" if some.any() else "none")


@given(st.data())
def test_a_view_said_to_cover_all_touches_every_element(data: st.DataObject) -> None:
    storage = storage_of(data.draw(st.sampled_from([(2, 4), (8,), (2, 2, 2)])))
    view = data.draw(views(storage))
    if covers_all(view):
        assert len(set(elements(view).reshape(-1))) == prod(storage.shape)


def test_a_view_as_long_as_its_storage_that_repeats_elements_does_not_cover_it() -> None:
    # offsets 0 1 1 2 5 6 6 7: eight positions, span of eight, elements 3 and 4 untouched
    storage = storage_of((8,))
    assert not covers_all(view_of(storage, 0, (2, 2, 2), (5, 1, 1)))


def test_the_first_bytes_of_a_storage_read_as_bytes_do_not_cover_it() -> None:
    # a [16] float32 seen as 64 bytes, the first 16 of them: same shape and strides as the storage
    storage = storage_of((16,))
    covered = Coverage(storage)
    covered.add(view_of(storage, 0, (16,), (1,), itemsize=1))
    np.testing.assert_array_equal(covered.bits, np.arange(16) < 4)


def test_overlapping_windows_do_not_count_elements_twice() -> None:
    # windows 0-2, 1-3, 2-4 of ten elements cover five, not nine
    storage = storage_of((10,))
    covered = Coverage(storage)
    covered.add(view_of(storage, 0, (3, 3), (1, 1)))
    assert not covered.is_full
    covered.add(view_of(storage, 5, (4,), (1,)))
    assert not covered.is_full
    covered.add(view_of(storage, 9, (1,), (1,)))
    assert covered.is_full


def test_every_second_half_of_reinterpreted_elements_covers_them_all() -> None:
    # [2, 8] float32 seen as uint16, its upper halves: each float is touched
    storage = storage_of((2, 8))
    covered = Coverage(storage)
    covered.add(view_of(storage, 1, (2, 8), (16, 2), itemsize=2))
    assert covered.is_full


@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_a_storage_written_row_by_row_ends_full(itemsize: int) -> None:
    storage = storage_of((4, 8))
    covered, row = Coverage(storage), 8 * 4 // itemsize
    for k in range(4):
        assert not covered.is_full
        covered.add(view_of(storage, k * row, (1, row), (row, 1), itemsize))
    assert covered.is_full


def removed(covered: Coverage, storage: Storage, how: str) -> None:
    """Uncover the first of two rows."""
    row = view_of(storage, 0, (1, 4), (4, 1))
    if how == "view":
        covered.remove(row)
    else:
        mask = np.broadcast_to([[True], [False]], (2, 4))
        covered.remove_where(view_of(storage, 0, (2, 4), (4, 1)), mask)


@pytest.mark.parametrize("how", ["view", "mask"])
def test_what_was_uncovered_and_is_covered_again_in_two_steps_is_full(how: str) -> None:
    storage = storage_of((2, 4))
    covered = Coverage(storage)
    covered.fill()
    removed(covered, storage, how)
    covered.add(view_of(storage, 0, (1, 2), (4, 1)))
    assert not covered.is_full
    covered.add(view_of(storage, 2, (1, 2), (4, 1)))
    assert covered.is_full


def test_the_last_cells_that_are_covered_make_a_storage_full() -> None:
    storage = storage_of((2, 4))
    covered = Coverage(storage)
    covered.add_cells(np.arange(6), 4)
    assert not covered.is_full
    covered.add(view_of(storage, 6, (1, 1), (4, 1)))
    assert not covered.is_full
    covered.add_cells(np.array([7]), 4)
    assert covered.is_full


def test_a_view_of_everything_in_another_order_or_type_covers_all() -> None:
    storage = storage_of((2, 4))
    assert covers_all(view_of(storage, 0, (4, 2), (1, 4)))
    assert covers_all(view_of(storage, 0, (2, 16), (16, 1), itemsize=1))
    assert not covers_all(view_of(storage, 0, (2, 3), (4, 1)))


@given(st.data())
def test_masks_and_cells_agree_with_one_boolean_per_element(data: st.DataObject) -> None:
    storage = storage_of(data.draw(st.sampled_from([(4, 6), (3, 8), (1, 8)])))
    covered, expected = Coverage(storage), np.zeros(prod(storage.shape), bool)
    for _ in range(data.draw(st.integers(1, 6))):
        itemsize = data.draw(st.sampled_from([1, 2, 4]))
        width, own = storage.shape[1] * 4 // itemsize, storage.dtype.itemsize
        match data.draw(st.sampled_from(["add", "cells", "mask", "fill", "clear"])):
            case "add":
                view = data.draw(views(storage))
                covered.add(view)
                expected[elements(view)] = True
            case "cells":
                last = storage.shape[0] * width - 1
                places = np.array(data.draw(st.lists(st.integers(0, last), max_size=6)), np.int64)
                covered.add_cells(places, itemsize)
                for place in places.tolist():
                    expected[place * itemsize // own : -(-(place + 1) * itemsize // own)] = True
            case "mask":
                view = data.draw(views(storage))
                drawn = data.draw(st.lists(st.booleans(), min_size=8, max_size=8))
                mask = np.resize(drawn, view.layout.shape)
                covered.remove_where(view, mask)
                expected[elements(view)[mask]] = False
            case "fill":
                covered.fill()
                expected[:] = True
            case "clear":
                covered.clear()
                expected[:] = False
        np.testing.assert_array_equal(covered.bits, expected)
        asked = data.draw(views(storage))
        seen = expected[elements(asked)].reshape(*asked.layout.shape, -1)
        assert covered.count(asked) == np.count_nonzero(seen.all(axis=-1))
        flat = np.arange(storage.shape[0] * width)
        by_cell = np.repeat(expected, 4).reshape(-1, itemsize).all(axis=1)
        np.testing.assert_array_equal(covered.of_cells(flat, itemsize), by_cell)
        whole = seen.all(axis=-1).reshape(asked.layout.shape)
        np.testing.assert_array_equal(covered.where(asked), whole)
        np.testing.assert_array_equal(covered.missing(asked), ~whole)
