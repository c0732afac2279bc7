"""Allocating tensors in Beta 1: buffers, partition dimensions, fills."""

from __future__ import annotations

from typing import Any, NoReturn

from ...errors import RuleError, UseError
from ...isa.elementwise import Memset
from ...tiles.dtypes import as_dtype
from ...tiles.tile import HBM, PSUM, SBUF, compact_strides, layout
from ...trace.builder import no_tensor, record
from ...trace.session import Session, current
from ..indexing import allocated_shape, check_tile, whole_number
from ..missing import refuse_name
from ..outputs import shared_storage
from ..places import placed
from .direct_allocation import Allocator, allocate, ignores_addresses, is_direct, refuse_mixing
from .tensor import Tensor


class Buffer:
    """A memory that tensors are allocated in.

    Args:
        name: as in nki.language.
        memory: "hbm", "sbuf" or "psum".
        scope: "private", "shared" or "tile".
    """

    def __init__(self, name: str, memory: str, scope: str) -> None:
        self.name = name
        self.memory = memory
        self.scope = scope

    def __repr__(self) -> str:
        return f"nl.{self.name}"

    def __getattr__(self, name: str) -> NoReturn:
        refuse_name(repr(self), name, (), hint=f"write nl.ndarray(shape, dtype, buffer={self!r})")


sbuf = Buffer("sbuf", SBUF, "tile")
psum = Buffer("psum", PSUM, "tile")
private_hbm = Buffer("private_hbm", HBM, "private")
hbm = Buffer("hbm", HBM, "private")
shared_hbm = Buffer("shared_hbm", HBM, "shared")


class PartitionDim(int):
    """The extent of the partition axis, as `nl.par_dim(128)` marks it."""


@placed("par_dim")
def par_dim(extent: Any) -> PartitionDim:
    """Mark the partition axis of a shape."""
    return PartitionDim(whole_number(extent, "extent"))


def ndarray(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "") -> Any:
    """A tensor whose elements are not written yet.

    Args:
        shape: extents; on chip the axis marked with `par_dim`, else the first, is the partition. Axes before
            it are blocks, each a tile of its own.
        dtype: of one element.
        buffer: nl.sbuf (default), nl.psum, nl.hbm, nl.private_hbm, nl.shared_hbm, or one of `nki.compiler`
            that gives addresses.
        name: shown in messages and profiles.

    Raises:
        LimitError: if there are more than 128 partitions, or an address lies outside of the memory.
        RuleError: if some tiles of the kernel have addresses and others have none.
    """
    session = current()
    session.flush()
    chosen = _chosen(session, buffer)
    if not isinstance(chosen, Buffer | Allocator):
        raise RuleError(
            f"buffer is {buffer!r}; it must be nl.sbuf, nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm"
        )
    extents = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    marked = [axis for axis, n in enumerate(extents) if isinstance(n, PartitionDim)]
    plain = allocated_shape(extents)
    element_type = as_dtype(dtype)
    if isinstance(chosen, Buffer) and chosen.memory == HBM:
        storage = shared_storage(session, plain, element_type, chosen.scope, name)
        return Tensor(storage, 0, layout(plain, compact_strides(plain), element_type, HBM, None, 0))
    axis = marked[0] if marked else 0
    check_tile(session.machine, chosen.memory, plain[axis:], element_type)
    if isinstance(chosen, Allocator):
        return allocate(session, plain, axis, element_type, chosen, name)
    if is_direct(session):
        refuse_mixing(chosen.memory)
    physical = (plain[axis], *plain[:axis], *plain[axis + 1 :])
    storage = session.new_storage(physical, element_type, chosen.memory, "tile", name)
    steps = storage.strides
    strides = (*steps[1 : axis + 1], steps[0], *steps[axis + 1 :])
    return Tensor(storage, 0, layout(plain, strides, element_type, chosen.memory, axis, 0))


def _chosen(session: Session, buffer: Any) -> Any:
    """The buffer or allocator meant; a plain buffer where the kernel ignores addresses."""
    if isinstance(buffer, Allocator) and ignores_addresses(session):
        return sbuf if buffer.memory == SBUF else psum
    return sbuf if buffer is None else buffer


def full(shape: Any, fill_value: Any, dtype: Any, *, buffer: Any = None, name: str = "") -> Tensor:
    """A tile filled with a number; see `ndarray` for the arguments."""
    session = current()
    chosen = _chosen(session, buffer)
    if isinstance(chosen, Allocator):
        raise UseError(
            "a tile with an address cannot be created with a value",
            hint="create it with nl.ndarray and assign the value to it",
            key="err_tensor_creation_on_scratchpad_with_init_value_not_supported",
        )
    if isinstance(chosen, Buffer) and chosen.memory == HBM:
        raise UseError(
            "an HBM tensor cannot be created with a value",
            hint="create it with nl.ndarray and store a tile to it",
            key="err_hbm_tensor_with_init_value_not_supported",
        )
    tensor = ndarray(shape, dtype, buffer=buffer, name=name)
    for block in blocks_of(tensor):
        record(session, Memset, [block], ("unknown",), (fill_value,))
    session.program.marks.filled.add(tensor.storage.number)
    return tensor


def blocks_of(tensor: Tensor) -> list[Tensor]:
    """The tiles of a tensor with block dimensions; itself if it has none."""
    axis = tensor.layout.partition_axis
    if not axis:
        return [tensor]
    return [tile for i in range(tensor.shape[0]) for tile in blocks_of(tensor[i])]


def zeros(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "") -> Tensor:
    """A tile of zeros; see `ndarray` for the arguments."""
    return full(shape, 0, dtype, buffer=buffer, name=name)


def ones(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "") -> Tensor:
    """A tile of ones; see `ndarray` for the arguments."""
    return full(shape, 1, dtype, buffer=buffer, name=name)


def _like(a: Any) -> tuple[Any, ...]:
    if not isinstance(a, Tensor):
        raise no_tensor("a", a, "it must be a tensor")
    axis = a.layout.partition_axis
    return tuple(PartitionDim(n) if i == axis else n for i, n in enumerate(a.shape))


def _buffer_like(a: Tensor) -> Buffer:
    return {SBUF: sbuf, PSUM: psum, HBM: hbm}[a.layout.memory]


def empty_like(a: Tensor, dtype: Any = None, *, buffer: Any = None, name: str = "") -> Tensor:
    """A tensor of the shape of another, not written yet."""
    return ndarray(_like(a), dtype or a.layout.dtype, buffer=buffer or _buffer_like(a), name=name)


def zeros_like(a: Tensor, dtype: Any = None, *, buffer: Any = None, name: str = "") -> Tensor:
    """A tile of zeros of the shape of another."""
    return full(_like(a), 0, dtype or a.layout.dtype, buffer=buffer or _buffer_like(a), name=name)
