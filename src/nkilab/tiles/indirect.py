"""Views whose address is known at run time: where they lie, their elements, what is out of bounds.

Source: nki.isa.dma_copy, indirect addressing; NKI access pattern guide, dynamic access.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple, NoReturn, TypeVar

import numpy as np

from ..errors import UseError
from .tile import SEQUENCER, Storage, View, array_of, compact_strides, elements_now, layout, settle_elements

V = TypeVar("V", bound=View)


class OutOfBoundsError(UseError):
    """An index that is known at run time only lies outside the tensor.

    Args:
        problem: see `NkilabError`.
        element: the element of the flat tensor that it asks for.
        size: elements of the flat tensor.
    """

    def __init__(self, problem: str, element: int, size: int) -> None:
        super().__init__(
            problem,
            hint="correct the index, or pass oob_mode=nisa.oob_mode.skip to leave such rows out",
            source="nki.isa.dma_copy, oob_mode",
            key="err_tensor_access_out_of_bound",
        )
        self.element = element
        self.size = size


class UnwrittenError(UseError):
    """The run cannot go on without numbers that nothing has written."""


def numbers_in(
    source: View, count: int | None = None, elements: Callable[[View], np.ndarray] = array_of
) -> np.ndarray:
    """The first numbers in a tile or register, partitions first, as 64-bit integers; all if `count` is None.

    Args:
        elements: `elements_now` for an instruction.

    Raises:
        UnwrittenError: if one of them was never written.
    """
    written = source.storage.written
    if not written.is_full:
        known = source.layout
        chosen = np.arange(known.size) < (known.size if count is None else count)
        state = written.of(source, chosen.reshape(known.shape, order="F"))
        if state != "all":
            _refuse_unwritten(source, "was never written" if state == "none" else "was written in part only")
    return elements(source).astype(np.int64).reshape(-1, order="F")[:count]


def _refuse_unwritten(source: View, share: str) -> NoReturn:
    if source.layout.memory == SEQUENCER:
        raise UnwrittenError(f"the register {share}", hint="pass a value to nisa.register_alloc")
    raise UnwrittenError(
        f"the index {source.describe()} {share}", hint="load or compute all of it before this access"
    )


def settled(view: V, values: list[int] | None) -> V:
    """`view` at the address that its scalar indices have: as an index of 0 each if `values` is None.

    A vector of indices stays.
    """
    known = view.layout
    scalars = [i for i in view.indices if not i.is_vector]
    if not scalars:
        return view
    start = view.offset
    for index, value in zip(scalars, values or [0] * len(scalars), strict=True):
        start += value * index.step_bytes // known.itemsize
    vectors = tuple(i for i in view.indices if i.is_vector)
    lay = layout(
        known.shape, known.strides, known.dtype, known.memory, known.partition_axis, known.start_partition,
        tuple(i.layout for i in vectors),
    )  # fmt: skip
    return type(view)(view.storage, start, lay, vectors)


def scalar_values(view: View) -> list[int]:
    """What the scalar indices of a view are by now."""
    return [int(numbers_in(i.source, None, elements_now)[0]) for i in view.indices if not i.is_vector]


def check_scalars(view: View, values: list[int]) -> None:
    """Refuse scalar indices that are out of bounds.

    Raises:
        OutOfBoundsError: if one is outside its axis or the view reaches over the end of its storage.
    """
    place = settled(view, values)
    low, high = reach(view)
    size = elements_of(view)
    scalars = [i for i in view.indices if not i.is_vector]
    for index, value in zip(scalars, values, strict=True):
        if not 0 <= value < index.extent:
            raise OutOfBoundsError(
                f"the index of {view.describe()} is {value}; the axis has {index.extent} elements",
                value * index.step_bytes // view.layout.itemsize, size,
            )  # fmt: skip
    if place.offset + low < 0 or place.offset + high >= size:
        raise OutOfBoundsError(
            f"{view.describe()} with an index of {values} reaches elements {place.offset + low} to "
            f"{place.offset + high}; the tensor has {size}",
            place.offset + high, size,
        )  # fmt: skip


def elements_of(view: View) -> int:
    """Elements of the type of a view that its storage holds."""
    storage = view.storage
    return prod(storage.shape) * storage.dtype.itemsize // view.layout.itemsize


def reach(view: View, from_axis: int = 0) -> tuple[int, int]:
    """The lowest and highest element of a view along its axes from one on, from its first, in elements."""
    steps = [(n - 1) * s for n, s in zip(view.layout.shape, view.layout.strides, strict=True)][from_axis:]
    return sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps)


class Rows(NamedTuple):
    """Where the positions along the first axis of a gathered view lie."""

    starts: np.ndarray  # element of the flat storage at which each position begins; [N]
    are_in: np.ndarray  # which of them are in bounds; [N]


def rows_of(view: View, *, skips: bool) -> Rows:
    """Where the rows of a view with vectors of indices, and settled scalar ones, lie.

    Args:
        view: with vectors of indices alone.
        skips: whether indices out of bounds are left out instead of refused.

    Raises:
        OutOfBoundsError: if an index is out of bounds and `skips` is False.
    """
    known = view.layout
    count = known.shape[0]
    starts = np.full(count, view.offset, np.int64)
    starts += np.arange(count) * known.strides[0]
    are_in = np.ones(count, np.bool_)
    for index in view.indices:
        values = numbers_in(index.source, count, elements_now)
        starts += values * (index.step_bytes // known.itemsize)
        are_in &= (values >= 0) & (values < index.extent)
    low, high = reach(view, from_axis=1)
    size = elements_of(view)
    are_in &= (starts + low >= 0) & (starts + high < size)
    if not skips and not are_in.all():
        row = int(np.flatnonzero(~are_in)[0])
        said = ", ".join(str(numbers_in(i.source, count, elements_now)[row]) for i in view.indices)
        raise OutOfBoundsError(
            f"row {row} of {view.describe()} has the index {said}; "
            f"the axis has {', '.join(str(i.extent) for i in view.indices)} elements",
            int(starts[row]), size,
        )  # fmt: skip
    return Rows(starts, are_in)


def cells(view: View, starts: np.ndarray) -> np.ndarray:
    """The elements of the flat storage, in the view's type, of rows that start there; [N, ...]."""
    known = view.layout
    places = starts.reshape(-1, *(1,) * (len(known.shape) - 1))
    for axis in range(1, len(known.shape)):
        steps = np.arange(known.shape[axis]) * known.strides[axis]
        places = places + steps.reshape(-1, *(1,) * (len(known.shape) - axis - 1))
    return places


