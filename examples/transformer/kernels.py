"""The kernels of a small transformer, forward and backward, in float32: rmsnorm, causal attention, MLP.

Rows come in tiles of 128. Attention takes sequences of 128 and heads of at most 128; the MLP takes a width of
128 and a hidden width of 128, 256, 384 or 512.
"""

import nki
import nki.isa as nisa
import nki.language as nl

ROWS = 128
EPSILON = 1e-6
# what a score becomes that attention may not look at; exp of it is 0
HIDDEN = -1e30


def tile(shape, memory=nl.sbuf):
    return nl.ndarray(shape, dtype=nl.float32, buffer=memory)


def output(shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)


def loaded(source):
    """A part of an HBM tensor as a tile."""
    new_tile = tile(source.shape)
    nisa.dma_copy(dst=new_tile, src=source)
    return new_tile


def copied(source):
    """A tile of PSUM in SBUF."""
    new_tile = tile(source.shape)
    nisa.tensor_copy(dst=new_tile, src=source)
    return new_tile


def product(stationary, moving):
    """stationary[K, M].T @ moving[K, N] as a tile [M, N]."""
    sums = tile((stationary.shape[1], moving.shape[1]), nl.psum)
    nisa.nc_matmul(dst=sums, stationary=stationary, moving=moving)
    return copied(sums)


def transposed(data):
    """data[P, F] as a tile [F, P]."""
    swapped = tile((data.shape[1], data.shape[0]), nl.psum)
    nisa.nc_transpose(dst=swapped, data=data)
    return copied(swapped)


def combined(one, other, op):
    """op(one, other), element by element; `other` may be a column [P, 1]."""
    result = tile(one.shape)
    if other.shape[1] == 1:
        nisa.tensor_scalar(dst=result, data=one, op0=op, operand0=other)
    else:
        nisa.tensor_tensor(dst=result, data1=one, data2=other, op=op)
    return result


def row_sums(data, op=nl.add):
    sums = tile((data.shape[0], 1))
    nisa.tensor_reduce(dst=sums, op=op, data=data, axis=1)
    return sums


def applied(function, data, **options):
    result = tile(data.shape)
    nisa.activation(dst=result, op=function, data=data, **options)
    return result


def scaled(data, factor):
    result = tile(data.shape)
    nisa.tensor_scalar(dst=result, data=data, op0=nl.multiply, operand0=factor)
    return result


def ones(shape):
    new_tile = tile(shape)
    nisa.memset(dst=new_tile, value=1.0)
    return new_tile


def row_tiles(x):
    """Slices of 128 rows."""
    return [slice(start, start + ROWS) for start in range(0, x.shape[0], ROWS)]


# --- rmsnorm: y = x / sqrt(mean(x^2) + epsilon) * weight


def inverse_norms(x):
    squares = row_sums(combined(x, x, nl.multiply))
    return applied(nl.rsqrt, squares, scale=1.0 / x.shape[1], bias=EPSILON)


def on_every_row(weight):
    """weight[1, F] on 128 partitions: TensorE multiplies a column of ones by it."""
    return product(ones((1, ROWS)), loaded(weight))


@nki.jit
def rmsnorm(x, weight):
    """x[T, F], weight[1, F] -> [T, F]."""
    y = output(x.shape)
    factors = on_every_row(weight)
    for rows in row_tiles(x):
        data = loaded(x[rows, :])
        unit = combined(data, inverse_norms(data), nl.multiply)
        nisa.dma_copy(dst=y[rows, :], src=combined(unit, factors, nl.multiply))
    return y


@nki.jit
def rmsnorm_backward(x, weight, dy):
    dx, dweight = output(x.shape), output(weight.shape)
    factors = on_every_row(weight)
    column = ones((ROWS, 1))
    sums = tile(weight.shape, nl.psum)
    for rows in row_tiles(x):
        data, upstream = loaded(x[rows, :]), loaded(dy[rows, :])
        inverse = inverse_norms(data)
        unit = combined(data, inverse, nl.multiply)
        # rows are summed by TensorE, tile after tile into one bank of PSUM
        nisa.nc_matmul(dst=sums, stationary=column, moving=combined(upstream, unit, nl.multiply))
        dunit = combined(upstream, factors, nl.multiply)
        mean = scaled(row_sums(combined(dunit, unit, nl.multiply)), 1.0 / x.shape[1])
        centred = combined(dunit, combined(unit, mean, nl.multiply), nl.subtract)
        nisa.dma_copy(dst=dx[rows, :], src=combined(centred, inverse, nl.multiply))
    nisa.dma_copy(dst=dweight, src=copied(sums))
    return dx, dweight


# --- causal attention: softmax(q k.T / sqrt(D)) v per head


def probabilities(q, k):
    """Rows of softmax over the keys that a query may look at, [S, S]."""
    S, D = q.shape
    scores = product(transposed(q), transposed(k))
    seen = tile((S, S))
    # query p looks at key f where p - f is at least 0
    nisa.affine_select(
        dst=seen, pattern=[[-1, S]], channel_multiplier=1, on_true_tile=scores, on_false_value=HIDDEN,
        cmp_op=nl.greater_equal,
    )  # fmt: skip
    scale = D**-0.5
    powers = applied(nl.exp, seen, scale=scale, bias=scaled(row_sums(seen, nl.maximum), -scale))
    inverse = tile((S, 1))
    nisa.reciprocal(dst=inverse, data=row_sums(powers))
    return combined(powers, inverse, nl.multiply)


