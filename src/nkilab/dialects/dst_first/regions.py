"""Memory regions of `nki`, and pieces of them at addresses."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NoReturn

from ...errors import LimitError, RuleError, UseError
from ...machine import Machine
from ...tiles.aliases import AddressSpace
from ...tiles.tile import HBM, PSUM, SBUF, Storage
from ...trace.session import Session, current
from ..history import NEWEST, order
from ..indexing import whole_number
from ..missing import NamedMeta, refuse_name
from ..places import placed

GUIDE = "NKI migration guide, Improved allocation API"
# What lies in a bank with a sum of its own, from NKI 0.6 on: nki-library, psum_pool, slot-stride rule, probed
# there; the guide knows tensors at the beginning of a bank alone.
_SLOT_BYTES, _SLOTS_SINCE = 512, "0.6"
PARTITION_STARTS = (0, 32, 64, 96)


class MemoryRegion(StrEnum, metaclass=NamedMeta):
    """A memory that tensors are allocated in; equal to its name."""

    sbuf = "sbuf", SBUF, "tile"
    psum = "psum", PSUM, "tile"
    private_hbm = "private_hbm", HBM, "private"
    shared_hbm = "shared_hbm", HBM, "shared"

    # "hbm", "sbuf" or "psum"
    memory: str
    # "private" or "shared" in HBM, "tile" on chip
    scope: str

    def __new__(cls, name: str, memory: str, scope: str) -> MemoryRegion:
        region = str.__new__(cls, name)
        region._value_, region.memory, region.scope = name, memory, scope
        return region

    @placed("ptr")
    def ptr(self, size: Any, offset: Any = None) -> MemoryPointer:
        """A piece of SBUF or PSUM; see `MemoryPointer`."""
        return piece_of(current(), self, size, offset)

    def __eq__(self, other: object) -> bool:
        # nl.hbm is private_hbm under another name, of which 0.1 and 0.2 make the string
        return str.__eq__(self, other) or (other == "hbm" and self is MemoryRegion.private_hbm)

    __hash__ = StrEnum.__hash__

    def __getattr__(self, name: str) -> NoReturn:
        refuse_name(repr(self), name, (), hint=f"write nl.ndarray(shape, dtype, buffer={self!r})")

    def __repr__(self) -> str:
        return f"nl.{self.name}"

    __str__ = __repr__


REGIONS = {r.name: r for r in MemoryRegion} | {"hbm": MemoryRegion.private_hbm}


def region_of(buffer: Any) -> MemoryRegion | None:
    """The region that a token or its name means; SBUF for None; None if it means none."""
    if isinstance(buffer, MemoryRegion):
        return buffer
    return REGIONS.get("sbuf" if buffer is None else str(getattr(buffer, "name", buffer)))


@dataclass(frozen=True)
class MemoryPointer:
    """A piece of SBUF or PSUM, in which tensors are made with `view` or `nl.ndarray(buffer=...)`."""

    name: str  # for messages
    region: MemoryRegion  # nl.sbuf or nl.psum
    # its first partition and byte. A piece of a region without an offset has addresses of its own
    start: tuple[int, int]
    size: tuple[int, int]  # its partitions, and its bytes in each
    space: AddressSpace = field(repr=False)  # the addresses that it shares with other pieces

    @placed("ptr")
    def ptr(self, size: Any, offset: Any = None) -> MemoryPointer:
        """A piece of this piece, at its beginning where no offset is given.

        Raises:
            LimitError: if it does not fit.
            RuleError: if its first partition is not 0, 32, 64 or 96, or its first byte is odd.
        """
        extent, by = as_pair(size, "size"), (0, 0) if offset is None else as_pair(offset, "offset")
        _need_fit(extent, by, self.size, f"the region {self.name}")
        _need_start(self.start[0] + by[0], by[1])
        start = (self.start[0] + by[0], self.start[1] + by[1])
        return MemoryPointer(self.name, self.region, start, extent, self.space)


def piece_of(session: Session, region: MemoryRegion, size: Any, offset: Any) -> MemoryPointer:
    """A piece of a memory: at a given offset, or anywhere.

    Raises:
        RuleError: in HBM, or if the first partition is not 0, 32, 64 or 96, or the first byte is odd.
        LimitError: if it does not fit.
    """
    if region.memory == HBM:
        raise RuleError(f"ptr of {region!r}; pieces are made of nl.sbuf and nl.psum", source="NKI 0.2 guide")
    extent = as_pair(size, "size")
    _need_fit(extent, (0, 0), _capacity(session.machine, region), f"{region!r} of {session.machine.name}")
    if offset is None:
        return MemoryPointer(region.name, region, (0, 0), extent, AddressSpace())
    start = as_pair(offset, "offset")
    _need_start(*start)
    return at_address(session, region, start, extent)


def address_of(storage: Storage) -> MemoryPointer:
    """The piece of memory that a tile takes; a tile without an address is the first of a space of its own.

    Raises:
        RuleError: in HBM.
    """
    if storage.memory == HBM:
        raise RuleError("the tensor lies in hbm, which has no addresses of partitions and bytes")
    if storage.place is None:
        space = AddressSpace()
        space.place(storage, 0, 0)
        current().program.addresses.place(storage.number, space, 0, 0)
    place = storage.place
    size = (storage.shape[0], storage.bytes_per_partition)
    region = REGIONS[storage.memory]
    return MemoryPointer(
        storage.name or region.name, region, (place.partition, place.byte), size, place.space
    )


def at_address(
    session: Session, region: MemoryRegion, start: tuple[int, int], size: tuple[int, int]
) -> MemoryPointer:
    """The piece of a memory at an address.

    Raises:
        LimitError: if it does not fit.
        RuleError: in PSUM, if it does not begin with a bank, or from NKI 0.6 on with a slot of one.
    """
    _need_fit(size, start, _capacity(session.machine, region), f"{region!r} of {session.machine.name}")
    bank, version = session.machine.limit("psum_bank_bytes"), session.version or NEWEST
    unit = _SLOT_BYTES if order(version) >= order(_SLOTS_SINCE) else bank
    if region is MemoryRegion.psum and start[1] % unit:
        word = "is inside a slot of a bank" if unit < bank else "is inside a bank"
        raise RuleError(
            f"byte {start[1]} of psum {word}; tensors of NKI {version} begin every {unit} bytes",
            hint=f"write address=(0, bank * {bank})", source=GUIDE,
        )  # fmt: skip
    space = session.keyed.setdefault(("addresses", region.memory), AddressSpace(is_memory=True))
    return MemoryPointer(region.name, region, start, size, space)


def _capacity(machine: Machine, region: MemoryRegion) -> tuple[int, int]:
    """Partitions of a memory, and bytes in each."""
    most_bytes = machine.limit("sbuf_bytes_per_partition")
    return machine.limit(
        "partitions"
    ), machine.psum_bytes_per_partition if region.memory == PSUM else most_bytes


def _need_fit(size: tuple[int, int], by: tuple[int, int], most: tuple[int, int], where: str) -> None:
    for unit, count, start, limit in zip(("partitions", "bytes in each"), size, by, most, strict=True):
        if start + count > limit:
            at = f" from {start} on" if start else ""
            raise LimitError(f"{count} {unit}{at} are asked for; {where} has {limit}", source=GUIDE)


def _need_start(partition: int, byte: int) -> None:
    if partition not in PARTITION_STARTS or byte % 2:
        raise RuleError(
            f"the piece begins at partition {partition}, byte {byte}; pieces begin at partition 0, 32, 64 or "
            "96 and at an even byte",
            source="NKI 0.2 compiler front end",
        )


def as_pair(value: Any, what: str) -> tuple[int, int]:
    """A pair of partitions and bytes: an address, or how many there are.

    Raises:
        UseError: if it is none, or one of them is negative.
    """
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise UseError(f"{what} is {value!r}; it must be a pair: partitions, bytes in each")
    first, second = (whole_number(n, what) for n in value)
    if min(first, second) < 0:
        raise UseError(f"{what} is {value!r}; neither number is negative")
    return first, second
