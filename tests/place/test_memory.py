"""The memory that tiles are placed in: what was given back first is taken, neighbours joined, pieces used."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkilab.place.memory import ALL_PLACED, Memory, give_back, memory_sized, place, take
from nkilab.records import column


def memory(size: int, *sizes: int) -> Memory:
    """A memory for tiles of these sizes."""
    rows = [0] * len(sizes)
    return memory_sized(size, sizes, rows, rows, as_array=False)


def taken(allocator: Memory, tile: int) -> tuple[int, int, list[int]] | None:
    """Where a tile lies, in how many pieces, and who held its units before; None if it finds no room."""
    before = allocator.extent.reuses
    if not take(allocator, tile):
        return None
    return (
        allocator.tiles[tile].address,
        allocator.tiles[tile].pieces,
        allocator.former[before : allocator.extent.reuses],
    )


def test_what_was_freed_longest_ago_is_taken() -> None:
    allocator = memory(4, *[1] * 7)
    for tile in range(4):
        assert taken(allocator, tile) == (tile, 1, [])
    give_back(allocator, 2)
    give_back(allocator, 1)
    assert taken(allocator, 4) == (2, 1, [2])
    assert taken(allocator, 5) == (1, 1, [1])
    assert taken(allocator, 6) is None


@pytest.mark.parametrize(("size", "address"), [(2, 2), (4, 2), (6, 0)])
def test_of_runs_of_several_holders_that_is_taken_whose_last_one_ended_first(size: int, address: int) -> None:
    # tiles of 2 units that end with rows 9, 3 and 5, then one that begins with row 10
    allocator, stopped = place(
        6, np.array([2, 2, 2, size]), np.array([0, 1, 2, 10]), np.array([9, 3, 5, 10]), 11
    )
    assert stopped == ALL_PLACED
    assert column(allocator.tiles, "address").tolist() == [0, 2, 4, address]


UNITS = 12
# size, rows after the tile before, rows that it lives
TILES = st.lists(
    st.tuples(st.integers(1, UNITS // 2), st.integers(0, 4), st.integers(0, 9)), min_size=3, max_size=40
)


@given(TILES)
def test_no_run_is_free_whose_holders_ended_earlier(tiles: list[tuple[int, int, int]]) -> None:
    sizes = np.array([size for size, _, _ in tiles])
    first = np.cumsum([after for _, after, _ in tiles])
    last = first + [lives for _, _, lives in tiles]
    allocator, stopped = place(UNITS, sizes, first, last, int(last.max()) + 1)
    address, pieces = column(allocator.tiles, "address"), column(allocator.tiles, "pieces")
    # per unit the last row of who holds it, or held it last
    until = np.full(UNITS, -1)
    for tile in range(len(tiles) if stopped == ALL_PLACED else stopped):
        windows = np.lib.stride_tricks.sliding_window_view(until, sizes[tile]).max(axis=1)
        is_free = windows < first[tile]
        if pieces[tile] > 1:
            return  # no address for each piece: what follows is not known here
        assert windows[address[tile]] == windows[is_free].min()
        until[address[tile] : address[tile] + sizes[tile]] = last[tile]


class Units:
    """Per unit of a memory who holds it, or held it last, and until which row."""

    def __init__(self) -> None:
        self.holder: list[int | None] = [None] * UNITS
        self.until = [-1] * UNITS
        self.is_free = [True] * UNITS

    def runs(self, size: int) -> dict[int, int]:
        """By first unit of the free runs of a size the last row of who held one of its units."""
        starts = range(UNITS - size + 1)
        return {s: max(self.until[s : s + size]) for s in starts if all(self.is_free[s : s + size])}

    def take(self, units: list[int], tile: int, last: int) -> list[int]:
        """Give units to a tile; who held them before, nobody twice in a row."""
        former = [holder for u in units if (holder := self.holder[u]) is not None]
        for u in units:
            self.holder[u], self.until[u], self.is_free[u] = tile, last, False
        return [holder for place, holder in enumerate(former) if not place or former[place - 1] != holder]


def units_of(allocator: Memory, tile: int) -> list[int]:
    """The units that a tile lies on, in the order in which it took them."""
    units, at = [], allocator.tiles[tile].segment
    while at >= 0:
        segment = allocator.segments[at]
        units += range(segment.start, segment.start + segment.length)
        at = segment.mate
    return units


@given(TILES)
def test_units_are_taken_and_given_back_one_by_one_as_the_rule_says(
    tiles: list[tuple[int, int, int]],
) -> None:
    sizes = [size for size, _, _ in tiles]
    first = np.cumsum([after for _, after, _ in tiles]).tolist()
    last = [begin + lives for begin, (_, _, lives) in zip(first, tiles, strict=True)]
    allocator, model, most, live = memory_sized(UNITS, sizes, first, last, as_array=False), Units(), 0, []
    # one tile may take all units: there is room to note who held each
    allocator = allocator._replace(taker=[0] * 1000, former=[0] * 1000)
    for tile, size in enumerate(sizes):
        for old in sorted((t for t in live if last[t] < first[tile]), key=lambda t: last[t]):
            for unit in units_of(allocator, old):
                model.is_free[unit] = True
            give_back(allocator, old)
            live.remove(old)
        free, runs, before = sum(model.is_free), model.runs(size), allocator.extent.reuses
        assert allocator.extent.free == free
        assert take(allocator, tile) == (size <= free)
        if size > free:
            return
        live.append(tile)
        units = units_of(allocator, tile)
        assert len(units) == size
        assert all(model.is_free[u] for u in units)
        pieces = 1 + sum(b != a + 1 for a, b in pairwise(units))
        assert (allocator.tiles[tile].address, allocator.tiles[tile].pieces) == (units[0], pieces)
        if runs:
            assert pieces == 1
            assert runs[units[0]] == min(runs.values())
        else:
            # around the ring, once
            turn = units.index(min(units))
            assert units[turn:] + units[:turn] == sorted(units)
        reuses = list(zip(allocator.taker, allocator.former, strict=True))[before : allocator.extent.reuses]
        assert reuses == [(tile, former) for former in model.take(units, tile, last[tile])]
        most = max(most, UNITS - sum(model.is_free))
        assert allocator.extent.peak == most


def test_a_tile_in_pieces_begins_where_the_last_one_ended_and_goes_around() -> None:
    # units 0 to 5 by tiles of one; 1, 3 and 5 are free when the last one took unit 4: 5, then 1 and 3
    allocator = memory(6, *[1] * 7, 3)
    for tile in range(6):
        take(allocator, tile)
    give_back(allocator, 4)
    assert taken(allocator, 6) == (4, 1, [4])
    for tile in (1, 3, 5):
        give_back(allocator, tile)
    assert taken(allocator, 7) == (5, 3, [5, 1, 3])


def test_neighbours_that_one_tile_gives_back_out_of_order_are_one_again() -> None:
    # free are 0, 1 and 3 when the last one took unit 0: the tile of 3 takes 1, 3 and at last 0
    allocator = memory(6, *[1] * 7, 3, 2, 1)
    for tile in range(6):
        take(allocator, tile)
    give_back(allocator, 0)
    assert taken(allocator, 6) == (0, 1, [0])
    for tile in (6, 1, 3):
        give_back(allocator, tile)
    assert taken(allocator, 7) == (1, 3, [1, 3, 6])
    give_back(allocator, 7)
    assert taken(allocator, 8) == (0, 1, [7])
    assert taken(allocator, 9) == (3, 1, [7])


def test_neighbours_of_several_former_holders_are_joined() -> None:
    allocator = memory(6, 2, 2, 2, 3, 1)
    for tile in range(3):
        take(allocator, tile)
    give_back(allocator, 0)
    give_back(allocator, 1)
    assert taken(allocator, 3) == (0, 1, [0, 1])
    assert taken(allocator, 4) == (3, 1, [1])
    assert allocator.extent.peak == 6


def test_a_tile_lies_in_pieces_where_free_space_is_scattered() -> None:
    allocator = memory(4, 1, 1, 1, 1, 2)
    for tile in range(4):
        take(allocator, tile)
    give_back(allocator, 0)
    give_back(allocator, 2)
    assert taken(allocator, 4) == (0, 2, [0, 2])


def test_pieces_that_one_tile_held_one_after_the_other_are_one_reuse() -> None:
    # the tile on units 0 and 2 makes place for another one, which takes both and notes the former one once
    state = memory(4, 1, 1, 1, 1, 2, 2, 2)
    for tile in range(4):
        take(state, tile)
    give_back(state, 0)
    give_back(state, 2)
    assert taken(state, 4) == (0, 2, [0, 2])
    for tile in (5, 6):
        give_back(state, tile - 1)
        assert taken(state, tile) == (0, 2, [tile - 1])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_first_two_units_are_neighbours_whichever_was_given_back_first(order: tuple[int, int]) -> None:
    state = memory(3, 1, 1, 1, 2)
    for tile in range(3):
        take(state, tile)
    for tile in order:
        give_back(state, tile)
    assert taken(state, 3) == (0, 1, [0, 1])


def test_more_reuses_than_tiles_are_all_found() -> None:
    # eight tiles of one unit side by side, then one of eight, three times: 8 + 8 + 8 + 8 + 8 reuses
    sizes, first, last = [], [], []
    for begin in (0, 9, 18):
        sizes += [*[1] * 8, 8]
        first += range(begin, begin + 9)
        last += [*[begin + 7] * 8, begin + 8]
    allocator, stopped = place(8, np.array(sizes), np.array(first), np.array(last), 27)
    assert stopped == ALL_PLACED
    assert column(allocator.tiles, "address").tolist() == [*range(8), 0] * 3
    reuses = list(zip(allocator.taker, allocator.former, strict=True))[: allocator.extent.reuses]
    assert reuses == [
        *[(8, tile) for tile in range(8)],
        *[(9 + tile, 8) for tile in range(8)],
        *[(17, 9 + tile) for tile in range(8)],
        *[(18 + tile, 17) for tile in range(8)],
        *[(26, 18 + tile) for tile in range(8)],
    ]


def test_a_tile_that_is_never_used_takes_no_room() -> None:
    # it ends before it begins: nothing would give its room back
    _, stopped = place(8, np.array([8, 8, 8]), np.array([0, 0, 4]), np.array([-1, 3, 5]), 6)
    assert stopped == ALL_PLACED
