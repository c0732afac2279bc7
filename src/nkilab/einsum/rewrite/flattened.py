"""Products as those of matrices: what is summed over is one rank, what either operand has alone another.

Of `C[b, r, v, i, j] = A[b, q, r, u, i] . G[u, q, j, v]` a product over q, or u, has columns of j, or v.
`C'[jv, rib] = G'[qu, jv] . A'[qu, rib]` fills partitions and columns. What lies between products goes from
one order into the other at once, with what the most products keep behind: in long rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Kind, Step, plain
from .batch_order import is_sum
from .live import live
from .ranks import with_joined_ranks
from .views import joined_indices


@dataclass(frozen=True)
class _Axes:
    """Variables in order, the axes of a matrix that go through them, and what index each is of the former."""

    names: tuple[str, ...]
    matrix: tuple[str, ...]
    indices: tuple[Affine, ...]

    def __add__(self, other: _Axes) -> _Axes:
        return _Axes(self.names + other.names, self.matrix + other.matrix, self.indices + other.indices)


def with_flat_products(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with products of several ranks as those of matrices; every rank has an extent."""
    joined = with_joined_ranks(live(cascade)[0], partitions)
    products = _Products(joined)
    # a matrix times a vector gains nothing
    if not any(all(own) and max(map(len, own)) > 1 for own in (_groups(e)[1:] for e in products.flat)):
        return cascade
    return products.added.applied(tuple(chain.from_iterable(map(products.of, joined.steps))))


def _is_flat(step: Step, cascade: Cascade) -> bool:
    """Whether indices of a product of two tensors are variables that two of its tensors have, or all."""
    if not isinstance(step, Einsum) or not is_sum(step):
        return False
    names = [[i.plain for i in a.indices] for a in step.every_access]
    every = [v for own in names for v in own]
    is_plain = all(every) and all(len({*own}) == len(own) for own in names)
    is_one = len(cascade.writers(step.name)) == 1
    return is_plain and is_one and all(every.count(v) > 1 for v in every)


def _groups(product: Einsum) -> list[list[str]]:
    """Variables of a batch, of the sum, of the first operand alone, and of the second."""
    left, right, result = ([i.plain for i in a.indices] for a in (*product.accesses, product.output))
    batch = [v for v in left if v in right and v in result]
    return [batch, [v for v in left if v not in result], [v for v in left if v not in right],
            [v for v in right if v not in left]]  # fmt: skip


