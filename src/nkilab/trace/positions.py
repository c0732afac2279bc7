"""The places in loops of a program: a sequence of three numbers each, kept as numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

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
