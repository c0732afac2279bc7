"""One instruction, `count` times in a row, in the `nki` spelling: its duration, and from start to start."""

import nki
import nki.isa as nisa
import nki.language as nl


def filled(memory, shape, dtype):
    """A tile of ones."""
    tile = nl.ndarray(shape, dtype=getattr(nl, dtype), buffer=getattr(nl, memory))
    nisa.memset(dst=tile, value=1.0)
    return tile


def finish(tile):
    """What the kernel returns: the first column of a tile, so that no result is unused."""
    shape = (tile.shape[0], 1)
    column = nl.ndarray(shape, dtype=tile.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=column, src=tile[:, 0:1])
    out = nl.ndarray(shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=column)
    return out


@nki.jit
def matmuls(columns, dtype, count):
    """Multiply [128, 128] by [128, columns]; the results rotate over four banks."""
    stationary, moving = filled("sbuf", (128, 128), dtype), filled("sbuf", (128, columns), dtype)
    banks = []
    for _ in range(4):
        banks.append(nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.psum))
    for i in nl.affine_range(count):
        nisa.nc_matmul(dst=banks[i % 4], stationary=stationary, moving=moving)
    return finish(banks[(count - 1) % 4])


@nki.jit
def exponentials(memory, columns, dtype, count):
    """exp on ScalarE from `memory` to SBUF."""
    source = filled(memory, (128, columns), dtype)
    tiles = []
    for _ in range(2):
        tiles.append(nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf))
    for i in nl.affine_range(count):
        nisa.activation(dst=tiles[i % 2], op=nl.exp, data=source)
    return finish(tiles[(count - 1) % 2])


@nki.jit
def copies(engine, columns, source_dtype, dtype, count):
    """Copy from PSUM to SBUF on VectorE or ScalarE, casting where the types differ."""
    source = filled("psum", (128, columns), source_dtype)
    tiles = []
    for _ in range(2):
        tiles.append(nl.ndarray((128, columns), dtype=getattr(nl, dtype), buffer=nl.sbuf))
    for i in nl.affine_range(count):
        nisa.tensor_copy(dst=tiles[i % 2], src=source, engine=getattr(nisa, f"{engine}_engine"))
    return finish(tiles[(count - 1) % 2])


@nki.jit
def reductions(op, memory, kept, summed, count):
    """Reduce [128, kept, summed] along its last axis on VectorE."""
    source = filled(memory, (128, kept, summed), "float32")
    tiles = []
    for _ in range(2):
        tiles.append(nl.ndarray((128, kept), dtype=nl.float32, buffer=nl.sbuf))
    for i in nl.affine_range(count):
        nisa.tensor_reduce(dst=tiles[i % 2], op=getattr(nl, op), data=source, axis=2)
    return finish(tiles[(count - 1) % 2])


@nki.jit
def scalings(memory, columns, count):
    """Multiply each partition by a number of its own on VectorE."""
    source, factor = filled(memory, (128, columns), "float32"), filled("sbuf", (128, 1), "float32")
    tiles = []
    for _ in range(2):
        tiles.append(nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf))
    for i in nl.affine_range(count):
        nisa.tensor_scalar(dst=tiles[i % 2], data=source, op0=nl.multiply, operand0=factor)
    return finish(tiles[(count - 1) % 2])


@nki.jit
def additions(columns, count):
    """Add two float32 tiles in SBUF on VectorE."""
    left, right = filled("sbuf", (128, columns), "float32"), filled("sbuf", (128, columns), "float32")
    tiles = []
    for _ in range(2):
        tiles.append(nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf))
    for i in nl.affine_range(count):
        nisa.tensor_tensor(dst=tiles[i % 2], data1=left, data2=right, op=nl.add)
    return finish(tiles[(count - 1) % 2])


@nki.jit
def reciprocals(columns, count):
    """Reciprocals on VectorE."""
    source = filled("sbuf", (128, columns), "float32")
    tiles = []
    for _ in range(2):
        tiles.append(nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf))
    for i in nl.affine_range(count):
        nisa.reciprocal(dst=tiles[i % 2], data=source)
    return finish(tiles[(count - 1) % 2])


@nki.jit
def dependent_activations(count):
    """One element through ScalarE again and again, each time what the last one left."""
    tile = filled("sbuf", (1, 1), "float32")
    for _ in nl.sequential_range(count):
        nisa.activation(dst=tile, op=nl.copy, data=tile)
    return finish(tile)


@nki.jit
def load(x):
    """Load all of x, [partitions, elements], in one transfer."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return finish(tile)


@nki.jit
def load_strided(x, run):
    """Load the first `run` elements of each row of x, [partitions, rows, columns], in one transfer."""
    tile = nl.ndarray((x.shape[0], x.shape[1], run), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[:, :, 0:run])
    return finish(tile.reshape((x.shape[0], x.shape[1] * run)))
