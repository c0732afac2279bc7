"""What a Beta 1 kernel may not ask for: every message whole, with the built-in type that goes with it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dialects.spellings import marked_line, ramp, refusal
from tests.dialects.spellings import nisa1 as nisa
from tests.dialects.spellings import nki1 as nki
from tests.dialects.spellings import nl1 as nl

import nkilab
from nkilab.errors import LimitError, NkilabWarning, RuleError, SpellingError, UnsupportedError, UseError

ARGUMENTS = {"x": ramp(8, 6), "long": ramp(12800), "cube": ramp(4, 3, 5)}
TYPES = (
    "float32, tfloat32, bfloat16, float16, float8_e4m3, float8_e5m2, float8_e4m3fn, int32, int16, int8, "
    "uint32, uint16, "
    "uint8, bool"
)


def partitions(x):
    nl.ndarray((256, 4), nl.float32, buffer=nl.sbuf)  # refused


def partitions_of_a_fill(x):
    nl.zeros((nl.par_dim(129), 4), nl.float32, buffer=nl.psum)  # refused


def long_load(long):
    nl.load(long)  # refused


def wide_transposed_load(x):
    nl.load_transpose2d(x.reshape((1, 48)).broadcast_to((4, 48))[:, 0:48].reshape((1, 192)))  # refused


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
    nl.load(x)[:, 2:7]  # refused


def ds_outside(x):
    x[nl.ds(4, 5)]  # refused


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


def tile_as_index(x):
    index = nl.ndarray((8, 1), nl.int32)
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


BOUND = "\n  key: err_tensor_access_out_of_bound"
SMALLER = "\n  hint: shrink the slice or mask the access" + BOUND
MASKED = "\n  hint: mask the access: mask=(index < size)" + BOUND
BITS = "\n  key: err_control_flow_condition_depending_on_arange"
MEMORY = "\n  key: err_unsupported_memory"
LIMIT = (
    "\n  hint: split the partition axis into tiles of 128\n  source: trn1 architecture guide, SBUF"
    "\n  key: err_num_partition_exceed_arch_limit"
)
IN_HBM = "\n  hint: use nl.copy or nisa.tensor_copy within the chip" + MEMORY
OPERATORS = "invert, bitwise_and, bitwise_or, bitwise_xor, left_shift, right_shift, add, subtract, "
 "multiply, maximum, minimum, "

REFUSED = [
    (partitions, LimitError,
     "ndarray: number of partitions 256 exceed architecture limitation of 128" + LIMIT),
    (partitions_of_a_fill, LimitError,
     "ndarray: number of partitions 129 exceed architecture limitation of 128" + LIMIT),
    (long_load, LimitError,
     "load: number of partition in src[12800, 1] of 'load' exceed architecture limitation of 128.\n"
     "  src = long: float32[12800, 1] in hbm\n  hint: load tiles of 128 rows\n"
     "  key: err_num_partition_exceed_arch_limit"),
    (loads_from_sbuf, RuleError, 
     "load: src is in sbuf; load needs it in hbm\n  src = (unnamed): float32[8, 6] in sbuf" + IN_HBM),
    (stores_to_sbuf, RuleError, "store: dst is in sbuf; store needs it in hbm" + IN_HBM),
    (stores_from_hbm, RuleError, "store: value is in hbm; store needs it in sbuf or psum" + MEMORY),
    (loads_a_number, UseError, "load: src is of type int; it is a tensor in hbm"),
    (adds_words, UseError, "add: an argument is of type str; it is a tile or a number"),
    (adds_numbers, UseError, "add: both arguments are numbers; one is a tile"),
    (exp_of_a_number, UseError, "exp: the argument is the number 2.0; it is a tile"),
    (adds_shapes, RuleError, "add: shapes [8, 3] and [8, 2] do not broadcast"),
    (assigns_too_much, RuleError,
     "assignment: the destination [8, 3] is smaller than the value [8, 6]\n"
     "  key: err_store_dst_shape_smaller_than_other_shape"),
    (assigns_words, UseError, "assignment: a tile is assigned a str; it takes tiles and numbers"),
    (assigns_to_hbm, UseError,
     "assignment: an HBM tensor is assigned a number\n  hint: store a tile with nl.store"),
    (fills_hbm, UseError,
     "full: an HBM tensor cannot be created with a value\n  hint: create it with nl.ndarray and store a "
     "tile to it\n"
     "  key: err_hbm_tensor_with_init_value_not_supported"),
    (unknown_buffer, RuleError,
     "ndarray: buffer is 'sram'; it is nl.sbuf, nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm"),
    (float64_tile, RuleError,
     f"ndarray: dtype is float64; it is one of {TYPES}\n  hint: cast it on the host first"),
    (empty_tile, UseError,
     "ndarray: shape is [4, 0]; a tensor has at least one axis and one element along each"),
    (named_extent, UseError, "ndarray: shape is ['n', 4]; extents are whole numbers"),
    (index_outside, UseError,
     "subscript: index 8 is outside axis 0 of x: float32[8, 6] in hbm, which has 8 elements\n"
     "  hint: shrink the loop or mask the access" + BOUND),
    (negative_index_outside, UseError,
     "subscript: index -7 is outside axis 1 of x: float32[8, 6] in hbm, which has 6 elements\n"
     "  hint: shrink the loop or mask the access" + BOUND),
    (slice_outside, UseError,
     "subscript: slice 2:7 is outside axis 1 of (unnamed): float32[8, 6] in sbuf, which has 6 elements" + SMALLER),
    (ds_outside, UseError,
     "subscript: slice 4:9 is outside axis 0 of x: float32[8, 6] in hbm, which has 8 elements" + SMALLER),
    (empty_slice, UseError,
     "subscript: slice 4:4 of axis 0 of x: float32[8, 6] in hbm is empty; an access has at least one "
     "element"),
    (backward_slice, UseError, "subscript: slice 4:2:-1 has the step -1; steps are at least 1"),
    (too_many_subscripts, UseError,
     "subscript: 3 subscripts on x: float32[8, 6] in hbm, which has 2 axes" + BOUND),
    (word_as_subscript, UseError,
     "subscript: a subscript of x: float32[8, 6] in hbm is of type str; subscripts are integers, slices, "
     "nl.ds and "
     "index grids"),
    (word_in_a_slice, UseError, "subscript: the start of a slice is 'a'; it is a whole number"),
    (grid_outside, UseError,
     "dma_copy: indices 1 to 6 reach outside axis 1 of x: float32[8, 6] in hbm, which has 6 elements" + MASKED),
    (mask_lets_outside_through, UseError,
     "dma_copy: indices 0 to 6 reach outside axis 1 of x: float32[8, 6] in hbm, which has 6 elements" + MASKED),
    (assignment_outside, UseError,
     "assignment: indices -1 to 4 reach outside axis 1 of tile: float32[8, 6] in sbuf, which has 6 elements" + MASKED),
    (sum_in_place_outside, UseError,
     "add in place: indices 1 to 6 reach outside axis 1 of tile: float32[8, 6] in sbuf, which has 6 "
     "elements" + MASKED),
    (view_outside, UseError,
     "reshape: indices 1 to 6 reach outside axis 1 of x: float32[8, 6] in hbm, which has 6 elements\n"
     "  x: float32[8, 6] in hbm" + MASKED),
    (flat_arange, UseError,
     "subscript: a tile is indexed with an arange of one axis\n  hint: give it more axes: nl.arange(n)[:, "
     "None]\n"
     "  key: err_1d_arange_not_supported"),
    (mixed_subscripts, UseError,
     "subscript: a subscript mixes slices with index grids\n"
     "  hint: use slices for all axes, or index grids for all\n"
     "  key: err_unsupported_mixing_basic_advanced_tensor_indexing"),
    (ellipsis_before_a_grid, UseError,
     "subscript: a subscript mixes slices with index grids\n"
     "  hint: use slices for all axes, or index grids for all\n"
     "  key: err_unsupported_mixing_basic_advanced_tensor_indexing"),
    (grids_that_differ, UseError,
     "index grid: index grids of shapes [8, 1] and [6, 1] do not broadcast\n"
     "  hint: place their axes with None: i[:, None], j[None, :]"),
    (grids_in_a_subscript_that_differ, UseError,
     "subscript: index grids of shapes [8, 1] and [6, 1] do not broadcast\n"
     "  hint: place their axes with None: i[:, None], j[None, :]"),
    (product_of_grids, UnsupportedError,
     "index grid: the product of two index grids is not affine\n  hint: write it to a tile with "
     "nki.isa.iota"),
    (remainder_of_a_grid, UnsupportedError,
     "index grid: // and % of an index grid are not affine\n  hint: split the range so that each part is "
     "affine\n"
     "  key: err_unsupported_expression_in_mask"),
    (grid_subscript, UseError,
     "index grid: an index grid takes None and full slices as subscripts: nl.arange(n)[:, None]"),
    (grid_truth, UseError, "bool: the truth of an index grid is not defined\n  hint: use mask=" + BITS),
    (mask_truth, UseError,
     "bool: the truth of a mask is not defined\n  hint: join masks with & and pass them as mask=" + BITS),
    (tensor_truth, UseError,
     "bool: the truth of a tensor is not defined inside a kernel\n"
     "  hint: use ~, & and | on tiles, `is not None` for presence\n  key: err_ambiguous_tensor_truth_value"),
    (arange_of_words, UseError, "arange: a bound is 'n'; it is a whole number"),
    (arange_of_nothing, UseError,
     "arange: an index grid from 4 to 4 by 1 is empty; it holds an index or more"),
    (arange_without_bounds, UseError,
     "arange: 0 bounds are given; arange takes an end, a start and an end, or these and a step"),
    (mgrid_of_integers, UseError,
     "mgrid: a subscript of mgrid is no slice with an end\n  hint: write nl.mgrid[0:128, 0:512]"),
    (word_as_mask, UseError,
     "dma_copy: mask is of type str; it is a comparison of index grids\n"
     "  hint: write mask=(i_p < rows) with i_p = nl.arange(128)[:, None]"),
    (mask_of_another_shape, UseError, "dma_copy: the mask has shape [1, 5]; the tile it masks has [8, 6]"),
    (tile_as_index, UnsupportedError,
     "subscript: a tile is used as an index; indirect access is not modelled yet\n"
     "  key: err_copy_dynamic_indirect_indices_not_natively_supported"),
    (partition_sum, RuleError,
     "sum: axis holds 0, the partition axis; only free axes are reduced\n"
     "  hint: transpose the tile first, or multiply by a column of ones on TensorE\n  source: "
     "nki.isa.tensor_reduce"),
    (axis_beyond, RuleError, "max: axis is [1, 2]; the tile has 2 axes\n  source: nki.isa.tensor_reduce"),
    (word_as_axis, RuleError, "mean: axis is 'all'; it is an integer or a list of them"),
    (triangle_sum, UseError, "sum: the mask of a reduction is not a rectangle of the tile"),
    (transpose_of_a_cube, RuleError,
     "transpose: x is 3-dimensional [4, 3, 5]; it has two axes\n"
     "  (unnamed): float32[4, 3, 5] in sbuf\n  key: err_exceed_max_supported_dimension"),
    (reshape_of_the_partition, RuleError,
     "reshape: a reshape from [8, 6] to [4, 12] would split or join the partition axis\n"
     "  (unnamed): float32[8, 6] in sbuf\n  hint: keep the partition axis as it is"),
    (reshape_of_a_count, RuleError,
     "reshape: a tensor of 48 elements [8, 6] does not reshape to [7, 7], which has 49\n"
     "  x: float32[8, 6] in hbm"),
    (other_shape_asserted, UseError,
     "assert_shape: the shape is [8, 6]; [6, 8] is asserted\n  x: float32[8, 6] in hbm"),
    (broadcast_down, RuleError,
     "broadcast_to: shape [8, 6] does not broadcast to [8, 3]\n  (unnamed): float32[8, 6] in sbuf"),
    (axis_expanded_twice, UseError,
     "expand_dims: axis is (1, 1); the result has 4 axes, and each is named once\n  x: float32[8, 6] in hbm"),
    (loop_variable_missing, RuleError,
     "loop_reduce: loop_indices holds something that is no loop variable of affine_range"),
    (loop_that_cannot_reduce, RuleError, "loop_reduce: op is greater; it may not reduce"),
    (range_of_words, UseError, "affine_range: the end of a range is 'n'; it is a whole number"),
    (range_of_four, UseError,
     "sequential_range: 4 bounds are given; a range has an end, a start and an end, or these and a step"),
    (range_without_step, UseError, "static_range: the step of a range is 0; it is another whole number"),
    (program_axis, UseError, "program_id: axis is 'row'; it is a whole number"),
    (flat_iota, UseError,
     "iota: expr is no index expression of two or more axes\n  hint: give it axes with None: "
     "nl.arange(n)[:, None]"),
    (writes_an_input, UseError,
     "dma_copy: dst is an input of the kernel, which may not be written\n  dst = x: float32[8, 6] in hbm\n"
     "  src = float32[8, 6] in sbuf\n"
     "  hint: write to a tensor of its own, made with nl.ndarray(..., buffer=nl.shared_hbm)\n"
     "  key: err_cannot_update_immutable_parameter"),
    (computes_in_hbm, RuleError,
     "activation: data is in hbm; it is in sbuf or psum\n  dst = float32[8, 6] in sbuf\n"
     "  data = x: float32[8, 6] in hbm\n  scale = 1.0\n  hint: load it to sbuf first\n  source: "
     "nki.isa.activation" + MEMORY),
    (stores_too_much, RuleError,
     "dma_copy: dst and src hold different numbers of elements\n  dst = out: float32[8, 3] in hbm\n"
     "  src = float32[8, 6] in sbuf\n  hint: slice both sides to the same size\n"
     "  source: nki.isa.dma_copy, tile size"),
    (assigns_other_partitions, RuleError,
     "assignment: the value [8, 6] has 8 partitions; the destination [4, 12] has 4\n"
     "  key: err_num_partition_mismatch"),
    (psum_product, RuleError,
     "nc_matmul: stationary is in psum; it is in sbuf\n  dst = float32[6, 6] in psum\n"
     "  stationary = tile: float32[8, 6] in psum\n  moving = float32[8, 6] in sbuf\n"
     "  hint: copy it to sbuf first, with tensor_copy\n  source: nki.isa.nc_matmul" + MEMORY),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "text"), REFUSED, ids=[r[0].__name__ for r in REFUSED])
def test_a_refusal_names_the_line_what_is_wrong_and_what_to_do(body, kind, text):
    argument = ARGUMENTS[next(iter(body.__code__.co_varnames[:1]))]
    assert refusal(nki.jit(body), argument, kind=kind) == f"HERE: {text}"


# Refused as TypeError, as AWS documents them or because the call itself is wrong
TYPE_ERRORS = [
    (grid_assignment, UseError,
     "index grid: an index grid cannot be assigned to\n  hint: write it to a tile with nki.isa.iota\n"
     "  key: err_cannot_assign_to_index"),
    (element_truth, UseError,
     "bool: the truth of a tensor is not defined inside a kernel\n"
     "  hint: use ~, & and | on tiles, `is not None` for presence\n  key: "
     "err_dynamic_control_flow_not_supported"),
    (missing_operand, SpellingError, "tensor_tensor: data2 is not given"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "text"), TYPE_ERRORS, ids=[r[0].__name__ for r in TYPE_ERRORS])
def test_a_misuse_of_the_language_is_also_a_type_error(body, kind, text):
    assert refusal(nki.jit(body), ARGUMENTS["x"], kind=kind, also=TypeError) == f"HERE: {text}"


def test_an_unknown_operator_lists_the_known_ones():
    text = refusal(nki.jit(unknown_operator), ARGUMENTS["x"], kind=RuleError)
    assert text.startswith(f"HERE: tensor_scalar: op0 is plus; it is one of {OPERATORS}") or text.startswith(
        f"HERE: tensor_scalar: op is plus; it is one of {OPERATORS}"
    )


def test_a_wide_transposed_load_names_its_columns():
    text = refusal(nki.jit(lambda_of_wide), ramp(4, 192), kind=LimitError)
    assert text == (
        "HERE: load_transpose2d: src has 192 columns, which become partitions; trn2 has 128\n"
        "  key: err_num_partition_exceed_arch_limit"
    )


def lambda_of_wide(x):
    nl.load_transpose2d(x)  # refused


def test_an_api_outside_a_kernel_names_the_line():
    def host():
        nl.ndarray((4, 4), nl.float32)  # refused

    with pytest.raises(UseError) as caught:
        host()
    assert str(caught.value) == (
        f"{marked_line(host)}: no kernel is running; NKI calls stand inside a function that nki.jit "
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
    place = marked_line(tile_returned.__wrapped__)
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


def test_a_result_that_was_never_written_is_nan_and_warned_of():
    with pytest.warns(NkilabWarning) as caught:
        out = never_written(ramp(2, 4))
    assert [str(w.message) for w in caught] == [
        "never_written returns result: float32[2, 4] in hbm, which was never written"
    ]
    assert np.isnan(out).all()


def test_a_result_that_was_written_in_part_holds_the_unwritten_value_elsewhere():
    with pytest.warns(NkilabWarning) as caught:
        out = half_written(ramp(2, 4))
    assert len(caught) == 1
    assert str(caught[0].message).endswith("int16[2, 4] in hbm, which was written in part only")
    np.testing.assert_array_equal(out, [[0, 1, -(2**15), -(2**15)], [4, 5, -(2**15), -(2**15)]])


def call_here(kernel, *args, **kwargs):
    return kernel(*args, **kwargs)  # refused


CALLS = [
    ((), {}, "the arguments do not fit the kernel: missing a required argument: 'x'"),
    ((ramp(2, 2), ramp(2, 2)), {}, "the arguments do not fit the kernel: too many positional arguments"),
    ((), {"y": ramp(2, 2)}, "the arguments do not fit the kernel: missing a required argument: 'x'"),
    ((np.zeros((2, 2)),), {},
     f"argument x: dtype is float64; it is one of {TYPES}\n  hint: cast it on the host before the call"),
    ((np.array([[None]]),), {},
     f"argument x: dtype is object; it is one of {TYPES}\n  hint: cast it on the host before the call"),
    ((np.float32(1) * np.zeros(()),), {}, None),
    ((np.zeros((), np.float32)[...],), {},
     "argument x has shape []; a tensor has at least one element and axis"),
    ((np.zeros((0, 4), np.float32),), {},
     "argument x has shape [0, 4]; a tensor has at least one element and axis"),
    (([np.zeros((2, 2))],), {},
     f"argument x[0]: dtype is float64; it is one of {TYPES}\n  hint: cast it on the host before the call"),
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

    with pytest.raises(OwnError, match="^mine$"):
        kernel(ramp(2, 2))
    # and the next kernel runs
    with pytest.warns(NkilabWarning):
        never_written(ramp(2, 2))


def test_jit_decorates_functions_only():
    with pytest.raises(UseError) as caught:
        nki.jit(3)
    assert str(caught.value) == "nki.jit decorates functions; got int"
