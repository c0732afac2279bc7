"""Operands that indices choose as tensors of their own, so that TensorE multiplies what is chosen.

In `Y[t, f] = X[t, d] . W[I[t // 128], d, f]` the rows of W cannot lie on partitions as a product wants them.
With `G[u, d, f] = W[I[u], d, f]` what is chosen comes once, and `Y[t, f] = X[t, d] . G[t // 128, d, f]` is a
product like any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import prod

from ..language.additions import Additions, reading_others
from ..language.ast import Access, Cascade, Einsum, Gather, Kind, Scalar, Step

# whole numbers below it are exact in float32
EXACT = 1 << 24


def with_one_index(cascade: Cascade) -> Cascade:
    """The cascade whose inputs are chosen from by one index in place of several side by side.

    `T[A[i], B[i], h]` is `T'[F[i], h]` with `F[i] = n . A[i] + B[i]`: T' has the first two axes of T as one,
    of which the second has n elements. Every rank has an extent.
    """
    added, steps, every = Additions(cascade), list[Step](), defaultdict[str, list[Access]](list)
    for access in (
        a for e in cascade.einsums for o in e.every_access for a in (o, *(g.access for g in o.gathers))
    ):
        every[access.tensor].append(access)
    bound = {t for block in cascade.blocks for e in block.body for t in e.reads}
    joined = {
        t: runs for t in {*cascade.inputs} - bound if (runs := _side_by_side(every[t], cascade.shape(t)))
    }
    for tensor in (t for t in cascade.inputs if t in joined):
        ranks, shape = [*cascade.tensors[tensor].ranks], cascade.shape(tensor)
        for axes in joined[tensor]:
            ranks[axes] = [added.rank("".join(ranks[axes]), prod(shape[axes]))]
        added.tensors[tensor] = replace(cascade.tensors[tensor], ranks=tuple(ranks))

    def by_one(einsum: Einsum, access: Access) -> Access:
        indices, name = [*access.indices], f"{access.tensor}_index"
        for axes in joined.get(access.tensor, ()):
            total, *others = (i.access for i in indices[axes] if isinstance(i, Gather))
            for other, size in zip(others, cascade.shape(access.tensor)[axes][1:], strict=True):
                scaled = added.along(name, total.variables, einsum, Kind.PART)
                names = [v for v in einsum.variables if v in (*total.variables, *other.variables)]
                steps.append(Einsum(scaled, (total, Scalar(value=float(size))), "multiply"))
                total = added.along(name, names, einsum, Kind.PART)
                steps.append(Einsum(total, (scaled, other), "add"))
            indices[axes] = [Gather(total)]
        return replace(access, indices=tuple(indices))

    for step in cascade.steps:
        steps.append(step.with_body(e.reading(partial(by_one, e)) for e in step.body))
    return added.applied(tuple(steps)) if joined else cascade


def _side_by_side(every: Sequence[Access], shape: Sequence[int]) -> list[slice]:
    """Neighbouring axes of a tensor that nothing uses but what chooses along each of them, the last first."""
    chosen = [every and all(isinstance(a.indices[n], Gather) for a in every) for n in range(len(shape))]
    runs = [[*axes] for is_chosen, axes in groupby(range(len(shape)), chosen.__getitem__) if is_chosen]
    slices = (slice(axes[0], axes[-1] + 1) for axes in reversed(runs) if len(axes) > 1)
    return [axes for axes in slices if prod(shape[axes]) <= EXACT]


def with_chosen_operands(cascade: Cascade) -> Cascade:
    """The cascade whose products multiply copies of what they gather; every rank has an extent."""
    return reading_others(cascade, lambda einsum, access: access in _factors(einsum), _copy)


def _factors(step: Einsum) -> list[Access]:
    """What is gathered for a product with a matrix: others share a variable of its sum, and have not all."""
    if (step.map_op, step.reduce_op) != ("multiply", "add"):
        return []
    factors: list[Access] = []
    for access in (a for a in step.accesses if a.gathers):
        names = [i.plain for i in access.indices if not isinstance(i, Gather)]
        others = {v for a in step.accesses if a is not access for v in a.variables}
        is_plain = all(names) and len({*names}) == len(names)
        is_shared = {*step.reduced} & {*access.variables} & others
        factors += [access] if is_plain and is_shared and {*access.variables} != others else []
    return factors


def _copy(einsum: Einsum, access: Access, added: Additions) -> list[Einsum]:
    """What makes a tensor of a gathered operand."""
    name = f"{access.tensor}_chosen"
    return [Einsum(added.along(name, access.variables, einsum, Kind.CHOSEN, access.tensor), (access,))]
