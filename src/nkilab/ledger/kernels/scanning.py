"""The selective scan of Mamba in the `neuronxcc.nki` spelling, in the three orders of the AWS tutorial.

delta and u are [batch, channels, S], A [channels, states], B and C [batch, states, S]; channels is a multiple
of 128. Per channel and state, h = exp(delta * A) * h + delta * u * B along S, and the result is the sum of
C * h over the states. Structure: NKI tutorial on fused Mamba.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


def contribution(delta, u, a, b, c, carry):
    """C * h of one state and 128 channels, and h: [128, S] each; `carry` is h before the first step."""
    width = delta.shape[1]
    decay = nisa.activation(np.exp, delta, scale=a)
    grown = nisa.tensor_tensor(delta, u, op=np.multiply)
    grown = nisa.tensor_tensor(grown, b.broadcast_to((128, width)), op=np.multiply)
    h = nisa.tensor_tensor_scan(decay, grown, initial=carry, op0=np.multiply, op1=np.add)
    return nisa.tensor_tensor(h, c.broadcast_to((128, width)), op=np.multiply), h


@nki.jit
def scan_states_first(delta, u, A, B, C):
    """States outside, channels inside: delta and u are loaded anew for every state."""
    batch, channels, size = delta.shape
    out = nl.ndarray((batch, channels, size), dtype=delta.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(batch):
        total = nl.zeros((channels // 128, nl.par_dim(128), size), dtype=delta.dtype, buffer=nl.sbuf)
        for s in nl.affine_range(A.shape[1]):
            for t in nl.affine_range(channels // 128):
                rows = nl.ds(t * 128, 128)
                own, a = nl.load(delta[i, rows]), nl.load(A[rows, nl.ds(s, 1)])
                b, c = nl.load(B[i, nl.ds(s, 1)]), nl.load(C[i, nl.ds(s, 1)])
                part, _ = contribution(own, nl.load(u[i, rows]), a, b, c, 0.0)
                total[t] = nisa.tensor_tensor(total[t], part, op=np.add)
        for t in nl.affine_range(channels // 128):
            nl.store(out[i, nl.ds(t * 128, 128)], total[t])
    return out


@nki.jit
def scan_channels_first(delta, u, A, B, C):
    """Channels outside, states inside: delta and u are loaded once."""
    batch, channels, size = delta.shape
    out = nl.ndarray((batch, channels, size), dtype=delta.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(batch):
        for t in nl.affine_range(channels // 128):
            rows = nl.ds(t * 128, 128)
            total = nl.zeros((128, size), dtype=delta.dtype, buffer=nl.sbuf)
            own, other = nl.load(delta[i, rows]), nl.load(u[i, rows])
            for s in nl.affine_range(A.shape[1]):
                a = nl.load(A[rows, nl.ds(s, 1)])
                b, c = nl.load(B[i, nl.ds(s, 1)]), nl.load(C[i, nl.ds(s, 1)])
                part, _ = contribution(own, other, a, b, c, 0.0)
                total[...] = nisa.tensor_tensor(total, part, op=np.add)
            nl.store(out[i, rows], total)
    return out


@nki.jit
def scan_in_pieces(delta, u, A, B, C, piece=512):
    """As `scan_channels_first`, `piece` steps of the sequence at a time; h is carried on."""
    batch, channels, size = delta.shape
    out = nl.ndarray((batch, channels, size), dtype=delta.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(batch):
        for t in nl.affine_range(channels // 128):
            rows = nl.ds(t * 128, 128)
            total = nl.zeros((128, size), dtype=delta.dtype, buffer=nl.sbuf)
            own, other = nl.load(delta[i, rows]), nl.load(u[i, rows])
            for s in nl.affine_range(A.shape[1]):
                a = nl.load(A[rows, nl.ds(s, 1)])
                carry = nl.zeros((128, 1), dtype=delta.dtype, buffer=nl.sbuf)
                for p in nl.static_range(size // piece):
                    steps = nl.ds(p * piece, piece)
                    b, c = nl.load(B[i, nl.ds(s, 1), steps]), nl.load(C[i, nl.ds(s, 1), steps])
                    part, h = contribution(own[:, steps], other[:, steps], a, b, c, carry)
                    carry[...] = nisa.tensor_copy(h[:, piece - 1 : piece])
                    total[:, steps] = nisa.tensor_tensor(total[:, steps], part, op=np.add)
            nl.store(out[i, rows], total)
    return out
