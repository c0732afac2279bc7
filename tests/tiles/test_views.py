"""Views without data movement, against NumPy's views of the same elements."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkilab.dialects.indexing import basic as sliced
from nkilab.errors import RuleError
from nkilab.tiles.dtypes import DTYPES, as_dtype
from nkilab.tiles.tile import Storage, View, array_of, layout, whole_layout
from nkilab.tiles.views import broadcast, derived, padding_hint, reinterpreted, reshaped

SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


def view_on(array: np.ndarray, memory: str = "hbm") -> View:
    storage = Storage(0, "t", array.shape, as_dtype(array.dtype), memory, "tile", 0)
    storage.allocate(array)
    return View(storage, 0, whole_layout(storage))


def counted(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(prod(shape), dtype=np.float32).reshape(shape)


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An integer or a non-empty slice per axis, at least one of them a slice."""
    key: list[Any] = []
    for size in shape:
        start = draw(st.integers(0, size - 1))
        stop, step = draw(st.integers(start + 1, size)), draw(st.integers(1, 3))
        key.append(draw(st.sampled_from([start, slice(start, stop, step), slice(start, stop, step)])))
    if not any(isinstance(k, slice) for k in key):
        key[-1] = slice(0, shape[-1], 1)
    return tuple(key)


def assert_same_view(view: View, expected: np.ndarray) -> None:
    array = array_of(view)
    np.testing.assert_array_equal(array, expected)
    assert array.size == 0 or np.shares_memory(array, view.storage.data)


@given(st.data())
def test_slices_read_what_numpy_reads(data: st.DataObject) -> None:
    array = counted(data.draw(SHAPES))
    view = view_on(array)
    for _ in range(2):
        key = data.draw(keys(array.shape))
        array, view = array[key], sliced(view, key)
        assert_same_view(view, array)


@given(st.data())
def test_an_indexed_partition_stays_as_a_leading_axis_of_one(data: st.DataObject) -> None:
    array = counted((8, *data.draw(SHAPES)))
    view = view_on(array, "sbuf")
    row = data.draw(st.integers(0, 7))
    picked = sliced(view, (row, *(slice(0, n, 1) for n in array.shape[1:])))
    assert_same_view(picked, array[row : row + 1])
    assert (picked.layout.partition_axis, picked.layout.start_partition) == (0, row)


