"""max8, nc_find_index8 and nc_match_replace8 against loops over rows and the worked cases of the manual."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.tiles.dtypes import BFLOAT16, UINT32
from nkilab.tiles.tile import array_of, layout
from tests.uses import Tile, call, new_tile, open_session, result

MAX8, FIND, REPLACE = REGISTRY["max8"], REGISTRY["nc_find_index8"], REGISTRY["nc_match_replace8"]
ALL_ONES = 2**32 - 1
# few different numbers, so that rows hold equal ones
DATA = np.random.default_rng(1).integers(0, 12, (16, 40)).astype(np.float32)


def top(row: list[float]) -> list[float]:
    return sorted(row, reverse=True)[:8]


def positions_of(row: list[float], wanted: list[float]) -> list[int]:
    """Successive occurrences of equal values, in ascending order."""
    places = []
    for slot, value in enumerate(wanted):
        hits = [k for k, x in enumerate(row) if x == value]
        rank = wanted[:slot].count(value)
        places.append(hits[rank] if rank < len(hits) else ALL_ONES)
    return places


def replaced(row: list[float], wanted: list[float], imm: float) -> tuple[list[float], list[int]]:
    """Slots from 7 down to 0, each the first place left."""
    row, places = list(row), [ALL_ONES] * 8
    for slot in range(7, -1, -1):
        if wanted[slot] in row:
            places[slot] = row.index(wanted[slot])
            row[places[slot]] = imm
    return row, places


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int8", "uint32"])
def test_the_eight_largest_stand_in_descending_order(name: str) -> None:
    got = result(MAX8, Tile((16, 8), name), src=(DATA, name))
    assert got.astype(np.float32).tolist() == [top(row) for row in DATA.tolist()]


def test_a_row_of_eight_is_sorted_and_axes_count_as_one() -> None:
    got = result(
        MAX8, (1, 8), src=np.float32([[[3, -1], [0, 9]], [[-np.inf, 2], [5, 4]]]).reshape(1, 2, 2, 2)
    )
    assert got.tolist() == [[9, 5, 4, 3, 2, 0, -1, -np.inf]]


@pytest.mark.parametrize("name", ["uint16", "uint32"])
def test_equal_values_find_one_occurrence_after_the_other(name: str) -> None:
    # NKI 0.6 release notes: ascending, and all ones for what is not found
    wanted = np.random.default_rng(2).integers(0, 14, (16, 8)).astype(np.float32)
    got = result(FIND, Tile((16, 8), name), data=DATA, vals=wanted)
    expected = [positions_of(row, vals) for row, vals in zip(DATA.tolist(), wanted.tolist(), strict=True)]
    assert got.tolist() == [[k & (2 ** (got.itemsize * 8) - 1) for k in row] for row in expected]


def test_indices_of_the_eight_largest_point_at_them() -> None:
    largest = result(MAX8, (16, 8), src=DATA)
    indices = result(FIND, Tile((16, 8), "uint32"), data=DATA, vals=largest)
    np.testing.assert_array_equal(np.take_along_axis(DATA, indices.astype(np.int64), 1), largest)
    assert all(len(set(row)) == 8 for row in indices.tolist())


def test_values_of_another_type_are_compared_as_float32() -> None:
    got = result(
        FIND,
        Tile((1, 8), "uint32"),
        data=(np.array([[1, 2, 3, 4, 5, 6, 7, 1.5]]), "bfloat16"),
        vals=np.float32([[[1.5, 7], [6, 5]], [[4, 3], [2, 1 + 2.0**-20]]]).reshape(1, 4, 2),
    )
    assert got.tolist() == [[7, 6, 5, 4, 3, 2, 1, ALL_ONES]]


def test_nan_is_not_found() -> None:
    data = np.float32([[np.nan, 1, 2, 3, 4, 5, 6, 7]])
    got = result(FIND, Tile((1, 8), "uint32"), data=data, vals=data)
    assert got.tolist() == [[ALL_ONES, 1, 2, 3, 4, 5, 6, 7]]


def replace(data: Any, wanted: Any, imm: float, *, name: str = "float32") -> tuple[Any, Any]:
    session = open_session(MACHINES["trn2"])
    dst, where = (
        new_tile(session, Tile(np.shape(data), name)),
        new_tile(session, Tile((len(data), 8), "uint32")),
    )
    call(
        session,
        REPLACE,
        dst=dst,
        data=new_tile(session, data, name),
        vals=new_tile(session, wanted),
        imm=imm,
        dst_idx=where,
    )
    return array_of(dst), array_of(where)


def test_values_are_replaced_from_the_last_slot_to_the_first() -> None:
    wanted = np.random.default_rng(3).integers(0, 14, (16, 8)).astype(np.float32)
    got, where = replace(DATA, wanted, -100.0)
    for row, vals, new, places in zip(*(a.tolist() for a in (DATA, wanted, got, where)), strict=True):
        assert (new, places) == replaced(row, vals, -100.0)


def test_the_eight_largest_are_replaced_with_minus_infinity() -> None:
    got, _ = replace(DATA, result(MAX8, (16, 8), src=DATA), -np.inf)
    assert (np.isinf(got).sum(1) == 8).all()
    assert np.sort(got, axis=1)[:, 8:].tolist() == [sorted(row)[:-8] for row in DATA.tolist()]


def test_a_tile_may_be_replaced_in_place_and_keeps_its_axes() -> None:
    session = open_session(MACHINES["trn2"])
    tile = new_tile(session, np.arange(12).reshape(1, 3, 4))
    call(
        session,
        REPLACE,
        dst=tile,
        data=tile,
        vals=new_tile(session, [[11, 1, 5, 50, 51, 52, 53, 54]]),
        imm=0.5,
    )
    assert array_of(tile).tolist() == [[[0, 0.5, 2, 3], [4, 0.5, 6, 7], [8, 9, 10, 0.5]]]


def test_the_number_is_rounded_to_the_type_of_dst_and_the_rest_is_copied_bit_for_bit() -> None:
    data = [[2**31 - 1, 5, 2**24 + 1, 7]]
    got, where = replace(data, [[5, 99, 99, 99, 99, 99, 99, 99]], 2.5, name="int32")
    assert got.tolist() == [[2**31 - 1, 2, 2**24 + 1, 7]]
    assert where.tolist() == [[1] + [ALL_ONES] * 7]


def test_results_that_a_call_returns_have_eight_elements() -> None:
    data = layout((16, 40), (40, 1), BFLOAT16, "sbuf", 0, 0)
    values = layout((16, 8), (8, 1), BFLOAT16, "sbuf", 0, 0)
    largest, indices = MAX8.fresh({"src": data}, {}), FIND.fresh({"data": data, "vals": values}, {})
    assert (largest.shape, largest.dtype) == ((16, 8), BFLOAT16)
    assert (indices.shape, indices.dtype) == ((16, 8), UINT32)
    assert REPLACE.fresh({"data": data, "vals": values}, {}).shape == (16, 40)
