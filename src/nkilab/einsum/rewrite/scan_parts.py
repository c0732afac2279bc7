"""Scans of few rows in parts, one for each lane; what a part begins with is a scan over parts.

A part c of the turns of `S[m, t] = (a[m, t] op0 S[m, t-1]) op1 x[m, t]` takes a state to
`(A[m, c] op0 state) op1 B[m, c]`: A is what op0 makes of all a, and B what the part makes of nothing, if op0
distributes over op1; where op0 multiplies, a has to be a decay (`decays.py`). A scan over c finds the state
before each part, with which every part is a scan by itself. The turns that are left behind all parts are a
scan that begins with the last state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from functools import cached_property
from math import prod

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Kind, Operand, Scalar, Step, affine
from .decays import is_decay

# operators whose scan without others ends with a reduction
REDUCING = ("add", "maximum", "minimum")
# part of the lanes that parts of equal length fill at least
LEAST_FILLED = 0.75
# turns of a part
FEWEST_TURNS, MOST_TURNS = 32, 2048
ONE, ZERO = Scalar(value=1.0), Scalar(value=0.0)
# what is least and most of all for a sum of it not to leave float32
FURTHEST = {"maximum": Scalar(value=-1e38), "minimum": Scalar(value=1e38)}


def with_scans_in_parts(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade, every Einsum of which is needed, with scans of few rows in parts."""
    for scan, count in scans_of_few_rows(cascade, partitions):
        assert scan.recurrence is not None
        if scan.recurrence.op0 != "multiply" or is_decay(scan.operands[0], cascade):
            cascade = _Parts(cascade, scan, count).cascade()
    return cascade


