"""Names and ways of Beta 1 that published kernels and host scripts use, stub or no stub."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy as np
import pytest
from tests.dialects.spellings import marked_line, nisa1, nki1, nl1, ramp, traced

import nkilab
from nkilab.checking import check
from nkilab.dialects.value_returning.program_ids import COLLECTIVES, PRIVATE
from nkilab.errors import DeadlockError, NkilabError, NkilabWarning, RuleError, UnsupportedError, UseError

with nkilab.activate():
    import neuronxcc.nki.language.constants as constants
    import neuronxcc.nki.typing as nt
    from neuronxcc.nki import nccl
    from neuronxcc.nki._private import private_api

nki, nl, nisa = nki1, nl1, nisa1


def first_line(body, *args):
    """The first line of the message of a kernel that is refused at its marked line."""
    with pytest.raises(NkilabError) as caught:
        nki.jit(body)(*args)
    return str(caught.value).splitlines()[0].removeprefix(f"{marked_line(body)}: ")


def test_static_cast_rounds_to_nearest_even_on_the_host():
    ties = np.array([1.0, 1.00390625, 1.01171875])  # ties between neighbours of 8 significant bits
    out = nl.static_cast(ties, nl.bfloat16)
    assert out.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(out.astype(float), [1, 1, 1.015625])
    assert nl.static_cast(2.5, np.int32) == 2
    assert nl.static_cast([[1.5]], "float16").shape == (1, 1)
    np.testing.assert_array_equal(nl.static_cast(np.float32([1 + 2**-11]), nl.tfloat32), np.float32([1]))


def test_constants_tell_sizes_and_patterns():
    assert [constants.sizeinbytes(t) for t in (np.float32, nl.bfloat16, nl.float8_e4m3)] == [4, 2, 1]
    assert nl.constants.sizeinbytes is constants.sizeinbytes
    assert (constants.sbuf_min_align, constants.psum_min_align) == (1, 4)
    assert np.float32(nisa.fp32.min).view(np.uint32) == 0xFF7FFFFF
    assert ml_dtypes.bfloat16(nl.bfp16.min).view(np.uint16) == 0xFF80
    assert nisa.dma_engine is nisa.engine.dma


def test_predefined_grids_are_those_of_a_product():
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((128, 512), a.dtype, buffer=nl.shared_hbm)
        left, right = nl.gemm_stationary_grid(), nl.gemm_grid()
        product = nisa.nc_matmul(nl.load(a[left.p, left.x]), nl.load(b[right.p, right.x]))
        nl.store(out[right.p, right.x], product)
        return out

    a, b = ramp(128, 128) % 7, ramp(128, 512) % 5
    np.testing.assert_array_equal(kernel(a, b), a.T @ b)


@nki.jit
def test_of_a_kernel(x, scale=2.0):  # noqa: PT028
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * scale)
    return out


def test_a_kernel_whose_name_begins_with_test_is_no_test():
    # had pytest taken the kernel above, no fixture would be called x
    assert str(inspect.signature(test_of_a_kernel)) == "(x, scale=2.0)"
    np.testing.assert_array_equal(test_of_a_kernel(ramp(2, 3)), 2 * ramp(2, 3))


@nki.jit(mode="simulation")
def tile_returned(x):
    return nl.load(x) + 1, nl.load(x)


def test_a_simulation_returns_tiles_on_chip_with_a_warning():
    x = ramp(4, 3)
    with pytest.warns(NkilabWarning) as caught:
        one_more, same = tile_returned(x)
    assert str(caught[0].message).endswith("float32[4, 3] in sbuf; on a device results lie in hbm")
    np.testing.assert_array_equal(one_more, x + 1)
    np.testing.assert_array_equal(same, x)


def test_simulate_kernel_returns_tiles_on_chip_and_a_call_does_not():
    @nki.jit
    def kernel(x):
        return nl.load(x)

    with pytest.warns(NkilabWarning, match="on a device results lie in hbm"):
        np.testing.assert_array_equal(nki.simulate_kernel(kernel, ramp(4, 3)), ramp(4, 3))
    with pytest.raises(RuleError, match="results lie in hbm"):
        kernel(ramp(4, 3))


@nki.jit
def joined_by_and(x, limit):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:6, 0:8]
    tile = nl.full((6, 8), -1.0, x.dtype)
    for i in nl.affine_range(3):
        tile[i_p, i_f] = nl.load(x[i_p, i_f], mask=(i_p < limit and i_f >= 2 * i and i_f < 2 * i + 1))
    nl.store(out, tile)
    return out


def test_python_and_joins_the_masks_of_a_call():
    x = ramp(6, 8)
    with pytest.warns(NkilabWarning) as caught:
        out = joined_by_and(x, 4)
    assert [str(w.message) for w in caught] == [
        "mask= joins masks with `and`, which Python does not define; read as &, write &"
    ]
    expected = np.full((6, 8), -1, np.float32)
    expected[:4, [0, 2, 4]] = x[:4, [0, 2, 4]]
    np.testing.assert_array_equal(out, expected)


def test_masks_joined_by_and_are_noted_and_fail_no_check():
    """A test of AWS's SDK for nc_match_replace8 joins masks so, and passes there."""
    (finding,) = [f for f in check(joined_by_and, ramp(6, 8), 4) if f.rule == "kernel-warning"]
    assert (finding.severity, finding.fails) == ("note", False)


