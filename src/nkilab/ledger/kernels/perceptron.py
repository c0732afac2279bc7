"""gelu(lhsT[K, M].T @ rhs[K, N]) in the `neuronxcc.nki` spelling; K and M multiples of 128, N of 512.

Structure: allenkchau/trainium-kernel-fusion, kernels/baseline and kernels/fused.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def product_of(lhsT, rhs, m, n):
    """One tile [128, 512] of the product, in PSUM."""
    product = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(lhsT.shape[0] // 128):
        depth = nl.ds(k * 128, 128)
        left, right = nl.load(lhsT[depth, nl.ds(m * 128, 128)]), nl.load(rhs[depth, nl.ds(n * 512, 512)])
        product += nisa.nc_matmul(left, right)
    return product


@nki.jit
def mlp_in_phases(lhsT, rhs):
    """Write the product to HBM, then read it back for the activation."""
    M, N = lhsT.shape[1], rhs.shape[1]
    product = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.private_hbm)
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // 128):
        for n in nl.affine_range(N // 512):
            tile = nisa.tensor_copy(product_of(lhsT, rhs, m, n), dtype=lhsT.dtype)
            nl.store(product[nl.ds(m * 128, 128), nl.ds(n * 512, 512)], tile)
    for m in nl.affine_range(M // 128):
        for n in nl.affine_range(N // 512):
            place = nl.ds(m * 128, 128), nl.ds(n * 512, 512)
            nl.store(out[place], nisa.activation(nl.gelu, nl.load(product[place]), dtype=lhsT.dtype))
    return out


@nki.jit
def mlp_fused(lhsT, rhs):
    """Apply the activation on the way out of PSUM."""
    M, N = lhsT.shape[1], rhs.shape[1]
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // 128):
        for n in nl.affine_range(N // 512):
            product = product_of(lhsT, rhs, m, n)
            done = nisa.activation(nl.gelu, product, dtype=lhsT.dtype)
            nl.store(out[nl.ds(m * 128, 128), nl.ds(n * 512, 512)], done)
    return out
