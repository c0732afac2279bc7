"""Views of Beta 1 tensors under other shapes: the partition axis of a tile stays whole."""

from __future__ import annotations

from math import prod
from typing import Any, TypeVar

from ...errors import RuleError, UseError
from ...tiles.tile import Layout, View
from ...tiles.views import derived, reshaped
from ..indexing import whole_number

V = TypeVar("V", bound=View)


def reshape(view: V, shape: tuple[int, ...]) -> V:
    """`view` under another shape; the partition axis of a tile stays whole."""
    known = view.layout
    if known.partition_axis is None:
        return reshaped(view, shape, None)
    if shape.count(-1) == 1:
        rest = -prod(shape)
        shape = tuple(known.size // rest if n == -1 and rest else n for n in shape)
    axis = _partition_axis_after(known, shape)
    return reshaped(view, shape, axis)


def _partition_axis_after(known: Layout, shape: tuple[int, ...]) -> int:
    """The axis of `shape` that runs over partitions: as many elements before it, and of the same size."""
    axis = known.partition_axis
    assert axis is not None
    before = prod(known.shape[:axis])
    for place, extent in enumerate(shape):
        if prod(shape[:place]) == before and extent == known.shape[axis]:
            return place
    raise RuleError(
        f"a reshape from {list(known.shape)} to {list(shape)} would split or join the partition axis",
        hint="keep the partition axis as it is",
    )


def expand(view: V, axis: Any) -> V:
    """`view` with axes of one at the places that `axis` names in the result.

    Raises:
        UseError: if a place is no axis of the result, or is named twice.
    """
    known = view.layout
    axes = [whole_number(a, "axis") for a in (axis if isinstance(axis, tuple | list) else (axis,))]
    ndim = len(known.shape) + len(axes)
    if any(not -ndim <= a < ndim for a in axes) or len({a % ndim for a in axes}) < len(axes):
        raise UseError(f"axis is {axis}; the result has {ndim} axes, and each is named once")
    places = sorted(a % ndim for a in axes)
    shape, strides = list(known.shape), list(known.strides)
    partition = known.partition_axis
    for place in places:
        shape.insert(place, 1)
        strides.insert(place, 1)
        if partition is not None and place <= partition:
            partition += 1
    return derived(view, view.offset, tuple(shape), tuple(strides), partition)
