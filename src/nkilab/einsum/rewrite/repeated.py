"""Small operands repeated along a rank that they lack, so that two ranks of all others can be one.

`Z[b, c, s] = X[b, c, s] . W[c]` keeps b and c apart, because W has c alone. With `R[C*b + c] = W[c]` they are
one rank of b times c values, which fill partitions together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import prod

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Kind, Step, affine

# how many times as many points an Einsum has as elements are repeated
SMALL = 16


def with_repeated_operands(cascade: Cascade) -> Cascade:
    """The cascade with inputs of element-wise Einsums repeated first, where that is a small part of these."""
    added, copies = Additions(cascade), list[Einsum]()
    steps: list[Step] = []
    for step in cascade.steps:
        if not isinstance(step, Einsum) or step.is_placed or step.reduce_op:
            steps.append(step)
            continue
        own = {id(access): _copy(step, access, *both, added) for access, both in _lacking(step, cascade)}
        operands = tuple(own[id(o)].output if id(o) in own else o for o in step.operands)
        copies += own.values()
        steps.append(replace(step, operands=operands, before=step.title) if own else step)
    return added.applied((*copies, *steps)) if copies else cascade


def _lacking(einsum: Einsum, cascade: Cascade) -> Iterator[tuple[Access, tuple[str, str]]]:
    """Inputs that have one of two neighbouring variables of several values, with both."""
    widest = max(einsum.every_access, key=lambda a: len(a.variables))
    order = [i.plain for i in widest.indices if i.plain and cascade.extent(i.plain, einsum) > 1]
    points = prod(cascade.extent(v, einsum) for v in einsum.variables)
    for access in (a for a in einsum.accesses if a.tensor in cascade.inputs):
        names = [i.plain if isinstance(i, Affine) else "" for i in access.indices]
        known = [(p, prod(cascade.extent(v, einsum) for v in {*p, *names} - {""})) for p in pairwise(order)]
        pairs = [p for p, size in known if len({*p} & {*names}) == 1 and size * SMALL <= points]
        if pairs and all(names) and len({*names}) == len(names):
            yield access, pairs[0]


def _copy(einsum: Einsum, access: Access, left: str, right: str, added: Additions) -> Einsum:
    """The Einsum that repeats an input: both variables are one index of what it writes."""
    both = tuple(added.rank_of(v, einsum) for v in (left, right))
    sizes = [added.extent(v, einsum) for v in (left, right)]
    joined, ranks, indices = added.rank("".join(both), prod(sizes)), [], []
    for rank, index in added.cascade.axes(access):
        is_own = index.plain in (left, right)
        ranks.append(joined if is_own else rank)
        indices.append(affine([(left, sizes[1]), (right, 1)]) if is_own else index)
    name = added.tensor(f"{access.tensor}_repeated", tuple(ranks), access.tensor, Kind.REPEATED)
    return Einsum(Access(name, tuple(indices)), (access,))
