"""What builds refuse of an instruction on a chip or by a version, and what they took."""

from __future__ import annotations

import nkilab
from tests.checks.gallery.case import case

with nkilab.activate():
    import neuronxcc.nki as nki1
    import neuronxcc.nki.isa as nisa1
    import neuronxcc.nki.language as nl1
    import nki
    import nki.isa as nisa
    import nki.language as nl

X = "f32[128,512]"


def sb(shape=(128, 512), dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def hbm(shape=(128, 512), dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


@case(X, target="trn1")
@nki.jit
def wrong_an_activation_has_no_bias_on_trn1(x):
    out = hbm()
    tile = nl.load(x)
    nisa.activation(tile, op=nl.exp, data=tile)  # finds: activation-bias-number
    nl.store(out, nl.sqrt(tile))  # finds: activation-bias-number
    return out


@case(X, target="trn1")
@nki.jit
def right_copies_and_biases_of_tiles_on_trn1(x):
    zero, tile, out = sb((128, 1)), sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.memset(zero, 0.0)
    nisa.activation(tile, op=nl.copy, data=tile)
    nisa.activation(tile, op=nl.exp, data=tile, bias=zero)
    nisa.dma_copy(out, tile)
    return out


@case(X, target="trn2")
@nki.jit
def right_an_activation_has_no_bias_on_trn2(x):
    out = hbm()
    nl.store(out, nl.exp(nl.load(x)))
    return out


@case(X, target="trn1")
@nki1.jit
def right_beta_1_makes_the_bias_of_its_own(x):
    out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
    nl1.store(out, nl1.exp(nl1.load(x)))
    return out


@case(X)
@nki.jit
def wrong_columns_and_tiles_are_divided(x):
    column, tile, out = sb((128, 1)), sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.memset(column, 2.0)
    nisa.tensor_tensor(tile, tile, tile, op=nl.divide)  # finds: no-division
    nisa.tensor_scalar(tile, tile, op0=nl.mod, operand0=column)  # finds: no-division
    nisa.dma_copy(out, tile)
    return out


@case(X)
@nki1.jit
def right_beta_1_divides(x):
    out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
    tile = nl1.load(x)
    nl1.store(out, nl1.divide(tile, tile))
    return out


@case(X)
@nki.jit
def wrong_a_column_is_narrow(x):
    column, tile, out = sb((128, 1), nl.bfloat16), sb(), hbm()
    nisa.dma_copy(tile, x)
    nisa.memset(column, 2.0)
    nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=column)  # finds: operand-float32
    nisa.dma_copy(out, tile)
    return out


@case("i32[128,512]")
@nki.jit
def right_columns_of_bits_and_addresses_are_integers(x):
    column, tile, out = sb((128, 1), nl.int32), sb(dtype=nl.int32), hbm(dtype=nl.int32)
    nisa.dma_copy(tile, x)
    nisa.memset(column, 2)
    nisa.tensor_scalar(tile, tile, op0=nl.bitwise_and, operand0=column)
    nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=column)
    nisa.dma_copy(out, tile)
    return out


@case(X)
@nki1.jit
def wrong_a_transfer_of_beta_1_reads_one_row_for_all(x):
    out = nl1.ndarray((128, 512), x.dtype, buffer=nl1.shared_hbm)
    tile = nl1.ndarray((nl1.par_dim(128), 512), x.dtype, buffer=nl1.sbuf)
    p, f = nl1.arange(128)[:, None], nl1.arange(512)[None, :]
    nisa1.dma_copy(dst=tile[p, f], src=x[3 + p * 0, f])  # finds: dma-broadcast
    nl1.store(out, tile)
    return out


@case(X)
@nki1.jit
def right_a_row_is_loaded_once_and_broadcast(x):
    out = nl1.ndarray((128, 512), x.dtype, buffer=nl1.shared_hbm)
    row = nl1.load(x[3:4])
    nl1.store(out, nl1.add(nl1.load(x), row.broadcast_to((128, 512))))
    return out


