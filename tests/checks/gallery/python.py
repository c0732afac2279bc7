"""Python that the compilers of NKI 0.1 to 0.6 do not take, what loses precision, and slow ways."""

from __future__ import annotations

import os
import time

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


@case(X)
@nki.jit
def wrong_try_in_a_kernel(x):
    tile, out = sb(), hbm()
    try:  # finds: unsupported-python
        nisa.dma_copy(tile, x)
    finally:
        nisa.dma_copy(out, tile)
    return out


@case(X)
@nki.jit
def wrong_a_set_and_an_import(x):
    import math  # finds: unsupported-python

    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    for by in {math.pi}:  # finds: unsupported-python
        nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=by)
    nisa.dma_copy(out, tile)
    return out


@case(X)
@nki.jit
def right_loops_over_tuples(x):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    for by in (2.0, 3.0):
        nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=by)
    nisa.dma_copy(out, tile)
    return out


@case(X)
@nki.jit
def wrong_numbers_are_keys(x):
    tile, out = sb(), hbm()
    scales = {1: 2.0, 2: 4.0}  # finds: dictionary-key
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=scales[1])
    nisa.dma_copy(out, tile)
    return out


@case(X)
@nki.jit
def wrong_tiles_are_kept_by_their_number(x):
    out = hbm()
    tiles = {}
    for i in range(4):
        tiles[i] = sb((128, 128))  # finds: dictionary-key
        nisa.dma_copy(tiles[i], x[:, i * 128 : i * 128 + 128])
    for i in range(4):
        nisa.dma_copy(out[:, i * 128 : i * 128 + 128], tiles[i])
    return out


@case(X)
@nki.jit
def right_tiles_are_kept_by_their_name(x):
    out = hbm()
    tiles = {}
    for i in range(4):
        tiles[f"tile {i}"] = sb((128, 128))
        nisa.dma_copy(tiles[f"tile {i}"], x[:, i * 128 : i * 128 + 128])
    for i in range(4):
        nisa.dma_copy(out[:, i * 128 : i * 128 + 128], tiles[f"tile {i}"])
    return out


@case(X)
@nki.jit
def right_words_are_keys(x):
    tile, out = sb(), hbm()
    scales = {"one": 2.0, "two": 4.0}
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=scales["one"])
    nisa.dma_copy(out, tile)
    return out


class Plain:
    def __init__(self, by):
        self.by = by


class Known(nl.NKIObject):
    by: float = 2.0


@case(X)
@nki.jit
def wrong_an_object_of_a_plain_class(x):
    tile, out = sb(), hbm()
    scale = Plain(2.0)  # finds: class-base
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=scale.by)
    nisa.dma_copy(out, tile)
    return out


@case(X)
@nki.jit
def right_an_object_of_a_known_class(x):
    tile, out = sb(), hbm()
    scale = Known(2.0)
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=scale.by)
    nisa.dma_copy(out, tile)
    return out


@case(X)
@nki.jit
def wrong_a_keyword_only_parameter(x, *, by=2.0):  # finds: kernel-parameters
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=by)
    nisa.dma_copy(out, tile)
    return out


@case(X)
@nki.jit
def wrong_a_list_is_a_default(x, scales=[2.0]):  # noqa: B006  # finds: kernel-parameters
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=scales[0])
    nisa.dma_copy(out, tile)
    return out


@case(X)
@nki.jit
def right_a_tuple_is_a_default(x, scales=(2.0,)):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=scales[0])
    nisa.dma_copy(out, tile)
    return out


@case(X, version="0.7")
@nki.jit
def right_nki_0_7_traces_any_python(x, *, by=2.0):
    tile, out = sb(), hbm()
    try:
        nisa.dma_copy(tile, x)
    finally:
        nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=by)
    nisa.dma_copy(out, tile)
    return out


@case(X)
@nki.jit
def wrong_the_environment_decides(x):
    tile, out = sb(), hbm()
    by = float(os.getenv("NKILAB_TEST_SCALE", "2"))  # finds: impure-kernel
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=by)
    nisa.dma_copy(out, tile)
    return out


@case(X)
@nki.jit
def wrong_the_clock_decides(x):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=float(time.time() > 0))  # finds: impure-kernel
    nisa.dma_copy(out, tile)
    return out


