"""Accesses of Beta 1 whose rows or offsets a tile holds: NumPy's fancy indexing is the reference."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dialects.spellings import marked_line, nisa1, nki1, nl1, program_of, ramp

import nkilab
from nkilab.errors import RuleError, UnsupportedError, UseError
from nkilab.runner import ended

nki, nl, nisa = nki1, nl1, nisa1
ROWS = np.array([[5], [0], [7], [5]], np.int32)


@nki.jit
def rows_loaded(x, idx):
    out = nl.ndarray((4, x.shape[1]), x.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(4)[:, None]
    i_f = nl.arange(x.shape[1])[None, :]
    places = nl.load(idx)
    nl.store(out, nl.load(x[places[i_p, 0], i_f]))
    return out


@nki.jit
def rows_transposed(x, idx):
    out = nl.ndarray((x.shape[2], x.shape[1], 16), x.dtype, buffer=nl.shared_hbm)
    places = nl.load(idx)
    i_p = nl.arange(16)[:, None]
    i_y, i_z = nl.arange(x.shape[1])[None, :, None], nl.arange(x.shape[2])[None, None, :]
    nl.store(out, nisa.dma_transpose(x[places[i_p, 0], i_y, i_z], axes=(2, 1, 0)))
    return out


def test_rows_that_a_tile_chooses_are_transposed():
    """As example 5 of dma_transpose's page writes it; it was refused in Beta 1 alone."""
    x = np.arange(20 * 4 * 128, dtype=np.uint16).reshape(20, 4, 128)
    rows = np.random.default_rng(0).integers(0, 20, (16, 1)).astype(np.uint32)
    np.testing.assert_array_equal(rows_transposed(x, rows), x[rows[:, 0]].transpose(2, 1, 0))


@nki.jit
def rows_loaded_by_the_whole_tile(x, idx):
    out = nl.ndarray((4, x.shape[1]), x.dtype, buffer=nl.shared_hbm)
    places = nl.load(idx)
    nl.store(out, nl.load(x[places]))
    return out


@nki.jit
def rows_loaded_beside_a_slice(x, idx):
    out = nl.ndarray((4, x.shape[1]), x.dtype, buffer=nl.shared_hbm)
    places = nl.load(idx)
    nl.store(out[:, 2:6:2], nl.load(x[places, 2:6:2]))
    nl.store(out[:, 0:2], nl.load(x[places, nl.ds(0, 2)]))
    nl.store(out[:, 3:6:2], nl.load(x[places, 3:6:2]))
    return out


@pytest.mark.parametrize("kernel", [rows_loaded, rows_loaded_by_the_whole_tile, rows_loaded_beside_a_slice])
def test_a_column_of_indices_chooses_rows_of_a_load(kernel):
    x = ramp(8, 6)
    np.testing.assert_array_equal(kernel(x, ROWS), x[ROWS[:, 0]])


@nki.jit
def rows_of_each_column_of_indices(x, idx):
    out = nl.ndarray((2, 4, x.shape[1]), x.dtype, buffer=nl.shared_hbm)
    places = nl.load(idx)
    for i in nl.static_range(2):
        nl.store(out[i], nl.load(x[places[:, i].as_tile()]))
    return out


def test_a_column_taken_by_its_number_is_a_tile_of_indices():
    x, places = ramp(8, 6), np.hstack([ROWS, 7 - ROWS])
    np.testing.assert_array_equal(rows_of_each_column_of_indices(x, places), x[places.T])


@nki.jit
def one_element_loaded(x, idx):
    out = nl.ndarray((1, 2), x.dtype, buffer=nl.shared_hbm)
    places = nl.load(idx)
    nl.store(out[:, 0:1], nl.load(x[places[0, 0], 3]))
    nl.store(out[:, 1:2], nl.load(x[places[2:3, 0:1], 4]))
    return out


def test_an_element_whose_row_is_in_a_tile_loads_as_one_row_and_column():
    """It raised an IndexError of Python's."""
    x = ramp(8, 6)
    np.testing.assert_array_equal(one_element_loaded(x, ROWS), [[x[5, 3], x[7, 4]]])


@nki.jit
def element_stored(x, idx):
    out = nl.ndarray((8, 2), x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.full((8, 2), -1.0, x.dtype))
    places = nl.load(idx)
    nl.store(out[places[2, 0], 1], nl.load(x[0:1, 0:1]))
    return out


def test_an_element_is_stored_where_a_tile_says():
    wanted = np.full((8, 2), -1.0, np.float32)
    wanted[7, 1] = 9.0
    np.testing.assert_array_equal(element_stored(ramp(8, 6) + 9, ROWS), wanted)


