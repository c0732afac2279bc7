"""Kernels of Beta 1 whose loops repeat themselves, and kernels whose loops only seem to."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


def result(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def doubled(tile):
    return nisa.tensor_scalar(tile, np.multiply, 2.0)


@nki.jit
def by_slices(x):
    out = result(x)
    for i in nl.affine_range(8):
        for j in nl.sequential_range(4):
            rows, columns = nl.ds(i * 128, 128), slice(j * 256, (j + 1) * 256)
            nl.store(out[rows, columns], value=doubled(nl.load(x[rows, columns])))
    return out


@nki.jit
def by_grids(x):
    out = result(x)
    i_p, i_f = nl.mgrid[0:128, 0:1024]
    for i in nl.affine_range(8):
        tile = nl.load(x[i * 128 + i_p, i_f], mask=(i * 128 + i_p < 1024))
        nl.store(out[128 * i + i_p, i_f], value=tile + 1.0)
    return out


@nki.jit
def by_a_number_and_a_grid(x):
    out = result(x)
    rows = x.reshape((8, 128, 1024))
    grid = nl.mgrid[0:128, 0:1024]
    for i in range(8):
        tile = nl.ndarray((nl.par_dim(128), 1024), dtype=x.dtype, buffer=nl.sbuf)
        tile[...] = nl.load(rows[i, grid.p, grid.x])
        nl.store(out[i * 128 + grid.p, grid.x], value=tile)
    return out


@nki.jit
def assigned(x):
    out = result(x)
    tile = nl.load(x[0:128, 0:512])
    other = nl.ndarray((nl.par_dim(128), 512), dtype=x.dtype, buffer=nl.sbuf)
    for _ in range(8):
        other[...] = nisa.tensor_tensor(tile, tile, op=nl.add)
        tile[0:64, 0:8] = other[0:64, 8:16]
        tile[...] += 1.0
    nl.store(out[0:128, 0:512], value=other)
    return out


@nki.jit
def sums(x):
    out = result(x)
    for j in nl.affine_range(4):
        total = nl.zeros((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(8):
            tile = nl.load(x[nl.ds(k * 128, 128), nl.ds(j * 128, 128)])
            total += nisa.nc_matmul(tile, tile)
        nl.store(out[0:128, nl.ds(j * 128, 128)], value=total)
    return out


LIKE = (by_slices, by_grids, by_a_number_and_a_grid, assigned, sums)


@nki.jit
def masked_at_the_end(x):
    out = result(x)
    i_p, i_f = nl.mgrid[0:128, 0:1024]
    for i in nl.affine_range(8):
        tile = nl.load(x[i * 128 + i_p, i_f], mask=(i * 128 + i_p < 1000))
        nl.store(out[i * 128 + i_p, i_f], value=tile, mask=(i * 128 + i_p < 1000))
    return out


@nki.jit
def masked_in_the_middle(x):
    out = result(x)
    i_p, i_f = nl.mgrid[0:1, 0:1024]
    for i in nl.affine_range(8):
        nl.store(out[i + i_p, i_f], value=nl.load(x[i + i_p, i_f]), mask=(i + i_p != 5))
    return out


@nki.jit
def beyond_the_end(x):
    out = result(x)
    i_p, i_f = nl.mgrid[0:128, 0:1024]
    for i in nl.affine_range(8):
        # the last iterations reach outside, where the mask hides it
        tile = nl.load(x[i * 140 + i_p, i_f], mask=(i_p < 40))
        nl.store(out[i * 128 + i_p, i_f], value=tile, mask=(i_p < 40))
    return out


@nki.jit
def counted(x):
    out = result(x)
    at = 0
    for _ in nl.affine_range(8):
        nl.store(out[nl.ds(at, 128), 0:64], value=nl.load(x[nl.ds(at, 128), 0:64]))
        at += 64
    return out


@nki.jit
def grown(x):
    out = result(x)
    starts = [0]
    for i in nl.affine_range(7):
        nl.store(out[nl.ds(i * 128, 128), 0:64], value=nl.load(x[nl.ds(len(starts) * 128, 128), 0:64]))
        starts += [1] if i < 3 else []
    return out


@nki.jit
def set_apart(x):
    out = result(x)
    starts = [0, 0]
    for i in nl.affine_range(8):
        nl.store(out[nl.ds(i * 128, 128), 0:64], value=nl.load(x[nl.ds(starts[0], 128), 0:64]))
        starts[0] = 64 * i * i // 7
    return out


@nki.jit
def renewed(x):
    out = result(x)
    total = nl.load(x[0:128, 0:64])
    for i in nl.affine_range(7):
        total = total + nl.load(x[nl.ds(i * 128 + 128, 128), 0:64])
    nl.store(out[0:128, 0:64], value=total)
    return out


@nki.jit
def left_waiting(x):
    out = result(x)
    tile = nl.load(x[0:128, 0:64])
    for _ in range(8):
        other = nl.ndarray((nl.par_dim(128), 64), dtype=x.dtype, buffer=nl.sbuf)
        other[...] = tile + 1.0
        nl.exp(other)
    nl.store(out[0:128, 0:64], value=tile)
    return out


@nki.jit
def reduced(x):
    out = result(x)
    most = nl.ndarray((nl.par_dim(128), 64), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(8):
        part = nl.load(x[nl.ds(i * 128, 128), 0:64])
        most[...] = nl.loop_reduce(part, op=np.maximum, loop_indices=[i])
    nl.store(out[0:128, 0:64], value=most)
    return out


@nki.jit
def numbered(x):
    out = result(x)
    i_p, i_f = nl.mgrid[0:128, 0:64]
    for i in nl.affine_range(8):
        ramp = nisa.iota(i * 64 + i_p * 0 + i_f, dtype=nl.float32)
        nl.store(out[i * 128 + i_p, i_f], value=ramp)
    return out


@nki.jit
def spread(x):
    out = result(x)
    row = nl.load(x[0:1, 0:64])
    for i in nl.affine_range(8):
        rows = nl.ds(i * 128, 128)
        nl.store(out[rows, 0:64], value=nl.load(x[rows, 0:64]) + row)
    return out


@nki.jit
def filled_at_times(x):
    out = result(x)
    for i in nl.static_range(8):
        tile = nl.zeros((128, 64), x.dtype) if i > 3 else nl.ndarray((128, 64), x.dtype)
        tile[...] = 0.0
        nl.store(out[i * 128 : (i + 1) * 128, 0:64], value=tile)
    return out


UNLIKE = (
    masked_at_the_end, masked_in_the_middle, beyond_the_end, counted, grown, set_apart, renewed, left_waiting,
    reduced, numbered, spread, filled_at_times,
)  # fmt: skip
