"""Sums of rows times numbers of their own, as products with matrices that have these on their diagonal.

`Z[c, t] = X[c, t + r] . W[c, r]`, summed over r, has c everywhere, so there is no matrix in it: VectorE takes
a pass over all columns for each r. With `D[c, r, o] = W[c, r]` where c is o, and 0 elsewhere, it is
`Z[o, t] = X[c, t + r] . D[c, r, o]`, which TensorE adds up in PSUM; of more rows than lanes block by block.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from math import prod

from ..language.additions import Additions
from ..language.ast import Access, Cascade, Condition, Einsum, Kind, Scalar, plain
from .splits import split_along


def with_factor_matrices(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with such products, as long as there can be more; every rank has an extent."""
    for einsum in (s for s in cascade.steps if isinstance(s, Einsum) and s.is_product):
        pairs = permutations(einsum.accesses, 2) if len(einsum.operands) == len(einsum.accesses) == 2 else ()
        own = next(((a, b) for a, b in pairs if _are_rows(a, b, einsum, cascade, partitions)), None)
        other = _with_matrix(cascade, einsum, *own, partitions) if own is not None else None
        if other is not None:
            return with_factor_matrices(other, partitions)
    return cascade


def _are_rows(rows: Access, factors: Access, einsum: Einsum, cascade: Cascade, partitions: int) -> bool:
    """Whether an operand has a number for each row of another, and each value of a window over it."""
    output, own = einsum.output.variables, {*factors.variables}
    shared = {v for v in output if v in own and v in rows.variables}
    alone = [[i.plain for i in a.indices if shared & {*i.variables}] for a in (rows, factors, einsum.output)]
    beside = {v for i in rows.indices if not i.plain for v in i.variables}
    is_made = factors.tensor in cascade.derived and cascade.derived[factors.tensor].kind is Kind.PACKED
    values = prod(cascade.extent(v, einsum) for v in einsum.reduced)
    is_window = {*einsum.reduced} <= own & beside and not is_made and 1 < values <= partitions
    return is_window and bool(shared) and all({*a} == shared for a in alone) and not {*output} <= own


def _with_matrix(
    cascade: Cascade, einsum: Einsum, rows: Access, factors: Access, partitions: int
) -> Cascade | None:
    """The cascade whose factors of rows are matrices; one with rows in blocks first, if they are many."""
    shared = [v for v in einsum.output.variables if v in rows.variables and v in factors.variables]
    row = max(shared, key=lambda v: (cascade.extent(v, einsum) <= partitions, cascade.extent(v, einsum)))
    size, tensor, added = cascade.extent(row, einsum), factors.tensor, Additions(cascade)
    if size > partitions:
        each = next((n for n in range(partitions, partitions // 2, -1) if size % n == 0), 0)
        return split_along(cascade, (rows.tensor, rows.axis_of(row) or 0), (1, each)) if each else None
    rank = added.rank(f"{row.upper()}_COLUMN", size)
    own = [added.rank_of(v, einsum) for v in (row, *factors.variables)]
    here, column = plain((row, rank.lower()))
    places, matrix = (
        Access(
            added.tensor(f"{tensor}_{hint}", (*ranks, rank), tensor, Kind.PACKED),
            plain((*names, rank.lower())),
        )
        for hint, ranks, names in (("places", own[:1], (row,)), ("diagonal", own[1:], factors.variables))
    )
    output = einsum.output.renamed({row: rank.lower()})
    operands = tuple(matrix if o == factors else o for o in einsum.operands)
    steps = (
        Einsum(places, (Scalar(value=1.0),), condition=Condition(here, "==", column)),
        Einsum(matrix, (factors, places), "multiply"),
        replace(einsum, output=output, operands=operands, text="", before=einsum.title),
    )
    return added.instead(einsum, steps)
