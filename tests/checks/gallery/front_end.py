"""What the front ends of NKI 0.1 to 0.6 were seen not to parse, and what their builds took."""

from __future__ import annotations

import math

import numpy as np

import nkilab
from tests.checks.gallery.case import case

with nkilab.activate():
    import nki
    import nki.isa as nisa
    import nki.language as nl

X = "f32[128,512]"


def sb(shape=(128, 512), dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def hbm(shape=(128, 512), dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def checked(width):
    if width > 512:
        raise ValueError("too wide")
    return 1.0 / width


def scaled(x, by):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=by)
    nisa.dma_copy(out, tile)
    return out


@case(X, elsewhere={"python-raise": 'raise ValueError("too wide")'})
@nki.jit
def wrong_a_helper_raises_where_nothing_is_wrong(x):
    return scaled(x, checked(512))


@case(X, version="0.7")
@nki.jit
def right_a_helper_raises_where_python_traces(x):
    return scaled(x, checked(512))


@case(X)
@nki.jit
def right_an_assertion_instead_of_a_raise(x):
    assert x.shape[1] <= 512, "too wide"
    return scaled(x, 1.0 / x.shape[1])


@case(X)
@nki.jit
def wrong_a_list_is_comprehended(x):
    parts = [float(i) for i in range(3)]  # finds: python-comprehension
    return scaled(x, parts[2])


@case(X)
@nki.jit
def wrong_a_list_is_comprehended_in_an_argument(x):
    return scaled(x, [2.0 * i for i in (1, 2)][1])  # finds: python-comprehension


@case(X)
@nki.jit
def right_a_list_is_filled_in_a_loop(x):
    parts = []
    for i in range(3):
        parts.append(float(i))
    return scaled(x, parts[2])


@case(X)
@nki.jit
def wrong_a_lambda_and_a_generator_are_uncertain(x):
    twice = lambda by: by * 2  # noqa: E731  # finds: python-expression
    return scaled(x, twice(sum(i for i in (1.0, 2.0))))  # finds: python-expression


@case(X)
@nki.jit
def wrong_a_tuple_is_unpacked_into_subscripts(x):
    pair = [1.0, 2.0]
    pair[0], pair[1] = pair[1], pair[0]  # finds: python-unpack
    return scaled(x, pair[0])


@case(X)
@nki.jit
def wrong_one_of_the_targets_is_a_subscript(x):
    pair = [1.0, 2.0]
    first, pair[1] = 3.0, 4.0  # finds: python-unpack
    return scaled(x, first * pair[1])


@case(X)
@nki.jit
def right_a_tuple_is_unpacked_into_names(x):
    pair = [1.0, 2.0]
    second, first = pair
    pair[0] = first
    return scaled(x, pair[0] * second)


@case(X, version="0.3")
@nki.jit
def wrong_a_function_within_a_kernel(x):
    def twice(by):  # finds: python-inner-function
        return by * 2

    return scaled(x, twice(2.0))


@case(X, version="0.6")
@nki.jit
def right_a_function_within_a_kernel_from_0_6_on(x):
    def twice(by):
        return by * 2

    return scaled(x, twice(2.0))


@case(X)
@nki.jit
def wrong_numpy_computes_a_number(x):
    by = float(np.log2(x.shape[1]))  # finds: python-numpy
    return scaled(x, by)


@case(X)
@nki.jit
def right_math_computes_a_number(x):
    return scaled(x, math.log2(x.shape[1]) * np.pi)


@case(X, version="0.4")
@nki.jit
def wrong_device_loops_are_nested_and_carry_a_tile(x):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    for _ in nl.dynamic_range(2):
        for _ in nl.dynamic_range(3):  # finds: nested-dynamic-range
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(out, tile)
    return out


@case(X, version="0.4")
@nki.jit
def right_device_loops_are_nested_and_carry_nothing(x):
    out = hbm()
    for _ in nl.dynamic_range(2):
        for _ in nl.dynamic_range(3):
            tile = sb()
            nisa.dma_copy(dst=tile, src=x)
            nisa.dma_copy(dst=out, src=tile)
    return out


@case(X, version="0.4")
@nki.jit
def right_the_outer_loop_is_unrolled(x):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    for _ in nl.static_range(2):
        for _ in nl.dynamic_range(3):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(out, tile)
    return out


@case("f32[128,128]", "f32[128,128]")
@nki.jit
def wrong_a_product_whose_left_side_is_not_transposed(x, y):
    out = hbm((128, 128))
    nl.store(out, nl.copy(nl.matmul(nl.load(x), nl.load(y))))  # finds: nl-matmul-transposed
    return out


@case("f32[128,128]", "f32[128,128]")
@nki.jit
def right_a_product_whose_left_side_is_transposed(x, y):
    out = hbm((128, 128))
    nl.store(out, nl.copy(nl.matmul(nl.load(x), nl.load(y), transpose_x=True)))
    return out


@case("f32[8,4,4]")
@nki.jit
def right_axes_of_one_do_not_count_for_a_transfer(x):
    # builds of 0.6 took a tile [C, 1, 1] for a place [C] in hbm
    tile, out = sb((8, 4, 4)), hbm((8, 4))
    nisa.dma_copy(tile, x)
    for i in range(4):
        total = nl.sum(tile[:, i : i + 1, :], axis=[1, 2], keepdims=True)
        out[:, i] = total
    return out


@case("f32[4,128]", "i32[1,1]", version="0.2")
@nki.jit
def wrong_an_offset_is_a_slice(x, at):
    index, tile, out = sb((1, 1), nl.int32), sb((1, 128)), hbm((1, 128))
    nisa.dma_copy(index, at)
    place = x.ap(pattern=[[128, 1], [1, 128]], scalar_offset=index[0:1, 0:1])  # finds: scalar-offset-slice
    nisa.dma_copy(tile, place)
    nisa.dma_copy(out, tile)
    return out


@case("f32[4,128]", "i32[1,1]", version="0.2")
@nki.jit
def right_an_offset_is_a_whole_tile(x, at):
    index, tile, out = sb((1, 1), nl.int32), sb((1, 128)), hbm((1, 128))
    nisa.dma_copy(index, at)
    nisa.dma_copy(tile, x.ap(pattern=[[128, 1], [1, 128]], scalar_offset=index))
    nisa.dma_copy(out, tile)
    return out


@case("f32[256,8]", target="trn1", version="0.3")
@nki.jit
def wrong_what_the_kernel_made_is_transposed_on_trn1(x):
    scratch, out = nl.ndarray((256, 8), x.dtype, buffer=nl.shared_hbm), hbm((8, 128))
    for i in range(2):
        nl.store(scratch[i * 128 : i * 128 + 128], nl.load(x[i * 128 : i * 128 + 128]))
    nl.store(out, nl.load_transpose2d(scratch[0:128]))  # finds: load-transpose-local
    return out


@case("f32[256,8]", version="0.3")
@nki.jit
def right_what_the_kernel_made_is_transposed_on_trn2(x):
    scratch, out = nl.ndarray((256, 8), x.dtype, buffer=nl.shared_hbm), hbm((8, 128))
    for i in range(2):
        nl.store(scratch[i * 128 : i * 128 + 128], nl.load(x[i * 128 : i * 128 + 128]))
    nl.store(out, nl.load_transpose2d(scratch[0:128]))
    return out
