"""Where tiles at given addresses lie: views of them as views of the whole memory.

A memory is taken as [partitions, WIDTH] bytes; a tile at an address is a rectangle of it.
"""

from __future__ import annotations

from ..tiles.dtypes import UINT8
from ..tiles.tile import Layout, layout
from ..trace.marks import Address
from ..trace.program import StorageRecord

# bytes of a partition, more than any memory has, and a multiple of every element's size
WIDTH = 1 << 18
PARTITIONS = 128
SHAPE = (PARTITIONS, WIDTH)


def in_memory(record: StorageRecord, given: Layout, offset: int, address: Address) -> tuple[Layout, int]:
    """A view of a tile at an address as a view of bytes of its memory, [..., bytes of an element].

    Args:
        record: the tile.
        given: layout of the view.
        offset: of its first element, in elements of its type.
        address: of the tile.
    """
    own = record.bytes_per_partition
    partition, byte = divmod(offset * given.itemsize, own)
    first = (address.partition + partition) * WIDTH + address.byte + byte
    strides = tuple(_stride(s, own) for s in given.byte_strides)
    known = layout((*given.shape, given.itemsize), (*strides, 1), UINT8, given.memory, None, 0)
    return known, first


def _stride(stride: int, own: int) -> int:
    """A stride in bytes of a tile as one in bytes of its memory."""
    partitions, rest = divmod(abs(stride), own)
    far = partitions * WIDTH + rest
    return far if stride >= 0 else -far


def typed(record: StorageRecord, given: Layout, offset: int, address: Address) -> tuple[Layout, int] | None:
    """The same as a view of elements of the view's type; None where they lie across its boundaries."""
    known, first = in_memory(record, given, offset, address)
    size = given.itemsize
    if first % size or any(s % size for s in known.strides[:-1]):
        return None
    strides = tuple(s // size for s in known.strides[:-1])
    start = first // WIDTH
    axis = given.partition_axis
    return layout(given.shape, strides, given.dtype, given.memory, axis, start), first // size