def joined_before_the_call(x):
    i_p, i_f = nl.mgrid[0:6, 0:8]
    mask = i_p < 4 and i_f < 2  # refused
    nl.load(x, mask=mask)


def joined_by_or(x):
    i_p, i_f = nl.mgrid[0:6, 0:8]
    nl.load(x, mask=(i_p < 4 or i_f < 2))  # refused


@pytest.mark.parametrize("body", [joined_before_the_call, joined_by_or])
def test_and_elsewhere_and_or_are_refused(body):
    assert first_line(body, ramp(6, 8)) == "bool: the truth of a mask is not defined"


@nki.jit
def largest_of_a_part(x):
    out = nl.ndarray((8, 8), x.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:8, 0:32]
    tile = nl.load(x)
    largest, rest = nl.full((8, 8), -1.0, x.dtype), nl.full((8, 32), -1.0, x.dtype)
    largest[...] = nisa.max8(src=tile, mask=(i_p < 4) & (i_f < 16))
    rest[...] = nisa.nc_match_replace8(data=tile, vals=largest, imm=0.0, mask=(i_p < 4) & (i_f < 16))
    nl.store(out, largest)
    nl.store(left, rest)
    return out, left


def with_a_misspelt_keyword(x):
    i_p, i_f = nl.mgrid[0:8, 0:32]
    nisa.max8(src=nl.load(x), mask=(i_p < 4) & (i_f < 16), dtpye=nl.float32)  # refused


def test_a_misspelt_keyword_beside_a_mask_over_an_input_is_refused():
    assert first_line(with_a_misspelt_keyword, ramp(8, 32)) == (
        "max8: there is no keyword dtpye; it takes src, dtype, mask"
    )


def of_nothing(x):
    nl.shared_constant(np.zeros((0, 4), np.float32))  # refused


def test_a_constant_without_elements_is_refused_by_its_shape():
    assert first_line(of_nothing, ramp(4, 4)) == (
        "shared_constant: constant is an array [0, 4]; it must have an element or more"
    )


def test_a_mask_over_an_input_writes_the_rows_it_lets_through():
    x = ramp(8, 32) + 1
    expected, left = np.full((8, 8), -1, np.float32), np.full((8, 32), -1, np.float32)
    expected[:4] = x[:4, 15:7:-1]
    left[:4, :16] = np.where(np.arange(16) < 8, x[:4, :16], 0)
    out, rest = largest_of_a_part(x)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(rest, left)


