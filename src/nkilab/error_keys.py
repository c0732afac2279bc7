"""The error keys that AWS documents for Beta 1: what each means, the way out, an example, our reply.

Source: documents of SDK 2.20 to 2.26, "NKI API Errors"; the sentences are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reply = Literal["error", "accepted"]


@dataclass(frozen=True)
class ErrorKey:
    """One documented error."""

    condition: str  # when it is raised
    way_out: str  # what to write instead, imperative
    since: str  # first SDK whose documents have it
    example: str  # lines that raise it, each ready to stand in a kernel
    reply: Reply = "error"  # what nkilab does: raise an error, or accept the program
    why_accepted: str = ""  # where it does not raise an error, the reason


ERROR_KEYS: dict[str, ErrorKey] = {
    "err_1d_arange_not_supported": ErrorKey(
        "a tile in sbuf or psum is indexed with an nl.arange of one axis",
        "give the grid a second axis, nl.arange(n)[:, None], or use a slice", "2.20",
        "rows = nl.arange(64)\ncolumn = nl.exp(tile[rows, 0])"),
    "err_activation_bias_invalid_type": ErrorKey(
        "the bias of activation or activation_reduce is neither float32 nor float16 nor bfloat16",
        "cast the bias before the call", "2.21",
        "bias = nisa.memset((128, 1), 1, dtype=nl.int8)\nnisa.activation(op=nl.exp, data=tile, bias=bias)"),
    "err_activation_scale_invalid_type": ErrorKey(
        "the scale of activation or activation_reduce is a tile of another type than float32",
        "cast the scale to float32, or give a number", "2.21",
        "scale = nisa.memset((128, 1), 2, dtype=nl.float16)\n"
        "nisa.activation(op=nl.exp, data=tile, scale=scale)"),
    "err_activation_scale_scalar_or_vector": ErrorKey(
        "the scale of activation or activation_reduce is a tile that is not one column of as many partitions",
        "give a number, or a tile [P, 1]", "2.21", "scale = nisa.memset((1, 128), 2, dtype=nl.float32)\n"
        "nisa.activation(op=nl.exp, data=tile, scale=scale)"),
    "err_ambiguous_tensor_truth_value": ErrorKey(
        "a tile of several elements stands where Python asks for its truth: if, while, not, and, or",
        "combine tiles with ~, & and |; ask for presence with `is not None`", "2.24",
        "inverse = not (tile > 0)"),
    "err_annotation_shape_mismatch": ErrorKey(
        "a name is annotated with nt.tensor[...] and is assigned a tensor of another shape",
        "correct the annotation or the shape", "2.20",
        "tile: nt.tensor[128, 512] = nl.zeros((128, 128), dtype=nl.float32)", "accepted",
        "Python does not evaluate the annotation of a local name; values do not depend on it"),
    "err_bias_tensor_must_be_specified_in_allocation": ErrorKey(
        "a kernel with direct addresses calls activation without a bias, or an nl function that becomes one",
        "call nisa.activation and give bias= a tile of your own, of zeros if need be", "2.21",
        "tile = nl.ndarray((128, 512), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))\n"
        "tile[...] = nl.exp(source)"),
    "err_cannot_assign_to_index": ErrorKey(
        "an item of an index grid is assigned", "make a tile of the grid with nisa.iota and assign to that",
        "2.20", "_, columns = nl.mgrid[0:1, 0:8]\ncolumns[0, 5] = 1024"),
    "err_cannot_update_immutable_parameter": ErrorKey(
        "a kernel writes to one of its arguments",
        "annotate the parameter with nt.mutable_tensor and return it, or write to a new tensor", "2.21",
        "def kernel(x):\n    nl.store(x, nl.load(x) + 1)"),
    "err_mutable_parameter_not_returned": ErrorKey(
        "a kernel writes to a parameter annotated as mutable and does not return it",
        "return it beside the other results", "2.24",
        "def kernel(x: nt.mutable_tensor):\n    nl.store(x, nl.load(x) + 1)\n    return out"),
    "err_control_flow_condition_depending_on_arange": ErrorKey(
        "an if or while asks for the truth of an index grid or of a comparison of grids",
        "pass the comparison as mask=", "2.20", "columns = nl.arange(512)[None, :]\nif columns > 64: ..."),
    "err_copy_dynamic_indirect_indices_not_natively_supported": ErrorKey(
        "an assignment copies between tiles, one of which is indexed with indices known only when it runs",
        "copy with nisa.tensor_copy_dynamic_src or nisa.tensor_copy_dynamic_dst", "2.22",
        "out[rows, columns] = tile[0, index_tile, columns]"),
    "err_dynamic_control_flow_not_supported": ErrorKey(
        "an if or while depends on an element that is known only when the kernel runs on the device",
        "compute both branches and choose with nl.where, or decide on the host", "2.20",
        "condition = nl.load(flag)\nif condition: ..."),
    "err_exceed_max_supported_dimension": ErrorKey(
        "an operand has more axes than the instruction takes", "index or reshape it to fewer axes", "2.20",
        "cube = nl.zeros((64, 32, 2), dtype=nl.float32)\nnl.transpose(cube)"),
    "err_failed_to_infer_tile_from_local_tensor": ErrorKey(
        "a tensor whose partition axis is not its first is given to an instruction whole",
        "index the axes before the partition axis away: t[i]", "2.20",
        "blocks = nl.zeros((4, nl.par_dim(8), 8), dtype=nl.float32)\nnl.add(blocks, 32)"),
    "err_hbm_tensor_with_init_value_not_supported": ErrorKey(
        "nl.zeros, nl.ones or nl.full is asked for a tensor in hbm",
        "make it with nl.ndarray and fill it with nl.store", "2.22",
        "nl.full((128, 512), 1.0, nl.float32, buffer=nl.shared_hbm)"),
    "err_indirect_indices_are_not_supported_with_nki_api": ErrorKey(
        "an operand is indexed with a tile, and the instruction takes no such operand",
        "gather with nl.load or nisa.dma_copy first", "2.26", "nl.load_transpose2d(x[index_tile, columns])"),
    "err_indirect_indices_free_dim": ErrorKey(
        "a transfer is indexed with a tile on an axis that becomes a free axis, or beside grids of nl.mgrid",
        "index the axis of partitions or blocks with the tile, and use nl.arange for the others", "2.20",
        "rows = nl.arange(64)[:, None]\nnl.load(x[rows, index_tile])"),
    "err_leading_dimension_of_tensor_must_be_partition": ErrorKey(
        "a tile in sbuf or psum has axes in front of its partition axis",
        "make a list of tiles, or move the blocks behind the partition axis", "2.23",
        "nl.ndarray((4, nl.par_dim(128), 512), nl.float32, buffer=nl.sbuf)", "accepted",
        "most kernels of Beta 1 use block axes, and its own documents only warn of them"),
    "err_local_variable_used_out_of_scope": ErrorKey(
        "a tile that is first bound inside a for or an if is used behind it",
        "make the tile before the block and write it with tile[...] = inside", "2.20",
        "for i in nl.affine_range(4):\n    tile = nl.load(x)\nnl.store(out, tile)", "accepted",
        "the loop runs as plain Python, in which the name keeps its last tile"),
    "err_nested_kernel_with_spmd_grid": ErrorKey(
        "a kernel calls another one with a grid", "call it without the grid", "2.20", "inner[4, 4](x)"),
    "err_nki_api_outside_of_nki_kernel": ErrorKey(
        "a function of nki.language or nki.isa is called while no kernel runs",
        "call it inside a function that nki.jit decorates", "2.20", "nl.ndarray((128, 512), nl.float32)"),
    "err_num_partition_exceed_arch_limit": ErrorKey(
        "a tile has more than 128 partitions", "split its first axis into tiles of 128", "2.20",
        "nl.zeros((256, 1024), dtype=nl.float32)"),
    "err_num_partition_mismatch": ErrorKey(
        "operands of an instruction of nki.isa have different numbers of partitions",
        "repeat the smaller one with broadcast_to", "2.20",
        "nisa.tensor_tensor(tile_of_128_rows, tile_of_one_row, op=nl.add)"),
    "err_shared_hbm_must_in_kernel_level": ErrorKey(
        "a tensor is made in shared_hbm inside a loop, a branch or a function that the kernel calls",
        "make it at the top of the kernel and pass it on", "2.21",
        "for i in nl.affine_range(4):\n    part = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)",
        "accepted", "the tensor is the same wherever the kernel makes it"),
    "err_size_of_dimension_exceed_arch_limit": ErrorKey(
        "an axis of an operand is longer than the instruction takes", "split the axis into smaller tiles",
        "2.20", "nl.transpose(nl.zeros((128, 512), dtype=nl.float32))"),
    "err_store_dst_shape_smaller_than_other_shape": ErrorKey(
        "the destination of an assignment is smaller than the value",
        "make both of one size; a smaller value is repeated, a smaller destination is not", "2.20",
        "column = nl.zeros((128, 1), dtype=nl.float32)\n"
        "column[...] = nl.zeros((128, 512), dtype=nl.float32)"),
    "err_tensor_access_out_of_bound": ErrorKey(
        "an index reaches outside of its axis and no mask hides it",
        "correct the index, or mask the access: mask=(index < size)", "2.20",
        "grid = nl.mgrid[0:128, 0:512]\nnl.store(out[grid.p, 3584 + grid.x], value)  # out has 4000 columns"),
    "err_tensor_creation_on_scratchpad_with_init_value_not_supported": ErrorKey(
        "nl.zeros, nl.ones or nl.full is asked for a tile with a direct address",
        "make it with nl.ndarray and fill it by assignment or nisa.memset", "2.21",
        "nl.zeros((128, 512), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))"),
    "err_tensor_output_not_written_to": ErrorKey(
        "a result of the kernel was never written, or there is no result",
        "write all of it, with a default if a loop may not run at all", "2.20",
        "def kernel(x):\n    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)\n    return out"),
    "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel": ErrorKey(
        "a kernel with direct addresses transposes on TensorE with nc_transpose, nl.transpose or nl.matmul",
        "multiply by an identity of your own with nisa.nc_matmul, or give transpose_x=True, or engine=vector",
        "2.21", "product = nl.ndarray((128, 128), nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0))\n"
        "product[...] = nisa.nc_transpose(tile)"),
    "err_unexpected_output_dependencies": ErrorKey(
        "iterations of an affine_range, or instances of a grid, write the same place and do not accumulate",
        "index the destination with the loop variable, or use nl.sequential_range", "2.20",
        "for i in nl.affine_range(4):\n    tile[...] = i", "accepted",
        "iterations run one after another, so that the last one wins"),
    "err_unsupported_expression_in_mask": ErrorKey(
        "a mask holds an expression that is not affine in index grids and loop variables, or a tile",
        "write the mask with sums and multiples of indices alone, or split the range", "2.26",
        "nl.store(out[rows, columns], tile, mask=rows % 4 < 2)"),
    "err_unsupported_memory": ErrorKey(
        "an operand lies in a memory that the instruction cannot reach",
        "load from hbm with nl.load, store to hbm with nl.store, copy within the chip with nl.copy", "2.20",
        "nl.load(nl.ndarray((4, 4), nl.float32, buffer=nl.sbuf))"),
    "err_unsupported_mixing_basic_advanced_tensor_indexing": ErrorKey(
        "a subscript holds both a slice and an index grid",
        "use slices for all axes or grids for all; integers and loop variables go with both", "2.20",
        "rows = nl.arange(4)[:, None]\nnl.exp(tile[rows, :])"),
    "err_while_loop_requires_unconditional_entry": ErrorKey(
        "a while loop looks at a value of the device before its first iteration",
        "start with cond = nt.scalar(True) and compute cond at the end of the body", "2.24",
        "while nt.scalar(tile) < 10: ..."),
}  # fmt: skip