@case(X)
@nki.jit
def right_the_argument_is_the_result(x):
    tile = sb()
    nisa.memset(tile, 0.0)
    nisa.dma_copy(x, tile)


CALLS = [0]


@case(X)
@nki.jit
def wrong_calls_are_counted(x):
    tile, out = sb(), hbm()
    CALLS[0] += 1  # finds: impure-kernel
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile)
    return out


def logged(kernel):
    """What decorates a kernel runs on the host, and may be any Python."""
    try:
        CALLS.append(1)
    finally:
        del CALLS[1:]
    return kernel


@case(X)
@logged
@nki.jit
def right_a_decorator_may_be_any_python(x):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile)
    return out


@case(X)
@nki.jit
def right_an_argument_decides(x, by=2.0):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=by)
    nisa.dma_copy(out, tile)
    return out


@case("f32[4,128,512]")
@nki.jit
def wrong_a_hardware_loop_is_left(x):
    out = hbm((4, 128, 512))
    for i in nl.dynamic_range(4):
        tile = sb()
        nisa.dma_copy(tile, x[i])
        nisa.dma_copy(out[i], tile)
        continue  # finds: dynamic-exit
    return out


@case("f32[4,128,512]")
@nki.jit
def right_a_hardware_loop_runs_to_its_end(x):
    out = hbm((4, 128, 512))
    for i in nl.dynamic_range(4):
        tile = sb()
        nisa.dma_copy(tile, x[i])
        nisa.dma_copy(out[i], tile)
    return out


@case("bf16[128,128]", "bf16[128,1024]")
@nki.jit
def wrong_the_moving_tile_is_too_wide(a, b):
    left, right = sb((128, 128), nl.bfloat16), sb((128, 1024), nl.bfloat16)
    total = nl.ndarray((128, 1024), nl.float32, buffer=nl.psum)
    nisa.dma_copy(left, a)
    nisa.dma_copy(right, b)
    nisa.nc_matmul(total, left, right)  # finds: kernel-error
    return total


@case("f32[128,512]", grid=2)
@nki.jit
def wrong_only_one_core_comes_to_the_barrier(x):
    tile, out = sb(), hbm((2, 128, 512))
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out[nl.program_id(0)], tile)
    if nl.program_id(0) == 1:
        nisa.core_barrier(out, (0, 1))  # finds: deadlock
    return out


# ---- precision


@case("f32[1,1]", numerics=True)
@nki.jit
def wrong_a_long_sum_in_bfloat16(x):
    tile, total, out = (sb((128, 64), nl.bfloat16), sb((128, 64), nl.bfloat16), hbm((128, 64), nl.bfloat16))
    nisa.memset(tile, 1.0)
    nisa.memset(total, 0.0)
    for _ in range(266):
        nisa.tensor_tensor(total, total, tile, op=nl.add)  # finds: numerics-lost-sum
    nisa.dma_copy(out, total)
    return out


@case("f32[1,1]", numerics=True)
@nki.jit
def right_a_long_sum_in_float32(x):
    tile, total, out = (sb((128, 64), nl.bfloat16), sb((128, 64)), hbm((128, 64)))
    nisa.memset(tile, 1.0)
    nisa.memset(total, 0.0)
    for _ in range(266):
        nisa.tensor_tensor(total, total, tile, op=nl.add)
    nisa.dma_copy(out, total)
    return out


@case("f32[1,1]", numerics=True)
@nki.jit
def wrong_scores_overflow_in_float16(x):
    scores, out = sb((128, 64), nl.float16), hbm((128, 64), nl.float16)
    nisa.memset(scores, 12.0)
    nisa.activation(scores, op=nl.exp, data=scores)  # finds: numerics-overflow
    nisa.dma_copy(out, scores)
    return out


@case("f32[1,1]", numerics=True)
@nki.jit
def right_the_maximum_is_subtracted_first(x):
    scores, out = sb((128, 64), nl.float16), hbm((128, 64), nl.float16)
    nisa.memset(scores, 12.0)
    nisa.tensor_scalar(scores, scores, op0=nl.subtract, operand0=12.0)
    nisa.activation(scores, op=nl.exp, data=scores)
    nisa.dma_copy(out, scores)
    return out


