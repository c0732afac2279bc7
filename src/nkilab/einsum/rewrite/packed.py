"""Small products of a batch, packed: several matrices on the diagonal of one that fills TensorE.

`Z[g, o, t] = X[g, c, t] . W[g, o, c]` sums over few c for each g, on as few rows of the array. With
`B[g, o, h, c] = W[g, o, c]` where g is h, and 0 elsewhere, `Z[g, o, t] = X[h, c, t] . B[g, o, h, c]` is one
product of matrices: g and o are one rank then, h and c another. W may lack g: the same matrix for each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, permutations
from math import prod
from operator import mul

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Condition, Einsum, Kind, Scalar, affine, plain
from .batch_order import bound_tensors, reordered
from .ranks import with_joined_ranks
from .splits import split_along
from .views import joined_indices

# matrices, at least, that one product is to have
FEWEST = 4


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
    def first(self) -> str:
        """Of both variables of a matrix the one that it has first."""
        names = self.weights.variables
        return min(self.summed, self.own, key=names.index)

    @property
    def second(self) -> str:
        """The other one."""
        return self.own if self.first == self.summed else self.summed


def with_packed_products(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with small products packed, as long as some can be; every rank has an extent."""
    for small in (s for e in cascade.einsums if (s := _small(e, cascade, partitions))):
        extent, axis = cascade.extent(small.batch, small.einsum), small.image.axis_of(small.batch)
        assert axis is not None
        if len(small.einsum.operands) > 2:
            other = _apart(small, cascade)
        elif (small.batch, small.own) not in pairwise(small.einsum.output.variables):
            other = _as_read(small, cascade)
        elif extent > small.each:
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
    pairs = permutations(einsum.accesses, 2)
    is_less = {(a, b): prod(cascade.shape(a.tensor)) <= prod(cascade.shape(b.tensor)) for a, b in pairs}
    for weights, image in (pair for pair, is_small in is_less.items() if is_small):
        for batch, summed in pairwise(i.plain for i in image.indices):
            own = _own(einsum, image, weights, batch, summed, cascade)
            count, most = (cascade.extent(batch, einsum), _most(einsum, image, weights, cascade)) if own else (1, 1)
            each = max(n for n in range(1, count + 1) if n == 1 or (count % n == 0 and n * most <= partitions))
            if each >= FEWEST:
                return _Small(einsum, image, weights, batch, summed, own, each)
    return None


def _most(einsum: Einsum, image: Access, weights: Access, cascade: Cascade) -> int:
    """Rows or columns of each matrix, whichever are more: of all variables that are one index of each operand."""
    plain_in = [{i.plain for i in a.indices} for a in (image, weights)]
    sums = [v for v in einsum.reduced if v in plain_in[0] & plain_in[1]]
    own = [v for v in weights.variables if v in einsum.output.variables and v not in image.variables]
    return max(prod(cascade.extent(v, einsum) for v in some) for some in (sums, own))


def _own(
    einsum: Einsum, image: Access, weights: Access, batch: str, summed: str, cascade: Cascade
) -> str:
    """What a given operand has alone if it has a matrix for each value of a batch, or the same one; else ""."""
    bound = {*cascade.outputs, *bound_tensors(cascade)}
    names, others = [i.plain for i in weights.indices], {*einsum.accesses} - {image, weights}
    elsewhere = {v for a in others for v in a.variables}
    if weights.tensor not in cascade.inputs or not all(names) or len({*names}) < len(names):
        return ""
    if not batch or summed not in names or summed not in einsum.reduced or summed in elsewhere:
        return ""
    for own in (v for v in names if v in einsum.output.variables and v not in {*image.variables, *elsewhere}):
        matrix = (batch, summed, own)
        axes = [(i, n) for a in einsum.every_access for i, n in zip(a.affine, cascade.shape(a.tensor))]
        is_whole = all(
            (i.plain, n) == (v, cascade.extent(v, einsum)) for i, n in axes for v in matrix if v in i.variables
        )
        first = min(map(names.index, (summed, own)))
        results = [i.plain for i in einsum.output.indices]
        is_beside = (batch, own) in pairwise(results) or einsum.name not in bound
        is_row = batch not in names or names[:first][-1:] == [batch]
        if is_whole and is_beside and is_row and batch in results:
            return own
    return ""


def _apart(small: _Small, cascade: Cascade) -> Cascade:
    """The cascade with the product of small matrices before that of what else is multiplied."""
    added, einsum = Additions(cascade), small.einsum
    rest = tuple(o for o in einsum.accesses if o is not small.image and o is not small.weights)
    later = {*einsum.output.variables, *(v for o in rest for v in o.variables)}
    both = [small.own if v == small.summed else v for v in small.image.variables]
    names = [v for v in dict.fromkeys((*both, *small.weights.variables)) if v in later]
    hint = f"{einsum.name}_part"
    name = added.tensor(hint, tuple(added.rank_of(v, einsum) for v in names), einsum.name, Kind.PART)
    part = Access(name, plain(names))
    first = replace(einsum, output=part, operands=(small.image, small.weights), text="", before=einsum.title)
    steps = [[first, replace(einsum, operands=(part, *rest), text="")] if s is einsum else [s] for s in cascade.steps]
    return added.applied(tuple(s for each in steps for s in each))


