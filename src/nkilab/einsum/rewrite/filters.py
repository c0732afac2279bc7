"""Sums over all places of an image that a short filter reaches, as sums over the filter: transposed windows.

`Y[p] = X[q] . W[p - 2*q]` sums over all q, of which W has a few. With p = 2*a + e it is a sum over every
second element of W for each e: `Y[2*a + e] = X[a - b] . W[2*b + e]`. Both are zero beyond their edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..language.additions import Additions
from ..language.ast import Affine, Cascade, Einsum, Step, affine


def with_sums_over_filters(cascade: Cascade) -> Cascade:
    """The cascade with sums over filters, as long as one is shorter; every rank has an extent."""
    added = Additions(cascade)
    steps: list[Step] = []
    for step in cascade.steps:
        steps += (_over_filter(step, added) if isinstance(step, Einsum) else None) or [step]
    changed = tuple(steps) != cascade.steps
    return with_sums_over_filters(added.applied(tuple(steps))) if changed else cascade


def _over_filter(einsum: Einsum, added: Additions) -> list[Einsum] | None:
    """The sums that are shorter, for each rest of the place in the result; None if there are none."""
    names = (name for index in einsum.indices for name, _ in index.terms)
    is_plain = not einsum.is_placed and all(isinstance(name, str) for name in names)
    if not is_plain or (einsum.map_op, einsum.reduce_op) != ("multiply", "add"):
        return None
    for index, size in _filters(einsum, added.cascade):
        (place, _), (image, back) = sorted(index.terms, key=lambda term: -term[1])
        step, extent = -back, added.extent(place, einsum)
        most = -(-size // step)
        if most < added.extent(image, einsum) and _is_image(einsum, image, index, added):
            rests = range(min(step, extent))
            return [_sum_of(einsum, added, (place, image), index, size, rest) for rest in rests]
    return None


def _filters(einsum: Einsum, cascade: Cascade) -> Iterator[tuple[Affine, int]]:
    """Indices that run on with a place in the result and back with what is summed, and how many they take."""
    for access in einsum.accesses:
        for given, size in zip(access.affine, cascade.shape(access.tensor), strict=True):
            index = given.at(cascade.sizes)
            ahead = [n for n, c in index.terms if c == 1]
            behind = [n for n, c in index.terms if c < 0]
            places = [i.plain for i in einsum.output.indices if {*ahead} & {*i.variables}]
            if len(index.terms) == 2 and ahead and places == ahead and {*behind} <= {*einsum.reduced}:
                yield index, size


def _is_image(einsum: Einsum, image: str, index: Affine, added: Additions) -> bool:
    """Whether a variable goes through whole axes otherwise, so that what is beyond it is zero."""
    extent, sizes = added.extent(image, einsum), added.cascade.sizes
    found = [
        (i.plain, size)
        for access in einsum.accesses
        for i, size in zip(access.affine, added.cascade.shape(access.tensor), strict=True)
        if image in i.variables and i.at(sizes) != index
    ]
    return bool(found) and all(one == (image, extent) for one in found)


def _sum_of(
    einsum: Einsum, added: Additions, names: tuple[str, str], index: Affine, size: int, rest: int
) -> Einsum:
    """The sum over a filter at places in the result that leave a rest."""
    place, image = names
    step = -index.coefficient(image)
    first, start = divmod(rest + index.constant, step)
    extent = added.extent(place, einsum)
    turn = added.rank(f"{place.upper()}{rest}", -(-(extent - rest) // step)).lower()
    along = added.rank(f"{image.upper()}{rest}", max(1, -(-(size - start) // step))).lower()
    values = {
        place: Affine(((turn, step),), rest),
        image: Affine(((turn, 1), (along, -1)), first),
    }

    def changed(given: Affine) -> Affine:
        known = given.at(added.cascade.sizes)
        terms = [(values.get(n, Affine(((n, 1),))), c) for n, c in known.terms]
        every = [(n, c * own) for value, c in terms for n, own in value.terms]
        return affine(every, known.constant + sum(c * value.constant for value, c in terms))

    return replace(einsum.with_indices(changed), text="")
