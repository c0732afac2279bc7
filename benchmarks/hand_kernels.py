"""Kernels as people write them, in the `nki` spelling, one core: what `benchmarks.hands` compares with.

Our own transcriptions of the structures of public samples and libraries: operands that are used again stay in
SBUF, one transfer brings a whole block, sums over partitions stay in PSUM, softmax goes along rows.
"""

import nki
import nki.isa as nisa
import nki.language as nl

P, CHUNK = 128, 512
# bytes of a partition that a resident operand may take
RESIDENT = 96 * 1024


def sbuf(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def psum(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)


def hbm(*shape, dtype):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def spread(vector, count):
    """A vector of HBM on all partitions."""
    tile = sbuf(P, count, dtype=vector.dtype)
    nisa.dma_copy(dst=tile, src=vector.ap([[0, P], [1, count]], offset=0))
    return tile


def deep(source, first, count):
    """Columns of [K, N] as one block [128, K / 128, columns]."""
    depth, width = source.shape[0] // P, source.shape[1]
    block = sbuf(P, depth, count, dtype=source.dtype)
    nisa.dma_copy(dst=block, src=source.ap([[width, P], [P * width, depth], [1, count]], offset=first))
    return block


def multiplied(total, left, right, column):
    """A chunk of columns of left.T @ right in PSUM, both blocks of `deep`."""
    for k in range(left.shape[1]):
        chunk = right[:, k, column : column + CHUNK]
        nisa.nc_matmul(dst=total, stationary=left[:, k, :], moving=chunk, accumulate=k > 0)


@nki.jit
def product(a, b):
    """a.T @ b of a [K, M] and b [K, N]: as many columns of b as fit stay, a streams past them."""
    (depth, rows), columns = a.shape, b.shape[1]
    out = hbm(rows, columns, dtype=a.dtype)
    size = 4 if a.dtype == nl.float32 else 2
    width = min(columns, max(CHUNK, RESIDENT // (depth // P * size) // CHUNK * CHUNK))
    for first in range(0, columns, width):
        here = min(width, columns - first)
        right = deep(b, first, here)
        for m in range(0, rows, P):
            left, row = deep(a, m, P), sbuf(P, here, dtype=a.dtype)
            for c in range(0, here, CHUNK):
                total = psum(P, CHUNK)
                multiplied(total, left, right, c)
                nisa.tensor_copy(dst=row[:, c : c + CHUNK], src=total)
            nisa.dma_copy(dst=out[m : m + P, first : first + here], src=row)
    return out


@nki.jit
def rms_norm(x, g):
    """Rows of x over the root of their mean square, times g."""
    rows, columns = x.shape
    out, weights = hbm(rows, columns, dtype=x.dtype), spread(g, columns)
    for m in range(0, rows, P):
        tile, squares = sbuf(P, columns, dtype=x.dtype), sbuf(P, columns)
        total, root, result = sbuf(P, 1), sbuf(P, 1), sbuf(P, columns, dtype=x.dtype)
        nisa.dma_copy(dst=tile, src=x[m : m + P, :])
        nisa.activation_reduce(dst=squares, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total)
        nisa.activation(dst=root, op=nl.rsqrt, data=total, scale=1.0 / columns)
        nisa.scalar_tensor_tensor(
            dst=result, data=tile, op0=nl.multiply, operand0=root, op1=nl.multiply, operand1=weights
        )
        nisa.dma_copy(dst=out[m : m + P, :], src=result)
    return out


@nki.jit
def layer_norm(x, g, b):
    """Rows of x without their mean, over their deviation, times g, plus b."""
    rows, columns = x.shape
    out = hbm(rows, columns, dtype=x.dtype)
    weights, bias = spread(g, columns), spread(b, columns)
    for m in range(0, rows, P):
        tile, statistics = sbuf(P, columns, dtype=x.dtype), sbuf(P, columns // CHUNK, 6)
        nisa.dma_copy(dst=tile, src=x[m : m + P, :])
        for c in range(columns // CHUNK):
            nisa.bn_stats(dst=statistics[:, c, :], data=tile[:, c * CHUNK : (c + 1) * CHUNK])
        moments, root, scaled = sbuf(P, 2), sbuf(P, 1), sbuf(P, columns)
        nisa.bn_aggr(dst=moments, data=statistics)
        nisa.activation(dst=root, op=nl.rsqrt, data=moments[:, 1:2])
        nisa.tensor_scalar(
            dst=scaled, data=tile, op0=nl.subtract, operand0=moments[:, 0:1], op1=nl.multiply, operand1=root
        )
        result = sbuf(P, columns, dtype=x.dtype)
        nisa.tensor_tensor(dst=scaled, data1=scaled, data2=weights, op=nl.multiply)
        nisa.tensor_tensor(dst=result, data1=scaled, data2=bias, op=nl.add)
        nisa.dma_copy(dst=out[m : m + P, :], src=result)
    return out


def powers_of(scores, dtype):
    """exp(scores - largest) of rows, and one over their sums."""
    count = scores.shape[1]
    least, total, share = sbuf(P, 1), sbuf(P, 1), sbuf(P, 1)
    powers = sbuf(P, count, dtype=dtype)
    nisa.tensor_reduce(dst=least, op=nl.maximum, data=scores, axis=1, negate=True)
    nisa.activation_reduce(dst=powers, op=nl.exp, data=scores, bias=least, reduce_op=nl.add, reduce_res=total)
    nisa.reciprocal(dst=share, data=total)
    return powers, share


@nki.jit
def softmax(x):
    """Along rows."""
    out = hbm(*x.shape, dtype=x.dtype)
    for m in range(0, x.shape[0], P):
        tile, result = sbuf(P, x.shape[1], dtype=x.dtype), sbuf(P, x.shape[1], dtype=x.dtype)
        nisa.dma_copy(dst=tile, src=x[m : m + P, :])
        powers, share = powers_of(tile, nl.float32)
        nisa.tensor_scalar(dst=result, data=powers, op0=nl.multiply, operand0=share)
        nisa.dma_copy(dst=out[m : m + P, :], src=result)
    return out


def attended(q, k, v, is_causal):
    """Attention of one head, q and k [128, S], v [S, 128], with the scores of 128 queries at once in SBUF."""
    count = q.shape[1]
    out = hbm(count, P, dtype=q.dtype)
    keys, queries = sbuf(P, count, dtype=k.dtype), sbuf(P, count, dtype=q.dtype)
    nisa.dma_copy(dst=keys, src=k)
    nisa.dma_copy(dst=queries, src=q)
    values = deep(v, 0, P)
    for i in range(0, count, P):
        end = i + P if is_causal else count
        scores = sbuf(P, end)
        for c in range(0, end, CHUNK):
            width = min(CHUNK, end - c)
            part = psum(P, width)
            nisa.nc_matmul(dst=part, stationary=queries[:, i : i + P], moving=keys[:, c : c + width])
            nisa.tensor_copy(dst=scores[:, c : c + width], src=part)
        if is_causal:
            nisa.affine_select(
                dst=scores[:, i:end], pattern=[[-1, P]], offset=0, channel_multiplier=1,
                on_true_tile=scores[:, i:end], on_false_value=-1e30, cmp_op=nl.greater_equal,
            )  # fmt: skip
        powers, share = powers_of(scores, q.dtype)
        total = psum(P, P)
        for j in range(0, end, P):
            other, transposed = psum(P, P, dtype=q.dtype), sbuf(P, P, dtype=q.dtype)
            nisa.nc_transpose(dst=other, data=powers[:, j : j + P])
            nisa.tensor_copy(dst=transposed, src=other)
            nisa.nc_matmul(dst=total, stationary=transposed, moving=values[:, j // P, :], accumulate=j > 0)
        result = sbuf(P, P, dtype=q.dtype)
        nisa.tensor_scalar(dst=result, data=total, op0=nl.multiply, operand0=share)
        nisa.dma_copy(dst=out[i : i + P, :], src=result)
    return out


@nki.jit
def attention(q, k, v):
    """Every query reads every key."""
    return attended(q, k, v, is_causal=False)


@nki.jit
def causal_attention(q, k, v):
    """A query reads keys up to its own place."""
    return attended(q, k, v, is_causal=True)


@nki.jit
def decoding(q, k, v):
    """One token, heads [H, E], keys [H, E, S], values [H, S, E]: a row of scores per head."""
    heads, width, count = k.shape
    out = hbm(heads, width, dtype=q.dtype)
    queries = sbuf(P, heads, dtype=q.dtype)
    nisa.dma_copy(dst=queries, src=q.ap([[1, P], [width, heads]], offset=0))
    for h in range(heads):
        keys = sbuf(P, count, dtype=k.dtype)
        nisa.dma_copy(dst=keys, src=k[h])
        values = sbuf(P, count // P, width, dtype=v.dtype)
        nisa.dma_copy(
            dst=values, src=v.ap([[width, P], [P * width, count // P], [1, width]], offset=h * count * width)
        )
        # scores with the keys on partitions: no row has to be turned
        scores, powers, largest = psum(P, count // P), sbuf(P, count // P, dtype=q.dtype), sbuf(P, 1)
        for j in range(count // P):
            nisa.nc_matmul(
                dst=scores[:, j : j + 1],
                stationary=keys[:, j * P : (j + 1) * P],
                moving=queries[:, h : h + 1],
            )
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=scores, axis=1)
        row, most, least = psum(1, P), sbuf(1, 1), sbuf(P, 1)
        nisa.nc_transpose(dst=row, data=largest)
        nisa.tensor_reduce(dst=most, op=nl.maximum, data=row, axis=1, negate=True)
        ones, wide = sbuf(1, P), psum(P, 1)
        nisa.memset(dst=ones, value=1.0)
        nisa.nc_matmul(dst=wide, stationary=ones, moving=most)
        nisa.tensor_copy(dst=least, src=wide)
        sums, column = sbuf(P, 1), sbuf(P, 1)
        nisa.activation_reduce(
            dst=powers, op=nl.exp, data=scores, bias=least, reduce_op=nl.add, reduce_res=sums
        )
        nisa.memset(dst=column, value=1.0)
        total, norm, share = psum(1, width), psum(1, 1), sbuf(1, 1)
        for j in range(count // P):
            nisa.nc_matmul(
                dst=total, stationary=powers[:, j : j + 1], moving=values[:, j, :], accumulate=j > 0
            )
        nisa.nc_matmul(dst=norm, stationary=sums, moving=column)
        nisa.reciprocal(dst=share, data=norm)
        result = sbuf(1, width, dtype=q.dtype)
        nisa.tensor_scalar(dst=result, data=total, op0=nl.multiply, operand0=share)
        nisa.dma_copy(dst=out[h : h + 1, :], src=result)
    return out


@nki.jit
def gated_layer(x, w, u, v):
    """(silu(x.T @ w) * (x.T @ u)) @ v, x [K, M], w and u [K, F], v [F, N]; what is between stays in SBUF."""
    (depth, rows), width, columns = x.shape, w.shape[1], v.shape[1]
    out, blocks = hbm(rows, columns, dtype=x.dtype), -(-width // P)
    left = deep(x, 0, rows)
    hidden = sbuf(P, blocks, rows, dtype=x.dtype)
    for f in range(0, width, P):
        count = min(P, width - f)
        gate, up = deep(w, f, count), deep(u, f, count)
        for m in range(0, rows, CHUNK):
            wide = min(CHUNK, rows - m)
            one, other, act = psum(P, wide), psum(P, wide), sbuf(P, wide)
            for k in range(depth // P):
                moving = left[:, k, m : m + wide]
                nisa.nc_matmul(dst=one[0:count, :], stationary=gate[:, k, :], moving=moving, accumulate=k > 0)
                nisa.nc_matmul(dst=other[0:count, :], stationary=up[:, k, :], moving=moving, accumulate=k > 0)
            nisa.activation(dst=act[0:count, :], op=nl.silu, data=one[0:count, :])
            nisa.tensor_tensor(
                dst=hidden[0:count, f // P, m : m + wide], data1=act[0:count, :], data2=other[0:count, :],
                op=nl.multiply,
            )  # fmt: skip
    for c in range(0, columns, CHUNK):
        wide = min(CHUNK, columns - c)
        down = sbuf(P, blocks, wide, dtype=v.dtype)
        for f in range(0, width, P):
            count = min(P, width - f)
            nisa.dma_copy(dst=down[0:count, f // P, :], src=v[f : f + count, c : c + wide])
        for m in range(0, rows, P):
            total, result = psum(P, wide), sbuf(P, wide, dtype=x.dtype)
            for f in range(blocks):
                count = min(P, width - f * P)
                nisa.nc_matmul(
                    dst=total, stationary=hidden[0:count, f, m : m + P], moving=down[0:count, f, :],
                    accumulate=f > 0,
                )  # fmt: skip
            nisa.tensor_copy(dst=result, src=total)
            nisa.dma_copy(dst=out[m : m + P, c : c + wide], src=result)
    return out


@nki.jit
def rotary(x, c, s):
    """Pairs of neighbours of x [T, 2 H] turned by angles whose cosines and sines are c and s [T, H]."""
    rows, half = c.shape
    out = hbm(rows, 2 * half, dtype=x.dtype)
    for t in range(0, rows, P):
        tile, cosine, sine = (
            sbuf(P, half, 2, dtype=x.dtype),
            sbuf(P, half, dtype=c.dtype),
            sbuf(P, half, dtype=s.dtype),
        )
        nisa.dma_copy(dst=tile.reshape((P, 2 * half)), src=x[t : t + P, :])
        nisa.dma_copy(dst=cosine, src=c[t : t + P, :])
        nisa.dma_copy(dst=sine, src=s[t : t + P, :])
        result = sbuf(P, half, 2, dtype=x.dtype)
        for side, op in ((0, nl.subtract), (1, nl.add)):
            one, other = sbuf(P, half), sbuf(P, half)
            nisa.tensor_tensor(dst=one, data1=tile[:, :, side], data2=cosine, op=nl.multiply)
            nisa.tensor_tensor(dst=other, data1=tile[:, :, 1 - side], data2=sine, op=nl.multiply)
            nisa.tensor_tensor(dst=result[:, :, side], data1=one, data2=other, op=op)
        nisa.dma_copy(dst=out[t : t + P, :], src=result.reshape((P, 2 * half)))
    return out


@nki.jit
def running_sum(x):
    """Along rows, in pieces whose last value begins the next; rows are lanes."""
    rows, count = x.shape
    out, piece = hbm(rows, count, dtype=x.dtype), 2048
    ones = sbuf(P, min(piece, count))
    nisa.memset(dst=ones, value=1.0)
    for m in range(0, rows, P):
        carry = 0.0
        for t in range(0, count, piece):
            wide = min(piece, count - t)
            tile, result = sbuf(P, wide, dtype=x.dtype), sbuf(P, wide, dtype=x.dtype)
            nisa.dma_copy(dst=tile, src=x[m : m + P, t : t + wide])
            nisa.tensor_tensor_scan(
                dst=result, data0=ones[:, 0:wide], data1=tile, initial=carry, op0=nl.multiply, op1=nl.add
            )
            carry = result[:, wide - 1 : wide]
            nisa.dma_copy(dst=out[m : m + P, t : t + wide], src=result)
    return out


@nki.jit
def state_scan(a, x):
    """h = a * h + x along rows."""
    out = hbm(*x.shape, dtype=x.dtype)
    for m in range(0, x.shape[0], P):
        decay, grown, states = (sbuf(P, x.shape[1], dtype=x.dtype) for _ in range(3))
        nisa.dma_copy(dst=decay, src=a[m : m + P, :])
        nisa.dma_copy(dst=grown, src=x[m : m + P, :])
        nisa.tensor_tensor_scan(
            dst=states, data0=decay, data1=grown, initial=0.0, op0=nl.multiply, op1=nl.add
        )
        nisa.dma_copy(dst=out[m : m + P, :], src=states)
    return out


def taps(x, f, step):
    """Sums over a window of each row times factors of the row."""
    channels, width = f.shape
    count = (x.shape[1] - width) // step + 1
    out = hbm(channels, count, dtype=x.dtype)
    for c in range(0, channels, P):
        tile, factors = sbuf(P, x.shape[1], dtype=x.dtype), sbuf(P, width, dtype=f.dtype)
        nisa.dma_copy(dst=tile, src=x[c : c + P, :])
        nisa.dma_copy(dst=factors, src=f[c : c + P, :])
        total, result = sbuf(P, count), sbuf(P, count, dtype=x.dtype)
        for r in range(width):
            part = tile[:, r : r + step * (count - 1) + 1 : step]
            into = result if r == width - 1 else total
            if r == 0:
                nisa.tensor_scalar(dst=into, data=part, op0=nl.multiply, operand0=factors[:, 0:1])
            else:
                nisa.scalar_tensor_tensor(
                    dst=into,
                    data=part,
                    op0=nl.multiply,
                    operand0=factors[:, r : r + 1],
                    op1=nl.add,
                    operand1=total,
                )
        nisa.dma_copy(dst=out[c : c + P, :], src=result)
    return out


@nki.jit
def depthwise(x, f):
    """Channels on partitions, a tap at a time."""
    return taps(x, f, 1)


@nki.jit
def depthwise_strided(x, f):
    """The same of every second place."""
    return taps(x, f, 2)


@nki.jit
def convolution(x, f):
    """x [C, H, W], f [C, R, S, K]: a product per tap and block of rows of the image, summed in PSUM."""
    channels, high, wide = x.shape
    rows, columns, outs = high - f.shape[1] + 1, wide - f.shape[2] + 1, f.shape[3]
    out = hbm(outs, rows, columns, dtype=x.dtype)
    image, factors = sbuf(channels, high, wide, dtype=x.dtype), sbuf(*f.shape, dtype=f.dtype)
    nisa.dma_copy(dst=image, src=x)
    nisa.dma_copy(dst=factors, src=f)
    each = CHUNK // columns
    for p in range(0, rows, each):
        count = min(each, rows - p)
        total, result = psum(outs, count, columns), sbuf(outs, count, columns, dtype=x.dtype)
        for r in range(f.shape[1]):
            for s in range(f.shape[2]):
                nisa.nc_matmul(
                    dst=total, stationary=factors[:, r, s, :],
                    moving=image[:, p + r : p + r + count, s : s + columns], accumulate=r + s > 0,
                )  # fmt: skip
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[:, p : p + count, :], src=result)
    return out


@nki.jit
def max_pool(x):
    """The largest of each 2 x 2 of x [C, H, W]."""
    channels, high, wide = x.shape
    out = hbm(channels, high // 2, wide // 2, dtype=x.dtype)
    for c in range(0, channels, P):
        tile, result = sbuf(P, high, wide, dtype=x.dtype), sbuf(P, high // 2, wide // 2, dtype=x.dtype)
        nisa.dma_copy(dst=tile, src=x[c : c + P])
        squares = tile.ap(
            [[high * wide, P], [2 * wide, high // 2], [2, wide // 2], [wide, 2], [1, 2]], offset=0
        )
        nisa.tensor_reduce(dst=result, op=nl.maximum, data=squares, axis=(3, 4))
        nisa.dma_copy(dst=out[c : c + P], src=result)
    return out


@nki.jit
def transposition(x):
    """Tiles of 128 x 128 on TensorE, four in a bank of PSUM; a row of blocks in one transfer."""
    rows, columns = x.shape
    out = hbm(columns, rows, dtype=x.dtype)
    for n in range(0, columns, P):
        row, block = sbuf(P, rows, dtype=x.dtype), deep(x, n, P)
        for m in range(0, rows // P, 4):
            bank = psum(P, 4, P, dtype=x.dtype)
            for i in range(4):
                nisa.nc_transpose(dst=bank[:, i, :], data=block[:, m + i, :])
            nisa.tensor_copy(dst=row[:, m * P : (m + 4) * P], src=bank.reshape((P, 4 * P)))
        nisa.dma_copy(dst=out[n : n + P, :], src=row)
    return out
