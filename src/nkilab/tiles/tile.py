"""Storages (pieces of memory) and views (strided rectangles of them).

On chip a storage is [P, F]: its first physical axis is the partition. A view may put the partition axis
elsewhere (block dimensions stand before it), which `Layout.partition_axis` remembers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..errors import LimitError
from .coverage import Coverage
from .dtypes import DType

HBM, SBUF, PSUM = "hbm", "sbuf", "psum"
# where the registers of the engines' sequencers lie
SEQUENCER = "sequencer"


class IndexLayout(NamedTuple):
    """What a form may depend on of an index that is known at run time only."""

    layout: Layout  # of the tile that holds the index
    is_vector: bool  # whether it holds one index per position along the first axis of the indexed view


class Layout:
    """Everything about a view but its storage and offset: what the form of an instruction may depend on.

    Interned: equal layouts are one object, so identity compares them.

    Args:
        shape: elements along each axis.
        strides: elements of `dtype` between neighbours along each axis.
        dtype: of one element.
        memory: "hbm", "sbuf" or "psum".
        partition_axis: the axis that runs over partitions; None in HBM.
        start_partition: the first partition; 0 in HBM.
        indices: of the indices that are added to the address at run time.
    """

    __slots__ = (
        "byte_strides", "cuts", "dtype", "free_size", "indices", "is_compact", "itemsize", "memory",
        "partition_axis", "partitions",
        "repeats", "shape", "size", "start_partition", "storage_dtype", "strides",
    )  # fmt: skip

    def __init__(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, memory: str,
        partition_axis: int | None, start_partition: int, indices: tuple[IndexLayout, ...] = (),
    ) -> None:  # fmt: skip
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.memory = memory
        self.partition_axis = partition_axis
        self.start_partition = start_partition
        self.indices = indices
        # layouts of slices of such a view, by their shape and first partition
        self.cuts: dict[tuple[int, ...], Layout] = {}
        self.size = prod(shape)
        if partition_axis is None:
            self.partitions = shape[0] if len(shape) > 1 else self.size
        else:
            self.partitions = shape[partition_axis]
        self.free_size = self.size // self.partitions if self.partitions else 0
        self.is_compact = strides == compact_strides(shape)
        self.itemsize = dtype.itemsize
        self.storage_dtype = dtype.storage
        self.byte_strides = tuple(s * dtype.itemsize for s in strides)
        self.repeats = not self.is_compact and may_repeat(shape, strides)

    @property
    def is_on_chip(self) -> bool:
        """Whether the memory is SBUF or PSUM."""
        return self.memory != HBM

    @property
    def is_gathered(self) -> bool:
        """Whether each position along the first axis has an index of its own, known at run time."""
        return any(index.is_vector for index in self.indices)

    def __str__(self) -> str:
        suffix = " at run-time rows" if self.is_gathered else " at a run-time offset" if self.indices else ""
        return f"{self.dtype}{list(self.shape)} in {self.memory}{suffix}"


_LAYOUTS: dict[tuple[Any, ...], Layout] = {}


def layout(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, memory: str, partition_axis: int | None,
    start_partition: int, indices: tuple[IndexLayout, ...] = (),
) -> Layout:  # fmt: skip
    """The one `Layout` with these values."""
    key = (shape, strides, dtype, memory, partition_axis, start_partition, indices)
    known = _LAYOUTS.get(key)
    if known is None:
        known = _LAYOUTS[key] = Layout(*key)
    return known


def compact_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides of `shape`, in elements."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


# of the shapes of storages, of which a kernel has few
_compact_strides = cache(compact_strides)


def may_repeat(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two positions may be one element; False only if each stride steps over all smaller ones."""
    reach = 0
    for stride, size in sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


