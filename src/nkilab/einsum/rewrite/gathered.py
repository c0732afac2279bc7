"""Operands that indices choose as tensors of their own, so that TensorE multiplies what is chosen.

In `Y[t, f] = X[t, d] . W[I[t // 128], d, f]` the rows of W cannot lie on partitions as a product wants them.
With `G[u, d, f] = W[I[u], d, f]` what is chosen comes once, and `Y[t, f] = X[t, d] . G[t // 128, d, f]` is a
product like any other.
"""

from __future__ import annotations

from ..language.additions import Additions, reading_others
from ..language.ast import Access, Cascade, Einsum, Gather, Kind


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