# nki-library copies the odd half first, "required for tensor_tensor base partition alignment"
@case(X)
@nki.jit
def wrong_halves_of_a_tile_are_added_where_they_lie(x):
    tile, total, out = sb(), sb((64, 512)), hbm((64, 512))
    nisa.dma_copy(tile, x)
    nisa.tensor_tensor(total, tile[0:64], tile[64:128], op=nl.add)  # finds: input-partitions
    nisa.dma_copy(out, total)
    return out


@case(X)
@nki.jit
def right_a_half_is_copied_and_the_sum_lies_at_other_partitions(x):
    tile, odd, out = sb(), sb((64, 512)), hbm((64, 512))
    nisa.dma_copy(tile, x)
    nisa.tensor_copy(odd, tile[64:128])
    nisa.tensor_tensor(tile[64:128], tile[0:64], odd, op=nl.add)
    nisa.dma_copy(out, tile[64:128])
    return out


@case(X)
@nki.jit
def right_one_of_two_inputs_at_different_partitions_is_in_psum(x):
    tile, out = sb(), hbm((64, 512))
    sums = nl.ndarray((64, 512), nl.float32, buffer=nl.psum)
    nisa.dma_copy(tile, x)
    nisa.tensor_copy(sums, tile[0:64])
    nisa.tensor_tensor(tile[0:64], sums, tile[64:128], op=nl.add)
    nisa.dma_copy(out, tile[0:64])
    return out


@case(X)
@nki.jit
def wrong_squares_are_summed_at_once(x):
    total, tile, out = sb((128, 1)), sb(), hbm((128, 1))
    nisa.dma_copy(tile, x)
    nisa.activation_reduce(tile, nl.square, tile, nl.add, total)  # finds: square-and-sum
    nisa.dma_copy(out, total)
    return out


@case(X)
@nki.jit
def right_exponentials_are_summed_at_once(x):
    total, tile, out = sb((128, 1)), sb(), hbm((128, 1))
    nisa.dma_copy(tile, x)
    nisa.activation_reduce(tile, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total)
    nisa.dma_copy(out, total)
    return out


@case("bf16[128,128]", version="0.2")
@nki.jit
def wrong_two_axes_are_transposed_in_0_2(x):
    tile, out = sb((128, 128), nl.bfloat16), hbm((128, 128), nl.bfloat16)
    nisa.dma_transpose(tile, x)  # finds: dma-transpose-rank
    nisa.dma_copy(out, tile)
    return out


@case("bf16[128,128]", version="0.3")
@nki.jit
def right_two_axes_are_transposed_in_0_3(x):
    tile, out = sb((128, 128), nl.bfloat16), hbm((128, 128), nl.bfloat16)
    nisa.dma_transpose(tile, x)
    nisa.dma_copy(out, tile)
    return out


@case("bf16[128,128]", version="0.4")
@nki.jit
def wrong_a_copy_from_psum_before_0_6(x):
    tile, total, out = nl.load(x), nl.ndarray((128, 128), nl.float32, buffer=nl.psum), hbm((128, 128))
    nisa.nc_matmul(total, tile, tile)
    nl.store(out, nl.copy(total))  # finds: nl-copy-psum
    return out


@case("bf16[128,128]", version="0.6")
@nki.jit
def right_a_copy_from_psum_from_0_6_on(x):
    tile, total, out = nl.load(x), nl.ndarray((128, 128), nl.float32, buffer=nl.psum), hbm((128, 128))
    nisa.nc_matmul(total, tile, tile)
    nl.store(out, nl.copy(total))
    return out


@case(X, version="0.6")
@nki.jit
def wrong_a_device_loop_runs_on_one_of_two_cores(x):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)

    def body(i):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)

    nl.fori_loop(0, 3, body)  # finds: device-loop-one-core
    nisa.dma_copy(out, tile)
    return out


@case(X, version="0.6", target="trn1")
@nki.jit
def right_trn1_has_no_second_core(x):
    tile, out = sb(), hbm()
    nisa.dma_copy(tile, x)

    def body(i):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)

    nl.fori_loop(0, 3, body)
    nisa.dma_copy(out, tile)
    return out


