"""Small products of a batch, packed: several matrices on the diagonal of one that fills TensorE.

`Z[g, o, t] = X[g, c, t] . W[g, o, c]` sums over few c for each g, on as few rows of the array. With
`B[g, o, h, c] = W[g, o, c]` where g is h, and 0 elsewhere, `Z[g, o, t] = X[h, c, t] . B[g, o, h, c]` is one
product of matrices: g and o are one rank then, h and c another. W may lack g: the same matrix for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, permutations, product
from math import prod
from operator import mul

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Condition, Einsum, Kind, Operand, Scalar, affine, plain
from .batch_order import bound_tensors, with_orders
from .ranks import with_joined_ranks
from .splits import split_along
from .views import joined_indices

# matrices, at least, that one product is to have; twice as many where they are one, or as large as the image
FEWEST = 2


@dataclass(frozen=True)
class _Small:
    """A sum of products of small matrices."""

    einsum: Einsum
    image: Access  # operand that has the batch, and behind it what is summed over
    weights: Access  # the small matrices
    batch: str  # variable that they differ in
    summed: str  # variable that a matrix sums over
    own: str  # variable of the result that the small matrices have alone
    each: int  # of the batch, packed into one

    @property
    def names(self) -> list[str]:
        """Variables of a matrix, in its order."""
        return [v for v in self.weights.variables if v != self.batch]

    @property
    def sides(self) -> list[int]:
        """Where both sides of a matrix stand among them."""
        return sorted(map(self.names.index, (self.summed, self.own)))

    @property
    def order(self) -> list[int]:
        """The axes of the small matrices, that of the batch before the first of their sides."""
        first = self.sides[0]
        names = [*self.names[:first], self.batch, *self.names[first:]]
        return [self.weights.variables.index(v) for v in names]


def with_packed_products(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with small products packed, as long as some can be; every rank has an extent."""
    for small in (s for e in cascade.einsums if (s := _small(e, cascade, partitions))):
        axis = small.image.axis_of(small.batch)
        assert axis is not None
        other: Cascade | None
        if len(small.einsum.operands) > 2:
            other = _apart(small, cascade)
        elif (small.batch, small.own) not in pairwise(small.einsum.output.variables):
            other = _as_read(small, cascade)
        elif small.batch in small.weights.variables and small.order != sorted(small.order):
            other = with_orders(cascade, {small.weights.tensor: small.order})
        elif cascade.extent(small.batch, small.einsum) > small.each:
            other = split_along(cascade, (small.image.tensor, axis), (1, small.each))
        else:
            other = _packed(small, cascade, partitions)
        if other is not None:
            return with_packed_products(other, partitions)
    return cascade


def _small(einsum: Einsum, cascade: Cascade, partitions: int) -> _Small | None:
    """A sum as one of products of small matrices; None if it is none, or few go into one."""
    is_free = einsum.is_product and len(einsum.accesses) == len(einsum.operands) > 1
    if not is_free or any(einsum in block.body for block in cascade.blocks):
        return None
    free = {*cascade.inputs} | {t for t, d in cascade.derived.items() if d.kind is Kind.TRANSPOSED}
    sides = (pair for pair in permutations(einsum.accesses, 2) if pair[0].tensor in free)
    options = (s for weights, image in sides for s in _options(einsum, weights, image, cascade, partitions))
    return next((small for small in options if small.each and _is_whole(small, cascade)), None)


def _options(
    einsum: Einsum, weights: Access, image: Access, cascade: Cascade, partitions: int
) -> Iterator[_Small]:
    """What may be small matrices of an operand, of which several may go into one."""
    names = [i.plain for i in weights.indices]
    others = {v for a in einsum.accesses if a not in (weights, image) for v in a.variables}
    sums = {i.plain for i in image.indices} & {*names} & {*einsum.reduced} - others
    owns = [v for v in names if v in einsum.output.variables and v not in others | {*image.variables}]

    def points(variables: Collection[str]) -> int:
        return prod(cascade.extent(v, einsum) for v in variables)

    if not all(names) or points(names) > points(image.variables):
        return
    # where no other way fills the array: all that is summed, or that a result has, is one side
    most, pairs = partitions // max(points(sums), points(owns)), pairwise(i.plain for i in image.indices)
    for (batch, summed), own in product((p for p in pairs if p[0] and p[1] in sums), owns):
        is_few = batch in names and 2 * points(names) <= points(image.variables)
        parts = (n for n in range(FEWEST * (2 - is_few), most + 1) if cascade.extent(batch, einsum) % n == 0)
        yield _Small(einsum, image, weights, batch, summed, own, max(parts, default=0))


def _is_whole(small: _Small, cascade: Cascade) -> bool:
    """Whether matrices lie whole, behind what they differ in, if they do, and can be written so."""
    einsum = small.einsum
    results = [i.plain for i in einsum.output.indices]
    sizes = {v: cascade.extent(v, einsum) for v in (small.batch, small.summed, small.own)}
    axes = [
        (i, n) for a in einsum.every_access for i, n in zip(a.affine, cascade.shape(a.tensor), strict=True)
    ]
    is_plain = all((i.plain, n) == (v, sizes[v]) for i, n in axes for v in sizes if v in i.variables)
    bound = {*cascade.outputs, *bound_tensors(cascade)}
    is_beside = (small.batch, small.own) in pairwise(results) or einsum.name not in bound
    return is_plain and is_beside and small.batch in results


