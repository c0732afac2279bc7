"""Expressions that read what they themselves wrote at other indices: `S[t+1] = S[t] + X[t]` runs once per t.

Outside of an iterate block such expressions, and those between them, are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...errors import SpecError
from .additions import Additions
from .ast import Access, Affine, Cascade, Einsum, Index, Iterate, Kind, Step, block_extent, plain


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
    steps, added = [*cascade.steps], Additions(cascade)
    while carried := [*_carried(cascade, steps)]:
        begin, end = min(c.reads for c in carried), 0
        # what overlaps runs together
        while (last := max(c.writes for c in carried if c.reads <= max(begin, end))) > end:
            end = last
        own = [c for c in carried if c.reads <= end]
        steps[begin : end + 1] = _block(steps[begin : end + 1], own, added)
    every = (_handed_on(s, added) if isinstance(s, Iterate) else [s] for s in steps)
    return added.applied(tuple(step for several in every for step in several))


def _carried(cascade: Cascade, steps: Sequence[Step]) -> Iterator[_Carried]:
    plain = [(n, step) for n, step in enumerate(steps) if isinstance(step, Einsum)]
    reads = ((r, a, w, writer) for w, writer in plain for r, e in plain if r <= w for a in e.accesses)
    axes = (
        (r, w, access, writer, (rank, here), there)
        for r, access, w, writer in reads if access.tensor == writer.name
        for (rank, here), there in zip(cascade.axes(writer.output), access.indices, strict=True)
        if isinstance(here, Affine) and isinstance(there, Affine)
    )  # fmt: skip
    for r, w, access, writer, (rank, here), there in axes:
        variable = _moved(there, here)
        extent = cascade.extent(variable, writer) if variable else 0
        if abs(here.constant - there.constant) < extent:
            ends = there.constant, here.constant
            yield _Carried(r, w, access, variable, *ends, cascade.sizes[rank], extent)


def _moved(there: Affine, here: Affine) -> str:
    """The variable by which alone two indices of an axis count, at different places; "" if none does."""
    is_one = there.terms == here.terms and there != here and [c for _, c in here.terms] == [1]
    return next(iter(here.variables), "") if is_one else ""


def _block(steps: Sequence[Step], carried: Sequence[_Carried], added: Additions) -> list[Step]:
    """What does not depend on the variable, and then the others in an iterate block."""
    einsums = [e for step in steps for e in step.body]
    each = [{c.variable for c in carried if (c.reads, c.access) == (o.reads, o.access)} for o in carried]
    # whatever is read at another index of one variable is another turn's, at whichever index of others
    every = [c for c in carried if c.variable in set.intersection(*each)]
    carried = [c for c in every if c.variable == every[0].variable] or carried
    first = carried[0]
    variable, is_backward = first.variable, first.read > first.written
    if any(c.variable != variable or (c.read > c.written) != is_backward for c in carried):
        along = " and ".join(dict.fromkeys(c.variable for c in carried))
        both = f"along {along}" if "and" in along else f"up and down {along}"
        raise einsums[0].located(
            SpecError(f"{first.access.tensor} is carried {both}", hint="carry it along one, in one direction")
        )
    before = [e for e in einsums if variable not in e.output.variables]
    body = [e for e in einsums if e not in before]
    names = {e.name for e in body}
    if late := next((e for e in before if names & {*e.reads}), None):
        problem = f"{late.name} has no {variable} and stands among expressions that run once per {variable}"
        raise late.located(SpecError(problem, hint="move it behind them"))
    begins = [c.extent + c.read - c.size if is_backward else -c.read for c in carried]
    return [*before, _counted(body, first, max(0, *begins), is_backward, added)]


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
        known = _moved_to(every, axis, replace(turn, constant=start - 1))
        for lag in range(2, max(lags.values(), default=0) + 1):
            ranks[axis] = added.rank(f"{ranks[axis]}_OLDER", turns + 1)
            name = added.tensor(f"{state.tensor}_older", tuple(ranks), state.tensor, Kind.STATE)
            first, kept = _moved_to(every, axis, Affine((), start - lag)), replace(every, tensor=name)
            before.append(Einsum(_moved_to(kept, axis, Affine()), (first,), place=block.place))
            later = _moved_to(kept, axis, replace(turn, constant=1))
            copies.append(Einsum(later, (known,), place=block.place))
            known = _moved_to(kept, axis, turn)
            own = (a for a in lags if lags[a] == lag)
            older |= {a: _moved_to(replace(a, tensor=name), axis, turn) for a in own}
    body = [e.reading(lambda a: older.get(a, a)) for e in block.body]
    return [*before, block.with_body([*copies, *body])]


def _moved_to(access: Access, axis: int, index: Affine) -> Access:
    """An access at another place along one axis."""
    return replace(access, indices=(*access.indices[:axis], index, *access.indices[axis + 1 :]))


def _at(index: Index, turn: Affine) -> int | None:
    """What an index is beside the variable of a block; None where it is anything else."""
    return index.constant if isinstance(index, Affine) and index.terms == turn.terms else None
