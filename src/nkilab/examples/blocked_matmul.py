"""A blocked matrix product in the `nki` spelling: lhsT[K, M].T @ rhs[K, N] in float32."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def blocked_matmul(lhsT, rhs):
    """Multiply, one PSUM bank of results at a time; K and M are multiples of 128, N of 512."""
    K, M = lhsT.shape
    _, N = rhs.shape
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // 128):
        columns = []
        for k in nl.affine_range(K // 128):
            tile = nl.ndarray((128, 128), dtype=lhsT.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=lhsT[nl.ds(k * 128, 128), nl.ds(m * 128, 128)])
            columns.append(tile)
        for n in nl.affine_range(N // 512):
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(K // 128):
                rows = nl.ndarray((128, 512), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=rows, src=rhs[nl.ds(k * 128, 128), nl.ds(n * 512, 512)])
                nisa.nc_matmul(dst=product, stationary=columns[k], moving=rows)
            result = nl.ndarray((128, 512), dtype=lhsT.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=product)
            nisa.dma_copy(dst=out[nl.ds(m * 128, 128), nl.ds(n * 512, 512)], src=result)
    return out
