"""Where a kernel says that its tiles lie."""

from __future__ import annotations

from typing import NamedTuple

from ..tiles.aliases import AddressSpace

# the chain of all tiles of `nki`
EVERY_TILE = 0


class Address(NamedTuple):
    """Where the kernel says that a tile lies.

    Args:
        space: number of the address space, in order of first use.
        partition, byte: of its first element.
        is_fixed: whether these count from the beginning of the memory, not of a piece of it.
        chain: tiles of one chain are ordered where they overlap: all of `nki` (`EVERY_TILE`), in Beta 1 what
            one call allocates in the iterations of its loops.
    """

    space: int
    partition: int
    byte: int
    is_fixed: bool = True
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
