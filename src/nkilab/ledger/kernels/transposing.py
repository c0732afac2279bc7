"""A transpose in the `neuronxcc.nki` spelling; structure: course CS149, assignment 4, part 1."""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@ncc.skip_middle_end_transformations
@nki.jit
def transpose(x):
    """Transpose tiles of 128x128 on TensorE; x is [M, N], both multiples of 128."""
    M, N = x.shape
    out = nl.ndarray((N, M), dtype=x.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // 128):
        for n in nl.affine_range(N // 128):
            tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(src=x[m * 128 : (m + 1) * 128, n * 128 : (n + 1) * 128], dst=tile)
            transposed = nisa.tensor_copy(nisa.nc_transpose(tile))
            nisa.dma_copy(src=transposed, dst=out[n * 128 : (n + 1) * 128, m * 128 : (m + 1) * 128])
    return out