class Storage:
    """A piece of memory that a kernel names: metadata always, data while somebody holds a view of it.

    Args:
        number: position in the program's table of storages.
        name: the user's name, or the variable it is first seen under; may be empty.
        shape: physical shape; [P, ...] on chip.
        dtype: of one element.
        memory: "hbm", "sbuf" or "psum".
        scope: "input", "output" (shared between program instances), "private"; on chip "tile".
        line: number of the source line that created it, in the program's table of lines.
        data: elements, [*shape]; None where only shapes are known.
    """

    __slots__ = (
        "__weakref__", "_accumulated", "_initialised", "bytes", "data", "dtype", "host_array", "is_mutable",
        "lent", "line", "memory", "name", "number", "place", "scope", "shape", "strides", "written",
    )  # fmt: skip

    def __init__(
        self, number: int, name: str, shape: tuple[int, ...], dtype: DType, memory: str, scope: str, line: int
    ) -> None:
        self.number = number
        self.name = name
        self.shape = shape
        self.strides = _compact_strides(shape)
        self.dtype = dtype
        self.memory = memory
        self.scope = scope
        self.line = line
        self.data: np.ndarray | None = None
        # the same memory as bytes, which views of any type are cut from
        self.bytes: memoryview | None = None
        # elements of an input that this storage still equals: a copy that was not made yet
        self.lent: np.ndarray | None = None
        self.is_mutable = scope != "input"
        self.written = Coverage(self)
        self._accumulated: Coverage | None = None
        self._initialised: Coverage | None = None
        # the caller's array, of an input that may be written: its elements stay as they are until the launch
        # ends, because tiles may hold them lent
        self.host_array: Any = None
        # where it lies, if the kernel says so (tiles.aliases.Place)
        self.place: Any = None

    @property
    def accumulated(self) -> Coverage:
        """Which elements a matmul wrote since anything else did."""
        if self._accumulated is None:
            self._accumulated = Coverage(self)
        return self._accumulated

    @property
    def initialised(self) -> Coverage:
        """Which elements of a storage in PSUM anything but a matmul wrote, not through an alias."""
        if self._initialised is None:
            self._initialised = Coverage(self)
        return self._initialised

    @property
    def partition_stride(self) -> int:
        """Elements between neighbouring partitions."""
        return self.strides[0] if self.shape else 1

    @property
    def bytes_per_partition(self) -> int:
        """Bytes each partition holds; all bytes in HBM."""
        if self.memory == HBM:
            return prod(self.shape) * self.dtype.itemsize
        return prod(self.shape[1:]) * self.dtype.itemsize

    def allocate(self, data: np.ndarray | None = None) -> None:
        """Give the storage elements: `data` (C-contiguous, counted as written) or fresh, unwritten ones."""
        if data is None:
            check_room(self.shape, self.dtype)
            self.data = np.empty(self.shape, self.dtype.storage)
        else:
            self.data = data
            self.written.fill()
        self.bytes = self.data.reshape(-1).view(np.uint8).data

    def lie_in(self, memory: np.ndarray) -> None:
        """Have unwritten elements, in bytes that other storages may use before and after."""
        self.data = memory.view(self.dtype.storage).reshape(self.shape)
        self.bytes = memory.data

    def lend(self, elements: np.ndarray) -> None:
        """Take over `elements`, [*shape], which nobody changes, without copying them."""
        self.data = self.bytes = None
        self.lent = elements
        self.written.fill()

    def own(self) -> None:
        """Have elements of its own: those lent, or fresh ones."""
        lent, self.lent = self.lent, None
        if self.data is None:
            self.allocate(None if lent is None else lent.copy())

    def copy_on_write(self) -> None:
        """Make an input mutable, with elements of its own in place of the caller's."""
        self.is_mutable = True
        if self.data is not None:
            self.allocate(self.data.copy())

    @property
    def is_known(self) -> bool:
        """Whether the storage has elements by now, its own or lent."""
        return self.data is not None or self.lent is not None


class Index(NamedTuple):
    """What is added to the address of a view at run time: an index times a step."""

    source: View  # the tile or register that holds the index, or one per position along the first axis
    step_bytes: int  # bytes in the indexed storage between neighbouring indices
    extent: int  # indices from 0 up to this one, not included, are in bounds
    is_vector: bool  # whether there is one index per position along the first axis

    @property
    def layout(self) -> IndexLayout:
        """What a form may depend on."""
        return IndexLayout(self.source.layout, self.is_vector)


