"""Matrix products lhsT[K, M].T @ rhs[K, N] in the `neuronxcc.nki` spelling, with ever more reuse of loads.

K and M are multiples of 128, N of 512. Structure: NKI tutorial on matrix multiplication of SDK 2.20; of
`grouped`, examples/trn-tutorial of ucb-bar/autocomp, whose first product is `products.naive`.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

ROWS, COLUMNS, DEPTH = 128, 512, 128


def column_of(source, first, columns, tiles, start=0):
    """Tiles [128, columns] of a source below each other, each loaded on its own, from the start-th one on."""
    column = nl.ndarray((tiles, nl.par_dim(DEPTH), columns), dtype=source.dtype, buffer=nl.sbuf)
    for k in nl.affine_range(tiles):
        column[k] = nl.load(source[nl.ds((start + k) * DEPTH, DEPTH), nl.ds(first, columns)])
    return column


def store_product(out, row, column, left, right):
    """One tile of the result from a column of tiles of either operand."""
    product = nl.zeros((ROWS, COLUMNS), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(left.shape[0]):
        product += nl.matmul(left[k], right[k], transpose_x=True)
    nl.store(out[nl.ds(row, ROWS), nl.ds(column, COLUMNS)], nl.copy(product, dtype=out.dtype))


@nki.jit
def block_free(lhsT, rhs, tiles_m=2, tiles_n=2):
    """Share the columns that are in SBUF among tiles_m * tiles_n tiles of the result."""
    K, M = lhsT.shape
    out = nl.ndarray((M, rhs.shape[1]), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // ROWS // tiles_m):
        above = [(m * tiles_m + i) * ROWS for i in range(tiles_m)]
        left = [column_of(lhsT, row, ROWS, K // DEPTH) for row in above]
        for n in nl.affine_range(rhs.shape[1] // COLUMNS // tiles_n):
            column_starts = [(n * tiles_n + j) * COLUMNS for j in range(tiles_n)]
            right = [column_of(rhs, column, COLUMNS, K // DEPTH) for column in column_starts]
            for i in range(tiles_m):
                for j in range(tiles_n):
                    store_product(out, above[i], column_starts[j], left[i], right[j])
    return out


@nki.jit
def blocked(lhsT, rhs, tiles_m, tiles_n, tiles_k):
    """Block all three dimensions: products of tiles_k tiles in PSUM, their sums in SBUF."""
    K, M = lhsT.shape
    out = nl.ndarray((M, rhs.shape[1]), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    columns = tiles_n * COLUMNS
    for n in nl.affine_range(rhs.shape[1] // columns):
        shape = (M // ROWS, tiles_n, nl.par_dim(ROWS), COLUMNS)
        totals = nl.zeros(shape, dtype=lhsT.dtype, buffer=nl.sbuf)
        for k in nl.sequential_range(K // DEPTH // tiles_k):
            right = column_of(rhs, n * columns, columns, tiles_k, k * tiles_k)
            for m in nl.affine_range(M // ROWS // tiles_m):
                left = column_of(lhsT, m * tiles_m * ROWS, tiles_m * ROWS, tiles_k, k * tiles_k)
                add_products(totals, m * tiles_m, tiles_m, left, right)
        for i in nl.affine_range(M // ROWS):
            packed = nl.ndarray((ROWS, columns), dtype=lhsT.dtype, buffer=nl.sbuf)
            for j in nl.affine_range(tiles_n):
                packed[:, nl.ds(j * COLUMNS, COLUMNS)] = nl.copy(totals[i, j])
            nl.store(out[nl.ds(i * ROWS, ROWS), nl.ds(n * columns, columns)], packed)
    return out


def add_products(totals, first, tiles_m, left, right):
    """Add the products of two blocks to their sums."""
    for j in nl.affine_range(totals.shape[1]):
        for i in nl.affine_range(tiles_m):
            product = nl.zeros((ROWS, COLUMNS), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(left.shape[0]):
                stationary = left[k, :, nl.ds(i * ROWS, ROWS)]
                product += nisa.nc_matmul(stationary, right[k, :, nl.ds(j * COLUMNS, COLUMNS)])
            totals[first + i, j] += product


@nki.jit
def grouped(lhsT, rhs, tiles_m, tiles_n, wide_m=1, wide_n=1):
    """Load tiles_m + tiles_n tiles for tiles_m * tiles_n products, wide_m and wide_n of them at once."""
    K, M = lhsT.shape
    out = nl.ndarray((M, rhs.shape[1]), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // ROWS // tiles_m):
        for n in nl.affine_range(rhs.shape[1] // COLUMNS // tiles_n):
            left, right = m * tiles_m * ROWS, n * tiles_n * COLUMNS
            pairs = [(i, j) for i in range(tiles_m) for j in range(tiles_n)]
            totals = {pair: nl.zeros((ROWS, COLUMNS), dtype=nl.float32, buffer=nl.psum) for pair in pairs}
            for k in nl.affine_range(K // DEPTH):
                moving = neighbours(rhs, k, right, COLUMNS, tiles_n, wide_n)
                stationary = neighbours(lhsT, k, left, ROWS, tiles_m, wide_m)
                for i, j in pairs:
                    totals[i, j] += nisa.nc_matmul(stationary[i], moving[j])
            for i, j in pairs:
                here = nl.ds(left + i * ROWS, ROWS), nl.ds(right + j * COLUMNS, COLUMNS)
                nl.store(out[here], nisa.tensor_copy(totals[i, j], dtype=out.dtype))
    return out


def neighbours(source, k, first, columns, tiles, wide):
    """Tiles [128, columns] of a source beside each other, `wide` of them in one load."""
    wide_tiles = []
    for start in range(0, tiles, wide):
        here = nl.ds(first + start * columns, wide * columns)
        wide_tile = nl.load(source[nl.ds(k * DEPTH, DEPTH), here])
        wide_tiles += [wide_tile[:, nl.ds(i * columns, columns)] for i in range(wide)]
    return wide_tiles