def flat(view: View) -> np.ndarray:
    """The storage of a view as one run of elements of the view's type, sharing memory."""
    settle_elements()
    storage = view.storage
    if storage.bytes is None:
        storage.own()
    assert storage.bytes is not None
    return np.ndarray((elements_of(view),), view.layout.storage_dtype, storage.bytes)


def gathered(view: V, rows: Rows) -> V:
    """A view of a storage of its own with what `view` reads; rows out of bounds are not written."""
    known = view.layout
    storage = Storage(-1, view.storage.name, known.shape, known.dtype, known.memory, "private", 0)
    storage.allocate()
    assert storage.data is not None
    places = cells(view, rows.starts[rows.are_in])
    storage.data[rows.are_in] = flat(view)[places]
    lay = layout(
        known.shape, compact_strides(known.shape), known.dtype, known.memory, known.partition_axis,
        known.start_partition,
    )  # fmt: skip
    copy = type(view)(storage, 0, lay)
    written = view.storage.written
    if written.is_full and rows.are_in.all():
        storage.written.fill()
    elif not written.is_empty:
        received = np.zeros(known.shape, np.bool_)
        received[rows.are_in] = written.of_cells(places, known.itemsize)
        storage.written.add_where(copy, received)
    return copy


def scattered(view: View, rows: Rows, copy: View) -> None:
    """Write the rows of `copy`, a storage of its own, to where `view` has them; the last of equals stays."""
    # the rows may still be computed
    settle_elements()
    assert copy.storage.data is not None
    written = copy.storage.written.bits.reshape(view.layout.shape)
    places = cells(view, rows.starts)
    chosen = written & rows.are_in.reshape(-1, *(1,) * (written.ndim - 1))
    target = np.broadcast_to(places, written.shape)[chosen]
    flat(view)[target] = copy.storage.data.reshape(written.shape)[chosen]
    view.storage.written.add_cells(target, view.layout.itemsize)
