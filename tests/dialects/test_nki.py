"""Kernels of `nki`: the destination comes first, views are slices, nothing is returned."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dialects.spellings import copied_in, copied_out, marked_line, program_of, ramp, refusal, traced
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl

import nkilab
from nkilab.errors import LimitError, RuleError, SpellingError, UseError

RNG = np.random.default_rng(6)


@nki.jit
def by_position_and_keyword(x, y):
    a, b = copied_in(x), copied_in(y)
    nisa.tensor_tensor(a, a, b, nl.add)
    nisa.tensor_tensor(dst=b, data1=a, data2=b, op=nl.multiply)
    nisa.tensor_scalar(dst=b, data=b, op0=nl.subtract, operand0=1.0, reverse0=True)
    nisa.activation(b, nl.relu, b)
    return copied_out(b)


def test_instructions_take_their_operands_by_position_and_by_keyword():
    x, y = (RNG.integers(-3, 4, (8, 6)).astype(np.float32) for _ in range(2))
    np.testing.assert_array_equal(by_position_and_keyword(x, y), np.maximum(1 - (x + y) * y, 0))
    assert traced(by_position_and_keyword, x, y) == [
        "dma_copy", "dma_copy", "tensor_tensor", "tensor_tensor", "tensor_scalar", "activation", "dma_copy",
    ]  # fmt: skip


@nki.jit
def blocked_product(a, b):
    out = nl.ndarray((a.shape[1], b.shape[1]), nl.float32, buffer=nl.shared_hbm)
    psum = nl.ndarray(out.shape, nl.float32, buffer=nl.psum)
    for k in nl.affine_range(a.shape[0] // 32):
        rows = nl.ds(k * 32, 32)
        nisa.nc_matmul(dst=psum, stationary=copied_in(a[rows]), moving=copied_in(b[rows, :]))
    tile = nl.ndarray(out.shape, nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(tile, psum)
    nisa.dma_copy(out, tile)
    return out


def test_matmuls_into_one_psum_tile_accumulate():
    a, b = (RNG.integers(-4, 5, (96, n)).astype(np.float32) for n in (16, 24))
    np.testing.assert_array_equal(blocked_product(a, b), a.T @ b)


def selected(body):
    """A kernel that copies what `body` selects of its input to a result."""

    @nki.jit
    def kernel(x):
        part = body(x)
        out = nl.ndarray(part.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=part)
        return out

    return kernel


SELECTIONS = {
    "slice": lambda t: t[1:3, 2:5],
    "step": lambda t: t[0:4:2, 1:6:3],
    "negative": lambda t: t[-2:, :-1],
    "integer": lambda t: t[2, 1:5],
    "negative integer": lambda t: t[-1],
    "ellipsis": lambda t: t[..., 0:2],
    "nested": lambda t: t[1:4][1:3, 2:],
}


@pytest.mark.parametrize("word", SELECTIONS)
def test_a_subscript_of_an_hbm_tensor_selects_what_numpy_does(word):
    x = ramp(4, 6)
    np.testing.assert_array_equal(selected(SELECTIONS[word])(x), SELECTIONS[word](x))


def test_ds_is_a_start_and_a_size():
    x = ramp(4, 6)
    np.testing.assert_array_equal(selected(lambda t: t[nl.ds(1, 2), nl.ds(3, 3)])(x), x[1:3, 3:6])


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ((slice(None), 1), (4, 5)), ((slice(None), 1, 2), (4, 1)), (2, (1, 3, 5)), ((2, 1), (1, 5)),
         ((2, 1, 0), (1, 1)),
        ((Ellipsis, 4), (4, 3)),
    ],
    ids=str,
)  # fmt: skip
def test_a_view_on_chip_keeps_its_partition_axis_and_two_axes(key, shape):
    seen = []

    @nki.jit
    def kernel(x):
        tile = copied_in(x)
        seen.append(tile[key].shape)
        return copied_out(tile)

    kernel(ramp(4, 3, 5))
    assert seen == [shape]


@nki.jit
def views_written(x):
    tile = copied_in(x)
    flat = tile.reshape((4, 6))
    nisa.memset(dst=flat[:, 4:6], value=-1.0)
    bits = tile.view(nl.int32)
    nisa.tensor_scalar(dst=bits[:, 0], data=bits[:, 0], op0=nl.bitwise_xor, operand0=-(2**31))
    return copied_out(tile), tile.reshape((4, 6)).shape


def test_a_view_writes_through_to_its_tile():
    x = ramp(4, 3, 2) + 1
    expected = x.copy()
    expected.reshape(4, 6)[:, 4:] = -1
    expected[:, 0] *= -1
    out, shape = views_written(x)
    np.testing.assert_array_equal(out, expected)
    assert shape == (4, 6)


def test_a_member_of_an_enumeration_may_be_given_by_its_number():
    @nki.jit
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x, dge_mode=3)
        return copied_out(tile)

    form = program_of(kernel, ramp(2, 2)).forms[0]
    assert form.dge_mode == "none"  # nki.isa.dge_mode: unknown 0, swdge 1, hwdge 2, none 3


def test_a_tensor_is_true_because_there_is_one():
    seen = []

    @nki.jit
    def kernel(x):
        seen.append(bool(copied_in(x)))
        return copied_out(copied_in(x))

    kernel(np.zeros((2, 2), np.float32))
    assert seen == [True]


def test_a_buffer_is_equal_to_the_region_that_it_was_allocated_in():
    seen = []

    @nki.jit
    def kernel(x):
        tile = nl.ndarray((4, 3), nl.bfloat16, buffer=nl.psum)
        out = nl.ndarray((2, 2), nl.float32, buffer=nl.shared_hbm)
        seen.append([tile.buffer == nl.psum, tile.buffer == nl.sbuf, out.buffer == nl.shared_hbm])
        seen.append([x.buffer in (nl.hbm, nl.shared_hbm), nl.ndarray((2, 2), nl.int8, tile.buffer).buffer])
        nisa.dma_copy(dst=out, src=x)
        return out

    kernel(ramp(2, 2))
    assert seen == [[True, False, True], [True, "psum"]]


def test_a_tensor_tells_its_shape_type_memory_and_name():
    seen = []

    @nki.jit
    def kernel(x):
        tile = nl.ndarray((4, 3), nl.bfloat16, buffer="psum", name="acc")
        seen.append((tile.shape, tile.ndim, tile.size, tile.dtype, tile.buffer, tile.name, len(tile)))
        seen.append((x.dtype, x.buffer, x.name, nl.float32))
        return copied_out(copied_in(x))

    kernel(ramp(2, 2, dtype=np.int16))
    assert seen == [((4, 3), 2, 12, "bfloat16", "psum", "acc", 4), ("int16", "hbm", "x", "float32")]


@pytest.mark.parametrize(
    ("loop", "values"),
    [
        (lambda: nl.affine_range(3), [0, 1, 2]), (lambda: nl.sequential_range(1, 4), [1, 2, 3]),
        (lambda: nl.static_range(0, 6, 2), [0, 2, 4]), (lambda: nl.affine_range(start=1, stop=3), [1, 2]),
        (lambda: nl.affine_range(4, stop=None, step=3), [0, 3]), (lambda: nl.affine_range(1, 9, step=4),
         [1, 5]),
    ],
)  # fmt: skip
def test_ranges_take_their_bounds_by_position_and_by_keyword(loop, values):
    seen = []

    @nki.jit
    def kernel(x):
        seen.extend(loop())
        return copied_out(copied_in(x))

    kernel(ramp(2, 2))
    assert seen == values


def test_a_kernel_is_simulated_with_and_without_a_grid():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        rows = x.shape[0] // nl.num_programs(0)
        nisa.dma_copy(dst=out[i * rows : (i + 1) * rows], src=x[i * rows : (i + 1) * rows])
        return out

    x = ramp(4, 3)
    for run in (kernel, kernel[2], nki.simulate(kernel), nki.simulate(kernel[2]), nkilab.simulate(kernel[2])):
        np.testing.assert_array_equal(run(x), x)


def test_a_plain_function_can_be_simulated():
    np.testing.assert_array_equal(nki.simulate(lambda x: copied_out(copied_in(x)))(ramp(2, 2)), ramp(2, 2))


def test_device_print_takes_a_prefix_and_a_tensor(capsys):
    @nki.jit
    def kernel(x):
        tile = copied_in(x)
        nl.device_print("tile ", tile)
        return copied_out(tile)

    kernel(ramp(1, 3))
    assert capsys.readouterr().out == "tile [[0. 1. 2.]]\n"


def test_types_are_their_names_and_regions_print_as_written():
    assert (nl.float32, nl.bfloat16, nl.float8_e4m3, nl.int8) == (
        "float32",
        "bfloat16",
        "float8_e4m3",
        "int8",
    )
    assert (repr(nl.sbuf), repr(nl.shared_hbm), repr(nl.add)) == ("nl.sbuf", "nl.shared_hbm", "nl.add")


def test_a_row_of_one_partition_is_named_by_name():
    program = program_of(by_position_and_keyword, ramp(2, 2), ramp(2, 2))
    assert [s.name for s in program.storages[:2]] == ["x", "y"]


def unknown_keyword(x):
    nisa.tensor_copy(dst=x, source=x)  # refused


def mask_keyword(x):
    nisa.memset(dst=copied_in(x), value=0, mask=None)  # refused


def no_operand(x):
    nisa.nc_matmul(copied_in(x))  # refused


def word_called(x):
    nl.bypass(copied_in(x))  # refused


def assigned_a_list(x):
    copied_in(x)[...] = [1]  # refused


def assigned_another_shape(x):
    copied_in(x)[...] = copied_in(x)[:, 0:2]  # refused


def added(x):
    copied_in(x) + copied_in(x)  # refused


def added_in_place(x):
    tile = copied_in(x)
    tile *= 2  # refused


def divides_a_number(x):
    1 / copied_in(x)  # refused


def compared(x):
    return copied_in(x) < 1  # refused


def many_partitions(x):
    nl.ndarray((129, 2), nl.float32)  # refused


def filled_hbm(x):
    nl.zeros((4, 4), nl.float32, buffer=nl.hbm)  # refused


def unknown_region(x):
    nl.ndarray((4, 4), nl.float32, buffer="dram")  # refused


def unknown_type(x):
    nl.ndarray((4, 4), "float128")  # refused


def outside(x):
    copied_in(x)[:, 2:9]  # refused


def array_as_subscript(x):
    x[np.array([0, 1])]  # refused


def tensor_as_subscript(x):
    x[copied_in(x)]  # refused


def partition_reshaped(x):
    copied_in(x).reshape((8, 3))  # refused


def reshaped_to_nothing(x):
    copied_in(x).reshape(())  # refused


def viewed_unevenly(x):
    copied_in(x)[:, 0:3].view(nl.bfloat16)[:, 0:5].view(nl.float32)  # refused


def printed_number(x):
    nl.device_print("x", 3)  # refused


def array_as_operand(x):
    nisa.tensor_copy(dst=np.zeros((4, 4)), src=x)  # refused


def number_as_operand(x):
    nisa.tensor_copy(dst=copied_in(x), src=3)  # refused


def unknown_engine(x):
    nisa.tensor_copy(copied_in(x), copied_in(x), engine="dma")  # refused


PARTITIONS = (
    "\n  hint: split the partition axis into tiles of 128\n  source: trn1 architecture guide, SBUF"
    "\n  key: err_num_partition_exceed_arch_limit"
)
NO_OPERATORS = (
    "a tensor takes part in the operator {0}, which nki does not have on tensors\n  hint: write {1}\n"
    "  source: NKI language guide"
)

TYPE_ERRORS = [
    (no_operand, SpellingError,
     "nc_matmul: stationary and moving are not given\n  hint: it takes dst, stationary, moving"),
    (word_called, SpellingError,
     "nl.bypass: nl.bypass is a word for op=, not a function\n"
     "  hint: use it as op=nl.bypass in nisa.tensor_tensor, tensor_scalar or activation\n"
     "  source: stubs of NKI 0.6"),
    (added, SpellingError, "operator +: "
     + NO_OPERATORS.format("+", "nisa.tensor_tensor(dst, tile, tile, op=nl.add)")),
    (added_in_place, SpellingError, "operator *: "
     + NO_OPERATORS.format("*", "nisa.tensor_scalar(dst, tile, op0=nl.multiply, operand0=2)")),
    (divides_a_number, SpellingError, "operator /: "
     + NO_OPERATORS.format("/", "nisa.tensor_scalar(dst, tile, op0=nl.divide, operand0=1, reverse0=True)")),
    (compared, SpellingError, "operator <: "
     + NO_OPERATORS.format(
         "<", "nisa.tensor_scalar(dst, tile, op0=nl.less, operand0=1), and choose by it with nl.where")),
]  # fmt: skip
VALUE_ERRORS = [
    (many_partitions, LimitError,
     "ndarray: number of partitions 129 exceed architecture limitation of 128" + PARTITIONS),
    (filled_hbm, RuleError,
     "zeros: an HBM tensor cannot be created with a value\n"
     "  hint: create it with nl.ndarray and copy a tile to it\n"
     "  key: err_hbm_tensor_with_init_value_not_supported"),
    (unknown_region, RuleError,
     "ndarray: buffer is 'dram'; it must be one of nl.sbuf, nl.psum, nl.hbm, nl.private_hbm, nl.shared_hbm"),
    (outside, UseError,
     "subscript: slice 2:9 is outside axis 1 of tile: float32[4, 6] in sbuf, which has 6 elements\n"
     "  hint: shrink the slice or mask the access\n  key: err_tensor_access_out_of_bound"),
    (array_as_subscript, UseError,
     "subscript: a subscript of x: float32[4, 6] in hbm is of type ndarray; subscripts are integers, "
     "slices and nl.ds"),
    (tensor_as_subscript, RuleError,
     "subscript: the index is float32[4, 6] in sbuf; it must be an integer in sbuf or a register"),
    (assigned_a_list, UseError,
     "assignment: the value is of type list; it must be a tensor or a number\n"
     "  hint: pass np.array(...) of it to the kernel"),
    (assigned_another_shape, RuleError,
     "assignment: the value is [4, 2] and its place [4, 6]; they must agree"),
    (partition_reshaped, RuleError,
     "reshape: a reshape from [4, 6] to [8, 3] changes the partition axis\n"
     "  tile: float32[4, 6] in sbuf\n  hint: keep the first extent"),
    (reshaped_to_nothing, RuleError,
     "reshape: a reshape from [4, 6] to [] changes the partition axis\n"
     "  tile: float32[4, 6] in sbuf\n  hint: keep the first extent"),
    (viewed_unevenly, RuleError,
     "view: a view of bfloat16[4, 5] in sbuf as float32 needs a contiguous last axis of a multiple of 4 "
     "bytes; it is 10 bytes with stride 1\n  tile: bfloat16[4, 5] in sbuf"),
    (printed_number, UseError, "device_print: tensor is of type int; it must be a tensor of the kernel"),
    (array_as_operand, UseError,
     "tensor_copy: an operand is of type ndarray; operands are tensors of the kernel or numbers\n"
     "  dst is of type ndarray\n"
     "  src = x: float32[4, 6] in hbm\n  hint: pass arrays as arguments of the kernel"),
    (number_as_operand, RuleError,
     "tensor_copy: src is a number; it must be a tile [P, F*]\n  dst = float32[4, 6] in sbuf\n  src = 3\n"
     "  source: nki.isa.tensor_copy"),
    (unknown_engine, RuleError,
     "tensor_copy: engine is 'dma'; it must be one of unknown, vector, scalar, gpsimd"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "text"), TYPE_ERRORS, ids=[r[0].__name__ for r in TYPE_ERRORS])
def test_a_form_that_nki_does_not_have_is_a_type_error(body, kind, text):
    assert refusal(nki.jit(body), ramp(4, 6), kind=kind, also=TypeError) == f"HERE: {text}"


@pytest.mark.parametrize(("body", "kind", "text"), VALUE_ERRORS, ids=[r[0].__name__ for r in VALUE_ERRORS])
def test_a_value_that_does_not_fit_is_a_value_error(body, kind, text):
    assert refusal(nki.jit(body), ramp(4, 6), kind=kind) == f"HERE: {text}"


def test_an_unknown_type_lists_the_known_ones():
    text = refusal(nki.jit(unknown_type), ramp(4, 6), kind=RuleError)
    assert text.startswith(
        "HERE: ndarray: dtype is float128; it must be one of float32, tfloat32, bfloat16, "
    )


def test_an_unknown_keyword_lists_the_known_ones_and_the_nearest():
    text = refusal(nki.jit(unknown_keyword), ramp(4, 6), kind=SpellingError, also=TypeError)
    assert text == (
        "HERE: tensor_copy: there is no keyword source; it takes dst, src, engine, name\n  hint: did you "
        "mean src?"
    )
    text = refusal(nki.jit(mask_keyword), ramp(4, 6), kind=SpellingError, also=TypeError)
    assert text == (
        "HERE: memset: nki has no keyword mask; NKI 0.1 removed it\n  hint: use slices that hold only the "
        "elements to compute on"
    )
    assert refusal(nki.jit(misspelt), ramp(4, 6), kind=SpellingError, also=TypeError) == (
        "HERE: tensor_copy: there is no keyword scr; it takes dst, src, engine, name\n  hint: did you mean "
        "src?"
    )


def misspelt(x):
    nisa.tensor_copy(copied_in(x), scr=x, src=x)  # refused


def test_an_instruction_outside_a_kernel_names_the_line():
    def host():
        nisa.memset(dst=None, value=0)  # refused

    with pytest.raises(UseError) as caught:
        host()
    assert str(caught.value).startswith(f"{marked_line(host)}: no kernel is running; NKI calls stand inside")


def test_a_kernel_shows_its_name():
    assert repr(by_position_and_keyword) == "<nki kernel by_position_and_keyword>"
    assert by_position_and_keyword.__name__ == "by_position_and_keyword"
