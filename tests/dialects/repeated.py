"""Kernels whose loops repeat themselves, and kernels whose loops only seem to."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
from numpy import random as chance

SEEN = []
SIZES = (128, 256, 128, 64, 128, 32, 128, 128)


def loaded(source, row, column=0, columns=128):
    tile = nl.ndarray((128, columns), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[row * 128 : (row + 1) * 128, column : column + columns])
    return tile


def result(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def stored(out, row, tile):
    nisa.dma_copy(dst=out[row * 128 : (row + 1) * 128, 0 : tile.shape[1]], src=tile)


@nki.jit
def rows(x):
    out = result(x)
    for i in nl.affine_range(8):
        stored(out, i, loaded(x, i))
    return out


@nki.jit
def nested(x):
    out = result(x)
    for i in nl.sequential_range(8):
        for j in nl.affine_range(6):
            tile = loaded(x, i, j * 128)
            nisa.dma_copy(dst=out[i * 128 : i * 128 + 128, nl.ds(j * 128, 128)], src=tile)
    return out


@nki.jit
def unrolled(x):
    out = result(x)
    for i in nl.static_range(7, -1, -1):
        stored(out, i, loaded(x, i))
    return out


@nki.jit
def of_python(x):
    out = result(x)
    for i in range(8):
        tile = loaded(x, i)
        for j in range(4):
            nisa.tensor_copy(dst=tile[:, j * 32 : j * 32 + 16], src=tile[:, j * 32 + 16 : j * 32 + 32])
        stored(out, i, tile)
    return out


@nki.jit
def patterns(x):
    out = result(x)
    for i in range(8):
        tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.ap([[1024, 128], [1, 128]], offset=i * 128 * 1024))
        nisa.tensor_copy(dst=tile.ap([[128, 128], [2, 32]], offset=i * 2), src=tile[:, 64:96])
        stored(out, i, tile)
    return out


@nki.jit
def sums(x):
    out = result(x)
    for i in nl.affine_range(8):
        product = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(8):
            nisa.nc_matmul(dst=product, stationary=loaded(x, i, k * 128), moving=loaded(x, k))
        tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile, src=product)
        stored(out, i, tile)
    return out


@nki.jit
def told_sums(x):
    out = result(x)
    product = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
    for k in range(8):
        nisa.nc_matmul(dst=product, stationary=loaded(x, k), moving=loaded(x, 0, k * 128), accumulate=k > 0)
    tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=product)
    stored(out, 0, tile)
    return out


@nki.jit
def lists(x):
    out = result(x)
    tiles = [loaded(x, i) for i in range(8)]
    pairs = [[loaded(x, i), loaded(x, i, 128)] for i in range(8)]
    for i in nl.affine_range(4):
        for a, b in zip(tiles[i * 2 : i * 2 + 2], pairs[i]):
            nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
    for i in nl.affine_range(8):
        stored(out, i, tiles[i])
    return out


LIKE = (rows, nested, unrolled, of_python, patterns, sums, told_sums, lists)


@nki.jit
def first_is_other(x):
    out = result(x)
    for i in nl.affine_range(8):
        tile = loaded(x, i)
        if i == 5:
            nisa.tensor_copy(dst=tile[:, 0:64], src=tile[:, 64:128])
        stored(out, i, tile)
    return out


@nki.jit
def sizes_of_a_table(x):
    out = result(x)
    for i in nl.affine_range(8):
        stored(out, i, loaded(x, i, 0, SIZES[i]))
    return out


@nki.jit
def counted(x):
    out = result(x)
    count = 0
    for i in nl.affine_range(8):
        tile = loaded(x, i)
        if count == 6:
            nisa.tensor_copy(dst=tile[:, 0:64], src=tile[:, 64:128])
        count = count + 1
        stored(out, i, tile)
    return out


@nki.jit
def grown(x):
    out = result(x)
    tiles = []
    for i in nl.affine_range(8):
        tiles.append(loaded(x, i))
        stored(out, i, tiles[len(tiles) // 2])
    return out


@nki.jit
def carried(x):
    out = result(x)
    tile = loaded(x, 0)
    for i in nl.affine_range(8):
        stored(out, i, tile)
        tile = loaded(x, i)
    return out


@nki.jit
def left_over(x):
    out = result(x)
    for i in nl.affine_range(8):
        tile = loaded(x, i)
    stored(out, i, tile)
    return out


@nki.jit
def clipped(x):
    out = result(x)
    for i in nl.affine_range(8):
        width = min(300, 1024 - i * 130)
        stored(out, i, loaded(x, i, i * 130, width))
    return out


@nki.jit
def shorter_and_shorter(x):
    out = result(x)
    tiles = [loaded(x, i) for i in range(8)]
    for i in nl.affine_range(8):
        stored(out, i, tiles[len(tiles[i:8]) - 1])
    return out


@nki.jit
def shuffled(x):
    out = result(x)
    tiles = [loaded(x, i) for i in (0, 1, 2, 4, 3, 5, 7, 6)]
    tiles = [tiles[i] for i in (0, 1, 2, 4, 3, 5, 7, 6)]
    for i in nl.affine_range(8):
        stored(out, i, tiles[i])
    return out


@nki.jit
def one_of_them(x):
    out = result(x)
    tiles = [loaded(x, i) for i in range(8)]
    last = tiles[6]
    for i in nl.affine_range(8):
        if tiles[i] is last:
            nisa.tensor_copy(dst=last[:, 0:64], src=last[:, 64:128])
        stored(out, i, tiles[i])
    return out


@nki.jit
def turns_of_psum(x):
    out = result(x)
    banks = [nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum) for _ in range(8)]
    for bank in banks[:5]:
        nisa.nc_matmul(dst=bank, stationary=loaded(x, 0), moving=loaded(x, 1))
    for i in nl.affine_range(8):
        nisa.nc_matmul(dst=banks[i], stationary=loaded(x, 0), moving=loaded(x, 1))
        tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile, src=banks[i])
        stored(out, i, tile)
    return out


@nki.jit
def parts_of_psum(x):
    out = result(x)
    bank = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range(8):
        nisa.nc_matmul(dst=bank[:, i * 48 : i * 48 + 128], stationary=loaded(x, 0), moving=loaded(x, 1))
    tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=bank)
    stored(out, 0, tile)
    return out


@nki.jit
def partitions(x):
    out = result(x)
    tile = loaded(x, 0)
    for i in nl.affine_range(4):
        nisa.tensor_copy(dst=tile[i * 32 : i * 32 + 32, 0:64], src=tile[i * 32 : i * 32 + 32, 64:128])
    stored(out, 0, tile)
    return out


@nki.jit
def named(x):
    out = result(x)
    for i in nl.affine_range(8):
        tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf, name=f"tile{i}")
        nisa.dma_copy(dst=tile, src=x[i * 128 : (i + 1) * 128, 0:128])
        stored(out, i, tile)
    return out


@nki.jit
def squares(x):
    out = result(x)
    for i in nl.affine_range(8):
        stored(out, i, loaded(x, i, i * i))
    return out


@nki.jit
def filled(x):
    out = result(x)
    for i in nl.affine_range(8):
        tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=i)
        stored(out, i, tile)
    return out


@nki.jit
def used_up(x):
    out = result(x)
    order = iter([3, 1, 4, 1, 5, 0, 2, 6])
    for i in nl.affine_range(8):
        stored(out, i, loaded(x, next(order)))
    return out


@nki.jit
def kept_aside(x):
    out = result(x)
    for i in nl.affine_range(8):
        SEEN.append(len(SEEN))
        stored(out, i, loaded(x, SEEN[i]))
    return out


@nki.jit
def inner_by_outer(x):
    out = result(x)
    for i in nl.affine_range(8):
        tile = loaded(x, i)
        for j in nl.affine_range(i):
            nisa.tensor_copy(dst=tile[:, j : j + 1], src=tile[:, 64:65])
        stored(out, i, tile)
    return out


@nki.jit
def broken_off(x):
    out = result(x)
    for i in nl.affine_range(8):
        if i > 4:
            break
        stored(out, i, loaded(x, i))
    return out


TURNS = 0


@nki.jit
def counting_turns(x):
    global TURNS
    out = result(x)
    TURNS = 0
    for i in range(8):
        stored(out, i, loaded(x, i))
        TURNS += 1
    return out


def with_step(step):
    @nki.jit
    def closing_over(x):
        out = result(x)
        for i in range(0, 8, step):
            stored(out, i, loaded(x, i + step - 1))
        return out

    return closing_over


closing_over = with_step(2)

UNLIKE = (
    first_is_other, sizes_of_a_table, counted, grown, carried, left_over, clipped, shorter_and_shorter,
    shuffled, one_of_them, turns_of_psum, parts_of_psum, partitions, named, squares, filled, used_up,
    inner_by_outer, broken_off, counting_turns, closing_over,
)  # fmt: skip


@nki.jit
def out_of_bounds(x):
    out = result(x)
    for i in nl.affine_range(9):
        stored(out, i, loaded(x, i))
    return out


@nki.jit
def printing(x):
    print("traced")
    return rows.function(x)


def twice_begun(x):
    out = result(x)
    for i in nl.affine_range(8):
        stored(out, i, loaded(x, i, i % 2))
    return out


def keeping():
    keeping.calls.append(len(keeping.calls))


keeping.calls = []


@nki.jit
def kept_at_a_function(x):
    keeping()
    return twice_begun(x)


@nki.jit
def drawing(x):
    chance.rand()
    return twice_begun(x)


@nki.jit
def importing(x):
    import sys

    sys.stdout.write("traced\n")
    return twice_begun(x)


def count_turn():
    global TURNS
    TURNS += 1


@nki.jit
def counted_by_another(x):
    out = result(x)
    count_turn()
    for i in range(TURNS):
        stored(out, i, loaded(x, i))
    return out