@given(st.data())
def test_reshape_is_a_view_exactly_where_numpy_needs_no_copy(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    array = counted(shape)
    view = view_on(array)
    key = data.draw(keys(shape))
    array, view = array[key], sliced(view, key)
    if data.draw(st.booleans()):
        order = data.draw(st.permutations(range(array.ndim)))
        array = array.transpose(order)
        known = view.layout
        view = derived(
            view,
            view.offset,
            tuple(known.shape[a] for a in order),
            tuple(known.strides[a] for a in order),
            None,
        )
    target = data.draw(st.sampled_from(factorings(array.size)))
    try:
        expected = np.reshape(array, target, copy=False)
    except ValueError:
        with pytest.raises(RuleError, match="without a copy"):
            reshaped(view, target, None)
        return
    assert_same_view(reshaped(view, target, None), expected)


def factorings(size: int) -> list[tuple[int, ...]]:
    """Shapes of up to three axes with this many elements."""
    pairs = [(a, size // a) for a in range(1, size + 1) if size % a == 0]
    triples = [(a, b, rest // b) for a, rest in pairs for b in range(1, rest + 1) if rest % b == 0]
    return [(size,), *pairs, *triples]


def test_axes_that_lie_side_by_side_are_one_run_where_others_leave_gaps() -> None:
    # three of six rows of four in each of two blocks: 12 elements in a row, then a gap of 12
    view = sliced(view_on(counted((2, 6, 4))), (slice(0, 2, 1), slice(0, 3, 1), slice(0, 4, 1)))
    for shape, strides in (((2, 12), (24, 1)), ((2, 2, 6), (24, 6, 1)), ((2, 4, 3), (24, 3, 1))):
        assert reshaped(view, shape, None).layout.strides == strides


@given(st.data())
def test_minus_one_in_a_reshape_is_what_remains(data: st.DataObject) -> None:
    array = counted(data.draw(SHAPES))
    target = list(data.draw(st.sampled_from(factorings(array.size))))
    expected = tuple(target)
    target[data.draw(st.integers(0, len(target) - 1))] = -1
    assert reshaped(view_on(array), tuple(target), None).layout.shape == expected


@given(st.data())
def test_broadcasts_read_what_numpy_broadcasts(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    shape = tuple(data.draw(st.sampled_from([1, n])) for n in shape)
    target = (
        *data.draw(st.sampled_from([(), (2,), (2, 3)])),
        *(data.draw(st.integers(1, 4)) if n == 1 else n for n in shape),
    )
    array = counted(shape)
    assert_same_view(broadcast(view_on(array), target), np.broadcast_to(array, target))


@given(st.data())
def test_reinterpretations_read_what_numpy_views_read(data: st.DataObject) -> None:
    old = data.draw(st.sampled_from(["float32", "int32", "bfloat16", "float16", "uint8", "float8_e5m2"]))
    new = data.draw(st.sampled_from(["float32", "int32", "bfloat16", "uint16", "int8", "float8_e4m3"]))
    shape = (data.draw(st.integers(1, 4)), data.draw(st.sampled_from([4, 8])) * 4)
    raw = np.arange(prod(shape) * DTYPES[old].itemsize, dtype=np.uint8) % 120
    array = raw.view(DTYPES[old].storage).reshape(shape)
    view = reinterpreted(view_on(array), DTYPES[new])
    expected = array.view(np.uint8).reshape(shape[0], -1).view(DTYPES[new].storage)
    assert array_of(view).tobytes() == expected.tobytes()
    assert array_of(view).dtype == DTYPES[new].storage
    assert view.layout.shape == expected.shape


def test_a_bfloat16_tile_reads_as_uint16() -> None:
    # hand: 1.0 is 0x3f80
    view = view_on(np.ones((2, 4), DTYPES["bfloat16"].storage), "sbuf")
    assert array_of(reinterpreted(view, DTYPES["uint16"])).tolist() == [[0x3F80] * 4] * 2


def test_a_reinterpretation_of_a_row_keeps_its_partition() -> None:
    view = sliced(view_on(counted((64, 8)), "sbuf"), (slice(32, 64, 1), slice(0, 8, 1)))
    assert reinterpreted(view, DTYPES["uint8"]).layout.start_partition == 32


def test_a_reinterpretation_that_starts_within_an_element_is_refused() -> None:
    view = view_on(np.zeros((4, 16), np.uint8), "sbuf")
    with pytest.raises(RuleError) as caught:
        reinterpreted(sliced(view, (slice(0, 4, 1), slice(1, 5, 1))), DTYPES["float32"])
    assert str(caught.value) == "a view of uint8[4, 4] in sbuf as float32 starts at byte 1, no multiple of 4"


def test_a_reinterpretation_of_a_strided_row_is_refused() -> None:
    view = sliced(view_on(counted((4, 8))), (slice(0, 4, 1), slice(0, 8, 2)))
    with pytest.raises(RuleError) as caught:
        reinterpreted(view, DTYPES["uint8"])
    assert str(caught.value) == (
        "a view of float32[4, 4] in hbm as uint8 needs a contiguous last axis of a multiple of 1 bytes; "
        "it is 16 bytes with stride 2"
    )


def test_a_reshape_to_another_size_names_both() -> None:
    with pytest.raises(RuleError) as caught:
        reshaped(view_on(counted((3, 4))), (5, 2), None)
    assert str(caught.value) == "a tensor of 12 elements [3, 4] does not reshape to [5, 2], which has 10"


def test_a_reshape_with_a_remainder_that_does_not_divide_is_refused() -> None:
    with pytest.raises(RuleError) as caught:
        reshaped(view_on(counted((3, 4))), (5, -1), None)
    assert str(caught.value) == "a tensor of 12 elements [3, 4] does not reshape to [5, -1]"


def test_a_reshape_that_needs_a_copy_says_what_to_do() -> None:
    view = sliced(view_on(counted((3, 4))), (slice(0, 3, 1), slice(0, 2, 1)))
    with pytest.raises(RuleError) as caught:
        reshaped(view, (6,), None)
    assert str(caught.value) == (
        "the view [3, 2] with strides [4, 1] has no reshape to [6] without a copy\n"
        "  hint: reshape before slicing, or copy the slice to a tile of its own"
    )


def test_a_broadcast_of_a_larger_axis_is_refused() -> None:
    with pytest.raises(RuleError) as caught:
        broadcast(view_on(counted((3, 4))), (3, 8))
    assert str(caught.value) == "shape [3, 4] does not broadcast to [3, 8]"


@pytest.mark.parametrize(
    ("few", "many", "hint"),
    [
        # axes are compared from the last, as NumPy does: 4 stands over against 3
        ((4, 8), (4, 3, 8), "reshape [4, 8] to [4, 1, 8]: axes are compared from the last"),
        ((4, 1), (4, 3, 8), "reshape [4, 1] to [4, 1, 1]: axes are compared from the last"),
        ((4, 8), (5, 3, 8), ""),
        ((4, 8), (2, 3, 8), ""),
        ((4, 8), (4, 3, 7), ""),
        ((4, 8), (4, 8), ""),
        ((4, 3, 8), (4, 8), ""),
    ],
)
def test_a_shape_of_fewer_axes_is_told_with_the_axes_that_it_lacks(few: Any, many: Any, hint: str) -> None:
    assert padding_hint(few, many) == hint
    if hint:
        padded = few[:1] + (1,) * (len(many) - len(few)) + few[1:]
        assert np.broadcast_shapes(padded, many) == many


def test_two_negative_extents_are_no_shape_though_their_product_counts_the_elements() -> None:
    with pytest.raises(RuleError) as caught:
        reshaped(view_on(counted((6,))), (-2, -3), None)
    assert caught.value.problem == "a tensor of 6 elements [6] does not reshape to [-2, -3], which has 6"


def test_no_elements_reshape_to_no_elements() -> None:
    storage = Storage(0, "t", (2, 3), as_dtype("float32"), "hbm", "tile", 0)
    none = View(storage, 0, layout((0, 3), (3, 1), storage.dtype, "hbm", None, 0))
    assert reshaped(none, (3, 0), None).layout.shape == (3, 0)
