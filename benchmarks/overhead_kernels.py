"""Kernels that repeat one small instruction; the operands are prepared outside the loop."""

import neuronxcc.nki as beta1
import neuronxcc.nki.isa as beta1_isa
import neuronxcc.nki.language as beta1_nl
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def dst_first(x, repeats):
    """tensor_tensor on tiles [4, 4], `repeats` times."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    for _ in range(repeats):
        nisa.tensor_tensor(dst=b, data1=a, data2=a, op=nl.add)
    nisa.dma_copy(dst=out, src=b)
    return out


@nki.jit
def subscripted(x, repeats):
    """A subscript of a tile, `repeats` times, and nothing done with it."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    for _ in range(repeats):
        b[0:4, 0:4]
    nisa.dma_copy(dst=out, src=x)
    return out


@beta1.jit
def value_returning(x, repeats):
    """`b[...] = tensor_tensor(a, a)` on tiles [4, 4], `repeats` times."""
    out = beta1_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta1_nl.shared_hbm)
    a = beta1_nl.load(x)
    b = beta1_nl.ndarray((beta1_nl.par_dim(4), 4), dtype=x.dtype, buffer=beta1_nl.sbuf)
    for _ in range(repeats):
        b[...] = beta1_isa.tensor_tensor(a, a, op=beta1_nl.add)
    beta1_nl.store(out, value=b)
    return out
