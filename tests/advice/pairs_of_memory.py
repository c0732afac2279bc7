"""Pairs of kernels, as `pairs.py` has them, that differ in where tiles lie and how they get there."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl

from .pairs import loaded, pair, psum, sbuf


@pair("avoid_spill", "f32[96,128,1024]")
def everything_live_at_once(x, rewritten):
    out = nl.ndarray((96, 128, 1024), nl.float32, buffer=nl.shared_hbm)

    def exponentials(i):
        tile, result = loaded(x[i]), sbuf((128, 1024))
        nisa.activation(result, op=nl.exp, data=tile)
        return result

    kept = None if rewritten else [exponentials(i) for i in range(96)]
    for i in range(96):
        result = sbuf((128, 1024))
        nisa.tensor_scalar(result, exponentials(i) if rewritten else kept[i], op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(out[i], result)
    return out


@pair("combine_products", "bf16[128,128]", "bf16[128,512]")
def products_of_few_rows(left, right, rewritten):
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    rows = 128 if rewritten else 32
    one, other = loaded(left[0:rows], nl.bfloat16), loaded(right[0:rows], nl.bfloat16)
    total, result = psum((128, 512)), sbuf((128, 512))
    for _ in range(8192 // rows):
        nisa.nc_matmul(total, one, other)
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out, result)
    return out


@pair("contiguous_rows", "f32[128,128,64]")
def every_eighth_run(x, rewritten):
    out = nl.ndarray((8, 128, 16, 64), nl.float32, buffer=nl.shared_hbm)
    for i in range(8):
        nisa.dma_copy(out[i], loaded(x[:, nl.ds(16 * i, 16)] if rewritten else x[:, i:128:8]))
    return out


@pair("hoist_loads", "bf16[8,128,32768]", "bf16[128,8192]")
def loaded_in_the_loop(x, y, rewritten):
    out = nl.ndarray((8, 128, 8192), nl.bfloat16, buffer=nl.shared_hbm)
    kept = loaded(y, nl.bfloat16) if rewritten else None
    for i in range(8):
        a = loaded(x[i], nl.bfloat16)
        b = kept if rewritten else loaded(y, nl.bfloat16)
        result = sbuf((128, 8192), nl.bfloat16)
        nisa.tensor_tensor(result, a[:, 0:8192], b, op=nl.add)
        nisa.dma_copy(out[i], result)
    return out


@pair("psum_in_flight", "bf16[128,128]", "bf16[128,512]")
def one_bank_for_all_sums(left, right, rewritten):
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    one, other = loaded(left, nl.bfloat16), loaded(right, nl.bfloat16)
    result, total = sbuf((128, 512)), psum((128, 512))
    for _ in range(32):
        bank = psum((128, 512)) if rewritten else total
        for k in range(4):
            nisa.nc_matmul(bank, one, other, accumulate=k > 0)
        nisa.tensor_copy(result, bank)
    nisa.dma_copy(out, result)
    return out


@pair("buffers", "f32[16,128,4096]")
def one_buffer_for_all_loads(x, rewritten):
    out = nl.ndarray((16, 128, 4096), nl.float32, buffer=nl.shared_hbm)
    only = sbuf((128, 4096))
    for i in range(16):
        tile, result = sbuf((128, 4096)) if rewritten else only, sbuf((128, 4096))
        nisa.dma_copy(tile, x[i])
        nisa.activation(result, op=nl.exp, data=tile)
        nisa.dma_copy(out[i], result)
    return out


@pair("table_reload", "f32[128,512]")
def functions_in_turn(x, rewritten):
    out = nl.ndarray((16, 128, 512), nl.float32, buffer=nl.shared_hbm)
    tile = loaded(x)
    for i in range(16):
        result = sbuf((128, 512))
        nisa.activation(result, op=nl.tanh if (i >= 8 if rewritten else i % 2) else nl.exp, data=tile)
        nisa.dma_copy(out[i], result)
    return out


@pair("reduce_partitions", "f32[128,2048]", near=0.5)
def sum_over_rows(x, rewritten):
    out = nl.ndarray((128, 1) if rewritten else (1, 2048), nl.float32, buffer=nl.shared_hbm)
    tile, total = loaded(x), sbuf(out.shape)
    if rewritten:
        nisa.tensor_reduce(total, nl.add, tile, axis=1)
    else:
        nisa.tensor_partition_reduce(total, nl.add, tile)
    nisa.dma_copy(out, total)
    return out
