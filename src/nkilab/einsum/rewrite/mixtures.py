"""Mixtures of a few products: the numbers that they are mixed by are factors of an operand.

`M[g, i, j] = T[h, i, j] . P[h, g]` of `T[h, i, j] = Q[h, i, e] . K[h, j, e]` sums over few h, which lie
on no partition. With `R[h, g, i, e] = Q[h, i, e] . P[h, g]` it sums `R[h, g, i, e] . K[h, j, e]`.
So is it with `Y[k, i, e] = U[k, i, j] . V[k, j, e]` of a mixture `U[k, i, j] = W[g, i, j] . P[g, k]`. Where
nothing else of it is computed, and rounded, R keeps its digits: T may be far smaller than what it sums.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod

from ..language.additions import Additions
from ..language.ast import Access, Cascade, Einsum, Kind, Step
from .batch_order import bound_tensors, is_sum
from .defer import names_of

# times as many products as a mixture takes, at least, that its numbers take as factors
LESS = 2


def with_mixed_operands(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade whose mixtures of few products, or products of mixtures, have factors before them."""
    reads = Counter(t for e in cascade.einsums for t in e.reads)
    sums = {e.name: e for e in cascade.einsums if is_sum(e)}
    bound = {*cascade.outputs, *bound_tensors(cascade), *(t for t, n in reads.items() if n > 1)}
    pairs = ((reader, a) for reader in sums.values() for a in reader.accesses)
    for reader, access in ((r, a) for r, a in pairs if a.tensor in sums and a.tensor not in bound):
        other = _mixed(cascade, sums[access.tensor], reader, access, partitions)
        if other is not None:
            return with_mixed_operands(other, partitions)
    return cascade


def _mixed(
    cascade: Cascade, maker: Einsum, reader: Einsum, access: Access, partitions: int
) -> Cascade | None:
    """The cascade with the sum of a sum of products as one, of which two small operands come first."""
    added, names = Additions(cascade), names_of(maker.output, access)
    if names is None or {*maker.reduced} & {*reader.variables}:
        return None
    inner = [a.renamed(names) for a in maker.accesses]
    last = next(a for a in reader.accesses if a is not access)
    sizes = {
        v: added.extent(v, e) for e, own in ((maker, maker.reduced), (reader, reader.variables)) for v in own
    }

    def points(*accesses: Access) -> int:
        return prod(sizes[v] for v in {v for a in accesses for v in a.variables})

    numbers = min(last, *inner, key=points)
    # what is mixed by them is the sum of the others, or is multiplied by the last
    partner = min(inner, key=points) if numbers is last else last
    (whole,) = (a for a in (last, *inner) if a is not numbers and a is not partner)
    mixed = {v for v in numbers.variables if v in (reader if numbers is last else maker).reduced}
    is_few = prod(sizes[v] for v in mixed) * 2 <= partitions and {*numbers.variables} & {*partner.variables}
    if not is_few or points(numbers, partner) * LESS > points(access, numbers):
        return None
    total = {*reader.reduced, *maker.reduced}
    kept = [*dict.fromkeys((*numbers.variables, *partner.variables))]
    # rows of what is not summed over stay rows, of all of it together
    kept = kept if kept[-1] in total else sorted(kept, key=lambda v: v not in total)
    is_rounded = {whole.tensor, partner.tensor} & {*cascade.written}
    part = added.along(f"{reader.name}_part", kept, reader, Kind.PART if is_rounded else Kind.EXACT)
    whole_sum = replace(reader, operands=(whole, part), text="", before=reader.title)
    steps: dict[int, list[Step]] = {
        id(maker): [],
        id(reader): [Einsum(part, (numbers, partner), "multiply"), whole_sum],
    }
    del added.tensors[maker.name]
    return added.applied(tuple(s for step in cascade.steps for s in steps.get(id(step), [step])))
