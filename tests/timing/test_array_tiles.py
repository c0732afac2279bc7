"""Products on tiles of the systolic array, by hand: what runs side by side, and what takes turns."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from nkilab.machine import MACHINES
from nkilab.timing import Timeline
from tests.place.handmade import Kernel, part, rows

from .round_numbers import fact, start_of, timed, why

WARM = replace(MACHINES["trn2"], tensor_warm_up_ns=fact(0.0))
# ns at 2.4 GHz: 512 rows and 8 cycles for the instruction; the same of 64 rows, how far apart short ones are
LONG, SHORT = (512 + 8) / 2.4, (64 + 8) / 2.4
Tile = tuple[tuple[int, int], tuple[int, int]]


def products(
    *tiles: Tile | None, sizes: tuple[int, ...] = (), dtype: str = "bfloat16", into: str = "each"
) -> Timeline:
    """One product per tile (position, size), of 512 rows if not of `sizes`, rows 2 and on."""
    k = Kernel(WARM)
    a, b = k.tile(128, 128, dtype=dtype), k.tile(128, 512, dtype=dtype)
    k.fill(a)
    k.fill(b)
    shared = k.psum(128, 512)
    for tile, size in zip(tiles, sizes or [512] * len(tiles), strict=True):
        position, (high, wide) = tile or ((0, 0), (128, 128))
        one = rows(shared, 0, wide) if into == "one" else k.psum(wide, size)
        left = part(a, (0, high), (0, wide))
        chosen = {"tile_position": position, "tile_size": (high, wide)} if tile else {}
        right = part(b, (0, high), (0, size))
        k.call("nc_matmul", one, left, right, values=(into == "one",), **chosen)
    return timed(k)


def starts(timeline: Timeline, count: int) -> np.ndarray:
    first = start_of(timeline, 2, "MATMUL")
    return np.array([start_of(timeline, row, "MATMUL") - first for row in range(2, 2 + count)])


def columns_of_32(count: int) -> list[Tile]:
    return [((0, 32 * (i % 4)), (128, 32)) for i in range(count)]


def test_products_on_four_column_tiles_run_side_by_side() -> None:
    # each begins as soon as a short product could; the fifth waits for the tile of the first
    timeline = products(*columns_of_32(8))
    round_one = SHORT * np.arange(4)
    assert starts(timeline, 8) == pytest.approx([*round_one, *(LONG + round_one)], rel=1e-9)
    assert why(timeline, 6) == ("order", 2)


def test_products_on_one_tile_take_turns() -> None:
    timeline = products(*[((0, 32), (128, 32))] * 3)
    assert starts(timeline, 3) == pytest.approx([0, LONG, 2 * LONG], rel=1e-9)


def test_row_tiles_wait_for_their_weights() -> None:
    # 128 columns of weights load in 128 cycles, behind the product before
    timeline = products(((0, 0), (64, 128)), ((64, 0), (64, 128)), ((0, 0), (64, 128)))
    assert starts(timeline, 3) == pytest.approx([0, 128 / 2.4, LONG], rel=1e-9)


def test_tiles_that_overlap_take_turns() -> None:
    # the upper half and the left half share a quarter; the lower right quarter is free
    timeline = products(((0, 0), (64, 128)), ((0, 0), (128, 64)), ((64, 64), (64, 64)))
    assert starts(timeline, 3) == pytest.approx([0, LONG, LONG + SHORT], rel=1e-9)


def test_a_product_on_the_whole_array_waits_for_all_tiles() -> None:
    timeline = products(*columns_of_32(2), None, ((0, 96), (128, 32)))
    assert starts(timeline, 4) == pytest.approx([0, SHORT, SHORT + LONG, SHORT + 2 * LONG], rel=1e-9)
    assert why(timeline, 4) == ("order", 3)


def test_a_product_on_the_whole_array_waits_for_the_tile_that_is_free_last() -> None:
    # a short product on another tile begins later and ends sooner than the long one before it
    timeline = products(*columns_of_32(2), None, sizes=(512, 64, 512))
    assert starts(timeline, 3) == pytest.approx([0, SHORT, LONG], rel=1e-9)
    assert why(timeline, 4) == ("order", 2)


def test_a_product_on_a_tile_waits_for_one_on_the_whole_array() -> None:
    timeline = products(None, ((0, 96), (128, 32)), ((0, 0), (128, 32)))
    assert starts(timeline, 3) == pytest.approx([0, LONG, LONG + SHORT], rel=1e-9)
    assert why(timeline, 3) == ("order", 2)


def test_a_tile_as_large_as_the_array_is_the_array() -> None:
    whole = [((0, 0), (128, 128))] * 3
    assert starts(products(*whole), 3) == pytest.approx([0, LONG, 2 * LONG], rel=1e-9)


def test_two_tiles_add_to_one_place_of_psum_one_after_the_other() -> None:
    timeline = products(((0, 0), (64, 128)), ((64, 0), (64, 128)), into="one")
    assert starts(timeline, 2) == pytest.approx([0, LONG], rel=1e-9)


def test_float32_halves_stand_in_line_on_their_tile() -> None:
    # LOW and HIGH take two passes each; HIGH begins after LOW, the next product a short one later
    low = (2 * 512 + 8) / 2.4
    timeline = products(*columns_of_32(2), dtype="float32")
    assert starts(timeline, 2) == pytest.approx([0, low + SHORT], rel=1e-9)


def test_the_engine_is_occupied_once_where_products_overlap() -> None:
    timeline = products(*columns_of_32(4))
    # the weights of the first, a column a cycle, then from its start to the end of the last
    assert timeline.occupied_ns("tensor") == pytest.approx(32 / 2.4 + 3 * SHORT + LONG, rel=1e-9)
