"""Which elements of a storage have some property: shadow bits, with fast paths for none and all."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from .tile import Storage, View


class Coverage:
    """The set of elements of one storage that were written, or accumulated by matmuls.

    A storage that is covered as a whole, the common case, costs one comparison. Bits exist only while
    it is covered in part, at the granularity of the storage's own elements.

    Args:
        storage: whose elements; it is not kept, so that a dead storage goes at once.

    Attributes:
        shape: of the storage.
        is_full: whether every element is covered.
    """

    __slots__ = ("_bits", "_dtype", "_missing", "is_full", "shape")

    def __init__(self, storage: Storage) -> None:
        self.shape = storage.shape
        self._dtype = storage.dtype
        self.is_full = False
        self._bits: np.ndarray | None = None
        # elements without the property; set with the bits
        self._missing: int

    def fill(self) -> None:
        """Cover every element."""
        self.is_full, self._bits = True, None

    def clear(self) -> None:
        """Cover nothing."""
        self.is_full, self._bits = False, None

    @property
    def is_empty(self) -> bool:
        """Whether no element is covered."""
        return not self.is_full and self._bits is None

    def add(self, view: View) -> None:
        """Cover the elements of `view`."""
        if self.is_full:
            return
        if covers_all(view):
            self.fill()
            return
        bits = self._need_bits()
        array, key = self._region(view)
        region = array[key]
        fresh = region.size - int(np.count_nonzero(region))
        if fresh:
            array[key] = True
            # a view that repeats elements would count them more than once
            if key is not ... or view.layout.repeats:
                self._missing = bits.size - int(np.count_nonzero(bits))
            else:
                self._missing -= fresh
            if not self._missing:
                self.fill()

    def add_where(self, view: View, mask: np.ndarray) -> None:
        """Cover the elements of `view` at which `mask`, broadcast over it, is true."""
        if self.is_full:
            return
        bits = self._need_bits()
        array, key = self._region(view)
        chosen = np.broadcast_to(mask, view.layout.shape)
        array[chosen if key is ... else key[chosen]] = True
        self._missing = bits.size - int(np.count_nonzero(bits))
        if not self._missing:
            self.fill()

    def of_cells(self, places: np.ndarray, itemsize: int) -> np.ndarray:
        """Whether each of some elements of `itemsize` bytes, given by their number, is covered."""
        if self.is_full or self._bits is None:
            return np.full(places.shape, self.is_full)
        return self._bits[self._touched(places, itemsize)].all(axis=-1)

    def add_cells(self, places: np.ndarray, itemsize: int) -> None:
        """Cover some elements of `itemsize` bytes, given by their number."""
        if self.is_full or not places.size:
            return
        bits = self._need_bits()
        bits[self._touched(places, itemsize)] = True
        self._missing = bits.size - int(np.count_nonzero(bits))
        if not self._missing:
            self.fill()

    def _touched(self, places: np.ndarray, itemsize: int) -> np.ndarray:
        """The storage's own elements that elements of `itemsize` bytes lie on, along a new last axis."""
        own = self._dtype.itemsize
        return places[..., None] * itemsize // own + np.arange(max(1, itemsize // own))

    @property
    def bits(self) -> np.ndarray:
        """One boolean per element of the storage, flat; a copy where all or none are covered."""
        if self._bits is not None:
            return self._bits
        return np.full(prod(self.shape), self.is_full)

    def _need_bits(self) -> np.ndarray:
        if self._bits is None:
            self._bits = np.zeros(prod(self.shape), np.bool_)
            self._missing = self._bits.size
        return self._bits

    def remove(self, view: View) -> None:
        """Uncover the elements of `view`."""
        if self.is_empty:
            return
        if covers_all(view):
            self.clear()
            return
        if self.is_full:
            self.is_full, self._bits, self._missing = False, np.ones(prod(self.shape), np.bool_), 0
        array, key = self._region(view)
        array[key] = False
        assert self._bits is not None
        self._missing = self._bits.size - int(np.count_nonzero(self._bits))
        if self._missing == self._bits.size:
            self.clear()

    def remove_where(self, view: View, mask: np.ndarray) -> None:
        """Uncover the elements of `view` at which `mask`, of its shape, is true."""
        if not mask.any():
            return
        if self.is_full:
            self.is_full, self._bits = False, np.ones(prod(self.shape), np.bool_)
        bits = self._need_bits()
        array, key = self._region(view)
        array[mask if key is ... else key[mask]] = False
        self._missing = bits.size - int(np.count_nonzero(bits))

    def missing(self, view: View) -> np.ndarray:
        """Booleans over `view`: which of its elements are not covered."""
        if self.is_full or self._bits is None:
            return np.full(view.layout.shape, not self.is_full)
        array, key = self._region(view)
        region = array[key]
        return ~(region if key is ... else region.all(axis=-1))

    def of(self, view: View, mask: np.ndarray | None = None) -> Literal["none", "part", "all"]:
        """How much of `view`, where `mask` broadcast over it is true, is covered; "all" of nothing."""
        if self.is_full:
            return "all"
        if self._bits is None:
            return "none" if mask is None or mask.any() else "all"
        array, key = self._region(view)
        region = array[key]
        if mask is not None:
            region = region[np.broadcast_to(mask, view.layout.shape)]
        count = int(np.count_nonzero(region))
        return "all" if count == region.size else "part" if count else "none"

    def where(self, view: View) -> np.ndarray:
        """Which elements of `view` are covered: booleans over it, which later calls may change."""
        if self.is_full or self._bits is None:
            return np.full(view.layout.shape, self.is_full)
        array, key = self._region(view)
        return array if key is ... else array[key].all(axis=-1)

    def count(self, view: View) -> int:
        """How many elements of `view` are covered."""
        return int(np.count_nonzero(self.where(view)))

    def _region(self, view: View) -> tuple[np.ndarray, Any]:
        """The bits of the elements of `view`, as an array and a key into it; only while covered in part."""
        assert self._bits is not None
        known = view.layout
        own, seen = self._dtype.itemsize, known.dtype.itemsize
        if own == seen:
            return np.ndarray(known.shape, np.bool_, self._bits, view.offset, known.strides), ...
        return self._bits, _cells(view, own)


def _cells(view: View, own: int) -> np.ndarray:
    """The storage's elements, `own` bytes each, that each element of a reinterpreted `view` touches."""
    known = view.layout
    seen = known.dtype.itemsize
    place = np.full((1,) * len(known.shape), view.offset * seen)
    for axis, (size, stride) in enumerate(zip(known.shape, known.strides, strict=True)):
        steps = np.arange(size) * (stride * seen)
        place = place + steps.reshape(-1, *(1,) * (len(known.shape) - axis - 1))
    return place[..., None] // own + np.arange(max(1, seen // own))


def covers_all(view: View) -> bool:
    """Whether `view` holds every element of its storage; True only where that is quick to see."""
    known, storage = view.layout, view.storage
    if known.dtype is storage.dtype and known.shape == storage.shape and known.strides == storage.strides:
        return True
    if known.repeats or known.size * known.itemsize != prod(storage.shape) * storage.dtype.itemsize:
        return False
    return sum((n - 1) * s for n, s in zip(known.shape, known.strides, strict=True)) + 1 == known.size
