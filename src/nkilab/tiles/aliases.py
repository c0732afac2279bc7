"""Storages on chip at given addresses: those that overlap show each other's bytes.

Each storage keeps elements of its own; what is written to one is copied at once to the others that lie on the
same bytes and are still in use. Addresses are a partition and a byte within each partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from weakref import ref

import numpy as np

from .tile import Storage, View, settle_elements, whole_layout

# partitions from, to; bytes from, to
Rectangle = tuple[int, int, int, int]


class AddressSpace:
    """The storages of one memory, or of one region of it, that have addresses.

    Memory outlives the names of its tensors: a storage is kept until another one lies on all of its bytes.
    """

    def __init__(self) -> None:
        self._kept: list[Storage] = []
        self._covered: list[ref[Storage]] = []

    def place(self, storage: Storage, partition: int, byte: int) -> None:
        """Give a new storage an address; it shows what others wrote to the same bytes."""
        storage.place = Place(self, partition, byte)
        own = storage.place.rectangle(storage)
        kept: list[Storage] = []
        for other in self._kept:
            theirs = _place_of(other).rectangle(other)
            shared = _common(own, theirs)
            if shared is not None and other.is_known:
                _copy(other, storage, shared)
                _learn(storage, self._kept)
            if shared == theirs:
                self._covered.append(ref(other))
            else:
                kept.append(other)
        self._kept = [*kept, storage]

    def _others(self, storage: Storage) -> list[Storage]:
        """The other storages whose bytes somebody may still look at."""
        alive = [(r, other) for r in self._covered if (other := r()) is not None]
        self._covered = [r for r, _ in alive]
        return [s for s in (*self._kept, *(other for _, other in alive)) if s is not storage]

    def spread(self, view: View) -> None:
        """Copy the bytes around what was written to the other storages that lie there."""
        storage = view.storage
        written = _place_of(storage).rectangle(storage, view)
        others = self._others(storage)
        for other in others:
            shared = _common(written, _place_of(other).rectangle(other))
            if shared is not None:
                _copy(storage, other, shared)
                _learn(other, [*others, storage])


@dataclass(frozen=True)
class Place:
    """Where a storage lies.

    Args:
        space: that of the addresses.
        partition: its first partition.
        byte: its first byte in each partition.
    """

    space: AddressSpace
    partition: int
    byte: int

    def rectangle(self, storage: Storage, view: View | None = None) -> Rectangle:
        """The partitions and bytes that a storage, or a view of it, reaches over."""
        width = storage.bytes_per_partition
        first, last, low, high = 0, storage.shape[0] - 1, 0, width - 1
        if view is not None:
            reached = _reach(view, width)
            if reached is not None:
                first, last, low, high = reached
        return (
            self.partition + first,
            self.partition + last + 1,
            self.byte + low,
            self.byte + high + 1,
        )


def _place_of(storage: Storage) -> Place:
    assert isinstance(storage.place, Place)
    return storage.place


def _reach(view: View, width: int) -> Rectangle | None:
    """The first and last partition and byte of a view, both included; None if its strides do not tell."""
    known = view.layout
    first, low = divmod(view.offset * known.itemsize, width)
    last, high = first, low + known.itemsize - 1
    for axis, (count, stride) in enumerate(zip(known.shape, known.byte_strides, strict=True)):
        if stride < 0:
            return None
        if axis == known.partition_axis:
            last += (count - 1) * (stride // width)
        else:
            high += (count - 1) * stride
    return (first, last, low, high) if high < width else None


def _common(a: Rectangle, b: Rectangle) -> Rectangle | None:
    first, last, low, high = max(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), min(a[3], b[3])
    return (first, last, low, high) if first < last and low < high else None


def _part(storage: Storage, shared: Rectangle) -> tuple[slice, slice]:
    """A rectangle of addresses as slices of the bytes [P, bytes per partition] of a storage."""
    place = _place_of(storage)
    first, last, low, high = shared
    return (
        slice(first - place.partition, last - place.partition),
        slice(low - place.byte, high - place.byte),
    )


def _bytes(storage: Storage) -> np.ndarray:
    if storage.data is None:
        storage.own()
    assert storage.data is not None
    return storage.data.reshape(storage.shape[0], -1).view(np.uint8)


def _copy(source: Storage, target: Storage, shared: Rectangle) -> None:
    """Copy the bytes of a rectangle, when the calls under way have made them."""
    settle_elements()
    _bytes(target)[_part(target, shared)] = _bytes(source)[_part(source, shared)]


def _learn(target: Storage, others: list[Storage]) -> None:
    """Note which elements of a storage have bytes that were written through it or others, all of them."""
    if target.written.is_full:
        return
    own = _place_of(target).rectangle(target)
    known = _written(target)
    for other in others:
        shared = _common(own, _place_of(other).rectangle(other))
        if shared is not None and other is not target:
            known[_part(target, shared)] |= _written(other)[_part(other, shared)]
    elements = known.reshape(target.shape[0], -1, target.dtype.itemsize).all(axis=-1)
    target.written.add_where(View(target, 0, whole_layout(target)), elements.reshape(target.shape))


def _written(storage: Storage) -> np.ndarray:
    """Booleans per byte of a storage, [P, bytes per partition]."""
    bits = storage.written.bits.reshape(storage.shape[0], prod(storage.shape[1:]))
    return np.repeat(bits, storage.dtype.itemsize, axis=1)
