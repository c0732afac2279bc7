"""Collectives between HBM buffers, over all ranks of a launch, in the `nki` spelling.

What the vendor's kernels do around a collective is to copy the input before and the result after it.
Structure: nkilib/experimental/collectives of aws-neuron/nki-library.
"""

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl


def collect(x, out, ranks, collective):
    """Put what a collective of all ranks makes of x, from one buffer to another, in `out`."""
    source = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
    result = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.hbm)
    nisa.dma_copy(dst=source, src=x)
    collective([source], [result], ncc.ReplicaGroup([list(range(ranks))]))
    nisa.dma_copy(dst=out, src=result)


@nki.jit
def all_reduce(x, ranks):
    """The sum of x over all ranks."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    collect(x, out, ranks, lambda src, dst, group: ncc.all_reduce(src, dst, group, nl.add))
    return out


@nki.jit
def all_gather(x, ranks):
    """x of all ranks, below each other."""
    out = nl.ndarray((ranks * x.shape[0], *x.shape[1:]), dtype=x.dtype, buffer=nl.shared_hbm)
    collect(x, out, ranks, lambda src, dst, group: ncc.all_gather(src, dst, group, 0))
    return out


@nki.jit
def reduce_scatter(x, ranks):
    """The part of this rank, a share of the rows, of the sum of x over all ranks."""
    out = nl.ndarray((x.shape[0] // ranks, *x.shape[1:]), dtype=x.dtype, buffer=nl.shared_hbm)
    collect(x, out, ranks, lambda src, dst, group: ncc.reduce_scatter(src, dst, group, 0, nl.add))
    return out


@nki.jit
def passed_on(x, ranks):
    """x of the rank before this one."""
    pairs = [[rank, (rank + 1) % ranks] for rank in range(ranks)]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    collect(x, out, ranks, lambda src, dst, group: ncc.collective_permute(src, dst, pairs))
    return out
