"""Tiles of one source line take turns in buffers, against buffers that are handed out one by one."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from nkilab.machine import MACHINES
from nkilab.machine.model import assumed
from nkilab.place import plan
from nkilab.place.buffers import buffer_edges
from nkilab.place.slots import slots_of
from nkilab.place.walk import REUSE
from nkilab.tiles.tile import View

from .handmade import Kernel


def turns(k: Kernel, factor: int) -> list[tuple[int, int]]:
    """(row, row it waits for) of the tiles that get the buffer of another one."""
    later, earlier, kind = buffer_edges(k.program, slots_of(k.program), factor)
    assert (kind == REUSE).all()
    return sorted(zip(later.tolist(), earlier.tolist(), strict=True))


def handed_out(lives: list[tuple[int, int]], factor: int) -> list[tuple[int, int]]:
    """The same, for tiles of one line by their first and last rows: who comes gets the buffer free first."""
    lives = sorted(lives)
    at_once = max(sum(a <= row <= b for a, b in lives) for row, _ in lives)
    buffers: list[int] = []
    waits = []
    for first, last in lives:
        if len(buffers) < factor * at_once:
            buffers.append(last)
            continue
        freed = min(buffers)
        buffers[buffers.index(freed)] = last
        waits.append((first, freed))
    return sorted(waits)


def used_at(k: Kernel, tiles: list[View], rows: list[int]) -> list[tuple[int, int]]:
    """One row after the other fills the tile with its number; first and last row of each tile."""
    for tile in rows:
        k.fill(tiles[tile])
    used = [[row for row, tile in enumerate(rows) if tile == t] for t in range(len(tiles))]
    return [(at[0], at[-1]) for at in used if at]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_who_comes_gets_the_buffer_that_is_free_first(seed: int, factor: int) -> None:
    draw, k = Random(seed), Kernel()
    tiles = [k.tile(128, 8) for _ in range(12)]
    rows = sorted((draw.randint(0, 30) + tile, tile) for tile in range(12) for _ in range(draw.randint(1, 2)))
    lives = used_at(k, tiles, [tile for _, tile in rows])
    assert turns(k, factor) == handed_out(lives, factor)


def test_tiles_that_live_one_after_another_take_turns_in_order() -> None:
    # one at a time, two buffers: the third waits for the first
    k = Kernel()
    used_at(k, [k.tile(128, 8) for _ in range(4)], [0, 0, 1, 2, 3])
    assert turns(k, 2) == [(3, 1), (4, 2)]
    assert turns(k, 4) == []


def test_a_tile_that_begins_in_the_row_in_which_another_ends_lives_beside_it() -> None:
    k = Kernel()
    a, b, c = (k.tile(128, 8) for _ in range(3))
    k.fill(a)
    k.copy(b, a)
    k.copy(c, b)
    assert turns(k, 1) == [(2, 1)]


def test_tiles_of_other_shapes_types_lines_and_memories_have_buffers_of_their_own() -> None:
    k = Kernel()
    tiles = [k.tile(128, 8), k.tile(128, 9), k.tile(128, 8, dtype="int32"), k.psum(128, 8)]
    used_at(k, tiles, [0, 1, 2, 3])
    # handmade kernels stand on as many lines as they have rows: this one is of another line
    k.fill(k.tile(128, 8))
    assert turns(k, 1) == []


def test_two_lines_take_turns_apart() -> None:
    k = Kernel()
    first = [k.tile(128, 8) for _ in range(2)]
    k.fill(first[0])
    second = [k.tile(128, 8) for _ in range(2)]
    for tile in (second[0], first[1], second[1]):
        k.fill(tile)
    assert turns(k, 1) == [(2, 0), (3, 1)]


def test_tiles_that_nobody_uses_need_no_buffer() -> None:
    k = Kernel()
    tiles = [k.tile(128, 8) for _ in range(3)]
    k.fill(tiles[0])
    k.fill(tiles[2])
    assert turns(k, 1) == [(1, 0)]
    assert turns(Kernel(), 1) == []


def test_a_plan_has_as_many_buffers_as_its_chip_says() -> None:
    for factor, expected in ((1, [(0, "reuse")]), (2, [])):
        k = Kernel(replace(MACHINES["trn2"], tile_buffers=assumed(factor, "a test")))
        used_at(k, [k.tile(128, 8) for _ in range(2)], [0, 1])
        assert plan(k.program).waits.of(1) == expected
