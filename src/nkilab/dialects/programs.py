"""Coordinates of program instances, and launch grids."""

from __future__ import annotations

from typing import Any

from ..errors import UseError
from ..trace.session import current
from .indexing import whole_number
from .places import placed


class CoreCount(int):
    """So many physical cores, as `nl.nc(2)` marks them in a grid."""

    def __mul__(self, other: int) -> SpmdDim:
        return SpmdDim(int(other), self)

    __rmul__ = __mul__


class SpmdDim(int):
    """A grid axis whose instances are spread over cores: extent times cores."""

    cores: int

    def __new__(cls, extent: int, cores: CoreCount) -> SpmdDim:
        dim = super().__new__(cls, extent * int(cores))
        dim.cores = int(cores)
        return dim


def nc(count: int) -> CoreCount:
    """So many physical NeuronCores of a grid axis."""
    return CoreCount(count)


def spmd_dim(extent: int, cores: CoreCount) -> SpmdDim:
    """A grid axis of extent * cores instances, spread over the cores."""
    return SpmdDim(int(extent), cores)


@placed("program_id")
def program_id(axis: int = 0) -> int:
    """This instance's coordinate along an axis of the grid; 0 without a grid."""
    ids = current().program_id
    axis = whole_number(axis, "axis")
    if not ids:
        return 0
    if not 0 <= axis < len(ids):
        raise UseError(f"axis is {axis}; the grid has {len(ids)} axes")
    return ids[axis]


@placed("num_programs")
def num_programs(axes: Any = None) -> Any:
    """Instances along an axis, along several as a tuple, or in all if `axes` is None."""
    grid = current().grid
    if axes is None:
        total = 1
        for extent in grid:
            total *= extent
        return total
    if isinstance(axes, tuple | list):
        return tuple(num_programs(a) for a in axes)
    axis = whole_number(axes, "axis")
    if not grid:
        return 1
    if not 0 <= axis < len(grid):
        raise UseError(f"axis is {axis}; the grid has {len(grid)} axes")
    return grid[axis]


def program_ndim() -> int:
    """Axes of the launch grid."""
    return len(current().grid)
