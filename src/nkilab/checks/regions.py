"""Views of tiles at given addresses as views of the whole memory, of elements of their type."""

from __future__ import annotations

from ..place.direct import WIDTH, in_memory
from ..tiles.tile import Layout, layout
from ..trace.addresses import Address
from ..trace.program import StorageRecord


def typed(record: StorageRecord, given: Layout, offset: int, address: Address) -> tuple[Layout, int] | None:
    """A view of a tile as one of its memory; None where elements lie across its boundaries."""
    known, first = in_memory(record, given, offset, address)
    size = given.itemsize
    if first % size or any(s % size for s in known.strides[:-1]):
        return None
    strides = tuple(s // size for s in known.strides[:-1])
    start = first // WIDTH
    axis = given.partition_axis
    return layout(given.shape, strides, given.dtype, given.memory, axis, start), first // size
