"""Loop ranges: plain Python iteration that knows its position in the program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import UseError
from ..trace.session import current


class LoopIndex(int):
    """A loop index: an int that knows its loop.

    Attributes:
        loop: number of the loop in the order of entry; each entry of a `for` statement is a loop.
        kind: "affine", "sequential" or "static".
    """

    loop: int
    kind: str

    def __new__(cls, value: int, loop: int, kind: str) -> LoopIndex:
        index = super().__new__(cls, value)
        index.loop = loop
        index.kind = kind
        return index

    @property
    def name(self) -> str:
        """A word for the loop, unique in its program."""
        return f"loop{self.loop}"


class LoopRange:
    """Iterations of one loop; a fresh iteration starts at each `for`."""

    def __init__(self, kind: str, *bounds: Any) -> None:
        try:
            self._range = range(*(int(b) for b in bounds))
        except (TypeError, ValueError) as error:
            raise UseError(f"a range of {bounds!r}: {error}") from None
        self.kind = kind

    def __len__(self) -> int:
        return len(self._range)

    def __iter__(self) -> Iterator[LoopIndex]:
        session = current()
        program = session.program
        outer = session.position
        loop = len(program.positions)
        try:
            for value in self._range:
                session.position = len(program.positions)
                program.positions.append((outer, loop, value))
                yield LoopIndex(value, loop, self.kind)
        finally:
            session.position = outer


def affine_range(*args: Any, **kwargs: Any) -> LoopRange:
    """Iterations that may run in any order, but for reductions; bounds as of `range`."""
    return LoopRange("affine", *args)


def sequential_range(*args: Any, **kwargs: Any) -> LoopRange:
    """Iterations that run in order; bounds as of `range`."""
    return LoopRange("sequential", *args)


def static_range(*args: Any, **kwargs: Any) -> LoopRange:
    """Iterations that are unrolled in order; bounds as of `range`."""
    return LoopRange("static", *args)
