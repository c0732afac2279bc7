"""Windows that hardly overlap, as rows of a matrix: a patch of an image is one row, and a filter one column.

`Z[p, q, k] = X[c, 4*p + r, 4*q + s] . F[c, r, s, k]` sums over rows of a few values, far apart.
With `P[p, q, 16*c + 4*r + s] = X[c, 4*p + r, 4*q + s]` it is one sum over all values of a window.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..language.additions import Additions
from ..language.ast import Access, Cascade, Einsum, Kind, Step, plain
from .views import joined_indices

# times the elements of a tensor that its windows may have
MOST_OVERLAP = 16


def with_windows_as_rows(cascade: Cascade) -> Cascade:
    """The cascade with a matrix of windows before each sum over them; every rank has an extent."""
    added = Additions(cascade)
    steps: list[Step] = []
    for step in cascade.steps:
        steps += (_apart(step, added) if isinstance(step, Einsum) else None) or [step]
    return added.applied(tuple(steps)) if len(steps) > len(cascade.steps) else cascade


def _apart(einsum: Einsum, added: Additions) -> list[Einsum] | None:
    """The matrix of windows that a sum runs over, and the sum; None if it runs over none."""
    is_plain = not (einsum.condition or einsum.recurrence or any(a.gathers for a in einsum.accesses))
    if not is_plain or (einsum.map_op, einsum.reduce_op) != ("multiply", "add") or len(einsum.operands) != 2:
        return None
    for image, weights in (einsum.accesses, einsum.accesses[::-1]) if len(einsum.accesses) == 2 else ():
        kept = [v for v in einsum.output.variables if v in image.variables]
        axes = [n for n, i in enumerate(weights.indices) if i.plain in einsum.reduced]
        if _is_summed_whole(einsum, image, weights, axes) and _is_worth(einsum, image, kept, added):
            return _made(einsum, image, weights, kept, axes, added)
    return None


def _is_summed_whole(einsum: Einsum, image: Access, weights: Access, axes: list[int]) -> bool:
    """Whether the second operand has all that is summed side by side, and the first in windows."""
    summed = [weights.indices[n].plain for n in axes]
    is_beside = len(axes) > 1 and axes == [*range(axes[0], axes[0] + len(axes))]
    is_windowed = any(len(i.variables) > 1 for i in image.indices)
    return is_beside and is_windowed and sorted(summed) == sorted(einsum.reduced)


def _is_worth(einsum: Einsum, image: Access, kept: list[str], added: Additions) -> bool:
    """Whether windows have few more elements than what they are read of, which an input is."""
    size = prod(added.extent(v, einsum) for v in (*kept, *einsum.reduced))
    return size <= MOST_OVERLAP * prod(added.cascade.shape(image.tensor))


def _made(
    einsum: Einsum, image: Access, weights: Access, kept: list[str], axes: list[int], added: Additions
) -> list[Einsum] | None:
    """The matrix of windows, and the sum over its rows; None if more than that reads the weights."""
    cascade, (first, last) = added.cascade, (axes[0], axes[-1] + 1)
    tensor, shape = added.tensors[weights.tensor], cascade.shape(weights.tensor)
    summed = [weights.indices[n].plain for n in axes]
    sizes = [added.extent(v, einsum) for v in summed]
    reads = [a for e in cascade.einsums for a in e.every_access if a.tensor == weights.tensor]
    if len(reads) > 1 or weights.tensor in cascade.written or [*shape[first:last]] != sizes:
        return None
    rank = added.rank("".join(tensor.ranks[first:last]), prod(sizes))
    ranks = (*tensor.ranks[:first], rank, *tensor.ranks[last:])
    added.tensors[weights.tensor] = replace(tensor, ranks=ranks)
    outer, inner = (tuple(added.rank_of(v, einsum) for v in names) for names in (kept, summed))
    windows = added.tensor(f"{image.tensor}_windows", (*outer, *inner), image.tensor, Kind.WINDOW)
    rows = added.tensor(f"{image.tensor}_rows", (*outer, rank), windows, Kind.VIEW)
    place, (row,) = plain(kept), plain([rank.lower()])
    apart = Access(windows, (*place, *plain(summed)))
    view = Einsum(Access(rows, (*place, *joined_indices(summed, sizes, [prod(sizes)]))), (apart,))
    indices = (*weights.indices[:first], row, *weights.indices[last:])
    read = {id(image): Access(rows, (*place, row)), id(weights): replace(weights, indices=indices)}
    operands = tuple(read[id(o)] for o in einsum.operands)
    return [Einsum(apart, (image,)), view, replace(einsum, operands=operands, before=einsum.title)]
