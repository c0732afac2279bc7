"""Attention of one head in the `neuronxcc.nki` spelling; q, k, v are [128, S], S a multiple of 512.

Structure: allenkchau/trainium-kernel-fusion, kernels/baseline and kernels/fused.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

ROWS, CHUNK = 128, 512


def loaded(source):
    """All of q, k or v in SBUF."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    tile[...] = nl.load(source)
    return tile


def score(q, k, i, c):
    """Scores of 128 queries and 512 keys, in PSUM."""
    return nisa.nc_matmul(q[:, i * ROWS : (i + 1) * ROWS], k[:, c * CHUNK : (c + 1) * CHUNK])


def softmax_of(scores):
    """The softmax along the rows of [128, S] in SBUF, one chunk of 512 after the other."""
    chunks = scores.shape[1] // CHUNK
    parts = [scores[:, c * CHUNK : (c + 1) * CHUNK] for c in range(chunks)]
    least = nl.ndarray((ROWS, chunks), dtype=nl.float32, buffer=nl.sbuf)
    sums = nl.ndarray((ROWS, chunks), dtype=nl.float32, buffer=nl.sbuf)
    powers = nl.ndarray(scores.shape, dtype=nl.float32, buffer=nl.sbuf)
    for c, part in enumerate(parts):
        least[:, c : c + 1] = nisa.tensor_reduce(np.max, part, axis=(1,), negate=True, keepdims=True)
    least = least if chunks == 1 else nisa.tensor_reduce(np.min, least, axis=(1,), keepdims=True)
    for c, part in enumerate(parts):
        columns = slice(c * CHUNK, (c + 1) * CHUNK)
        powers[:, columns] = nisa.activation(np.exp, part, bias=least)
        sums[:, c : c + 1] = nisa.tensor_reduce(np.add, powers[:, columns], axis=(1,), keepdims=True)
    total = sums if chunks == 1 else nisa.tensor_reduce(np.add, sums, axis=(1,), keepdims=True)
    return nisa.tensor_scalar(powers, op0=np.multiply, operand0=nisa.reciprocal(total))


def turned(tile, dtype):
    """The transpose of a tile [128, 128] in SBUF."""
    return nisa.tensor_copy(nisa.nc_transpose(tile), dtype=dtype)


def weighted(out, weights, values, i):
    """Store what 128 queries get: weights(j) is [128 keys, 128 queries], values[j] [128 keys, 128]."""
    product = nl.zeros((ROWS, 128), dtype=nl.float32, buffer=nl.psum)
    for j, value in enumerate(values):
        product += nisa.nc_matmul(weights(j), value)
    nl.store(out[i * ROWS : (i + 1) * ROWS], nisa.tensor_copy(product, dtype=out.dtype))


@nki.jit
def attention_in_phases(q, k, v):
    """Keep scores and weights in HBM between three phases: products, softmax, weighted sums."""
    size = q.shape[1]
    out = nl.ndarray((size, 128), dtype=q.dtype, buffer=nl.shared_hbm)
    scores = nl.ndarray((size, size), dtype=nl.float32, buffer=nl.private_hbm)
    weights = nl.ndarray((size, size), dtype=nl.float32, buffer=nl.private_hbm)
    q_all, k_all, v_all = loaded(q), loaded(k), loaded(v)
    for i in nl.affine_range(size // ROWS):
        rows = slice(i * ROWS, (i + 1) * ROWS)
        block = nl.ndarray((ROWS, size), dtype=nl.float32, buffer=nl.sbuf)
        for c in nl.affine_range(size // CHUNK):
            block[:, c * CHUNK : (c + 1) * CHUNK] = nisa.tensor_copy(score(q_all, k_all, i, c))
        nl.store(scores[rows], block)
    for i in nl.affine_range(size // ROWS):
        rows = slice(i * ROWS, (i + 1) * ROWS)
        nl.store(weights[rows], softmax_of(nl.load(scores[rows])))
    values = [turned(v_all[:, j * ROWS : (j + 1) * ROWS], q.dtype) for j in range(size // ROWS)]
    for i in nl.affine_range(size // ROWS):
        rows = slice(i * ROWS, (i + 1) * ROWS)
        weighted(
            out,
            lambda j, rows=rows: turned(nl.load(weights[rows, j * ROWS : (j + 1) * ROWS]), q.dtype),
            values,
            i,
        )
    return out


@nki.jit
def attention_fused(q, k, v):
    """Keep scores and weights in SBUF."""
    size = q.shape[1]
    out = nl.ndarray((size, 128), dtype=q.dtype, buffer=nl.shared_hbm)
    q_all, k_all, v_all = loaded(q), loaded(k), loaded(v)
    values = [turned(v_all[:, j * ROWS : (j + 1) * ROWS], q.dtype) for j in range(size // ROWS)]
    for i in nl.affine_range(size // ROWS):
        block = nl.ndarray((ROWS, size), dtype=nl.float32, buffer=nl.sbuf)
        for c in nl.affine_range(size // CHUNK):
            block[:, c * CHUNK : (c + 1) * CHUNK] = nisa.tensor_copy(score(q_all, k_all, i, c))
        shares = softmax_of(block)
        weighted(out, lambda j, s=shares: turned(s[:, j * ROWS : (j + 1) * ROWS], q.dtype), values, i)
    return out
