"""Sums over all places of an image that a short filter reaches, as sums over the filter: transposed windows.

`Y[p] = X[q] . W[p - 2*q]` sums over all q, of which W has a few. With p = 2*a + e it is a sum over every
second element of W for each e: `Y[2*a + e] = X[a - b] . W[2*b + e]`. Both are zero beyond their edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Step


@dataclass(frozen=True)
class Window:
    """An axis that a sum of products goes through with a place of its result and a variable of the sum."""

    einsum: Einsum
    image: Access  # that has the axis
    index: Affine
    size: int  # of the axis
    place: str
    summed: str  # which one more index has
    length: int  # of the sum
    is_whole: bool  # whether that other index is an axis of which the sum has all

    @property
    def steps(self) -> tuple[int, int]:
        """By how much it moves with the place, and with the sum."""
        return self.index.coefficient(self.place), self.index.coefficient(self.summed)


def windows_of(einsum: Step, cascade: Cascade) -> Iterator[Window]:
    """The windows that a sum of products goes over."""
    if not isinstance(einsum, Einsum) or not einsum.is_product:
        return
    axes = [
        (a, i.at(cascade.sizes), n)
        for a in einsum.accesses for i, n in zip(a.affine, cascade.shape(a.tensor), strict=True)
    ]  # fmt: skip
    for image, index, size in (axis for axis in axes if len(axis[1].variables) == 2):
        place, summed = sorted(index.variables, key=lambda v: v in einsum.reduced)
        others = {(i, n) for _, i, n in axes if summed in i.variables and i is not index}
        written = [i.plain for i in einsum.output.indices if place in i.variables]
        is_alone = {i.variables for i, _ in others} == {(summed,)}
        if summed in einsum.reduced and written == [place] and is_alone:
            length = cascade.extent(summed, einsum)
            is_whole = {(i.plain, n) for i, n in others} == {(summed, length)}
            yield Window(einsum, image, index, size, place, summed, length, is_whole)


def with_sums_over_filters(cascade: Cascade) -> Cascade:
    """The cascade with sums over filters, as long as one is shorter; every rank has an extent."""
    added, steps = Additions(cascade), list[Step]()
    for step in cascade.steps:
        window = next(filter(_is_filter, windows_of(step, cascade)), None)
        steps += _sums(window, added) if window else [step]
    changed = tuple(steps) != cascade.steps
    return with_sums_over_filters(added.applied(tuple(steps))) if changed else cascade


def _is_filter(window: Window) -> bool:
    """Whether an axis runs on with a place in the result and back with a longer sum over a whole axis."""
    step, back = window.steps
    return window.is_whole and step == 1 and back < 0 and -(-window.size // -back) < window.length


def _sums(window: Window, added: Additions) -> list[Einsum]:
    """The sums over a filter at places in the result that leave each rest."""
    rests = range(min(-window.steps[1], added.extent(window.place, window.einsum)))
    return [_sum_of(window, rest, added) for rest in rests]


def _sum_of(window: Window, rest: int, added: Additions) -> Einsum:
    """The sum over a filter at places in the result that leave a rest."""
    einsum, place, image, step = window.einsum, window.place, window.summed, -window.steps[1]
    first, start = divmod(rest + window.index.constant, step)
    turns = -(-(added.extent(place, einsum) - rest) // step)
    turn = added.rank(f"{place.upper()}{rest}", turns).lower()
    along = added.rank(f"{image.upper()}{rest}", max(1, -(-(window.size - start) // step))).lower()
    values = {place: Affine(((turn, step),), rest), image: Affine(((turn, 1), (along, -1)), first)}
    sizes = added.cascade.sizes
    return replace(einsum.with_indices(lambda before: before.at(sizes).replaced(values)), text="")
