"""Subscripts of Beta 1: index grids, operand masks, and what plain subscripts share with all spellings."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from ...errors import UseError
from ...isa.declare import Instruction
from ...isa.tensor_engine import NcMatmul, NcTranspose
from ...tiles.tile import View, layout
from ...tiles.views import derived
from ...trace.affine import Affine
from ...trace.session import current
from ..indexing import OUT_OF_BOUND, DynamicSlice, basic, place_number
from ..loops import LoopIndex
from . import dynamic
from .grids import TRUTHS, Box, Index, aligned_steps, box_of, common_shape

V = TypeVar("V", bound=View)
# types of subscripts that all spellings share
PLAIN = {int, slice, LoopIndex, DynamicSlice, type(Ellipsis), Affine}


def _overhang(tensor: View) -> Any:
    """(view, grids) of a view whose grids reach outside, else None."""
    return getattr(tensor, "overhang", None)


def indexed(view: V, key: Any) -> V:
    """`view[key]` for every kind of subscript that Beta 1 has."""
    kinds = {*map(type, key)} if type(key) is tuple else {type(key)}
    if kinds <= PLAIN:
        try:
            return basic(view, key, keeps_two_axes=True)
        except UseError as error:
            return _beyond(view, key, error)
    parts = tuple(key) if isinstance(key, tuple) else (key,)
    parts = tuple(Index((), p, ()) if type(p) is Affine else p for p in parts)
    if any(dynamic.is_dynamic(p) for p in parts):
        return dynamic.subscripted(view, parts)
    if any(isinstance(p, Index) for p in parts):
        return _advanced(view, parts)
    if len(parts) == 1 and isinstance(parts[0], TRUTHS):
        return _masked(view, parts[0])
    return basic(view, key, keeps_two_axes=True)


def _masked(view: V, mask: Any) -> V:
    """What an operand mask, the only subscript, lets through; a comparison of loop variables is a bool."""
    box, rest = box_of(mask, view.layout.shape)
    if box is None or rest is not None:
        raise UseError(
            f"the mask of the operand {view.describe()} lets "
            + ("nothing through" if box is None else "no rectangle of it through"),
            hint="mask the whole instruction: mask=...",
        )
    return basic(view, box)


def _beyond(view: V, key: Any, error: UseError) -> V:
    """A view by a slice that ends beyond its axis; what else was refused stays so."""
    parts = key if type(key) is tuple else (key,)
    if error.key != OUT_OF_BOUND or not _overhangs(view, parts):
        raise error
    rest = (slice(None),) * (len(view.layout.shape) - len(parts))
    return _advanced(view, dynamic.grids_for_slices(view, (*parts, *rest)))


def _overhangs(view: View, parts: tuple[Any, ...]) -> bool:
    """Whether a slice ends beyond its axis, where a mask may crop it; subscripts that are wrong do not."""
    if any(p is Ellipsis for p in parts) or len(parts) > len(view.layout.shape):
        return False
    for part, size in zip(parts, view.layout.shape, strict=False):
        if type(part) is slice:
            start, stop = part.start or 0, part.stop
        elif type(part) is DynamicSlice:
            start, stop = part.start, part.start + part.size
        else:
            continue
        if stop is not None and stop > size and 0 <= start < stop:
            return True
    return False


def _checked_grids(view: View, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Subscripts with index grids, without a redundant Ellipsis, if they may stand together."""
    known = view.layout
    if parts[-1] is Ellipsis or (len(parts) == len(known.shape) + 1 and any(p is Ellipsis for p in parts)):
        # axes that are left out are taken whole, which is what a last Ellipsis says
        parts = tuple(p for p in parts if p is not Ellipsis)
    dynamic.need_one_kind(parts, (slice, DynamicSlice, type(Ellipsis)))
    if len(parts) > len(known.shape):
        raise UseError(f"{len(parts)} subscripts on {view.describe()}, which has {len(known.shape)} axes")
    if known.partition_axis is not None and any(isinstance(p, Index) and len(p.shape) == 1 for p in parts):
        raise UseError(
            "a tile is indexed with an arange of one axis",
            hint="give it more axes: nl.arange(n)[:, None]",
            key="err_1d_arange_not_supported",
        )
    return parts


class _Plan(NamedTuple):
    """What subscripts with grids give that differ only in where their grids start."""

    kept: tuple[int, ...]  # places of the subscripts that count; a redundant Ellipsis does not
    # per subscript that counts the stride of its axis, and the least and largest start inside it
    axes: tuple[tuple[int, int, int], ...]
    shape: tuple[int, ...]  # of the view
    strides: tuple[int, ...]  # of the view
    partition: int | None  # its axis of partitions


