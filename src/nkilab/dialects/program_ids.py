"""Coordinates of program instances, and launch grids."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..errors import UseError
from ..trace.session import current
from .indexing import whole_number
from .places import placed


class CoreCount(int):
    """So many physical cores, as `nl.nc(2)` marks them in a grid: an axis with one instance on each."""

    @property
    def cores(self) -> int:
        """Cores that the instances along the axis are spread over."""
        return int(self)

    def __mul__(self, other: int) -> SpmdDim:
        return spmd_dim(self, other)

    def __rmul__(self, other: int) -> SpmdDim:
        return spmd_dim(other, self)


class SpmdDim(int):
    """A grid axis whose instances are spread over cores: extent times cores.

    With `is_outer` neighbours run on one core, without it on different ones.

    Source: nki.language.spmd_dim.
    """

    cores: int
    is_outer: bool

    def __new__(cls, extent: int, cores: CoreCount, *, is_outer: bool = False) -> SpmdDim:
        dim = super().__new__(cls, extent * int(cores))
        dim.cores = int(cores)
        dim.is_outer = is_outer
        return dim


@placed("nc")
def nc(count: int) -> CoreCount:
    """So many physical NeuronCores of a grid axis."""
    return CoreCount(whole_number(count, "the number of cores"))


@placed("spmd_dim")
def spmd_dim(extent: int | CoreCount, cores: int | CoreCount) -> SpmdDim:
    """A grid axis of extent * cores instances; where the cores stand first, neighbours share a core."""
    if isinstance(cores, CoreCount) == isinstance(extent, CoreCount):
        raise UseError("spmd_dim takes one extent and one number of cores, nl.nc(2)")
    if isinstance(cores, CoreCount):
        return SpmdDim(whole_number(extent, "the extent"), cores)
    assert isinstance(extent, CoreCount)
    return SpmdDim(whole_number(cores, "the extent"), extent, is_outer=True)


@placed("program_id")
def program_id(axis: int = 0) -> int:
    """This instance's coordinate along an axis of the grid; 0 without a grid."""
    return _along(current().program_id, axis, 0)


@placed("num_programs")
def num_programs(axes: Any = None) -> Any:
    """Instances along an axis, along several as a tuple, or in all if `axes` is None."""
    grid = current().grid
    if axes is None:
        return prod(grid)
    if isinstance(axes, tuple | list):
        return tuple(num_programs(a) for a in axes)
    return _along(grid, axes, 1)


def _along(values: Sequence[Any], axis: Any, without_grid: int) -> Any:
    """What a launch has along one axis of its grid."""
    axis = whole_number(axis, "axis")
    if not values:
        return without_grid
    if not 0 <= axis < len(values):
        raise UseError(f"axis is {axis}; the grid has {len(values)} axes")
    return values[axis]


@placed("program_ndim")
def program_ndim() -> int:
    """Axes of the launch grid."""
    return len(current().grid)