@case("f32[128,512]", "i32[1,1]", version="0.2")
@nki.jit
def wrong_a_tile_is_read_at_a_run_time_offset(x, at):
    index, tile, part, out = sb((1, 1), nl.int32), sb(), sb((128, 1)), hbm((128, 1))
    nisa.dma_copy(index, at)
    nisa.dma_copy(tile, x)
    moving = tile.ap([[512, 128], [1, 1]], scalar_offset=index, indirect_dim=1)
    nisa.tensor_copy(part, moving)  # finds: dynamic-on-chip
    nisa.dma_copy(out, part)
    return out


@case("f32[128,512]", "i32[1,1]", version="0.3")
@nki.jit
def right_a_tile_is_read_at_a_run_time_offset_from_0_3_on(x, at):
    index, tile, part, out = sb((1, 1), nl.int32), sb(), sb((128, 1)), hbm((128, 1))
    nisa.dma_copy(index, at)
    nisa.dma_copy(tile, x)
    nisa.tensor_copy(part, tile.ap([[512, 128], [1, 1]], scalar_offset=index, indirect_dim=1))
    nisa.dma_copy(out, part)
    return out


@case("bf16[128,128]", "bf16[128,8192]", target="trn3", version="0.4")
@nki.jit
def wrong_a_product_has_8192_columns_before_0_5(a, b):
    left, right = sb((128, 128), nl.bfloat16), sb((128, 8192), nl.bfloat16)
    total = nl.ndarray((128, 8192), nl.bfloat16, buffer=nl.psum)
    nisa.dma_copy(left, a)
    nisa.dma_copy(right, b)
    nisa.nc_matmul(total, left, right)  # finds: matmul-columns
    nisa.tensor_copy(right, total)
    out = hbm((128, 8192), nl.bfloat16)
    nisa.dma_copy(out, right)
    return out


@case("bf16[8,4,128]", version="0.5")
@nki.jit
def wrong_hardware_transposes_eight_rows_before_0_6(x):
    tile, out = sb((128, 4, 8), nl.bfloat16), hbm((128, 4, 8), nl.bfloat16)
    nisa.dma_transpose(tile, x, axes=(2, 1, 0), dge_mode=nisa.dge_mode.hwdge)  # finds: hwdge-transpose
    nisa.dma_copy(out, tile)
    return out


@case("bf16[8,4,128]", version="0.6")
@nki.jit
def right_hardware_transposes_eight_rows_from_0_6_on(x):
    tile, out = sb((128, 4, 8), nl.bfloat16), hbm((128, 4, 8), nl.bfloat16)
    nisa.dma_transpose(tile, x, axes=(2, 1, 0), dge_mode=nisa.dge_mode.hwdge)
    nisa.dma_copy(out, tile)
    return out


@case("f32[128,4,16]", version="0.2")
@nki.jit
def right_axis_1_is_the_last_one_in_0_2(x):
    tile, total, out = sb((128, 4, 16)), sb((128, 4)), hbm((128, 4))
    nisa.dma_copy(tile, x)
    nisa.tensor_reduce(total, op=nl.add, data=tile, axis=1)
    nisa.dma_copy(out, total)
    return out


@case("f32[128,512]", target="trn3")
@nki.jit
def right_vectore_of_trn3_squares_and_rectifies(x):
    tile, total, out = sb(), sb((128, 1)), hbm((128, 1))
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.square, operand0=0)
    nisa.tensor_scalar_reduce(tile, tile, op0=nl.relu, operand0=0, reduce_op=nl.add, reduce_res=total)
    nisa.dma_copy(out, total)
    return out


@case("f32[128,512]", version="0.4")
@nki.jit
def right_rsqrt_of_psum_up_to_0_4(x):
    tile, total, out = sb(), nl.ndarray((128, 512), nl.float32, buffer=nl.psum), hbm()
    nisa.dma_copy(tile, x)
    nisa.memset(total, 4.0)
    nisa.tensor_copy(tile, nl.rsqrt(total))
    nisa.dma_copy(out, tile)
    return out
