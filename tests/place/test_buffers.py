"""Tiles of one source line take turns in buffers, against buffers that are handed out one by one."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from nkilab.machine import MACHINES
from nkilab.machine.model import assumed
from nkilab.place import plan
from nkilab.place.buffers import buffer_edges, order_edges, phase_edges
from nkilab.place.slots import slots_of
from nkilab.place.walk import FLOW, REUSE
from nkilab.tiles.tile import View
from nkilab.trace.program import AS_WRITTEN, MIDDLE_END, STANDALONE

from .handmade import Kernel, part, reshaped


def turns(k: Kernel, factor: int, spare: int = 1) -> list[tuple[int, int]]:
    """(row, row it waits for) of the tiles that get the buffer of another one."""
    k.program.machine = k.program.machine.with_constants(
        {"tile_buffers": factor, "spare_block_buffers": spare}, "a test"
    )
    later, earlier, kind = buffer_edges(k.program, slots_of(k.program))
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


def blocks_filled_in_turn(count: int) -> Kernel:
    """Blocks of two parts, each filled part by part, then read part by part: four rows a block."""
    k = Kernel()
    for block in [k.tile(128, 2, 8) for _ in range(count)]:
        parts = [part(block, (0, 128), (number, number + 1), (0, 8)) for number in range(2)]
        for one in parts:
            k.fill(one)
        for one in parts:
            k.copy(k.psum(128, 1, 8), one)
    return k


def test_blocks_take_turns_in_one_buffer_more_than_are_live() -> None:
    # one is live at a time: two buffers, whatever tiles of one free axis get
    assert turns(blocks_filled_in_turn(4), factor=6) == [(8, 3), (12, 7)]
    assert turns(blocks_filled_in_turn(4), factor=1) == [(8, 3), (12, 7)]


def test_without_spare_buffers_blocks_are_tiles_as_any_other() -> None:
    assert turns(blocks_filled_in_turn(4), factor=1, spare=0) == [(4, 3), (8, 7), (12, 11)]
    assert turns(blocks_filled_in_turn(4), factor=3, spare=0) == [(12, 3)]


def loaded_from_two_tensors(*shape: int) -> Kernel:
    """Four tiles of one line, one after the other, from two tensors in turn: a helper for both operands."""
    k = Kernel()
    tiles, sources = [k.tile(*shape) for _ in range(4)], [k.hbm(*shape), k.hbm(*shape)]
    for number, tile in enumerate(tiles):
        k.load(tile, sources[number % 2])
        k.copy(k.psum(*shape), tile)
    return k


def test_blocks_of_one_line_that_two_tensors_fill_have_buffers_of_their_own() -> None:
    # two tensors, two buffers each: four blocks have one each
    assert turns(loaded_from_two_tensors(128, 1, 8), factor=1) == []


def test_tiles_of_one_line_share_their_buffers_whatever_tensor_fills_them() -> None:
    assert turns(loaded_from_two_tensors(128, 8), factor=2) == [(4, 1), (6, 3)]


def kept_in_hbm(compiler: str, loops: int = 2) -> Kernel:
    """Three tiles stored in turn, loaded, changed and stored by one loop, and loaded by another."""
    k = Kernel()
    k.program.compiler = compiler
    scratch, other = k.hbm(3, 128, 8), k.hbm(128, 8)
    places = [reshaped(part(scratch, (n, n + 1), (0, 128), (0, 8)), 128, 8) for n in range(3)]
    for place in places:
        k.store(place, k.tile(128, 8))
    for loop in range(loops):
        for place in places:
            k.line = 100 + loop
            tile = k.tile(128, 8)
            k.load(tile, place)
            k.line = 200 + loop
            k.store(place, tile)
    k.line = 300
    k.load(k.tile(128, 8), other)
    return k


def awaited(k: Kernel) -> list[tuple[int, int]]:
    """(load, store that it waits for besides that of its own elements)."""
    later, earlier, kind = phase_edges(k.program, slots_of(k.program))
    assert (kind == FLOW).all()
    return sorted(zip(later.tolist(), earlier.tolist(), strict=True))


def test_a_loop_of_beta_1_reads_a_tensor_in_hbm_when_the_loop_before_has_stored_all_of_it() -> None:
    # rows 0 to 2 store; 3 to 8 and 9 to 14 load and store in turn: no load waits for stores of its own loop
    assert awaited(kept_in_hbm(MIDDLE_END)) == [(3, 2), (5, 2), (7, 2), (9, 8), (11, 8), (13, 8)]


def test_other_compilers_let_a_load_wait_for_its_own_elements_alone() -> None:
    assert awaited(kept_in_hbm(STANDALONE)) == awaited(kept_in_hbm(AS_WRITTEN)) == []


def test_a_chip_without_phases_lets_a_load_wait_for_its_own_elements_alone() -> None:
    k = kept_in_hbm(MIDDLE_END)
    k.program.machine = k.program.machine.with_constants({"scratch_phases": 0}, "a test")
    assert awaited(k) == []


def test_phases_delay_a_load_until_the_last_store_of_the_loop_before() -> None:
    waits = plan(kept_in_hbm(MIDDLE_END).program).waits
    assert (8, "flow") in waits.of(9)
    assert (8, "flow") not in plan(kept_in_hbm(STANDALONE).program).waits.of(9)


@pytest.mark.parametrize(("in_order", "expected"), [(0, []), (1, [(3, 0), (4, 2)])])
def test_engines_take_rows_in_their_order_where_a_constant_says_so(
    in_order: int, expected: list[tuple[int, int]]
) -> None:
    # rows 0 and 3 are of VectorE, 2 and 4 of ScalarE; transfers wait for none before them
    k = Kernel("trn2")
    k.copy(k.tile(128, 8), k.tile(128, 8))
    k.load(k.tile(128, 8), k.hbm(128, 8))
    for engine in ("scalar", "vector", "scalar"):
        k.copy(k.tile(128, 8), k.tile(128, 8), engine=engine)
    k.load(k.tile(128, 8), k.hbm(128, 8))
    k.program.machine = k.program.machine.with_constants({"engines_in_order": in_order}, "a test")
    later, earlier, kind = order_edges(k.program, slots_of(k.program))
    assert sorted(zip(later.tolist(), earlier.tolist(), strict=True)) == expected
    assert (kind == REUSE).all()


@pytest.mark.parametrize(("first_part", "expected"), [(1, [(3, 2)]), (0, [(3, 2), (4, 2)])])
def test_every_part_of_a_block_waits_for_its_buffer_where_a_constant_says_so(
    first_part: int, expected: list[tuple[int, int]]
) -> None:
    # two blocks of one line, which has one buffer; each is filled in two parts and read
    k = Kernel()
    k.line = 1
    blocks = [k.tile(128, 2, 8) for _ in range(2)]
    for block in blocks:
        for half in (0, 1):
            k.fill(part(block, (0, 128), (half, half + 1), (0, 8)))
        k.copy(k.tile(128, 8), part(block, (0, 128), (0, 1), (0, 8)))
    k.program.machine = k.program.machine.with_constants({"block_first_part": first_part}, "a test")
    assert turns(k, 1, 0) == expected
