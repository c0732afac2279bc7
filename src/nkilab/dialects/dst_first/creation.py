"""Making tensors in `nki`: unwritten, filled, constant, random."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import LimitError, RuleError, UseError
from ...isa.data_movement import DmaCopy
from ...isa.elementwise import Memset
from ...isa.random_numbers import Rand2, SetRngSeed
from ...tiles.dtypes import DType, as_dtype
from ...tiles.tile import HBM, compact_strides, layout, whole_layout
from ...trace.builder import no_tensor, record
from ...trace.session import Session, current, running
from .. import tile_functions as common
from ..history import order
from ..indexing import allocated_shape, check_tile, whole_number
from ..outputs import shared_storage
from ..places import placed
from ..tile_functions import plain
from ..versions import require, version_of
from .functions import RESULTS, a_tile
from .regions import REGIONS, MemoryPointer, MemoryRegion, as_pair, at_address, region_of
from .tensor import Tensor


def ndarray(shape: Any, dtype: Any, buffer: Any = None, name: str = "", address: Any = None) -> Tensor:
    """A tensor whose elements are not written yet; on chip its first axis is the partition.

    Args:
        shape: extents.
        dtype: of one element.
        buffer: nl.sbuf (default), nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm, its name, or a piece of
            one that `ptr` made.
        name: shown in messages and profiles.
        address: first partition, and byte in each; in PSUM the first of a bank. Tensors whose addresses
            overlap are the same memory. None for any place.

    Raises:
        LimitError: if there are more than 128 partitions, or the address is beyond the memory.
        RuleError: if there is no such buffer or type.
    """
    session = running() or current()
    key = None
    if type(buffer) is MemoryRegion and type(shape) is tuple and type(dtype) is str and address is None:
        # most tiles of a kernel are like one that it made before
        key = (ndarray, shape, dtype, buffer.memory)
        known = session.keyed.get(key)
        if known is not None:
            # `nl.ndarray` is called through `placed`
            storage = session.new_storage(known.shape, known.dtype, known.memory, "tile", name, 3)
            return Tensor(storage, 0, known)
    region = buffer.region if isinstance(buffer, MemoryPointer) else region_of(buffer)
    if region is None:
        shown = buffer if isinstance(buffer, str) else repr(buffer)
        listed = ", ".join(f"nl.{n}" for n in ("sbuf", "psum", "hbm", "private_hbm", "shared_hbm"))
        raise RuleError(f"buffer is {shown!r}; it must be one of {listed}")
    extents, element_type = allocated_shape(shape), as_dtype(dtype)
    if region.memory == HBM:
        if address is not None:
            raise RuleError("address is given with a buffer in hbm; addresses are of sbuf and psum")
        storage = shared_storage(session, extents, element_type, region.scope, name)
        return Tensor(storage, 0, layout(extents, compact_strides(extents), element_type, HBM, None, 0))
    tile = _tile(
        session,
        region,
        extents,
        element_type,
        name,
        _piece(session, region, buffer, extents, element_type, address),
    )
    if key is not None:
        session.keyed[key] = tile.layout
    return tile


def _piece(
    session: Session, region: MemoryRegion, buffer: Any, extents: tuple[int, ...], dtype: DType, address: Any
) -> MemoryPointer | None:
    """The piece of memory that a tile lies in; None if it may lie anywhere."""
    size = (extents[0], prod(extents[1:]) * dtype.itemsize)
    if isinstance(buffer, MemoryPointer):
        if size[0] > buffer.size[0] or size[1] > buffer.size[1]:
            raise LimitError(
                f"the tensor has {size[0]} partitions of {size[1]} bytes; the region has {buffer.size[0]} of "
                f"{buffer.size[1]}"
            )
        return buffer
    return None if address is None else at_address(session, region, as_pair(address, "address"), size)


def _tile(
    session: Session, region: MemoryRegion, extents: tuple[int, ...], dtype: DType, name: str,
    piece: MemoryPointer | None,
) -> Tensor:  # fmt: skip
    check_tile(session.machine, region.memory, extents, dtype)
    storage = session.new_storage(extents, dtype, region.memory, "tile", name)
    if piece is not None:
        piece.space.place(storage, *piece.start)
        session.program.addresses.place(storage.number, piece.space, *piece.start)
    return Tensor(storage, 0, whole_layout(storage))


def full(shape: Any, fill_value: Any, dtype: Any, buffer: Any = None, name: str = "") -> Tensor:
    """A tile filled with a number; see `ndarray` for the other arguments.

    Raises:
        RuleError: if the buffer is in HBM, which no instruction fills.
    """
    tensor = ndarray(shape, dtype, buffer, name)
    if not tensor.layout.is_on_chip:
        raise RuleError(
            "an HBM tensor cannot be created with a value",
            hint="create it with nl.ndarray and copy a tile to it",
            key="err_hbm_tensor_with_init_value_not_supported",
        )
    record(current(), Memset, [tensor], plain(Memset), (fill_value,))
    return tensor


def zeros(shape: Any, dtype: Any, buffer: Any = None, name: str = "") -> Tensor:
    """A tile of zeros; see `ndarray` for the arguments."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Any, dtype: Any, buffer: Any = None, name: str = "") -> Tensor:
    """A tile of ones; see `ndarray` for the arguments."""
    return full(shape, 1, dtype, buffer, name)


