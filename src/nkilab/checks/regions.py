"""Views of tiles at given addresses as views of the whole memory, of elements of their type."""

from __future__ import annotations

from ..place.direct_allocation import WIDTH, in_memory
from ..tiles.tile import Layout, layout
from ..trace.program import StorageRecord
from ..trace.run_notes import Address


def typed(record: StorageRecord, shown: Layout, offset: int, address: Address) -> tuple[Layout, int] | None:
    """A view of a tile as one of its memory; None where elements lie across its boundaries."""
    known, first = in_memory(record, shown, offset, address)
    size = shown.itemsize
    if first % size or any(s % size for s in known.strides[:-1]):
        return None
    strides = tuple(s // size for s in known.strides[:-1])
    start = first // WIDTH
    axis = shown.partition_axis
    return layout(shown.shape, strides, shown.dtype, shown.memory, axis, start), first // size