class View:
    """A strided rectangle of a storage. Abstract: each dialect's tensor class is its one final subclass.

    Args:
        storage: where its elements lie.
        offset: of its first element, in elements of its type; with indices, where all of them are 0.
        layout: everything else that is known before the kernel runs.
        indices: what is added to the address at run time. Along the first axis of a view with a vector of
            indices the stride is 0.
    """

    __slots__ = ("_bytes", "_elements", "indices", "layout", "offset", "storage")
    # what its subscripts may be, for messages
    subscripts = "integers and slices"

    def __init__(
        self, storage: Storage, offset: int, layout: Layout, indices: tuple[Index, ...] = ()
    ) -> None:
        self.storage = storage
        self.offset = offset
        self.layout = layout
        self.indices = indices
        # the memory that `_elements` was cut from; the storage may get another
        self._bytes: memoryview | None = None
        self._elements: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self.layout.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.layout.shape)

    def forget(self) -> None:
        """Let its storage, of which nobody names another part, be as it was at first."""
        storage = self.storage
        storage.data = storage.bytes = storage.lent = None
        storage.written.clear()
        if self._bytes is not None:
            self._bytes = None
            del self._elements

    def describe(self) -> str:
        """One line for messages: name, dtype, shape and memory."""
        name = self.storage.name or "(unnamed)"
        return f"{name}: {self.layout}"


# what waits for calls that are still computed behind the caller; None if there never are any
_settle: Callable[[], None] | None = None


def before_reading(settle: Callable[[], None] | None) -> None:
    """Have `settle` called before anybody looks at elements."""
    global _settle
    _settle = settle


def settle_elements() -> None:
    """Wait until all elements are what the calls so far make them."""
    if _settle is not None:
        _settle()


# what notes that somebody looks at elements; None if nobody asks
_looks: list[View] | None = None


@contextmanager
def noting_looks() -> Iterator[list[View]]:
    """Note in a list the views of which somebody looks at elements in a block."""
    global _looks
    outer, _looks = _looks, []
    try:
        yield _looks
    finally:
        _looks = outer


# Bytes up to which nobody asks whether this computer has them.
_SMALL = 2**30


def check_room(shape: tuple[int, ...], dtype: DType) -> None:
    """Refuse elements that the memory of this computer cannot hold.

    Raises:
        LimitError: with the bytes that they need.
    """
    needed = prod(shape) * dtype.itemsize
    if needed < _SMALL:
        return
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > memory:
        raise LimitError(
            f"the elements of {dtype}{list(shape)} need {needed / 2**30:,.1f} GiB; "
            f"this computer has {memory / 2**30:,.1f} GiB of memory",
            hint="nkilab estimate needs none: it computes no elements",
        )


def note_look(view: View) -> None:
    """Note that somebody looks at the elements of a view, or would if there were data."""
    if _looks is not None:
        _looks.append(view)


def array_of(view: View) -> np.ndarray:
    """The elements of a view without indices, sharing memory with its storage, which must hold data."""
    note_look(view)
    return elements_now(view)


def elements_now(view: View) -> np.ndarray:
    """As `array_of`, for an instruction, which reads them again where it is computed again."""
    if _settle is not None:
        _settle()
    if view.storage.place is not None:
        view.storage.place.recall(view.storage)
    return memory_of(view)


def elements_text(view: View) -> str:
    """The elements of a view as NumPy writes them, unwritten ones as --; of many the outer ones."""
    elements, written = array_of(view), view.storage.written
    with np.printoptions(threshold=256, linewidth=100):
        if written.of(view) == "all":
            return str(elements)
        return f"{np.ma.array(elements, mask=written.missing(view))}\n(-- was never written)"


def memory_of(view: View) -> np.ndarray:
    """As `array_of`, but calls that are under way may still write there."""
    storage = view.storage
    if storage.bytes is not None and storage.bytes is view._bytes:
        return view._elements
    known = view.layout
    assert not known.indices, "its address is known at run time"
    if storage.bytes is None:
        assert storage.lent is not None, "shapes only"
        if known.shape == storage.shape and known.is_compact and known.dtype is storage.dtype:
            return storage.lent
        storage.own()
        assert storage.bytes is not None
    view._elements = elements = np.ndarray(
        known.shape, known.storage_dtype, storage.bytes, view.offset * known.itemsize, known.byte_strides
    )
    # behind them: whoever interrupts in between leaves no bytes without their elements
    view._bytes = storage.bytes
    return elements


def whole_layout(storage: Storage) -> Layout:
    """The layout of a view of everything in `storage`."""
    on_chip = storage.memory != HBM
    return layout(storage.shape, storage.strides, storage.dtype, storage.memory, 0 if on_chip else None, 0)