@nki.jit
def slices_beyond_the_end(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(4)[:, None]
    for i in nl.affine_range(3):
        tile = nl.load(x[4 * i : 4 * i + 4, nl.ds(0, 5)], mask=4 * i + i_p < 10)
        nl.store(out[4 * i : 4 * i + 4, :], tile, mask=4 * i + i_p < 10)
    return out


def test_a_mask_crops_slices_that_end_beyond_their_axis():
    x = ramp(10, 5)
    np.testing.assert_array_equal(slices_beyond_the_end(x), x)


@nki.jit
def columns_of_a_tile(x):
    out = nl.ndarray((4, 2), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    column = tile[:, 1]
    assert column.shape == (4, 1)
    buffer = nl.ndarray((4, 2), x.dtype)
    buffer[:, 0] = nl.add(column, tile[:, 0][:, 0])
    buffer[:, 1] = column[0:4, 0]
    nl.store(out, buffer)
    return out


def test_a_column_of_a_tile_stays_a_tile():
    x = ramp(4, 3)
    np.testing.assert_array_equal(columns_of_a_tile(x), np.stack([x[:, 0] + x[:, 1], x[:, 1]], axis=1))


@nki.jit
def product_of_a_transpose(x, y):
    out = nl.ndarray((x.shape[0], y.shape[1]), np.float32, buffer=nl.shared_hbm)
    nl.store(out, nisa.nc_matmul(nisa.nc_transpose(nl.load(x)), nl.load(y)))
    return out


def test_a_product_that_is_assigned_nowhere_is_copied_for_the_next_one():
    x, y = ramp(6, 4) % 5, ramp(4, 3)
    np.testing.assert_array_equal(product_of_a_transpose(x, y), x @ y)
    assert traced(product_of_a_transpose, x, y)[1:4] == ["nc_transpose", "dma_copy", "tensor_copy"]


@nki.jit
def triangle_of_a_product(x):
    out = nl.ndarray((8, 8), np.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    product = nl.ndarray((8, 8), np.float32, buffer=nl.psum)
    product[...] = nisa.nc_matmul(tile, tile)
    i_p, i_f = nl.mgrid[0:8, 0:8]
    nl.store(out, nisa.affine_select(pred=i_p >= i_f, on_true_tile=product, on_false_value=-5.0))
    return out


def test_a_choice_on_gpsimd_takes_a_product_out_of_psum():
    x = ramp(8, 8)
    expected = np.where(np.tril(np.ones((8, 8), bool)), x.T @ x, -5)
    np.testing.assert_array_equal(triangle_of_a_product(x), expected)


@nki.jit
def quotients(x):
    floors = nl.ndarray(x.shape, np.int32, buffer=nl.shared_hbm)
    rounded = nl.ndarray(x.shape, np.int32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(floors, nl.floor(tile / 38, dtype=np.int32))
    nl.store(rounded, nl.divide(tile, 38, dtype=np.int32))
    return floors, rounded


def test_a_quotient_of_integers_keeps_its_fraction():
    x = np.array([[2224, 75, 38, 37]], np.int32)
    floors, rounded = quotients(x)
    np.testing.assert_array_equal(floors, x // 38)
    np.testing.assert_array_equal(rounded, [[59, 2, 1, 1]])


@nki.jit
def double_rows(x, y):
    out = nl.ndarray((4, 8), np.float32, buffer=nl.shared_hbm)
    nl.store(out, nisa.nc_matmul(nl.load(x), nl.load(y), perf_mode="double_row_gen3"))
    return out


def test_double_row_gen3_is_the_double_row_mode():
    x = (ramp(16, 2, 4) % 3).astype(ml_dtypes.float8_e5m2)
    y = (ramp(16, 2, 8) % 4).astype(ml_dtypes.float8_e5m2)
    expected = np.einsum("krm,krn->mn", x.astype(np.float32), y.astype(np.float32))
    np.testing.assert_array_equal(double_rows(x, y), expected)


@nki.jit
def doubled_until(x, limit):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    cond = nt.scalar(True)
    while cond:
        tile[...] = tile * 2.0
        cond = nt.scalar(tile[0, 0]) + 1 <= limit
    nl.store(out, tile)
    return out


# doubled at least once, as long as one more than the element is within the limit
@pytest.mark.parametrize(("start", "limit", "end"), [(1, 10, 16), (1, 0, 2), (3, 12.5, 12), (3, 13, 24)])
def test_a_loop_goes_on_while_an_element_says_so(start, limit, end):
    x = np.full((1, 1), start, np.float32)
    np.testing.assert_array_equal(doubled_until(x, limit), [[end]])


def test_an_element_that_decides_needs_data():
    with pytest.raises(UnsupportedError, match="only shapes are known"):
        nkilab.estimate(doubled_until, nkilab.spec((1, 1), "float32"), 10)


@nki.jit
def sums_of_tensors(a, b):
    same = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa._tiled_offloaded_memcpy(src=a, dst=same)
    nisa._tiled_offloaded_fma(a, b, scales=[2.0, 1], dst=out)
    return same, out


def test_offloaded_copies_and_sums_take_tensors_of_any_length():
    a, b = ramp(300, 5), -ramp(300, 5)
    same, out = sums_of_tensors(a, b)
    np.testing.assert_array_equal(same, a)
    np.testing.assert_array_equal(out, a)


@nki.jit
def reduced_over_programs(x, axes, op):
    i, j = nl.program_id(0), nl.program_id(1)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[i, j])
    total = nl.all_reduce(tile, op=op, program_axes=axes)
    # what this instance does next does not reach the others
    tile[...] = nl.zeros(tile.shape, tile.dtype)
    nl.store(out[i, j], total)
    return out


@pytest.mark.parametrize(("axes", "over"), [(0, 0), (1, 1), ((0, 1), (0, 1)), ([1, 0], (0, 1))])
@pytest.mark.parametrize("op", [np.add, np.maximum, np.multiply])
def test_a_reduction_over_programs_is_numpys(axes, over, op):
    x = np.random.default_rng(4).integers(-3, 4, (2, 3, 4, 5)).astype(np.float32)
    expected = np.broadcast_to(op.reduce(x, axis=over, keepdims=True), x.shape)
    np.testing.assert_array_equal(reduced_over_programs[2, 3](x, axes, op), expected)
    # over one instance alone it is the tile
    np.testing.assert_array_equal(reduced_over_programs[1, 1](x[:1, :1], axes, op), x[:1, :1])


def test_reductions_over_programs_follow_each_other_and_are_timed():
    @nki.jit
    def twice(x):
        i = nl.program_id(0)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        total = nl.all_reduce(nl.load(x[i]), op=np.add, program_axes=0)
        nl.store(out[i], nl.all_reduce(total * (i + 1.0), op=np.add, program_axes=0))
        return out

    x = ramp(3, 4, 5)
    # hand: (1 + 2 + 3) times the sum
    np.testing.assert_array_equal(twice[3](x), np.broadcast_to(6 * x.sum(0), x.shape))
    assert nkilab.estimate(twice[3], nkilab.spec(x.shape, "float32")).program.opcodes()["tensor_tensor"] == 12


def test_an_instance_that_does_not_come_to_a_reduction_is_a_deadlock():
    @nki.jit
    def leaves(x):
        tile = nl.load(x)
        if nl.program_id(0) != 1:
            tile = nl.all_reduce(tile, op=np.add, program_axes=0)  # refused
        return x

    with pytest.raises(DeadlockError) as caught:
        leaves[3](ramp(4, 3))
    here, tile_text = marked_line(leaves.function), "float32[4, 3] in sbuf"
    assert str(caught.value) == (
        f"{here}: all_reduce: nobody can run: each program waits for one that does not come\n"
        f"  instance [0] waits at {here} for all_reduce of {tile_text} with add over program axes [0]\n"
        "  instance [1] has returned\n"
        f"  instance [2] waits at {here} for all_reduce of {tile_text} with add over program axes [0]\n"
        "  hint: let all program instances along the axes come to the same calls of all_reduce, in the same "
        "order\n"
        "  source: nki.language.all_reduce"
    )


@pytest.mark.parametrize("grid", [(nl.nc(2), 3), (nl.nc(2) * 2, 2), (2, nl.spmd_dim(2, nl.nc(2)))])
@pytest.mark.parametrize(("axes", "over"), [(0, 0), (1, 1), ((0, 1), (0, 1))])
@pytest.mark.parametrize("op", [np.add, np.minimum])
def test_a_reduction_over_programs_of_two_cores_is_numpys(grid, axes, over, op):
    x = np.random.default_rng(5).integers(-3, 4, (*map(int, grid), 4, 5)).astype(np.float32)
    expected = np.broadcast_to(op.reduce(x, axis=over, keepdims=True), x.shape)
    np.testing.assert_array_equal(reduced_over_programs[grid](x, axes, op), expected)


@pytest.mark.parametrize("grid", [2, nl.nc(2)])
def test_instances_that_reduce_by_two_operators_do_not_meet(grid):
    @nki.jit
    def differs(x):
        tile = nl.load(x)
        nl.all_reduce(tile, op=np.maximum if nl.program_id(0) else np.add, program_axes=0)  # refused
        return x

    with pytest.raises(DeadlockError) as caught:
        differs[grid](ramp(4, 3))
    for name in ("add", "maximum"):
        assert f"all_reduce of float32[4, 3] in sbuf with {name} over program axes [0]" in str(caught.value)


def custom_operator(x):
    nisa.builtin_custom_op("f", "lib.so", 0, 0, [x], [x])  # refused


def copy_of_another_shape(x):
    nisa._tiled_offloaded_memcpy(src=x, dst=x[0:2])  # refused


def scale_missing(x):
    nisa._tiled_offloaded_fma(x, x, scales=[1.0], dst=x)  # refused


@pytest.mark.parametrize(("body", "line"), [
    (custom_operator,
     "builtin_custom_op: builtin_custom_op runs compiled code of the vendor's, which nkilab does not have"),
    (copy_of_another_shape, "_tiled_offloaded_memcpy: src is [4, 3] and dst [2, 3]; they must have "
                            "one shape"),
    (scale_missing, "_tiled_offloaded_fma: there are 2 sources and 1 scales; each source has one"),
])  # fmt: skip
def test_what_the_vendor_keeps_to_itself_is_refused(body, line):
    assert first_line(body, ramp(4, 3)) == line


@pytest.mark.parametrize(("module", "names"), [(private_api, PRIVATE), (nccl, COLLECTIVES)])
def test_private_names_are_importable_and_say_what_is_missing(module, names):
    for name in set(names) - {"sendrecv", "core_barrier"}:
        with pytest.raises(UnsupportedError, match=rf"{name} (has|is|moves)"):
            getattr(module, name)(1, key=2)


@nki.jit
def exchanged(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    me = nl.program_id(0)
    theirs = nl.ndarray(x.shape[1:], x.dtype)
    private_api.sendrecv(
        src=nl.load(x[me]) * 2, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0
    )
    nl.store(out[me], theirs)
    private_api.core_barrier(out, (0, 1))
    return out


def test_two_cores_exchange_tiles():
    x = ramp(2, 4, 3)
    np.testing.assert_array_equal(exchanged[nl.nc(2)](x), 2 * x[::-1])


def test_a_framework_kernel_points_to_the_kernel_itself():
    with pytest.raises(UnsupportedError, match=r"call the kernel that nki\.jit gives"):
        nki.FrameworkKernel().dump_config()


@pytest.mark.parametrize(
    ("module", "wrong", "right"), [(nl, "multipy", "multiply"), (nisa, "actvation", "activation")]
)
def test_a_wrong_name_is_told_the_right_one(module, wrong, right):
    with pytest.raises(AttributeError, match=f"did you mean {right}"):
        getattr(module, wrong)


def test_scalar_takes_one_element():
    def body(x):
        nt.scalar(nl.load(x))  # refused

    with pytest.raises(UseError) as caught:
        nki.jit(body)(ramp(4, 3))
    assert str(caught.value).splitlines()[0] == (
        f"{marked_line(body)}: scalar: value is (unnamed): float32[4, 3] in sbuf; it must have one element"
    )
