"""What a Beta 1 kernel may not ask for: every message whole, with the built-in type that goes with it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dialects import refused as of
from tests.dialects.spellings import marked_line, ramp, refusal
from tests.dialects.spellings import nki1 as nki
from tests.dialects.spellings import nl1 as nl

import nkilab
from nkilab.errors import LimitError, NkilabWarning, RuleError, SpellingError, UnsupportedError, UseError

TYPES = (
    "float32, tfloat32, bfloat16, float16, float8_e4m3, float8_e5m2, float8_e4m3fn, int32, int16, int8, "
    "uint32, uint16, uint8, bool, float8_e8m0fnu, float8_e5m2_x4, float8_e4m3fn_x4, float4_e2m1fn_x4"
)
ARGUMENTS = {"x": ramp(8, 6), "long": ramp(12800), "cube": ramp(4, 3, 5), "wide": ramp(4, 192)}


BOUND = "\n  key: err_tensor_access_out_of_bound"
MASKED = "\n  hint: mask the access: mask=(index < size)" + BOUND
BITS = "\n  key: err_control_flow_condition_depending_on_arange"
MEMORY = "\n  key: err_unsupported_memory"
LIMIT = (
    "\n  hint: split the partition axis into tiles of 128\n  source: trn1 architecture guide, SBUF"
    "\n  key: err_num_partition_exceed_arch_limit"
)
IN_HBM = "\n  hint: use nl.copy or nisa.tensor_copy within the chip" + MEMORY
OPERATORS = (
    "invert, bitwise_and, bitwise_or, bitwise_xor, left_shift, right_shift, add, subtract, "
    "multiply, maximum, minimum, "
)

TRUTH = (
    "  hint: choose elements with nl.where(condition, x, y), combine conditions with ~, & and |, "
    "and ask for presence with `is not None`\n"
)
REFUSED = [
    (of.partitions, LimitError,
     "ndarray: number of partitions 256 exceed architecture limitation of 128" + LIMIT),
    (of.partitions_of_a_fill, LimitError,
     "zeros: number of partitions 129 exceed architecture limitation of 128" + LIMIT),
    (of.long_load, LimitError,
     "load: number of partition in src[12800, 1] of 'load' exceed architecture limitation of 128.\n"
     "  src = long: float32[12800, 1] in hbm\n  hint: load tiles of 128 rows\n"
     "  key: err_num_partition_exceed_arch_limit"),
    (of.wide_transposed_load, LimitError,
     "load_transpose2d: src has 192 columns, which become partitions; trn2 has 128\n"
     "  key: err_num_partition_exceed_arch_limit"),
    (of.loads_from_sbuf, RuleError, 
     "load: src is in sbuf; load needs it in hbm\n  src = (unnamed): float32[8, 6] in sbuf" + IN_HBM),
    (of.stores_to_sbuf, RuleError, "store: dst is in sbuf; store needs it in hbm" + IN_HBM),
    (of.stores_from_hbm, RuleError, "store: value is in hbm; store needs it in sbuf or psum" + MEMORY),
    (of.loads_a_number, UseError, "load: src is of type int; it must be a tensor in hbm"),
    (of.adds_words, UseError,
     "add: an argument is of type str; it must be a tile or a number\n  x = (unnamed): float32[8, 6] "
     "in sbuf"),
    (of.adds_numbers, UseError, "add: both arguments are numbers; one must be a tile"),
    (of.exp_of_a_number, UseError, "exp: the argument is the number 2.0; it must be a tile"),
    (of.adds_shapes, RuleError,
     "add: shapes [8, 3] and [8, 2] do not broadcast\n"
     "  x = tile: float32[8, 3] in sbuf\n  y = tile: float32[8, 2] in sbuf\n"
     "  hint: two axes are equal, or one of them is 1"),
    (of.assigns_too_much, RuleError,
     "assignment: the destination [8, 3] is smaller than the value [8, 6]\n"
     "  key: err_store_dst_shape_smaller_than_other_shape"),
    (of.assigns_words, UseError, "assignment: a tile is assigned a str; it takes tiles and numbers"),
    (of.assigns_to_hbm, UseError,
     "assignment: an HBM tensor is assigned a number\n  hint: store a tile with nl.store"),
    (of.fills_hbm, UseError,
     "zeros: an HBM tensor cannot be created with a value\n  hint: create it with nl.ndarray and store a "
     "tile to it\n"
     "  key: err_hbm_tensor_with_init_value_not_supported"),
    (of.unknown_buffer, RuleError,
     "ndarray: buffer is 'sram'; it must be nl.sbuf, nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm"),
    (of.float64_tile, RuleError,
     f"ndarray: dtype is float64; it must be one of {TYPES}\n  hint: cast it on the host first"),
    (of.empty_tile, UseError,
     "ndarray: shape is [4, 0]; a tensor has at least one axis and one element along each"),
    (of.named_extent, UseError, "zeros: extent 0 of shape is 'n'; extents are whole numbers of 64 bits"),
    (of.index_outside, UseError,
     "subscript: index 8 is outside axis 0 of x: float32[8, 6] in hbm, which has 8 elements\n"
     "  hint: shrink the loop or mask the access" + BOUND),
    (of.negative_index_outside, UseError,
     "subscript: index -7 is outside axis 1 of x: float32[8, 6] in hbm, which has 6 elements\n"
     "  hint: shrink the loop or mask the access" + BOUND),
    (of.slice_outside, UseError,
     "exp: indices 2 to 6 reach outside axis 1 of (unnamed): float32[8, 6] in sbuf, which has 6 "
     "elements" + MASKED),
    (of.ds_outside, UseError,
     "load: indices 4 to 8 reach outside axis 0 of x: float32[8, 6] in hbm, which has 8 elements\n"
     "  src = x: float32[5, 6] in hbm" + MASKED),
    (of.empty_slice, UseError,
     "subscript: slice 4:4 of axis 0 of x: float32[8, 6] in hbm is empty; an access has at least one "
     "element"),
    (of.backward_slice, UseError, "subscript: slice 4:2:-1 has the step -1; steps are at least 1"),
    (of.too_many_subscripts, UseError,
     "subscript: 3 subscripts on x: float32[8, 6] in hbm, which has 2 axes" + BOUND),
    (of.word_as_subscript, UseError,
     "subscript: a subscript of x: float32[8, 6] in hbm is of type str; subscripts are integers, slices, "
     "nl.ds and "
     "index grids"),
    (of.word_in_a_slice, UseError, "subscript: the start of a slice is 'a'; it must be a whole number"),
    (of.grid_outside, UseError,
     "load: indices 1 to 6 reach outside axis 1 of x: float32[8, 6] in hbm, which has 6 elements\n"
     "  src = x: float32[8, 6] in hbm" + MASKED),
    (of.mask_lets_outside_through, UseError,
     "dma_copy: indices 0 to 6 reach outside axis 1 of x: float32[8, 6] in hbm, which has 6 elements"
     + MASKED),
    (of.assignment_outside, UseError,
     "assignment: indices -1 to 4 reach outside axis 1 of tile: float32[8, 6] in sbuf, which has 6 elements"
     + MASKED),
    (of.sum_in_place_outside, UseError,
     "add in place: indices 1 to 6 reach outside axis 1 of tile: float32[8, 6] in sbuf, which has 6 "
     "elements" + MASKED),
    (of.view_outside, UseError,
     "reshape: indices 1 to 6 reach outside axis 1 of x: float32[8, 6] in hbm, which has 6 elements\n"
     "  x: float32[8, 6] in hbm" + MASKED),
    (of.flat_arange, UseError,
     "subscript: a tile is indexed with an arange of one axis\n  hint: give it more axes: nl.arange(n)[:, "
     "None]\n"
     "  key: err_1d_arange_not_supported"),
    (of.mixed_subscripts, UseError,
     "subscript: a subscript mixes slices with index grids\n"
     "  hint: use slices for all axes, or index grids for all\n"
     "  key: err_unsupported_mixing_basic_advanced_tensor_indexing"),
    (of.ellipsis_before_a_grid, UseError,
     "subscript: a subscript mixes slices with index grids\n"
     "  hint: use slices for all axes, or index grids for all\n"
     "  key: err_unsupported_mixing_basic_advanced_tensor_indexing"),
    (of.grids_that_differ, UseError,
     "index grid: index grids of shapes [8, 1] and [6, 1] do not broadcast\n"
     "  hint: place their axes with None: i[:, None], j[None, :]"),
    (of.grids_in_a_subscript_that_differ, UseError,
     "subscript: index grids of shapes [8, 1] and [6, 1] do not broadcast\n"
     "  hint: place their axes with None: i[:, None], j[None, :]"),
    (of.product_of_grids, UnsupportedError,
     "index grid: the product of two index grids is not affine\n  hint: write it to a tile with "
     "nki.isa.iota"),
    (of.remainder_of_a_grid, UnsupportedError,
     "index grid: // and % of an index grid are not affine\n  hint: split the range so that each part is "
     "affine\n"
     "  key: err_unsupported_expression_in_mask"),
    (of.grid_subscript, UseError,
     "index grid: an index grid takes None and full slices as subscripts: nl.arange(n)[:, None]"),
    (of.grid_truth, UseError, "bool: the truth of an index grid is not defined\n  hint: use mask=" + BITS),
    (of.mask_truth, UseError,
     "bool: the truth of a mask is not defined\n  hint: join masks with & and pass them as mask=" + BITS),
    (of.tensor_truth, UseError,
     "bool: the truth of a tensor is not defined inside a kernel\n"
     f"{TRUTH}  key: err_ambiguous_tensor_truth_value"),
    (of.arange_of_words, UseError, "arange: a bound is 'n'; it must be a whole number"),
    (of.arange_of_nothing, UseError,
     "arange: an index grid from 4 to 4 by 1 is empty; it must hold an index or more"),
    (of.arange_without_bounds, UseError,
     "arange: 0 bounds are given; arange takes an end, a start and an end, or these and a step"),
    (of.mgrid_of_integers, UseError,
     "mgrid: a subscript of mgrid is no slice with an end\n  hint: write nl.mgrid[0:128, 0:512]"),
    (of.word_as_mask, UseError,
     "dma_copy: mask is of type str; it must be a comparison of index grids\n"
     "  hint: write mask=(i_p < rows) with i_p = nl.arange(128)[:, None]"),
    (of.mask_of_another_shape, UseError, "dma_copy: the mask has shape [1, 5]; the tile it masks has [8, 6]"),
    (of.floats_as_index, RuleError,
     "subscript: the index is float32[8, 1] in sbuf; it must be a tile of integers in sbuf\n"
     "  hint: load the indices with nl.load first, and cast floats with nl.copy(..., dtype=nl.int32)\n"
     "  source: nki.language.load, indirect DMA"),
    (of.row_as_index, RuleError,
     "subscript: the index is int32[1, 8] in sbuf; it must be one element, or one for each partition, "
     "[N, 1]\n"
     "  hint: index one column of it: idx[i_p, 0]\n  source: nki.language.load, indirect DMA"),
    (of.partition_sum, RuleError,
     "sum: axis holds 0, the partition axis; only free axes are reduced\n"
     "  hint: transpose the tile first, or multiply by a column of ones on TensorE\n  source: "
     "nki.isa.tensor_reduce"),
    (of.axis_beyond, RuleError, "max: axis is [1, 2]; the tile has 2 axes\n  source: nki.isa.tensor_reduce"),
    (of.word_as_axis, RuleError, "mean: axis is 'all'; it must be an integer or a list of them\n"
     "  (unnamed): float32[8, 6] in sbuf"),
    (of.triangle_sum, UseError, "sum: the mask of a reduction is not a rectangle of the tile"),
    (of.transpose_of_a_cube, RuleError,
     "transpose: x is 3-dimensional [4, 3, 5]; it must have two axes\n"
     "  (unnamed): float32[4, 3, 5] in sbuf\n  key: err_exceed_max_supported_dimension"),
    (of.reshape_of_the_partition, RuleError,
     "reshape: a reshape from [8, 6] to [4, 12] would split or join the partition axis\n"
     "  (unnamed): float32[8, 6] in sbuf\n  hint: keep the partition axis as it is"),
    (of.reshape_of_a_count, RuleError,
     "reshape: a tensor of 48 elements [8, 6] does not reshape to [7, 7], which has 49\n"
     "  x: float32[8, 6] in hbm"),
    (of.other_shape_asserted, UseError,
     "assert_shape: the shape is [8, 6]; [6, 8] is asserted\n  x: float32[8, 6] in hbm"),
    (of.broadcast_down, RuleError,
     "broadcast_to: shape [8, 6] does not broadcast to [8, 3]\n  (unnamed): float32[8, 6] in sbuf"),
    (of.axis_expanded_twice, UseError,
     "expand_dims: axis is (1, 1); the result has 4 axes, and each is named once\n  x: float32[8, 6] in hbm"),
    (of.loop_variable_missing, RuleError,
     "loop_reduce: loop_indices holds something that is no loop variable of affine_range"),
    (of.loop_that_cannot_reduce, RuleError, "loop_reduce: op is greater; it may not reduce"),
    (of.range_of_words, UseError, "affine_range: the end of a range is 'n'; it must be a whole number"),
    (of.range_of_four, UseError,
     "sequential_range: 4 bounds are given; a range has an end, a start and an end, or these and a step"),
    (of.range_without_step, UseError, "static_range: the step of a range is 0; it must be another "
                                      "whole number"),
    (of.program_axis, UseError, "program_id: axis is 'row'; it must be a whole number"),
    (of.flat_iota, UseError,
     "iota: expr is no index expression of two or more axes\n  hint: give it axes with None: "
     "nl.arange(n)[:, None]"),
    (of.writes_an_input, UseError,
     "dma_copy: dst is an input of the kernel, which may not be written\n  dst = x: float32[8, 6] in hbm\n"
     "  src = float32[8, 6] in sbuf\n"
     "  hint: write to a tensor of its own, made with nl.ndarray(..., buffer=nl.shared_hbm)\n"
     "  key: err_cannot_update_immutable_parameter"),
    (of.computes_in_hbm, RuleError,
     "activation: data is in hbm; it must be in sbuf or psum\n  dst = float32[8, 6] in sbuf\n"
     "  data = x: float32[8, 6] in hbm\n  scale = 1.0\n  hint: load it to sbuf first\n  source: "
     "nki.isa.activation" + MEMORY),
    (of.stores_too_much, RuleError,
     "store: the destination [8, 3] is smaller than the value [8, 6]\n"
     "  key: err_store_dst_shape_smaller_than_other_shape"),
    (of.assigns_other_partitions, RuleError,
     "assignment: the value [8, 6] has 8 partitions; the destination [4, 12] has 4\n"
     "  key: err_num_partition_mismatch"),
    (of.psum_product, RuleError,
     "nc_matmul: stationary is in psum; it must be in sbuf\n  dst = float32[6, 6] in psum\n"
     "  stationary = tile: float32[8, 6] in psum\n  moving = float32[8, 6] in sbuf\n"
     "  hint: copy it to sbuf first, with tensor_copy\n  source: nki.isa.nc_matmul" + MEMORY),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "text"), REFUSED, ids=[r[0].__name__ for r in REFUSED])
def test_a_refusal_names_the_line_what_is_wrong_and_what_to_do(body, kind, text):
    argument = ARGUMENTS[next(iter(body.__code__.co_varnames[:1]))]
    assert refusal(nki.jit(body), argument, kind=kind) == f"HERE: {text}"


# Refused as TypeError, as AWS documents them or because the call itself is wrong
TYPE_ERRORS = [
    (of.grid_assignment, UseError,
     "index grid: an index grid cannot be assigned to\n  hint: write it to a tile with nki.isa.iota\n"
     "  key: err_cannot_assign_to_index"),
    (of.element_truth, UseError,
     "bool: the truth of a tensor is not defined inside a kernel\n"
     f"{TRUTH}  key: err_dynamic_control_flow_not_supported"),
    (of.missing_operand, SpellingError,
     "tensor_tensor: data2 is not given\n  hint: it takes data1, data2, op"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "text"), TYPE_ERRORS, ids=[r[0].__name__ for r in TYPE_ERRORS])
def test_a_misuse_of_the_language_is_also_a_type_error(body, kind, text):
    assert refusal(nki.jit(body), ARGUMENTS["x"], kind=kind, also=TypeError) == f"HERE: {text}"


def test_an_unknown_operator_lists_the_known_ones():
    text = refusal(nki.jit(of.unknown_operator), ARGUMENTS["x"], kind=RuleError)
    assert text.startswith(f"HERE: tensor_scalar: op is plus; it must be one of {OPERATORS}")


def test_an_api_outside_a_kernel_names_the_line():
    def host():
        nl.ndarray((4, 4), nl.float32)  # refused

    with pytest.raises(UseError) as caught:
        host()
    assert str(caught.value) == (
        f"{marked_line(host)}: ndarray: no kernel is running; NKI calls stand inside a function that nki.jit "
        "decorates\n"
        "  hint: decorate the function with @nki.jit and call it with arrays\n"
        "  key: err_nki_api_outside_of_nki_kernel"
    )


@nki.jit
def tile_returned(x):  # refused
    return nl.load(x)


def test_a_tile_in_sbuf_is_no_result():
    with pytest.raises(RuleError) as caught:
        tile_returned(ramp(4, 4))
    place = marked_line(tile_returned.function)
    line = int(place.partition(":")[2]) - 1  # of the decorator, where the function begins
    assert str(caught.value) == (
        f"test_beta1_errors.py:{line}: tile_returned: tile_returned returns a tile in sbuf; results lie in "
        "hbm\n"
        "  result = (unnamed): float32[4, 4] in sbuf\n"
        "  hint: store it to a tensor made with buffer=nl.shared_hbm and return that"
    )


@nki.jit
def never_written(x):
    return nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="result")


@nki.jit
def half_written(x):
    out = nl.ndarray(x.shape, nl.int16, buffer=nl.shared_hbm)
    nl.store(out[:, 0:2], nl.load(x[:, 0:2]))
    return out


@pytest.mark.parametrize("run", [lambda k, x: k(x), nkilab.estimate], ids=["data", "shapes"])
def test_a_result_that_was_never_written_is_refused(run):
    with pytest.raises(UseError) as caught:
        run(never_written, ramp(2, 4))
    code = never_written.function.__code__
    assert str(caught.value) == (
        f"test_beta1_errors.py:{code.co_firstlineno}: never_written: the result result: float32[2, 4] in hbm "
        "was never written\n"
        "  hint: store to it, a default value if a loop may not run at all\n"
        "  key: err_tensor_output_not_written_to"
    )


def test_a_result_that_was_written_in_part_holds_the_unwritten_value_elsewhere():
    with pytest.warns(NkilabWarning) as caught:
        out = half_written(ramp(2, 4))
    assert len(caught) == 1
    assert str(caught[0].message).endswith("int16[2, 4] in hbm, which was written in part only")
    np.testing.assert_array_equal(out, [[0, 1, -(2**15), -(2**15)], [4, 5, -(2**15), -(2**15)]])


def call_here(kernel, *args, **kwargs):
    return kernel(*args, **kwargs)  # refused


CALLS = [
    ((), {}, "the arguments do not fit the kernel: missing a required argument: 'x'"
     "\n  hint: never_written takes x"),
    ((ramp(2, 2), ramp(2, 2)), {}, "the arguments do not fit the kernel: too many positional arguments"
     "\n  hint: never_written takes x"),
    ((), {"y": ramp(2, 2)}, "the arguments do not fit the kernel: missing a required argument: 'x'"
     "\n  hint: never_written takes x"),
    ((np.zeros((2, 2)),), {},
     f"argument x: dtype is float64; it must be one of {TYPES}\n  hint: cast it on the host before the call"),
    ((np.array([[None]]),), {},
     f"argument x: dtype is object; it must be one of {TYPES}\n  hint: cast it on the host before the call"),
    ((np.float32(1) * np.zeros(()),), {}, None),
    ((np.zeros((), np.float32)[...],), {},
     "argument x has shape []; a tensor has at least one element and axis\n"
     "  hint: pass a number, as x.item() is one"),
    ((np.zeros((0, 4), np.float32),), {},
     "argument x has shape [0, 4]; a tensor has at least one element and axis"),
    (([np.zeros((2, 2))],), {},
     f"argument x[0]: dtype is float64; "
     f"it must be one of {TYPES}\n  hint: cast it on the host before the call"),
    ((nkilab.spec((2, 2), "float32"),), {},
     "argument x is a spec, which has no data\n  hint: pass an array to run the kernel"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "kwargs", "text"), [c for c in CALLS if c[2]])
def test_a_call_with_wrong_arguments_names_the_line_of_the_call(args, kwargs, text):
    with pytest.raises(UseError) as caught:
        call_here(never_written, *args, **kwargs)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == f"{marked_line(call_here)}: never_written: {text}"


def test_an_exception_of_the_users_own_leaves_the_kernel_as_it_is():
    class OwnError(Exception):
        pass

    @nki.jit
    def kernel(x):
        raise OwnError("mine")

    with pytest.raises(OwnError, match=r"^mine$"):
        kernel(ramp(2, 2))
    # and the next kernel runs
    with pytest.warns(NkilabWarning):
        half_written(ramp(2, 4))


def test_jit_decorates_functions_only():
    with pytest.raises(UseError) as caught:
        nki.jit(3)
    assert caught.value.where.startswith("test_beta1_errors.py:")
    assert str(caught.value).endswith(": nki.jit: it decorates functions; got int")
