"""Ranks that some Einsums go through side by side, as one rank for these: through a view in HBM.

`D[c, p, q] = X[c, p + r, q + s] . F[c, r, s]` needs p and q apart; what computes with D does not. With
`V[c, Q*p + q] = D[c, p, q]`, which has the elements of D in the same order, all behind it has one long index.
Operands that are a part of a tensor are copied before.

`Z[i, j, z] = P[i, a, j, b] . C[a, b, z]` is a product of matrices of `P'[a, b, i, j]`, which P is made as.
What products alone read in parts, and all that it is computed of, is a matrix before a view.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from operator import mul

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Kind, Step, affine, plain, strides
from .batch_order import is_sum, with_orders
from .ranks import with_joined_ranks


@dataclass(frozen=True)
class _Cut:
    """An operand that a view takes the place of, with the extents of its variables, and their ranks."""

    access: Access
    sizes: tuple[int, ...]
    ranks: tuple[str, ...]


def with_views(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with ranks joined behind what keeps them apart; every rank has an extent."""
    return viewing(cascade, partitions, _apart(cascade))


def with_matrices_between(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with products that other products read as matrices: sums first, then what these keep.

    `Z[i, j, z] = P[i, a, j, b] . C[a, b, z]` is a product of matrices of `P'[a, b, i, j]`.
    """
    orders: dict[str, list[int]] = {}
    for einsum in (e for e in reversed(cascade.einsums) if _is_product(e)):
        for access, other in zip(einsum.accesses, einsum.accesses[::-1], strict=True):
            order = _as_read(einsum, access, other, orders) if _is_between(access.tensor, cascade) else []
            orders |= {access.tensor: order} if order else {}
    joined = other_order = with_orders(cascade, orders)
    for tensor in dict.fromkeys(e.name for e in cascade.einsums if e.name in orders):
        joined = viewing(joined, partitions, {tensor})
    return cascade if joined is other_order else joined


def _as_read(einsum: Einsum, access: Access, other: Access, orders: Mapping[str, Sequence[int]]) -> list[int]:
    """The axes of an operand as a matrix: of the batch, of the sum, its own; [] if it is one."""
    names, result = [i.plain for i in access.indices], [i.plain for i in einsum.output.indices]
    result = [result[n] for n in orders.get(einsum.name, range(len(result)))]
    first = sorted((v for v in other.variables if v in names), key=lambda v: v in einsum.reduced)
    own = [v for v in result if v in names and v not in first]
    is_matrix = all(names) and max(len(own), len(first)) > 1
    return [names.index(v) for v in (*first, *own)] if is_matrix else []


def _is_between(tensor: str, cascade: Cascade) -> bool:
    """Whether a tensor is a product that another one alone reads."""
    makers = cascade.writers(tensor)
    readers = cascade.readers(tensor)
    is_one = len(makers) == len(readers) == 1 and tensor not in cascade.outputs
    return is_one and _is_product(makers[0])


def with_matrices_before_products(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with what products alone read in parts as matrices, and so all that it is computed of."""
    inner = {t for t in cascade.written if t not in cascade.outputs and t not in cascade.derived}
    readers = [(e, t) for e in cascade.einsums for t in {*e.reads} & inner]
    parted = {t for _, t in readers} - {t for e, t in readers if not _is_product(e)}
    return viewing(cascade, partitions, parted, parted)


def _is_product(einsum: Einsum) -> bool:
    """Whether a result is the product of two tensors, each of its axes a variable of one of them."""
    names = [i.plain for i in einsum.output.indices]
    return is_sum(einsum) and all(names) and {*names} <= {v for a in einsum.accesses for v in a.variables}


def viewing(cascade: Cascade, partitions: int, apart: Set[str], made: Set[str] = frozenset()) -> Cascade:
    """The cascade with views in place of some operands, and ranks joined behind them.

    Args:
        made: operands whose ranks are joined before their views.
    """
    added, cuts, steps = Additions(cascade), dict[str, _Cut](), list[Step]()
    bound = {e.name for block in cascade.blocks for e in block.body}
    bound |= {t for t in apart if len(cascade.writers(t)) > 1}
    bound |= {t for t, derived in cascade.derived.items() if derived.kind is Kind.OVERLAP}
    apart = apart - bound
    for step in cascade.steps:
        is_free = isinstance(step, Einsum) and not step.recurrence
        is_free &= bool(step.body[0].reduce_op) or not _is_made(step.body[0].name, cascade)
        if isinstance(step, Einsum) and is_free and not any(a.gathers for a in step.every_access):
            step = step.reading(partial(_viewed, step, apart, added, cuts))
        steps.append(step)
    kept = {name if c.access.tensor in made else c.access.tensor for name, c in cuts.items()}
    return _written(with_joined_ranks(added.applied(tuple(steps)), partitions, kept), cascade, cuts)


def _is_made(tensor: str, cascade: Cascade) -> bool:
    """Whether a rewrite has made a tensor, other than as a part of a product, or a sum without a factor."""
    return tensor in cascade.derived and cascade.derived[tensor].kind not in (Kind.PART, Kind.SUM)


def _apart(cascade: Cascade) -> set[str]:
    """Tensors with an index of several variables, or moved, and what such are computed to."""

    def is_moved(access: Access) -> bool:
        return any(i.variables and not i.plain for i in access.indices)

    moved = {a.tensor for e in cascade.einsums for a in e.every_access if is_moved(a)}
    return moved | {e.name for e in cascade.einsums if any(map(is_moved, e.every_access))}


def _viewed(
    einsum: Einsum, apart: Collection[str], added: Additions, cuts: dict[str, _Cut], access: Access
) -> Access:
    """A view instead of an operand whose ranks others keep apart, if each index has a variable of its own."""
    names, constants = access.variables, [i.constant for i in access.affine]
    is_plain = all([c for _, c in i.terms] == [1] for i in access.affine)
    if access.tensor not in apart or not is_plain or len(names) < len(access.indices):
        return access
    sizes = tuple(added.extent(v, einsum) for v in names)
    ranks = tuple(added.rank_of(v, einsum) for v in names)
    same = (n for n, c in cuts.items() if (c.access.tensor, c.sizes) == (access.tensor, sizes))
    name = next((n for n in same if [i.constant for i in cuts[n].access.affine] == constants), "")
    if not name:
        name = added.tensor(f"{access.tensor}_rows", ranks, access.tensor, Kind.VIEW)
        cuts[name] = _Cut(access, sizes, ranks)
    return Access(name, plain(names))


def _written(joined: Cascade, before: Cascade, cuts: Mapping[str, _Cut]) -> Cascade:
    """A cascade with its views written, and without those in which no ranks are joined."""
    added, writers = Additions(joined), dict[str, list[Step]]()
    for name, cut in cuts.items():
        shape = joined.shape(cut.access.tensor)
        is_changed = shape != before.shape(cut.access.tensor)
        if cut.sizes == joined.shape(name) and not is_changed:
            del added.tensors[name], added.derived[name]
            continue
        source, copies = Access(cut.access.tensor, plain(cut.access.variables)), list[Einsum]()
        if is_changed:
            source = replace(source, indices=joined_indices(source.variables, cut.sizes, shape))
        elif cut.access != source or shape != cut.sizes:
            copy = added.tensor(f"{source.tensor}_part", cut.ranks, source.tensor, Kind.WINDOW)
            source = replace(source, tensor=copy)
            copies = [Einsum(source, (cut.access,))]
        view = Access(name, joined_indices(cut.access.variables, cut.sizes, joined.shape(name)))
        writers[name] = [*copies, Einsum(view, (source,))]
    steps = [e for name, own in writers.items() if cuts[name].access.tensor in before.inputs for e in own]
    for number, step in enumerate(joined.steps):
        steps.append(step.with_body(e.reading(partial(_back, cuts, added)) for e in step.body))
        later = {e.name for s in joined.steps[number + 1 :] for e in s.body}
        done = {e.name for e in step.body} - later
        steps += [e for name, own in writers.items() if cuts[name].access.tensor in done for e in own]
    return added.applied(tuple(steps)) if writers else before


def _back(cuts: Mapping[str, _Cut], added: Additions, access: Access) -> Access:
    """The operand itself, where its view is left out."""
    if access.tensor not in cuts or access.tensor in added.tensors:
        return access
    source = cuts[access.tensor].access
    pairs = zip(access.affine, source.affine, strict=True)
    return replace(source, indices=tuple(replace(i, constant=own.constant) for i, own in pairs))


def joined_indices(names: Sequence[str], sizes: Sequence[int], shape: Sequence[int]) -> tuple[Affine, ...]:
    """The indices of a view: of each rank the variables whose ranks it joins."""
    indices, rest = list[Affine](), [*zip(names, sizes, strict=True)]
    for number, size in enumerate(shape, start=1):
        ends = [n for n, p in enumerate(accumulate((s for _, s in rest), mul), start=1) if p == size]
        own = rest if number == len(shape) else rest[: ends[0]]
        rest = rest[len(own) :]
        steps = strides([s for _, s in own])
        indices.append(affine([(v, c) for (v, _), c in zip(own, steps, strict=True)]))
    return tuple(indices)
