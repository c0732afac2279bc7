"""Iterate blocks without their iterated rank: state lies in one place that every turn reads and writes again.

Tensors of a block lose the iterated rank. One that a turn reads as it was left by the turn before is state:
it has one value before the block, one after it, and in the body a second name where the old value is still
needed once the new one is there. A tensor that is read at other turns, or returned, keeps its rank besides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..language.additions import Additions, free_variable
from ..language.ast import (
    Access,
    Affine,
    Cascade,
    Einsum,
    Iterate,
    Kind,
    Scalar,
    Step,
    Tensor,
    block_extent,
    plain,
)
from .groups import einsums_of


@dataclass(frozen=True)
class State:
    """What becomes of a tensor of a block."""

    tensor: str  # its name
    axis: int  # of the iterated rank
    offset: int  # turn i writes the value of index i + offset
    is_state: bool  # whether a turn reads what the turn before wrote
    is_kept: bool  # whether the whole tensor is needed: it is returned, or read at other turns
    is_in_place: bool  # whether the new value may overwrite the old one


def without_turns(cascade: Cascade) -> Cascade:
    """The cascade with the tensors of its iterate blocks as one turn sees them."""
    for number in range(len(cascade.blocks)):
        cascade = _rewritten(cascade, cascade.blocks[number])
    return cascade


def _offset(access: Access, axis: int, turn: str) -> int | None:
    """How far from its own turn an access reads or writes along an axis; None if that is not a distance."""
    index = access.indices[axis]
    return index.constant if isinstance(index, Affine) and index.terms == ((turn, 1),) else None


def _written_axis(block: Iterate, tensor: str) -> tuple[int, int] | None:
    """The axis and offset at which a block writes a tensor once per turn."""
    output = next((e.output for e in block.body if e.name == tensor), None)
    axis = output.axis_of(block.variable) if output is not None else None
    offset = _offset(output, axis, block.variable) if output is not None and axis is not None else None
    return (axis, offset) if axis is not None and offset is not None else None


def _rewritten(cascade: Cascade, block: Iterate) -> Cascade:
    turns = block_extent(block, cascade)
    axes = {e.name: axis for e in block.body if (axis := _written_axis(block, e.name)) is not None}
    states = {tensor: _state(cascade, block, tensor, *axis, turns) for tensor, axis in axes.items()}
    return _Rewriter(cascade, block, states, turns).cascade()


def _reads(steps: Iterable[Step], tensor: str) -> Iterable[tuple[Einsum, Access]]:
    for einsum in einsums_of(tuple(steps)):
        yield from ((einsum, access) for access in einsum.accesses if access.tensor == tensor)


def _state(cascade: Cascade, block: Iterate, tensor: str, axis: int, offset: int, turns: int) -> State:
    is_state, is_kept, late = False, tensor in cascade.outputs, False
    writer = next(n for n, e in enumerate(block.body) if e.name == tensor)
    for einsum, access in _reads(block.body, tensor):
        read = _offset(access, axis, block.variable)
        is_kept |= read not in (offset, offset - 1)
        if read == offset - 1:
            is_state = True
            place = block.body.index(einsum)
            late |= place > writer or (place == writer and not _is_pointwise(einsum, access))
    outside = [s for s in cascade.steps if s is not block]
    reads = _reads(outside, tensor)
    is_kept |= any(_position(access, axis, cascade) != turns - 1 + offset for _, access in reads)
    set_ = (e.output for e in einsums_of(tuple(outside)) if e.name == tensor)
    is_kept |= any(_position(access, axis, cascade) != offset - 1 for access in set_)
    return State(tensor, axis, offset, is_state, is_kept, not late)


def _position(access: Access, axis: int, cascade: Cascade) -> int | None:
    """Where along an axis an access stands; None if variables choose it."""
    index = access.indices[axis]
    held = index.at(cascade.sizes) if isinstance(index, Affine) else None
    return None if held is None or held.terms else held.constant


def _is_pointwise(einsum: Einsum, access: Access) -> bool:
    """Whether an Einsum reads its own tensor at the element that it writes, the turn apart."""
    rest = [i for i in access.indices if str(i) in {str(o) for o in einsum.output.indices}]
    return not einsum.reduced and len(rest) == len(access.indices) - 1


class _Rewriter:
    def __init__(self, cascade: Cascade, block: Iterate, states: dict[str, State], turns: int) -> None:
        self.held, self.block, self.states, self.turns = cascade, block, states, turns
        self.added = Additions(cascade)
        self.names: dict[str, str] = {}
        for state in states.values():
            ranks = cascade.tensors[state.tensor].ranks
            short = tuple(r for n, r in enumerate(ranks) if n != state.axis)
            now = state.tensor
            if state.is_kept:
                now = self.added.tensor(f"{now}_now", short, state.tensor, Kind.NOW)
            self.names[state.tensor] = now
            self.added.tensors[now] = Tensor(now, short)
            if state.is_state and not state.is_in_place:
                after = self.added.tensor(f"{state.tensor}_next", short, state.tensor, Kind.NEXT)
                self.names[f"{state.tensor} next"] = after

    def cascade(self) -> Cascade:
        steps: list[Step] = []
        for step in self.held.steps:
            if step is self.block:
                begun = self.begun(steps)
                # zeros come first, copies behind what they copy
                behind = [e for e in begun if e.accesses]
                steps = [*(e for e in begun if not e.accesses), *steps, *behind, self.body()]
            elif isinstance(step, Einsum):
                steps += self.outside(step)
            else:
                steps.append(step.with_body(e.reading(self.last) for e in step.body))
        self.added.sizes = {self.block.variable.upper(): self.turns, **self.held.sizes}
        return self.added.applied(tuple(steps))

    def begun(self, before: list[Step]) -> list[Einsum]:
        """State that nothing sets is 0 before the first turn; so is what is read before it is written."""
        written = {s.name for s in before if isinstance(s, Einsum)}
        starts = []
        for state in self.states.values():
            now = self.names[state.tensor]
            if state.is_state and now not in written:
                starts.append(Einsum(self.named(state, now), (self.start(state, before),)))
            is_read = any(self.is_history(a, state) for _, a in _reads(self.block.body, state.tensor))
            if state.is_kept and is_read and state.tensor not in written:
                indices = list(self.named(state, now).indices)
                turn = free_variable(f"{self.block.variable}_", self.held)
                indices.insert(state.axis, Affine(((turn, 1),)))
                starts.append(Einsum(Access(state.tensor, tuple(indices)), (Scalar(),)))
        return starts

    def start(self, state: State, before: list[Step]) -> Access | Scalar:
        """What the first turn reads of a state: what is set before it among other values, or 0."""
        indices, place = [*self.named(state, state.tensor).indices], state.offset - 1
        indices.insert(state.axis, Affine((), place))
        for einsum in (s for s in before if isinstance(s, Einsum) and s.name == state.tensor):
            index = einsum.output.indices[state.axis]
            extents = {v: self.held.extent(v, einsum) for v in index.variables}
            low, high = index.at(self.held.sizes).ends(extents) if isinstance(index, Affine) else (0, -1)
            if low <= place <= high:
                return Access(state.tensor, tuple(indices))
        return Scalar()

    def named(self, state: State, name: str) -> Access:
        """A tensor without the iterated rank, indexed as the Einsum that writes it does."""
        writer = next(e for e in self.block.body if e.name == state.tensor)
        return replace(self.short(writer.output, state), tensor=name)

    def is_history(self, access: Access, state: State) -> bool:
        return _offset(access, state.axis, self.block.variable) not in (state.offset, state.offset - 1)

    def body(self) -> Iterate:
        """One turn, with the copies that make the new state the old one."""
        found: list[Einsum] = []
        for einsum in self.block.body:
            changed = einsum.reading(self.operand)
            state = self.states.get(einsum.name)
            if state is None:
                found.append(changed)
                continue
            into = self.names.get(f"{einsum.name} next", self.names[einsum.name])
            short = self.short(einsum.output, state)
            found.append(replace(changed, output=replace(short, tensor=into)))
            if state.is_kept:
                every = self.whole(einsum)
                found.append(Einsum(every, (replace(self.short(every, state), tensor=into),)))
        for state in self.states.values():
            after = self.names.get(f"{state.tensor} next")
            if after:
                now = self.names[state.tensor]
                found.append(Einsum(self.named(state, now), (self.named(state, after),)))
        return Iterate(self.block.variable, tuple(found), self.block.place)

    def whole(self, einsum: Einsum) -> Access:
        """What an Einsum writes, what a scan begins with too."""
        known, output = einsum.recurrence, einsum.output
        if known is None or not known.has_first:
            return output
        axis = output.axis_of(known.variable) or 0
        variable = free_variable(f"{known.variable}_all", self.held)
        return output.with_axis(axis, *plain([variable]))

    def short(self, access: Access, state: State) -> Access:
        return access.with_axis(state.axis)

    def operand(self, operand: Access) -> Access:
        state = self.states.get(operand.tensor)
        if state is None or self.is_history(operand, state):
            return operand
        now = self.names[state.tensor]
        is_new = _offset(operand, state.axis, self.block.variable) == state.offset
        name = self.names.get(f"{state.tensor} next", now) if is_new else now
        return replace(self.short(operand, state), tensor=name)

    def last(self, operand: Access) -> Access:
        """An operand behind the block: the state itself, if it is what the last turn left."""
        state = self.states.get(operand.tensor)
        if state is None or _position(operand, state.axis, self.held) != self.turns - 1 + state.offset:
            return operand
        return replace(self.short(operand, state), tensor=self.names[state.tensor])

    def outside(self, einsum: Einsum) -> list[Einsum]:
        """An Einsum before or after the block: it sets the first state, or reads the last."""
        changed = einsum.reading(self.last)
        state = self.states.get(einsum.name)
        if state is None:
            return [changed]
        found = [changed] if state.is_kept else []
        if _position(einsum.output, state.axis, self.held) == state.offset - 1:
            short = replace(self.short(einsum.output, state), tensor=self.names[state.tensor])
            return [replace(changed, output=short), *found]
        return found
