"""Kernels of whose loops some iterations repeat themselves, or that ask for the value of an index."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

from .repeated import loaded, result, stored


@nki.jit
def last_is_shorter(x):
    out = result(x)
    for i in nl.affine_range(10):
        count = min(100, 1000 - 110 * i)
        tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[:count], src=x[i * 100 : i * 100 + count, 0:128])
        nisa.dma_copy(dst=out[i * 100 : i * 100 + count, 0:128], src=tile[:count])
    return out


@nki.jit
def last_comes_first(x):
    out = result(x)
    for i in range(9, -1, -1):
        count = min(100, 1000 - 110 * i)
        tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[:count], src=x[i * 100 : i * 100 + count, 0:128])
        nisa.dma_copy(dst=out[i * 100 : i * 100 + count, 0:128], src=tile[:count])
    return out


@nki.jit
def ends_are_other(x):
    out = result(x)
    for i in nl.affine_range(8):
        tile = loaded(x, i)
        if i == 0 or i == 7:
            nisa.tensor_copy(dst=tile[:, 0:64], src=tile[:, 64:128])
        stored(out, i, tile)
    return out


@nki.jit
def one_within_is_other(x):
    out = result(x)
    for i in nl.affine_range(12):
        tile = loaded(x, i % 8)
        if i == 5:
            nisa.tensor_copy(dst=tile[:, 0:64], src=tile[:, 64:128])
    for i in nl.affine_range(12):
        tile = loaded(x, 0, i * 64)
        if i == 5:
            nisa.tensor_copy(dst=tile[:, 0:64], src=tile[:, 64:128])
        stored(out, 0, tile)
    return out


@nki.jit
def last_of_blocks_is_shorter(x):
    out = result(x)
    for i in nl.affine_range(6):
        for j in nl.affine_range(5):
            count = min(30, 880 - 30 * (i * 5 + j))
            tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile[:count], src=x[nl.ds(i * 150 + j * 30, count), 0:128])
            nisa.dma_copy(dst=out[nl.ds(i * 150 + j * 30, count), 0:128], src=tile[:count])
    return out


@nki.jit
def up_to_the_diagonal(x):
    out = result(x)
    for i in nl.affine_range(8):
        tile = loaded(x, i)
        for j in nl.affine_range(8):
            if j <= i:
                nisa.tensor_copy(dst=tile[:, nl.ds(j * 8, 8)], src=tile[:, nl.ds(64 + j * 8, 8)])
        stored(out, i, tile)
    return out


PARTLY_LIKE = (
    last_is_shorter,
    last_comes_first,
    ends_are_other,
    one_within_is_other,
    last_of_blocks_is_shorter,
    up_to_the_diagonal,
)


@nki.jit
def by_remainders(x):
    out = result(x)
    for i in nl.affine_range(8):
        tile = nl.ndarray((128, 2, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[:, (i + 1) % 2], src=x[nl.ds(i * 128, 128), nl.ds(i // 3, 128)])
        stored(out, i, tile[:, (i + 1) % 2])
    return out


@nki.jit
def by_places(x):
    out = result(x)
    for i in nl.affine_range(8):
        tile, other = loaded(x, i), nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.affine_select(
            dst=other,
            pattern=[[1, 128]],
            channel_multiplier=1,
            offset=i,
            on_true_tile=tile,
            on_false_value=0.0,
            cmp_op=nl.greater,
        )
        stored(out, i, other)
    return out


ASKING = (by_remainders, by_places)