@nki.jit
def rows_stored(x, idx):
    out = nl.ndarray((8, x.shape[1]), x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.full((8, x.shape[1]), -1.0, x.dtype))
    i_f = nl.arange(x.shape[1])[None, :]
    nl.store(out[nl.load(idx), i_f], nl.load(x))
    return out


def test_a_column_of_indices_chooses_rows_of_a_store():
    x, places = ramp(4, 6), np.array([[6], [1], [3], [0]], np.int32)
    expected = np.full((8, 6), -1, np.float32)
    expected[places[:, 0]] = x
    np.testing.assert_array_equal(rows_stored(x, places), expected)


@nki.jit
def blocks_loaded(x, idx):
    """Row p of block idx[p]: the index runs over blocks, the grid of partitions within them."""
    out = nl.ndarray((4, x.shape[2]), x.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(4)[:, None]
    i_f = nl.arange(x.shape[2])[None, :]
    nl.store(out, nl.load(x[nl.load(idx), i_p, i_f]))
    return out


def test_an_index_on_the_block_axis_goes_with_a_grid_of_partitions():
    x, blocks = ramp(3, 4, 5), np.array([[2], [0], [1], [2]], np.int32)
    np.testing.assert_array_equal(blocks_loaded(x, blocks), x[blocks[:, 0], np.arange(4)])


@nki.jit
def one_block_loaded(x, idx):
    out = nl.ndarray(x.shape[1:], x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0 : x.shape[1], 0 : x.shape[2]]
    places = nl.load(idx)
    nl.store(out, nl.load(x[places[1, 0], i_p, i_f]))
    return out


def test_one_element_chooses_a_block():
    x = ramp(3, 4, 5)
    np.testing.assert_array_equal(one_block_loaded(x, np.array([[0], [2]], np.int32)), x[2])


@nki.jit
def two_indices(x, first, second):
    out = nl.ndarray((4, x.shape[2]), x.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(4)[:, None]
    i_f = nl.arange(x.shape[2])[None, :]
    a, b = nl.load(first), nl.load(second)
    nl.store(out, nl.load(x[a[i_p, 0], b[i_p, 0], i_f]))
    return out


def test_two_tiles_choose_blocks_and_rows():
    x = ramp(3, 7, 5)
    first, second = np.array([[2], [0], [1], [2]], np.int32), np.array([[6], [3], [0], [6]], np.int32)
    np.testing.assert_array_equal(two_indices(x, first, second), x[first[:, 0], second[:, 0]])


@nki.jit
def rows_masked(x, idx):
    out = nl.ndarray((4, x.shape[1]), x.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(4)[:, None]
    i_f = nl.arange(x.shape[1])[None, :]
    places = nl.load(idx)
    tile = nl.full((4, x.shape[1]), -1.0, x.dtype)
    tile[i_p, i_f] = nl.load(x[places[i_p, 0], i_f], mask=(i_p >= 1) & (i_p < 3) & (i_f < 5))
    nl.store(out, tile)
    return out


def test_a_mask_leaves_rows_out_whose_index_is_out_of_bounds():
    x, places = ramp(8, 6), np.array([[99], [2], [7], [-1]], np.int32)
    expected = np.full((4, 6), -1, np.float32)
    expected[1:3, :5] = x[[2, 7], :5]
    np.testing.assert_array_equal(rows_masked(x, places), expected)


@nki.jit
def rows_skipped(x, idx):
    out = nl.ndarray((4, x.shape[1]), x.dtype, buffer=nl.shared_hbm)
    i_f = nl.arange(x.shape[1])[None, :]
    tile = nl.full((4, x.shape[1]), -1.0, x.dtype)
    tile[...] = nl.load(x[nl.load(idx), i_f], mode=nisa.oob_mode.skip)
    nl.store(out, tile)
    return out


@nki.jit
def stores_skipped(x, idx):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_f = nl.arange(x.shape[1])[None, :]
    nl.store(out, nl.full(x.shape, -1.0, x.dtype))
    nl.store(out[nl.load(idx), i_f], nl.load(x[0:4]), mode=nisa.oob_mode.skip)
    return out


def test_rows_out_of_bounds_are_skipped_where_the_mode_says_so():
    x, places = ramp(8, 6), np.array([[8], [2], [100], [0]], np.int32)
    loaded, stored = np.full((4, 6), -1, np.float32), np.full((8, 6), -1, np.float32)
    loaded[[1, 3]] = x[[2, 0]]
    stored[[2, 0]] = x[[1, 3]]
    np.testing.assert_array_equal(rows_skipped(x, places), loaded)
    np.testing.assert_array_equal(stores_skipped(x, places), stored)


@nki.jit
def rows_beyond(x, idx):
    out = nl.ndarray((4, x.shape[1]), x.dtype, buffer=nl.shared_hbm)
    i_f = nl.arange(x.shape[1])[None, :]
    nl.store(out, nl.load(x[nl.load(idx), i_f]))  # refused
    return out


def test_an_index_out_of_bounds_is_numpys_error_with_our_message_as_its_cause():
    with pytest.raises(IndexError) as caught:
        rows_beyond(ramp(8, 6), np.array([[1], [2], [9], [0]], np.int32))
    assert type(caught.value) is IndexError
    # row 9 of 6 columns begins at element 54 of 48
    assert str(caught.value) == "index 54 is out of bounds for axis 0 with size 48"
    cause = caught.value.__cause__
    assert isinstance(cause, UseError)
    assert cause.key == "err_tensor_access_out_of_bound"
    assert str(cause).splitlines()[0] == (
        f"{marked_line(rows_beyond.function)}: dma_copy: row 2 of x: float32[4, 6] in hbm at run-time rows "
        "has the index 9; the axis has 8 elements"
    )
    assert caught.value.__notes__ == [str(cause)]


def test_an_index_out_of_bounds_is_a_fault_of_the_script_told_in_one_message(capsys):
    status, _ = ended(lambda: rows_beyond(ramp(8, 6), np.array([[1], [2], [9], [0]], np.int32)))
    captured = capsys.readouterr().err
    assert status == 1
    assert captured.startswith(f"{marked_line(rows_beyond.function)}: dma_copy: row 2 of x:")
    assert "Traceback" not in captured


@nki.jit
def columns_copied(x, offsets):
    """Two columns from each offset, moved one to the right."""
    out = nl.ndarray((x.shape[0], 3, 2), x.dtype, buffer=nl.shared_hbm)
    tile, places = nl.load(x), nl.load(offsets)
    copied_tile = nl.ndarray((x.shape[0], 3, 2), x.dtype)
    i_p, i_f = nl.mgrid[0 : x.shape[0], 0:2]
    for i in nl.affine_range(3):
        copied_tile[i_p, i, i_f] = nisa.tensor_copy_dynamic_src(tile[i_p, places[0, i] + i_f + 1])
    nl.store(out, copied_tile)
    return out


def test_a_copy_begins_at_an_offset_that_a_tile_holds():
    x, offsets = ramp(4, 9), np.array([[3, 0, 6]], np.int32)
    expected = np.stack([x[:, o + 1 : o + 3] for o in (3, 0, 6)], axis=1)
    np.testing.assert_array_equal(columns_copied(x, offsets), expected)


@nki.jit
def rows_of_a_tile_written(x, offsets):
    out = nl.ndarray((x.shape[0], 5, x.shape[1]), x.dtype, buffer=nl.shared_hbm)
    tile, places = nl.load(x), nl.load(offsets)
    copied_tile = nl.zeros((x.shape[0], 5, x.shape[1]), x.dtype)
    i_p, i_f = nl.mgrid[0 : x.shape[0], 0 : x.shape[1]]
    for i in nl.affine_range(2):
        nisa.tensor_copy_dynamic_dst(dst=copied_tile[i_p, places[0, i], i_f], src=tile * (i + 1.0))
    nl.store(out, copied_tile)
    return out


def test_a_copy_goes_to_an_offset_that_a_tile_holds():
    x = ramp(4, 3)
    expected = np.zeros((4, 5, 3), np.float32)
    expected[:, 3], expected[:, 1] = x, 2 * x
    np.testing.assert_array_equal(rows_of_a_tile_written(x, np.array([[3, 1]], np.int32)), expected)


@nki.jit
def rows_added(x, idx, value):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    i_f = nl.arange(x.shape[1])[None, :]
    places = nl.load(idx)
    nl.atomic_rmw(out[places, i_f], value=nl.load(value), op=np.add)
    nl.atomic_rmw(out[places, i_f], value=0.5, op=np.add)
    return out


def test_atomic_rmw_adds_to_rows_that_a_tile_chooses():
    x, value, places = ramp(6, 3), -ramp(2, 3), np.array([[4], [1]], np.int32)
    expected = x.copy()
    expected[[4, 1]] += value + 0.5
    np.testing.assert_array_equal(rows_added(x, places, value), expected)


def test_shapes_alone_give_the_program_of_an_indirect_load():
    with_data = program_of(rows_loaded, ramp(8, 6), ROWS)
    shapes = nkilab.estimate(
        rows_loaded, nkilab.spec((8, 6), "float32"), nkilab.spec((4, 1), "int32")
    ).program
    names = [[p.form_of(row).name for row in range(len(p))] for p in (with_data, shapes)]
    assert names[0] == names[1] == ["dma_copy"] * 3


def index_on_a_free_axis(x):
    rows, index = nl.arange(4)[:, None], nl.ndarray((4, 1), nl.int32)
    nl.load(x[rows, index])  # refused


def tile_indexed_by_a_tile(x):
    tile, index = nl.load(x), nl.ndarray((4, 1), nl.int32)
    tile[0:4, index]  # refused


def partitions_indexed_by_a_tile(x):
    tile, index = nl.load(x), nl.ndarray((1, 1), nl.int32)
    tile[index[0, 0], nl.arange(6)[None, :]]  # refused


def assigned_from_an_offset(x):
    tile, index = nl.load(x), nisa.memset((1, 1), 1, np.int32)
    i_p, i_f = nl.mgrid[0:8, 0:2]
    out = nl.ndarray((8, 2), np.float32)
    out[i_p, i_f] = tile[i_p, index[0, 0] + i_f]  # refused


def added_at_an_offset(x):
    tile, index = nl.load(x), nisa.memset((1, 1), 1, np.int32)
    i_p, i_f = nl.mgrid[0:8, 0:2]
    nl.add(tile[i_p, index[0, 0] + i_f], 1.0)  # refused


def turned_rows(x):
    nl.load_transpose2d(x[nl.ndarray((4, 1), nl.int32)])  # refused


def fixed_source(x):
    nisa.tensor_copy_dynamic_src(nl.load(x))  # refused


def fixed_destination(x):
    nl.atomic_rmw(x, value=nl.load(x), op=np.add)  # refused


def grid_beyond(x):
    index = nl.ndarray((4, 1), nl.int32)
    nl.load(x[index, nl.arange(8)[None, :]])  # refused


def tile_less_a_grid(x):
    tile, index = nl.load(x), nl.ndarray((1, 1), nl.int32)
    i_p, i_f = nl.mgrid[0:8, 0:2]
    nisa.tensor_copy_dynamic_src(tile[i_p, index[0, 0] - i_f])  # refused


FREE = "err_indirect_indices_free_dim"
ON_CHIP = "err_copy_dynamic_indirect_indices_not_natively_supported"
FIXED = "err_indirect_indices_are_not_supported_with_nki_api"
MOVES = "on chip one index moves a whole access along a free axis"
REFUSED = [
    (index_on_a_free_axis, UseError, FREE,
     "subscript: a tile of 4 indices is the subscript of axis 1, a free axis; indices choose along the axis "
     "of partitions or of blocks"),
    (tile_indexed_by_a_tile, UseError, ON_CHIP,
     f"subscript: a tile of indices chooses along axis 1 of tile: float32[8, 6] in sbuf; {MOVES}"),
    (partitions_indexed_by_a_tile, UseError, ON_CHIP,
     f"subscript: a tile of indices chooses along axis 0 of tile: float32[8, 6] in sbuf; {MOVES}"),
    (assigned_from_an_offset, UseError, ON_CHIP,
     "assignment: (unnamed): float32[8, 2] in sbuf at a run-time offset is copied by an assignment"),
    (added_at_an_offset, UseError, FIXED,
     "tensor_scalar: data is indexed with a tile; tensor_scalar takes fixed addresses"),
    (turned_rows, UseError, FIXED,
     "load_transpose2d: src is indexed with a tile; load_transpose2d takes fixed addresses"),
    (fixed_source, RuleError, "", "tensor_copy_dynamic_src: src is not indexed with a tile"),
    (fixed_destination, RuleError, "", "atomic_rmw: dst is not indexed with a tile"),
    (grid_beyond, UseError, "err_tensor_access_out_of_bound",
     "subscript: indices 0 to 7 reach outside axis 1 of x: float32[8, 6] in hbm, which has 6 elements"),
    (tile_less_a_grid, UnsupportedError, "", "subscript: a tile of indices is decreased by a number"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "key", "line"), REFUSED, ids=[r[0].__name__ for r in REFUSED])
def test_a_tile_is_no_index_where_no_address_is_computed_at_run_time(body, kind, key, line):
    with pytest.raises(kind) as caught:
        nki.jit(body)(ramp(8, 6))
    assert str(caught.value).splitlines()[0] == f"{marked_line(body)}: {line}"
    assert caught.value.key == key
