"""New views from old ones: slices, reshapes, broadcasts, reinterpretations. No element moves."""

from __future__ import annotations

from math import prod
from typing import TypeVar

from ..errors import RuleError
from .dtypes import DType
from .tile import SBUF, SEQUENCER, Index, View, compact_strides, layout

V = TypeVar("V", bound=View)


def derived(
    view: V, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], partition_axis: int | None,
    dtype: DType | None = None,
) -> V:  # fmt: skip
    """A view on the same storage, of the same class, with everything else given; `offset` in elements."""
    known = view.layout
    dtype = dtype or known.dtype
    if partition_axis is None:
        start = 0
    else:
        step = view.storage.partition_stride * view.storage.dtype.itemsize // dtype.itemsize
        start = offset // step if step else 0
    if not known.indices:
        return type(view)(
            view.storage, offset, layout(shape, strides, dtype, known.memory, partition_axis, start)
        )
    if known.is_gathered and (shape[:1] != known.shape[:1] or strides[0] != 0):
        raise RuleError(
            f"axis 0 of {known}, which the indices select, is sliced or reshaped; it stays as it is",
            hint="slice the indices instead",
            source="NKI access pattern guide, vector dynamic access",
        )
    new_layout = layout(shape, strides, dtype, known.memory, partition_axis, start, known.indices)
    return type(view)(view.storage, offset, new_layout, view.indices)


def indexed(view: V, index: Index) -> V:
    """`view` with one more index that is added to its address at run time.

    A vector of indices selects along the first axis, whose stride becomes 0.

    Raises:
        RuleError: if the index is no integer in SBUF or a register, or a vector of them does not fit.
    """
    known, index_layout = view.layout, index.source.layout
    if not index_layout.dtype.is_integer or index_layout.memory not in (SBUF, SEQUENCER):
        raise RuleError(f"the index is {index_layout}; it must be an integer in sbuf or a register")
    strides = known.strides
    if index.is_vector:
        if index_layout.size < known.shape[0]:
            raise RuleError(f"{index_layout.size} indices are given for {known.shape[0]} rows")
        strides = (0, *strides[1:])
    elif index_layout.size != 1:
        raise RuleError(f"the index is {index_layout}; it must have one element")
    lay = layout(
        known.shape, strides, known.dtype, known.memory, known.partition_axis, known.start_partition,
        (*known.indices, index.layout),
    )  # fmt: skip
    return type(view)(view.storage, view.offset, lay, (*view.indices, index))


def reshaped(view: V, shape: tuple[int, ...], partition_axis: int | None) -> V:
    """`view` with another shape over the same elements in the same order.

    Raises:
        RuleError: if the counts differ or the strides allow no such view.
    """
    known = view.layout
    if shape.count(-1) == 1:
        rest = -prod(shape)
        if rest and known.size % rest == 0:
            shape = tuple(known.size // rest if n == -1 else n for n in shape)
    if prod(shape) != known.size or min(shape, default=1) < 0:
        count_text = "" if -1 in shape else f", which has {prod(shape)}"
        raise RuleError(
            f"a tensor of {known.size} elements {list(known.shape)} does not reshape to "
            f"{list(shape)}{count_text}"
        )
    strides = reshape_strides(known.shape, known.strides, shape)
    if strides is None:
        raise RuleError(
            f"the view {list(known.shape)} with strides {list(known.strides)} "
            f"has no reshape to {list(shape)} without a copy",
            hint="reshape before slicing, or copy the slice to a tile of its own",
        )
    return derived(view, view.offset, shape, strides, partition_axis)


def reshape_strides(
    old_shape: tuple[int, ...], old_strides: tuple[int, ...], new_shape: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides that read the same elements in the same order under `new_shape`, or None if there are none."""
    if old_strides == compact_strides(old_shape):
        return compact_strides(new_shape)
    runs: list[tuple[int, int]] = []
    for size, stride in zip(old_shape, old_strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * stride:
            size *= runs.pop()[0]
        runs.append((size, stride))
    # from the innermost axis: what is left of the run of contiguous elements, and the stride of the next axis
    left, step = 1, 1
    strides: list[int] = []
    for size in reversed(new_shape):
        if size > 1 and left == 1:
            left, step = runs.pop()
        if left % size:
            return None
        strides.append(step)
        left, step = left // size, step * size
    return tuple(reversed(strides))


def broadcast(view: V, shape: tuple[int, ...]) -> V:
    """`view` repeated along axes of one, by stride 0, as NumPy broadcasts.

    Raises:
        RuleError: if the shapes do not broadcast.
    """
    known = view.layout
    if known.shape == shape:
        return view
    missing = len(shape) - len(known.shape)
    old_shape = (1,) * missing + known.shape
    old_strides = (0,) * missing + known.strides
    if missing < 0 or any(o not in (1, n) for o, n in zip(old_shape, shape, strict=True)):
        hint = padding_hint(known.shape, shape)
        raise RuleError(f"shape {list(known.shape)} does not broadcast to {list(shape)}", hint=hint)
    strides = tuple(
        0 if o == 1 and n != 1 else s for o, n, s in zip(old_shape, shape, old_strides, strict=True)
    )
    axis = None if known.partition_axis is None else known.partition_axis + missing
    return derived(view, view.offset, shape, strides, axis)


def padding_hint(few: tuple[int, ...], many: tuple[int, ...]) -> str:
    """How to write a shape of fewer axes so that it broadcasts to another, "" if no axes of one do that."""
    padded = [few[0], *(1,) * (len(many) - len(few)), *few[1:]]
    fits = len(few) < len(many) and all(1 in (n, m) or n == m for n, m in zip(padded, many, strict=True))
    return f"reshape {list(few)} to {padded}: axes are compared from the last" if fits else ""


def reinterpreted(view: V, dtype: DType) -> V:
    """`view` with its bytes read as `dtype`; the last axis scales with the element size.

    Raises:
        RuleError: if the last axis is not contiguous or does not divide, or a size changes under indices.
    """
    known = view.layout
    old, new = known.itemsize, dtype.itemsize
    if old == new:
        return derived(view, view.offset, known.shape, known.strides, known.partition_axis, dtype)
    if known.indices:
        raise RuleError(
            f"a view of {known} as {dtype} has elements of {new} bytes; indices at run time count {old}",
            hint="choose the elements of a view of the other type",
        )
    last = known.shape[-1] * old
    if known.strides[-1] != 1 or last % new or any(s * old % new for s in known.strides[:-1]):
        raise RuleError(
            f"a view of {known} as {dtype} needs a contiguous last axis of a multiple of {new} bytes; "
            f"it is {last} bytes with stride {known.strides[-1]}"
        )
    if view.offset * old % new:
        raise RuleError(
            f"a view of {known} as {dtype} starts at byte {view.offset * old}, no multiple of {new}"
        )
    strides = (*(s * old // new for s in known.strides[:-1]), 1)
    return derived(
        view, view.offset * old // new, (*known.shape[:-1], last // new), strides, known.partition_axis, dtype
    )
