"""Subscripts of integers, slices, `ds` and Ellipsis, as all spellings share them."""

from __future__ import annotations

from operator import index as as_index
from typing import Any, NamedTuple, TypeVar

from ..errors import UseError
from ..tiles.tile import View
from ..tiles.views import derived

V = TypeVar("V", bound=View)
OUT_OF_BOUND = "err_tensor_access_out_of_bound"
FULL = slice(None)


class DynamicSlice(NamedTuple):
    """A run of `size` elements from `start`, as `nl.ds` makes it."""

    start: Any
    size: int


def ds(start: Any, size: int) -> DynamicSlice:
    """A slice of `size` elements that begins at `start`."""
    return DynamicSlice(start, int(size))


def basic(view: V, key: Any, *, keeps_on_chip_rank: bool = False) -> V:
    """`view[key]` for a key of integers, slices, `ds` and at most one Ellipsis.

    Args:
        view: the tensor indexed.
        key: one subscript or a tuple of them; axes left out are taken whole.
        keeps_on_chip_rank: whether an integer on the partition axis keeps an axis of one.

    Raises:
        UseError: if an index or slice lies outside, or the key has too many subscripts.
    """
    known = view.layout
    shape, strides, partition_axis = known.shape, known.strides, known.partition_axis
    if type(key) is not tuple:
        key = (key,)
    rank = len(shape)
    if Ellipsis in key:
        at = key.index(Ellipsis)
        key = (*key[:at], *(FULL,) * (rank - len(key) + 1), *key[at + 1 :])
    if len(key) > rank:
        raise UseError(f"{len(key)} subscripts on {view.describe()}, which has {rank} axes", key=OUT_OF_BOUND)
    offset = view.offset
    new_shape: list[int] = []
    new_strides: list[int] = []
    new_axis: int | None = None
    for axis, subscript in enumerate(key):
        size, stride = shape[axis], strides[axis]
        if type(subscript) is slice:
            start, stop, step = subscript.start, subscript.stop, subscript.step
            if start is None and stop is None and step is None:
                start, count, step = 0, size, 1
            else:
                start, count, step = _slice(view, axis, start, stop, step)
            if axis == partition_axis:
                new_axis = len(new_shape)
            offset += start * stride
            new_shape.append(count)
            new_strides.append(stride * step)
        elif type(subscript) is DynamicSlice:
            start, count, step = _slice(view, axis, subscript.start, subscript.start + subscript.size, None)
            if axis == partition_axis:
                new_axis = len(new_shape)
            offset += start * stride
            new_shape.append(count)
            new_strides.append(stride)
        else:
            offset += _integer(view, axis, subscript) * stride
            if axis == partition_axis:
                # one partition remains; it stays the first axis
                new_axis = len(new_shape)
                new_shape.append(1)
                new_strides.append(stride)
    if len(key) < rank:
        if partition_axis is not None and partition_axis >= len(key):
            new_axis = len(new_shape) + partition_axis - len(key)
        new_shape.extend(shape[len(key) :])
        new_strides.extend(strides[len(key) :])
    if not new_shape:
        new_shape, new_strides = [1], [1]
    return derived(view, offset, tuple(new_shape), tuple(new_strides), new_axis)


def _integer(view: View, axis: int, subscript: Any) -> int:
    try:
        place = as_index(subscript)
    except TypeError:
        if isinstance(subscript, float) and subscript.is_integer():
            place = int(subscript)
        else:
            raise UseError(
                f"a subscript of {view.describe()} is of type {type(subscript).__name__}; subscripts are integers, "
                "slices, nl.ds and index grids"
            ) from None
    size = view.layout.shape[axis]
    if place < 0:
        place += size
    if not 0 <= place < size:
        raise UseError(
            f"index {subscript} is outside axis {axis} of {view.describe()}, which has {size} elements",
            hint="shrink the loop or mask the access",
            key=OUT_OF_BOUND,
        )
    return place


def _slice(view: View, axis: int, start: Any, stop: Any, step: Any) -> tuple[int, int, int]:
    size = view.layout.shape[axis]
    step = 1 if step is None else int(step)
    start = 0 if start is None else int(start)
    stop = size if stop is None else int(stop)
    start, stop = (n + size if n < 0 else n for n in (start, stop))
    if step < 1 or start < 0 or stop > size:
        raise UseError(
            f"slice {start}:{stop}{f':{step}' if step != 1 else ''} is outside axis {axis} of {view.describe()}, "
            f"which has {size} elements",
            hint="shrink the slice or mask the access",
            key=OUT_OF_BOUND,
        )
    return start, max(0, -(-(stop - start) // step)), step


def as_shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of plain integers; floats that are whole numbers count.

    Raises:
        UseError: if an extent is not a whole number or is negative.
    """
    try:
        extents = tuple(shape)
    except TypeError:
        extents = (shape,)
    plain = []
    for extent in extents:
        whole = int(extent)
        if whole != extent or (whole < 0 and whole != -1):
            raise UseError(f"shape is {list(extents)}; extents are whole numbers")
        plain.append(whole)
    return tuple(plain)