class _Products:
    """What steps of a cascade become, one after the other."""

    def __init__(self, cascade: Cascade) -> None:
        self.cascade, self.added = cascade, Additions(cascade)
        self.flat = [e for e in cascade.steps if isinstance(e, Einsum) and _is_flat(e, cascade)]
        self.used = {t for e in cascade.einsums for t in e.reads}
        # results that products alone read, in any order
        read = {t for e in cascade.einsums if e not in self.flat for t in e.reads}
        self.free = {e.name for e in self.flat} - read - {*cascade.outputs}
        # by rank, the last product that keeps it
        self.last = {r: n for n, e in enumerate(self.flat) for r in cascade.tensors[e.name].ranks}
        # by result, as what it is written and where it is read
        self.results = dict[str, tuple[Access, Access]]()

    def of(self, step: Step) -> list[Step]:
        """A step, or a product as one of matrices between what brings tensors into their orders."""
        if isinstance(step, Einsum) and step in self.flat:
            return self.product(step)
        if isinstance(step, Einsum) and not any(a.gathers for a in step.every_access):
            return [step.reading(self.read)]
        return [step]

    def product(self, einsum: Einsum) -> list[Step]:
        """A product as one of matrices, and its result, unless that is a matrix where it is written."""
        batch, total, first, second = (self.side(einsum, own) for own in _groups(einsum))
        steps, operands = list[Step](), list[Access]()
        for access, own in zip(einsum.accesses, (first, second), strict=True):
            # rows stay rows
            orders = [batch + total + own, batch + own + total]
            orders = orders[:: 1 if access.indices[-1].plain in own.names else -1]
            operands.append(self.matrix(einsum, self.read(access, is_any=True), orders, steps))
        sides = sorted((first, second), key=lambda side: self.place(einsum, side.names))
        axes = batch + sides[0] + sides[1]
        read = (*operands, *(o for o in einsum.operands if not isinstance(o, Access)))
        product = replace(einsum, operands=read, before=einsum.title, text="")
        if axes.names == einsum.output.variables and einsum.name not in self.used:
            indices = dict(zip(axes.matrix, axes.indices, strict=True))
            seen = product.with_indices(lambda index: indices.get(index.plain, index))
            return [*steps, replace(seen, output=einsum.output)]
        result = self.added.along(f"{einsum.name}_matrix", axes.matrix, einsum, Kind.PART)
        whole = self.added.along(f"{einsum.name}_axes", axes.names, einsum, Kind.VIEW, result.tensor)
        self.results[einsum.name] = einsum.output, whole
        view = Einsum(whole, (replace(result, indices=axes.indices),))
        return [*steps, replace(product, output=result), view, Einsum(einsum.output, (whole,))]

    def matrix(self, einsum: Einsum, access: Access, orders: Sequence[_Axes], steps: list[Step]) -> Access:
        """An operand as a matrix of one of some orders, rather the first; steps get what makes it so."""
        names = tuple(i.plain for i in access.indices)
        axes = next((order for order in orders if order.names == names), orders[0])
        if axes.names != names:
            copy = self.added.along(
                f"{access.tensor}_order", axes.names, einsum, Kind.TRANSPOSED, access.tensor
            )
            steps.append(Einsum(copy, (access,)))
            access = copy
        if axes.names == axes.matrix:
            return access
        view = self.added.along(f"{access.tensor}_matrix", axes.matrix, einsum, Kind.VIEW, access.tensor)
        steps.append(Einsum(replace(view, indices=axes.indices), (access,)))
        return view

    def side(self, einsum: Einsum, group: list[str]) -> _Axes:
        """Variables as the largest tensor has them, or those behind that last longest, and their one axis."""
        if len(group) < 2 or group == _groups(einsum)[0]:
            return _Axes(tuple(group), tuple(group), plain(group))
        holders = (a for a in einsum.every_access if {*group} <= {*a.variables})
        largest = max(holders, key=lambda a: prod(self.cascade.shape(a.tensor)))
        names = sorted(group, key=largest.variables.index)
        if largest.tensor in self.free:
            names.sort(key=lambda v: self.lasting(einsum, v))
        sizes = [self.added.extent(v, einsum) for v in names]
        rank = self.added.rank("".join(names).upper(), prod(sizes))
        return _Axes(tuple(names), (rank.lower(),), joined_indices(names, sizes, [prod(sizes)]))

    def lasting(self, einsum: Einsum, variable: str) -> tuple[int, int]:
        """How many products keep the rank of a variable, and its extent."""
        return self.last.get(self.added.rank_of(variable, einsum), -1), self.added.extent(variable, einsum)

    def place(self, einsum: Einsum, names: Sequence[str]) -> tuple[int, int]:
        """How far behind, in the rows of a result, some of its variables come."""
        if einsum.name in self.free:
            return max((self.lasting(einsum, v) for v in names), default=(-1, 0))
        return max((einsum.output.variables.index(v) for v in names), default=-1), 0

    def read(self, access: Access, is_any: bool = False) -> Access:
        """Where a result is read: as a view of its matrix, if that has the same order or any will do."""
        if access.tensor not in self.results or not all(i.plain for i in access.indices):
            return access
        written, own = self.results[access.tensor]
        if not is_any and written.indices != own.indices:
            return access
        names = {w.plain: i for w, i in zip(written.affine, access.affine, strict=True)}
        return Access(own.tensor, tuple(names[i.plain] for i in own.affine))