def _a_tensor(x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise no_tensor("x", x, "it must be a tensor")
    return x


def empty_like(x: Any, dtype: Any = None, buffer: Any = None, name: str = "") -> Tensor:
    """A tensor of the shape of another, and of its type and memory where none is given, not written yet."""
    like = _a_tensor(x)
    return ndarray(like.shape, dtype or like.dtype, like.buffer if buffer is None else buffer, name)


def zeros_like(x: Any, dtype: Any = None, buffer: Any = None, name: str = "") -> Tensor:
    """A tile of zeros of the shape of another tensor, and of its type where none is given; in SBUF."""
    like = _a_tensor(x)
    return full(like.shape, 0, dtype or like.dtype, buffer, name)


def shared_constant(constant: Any, dtype: Any = None) -> Tensor:
    """A tensor in shared HBM with the elements of a NumPy array or of a .npy file, which may not be written.

    Raises:
        UseError: if the argument is neither, or there is no such file.
    """
    if isinstance(constant, str | Path):
        try:
            constant = np.load(constant, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise UseError(f"constant is {str(constant)!r}; it must be a .npy file: {error}") from None
    if not isinstance(constant, np.ndarray) or not constant.size:
        raise UseError(
            f"constant is of type {type(constant).__name__}; it must be a NumPy array of an element or "
            f"more, or "
            "the path of a .npy file"
        )
    element_type = as_dtype(constant.dtype if dtype is None else dtype)
    storage = common.constant_storage(constant, element_type)
    return Tensor(storage, 0, whole_layout(storage))


def shared_identity_matrix(n: Any, dtype: Any = "uint8", dst: Any = None) -> Tensor:
    """An SBUF tile [n, n], new or `dst`, with ones on the diagonal; in shared HBM in NKI 0.1 and 0.2."""
    session = current()
    extent = allocated_shape((whole_number(n, "n"),))[0]
    constant = shared_constant(np.eye(extent, dtype=np.float32), dtype)
    version = version_of(session)
    if version and order(version) < order("0.3"):
        return constant
    tile = ndarray((extent, extent), dtype) if dst is None else a_tile(dst, "dst")
    record(session, DmaCopy, [tile, constant], plain(DmaCopy), ())
    return tile


def rand(shape: Any, dtype: Any, buffer: Any = None, name: str = "") -> Tensor:
    """A tile of uniform numbers in [0, 1); the bits are not those of the hardware.

    From trn3 on the generator gives numbers, before it gives bits, of which 24 are kept.

    Raises:
        RuleError: if the buffer is in HBM, or a piece that `ptr` made.
    """
    session = current()
    if isinstance(buffer, MemoryPointer):
        raise RuleError(
            "buffer is a piece of memory; nl.rand makes a tile in nl.sbuf or nl.psum",
            hint="copy the tile to one of nl.ndarray(buffer=...)",
        )
    region = region_of(buffer)
    if region is None or region.memory == HBM:
        raise RuleError(f"buffer is {buffer!r}; nl.rand makes a tile in nl.sbuf or nl.psum")
    element_type = as_dtype(dtype)
    if session.machine.generation >= 4:
        tile = ndarray(shape, element_type, region, name)
        record(session, Rand2, [tile, 0.0, 1.0], plain(Rand2), ())
        return tile
    result: Tensor = common.uniform(RESULTS, allocated_shape(shape), element_type, region.memory)
    result.storage.name = name
    return result


def random_seed(seed: Any) -> None:
    """Start the random generator of VectorE from a tile [1, 1] with a 32-bit number."""
    if not isinstance(seed, Tensor):
        raise RuleError(
            f"seed is of type {type(seed).__name__}; it must be a tile [1, 1]",
            hint="write nl.random_seed(nl.full((1, 1), 42, dtype=nl.int32))",
            source="NKI 0.4 release notes, NKI Language (experimental)",
        )
    record(current(), SetRngSeed, [None, a_tile(seed, "seed")], plain(SetRngSeed), ())


def memory_test(*memories: str) -> Callable[[Any], bool]:
    """A function that tells whether a buffer is one of these memories."""

    def is_there(buffer: Any) -> bool:
        region = buffer.region if isinstance(buffer, MemoryPointer) else region_of(buffer)
        if region is None or buffer is None:
            raise UseError(f"buffer is {buffer!r}; it must be a memory region such as nl.sbuf")
        return region.memory in memories

    is_there.__doc__ = f"Whether a buffer is {' or '.join(memory.upper() for memory in memories)}."
    return is_there


@placed("view")
def _view(self: MemoryPointer, dtype: Any, shape: Any) -> Tensor:
    """A tensor at the beginning of the piece.

    Raises:
        LimitError: if it does not fit.
    """
    return ndarray(shape, dtype, self)


setattr(MemoryPointer, "view", _view)  # noqa: B010


class MemoryName:
    """A memory by the name that every kernel of NKI 0.1 and 0.2 has without an import: sbuf, psum or hbm."""

    def __init__(self, word: str) -> None:
        self._word = word

    @property
    def name(self) -> str:
        """The word, which `buffer=` takes, too.

        Raises:
            SpellingError: if the version asked for has no such names.
        """
        require("memory_name", version_of(running()), self._word)
        return self._word

    def view(self, dtype: Any, shape: Any, name: str = "") -> Tensor:
        """A tensor whose elements are not written yet."""
        return _named_tensor(shape, dtype, REGIONS[self.name], name)

    def ptr(self, size: Any, offset: Any = None) -> MemoryPointer:
        """A piece of SBUF or PSUM; see `MemoryPointer`."""
        return REGIONS[self.name].ptr(size, offset)

    def __repr__(self) -> str:
        return self._word


_named_tensor = placed("view")(ndarray)
MEMORY_NAMES = {word: MemoryName(word) for word in ("sbuf", "psum", "hbm")}
