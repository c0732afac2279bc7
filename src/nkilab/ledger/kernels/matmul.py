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
            column_starts = [(n * tiles_n + j) * COLUMNS for j in range(tiles_n)]
            right = [column_of(rhs, column, COLUMNS) for column in column_starts]
            for i in nl.affine_range(tiles_m):
                for j in nl.affine_range(tiles_n):
                    product = new_product()
                    for k in nl.affine_range(K // DEPTH):
                        nisa.nc_matmul(dst=product, stationary=left[i][k], moving=right[j][k])
                    store(out, above[i], column_starts[j], product)
    return out


@nki.jit
def blocked_tiles(lhsT, rhs, tiles_m, tiles_n, tiles_k):
    """Block all three dimensions, every tile on its own: products in PSUM, their sums in SBUF.

    The sums of a row of tiles are copied side by side before they are stored.
    """
    _, M = lhsT.shape
    _, N = rhs.shape
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    columns = tiles_n * COLUMNS
    for n in nl.affine_range(N // columns):
        totals = [zeros((ROWS, COLUMNS), lhsT.dtype, tiles_n) for _ in range(M // ROWS)]
        for k in nl.sequential_range(lhsT.shape[0] // DEPTH // tiles_k):
            depths = [(k * tiles_k + i) * DEPTH for i in range(tiles_k)]
            right = [loaded(rhs, depth, DEPTH, n * columns, columns) for depth in depths]
            for m in nl.affine_range(M // ROWS // tiles_m):
                first = m * tiles_m
                left = [loaded(lhsT, depth, DEPTH, first * ROWS, tiles_m * ROWS) for depth in depths]
                add_products(totals[first : first + tiles_m], left, right, tiles_n)
        for i in nl.affine_range(M // ROWS):
            packed = nl.ndarray((ROWS, columns), dtype=lhsT.dtype, buffer=nl.sbuf)
            for j, total in enumerate(totals[i]):
                nisa.tensor_copy(dst=packed[:, j * COLUMNS : (j + 1) * COLUMNS], src=total)
            store_row(out, i, n, packed)
    return out


@nki.jit
def blocked(lhsT, rhs, tiles_m, tiles_n, tiles_k, sums="output"):
    """Block all three dimensions, a block of either operand in one tensor of SBUF.

    The sums of a row of tiles lie side by side from the start. `sums` is their type: "output" for that of the
    result, or "float32", which the store converts.
    """
    _, M = lhsT.shape
    _, N = rhs.shape
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    dtype = nl.float32 if sums == "float32" else lhsT.dtype
    columns = tiles_n * COLUMNS
    for n in nl.affine_range(N // columns):
        totals = zeros((ROWS, tiles_n, COLUMNS), dtype, M // ROWS)
        for k in nl.sequential_range(lhsT.shape[0] // DEPTH // tiles_k):
            right = block_of(rhs, k, tiles_k, n * columns, columns)
            for m in nl.affine_range(M // ROWS // tiles_m):
                first = m * tiles_m
                left = block_of(lhsT, k, tiles_k, first * ROWS, tiles_m * ROWS)
                rows = [[total[:, j, :] for j in range(tiles_n)] for total in totals[first : first + tiles_m]]
                add_products(rows, left, right, tiles_n)
        for i in nl.affine_range(M // ROWS):
            store_row(out, i, n, totals[i].reshape((ROWS, columns)))
    return out


def zeros(shape, dtype, count):
    """Tiles of zeros."""
    tiles = [nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf) for _ in range(count)]
    for tile in tiles:
        nisa.memset(dst=tile, value=0.0)
    return tiles


def block_of(source, k, tiles_k, column, columns):
    """Views of tiles_k tiles below each other, loaded one by one into a tensor [128, tiles_k, columns]."""
    block = nl.ndarray((DEPTH, tiles_k, columns), dtype=source.dtype, buffer=nl.sbuf)
    for d in range(tiles_k):
        depth = (k * tiles_k + d) * DEPTH
        nisa.dma_copy(dst=block[:, d, :], src=source[depth : depth + DEPTH, column : column + columns])
    return [block[:, d, :] for d in range(tiles_k)]


def add_products(totals, left, right, tiles_n):
    """Add to each total the product of a block of rows and a block of columns, summed over depth in PSUM."""
    for j in nl.affine_range(tiles_n):
        for i, total in enumerate(totals):
            product = new_product()
            for stationary, moving in zip(left, right):
                nisa.nc_matmul(
                    dst=product,
                    stationary=stationary[:, i * ROWS : (i + 1) * ROWS],
                    moving=moving[:, j * COLUMNS : (j + 1) * COLUMNS],
                )
            nisa.tensor_tensor(dst=total[j], data1=total[j], data2=product, op=nl.add)


def store_row(out, i, n, row):
    """Store a finished row of tiles in one transfer."""
    columns = row.shape[1]
    nisa.dma_copy(dst=out[i * ROWS : (i + 1) * ROWS, n * columns : (n + 1) * columns], src=row)
