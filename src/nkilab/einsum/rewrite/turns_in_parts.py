"""Blocks whose states need each other linearly, in parts: all parts at once, then a turn for each part.

Where a turn takes states s to `M s + x`, a part of the turns takes what it begins with to `P s + y`: y is
what becomes of zeros, and P of ones, one state at a time and without x. A block over parts finds what each of
them begins with. A chain of T turns becomes three of about the square root of T.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt, prod
from typing import TypeGuard

from ..language.additions import Additions
from ..language.ast import (
    Access,
    Affine,
    Cascade,
    Condition,
    Einsum,
    Iterate,
    Kind,
    Operand,
    Scalar,
    Step,
    block_extent,
)
from ..language.indices import affine, plain
from .coefficients import NoRecurrenceError
from .states import Places

# turns and parts from which on these are worth their work; states of a turn, and columns that all parts take
FEWEST_TURNS, FEWEST_PARTS, MOST_STATES, MOST_COLUMNS = 64, 4, 4, 64
# operators that are linear in all operands together
SUMS = ("", "add", "subtract")


def with_turns_in_parts(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade, every Einsum of which is needed, with blocks of linear turns over few lanes in parts."""
    for block in cascade.blocks:
        turns = _linear(block, cascade)
        length = turns.length(MOST_COLUMNS * partitions) if turns is not None else 0
        if turns is not None and turns.number >= FEWEST_PARTS * length:
            cascade = _Parts(cascade, turns, length).cascade()
    return cascade


def are_linear(block: Iterate, cascade: Cascade) -> bool:
    """Whether turns of a block, of which there are many, are linear in states, element by element."""
    return _linear(block, cascade) is not None


