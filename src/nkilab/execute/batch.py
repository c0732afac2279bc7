"""Calls that wait for others to be computed with them, and calls that have to come after one that waits.

A *level* is the place of a call in the order: one that needs what another leaves, or overwrites what another
uses, has a higher one. Calls of one level do not meet, so that products among them may be computed as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..tiles.coverage import Coverage
from .joined_products import Product, Sum, compute, together

# calls that wait at most, so that memory does not fill with tiles
MOST_WAITING = 2048


class Call(NamedTuple):
    """A call to compute."""

    compute: Callable[..., object]  # the meaning of its form
    arguments: Sequence[object]  # arrays and values
    # reads, writes: shadow bits of the storages that it touches, which are one where programs share memory
    reads: Sequence[Coverage]
    writes: Sequence[Coverage]


class Batch:
    """The calls that wait."""

    def __init__(self) -> None:
        self._levels: list[tuple[list[Call], list[Sum]]] = []
        # by the identity of a storage: the level above those of the calls that write it, and that read it
        self._written: dict[int, int] = {}
        self._read: dict[int, int] = {}
        # by the identity of a tile: the products that add up in it, to which more may come, and their level
        self._sums: dict[int, tuple[Sum, int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def touches(self, storages: Sequence[Coverage]) -> bool:
        """Whether a call that waits touches one of these storages."""
        return any(id(s) in self._written or id(s) in self._read for s in storages)

    def takes(self, call: Call) -> bool:
        """Take a call that has to come after one that waits; False, and nothing else, of any other."""
        level = self._level(call.reads, call.writes)
        if not level:
            return False
        self._note(level, call.reads, call.writes)
        self._at(level)[0].append(call)
        for storage in (*call.reads, *call.writes):
            self._sums.pop(id(storage), None)
        return True

    def multiply(self, product: Product, reads: Sequence[Coverage], tile: Coverage) -> None:
        """Take a product of tiles that lie in some storages."""
        one, level = self._sums.get(id(tile), (None, 0))
        if one is None or not one.takes(product) or self._level(reads, ()) > level:
            level = self._level(reads, [tile])
            one = Sum(product, tile)
            self._at(level)[1].append(one)
            self._sums[id(tile)] = one, level
        one.add(product, reads)
        self._note(level, reads, [tile])

    def release(self) -> Iterator[Call]:
        """Every call that waits, in an order that keeps every access; none waits then."""
        levels, self._levels = self._levels, []
        for table in (self._written, self._read, self._sums):
            table.clear()
        self._count = 0
        for calls, sums in levels:
            yield from calls
            for block, stationary, moving in together(sums):
                computed = [one for column in block for one in column]
                reads = [storage for one in computed for storage in one.reads]
                yield Call(compute, (block, stationary, moving), reads, [one.tile for one in computed])

    def _level(self, reads: Sequence[Coverage], writes: Sequence[Coverage]) -> int:
        """The lowest level of a call: 0 if it meets none that waits."""
        written, read = self._written, self._read
        level = 0
        for storage in reads:
            level = max(level, written.get(id(storage), 0))
        for storage in writes:
            level = max(level, written.get(id(storage), 0), read.get(id(storage), 0))
        return level

    def _note(self, level: int, reads: Sequence[Coverage], writes: Sequence[Coverage]) -> None:
        self._count += 1
        for storage in writes:
            self._written[id(storage)] = level + 1
        for storage in reads:
            self._read[id(storage)] = max(level + 1, self._read.get(id(storage), 0))

    def _at(self, level: int) -> tuple[list[Call], list[Sum]]:
        while len(self._levels) <= level:
            self._levels.append(([], []))
        return self._levels[level]