def _apart(small: _Small, cascade: Cascade) -> Cascade:
    """The cascade with the product of small matrices before that of what else is multiplied."""
    added, einsum = Additions(cascade), small.einsum
    rest = tuple(o for o in einsum.accesses if o is not small.image and o is not small.weights)
    later = {*einsum.output.variables, *(v for o in rest for v in o.variables)}
    both = [small.own if v == small.summed else v for v in small.image.variables]
    names = [v for v in dict.fromkeys((*both, *small.names)) if v in later]
    part = added.along(f"{einsum.name}_part", names, einsum, Kind.PART)
    first = replace(einsum, output=part, operands=(small.image, small.weights), text="", before=einsum.title)
    both_steps = [first, replace(einsum, operands=(part, *rest), text="")]
    return added.instead(einsum, both_steps)


def _as_read(small: _Small, cascade: Cascade) -> Cascade:
    """The cascade whose result has its axes as the operand of a product has them."""
    names = [small.own if v == small.summed else v for v in small.image.variables]
    results = small.einsum.output.variables
    order = sorted(range(len(results)), key=lambda n: (*names, *results).index(results[n]))
    return with_orders(cascade, {small.einsum.name: order})


def _packed(small: _Small, cascade: Cascade, partitions: int) -> Cascade | None:
    """The cascade with one product instead of small ones; None where others keep its ranks apart."""
    added, einsum, names, (first, second) = Additions(cascade), small.einsum, small.names, small.sides
    other = added.rank(f"{small.batch.upper()}_SUMMED", small.each)
    is_sum_first = names[first] == small.summed
    row, column = (other.lower(), small.batch)[:: 1 if is_sum_first else -1]
    inside = (*names[:first], row, *names[first:second], column, *names[second:])
    ranks = tuple(other if v == other.lower() else added.rank_of(v, einsum) for v in inside)
    matrix = added.tensor(f"{small.weights.tensor}_packed", ranks, small.weights.tensor, Kind.VIEW)
    image = small.image.renamed({small.batch: other.lower()})
    read = {small.image: image, small.weights: Access(matrix, plain(inside))}
    changed = replace(einsum.reading(read.__getitem__), before=einsum.title, text="")
    steps = tuple(changed if step is einsum else step for step in cascade.steps)
    # others may read the small matrices, too
    kept = {small.weights.tensor} & {t for s in steps for e in s.body for t in (e.name, *e.reads)}
    joined = with_joined_ranks(added.applied(steps), partitions, kept)
    added = Additions(joined)
    diagonal = _diagonal(small, added)
    own = diagonal[-1].output
    sizes, shape = [added.sizes[r] for r in added.tensors[own.tensor].ranks], joined.shape(matrix)
    if not {*accumulate(shape, mul)} <= {*accumulate(sizes, mul)} or len(shape) >= len(sizes):
        return None
    seen = Einsum(Access(matrix, joined_indices(own.variables, sizes, shape)), (own,))
    place = next(n for n, s in enumerate(joined.steps) if any(matrix in e.reads for e in s.body))
    return added.applied((*joined.steps[:place], *diagonal, seen, *joined.steps[place:]))


def _diagonal(small: _Small, added: Additions) -> list[Einsum]:
    """Einsums that have the rows of all matrices as one rank, and each where it belongs on the diagonal."""
    weights, names, (first, second) = small.weights, small.names, small.sides
    tensor, batch, count = weights.tensor, small.batch.upper(), added.extent(names[first], small.einsum)
    line = added.rank(f"{batch}{names[first]}".upper(), small.each * count)
    group = added.rank(f"{batch}_COLUMN", small.each)
    own = {i.plain: rank for rank, i in added.cascade.axes(weights)}
    ranks = [line if v == names[first] else own[v] for v in names]
    kind = Kind.VIEW if small.batch in own else Kind.REPEATED
    table = added.tensor(f"{tensor}_rows", tuple(ranks), tensor, kind)
    indices, read = [*plain(names)], [*plain(line.lower() if v == names[first] else v for v in names)]
    indices[first] = affine([(small.batch, count), (names[first], 1)])
    steps = [Einsum(Access(table, tuple(indices)), (weights,))]
    here, start = Affine(((line.lower(), 1),)), affine([(group.lower(), count)])
    ones: Operand = Scalar(value=1.0)
    for condition in (Condition(start, "<=", here), Condition(here, "<", replace(start, constant=count))):
        places = added.tensor(f"{tensor}_places", (line, group), tensor, Kind.PACKED)
        steps.append(
            Einsum(Access(places, plain([line.lower(), group.lower()])), (ones,), condition=condition)
        )
        ones = steps[-1].output
    ranks.insert(second, group)
    wide = (*read[:second], *plain([group.lower()]), *read[second:])
    name = added.tensor(f"{tensor}_diagonal", tuple(ranks), tensor, Kind.PACKED)
    return [*steps, Einsum(Access(name, wide), (Access(table, tuple(read)), ones), "multiply")]
