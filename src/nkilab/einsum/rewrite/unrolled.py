"""Small ranks of large tensors, value by value: without their axes, and sums over them sums of a few.

`D[i, j, d] = X[j, d] - X[i, d]` with 3 values of d is three matrices, each of which engines compute a row of
at once; of the tensor as it stands an instruction reads 3 elements of a row, and a sum over d adds up 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Digit, Einsum, Kind, Step

# values of a rank that is unrolled at most; elements of what has it at least
MOST_VALUES, FEWEST = 4, 1 << 14


def with_unrolled_ranks(cascade: Cascade) -> Cascade:
    """The cascade without small last axes of what is computed, element by element, of smaller tensors."""
    axes, makers = dict[str, int](), [step for step in cascade.steps if isinstance(step, Einsum)]
    while new := {e.name: n for e in makers if e.name not in axes for n in _axis(e, axes, cascade)}:
        axes |= new
    touched = [e for e in cascade.einsums if _is_touched(e, axes)]
    if not axes or not all(e in makers and _may_be_unrolled(e, axes, cascade) for e in touched):
        return cascade
    return _Unrolled(cascade, axes).applied()


def _axis(einsum: Einsum, axes: Mapping[str, int], cascade: Cascade) -> Iterator[int]:
    """The axis of what an Einsum writes that goes: that of an operand, or a small last one."""
    output, gone, shape = einsum.output, {*_variables(einsum, axes)}, cascade.shape(einsum.name)
    is_large = bool(shape) and 1 < shape[-1] <= MOST_VALUES and prod(shape) >= FEWEST
    smaller = (a for a in einsum.accesses if a.gathers or {*a.variables} < {*output.variables})
    if not gone and is_large and einsum.map_op and not einsum.reduced and any(smaller):
        gone = {output.indices[-1].plain}
    yield from (n for n, i in enumerate(output.indices) if i.plain in gone - {""})


def _variables(einsum: Einsum, axes: Mapping[str, int]) -> tuple[str, ...]:
    """Variables of an Einsum along axes that go."""
    known = (a.indices[axes[a.tensor]] for a in einsum.every_access if a.tensor in axes)
    return tuple(dict.fromkeys(v for index in known for v in index.variables))


def _is_touched(einsum: Einsum, axes: Mapping[str, int]) -> bool:
    """Whether an Einsum writes or reads what has an axis that goes."""
    return not axes.keys().isdisjoint((einsum.name, *einsum.reads))


def _may_be_unrolled(einsum: Einsum, axes: Mapping[str, int], cascade: Cascade) -> bool:
    """Whether numbers may stand for the variables of an Einsum along axes that go."""
    output, gone = einsum.output, {*_variables(einsum, axes)}
    bound = {v for p in einsum.positions for v in p.variables}
    bound |= {*einsum.condition.variables} if einsum.condition else set[str]()
    bound |= {v for n, i in enumerate(output.indices) if n != axes.get(einsum.name) for v in i.variables}
    known = [a.indices[axes[a.tensor]] for a in einsum.every_access if a.tensor in axes]
    chosen = (g.access.tensor for a in einsum.every_access for g in a.gathers)
    is_plain = all(i.plain or not i.variables for i in known) and all(
        type(i) is Affine for i in einsum.indices
    )
    is_plain &= not any(isinstance(n, Digit) for i in einsum.indices for n, _ in i.terms)
    is_once = sum(e.name == einsum.name for e in cascade.einsums) == 1
    is_free = not (einsum.recurrence or output.gathers) and axes.keys().isdisjoint(chosen)
    return is_plain and is_once and is_free and bound.isdisjoint(gone)


class _Unrolled:
    """A cascade that is changed: some of its tensors lack an axis each."""

    def __init__(self, cascade: Cascade, axes: Mapping[str, int]) -> None:
        self.cascade, self.axes, self.added = cascade, axes, Additions(cascade)
        self.names = dict[tuple[str, ...], str]()

    def applied(self) -> Cascade:
        steps: list[Step] = []
        for step in self.cascade.steps:
            is_changed = isinstance(step, Einsum) and _is_touched(step, self.axes)
            steps += self.written(step) if is_changed and isinstance(step, Einsum) else [step]
        for name in {*self.axes}.difference(self.cascade.outputs):
            del self.added.tensors[name]
        return self.added.applied(tuple(steps))

    def written(self, einsum: Einsum) -> Iterator[Einsum]:
        """What stands for an Einsum: one for each value, what it sums over values one after the other."""
        variables, copies = _variables(einsum, self.axes), list[Einsum]()
        kept = [v for v in variables if v in einsum.output.variables]
        reduced = [v for v in variables if v not in kept]
        for own in self.each(einsum, kept):
            place = self.read(own.output)
            yield from self.summed(own, place, reduced) if reduced else [self.reading(own, place)]
            copies += [Einsum(own.output, (place,), place=einsum.place)] * (place != own.output)
        yield from copies * (einsum.name in self.cascade.outputs)

    def each(self, einsum: Einsum, variables: Sequence[str]) -> Iterator[Einsum]:
        """An Einsum with numbers for variables, for all values of these together."""
        for values in product(*(range(self.cascade.extent(v, einsum)) for v in variables)):
            at = {v: Affine(constant=n) for v, n in zip(variables, values, strict=True)}
            yield einsum.with_indices(partial(Affine.replaced, values=at))

    def summed(self, einsum: Einsum, place: Access, variables: Sequence[str]) -> Iterator[Einsum]:
        """What an Einsum is for each value that it sums over, and the sum of these."""
        ranks, parts = self.added.tensors[place.tensor].ranks, list[Access]()
        for part in self.each(einsum, variables):
            name = self.added.tensor(f"{einsum.name}_part", ranks, einsum.name, Kind.PARTS)
            parts.append(replace(place, tensor=name))
            yield replace(self.reading(part, parts[-1]), reduce_op=einsum.reduce_op if part.reduced else "")
        yield Einsum(place, tuple(parts), einsum.reduce_op, place=einsum.place)

    def reading(self, einsum: Einsum, place: Access) -> Einsum:
        """An Einsum that reads what lacks an axis, and writes elsewhere."""
        return replace(einsum.reading(self.read), output=place, text="")

    def read(self, access: Access) -> Access:
        """An access, or where its tensor has an axis that goes that of the tensor with one value of it."""
        if access.tensor not in self.axes:
            return access
        axis, indices = self.axes[access.tensor], list(access.indices)
        key, ranks = (access.tensor, str(indices.pop(axis))), list(self.cascade.tensors[access.tensor].ranks)
        del ranks[axis]
        if key not in self.names:
            self.names[key] = self.added.tensor("_".join(key), tuple(ranks), access.tensor, Kind.PIECE)
        return Access(self.names[key], tuple(indices))
