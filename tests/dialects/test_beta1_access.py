"""Loads, stores, subscripts, index grids, masks and block dimensions of Beta 1."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dialects.spellings import nisa1 as nisa
from tests.dialects.spellings import nki1 as nki
from tests.dialects.spellings import nl1 as nl
from tests.dialects.spellings import ramp, traced

from nkilab.errors import NkilabError


@nki.jit
def doubled_vector(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    tile.assert_shape((x.shape[0], 1))
    nl.store(out, tile * 2.0)
    return out


def test_a_vector_loads_as_a_column_and_stores_back():
    x = np.arange(-50, 50, dtype=np.float32)
    np.testing.assert_array_equal(doubled_vector(x), x * 2)


@nki.jit
def slice_of_a_vector(x):
    out = nl.ndarray((4,), x.dtype, buffer=nl.shared_hbm)
    nl.store(out[0:4], nl.load(x[3:11:2]))
    return out


def test_a_strided_slice_of_a_vector_loads_as_a_column():
    np.testing.assert_array_equal(slice_of_a_vector(ramp(12)), [3, 5, 7, 9])


@nki.jit
def rows_in_ragged_tiles(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rows, columns = x.shape
    i_p = nl.arange(128)[:, None]
    i_f = nl.arange(columns)[None, :]
    for i in nl.affine_range((rows + 127) // 128):
        inside = i * 128 + i_p < rows
        tile = nl.load(x[i * 128 + i_p, i_f], mask=inside)
        negated = nl.multiply(tile, -1.0, mask=inside)
        nl.store(out[i * 128 + i_p, i_f], negated, mask=inside)
    return out


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 300])
def test_a_ragged_last_tile_reads_and_writes_only_what_its_mask_lets_through(rows):
    x = ramp(rows, 5)
    np.testing.assert_array_equal(rows_in_ragged_tiles(x), -x)


@nki.jit
def folded_row(x, width, first):
    """Columns `first` to 8 of the row of x [rows, width] that all of them fall into."""
    out = nl.ndarray((1, 8 - first), x.dtype, buffer=nl.shared_hbm)
    flat = first + nl.arange(8 - first)[None, :]
    nl.store(out, nl.load(x[nl.arange(1)[:, None] + flat // width, flat % width]))
    return out


@pytest.mark.parametrize(("width", "first", "row"), [(8, 0, 0), (4, 4, 1), (5, 5, 1)])
def test_an_index_grid_is_divided_where_the_quotient_is_one(width, first, row):
    # a published convolution on trn1 divides the columns of an image by its width
    x = ramp(2, width)
    np.testing.assert_array_equal(
        folded_row(x, width, first)[0], x[row, first - row * width : 8 - row * width]
    )


@pytest.mark.parametrize(("width", "first"), [(4, 3), (0, 0), (-8, 0)])
def test_an_index_grid_is_divided_nowhere_else(width, first):
    with pytest.raises(NkilabError, match="// and % of an index grid are not affine"):
        folded_row(ramp(2, 8), width, first)


@nki.jit
def columns_in_ragged_tiles(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:8, 0:16]
    for i in nl.affine_range(3):
        mask = 16 * i + i_f < x.shape[1]
        nl.store(out[i_p, 16 * i + i_f], nl.load(x[i_p, 16 * i + i_f], mask=mask), mask=mask)
    return out


def test_a_mask_over_free_columns_crops_the_transfer():
    x = ramp(8, 35)
    np.testing.assert_array_equal(columns_in_ragged_tiles(x), x)


@nki.jit
def masked_with_loop_variables(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(4)[:, None]
    i_f = nl.arange(6)[None, :]
    nl.store(out, nl.zeros((4, 6), x.dtype))
    for i in nl.affine_range(3):
        # the second comparison is between integers alone
        tile = nl.load(x[i_p, i_f])
        nl.store(out[i_p, i_f], tile + i, mask=(i_f >= 2 * i) & (i_f < 2 * i + 2) & (i < 2))
    return out


def test_a_mask_joins_comparisons_of_grids_and_of_loop_variables():
    x = ramp(4, 6)
    expected = np.zeros((4, 6), np.float32)
    expected[:, 0:2], expected[:, 2:4] = x[:, 0:2], x[:, 2:4] + 1
    np.testing.assert_array_equal(masked_with_loop_variables(x), expected)


@nki.jit
def lower_triangle_stored(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:6, 0:6]
    nl.store(out, nl.full((6, 6), 9.0, x.dtype))
    nl.store(out[i_p, i_f], nl.load(x), mask=i_p >= i_f)
    return out


def test_a_triangle_masks_a_store_element_by_element():
    x = -ramp(6, 6)
    expected = np.where(np.tril(np.ones((6, 6), bool)), x, 9)
    np.testing.assert_array_equal(lower_triangle_stored(x), expected)


@nki.jit
def lower_triangle_loaded(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:6, 0:6]
    tile = nl.full((6, 6), 9.0, x.dtype)
    tile[i_p, i_f] = nl.load(x[i_p, i_f], mask=i_f <= i_p)
    nl.store(out, tile)
    return out


def test_a_triangle_masks_a_load_into_a_tile():
    x = -ramp(6, 6)
    expected = np.where(np.tril(np.ones((6, 6), bool)), x, 9)
    np.testing.assert_array_equal(lower_triangle_loaded(x), expected)


@nki.jit
def upper_triangle_added(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:6, 0:6]
    tile = nl.load(x)
    tile[i_p, i_f] = nisa.tensor_tensor(tile, tile, op=np.add, mask=i_f > i_p)
    nl.store(out, tile)
    return out


def test_a_triangle_masks_a_computation():
    x = ramp(6, 6)
    np.testing.assert_array_equal(upper_triangle_added(x), x + np.triu(x, 1))


@nki.jit
def nothing_let_through(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:4, 0:4]
    tile = nl.load(x)
    tile[i_p, i_f] = nl.add(tile, 1.0, mask=i_f < 0)
    nl.store(out, tile)
    nl.store(out, tile, mask=i_f < 0)
    return out


def test_a_mask_that_lets_nothing_through_leaves_the_destination_alone():
    x = ramp(4, 4)
    np.testing.assert_array_equal(nothing_let_through(x), x)
    assert traced(nothing_let_through, x) == ["dma_copy", "dma_copy"]


@nki.jit
def grid_arithmetic(x):
    out = nl.ndarray((4, 3), x.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(4)[:, None]
    i_f = nl.arange(3)[None, :]
    # rows 7, 5, 3, 1 and columns 9, 6, 3
    nl.store(out, nl.load(x[7 - 2 * i_p, (i_f * -3) + 9]))
    return out


def test_offsets_strides_and_negative_coefficients_walk_the_tensor():
    x = ramp(8, 10)
    np.testing.assert_array_equal(grid_arithmetic(x), x[7::-2, 9:0:-3])


@nki.jit
def windows(x):
    out = nl.ndarray((2, 4, 3), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    i_p, i_window, i_place = nl.mgrid[0:2, 0:4, 0:3]
    nl.store(out, nl.copy(tile[i_p, i_window * 2 + i_place]))
    return out


def test_two_grids_on_one_axis_read_overlapping_windows():
    x = ramp(2, 9)
    expected = np.lib.stride_tricks.sliding_window_view(x, 3, axis=1)[:, ::2]
    np.testing.assert_array_equal(windows(x), expected)


@nki.jit
def grid_fields(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    grid = nl.mgrid[0:4, 0:6]
    nl.store(out[grid.p, grid.x], nl.load(x[grid.p, 5 - grid.x]))
    return out


def test_mgrid_names_its_axes_p_and_x():
    x = ramp(4, 6)
    np.testing.assert_array_equal(grid_fields(x), x[:, ::-1])


@nki.jit
def slices_of_every_kind(x):
    out = nl.ndarray((4, 5), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for i in nl.affine_range(2):
        out_tile = nl.add(tile[:, nl.ds(i, 1)], 0.0)
        nl.store(out[:, i : i + 1], out_tile)
    nl.store(out[:, nl.ds(2, 2)], tile[:, -3:-1])
    nl.store(out[..., 4:], tile[:, 7:8])
    return out


def test_slices_ds_negative_bounds_and_ellipsis_select_the_same_as_numpy():
    x = ramp(4, 8)
    expected = np.concatenate([x[:, 0:2], x[:, -3:-1], x[:, 7:8]], axis=1)
    np.testing.assert_array_equal(slices_of_every_kind(x), expected)


@nki.jit
def integers_in_the_middle(x):
    out = nl.ndarray((2, 3, 5), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for i in range(3):
        part = tile[:, 1, :, i]
        part.assert_shape((2, 5))
        nl.store(out[:, i, :], part)
    return out


def test_integers_between_slices_drop_their_axes():
    x = ramp(2, 4, 5, 3)
    np.testing.assert_array_equal(integers_in_the_middle(x), x[:, 1].transpose(0, 2, 1))


@nki.jit
def integer_beside_grids(x):
    out = nl.ndarray((2, 5), x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:2, 0:5]
    nl.store(out, nl.load(x[i_p, 3, i_f]))
    return out


def test_an_integer_stands_beside_index_grids():
    x = ramp(2, 4, 5)
    np.testing.assert_array_equal(integer_beside_grids(x), x[:, 3])


@nki.jit
def blocks(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((3, 2, nl.par_dim(4), 5), x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(3):
        for j in nl.affine_range(2):
            tiles[i, j] = nl.load(x[i, j])
    for i in nl.affine_range(3):
        tiles[i, 0] = tiles[i, 0] + tiles[i, 1]
        for j in nl.affine_range(2):
            nl.store(out[i, j], tiles[i, j])
    return out


def test_block_dimensions_before_the_partition_are_tiles_of_their_own():
    x = ramp(3, 2, 4, 5)
    expected = x.copy()
    expected[:, 0] += x[:, 1]
    np.testing.assert_array_equal(blocks(x), expected)
    # one load per block, one sum, one store: nothing is copied besides
    assert traced(blocks, x) == ["dma_copy"] * 6 + (["tensor_tensor"] + ["dma_copy"] * 2) * 3


@nki.jit
def filled_blocks():
    out = nl.ndarray((2, 4, 5), nl.float32, buffer=nl.shared_hbm)
    tiles = nl.zeros((2, nl.par_dim(4), 5), nl.float32)
    tiles[1] = 3
    i_p, i_f = nl.mgrid[0:4, 0:5]
    for i in nl.static_range(2):
        nl.store(out[i, i_p, i_f], tiles[i, i_p, i_f])
    return out


def test_a_fill_covers_every_block_and_a_number_is_assigned_to_one():
    np.testing.assert_array_equal(filled_blocks(), np.repeat([0, 3], 20).reshape(2, 4, 5))


@nki.jit
def overhang_assigned(x):
    out = nl.ndarray((4, 6), x.dtype, buffer=nl.shared_hbm)
    tile = nl.zeros((4, 6), x.dtype)
    i_p, i_f = nl.mgrid[0:4, 0:4]
    for i in nl.affine_range(2):
        inside = 4 * i + i_f < 6
        tile[i_p, 4 * i + i_f] = nl.load(x[i_p, 4 * i + i_f], mask=inside)
    nl.store(out, tile)
    return out


def test_a_masked_result_is_assigned_where_its_grids_reach_outside_the_tile():
    x = ramp(4, 6)
    np.testing.assert_array_equal(overhang_assigned(x), x)


@nki.jit
def transposed_load(x):
    out = nl.ndarray((x.shape[1], x.shape[0]), nl.bfloat16, buffer=nl.shared_hbm)
    nl.store(out, nl.load_transpose2d(x, dtype=nl.bfloat16))
    return out


def test_load_transpose2d_turns_rows_into_partitions():
    x = ramp(6, 4)
    np.testing.assert_array_equal(transposed_load(x).astype(np.float32), x.T)


@nki.jit
def masked_transposed_load(x):
    out = nl.ndarray((3, 6), x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:6, 0:8]
    nl.store(out, nl.load_transpose2d(x[i_p, i_f], mask=i_f < 3))
    return out


def test_a_mask_crops_a_transposed_load():
    x = ramp(6, 3)
    np.testing.assert_array_equal(masked_transposed_load(x), x.T)


@nki.jit
def number_stored(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, 7)
    nl.store(out[:, 0:1], nl.load(x)[:, 1:2])
    return out


def test_a_number_and_a_column_are_stored():
    x = ramp(4, 4)
    expected = np.full((4, 4), 7, np.float32)
    expected[:, 0] = x[:, 1]
    np.testing.assert_array_equal(number_stored(x), expected)


@nki.jit
def row_stored_to_all(x):
    out = nl.ndarray((4, 6), x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x).broadcast_to((4, 6)))
    return out


def test_a_column_is_broadcast_along_the_free_axis_of_a_store():
    x = ramp(4, 1)
    np.testing.assert_array_equal(row_stored_to_all(x), np.broadcast_to(x, (4, 6)))


@nki.jit
def copied_within_hbm(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[0:2], src=x[2:4])
    nisa.dma_copy(dst=out[2:4], src=x[0:2])
    return out


def test_dma_copy_moves_between_hbm_tensors():
    x = ramp(4, 3)
    np.testing.assert_array_equal(copied_within_hbm(x), np.roll(x, 2, axis=0))


@nki.jit
def masked_dma_copy(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:4, 0:3]
    nisa.dma_copy(dst=out[i_p, i_f], src=x[i_p, i_f])
    nisa.dma_copy(dst=out[i_p, i_f], src=x[i_p + 1, i_f], mask=i_p < 3)
    return out


def test_a_masked_dma_copy_crops_both_sides():
    x = ramp(4, 3)
    np.testing.assert_array_equal(masked_dma_copy(x), np.concatenate([x[1:], x[3:]]))
