"""Kernels of a graph of a framework, called one after another through HBM, in the `nki` spelling.

The graph copies its input before the first call and its result after the last: the published counters hold
just these bytes besides those of the calls. Structure: kernels/ of bbioren/hf-kernels-neuron.
"""

import nki
import nki.isa as nisa
import nki.language as nl

SMALL = 1e-6


def call(x, out, calls, tile_of):
    """Put the result of `calls` calls in `out`; each loads, changes and stores tiles of 128 rows."""
    source = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
    nisa.dma_copy(dst=source, src=x)
    for _ in range(calls):
        result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
        for row in range(0, x.shape[0], 128):
            place = nl.ds(row, 128)
            nl.store(result[place, :], tile_of(nl.load(source[place, :])))
        source = result
    nisa.dma_copy(dst=out, src=source)


@nki.jit
def silu(x, calls):
    """x / (1 + exp(-x)) of x [rows, columns], by the table of ScalarE, `calls` times."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    call(x, out, calls, nl.silu)
    return out


@nki.jit
def rms_norm(x, weights, calls):
    """Rows of x [rows, columns] over the root of their mean square, times weights [1, columns]."""
    weights_tile = nl.load(weights)

    def tile_of(tile):
        mean = nl.mean(nl.square(tile, dtype=nl.float32), axis=[1], keepdims=True, dtype=nl.float32)
        scaled = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        share = nl.rsqrt(nl.add(mean, SMALL))
        nisa.tensor_scalar(dst=scaled, data=tile, op0=nl.multiply, operand0=share)
        return nl.multiply(scaled, nl.broadcast_to(weights_tile, tile.shape), dtype=tile.dtype)

    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    call(x, out, calls, tile_of)
    return out
