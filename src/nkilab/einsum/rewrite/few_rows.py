"""Few rows in parts, so that every lane has one: two ranks on the partitions together.

Of `S[n, g] = X[n, p, g]`, summed over p, few n fill few partitions. Parts of p lie beside n: with n and the
part of p as one rank m, `T[m, g] = X'[m, q, g]` sums over the rest of p, and `S[n, g] = T[P*n + i, g]` the
parts. What has n alone is repeated for them: `M'[P*n + i, g] = M[n, g]`.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from math import prod

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Iterate, Kind, Operand, Step, affine

# how many times as many points an Einsum has as an operand that is repeated for it
SMALL = 16


@dataclass(frozen=True)
class _Pair:
    """The variables of the first two axes of tensors that an Einsum goes through."""

    row: str
    column: str


def with_full_lanes(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with rows in parts where the largest tensor has few; every rank has an extent."""
    largest = max(cascade.tensors, key=lambda t: prod(cascade.shape(t)), default="")
    shape = cascade.shape(largest) if largest else ()
    if len(shape) < 2 or cascade.blocks or shape[0] * 2 > partitions:
        return cascade
    parts = max(n for n in range(1, partitions // shape[0] + 1) if shape[1] % n == 0)
    wide = _wide(cascade, largest)
    return _Parted(cascade, wide, parts).cascade() if parts > 1 and wide else cascade


def _wide(cascade: Cascade, first: str) -> set[str]:
    """Tensors whose first two axes are gone through together with those of one; none if they cannot be."""
    wide, before = {first}, set[str]()
    while wide != before:
        before = wide
        pairs = [(e, {_pair(a) for a in e.every_access if a.tensor in wide}) for e in cascade.einsums]
        if not all(_is_free(e, own) for e, own in pairs if own):
            return set()
        columns = [(e, pair.column) for e, own in pairs for pair in own if pair is not None]
        wide = wide | {a.tensor for e, v in columns for a in e.every_access if v in a.variables}
    is_same = len({cascade.shape(t)[:2] for t in wide}) == 1
    return wide if is_same and all(_is_worth(cascade, e, wide) for e in cascade.einsums) else set()


def _pair(access: Access) -> _Pair | None:
    """The variables of the first two axes, if each stands there alone."""
    names = [i.plain if isinstance(i, Affine) else "" for i in access.indices[:2]]
    is_once = all(
        access.variables.count(v) == 1 and sum(v in i.variables for i in access.indices) == 1 for v in names
    )
    return _Pair(*names) if len(names) == 2 and all(names) and names[0] != names[1] and is_once else None


def _is_free(einsum: Einsum, pairs: Set[_Pair | None]) -> bool:
    """Whether there is one pair of variables, for which nothing but indices asks."""
    pair = next(iter(pairs))
    if len(pairs) > 1 or pair is None:
        return False
    asked = {*(einsum.condition.variables if einsum.condition else ())}
    asked |= {v for o in einsum.positions for v in o.variables}
    is_plain = einsum.recurrence is None and not any(a.gathers for a in einsum.every_access)
    return is_plain and not asked & {pair.row, pair.column}


def _is_worth(cascade: Cascade, einsum: Einsum, wide: set[str]) -> bool:
    """Whether what an Einsum reads of the rows alone is small beside what it computes."""
    pair = next((_pair(a) for a in einsum.every_access if a.tensor in wide), None)
    points = prod(cascade.extent(v, einsum) for v in einsum.variables)
    lacking = [a for a in einsum.accesses if pair and pair.row in a.variables and a.tensor not in wide]
    is_plain = all(i.plain or not i.variables for a in lacking for i in a.indices if isinstance(i, Affine))
    is_alone = pair is None or pair.row in einsum.output.variables or pair.column in einsum.reduced
    return is_plain and is_alone and all(prod(cascade.shape(a.tensor)) * SMALL <= points for a in lacking)


class _Parted:
    """A cascade whose rows are in parts.

    Args:
        wide: tensors whose first two axes become parts of rows, and what is left of these.
    """

    def __init__(self, cascade: Cascade, wide: set[str], parts: int) -> None:
        self.before, self.wide, self.parts = cascade, wide, parts
        self.added, self.repeated = Additions(cascade), dict[str, str]()
        first = min(wide)
        (rows, columns), ranks = cascade.shape(first)[:2], cascade.tensors[first].ranks
        self.rows = self.added.rank(f"{ranks[0]}{ranks[1]}", rows * parts)
        self.part, self.rest = (
            self.added.rank(f"{ranks[1]}1", parts),
            self.added.rank(f"{ranks[1]}0", columns // parts),
        )
        for name in wide:
            tensor = cascade.tensors[name]
            self.added.tensors[name] = replace(tensor, ranks=(self.rows, self.rest, *tensor.ranks[2:]))

    def cascade(self) -> Cascade:
        """The cascade over parts of rows."""
        steps: list[Step] = []
        for step in self.before.steps:
            assert not isinstance(step, Iterate)
            steps += self.changed(step)
        return self.added.applied(tuple(steps))

    def changed(self, einsum: Einsum) -> list[Einsum]:
        """An Einsum over parts of rows, behind what it wants repeated, before the sum of its sums."""
        pair = next((_pair(a) for a in einsum.every_access if a.tensor in self.wide), None)
        if pair is None:
            return [einsum]
        row, rest = (Affine(((rank.lower(), 1),)) for rank in (self.rows, self.rest))
        copies: list[Einsum] = []

        def parted(operand: Operand) -> Operand:
            if not isinstance(operand, Access):
                return operand
            if operand.tensor in self.wide:
                return replace(operand, indices=(row, rest, *operand.indices[2:]))
            if pair.row not in operand.variables:
                return operand
            copies.extend(self.copy(operand, pair))
            indices = tuple(row if i.plain == pair.row else i for i in operand.indices)
            return replace(operand, tensor=self.repeated[operand.tensor], indices=indices)

        operands = tuple(map(parted, einsum.operands))
        output, total = einsum.output, list[Einsum]()
        if output.tensor in self.wide:
            output = replace(output, indices=(row, rest, *output.indices[2:]))
        elif pair.row in output.variables:
            output, total = self.sums(einsum, pair, row)
        return [*copies, replace(einsum, output=output, operands=operands, before=einsum.title), *total]

    def of_part(self, pair: _Pair) -> Affine:
        """The index of a part of a row."""
        return affine([(pair.row, self.parts), (self.part.lower(), 1)])

    def copy(self, access: Access, pair: _Pair) -> list[Einsum]:
        """What repeats a tensor for all parts of its rows, once."""
        if access.tensor in self.repeated:
            return []
        ranks, name = self.ranks(access, pair), access.tensor
        self.repeated[name] = self.added.tensor(f"{name}_repeated", ranks, name, Kind.REPEATED)
        indices = tuple(self.of_part(pair) if i.plain == pair.row else i for i in access.indices)
        return [Einsum(Access(self.repeated[name], indices), (access,))]

    def ranks(self, access: Access, pair: _Pair) -> tuple[str, ...]:
        """The ranks of a tensor with all parts of its rows in place of the rows."""
        return tuple(self.rows if i.plain == pair.row else rank for rank, i in self.before.axes(access))

    def sums(self, einsum: Einsum, pair: _Pair, row: Affine) -> tuple[Access, list[Einsum]]:
        """Where sums over parts of rows go, and what adds them up."""
        ranks, output = self.ranks(einsum.output, pair), einsum.output
        name = self.added.tensor(f"{einsum.name}_parts", ranks, einsum.name, Kind.PARTS)
        own, every = (
            Access(name, tuple(index if i.plain == pair.row else i for i in output.indices))
            for index in (row, self.of_part(pair))
        )
        return own, [Einsum(output, (every,), "", einsum.reduce_op, before=einsum.title)]
