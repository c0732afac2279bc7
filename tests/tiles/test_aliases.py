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


@pytest.mark.parametrize("seed", range(8))
def test_storages_at_random_places_show_one_memory(seed: int) -> None:
    # the model: bytes of [partitions, bytes], and which of them were written; all in words of four bytes
    rng = np.random.default_rng(seed)
    memory, known = np.zeros((8, 64), np.uint8), np.zeros((8, 64), np.bool_)
    space = AddressSpace()
    views: list[tuple[View, int, int]] = []
    for _ in range(60):
        if len(views) < 3 or rng.random() < 0.3:
            dtype = (UINT8, FLOAT32)[rng.integers(2)]
            words = int(rng.integers(1, 7))
            shape = (int(rng.integers(1, 5)), words * 4 // dtype.itemsize)
            partition, byte = int(rng.integers(0, 4)), int(rng.integers(0, 8)) * 4
            views.append((placed(space, shape, dtype, partition, byte), partition, byte))
            if len(views) > 6:
                views.pop(int(rng.integers(len(views))))
        whole, partition, byte = views[int(rng.integers(len(views)))]
        storage = whole.storage
        size, (rows, columns) = storage.dtype.itemsize, storage.shape
        step = 4 // size
        row, column = int(rng.integers(rows)), int(rng.integers(columns // step)) * step
        count = int(rng.integers(1, rows - row + 1))
        width = int(rng.integers(1, (columns - column) // step + 1)) * step
        value = int(rng.integers(1, 100))
        lay = layout((count, width), (columns, 1), storage.dtype, SBUF, 0, row)
        write(View(storage, row * columns + column, lay), value)
        element_bytes = np.frombuffer(np.full(width, value, storage.dtype.storage).tobytes(), np.uint8)
        at = slice(byte + column * size, byte + (column + width) * size)
        memory[partition + row : partition + row + count, at] = element_bytes
        known[partition + row : partition + row + count, at] = True
        for view, p, b in views:
            if rng.random() < 0.7:
                continue  # what is not looked at may be copied later
            storage = view.storage
            storage.place.recall(storage)
            rows, width = storage.shape[0], storage.bytes_per_partition
            seen = known[p : p + rows, b : b + width]
            elements = seen.reshape(*storage.shape, storage.dtype.itemsize).all(axis=-1)
            np.testing.assert_array_equal(storage.written.bits.reshape(storage.shape), elements)
            if storage.data is not None:
                theirs = storage.data.reshape(rows, -1).view(np.uint8)
                np.testing.assert_array_equal(theirs[seen], memory[p : p + rows, b : b + width][seen])
