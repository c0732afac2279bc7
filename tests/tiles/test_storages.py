"""Storages and the layouts of views: whose elements they are, what a layout says of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkilab.errors import LimitError
from nkilab.tiles import tile as tiles
from nkilab.tiles.dtypes import DTYPES
from nkilab.tiles.tile import (
    HBM,
    PSUM,
    SBUF,
    Storage,
    View,
    array_of,
    before_reading,
    compact_strides,
    layout,
    may_repeat,
    memory_of,
    whole_layout,
)

FLOAT32, BFLOAT16 = DTYPES["float32"], DTYPES["bfloat16"]


def storage(*shape: int, memory: str = SBUF, scope: str = "tile", name: str = "t") -> Storage:
    return Storage(3, name, shape, FLOAT32, memory, scope, 7)


def whole(of: Storage) -> View:
    return View(of, 0, whole_layout(of))


@pytest.fixture
def settled() -> Iterator[list[str]]:
    """Notes when somebody waits for elements."""
    before, calls = tiles._settle, list[str]()
    before_reading(lambda: calls.append("waited"))
    yield calls
    before_reading(before)


def test_strides_of_a_shape_without_gaps_are_numpys() -> None:
    for shape in [(3, 4, 5), (7,), (2, 1, 3), ()]:
        expected = np.zeros(shape, np.int8).strides
        assert compact_strides(shape) == expected


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-7, 7)), max_size=3))
def test_a_layout_that_cannot_repeat_reads_every_element_once(axes: list[tuple[int, int]]) -> None:
    shape, strides = tuple(n for n, _ in axes), tuple(s for _, s in axes)
    places = [sum(i * s for i, s in zip(at, strides, strict=True)) for at in product(*map(range, shape))]
    if not may_repeat(shape, strides):
        assert len(set(places)) == len(places)
    # the answer may only err where axes interleave
    nested = sorted((abs(s), n) for n, s in axes if n > 1)
    if all(big >= size * small for (small, size), (big, _) in pairwise(nested)):
        assert may_repeat(shape, strides) == (len(set(places)) < len(places))


def test_an_axis_with_stride_0_repeats_and_one_of_one_element_does_not() -> None:
    assert may_repeat((3, 2), (2, 0))
    assert not may_repeat((3, 1), (2, 0))
    assert not may_repeat((2, 3), (3, 1))
    assert may_repeat((2, 3), (2, 1))


def test_a_layout_counts_partitions_and_what_each_holds() -> None:
    on_chip = layout((2, 64, 5), (320, 5, 1), BFLOAT16, SBUF, 1, 32)
    assert (on_chip.partitions, on_chip.free_size, on_chip.size) == (64, 10, 640)
    assert (on_chip.start_partition, on_chip.itemsize, on_chip.byte_strides) == (32, 2, (640, 10, 2))
    assert on_chip.is_on_chip
    assert on_chip.is_compact
    assert not on_chip.repeats
    # in HBM rows count as partitions, of one axis its elements
    assert (layout((6, 5), (5, 1), FLOAT32, HBM, None, 0).partitions) == 6
    line = layout((6,), (2,), FLOAT32, HBM, None, 0)
    assert (line.partitions, line.free_size, line.is_on_chip, line.is_compact) == (6, 1, False, False)
    assert layout((0, 5), (5, 1), FLOAT32, SBUF, 0, 0).free_size == 0


def test_equal_layouts_are_one_object() -> None:
    one = layout((4, 5), (5, 1), FLOAT32, SBUF, 0, 0)
    assert layout((4, 5), (5, 1), FLOAT32, SBUF, 0, 0) is one
    others = [
        layout((4, 5), (6, 1), FLOAT32, SBUF, 0, 0), layout((4, 5), (5, 1), BFLOAT16, SBUF, 0, 0),
        layout((4, 5), (5, 1), FLOAT32, PSUM, 0, 0), layout((4, 5), (5, 1), FLOAT32, SBUF, 1, 0),
        layout((4, 5), (5, 1), FLOAT32, SBUF, 0, 32),
    ]  # fmt: skip
    assert one not in others
    assert len(set(map(id, others))) == 5


def test_a_broadcast_layout_repeats() -> None:
    assert layout((4, 5), (1, 0), FLOAT32, SBUF, 0, 0).repeats
    assert not layout((4, 5), (10, 2), FLOAT32, SBUF, 0, 0).repeats


def test_bytes_per_partition_are_those_behind_the_first_axis() -> None:
    assert storage(128, 4, 8).bytes_per_partition == 128
    assert storage(128, 4, 8, memory=PSUM).bytes_per_partition == 128
    # HBM has no partitions: all of it
    assert storage(128, 4, 8, memory=HBM).bytes_per_partition == 16384
    assert storage(128, 4, 8).partition_stride == 32
    assert storage().partition_stride == 1


def test_a_storage_keeps_what_it_was_made_with() -> None:
    own = storage(4, 2, scope="output", name="out")
    assert (own.number, own.name, own.shape, own.dtype) == (3, "out", (4, 2), FLOAT32)
    assert (own.memory, own.scope, own.line, own.strides) == (SBUF, "output", 7, (2, 1))
    assert (own.is_mutable, storage(1, scope="input").is_mutable) == (True, False)
    assert not own.is_known
    assert own.written.is_empty


def test_a_view_is_named_in_one_line() -> None:
    assert whole(storage(4, 2)).describe() == "t: float32[4, 2] in sbuf"
    assert whole(storage(4, 2, name="", memory=PSUM)).describe() == "(unnamed): float32[4, 2] in psum"


def test_fresh_elements_are_unwritten_and_those_that_are_brought_are_written() -> None:
    fresh, brought = storage(4, 2), storage(4, 2)
    fresh.allocate()
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    brought.allocate(values)
    assert fresh.written.is_empty
    assert brought.written.is_full
    assert array_of(whole(fresh)).shape == (4, 2)
    assert np.shares_memory(array_of(whole(brought)), values)


def test_elements_that_are_lent_are_not_copied_before_a_part_is_looked_at() -> None:
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    own = storage(4, 2)
    own.lend(values)
    assert own.is_known
    assert own.written.is_full
    assert array_of(whole(own)) is values
    part = View(own, 2, layout((1, 2), (2, 1), FLOAT32, SBUF, 0, 1))
    assert array_of(part).tolist() == [[2.0, 3.0]]
    array_of(part)[...] = -1
    assert array_of(whole(own)).tolist() == [[0, 1], [-1, -1], [4, 5], [6, 7]]
    assert values.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize(
    "seen",
    [layout((4, 2), (1, 4), FLOAT32, SBUF, 0, 0), layout((2, 4), (4, 1), FLOAT32, SBUF, 0, 0),
     layout((4, 2), (2, 1), DTYPES["int32"], SBUF, 0, 0)],
    ids=["transposed", "reshaped", "as int32"],
)  # fmt: skip
def test_elements_that_are_lent_are_looked_at_otherwise_in_a_copy(seen: tiles.Layout) -> None:
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    own = storage(4, 2)
    own.lend(values)
    got = array_of(View(own, 0, seen))
    assert not np.shares_memory(got, values)
    item = np.dtype(seen.storage_dtype)
    strides = [s * item.itemsize for s in seen.strides]
    expected = np.lib.stride_tricks.as_strided(values.view(item), seen.shape, strides)
    np.testing.assert_array_equal(got, expected)


def test_a_storage_that_gets_elements_of_its_own_keeps_those_that_it_has() -> None:
    own = storage(2, 2)
    own.own()
    array_of(whole(own))[...] = 5
    own.own()
    assert array_of(whole(own)).tolist() == [[5, 5], [5, 5]]
    assert own.written.is_empty


def test_an_input_becomes_mutable_with_elements_of_its_own() -> None:
    values = np.ones((2, 2), np.float32)
    own = storage(2, 2, memory=HBM, scope="input")
    own.allocate(values)
    own.copy_on_write()
    assert own.is_mutable
    array_of(whole(own))[...] = 2
    assert values.tolist() == [[1, 1], [1, 1]]
    shapes_only = storage(2, 2, memory=HBM, scope="input")
    shapes_only.copy_on_write()
    assert (shapes_only.is_mutable, shapes_only.data) == (True, None)


def test_a_view_follows_its_storage_to_other_elements() -> None:
    own = storage(2, 2)
    own.allocate(np.zeros((2, 2), np.float32))
    view = whole(own)
    assert array_of(view)[0, 0] == 0
    own.allocate(np.ones((2, 2), np.float32))
    assert array_of(view)[0, 0] == 1


def test_a_view_begins_at_its_offset_in_elements_of_its_type() -> None:
    # hand: 1.0 is 0x3f800000, so every second half is 0x3f80
    own = storage(2, 2)
    own.allocate(np.ones((2, 2), np.float32))
    view = View(own, 1, layout((2, 2), (4, 2), DTYPES["uint16"], SBUF, 0, 0))
    assert array_of(view).tolist() == [[0x3F80] * 2] * 2


def test_whoever_looks_at_elements_waits_for_them(settled: list[str]) -> None:
    own = storage(2, 2)
    own.allocate()
    memory_of(whole(own))
    assert settled == []
    array_of(whole(own))
    assert settled == ["waited"]
    tiles.settle_elements()
    assert settled == ["waited"] * 2
    before_reading(None)
    tiles.settle_elements()
    array_of(whole(own))
    assert settled == ["waited"] * 2


def test_whole_layouts_have_partitions_on_chip_alone() -> None:
    on_chip, in_hbm = whole_layout(storage(4, 2)), whole_layout(storage(4, 2, memory=HBM))
    assert (on_chip.partition_axis, in_hbm.partition_axis) == (0, None)
    assert (on_chip.shape, on_chip.strides, on_chip.start_partition) == ((4, 2), (2, 1), 0)
    assert in_hbm.dtype is FLOAT32


def test_the_sets_of_elements_that_products_and_others_wrote_are_apart() -> None:
    own = storage(2, 2, memory=PSUM)
    own.accumulated.add(whole(own))
    assert own.accumulated.is_full
    assert own.initialised.is_empty
    own.initialised.add(View(own, 0, layout((1, 2), (2, 1), FLOAT32, PSUM, 0, 0)))
    assert own.initialised.bits.tolist() == [True, True, False, False]
    assert own.written.is_empty


# pages of 4096 bytes, for a computer of so many GiB
PAGES_OF_A_GIB = 2**18


@pytest.mark.parametrize(
    ("gib", "rows", "needed"),
    [(4, 2**20, ""), (4, 2**20 + 1, "4.0"), (4, 2**21, "8.0"), (0.5, 2**18, "1.0"), (0.5, 2**18 - 1, "")],
)
def test_elements_need_no_more_than_the_memory_of_the_computer(
    monkeypatch: pytest.MonkeyPatch, gib: float, rows: int, needed: str
) -> None:
    # rows of 1024 float32 are 4 KiB; nobody asks below one GiB
    pages = {"SC_PHYS_PAGES": int(gib * PAGES_OF_A_GIB), "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(tiles.os, "sysconf", pages.__getitem__)
    if not needed:
        tiles.check_room((rows, 1024), DTYPES["float32"])
        return
    with pytest.raises(LimitError) as caught:
        tiles.check_room((rows, 1024), DTYPES["float32"])
    assert caught.value.problem == (
        f"the elements of float32[{rows}, 1024] need {needed} GiB; this computer has {gib:.1f} GiB of memory"
    )


def test_a_tile_in_print_shows_what_nothing_wrote_as_dashes() -> None:
    storage = Storage(0, "t", (1, 3), DTYPES["float32"], SBUF, "tile", 0)
    storage.allocate(np.array([[1, 2, 3]], np.float32))
    view = View(storage, 0, tiles.whole_layout(storage))
    assert tiles.elements_text(view) == "[[1. 2. 3.]]"
    storage.written.remove_where(view, np.array([[False, True, False]]))
    assert tiles.elements_text(view) == "[[1.0 -- 3.0]]\n(-- was never written)"
    # of more than 256 elements three stand at each end
    many = Storage(1, "m", (1, 300), DTYPES["int32"], SBUF, "tile", 0)
    many.allocate(np.arange(300, dtype=np.int32)[None])
    assert tiles.elements_text(View(many, 0, tiles.whole_layout(many))) == "[[  0   1   2 ... 297 298 299]]"
