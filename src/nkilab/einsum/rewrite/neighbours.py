"""Neighbours of a state that turns read beyond its edges, as products with matrices that choose them.

`U[t+1, x] = U[t, x + 1]` moves values between partitions, and is 0 beyond the last. With `C[w, x]`, which is
1 where `w == x + 1`, the sum of `U[t, w] * C[w, x]` over w is the same, and a product of TensorE: as long as
values are finite. Cascades with infinite numbers stay as they are.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from math import isinf

from ..language.additions import Additions, free_variable
from ..language.ast import Cascade, Einsum, Iterate, Kind, Step
from ..language.extents import bounds
from ..language.indices import Access, Affine, Position, Scalar, affine, plain


def with_neighbours(cascade: Cascade, apart: Container[str]) -> tuple[Cascade, list[str]]:
    """The cascade with such products in its blocks, the matrices before them, and notes on these.

    Args:
        cascade: every rank has an extent.
        apart: variables of blocks that stay as they are.
    """
    if not is_finite(cascade):
        return cascade, []
    added, steps = Additions(cascade), list[Step]()
    for step in cascade.steps:
        is_block = isinstance(step, Iterate) and step.variable not in apart
        chosen = _Chosen(added, {e.name for e in step.body} if is_block else set())
        body = [one for e in step.body for one in chosen.einsums(e)]
        steps += [*chosen.matrices.values(), step.with_body(body)]
    moved = dict.fromkeys(d.origin for t, d in added.derived.items() if t not in cascade.derived)
    notes = [
        f"neighbours of {t} are chosen by products, which are right where all of {t} is finite" for t in moved
    ]
    return added.applied(tuple(steps)) if moved else cascade, notes


def is_finite(cascade: Cascade) -> bool:
    """Whether all numbers of a cascade are finite."""
    every = [o.value for e in cascade.einsums for o in e.operands if isinstance(o, Scalar)]
    every += [e.otherwise for e in cascade.einsums]
    return not any(map(isinf, (*every, *cascade.scalars.values())))


class _Chosen:
    """What a step reads beyond the edges of what it writes itself, with the matrices that choose it."""

    def __init__(self, added: Additions, own: set[str]) -> None:
        self.added, self.own = added, own
        self.matrices: dict[tuple[str, str, Affine], Einsum] = {}

    def einsums(self, einsum: Einsum) -> list[Einsum]:
        """An Einsum behind the products that it reads."""
        products = list[Einsum]()

        def chosen(access: Access) -> Access:
            axes = _beyond(einsum, access, self.added.cascade) if access.tensor in self.own else []
            names = {n: free_variable(f"{access.tensor.lower()}_{n}", self.added.cascade) for n in axes}
            rows = (affine([(names[n], 1)]) if n in names else i for n, i in enumerate(access.indices))
            read = replace(access, indices=tuple(rows))
            for axis in axes:
                products.append(self.product(einsum, read, axis, access.affine[axis]))
                read = products[-1].output
            return read

        changed = einsum.reading(chosen)
        return [*products, changed]

    def product(self, einsum: Einsum, read: Access, axis: int, index: Affine) -> Einsum:
        """Of what is read along an axis, the element at an index."""
        ranks, (column,) = [*self.added.tensors[read.tensor].ranks], plain(index.variables)
        row, rank = read.affine[axis], self.added.rank_of(column.plain, einsum)
        own, name = (ranks[axis], rank, index), self.added.derived.get(read.tensor)
        origin = name.origin if name else read.tensor
        if own not in self.matrices:
            matrix = self.added.tensor(f"{origin}_chooses", own[:2], origin, Kind.DIAGONAL)
            output = Access(matrix, (row, column))
            self.matrices[own] = Einsum(output, (Position(row), Position(index)), "equal", place=einsum.place)
        ranks[axis] = rank
        result = self.added.tensor(f"{origin}_beside", tuple(ranks), origin, Kind.DIAGONAL)
        indices = tuple(column if n == axis else i for n, i in enumerate(read.indices))
        operands = (read, replace(self.matrices[own].output, indices=(row, column)))
        return Einsum(Access(result, indices), operands, "multiply", "add", place=einsum.place)


def _beyond(einsum: Einsum, access: Access, cascade: Cascade) -> list[int]:
    """Axes along which an access reads beyond the edges; [] unless indices are variables, moved."""
    if access.gathers or len(access.variables) < len(access.indices):
        return []
    beyond = list[int]()
    for axis, (index, size) in enumerate(zip(access.affine, cascade.shape(access.tensor), strict=True)):
        low, high = bounds(index, {v: cascade.extent(v, einsum) for v in index.variables})
        beyond += [axis] if low < 0 or high >= size else []
    is_moved = all([c for _, c in i.terms] == [1] for i in access.affine)
    return beyond if is_moved else []
