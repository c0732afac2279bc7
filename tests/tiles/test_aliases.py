"""Storages at addresses: bytes that overlap are one, and outlive the names of their tensors."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab.tiles.aliases import AddressSpace
from nkilab.tiles.dtypes import FLOAT32, UINT8, DType
from nkilab.tiles.tile import SBUF, Storage, View, array_of, layout, whole_layout


def placed(space: AddressSpace, shape: tuple[int, ...], dtype: DType, partition: int, byte: int) -> View:
    """A view of everything in a new storage at an address."""
    storage = Storage(0, "", shape, dtype, SBUF, "tile", 0)
    space.place(storage, partition, byte)
    return View(storage, 0, whole_layout(storage))


def write(view: View, values: object) -> None:
    """Write to a view as an instruction does."""
    view.storage.own()
    array_of(view)[...] = values
    view.storage.written.add(view)
    assert view.storage.place is not None
    view.storage.place.space.spread(view)


def test_bytes_of_another_type_are_shared() -> None:
    space = AddressSpace()
    words, bytes_ = placed(space, (4, 2), FLOAT32, 0, 64), placed(space, (4, 8), UINT8, 0, 64)
    write(words, 1.0)
    # 1.0 is 0x3f800000, its lowest byte first
    np.testing.assert_array_equal(array_of(bytes_), [[0, 0, 128, 63] * 2] * 4)
    write(bytes_, 0)
    np.testing.assert_array_equal(array_of(words), 0)


def test_only_what_overlaps_is_shared() -> None:
    space = AddressSpace()
    low, high = placed(space, (4, 4), FLOAT32, 0, 0), placed(space, (2, 4), FLOAT32, 2, 8)
    write(low, 1.0)
    write(high, 2.0)
    # two columns of the last two partitions
    np.testing.assert_array_equal(array_of(low), [[1, 1, 1, 1]] * 2 + [[1, 1, 2, 2]] * 2)
    assert high.storage.written.is_full


def test_what_was_written_is_known_by_elements() -> None:
    space = AddressSpace()
    whole, part = placed(space, (2, 4), FLOAT32, 0, 0), placed(space, (2, 3), UINT8, 0, 4)
    write(part, 7)
    # three of the four bytes of an element are no element
    assert whole.storage.written.of(whole) == "none"
    last = placed(space, (2, 1), UINT8, 0, 7)
    write(last, 7)
    known = layout((2, 1), (4, 1), FLOAT32, SBUF, 0, 0)
    assert whole.storage.written.of(View(whole.storage, 1, known)) == "all"
    assert whole.storage.written.of(whole) == "part"


def test_memory_outlives_the_name_of_its_tensor() -> None:
    space = AddressSpace()
    first = placed(space, (2, 2), FLOAT32, 0, 0)
    write(first, 3.0)
    del first
    np.testing.assert_array_equal(array_of(placed(space, (2, 2), FLOAT32, 0, 0)), 3)


@pytest.mark.parametrize(("partition", "byte"), [(4, 0), (0, 16)])
def test_places_side_by_side_share_nothing(partition: int, byte: int) -> None:
    space = AddressSpace()
    here, there = placed(space, (4, 4), FLOAT32, 0, 0), placed(space, (4, 4), FLOAT32, partition, byte)
    write(here, 1.0)
    assert there.storage.data is None
