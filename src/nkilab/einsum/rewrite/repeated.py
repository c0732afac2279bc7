"""Small operands repeated along a rank that they lack, so that two ranks of all others can be one.

`Z[b, c, s] = X[b, c, s] . W[c]` keeps b and c apart, because W has c alone. With `R[C*b + c] = W[c]` they are
one rank of b times c values, which fill partitions together.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from ..language.additions import Additions, reading_others
from ..language.ast import Access, Affine, Cascade, Einsum, Kind, affine

# how many times as many points an Einsum has as elements are repeated
SMALL = 16


def with_repeated_operands(cascade: Cascade) -> Cascade:
    """The cascade with operands of element-wise Einsums repeated first, where these are much larger."""
    return reading_others(cascade, lambda einsum, access: bool(_lacking(einsum, access, cascade)), _copy)


def _lacking(einsum: Einsum, access: Access, cascade: Cascade) -> tuple[str, ...]:
    """Two neighbouring variables of several values of which an operand has one; () if it lacks none."""
    bound = {e.name for block in cascade.blocks for e in block.body}
    if einsum.is_placed or einsum.reduce_op or access.gathers or access.tensor in bound:
        return ()
    widest = max(einsum.every_access, key=lambda a: len(a.variables))
    order = [i.plain for i in widest.indices if i.plain and cascade.extent(i.plain, einsum) > 1]
    points = prod(cascade.extent(v, einsum) for v in einsum.variables)
    names = [i.plain if isinstance(i, Affine) else "" for i in access.indices]
    known = [(p, prod(cascade.extent(v, einsum) for v in {*p, *names} - {""})) for p in pairwise(order)]
    # what is computed of the others has their first variables, and comes as they do
    known = [(p, n) for p, n in known if access.tensor in cascade.inputs or p[1] in names]
    pairs = [p for p, size in known if len({*p} & {*names}) == 1 and size * SMALL <= points]
    return pairs[0] if pairs and all(names) and len({*names}) == len(names) else ()


def _copy(einsum: Einsum, access: Access, added: Additions) -> list[Einsum]:
    """The Einsum that repeats an input: both variables are one index of what it writes."""
    left, right = _lacking(einsum, access, added.cascade)
    both = tuple(added.rank_of(v, einsum) for v in (left, right))
    sizes = [added.extent(v, einsum) for v in (left, right)]
    joined, ranks, indices = added.rank("".join(both), prod(sizes)), [], []
    for rank, index in added.cascade.axes(access):
        is_own = index.plain in (left, right)
        ranks.append(joined if is_own else rank)
        indices.append(affine([(left, sizes[1]), (right, 1)]) if is_own else index)
    name = added.tensor(f"{access.tensor}_repeated", tuple(ranks), access.tensor, Kind.REPEATED)
    return [Einsum(Access(name, tuple(indices)), (access,))]
