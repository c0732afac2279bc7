"""Tiles of the systolic array: products that keep to some of its rows and columns run beside others."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..errors import RuleError
from ..machine import Machine
from .declaration_parts import Step

TILING = "nki.isa.nc_matmul, tiling mode"
# rows, and columns, of the systolic array, and of its smallest tile
ARRAY, _SMALLEST = 128, 32


def pair(spelled: Any) -> tuple[int, ...]:
    """A pair (row, column), or () where tiling is off."""
    if spelled is None or len(spelled) == 0:
        return ()
    pair = tuple(int(n) for n in spelled)
    if len(pair) != 2:
        raise RuleError(
            f"a tile position or size has {len(pair)} numbers; it must be (row, column)", source=TILING
        )
    return pair


def array_tile(form: Any) -> int:
    """A bit for each [32, 32] of the systolic array that a product occupies; 0 for all of it.

    Bit 4 r + c stands for the rows from 32 r and the columns from 32 c on.
    """
    if not form.tile_size or form.tile_size == (ARRAY, ARRAY):
        return 0
    (row, column), (rows, columns) = form.tile_position, form.tile_size
    parts = [
        4 * (r // _SMALLEST) + c // _SMALLEST
        for r in range(row, row + rows, _SMALLEST)
        for c in range(column, column + columns, _SMALLEST)
    ]
    return sum(1 << part for part in parts)


def smallest_columns(machine: Machine) -> int:
    """The fewest columns that a tile of the array has (nc_matmul, tiling mode)."""
    return _SMALLEST if machine.generation >= 3 else 2 * _SMALLEST


def part_of_array(step: Step) -> float:
    """The part of the systolic array that a step takes: others run beside it."""
    return step.array_tile.bit_count() / 16 if step.array_tile else 1.0


def tiled(form: Any, steps: list[Step]) -> list[Step]:
    """The steps of a product, on the tile of the array that it asks for.

    That tiles run beside each other is documented (nc_matmul, tiling mode); how soon is assumed.
    """
    tile = array_tile(form)
    if not tile:
        return steps
    return [replace(s, array_tile=tile, widening=max(s.widening, 2.0)) if s.busy_ns else s for s in steps]
