"""What checks need to know of a run and the columns of a program do not hold.

Everything here is a few numbers per tile, loop or odd event, noted where it happens; nothing is decided here,
and neither planning nor timing looks at it.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from msgspec import Struct, field

from ..tiles.tile import Layout


class Unwritten(NamedTuple):
    """A row that reads elements which were never written.

    Args:
        row: of the program.
        storage: by number; -1 for a tile of no program.
        layout: what was read.
        state: "none" or "part" of it was written.
    """

    row: int
    storage: int
    layout: Layout
    state: str


class Returned(NamedTuple):
    """A tensor that the kernel returned: its storage, and how many of how many elements were written."""

    storage: int
    written: int
    total: int


class BlockUse(NamedTuple):
    """A use of a tile that stands for several blocks of a tensor in turn.

    Args:
        row: where the program was: the next row where a block is taken, the last one where one is given.
        storage: the tile.
        block: which one it is meant to be.
        is_given: whether a value is assigned to it.
    """

    row: int
    storage: int
    block: int
    is_given: bool


class Marks(Struct):
    """The notes of one program.

    Args:
        births: per storage, the loop position at which it was made.
        rotating: tiles that stand for several blocks of a tensor.
        block_uses: their uses, in order.
        patterns: accesses that an access pattern (.ap) made: storage, offset, layout.
        edges: rows that the kernel orders by name or handle: consumer, producer.
        blocks: first row and end of each no_reorder block.
        names: row of each instruction that has a name.
        odd: what a dialect noticed: "name", which another instruction has, or "partitions", which an operator
            repeats; words on it, and the row.
        instances: first row of each program instance, and its coordinates.
        loops: kind of each loop, by its number: "affine", "sequential", "static" or "dynamic".
        carried: tiles that outlive iterations by design: running values of loop_reduce, constants.
        filled: tiles that were made with a value in every element.
        reduced: per row of loop_reduce the loops whose reduction it belongs to, and its operator.
        unwritten: reads of what was never written.
        returned: what the kernel returned in HBM.
    """

    births: array[int] = field(default_factory=lambda: array("q"))
    rotating: set[int] = field(default_factory=set)
    block_uses: list[BlockUse] = field(default_factory=list)
    patterns: set[tuple[int, int, Layout]] = field(default_factory=set)
    edges: list[tuple[int, int]] = field(default_factory=list)
    blocks: list[tuple[int, int]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    odd: list[tuple[str, str, int]] = field(default_factory=list)
    instances: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    loops: dict[int, str] = field(default_factory=dict)
    carried: set[int] = field(default_factory=set)
    filled: set[int] = field(default_factory=set)
    reduced: dict[int, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    unwritten: list[Unwritten] = field(default_factory=list)
    returned: list[Returned] = field(default_factory=list)
