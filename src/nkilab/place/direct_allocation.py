"""Tiles at addresses that the kernel gives: where they lie, what touches the same bytes, and who waits.

A memory is taken as [partitions, WIDTH] bytes; a tile at an address is a rectangle of it. What the compiler
does to tiles that it places itself (it leaves loads out, moves them, rotates tiles of one line through
buffers) it cannot do to these: their bytes are the kernel's to give away.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ..machine import Machine
from ..tiles.dtypes import UINT8
from ..tiles.tile import Layout, layout
from ..trace.program import Program, StorageRecord
from ..trace.run_notes import EVERY_TILE, Address
from .boxes import Boxes, Overlaps, boxes_for, overlaps_of
from .slots import Slots
from .walk import DIRECT, REUSE, edges_of

# bytes of a partition, more than any memory has, and a multiple of every element's size
WIDTH = 1 << 18

Edges = tuple[np.ndarray, np.ndarray, np.ndarray]


def bytes_of_memory(machine: Machine) -> tuple[int, int]:
    """The shape of a memory as bytes, [partitions, WIDTH]."""
    return machine.limit("partitions"), WIDTH


def has_address(program: Program) -> np.ndarray:
    """Per storage whether the kernel gives it an address."""
    result = np.zeros(len(program.storages), np.bool_)
    result[list(program.addresses)] = True
    return result


def is_fixed(program: Program) -> np.ndarray:
    """Per storage whether the kernel says where in its memory it lies."""
    result = np.zeros(len(program.storages), np.bool_)
    result[[storage for storage, address in program.addresses.items() if address.is_fixed]] = True
    return result


def chains_of(program: Program) -> np.ndarray:
    """Per storage the chain of tiles that are ordered where they overlap; -1 where it has no address."""
    result = np.full(len(program.storages), -1, np.int64)
    for storage, address in program.addresses.items():
        result[storage] = address.chain
    return result


def reserved(program: Program, memory: str, unit: int) -> np.ndarray:
    """The units of a memory, ascending, that tiles at addresses of it lie on.

    Args:
        program: whose tiles they are.
        memory: "sbuf" or "psum".
        unit: bytes per partition.
    """
    spans = {
        (address.byte // unit, -(-(address.byte + record.bytes_per_partition) // unit))
        for storage, address in program.addresses.items()
        if address.is_fixed and (record := program.storages[storage]).memory == memory
    }
    taken = np.zeros(max((end for _, end in spans), default=0), np.bool_)
    for begin, end in spans:
        taken[begin:end] = True
    return np.flatnonzero(taken)


class Accesses(Struct, frozen=True):
    """Accesses of one memory by one program, rows in order, reads of a row before its writes."""

    slot: np.ndarray  # of each, among the slots of the program
    box: np.ndarray  # of each, in `overlaps`
    overlaps: Overlaps  # of the boxes

    def neighbours(self, slots: Slots) -> tuple[np.ndarray, np.ndarray]:
        """Pairs (earlier, later) of accesses by their places here, of different rows, of which one writes.

        What a later write covers is forgotten, and of several reads of one engine the last stands for all.
        """
        count = len(self.slot)
        is_written = slots.is_written[self.slot]
        last = int(np.flatnonzero(is_written).max(initial=-1))
        row = slots.row[self.slot]
        columns = {
            "row": np.arange(count), "engine": slots.engine[row], "box": self.box,
            "storage": np.zeros(count, np.int64), "is_read": slots.is_read[self.slot],
            "is_written": is_written, "is_awaited": np.arange(count) < last,
        }  # fmt: skip
        later, earlier, _ = edges_of(columns, self.overlaps)
        apart = row[later] != row[earlier]
        pairs = np.unique(np.column_stack([later[apart], earlier[apart]]), axis=0)
        return pairs[:, 1], pairs[:, 0]


def direct_edges(program: Program, slots: Slots) -> Edges:
    """Rows that touch bytes at addresses, and the earlier rows that touched them through another tile.

    Tiles of one chain are ordered. Those of `nki` are "direct overlap"; in Beta 1, where the guide calls the
    iterations that one call allocates for serialized, they reuse space.
    """
    chain = chains_of(program)
    chunks: list[tuple[np.ndarray, ...]] = [(np.zeros(0, np.int64),) * 3]
    for storages in crowded_spaces(program):
        accesses = in_space(program, slots, storages)
        earlier, later = (accesses.slot[side] for side in accesses.neighbours(slots))
        one, two = slots.storage[earlier], slots.storage[later]
        wanted = (one != two) & (chain[one] == chain[two])
        kind = np.where(chain[one[wanted]] == EVERY_TILE, DIRECT, REUSE)
        chunks.append((slots.row[later[wanted]], slots.row[earlier[wanted]], kind))
    later, earlier, kind = (np.concatenate(column) for column in zip(*chunks, strict=True))
    return later, earlier, kind


def in_space(program: Program, slots: Slots, storages: list[int]) -> Accesses:
    """The accesses of tiles at addresses of one space, as boxes of its bytes."""
    own = reads_first(slots, np.flatnonzero(np.isin(slots.storage, storages)))
    # accesses that are alike touch one box
    keys = np.column_stack([slots.storage[own], slots.layout[own], slots.offset[own]])
    alike, which = np.unique(keys, axis=0, return_inverse=True)
    boxes = _boxes_of(program, slots, alike)
    return Accesses(own, boxes.of_slot[which.reshape(-1)], overlaps_of(boxes))


def _boxes_of(program: Program, slots: Slots, accesses: np.ndarray) -> Boxes:
    """The boxes of accesses, [N, 3]: storage, layout, offset."""
    memory = bytes_of_memory(program.machine)
    return boxes_for([
        (0, memory, 1, *in_memory(program.storages[t], slots.layouts[own], offset, program.addresses[t]))
        for t, own, offset in accesses.tolist()
    ])  # fmt: skip


def in_memory(record: StorageRecord, seen: Layout, offset: int, address: Address) -> tuple[Layout, int]:
    """A view of a tile at an address as a view of bytes of its memory, [..., bytes of an element].

    Args:
        record: the tile.
        seen: layout of the view.
        offset: of its first element, in elements of its type.
        address: of the tile.
    """
    size = record.bytes_per_partition
    strides = (*(_stride(s, size) for s in seen.byte_strides), 1)
    partition, byte = divmod(offset * seen.itemsize, size)
    first = (address.partition + partition) * WIDTH + address.byte + byte
    return layout((*seen.shape, seen.itemsize), strides, UINT8, seen.memory, None, 0), first


def _stride(stride: int, own: int) -> int:
    """A stride in bytes of a tile as one in bytes of its memory."""
    partitions, rest = divmod(abs(stride), own)
    far = partitions * WIDTH + rest
    return far if stride >= 0 else -far


def crowded_spaces(program: Program) -> list[list[int]]:
    """Groups of tiles at addresses of one space, where two of them overlap."""
    spaces: dict[tuple[int, str], list[int]] = {}
    for storage, address in program.addresses.items():
        spaces.setdefault((address.space, program.storages[storage].memory), []).append(storage)
    return [own for own in spaces.values() if len(own) > 1 and _overlap(program, own)]


def _overlap(program: Program, storages: list[int]) -> bool:
    """Whether two of some tiles share bytes, as far as their first bytes and sizes tell."""
    spans = []
    for storage in storages:
        low = program.addresses[storage].byte
        spans.append((low, low + program.storages[storage].bytes_per_partition))
    spans.sort()
    reached = 0
    for low, high in spans:
        if low < reached:
            return True
        reached = max(reached, high)
    return False


def reads_first(slots: Slots, own: np.ndarray) -> np.ndarray:
    """Slots by row, reads of a row before its writes."""
    return own[np.argsort(slots.row[own] * 2 + slots.is_written[own], kind="stable")]
