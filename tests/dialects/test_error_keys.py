"""Every error that AWS documents for Beta 1 and that a run meets: a kernel that makes it, what it says."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dialects.spellings import marked_line, ncc1, nisa1, nki1, nl1, ramp

import nkilab
from nkilab.error_keys import ERROR_KEYS
from nkilab.errors import NkilabError

with nkilab.activate():
    import neuronxcc.nki.typing as nt

nki, nl, nisa, ncc = nki1, nl1, nisa1, ncc1


def flat_arange(x):
    tile = nl.load(x)
    i = nl.arange(4)
    nl.exp(tile[i, 0])  # refused


def bias_of_integers(x):
    tile, bias = nl.load(x), nisa.memset((8, 1), 1, dtype=np.int8)
    nisa.activation(op=nl.exp, data=tile, bias=bias)  # refused


def scale_of_bfloat16(x):
    tile, scale = nl.load(x), nisa.memset((8, 1), 2, dtype=nl.bfloat16)
    nisa.activation(op=nl.exp, data=tile, scale=scale)  # refused


def scale_of_a_row(x):
    tile, scale = nl.load(x), nisa.memset((1, 8), 2, dtype=np.float32)
    nisa.activation(op=nl.exp, data=tile, scale=scale)  # refused


def scale_of_a_square(x):
    tile, scale = nl.load(x), nisa.memset((8, 6), 2, dtype=np.float32)
    nisa.activation_reduce(  # refused
        op=nl.exp, data=tile, scale=scale, reduce_op=np.add, reduce_res=nl.ndarray((8, 1), np.float32)
    )


def inverse_by_not(x):
    tile = nl.load(x)
    return not (tile > 0)  # refused


def two_tiles_by_and(x):
    tile = nl.load(x)
    return (tile > 0) and (tile < 1)  # refused


def exponential_without_bias(x):
    tile = nl.ndarray((8, 6), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    tile[...] = nl.load(x)
    tile[...] = nl.exp(tile)  # refused


def activation_without_bias(x):
    tile = nl.ndarray((8, 6), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    tile[...] = nl.load(x)
    tile[...] = nisa.activation(op=nl.exp, data=tile)  # refused


def index_is_assigned(x):
    _, i = nl.mgrid[0:1, 0:8]
    i[0, 5] = 1024  # refused


def input_is_stored_to(x):
    nl.store(x, nl.load(x) + 1)  # refused


def branch_on_a_grid(x):
    i = nl.arange(8)[None, :]
    if i > 2:  # refused
        pass


def branch_on_an_index(x):
    while nl.arange(8)[None, :]:  # refused
        pass


def branch_on_an_element(x):
    if nl.load(x[0:1, 0:1]):  # refused
        pass


def transpose_of_a_cube(x):
    cube = nl.zeros((8, 4, 2), dtype=np.float32)
    nl.transpose(cube)  # refused


def sum_of_blocks(x):
    blocks = nl.zeros((4, nl.par_dim(8), 8), dtype=np.float32)
    nl.add(blocks, 32)  # refused


def product_of_blocks_at_addresses(x):
    blocks = nl.ndarray((4, nl.par_dim(8), 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    nl.multiply(blocks, 32)  # refused


def ones_in_hbm(x):
    nl.ones((3, 128), np.float32, buffer=nl.shared_hbm)  # refused


def grid_inside_a_kernel(x):
    nested[2](x)  # refused


@nki.jit
def nested(x):
    return x


def long_tile(x):
    nl.zeros((256, 4), dtype=np.float32)  # refused


def long_load(x):
    nl.load(np_large(x))  # refused


def np_large(x):
    return nl.ndarray((200, 4), np.float32, buffer=nl.hbm)


def rows_that_differ(x):
    all_rows, one_row = nl.zeros((128, 16), np.float32), nl.zeros((1, 16), np.float32)
    nisa.tensor_tensor(all_rows, one_row, op=nl.add)  # refused


def rows_in_a_choice(x):
    tile, bound = nl.zeros((128, 16), np.float32), nl.zeros((64, 1), np.float32)
    nisa.tensor_scalar(tile, np.add, bound)  # refused


def wide_transpose(x):
    nl.transpose(nl.zeros((16, 512), np.float32))  # refused


def wide_product(x):
    a, b = nl.zeros((16, 64), np.float32), nl.zeros((16, 1024), np.float32)
    nisa.nc_matmul(a, b)  # refused


def value_too_large(x):
    column = nl.zeros((8, 1), dtype=np.float32)
    column[...] = nl.load(x)  # refused


def store_too_large(x):
    out = nl.ndarray((8, 1), np.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))  # refused


def grid_beyond_the_end(x):
    i_p, i_f = nl.mgrid[0:8, 0:4]
    nl.load(x[i_p, 4 + i_f])  # refused


def integer_beyond_the_end(x):
    nl.load(x[8])  # refused


def zeros_at_an_address(x):
    nl.zeros((8, 6), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))  # refused


def transpose_at_addresses(x):
    tile = nl.ndarray((8, 6), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    tile[...] = nl.load(x)
    transposed = nl.ndarray((6, 8), np.float32, buffer=ncc.psum.mod_alloc(base_bank=0))
    transposed[...] = nisa.nc_transpose(tile)  # refused


def product_at_addresses(x):
    tile = nl.ndarray((8, 6), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    tile[...] = nl.load(x)
    product = nl.ndarray((8, 6), np.float32, buffer=ncc.psum.mod_alloc(base_bank=0))
    product[...] = nl.matmul(tile, tile)  # refused


def tile_as_mask(x):
    tile = nl.load(x)
    nl.multiply(tile, 2, mask=tile > 2)  # refused


def remainder_in_a_mask(x):
    i_p = nl.arange(8)[:, None]
    nl.load(x, mask=i_p % 4 < 2)  # refused


def load_of_a_tile(x):
    nl.load(nl.ndarray((4, 4), np.float32, buffer=nl.sbuf))  # refused


def exponential_in_hbm(x):
    nl.exp(x)  # refused


def slice_beside_a_grid(x):
    tile = nl.load(x)
    i = nl.arange(4)[:, None]
    nl.exp(tile[i, :])  # refused


def loop_that_looks_first(x):
    element = nt.scalar(nl.load(x[0:1, 0:1]))
    while element < 10:  # refused
        element = nt.scalar(element + 1)


def branch_on_a_scalar(x):
    if nt.scalar(nl.load(x[0:1, 0:1])) < 10:  # refused
        pass


def scalar_as_mask(x):
    few = nt.scalar(nl.load(x[0:1, 0:1])) < 10
    nl.multiply(nl.load(x), 2, mask=few)  # refused


def turned_rows(x):
    nl.load_transpose2d(x[nl.ndarray((4, 1), nl.int32)])  # refused


def index_on_a_free_axis(x):
    rows, index = nl.arange(4)[:, None], nl.ndarray((4, 1), nl.int32)
    nl.load(x[rows, index])  # refused


def assigned_from_an_offset(x):
    tile, index = nl.load(x), nisa.memset((1, 1), 1, np.int32)
    i_p, i_f = nl.mgrid[0:8, 0:2]
    out = nl.ndarray((8, 2), np.float32)
    out[i_p, i_f] = tile[i_p, index[0, 0] + i_f]  # refused


RAISED = [
    ("err_1d_arange_not_supported", flat_arange, "subscript: a tile is indexed with an arange of one axis"),
    ("err_activation_bias_invalid_type", bias_of_integers,
     "activation: bias is a tile of int8; it must be float32, float16 or bfloat16"),
    ("err_activation_scale_invalid_type", scale_of_bfloat16,
     "activation: scale is a tile that is not float32"),
    ("err_activation_scale_scalar_or_vector", scale_of_a_row,
     "activation: scale is [1, 8]; it must be a number or a tile [P, 1] of 8 partitions"),
    ("err_activation_scale_scalar_or_vector", scale_of_a_square,
     "activation_reduce: scale is [8, 6]; it must be a number or a tile [P, 1] of 8 partitions"),
    ("err_ambiguous_tensor_truth_value", inverse_by_not,
     "bool: the truth of a tensor is not defined inside a kernel"),
    ("err_ambiguous_tensor_truth_value", two_tiles_by_and,
     "bool: the truth of a tensor is not defined inside a kernel"),
    ("err_bias_tensor_must_be_specified_in_allocation", exponential_without_bias,
     "exp: it becomes an activation without a bias in a kernel that gives addresses"),
    ("err_bias_tensor_must_be_specified_in_allocation", activation_without_bias,
     "activation: bias is not given in a kernel that gives addresses"),
    ("err_cannot_assign_to_index", index_is_assigned, "index grid: an index grid cannot be assigned to"),
    ("err_cannot_update_immutable_parameter", input_is_stored_to,
     "dma_copy: dst is an input of the kernel, which may not be written"),
    ("err_control_flow_condition_depending_on_arange", branch_on_a_grid,
     "bool: the truth of a mask is not defined"),
    ("err_control_flow_condition_depending_on_arange", branch_on_an_index,
     "bool: the truth of an index grid is not defined"),
    ("err_dynamic_control_flow_not_supported", branch_on_an_element,
     "bool: the truth of a tensor is not defined inside a kernel"),
    ("err_exceed_max_supported_dimension", transpose_of_a_cube,
     "transpose: x is 3-dimensional [8, 4, 2]; it must have two axes"),
    ("err_failed_to_infer_tile_from_local_tensor", sum_of_blocks,
     "tensor_scalar: data is [4, 8, 8] with its partitions along axis 1; it must be a tile whose first "
     "axis is "
     "the partition"),
    ("err_failed_to_infer_tile_from_local_tensor", product_of_blocks_at_addresses,
     "multiply: blocks: float32[4, 8, 8] in sbuf has block axes; an instruction takes a tile"),
    ("err_hbm_tensor_with_init_value_not_supported", ones_in_hbm,
     "ones: an HBM tensor cannot be created with a value"),
    ("err_nested_kernel_with_spmd_grid", grid_inside_a_kernel,
     "nested: nested is called with a grid inside another kernel"),
    ("err_num_partition_exceed_arch_limit", long_tile,
     "zeros: number of partitions 256 exceed architecture limitation of 128"),
    ("err_num_partition_exceed_arch_limit", long_load,
     "load: number of partition in src[200, 4] of 'load' exceed architecture limitation of 128."),
    ("err_num_partition_mismatch", rows_that_differ,
     "tensor_tensor: data2 has 1 partitions; the operands before it have 128"),
    ("err_num_partition_mismatch", rows_in_a_choice,
     "tensor_scalar: operand0 has 64 partitions; the operands before it have 128"),
    ("err_size_of_dimension_exceed_arch_limit", wide_transpose,
     "nc_transpose: F is 512; trn2 allows 128 (stationary free max)"),
    ("err_size_of_dimension_exceed_arch_limit", wide_product,
     "nc_matmul: N is 1024; trn2 allows 512 (moving free max)"),
    ("err_store_dst_shape_smaller_than_other_shape", value_too_large,
     "assignment: the destination [8, 1] is smaller than the value [8, 6]"),
    ("err_store_dst_shape_smaller_than_other_shape", store_too_large,
     "store: the destination [8, 1] is smaller than the value [8, 6]"),
    ("err_tensor_access_out_of_bound", grid_beyond_the_end,
     "load: indices 4 to 7 reach outside axis 1 of x: float32[8, 6] in hbm, which has 6 elements"),
    ("err_tensor_access_out_of_bound", integer_beyond_the_end,
     "subscript: index 8 is outside axis 0 of x: float32[8, 6] in hbm, which has 8 elements"),
    ("err_tensor_creation_on_scratchpad_with_init_value_not_supported", zeros_at_an_address,
     "zeros: a tile with an address cannot be created with a value"),
    ("err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel", transpose_at_addresses,
     "nc_transpose: TensorE transposes in a kernel that gives addresses"),
    ("err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel", product_at_addresses,
     "matmul: TensorE transposes x in a kernel that gives addresses"),
    ("err_unsupported_expression_in_mask", tile_as_mask,
     "tensor_scalar: mask is a tile, whose elements are known only when the kernel runs"),
    ("err_unsupported_expression_in_mask", remainder_in_a_mask,
     "index grid: // and % of an index grid are not affine"),
    ("err_unsupported_memory", load_of_a_tile, "load: src is in sbuf; load needs it in hbm"),
    ("err_unsupported_memory", exponential_in_hbm, "activation: data is in hbm; it must be in sbuf or psum"),
    ("err_unsupported_mixing_basic_advanced_tensor_indexing", slice_beside_a_grid,
     "subscript: a subscript mixes slices with index grids"),
    ("err_while_loop_requires_unconditional_entry", loop_that_looks_first,
     "while: the loop looks at a value of the device before its first iteration"),
    ("err_dynamic_control_flow_not_supported", branch_on_a_scalar,
     "while: a branch depends on a value that is known only when the kernel runs"),
    ("err_unsupported_expression_in_mask", scalar_as_mask,
     "tensor_scalar: mask is a comparison of a scalar, which is known only when the kernel runs"),
    ("err_indirect_indices_are_not_supported_with_nki_api", turned_rows,
     "load_transpose2d: src is indexed with a tile; load_transpose2d takes fixed addresses"),
    ("err_indirect_indices_free_dim", index_on_a_free_axis,
     "subscript: a tile of 4 indices is the subscript of axis 1, a free axis; indices choose along the axis "
     "of partitions or of blocks"),
    ("err_copy_dynamic_indirect_indices_not_natively_supported", assigned_from_an_offset,
     "assignment: (unnamed): float32[8, 2] in sbuf at a run-time offset is copied by an assignment"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "body", "line"), RAISED, ids=[r[1].__name__ for r in RAISED])
def test_a_documented_error_is_raised_with_its_key(key, body, line):
    with pytest.raises(NkilabError) as caught:
        nki.jit(body)(ramp(8, 6))
    assert str(caught.value).splitlines()[0] == f"{marked_line(body)}: {line}"
    assert caught.value.key == key


def test_an_instruction_outside_of_kernels_is_refused():
    def host():
        nisa.memset((4, 4), 0, np.float32)  # refused

    with pytest.raises(NkilabError) as caught:
        host()
    assert str(caught.value).splitlines()[0] == (
        f"{marked_line(host)}: memset: no kernel is running; NKI calls stand inside a function that nki.jit "
        "decorates"
    )
    assert caught.value.key == "err_nki_api_outside_of_nki_kernel"


@nki.jit
def changes_what_it_does_not_return(x: nt.mutable_tensor):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(x, tile + 1)
    nl.store(out, tile)
    return out


@nki.jit
def changes_and_returns(x: nt.mutable_tensor, y: nt.mutable_tensor):
    nl.store(x, nl.load(y) + 1)
    return x


@nki.jit
def unwritten(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for _ in nl.affine_range(x.shape[0] // 128):
        nl.store(out, nl.load(x))
    return out


def last_line(kernel, *args):
    """The first line of the message of a kernel that is refused when it ends, without its place."""
    texts = set()
    for run in (kernel, lambda *a: nkilab.estimate(kernel, *a)):
        with pytest.raises(NkilabError) as caught:
            run(*args)
        place = f"test_error_keys.py:{kernel.function.__code__.co_firstlineno}: {kernel.name}: "
        texts.add((str(caught.value).splitlines()[0].removeprefix(place), caught.value.key))
    return texts


def test_a_mutable_parameter_that_is_written_is_returned():
    assert last_line(changes_what_it_does_not_return, ramp(8, 6)) == {
        ("the kernel writes to x, a mutable parameter, and does not return it",
         "err_mutable_parameter_not_returned")
    }  # fmt: skip
    x = ramp(8, 6)
    np.testing.assert_array_equal(changes_and_returns(x.copy(), x), x + 1)


def test_a_result_is_written():
    assert last_line(unwritten, ramp(8, 6)) == {
        ("the result out: float32[8, 6] in hbm was never written", "err_tensor_output_not_written_to")
    }


def test_every_key_that_is_raised_has_a_kernel_here():
    elsewhere = {
        "err_nki_api_outside_of_nki_kernel", "err_mutable_parameter_not_returned",
        "err_tensor_output_not_written_to",
    }  # fmt: skip
    raised = {key for key, entry in ERROR_KEYS.items() if entry.reply == "error"}
    assert {key for key, *_ in RAISED} | elsewhere == raised


def test_every_documented_key_has_a_condition_a_way_out_and_an_example():
    assert len(ERROR_KEYS) == 36
    for key, entry in ERROR_KEYS.items():
        assert key.startswith("err_")
        assert (entry.condition[0] + entry.way_out[0]).islower(), key
        assert bool(entry.why_accepted) == (entry.reply != "error"), key
        assert entry.since in ("2.20", "2.21", "2.22", "2.23", "2.24", "2.26")
        compile(entry.example, key, "exec", flags=0x2000)  # allows a return outside of a function
