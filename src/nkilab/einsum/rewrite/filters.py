"""Sums over all places of an image that a short filter reaches, as sums over the filter: transposed windows.

`Y[p] = X[q] . W[p - 2*q]` sums over all q, of which W has a few. With p = 2*a + e it is a sum over every
second element of W for each e: `Y[2*a + e] = X[a - b] . W[2*b + e]`. Both are zero beyond their edges.
"""

from __future__ import annotations

from dataclasses import replace

from ..language.additions import Additions
from ..language.ast import Affine, Cascade, Einsum, Step

Axis = tuple[Affine, int]  # how an operand goes through one of its axes, and the elements of that


def with_sums_over_filters(cascade: Cascade) -> Cascade:
    """The cascade with sums over filters, as long as one is shorter; every rank has an extent."""
    added = Additions(cascade)
    steps: list[Step] = []
    for step in cascade.steps:
        steps += _over_filter(step, added) if isinstance(step, Einsum) else [step]
    changed = tuple(steps) != cascade.steps
    return with_sums_over_filters(added.applied(tuple(steps))) if changed else cascade


def _over_filter(einsum: Einsum, added: Additions) -> list[Einsum]:
    """The sums over a filter, for each rest of the place in the result; itself if none is shorter."""
    is_named = all(isinstance(name, str) for index in einsum.indices for name, _ in index.terms)
    if not einsum.is_product or not is_named:
        return [einsum]
    shape, sizes = added.cascade.shape, added.cascade.sizes
    axes = [(i.at(sizes), n) for a in einsum.accesses for i, n in zip(a.affine, shape(a.tensor), strict=True)]
    axis = next((axis for axis in axes if _is_filter(einsum, axis, axes, added)), None)
    if axis is None:
        return [einsum]
    place, image = _ends(axis[0])
    rests = range(min(-axis[0].coefficient(image), added.extent(place, einsum)))
    return [_sum_of(einsum, axis, rest, added) for rest in rests]


def _ends(index: Affine) -> tuple[str, str]:
    """The variables of an index with two: that of a place in the result, and the one that runs back."""
    ahead, back = sorted(index.variables, key=index.coefficient, reverse=True)
    return ahead, back


def _is_filter(einsum: Einsum, axis: Axis, axes: list[Axis], added: Additions) -> bool:
    """Whether an axis runs on with a place in the result and back with a longer sum over whole axes."""
    index, size = axis
    if len(index.variables) != 2:
        return False
    place, image = _ends(index)
    step, extent = -index.coefficient(image), added.extent(image, einsum)
    if index.coefficient(place) != 1 or step < 1 or -(-size // step) >= extent or image not in einsum.reduced:
        return False
    others = {(i.plain, n) for i, n in axes if image in i.variables and i != index}
    written = [i.plain for i in einsum.output.indices if place in i.variables]
    return others == {(image, extent)} and written == [place]


def _sum_of(einsum: Einsum, axis: Axis, rest: int, added: Additions) -> Einsum:
    """The sum over a filter at places in the result that leave a rest."""
    index, size = axis
    place, image = _ends(index)
    step = -index.coefficient(image)
    first, start = divmod(rest + index.constant, step)
    turns = -(-(added.extent(place, einsum) - rest) // step)
    turn = added.rank(f"{place.upper()}{rest}", turns).lower()
    along = added.rank(f"{image.upper()}{rest}", max(1, -(-(size - start) // step))).lower()
    values = {place: Affine(((turn, step),), rest), image: Affine(((turn, 1), (along, -1)), first)}
    sizes = added.cascade.sizes
    return replace(einsum.with_indices(lambda before: before.at(sizes).replaced(values)), text="")
