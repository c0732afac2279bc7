"""Grids, program instances, nested kernels, loops, arguments and results of Beta 1 kernels."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
from tests.dialects.spellings import ncc1 as ncc
from tests.dialects.spellings import nisa1 as nisa
from tests.dialects.spellings import nki1 as nki
from tests.dialects.spellings import nl1 as nl
from tests.dialects.spellings import program_of, ramp

import nkilab
from nkilab.errors import RuleError, UseError


@nki.jit
def filled_by_instances(shape=(2, 3, 4)):
    out = nl.ndarray((24, 1), nl.int32, buffer=nl.shared_hbm)
    rank = nl.program_ndim()
    number = 0
    for axis in range(rank):
        number = number * nl.num_programs(axis) + nl.program_id(axis)
    assert nl.num_programs() == nl.num_programs(None)
    per_instance = 24 // nl.num_programs()
    for i in range(per_instance):
        row = number * per_instance + i
        nl.store(out[row : row + 1], nl.full((1, 1), row, nl.int32))
    return out


@pytest.mark.parametrize(
    "grid",
    [(), (1,), (24,), (2, 3), (4, 3), (2, 3, 4), (nl.nc(2), 6), (nl.spmd_dim(3, nl.nc(2)), 2)],
    ids=str,
)
def test_every_instance_writes_its_part_of_one_shared_tensor(grid):
    kernel = filled_by_instances[grid] if grid else filled_by_instances
    np.testing.assert_array_equal(kernel()[:, 0], np.arange(24))
    shared = [s for s in program_of(kernel).storages if s.scope == "shared"]
    assert len(shared) == 1


def test_a_single_number_is_a_grid_of_one_axis():
    np.testing.assert_array_equal(filled_by_instances[4]()[:, 0], np.arange(24))


def test_nc_times_an_extent_is_a_grid_axis_of_their_product():
    assert int(nl.nc(2) * 3) == 6 == int(3 * nl.nc(2)) == int(nl.spmd_dim(3, nl.nc(2)))
    assert nl.spmd_dim(3, nl.nc(2)).cores == 2


@pytest.mark.parametrize("grid", [0, -1, 2.5, "4", (2, 0), (None,)], ids=str)
def test_a_grid_of_anything_but_positive_integers_is_refused(grid):
    with pytest.raises(RuleError) as caught:
        filled_by_instances[grid]()
    shown = list(grid) if isinstance(grid, tuple) else [grid]
    assert str(caught.value).endswith(
        f": filled_by_instances: the grid is {shown}; extents are positive integers"
    )


@nki.jit
def two_shared(x):
    first = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    second = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    nl.store(first[i : i + 1], nl.load(x[i : i + 1]))
    nl.store(second[i : i + 1], nl.load(x[i : i + 1]) * 2.0)
    return first, second


def test_shared_tensors_of_one_shape_stay_apart():
    x = ramp(4, 3)
    first, second = two_shared[4](x)
    np.testing.assert_array_equal(first, x)
    np.testing.assert_array_equal(second, 2 * x)


@nki.jit
def disagreeing(x):
    out = nl.ndarray((nl.program_id(0) + 1, 3), x.dtype, buffer=nl.shared_hbm)
    nl.store(out, 0)
    return out


def test_instances_that_create_different_shared_tensors_are_refused():
    with pytest.raises(RuleError) as caught:
        disagreeing[2](ramp(4, 3))
    assert str(caught.value).split(": ", 1)[1] == (
        "ndarray: this instance creates float32[2, 3] where the first one created float32[1, 3]; instances "
        "share "
        "one storage\n  hint: create shared_hbm tensors in the same order in every program instance"
    )


@nki.jit
def scaled(tile, factor):
    return nisa.tensor_scalar(tile, op0=np.multiply, operand0=factor)


@nki.jit(mode="trace")
def moved(out, tile):
    nl.store(out, tile)


@nki.jit
def calls_kernels(x, factor=3.0, *, offset=1.0):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    moved(out, scaled(nl.load(x), factor) + offset)
    return out


def test_kernels_called_by_kernels_run_inline_on_tiles():
    x = ramp(4, 3)
    np.testing.assert_array_equal(calls_kernels(x), x * 3 + 1)
    np.testing.assert_array_equal(calls_kernels(x, 2.0, offset=-1.0), x * 2 - 1)
    np.testing.assert_array_equal(calls_kernels(x=x, factor=0.5), x * 0.5 + 1)


@nki.jit
def calls_a_grid(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    scaled[2](nl.load(x), 2.0)  # refused
    return out


def test_a_kernel_with_a_grid_inside_a_kernel_is_refused():
    from tests.dialects.spellings import refusal

    assert refusal(calls_a_grid, ramp(4, 3), kind=UseError) == (
        "HERE: scaled: scaled is called with a grid inside another kernel\n  hint: call it without a grid\n"
        "  key: err_nested_kernel_with_spmd_grid"
    )


Pair = namedtuple("Pair", "sums differences")


@nki.jit
def nested_arguments(pairs, options):
    results = []
    for x, y in pairs:
        sums = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        differences = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        a, b = nl.load(x), nl.load(y)
        nl.store(sums, (a + b) * options["scale"])
        nl.store(differences, nl.load(options["bias"]) + (a - b))
        results.append(Pair(sums, differences))
    return {"all": results, "count": len(results)}


def test_arrays_inside_lists_and_dictionaries_are_tensors_and_results_keep_their_nesting():
    x, y, bias = ramp(4, 3), -ramp(4, 3), ramp(4, 1)
    arguments = nested_arguments([[x, y], [y, x]], {"scale": 2.0, "bias": bias})
    assert arguments["count"] == 2
    assert isinstance(arguments["all"][0], Pair)
    np.testing.assert_array_equal(arguments["all"][0].differences, bias + 2 * x)
    np.testing.assert_array_equal(arguments["all"][1].sums, 0 * x)


@nki.jit
def reshaped_result(x):
    out = nl.ndarray((6, 4), x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out.reshape((2, 3, 4)), out[1:3, 2:4], out


def test_a_reshaped_or_sliced_output_is_returned_as_such():
    x = ramp(6, 4)
    cube, part, whole = reshaped_result(x)
    np.testing.assert_array_equal(cube, x.reshape(2, 3, 4))
    np.testing.assert_array_equal(part, x[1:3, 2:4])
    np.testing.assert_array_equal(whole, x)


def test_an_input_of_another_byte_order_is_read_by_value():
    x = ramp(4, 3).astype(">f4")
    np.testing.assert_array_equal(calls_kernels(x), ramp(4, 3) * 3 + 1)


def test_an_input_that_is_no_contiguous_array_is_read_by_value():
    x = ramp(3, 8)
    np.testing.assert_array_equal(calls_kernels(x.T[::2]), x.T[::2] * 3 + 1)
    np.testing.assert_array_equal(x, ramp(3, 8))


LOOPS = {"affine": nl.affine_range, "sequential": nl.sequential_range, "static": nl.static_range}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=list(LOOPS))
@pytest.mark.parametrize("bounds", [(5,), (1, 5), (5, 0, -2), (0, 9, 4), (3, 3)], ids=str)
def test_a_range_iterates_as_python_does(loop, bounds):
    @nki.jit
    def kernel():
        out = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
        seen.extend(loop(*bounds))
        assert len(loop(*bounds)) == len(range(*bounds))
        nl.store(out, 0)
        return out

    seen = []
    kernel()
    assert seen == list(range(*bounds))


def test_rows_of_a_loop_know_their_iteration():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(2):
            for j in nl.affine_range(3):
                # the product waits for a destination when its iteration ends
                nl.load(x[3 * i + j : 3 * i + j + 1]) * 2.0
        nl.store(out, 0)
        return out

    program = program_of(kernel, ramp(6, 2))
    places = [program.positions[p] for p in program.position_column]
    iterations = [(program.positions[outer][2], value) for outer, _, value in places[:12]]
    assert iterations == [(i, j) for i in range(2) for j in range(3) for _ in range(2)]
    assert places[12:] == [(-1, -1, 0)] * 2


@ncc.skip_middle_end_transformations
@nki.jit
def decorated_outside(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


@nki.jit
@ncc.enable_stack_allocator(log_level=10)
@ncc.force_auto_alloc
def decorated_inside(x):
    tile = nl.ndarray(x.shape, x.dtype, buffer=ncc.sbuf.auto_alloc())
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile[...] = nl.load(x)
    nl.store(out, tile)
    return out


def test_decorators_of_the_compiler_leave_values_alone():
    np.testing.assert_array_equal(decorated_outside(ramp(4, 3)), ramp(4, 3))
    np.testing.assert_array_equal(decorated_inside(ramp(4, 3)), ramp(4, 3))


def test_jit_is_a_decorator_with_options_and_a_function():
    def plain(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    x = ramp(4, 3)
    for kernel in (
        nki.jit(plain), nki.jit(mode="baremetal", show_compiler_tb=True)(plain), nki.jit(nki.jit(plain)),
    ):  # fmt: skip
        np.testing.assert_array_equal(kernel(x), x)
    np.testing.assert_array_equal(nki.simulate_kernel(plain, x), x)
    np.testing.assert_array_equal(nki.simulate_kernel(nki.jit(plain)[1], x), x)
    np.testing.assert_array_equal(nkilab.simulate(nki.jit(plain))(x), x)


def test_a_method_is_a_kernel():
    class Model:
        factor = 4.0

        @nki.jit
        def scaled(self, x):
            out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.load(x) * self.factor)
            return out

    np.testing.assert_array_equal(Model().scaled(ramp(4, 3)), ramp(4, 3) * 4)


def test_device_print_shows_the_elements_after_a_prefix(capsys):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x) * 2.0
        nl.device_print("twice: ", tile)
        nl.store(out, tile)
        return out

    kernel(ramp(1, 3))
    assert capsys.readouterr().out == "twice: [[0. 2. 4.]]\n"
    nkilab.estimate(kernel, nkilab.spec((1, 3), "float32"))
    assert capsys.readouterr().out == ""


# By hand from the architecture guides: bytes per partition a kernel may use, 4-byte elements of a bank
SIZES = {
    "trn1": {"pmax": 128, "psum_fmax": 512, "gemm_stationary_fmax": 128, "gemm_moving_fmax": 512,
    "sbuf_bytes": 180224},
    "trn2": {"pmax": 128, "psum_fmax": 512, "gemm_stationary_fmax": 128, "gemm_moving_fmax": 512,
    "sbuf_bytes": 212984},
    "trn3": {"pmax": 128, "psum_fmax": 512, "gemm_stationary_fmax": 128, "gemm_moving_fmax": 512,
    "sbuf_bytes": 245752},
}  # fmt: skip


@pytest.mark.parametrize("target", SIZES)
def test_tile_size_holds_the_limits_of_the_chip(target):
    seen = {}

    @nki.jit
    def kernel():
        sizes = nl.tile_size
        seen.update({n: getattr(sizes, n) for n in SIZES[target] if n != "sbuf_bytes"})
        seen["sbuf_bytes"] = sizes.total_available_sbuf_size
        assert (sizes.psum_num_banks, sizes.bn_stats_fmax, sizes.psum_bank_fmax_bytes) == (8, 512, 2048)
        out = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, 0)
        return out

    program_of(kernel, target=target)
    assert seen == SIZES[target]
    assert nl.tile_size.pmax == 128


def test_types_are_numpy_types_where_numpy_has_them():
    import ml_dtypes

    assert (nl.float32, nl.int8, nl.bool_, nl.bfloat16) == (np.float32, np.int8, np.bool_, ml_dtypes.bfloat16)
    assert nl.finfo(nl.bfloat16).max == ml_dtypes.finfo(ml_dtypes.bfloat16).max
    assert nl.fp32.min == np.finfo(np.float32).min
