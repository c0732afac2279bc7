"""What is noted of a run beside the columns of a program: places in loops, addresses, and marks for checks.

Everything here is a few numbers per tile, loop or odd event, noted where it happens; nothing is decided here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from ..tiles.aliases import AddressSpace
from ..tiles.tile import Layout


class Unwritten(NamedTuple):
    """A row that reads elements which were never written."""

    row: int  # of the program
    storage: int  # by number; -1 for a tile of no program
    layout: Layout  # what was read
    state: str  # "none" or "part" of it was written


class Returned(NamedTuple):
    """A tensor that the kernel returned: its storage, and how many of how many elements were written."""

    storage: int
    written: int
    total: int


class BlockUse(NamedTuple):
    """A use of a tile that stands for several blocks of a tensor in turn."""

    row: int  # where the program was: the next row where a block is taken, the last one where one is given
    storage: int  # the tile
    block: int  # which one it is meant to be
    is_given: bool  # whether a value is assigned to it


class Marks(Struct):
    """The notes of one program."""

    # per storage, the loop position at which it was made
    births: array[int] = field(default_factory=lambda: array("q"))
    rotating: set[int] = field(default_factory=set)  # tiles that stand for several blocks of a tensor
    block_uses: list[BlockUse] = field(default_factory=list)  # their uses, in order
    # accesses that an access pattern (.ap) made: storage, offset, layout
    patterns: set[tuple[int, int, Layout]] = field(default_factory=set)
    # rows that the kernel orders by name or handle: consumer, producer
    edges: list[tuple[int, int]] = field(default_factory=list)
    blocks: list[tuple[int, int]] = field(default_factory=list)  # first row and end of each no_reorder block
    names: dict[str, int] = field(default_factory=dict)  # row of each instruction that has a name
    # what a dialect noticed: "name", which another instruction has, or "partitions", which an operator
    # repeats; words on it, and the row
    odd: list[tuple[str, str, int]] = field(default_factory=list)
    # first row of each program instance, and its coordinates
    instances: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    # kind of each loop, by its number: "affine", "sequential", "static" or "dynamic"
    loops: dict[int, str] = field(default_factory=dict)
    # tiles that outlive iterations by design: running values of loop_reduce, constants
    carried: set[int] = field(default_factory=set)
    filled: set[int] = field(default_factory=set)  # tiles that were made with a value in every element
    # per row of loop_reduce the loops whose reduction it belongs to, and its operator
    reduced: dict[int, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    unwritten: list[Unwritten] = field(default_factory=list)  # reads of what was never written
    returned: list[Returned] = field(default_factory=list)  # what the kernel returned in HBM


# the chain of all tiles of `nki`
EVERY_TILE = 0


class Address(NamedTuple):
    """Where the kernel says that a tile lies."""

    space: int  # number of the address space, in order of first use
    # partition, byte: of its first element
    partition: int
    byte: int
    is_fixed: bool = True  # whether these count from the beginning of the memory, not of a piece of it
    # tiles of one chain are ordered where they overlap: all of `nki` (`EVERY_TILE`), in Beta 1 what one call
    # allocates in the iterations of its loops
    chain: int = EVERY_TILE


class Addresses(dict[int, Address]):
    """The address of each storage that has one."""

    def place(
        self, storage: int, space: AddressSpace, partition: int, byte: int, chain: int = EVERY_TILE
    ) -> None:
        """Note the address of a tile."""
        if space.number is None:
            space.number = 1 + max((address.space for address in self.values()), default=-1)
        self[storage] = Address(space.number, partition, byte, space.is_memory, chain)


# The place around it, the number of its loop, and its iteration.
Position = tuple[int, int, int]
OUTSIDE: Position = (-1, -1, 0)
_WIDTH = 3


class Positions:
    """Places in loops, of which a long program has millions: 24 bytes each instead of 150.

    Args:
        places: the first ones.
    """

    def __init__(self, places: Iterable[Position] = (OUTSIDE,)) -> None:
        self._numbers = array("q", chain.from_iterable(places))

    def append(self, place: Position) -> None:
        """Add a place."""
        self._numbers.extend(place)

    def extend(self, table: np.ndarray) -> None:
        """Add the places of a table of whole numbers, [places, 3]."""
        self._numbers.frombytes(np.ascontiguousarray(table, np.int64).tobytes())

    @property
    def table(self) -> np.ndarray:
        """All places, [places, 3]."""
        return np.array(self._numbers, np.int64).reshape(-1, _WIDTH)

    def between(self, begin: int, end: int) -> list[Position]:
        """The places of a range of numbers."""
        return [self[place] for place in range(begin, end)]

    def __len__(self) -> int:
        return len(self._numbers) // _WIDTH

    def __getitem__(self, place: int) -> Position:
        outer, loop, iteration = self._numbers[_WIDTH * place : _WIDTH * (place + 1)]
        return outer, loop, iteration

    def __iter__(self) -> Iterator[Position]:
        numbers = iter(self._numbers)
        return zip(numbers, numbers, numbers, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Positions) and self._numbers == other._numbers

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr([*self])
