"""gelu(lhsT[K, M].T @ rhs[K, N] + bias[1, N]) in the `neuronxcc.nki` spelling.

K and M are multiples of 128, N of 512. Structure: kernels/*/mlp*.py of allenkchau/trainium-kernel-fusion.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def tiles_of(lhsT, rhs):
    """Rows and columns of every tile [128, 512] of the result."""
    for m in nl.affine_range(lhsT.shape[1] // 128):
        for n in nl.affine_range(rhs.shape[1] // 512):
            yield nl.ds(m * 128, 128), nl.ds(n * 512, 512)


def biased(lhsT, rhs, bias, rows, columns):
    """One tile of the product with the bias, in SBUF."""
    product = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(lhsT.shape[0] // 128):
        depth = nl.ds(k * 128, 128)
        product += nl.matmul(nl.load(lhsT[depth, rows]), nl.load(rhs[depth, columns]), transpose_x=True)
    tile = nl.copy(product, dtype=lhsT.dtype)
    return nl.add(tile, nl.load(bias[0:1, columns]).broadcast_to((128, 512)))


@nki.jit
def product(lhsT, rhs, bias):
    """The product with the bias, to HBM."""
    out = nl.ndarray((lhsT.shape[1], rhs.shape[1]), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for rows, columns in tiles_of(lhsT, rhs):
        nl.store(out[rows, columns], biased(lhsT, rhs, bias, rows, columns))
    return out


@nki.jit
def gelu(x):
    """gelu of what lies in HBM, [M, N]."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(x.shape[0] // 128):
        for n in nl.affine_range(x.shape[1] // 512):
            place = nl.ds(m * 128, 128), nl.ds(n * 512, 512)
            nl.store(out[place], nl.gelu(nl.load(x[place])))
    return out


@nki.jit
def fused(lhsT, rhs, bias):
    """The product and gelu by the function table of ScalarE."""
    out = nl.ndarray((lhsT.shape[1], rhs.shape[1]), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for rows, columns in tiles_of(lhsT, rhs):
        nl.store(out[rows, columns], nl.gelu(biased(lhsT, rhs, bias, rows, columns)))
    return out


@nki.jit
def fused_polynomial(lhsT, rhs, bias):
    """The product and x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))), tanh by way of sigmoid."""
    out = nl.ndarray((lhsT.shape[1], rhs.shape[1]), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for rows, columns in tiles_of(lhsT, rhs):
        x = biased(lhsT, rhs, bias, rows, columns)
        cube = nl.multiply(nl.multiply(x, x), x)
        inner = nl.multiply(nl.add(x, nl.multiply(cube, 0.044715)), 0.7978845608028654)
        share = nisa.activation(nl.sigmoid, inner, scale=2.0)
        tanh = nl.subtract(nl.multiply(share, 2.0), 1.0)
        nl.store(out[rows, columns], nl.multiply(nl.multiply(x, 0.5), nl.add(tanh, 1.0)))
    return out
