"""Products computed together: those that add up in one tile, and those that share their moving tiles.

One product of a long contraction, or of many columns, takes a BLAS less time than its parts. Which ones add
up in one is decided by the program alone, never by time or by where tiles lie, so that every run of a launch
leaves the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from threading import Lock
from typing import NamedTuple

import numpy as np

from ..isa.declare import Instruction
from ..isa.tensor_engine import write_product
from ..tiles.convert import widen
from ..tiles.coverage import Coverage
from ..tiles.dtypes import DType

# products that add up in one: beyond, memory for their joined operands would grow without bound
LONGEST = 32
# rows of what several sums are computed in as one, and multiplications, of sums at least so deep: more make
# no product faster, leave other threads without work, and keep whoever interrupts waiting
HIGHEST, LARGEST, DEEP = 1024, 1 << 30, 1 << 10


class Product(NamedTuple):
    """A product to compute."""

    form: Instruction  # that has factors
    dst: np.ndarray  # the tile, float32[M, N]
    # stationary, moving: as stored, [K, M] and [K, N]
    stationary: np.ndarray
    moving: np.ndarray
    accumulates: bool  # whether it is added to what the tile holds


class Sum:
    """Products of the same types that add up in one tile.

    Args:
        first: which says where, and whether all are added to what the tile holds.
        tile: the shadow bits of the tile.
    """

    __slots__ = ("accumulates", "dst", "form", "moving", "reads", "stationary", "tile")

    def __init__(self, first: Product, tile: Coverage) -> None:
        self.form, self.dst, *_, self.accumulates = first
        self.stationary: list[np.ndarray] = []
        self.moving: list[np.ndarray] = []
        self.reads: list[Coverage] = []
        self.tile = tile

    def takes(self, product: Product) -> bool:
        """Whether a product adds up with these."""
        return (
            product.accumulates
            and (product.dst is self.dst or _place([product.dst]) == _place([self.dst]))
            and product.form.factors == self.form.factors
            and len(self.moving) < LONGEST
        )

    def add(self, product: Product, reads: Sequence[Coverage]) -> None:
        """Take one more product, of tiles that lie in some storages."""
        self.stationary.append(product.stationary)
        self.moving.append(product.moving)
        self.reads += reads


class Factor:
    """Columns of tiles as one matrix of float32, which the products that share it make once."""

    def __init__(self, columns: Sequence[Sequence[np.ndarray]], dtype: DType) -> None:
        self._columns = columns
        self._dtype = dtype
        self._lock = Lock()
        self._matrix: np.ndarray | None = None

    def forget(self) -> None:
        """Make the matrix anew when it is needed again."""
        self._matrix = None

    def matrix(self) -> np.ndarray:
        """The matrix: the tiles themselves where they lie as it does."""
        with self._lock:
            if self._matrix is None:
                rows = zip(*self._columns, strict=True)
                stored = joined([joined(row, 1) for row in rows], 0)
                self._matrix = widen(stored, self._dtype)
            return self._matrix


def together(sums: Sequence[Sum]) -> Iterator[tuple[list[list[Sum]], Factor, Factor]]:
    """Sums that do not meet, in blocks with their factors.

    A block has columns of sums: those of a column share their moving tiles, those of a row stationary ones.
    """
    columns: dict[object, list[list[Sum]]] = {}
    for one in sums:
        same = columns.setdefault((one.form.factors, _place(one.moving)), [])
        if not same or sum(s.dst.shape[0] for s in same[-1]) + one.dst.shape[0] > HIGHEST:
            same.append([])
        same[-1].append(one)
    blocks: dict[object, list[list[list[Sum]]]] = {}
    for column in chain.from_iterable(columns.values()):
        key = column[0].form.factors, tuple(_place(one.stationary) for one in column)
        alike = blocks.setdefault(key, [])
        work = sum(s.dst.size for s in column) * max(DEEP, sum(map(len, column[0].moving)))
        if not alike or (len(alike[-1]) + 1) * work > LARGEST:
            alike.append([])
        alike[-1].append(column)
    for alike in blocks.values():
        first, *_ = column = alike[0][0]
        assert first.form.factors is not None
        stationary = Factor([one.stationary for one in column], first.form.factors[0])
        for block in alike:
            yield block, stationary, Factor([c[0].moving for c in block], first.form.factors[1])


def compute(block: list[list[Sum]], stationary: Factor, moving: Factor) -> None:
    """Compute a block of sums as one product."""
    left, right = stationary.matrix(), moving.matrix()
    first = block[0][0]
    if len(block) == len(block[0]) == 1:
        write_product(first.form, first.dst, left, right, first.accumulates)
        return
    product = np.matmul(left.T, right)
    ends = np.cumsum([0, *(column[0].dst.shape[1] for column in block)])
    for column, start, end in zip(block, ends, ends[1:], strict=False):
        row = 0
        for one in column:
            part = product[row : row + len(one.dst), start:end]
            row += len(one.dst)
            one.dst[...] = part + one.dst if one.accumulates else part


def joined(tiles: Sequence[np.ndarray], axis: int) -> np.ndarray:
    """Matrices side by side along an axis: a view of them where they lie so, else a copy."""
    first, size = tiles[0], 0
    if len(tiles) == 1:
        return first
    start, step = _address(first), first.strides[axis]
    for tile in tiles:
        if tile.strides != first.strides or _address(tile) != start + size * step:
            return np.concatenate(tiles, axis)
        size += tile.shape[axis]
    shape = (size, first.shape[1]) if axis == 0 else (first.shape[0], size)
    # NumPy's interface has no name for float8_e5m2
    bits = first.view(f"u{first.itemsize}")
    return np.lib.stride_tricks.as_strided(bits, shape, first.strides, writeable=False).view(first.dtype)


def _address(tile: np.ndarray) -> int:
    address: int = tile.__array_interface__["data"][0]
    return address


def _place(tiles: Sequence[np.ndarray]) -> tuple[object, ...]:
    """What tiles have in common with those that are the same elements."""
    return tuple((_address(tile), tile.shape, tile.strides) for tile in tiles)
