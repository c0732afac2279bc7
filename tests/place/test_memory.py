"""The memory that tiles are placed in: what was given back first is taken, neighbours joined, pieces used."""

from __future__ import annotations

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


def taken(held: Memory, tile: int) -> tuple[int, int, list[int]] | None:
    """Where a tile lies, in how many pieces, and who held its units before; None if it finds no room."""
    before = held.extent.reuses
    if not take(held, tile):
        return None
    return held.tiles[tile].address, held.tiles[tile].pieces, held.former[before : held.extent.reuses]


def test_what_was_freed_longest_ago_is_taken() -> None:
    held = memory(4, *[1] * 7)
    for tile in range(4):
        assert taken(held, tile) == (tile, 1, [])
    give_back(held, 2)
    give_back(held, 1)
    assert taken(held, 4) == (2, 1, [2])
    assert taken(held, 5) == (1, 1, [1])
    assert taken(held, 6) is None


@pytest.mark.parametrize(("size", "address"), [(2, 2), (4, 2), (6, 0)])
def test_of_runs_of_several_holders_that_is_taken_whose_last_one_ended_first(size: int, address: int) -> None:
    # tiles of 2 units that end with rows 9, 3 and 5, then one that begins with row 10
    held, stopped = place(6, np.array([2, 2, 2, size]), np.array([0, 1, 2, 10]), np.array([9, 3, 5, 10]), 11)
    assert stopped == ALL_PLACED
    assert column(held.tiles, "address").tolist() == [0, 2, 4, address]


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
    held, stopped = place(UNITS, sizes, first, last, int(last.max()) + 1)
    address, pieces = column(held.tiles, "address"), column(held.tiles, "pieces")
    # per unit the last row of who holds it, or held it last
    until = np.full(UNITS, -1)
    for tile in range(len(tiles) if stopped == ALL_PLACED else stopped):
        windows = np.lib.stride_tricks.sliding_window_view(until, sizes[tile]).max(axis=1)
        is_free = windows < first[tile]
        if pieces[tile] > 1:
            return  # no address for each piece: what follows is not known here
        assert windows[address[tile]] == windows[is_free].min()
        until[address[tile] : address[tile] + sizes[tile]] = last[tile]


def test_neighbours_of_several_former_holders_are_joined() -> None:
    held = memory(6, 2, 2, 2, 3, 1)
    for tile in range(3):
        take(held, tile)
    give_back(held, 0)
    give_back(held, 1)
    assert taken(held, 3) == (0, 1, [0, 1])
    assert taken(held, 4) == (3, 1, [1])
    assert held.extent.peak == 6


def test_a_tile_lies_in_pieces_where_free_space_is_scattered() -> None:
    held = memory(4, 1, 1, 1, 1, 2)
    for tile in range(4):
        take(held, tile)
    give_back(held, 0)
    give_back(held, 2)
    assert taken(held, 4) == (0, 2, [0, 2])


def test_more_reuses_than_tiles_are_all_found() -> None:
    # eight tiles of one unit side by side, then one of eight, three times: 8 + 8 + 8 + 8 + 8 reuses
    sizes, first, last = [], [], []
    for begin in (0, 9, 18):
        sizes += [*[1] * 8, 8]
        first += range(begin, begin + 9)
        last += [*[begin + 7] * 8, begin + 8]
    held, stopped = place(8, np.array(sizes), np.array(first), np.array(last), 27)
    assert stopped == ALL_PLACED
    assert column(held.tiles, "address").tolist() == [*range(8), 0] * 3
    reuses = list(zip(held.taker, held.former, strict=True))[: held.extent.reuses]
    assert reuses == [
        *[(8, tile) for tile in range(8)],
        *[(9 + tile, 8) for tile in range(8)],
        *[(17, 9 + tile) for tile in range(8)],
        *[(18 + tile, 17) for tile in range(8)],
        *[(26, 18 + tile) for tile in range(8)],
    ]