@dataclass(frozen=True)
class _Turns:
    """A block of linear turns."""

    block: Iterate
    places: Places
    free: tuple[Einsum, ...]  # what depends on no state
    body: tuple[Einsum, ...]  # what does
    states: tuple[str, ...]  # what turns read of the turn before
    factors: frozenset[str]  # variables of what states are multiplied by
    lanes: int  # elements of the widest of them
    number: int  # how many turns there are

    def length(self, most: int) -> int:
        """Turns of a part where all have so many lanes at most; a number near that leaves none over."""
        least = -(-self.number * self.lanes // most)
        best = max(isqrt(self.number // 2), least)
        even = (n for n in range(max(best // 2, least), best * 2) if self.number % n == 0)
        return min(even, key=lambda n: abs(n - best), default=best)


def _linear(block: Iterate, cascade: Cascade) -> _Turns | None:
    """A block as linear turns; None if it has few, or others."""
    number = block_extent(block, cascade)
    if number < FEWEST_TURNS or any(e.reduce_op or e.is_placed or e.reduced for e in block.body):
        return None
    try:
        places = Places(cascade, block.body, block.variable, False)
        apart = {a: places.distance(a) for e in block.body for a in e.accesses if a.tensor in places.axes}
    except NoRecurrenceError:
        return None
    states = dict.fromkeys(a.tensor for a, turns in apart.items() if turns)
    body, known = list[Einsum](), set(states)
    for einsum in block.body:
        dependent = [o for o in einsum.operands if isinstance(o, Access) and o.tensor in known]
        if not _is_linear(einsum, dependent) or not all(_is_own(a, block, places, body) for a in dependent):
            return None
        body += [einsum] if dependent or einsum.name in states else []
        known |= {einsum.name} if dependent else set()
    names = {e.name for e in body}
    others = (o for e in body for o in e.operands if e.map_op == "multiply")
    factors = {v for o in others if not (isinstance(o, Access) and o.tensor in names) for v in o.variables}
    sizes = [prod(cascade.extent(v, e) for v in e.output.variables) // number for e in body]
    free = tuple(e for e in block.body if e not in body)
    is_free = not any(a.tensor in places.axes and apart[a] for e in free for a in e.accesses)
    if (
        not 1 < len(states) <= MOST_STATES
        or not is_free
        or not _are_set_before(states, block, places, cascade)
    ):
        return None
    return _Turns(block, places, free, tuple(body), tuple(states), frozenset(factors), max(sizes), number)


def _are_set_before(states: Iterable[str], block: Iterate, places: Places, cascade: Cascade) -> bool:
    """Whether other steps write of states what turns read first, at most once, and values before that."""
    before = cascade.steps[: cascade.steps.index(block)]
    for state in states:
        writers = [e for s in cascade.steps if s is not block for e in s.body if e.name == state]
        where = [places.at(e.output) if any(e is s for s in before) else None for e in writers]
        first = places.offsets[state] - 1
        if where.count(first) > 1 or any(at is None or at > first for at in where):
            return False
    return True


def _is_linear(einsum: Einsum, dependent: list[Access]) -> bool:
    """Whether an Einsum is linear in some of its operands together."""
    return not dependent or einsum.map_op in SUMS or (einsum.map_op == "multiply" and len(dependent) == 1)


def _is_own(access: Access, block: Iterate, places: Places, before: list[Einsum]) -> bool:
    """Whether a turn reads what it wrote, or the turn before did, at the place of the same name."""
    output = next(e.output for e in block.body if e.name == access.tensor)
    turns = places.distance(access)
    is_there = turns == 1 or (turns == 0 and any(e.output is output for e in before))
    return is_there and places.lanes(access) == places.lanes(output)


class _Parts:
    """Writes one block in parts."""

    def __init__(self, cascade: Cascade, turns: _Turns, length: int) -> None:
        self.source, self.turns, self.block = cascade, turns, turns.block
        self.added, self.names = Additions(cascade), {e.name for e in turns.body}
        turn, self.length, self.count = turns.block.variable, length, turns.number // length
        self.rest = turns.number - self.count * self.length
        ranks = {"PART": self.count, "TURN": self.length, "BEGUN": self.count}
        ranks |= {"LEFT": self.rest} if self.rest else {}
        # with one more where values before the first turn stand too
        ranks |= {f"{hint}S": size + 1 for hint, size in ranks.items()} | {"UNIT": len(turns.states)}
        self.ranks = {hint: self.added.rank(f"{turn.upper()}_{hint}", size) for hint, size in ranks.items()}
        variables = {hint: rank.lower() for hint, rank in self.ranks.items()}
        self.part, self.inner, self.step = (variables[hint] for hint in ("PART", "TURN", "BEGUN"))
        self.at = affine([(self.part, self.length), (self.inner, 1)])
        # whether what multiplies states differs from turn to turn, and which lanes it tells apart
        self.is_varying = turn in turns.factors
        outside = [e for s in cascade.steps if s is not turns.block for e in s.body]
        read = {t for e in outside for t in e.reads} | {*cascade.outputs}
        self.kept = self.names & read
        first = (a.tensor for e in outside for a in e.accesses
                 if a.tensor in turns.states and self.reads_first(a, e))  # fmt: skip
        self.read_first = {*first, *cascade.outputs}
        self.zeros, self.ones, self.begun, self.last = (dict[str, str]() for _ in range(4))
        for einsum in turns.body:
            self.declare(einsum)

    def lanes(self, tensor: str) -> list[str]:
        """Variables of a tensor besides that of the turns."""
        output = next(e.output for e in self.turns.body if e.name == tensor)
        return [v for v in output.variables if v != self.block.variable]

    def factored(self, tensor: str) -> list[str]:
        """Those of them that what multiplies states tells apart."""
        return [v for v in self.lanes(tensor) if v in self.turns.factors]

    def declare(self, einsum: Einsum) -> None:
        """Declare what becomes of zeros and of ones, and what parts begin with."""
        name, is_state = einsum.name, einsum.name in self.turns.states
        turns, left = (self.ranks.get(hint + "S" * is_state, "") for hint in ("TURN", "LEFT"))

        def tensor(hint: str, first: tuple[str, ...], variables: list[str]) -> str:
            ranks = (self.rank_of(v, einsum) for v in variables)
            return self.added.tensor(f"{name}_{hint}", (*first, *ranks), name, Kind.LINEAR)

        self.zeros[name] = tensor("part", (self.ranks["PART"], turns), self.lanes(name))
        varying = (self.ranks["PART"],) if self.is_varying else ()
        self.ones[name] = tensor("factor", (self.ranks["UNIT"], *varying, turns), self.factored(name))
        if self.rest:
            self.last[name] = tensor("last", (left,), self.lanes(name))
        if is_state:
            self.begun[name] = tensor("begun", (self.ranks["BEGUNS"],), self.lanes(name))

    def rank_of(self, variable: str, einsum: Einsum) -> str:
        """The rank of a variable of the block, or of parts."""
        own = self.added.rank_of(variable, einsum)
        return own or self.added.rank(variable.upper(), self.added.extent(variable, einsum))

    def place(self, access: Access) -> Affine:
        """Where what a turn wrote, or the one before, stands in a part."""
        place = int(access.tensor in self.turns.states) - self.turns.places.distance(access)
        return Affine(((self.inner, 1),), place)

    def of_zeros(self, access: Access, inner: Affine | None = None, part: str = "") -> Access:
        """What becomes of zeros, at a place of a part."""
        first = (*plain([part or self.part]), inner or self.place(access))
        return Access(self.zeros[access.tensor], (*first, *plain(self.lanes(access.tensor))))

    def of_ones(self, access: Access, unit: Affine, inner: Affine | None = None, part: str = "") -> Access:
        """What becomes of ones, at a place of a part."""
        varying = plain([part or self.part]) if self.is_varying else ()
        first = (unit, *varying, inner or self.place(access))
        return Access(self.ones[access.tensor], (*first, *plain(self.factored(access.tensor))))

    def begins(self, state: str, start: Affine) -> Access:
        """What a part begins with."""
        return Access(self.begun[state], (start, *plain(self.lanes(state))))

    def moved(self, operand: Operand) -> Operand:
        """An operand that depends on no state, in a part."""
        return operand.replaced({self.block.variable: self.at})

    def cascade(self) -> Cascade:
        """The cascade with the block in parts."""
        steps: list[Step] = []
        for step in self.source.steps:
            steps += self.steps() if step is self.block else self.outside(step)
        for name in self.names - self.kept:
            del self.added.tensors[name]
        return self.added.applied(tuple(steps))

    def outside(self, step: Step) -> Iterator[Step]:
        """A step beside the block; first values are those of the first part, and of states that are read."""
        if not isinstance(step, Einsum) or step.name not in self.begun:
            yield step
            return
        if step.name in self.read_first:
            yield step
        if self.is_first(step):
            inner = step.output.with_axis(self.turns.places.axes[step.name]).indices
            yield replace(step, output=Access(self.begun[step.name], (Affine(), *inner)), text="")

    def is_first(self, step: Einsum) -> bool:
        """Whether a step beside the block writes what the first turn reads of a state."""
        return self.turns.places.at(step.output) == self.turns.places.offsets[step.name] - 1

    def steps(self) -> Iterator[Step]:
        """What stands for the block."""
        states = [e for e in self.turns.body if e.name in self.turns.states]
        yield from self.turns.free
        yield from (Einsum(self.of_zeros(e.output, Affine()), (Scalar(),)) for e in states)
        yield Iterate(self.inner, tuple(map(self.in_parts, self.turns.body)), self.block.place)
        yield from (self.unit_of(e) for e in states)
        yield Iterate(self.inner, tuple(map(self.in_units, self.turns.body)), self.block.place)
        yield from self.begun_first()
        yield Iterate(self.step, tuple(o for e in states for o in self.carried(e)), self.block.place)
        yield from (o for e in self.turns.body if e.name in self.kept for o in self.whole(e))
        if self.rest:
            yield from self.behind(states)

    def behind(self, states: Sequence[Einsum]) -> Iterator[Step]:
        """The turns that are left over behind all parts."""
        left = self.ranks["LEFT"].lower()
        place = {self.block.variable: Affine(((left, 1),), self.count * self.length)}

        def own(access: Access, inner: Affine | None = None) -> Access:
            first = inner or self.place(access).renamed({self.inner: left})
            return Access(self.last[access.tensor], (first, *plain(self.lanes(access.tensor))))

        def moved(einsum: Einsum) -> Einsum:
            operands = (own(o) if self.is_linear(o) else o.replaced(place) for o in einsum.operands)
            return replace(einsum, output=own(einsum.output), operands=tuple(operands), text="")

        for state in states:
            yield Einsum(own(state.output, Affine()), (self.begins(state.name, Affine((), self.count)),))
        yield Iterate(left, tuple(map(moved, self.turns.body)), self.block.place)
        for einsum in (e for e in self.turns.body if e.name in self.kept):
            yield Einsum(einsum.output.replaced(place), (own(einsum.output),))

    def in_parts(self, einsum: Einsum) -> Einsum:
        """What a turn computes, in all parts, which begin with zeros."""
        operands = (self.of_zeros(o) if self.is_linear(o) else self.moved(o) for o in einsum.operands)
        return replace(einsum, output=self.of_zeros(einsum.output), operands=tuple(operands), text="")

    def is_linear(self, operand: Operand) -> TypeGuard[Access]:
        """Whether an operand depends on states."""
        return isinstance(operand, Access) and operand.tensor in self.zeros

    def in_units(self, einsum: Einsum) -> Einsum:
        """What a turn computes but what it adds to states, if one of these begins with 1, others with 0."""
        (unit,), op = plain([self.ranks["UNIT"].lower()]), einsum.map_op
        own = [self.of_ones(o, unit) for o in einsum.operands if self.is_linear(o)]
        operands: list[Operand] = [*own]
        if op == "multiply" and own:
            operands += [self.moved(o) for o in einsum.operands if not self.is_linear(o)]
        elif op == "subtract" and own and not self.is_linear(einsum.operands[0]):
            operands, op = [*own, Scalar(value=-1.0)], "multiply"
        elif len(own) < 2:
            operands, op = [*own] or [Scalar()], ""
        return replace(
            einsum, output=self.of_ones(einsum.output, unit), operands=tuple(operands), map_op=op, text=""
        )

    def unit_of(self, state: Einsum) -> Einsum:
        """1 for a state itself, and 0 for the others."""
        (unit,), own = plain([self.ranks["UNIT"].lower()]), Affine((), self.turns.states.index(state.name))
        first = self.of_ones(state.output, unit, Affine())
        return Einsum(first, (Scalar(value=1.0),), condition=Condition(unit, "==", own))

    def begun_first(self) -> Iterator[Einsum]:
        """Zeros for the first part, where no step before the block writes what it begins with."""
        others = [e for s in self.source.steps if s is not self.block for e in s.body if e.name in self.begun]
        written = {e.name for e in others if self.is_first(e)}
        yield from (
            Einsum(self.begins(s, Affine()), (Scalar(),)) for s in self.turns.states if s not in written
        )

    def reads_first(self, access: Access, einsum: Einsum) -> bool:
        """Whether a step beside the block may read what was there of a state before its turns."""
        index = access.indices[self.turns.places.axes[access.tensor]]
        if not isinstance(index, Affine):
            return True
        extents = {v: self.source.extent(v, einsum) for v in index.variables}
        return index.at(self.source.sizes).ends(extents)[0] < self.turns.places.offsets[access.tensor]

    def summed(self, einsum: Einsum, output: Access, inner: Affine | None, part: str) -> Iterator[Einsum]:
        """What turns compute, of what becomes of zeros and of all that their part begins with."""
        (start,), name = plain([part]), einsum.name
        terms = []
        for number, state in enumerate(self.turns.states):
            factors = (
                self.of_ones(einsum.output, Affine((), number), inner, part),
                self.begins(state, start),
            )
            variables = [part] * (inner is not None) or [self.part, self.inner]
            output_ranks = tuple(self.rank_of(v, einsum) for v in (*variables, *self.lanes(name)))
            tensor = self.added.tensor(f"{name}_term", output_ranks, name, Kind.LINEAR)
            terms.append(Access(tensor, plain((*variables, *self.lanes(name)))))
            yield Einsum(terms[-1], factors, "multiply")
        yield Einsum(output, (*terms, self.of_zeros(einsum.output, inner, part)), "add")

    def carried(self, state: Einsum) -> Iterator[Einsum]:
        """What the next part begins with."""
        output = self.begins(state.name, Affine(((self.step, 1),), 1))
        yield from self.summed(state, output, Affine((), self.length), self.step)

    def whole(self, einsum: Einsum) -> Iterator[Einsum]:
        """What is asked for of all turns."""
        output = self.moved(einsum.output)
        assert isinstance(output, Access)
        yield from self.summed(einsum, output, None, self.part)
