"""Parts of language models that keep more in SBUF than fits, in the `neuronxcc.nki` spelling.

Structure: NKIBench/kernels of zhang677/AccelOpt.
"""

from typing import Any

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

ROWS, HALF, COLUMNS = 128, 512, 1024
QUARTERS = 4


def in_sbuf(*shape):
    return nl.ndarray((nl.par_dim(shape[0]), *shape[1:]), dtype=nl.float32, buffer=nl.sbuf)


def transposed(tile, columns):
    """The transpose of some columns of a tile, in SBUF."""
    return nl.copy(nisa.nc_transpose(tile[:, columns]))


@nki.jit
def softmax_of_products(left, right):
    """Softmax along rows of left[b, M, K] @ right[b, K, N]; the scores of a whole b are kept."""
    count, M, _ = left.shape
    N = right.shape[2]
    out = nl.ndarray((count, M // ROWS, nl.par_dim(ROWS), N), dtype=left.dtype, buffer=nl.shared_hbm)
    for b in nl.affine_range(count):
        scores, most = scores_of(left[b], right[b])
        for m in nl.affine_range(M // ROWS):
            least = nisa.tensor_reduce(np.max, most[m], axis=(1,), negate=True, keepdims=True)
            powers, sums = [], in_sbuf(ROWS, N // HALF)
            for c, tile in enumerate(scores[m]):
                powers.append(nisa.activation(op=nl.exp, data=tile, bias=least))
                sums[:, c : c + 1] = nisa.tensor_reduce(np.add, powers[c], axis=(1,), keepdims=True)
            share = nisa.reciprocal(nisa.tensor_reduce(np.add, sums, axis=(1,), keepdims=True))
            for block in nl.affine_range(N // COLUMNS):
                result = in_sbuf(ROWS, COLUMNS)
                for h in range(2):
                    part = nl.ds(h * HALF, HALF)
                    result[:, part] = nisa.tensor_scalar(
                        powers[2 * block + h], op0=np.multiply, operand0=share
                    )
                nl.store(out[b, m, :, nl.ds(block * COLUMNS, COLUMNS)], result)
    return out


def scores_of(left, right):
    """Per 128 rows the products [128, 512], and the largest of each in a column of one tile.

    Rows of left are loaded and turned anew for every 1024 columns of right.
    """
    rows, columns = left.shape[0] // ROWS, right.shape[1]
    scores: list[list[Any]] = [[] for _ in range(rows)]
    most = [in_sbuf(ROWS, columns // HALF) for _ in range(rows)]
    for block in nl.affine_range(columns // COLUMNS):
        moving = nl.load(right[:, nl.ds(block * COLUMNS, COLUMNS)])
        for m in nl.affine_range(rows):
            stationary = transposed(nl.load(left[nl.ds(m * ROWS, ROWS), :]), slice(0, left.shape[1]))
            for h in range(2):
                tile = nl.copy(nisa.nc_matmul(stationary, moving[:, nl.ds(h * HALF, HALF)]))
                column = 2 * block + h
                most[m][:, column : column + 1] = nisa.tensor_reduce(np.max, tile, axis=(1,), keepdims=True)
                scores[m].append(tile)
    return scores, most


@nki.jit
def low_rank_product(x, weights, inner, outer):
    """x @ weights + x @ inner @ outer, as [groups, 4, 128, N / 128, 128].

    x is [groups, 4, 128, K / 128, 128], weights [K / 128, 128, N], inner [K / 128, 128, 128], outer [128, N].
    """
    groups, _, _, depth, _ = x.shape
    N = weights.shape[2]
    out = nl.ndarray((groups, 4, nl.par_dim(ROWS), N // ROWS, ROWS), dtype=x.dtype, buffer=nl.shared_hbm)
    inner_tiles = [nl.load(inner[k]) for k in range(depth)]
    corrections = {}
    for half in range(2):
        own = range(half * groups // 2, (half + 1) * groups // 2)
        narrow = [narrow_of(x[g], inner_tiles) for g in own]
        for block in nl.affine_range(N // COLUMNS):
            wide = nl.load(outer[:, nl.ds(block * COLUMNS, COLUMNS)])
            for g, moving in zip(own, narrow):
                for j in range(8):
                    product = nisa.nc_matmul(wide[:, nl.ds(j * ROWS, ROWS)], moving)
                    corrections[block, g, j] = nl.copy(product)
    for block in nl.affine_range(N // COLUMNS):
        totals = sums_over_quarters(x, weights, block)
        for g in nl.affine_range(groups):
            for j in range(8):
                total = nl.add(totals[g][j], corrections[block, g, j])
                for i in range(4):
                    tile = transposed(total, nl.ds(i * ROWS, ROWS))
                    nl.store(out[g, i, :, 8 * block + j, :], tile)
    return out


def turned_group(group, first, count):
    """Columns `first` to `first + count`, in 128s, of 512 rows of x, turned: [128, count, 512]."""
    result = in_sbuf(ROWS, count, HALF)
    for i in range(4):
        tile = nl.load(group[i, :, first : first + count, :])
        for k in range(count):
            result[:, k, nl.ds(i * ROWS, ROWS)] = nl.copy(nisa.nc_transpose(tile[:, k, :]))
    return result


def narrow_of(group, inner_tiles):
    """The transpose of 512 rows of x times inner, [128, 512]."""
    total = nl.zeros((nl.par_dim(ROWS), HALF), dtype=nl.float32, buffer=nl.psum)
    for first in range(0, len(inner_tiles), 8):
        moving = turned_group(group, first, 8)
        for k in range(8):
            total += nisa.nc_matmul(inner_tiles[first + k], moving[:, k, :])
    return nl.copy(total)


def sums_over_quarters(x, weights, block):
    """Per group the transposes of 1024 columns of x @ weights, as eight tiles; K in four quarters."""
    depth = x.shape[3] // QUARTERS
    columns = nl.ds(block * COLUMNS, COLUMNS)
    totals = [
        [nl.zeros((nl.par_dim(ROWS), HALF), dtype=nl.float32) for _ in range(8)] for _ in range(x.shape[0])
    ]
    for quarter in nl.sequential_range(QUARTERS):
        stationary = [nl.load(weights[quarter * depth + k, :, columns]) for k in range(depth)]
        for g, own in enumerate(totals):
            starts = [quarter * depth + h * depth // 2 for h in range(2)]
            moving = [turned_group(x[g], first, depth // 2) for first in starts]
            for j in range(8):
                product = nl.zeros((nl.par_dim(ROWS), HALF), dtype=nl.float32, buffer=nl.psum)
                for k in range(depth):
                    tile = moving[2 * k // depth][:, k % (depth // 2), :]
                    product += nisa.nc_matmul(stationary[k][:, nl.ds(j * ROWS, ROWS)], tile)
                own[j][...] = nl.add(own[j], product)
    return totals
