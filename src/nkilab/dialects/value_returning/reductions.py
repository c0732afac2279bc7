"""Reductions of free axes in Beta 1: any axes, with masks, lowered to tensor_reduce."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import RuleError, UseError
from ...isa.operators import OPERATORS
from ...isa.reduction import TensorReduce, normalized_axes
from ...tiles.dtypes import DType
from ...tiles.tile import SBUF, compact_strides, layout
from ...tiles.views import derived
from ...trace.session import Session, current
from .functions import a_tile, binary, inside_or_masked, result_dtype, unary
from .grids import box_of
from .subscripts import cropped
from .tensor import Tensor, fresh, fresh_in_box, settled


def reduction(
    operator: str, x: Any, axis: Any, dtype: Any = None, mask: Any = None, keepdims: bool = False
) -> Tensor:
    """A reduction of free axes on VectorE; see `nisa.tensor_reduce`."""
    x = a_tile(x)
    axes = TensorReduce.attributes["axis"].canonical("axis", axis)
    element_type = result_dtype(dtype, x.layout.dtype)
    return reduced(current(), x, (OPERATORS[operator], axes, False, bool(keepdims)), element_type, mask)


def reduced(session: Session, x: Tensor, attributes: tuple[Any, ...], dtype: DType, mask: Any) -> Tensor:
    """tensor_reduce over any free axes: the access pattern brings them to the end, a mask crops the tile.

    Args:
        session: the launch.
        x: the tile.
        attributes: operator, axes as given, negate, keepdims.
        dtype: of the result.
        mask: over x; what it leaves out takes no part.

    Raises:
        RuleError: if the partition axis is among the axes.
        UseError: if the mask is no rectangle.
    """
    op, axis, negate, keepdims = attributes
    ndim = len(x.shape)
    axes = normalized_axes(axis, ndim)
    if 0 in axes:
        broken = TensorReduce.partition_axis_stays
        raise RuleError(broken.sentence, hint=broken.hint, source=broken.source)
    last = tuple(range(ndim - len(axes), ndim))
    if mask is None and axes == last:
        x = inside_or_masked(x, mask)
        return fresh(session, TensorReduce, [None, x], (op, axes, negate, keepdims), (), dtype=dtype)
    shape = _without(x.shape, axes, keepdims)
    box, rest = (tuple(slice(0, n) for n in x.shape), None) if mask is None else box_of(mask, x.shape)
    if rest is not None:
        raise UseError("the mask of a reduction is not a rectangle of the tile")
    known = layout(shape, compact_strides(shape), dtype, SBUF, 0, 0)
    reduce_attributes = (op, last, negate, False)
    if box is None:
        return fresh_in_box(session, TensorReduce, [None, x], reduce_attributes, (), known, None)
    x = _axes_last(cropped(x, box), axes)
    kept = [slice(0, 1) if a in axes else b for a, b in enumerate(box) if keepdims or a not in axes]
    kept = kept if len(kept) > 1 else [*kept, slice(0, 1)]
    return fresh_in_box(session, TensorReduce, [None, x], reduce_attributes, (), known, tuple(kept))


def _without(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if a in axes else n for a, n in enumerate(shape))
    kept = tuple(n for a, n in enumerate(shape) if a not in axes)
    return kept if len(kept) > 1 else (*kept, 1)


def _axes_last(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    known = x.layout
    order = [a for a in range(len(known.shape)) if a not in axes] + list(axes)
    shape, strides = (tuple(of[a] for a in order) for of in (known.shape, known.strides))
    return derived(x, x.offset, shape, strides, known.partition_axis)


def mean(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False) -> Tensor:
    """The mean over free axes: a sum in float32, then a product."""
    x = a_tile(x)
    total = settled(reduction("add", x, axis, np.float32, mask, keepdims))
    count = _averaged(x, axis, mask)
    return binary("multiply", total, 1.0 / count, dtype or x.layout.dtype)


def _averaged(x: Tensor, axis: Any, mask: Any) -> int:
    """How many elements each mean is over."""
    axes = normalized_axes(TensorReduce.attributes["axis"].canonical("axis", axis), len(x.shape))
    box = None if mask is None else box_of(mask, x.shape)[0]
    count = 1
    for a in axes:
        count *= x.shape[a] if box is None else box[a].stop - box[a].start
    return count


def var(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """The variance over free axes, kept as axes of one: the mean square of what differs from the mean."""
    x = a_tile(x)
    centre = settled(mean(x, axis, dtype=np.float32, mask=mask, keepdims=True))
    apart = settled(binary("subtract", x, centre, np.float32, mask))
    squares = settled(unary("square", apart, mask=mask))
    return mean(squares, axis, dtype=dtype or x.dtype, mask=mask, keepdims=True)


def all_of(x: Any, axis: Any, *, dtype: Any = bool, mask: Any = None) -> Tensor:
    """1 where all elements over free axes are not 0."""
    return reduction("logical_and", x, axis, dtype, mask)


all_of.__name__ = "all"
