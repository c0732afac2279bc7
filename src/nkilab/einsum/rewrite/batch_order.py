"""Tensors of sums of products in other orders: batches first, rows of windows last, strides on chip.

`T[i, j, c] = P[k, i, c] . Q[k, j, c]` has one product for each c, and takes single elements for it. With
`P'[c, k, i]`, `Q'[c, k, j]` and `T'[c, i, j]` its transfers are rows. What lies between Einsums is kept so
from the start; inputs are copied before, and outputs behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod

from ..language.additions import Additions, free_variable
from ..language.ast import Access, Affine, Cascade, Einsum, Iterate, Kind, Step, Tensor
from .splits import with_chosen_columns, with_split_ranks

# elements of a row of a result, of one operand between rows of the other, that are few
SHORT_ROW = 16
# times that the rows of a result fit on the partitions, if they are few
FEW_ROWS = 4


def with_batches_first(cascade: Cascade) -> Cascade:
    """The cascade with such tensors in another order; every rank has an extent."""
    return with_orders(cascade, _orders(cascade))


def with_collected_results(cascade: Cascade) -> Cascade:
    """The cascade whose sums of short rows, far apart, lie between each other first, and leave together.

    `Y[2*p] = ..` and `Y[2*p + 1] = ..` each store single elements, as `Y[p, b] = X[p, c] . W[c, b]` with a
    few b does; on chip strides cost nothing.
    """
    parts = with_split_ranks(cascade)
    sums = [e for e in parts.einsums if e.reduce_op and e.name in cascade.outputs and e.output.indices]
    strided = {e.name for e in sums if _is_strided(e, parts)} - bound_tensors(parts)
    orders = {t: range(len(parts.tensors[t].ranks)) for t in sorted(strided)}
    return with_orders(parts, orders) if orders else cascade


def with_rows_behind_scales(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade whose blocks of sums are scaled with the rows of their results, if few, as columns.

    Of `Y[m, n] = X[m, b, k] . W[b, k, n] . S[b, n]` the sums over k are scaled before that over b. With n
    on partitions each scale belongs to one of them, for all of a few m: `Y'[n, m]`, `X'[k, b, m]`.
    """
    parts = with_split_ranks(cascade)
    orders, bound = dict[str, tuple[int, ...]](), bound_tensors(parts)
    for einsum in (e for e in parts.einsums if e.is_product and len(e.accesses) == len(e.operands) > 2):
        weights = max(einsum.accesses, key=lambda a: prod(parts.shape(a.tensor)))
        scales = [a for a in einsum.accesses if {*a.variables} < {*weights.variables}]
        blocks = {v for a in scales for v in a.variables if v in einsum.reduced}
        own, inner = {*weights.variables} & {*einsum.output.variables}, {*einsum.reduced} - blocks
        rows = prod(parts.extent(v, einsum) for v in einsum.output.variables if v not in own)
        others = [a for a in einsum.every_access if a is not weights and a.tensor not in bound]
        if not (blocks and inner <= {*weights.variables}) or rows * FEW_ROWS > partitions:
            continue
        for access in (a for a in others if all(i.plain for i in a.indices)):
            places = {
                n: [i.plain in kind for kind in (own, inner, blocks)] for n, i in enumerate(access.indices)
            }
            orders.setdefault(access.tensor, tuple(sorted(places, key=places.__getitem__, reverse=True)))
    changed = {t: order for t, order in orders.items() if [*order] != sorted(order)}
    return with_orders(parts, changed) if changed else cascade


def _is_strided(einsum: Einsum, cascade: Cascade) -> bool:
    """Whether rows of a sum are single elements, or a few of one operand between those of the other."""
    last, accesses = einsum.output.affine[-1], einsum.accesses
    if any(c > 1 for _, c in last.terms):
        return True
    owners = [[a.tensor for a in accesses if {*i.variables} & {*a.variables}] for i in einsum.output.affine]
    sizes = zip(owners, cascade.shape(einsum.name), strict=True)
    runs = [(owner, prod(n for _, n in own)) for owner, own in groupby(sizes, lambda axis: axis[0])]
    return len(runs) > 2 and len(runs[-1][0]) == 1 and runs[-1][1] < SHORT_ROW


def with_windows_last(cascade: Cascade) -> Cascade:
    """The cascade whose products have rows of their windows as columns, in whatever order results are.

    `Y[p, q, k] = X[p + r, q + s, c] . F[r, s, c, k]` has columns of q alone, or rows of k;
    `Y'[k, p, q]` has as many rows of q as fit.
    """
    orders: dict[str, tuple[int, ...]] = {}
    bound = bound_tensors(cascade)
    for einsum in (
        e for e in cascade.einsums if is_sum(e) and (all(_own(e, cascade)) or not _batch(e, cascade))
    ):
        moved = {v for a in einsum.accesses for i in a.affine if len(i.variables) > 1 for v in i.variables}
        axes = einsum.output.affine
        own = [n for n, i in enumerate(axes) if moved & {*i.variables}]
        rest = [n for n, i in enumerate(axes) if not moved & {*i.variables}]
        if own and rest and own[0] < rest[-1] and einsum.name not in bound:
            orders.setdefault(einsum.name, (*rest, *own))
    return with_orders(cascade, orders)


