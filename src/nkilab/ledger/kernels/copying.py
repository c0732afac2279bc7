"""Copies from HBM to HBM in the `nki` spelling."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def copy_tiled(x):
    """Copy 128 rows at a time over SBUF; x is [rows, columns], rows a multiple of 128."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        tile = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[i * 128 : (i + 1) * 128, :])
        nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, :], src=tile)
    return out
