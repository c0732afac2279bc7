"""3x3 convolutions with bias and pooling in the `neuronxcc.nki` spelling, as sums of matrix products.

x is [images, channels, height, width], weights [out_channels, channels, 3, 3], bias [out_channels]; both
channel counts are multiples of 128. Structures: solutions of course CS149, assignment 4, part 2; `depthwise`:
examples/trn-advanced/4_conv1d_trace.py of ucb-bar/autocomp.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


def all_transposed(weights, loaded, transposed):
    """Per tile of results and of channels its taps, loaded into one view [128, 128, 3, 3], in another."""
    outs, channels, high, wide = weights.shape
    for o in range(outs // 128):
        for i in range(channels // 128):
            own = loaded(o, i)
            nisa.dma_copy(src=weights[o * 128 : (o + 1) * 128, i * 128 : (i + 1) * 128], dst=own)
            for p in range(high):
                for q in range(wide):
                    transposed(o, i)[:, :, p, q] = nisa.tensor_copy(nisa.nc_transpose(own[:, :, p, q]))
    return [[taps_of(transposed(o, i)) for i in range(channels // 128)] for o in range(outs // 128)]


def taps_of(block):
    """Per tap its view [128, 128] of a block [128, 128, 3, 3]."""
    return {(p, q): block[:, :, p, q] for p in range(block.shape[2]) for q in range(block.shape[3])}


def turned_taps(block, first):
    """Per tap the transpose of 128 channels of a block [out_channels, channels, 3, 3]."""
    taps = {}
    for p in range(block.shape[2]):
        for q in range(block.shape[3]):
            tap = block[:, first : first + 128, p, q]
            taps[p, q] = nisa.tensor_copy(nisa.nc_transpose(tap), dtype=block.dtype)
    return taps


def columns_of(bias, o):
    """The bias of 128 channels, one on each partition."""
    column = nl.ndarray((128, 1), dtype=bias.dtype, buffer=nl.sbuf)
    nisa.dma_copy(src=bias.reshape((bias.shape[0], 1))[o * 128 : (o + 1) * 128], dst=column)
    return column


@ncc.skip_middle_end_transformations
@nki.jit
def conv_rows(x, weights, bias, pool=1):
    """Compute one row of the result at a time; rows of x are loaded anew for each.

    All weights are transposed on TensorE at the start. `pool` rows make one row of the pooled result.
    """
    images, channels, height, width = x.shape
    outs, _, high, wide = weights.shape
    rows, columns = height - high + 1, width - wide + 1
    out = nl.ndarray((images, outs, rows // pool, columns // pool), dtype=x.dtype, buffer=nl.shared_hbm)
    shape = (128, 128, outs // 128, channels // 128, high, wide)
    block = nl.ndarray(shape, dtype=weights.dtype, buffer=nl.sbuf)
    taps = all_transposed(weights, lambda o, i: block[:, :, o, i], lambda o, i: block[:, :, o, i])
    biases = [columns_of(bias, o) for o in range(outs // 128)]
    for image in nl.affine_range(images):
        for o in nl.static_range(outs // 128):
            for r in nl.affine_range(rows // pool):
                rows_done = nl.ndarray((128, pool, columns), dtype=x.dtype, buffer=nl.sbuf)
                for s in range(pool):
                    product = one_row(x, taps[o], image, r * pool + s, columns)
                    rows_done[:, s, :] = nisa.tensor_scalar(
                        product, op0=np.add, operand0=biases[o], dtype=x.dtype
                    )
                done = pooled(rows_done, pool)
                nisa.dma_copy(src=done, dst=out[image, o * 128 : (o + 1) * 128, r, :])
    return out


def one_row(x, taps, image, row, columns):
    """One row of the result before the bias, in PSUM."""
    product = nl.zeros((128, columns), dtype=nl.float32, buffer=nl.psum)
    for i, own in enumerate(taps):
        for p in range(3):
            line = nl.ndarray((128, x.shape[3]), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(src=x[image, i * 128 : (i + 1) * 128, row + p, :], dst=line)
            for q in range(3):
                product += nisa.nc_matmul(own[p, q], line[:, q : q + columns])
    return product


def pooled(rows_done, pool):
    """The maximum of each pool x pool square of [128, pool, columns], as [128, columns / pool]."""
    columns = rows_done.shape[2]
    if pool == 1:
        return rows_done.reshape((128, columns))
    squares = rows_done.reshape((128, pool, columns // pool, pool))
    columns_max = nisa.tensor_reduce(np.max, squares, axis=(3,))
    lower = columns_max[:, 0, :]
    for s in range(1, pool):
        lower = nisa.tensor_tensor(lower, columns_max[:, s, :], op=np.maximum)
    return lower


@ncc.skip_middle_end_transformations
@nki.jit
def conv_groups(x, weights, bias, group):
    """Compute `group` rows of the result at a time; for each of them three rows of x are loaded."""
    images, channels, height, width = x.shape
    outs, _, high, wide = weights.shape
    rows, columns = height - high + 1, width - wide + 1
    out = nl.ndarray((images, outs, rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    taps = []
    for o in range(outs // 128):
        block = nl.ndarray((128, channels, high, wide), dtype=weights.dtype, buffer=nl.sbuf)
        nisa.dma_copy(src=weights[o * 128 : (o + 1) * 128], dst=block)
        taps.append([turned_taps(block, i * 128) for i in range(channels // 128)])
    biases = [columns_of(bias, o) for o in range(outs // 128)]
    for image in nl.affine_range(images):
        for g in nl.affine_range(rows // group):
            stacks = stacked_rows(x, image, g * group, group)
            place = slice(g * group, (g + 1) * group)
            for o in nl.static_range(outs // 128):
                product = group_of(taps[o], stacks, columns)
                copied = nisa.tensor_copy(product, dtype=x.dtype)
                copied = nisa.tensor_scalar(copied, op0=np.add, operand0=biases[o], dtype=x.dtype)
                nisa.dma_copy(src=copied, dst=out[image, o * 128 : (o + 1) * 128, place, :])
    return out


def group_of(taps, stacks, columns):
    """`group` rows of 128 channels of the result before the bias, in PSUM."""
    product = nl.zeros((128, stacks[0].shape[2], columns), dtype=nl.float32, buffer=nl.psum)
    for p in range(3):
        for q in range(3):
            for own, stack in zip(taps, stacks):
                product += nisa.nc_matmul(own[p, q], stack[:, p, :, q : q + columns])
    return product


def stacked_rows(x, image, first, group):
    """Per tile of channels [128, 3, group, width]: for each row of the result the three it is made of."""
    shape = (128, 3, group, x.shape[3])
    stacks = [nl.zeros(shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(x.shape[1] // 128)]
    for r in range(group):
        for i, stack in enumerate(stacks):
            source = x[image, i * 128 : (i + 1) * 128, first + r : first + r + 3, :]
            nisa.dma_copy(src=source, dst=stack[:, :, r, :])
    return stacks


@ncc.skip_middle_end_transformations
@nki.jit
def conv_rows_together(x, weights, bias, pool=1):
    """Compute one row of the result at a time; the three rows of x that it is made of come in one transfer.

    All weights lie in one tensor, in runs of nine elements, and are transposed at the start.
    """
    images, channels, height, width = x.shape
    outs, _, high, wide = weights.shape
    rows, columns = height - high + 1, width - wide + 1
    out = nl.ndarray((images, outs, rows // pool, columns // pool), dtype=x.dtype, buffer=nl.shared_hbm)
    shape = (128, outs // 128, 128, channels // 128, high, wide)
    block, transposed = (nl.ndarray(shape, dtype=weights.dtype, buffer=nl.sbuf) for _ in range(2))
    taps = all_transposed(weights, lambda o, i: block[:, o, :, i], lambda o, i: transposed[:, i, :, o])
    for image in nl.affine_range(images):
        for o in nl.static_range(outs // 128):
            added = nl.load(bias.reshape((outs, 1))[o * 128 : (o + 1) * 128])
            for r in nl.affine_range(rows // pool):
                rows_done = nl.ndarray((128, columns, pool), dtype=x.dtype, buffer=nl.sbuf)
                for s in range(pool):
                    product = row_of_three(x, taps[o], image, r * pool + s, columns)
                    rows_done[:, :, s] = nisa.tensor_copy(product, dtype=x.dtype)
                    rows_done[:, :, s] = nisa.tensor_tensor(
                        rows_done[:, :, s], added.broadcast_to((128, columns)), op=np.add
                    )
                squares = rows_done.reshape((128, columns // pool, pool * pool))
                done = nisa.tensor_reduce(np.max, squares, axis=(2,))
                nisa.dma_copy(src=done, dst=out[image, o * 128 : (o + 1) * 128, r, :])
    return out


def row_of_three(x, taps, image, row, columns):
    """One row of the result before the bias, in PSUM."""
    product = nl.zeros((128, columns), dtype=nl.float32, buffer=nl.psum)
    for i, own in enumerate(taps):
        lines = nl.ndarray((128, 3, x.shape[3]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(src=x[image, i * 128 : (i + 1) * 128, row : row + 3, :], dst=lines)
        for p in range(3):
            for q in range(3):
                product += nisa.nc_matmul(own[p, q], lines[:, p, q : q + columns])
    return product


@ncc.skip_middle_end_transformations
@nki.jit
def conv_tiles(x, weights, bias, keeps_bias=False):
    """Compute as many rows of the result at a time as TensorE streams; each time weights are transposed anew.

    A tile of channels of the result is stored as a whole. With `keeps_bias` all of the bias is loaded at the
    start, and copied within SBUF.
    """
    images, channels, height, width = x.shape
    outs, _, high, wide = weights.shape
    rows, columns = height - high + 1, width - wide + 1
    group = min(512 // columns, rows)
    out = nl.ndarray((images, outs, rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    kept = [columns_of(bias, o) for o in range(outs // 128)] if keeps_bias else []
    for image in nl.affine_range(images):
        for o in nl.static_range(outs // 128):
            here = slice(o * 128, (o + 1) * 128)
            done = nl.ndarray((128, rows, columns), dtype=x.dtype, buffer=nl.sbuf)
            added = nl.ndarray((128, 1, 1), dtype=bias.dtype, buffer=nl.sbuf)
            nisa.dma_copy(src=kept[o] if kept else bias.reshape((outs, 1))[here], dst=added.reshape((128, 1)))
            for first in range(0, rows, group):
                product = nl.zeros((128, group, columns), dtype=nl.float32, buffer=nl.psum)
                for i in nl.affine_range(channels // 128):
                    own = slice(i * 128, (i + 1) * 128)
                    lines = nl.ndarray((128, group + 2, width), dtype=x.dtype, buffer=nl.sbuf)
                    nisa.dma_copy(src=x[image, own, first : first + group + 2, :], dst=lines)
                    block = nl.ndarray((128, 128, high, wide), dtype=weights.dtype, buffer=nl.sbuf)
                    nisa.dma_copy(src=weights[here, own], dst=block)
                    taps = copied_taps(block)
                    for p in range(3):
                        for q in range(3):
                            part = lines[:, p : p + group, q : q + columns]
                            product += nisa.nc_matmul(taps[:, :, p, q], part)
                done[:, first : first + group, :] = nisa.tensor_tensor(
                    product, added.broadcast_to((128, group, columns)), op=np.add, dtype=x.dtype
                )
            nisa.dma_copy(src=done, dst=out[image, here])
    return out


def copied_taps(block):
    """Per tap the transpose of a block [out_channels, channels, 3, 3], copied before and twice after it."""
    taps = nl.ndarray(block.shape, dtype=block.dtype, buffer=nl.sbuf)
    for p in range(3):
        for q in range(3):
            transposed = nisa.nc_transpose(nisa.tensor_copy(block[:, :, p, q]))
            taps[:, :, p, q] = nisa.tensor_copy(nisa.tensor_copy(transposed, dtype=block.dtype))
    return taps


@nki.jit
def depthwise(x, taps):
    """Convolve rows of x [images, channels, W], a zero at either end, with taps [channels, 3] of their own.

    Each element is a product and a sum of three; inputs and results all lie in SBUF.
    """
    images, channels, W = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    places = [(n, nl.ds(c * 128, 128)) for n in range(images) for c in range(channels // 128)]
    lines = [nl.zeros((nl.par_dim(128), W + 2), dtype=x.dtype, buffer=nl.sbuf) for _ in places]
    results = [nl.ndarray((nl.par_dim(128), W), dtype=x.dtype, buffer=nl.sbuf) for _ in places]
    for line, place in zip(lines, places):
        line[:, nl.ds(1, W)] = nl.load(x[place])
    for line, result, (_, own) in zip(lines, results, places):
        kept = nl.load(taps[own])
        for i in nl.affine_range(W):
            product = nisa.tensor_tensor(line[:, nl.ds(i, 3)], kept, np.multiply)
            result[:, i] = nisa.tensor_reduce(np.add, product, axis=(1,))
    for result, place in zip(results, places):
        nl.store(out[place], result)
    return out