@nki.jit
def attention(q, k, v):
    """q, k, v [H, S, D] -> [H, S, D]."""
    out = output(q.shape)
    for head in range(q.shape[0]):
        weights = probabilities(loaded(q[head]), loaded(k[head]))
        nisa.dma_copy(dst=out[head], src=product(transposed(weights), loaded(v[head])))
    return out


@nki.jit
def attention_backward(q, k, v, dout):
    dq, dk, dv = output(q.shape), output(k.shape), output(v.shape)
    for head in range(q.shape[0]):
        query, key, upstream = loaded(q[head]), loaded(k[head]), loaded(dout[head])
        weights = probabilities(query, key)
        nisa.dma_copy(dst=dv[head], src=product(weights, upstream))
        dweights = product(transposed(upstream), transposed(loaded(v[head])))
        centred = combined(dweights, row_sums(combined(dweights, weights, nl.multiply)), nl.subtract)
        dscores = scaled(combined(weights, centred, nl.multiply), q.shape[2] ** -0.5)
        nisa.dma_copy(dst=dq[head], src=product(transposed(dscores), key))
        nisa.dma_copy(dst=dk[head], src=product(dscores, query))
    return dq, dk, dv


# --- MLP: silu(x up) down


def chunks(width):
    """Slices of 128 columns: what TensorE contracts at once."""
    return [slice(start, start + ROWS) for start in range(0, width, ROWS)]


def contracted(data, matrices):
    """data[T, K] @ the rows of a matrix [K, N] that come in chunks of 128, summed in PSUM."""
    sums = tile((data.shape[0], matrices[0].shape[1]), nl.psum)
    for columns, matrix in zip(chunks(data.shape[1]), matrices):
        nisa.nc_matmul(dst=sums, stationary=transposed(data[:, columns]), moving=matrix)
    return copied(sums)


@nki.jit
def mlp(x, up, down):
    """x[T, F], up[F, H], down[H, F] -> [T, F]."""
    y = output(x.shape)
    first = loaded(up)
    second = [loaded(down[rows, :]) for rows in chunks(down.shape[0])]
    for rows in row_tiles(x):
        hidden = product(transposed(loaded(x[rows, :])), first)
        active = combined(hidden, applied(nl.sigmoid, hidden), nl.multiply)
        nisa.dma_copy(dst=y[rows, :], src=contracted(active, second))
    return y


@nki.jit
def mlp_backward(x, up, down, dy):
    dx, dup, ddown = output(x.shape), output(up.shape), output(down.shape)
    parts = chunks(down.shape[0])
    first = loaded(up)
    first_swapped = [transposed(first[:, columns]) for columns in parts]
    second_swapped = [transposed(loaded(down[rows, :])) for rows in parts]
    up_sums = tile(up.shape, nl.psum)
    down_sums = [tile((ROWS, down.shape[1]), nl.psum) for _ in parts]
    for rows in row_tiles(x):
        data, upstream = loaded(x[rows, :]), loaded(dy[rows, :])
        hidden = product(transposed(data), first)
        gate = applied(nl.sigmoid, hidden)
        active = combined(hidden, gate, nl.multiply)
        upstream_swapped = transposed(upstream)
        dhidden = tile(hidden.shape)
        for columns, swapped, sums in zip(parts, second_swapped, down_sums):
            dactive = product(upstream_swapped, swapped)
            # the slope of h sigmoid(h) is s + h s (1 - s)
            damped = combined(active[:, columns], gate[:, columns], nl.multiply)
            slope = combined(combined(gate[:, columns], active[:, columns], nl.add), damped, nl.subtract)
            nisa.tensor_tensor(dst=dhidden[:, columns], data1=dactive, data2=slope, op=nl.multiply)
            nisa.nc_matmul(dst=sums, stationary=active[:, columns], moving=upstream)
        nisa.nc_matmul(dst=up_sums, stationary=data, moving=dhidden)
        nisa.dma_copy(dst=dx[rows, :], src=contracted(dhidden, first_swapped))
    nisa.dma_copy(dst=dup, src=copied(up_sums))
    for columns, sums in zip(parts, down_sums):
        nisa.dma_copy(dst=ddown[columns, :], src=copied(sums))
    return dx, dup, ddown


# --- what a training step launches


def launches(layers, batch, sequence, width, heads, hidden):
    """The kernels of a training step: kernel, shapes of its arguments, how often it runs."""
    x, weight = (batch * sequence, width), (1, width)
    head = (batch * heads, sequence, width // heads)
    matrices = ((width, hidden), (hidden, width))
    return [
        (rmsnorm, (x, weight), 2 * layers + 1),
        (rmsnorm_backward, (x, weight, x), 2 * layers + 1),
        (attention, (head,) * 3, layers),
        (attention_backward, (head,) * 4, layers),
        (mlp, (x, *matrices), layers),
        (mlp_backward, (x, *matrices, x), layers),
    ]
