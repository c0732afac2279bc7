"""A softmax along rows in the `neuronxcc.nki` spelling of Beta 1."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def row_softmax(x):
    """softmax(x) along the last axis of x[N, F]; N is a multiple of 128."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(128)[:, None]
    i_f = nl.arange(x.shape[1])[None, :]
    for t in nl.affine_range(x.shape[0] // 128):
        rows = nl.load(x[t * 128 + i_p, i_f])
        largest = nl.max(rows, axis=1, keepdims=True)
        sums = nl.ndarray((128, 1), dtype=nl.float32)
        powers = nisa.activation_reduce(
            nl.exp, rows, bias=nl.negative(largest), reduce_op=nl.add, reduce_res=sums
        )
        nl.store(out[t * 128 + i_p, i_f], value=nl.multiply(powers, nl.reciprocal(sums)))
    return out
