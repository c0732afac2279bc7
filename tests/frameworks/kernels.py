"""Kernels that tests wrap for PyTorch and JAX, and what they mean in NumPy."""

from __future__ import annotations

from tests.dialects.spellings import nisa2, nki1, nki2, nl1, nl2


@nki1.jit
def scaled(x, times=2.0):
    """x * times."""
    out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
    nl1.store(out, nl1.load(x) * times)
    return out


@nki1.jit
def product(x, y):
    """x * y."""
    out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
    nl1.store(out, nl1.load(x) * nl1.load(y))
    return out


@nki1.jit
def product_backward(x, y, dz):
    """Gradients of x * y."""
    dx = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
    dy = nl1.ndarray(y.shape, y.dtype, buffer=nl1.shared_hbm)
    upstream = nl1.load(dz)
    nl1.store(dx, upstream * nl1.load(y))
    nl1.store(dy, upstream * nl1.load(x))
    return dx, dy


@nki1.jit
def sum_and_difference(pair):
    """x + y and x - y of a pair, by name."""
    x, y = nl1.load(pair[0]), nl1.load(pair[1])
    outs = [nl1.ndarray(pair[0].shape, pair[0].dtype, buffer=nl1.shared_hbm) for _ in range(2)]
    nl1.store(outs[0], x + y)
    nl1.store(outs[1], x - y)
    return {"sum": outs[0], "difference": outs[1], "count": 2}


@nki1.jit
def sines(x):
    """sin(x), and cos(x) as sin(x + pi / 2)."""
    outs = [nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm) for _ in range(2)]
    tile = nl1.load(x)
    nl1.store(outs[0], nl1.sin(tile))
    nl1.store(outs[1], nl1.sin(tile + 1.5707963267948966))
    return tuple(outs)


@nki1.jit
def row_block(x):
    """2 x, each program instance a block of rows."""
    out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
    rows = x.shape[0] // nl1.num_programs(0)
    mine = nl1.ds(nl1.program_id(0) * rows, rows)
    nl1.store(out[mine, :], nl1.load(x[mine, :]) * 2.0)
    return out


@nki2.jit
def copied(x):
    """x, moved as it is."""
    tile = nl2.ndarray(x.shape, x.dtype, buffer=nl2.sbuf)
    nisa2.dma_copy(dst=tile, src=x)
    out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm)
    nisa2.dma_copy(dst=out, src=tile)
    return out


@nki2.jit
def appended(cache, row, at=0):
    """Write a row into a cache in place; returns twice the row."""
    tile = nl2.ndarray(row.shape, row.dtype, buffer=nl2.sbuf)
    nisa2.dma_copy(dst=tile, src=row)
    nisa2.dma_copy(dst=cache[at : at + 1, :], src=tile)
    nisa2.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl2.add)
    out = nl2.ndarray(row.shape, row.dtype, buffer=nl2.shared_hbm)
    nisa2.dma_copy(dst=out, src=tile)
    return out
