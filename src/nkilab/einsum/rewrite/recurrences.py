"""Iterate blocks as Einsums over all iterations, and a scan for each state.

What an iteration computes without what another one left is computed for all of them. Where values follow from
the iteration before, they are a scan, `S[t+1] = (a[t] op0 S[t]) op1 b[t]`, of which a and b are free of S:
`states.py` brings Einsums that need each other to that form. A block that cannot be taken apart stays as it
is, and the reason is text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...errors import UnsupportedError
from ..language.additions import Additions, free_variable
from ..language.ast import Cascade, Condition, Einsum, Iterate, Kind, Recurrence, Step, block_extent
from ..language.indices import Access, Affine, Operand, Scalar, affine, plain
from ..language.operators import OPERATORS
from .coefficients import NoRecurrenceError
from .inner_scans import with_inner_scans
from .states import Places, Reduction, declared, emitted, renamed

# of a block that stays
STEPWISE = "is lowered step by step because"


def with_scans(cascade: Cascade) -> tuple[Cascade, dict[str, str]]:
    """The cascade without the blocks that are scans, and why the others stay, by what each hands on.

    Raises:
        UnsupportedError: if one in a block is no scan, or indices that tensors hold read what counts down.
    """
    reasons, cascade = {}, with_inner_scans(cascade, _taken_apart)
    # a block changes what stands behind it
    for number in reversed(range(len(cascade.blocks))):
        cascade, block = _with_constants_ahead(cascade, cascade.blocks[number])
        try:
            cascade = _Distribution(cascade, block).cascade()
        except NoRecurrenceError as reason:
            cascade, block = _upwards(cascade, block)
            state, chain = _chain(block)
            reasons[state] = f"{chain} {STEPWISE} {reason}"
            cascade = _with_numbers_ahead(cascade, block)
    return cascade, reasons


def _taken_apart(cascade: Cascade, block: Iterate) -> Cascade:
    """The cascade with a block taken apart."""
    return _Distribution(*_with_constants_ahead(cascade, block)).cascade()


def with_first_values(cascade: Cascade) -> Cascade:
    """The cascade, every Einsum of which is needed, with scans that write their first value like the others.

    `S[0] = X[0]` and `S[t+1] = S[t] + X[t+1]` are one scan over X, which begins with 0.
    """
    added = Additions(cascade)
    begun = {e.name: turn for e in cascade.einsums if (turn := _begun(e, cascade, added))}

    def changed(einsum: Einsum) -> Einsum:
        known = einsum.recurrence
        source = einsum.name if known is None or known.kind == "scan" else einsum.reads[0]
        if known is None or source not in begun:
            return einsum
        place = {known.variable: affine([(begun[source], 1)], 0 if known.is_descending else -1)}
        own = einsum.replaced(place)
        start = [Scalar(value=OPERATORS[known.op1].identity or 0.0)] if known.op1 else []
        operands = (*own.operands[: 2 if start else 1], *start)
        return replace(
            own, operands=operands, recurrence=replace(known, variable=begun[source], has_first=False)
        )

    steps = tuple(s.with_body(map(changed, s.body)) for s in cascade.steps)
    return added.applied(steps) if begun else cascade


def _begun(scan: Einsum, cascade: Cascade, added: Additions) -> str:
    """The variable of a new rank over which a scan writes its first value too; "" if none may be."""
    known = scan.recurrence
    if known is None or not known.has_first:
        return ""
    first, second, initial = scan.operands
    turns, nothing = cascade.extent(known.variable, scan), OPERATORS[known.op1].identity
    begin = {known.variable: affine([], turns if known.is_descending else -1)}
    readers = [e for e in cascade.einsums if e.recurrence and e is not scan and scan.output in e.operands]
    is_next = second.replaced(begin) == initial
    if nothing is None or not is_next or not all(e.is_last for e in readers):
        return ""
    number = first.value if isinstance(first, Scalar) and not first.name else None
    same = first == second and known.op0 == known.op1 and nothing != 0.0
    kept = number is not None and OPERATORS[known.op0].function(number, nothing) == nothing
    is_kept = same or (kept and not (known.reverse0 or known.reverse1))
    return added.rank(f"{known.variable.upper()}_ALL", turns + 1).lower() if is_kept else ""


def _ahead(block: Iterate, may: Callable[[Einsum], bool]) -> tuple[list[Einsum], tuple[Einsum, ...]]:
    """The Einsums of a block that may come before it, as they need nothing of the others; and the rest."""
    ahead: list[Einsum] = []
    for number, einsum in enumerate(block.body):
        others = {e.name for e in block.body if e is not einsum and e not in ahead}
        read_before = {t for e in block.body[:number] for t in e.reads}
        is_apart = not {einsum.name, *einsum.reads} & others
        if is_apart and einsum.name not in {*einsum.reads, *read_before} and may(einsum):
            ahead.append(einsum)
    return ahead, tuple(e for e in block.body if e not in ahead)


def _with_constants_ahead(cascade: Cascade, block: Iterate) -> tuple[Cascade, Iterate]:
    """The cascade with what every iteration computes alike before a block, and that block."""

    def is_constant(einsum: Einsum) -> bool:
        return block.variable not in einsum.variables

    ahead, rest = _ahead(block, is_constant)
    if not ahead or not rest:
        return cascade, block
    place, left = cascade.steps.index(block), replace(block, body=rest)
    steps = (*cascade.steps[:place], *ahead, left, *cascade.steps[place + 1 :])
    return replace(cascade, steps=steps), left


def _with_numbers_ahead(cascade: Cascade, block: Iterate) -> Cascade:
    """The cascade with what is one number an iteration, and needs no other, computed before its block."""

    def is_number(einsum: Einsum) -> bool:
        is_plain = not (einsum.reduce_op or einsum.condition or any(a.gathers for a in einsum.accesses))
        own = tuple(i.plain for i in einsum.output.indices)
        return is_plain and einsum.variables == own == (block.variable,)

    ahead, rest = _ahead(block, is_number)
    if not ahead or not rest:
        return cascade
    added, picked = Additions(cascade), list[Step]()

    def of_rows(access: Access) -> Access:
        """A diagonal, picked out of its rows, which come in few long transfers."""
        if [i.plain for i in access.indices] != [block.variable] * 2:
            return access
        column = Affine(((free_variable(f"{block.variable}_column", cascade), 1),))
        turn, ranks = access.indices[0], cascade.tensors[access.tensor].ranks
        name = added.tensor(f"{access.tensor}_diagonal", ranks[:1], access.tensor, Kind.DIAGONAL)
        assert isinstance(turn, Affine)
        rows, diagonal = replace(access, indices=(turn, column)), Access(name, (turn,))
        is_own = Condition(column, "==", turn)
        picked.append(Einsum(diagonal, (rows,), reduce_op="add", condition=is_own))
        return diagonal

    before = [e.reading(of_rows) for e in ahead]
    place = cascade.steps.index(block)
    steps = (*cascade.steps[:place], *picked, *before, replace(block, body=rest), *cascade.steps[place + 1 :])
    return added.applied(steps)


def _upwards(cascade: Cascade, block: Iterate) -> tuple[Cascade, Iterate]:
    """The cascade with a block that counts down as one that counts up, and that block.

    What it writes lies in the order of its turns; outputs are copied out of that.
    """
    if not _counts_down(block):
        return cascade, block
    added, copies = Additions(cascade), list[Einsum]()
    falling = {e.name: axes for e in block.body if (axes := _falling(e.output, block.variable))}
    names = {t: added.tensor(f"{t}_turns", cascade.tensors[t].ranks, t, Kind.NOW) for t in falling}

    def upwards(access: Access) -> Access:
        if access.tensor not in falling:
            return access
        return replace(_from_end(access, falling[access.tensor], cascade), tensor=names[access.tensor])

    bodies = ([e.changing(upwards) for e in s.body] for s in cascade.steps)
    steps = [step.with_body(body) for step, body in zip(cascade.steps, bodies, strict=True)]
    for tensor in falling:
        ranks = enumerate(added.tensors.pop(tensor).ranks)
        whole = Access(tensor, plain(free_variable(f"{r.lower()}_{n}", cascade) for n, r in ranks))
        copies.append(Einsum(whole, (upwards(whole),), place=block.place))
    copies = [e for e in copies if e.name in cascade.outputs]
    added.tensors |= {e.name: cascade.tensors[e.name] for e in copies}
    return added.applied((*steps, *copies)), steps[cascade.steps.index(block)]  # type: ignore[return-value]


def _counts_down(block: Iterate) -> bool:
    """Whether iterations write what stands before that of the iteration before."""
    return any(_falling(e.output, block.variable) for e in block.body)


def _falling(access: Access, variable: str) -> list[int]:
    """Axes whose index falls as a variable grows."""
    indices = enumerate(access.indices)
    return [n for n, i in indices if isinstance(i, Affine) and i.coefficient(variable) < 0]


def _from_end(access: Access, axes: Sequence[int], cascade: Cascade) -> Access:
    """An access with axes counted from their other ends."""
    indices, shape = [*access.indices], cascade.shape(access.tensor)
    for n in axes:
        index = indices[n]
        if not isinstance(index, Affine):
            error = UnsupportedError(f"{index} is an index of {access.tensor}, of which a block counts down")
            raise error.located(str(access.place), "einsum.expressions")
        indices[n] = affine([(v, -c) for v, c in index.terms], shape[n] - 1 - index.constant)
    return replace(access, indices=tuple(indices))


def _chain(block: Iterate) -> tuple[str, str]:
    """What is read before it is written, and a block in a few words: from which value of it to which."""
    written = {e.name: e.output for e in block.body}
    reads = ((a, written[a.tensor]) for e in block.body for a in e.accesses if a.tensor in written)
    read, output = next(((a, o) for a, o in reads if str(a) != str(o)), (None, block.body[-1].output))
    chain = f"the block over {block.variable}" if read is None else f"the chain {read} -> {output}"
    return output.tensor, chain


class _Distribution:
    """Takes one block apart."""

    def __init__(self, cascade: Cascade, block: Iterate) -> None:
        self.source, self.variable, self.extent = cascade, block.variable, block_extent(block, cascade)
        for scan in (e for e in block.body if e.recurrence and e.recurrence.kind == "scan"):
            raise NoRecurrenceError(f"{scan.name} goes through {scan.along[0]} in order in each turn")
        place = cascade.steps.index(block)
        self.before, self.behind = cascade.steps[:place], cascade.steps[place + 1 :]
        self.body = self.upwards(block) if _counts_down(block) else list(block.body)
        self.places = Places(cascade, self.body, block.variable, _counts_down(block))
        self.added = Additions(cascade)
        self.steps: list[Einsum] = []
        self.lasts: dict[str, Access] = {}
        self.previous: dict[str, Access] = {}
        self.firsts: dict[str, list[Einsum]] = {}

    def upwards(self, block: Iterate) -> list[Einsum]:
        """The Einsums of a block that counts down, its variable counted the other way round."""
        accesses = (a for e in block.body for a in e.every_access)
        for access in (a for a in accesses if any(self.variable in g.variables for g in a.gathers)):
            raise NoRecurrenceError(f"{access} is gathered in a block that counts down")
        body = [e.counted_back({self.variable: self.extent}) for e in block.body]
        outside = {t for e in self.outside() for t in (e.name, *e.reads)} | {*self.source.outputs}
        own = {e.name: _falling(e.output, self.variable) for e in body if e.name not in outside}

        def in_order(access: Access) -> Access:
            """What the block alone reads, in the order of its turns."""
            return _from_end(access, own.get(access.tensor, ()), self.source)

        return [e.changing(in_order) for e in body]

    def cascade(self) -> Cascade:
        """The cascade with the block taken apart.

        Raises:
            NoRecurrenceError: if that is not possible.
        """
        needs = [self.needed(n, e) for n, e in enumerate(self.body)]
        for middle, one in ((m, n) for m in range(len(needs)) for n in needs):
            one |= needs[middle] if middle in one else set()
        cycles = {
            frozenset({n, *(m for m in own if n in needs[m])}) for n, own in enumerate(needs) if n in own
        }
        if not cycles:
            raise NoRecurrenceError("no iteration needs another")
        cyclic = {n for c in cycles for n in c}
        self.need_no_wide_results([self.body[n] for n in cyclic])
        for cycle in sorted(cycles, key=min):
            self.scan([self.body[n] for n in sorted(cycle)])
        self.steps += [e for n, e in enumerate(self.body) if n not in cyclic]
        self.behind = tuple(s.with_body(e.reading(self.last) for e in s.body) for s in self.behind)
        self.steps = self.ordered([self.over_all(e) for e in self.steps])
        own = tuple(map(self.with_first, self.steps))
        sizes = {self.variable.upper(): self.extent, **self.source.sizes}
        steps = (*self.beginnings(own), *own, *self.behind)
        return replace(self.added.applied(steps), sizes=sizes)

    def needed(self, reader: int, einsum: Einsum) -> set[int]:
        """Einsums of the block that one of them reads."""
        if {g.access.tensor for a in einsum.accesses for g in a.gathers} & set(self.places.axes):
            raise NoRecurrenceError(f"{einsum.name} reads indices that iterations compute")
        names = [e.name for e in self.body]
        reads = [a for a in einsum.accesses if a.tensor in names]
        for access in reads:
            apart = self.places.distance(access)
            if apart < 0 or (not apart and reader <= names.index(access.tensor)):
                raise NoRecurrenceError(f"{einsum.name} reads {access} before it is written")
        return {names.index(a.tensor) for a in reads}

    def need_no_wide_results(self, scanned: Sequence[Einsum]) -> None:
        """Refuse results of more ranks than any state, of which an iteration needs its own part alone."""
        lanes = [set(e.output.variables) for e in scanned]
        for einsum in (e for e in self.body if e.name not in self.source.outputs):
            if not any(set(einsum.output.variables) <= own for own in lanes):
                raise NoRecurrenceError(f"{einsum.output} of all iterations takes more room than any state")

    def ordered(self, waiting: list[Einsum]) -> list[Einsum]:
        """Einsums, each behind those that it needs, those of few ranks first.

        What has the ranks of a state stands together, and may run in the nest of its scan.
        """
        done: list[Einsum] = []
        while waiting:
            missing = {e.name for e in waiting}
            ready = [e for e in waiting if not missing & {t for t in e.reads if t != e.name}]
            done.append(min(ready, key=lambda e: len(e.variables)))
            waiting.remove(done[-1])
        return done

    # states

    def scan(self, component: Sequence[Einsum]) -> None:
        """Add the scan of Einsums that need each other, and those of them besides the state."""
        reduction = Reduction(self.places, component)
        state, form = reduction.state, reduction.form()
        lanes = tuple(v for v in state.output.variables if v != self.variable)
        initial = self.initial(state, lanes)
        first, second = (
            emitted(c, state, self.added, self.places, self.steps) for c in (form.first, form.second)
        )
        text = f"{state.output}: a scan over {self.variable} of {first} . {second} . {initial}"
        kind = Recurrence(self.variable, "scan", self.places.is_descending, False, form.op0, form.op1,
                          form.reverse0, form.reverse1)  # fmt: skip
        operands = (first, second, initial)
        self.steps.append(replace(state, operands=operands, map_op="", recurrence=kind, text=text))
        for name, variables, begins in (("before", state.output.variables, (initial,)), ("last", lanes, ())):
            access = declared(f"{state.name}_{name}", variables, state, self.added, self.places)
            text = f"{access}: {state.output}, {'one iteration before' if begins else 'the last'}"
            own = Recurrence(self.variable, name, self.places.is_descending)
            self.steps.append(Einsum(access, (state.output, *begins), recurrence=own, text=text))
            (self.previous if begins else self.lasts)[state.name] = access
        self.steps += [e for e in component if e is not state]

    def over_all(self, einsum: Einsum) -> Einsum:
        """An Einsum over all iterations, which reads states as they were before each from another tensor."""

        def read(operand: Access) -> Access:
            if operand.tensor not in self.previous:
                return operand
            output = next(e.output for e in self.body if e.name == operand.tensor)
            is_own = self.places.lanes(operand) == self.places.lanes(output)
            return self.previous[operand.tensor] if is_own and self.places.distance(operand) == 1 else operand

        if einsum.recurrence is None:
            return einsum.reading(read)
        # the coefficients of a scan may be another state; what it begins with stands before all
        coefficients, rest = einsum.operands[:2], einsum.operands[2:]
        own = (read(o) if isinstance(o, Access) else o for o in coefficients)
        return replace(einsum, operands=(*own, *rest)) if einsum.recurrence.kind == "scan" else einsum

    def initial(self, state: Einsum, lanes: tuple[str, ...]) -> Operand:
        """What a state is before the first iteration."""
        setting = [e for e in self.outside() if e.name == state.name]
        if not setting:
            return Scalar(value=0.0)
        first, inner = setting[0], list(setting[0].output.indices)
        del inner[self.places.axes[state.name]]
        is_before = any(first is s for s in self.before) and self.places.at(first.output) == self.end(
            state.name, 0
        )
        if len(setting) > 1 or not is_before:
            raise NoRecurrenceError(
                f"{state.name} is written outside of the block, other than before it begins"
            )
        names = {i.plain: v for i, v in zip(inner, lanes, strict=True)}
        if "" in names or len(names) < len(inner):
            raise NoRecurrenceError(f"{first.output} sets a part of the first values")
        self.firsts[state.name] = []
        if not (first.map_op or first.reduce_op or first.condition or first.positions):
            return renamed(first.operands[0], names)
        access = declared(f"{state.name}_first", lanes, state, self.added, self.places)
        own = renamed(access, {v: k for k, v in names.items()})
        assert isinstance(own, Access)
        self.firsts[state.name] = [replace(first, output=own, text="")]
        return access

    def end(self, tensor: str, number: int) -> int:
        """The index of a state before the first iteration, or after as many as `number` says, 0 or all."""
        low = self.places.offsets[tensor]
        return low + self.extent - number if self.places.is_descending else low - 1 + number

    def outside(self) -> Iterator[Einsum]:
        """Einsums of other steps."""
        for step in (*self.before, *self.behind):
            yield from step.body

    # first and last values

    def last(self, operand: Access) -> Access:
        """An operand behind the block, the last of a state from a tensor of its own."""
        if operand.tensor not in self.lasts:
            return operand
        if self.places.at(operand) != self.end(operand.tensor, self.extent):
            return operand
        inner = operand.with_axis(self.places.axes[operand.tensor])
        return replace(self.lasts[operand.tensor], indices=inner.indices)

    def with_first(self, einsum: Einsum) -> Einsum:
        """A scan that writes what it begins with too, if it is read or returned."""
        if einsum.name not in self.lasts or einsum.recurrence is None:
            return einsum
        readers = (*(e for e in self.steps if e.recurrence is None), *self.outside())
        every = (a for e in readers for a in e.accesses)
        others = {str(a) for a in every if a.tensor == einsum.name} - {str(einsum.output)}
        is_read = bool(others) or (einsum.name in self.source.outputs and einsum.name in self.firsts)
        size = self.source.shape(einsum.name)[self.places.axes[einsum.name]]
        is_read &= 0 <= self.end(einsum.name, 0) < size
        return replace(einsum, recurrence=replace(einsum.recurrence, has_first=is_read))

    def beginnings(self, own: Sequence[Einsum]) -> Iterator[Step]:
        """The steps before the block, and the zeros that iterations read where nothing is written before."""
        for step in self.before:
            yield from self.firsts.get(step.name, [step]) if isinstance(step, Einsum) else (step,)
        known = {*(e.name for e in self.outside()), *self.lasts}
        reads = [a for e in own for a in e.accesses if a.tensor in self.places.axes and a.tensor not in known]
        for access in {(a.tensor, self.places.distance(a)): a for a in reads}.values():
            yield from self.zeros(access)

    def zeros(self, access: Access) -> Iterator[Einsum]:
        """What an access reads before the first iteration, if its tensor has places for that."""
        axis, size = self.places.axes[access.tensor], self.source.shape(access.tensor)
        ends = (self.end(access.tensor, -back) for back in range(self.places.distance(access)))
        for at in (e for e in ends if 0 <= e < size[axis]):
            place = tuple(Affine(constant=at) if n == axis else i for n, i in enumerate(access.indices))
            yield Einsum(Access(access.tensor, place), (Scalar(value=0.0),))
