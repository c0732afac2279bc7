"""View methods of `nki` 0.5 and later, and access patterns of all its versions. No element moves.

Source: NKI language guide, tensor views; NKI access pattern guide.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, NoReturn, TypeVar

from ...errors import RuleError, UseError, did_you_mean
from ...tiles.tile import View, layout
from ...tiles.views import derived
from ..indexing import OUT_OF_BOUND, place_number, whole_number

V = TypeVar("V", bound=View)
GUIDE = "NKI language guide, tensor views"


def axis_of(view: View, dim: Any, *, may_be_partition: bool, called: str) -> int:
    """The axis that `dim` means, counted from the end if it is negative.

    Args:
        view: the tensor.
        dim: as given.
        may_be_partition: whether it may be the partition axis.
        called: the method, for messages.

    Raises:
        UseError: if there is no such axis.
        RuleError: if it is the partition axis and may not be.
    """
    ndim = len(view.layout.shape)
    axis = whole_number(dim, "dim")
    if not -ndim <= axis < ndim:
        raise UseError(f"dim is {axis}; the tensor has {ndim} axes")
    axis %= ndim
    if axis == view.layout.partition_axis and not may_be_partition:
        raise RuleError(
            f"{called} on axis {axis}, which is the partition axis; it stays as it is", source=GUIDE
        )
    return axis


def slice_axis(view: V, dim: Any, start: Any, end: Any, step: Any = 1) -> V:
    """Elements start, start + step, ... below end of one axis."""
    axis = axis_of(view, dim, may_be_partition=True, called="slice")
    known = view.layout
    first, last, by = (place_number(n, w) for n, w in ((start, "start"), (end, "end"), (step, "step")))
    size = known.shape[axis]
    if not 0 <= first < last <= size or by < 1:
        raise UseError(
            f"slice {first}:{last}:{by} of axis {axis}, which has {size} elements", key=OUT_OF_BOUND
        )
    shape, strides = list(known.shape), list(known.strides)
    shape[axis], strides[axis] = -(-(last - first) // by), strides[axis] * by
    return derived(
        view, view.offset + first * known.strides[axis], tuple(shape), tuple(strides), known.partition_axis
    )


def select(view: V, dim: Any, index: Any) -> V:
    """One index of an axis, which is dropped; on chip the partition axis stays."""
    axis = axis_of(view, dim, may_be_partition=False, called="select")
    known = view.layout
    at = place_number(index, "index")
    if not 0 <= at < known.shape[axis]:
        raise UseError(
            f"index {at} is outside axis {axis}, which has {known.shape[axis]} elements", key=OUT_OF_BOUND
        )
    shape = known.shape[:axis] + known.shape[axis + 1 :]
    strides = known.strides[:axis] + known.strides[axis + 1 :]
    return derived(view, view.offset + at * known.strides[axis], shape, strides, known.partition_axis)


def permute(view: V, dims: Sequence[int]) -> V:
    """The axes in another order; on chip the partition axis stays first."""
    known = view.layout
    order = tuple(whole_number(d, "dims") for d in dims)
    if sorted(order) != list(range(len(known.shape))):
        raise UseError(f"dims is {list(order)}; it must be an order of {len(known.shape)} axes")
    if known.partition_axis is not None and order[0] != 0:
        raise RuleError(f"dims is {list(order)}; on chip axis 0 stays first", source=GUIDE)
    shape, strides = tuple(known.shape[d] for d in order), tuple(known.strides[d] for d in order)
    return derived(view, view.offset, shape, strides, known.partition_axis)


def broadcast_axis(view: V, dim: Any, size: Any) -> V:
    """An axis of one repeated `size` times, by stride 0."""
    axis = axis_of(view, dim, may_be_partition=False, called="broadcast")
    known = view.layout
    if known.shape[axis] != 1:
        raise UseError(f"axis {axis} has {known.shape[axis]} elements; broadcast repeats an axis of one")
    times = whole_number(size, "size")
    if times < 1:
        raise UseError(f"size is {times}; it must be at least 1")
    shape, strides = list(known.shape), list(known.strides)
    shape[axis], strides[axis] = times, 0
    return derived(view, view.offset, tuple(shape), tuple(strides), known.partition_axis)


def expand_dim(view: V, dim: Any) -> V:
    """A new axis of one at `dim`, counted from the end if negative; on chip not before the partition axis."""
    known = view.layout
    ndim, axis = len(known.shape) + 1, whole_number(dim, "dim")
    if not -ndim <= axis < ndim:
        raise UseError(f"dim is {axis}; the result has {ndim} axes")
    axis %= ndim
    if known.partition_axis is not None and axis == 0:
        raise RuleError("expand_dim at axis 0, before the partition axis; it stays first", source=GUIDE)
    shape, strides = list(known.shape), list(known.strides)
    shape.insert(axis, 1)
    strides.insert(axis, 1)
    return derived(view, view.offset, tuple(shape), tuple(strides), known.partition_axis)


def squeeze_dim(view: V, dim: Any) -> V:
    """Without an axis of one."""
    axis = axis_of(view, dim, may_be_partition=False, called="squeeze_dim")
    if view.layout.shape[axis] != 1:
        raise UseError(
            f"axis {axis} has {view.layout.shape[axis]} elements; squeeze_dim drops an axis of one"
        )
    return select(view, axis, 0)


def reshape_dim(view: V, dim: Any, shape: Sequence[int]) -> V:
    """An axis split into several; one extent may be -1."""
    axis = axis_of(view, dim, may_be_partition=len(shape) == 1, called="reshape_dim")
    known = view.layout
    extents = [whole_number(n, "shape") for n in shape]
    if extents.count(-1) == 1:
        rest = -prod(extents)
        extents[extents.index(-1)] = known.shape[axis] // rest if rest else 0
    if prod(extents) != known.shape[axis] or any(extent < 1 for extent in extents):
        raise UseError(f"axis {axis} has {known.shape[axis]} elements; {list(shape)} does not split it")
    steps, step = [], known.strides[axis]
    for extent in reversed(extents):
        steps.append(step)
        step *= extent
    new_shape = (*known.shape[:axis], *extents, *known.shape[axis + 1 :])
    strides = (*known.strides[:axis], *reversed(steps), *known.strides[axis + 1 :])
    return derived(view, view.offset, new_shape, strides, known.partition_axis)


def flatten_dims(view: V, start_dim: Any, end_dim: Any) -> V:
    """Axes start_dim to end_dim, inclusive, as one; they are contiguous among themselves."""
    first = axis_of(
        view, start_dim, may_be_partition=view.layout.partition_axis is None, called="flatten_dims"
    )
    last = axis_of(view, end_dim, may_be_partition=view.layout.partition_axis is None, called="flatten_dims")
    known = view.layout
    if last < first:
        raise UseError(f"axes {first} to {last} are in the wrong order")
    # the stride of an axis of one says nothing: no step is ever taken along it
    long = [axis for axis in range(first, last + 1) if known.shape[axis] != 1] or [last]
    for axis, following in pairwise(long):
        if known.strides[axis] != known.strides[following] * known.shape[following]:
            raise RuleError(
                f"axes {axis} and {following} are not contiguous; flatten_dims joins contiguous axes"
            )
    shape = (*known.shape[:first], prod(known.shape[first : last + 1]), *known.shape[last + 1 :])
    strides = (*known.strides[:first], known.strides[long[-1]], *known.strides[last + 1 :])
    return derived(view, view.offset, shape, strides, known.partition_axis)


def leading_part(view: V, extents: tuple[int, ...]) -> V:
    """The first elements, as many as a smaller shape has; on chip of each partition."""
    known = view.layout
    axis = known.partition_axis
    kept, free = (0, known.shape) if axis is None else (1, known.shape[1:])
    wanted = prod(extents[kept:])
    if -1 in extents or not 0 < wanted < prod(free):
        return view
    flat = flatten_dims(view, kept, len(known.shape) - 1) if len(free) > 1 else view
    return slice_axis(flat, kept, 0, wanted)


def rearrange(view: V, src: Sequence[Any], dst: Sequence[Any], sizes: dict[str, int] | None = None) -> V:
    """Split, reorder and join axes by name, groups as tuples: ("p", ("a", "b")) to ("p", "b", "a")."""
    groups, joined = _groups(src), _groups(dst)
    names, wanted = [n for group in groups for n in group], [n for group in joined for n in group]
    if sorted(names) != sorted(wanted) or len(set(names)) != len(names):
        raise UseError(f"rearrange from {src} to {dst}: both sides name the same axes once")
    ndim = len(view.layout.shape)
    if len(groups) != ndim:
        raise UseError(f"src is {src}, {len(groups)} axes; the tensor has {ndim}")
    extents = dict(sizes or {})
    for name in extents.keys() - set(names):
        raise UseError(
            f"sizes names {name}; the axes are {', '.join(names)}", hint=did_you_mean(str(name), names)
        )
    for axis, group in reversed(list(enumerate(groups))):
        if len(group) > 1:
            view = reshape_dim(view, axis, [extents.get(n, -1) for n in group])
    view = permute(view, [names.index(n) for n in wanted])
    for name, extent in zip(wanted, view.layout.shape, strict=True):
        if extents.get(name, extent) != extent:
            raise UseError(f"sizes gives {name} {extents[name]} elements; it has {extent}")
    for axis, group in enumerate(joined):
        if len(group) > 1:
            view = flatten_dims(view, axis, axis + len(group) - 1)
    return view


def _groups(side: Sequence[Any]) -> list[list[str]]:
    """The names of each axis of one side of `rearrange`."""
    groups = [[group] if isinstance(group, str) else group for group in side]
    for group in groups:
        if not isinstance(group, list | tuple) or not group or not all(isinstance(n, str) for n in group):
            raise UseError(f"an axis of rearrange is {group!r}; it must be a name or a tuple of names")
    return [list(group) for group in groups]


class OutOfReachError(UseError):
    """A pattern of elements that lie outside the storage."""


class Unreachable:
    """A pattern that reaches over the end of its storage: kernels make such, and leave them unused."""

    def __init__(self, error: OutOfReachError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise self._error

    def __getitem__(self, key: Any) -> NoReturn:
        raise self._error

    def __repr__(self) -> str:
        return "a pattern outside its storage"


def _check_reach(start: int, pairs: Sequence[tuple[int, int]], size: int) -> None:
    reach = [(n - 1) * s for s, n in pairs]
    low, high = start + sum(min(r, 0) for r in reach), start + sum(max(r, 0) for r in reach)
    if low < 0 or high >= size:
        raise OutOfReachError(
            f"the pattern reaches elements {low} to {high}; the storage has {size}",
            hint="check offset, steps and counts",
            key=OUT_OF_BOUND,
        )


def access_pattern(
    view: V, pattern: Sequence[Sequence[int]], offset: Any = None, dtype: Any = None, *,
    is_gathered: bool = False, is_relative: bool = False,
) -> V:  # fmt: skip
    """Elements by [step, count] pairs, outermost first, over the storage as a flat array.

    On chip the first pair steps over partitions. `offset` counts from the first element of the storage, or
    where it `is_relative` from that of the view; None keeps that of the view. The shape of the view counts
    for nothing, but that a relative pattern on chip may step over partitions by what the view has in each.
    Where the view `is_gathered`, indices will choose its rows, and the first step counts for nothing.

    Raises:
        UseError: if the pattern is no list of pairs, or a count is less than 1.
        RuleError: if on chip the first step is not one partition.
        OutOfReachError: if an element lies outside the storage.
    """
    storage = view.storage
    pairs = [(whole_number(s, "a step"), whole_number(n, "a count")) for s, n in pattern]
    if not pairs or min(n for _, n in pairs) < 1:
        steps_and_counts = [list(pair) for pair in pattern]
        raise UseError(f"pattern is {steps_and_counts}; it must be a list of [step, count], count at least 1")
    element_type = dtype or view.layout.dtype
    scale = storage.dtype.itemsize / element_type.itemsize
    if is_gathered:
        pairs[0] = (0, pairs[0][1])
    on_chip = view.layout.is_on_chip
    per_partition = int(storage.partition_stride * scale)
    own = view.offset * view.layout.itemsize // element_type.itemsize
    if on_chip and is_relative:
        in_view = prod(view.layout.shape[1:]) * view.layout.itemsize // element_type.itemsize
        if pairs[0][0] == in_view:
            pairs[0] = (per_partition, pairs[0][1])
        elif pairs[0][0] == per_partition:
            # the pattern is written for the storage, and so is its offset
            is_relative = False
    start = own if offset is None else whole_number(offset, "offset") + (own if is_relative else 0)
    if on_chip and pairs[0][0] != per_partition and pairs[0][1] > 1:
        raise RuleError(
            f"the first step of the pattern is {pairs[0][0]}; on chip it steps over partitions, which hold "
            f"{per_partition} elements",
            source="NKI access pattern guide", key="NCC_IBIR158",
        )  # fmt: skip
    _check_reach(start, pairs, int(prod(storage.shape) * scale))
    strides, shape = zip(*pairs, strict=True)
    first = start // per_partition if on_chip and per_partition else 0
    known = layout(shape, strides, element_type, view.layout.memory, 0 if on_chip else None, first)
    return type(view)(storage, start, known)
