"""Accesses of `nki` whose address a register or tile holds: access patterns, selections, subscripts.

Source: NKI access pattern guide, dynamic access; NKI language guide, select and vector_select.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ...errors import RuleError, UseError
from ...tiles.tile import HBM, SEQUENCER, Index, View, layout
from ...tiles.views import indexed
from ..indexing import FULL, DynamicSlice, basic, for_every_axis, place_number, whole_number
from . import view_methods

V = TypeVar("V", bound=View)
GUIDE = "NKI access pattern guide, dynamic access"


def is_dynamic(value: Any) -> bool:
    """Whether an index or offset is held by a register or tile."""
    return isinstance(value, View)


def access_pattern(
    view: V, pattern: Any, offset: Any, scalar_offset: Any, vector_offset: Any, indirect_dim: Any, dtype: Any,
    *, is_relative: bool,
) -> V:  # fmt: skip
    """A pattern whose start, or the start of each of its rows, is known at run time.

    The step of an index is that of axis `indirect_dim` of the tensor the method is called on. For
    `is_relative` see `view_methods.access_pattern`.
    """
    known = view.layout
    if scalar_offset is not None and vector_offset is not None:
        raise UseError("scalar_offset and vector_offset are both given; an access has at most one of them")
    axis = whole_number(indirect_dim, "indirect_dim")
    if not 0 <= axis < len(known.shape):
        raise UseError(f"indirect_dim is {axis}; the tensor has {len(known.shape)} axes")
    step = known.strides[axis] * known.itemsize
    if vector_offset is not None:
        if axis != 0:
            raise RuleError(
                f"indirect_dim is {axis} with a vector_offset; only axis 0 takes one", source=GUIDE
            )
        _need_tile(vector_offset, "vector_offset")
        _need_hbm(view)
        rest = view_methods.access_pattern(
            view, pattern, offset, dtype, is_gathered=True, is_relative=is_relative
        )
        return indexed(rest, Index(vector_offset, step, known.shape[0], is_vector=True))
    if not is_dynamic(scalar_offset):
        element_type = dtype or known.dtype
        whole = whole_number(scalar_offset, "scalar_offset") * step // element_type.itemsize
        plain = view_methods.access_pattern(view, pattern, offset, dtype, is_relative=is_relative)
        steps = list(zip(plain.layout.strides, plain.layout.shape, strict=True))
        return view_methods.access_pattern(view, steps, plain.offset + whole, dtype)
    _refuse_partition(view, axis)
    plain = view_methods.access_pattern(view, pattern, offset, dtype, is_relative=is_relative)
    return indexed(plain, Index(scalar_offset, step, known.shape[axis], is_vector=False))


def _need_tile(value: Any, name: str) -> None:
    if not is_dynamic(value) or value.layout.memory == SEQUENCER:
        raise UseError(f"{name} is of type {type(value).__name__}; it must be a tile of integers in sbuf")


def _refuse_partition(view: View, axis: int) -> None:
    if axis == view.layout.partition_axis:
        raise RuleError(
            "the index of the partition axis is known at run time only; on chip it is fixed",
            hint="index a free axis, or go through hbm",
            source=GUIDE,
        )


def _refuse_second(view: View) -> None:
    if view.indices:
        raise RuleError(
            "the view has an index known at run time already; a view has at most one",
            source="NKI language guide, select",
        )


def select(view: V, dim: Any, index: Any) -> V:
    """One position of an axis, which is dropped, at an index that a register or tile of one element holds."""
    axis = view_methods.axis_of(view, dim, may_be_partition=True, called="select")
    _refuse_partition(view, axis)
    _refuse_second(view)
    known = view.layout
    at_index = Index(index, known.strides[axis] * known.itemsize, known.shape[axis], is_vector=False)
    return indexed(view_methods.select(view, axis, 0), at_index)


def vector_select(view: V, dim: Any, offsets: Any) -> V:
    """Rows of a tensor in HBM at the indices in a tile [P, 1]: one per position of the first axis."""
    if whole_number(dim, "dim") != 0:
        raise UseError(f"dim is {dim}; vector_select chooses along axis 0")
    _need_tile(offsets, "offsets")
    return _rows(view, offsets, offsets.layout.shape[0])


def _need_hbm(view: View) -> None:
    if view.layout.memory != HBM:
        raise RuleError(
            f"a tile of indices chooses rows of a tensor in {view.layout.memory}; it chooses rows in hbm",
            hint="gather within sbuf with nisa.nc_n_gather or local_gather",
            source="nki.isa.dma_copy, indirect addressing",
        )


def _rows(view: V, offsets: View, count: int) -> V:
    """`view` with `count` rows, chosen by a tile of indices."""
    _refuse_second(view)
    known = view.layout
    _need_hbm(view)
    lay = layout((count, *known.shape[1:]), known.strides, known.dtype, known.memory, None, 0)
    step = known.strides[0] * known.itemsize
    return indexed(
        type(view)(view.storage, view.offset, lay), Index(offsets, step, known.shape[0], is_vector=True)
    )


def subscripted(view: V, key: Any) -> V:
    """`view[key]` where registers or tiles are among the subscripts, or the start of an `nl.ds` is one."""
    keys = list(for_every_axis(view, key))
    axis = next(i for i, k in enumerate(keys) if is_dynamic(k) or is_dynamic(getattr(k, "start", None)))
    subscript = keys[axis]
    if is_dynamic(subscript) and subscript.layout.size > 1:
        if axis != 0:
            raise RuleError(
                f"a tile of {subscript.layout.size} indices is the subscript of axis {axis}; "
                "it chooses along axis 0",
                source="NKI language guide, vector_select",
            )
        chosen = _rows(view, subscript, subscript.layout.size)
        return basic(chosen, (FULL, *keys[1:]), keeps_two_axes=True)
    _refuse_partition(view, axis)
    _refuse_second(view)
    known = view.layout
    extent = known.shape[axis]
    if isinstance(subscript, DynamicSlice):
        keys[axis], source = DynamicSlice(0, subscript.size), subscript.start
        extent += 1 - place_number(subscript.size, "the size of a slice")
    elif is_dynamic(subscript):
        keys[axis], source = 0, subscript
    else:
        raise UseError(
            "a slice starts at a register or tile", hint="write nl.ds(start, size), whose size is known"
        )
    part = basic(view, tuple(keys), keeps_two_axes=True)
    step = known.strides[axis] * known.itemsize
    return indexed(part, Index(source, step, extent, is_vector=False))
