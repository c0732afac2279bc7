"""Subscripts of Beta 1 that hold tiles: rows and offsets that are known when the kernel runs.

A tile [N, 1] gives one index for each position along the first axis of the view; a tile of one element, alone
or added to an index grid, moves the whole view.

Source: nki.language.load and store, indirect DMA; nki.isa.tensor_copy_dynamic_src (SDK 2.26).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from ...errors import RuleError, UnsupportedError, UseError
from ...tiles import tile as tiles
from ...tiles.tile import HBM, SBUF, View, layout
from ..indexing import OUT_OF_BOUND, DynamicSlice, basic, place_number, run_of
from .grids import Box, Index, aligned_steps, common_shape

V = TypeVar("V", bound=View)
FREE = "err_indirect_indices_free_dim"
ON_CHIP = "err_copy_dynamic_indirect_indices_not_natively_supported"


class TileIndex:
    """A tile of indices plus an index grid."""

    __slots__ = ("grid", "tile")
    __array_ufunc__ = None

    def __init__(self, tile: View, grid: Index) -> None:
        self.tile = tile
        self.grid = grid

    def __add__(self, other: Any) -> Any:
        grid = self.grid + other
        return TileIndex(self.tile, grid) if isinstance(grid, Index) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + (-other)


class _Part(NamedTuple):
    """One subscript: its grid, and the tile that is added to it if there is one."""

    grid: Index
    tile: View | None

    @property
    def is_vector(self) -> bool:
        """Whether a tile of several indices is added."""
        return self.tile is not None and self.tile.layout.size > 1


def is_dynamic(part: Any) -> bool:
    """Whether a subscript holds a tile."""
    return isinstance(part, View | TileIndex)


def subscripted(view: V, key: tuple[Any, ...]) -> V:
    """`view[key]` for a key in which tiles stand.

    Raises:
        UseError: if a tile stands where the hardware takes no index, or the others reach outside.
        RuleError: if a tile holds no indices.
    """
    known = view.layout
    if known.indices:
        raise RuleError("the view is indexed with a tile already; a view takes one such index")
    parts = _parts(view, key)
    count = max((p.tile.layout.size for p in parts if p.tile is not None and p.is_vector), default=1)
    ndim = max((len(p.grid.shape) for p in parts), default=0)
    vector = ((count, *(1,) * (max(ndim, 1) - 1)),) if any(p.is_vector for p in parts) else ()
    shape = common_shape(*(p.grid.shape for p in parts), *vector)
    offset, strides, indices = view.offset, [0] * len(shape), []
    partition = None
    for axis, part in enumerate(parts):
        stride, size = known.strides[axis], known.shape[axis]
        steps = aligned_steps(part.grid, shape)
        low, high = part.grid.bounds
        if part.tile is None:
            _need_inside(view, axis, low, high)
        else:
            _need_takes_index(view, axis, part, parts[:axis], shape)
            extent = max(size - high, 0)
            indices.append(tiles.Index(part.tile, stride * known.itemsize, extent, part.is_vector))
        offset += part.grid.start * stride
        strides = [new_layout + step * stride for new_layout, step in zip(strides, steps, strict=True)]
        if axis == known.partition_axis:
            partition = next((d for d, step in enumerate(steps) if step), 0)
    rest = len(parts)
    if known.partition_axis is not None and partition is None:
        partition = len(shape) + known.partition_axis - rest
    start = 0 if partition is None else offset // view.storage.partition_stride
    # one element is a tile of one row and column, as a load gives it
    extents, paces = (*shape, *known.shape[rest:]) or (1, 1), (*strides, *known.strides[rest:]) or (1, 1)
    new_layout = layout(
        extents, paces, known.dtype, known.memory, partition, start, tuple(i.layout for i in indices)
    )
    return type(view)(view.storage, offset, new_layout, tuple(indices))


def _parts(view: View, key: tuple[Any, ...]) -> list[_Part]:
    """The subscripts as grids and tiles."""
    ndim = len(view.layout.shape)
    if any(p is Ellipsis for p in key):
        at = next(i for i, p in enumerate(key) if p is Ellipsis)
        key = (*key[:at], *(slice(None),) * (ndim - len(key) + 1), *key[at + 1 :])
    if len(key) > ndim:
        raise UseError(f"{len(key)} subscripts on {view.describe()}, which has {ndim} axes", key=OUT_OF_BOUND)
    parts = []
    for part, size in zip(_with_grids(view, key), view.layout.shape, strict=False):
        if isinstance(part, TileIndex):
            parts.append(_Part(part.grid, _index_tile(part.tile)))
        elif isinstance(part, View):
            parts.append(_Part(Index((), 0, ()), _index_tile(part)))
        elif isinstance(part, Index):
            parts.append(_Part(part, None))
        else:
            place = place_number(part, "a subscript")
            parts.append(_Part(Index((), place + size if place < 0 else place, ()), None))
    return parts


def _with_grids(view: View, key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key with grids in the place of slices, whose axes stand behind that of a tile."""
    if any(isinstance(p, slice | DynamicSlice) for p in key):
        need_one_kind(key, (Index, TileIndex))
    return grids_for_slices(view, key, int(any(isinstance(p, View) and p.layout.size > 1 for p in key)))


