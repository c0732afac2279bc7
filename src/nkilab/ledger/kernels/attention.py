"""Attention of one head in the `neuronxcc.nki` spelling; q, k, v are [128, S], S a multiple of 512.

Scores are float32 whatever the type of the arguments. Structure: kernels/*/attention.py of
allenkchau/trainium-kernel-fusion; of the last two examples/trn-tutorial/4_attention_trace.py of
ucb-bar/autocomp.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

ROWS, CHUNK = 128, 512


def in_sbuf(*shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)


def many(i):
    return nl.ds(i * ROWS, ROWS)


def reduced(op, tile):
    """A tile [128, F] reduced along its rows: [128, 1]."""
    return nisa.tensor_reduce(op, tile, axis=(1,), keepdims=True)


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
        most[:, c : c + 1] = reduced(np.max, scores[:, chunk])
    least = nisa.tensor_reduce(np.max, most, axis=(1,), negate=True, keepdims=True)
    for c, chunk in enumerate(chunks):
        powers[:, chunk] = nisa.activation(np.exp, scores[:, chunk], bias=least)
        sums[:, c : c + 1] = reduced(np.add, powers[:, chunk])
    return powers, nisa.reciprocal(reduced(np.add, sums))


def transposed(tiles):
    """The transposes of the tiles [128, 128] of [128, S], side by side: [128, S / 128, 128]."""
    count = tiles.shape[1] // ROWS
    result = in_sbuf(ROWS, count, ROWS)
    for j in range(count):
        result[:, j, :] = nisa.tensor_copy(nisa.nc_transpose(tiles[:, many(j)]), dtype=nl.float32)
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
        nl.store(out[i * ROWS : (i + 1) * ROWS], nisa.tensor_scalar(product, op0=np.multiply, operand0=share))
    return out


def chunk_scores(q, k, i, c):
    """Scores of the i-th 128 queries and the c-th 512 keys, in PSUM."""
    return nisa.nc_matmul(q[:, many(i)], k[:, nl.ds(c * CHUNK, CHUNK)])


@nki.jit
def attention_by_steps(q, k, v, sums_with_powers):
    """Keep all scores in PSUM, and what each further step makes in HBM: each is a loop of its own."""
    size = q.shape[1]
    rows, chunks = size // ROWS, size // CHUNK
    out = nl.ndarray((size, ROWS), dtype=q.dtype, buffer=nl.shared_hbm)
    scores = nl.ndarray((rows, chunks, nl.par_dim(ROWS), CHUNK), dtype=nl.float32, buffer=nl.psum)
    shapes = [(rows, ROWS, size)] * 3 + [(rows, ROWS, ROWS), (rows, rows, ROWS, ROWS)]
    in_hbm = [nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm) for shape in shapes]
    less, powers, weights, values, flipped = in_hbm
    q_all, k_all, v_all = nl.load(q), nl.load(k), nl.load(v)
    most, sums = in_sbuf(ROWS, rows), in_sbuf(ROWS, rows)
    for i in nl.affine_range(rows):
        for c in nl.affine_range(chunks):
            scores[i, c] = chunk_scores(q_all, k_all, i, c)
    for i in nl.affine_range(rows):
        own = in_sbuf(ROWS, chunks)
        for c in nl.affine_range(chunks):
            own[:, c : c + 1] = reduced(np.max, scores[i, c])
        most[:, i : i + 1] = reduced(np.max, own)
    for i in nl.affine_range(rows):
        tile = in_sbuf(ROWS, size)
        for c in nl.affine_range(chunks):
            here = tile[:, nl.ds(c * CHUNK, CHUNK)]
            here[...] = nisa.tensor_scalar(scores[i, c], np.subtract, most[:, i], engine=nisa.vector_engine)
        nl.store(less[i], tile)
    options = {"reduce_op": np.add, "reduce_cmd": nisa.reduce_cmd.reset_reduce} if sums_with_powers else {}
    for i in nl.affine_range(rows):
        result = {"reduce_res": sums[:, i : i + 1]} if sums_with_powers else {}
        nl.store(powers[i], nisa.activation(np.exp, nl.load(less[i]), **options, **result))
    for i in nl.affine_range(0 if sums_with_powers else rows):
        sums[:, i : i + 1] = reduced(np.add, nl.load(powers[i]))
    share = nisa.reciprocal(sums)
    for i in nl.affine_range(rows):
        nl.store(weights[i], nisa.tensor_scalar(nl.load(powers[i]), np.multiply, share[:, i]))
    weighted_values(weights, v_all, values, flipped, out)
    return out


def weighted_values(weights, v_all, values, flipped, out):
    """Turn values and weights by way of HBM, and multiply them."""
    rows = weights.shape[0]
    for j in nl.affine_range(rows):
        nl.store(values[j], nl.copy(nisa.nc_transpose(v_all[:, many(j)]), dtype=nl.float32))
    for i in nl.affine_range(rows):
        for j in nl.affine_range(rows):
            tile = nl.load(weights[i, :, many(j)])
            nl.store(flipped[j, i], nisa.tensor_copy(nisa.nc_transpose(tile)))
    for i in nl.affine_range(rows):
        product = nl.zeros((ROWS, ROWS), dtype=nl.float32, buffer=nl.psum)
        for j in nl.affine_range(rows):
            product += nisa.nc_matmul(nl.load(flipped[j, i]), nl.load(values[j]))
        nl.store(out[many(i)], nisa.tensor_copy(product))


@nki.jit
def attention_again(q, k, v, sums_with_powers):
    """Compute all scores three times: for their maxima, for the sums of powers, for the result.

    Weights are float32, or bfloat16 where ScalarE adds up the powers.
    """
    size, dtype = q.shape[1], nl.bfloat16 if sums_with_powers else nl.float32
    rows, chunks = size // ROWS, size // CHUNK
    out = nl.ndarray((size, ROWS), dtype=q.dtype, buffer=nl.shared_hbm)
    q_all, k_all, v_all = nl.load(q), nl.load(k), nl.load(v)
    most, sums = in_sbuf(ROWS, rows), nl.zeros((ROWS, rows), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(rows):
        own = in_sbuf(ROWS, 1)
        own[...] = reduced(np.max, chunk_scores(q_all, k_all, i, 0))
        for c in nl.sequential_range(1, chunks):
            own[...] = nl.maximum(own, reduced(np.max, chunk_scores(q_all, k_all, i, c)))
        most[:, i : i + 1] = own
    for i in nl.affine_range(rows):
        least, here = nl.negative(most[:, i : i + 1]), sums[:, i : i + 1]
        for c in nl.sequential_range(chunks):
            scores = chunk_scores(q_all, k_all, i, c)
            if sums_with_powers:
                cmd = nisa.reduce_cmd.reduce if c else nisa.reduce_cmd.reset_reduce
                result = {"reduce_res": here} if c == chunks - 1 else {}
                nisa.activation(np.exp, scores, bias=least, reduce_op=np.add, reduce_cmd=cmd, **result)
            else:
                powers = nisa.activation(np.exp, scores, bias=least, dtype=nl.float32)
                here[...] = nl.add(here, reduced(np.add, powers))
    share = nl.reciprocal(sums)
    for i in nl.affine_range(rows):
        product = nl.zeros((ROWS, ROWS), dtype=nl.float32, buffer=nl.psum)
        for c in nl.affine_range(chunks):
            least = nl.negative(most[:, i : i + 1])
            powers = nisa.activation(np.exp, chunk_scores(q_all, k_all, i, c), bias=least, dtype=dtype)
            weights = nisa.tensor_scalar(powers, np.multiply, share[:, i : i + 1], engine=nisa.vector_engine)
            for j in nl.affine_range(CHUNK // ROWS):
                own = v_all[:, many(c * (CHUNK // ROWS) + j)]
                weight = nisa.tensor_copy(nisa.nc_transpose(weights[:, many(j)]), dtype=dtype)
                product += nisa.nc_matmul(weight, nisa.tensor_copy(nisa.nc_transpose(own), dtype=dtype))
        nl.store(out[many(i)], nisa.tensor_copy(product, dtype=out.dtype))
    return out
