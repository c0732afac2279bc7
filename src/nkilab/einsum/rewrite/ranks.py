"""Ranks that lie side by side wherever either is used, as one rank: more lanes, longer rows, fewer loops.

Tensors are views of the same elements in the same order: `Z[b, c, p] = X[b, c, p] . S[b, c]` is
`Z[bc, p] = X[bc, p] . S[bc]`. An Einsum keeps two variables of more than one value, for lanes and columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from ..language.additions import Additions, unused
from ..language.ast import Access, Affine, Cascade, Einsum, Operand, affine

# columns that an instruction takes as long for as it takes to be issued
COLUMNS_OF_ISSUE = 64
# vectors below this many elements are left as they are; part of the partitions that rows of equal length
# fill at least
LONG, LEAST_FILLED = 1 << 14, 0.75
# times as many cycles that rows of matrices take which are rather vectors
MUCH_LESS = 1.1
# how many times as large another Einsum is where one may be left without lanes or columns
SMALL = 16


@dataclass(frozen=True)
class _Axes:
    """An axis of a tensor and the one behind it."""

    tensor: str
    first: int


@dataclass(frozen=True)
class _Variables:
    """Two variables of an Einsum, by its number."""

    einsum: int
    left: str
    right: str


def with_joined_ranks(cascade: Cascade, partitions: int, kept: Collection[str] = ()) -> Cascade:
    """The cascade with ranks joined as long as that is possible; every rank has an extent.

    Args:
        kept: tensors whose ranks stay as they are.
    """
    while (axes := _chosen(cascade, partitions, kept)) is not None:
        cascade = _joined(cascade, axes)
    return cascade


def _pairs(cascade: Cascade) -> Iterator[tuple[_Axes, _Variables | None]]:
    """Neighbouring axes of tensors, with the variables that an access has there, if they may be one."""
    bound = {block.variable for block in cascade.blocks}
    for number, einsum, access in _accesses(cascade):
        for first, (left, right) in enumerate(pairwise(access.indices)):
            is_one = _may_be_one(cascade, einsum, access, first) and not {left.plain, right.plain} & bound
            pair = _Variables(number, left.plain, right.plain) if is_one else None
            yield _Axes(access.tensor, first), pair


def _accesses(cascade: Cascade) -> Iterator[tuple[int, Einsum, Access]]:
    """Every access, those of indices too, with its Einsum and the number of that."""
    for number, einsum in enumerate(cascade.einsums):
        gathers = (g.access for a in einsum.accesses for g in a.gathers)
        yield from ((number, einsum, access) for access in (einsum.output, *einsum.accesses, *gathers))


def _may_be_one(cascade: Cascade, einsum: Einsum, access: Access, first: int) -> bool:
    """Whether two variables of an access go through two whole axes, and nothing else asks for either."""
    both = [i.plain for i in access.indices[first : first + 2]]
    asked = {*einsum.along, *(einsum.condition.variables if einsum.condition else ())}
    asked |= {v for o in einsum.positions for v in o.variables}
    asked |= {v for a in einsum.accesses for g in a.gathers for v in g.variables}
    if not all(both) or both[0] == both[1] or asked & set(both):
        return False
    sizes = {v: cascade.extent(v, einsum) for v in both}
    return all(_is_together(a, cascade.shape(a.tensor), sizes) for a in einsum.every_access)


def _is_together(access: Access, shape: Sequence[int], sizes: Mapping[str, int]) -> bool:
    """Whether an access has neither of two variables, or both once: through whole axes, one behind the other,
    or as one index."""
    (left, _), (right, size) = sizes.items()
    used = [n for n, i in enumerate(access.indices) if sizes.keys() & set(i.variables)]
    if [access.indices[n] for n in used] == [affine([(left, size), (right, 1)])]:
        return True
    plain = [(access.indices[n].plain, shape[n]) for n in used]
    return not used or (plain == [*sizes.items()] and used[1] == used[0] + 1)


def _components(cascade: Cascade, kept: Collection[str]) -> list[set[_Axes]]:
    """Sets of neighbouring axes that must be joined all or none, and can be."""
    links = list(_pairs(cascade))
    barred = {axes for axes, pair in links if pair is None or axes.tensor in kept}
    joined, first = {axes: {axes} for axes, _ in links}, dict[_Variables, _Axes]()
    for axes, pair in ((axes, pair) for axes, pair in links if pair is not None):
        own, other = joined[axes], joined[first.setdefault(pair, axes)]
        other |= own
        joined |= dict.fromkeys(own, other)
    components = {id(component): component for component in joined.values()}.values()
    return [component for component in components if not component & barred]


def _chosen(cascade: Cascade, partitions: int, kept: Collection[str]) -> set[_Axes] | None:
    """The axes to join next: those between which a tensor would be cut worst into lanes and columns."""
    every = _components(cascade, kept)
    # a vector behind a view is not cut into rows again
    is_free = not kept
    least = [
        c for c in every if _leaves_two(cascade, c, is_free) or (is_free and _is_long(cascade, c, partitions))
    ]

    def cost(component: set[_Axes]) -> int:
        return max(_cost(cascade.shape(a.tensor), a.first + 1, partitions) for a in component)

    return max(least, key=cost, default=None)


def _cost(shape: tuple[int, ...], place: int, partitions: int) -> int:
    """Cycles that go through a tensor take, cut into lanes and columns at a place."""
    return -(-prod(shape[:place]) // partitions) * (COLUMNS_OF_ISSUE + prod(shape[place:]))


def lanes_of(size: int, partitions: int) -> int:
    """On how many partitions a vector lies in rows of equal length; 0 where that leaves too many without."""
    lanes = max(n for n in range(1, partitions + 1) if size % n == 0)
    return lanes if lanes >= LEAST_FILLED * partitions else 0


def _is_long(cascade: Cascade, component: set[_Axes], partitions: int) -> bool:
    """Whether matrices are vectors, which rows on all partitions hold better than their own rows do."""
    shapes = [cascade.shape(a.tensor) for a in component]
    sizes = {prod(shape) for shape in shapes}
    if any(len(shape) > 2 for shape in shapes) or min(sizes) < LONG or len(sizes) > 1 or cascade.blocks:
        return False
    cycles = COLUMNS_OF_ISSUE + max(sizes) // partitions
    is_less = all(cycles * MUCH_LESS < _cost(shape, 1, partitions) for shape in shapes)
    return is_less and bool(lanes_of(max(sizes), partitions))


def _leaves_two(cascade: Cascade, component: set[_Axes], is_free: bool) -> bool:
    """Whether every Einsum that is touched keeps two variables of several values, if it has them.

    Args:
        is_free: whether one that is small beside others need not.
    """
    points = [prod(cascade.extent(v, e) for v in e.variables) for e in cascade.einsums]
    for einsum, own in zip(cascade.einsums, points, strict=True):
        wide = [v for v in einsum.variables if cascade.extent(v, einsum) > 1]
        joined = _names(cascade, einsum, component)
        gone = sum(all(v in wide for v in pair) for pair in joined)
        if gone and len(wide) - gone < 2 and not (is_free and own * SMALL <= max(points)):
            return False
    return True


def _names(cascade: Cascade, einsum: Einsum, component: set[_Axes]) -> dict[tuple[str, str], str]:
    """What pairs of variables of an Einsum are called together."""
    held = (
        (a.indices, axes.first) for axes in component for a in einsum.every_access if a.tensor == axes.tensor
    )
    pairs = {(indices[first].plain, indices[first + 1].plain) for indices, first in held}
    taken = {*einsum.variables, *(rank.lower() for rank in cascade.sizes)}
    return {pair: unused("".join(pair), taken) for pair in sorted(pairs)}


def _joined(cascade: Cascade, component: set[_Axes]) -> Cascade:
    """The cascade with one rank in place of each two."""
    added = Additions(cascade)
    first = min(component, key=lambda axes: (axes.tensor, axes.first))
    ranks = cascade.tensors[first.tensor].ranks[first.first : first.first + 2]
    sizes = {tuple(_sizes(cascade, axes)) for axes in component}
    names = {pair: added.rank("".join(ranks), prod(pair)) for pair in sorted(sizes)}
    for axes in sorted(component, key=lambda axes: -axes.first):
        tensor = added.tensors[axes.tensor]
        joined = names[_sizes(cascade, axes)]
        own = (*tensor.ranks[: axes.first], joined, *tensor.ranks[axes.first + 2 :])
        added.tensors[axes.tensor] = replace(tensor, ranks=own)

    def changed(einsum: Einsum) -> Einsum:
        pairs = _names(cascade, einsum, component)
        output, *operands = (_access(o, pairs) for o in (einsum.output, *einsum.operands))
        assert isinstance(output, Access)
        return replace(einsum, output=output, operands=tuple(operands), before=einsum.title)

    return added.applied(tuple(step.with_body(map(changed, step.body)) for step in cascade.steps))


def _sizes(cascade: Cascade, axes: _Axes) -> tuple[int, int]:
    left, right = cascade.shape(axes.tensor)[axes.first : axes.first + 2]
    return left, right


def _access(operand: Operand, pairs: Mapping[tuple[str, str], str]) -> Operand:
    """An operand with one variable in place of each two."""
    if not isinstance(operand, Access):
        return operand
    indices = list(operand.indices)
    for pair, name in pairs.items():
        plain = [i.plain for i in indices]
        if pair[0] in plain:
            place = plain.index(pair[0])
            indices[place : place + 2] = [Affine(((name, 1),))]
        indices = [Affine(((name, 1),)) if {*pair} == {*i.variables} else i for i in indices]
    return replace(operand, indices=tuple(indices))