def need_one_kind(key: tuple[Any, ...], kinds: tuple[type, ...]) -> None:
    """Refuse subscripts of these kinds in a key in which others stand that do not go with them."""
    if any(isinstance(p, kinds) for p in key):
        raise UseError(
            "a subscript mixes slices with index grids",
            hint="use slices for all axes, or index grids for all",
            key="err_unsupported_mixing_basic_advanced_tensor_indexing",
        )


def grids_for_slices(view: View, key: tuple[Any, ...], axis: int = 0) -> tuple[Any, ...]:
    """A key with index grids in the place of slices, one axis for each from `axis` on, as `mgrid` has it."""
    ndim = axis + sum(isinstance(p, slice | DynamicSlice) for p in key)
    parts: list[Any] = []
    for part, size in zip(key, view.layout.shape, strict=False):
        if not isinstance(part, slice | DynamicSlice):
            parts.append(part)
            continue
        run = run_of(part, size)
        if not run:
            raise UseError(f"a slice of {view.describe()} is empty; an access has at least one element")
        shape = tuple(len(run) if a == axis else 1 for a in range(ndim))
        parts.append(Index(shape, run.start, tuple(run.step if a == axis else 0 for a in range(ndim))))
        axis += 1
    return tuple(parts)


def _index_tile(tile: View) -> View:
    """A tile that holds indices."""
    index_layout = tile.layout
    if not index_layout.dtype.is_integer or index_layout.memory != SBUF:
        raise RuleError(
            f"the index is {index_layout}; it must be a tile of integers in sbuf",
            hint="load the indices with nl.load first, and cast floats with nl.copy(..., dtype=nl.int32)",
            source="nki.language.load, indirect DMA",
        )
    if index_layout.size > 1 and index_layout.free_size != 1:
        raise RuleError(
            f"the index is {index_layout}; it must be one element, or one for each partition, [N, 1]",
            hint="index one column of it: idx[i_p, 0]",
            source="nki.language.load, indirect DMA",
        )
    return tile


def _need_inside(view: View, axis: int, low: int, high: int) -> None:
    size = view.layout.shape[axis]
    if low < 0 or high >= size:
        raise UseError(
            f"indices {low} to {high} reach outside axis {axis} of {view.describe()}, which has {size} "
            "elements",
            hint="shrink the grid beside the tile of indices",
            key=OUT_OF_BOUND,
        )


def _need_takes_index(
    view: View, axis: int, part: _Part, before: list[_Part], shape: tuple[int, ...]
) -> None:
    """Refuse a tile where no address is computed at run time."""
    if part.grid.bounds[0] < 0:
        raise UnsupportedError(
            "a tile of indices is decreased by a number", hint="subtract it from the tile: idx[...] - n"
        )
    if view.layout.memory == HBM:
        is_free = any(p.tile is None and _runs_over_rows(p.grid, shape) for p in before)
        if part.tile is not None and part.is_vector and is_free:
            raise UseError(
                f"a tile of {part.tile.layout.size} indices is the subscript of axis {axis}, a free axis; "
                "indices choose along the axis of partitions or of blocks",
                hint="index the first axis with the tile: x[idx[i_p, 0], i_f]",
                key=FREE,
            )
        return
    if part.is_vector or axis == view.layout.partition_axis:
        raise UseError(
            f"a tile of indices chooses along axis {axis} of {view.describe()}; on chip one index moves a "
            "whole access along a free axis",
            hint="loop over the indices and use nisa.tensor_copy_dynamic_src, or gather from hbm with "
            "nl.load",
            key=ON_CHIP,
        )


def _runs_over_rows(grid: Index, shape: tuple[int, ...]) -> bool:
    """Whether a grid varies along the first axis of the view."""
    return bool(aligned_steps(grid, shape)[0])


def cropped(view: V, box: Box) -> V:
    """The rectangle `box` of a view with indices; the rows it takes keep theirs."""
    known = view.layout
    offset = view.offset + sum(b.start * s for b, s in zip(box, known.strides, strict=True))
    rows = box[0]
    indices = tuple(
        i._replace(source=basic(i.source, (rows, *(slice(None),) * (len(i.source.layout.shape) - 1))))
        if i.is_vector
        else i
        for i in view.indices
    )
    start = 0 if known.partition_axis is None else offset // view.storage.partition_stride
    new_layout = layout(
        tuple(b.stop - b.start for b in box), known.strides, known.dtype, known.memory, known.partition_axis,
        start, tuple(i.layout for i in indices),
    )  # fmt: skip
    return type(view)(view.storage, offset, new_layout, indices)
