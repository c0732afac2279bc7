"""Few rows in parts, so that every lane has one: two ranks on the partitions together.

Of `S[n, g] = X[n, p, g]`, summed over p, few n fill few partitions. Parts of p lie beside n: with n and the
part of p as one rank m, `T[m, g] = X'[m, q, g]` sums over the rest of p, and `S[n, g] = T[P*n + i, g]` the
parts. What has n alone is repeated for them: `M'[P*n + i, g] = M[n, g]`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from math import prod

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Iterate, Kind, Operand, Recurrence, Step
from ..language.indices import Position, affine, plain
from .splits import split

# how many times as many points an Einsum has as an operand that is repeated for it
SMALL = 16


@dataclass(frozen=True)
class _Pair:
    """The variables of the first two axes of tensors that an Einsum goes through."""

    row: str
    column: str


def with_full_lanes(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with rows in parts where the largest tensor has few; every rank has an extent."""
    cascade = _with_rows(cascade)
    largest = max(cascade.tensors, key=lambda t: prod(cascade.shape(t)), default="")
    shape = cascade.shape(largest) if largest else ()
    if len(shape) < 2 or cascade.blocks or shape[0] * 2 > partitions:
        return cascade
    wide, parts = _wide(cascade, largest), _parts(cascade, shape, partitions)
    return _Parted(cascade, wide, parts).cascade() if parts > 1 and wide else cascade


def _with_rows(cascade: Cascade) -> Cascade:
    """The cascade with vectors of which the largest are sought as single rows."""
    vectors = [o for e in cascade.einsums if e.is_choice for o in e.accesses if len(o.indices) == 1]
    ranks = [cascade.tensors[access.tensor].ranks[0] for access in vectors]
    for rank in dict.fromkeys(ranks):
        holders = {t.name for t in cascade.tensors.values() if rank in t.ranks}
        if all(cascade.tensors[name].ranks == (rank,) for name in holders):
            cascade = split(cascade, {(name, 0) for name in holders}, (1, cascade.sizes[rank]))
    return cascade


