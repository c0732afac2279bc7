"""Matrix products in the `neuronxcc.nki` spelling, with the middle end on.

`naive` and `hoist` take lhsT [K, M] and rhs [K, N]; structure: projects/02-kernel-agent of
yahavb/trainium-agent-labs. `resident` takes both as [128, K / 128, M or N]; structure:
workspaces/transpose_matmul of Jerry2423/kda-for-trainium.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def add_products(out, rhs, m, n, tile, left):
    """One tile of the result from tiles (depth, columns) of rhs; `left` gives the tile of lhsT at a depth."""
    tile_k, tile_n = tile
    product = nl.zeros((128, tile_n), dtype=nl.float32, buffer=nl.psum)
    columns = nl.ds(n * tile_n, tile_n)
    for k in nl.affine_range(rhs.shape[0] // tile_k):
        right = nl.load(rhs[nl.ds(k * tile_k, tile_k), columns])
        product += nl.matmul(left(k), right, transpose_x=True)
    nl.store(out[nl.ds(m * 128, 128), columns], nl.copy(product, dtype=out.dtype))


@nki.jit
def naive(lhsT, rhs, tile_n, tile_k=128):
    """Load both tiles right before each multiplication."""
    _, M = lhsT.shape
    out = nl.ndarray((M, rhs.shape[1]), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // 128):
        for n in nl.affine_range(rhs.shape[1] // tile_n):
            add_products(
                out, rhs, m, n, (tile_k, tile_n),
                lambda k, m=m: nl.load(lhsT[nl.ds(k * tile_k, tile_k), nl.ds(m * 128, 128)]),
            )  # fmt: skip
    return out


@nki.jit
def hoist(lhsT, rhs, tile_n, tile_k=128):
    """Load a column of lhsT once per row of results."""
    K, M = lhsT.shape
    out = nl.ndarray((M, rhs.shape[1]), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // 128):
        column = nl.ndarray((K // tile_k, nl.par_dim(tile_k), 128), dtype=lhsT.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(K // tile_k):
            column[k] = nl.load(lhsT[nl.ds(k * tile_k, tile_k), nl.ds(m * 128, 128)])
        for n in nl.affine_range(rhs.shape[1] // tile_n):
            add_products(out, rhs, m, n, (tile_k, tile_n), lambda k, column=column: column[k])
    return out


def parts_of(source, first, columns, dtypes):
    """[128, K / 128, columns] of a source as one tensor per type, which add up to it, each loaded tile apart.

    One type: the source. bfloat16 twice: what bfloat16 holds of it, and what that leaves, in bfloat16.
    """
    depth = source.shape[1]
    parts = [nl.ndarray((nl.par_dim(128), depth, columns), dtype=dtype, buffer=nl.sbuf) for dtype in dtypes]
    for k in nl.affine_range(depth):
        tile = nl.load(source[:, k, first : first + columns])
        if len(parts) == 1:
            parts[0][:, k, :] = tile
            continue
        parts[0][:, k, :] = nl.copy(tile, dtype=nl.bfloat16)
        rest = nisa.tensor_tensor(tile, parts[0][:, k, :], op=nl.subtract, dtype=nl.float32)
        parts[1][:, k, :] = nl.copy(rest, dtype=nl.bfloat16)
    return parts


@nki.jit
def resident(lhs, rhs, block, chunk, is_split=False):
    """Keep `block` tiles of 128 columns of lhs in SBUF and stream chunks of rhs past them, in float32.

    Split: in bfloat16, each operand as a sum of two; the product of the smaller parts is left out.
    """
    dtypes, pairs = ([nl.bfloat16] * 2, [(0, 0), (0, 1), (1, 0)]) if is_split else ([nl.float32], [(0, 0)])
    _, depth, M = lhs.shape
    out = nl.ndarray((M // 128, 128, rhs.shape[2]), dtype=nl.float32, buffer=nl.shared_hbm)
    for b in nl.affine_range(M // 128 // block):
        left = parts_of(lhs, b * block * 128, block * 128, dtypes)
        for c in nl.affine_range(rhs.shape[2] // chunk):
            right = parts_of(rhs, c * chunk, chunk, dtypes)
            for s in nl.affine_range(block):
                product = nl.zeros((128, chunk), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(depth):
                    for i, j in pairs:
                        product += nisa.nc_matmul(left[i][:, k, s * 128 : (s + 1) * 128], right[j][:, k, :])
                nl.store(out[b * block + s, :, c * chunk : (c + 1) * chunk], nl.copy(product))
    return out