def scans_of_few_rows(cascade: Cascade, partitions: int) -> Iterator[tuple[Einsum, int]]:
    """Scans outside of blocks whose rows leave lanes empty, with the number of parts that fill them."""
    outside = (s for s in cascade.steps if isinstance(s, Einsum))
    for scan in (s for s in outside if s.recurrence and s.recurrence.kind == "scan" and _has_parts(s)):
        assert scan.recurrence is not None
        lanes = prod(cascade.extent(v, scan) for v in scan.output.variables if v != scan.recurrence.variable)
        turns = cascade.extent(scan.recurrence.variable, scan)
        most = partitions * -(-turns // (partitions * MOST_TURNS))
        even = max(n for n in range(1, most + 1) if turns % n == 0)
        count = even if even > most * LEAST_FILLED else most
        if lanes * 2 <= partitions and turns >= FEWEST_TURNS * count:
            yield scan, count


def _has_parts(scan: Einsum) -> bool:
    """Whether parts of a recurrence have the form of its turns, and their operands plain places."""
    known, (first, second) = scan.recurrence, scan.operands[:2]
    assert known is not None
    is_linear = known.op0 == "multiply" and known.op1 in ("add", "subtract")
    is_bounded = known.op1 in FURTHEST and (
        known.op0 == "add" or (known.op0 == known.op1 and first == second)
    )
    return (is_linear or is_bounded) and not any(a.gathers for a in scan.every_access)


class _Parts:
    """Writes one recurrence in parts."""

    def __init__(self, cascade: Cascade, scan: Einsum, count: int) -> None:
        assert scan.recurrence is not None
        self.source, self.scan, self.known = cascade, scan, scan.recurrence
        self.added, self.turn = Additions(cascade), scan.recurrence.variable
        self.turns = cascade.extent(self.turn, scan)
        self.length = length = self.turns // count
        self.lanes = [v for v in scan.output.variables if v != self.turn]
        left = self.turns - count * length
        sizes = {"PART": count, "TURN": length, **({"LEFT": left} if left else {})}
        ranks = [self.added.rank(f"{self.turn.upper()}_{hint}", size) for hint, size in sizes.items()]
        self.part, self.inner, *others = (rank.lower() for rank in ranks)
        # what is left over has its place behind all parts, or before them if these count down
        first = left if self.known.is_descending else 0
        self.within = affine([(self.part, length), (self.inner, 1)], first)
        behind = 0 if self.known.is_descending else count * length
        self.left = {v: Affine(((v, 1),), behind) for v in others}
        self.steps: list[Einsum] = []

    def placed(self, operand: Operand, place: Affine, variable: str = "") -> Operand:
        """An operand at a place among the turns, which a variable counts."""
        turn = variable or self.turn
        return operand.replaced({turn: place})

    def add(
        self, hint: str, operands: Sequence[Operand], along: str, kind: str = "scan", op1: str = ""
    ) -> Access:
        """Add a recurrence along a variable, or for kind "" a reduction over it; returns its result."""
        is_held = kind in ("scan", "before")
        variables = {v for o in operands for v in o.variables} - {along} | ({along} if is_held else set())
        output = self.new(hint, [v for v in (*self.lanes, self.part, self.inner) if v in variables])
        known = replace(self.known, variable=along, kind=kind, has_first=False)
        own = replace(known, op1=op1, reverse1=False) if op1 else known
        reduce_op = "" if kind else self.known.op1
        einsum = Einsum(output, tuple(operands), "", reduce_op, recurrence=own if kind else None)
        self.steps.append(replace(einsum, place=self.scan.place))
        return output

    def new(self, hint: str, variables: Sequence[str]) -> Access:
        """An access of a new tensor by variables."""
        return self.added.along(f"{self.scan.name}_{hint}", variables, self.scan, Kind.STATE)

    def totals(self) -> tuple[Operand, Operand]:
        """What a part takes any state to: the operands of the scan over parts."""
        first, second = (self.placed(o, self.within) for o in self.scan.operands[:2])
        known, number = self.known, first.value if isinstance(first, Scalar) and not first.name else None
        is_alone = first == second or number == (1.0 if known.op0 == "multiply" else 0.0)
        if is_alone and known.op1 in REDUCING and self.inner in second.variables:
            total = self.add("total", (second,), self.inner, "")
            return (total if first == second else first), total
        nothing = FURTHEST.get(known.op1, ZERO)
        inner = self.add("inner", (first, second, nothing), self.inner)
        total = self.add("total", (inner,), self.inner, "last")
        if number is not None and known.op1 != "subtract":
            whole = number**self.length if known.op0 == "multiply" else number * self.length
            return Scalar(value=whole), total
        # what becomes of 1, or is added to 0, where nothing else is added
        unit = (first, ZERO, ONE) if known.op0 == "multiply" else (first, nothing, ZERO)
        every = self.add("factor", unit, self.inner)
        return self.add("whole", (every,), self.inner, "last"), total

    def cascade(self) -> Cascade:
        """The cascade with the recurrence in parts."""
        initial = self.scan.operands[2]
        op1 = "add" if self.known.op0 == "multiply" else self.known.op1
        states = self.add("states", (*self.totals(), initial), self.part, op1=op1)
        pieces = [(self.within, self.inner, self.add("begun", (states, initial), self.part, "before"))]
        for variable, place in self.left.items():
            pieces.append((place, variable, self.add("behind", (states,), self.part, "last")))
        if self.known.has_first:
            before = self.output(Affine(constant=self.turns if self.known.is_descending else -1))
            self.steps.append(Einsum(before, (initial,), place=self.scan.place))
        steps: list[Step] = []
        for step in self.source.steps:
            steps += self.steps if step is self.scan else []
            steps += self.parted(step, pieces, states) if isinstance(step, Einsum) else [step]
        return self.added.applied(tuple(steps))

    def parted(
        self, einsum: Einsum, pieces: Sequence[tuple[Affine, str, Operand]], states: Access
    ) -> list[Einsum]:
        """An Einsum over pieces of the turns, if it goes through them."""
        if id(einsum) not in self.companions:
            return [einsum]
        if einsum.recurrence is None:
            return [self.at(einsum, place) for place, _, _ in pieces]
        if einsum.is_last:
            return [self.end(einsum, states)]
        return [own for piece in pieces for own in self.piece(einsum, *piece)]

    def output(self, place: Affine) -> Access:
        """Where states of turns at a place are asked for."""
        output = self.placed(self.scan.output, place)
        assert isinstance(output, Access)
        return output

    @cached_property
    def shared(self) -> dict[Affine, Access]:
        """Tensors of the states of turns at a place, where others go through them too."""
        readers = [s for s in self.source.steps if id(s) in self.companions and s is not self.scan]
        if not any(self.scan.output in e.operands for s in readers for e in s.body if not e.is_last):
            return {}
        places = [self.within, *self.left.values()]
        return {place: self.new("own", self.output(place).variables) for place in places}

    @cached_property
    def companions(self) -> dict[int, str]:
        """Einsums that go through the turns one by one, by identity, with their variables of these."""
        variables, before = {id(self.scan): self.turn}, 0
        steps = [s for s in self.source.steps if isinstance(s, Einsum)]
        while len(variables) > before:
            before = len(variables)
            inside = [(e, variables[id(e)]) for e in steps if id(e) in variables]
            axes = {(a.tensor, a.axis_of(v)) for e, v in inside for a in e.every_access}
            others = ((e, self.variables_of(e, axes)) for e in steps if id(e) not in variables)
            variables |= {
                id(e): v for e, names in others if len(names) == 1 for v in names if self.is_beside(e, v)
            }
        return variables

    def variables_of(self, einsum: Einsum, axes: Set[tuple[str, int | None]]) -> set[str]:
        """The variables that an Einsum has along some axes."""
        every = ((a.tensor, n, i) for a in einsum.every_access for n, i in enumerate(a.indices))
        return {v for tensor, n, i in every if (tensor, n) in axes for v in i.variables}

    def is_beside(self, einsum: Einsum, variable: str) -> bool:
        """Whether an Einsum may go through a variable in parts, as the scan goes through its turns."""
        if einsum.recurrence is not None:
            return self.scan.output in einsum.operands and einsum.recurrence.variable == variable == self.turn
        is_all = self.source.extent(variable, einsum) == self.turns and not einsum.is_placed
        return is_all and variable in einsum.output.variables

    def piece(self, einsum: Einsum, place: Affine, along: str, initial: Operand) -> list[Einsum]:
        """A recurrence over turns at a place, which begins with another value, and its copy."""
        own, known = self.at(einsum, place), einsum.recurrence
        assert known is not None
        known = replace(known, variable=along, has_first=False)
        begun = replace(own, operands=(*own.operands[:-1], initial), recurrence=known)
        if einsum is not self.scan or place not in self.shared:
            return [begun]
        return [begun, Einsum(self.output(place), (self.shared[place],), place=einsum.place)]

    def end(self, einsum: Einsum, states: Access) -> Einsum:
        """The last state: of the turns that are left, or of the scan over parts."""
        assert einsum.recurrence is not None
        for variable, place in self.left.items():
            return replace(self.at(einsum, place), recurrence=replace(einsum.recurrence, variable=variable))
        return replace(einsum, operands=(states,), recurrence=replace(einsum.recurrence, variable=self.part))

    def at(self, einsum: Einsum, place: Affine) -> Einsum:
        """An Einsum over turns at a place."""
        variable = self.companions[id(einsum)]

        def moved(operand: Operand) -> Operand:
            is_state = operand == self.scan.output and place in self.shared
            return self.shared[place] if is_state else self.placed(operand, place, variable)

        output, *operands = map(moved, (einsum.output, *einsum.operands))
        assert isinstance(output, Access)
        return replace(einsum, output=output, operands=tuple(operands), before=einsum.title, text="")
