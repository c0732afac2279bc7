"""Products of what lies at a place and of what lies near it, as products of blocks of places.

`S[y, x, i, j] = Q[y, x, d] . K[y + i, x + j, d]` has a matrix of one row for each place. With zeros behind
each row of places, p = L*y + x, it is `S[p, L*i + j] = Q[p, d] . K[p + L*i + j, d]`: of a product of 128
places by all near one of them, `B[m, n] = Q[128*t + m, d] . K[128*t + n, d]`, the diagonals n = m + L*i + j.
`O[y, x, d] = P[y, x, i, j] . V[y + i, x + j, d]` is a product with a matrix that has P on such diagonals, and
zeros beside them. They are rows of a view in HBM, an element longer, or shorter, than those of the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Kind, Step, affine, plain, strides

# elements that are summed at each place, or sums there, from which TensorE may gain
FEWEST = 8

# by place: what moves it, by how much with each value, and the constant of their index
Axes = Mapping[str, tuple[str, int, int]]


def with_neighbours_as_products(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with products of blocks of places; every rank has an extent."""
    added, steps = Additions(cascade), list[Step]()
    for step in cascade.steps:
        if not isinstance(step, Einsum) or not step.is_product or [*map(type, step.operands)] != [Access] * 2:
            steps.append(step)
            continue
        one, other = step.accesses
        pairs = ((a, b, _axes(step, a, b, cascade)) for a, b in ((one, other), (other, one)))
        near = next((pair for pair in pairs if pair[2]), None)
        steps += _Blocks(step, *near, added, partitions).einsums() if near else [step]
    return added.applied(tuple(steps)) if len(steps) > len(cascade.steps) else cascade


def _axes(einsum: Einsum, here: Access, near: Access, cascade: Cascade) -> Axes:
    """The places near which a product reads an operand; {} where it is another product."""
    axes, places = dict[str, tuple[str, int, int]](), [i.plain for i in here.indices]
    indices = [i.at(cascade.sizes) for i in near.affine]
    for index in (i for i in indices if len(i.variables) == 2):
        place, other = sorted(index.variables, key=lambda v: v not in places)
        axes[place] = (other, index.coefficient(other), index.constant)
        if index.coefficient(place) != 1 or place not in places or place in einsum.reduced:
            return {}
    is_read = all(i.plain or len(i.variables) == 2 for i in indices)
    names, own, shape = [*near.variables], {*einsum.reduced}, cascade.shape(here.tensor)
    is_plain = all((*places, *(i.plain for i in einsum.output.indices))) and len({*places}) == len(places)
    is_plain &= is_read and sum(len(i.variables) for i in indices) == len(names)
    moved, extents = {o for o, _, _ in axes.values()}, dict(zip(places, shape, strict=True))
    only = {*names} - {*places} - moved
    # diagonals have all that lies along them
    is_summed = moved == own and all(c == 1 for _, c, _ in axes.values())
    is_summed &= all(extents.get(o) == cascade.extent(o, einsum) for o in moved)
    is_kept = not moved & {*own, *places} and not only and own <= {*places} & {*names}
    is_alone = {*places} <= {*names} and is_plain and (is_kept or is_summed)
    columns = prod(cascade.extent(v, einsum) for v in (only if is_summed else own))
    return {p: axes[p] for p in places if p in axes} if axes and is_alone and columns >= FEWEST else {}


