"""Pairs of kernels, as `pairs.py` has them, that differ in the order of their work."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl

from .pairs import loaded, pair, psum, sbuf


@pair("psum_accumulate", "bf16[4096,128]", "bf16[4096,512]")
def added_in_sbuf(left, right, rewritten):
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    a, b = loaded(left[0:128], nl.bfloat16), loaded(right[0:128], nl.bfloat16)
    result = sbuf((128, 512))
    total = psum((128, 512))
    nisa.memset(result, 0.0)
    for i in range(32):
        if not rewritten:
            total = psum((128, 512))
        nisa.nc_matmul(total, a, b, accumulate=rewritten and i > 0)
        if not rewritten or i == 31:
            nisa.tensor_tensor(result, result, total, op=nl.add)
    nisa.dma_copy(out, result)
    return out


@pair("reorder_independent", "f32[4,128,2048]", "f32[4,128,8192]")
def the_long_chain_is_loaded_last(x, y, rewritten):
    out = nl.ndarray((4, 2, 128, 2048), nl.float32, buffer=nl.shared_hbm)
    for i in range(4):
        if rewritten:
            tile = loaded(x[i])
        other, short = loaded(y[i]), sbuf((128, 2048))
        if not rewritten:
            tile = loaded(x[i])
        nisa.tensor_tensor(short, other[:, 0:2048], other[:, 2048:4096], op=nl.add)
        nisa.dma_copy(out[i, 0], short)
        for _ in range(6):
            fresh = sbuf((128, 2048))
            nisa.activation(fresh, op=nl.exp, data=tile)
            tile = fresh
        nisa.dma_copy(out[i, 1], tile)
    return out


@pair("fuse_loops", "f32[12,128,2048]", near=0.15)
def a_loop_for_each_step(x, rewritten):
    out = nl.ndarray((12, 3, 128, 2048), nl.float32, buffer=nl.shared_hbm)
    tile, results = loaded(x[0]), []

    def produced(i):
        result = sbuf((128, 2048))
        nisa.activation(result, op=nl.exp, data=tile, scale=0.1 * i)
        results.append(result)

    def used(i):
        result = sbuf((128, 2048))
        nisa.activation(result, op=nl.exp, data=results[i])
        for n in range(3):
            nisa.dma_copy(out[i, n], result)

    for i in range(12):
        produced(i)
        if rewritten:
            used(i)
    for i in range(0 if rewritten else 12):
        used(i)
    return out


@pair("software_pipeline", "bf16[128,1024]", "bf16[128,1024]", "bf16[128,1024]", near=0.15)
def what_is_multiplied_again_is_computed_first(queries, keys, values, rewritten):
    out = nl.ndarray((8, 128, 128), nl.float32, buffer=nl.shared_hbm)
    q, k, v = (loaded(own, nl.bfloat16) for own in (queries, keys, values))

    def first(i):
        powers = sbuf((128, 1024), nl.bfloat16)
        for n in range(2):
            scores = psum((128, 512))
            nisa.nc_matmul(scores, q[:, i * 128 : i * 128 + 128], k[:, n * 512 : n * 512 + 512])
            nisa.activation(powers[:, n * 512 : n * 512 + 512], op=nl.exp, data=scores)
        return powers

    def last(i, powers):
        total, result = psum((128, 128)), sbuf((128, 128))
        for n in range(8):
            bank, transposed = (
                nl.ndarray((128, 128), nl.bfloat16, buffer=nl.psum),
                sbuf((128, 128), nl.bfloat16),
            )
            nisa.nc_transpose(bank, powers[:, n * 128 : n * 128 + 128])
            nisa.tensor_copy(transposed, bank)
            nisa.nc_matmul(total, transposed, v[:, n * 128 : n * 128 + 128])
        nisa.tensor_copy(result, total)
        nisa.dma_copy(out[i], result)

    before = first(0)
    for i in range(1, 8):
        if rewritten:
            powers = first(i)
        last(i - 1, before)
        before = powers if rewritten else first(i)
    last(7, before)
    return out


@pair("split_cores", "f32[10,128,2048]", cores=2)
def rows_that_one_core_computes(x, rewritten):
    out = nl.ndarray((10, 128, 2048), nl.float32, buffer=nl.shared_hbm)
    count = 10 // nl.num_programs(0) if rewritten else 10
    first = nl.program_id(0) * count if rewritten else 0
    for i in range(count):
        tile = loaded(x[first + i])
        for _ in range(6):
            fresh = sbuf((128, 2048))
            nisa.activation(fresh, op=nl.exp, data=tile)
            tile = fresh
        nisa.dma_copy(out[first + i], tile)
    return out
