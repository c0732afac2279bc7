"""Sums of two vectors in the `neuronxcc.nki` spelling: how the length of a transfer's runs decides.

Structures: course CS149 of Stanford, assignment 4, part 1, in its versions of 2024 and 2025.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@ncc.skip_middle_end_transformations
@nki.jit
def add_chunks(a, b, chunk):
    """Add `chunk` elements at a time, one on each partition; transfers are written out."""
    size = a.shape[0]
    columns = [v.reshape((size, 1)) for v in (a, b)]
    out = nl.ndarray((size, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(size // chunk):
        tiles = []
        for column in columns:
            tile = nl.ndarray((chunk, 1), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(src=column[i * chunk : (i + 1) * chunk], dst=tile)
            tiles.append(tile)
        total = nisa.tensor_scalar(tiles[0], nl.add, tiles[1])
        nisa.dma_copy(src=total, dst=out[i * chunk : (i + 1) * chunk])
    return out


@ncc.skip_middle_end_transformations
@nki.jit
def add_columns(a, b, free):
    """Add [128, free] elements at a time; each partition has a run of its own in the vector."""
    width = a.shape[0] // 128
    rows = [v.reshape((128, width)) for v in (a, b)]
    out = nl.ndarray((128, width), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(width // free):
        tiles = []
        for row in rows:
            tile = nl.ndarray((128, free), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(src=row[:, i * free : (i + 1) * free], dst=tile)
            tiles.append(tile)
        total = nisa.tensor_tensor(tiles[0], tiles[1], op=nl.add)
        nisa.dma_copy(src=total, dst=out[:, i * free : (i + 1) * free])
    return out


@nki.jit
def add_loaded_chunks(a, b, chunk):
    """Add `chunk` elements at a time, one on each partition, with the middle end on."""
    size = a.shape[0]
    a, b = a.reshape((size, 1)), b.reshape((size, 1))
    out = nl.ndarray((size, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(size // chunk):
        rows = nl.ds(i * chunk, chunk)
        nl.store(out[rows], nl.add(nl.load(a[rows]), nl.load(b[rows])))
    return out


@nki.jit
def add_loaded_blocks(a, b, free):
    """Add blocks of 128 * free neighbouring elements, with the middle end on."""
    blocks = a.shape[0] // (128 * free)
    a, b = a.reshape((blocks, 128, free)), b.reshape((blocks, 128, free))
    out = nl.ndarray((blocks, 128, free), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(blocks):
        nl.store(out[i], nl.add(nl.load(a[i]), nl.load(b[i])))
    return out


@nki.jit
def add_placed_blocks(a, b, free, buffers=4):
    """Add blocks as `add_loaded_blocks` does, in tiles whose addresses rotate over `buffers` places."""
    blocks = a.shape[0] // (128 * free)
    a, b = a.reshape((blocks, 128, free)), b.reshape((blocks, 128, free))
    out = nl.ndarray((blocks, 128, free), dtype=a.dtype, buffer=nl.shared_hbm)
    size = free * 4
    left, right, total = (
        nl.ndarray(
            (blocks, nl.par_dim(128), free),
            dtype=np.float32,
            buffer=ncc.sbuf.mod_alloc(base_addr=k * buffers * size, num_free_tiles=(buffers,)),
        )
        for k in range(3)
    )
    for i in nl.affine_range(blocks):
        left[i] = nl.load(a[i])
        right[i] = nl.load(b[i])
        total[i] = nl.add(left[i], right[i])
        nl.store(out[i], total[i])
    return out