class _Blocks:
    """Writes a product as one of blocks of places.

    Args:
        here, near: its operands, at places and near them.
        axes: of the places.
    """

    def __init__(
        self, einsum: Einsum, here: Access, near: Access, axes: Axes, added: Additions, partitions: int
    ) -> None:
        self.einsum, self.here, self.near, self.axes, self.added = einsum, here, near, axes, added
        self.steps, self.last = list[Einsum](), {o: added.extent(o, einsum) - 1 for o, _, _ in axes.values()}
        lengths = [added.extent(p, einsum) + self.last[o] * abs(c) for p, (o, c, _) in axes.items()]
        self.pitches = dict(zip(axes, strides(lengths), strict=True))
        self.moves = {o: self.pitches[p] * abs(c) for p, (o, c, _) in axes.items()}
        first = next(iter(axes))
        places = added.extent(first, einsum) * self.pitches[first]
        self.size, reach = min(partitions, places), sum(n * self.moves[o] for o, n in self.last.items())
        ranks = (("BLOCK", -(-places // self.size)), ("PLACE", self.size), ("NEAR", self.size + reach))
        self.block, self.place, self.beside = (added.rank(*rank).lower() for rank in ranks)

    def einsums(self) -> list[Einsum]:
        """What takes the place of the product."""
        own, is_summed = {*self.einsum.reduced}, self.moves.keys() <= {*self.einsum.reduced}
        batch = [v for v in self.here.variables if v not in {*self.axes, *own}]
        only = [v for v in self.near.variables if v not in {*batch, *self.axes, *self.moves, *own}]
        operands = (self.on_diagonals(batch) if is_summed else self.rows(self.here, batch, self.place),
                    self.rows(self.near, batch, self.beside))  # fmt: skip
        names = [*batch, self.block, self.place]
        result = self.new("blocks", [*names, *(only if is_summed else [self.beside])], Kind.PART)
        self.add(replace(self.einsum, output=result, operands=operands, text=""))
        if not is_summed:
            index = affine([(self.place, 1), *self.moves.items()])
            diagonals = self.view("diagonals", [*names, *self.moves], result, len(names), index)
            result = self.add(Einsum(self.new("near", diagonals.variables, Kind.PART), (diagonals,)))
        # what moves places back lies the other way round
        back = {o: affine([(o, -1)], self.last[o]) for o, c, _ in self.axes.values() if c < 0}
        read = self.joined(result, len(batch), 2).with_axis(len(batch), affine([*self.pitches.items()]))
        read, output = read.with_indices(lambda i: back.get(i.plain, i)), self.einsum.output
        names = [*batch, *self.axes, *result.variables[len(names) :]]
        if names != [*output.variables]:
            # only then are they put in another order, as a matrix
            read = self.add(Einsum(self.new("whole", names, Kind.PART), (read,)))
        self.add(Einsum(output, (read,)))
        return self.steps

    def new(self, hint: str, names: Sequence[str], kind: Kind, origin: str = "") -> Access:
        """A tensor along variables."""
        return self.added.along(f"{self.einsum.name}_{hint}", names, self.einsum, kind, origin)

    def add(self, einsum: Einsum) -> Access:
        """Write an Einsum down."""
        self.steps.append(replace(einsum, before=self.einsum.title))
        return einsum.output

    def view(self, hint: str, names: Sequence[str], seen: Access, axis: int, index: Affine) -> Access:
        """A view of rows that overlap."""
        return self.add(
            Einsum(self.new(hint, names, Kind.OVERLAP, seen.tensor), (seen.with_axis(axis, index),))
        )

    def joined(self, copy: Access, axis: int, count: int) -> Access:
        """A view of a tensor in which some axes are one."""
        names, end, ranks = copy.variables, axis + count, self.added.tensors[copy.tensor].ranks
        sizes = [self.added.sizes[r] for r in ranks[axis:end]]
        one = self.added.rank(f"{copy.tensor.upper()}_PLACES", prod(sizes))
        ranks = (*ranks[:axis], one, *ranks[end:])
        view = self.added.tensor(f"{copy.tensor}_rows", ranks, copy.tensor, Kind.VIEW)
        whole = affine([*zip(names[axis:end], strides(sizes), strict=True)])
        self.add(Einsum(Access(view, (*plain(names[:axis]), whole, *plain(names[end:]))), (copy,)))
        return Access(view, plain([*names[:axis], one.lower(), *names[end:]]))

    def padded(self, hint: str, count: int) -> list[str]:
        """Variables of all axes of places, or of what moves them, for so many, zeros behind each row."""
        pitches = [*self.pitches.values()]
        extents = (-(-count // pitches[0]), *(a // b for a, b in pairwise(pitches)))
        pairs = zip(self.axes, extents, strict=True)
        return [self.added.rank(f"{p.upper()}_{hint}", n).lower() for p, n in pairs]

    def rows(self, access: Access, batch: Sequence[str], name: str) -> Access:
        """A view of blocks of places of a copy of an operand, zeros beyond its edges."""
        sizes, is_near = self.added.sizes, access is self.near
        count = (sizes[self.block.upper()] - 1) * self.size + sizes[name.upper()]
        own = dict(zip(self.axes, self.padded("PADDED", count), strict=True))
        firsts = {p: first + min(0, c) * self.last[o] for p, (o, c, first) in self.axes.items()}
        values = {p: affine([(v, 1)], firsts[p] * is_near) for p, v in own.items()}
        copied = access.with_indices(lambda i: next((values[v] for v in i.variables if v in values), i))
        others = [v for v in copied.variables if v not in batch]
        last = max(n for n, v in enumerate(others) if v in own.values())
        outer = [*batch, *(v for v in others[:last] if v not in own.values())]
        copy = self.new(
            access.tensor, [*outer, *own.values(), *others[last + 1 :]], Kind.WINDOW, access.tensor
        )
        seen = self.joined(self.add(Einsum(copy, (copied,))), len(outer), len(own))
        names = [*outer, self.block, name, *others[last + 1 :]]
        return self.view("each", names, seen, len(outer), affine([(self.block, self.size), (name, 1)]))

    def on_diagonals(self, batch: Sequence[str]) -> Access:
        """Blocks with an operand on their diagonals."""
        sizes = self.added.sizes
        own = self.padded("PADDED", sizes[self.block.upper()] * self.size)
        moved = self.padded("REACH", sizes[self.beside.upper()])
        values = dict(zip((*self.axes, *self.moves), plain([*own, *moved]), strict=True))
        copy = self.new(self.here.tensor, [*batch, *own, *moved], Kind.WINDOW, self.here.tensor)
        self.add(Einsum(copy, (self.here.with_indices(lambda i: values.get(i.plain, i)),)))
        seen, row = self.joined(copy, len(batch), 2 * len(own)), prod(sizes[v.upper()] for v in moved)
        index = affine([(self.block, row * self.size), (self.place, row - 1), (self.beside, 1)])
        names = [*batch, self.block, self.place, self.beside]
        return self.view("diagonals", names, seen, len(batch), index)
