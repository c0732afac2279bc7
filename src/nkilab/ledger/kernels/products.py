"""Matrix products lhsT[K, M].T @ rhs[K, N] in the `neuronxcc.nki` spelling, with the middle end on.

Structure: yahavb/trainium-agent-labs, projects/02-kernel-agent.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


def add_products(out, lhsT, rhs, m, n, tile_n, left):
    """One tile of the result; `left` gives the tile of lhsT at a depth."""
    product = nl.zeros((128, tile_n), dtype=nl.float32, buffer=nl.psum)
    columns = nl.ds(n * tile_n, tile_n)
    for k in nl.affine_range(lhsT.shape[0] // 128):
        right = nl.load(rhs[nl.ds(k * 128, 128), columns])
        product += nl.matmul(left(k), right, transpose_x=True)
    nl.store(out[nl.ds(m * 128, 128), columns], nl.copy(product, dtype=out.dtype))


@nki.jit
def naive(lhsT, rhs, tile_n):
    """Load both tiles right before each multiplication."""
    _, M = lhsT.shape
    out = nl.ndarray((M, rhs.shape[1]), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // 128):
        for n in nl.affine_range(rhs.shape[1] // tile_n):
            add_products(
                out, lhsT, rhs, m, n, tile_n,
                lambda k, m=m: nl.load(lhsT[nl.ds(k * 128, 128), nl.ds(m * 128, 128)]),
            )  # fmt: skip
    return out


@nki.jit
def hoist(lhsT, rhs, tile_n):
    """Load a column of lhsT once per row of results."""
    K, M = lhsT.shape
    out = nl.ndarray((M, rhs.shape[1]), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // 128):
        column = nl.ndarray((K // 128, nl.par_dim(128), 128), dtype=lhsT.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(K // 128):
            column[k] = nl.load(lhsT[nl.ds(k * 128, 128), nl.ds(m * 128, 128)])
        for n in nl.affine_range(rhs.shape[1] // tile_n):
            add_products(out, lhsT, rhs, m, n, tile_n, lambda k, column=column: column[k])
    return out
