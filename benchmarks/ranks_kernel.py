"""Kernels of the scaling study, under the names of `nki`."""

from __future__ import annotations

from typing import Any

import nkilab

with nkilab.activate():
    import nki
    import nki.collectives as ncc
    import nki.isa as nisa
    import nki.language as nl

__all__ = ["ncc", "reduced_product", "summed", "worked_over"]


@nki.jit
def reduced_product(a: Any, b: Any, group: Any) -> Any:
    """a.T @ b, whose contraction the ranks of a group share: each multiplies its rows, then all are added."""
    rows, m = a.shape
    n = b.shape[1]
    part = nl.ndarray((m, n), nl.float32, buffer=nl.shared_hbm, name="part")
    whole = nl.ndarray((m, n), nl.float32, buffer=nl.shared_hbm, name="whole")
    for i in nl.affine_range(m // 128):
        total = nl.ndarray((128, n), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(rows // 128):
            here = slice(k * 128, (k + 1) * 128)
            left = nl.ndarray((128, 128), a.dtype, buffer=nl.sbuf)
            right = nl.ndarray((128, n), b.dtype, buffer=nl.sbuf)
            nisa.dma_copy(left, a[here, i * 128 : (i + 1) * 128])
            nisa.dma_copy(right, b[here, :])
            nisa.nc_matmul(total, left, right)
        result = nl.ndarray((128, n), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(result, total)
        nisa.dma_copy(part[i * 128 : (i + 1) * 128, :], result)
    ncc.all_reduce([part], [whole], group, nl.add)
    return whole


@nki.jit
def summed(x: Any, group: Any) -> Any:
    """The sum of x over the ranks of a group."""
    src, dst = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=n) for n in ("src", "dst"))
    nisa.dma_copy(src, x)
    ncc.all_reduce([src], [dst], group, nl.add)
    return dst


@nki.jit
def worked_over(x: Any, times: int, group: Any) -> Any:
    """The sum over the ranks of a group of x, of which each has taken tanh so many times."""
    src, dst = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=n) for n in ("src", "dst"))
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    for _ in range(times):
        nisa.activation(tile, op=nl.tanh, data=tile)
    nisa.dma_copy(src, tile)
    ncc.all_reduce([src], [dst], group, nl.add)
    return dst
