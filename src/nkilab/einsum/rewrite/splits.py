"""Axes that are always gone through in the same parts, as several axes: `X[4*a + b]` is `X[a, b]`.

Tensors are views of the same elements in the same order, as where ranks are joined. A window that moves on by
its own length, a chunk of a sequence and the head of a group are then variables that stand alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from ..language.additions import Additions, unused
from ..language.ast import Access, Affine, Cascade, Einsum, Index

# values, for each index, of what indices choose together
FEW = 16
# a tensor and one of its axes; one that an Einsum goes through, with the index there
Axis = tuple[str, int]
Use = tuple[Einsum, Axis, Index]


def with_split_ranks(cascade: Cascade, are_shared: bool = False) -> Cascade:
    """The cascade with axes split as long as some can be; every rank has an extent.

    Args:
        are_shared: split those alone that Einsums write in parts, as heads beside what groups of them share.
    """
    barred = {(t, axis) for t in cascade.views for axis in range(len(cascade.tensors[t].ranks))}
    uses = list(_uses(cascade.einsums))
    for einsum, axis, index in (u for u in uses if not are_shared or _is_shared(u[0], u[2])):
        steps = _steps(cascade, einsum, axis, index)
        axes = _together(cascade, uses, axis, steps) if len(steps) > 1 and axis not in barred else None
        if isinstance(index, Affine) and axes and not axes & barred:
            parts = sorted(index.variables, key=index.coefficient) if are_shared else []
            ranks = [Additions(cascade).rank_of(v, einsum) for v in parts]
            return with_split_ranks(split(cascade, axes, steps, ranks=ranks), are_shared)
        barred |= axes or {axis} if len(steps) > 1 else set()
    return cascade


def _is_shared(einsum: Einsum, index: Index) -> bool:
    """Whether an Einsum writes along an index of which an operand has some parts; none is compared."""
    parts, asked = {*index.variables}, einsum.condition.variables if einsum.condition else ()
    is_partial = any(0 < len(parts & {*a.variables}) < len(parts) for a in einsum.accesses)
    return is_partial and index in einsum.output.indices and parts.isdisjoint(asked)


def with_columns(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with the one rank of a block's states as lanes and columns: a turn has them all at once."""
    for block in cascade.blocks:
        ranks = {v for e in block.body for v in e.variables if v != block.variable}
        axis = next((a for _, a, i in _uses(block.body) if {i.plain} == ranks), None)
        other = _in_lanes(cascade, axis, partitions) if axis else None
        if other is not None:
            return other
    return cascade


