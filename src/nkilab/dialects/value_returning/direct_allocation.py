"""Tiles of Beta 1 at addresses that the kernel gives.

The blocks of a tensor that get one address are one tile. Tiles of different tensors may overlap: they are the
same bytes.

Source: NKI direct allocation guide; stubs of `nki.compiler.sbuf` and `nki.compiler.psum`, SDK 2.26.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from inspect import signature
from itertools import product
from math import prod
from operator import index as as_index
from types import CodeType, FrameType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...errors import LimitError, NkilabError, RuleError, UseError
from ...isa.declare import partition_step
from ...tiles.aliases import AddressSpace
from ...tiles.dtypes import DType
from ...tiles.tile import PSUM, Storage, compact_strides, layout
from ...trace.run_notes import BlockUse
from ...trace.session import Session, current
from ...trace.source import is_users, name_of, place_of, user_frame
from ..indexing import DynamicSlice, place_number
from .grids import Index
from .tensor import Tensor, public_dtype

GUIDE = "NKI direct allocation guide"
Place = Callable[..., Any]


# what the documents call the arguments of a function that gives addresses
PARAMETERS = ("idx", "pdim_size", "fdim_size")


def _takes_names(place: Place) -> bool:
    """Whether a function takes its arguments by the documented names; else it gets them by position."""
    try:
        signature(place).bind(**dict.fromkeys(PARAMETERS))
    except (TypeError, ValueError):
        return False
    return True


class Address(NamedTuple):
    """Where a tile begins: PSUM bank (0 in SBUF), partition, byte within partition and bank."""

    bank: int
    partition: int
    byte: int


class Allocator:
    """A buffer whose tiles have addresses, as `sbuf.mod_alloc` and its like give.

    Args:
        memory: "sbuf" or "psum".
        called: how messages name it.
        place: (index of a block, partitions, bytes per partition) to (partition, byte), in PSUM (bank,
            partition, byte).
    """

    def __init__(self, memory: str, called: str, place: Place) -> None:
        if not callable(place):
            raise UseError(f"func is of type {type(place).__name__}; it must be a function of addresses")
        self.memory = memory
        self.called = called
        self.place = place
        self._takes_names = _takes_names(place)

    def __repr__(self) -> str:
        return self.called

    def address(
        self, session: Session, block: tuple[int, ...], partitions: int, size: int, call: Any = None
    ) -> Address:
        """Where a block lies: in loops that the vendor traces once, where it lay in the first iteration.

        Args:
            session: the launch.
            block: its index.
            partitions: of the tile.
            size: bytes of the tile in each partition.
            call: which allocation of an iteration this is; None outside of loops.

        Raises:
            RuleError: if that is no address, or none at which a tile may begin.
            LimitError: if the tile ends beyond the memory.
        """
        traced: dict[Any, Address] = session.keyed.setdefault("addresses traced", {})
        if call is not None and call[0] is not None and call in traced:
            return traced[call]
        address = self._address_given(block, partitions, size)
        self._check(session, address, partitions, size)
        if call is not None:
            traced[call] = address
        return address

    def _address_given(self, block: tuple[int, ...], partitions: int, size: int) -> Address:
        values = (block, partitions, size)
        named = dict(zip(PARAMETERS, values, strict=True))
        position = self.place(**named) if self._takes_names else self.place(*values)
        parts = position if isinstance(position, tuple | list) else (position,)
        wanted = ("bank", "partition", "byte") if self.memory == PSUM else ("partition", "byte")
        try:
            numbers = [as_index(n) for n in parts]
        except TypeError:
            numbers = []
        if len(numbers) != len(wanted):
            raise RuleError(
                f"the address of block {block} is {position!r}; it must be ({', '.join(wanted)}), integers",
                source=GUIDE,
            )
        return Address(*numbers) if self.memory == PSUM else Address(0, *numbers)

    def _check(self, session: Session, address: Address, partitions: int, size: int) -> None:
        machine = session.machine
        in_psum = self.memory == PSUM
        # documented: a tile begins within what the compiler leaves; published kernels end beyond that
        whole = machine.limit("psum_bank_bytes" if in_psum else "sbuf_physical_bytes_per_partition")
        first = whole if in_psum else machine.limit("sbuf_bytes_per_partition")
        step = partition_step(partitions)
        if address.partition % step or not 0 <= address.partition <= machine.limit("partitions") - partitions:
            allowed = "0, 32, 64 or 96" if step == 32 else "0 or 64" if step == 64 else "0"
            raise RuleError(
                f"the tile starts at partition {address.partition} with {partitions} partitions; "
                f"it must start at {allowed}",
                source=GUIDE,
            )
        if in_psum and (address.partition or address.byte):
            raise RuleError(
                f"the tile starts at partition {address.partition} and byte {address.byte} of its bank; "
                "in psum both are 0",
                source="nki.compiler.psum.alloc",
            )
        if in_psum and not 0 <= address.bank < machine.limit("psum_banks"):
            raise LimitError(
                f"bank is {address.bank}; {machine.name} has {machine.limit('psum_banks')}",
                source="nki.compiler.psum.alloc",
            )
        if not 0 <= address.byte < first or address.byte + size > whole:
            unit = "bank" if in_psum else "partition"
            raise LimitError(
                f"the tile takes bytes {address.byte} to {address.byte + size} of a {unit}; "
                f"on {machine.name} it must begin below {first} and end by {whole}"
                + (", as the compiler keeps what lies between" if first < whole else ""),
                source=GUIDE,
            )


def modulo(base: int, counts: tuple[int, ...], size: int) -> Callable[[tuple[int, ...]], int]:
    """The rotation of blocks: base + size * (the row-major number of the block's index modulo counts)."""

    def place(block: tuple[int, ...]) -> int:
        # published kernels give a count to tensors without block axes, which have nothing to rotate
        sizes = counts if counts and block else (1,) * len(block)
        if len(sizes) != len(block):
            raise RuleError(
                f"a number of tiles is {counts}, for {len(sizes)} block axes; the tensor has {len(block)}",
                source="nki.compiler.sbuf.mod_alloc",
            )
        at = sum(i % n * step for i, n, step in zip(block, sizes, compact_strides(sizes), strict=True))
        return base + at * size

    return place


class Blocks:
    """A tensor with block axes whose tiles have addresses: indexed by block, it gives tiles.

    Args:
        tiles: the tile of each block, an array of them along the block axes.
        shape: of a tile.
        numbers: of the blocks, along the same axes, where several of them rotate through one tile; else None.
    """

    def __init__(self, tiles: np.ndarray, shape: tuple[int, ...], numbers: np.ndarray | None = None) -> None:
        self._tiles = tiles
        self._shape = shape
        self._numbers = numbers

    @property
    def shape(self) -> tuple[int, ...]:
        """Blocks along each block axis, then the shape of a tile."""
        return (*self._tiles.shape, *self._shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def _first(self) -> Tensor:
        return self._tiles.flat[0]

    @property
    def dtype(self) -> Any:
        """Data type of one element, as NumPy's dtype."""
        return public_dtype(self._first.layout.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self._first.itemsize

    @property
    def buffer(self) -> str:
        """The memory it lies in."""
        return self._first.buffer

    def describe(self) -> str:
        """One line for messages: name, dtype, shape and memory."""
        name = self._first.storage.name or name_of(self, user_frame()) or "(unnamed)"
        return f"{name}: {self._first.layout.dtype}{list(self.shape)} in {self.buffer}"

    def __len__(self) -> int:
        return int(self._tiles.shape[0])

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        try:
            block, rest = self._of_blocks(key)
        except NkilabError as error:
            raise error.located(place_of(user_frame()), "subscript") from None
        self._note(key, block, is_given=False)
        return block[rest] if rest else block

    def __setitem__(self, key: Any, value: Any) -> None:
        try:
            block, rest = self._of_blocks(key)
            if isinstance(block, Blocks):
                raise _unindexed(self)
        except NkilabError as error:
            raise error.located(place_of(user_frame()), "assignment") from None
        block[rest or ...] = value
        self._note(key, block, is_given=True)

    def _note(self, key: Any, block: Any, *, is_given: bool) -> None:
        """Note which block a tile is now, if it is several in turn."""
        if self._numbers is None or not isinstance(block, Tensor):
            return
        parts = key if isinstance(key, tuple) else (key,)
        number = self._numbers[
            tuple(_block(self, axis, p) for axis, p in enumerate(parts[: self._tiles.ndim]))
        ]
        program = current().program
        row = len(program) - 1 if is_given else len(program)
        program.marks.block_uses.append(BlockUse(row, block.storage.number, int(number), is_given))

    def _of_blocks(self, key: Any) -> tuple[Any, tuple[Any, ...]]:
        """The tile, or the smaller tensor, that the subscripts of block axes choose; the other subscripts."""
        parts = key if isinstance(key, tuple) else (key,)
        ndim = self._tiles.ndim
        if any(p is Ellipsis for p in parts):
            at = next(i for i, p in enumerate(parts) if p is Ellipsis)
            whole = (slice(None),) * max(self.ndim - len(parts) + 1, 0)
            # an Ellipsis behind the block axes says no more than leaving the axes out
            parts = parts[:at] if at >= ndim else (*parts[:at], *whole, *parts[at + 1 :])
        chosen = tuple(_block(self, axis, part) for axis, part in enumerate(parts[:ndim]))
        tiles_chosen = self._tiles[chosen]
        rest = parts[ndim:]
        if isinstance(tiles_chosen, Tensor):
            return tiles_chosen, rest
        if not tiles_chosen.size:
            raise UseError(f"a subscript of {self.describe()} chooses no block")
        if any(part != slice(None) for part in rest):
            raise UseError(
                f"a subscript of {self.describe()} cuts several blocks at once",
                hint="index one block: t[i, 0:64, :]",
            )
        numbers = None if self._numbers is None else self._numbers[chosen]
        return Blocks(tiles_chosen, self._shape, numbers), ()


def _block(tensor: Blocks, axis: int, part: Any) -> Any:
    """A subscript of a block axis as NumPy takes it."""
    if isinstance(part, slice):
        return part
    if isinstance(part, DynamicSlice):
        start = place_number(part.start, "the start of a slice")
        return slice(start, start + place_number(part.size, "the size of a slice"))
    if isinstance(part, Index):
        low, high = part.bounds
        if low != high:
            raise RuleError(
                f"an index grid runs over the blocks of {tensor.describe()}, whose tiles have addresses",
                hint="index one block at a time, by a loop variable",
                source=GUIDE,
            )
        part = low
    place, size = place_number(part, "a subscript"), tensor.shape[axis]
    if not -size <= place < size:
        raise UseError(
            f"index {place} is outside axis {axis} of {tensor.describe()}, which has {size} elements",
            hint="shrink the loop",
            key="err_tensor_access_out_of_bound",
        )
    return place


def _unindexed(tensor: Any) -> RuleError:
    return RuleError(
        f"{tensor.describe()} has block axes; an instruction takes a tile",
        hint="index the block dimensions before the partition axis",
        key="err_failed_to_infer_tile_from_local_tensor",
    )


def refuse_blocks(value: Any) -> None:
    """Refuse a tensor with block axes where a tile is needed.

    Raises:
        RuleError: if `value` is one.
    """
    if isinstance(value, Blocks):
        raise _unindexed(value)


def is_direct(session: Session) -> bool:
    """Whether the kernel has given an address so far."""
    return bool(session.keyed.get("direct"))


def ignores_addresses(session: Session) -> bool:
    """Whether `force_auto_alloc` decorates the kernel."""
    return "force_auto_alloc" in session.keyed.get("options", ())


def allocate(
    session: Session, shape: tuple[int, ...], axis: int, dtype: DType, allocator: Allocator, name: str
) -> Tensor | Blocks:
    """The tile, or the tensor with block axes, at the addresses that an allocator gives.

    Args:
        session: the launch.
        shape: extents.
        axis: of the partitions; those before it are blocks.
        dtype: of one element.
        allocator: the buffer.
        name: shown in messages.
    """
    if not is_direct(session):
        # calls are held to more from now on
        session.calls.clear()
    session.keyed["direct"] = True
    where = _call_in_loops(session)
    blocks, tile_shape = shape[:axis], shape[axis:]
    size = prod(tile_shape[1:]) * dtype.itemsize
    tile_at: dict[Address, Tensor] = {}
    tiles = np.empty(blocks, object)
    for block in product(*(range(n) for n in blocks)):
        address = allocator.address(session, block, tile_shape[0], size, (where, block))
        if address not in tile_at:
            tile_at[address] = _tile(session, tile_shape, dtype, allocator.memory, address, name)
            _note_address(session, tile_at[address].storage, where)
        tiles[block] = tile_at[address]
    if not blocks:
        return next(iter(tile_at.values()))
    if len(tile_at) == tiles.size:
        return Blocks(tiles, tile_shape)
    uses = Counter(id(tile) for tile in tiles.flat)
    session.program.marks.rotating |= {t.storage.number for t in tile_at.values() if uses[id(t)] > 1}
    return Blocks(tiles, tile_shape, np.arange(tiles.size).reshape(blocks))


class InLoops(NamedTuple):
    """What tells an allocation from the others in an iteration of the loops around it; the same in each."""

    lines: tuple[tuple[CodeType, int], ...]  # those of the user's that led there
    unrolled: tuple[int, ...]  # iterations of the unrolled loops
    nth: int  # how often they came by before in this iteration


def _note_address(session: Session, storage: Storage, where: InLoops | None) -> None:
    """Note where a tile lies, and that what one call allocates in iterations is one tensor."""
    chains = session.keyed.setdefault("chains", {})
    # what is allocated outside of loops is of no chain with others
    call = storage.number if where is None else (where.lines, where.nth)
    chain = chains.setdefault((storage.memory, call), len(chains) + 1)
    assert storage.place is not None
    place = storage.place
    session.program.addresses.place(storage.number, place.space, place.partition, place.byte, chain)


def _call_in_loops(session: Session) -> InLoops | None:
    """What tells this allocation from the others; None outside of loops."""
    positions, position = session.program.positions, session.position
    if not position:
        return None
    lines: list[tuple[CodeType, int]] = []
    frame: FrameType | None = user_frame()
    while frame is not None and is_users(frame.f_code):
        lines.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    unrolled = []
    at = position
    while at > 0:
        parent, loop, iteration = positions[at]
        if session.keyed.get(("loop", loop)) == "static":
            unrolled.append(iteration)
        at = parent
    call = tuple(lines), tuple(unrolled)
    counts = session.keyed.setdefault("allocations", {})
    nth = counts[position, call] = counts.get((position, call), -1) + 1
    return InLoops(*call, nth)


def _tile(
    session: Session, shape: tuple[int, ...], dtype: DType, memory: str, address: Address, name: str
) -> Tensor:
    """A tile at an address; its storage begins at partition 0, so that it knows where it starts."""
    first = address.partition
    storage = session.new_storage((first + shape[0], *shape[1:]), dtype, memory, "tile", name)
    space = session.keyed.setdefault(("addresses", memory), AddressSpace(is_memory=True))
    byte = address.bank * session.machine.limit("psum_bank_bytes") + address.byte
    # what others left there is no value of this tensor's
    space.place(storage, 0, byte, inherits=False)
    known = layout(shape, storage.strides, dtype, memory, 0, first)
    return Tensor(storage, first * storage.partition_stride, known)


def refuse_mixing(memory: str) -> NoReturn:
    """Refuse a tile without an address in a kernel that gives addresses.

    Raises:
        RuleError: always.
    """
    raise RuleError(
        f"a tile in {memory} has no address; in a kernel that gives addresses every tile has one",
        hint="allocate it with nki.compiler.sbuf.alloc or mod_alloc and assign to it",
        source=f"{GUIDE}, mixing direct allocation with automatic allocation",
    )


BIAS_KEY = "err_bias_tensor_must_be_specified_in_allocation"
TRANSPOSE_KEY = "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel"
_WAYS_OUT = {
    BIAS_KEY: "call nisa.activation with bias=, a tile of your own",
    TRANSPOSE_KEY: "multiply by an identity of your own with nisa.nc_matmul",
}


def require_automatic(session: Session, problem: str, key: str) -> None:
    """Refuse what makes tiles of the compiler's own where the kernel gives addresses.

    Raises:
        UseError: if it does.
    """
    if is_direct(session):
        raise UseError(
            f"{problem} in a kernel that gives addresses", hint=_WAYS_OUT[key], source=GUIDE, key=key
        )
