"""A matrix product in tiles of 128 x 128 x 512, one PSUM tile per result, every operand tile loaded."""

import nki
import nki.isa as nisa
import nki.language as nl

TILE_K, TILE_M, TILE_N = 128, 128, 512


@nki.jit
def tiled_matmul(lhsT, rhs):
    """lhsT[K, M].T @ rhs[K, N] in float32."""
    K, M = lhsT.shape
    _, N = rhs.shape
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // TILE_M):
        for n in nl.affine_range(N // TILE_N):
            product = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(K // TILE_K):
                stationary = nl.ndarray((TILE_K, TILE_M), dtype=lhsT.dtype, buffer=nl.sbuf)
                moving = nl.ndarray((TILE_K, TILE_N), dtype=rhs.dtype, buffer=nl.sbuf)
                rows = slice(k * TILE_K, (k + 1) * TILE_K)
                nisa.dma_copy(dst=stationary, src=lhsT[rows, m * TILE_M : (m + 1) * TILE_M])
                nisa.dma_copy(dst=moving, src=rhs[rows, n * TILE_N : (n + 1) * TILE_N])
                nisa.nc_matmul(dst=product, stationary=stationary, moving=moving)
            result = nl.ndarray((TILE_M, TILE_N), dtype=lhsT.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=product)
            nisa.dma_copy(dst=out[m * TILE_M : (m + 1) * TILE_M, n * TILE_N : (n + 1) * TILE_N], src=result)
    return out
