"""Parts of language models in the `neuronxcc.nki` spelling, in blocks of 1024 columns as a compiler lays out.

Structure: NKIBench/kernels of zhang677/AccelOpt.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

ROWS, COLUMNS, HALF = 128, 1024, 512
RATE, FIRST, SECOND, DECAY, SMALL = 0.01, 0.9, 0.999, 1e-5, 1e-8


@nki.jit
def silu(x):
    """x / (1 + exp(-x)) of x [128, rows, columns]."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in nl.affine_range(x.shape[1]):
        for block in nl.affine_range(x.shape[2] // COLUMNS):
            here = nl.ds(block * COLUMNS, COLUMNS)
            tile = nl.load(x[:, row, here])
            result = nl.ndarray((nl.par_dim(ROWS), COLUMNS), dtype=x.dtype, buffer=nl.sbuf)
            for half in nl.affine_range(COLUMNS // HALF):
                part = nl.ds(half * HALF, HALF)
                grown = nisa.activation(op=nl.exp, data=tile[:, part], scale=-1.0)
                added = nisa.tensor_scalar(data=grown, op0=nl.add, operand0=1.0)
                result[:, part] = nl.multiply(tile[:, part], nisa.reciprocal(data=added))
            nl.store(out[:, row, here], result)
    return out


def moved(theta, first, second, gradient):
    """One step of AdamW on tiles: parameters less a multiple of first moment over root of the second."""
    kept = nl.subtract(theta, nisa.tensor_scalar(data=theta, op0=nl.multiply, operand0=DECAY))
    share = nisa.tensor_scalar(data=gradient, op0=nl.multiply, operand0=1 - FIRST)
    mean = nl.add(nisa.tensor_scalar(data=first, op0=nl.multiply, operand0=FIRST), share)
    far = nisa.tensor_scalar(data=mean, op0=nl.multiply, operand0=RATE)
    share = nisa.tensor_scalar(data=gradient, op0=nl.multiply, operand0=1 - SECOND)
    older = nisa.tensor_scalar(data=second, op0=nl.multiply, operand0=SECOND)
    square = nl.add(older, nl.multiply(share, gradient))
    root = nisa.activation(op=nl.sqrt, data=square, scale=1 / (1 - SECOND))
    over = nisa.reciprocal(data=nisa.tensor_scalar(data=root, op0=nl.add, operand0=SMALL))
    return nl.subtract(kept, nl.multiply(far, over))


@nki.jit
def adamw(theta, gradient, first, second):
    """New parameters from [rows, columns] of parameters, gradients and both moments."""
    out = nl.ndarray(theta.shape, dtype=theta.dtype, buffer=nl.shared_hbm)
    for top in range(0, theta.shape[0], ROWS):
        height = min(ROWS, theta.shape[0] - top)
        for block in nl.affine_range(theta.shape[1] // COLUMNS):
            here = (nl.ds(top, height), nl.ds(block * COLUMNS, COLUMNS))
            tiles = [nl.load(source[here]) for source in (theta, first, second, gradient)]
            result = nl.ndarray((nl.par_dim(height), COLUMNS), dtype=theta.dtype, buffer=nl.sbuf)
            for half in nl.affine_range(COLUMNS // HALF):
                part = nl.ds(half * HALF, HALF)
                result[:, part] = moved(*[tile[:, part] for tile in tiles])
            nl.store(out[here], result)
    return out


@nki.jit
def product(left, right):
    """left[p, k, M] and right[p, k, N] summed over p and k; columns of left stay, blocks of right come by."""
    _, depth, M = left.shape
    N = right.shape[2]
    out = nl.ndarray((M // ROWS, nl.par_dim(ROWS), N), dtype=left.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // COLUMNS):
        stationary = tiles_of(left, m * COLUMNS, COLUMNS)
        for start in range(0, N, COLUMNS):
            width = min(COLUMNS, N - start)
            moving = tiles_of(right, start, width)
            for row in nl.affine_range(COLUMNS // ROWS):
                result = nl.ndarray((nl.par_dim(ROWS), width), dtype=left.dtype, buffer=nl.sbuf)
                for first in range(0, width, HALF):
                    columns = min(HALF, width - first)
                    part = nl.ds(first, columns)
                    total = nl.zeros((nl.par_dim(ROWS), columns), dtype=nl.float32, buffer=nl.psum)
                    for k in nl.affine_range(depth):
                        weights = stationary[k][:, nl.ds(row * ROWS, ROWS)]
                        total += nisa.nc_matmul(weights, moving[k][:, part])
                    result[:, part] = nl.copy(total)
                nl.store(out[m * (COLUMNS // ROWS) + row, :, nl.ds(start, width)], result)
    return out


def tiles_of(source, first, columns):
    """Columns of a source [p, k, columns], a tile for each k."""
    return [nl.load(source[:, k, nl.ds(first, columns)]) for k in range(source.shape[1])]


@nki.jit
def normalized_product(x, weights):
    """Rows of x [tiles, p, K] over the root of their mean square, times weights [k, p, N]."""
    tiles, _, K = x.shape
    depth, _, N = weights.shape
    out = nl.ndarray((tiles, nl.par_dim(ROWS), N), dtype=x.dtype, buffer=nl.shared_hbm)
    for group in nl.affine_range(tiles // 8):
        normalized_tiles = [normalized(x, group * 8 + i, K) for i in range(8)]
        for block in nl.affine_range(N // COLUMNS):
            moving = [nl.load(weights[k, :, nl.ds(block * COLUMNS, COLUMNS)]) for k in range(depth)]
            for i in range(8):
                result = nl.ndarray((nl.par_dim(ROWS), COLUMNS), dtype=x.dtype, buffer=nl.sbuf)
                for half in nl.affine_range(COLUMNS // HALF):
                    part = nl.ds(half * HALF, HALF)
                    total = nl.zeros((nl.par_dim(ROWS), HALF), dtype=nl.float32, buffer=nl.psum)
                    for k in nl.affine_range(depth):
                        total += nisa.nc_matmul(normalized_tiles[i][k], moving[k][:, part])
                    result[:, part] = nl.copy(total)
                nl.store(out[group * 8 + i, :, nl.ds(block * COLUMNS, COLUMNS)], result)
    return out


def normalized(x, tile, K):
    """The transposed blocks [128, 128] of one tile of x after normalization; x is loaded twice."""
    tile_in = nl.load(x[tile])
    square = nisa.activation(op=nl.square, data=tile_in)
    mean = nl.sum(nisa.tensor_scalar(data=square, op0=nl.multiply, operand0=1 / K), axis=1, keepdims=True)
    scaled = nisa.tensor_scalar(data=nl.load(x[tile]), op0=nl.multiply, operand0=nl.rsqrt(mean))
    return [nl.copy(nisa.nc_transpose(scaled[:, nl.ds(k * ROWS, ROWS)])) for k in range(K // ROWS)]
