"""Normalization of rows in the `nki` spelling.

Structure: projects/03-chipboost of yahavb/trainium-agent-labs.
"""

import nki
import nki.isa as nisa
import nki.language as nl

SMALL = 1e-6


def in_sbuf(rows, columns, dtype=nl.float32):
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


@nki.jit
def rms_norm(x, weights):
    """Rows of x [rows, columns] over the root of their mean square, times weights [1, columns].

    The weights come to each of 128 partitions in a transfer of its own; rows is a multiple of 128.
    """
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weights_on_all = in_sbuf(128, columns, weights.dtype)
    for partition in range(128):
        nisa.dma_copy(dst=weights_on_all[partition : partition + 1, :], src=weights)
    for first in range(0, rows, 128):
        tile, squares = in_sbuf(128, columns, x.dtype), in_sbuf(128, columns)
        total, share = in_sbuf(128, 1), in_sbuf(128, 1)
        nisa.dma_copy(dst=tile, src=x[first : first + 128, :])
        nisa.activation_reduce(dst=squares, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total)
        nisa.activation(dst=share, op=nl.rsqrt, data=total, scale=1 / columns, bias=SMALL)
        scaled, result = in_sbuf(128, columns), in_sbuf(128, columns, x.dtype)
        nisa.tensor_scalar(dst=scaled, data=tile, op0=nl.multiply, operand0=share)
        nisa.tensor_tensor(dst=result, data1=scaled, data2=weights_on_all, op=nl.multiply)
        nisa.dma_copy(dst=out[first : first + 128, :], src=result)
    return out
