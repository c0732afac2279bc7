"""Storages on chip at given addresses: those that overlap show each other's bytes.

Each storage keeps elements of its own; what is written to one is copied at once to the others that lie on the
same bytes and are still in use. What lay there before a storage came is copied when somebody reads elements
that it was not given: most tiles are written whole first. Addresses are a partition and a byte within each
partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from weakref import ref

import numpy as np
from msgspec import Struct, field

from .tile import Storage, View, layout, settle_elements

# partitions from, to; bytes from, to
Rectangle = tuple[int, int, int, int]


class AddressSpace:
    """The storages of one memory, or of one region of it, that have addresses.

    Memory outlives the names of its tensors: a storage is kept until another one lies on all of its bytes.

    Args:
        is_memory: whether it is a whole memory, not a piece that lies anywhere in one.
    """

    def __init__(self, *, is_memory: bool = False) -> None:
        self.is_memory = is_memory
        # among those of a program
        self.number: int | None = None
        self._kept: list[Storage] = []
        self._covered: list[ref[Storage]] = []

    def place(self, storage: Storage, partition: int, byte: int, *, inherits: bool = True) -> None:
        """Give a new storage an address.

        Args:
            storage: without elements yet.
            partition: the first one.
            byte: the first one in each partition.
            inherits: whether it shows what others wrote to the same bytes before it came.
        """
        bounds = (partition, partition + storage.shape[0], byte, byte + storage.bytes_per_partition)
        place = storage.place = Place(self, partition, byte, bounds)
        self._covered = [r for r in self._covered if r() is not None]
        covered = (other for r in self._covered if (other := r()) is not None)
        kept = [(other, _common(bounds, _place_of(other).bounds)) for other in self._kept]
        overlaps = [(other, shared) for other, shared in kept if shared is not None]
        for other in covered:
            if _common(bounds, _place_of(other).bounds):
                _meet(storage, other)
        for other, shared in overlaps:
            _meet(storage, other)
            if inherits:
                place.follow(other, shared)
        self._covered += [ref(other) for other, shared in overlaps if shared == _place_of(other).bounds]
        self._kept = [other for other, shared in kept if shared != _place_of(other).bounds] + [storage]

    def spread(self, view: View) -> None:
        """Copy the bytes around what was written to the other storages that lie there."""
        storage = view.storage
        place = _place_of(storage)
        if storage.written.is_full:
            place.before.clear()
        if not place.neighbours:
            return
        written = place.rectangle(storage, view)
        for other in place.others():
            shared = _common(written, _place_of(other).bounds)
            if shared is not None:
                _show(storage, other, shared)


class Place(Struct, frozen=True):
    """Where a storage lies."""

    space: AddressSpace  # that of the addresses
    partition: int  # its first partition
    byte: int  # its first byte in each partition
    bounds: Rectangle  # all of its partitions and bytes
    # the storages that overlap it; dead ones go when they are next looked for
    neighbours: list[ref[Storage]] = field(default_factory=list)
    # the storages that lay there when it came, with what they have in common, until that is copied
    before: list[tuple[Storage, Rectangle]] = field(default_factory=list)

    def follow(self, other: Storage, shared: Rectangle) -> None:
        """Note that a storage, or those it follows if it is still empty, lies here before its own comes."""
        earlier = _place_of(other)
        if other.is_known:
            earlier.recall(other)
            self.before.append((other, shared))
            return
        for known_rectangle, rectangle in earlier.before:
            common = _common(shared, rectangle)
            if common is not None:
                self.before.append((known_rectangle, common))

    def recall(self, storage: Storage) -> None:
        """Copy what lay here before the storage came to the elements that nobody wrote since."""
        if not self.before:
            return
        before = list(self.before)
        self.before.clear()
        if not storage.written.is_full:
            for other, shared in before:
                _show(other, storage, shared, keeps=True)

    def others(self) -> Iterator[Storage]:
        """The storages that overlap it and whose bytes somebody may still look at."""
        alive = [(r, other) for r in self.neighbours if (other := r()) is not None]
        self.neighbours[:] = [r for r, _ in alive]
        return (other for _, other in alive)

    def rectangle(self, storage: Storage, view: View) -> Rectangle:
        """The partitions and bytes that a view of the storage reaches over."""
        reached = _reach(view, storage.bytes_per_partition)
        if reached is None:
            return self.bounds
        first, last, low, high = reached
        return self.partition + first, self.partition + last + 1, self.byte + low, self.byte + high + 1


def _place_of(storage: Storage) -> Place:
    assert isinstance(storage.place, Place)
    return storage.place


def _meet(one: Storage, other: Storage) -> None:
    """Let two storages that overlap know each other."""
    _place_of(one).neighbours.append(ref(other))
    _place_of(other).neighbours.append(ref(one))


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


def _show(source: Storage, target: Storage, shared: Rectangle, *, keeps: bool = False) -> None:
    """Copy the bytes of a rectangle, when the calls under way have made them, and note what is written.

    Args:
        source: whose bytes.
        target: where they are shown too.
        shared: the rectangle.
        keeps: whether elements of the target that are written stay.
    """
    settle_elements()
    shown, source_bytes = _bytes(target)[_part(target, shared)], _bytes(source)[_part(source, shared)]
    if keeps and not target.written.is_empty:
        np.copyto(shown, source_bytes, where=~_written(shared, [target]))
    else:
        shown[...] = source_bytes
    if not target.written.is_full:
        _learn(source, target, shared)


def _learn(source: Storage, target: Storage, shared: Rectangle) -> None:
    """Note which elements of the target in a rectangle have bytes that were written, all of them."""
    size = target.dtype.itemsize
    rows, columns = _part(target, shared)
    first, last = columns.start // size, -(-columns.stop // size)
    width = target.bytes_per_partition // size
    known = layout(
        (rows.stop - rows.start, last - first), (width, 1), target.dtype, target.memory, 0, rows.start
    )
    part = View(target, rows.start * width + first, known)
    is_whole = not columns.start % size and not columns.stop % size
    if is_whole and source.written.is_full:
        target.written.add(part)
    elif not is_whole or not source.written.is_empty:
        # an element that lies on several storages is written when all of its bytes are
        writers = [source] if is_whole else [target, *_place_of(target).others()]
        written = _written((shared[0], shared[1], *_bytes_of(target, first, last)), writers)
        # all bytes of an element at once: a word of ones
        ones = int.from_bytes(b"\x01" * size)
        target.written.add_where(part, written.view(f"u{size}") == ones)


def _bytes_of(storage: Storage, first: int, last: int) -> tuple[int, int]:
    """The addresses of the bytes of some elements in each partition of a storage."""
    start, size = _place_of(storage).byte, storage.dtype.itemsize
    return start + first * size, start + last * size


def _written(wanted: Rectangle, writers: list[Storage]) -> np.ndarray:
    """Booleans per byte of a rectangle, [P, bytes]: whether one of some storages has written it."""
    first, last, low, high = wanted
    is_written = np.zeros((last - first, high - low), np.bool_)
    for storage in writers:
        shared = _common(wanted, _place_of(storage).bounds)
        if shared is None or storage.written.is_empty:
            continue
        size = storage.dtype.itemsize
        rows, columns = _part(storage, shared)
        start, stop = columns.start // size, -(-columns.stop // size)
        bits = storage.written.bits.reshape(storage.shape[0], prod(storage.shape[1:]))[rows, start:stop]
        by_byte = np.repeat(bits, size, axis=1)[:, columns.start - start * size :][:, : shared[3] - shared[2]]
        is_written[shared[0] - first : shared[1] - first, shared[2] - low : shared[3] - low] |= by_byte
    return is_written
