"""Expressions that read what they themselves wrote at other indices: `S[t+1] = S[t] + X[t]` runs once per t.

Outside of an iterate block such expressions, and those between them, are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from ...errors import SpecError
from .additions import Additions
from .ast import (
    Access,
    Affine,
    Cascade,
    Digit,
    Einsum,
    Index,
    Iterate,
    Kind,
    Recurrence,
    Step,
    block_extent,
    plain,
)

# of turns in turns that leave one state to each other
UNROLLED = "write a line for each value of {0}, without {0}: A[t] of S[t], then S[t+1] of A[t]"


@dataclass(frozen=True)
class _Carried:
    """What one turn leaves to others: between a reading step and the step that writes, at or behind it."""

    reads: int
    writes: int
    access: Access  # that reads
    variable: str
    read: int  # constants of the two indices
    written: int
    size: int  # of the axis
    extent: int  # of the variable


def with_blocks(cascade: Cascade) -> Cascade:
    """A cascade, every rank of which has an extent, with iterate blocks for what turns hand on.

    Raises:
        SpecError: if expressions are carried along two variables, or both ways.
    """
    added = Additions(cascade)
    every = (
        _handed_on(s, added) if isinstance(s, Iterate) else [s]
        for s in _in_blocks(cascade.steps, cascade, added)
    )
    return added.applied(tuple(step for several in every for step in several))


def interchanged(block: Iterate, cascade: Cascade) -> Cascade | None:
    """A cascade with the inner of two blocks outside; None if turns write elements twice."""
    added, inner = Additions(cascade), next(e.turning for e in block.body if e.turning)
    if any({block.variable, e.turning} - {"", *e.output.variables} for e in block.body):
        return None
    body, place = [replace(e, recurrence=None) for e in block.body], cascade.steps.index(block)
    try:
        steps = _in_blocks(body, cascade, added, first=inner)
    except SpecError:
        return None
    return added.applied((*cascade.steps[:place], *steps, *cascade.steps[place + 1 :]))


def _in_blocks(
    given: Sequence[Step], cascade: Cascade, added: Additions, turn: str = "", first: str = ""
) -> list[Step]:
    """Steps, or Einsums of a block, in blocks along what they are carried along besides its variable.

    Args:
        first: the variable of the outer of two blocks, where it may be.
    """
    steps = list[Step]()
    for step in given:
        if isinstance(step, Iterate) and not any(e.recurrence for e in step.body):
            step = step.with_body(_in_turns(step, cascade, added))
        steps.append(step)
    while _without(turn, [*_carried(cascade, steps)]):
        # beside another variable one that has a single value counts as if it had more
        carried = _without(turn, [*_carried(cascade, steps, 2)])
        begin, end = min(c.reads for c in carried), 0
        # what overlaps runs together
        while (last := max(c.writes for c in carried if c.reads <= max(begin, end))) > end:
            end = last
        own = [c for c in carried if c.reads <= end]
        steps[begin : end + 1] = _block(steps[begin : end + 1], own, cascade, added, (turn, first))
    return steps


def _in_turns(block: Iterate, cascade: Cascade, added: Additions) -> Iterator[Einsum]:
    """The Einsums of a block, those that are carried along another variable too in a block in it."""
    for step in _in_blocks(block.body, cascade, added, block.variable):
        known = Recurrence(step.variable, "turns") if isinstance(step, Iterate) else None
        yield from (replace(e, recurrence=known) if known else e for e in step.body)


def _without(turn: str, carried: Sequence[_Carried]) -> list[_Carried]:
    """What is carried other than from one turn of a block to another."""
    if not turn:
        return [*carried]
    others = {(c.reads, c.access) for c in carried if c.variable == turn}
    return [c for c in carried if turn in c.access.variables and (c.reads, c.access) not in others]


def _carried(cascade: Cascade, steps: Sequence[Step], least: int = 1) -> Iterator[_Carried]:
    """What turns leave to others, if variables have so many values at least."""

    def extent(variable: str, einsum: Einsum) -> int:
        return max(least, cascade.extent(variable, einsum))

    plain = [(n, step) for n, step in enumerate(steps) if isinstance(step, Einsum)]
    reads = ((r, e, a, w, writer) for w, writer in plain for r, e in plain if r <= w for a in e.accesses)
    axes = (
        (r, w, access, writer, (rank, here), there)
        for r, reader, access, w, writer in reads
        if _may_meet((access, reader), (writer.output, writer), cascade.sizes, extent)
        for (rank, here), there in zip(cascade.axes(writer.output), access.indices, strict=True)
        if isinstance(here, Affine) and isinstance(there, Affine)
    )  # fmt: skip
    for r, w, access, writer, (rank, here), there in axes:
        here, there, size = here.at(cascade.sizes), there.at(cascade.sizes), cascade.sizes[rank]
        variable = _moved(there, here)
        if variable and abs(here.constant - there.constant) < extent(variable, writer):
            ends = there.constant, here.constant
            ends = ends if here.coefficient(variable) > 0 else (size - 1 - ends[0], size - 1 - ends[1])
            yield _Carried(r, w, access, variable, *ends, size, cascade.extent(variable, writer))


def _may_meet(
    one: tuple[Access, Einsum], other: tuple[Access, Einsum], sizes: Mapping[str, int],
    extent: Callable[[str, Einsum], int],
) -> bool:  # fmt: skip
    """Whether accesses of Einsums have elements of a tensor in common, as far as axes tell alone."""
    if one[0].tensor != other[0].tensor:
        return False

    def reach(index: Index, einsum: Einsum) -> tuple[float, float]:
        if not isinstance(index, Affine) or any(isinstance(n, Digit) for n, _ in index.terms):
            return -inf, inf
        own = index.at(sizes)
        return own.ends({n: extent(n, einsum) for n, _ in own.terms})

    ends = ([reach(i, einsum) for i in access.indices] for access, einsum in (one, other))
    return all(a[0] <= b[1] and b[0] <= a[1] for a, b in zip(*ends, strict=True))


def _moved(there: Affine, here: Affine) -> str:
    """The variable by which alone two indices of an axis count, at different places; "" if none does."""
    is_one = there.terms == here.terms and there != here and [abs(c) for _, c in here.terms] == [1]
    return next(iter(here.variables), "") if is_one else ""


def _block(
    steps: Sequence[Step], carried: Sequence[_Carried], cascade: Cascade, added: Additions,
    known: tuple[str, str],
) -> list[Step]:  # fmt: skip
    """What does not depend on the variable, and then the others in an iterate block."""
    einsums, (outer, wanted) = [e for step in steps for e in step.body], known
    ways = sorted(_ways(carried), key=lambda way: (way[2] is None, len(way[1]), way[0] != wanted))
    variable, others, is_backward = ways[0]
    own = [c for c in carried if c.variable == variable]
    first = own[0]
    if len(others) + bool(outer) > 1 or is_backward is None:
        along = " and ".join(filter(None, (outer, variable, *others)))
        both = f"up and down {variable}" if is_backward is None else f"along {along}"
        hint = "carry it along two at most, each in one direction"
        raise einsums[0].located(SpecError(f"{first.access.tensor} is carried {both}", hint=hint))
    before = [e for e in einsums if variable not in e.output.variables]
    body = [e for e in einsums if e not in before]
    names = {e.name for e in body}
    behind = (e for e in before if names & {*e.reads})
    if late := min(behind, key=lambda e: e.name not in names, default=None):
        problem = f"{late.name} has no {variable} and stands among expressions that run once per {variable}"
        hint = UNROLLED.format(variable) if late.name in names else "move it behind them"
        raise late.located(SpecError(problem, hint=hint))
    begins = [c.extent + c.read - c.size if is_backward else -c.read for c in own]
    body = [*_in_turns(Iterate(variable, tuple(body)), cascade, added)] if others else body
    return [*before, _counted(body, first, max(0, *begins), is_backward, added)]


def _ways(carried: Sequence[_Carried]) -> Iterator[tuple[str, tuple[str, ...], bool | None]]:
    """Each variable, along which others its turns are carried, and whether it counts down; None for both.

    Whatever is read at another index of one variable is another turn's, at whichever index of others.
    """
    for variable in dict.fromkeys(c.variable for c in carried):
        ways = {c.read > c.written for c in carried if c.variable == variable}
        others = dict.fromkeys(c.variable for c in _without(variable, carried))
        yield variable, tuple(others), ways.pop() if len(ways) == 1 else None


def _counted(
    body: Sequence[Einsum], carried: _Carried, begin: int, is_backward: bool, added: Additions
) -> Iterate:
    """The block, which counts up from the first turn that finds what it reads."""
    variable = carried.variable
    if is_backward:
        body = [e.counted_back({variable: carried.extent}) for e in body]
    if begin:
        turn = added.rank(f"{variable.upper()}_TURN", carried.extent - begin).lower()

        def later(index: Affine) -> Affine:
            moved = index.constant + begin * index.coefficient(variable)
            return replace(index.renamed({variable: turn}), constant=moved)

        body = [e.with_indices(later) for e in body]
        variable = turn
    return Iterate(variable, tuple(body), body[0].place)


def _handed_on(block: Iterate, added: Additions) -> list[Step]:
    """A block that reads of each state what the turn before left: older values are copied along."""
    turn, before, copies = Affine(((block.variable, 1),)), list[Step](), list[Einsum]()
    turns, older = block_extent(block, added.applied(())), dict[Access, Access]()
    for state in (e.output for e in block.body):
        axis = next((n for n, i in enumerate(state.indices) if _at(i, turn) is not None), None)
        if axis is None:
            continue
        ranks, start = [*added.tensors[state.tensor].ranks], _at(state.indices[axis], turn) or 0
        reads = (a for e in block.body for a in e.accesses if a.tensor == state.tensor)
        places = ((a, _at(a.indices[axis], turn)) for a in reads)
        lags = {a: start - there for a, there in places if there is not None}
        # all that the turn before wrote
        every = replace(state, indices=plain(rank.lower() for rank in ranks))
        known = every.with_axis(axis, replace(turn, constant=start - 1))
        for lag in range(2, max(lags.values(), default=0) + 1):
            ranks[axis] = added.rank(f"{ranks[axis]}_OLDER", turns + 1)
            name = added.tensor(f"{state.tensor}_older", tuple(ranks), state.tensor, Kind.STATE)
            first, kept = every.with_axis(axis, Affine((), start - lag)), replace(every, tensor=name)
            before.append(Einsum(kept.with_axis(axis, Affine()), (first,), place=block.place))
            later = kept.with_axis(axis, replace(turn, constant=1))
            copies.append(Einsum(later, (known,), place=block.place))
            known = kept.with_axis(axis, turn)
            own = (a for a in lags if lags[a] == lag)
            older |= {a: replace(a, tensor=name).with_axis(axis, turn) for a in own}
    body = [e.reading(lambda a: older.get(a, a)) for e in block.body]
    return [*before, block.with_body([*copies, *body])]


def _at(index: Index, turn: Affine) -> int | None:
    """What an index is beside the variable of a block; None where it is anything else."""
    return index.constant if isinstance(index, Affine) and index.terms == turn.terms else None