def _as_read(small: _Small, cascade: Cascade) -> Cascade:
    """The cascade whose result has its axes as the operand of a product has them."""
    names = [small.own if v == small.summed else v for v in small.image.variables]
    results = small.einsum.output.variables
    first = [results.index(v) for v in names if v in results]
    order = (*first, *(n for n in range(len(results)) if n not in first))
    name, added = small.einsum.name, Additions(cascade)
    return added.applied(tuple(reordered(added, {name: order}, {name: name})[0]))


def _packed(small: _Small, cascade: Cascade, partitions: int) -> Cascade | None:
    """The cascade with one product instead of small ones; None where others keep its ranks apart."""
    added, einsum = Additions(cascade), small.einsum
    other = added.rank(f"{small.batch.upper()}_SUMMED", small.each)
    summed = {small.batch: other.lower()}
    row, column = (other.lower(), small.batch)[:: 1 if small.first == small.summed else -1]
    names = [v for v in small.weights.variables if v != small.batch]
    rows, columns = names.index(small.first), names.index(small.second)
    inside = (*names[:rows], row, *names[rows:columns], column, *names[columns:])
    ranks = {v: added.rank_of(v, einsum) for v in names} | {other.lower(): other}
    ranks[small.batch] = added.rank_of(small.batch, einsum)
    hint = small.weights.tensor
    matrix = added.tensor(f"{hint}_packed", tuple(ranks[v] for v in inside), hint, Kind.VIEW)
    image = small.image.with_indices(lambda index: index.renamed(summed))
    own = {small.image: image, small.weights: Access(matrix, plain(inside))}
    changed = replace(einsum.reading(own.__getitem__), before=einsum.title, text="")
    steps = tuple(changed if step is einsum else step for step in cascade.steps)
    joined = with_joined_ranks(added.applied(steps), partitions)
    added = Additions(joined)
    source, diagonal = _diagonal(small, added, names, (rows, columns))
    sizes, shape = [added.sizes[r] for r in added.tensors[diagonal[-1].name].ranks], joined.shape(matrix)
    if not {*accumulate(shape, mul)} <= {*accumulate(sizes, mul)} or len(shape) >= len(sizes):
        return None
    own = diagonal[-1].output
    seen = Einsum(Access(matrix, joined_indices(own.variables, sizes, shape)), (own,))
    place = next(n for n, s in enumerate(joined.steps) if any(matrix in e.reads for e in s.body))
    return added.applied((*joined.steps[:place], *source, *diagonal, seen, *joined.steps[place:]))


def _diagonal(
    small: _Small, added: Additions, names: list[str], places: tuple[int, int]
) -> tuple[list[Einsum], list[Einsum]]:
    """Einsums that have the rows of all matrices as one rank, and those that have each where it belongs."""
    tensor, (rows, columns) = small.weights.tensor, places
    shape = dict(zip((i.plain for i in small.weights.indices), added.cascade.shape(tensor), strict=True))
    own = dict(zip((i.plain for i in small.weights.indices), added.cascade.tensors[tensor].ranks, strict=True))
    count, line = shape[small.first], added.rank(f"{small.batch}{small.first}".upper(), small.each * shape[small.first])
    group = added.rank(f"{small.batch.upper()}_COLUMN", small.each)
    ranks = [line if v == small.first else own[v] for v in names]
    kind = Kind.VIEW if small.batch in shape else Kind.REPEATED
    table = added.tensor(f"{tensor}_rows", tuple(ranks), tensor, kind)
    both = affine([(small.batch, count), (small.first, 1)])
    indices = tuple(both if v == small.first else i for v, i in zip(names, plain(names), strict=True))
    source = Einsum(Access(table, indices), (small.weights,))
    read = plain(line.lower() if v == small.first else v for v in names)
    wide = (*read[:columns], *plain([group.lower()]), *read[columns:])
    ranks.insert(columns, group)
    here, start = Affine(((line.lower(), 1),)), affine([(group.lower(), count)])
    steps, ones = list[Einsum](), Access("", plain([line.lower(), group.lower()]))
    for condition in (Condition(start, "<=", here), Condition(here, "<", replace(start, constant=count))):
        before = (Scalar(value=1.0),) if not steps else (ones,)
        name = added.tensor(f"{tensor}_places", (line, group), tensor, Kind.PACKED)
        ones = replace(ones, tensor=name)
        steps.append(Einsum(ones, before, condition=condition))
    name = added.tensor(f"{tensor}_diagonal", tuple(ranks), tensor, Kind.PACKED)
    steps.append(Einsum(Access(name, wide), (Access(table, read), ones), "multiply"))
    return [source], steps
