"""Beta 1 kernels that ask for what may not be; the messages stand in test_beta1_errors.py.

The line that is refused ends with a mark; the name of the parameter says which argument a kernel is given.
"""

from __future__ import annotations

import numpy as np
from tests.dialects.spellings import nisa1 as nisa
from tests.dialects.spellings import nl1 as nl


def partitions(x):
    nl.ndarray((256, 4), nl.float32, buffer=nl.sbuf)  # refused


def partitions_of_a_fill(x):
    nl.zeros((nl.par_dim(129), 4), nl.float32, buffer=nl.psum)  # refused


def long_load(long):
    nl.load(long)  # refused


def wide_transposed_load(wide):
    nl.load_transpose2d(wide)  # refused


def loads_from_sbuf(x):
    nl.load(nl.load(x))  # refused


def stores_to_sbuf(x):
    tile = nl.load(x)
    nl.store(tile, tile)  # refused


def stores_from_hbm(x):
    nl.store(nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), x)  # refused


def computes_in_hbm(x):
    nl.exp(x)  # refused


def loads_a_number(x):
    nl.load(3)  # refused


def adds_words(x):
    nl.add(nl.load(x), "1")  # refused


def adds_numbers(x):
    nl.add(1, 2)  # refused


def exp_of_a_number(x):
    nl.exp(2.0)  # refused


def adds_shapes(x):
    tile = nl.load(x)
    tile[:, 0:3] + tile[:, 0:2]  # refused


def stores_too_much(x):
    out = nl.ndarray((8, 3), x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))  # refused


def assigns_too_much(x):
    tile = nl.zeros((8, 3), nl.float32)
    tile[...] = nl.load(x)  # refused


def assigns_other_partitions(x):
    tile = nl.zeros((4, 12), nl.float32)
    tile[...] = nl.load(x)  # refused


def assigns_words(x):
    nl.load(x)[...] = "a"  # refused