def with_chosen_columns(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with ranks along which indices lie as lanes and columns: each lane has some of its own."""
    for einsum, chosen in ((e, g.access) for e in cascade.einsums for a in e.accesses for g in a.gathers):
        others = {*einsum.output.variables} - {*chosen.indices[0].variables}
        few = prod(cascade.extent(v, einsum) for v in others) <= FEW
        other = _in_lanes(cascade, (chosen.tensor, 0), partitions) if few else None
        if other is not None:
            return with_chosen_columns(other, partitions)
    return cascade


def _in_lanes(cascade: Cascade, axis: Axis, partitions: int) -> Cascade | None:
    """The cascade with an axis as lanes and columns; None where that leaves many lanes without any."""
    size = cascade.shape(axis[0])[axis[1]]
    rows = max(n for n in range(1, partitions + 1) if size % n == 0)
    steps, is_worth = (1, size // rows), partitions < rows * 2 < size * 2
    return split_along(cascade, axis, steps) if is_worth else None


def split_along(cascade: Cascade, axis: Axis, steps: tuple[int, ...]) -> Cascade | None:
    """The cascade with an axis in parts of these steps, the least first; None if others need it whole."""
    axes = _together(cascade, list(_uses(cascade.einsums)), axis, steps)
    return split(cascade, axes, steps) if axes else None


def _uses(einsums: Sequence[Einsum]) -> Iterator[Use]:
    for einsum in einsums:
        gathers = (g.access for a in einsum.every_access for g in a.gathers)
        for access in (*einsum.every_access, *gathers):
            yield from ((einsum, (access.tensor, axis), i) for axis, i in enumerate(access.indices))


def _steps(cascade: Cascade, einsum: Einsum, axis: Axis, index: Index) -> tuple[int, ...]:
    """The steps of the parts in which an index goes through all of an axis; () if it does not."""
    known = index.at(cascade.sizes) if isinstance(index, Affine) else Affine(constant=1)
    parts = sorted((c, name) for name, c in known.terms)
    steps, ends = [c for c, _ in parts], [c * cascade.extent(v, einsum) for c, v in parts]
    size = cascade.shape(axis[0])[axis[1]]
    return tuple(steps) if [*steps, size] == [1, *ends] and not known.constant else ()


def _together(cascade: Cascade, uses: Sequence[Use], axis: Axis, steps: tuple[int, ...]) -> set[Axis] | None:
    """An axis with all that are gone through by the same variables; None if one has other parts."""
    axes, waiting = {axis}, [axis]
    turns = {block.variable for block in cascade.blocks}
    while waiting:
        axis = waiting.pop()
        own = [u for u in uses if u[1] == axis]
        if any(_steps(cascade, *u) not in ((1,), steps) or _is_bound(*u, turns) for u in own):
            return None
        plain = [(einsum, index.plain) for einsum, _, index in own if index.plain]
        linked = {a for e, a, i in uses if any(e is einsum and i.plain == v for einsum, v in plain)}
        waiting += linked - axes
        axes |= linked
    return axes


def _is_bound(einsum: Einsum, _: Axis, index: Index, turns: set[str]) -> bool:
    """Whether a variable is compared, counts turns, or stands in an index beside others."""
    asked = {*turns, *einsum.along, *(einsum.condition.variables if einsum.condition else ())}
    places, plain = {o.index for o in einsum.positions}, index.plain
    others = (i for i in einsum.indices if i not in places and i.plain != plain)
    return bool(plain) and (plain in asked or any(plain in i.variables for i in others))


def split(
    cascade: Cascade, axes: set[Axis], steps: Sequence[int], names: Sequence[str] = (),
    ranks: Sequence[str] = (),
) -> Cascade:  # fmt: skip
    """The cascade with axes of one extent in parts.

    Args:
        axes: to split: in parts of these steps, or whole.
        steps: of the parts, the least first.
        names: what their ranks are called, behind that of the axis; numbers if not given.
        ranks: that variables have which go through the parts already, "" for none.
    """
    added, first = Additions(cascade), min(axes)
    rank = cascade.tensors[first[0]].ranks[first[1]]
    ends = pairwise((*steps, cascade.sizes[rank]))
    if not all(ranks) or len({*ranks}) < len(steps):
        hints = [f"{rank}{names[n] if names else n}" for n in range(len(steps))]
        ranks = [added.rank(hint, b // a) for hint, (a, b) in zip(hints, ends, strict=True)]
    for tensor in sorted({tensor for tensor, _ in axes}):
        own = enumerate(cascade.tensors[tensor].ranks)
        apart = [r for n, whole in own for r in (ranks[::-1] if (tensor, n) in axes else [whole])]
        added.tensors[tensor] = replace(cascade.tensors[tensor], ranks=tuple(apart))

    def changed(einsum: Einsum) -> Einsum:
        wholes = {i.plain for _, axis, i in _uses([einsum]) if axis in axes and i.plain}
        taken = {*(r.lower() for r in added.sizes), *einsum.variables}
        own = [unused(rank.lower(), einsum.variables) for rank in ranks]
        variables = {
            v: own if v.upper() == rank else [unused(f"{v}{n}", taken) for n in range(len(own))]
            for v in wholes
        }

        def parts_of(index: Affine) -> list[Affine]:
            known = sorted((c, v) for v, c in index.at(cascade.sizes).terms)
            return [Affine(((v, 1),)) for v in reversed(variables.get(index.plain) or [v for _, v in known])]

        def apart(access: Access) -> Access:
            indices: list[Index] = []
            for n, index in enumerate(access.indices):
                if isinstance(index, Affine):
                    indices += parts_of(index) if (access.tensor, n) in axes else [index]
                else:
                    indices.append(replace(index, access=apart(index.access)))
            return replace(access, indices=tuple(indices))

        values = {v: Affine(tuple(zip(own, steps, strict=True))) for v, own in variables.items()}
        read = einsum.changing(apart)
        if read.recurrence is not None and read.along[0] in variables:
            read = replace(read, recurrence=replace(read.recurrence, variable=variables[read.along[0]][0]))
        in_parts = read.replaced(values)
        return einsum if read == einsum else replace(in_parts, before=einsum.title)

    return added.applied(tuple(step.with_body(map(changed, step.body)) for step in cascade.steps))
