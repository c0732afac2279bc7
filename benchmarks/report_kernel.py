"""A kernel without rhythm: everything is drawn by chance, so that its report is large."""

import random

import nki
import nki.isa as nisa
import nki.language as nl

WIDTHS = (64, 96, 200, 256, 320, 512)
DEPTHS = (16, 40, 64, 128)
FUNCTIONS = (nl.exp, nl.tanh, nl.gelu)


@nki.jit
def irregular(lhsT, rhs, steps):
    """Products of pieces, each worked on by one engine or another, and stored somewhere."""
    draw = random.Random(7)
    out = nl.ndarray((128, 512 * 64), lhsT.dtype, buffer=nl.shared_hbm)
    for _ in range(steps):
        width, depth = draw.choice(WIDTHS), draw.choice(DEPTHS)
        row, column = draw.randrange(lhsT.shape[0] - depth), draw.randrange(rhs.shape[1] - width)
        left = nl.ndarray((depth, 128), lhsT.dtype, buffer=nl.sbuf)
        right = nl.ndarray((depth, width), rhs.dtype, buffer=nl.sbuf)
        nisa.dma_copy(left, lhsT[row : row + depth, :])
        nisa.dma_copy(right, rhs[row : row + depth, column : column + width])
        product = nl.ndarray((128, width), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(product, left, right)
        done = nl.ndarray((128, width), lhsT.dtype, buffer=nl.sbuf)
        if draw.random() < 0.5:
            nisa.activation(done, op=draw.choice(FUNCTIONS), data=product)
        else:
            nisa.tensor_copy(done, product)
        place = 512 * draw.randrange(64)
        nisa.dma_copy(out[:, place : place + width], done)
    return out