def with_choices_last(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade whose tables of short rows have what chooses last: partitions pick out of all of it.

    `Y[h, i, j] = T[I[i, j], h]` moves single elements; `T'[h, I[i, j]]` is picked out of a row for each h.
    """
    orders: dict[str, tuple[int, ...]] = {}
    for access in (a for e in cascade.einsums for a in e.accesses if len(a.gathers) == 1):
        chosen = next(n for n, i in enumerate(access.indices) if i in access.gathers)
        rest = [n for n in range(len(access.indices)) if n != chosen]
        behind = zip(access.indices[chosen + 1 :], cascade.shape(access.tensor)[chosen + 1 :], strict=True)
        row = prod(n for i, n in behind if not {*i.variables} & {*access.indices[chosen].variables})
        if chosen < len(rest) and row < SHORT_ROW * 2 and access.tensor not in bound_tensors(cascade):
            orders.setdefault(access.tensor, (*rest, chosen))
    return with_chosen_columns(with_orders(cascade, orders), partitions) if orders else cascade


def with_orders(cascade: Cascade, orders: Mapping[str, Sequence[int]]) -> Cascade:
    """The cascade with tensors in other orders, inputs and outputs by way of copies."""
    added = Additions(cascade)
    if not orders:
        return cascade
    names = {t: t for t in orders}
    for tensor in (t for t in orders if t in cascade.inputs or t in cascade.outputs):
        names[tensor] = added.tensor(f"{tensor}_batches", (), tensor, Kind.TRANSPOSED)
    body, ordered = reordered(added, orders, names)
    before = [copied(ordered, t, cascade, True) for t in orders if t in cascade.inputs]
    behind = [copied(ordered, t, cascade, False) for t in orders if t in cascade.outputs]
    return added.applied((*before, *body, *behind))


def reordered(
    added: Additions, orders: Mapping[str, Sequence[int]], names: Mapping[str, str]
) -> tuple[list[Step], Callable[[Access], Access]]:
    """The steps of a cascade whose tensors have their axes in other orders, and what reads one so.

    Args:
        added: to the cascade; such tensors are declared anew.
        orders: by tensor, the axes that it has in turn.
        names: what it is called then.
    """
    for tensor, order in orders.items():
        ranks = added.cascade.tensors[tensor].ranks
        added.tensors[names[tensor]] = Tensor(names[tensor], tuple(ranks[n] for n in order))

    def ordered(access: Access) -> Access:
        order = orders.get(access.tensor)
        if order is None:
            return access
        return replace(access, tensor=names[access.tensor], indices=tuple(access.indices[n] for n in order))

    def changed(einsum: Einsum) -> Einsum:
        other = einsum.changing(ordered)
        return einsum if other == einsum else replace(other, before=einsum.title)

    return [step.with_body(map(changed, step.body)) for step in added.cascade.steps], ordered


def _orders(cascade: Cascade) -> dict[str, tuple[int, ...]]:
    """Tensors of which products take single elements, and the order of axes in which they take rows."""
    bound = bound_tensors(cascade)
    orders: dict[str, tuple[int, ...]] = {}
    for einsum, access in ((e, a) for e in cascade.einsums if _batch(e, cascade) for a in e.every_access):
        order = _order(einsum, access, _batch(einsum, cascade))
        is_free = access.tensor not in cascade.inputs or all(_own(einsum, cascade))
        if order and is_free and access.tensor not in bound:
            orders.setdefault(access.tensor, order)
    return orders


def bound_tensors(cascade: Cascade) -> set[str]:
    """Tensors that turns of blocks, scans or indices need as they are."""
    bound = {t for s in cascade.steps if isinstance(s, Iterate) for e in s.body for t in (e.name, *e.reads)}
    bound |= {t for e in cascade.einsums if e.recurrence for t in (e.name, *e.reads)}
    return bound | {tensor for tensor, _ in cascade.index_ranks}


def is_sum(einsum: Einsum) -> bool:
    """Whether an Einsum is a sum of products of two tensors."""
    return einsum.is_product and len(einsum.accesses) == 2 == len({*einsum.reads})


def _order(einsum: Einsum, access: Access, batch: Sequence[str]) -> tuple[int, ...]:
    """The order of axes of an operand or result that has the batch last; () if it has not.

    What windows go along is last, so that a product has whole planes of it, and other values one by one.
    """
    if len(access.indices) < 2 or access.affine[-1].plain not in batch:
        return ()
    alone = [i.plain for a in einsum.accesses for i in a.affine]
    apart = [v for v in einsum.output.variables if v in alone]
    kinds = (batch, einsum.reduced, apart, einsum.output.variables)
    key = [
        next((n for n, kind in enumerate(kinds) if {*i.variables} <= {*kind}), len(kinds))
        for i in access.affine
    ]
    return tuple(sorted(range(len(key)), key=key.__getitem__))


def _batch(einsum: Einsum, cascade: Cascade) -> Sequence[str]:
    """Variables of which each value is a product by itself, of matrices or of a row and a number."""
    if not is_sum(einsum) or not any(_own(einsum, cascade)):
        return ()
    return [v for v in einsum.output.variables if all(v in a.variables for a in einsum.accesses)]


def _own(einsum: Einsum, cascade: Cascade) -> list[set[str]]:
    """Variables of several values that a result has of each operand alone."""
    first, second = ({v for v in a.variables if cascade.extent(v, einsum) > 1} for a in einsum.accesses)
    return [(first - second) - {*einsum.reduced}, (second - first) - {*einsum.reduced}]


def copied(ordered: Callable[[Access], Access], tensor: str, cascade: Cascade, is_before: bool) -> Einsum:
    """What brings a tensor into the other order, or back."""
    ranks = cascade.tensors[tensor].ranks
    # as readers call them, where each rank stands once
    known = [rank.lower() for rank in ranks]
    if len({*known}) < len(known) or {*known} & {b.variable for b in cascade.blocks}:
        known = [free_variable(f"{tensor.lower()}_{n}", cascade) for n in range(len(ranks))]
    plain = Access(tensor, tuple(Affine(((name, 1),)) for name in known))
    other = ordered(plain)
    return Einsum(other, (plain,)) if is_before else Einsum(plain, (other,))
