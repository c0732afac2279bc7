"""Pairs of kernels, as `pairs.py` has them, that differ in layouts and in what one instruction does."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl

from .pairs import _elementwise, loaded, pair, psum, sbuf


def transposed(tile):
    bank, copy = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.psum), sbuf((128, 128), nl.bfloat16)
    nisa.nc_transpose(bank, tile)
    nisa.tensor_copy(copy, bank, engine=nisa.engine.vector)
    return copy


@pair("transpose_engine", "f32[128,1024]", "f32[128,512]", near=0.2)
def transposed_on_a_busy_engine(left, right, rewritten):
    """Float32 products keep TensorE busy, and so do transpositions of float32."""
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    moving, total, result, tile = loaded(right), psum((128, 512)), sbuf((128, 512)), loaded(left)
    for i in range(32):
        scaled, copy = sbuf((128, 128)), sbuf((128, 128))
        nisa.activation(scaled, op=nl.copy, data=tile[:, nl.ds(i % 8 * 128, 128)], scale=0.1 * i)
        if rewritten:
            nisa.dma_transpose(copy, scaled)
        else:
            bank = psum((128, 128))
            nisa.nc_transpose(bank, scaled)
            nisa.tensor_copy(copy, bank, engine=nisa.engine.vector)
        for _ in range(2):
            nisa.nc_matmul(total, copy, moving)
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out, result)
    return out


@pair("avoid_transpose", "bf16[32,128,128]", "bf16[128,512]")
def transposed_after_loading(left, right, rewritten):
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    moving, total, result = loaded(right, nl.bfloat16), psum((128, 512)), sbuf((128, 512))
    for i in range(32):
        tile = loaded(left[i], nl.bfloat16)
        stationary = tile if rewritten else transposed(tile)
        nisa.nc_matmul(total, stationary, moving)
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out, result)
    return out


@pair("swap_operands", "bf16[128,128]", "bf16[128,128]")
def transposed_after_the_product(left, right, rewritten):
    out = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.shared_hbm)
    a, b, results = loaded(left, nl.bfloat16), loaded(right, nl.bfloat16), sbuf((128, 128), nl.bfloat16)
    nisa.memset(results, 0.0)
    for _ in range(32):
        total, result = psum((128, 128)), sbuf((128, 128), nl.bfloat16)
        for _ in range(4):
            nisa.nc_matmul(total, *((b, a) if rewritten else (a, b)))
        nisa.tensor_copy(result, total, engine=nisa.engine.vector)
        part = result if rewritten else transposed(result)
        nisa.tensor_tensor(results, results, part, op=nl.add)
    nisa.dma_copy(out, results)
    return out


@pair("broadcast", "f32[16,512]")
def a_row_for_each_partition(x, rewritten):
    out = nl.ndarray((16, 128, 512), nl.float32, buffer=nl.shared_hbm)
    for i in range(16):
        tile = sbuf((128, 512))
        if rewritten:
            nisa.dma_copy(tile, x[i : i + 1].broadcast(0, 128))
        else:
            for p in range(128):
                nisa.dma_copy(tile[p : p + 1], x[i : i + 1])
        nisa.dma_copy(out[i], tile)
    return out


@pair("use_statistics", "f32[32,128,512]")
def two_passes_for_a_variance(x, rewritten):
    out = nl.ndarray((32, 128, 2), nl.float32, buffer=nl.shared_hbm)
    for i in range(32):
        tile, both = loaded(x[i]), sbuf((128, 2))
        if rewritten:
            stats = sbuf((128, 6))
            nisa.bn_stats(stats, tile)
            nisa.bn_aggr(both, stats)
        else:
            squares = sbuf((128, 512))
            nisa.tensor_reduce(both[:, 0:1], op=nl.add, data=tile, axis=1)
            nisa.tensor_tensor(squares, tile, tile, op=nl.multiply)
            nisa.tensor_reduce(both[:, 1:2], op=nl.add, data=squares, axis=1)
        nisa.dma_copy(out[i], both)
    return out


@pair("use_scan", "f32[128,512]", "f32[128,512]")
def a_column_at_a_time(a, b, rewritten):
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    factor, summand, state = loaded(a), loaded(b), sbuf((128, 513))
    nisa.memset(state[:, 0:1], 0.0)
    if rewritten:
        nisa.tensor_tensor_scan(
            state[:, 1:513], factor, summand, initial=state[:, 0:1], op0=nl.multiply, op1=nl.add
        )
    else:
        for t in range(512):
            nisa.tensor_scalar(
                state[:, t + 1 : t + 2], state[:, t : t + 1], op0=nl.multiply, operand0=factor[:, t : t + 1],
                op1=nl.add, operand1=summand[:, t : t + 1],
            )  # fmt: skip
    nisa.dma_copy(out, state[:, 1:513])
    return out


@pair("mask_tail", "f32[128,2048]")
def a_mask_that_takes_everything(x, rewritten):
    def body(result, tile):
        if rewritten:
            nisa.tensor_scalar(result, tile, op0=nl.multiply, operand0=2.0)
            return
        masked = sbuf((128, 2048))
        nisa.affine_select(
            masked, pattern=[[-1, 2048]], channel_multiplier=1, on_true_tile=tile, on_false_value=0.0,
            cmp_op=nl.greater_equal, offset=4096,
        )  # fmt: skip
        nisa.tensor_scalar(result, masked, op0=nl.multiply, operand0=2.0)

    return _elementwise(x, body)


@pair("fold_algebra", "bf16[128,512]", "bf16[128,128]")
def scaled_by_a_number(x, weights, rewritten):
    out = nl.ndarray((32, 128, 512), nl.float32, buffer=nl.shared_hbm)
    moving, stationary = loaded(x, nl.bfloat16), loaded(weights, nl.bfloat16)
    for i in range(32):
        source = moving
        if not rewritten:
            source = sbuf((128, 512), nl.bfloat16)
            nisa.tensor_scalar(source, moving, op0=nl.multiply, operand0=0.125, engine=nisa.engine.vector)
        total, result = psum((128, 512)), sbuf((128, 512))
        nisa.nc_matmul(total, stationary, source)
        nisa.tensor_copy(result, total, engine=nisa.engine.vector)
        nisa.dma_copy(out[i], result)
    return out