def assigns_to_hbm(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    out[...] = 1.0  # refused


def writes_an_input(x):
    nl.store(x, nl.load(x))  # refused


def fills_hbm(x):
    nl.zeros((4, 4), nl.float32, buffer=nl.shared_hbm)  # refused


def unknown_buffer(x):
    nl.ndarray((4, 4), nl.float32, buffer="sram")  # refused


def float64_tile(x):
    nl.ndarray((4, 4), np.float64)  # refused


def empty_tile(x):
    nl.ndarray((4, 0), nl.float32)  # refused


def named_extent(x):
    nl.zeros(("n", 4), nl.float32)  # refused


def index_outside(x):
    x[8]  # refused


def negative_index_outside(x):
    x[:, -7]  # refused


def slice_outside(x):
    nl.exp(nl.load(x)[:, 2:7])  # refused


def ds_outside(x):
    nl.load(x[nl.ds(4, 5)])  # refused


def empty_slice(x):
    x[4:4]  # refused


def backward_slice(x):
    x[4:2:-1]  # refused


def too_many_subscripts(x):
    x[0, 0, 0]  # refused


def word_as_subscript(x):
    x["a"]  # refused


def word_in_a_slice(x):
    x["a":]  # refused


def grid_outside(x):
    i_p, i_f = nl.mgrid[0:8, 0:6]
    nl.load(x[i_p, i_f + 1])  # refused


def mask_lets_outside_through(x):
    i_p, i_f = nl.mgrid[0:8, 0:8]
    nl.load(x[i_p, i_f], mask=i_f < 7)  # refused


def assignment_outside(x):
    tile = nl.load(x)
    i_p, i_f = nl.mgrid[0:8, 0:6]
    tile[i_p, i_f - 1] = nl.load(x)  # refused


def sum_in_place_outside(x):
    tile = nl.load(x)
    i_p, i_f = nl.mgrid[0:8, 0:6]
    tile[i_p, i_f + 1] += 1.0  # refused


def view_outside(x):
    i_p, i_f = nl.mgrid[0:8, 0:6]
    x[i_p, i_f + 1].reshape((48,))  # refused


def flat_arange(x):
    nl.load(x)[nl.arange(8), nl.arange(6)]  # refused


def mixed_subscripts(x):
    x[nl.arange(8)[:, None], 0:6]  # refused


def ellipsis_before_a_grid(cube):
    cube[..., nl.arange(5)[None, :]]  # refused


def grids_that_differ(x):
    nl.arange(8)[:, None] + nl.arange(6)[:, None]  # refused


def grids_in_a_subscript_that_differ(x):
    x[nl.arange(8)[:, None], nl.arange(6)[:, None]]  # refused


def product_of_grids(x):
    nl.arange(8)[:, None] * nl.arange(6)[None, :]  # refused


def remainder_of_a_grid(x):
    nl.arange(8)[:, None] % 2  # refused


def grid_subscript(x):
    nl.arange(8)[0]  # refused


def grid_assignment(x):
    nl.arange(8)[:, None][0] = 3  # refused


def grid_truth(x):
    bool(nl.arange(8)[:, None])  # refused


def mask_truth(x):
    nl.arange(8)[:, None] < 4 and nl.arange(8)[:, None] > 2  # refused


def tensor_truth(x):
    bool(nl.load(x))  # refused


def element_truth(x):
    if nl.load(x[0:1, 0:1]):  # refused
        pass


def arange_of_words(x):
    nl.arange("n")  # refused


def arange_of_nothing(x):
    nl.arange(4, 4)  # refused


def arange_without_bounds(x):
    nl.arange()  # refused


def mgrid_of_integers(x):
    nl.mgrid[4, 5]  # refused


def word_as_mask(x):
    nl.load(x, mask="all")  # refused


def mask_of_another_shape(x):
    nl.load(x, mask=nl.arange(5)[None, :] < 3)  # refused


def floats_as_index(x):
    index = nl.ndarray((8, 1), nl.float32)
    x[index, nl.arange(6)[None, :]]  # refused


def row_as_index(x):
    index = nl.ndarray((1, 8), nl.int32)
    x[index, nl.arange(6)[None, :]]  # refused


def partition_sum(x):
    nl.sum(nl.load(x), axis=0)  # refused


def axis_beyond(x):
    nl.max(nl.load(x), axis=[1, 2])  # refused


def word_as_axis(x):
    nl.mean(nl.load(x), axis="all")  # refused


def triangle_sum(x):
    i_p, i_f = nl.mgrid[0:8, 0:6]
    nl.sum(nl.load(x), axis=1, mask=i_p < i_f)  # refused


def transpose_of_a_cube(cube):
    nl.transpose(nl.load(cube))  # refused


def reshape_of_the_partition(x):
    nl.load(x).reshape((4, 12))  # refused


def reshape_of_a_count(x):
    x.reshape((7, 7))  # refused


def other_shape_asserted(x):
    x.assert_shape((6, 8))  # refused


def broadcast_down(x):
    nl.broadcast_to(nl.load(x), shape=(8, 3))  # refused


def axis_expanded_twice(x):
    x.expand_dims((1, 1))  # refused


def loop_variable_missing(x):
    nl.loop_reduce(nl.load(x), op=np.add, loop_indices=[0])  # refused


def loop_that_cannot_reduce(x):
    for i in nl.affine_range(2):
        nl.loop_reduce(nl.load(x), op=np.greater, loop_indices=[i])  # refused


def range_of_words(x):
    nl.affine_range("n")  # refused


def range_of_four(x):
    nl.sequential_range(1, 2, 3, 4)  # refused


def range_without_step(x):
    nl.static_range(1, 4, 0)  # refused


def program_axis(x):
    nl.program_id("row")  # refused


def psum_product(x):
    tile = nl.ndarray((8, 6), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(tile, nl.load(x))  # refused


def missing_operand(x):
    nisa.tensor_tensor(nl.load(x), op=np.add)  # refused


def unknown_operator(x):
    nisa.tensor_scalar(nl.load(x), op0="plus", operand0=1)  # refused


def flat_iota(x):
    nisa.iota(nl.arange(8), dtype=nl.int32)  # refused
