"""Matrix products lhsT[K, M].T @ rhs[K, N] in the `nki` spelling, from naive to fully blocked.

K and M are multiples of 128, N of 512. Structures: NKI kernel optimization guide; blocked variants of it by
yahavb/trainium-agent-labs.
"""

import nki
import nki.isa as nisa
import nki.language as nl

ROWS, COLUMNS, DEPTH = 128, 512, 128


def loaded(source, row, rows, column, columns):
    """A part of a matrix in SBUF."""
    tile = nl.ndarray((rows, columns), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[row : row + rows, column : column + columns])
    return tile


def column_of(source, column, columns):
    """All tiles [128, columns] of a matrix below each other."""
    return [loaded(source, k * DEPTH, DEPTH, column, columns) for k in range(source.shape[0] // DEPTH)]


def store(out, row, column, product):
    """Copy a finished tile from PSUM over SBUF to HBM."""
    tile = nl.ndarray((ROWS, COLUMNS), dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=product)
    nisa.dma_copy(dst=out[row : row + ROWS, column : column + COLUMNS], src=tile)


def new_product():
    return nl.ndarray((ROWS, COLUMNS), dtype=nl.float32, buffer=nl.psum)


@nki.jit
def tiled(lhsT, rhs, repeats=1):
    """Load both tiles right before each multiplication; the whole product `repeats` times."""
    K, M = lhsT.shape
    _, N = rhs.shape
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for _ in range(repeats):
        for m in nl.affine_range(M // ROWS):
            for n in nl.affine_range(N // COLUMNS):
                product = new_product()
                for k in nl.affine_range(K // DEPTH):
                    stationary = loaded(lhsT, k * DEPTH, DEPTH, m * ROWS, ROWS)
                    moving = loaded(rhs, k * DEPTH, DEPTH, n * COLUMNS, COLUMNS)
                    nisa.nc_matmul(dst=product, stationary=stationary, moving=moving)
                store(out, m * ROWS, n * COLUMNS, product)
    return out


@nki.jit
def hoisted(lhsT, rhs):
    """Load a column of lhsT once per row of results, and a column of rhs before the sum over it."""
    K, M = lhsT.shape
    _, N = rhs.shape
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // ROWS):
        left = column_of(lhsT, m * ROWS, ROWS)
        for n in nl.affine_range(N // COLUMNS):
            right = column_of(rhs, n * COLUMNS, COLUMNS)
            product = new_product()
            for k in nl.affine_range(K // DEPTH):
                nisa.nc_matmul(dst=product, stationary=left[k], moving=right[k])
            store(out, m * ROWS, n * COLUMNS, product)
    return out


@nki.jit
def block_free(lhsT, rhs, tiles_m=2, tiles_n=2):
    """Share the columns that are in SBUF among tiles_m * tiles_n tiles of the result."""
    K, M = lhsT.shape
    _, N = rhs.shape
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // ROWS // tiles_m):
        above = [(m * tiles_m + i) * ROWS for i in range(tiles_m)]
        left = [column_of(lhsT, row, ROWS) for row in above]
        for n in nl.affine_range(N // COLUMNS // tiles_n):
            beside = [(n * tiles_n + j) * COLUMNS for j in range(tiles_n)]
            right = [column_of(rhs, column, COLUMNS) for column in beside]
            for i in nl.affine_range(tiles_m):
                for j in nl.affine_range(tiles_n):
                    product = new_product()
                    for k in nl.affine_range(K // DEPTH):
                        nisa.nc_matmul(dst=product, stationary=left[i][k], moving=right[j][k])
                    store(out, above[i], beside[j], product)
    return out


@nki.jit
def blocked(lhsT, rhs, tiles_m, tiles_n, tiles_k, sums="output"):
    """Block all three dimensions: products of tiles_k tiles in PSUM, their sums in SBUF.

    `sums` is the type of the sums: "output" for that of the result, or "float32", which the store converts.
    """
    _, M = lhsT.shape
    _, N = rhs.shape
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    dtype = nl.float32 if sums == "float32" else lhsT.dtype
    for n in nl.affine_range(N // COLUMNS // tiles_n):
        totals = zeros(M // ROWS, tiles_n, dtype)
        for k in nl.sequential_range(lhsT.shape[0] // DEPTH // tiles_k):
            add_depth(totals, lhsT, rhs, n, k, (tiles_m, tiles_n, tiles_k))
        for i in nl.affine_range(M // ROWS):
            store_row(out, i * ROWS, n * tiles_n * COLUMNS, totals[i])
    return out


def zeros(tiles_m, tiles_n, dtype):
    """Tiles of zeros, one per tile of the result."""
    totals = []
    for _ in range(tiles_m):
        row = [nl.ndarray((ROWS, COLUMNS), dtype=dtype, buffer=nl.sbuf) for _ in range(tiles_n)]
        for tile in row:
            nisa.memset(dst=tile, value=0.0)
        totals.append(row)
    return totals


def add_depth(totals, lhsT, rhs, n, k, tiles):
    """Add what one block of the contraction dimension contributes to a column of blocks of the result."""
    tiles_m, tiles_n, tiles_k = tiles
    depths = [(k * tiles_k + i) * DEPTH for i in range(tiles_k)]
    columns = tiles_n * COLUMNS
    right = [loaded(rhs, depth, DEPTH, n * columns, columns) for depth in depths]
    for m in nl.affine_range(lhsT.shape[1] // ROWS // tiles_m):
        left = [loaded(lhsT, depth, DEPTH, m * tiles_m * ROWS, tiles_m * ROWS) for depth in depths]
        for j in nl.affine_range(tiles_n):
            for i in nl.affine_range(tiles_m):
                product = new_product()
                for d in nl.affine_range(tiles_k):
                    stationary = left[d][:, i * ROWS : (i + 1) * ROWS]
                    moving = right[d][:, j * COLUMNS : (j + 1) * COLUMNS]
                    nisa.nc_matmul(dst=product, stationary=stationary, moving=moving)
                total = totals[m * tiles_m + i][j]
                nisa.tensor_tensor(dst=total, data1=total, data2=product, op=nl.add)


def store_row(out, row, column, totals):
    """Put the tiles of one row of a block side by side and store them in one transfer."""
    columns = len(totals) * COLUMNS
    packed = nl.ndarray((ROWS, columns), dtype=totals[0].dtype, buffer=nl.sbuf)
    for j, total in enumerate(totals):
        nisa.tensor_copy(dst=packed[:, j * COLUMNS : (j + 1) * COLUMNS], src=total)
    nisa.dma_copy(dst=out[row : row + ROWS, column : column + columns], src=packed)
