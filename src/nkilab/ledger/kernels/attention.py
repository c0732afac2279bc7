"""Attention of one head in the `neuronxcc.nki` spelling; q, k, v are [128, S], S a multiple of 512.

Scores and weights are float32 whatever the type of the arguments. Structure: kernels/*/attention.py of
allenkchau/trainium-kernel-fusion.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

ROWS, CHUNK = 128, 512


def in_sbuf(*shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)


def chunks_of(size):
    return [slice(c * CHUNK, (c + 1) * CHUNK) for c in range(size // CHUNK)]


def scores_of(q, k, i):
    """Scores of 128 queries and all keys, in SBUF."""
    scores = in_sbuf(ROWS, k.shape[1])
    for chunk in chunks_of(k.shape[1]):
        scores[:, chunk] = nisa.tensor_copy(nisa.nc_matmul(q[:, i * ROWS : (i + 1) * ROWS], k[:, chunk]))
    return scores


def powers_of(scores):
    """exp(scores - their maximum) along rows of [128, S] in SBUF, and one over their sum."""
    chunks = chunks_of(scores.shape[1])
    most, sums = in_sbuf(ROWS, len(chunks)), in_sbuf(ROWS, len(chunks))
    powers = in_sbuf(*scores.shape)
    for c, chunk in enumerate(chunks):
        most[:, c : c + 1] = nisa.tensor_reduce(np.max, scores[:, chunk], axis=(1,), keepdims=True)
    least = nisa.tensor_reduce(np.max, most, axis=(1,), negate=True, keepdims=True)
    for c, chunk in enumerate(chunks):
        powers[:, chunk] = nisa.activation(np.exp, scores[:, chunk], bias=least)
        sums[:, c : c + 1] = nisa.tensor_reduce(np.add, powers[:, chunk], axis=(1,), keepdims=True)
    return powers, nisa.reciprocal(nisa.tensor_reduce(np.add, sums, axis=(1,), keepdims=True))


def transposed(tiles):
    """The transposes of the tiles [128, 128] of [128, S], side by side: [128, S / 128, 128]."""
    count = tiles.shape[1] // ROWS
    result = in_sbuf(ROWS, count, ROWS)
    for j in range(count):
        result[:, j, :] = nisa.tensor_copy(
            nisa.nc_transpose(tiles[:, j * ROWS : (j + 1) * ROWS]), dtype=nl.float32
        )
    return result


def weighted(weights, values):
    """The sum of values over keys, in PSUM."""
    product = nl.zeros((ROWS, ROWS), dtype=nl.float32, buffer=nl.psum)
    for j in range(weights.shape[1]):
        product += nisa.nc_matmul(weights[:, j, :], values[:, j, :])
    return product


@nki.jit
def attention_in_phases(q, k, v):
    """Keep scores, then weights in HBM between three phases: products, softmax, weighted sums."""
    size = q.shape[1]
    out = nl.ndarray((size, ROWS), dtype=q.dtype, buffer=nl.shared_hbm)
    scores_in_hbm = nl.ndarray((size // ROWS, ROWS, size), dtype=nl.float32, buffer=nl.shared_hbm)
    q_all, k_all, v_all = nl.load(q), nl.load(k), nl.load(v)
    for i in nl.affine_range(size // ROWS):
        nl.store(scores_in_hbm[i], scores_of(q_all, k_all, i))
    for i in nl.affine_range(size // ROWS):
        powers, share = powers_of(nl.load(scores_in_hbm[i]))
        weights = in_sbuf(ROWS, size)
        for chunk in chunks_of(size):
            weights[:, chunk] = nisa.tensor_scalar(powers[:, chunk], op0=np.multiply, operand0=share)
        nl.store(scores_in_hbm[i], weights)
    values = transposed(v_all)
    for i in nl.affine_range(size // ROWS):
        product = weighted(transposed(nl.load(scores_in_hbm[i])), values)
        nl.store(out[i * ROWS : (i + 1) * ROWS], nisa.tensor_copy(product))
    return out


@nki.jit
def attention_fused(q, k, v):
    """Keep everything in SBUF and divide by the sums last."""
    size = q.shape[1]
    out = nl.ndarray((size, ROWS), dtype=q.dtype, buffer=nl.shared_hbm)
    q_all, k_all, v_all = nl.load(q), nl.load(k), nl.load(v)
    values = transposed(v_all)
    for i in nl.affine_range(size // ROWS):
        powers, share = powers_of(scores_of(q_all, k_all, i))
        product = weighted(transposed(powers), values)
        nl.store(
            out[i * ROWS : (i + 1) * ROWS],
            nisa.tensor_scalar(product, op0=np.multiply, operand0=share),
        )
    return out