def _advanced(view: V, parts: tuple[Any, ...]) -> V:
    plans = current().keyed
    key = (_Plan, view.layout, *[(p.shape, p.steps) if type(p) is Index else type(p) for p in parts])
    plan = plans.get(key)
    if plan is None:
        plan = plans[key] = _planned(view, parts)
    offset = view.offset
    is_outside = False
    for place, (stride, least, most) in zip(plan.kept, plan.axes, strict=True):
        part = parts[place]
        start = part.start if type(part) is Index else place_number(part, "a subscript")
        if type(start) is Affine:
            start = start.inside(least, most)
        is_outside = is_outside or not least <= start <= most
        offset += start * stride
    if is_outside:
        counted = tuple(parts[place] for place in plan.kept)
        return _overhanging(view, counted, plan.shape, plan.strides, plan.partition)
    return derived(view, offset, plan.shape, plan.strides, plan.partition)


def _planned(view: View, parts: tuple[Any, ...]) -> _Plan:
    known = view.layout
    kept = tuple(i for i, p in enumerate(parts) if p is not Ellipsis)
    parts = _checked_grids(view, parts)
    shape = common_shape(*(p.shape for p in parts if isinstance(p, Index)))
    strides = [0] * len(shape)
    partition: int | None = None
    axes = []
    for axis, (part, size, stride) in enumerate(zip(parts, known.shape, known.strides, strict=False)):
        index = part if isinstance(part, Index) else Index((), place_number(part, "a subscript"), ())
        steps = aligned_steps(index, shape)
        low, high = index.bounds
        axes.append((stride, index.start - low, size - 1 - (high - index.start)))
        for d, step in enumerate(steps):
            strides[d] += step * stride
        if axis == known.partition_axis:
            partition = next((d for d, step in enumerate(steps) if step), 0)
    rest = len(parts)
    if known.partition_axis is not None and partition is None:
        partition = len(shape) + known.partition_axis - rest
    return _Plan(
        kept, tuple(axes), (*shape, *known.shape[rest:]), (*strides, *known.strides[rest:]), partition
    )


def _overhanging(
    view: V, parts: tuple[Any, ...], shape: tuple[int, ...], strides: tuple[int, ...], partition: int | None
) -> V:
    known = view.layout
    tensor: Any = type(view)(
        view.storage, view.offset, layout(shape, strides, known.dtype, known.memory, partition, 0)
    )
    tensor.overhang, tensor.plain = (view, parts), False
    return tensor


def cropped(tensor: V, box: tuple[slice, ...]) -> V:
    """The rectangle `box` of a view, which may reach outside elsewhere.

    Raises:
        UseError: if the rectangle itself reaches outside.
    """
    if tensor.indices:
        return dynamic.cropped(tensor, box)
    if _overhang(tensor) is None:
        if any(s.stop - s.start != n for s, n in zip(box, tensor.layout.shape)):
            return basic(tensor, box)
        return tensor
    view, parts = _overhang(tensor)
    shape = common_shape(*(p.shape for p in parts if isinstance(p, Index)))
    smaller = []
    for part in parts:
        if not isinstance(part, Index):
            smaller.append(part)
            continue
        steps = aligned_steps(part, shape)
        start = part.start + sum(s * b.start for s, b in zip(steps, box))
        sizes = tuple(b.stop - b.start for b, _ in zip(box, shape))
        smaller.append(Index(sizes, start, steps))
    inside = _advanced(view, tuple(smaller))
    return inside_bounds(basic(inside, tuple(box))) if len(box) > len(shape) else inside_bounds(inside)


def inside_bounds(tensor: V) -> V:
    """`tensor`, if none of its elements lies outside.

    Raises:
        UseError: if some do and no mask hides them.
    """
    overhang = _overhang(tensor)
    if overhang is None:
        return tensor
    view, parts = overhang
    for axis, (part, size) in enumerate(zip(parts, view.layout.shape)):
        low, high = part.bounds if isinstance(part, Index) else (int(part), int(part))
        if low < 0 or high >= size:
            raise UseError(
                f"indices {low} to {high} reach outside axis {axis} of {view.describe()}, "
                f"which has {size} elements",
                hint="mask the access: mask=(index < size)",
                key=OUT_OF_BOUND,
            )
    raise AssertionError("an overhang that lies inside")


def crop_operands(cls: type[Instruction], operands: list[Any], box: Box) -> list[Any]:
    """Operands under the rectangle of a mask over the result."""
    if cls is NcTranspose:
        return [crop_operand(o, box[::-1]) for o in operands]
    if cls is not NcMatmul:
        return [crop_operand(o, box) for o in operands]
    # the rows of a product come from the columns of stationary, its columns from those of moving
    by_column = {"stationary": box[0], "moving": box[-1]}
    return [
        crop_operand(o, (slice(0, o.layout.shape[0]), by_column[name])) if isinstance(o, View) else o
        for name, o in zip(cls.operands, operands, strict=True)
    ]


def crop_operand(operand: Any, box: Box) -> Any:
    """An operand under the rectangle of a mask over the result; vectors [P, 1] keep their one column."""
    if not isinstance(operand, View):
        return operand
    if len(operand.layout.shape) != len(box):
        box = box[:1] + tuple(slice(0, n) for n in operand.layout.shape[1:])
    fitted = tuple(b if n != 1 else slice(0, 1) for b, n in zip(box, operand.layout.shape))
    return cropped(operand, fitted)
