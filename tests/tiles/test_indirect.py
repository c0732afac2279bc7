"""Views whose address the run knows, against NumPy's indexing of the same elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nkilab.errors import RuleError
from nkilab.tiles import tile as tiles
from nkilab.tiles.dtypes import DTYPES, as_dtype
from nkilab.tiles.indirect import (
    OutOfBoundsError,
    UnwrittenError,
    cells,
    check_scalars,
    elements_of,
    flat,
    gathered,
    numbers_in,
    reach,
    rows_of,
    scalar_values,
    scattered,
    settled,
)
from nkilab.tiles.tile import HBM, Index, Storage, View, array_of, before_reading, layout, whole_layout
from nkilab.tiles.views import derived, indexed, reinterpreted


def view_on(values: Any, memory: str = HBM, name: str = "t") -> View:
    """A view of everything in a storage with some elements, all of them written."""
    array = np.ascontiguousarray(values)
    storage = Storage(0, name, array.shape, as_dtype(array.dtype), memory, "tile", 0)
    storage.allocate(array)
    return View(storage, 0, whole_layout(storage))


def counted(*shape: int) -> View:
    return view_on(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))


def window(view: View, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
    """Some elements of a tensor in HBM."""
    return View(view.storage, offset, layout(shape, strides, view.layout.dtype, HBM, None, 0))


def integers(*values: Any) -> View:
    """Indices in a tile of [N, 1]."""
    return view_on(np.array(values, np.int32).reshape(-1, 1), "sbuf", "i")


def rows_at(view: View, indices: View, width: int, extent: int, offset: int = 0) -> View:
    """As many rows of a matrix as there are indices, `width` columns from one on."""
    columns = view.storage.shape[1]
    base = window(view, offset, (indices.layout.size, width), (columns, 1))
    return indexed(base, Index(indices, columns * view.layout.itemsize, extent, True))


def at_number(view: View, value: int, step_bytes: int, extent: int) -> View:
    """A view with one index more, which is a number."""
    return indexed(view, Index(integers(value), step_bytes, extent, False))


def test_indices_are_read_partitions_first() -> None:
    # the first column of the tile, then the second
    view = view_on(np.array([[1, 4], [2, 5], [3, 6]], np.uint16), "sbuf")
    assert numbers_in(view).tolist() == [1, 2, 3, 4, 5, 6]
    assert numbers_in(view, 4).tolist() == [1, 2, 3, 4]
    assert numbers_in(view).dtype == np.int64


def test_a_scalar_index_moves_a_view_by_its_step() -> None:
    # element 2 of [5, 4] float32, then 3 rows of 16 bytes further
    view = at_number(window(counted(5, 4), 2, (1, 2), (4, 1)), 3, 16, 5)
    assert scalar_values(view) == [3]
    place = settled(view, scalar_values(view))
    assert (place.offset, place.indices, place.layout.indices) == (14, (), ())
    np.testing.assert_array_equal(array_of(place), [[14.0, 15.0]])


def test_two_scalar_indices_add_up() -> None:
    view = at_number(at_number(window(counted(5, 4), 0, (1, 1), (4, 1)), 2, 16, 5), 3, 4, 4)
    assert scalar_values(view) == [2, 3]
    assert settled(view, [2, 3]).offset == 11
    assert settled(view, None).offset == 0


def test_steps_of_indices_count_bytes_of_the_type_that_is_looked_at() -> None:
    # [5, 4] float32 as uint8: one row is 16 of its elements
    view = at_number(reinterpreted(counted(5, 4), DTYPES["uint8"]), 1, 16, 5)
    assert settled(view, [1]).offset == 16
    assert elements_of(view) == 80


def test_a_view_without_scalar_indices_is_settled() -> None:
    view = counted(2, 2)
    assert settled(view, None) is view
    gathers = rows_at(counted(5, 4), integers(1, 2), 4, 5)
    assert settled(gathers, []) is gathers


def test_a_vector_of_indices_stays_where_a_scalar_one_is_settled() -> None:
    view = at_number(rows_at(counted(5, 4), integers(3, 1), 2, 5), 2, 4, 4)
    place = settled(view, [2])
    assert place.offset == 2
    assert place.layout.is_gathered
    assert [index.is_vector for index in place.indices] == [True]
    np.testing.assert_array_equal(array_of(gathered(place, rows_of(place, skips=False))), [[14, 15], [6, 7]])


@pytest.mark.parametrize(("value", "is_fine"), [(-1, False), (0, True), (4, True), (5, False)])
def test_a_scalar_index_lies_on_its_axis(value: int, is_fine: bool) -> None:
    view = at_number(window(counted(5, 4), 0, (1, 4), (4, 1)), value, 16, 5)
    if is_fine:
        check_scalars(view, [value])
        return
    with pytest.raises(OutOfBoundsError) as caught:
        check_scalars(view, [value])
    assert str(caught.value) == (
        f"the index of t: float32[1, 4] in hbm at a run-time offset is {value}; the axis has 5 elements\n"
        "  hint: correct the index, or pass oob_mode=nisa.oob_mode.skip to leave such rows out\n"
        "  source: nki.isa.dma_copy, oob_mode\n"
        "  key: err_tensor_access_out_of_bound"
    )
    assert (caught.value.element, caught.value.size) == (value * 4, 20)


@pytest.mark.parametrize(("value", "is_fine"), [(2, True), (3, False)])
def test_a_view_that_an_index_moves_ends_within_its_tensor(value: int, is_fine: bool) -> None:
    # three of five rows: the last of them is two rows behind the index
    view = at_number(window(counted(5, 4), 0, (3, 4), (4, 1)), value, 16, 5)
    if is_fine:
        check_scalars(view, [value])
        return
    with pytest.raises(OutOfBoundsError) as caught:
        check_scalars(view, [value])
    assert str(caught.value).splitlines()[0] == (
        "t: float32[3, 4] in hbm at a run-time offset with an index of [3] reaches elements 12 to 23; "
        "the tensor has 20"
    )
    assert (caught.value.element, caught.value.size) == (23, 20)


def test_a_view_that_runs_backwards_begins_within_its_tensor() -> None:
    # columns 3, 2, 1, 0 of a row, and with an index of 1 the same one row further
    backwards = window(counted(5, 4), 3, (1, 4), (4, -1))
    assert reach(backwards) == (-3, 0)
    view = at_number(backwards, 1, 16, 5)
    check_scalars(view, [1])
    before = at_number(window(counted(5, 4), 2, (1, 4), (4, -1)), 0, 16, 5)
    with pytest.raises(OutOfBoundsError, match=r"reaches elements -1 to 2; the tensor has 20"):
        check_scalars(before, [0])


def test_the_reach_of_a_view_counts_its_axes_from_one_on() -> None:
    view = window(counted(6, 4), 0, (3, 2, 2), (8, 4, 2))
    assert (reach(view), reach(view, from_axis=1), reach(view, from_axis=3)) == ((0, 22), (0, 6), (0, 0))


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_gathered_as_numpy_takes_them(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows, columns, count = 9, 7, 5
    start, width = int(draw.integers(0, 3)), int(draw.integers(1, 5))
    tensor, indices = counted(rows, columns), draw.integers(0, rows, count)
    view = rows_at(tensor, integers(*indices), width, rows, start)
    copy = gathered(view, rows_of(view, skips=False))
    np.testing.assert_array_equal(array_of(copy), array_of(tensor)[indices, start : start + width])
    assert copy.storage.written.is_full
    # a storage of its own
    array_of(copy)[...] = -1
    assert (array_of(tensor) >= 0).all()


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_scattered_as_numpy_puts_them(seed: int) -> None:
    draw = np.random.default_rng(seed)
    tensor, indices = counted(9, 7), draw.integers(0, 9, 5)
    expected = array_of(tensor).copy()
    values = -1 - np.arange(15, dtype=np.float32).reshape(5, 3)
    # of equal indices the last row stays
    for row, own in zip(indices, values, strict=True):
        expected[row, 2:5] = own
    view = rows_at(tensor, integers(*indices), 3, 9, 2)
    scattered(view, rows_of(view, skips=False), view_on(values, "sbuf"))
    np.testing.assert_array_equal(array_of(tensor), expected)


def test_three_axes_are_gathered_in_the_order_of_the_view() -> None:
    # [6, 4] as blocks: index k begins at row k, then every second column of two rows
    tensor = counted(6, 4)
    base = window(tensor, 0, (2, 2, 2), (0, 4, 2))
    view = indexed(base, Index(integers(3, 1), 16, 5, True))
    expected = [[[12, 14], [16, 18]], [[4, 6], [8, 10]]]
    np.testing.assert_array_equal(array_of(gathered(view, rows_of(view, skips=False))), expected)
    np.testing.assert_array_equal(cells(view, np.array([12, 4])), expected)


def test_two_vectors_of_indices_add_up() -> None:
    # rows 1, 0, 4 and of each the column 2, 3, 0
    tensor = counted(5, 4)
    view = rows_at(tensor, integers(1, 0, 4), 1, 5)
    both = indexed(view, Index(integers(2, 3, 0), 4, 4, True))
    rows = rows_of(both, skips=False)
    assert rows.starts.tolist() == [6, 3, 16]
    np.testing.assert_array_equal(array_of(gathered(both, rows)), [[6], [3], [16]])


@pytest.mark.parametrize("value", [-1, 5])
def test_a_row_out_of_bounds_is_refused_with_its_index(value: int) -> None:
    view = rows_at(counted(5, 4), integers(0, value, 7), 4, 5)
    with pytest.raises(OutOfBoundsError) as caught:
        rows_of(view, skips=False)
    assert str(caught.value) == (
        f"row 1 of t: float32[3, 4] in hbm at run-time rows has the index {value}; the axis has 5 elements\n"
        "  hint: correct the index, or pass oob_mode=nisa.oob_mode.skip to leave such rows out\n"
        "  source: nki.isa.dma_copy, oob_mode\n"
        "  key: err_tensor_access_out_of_bound"
    )
    assert (caught.value.element, caught.value.size) == (value * 4, 20)


def test_a_row_that_ends_behind_its_tensor_is_refused() -> None:
    # the last row from its second column on, four wide: elements 17 to 20 of 20
    view = rows_at(counted(5, 4), integers(3, 4), 4, 5, offset=1)
    assert rows_of(view, skips=True).are_in.tolist() == [True, False]
    with pytest.raises(OutOfBoundsError, match=r"row 1 of .* has the index 4; the axis has 5 elements"):
        rows_of(view, skips=False)


def test_rows_that_are_left_out_are_not_written() -> None:
    view = rows_at(counted(5, 2), integers(4, -1, 0, 5), 2, 5)
    rows = rows_of(view, skips=True)
    assert rows.are_in.tolist() == [True, False, True, False]
    copy = gathered(view, rows)
    np.testing.assert_array_equal(array_of(copy)[[0, 2]], [[8, 9], [0, 1]])
    written = np.repeat([True, False, True, False], 2)
    np.testing.assert_array_equal(copy.storage.written.bits, written)


def test_rows_out_of_bounds_are_scattered_nowhere() -> None:
    tensor = counted(3, 2)
    view = rows_at(tensor, integers(2, 3, -1), 2, 3)
    scattered(view, rows_of(view, skips=True), view_on(np.full((3, 2), -9, np.float32), "sbuf"))
    np.testing.assert_array_equal(array_of(tensor), [[0, 1], [2, 3], [-9, -9]])


def test_what_was_not_written_is_gathered_as_not_written() -> None:
    # of a [4, 3] only column 1 was written
    storage = Storage(0, "t", (4, 3), DTYPES["float32"], HBM, "tile", 0)
    storage.allocate()
    whole = View(storage, 0, whole_layout(storage))
    array_of(whole)[...] = 1
    storage.written.add(window(whole, 1, (4, 1), (3, 1)))
    view = rows_at(whole, integers(2, 0), 2, 4)
    copy = gathered(view, rows_of(view, skips=False))
    assert copy.storage.written.bits.reshape(2, 2).tolist() == [[False, True], [False, True]]


def test_nothing_of_an_unwritten_tensor_is_written_when_it_is_gathered() -> None:
    storage = Storage(0, "t", (4, 3), DTYPES["float32"], HBM, "tile", 0)
    storage.allocate()
    view = rows_at(View(storage, 0, whole_layout(storage)), integers(2, 0), 2, 4)
    assert gathered(view, rows_of(view, skips=False)).storage.written.is_empty


def test_what_was_not_written_is_not_scattered() -> None:
    storage = Storage(0, "s", (2, 2), DTYPES["float32"], "sbuf", "tile", 0)
    storage.allocate()
    copy = View(storage, 0, whole_layout(storage))
    array_of(copy)[...] = [[-1, -2], [-3, -4]]
    storage.written.add(View(storage, 1, layout((2, 1), (2, 1), DTYPES["float32"], "sbuf", 0, 0)))
    target = Storage(0, "t", (3, 2), DTYPES["float32"], HBM, "tile", 0)
    target.allocate()
    view = rows_at(View(target, 0, whole_layout(target)), integers(2, 0), 2, 3)
    array_of(window(view, 0, (3, 2), (2, 1)))[...] = 0
    scattered(view, rows_of(view, skips=False), copy)
    np.testing.assert_array_equal(flat(view), [0, -4, 0, 0, 0, -2])
    assert target.written.bits.tolist() == [False, True, False, False, False, True]


def test_a_tensor_that_is_scattered_over_gets_elements_of_its_own() -> None:
    # what it was lent stays as it is
    lent = np.zeros((2, 2), np.float32)
    storage = Storage(0, "t", (2, 2), DTYPES["float32"], HBM, "tile", 0)
    storage.lend(lent)
    view = rows_at(View(storage, 0, whole_layout(storage)), integers(1), 2, 2)
    scattered(view, rows_of(view, skips=False), view_on(np.ones((1, 2), np.float32), "sbuf"))
    np.testing.assert_array_equal(flat(view), [0, 0, 1, 1])
    np.testing.assert_array_equal(lent, 0)


def test_the_axis_that_indices_select_stays_as_it_is() -> None:
    view = rows_at(counted(5, 4), integers(3, 1, 2), 4, 5)
    narrow = derived(view, 1, (3, 2), (0, 1), None)
    np.testing.assert_array_equal(
        array_of(gathered(narrow, rows_of(narrow, skips=False))), [[13, 14], [5, 6], [9, 10]]
    )
    for shape, strides in (((2, 4), (0, 1)), ((3, 4), (4, 1))):
        with pytest.raises(RuleError) as caught:
            derived(view, 0, shape, strides, None)
        assert str(caught.value) == (
            "axis 0 of float32[3, 4] in hbm at run-time rows, which the indices select, is sliced or "
            "reshaped; it stays as it is\n"
            "  hint: slice the indices instead\n"
            "  source: NKI access pattern guide, vector dynamic access"
        )


def test_elements_are_waited_for_before_rows_are_taken_or_put() -> None:
    before, calls = tiles._settle, list[str]()
    tensor = counted(5, 4)
    before_reading(lambda: calls.append("waited"))
    try:
        flat(tensor)
    finally:
        before_reading(before)
    assert calls == ["waited"]


def test_an_index_is_an_integer_on_chip() -> None:
    numbers = view_on(np.zeros((1, 1), np.float32), "sbuf")
    with pytest.raises(RuleError) as caught:
        indexed(counted(5, 4), Index(numbers, 16, 5, False))
    assert str(caught.value) == (
        "the index is float32[1, 1] in sbuf; it must be an integer in sbuf or a register"
    )
    with pytest.raises(RuleError, match=r"^the index is int32\[1, 1\] in hbm; it must be an integer in sbuf"):
        indexed(counted(5, 4), Index(view_on(np.zeros((1, 1), np.int32)), 16, 5, False))


def test_a_scalar_index_is_one_element() -> None:
    with pytest.raises(RuleError, match=r"^the index is int32\[2, 1\] in sbuf; it must have one element"):
        indexed(counted(5, 4), Index(integers(0, 1), 16, 5, False))


def test_there_is_an_index_for_each_row() -> None:
    with pytest.raises(RuleError, match=r"^4 indices are given for 5 rows"):
        indexed(counted(5, 4), Index(integers(0, 1, 2, 3), 16, 5, True))
    # more than needed are not looked at
    view = indexed(counted(5, 4), Index(integers(4, 3, 2, 1, 0, 99), 16, 5, True))
    expected = np.arange(20).reshape(5, 4)[::-1]
    np.testing.assert_array_equal(array_of(gathered(view, rows_of(view, skips=False))), expected)


def test_a_layout_says_whether_the_run_knows_its_offset_or_its_rows() -> None:
    assert str(at_number(counted(5, 4), 0, 16, 5).layout) == "float32[5, 4] in hbm at a run-time offset"
    gathers = rows_at(counted(5, 4), integers(0, 1), 4, 5)
    assert str(gathers.layout) == "float32[2, 4] in hbm at run-time rows"


def test_numbers_are_read_partitions_first_as_far_as_they_were_written() -> None:
    storage = tiles.Storage(0, "rows", (2, 3), DTYPES["int32"], "sbuf", "tile", 0)
    storage.allocate(np.array([[1, 2, 3], [4, 5, 6]], np.int32))
    view = tiles.View(storage, 0, tiles.whole_layout(storage))
    assert numbers_in(view).tolist() == [1, 4, 2, 5, 3, 6]
    # the third, in the order of partitions, goes: the first of the second column
    storage.written.remove_where(view, np.array([[False, True, False], [False, False, False]]))
    assert numbers_in(view, 2).tolist() == [1, 4]
    for count in (3, None):
        with pytest.raises(UnwrittenError, match="was written in part only"):
            numbers_in(view, count)
    storage.written.clear()
    with pytest.raises(UnwrittenError, match="was never written"):
        numbers_in(view, 1)
