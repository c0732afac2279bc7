"""Axes that are always gone through in the same parts, as several axes: `X[4*a + b]` is `X[a, b]`.

Tensors are views of the same elements in the same order, as where ranks are joined. A window that moves on by
its own length, a chunk of a sequence and the head of a group are then variables that stand alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..language.additions import Additions, unused
from ..language.ast import Access, Affine, Cascade, Einsum, affine

Axis = tuple[str, int]
# steps of the parts of an index, the least first, with the variable that counts each
Parts = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class _Use:
    """An index of an axis, in an Einsum by its number."""

    einsum: int
    axis: Axis
    index: Affine


def with_split_ranks(cascade: Cascade) -> Cascade:
    """The cascade with axes split as long as one can be; every rank has an extent."""
    barred: set[Axis] = set()
    while (found := _next(cascade, barred)) is not None:
        cascade = _split(cascade, *found)
    return cascade


def _uses(cascade: Cascade) -> list[_Use]:
    """Every index of every axis; -1 stands for one that a tensor holds."""
    every = []
    for number, einsum in enumerate(cascade.einsums):
        gathers = (g.access for a in einsum.every_access for g in a.gathers)
        for access in (*einsum.every_access, *gathers):
            for axis, index in enumerate(access.indices):
                known = index.at(cascade.sizes) if isinstance(index, Affine) else Affine(constant=-1)
                every.append(_Use(number, (access.tensor, axis), known))
    return every


def _parts(index: Affine, einsum: Einsum, cascade: Cascade, size: int) -> Parts:
    """The parts in which an index goes through all of an axis; () if it does not."""
    parts = sorted((c, name) for name, c in index.terms)
    ends = [c * cascade.extent(v, einsum) for c, v in parts]
    is_whole = [*(c for c, _ in parts), size] == [1, *ends] and not index.constant
    return tuple(parts) if is_whole else ()


def _next(cascade: Cascade, barred: set[Axis]) -> tuple[set[Axis], tuple[int, ...]] | None:
    """Axes to split together, and the steps of their parts; None if there are none."""
    uses, einsums = _uses(cascade), cascade.einsums
    turns = {block.variable for block in cascade.blocks}
    for use in uses:
        steps = tuple(c for c, _ in _parts_of(use, cascade))
        if len(steps) < 2 or use.axis in barred:
            continue
        axes, waiting = {use.axis}, [use.axis]
        while waiting and axes:
            axis = waiting.pop()
            for other in (u for u in uses if u.axis == axis):
                parts, einsum = _parts_of(other, cascade), einsums[other.einsum]
                own = tuple(c for c, _ in parts)
                plain = other.index.plain
                if own not in ((1,), steps) or (plain and _is_bound(einsum, plain, turns)):
                    barred |= axes
                    axes = set()
                    break
                linked = {
                    u.axis for u in uses if plain and u.einsum == other.einsum and u.index.plain == plain
                }
                waiting += linked - axes
                axes |= linked
        if axes and not axes & barred:
            return axes, steps
        barred |= axes
    return None


def _parts_of(use: _Use, cascade: Cascade) -> Parts:
    tensor, axis = use.axis
    size = cascade.sizes[cascade.tensors[tensor].ranks[axis]]
    return _parts(use.index, cascade.einsums[use.einsum], cascade, size)


def _is_bound(einsum: Einsum, variable: str, turns: set[str]) -> bool:
    """Whether a variable is compared, counts turns, or stands in an index beside others."""
    asked = {*turns, *(einsum.condition.variables if einsum.condition else ())}
    asked |= {einsum.recurrence.variable} if einsum.recurrence else set()
    places = {o.index for o in einsum.positions}
    return variable in asked or any(
        variable in i.variables and i.plain != variable for i in einsum.indices if i not in places
    )


def _split(cascade: Cascade, axes: set[Axis], steps: tuple[int, ...]) -> Cascade:
    added = Additions(cascade)
    first = min(axes)
    rank = cascade.tensors[first[0]].ranks[first[1]]
    sizes = [b // a for a, b in pairwise((*steps, cascade.sizes[rank]))]
    names = [added.rank(f"{rank}{n}", size) for n, size in enumerate(sizes)]
    for tensor in dict.fromkeys(sorted(tensor for tensor, _ in axes)):
        held = cascade.tensors[tensor]
        ranks = (names[::-1] if (tensor, n) in axes else [r] for n, r in enumerate(held.ranks))
        added.tensors[tensor] = replace(held, ranks=tuple(r for own in ranks for r in own))

    def changed(einsum: Einsum) -> Einsum:
        places: dict[str, list[str]] = {}
        taken = {*(r.lower() for r in added.sizes), *einsum.variables}

        def parts_of(variable: str) -> Sequence[str]:
            if variable not in places:
                places[variable] = []
                for n in range(len(steps)):
                    places[variable].append(unused(f"{variable}{n}", taken))
                    taken.add(places[variable][-1])
            return places[variable]

        def split(access: Access) -> Access:
            indices = []
            for n, index in enumerate(access.indices):
                if (access.tensor, n) not in axes or not isinstance(index, Affine):
                    own = index if isinstance(index, Affine) else replace(index, access=split(index.access))
                    indices.append(own)
                    continue
                own_parts = sorted((c, v) for v, c in index.at(cascade.sizes).terms)
                whole = parts_of(index.plain) if index.plain else [v for _, v in own_parts]
                indices += [Affine(((v, 1),)) for v in reversed(whole)]
            return replace(access, indices=tuple(indices))

        read = replace(einsum.reading(split), output=split(einsum.output))
        if read == einsum:
            return einsum
        known = {v: [*zip(own, steps, strict=True)] for v, own in places.items()}
        return replace(read.with_indices(lambda i: _in_steps(i, known)), before=einsum.title)

    return added.applied(tuple(step.with_body(map(changed, step.body)) for step in cascade.steps))


def _in_steps(index: Affine, parts: Mapping[str, Sequence[tuple[str, int]]]) -> Affine:
    """An index with the parts of variables in their place."""
    terms = [(v, c * step) for name, c in index.terms for v, step in parts.get(name, [(name, 1)])]
    return affine(terms, index.constant)