def _parts(cascade: Cascade, shape: Sequence[int], partitions: int) -> int:
    """In how many parts rows lie best: where some are sought, in several rounds too."""
    choices = [e for e in cascade.einsums if e.is_choice]
    every = [n for n in range(1, partitions + 1) if shape[1] % n == 0]
    if not choices:
        return max(n for n in every if n * shape[0] <= partitions)
    least = max(prod(cascade.extent(v, e) for v in e.along[1:]) for e in choices)
    fitting = [n for n in every if shape[1] // n >= least and n * least <= shape[1] // n] or [1]
    return min(fitting, key=lambda n: -(-n * shape[0] // partitions) * (shape[1] // n + n * least))


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
    is_along = einsum.is_choice and einsum.along[0] == pair.column and len(einsum.accesses[0].indices) == 2
    is_plain = is_along or not einsum.recurrence
    is_plain &= not any(a.gathers for a in einsum.every_access)
    return is_plain and not asked & {pair.row, pair.column}


def _is_worth(cascade: Cascade, einsum: Einsum, wide: set[str]) -> bool:
    """Whether what an Einsum reads of the rows alone is small beside what it computes."""
    pair = next((_pair(a) for a in einsum.every_access if a.tensor in wide), None)
    points = prod(cascade.extent(v, einsum) for v in einsum.variables)
    lacking = [a for a in einsum.accesses if pair and pair.row in a.variables and a.tensor not in wide]
    is_plain = all(i.plain or not i.variables for a in lacking for i in a.indices if isinstance(i, Affine))
    is_alone = (
        pair is None or pair.row in einsum.output.variables or pair.column in (*einsum.reduced, *einsum.along)
    )
    return is_plain and is_alone and all(prod(cascade.shape(a.tensor)) * SMALL <= points for a in lacking)


class _Parted:
    """A cascade whose rows are in parts.

    Args:
        wide: tensors whose first two axes become parts of rows, and what is left of these.
    """

    def __init__(self, cascade: Cascade, wide: set[str], parts: int) -> None:
        self.before, self.wide, self.parts = cascade, wide, parts
        self.added, self.repeated = Additions(cascade), dict[str, str]()
        self.searched: dict[tuple[Operand, str, int], str] = {}
        self.numbers: dict[tuple[Operand, int], str] = {}
        first = min(wide)
        (rows, columns), ranks = cascade.shape(first)[:2], cascade.tensors[first].ranks
        self.rows = self.added.rank(f"{ranks[0]}{ranks[1]}", rows * parts)
        self.part = self.added.rank(f"{ranks[1]}1", parts)
        self.rest = self.added.rank(f"{ranks[1]}0", columns // parts)
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
        if einsum.is_choice:
            return self.choice(einsum, operands[0], pair)
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

    def choice(self, einsum: Einsum, searched: Operand, pair: _Pair) -> list[Einsum]:
        """The largest of the parts, and the largest of those; places count from the first row on."""
        known, added, lanes = einsum.recurrence, self.added, einsum.output.variables
        assert known is not None
        count = added.extent(known.counted, einsum) if known.counted else 1
        number = self.numbers.setdefault((searched, count), f"{einsum.name}_number".lower())
        added.sizes[number.upper()] = self.parts * count
        row = [pair.row] * (pair.row in lanes)
        at, value = affine([*((v, self.parts * count) for v in row), (number, 1)]), affine([(number, 1)])
        before, values = self.of_parts(einsum, searched, "largest", count)
        choice = replace(known, variable=number)
        last = replace(einsum, operands=(Access(values, (at,)),), recurrence=choice, before=einsum.title)
        if known.kind == "largest":
            return [*before, last]
        more, places = self.of_parts(einsum, searched, "places", count)
        ranks = tuple(rank for rank, _ in self.before.axes(einsum.output))
        first, total = (self.made(einsum, hint, ranks, lanes) for hint in ("first", "sum"))
        one = self.made(einsum, "one", (*ranks, number.upper()), (*lanes, number))
        start = Position(affine([(v, self.before.shape(min(self.wide))[1]) for v in row]))
        return [
            *before, *more, replace(last, output=first), Einsum(one, (first, Position(value)), "equal"),
            Einsum(total, (one, Access(places, (at,))), "multiply", "add"),
            Einsum(einsum.output, (total, start), "subtract", before=einsum.title),
        ]  # fmt: skip

    def made(self, einsum: Einsum, hint: str, ranks: tuple[str, ...], names: Sequence[str]) -> Access:
        """A new tensor for what an Einsum chooses."""
        return Access(
            self.added.tensor(f"{einsum.name}_{hint}", ranks, einsum.name, Kind.LARGEST), plain(names)
        )

    def of_parts(self, einsum: Einsum, searched: Operand, kind: str, count: int) -> tuple[list[Einsum], str]:
        """The largest of each part, or their places, in a row, with what makes that."""
        if (key := (searched, kind, count)) in self.searched:
            return [], self.searched[key]
        row, rest, each = self.rows.lower(), self.rest.lower(), self.added.rank(f"{einsum.name}_EACH", count)
        ranks, names = (self.rows, each), (row, each.lower())
        own = self.made(einsum, kind, ranks, names)
        steps = [Einsum(own, (searched,), recurrence=Recurrence(rest, kind, counted=names[1]))]
        if kind == "places":
            start = Position(affine([(row, self.added.sizes[self.rest])]))
            steps.append(Einsum(self.made(einsum, "counted", ranks, names), (own, start), "add"))
        rank = self.added.rank(f"{einsum.name}_EVERY", self.added.sizes[self.rows] * count)
        view = self.added.tensor(f"{steps[-1].name}_row", (rank,), steps[-1].name, Kind.VIEW)
        self.searched[key] = view
        index = affine([(row, count), (names[1], 1)])
        return [*steps, Einsum(Access(view, (index,)), (steps[-1].output,))], view
