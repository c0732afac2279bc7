"""Scans in the turns of a block, for blocks in blocks.

To one turn of a block what the turns before left are other tensors, and what stands in a block in it is taken
apart as what stands in a block alone is: element-wise Einsums, and a scan along the inner variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from itertools import groupby
from math import prod

from ...errors import UnsupportedError
from ..language.additions import Additions, unused
from ..language.ast import (
    Access,
    Affine,
    Cascade,
    Einsum,
    Index,
    Iterate,
    Kind,
    Step,
    Tensor,
    block_extent,
)
from ..language.carried import UNROLLED, interchanged
from .coefficients import NoRecurrenceError

# what a block alone becomes; Einsums that it needs come first
Taken = Callable[[Cascade, Iterate], Cascade]
# rows that nothing in a block writes of what is written before it
MOST_ROWS = 4
# operators of which the first may be taken out of both operands of the second
DISTRIBUTED = (("add", "maximum"), ("add", "minimum"), ("multiply", "add"))


def with_inner_scans(cascade: Cascade, taken_apart: Taken) -> Cascade:
    """The cascade with scans for the blocks in its blocks.

    Raises:
        UnsupportedError: if one is no scan.
    """
    for block in cascade.blocks:
        inner = next((e for e in block.body if e.turning), None)
        if inner is not None:
            cascade = _with_scans(cascade, block, inner, taken_apart)
    return cascade


def _with_scans(cascade: Cascade, block: Iterate, inner: Einsum, taken_apart: Taken) -> Cascade:
    """The cascade with scans along the variable that takes more turns, if they are scans along it."""
    reasons, orders = list[NoRecurrenceError](), [cascade]
    other = interchanged(block, cascade)
    if other is not None:
        turns, columns = block_extent(block, cascade), cascade.extent(inner.turning, inner)
        orders = [other, cascade] if columns < turns else [cascade, other]
    for order in orders:
        nested = (b for b in order.blocks if any(e.turning for e in b.body))
        own = next(b for b in nested if inner.name in {e.name for e in b.body})
        try:
            return _Turn(order, own).cascade(taken_apart)
        except NoRecurrenceError as reason:
            reasons.append(reason)
    turn, other_turn = block.variable, inner.turning
    problem = f"turns of {turn} run along {other_turn} too, and are no scan, because {reasons[0]}"
    hint = f"iterate over {turn} + {other_turn} as one variable: values of one sum need no other"
    if any({turn, e.turning} - {*e.output.variables, ""} for e in block.body):
        hint = UNROLLED.format(other_turn)
    raise inner.located(UnsupportedError(problem, hint=hint), inner.output) from None


class _Turn:
    """One turn of a block, in which tensors of the block have lost the rank of its variable."""

    def __init__(self, cascade: Cascade, block: Iterate) -> None:
        self.source, self.block, self.turn = cascade, block, block.variable
        self.turns, self.added = block_extent(block, cascade), Additions(cascade)
        self.place, self.offsets = cascade.steps.index(block), dict[str, tuple[int, int]]()
        for output in (e.output for e in block.body):
            for axis, offset in self.own_axes(output):
                self.offsets.setdefault(output.tensor, (axis, offset))
        self.before = list[Step]()
        # edges that are tensors of their own, by tensor and axis; what stands before the first turn
        self.edges: dict[tuple[str, int], tuple[str, Index]] = {}
        self.first = list[Einsum]()
        self.body = [*self.begun(), *block.body]
        # names of what other turns left, by tensor and how many turns ago
        self.names: dict[tuple[str, int], str] = {}
        self.tensors = dict(self.added.tensors)
        # to one turn its number is no variable
        self.number = unused(f"{self.turn.upper()}_NOW", cascade.sizes)

    def own_axes(self, access: Access) -> Iterator[tuple[int, int]]:
        """Axes along which an access goes with the turns, and how far from their number."""
        for axis, index in enumerate(access.indices):
            if isinstance(index, Affine) and index.terms == ((self.turn, 1),):
                yield axis, index.constant

    # what is written before the block of what its turns write

    def begun(self) -> list[Einsum]:
        """What each turn begins with, of steps before the block that write it for all of them."""
        written = dict[Access, Einsum]()
        for step in self.source.steps[: self.place]:
            own = [e for e in step.body if e.name in self.offsets]
            rows = [e.output.indices[self.offsets[e.name][0]] for e in own]
            if all(isinstance(i, Affine) and not i.terms for i in rows):
                self.before = self.before_turns(step, own)
                self.first += step.body if own and isinstance(step, Einsum) else ()
            elif isinstance(step, Einsum) and not (step.accesses or step.positions):
                axis, offset = self.offsets[step.name]
                self.before += self.left(step, axis, range(offset, offset + self.turns))
                now, (column, others) = self.now(step), self.inner_axis(step.name)
                is_one = not now.output.indices[column].variables
                written |= {e.output: e for e in ([now] if is_one else self.left(now, column, others))}
            else:
                self.before += self.edged(step, own)
                outputs = [self.now(e).output for e in own]
                edges = (self.at_edge(o, self.inner_axis(o.tensor)[0]) for o in outputs)
                written |= {o: Einsum(o, (e,), place=step.place) for o, e in zip(outputs, edges, strict=True)}
        return [*written.values()]

    def now(self, einsum: Einsum) -> Einsum:
        """An Einsum for the place of one turn."""
        axis, offset = self.offsets[einsum.name]
        return _moved(einsum, axis, Affine(((self.turn, 1),), offset))

    def inner_axis(self, tensor: str) -> tuple[int, range]:
        """The axis along which a block in the block writes a tensor, and where.

        Raises:
            NoRecurrenceError: if none does.
        """
        inner = (e for e in self.block.body if e.name == tensor and e.turning)
        axes = ((e, n, i) for e in inner for n, i in enumerate(e.output.indices) if isinstance(i, Affine))
        own = (
            (n, i.constant, self.source.extent(e.turning, e)) for e, n, i in axes if e.turning in i.variables
        )
        for axis, first, extent in own:
            return axis, range(first, first + extent)
        raise NoRecurrenceError(f"{tensor} is written before the block")

    def left(self, einsum: Einsum, axis: int, others: range) -> Iterator[Einsum]:
        """An Einsum at each place along an axis that no other writes."""
        index = einsum.output.indices[axis]
        extents = [self.source.extent(v, einsum) for v in index.variables]
        first = index.constant if isinstance(index, Affine) else 0
        places = [n for n in range(first, first + prod(extents)) if n not in others]
        if len(places) > MOST_ROWS:
            raise NoRecurrenceError(f"{einsum.output} is written before the block")
        yield from (_moved(einsum, axis, Affine((), place)) for place in places)

    def edged(self, step: Step, own: Sequence[Einsum]) -> Iterator[Step]:
        """A step that writes one column for all turns as a tensor of its own, behind what it goes on from."""
        for einsum in own:
            axis, _ = self.inner_axis(einsum.name)
            column = einsum.output.indices[axis]
            if column.variables or (einsum.name, axis) in self.edges:
                raise NoRecurrenceError(f"{einsum.output} is written before the block")
            self.apart(einsum, axis)
            before = (e for e in self.first if e.name == einsum.name)
            begun = (_moved(e, axis, column) if e.output.indices[axis].variables else e for e in before)
            yield from (self.in_edges(e, axis) for e in begun if e.output.indices[axis] == column)
        yield step.with_body(self.in_edges(e, axis) for e in step.body)
        for einsum in own:
            row, offset = self.offsets[einsum.name]
            copy = Einsum(einsum.output, (self.at_edge(einsum.output, axis),), place=einsum.place)
            yield from self.left(copy, row, range(offset, offset + self.turns))

    def apart(self, einsum: Einsum, axis: int) -> None:
        """Declare a tensor of what a tensor has at one place along an axis."""
        tensor, index = einsum.name, einsum.output.indices[axis]
        ranks = self.source.tensors[tensor].ranks
        name = self.added.tensor(f"{tensor}_edge", (*ranks[:axis], *ranks[axis + 1 :]), tensor, Kind.STATE)
        self.edges[tensor, axis] = name, index

    def in_edges(self, einsum: Einsum, axis: int) -> Einsum:
        """An Einsum on tensors of edges along an axis."""
        return einsum.changing(lambda access: self.at_edge(access, axis))

    def at_edge(self, access: Access, axis: int) -> Access:
        """An access of an edge along an axis as one of the tensor that has it alone."""
        edge, index = self.edges.get((access.tensor, axis), ("", Affine()))
        if not edge or access.indices[axis] != index:
            return access
        return replace(access.with_axis(axis), tensor=edge)

    def before_turns(self, step: Step, own: Sequence[Einsum]) -> list[Step]:
        """Steps up to one of what is there before the first turn; what turns write is another tensor."""
        if isinstance(step, Einsum) or not own:
            return [*self.before, step]
        axis, tensor = self.offsets[own[0].name][0], own[0].name
        self.apart(own[0], axis)
        written = [e for s in (*self.before, step) for e in s.body if e.name == tensor]
        steps = [s.with_body(self.in_edges(e, axis) for e in s.body) for s in (*self.before, step)]
        copies = [Einsum(e.output, (self.at_edge(e.output, axis),), place=e.place) for e in written]
        return [*steps, *(c for c in copies if c.reads != (tensor,))]

    # one turn by itself

    def cascade(self, taken_apart: Taken) -> Cascade:
        """The cascade with scans in the block."""
        steps = list[Step]()
        for inner, own in groupby(self.body, key=lambda e: e.turning):
            body = [self.short(replace(e, recurrence=None) if inner else e) for e in own]
            steps += [Iterate(inner, tuple(body), body[0].place)] if inner else body
        written = tuple(dict.fromkeys(e.name for e in self.body))
        sizes = {**self.source.sizes, self.turn.upper(): self.turns}
        nested = replace(self.source, tensors=self.tensors, steps=tuple(steps), outputs=written, sizes=sizes)
        for number in reversed(range(len(nested.blocks))):
            nested = taken_apart(nested, nested.blocks[number])
        every = [self.long(e) for e in _with_fewer(nested.einsums)]
        behind = self.source.steps[self.place + 1 :]
        around = {t for step in (*self.before, *behind) for e in step.body for t in e.reads}
        block = Iterate(self.turn, _needed(every, {*self.source.outputs, *around}), self.body[0].place)
        others = {name for (_, apart), name in self.names.items() if apart}
        tensors = {n: t for n, t in nested.tensors.items() if n not in others} | {**self.source.tensors}
        whole = self.added.applied((*self.before, block, *behind))
        return replace(whole, tensors=tensors, sizes=nested.sizes)

    def short(self, einsum: Einsum) -> Einsum:
        """An Einsum as one turn sees it."""
        return einsum.changing(self.in_turn).renamed({self.turn: self.number})

    def in_turn(self, access: Access) -> Access:
        """An access without the rank of the turns, if it is of a tensor that they write."""
        if access.tensor not in self.offsets:
            return access
        axis, offset = self.offsets[access.tensor]
        apart = next((offset - there for n, there in self.own_axes(access) if n == axis), None)
        if apart is None or apart < 0:
            raise NoRecurrenceError(f"it reads {access}, which other turns write")
        return replace(access.with_axis(axis), tensor=self.name(access.tensor, axis, apart))

    def name(self, tensor: str, axis: int, apart: int) -> str:
        """The name of a tensor as so many turns before left it; its own for the present turn."""
        key = tensor, apart
        if key not in self.names:
            name = unused(f"{tensor}_{apart}_ago", self.tensors) if apart else tensor
            ranks = self.source.tensors[tensor].ranks
            self.tensors[name] = Tensor(name, (*ranks[:axis], *ranks[axis + 1 :]))
            self.names[key] = name
        return self.names[key]

    def long(self, einsum: Einsum) -> Einsum:
        """An Einsum of one turn as one of the block."""
        return replace(einsum.renamed({self.number: self.turn}).changing(self.of_turns), text="")

    def of_turns(self, access: Access) -> Access:
        """An access of one turn as one of all."""
        for (tensor, apart), name in self.names.items():
            if name == access.tensor:
                axis, offset = self.offsets[tensor]
                own: Index = Affine(((self.turn, 1),), offset - apart)
                indices = (*access.indices[:axis], own, *access.indices[axis:])
                return replace(access, tensor=tensor, indices=indices)
        return access


def _moved(einsum: Einsum, axis: int, index: Index) -> Einsum:
    """An Einsum whose output has another index along an axis, and whose variable there has its value."""
    own = einsum.output.indices[axis]
    assert isinstance(index, Affine)
    if not isinstance(own, Affine) or [c for _, c in own.terms] != [1]:
        raise NoRecurrenceError(f"{einsum.output} is written before the block")
    value = replace(index, constant=index.constant - own.constant)
    return replace(einsum.replaced({own.terms[0][0]: value}), text="")


def _with_fewer(einsums: Sequence[Einsum]) -> Iterator[Einsum]:
    """Einsums whose scans take an operator along that their coefficients have in common.

    min(S + a, u + a) is min(S, u) + a.
    """
    makers = {e.name: e for e in einsums}
    for scan in einsums:
        known, (first, second) = scan.recurrence, (*scan.operands, *scan.operands)[:2]
        maker = makers.get(second.tensor) if isinstance(second, Access) else None
        if known is None or maker is None or (known.op0, known.op1) not in DISTRIBUTED:
            yield scan
            continue
        is_common = maker.map_op == known.op0 and first in maker.operands and not maker.is_bound
        other = next((o for o in maker.operands if o != first), first)
        own = replace(known, op0=known.op1, op1=known.op0)
        operands = (other, first, *scan.operands[2:])
        yield replace(scan, operands=operands, recurrence=own) if is_common else scan


def _needed(einsums: Sequence[Einsum], wanted: Set[str]) -> tuple[Einsum, ...]:
    """Einsums that write what is wanted, or what others need."""
    read = {t for e in einsums for t in e.reads} | wanted
    rest = [e for e in einsums if e.name in read]
    return _needed(rest, wanted) if len(rest) < len(einsums) else tuple(rest)