@case("f32[1,1]", numerics=True)
@nki.jit
def wrong_a_variance_cancels_in_bfloat16(x):
    tile, other, out = sb((128, 64), nl.bfloat16), sb((128, 64), nl.bfloat16), hbm((128, 64), nl.bfloat16)
    nisa.memset(tile, 300.0)
    nisa.tensor_scalar(other, tile, op0=nl.add, operand0=0.5)
    nisa.tensor_tensor(other, other, tile, op=nl.subtract)  # finds: numerics-divergence
    nisa.dma_copy(out, other)
    return out


@case("f32[1,1]", numerics=True)
@nki.jit
def right_a_variance_in_float32(x):
    tile, other, out = sb((128, 64)), sb((128, 64)), hbm((128, 64), nl.bfloat16)
    nisa.memset(tile, 300.0)
    nisa.tensor_scalar(other, tile, op0=nl.add, operand0=0.5)
    nisa.tensor_tensor(other, other, tile, op=nl.subtract)
    nisa.dma_copy(out, other)
    return out


# ---- other orders


@case("f32[1,512]", "i32[1,1]", replay=6)
@nki.jit
def wrong_a_result_depends_on_timing(x, position):
    row, place, back = sb((1, 512)), sb((1, 1), nl.int32), sb((1, 512))
    source, out = hbm((4, 512)), hbm((1, 512))
    nisa.dma_copy(row, x)
    nisa.dma_copy(place, position)
    nisa.memset(back, 0.0)
    nisa.dma_copy(source[0:1], back)
    nisa.dma_copy(source.ap(pattern=[[512, 1], [1, 512]], scalar_offset=place, indirect_dim=0), row)
    nisa.dma_copy(back, source[0:1])  # finds: race-dynamic-hbm, order-changes-result
    nisa.dma_copy(out, back)
    return out


@case("f32[128,512]", replay=6)
@nki.jit
def right_a_result_does_not_depend_on_timing(x):
    a, b, out = sb(), sb(), hbm((2, 128, 512))
    nisa.dma_copy(a, x)
    nisa.dma_copy(out[0], a)
    nisa.memset(b, 1.0)
    nisa.dma_copy(out[1], b)
    return out


# ---- speed


@case("f32[128,8192]")
@nki.jit
def wrong_narrow_stripes(x):
    out = hbm((128, 8192))
    for i in range(128):
        tile = sb((128, 64))
        # one piece, whose places are both lines
        nisa.dma_copy(tile, x[:, i * 64 : (i + 1) * 64])  # finds: contiguous_rows
        nisa.dma_copy(out[:, i * 64 : (i + 1) * 64], tile)
    return out


@case("f32[16,128,2048]")
@nki.jit
def wrong_one_buffer_for_all_loads(x):
    out, tile = hbm((16, 128, 2048)), sb((128, 2048))
    for i in range(16):
        nisa.dma_copy(tile, x[i])  # finds: buffers
        scaled = sb((128, 2048))
        nisa.activation(scaled, op=nl.exp, data=tile)
        nisa.dma_copy(out[i], scaled)
    return out


@case("f32[128,512]")
@nki.jit
def wrong_functions_alternate(x):
    tile, out = sb(), hbm((16, 128, 512))
    nisa.dma_copy(tile, x)
    for i in range(8):
        one, two = sb(), sb()
        nisa.activation(one, op=nl.exp, data=tile)
        nisa.activation(two, op=nl.gelu, data=tile)  # finds: table_reload
        nisa.dma_copy(out[2 * i], one)
        nisa.dma_copy(out[2 * i + 1], two)
    return out


@case("bf16[16,128]", "bf16[16,512]")
@nki.jit
def wrong_a_short_contraction(a, b):
    left, right = sb((16, 128), nl.bfloat16), sb((16, 512), nl.bfloat16)
    total, result, out = nl.ndarray((128, 512), nl.float32, buffer=nl.psum), sb(), hbm()
    nisa.dma_copy(left, a)
    nisa.dma_copy(right, b)
    for k in range(256):
        nisa.nc_matmul(total, left, right, accumulate=k > 0)  # finds: combine_products
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out, result)
    return out
