"""Iterate blocks as Einsums over all iterations, and a scan for each state.

What an iteration computes without what another one left is computed for all of them. Where values follow from
the iteration before, they are a scan, `S[t+1] = (a[t] op0 S[t]) op1 b[t]`, of which a and b are free of S:
Einsums that need each other are brought to that form by algebra. A block that cannot be taken apart stays as
it is, and the reason is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import UnsupportedError
from ..language.ast import (
    Access,
    Affine,
    Cascade,
    Condition,
    Einsum,
    Gather,
    Index,
    Iterate,
    Operand,
    Recurrence,
    Scalar,
    Step,
    Tensor,
    affine,
)  # fmt: skip
from ..language.extents import block_extent
from ..language.operators import OPERATORS
from ..language.places import located
from .coefficients import (
    ONE,
    Applied,
    Coefficient,
    Factor,
    Form,
    NoRecurrenceError,
    factor,
    number,
    scan_form,
    together,
)  # fmt: skip


# of a block that stays
STEPWISE = "is lowered step by step because"


def with_scans(cascade: Cascade) -> tuple[Cascade, list[str]]:
    """The cascade without the blocks that are scans, and why the others stay.

    Raises:
        UnsupportedError: if a block that stays counts down.
    """
    reasons = []
    for block in (s for s in cascade.steps if isinstance(s, Iterate)):
        if block_extent(block, cascade) == 1:
            cascade = _unrolled(cascade, block)
            continue
        try:
            cascade = _Distribution(cascade, block).cascade()
        except NoRecurrenceError as reason:
            reasons.append(f"{_chain(block)} {STEPWISE} {reason}")
            _need_ascending(block, reason)
    return cascade, reasons


def _unrolled(cascade: Cascade, block: Iterate) -> Cascade:
    """A block of one iteration as its Einsums."""
    only = {block.variable: 0}

    def at(index: Index) -> Index:
        return index.at(only) if isinstance(index, Affine) else Gather(access(index.access))

    def access(given: Access) -> Access:
        return replace(given, indices=tuple(map(at, given.indices)))

    def changed(einsum: Einsum) -> Einsum:
        operands = tuple(access(o) if isinstance(o, Access) else o for o in einsum.operands)
        asked = einsum.condition
        if asked is not None:
            asked = replace(asked, left=asked.left.at(only), right=asked.right.at(only))
        return replace(einsum, output=access(einsum.output), operands=operands, condition=asked)

    place, body = cascade.steps.index(block), [changed(e) for e in block.body]
    outside = {e.name for e, b in cascade.walk() if b is not block}
    own, written = {e.name for e in body} - outside, {str(e.output) for e in body}
    unset = {str(a): a for e in body for a in e.accesses if a.tensor in own and str(a) not in written}
    zeros = (Einsum(a, (Scalar(value=0.0),)) for a in unset.values() if is_inside(a, cascade))
    return replace(cascade, steps=(*cascade.steps[:place], *zeros, *body, *cascade.steps[place + 1 :]))


def is_inside(access: Access, cascade: Cascade) -> bool:
    """Whether the numbers among the indices of an access are places of its tensor."""
    known = ((i.at(cascade.sizes), n) for i, n in zip(access.indices, cascade.shape(access.tensor), strict=True)
             if isinstance(i, Affine))  # fmt: skip
    return all(i.terms or 0 <= i.constant < n for i, n in known)


def _need_ascending(block: Iterate, reason: NoRecurrenceError) -> None:
    """Refuse a block that counts down and is no scan."""
    told = f"the block over {block.variable} counts down, which scans alone do; it is none because {reason}"
    for einsum in block.body:
        for index in (i for i in einsum.output.indices if isinstance(i, Affine)):
            if index.coefficient(block.variable) < 0:
                error = UnsupportedError(told, hint="count the variable the other way round")
                raise located(error, einsum, einsum.output) from None


def _chain(block: Iterate) -> str:
    """A block in a few words: from which value to which, of the tensor that is read before it is written."""
    written = {e.name: e.output for e in block.body}
    reads = ((a, written[a.tensor]) for e in block.body for a in e.accesses if a.tensor in written)
    read, output = next(((a, o) for a, o in reads if str(a) != str(o)), (None, None))
    return f"the chain {read} -> {output}" if read is not None else f"the block over {block.variable}"


@dataclass(frozen=True)
class _Place:
    """Where iterations write a tensor: along which axis, how far from their own index, by which Einsum."""

    axis: int
    offset: int
    number: int


class _Distribution:
    """Takes one block apart.

    Args:
        cascade: every rank has an extent.
        block: one of its steps.
    """

    def __init__(self, cascade: Cascade, block: Iterate) -> None:
        self.given, self.variable, self.extent = cascade, block.variable, block_extent(block, cascade)
        self.before = cascade.steps[: cascade.steps.index(block)]
        self.behind = cascade.steps[len(self.before) + 1 :]
        self.is_descending = any(self._coefficient(i) < 0 for e in block.body for i in e.output.indices)
        self.body = [self.ascending(e) for e in block.body] if self.is_descending else list(block.body)
        self.tensors, self.sizes = dict(cascade.tensors), dict(cascade.sizes)
        self.sizes.setdefault(self.variable.upper(), self.extent)
        self.places = {e.name: self.place(n, e) for n, e in enumerate(self.body)}
        self.steps: list[Einsum] = []
        self.lasts: dict[str, Access] = {}
        self.previous: dict[str, Access] = {}
        self.firsts: dict[str, list[Einsum]] = {}

    # indices

    def known(self, index: Index) -> Affine:
        """An index with the extents that it has.

        Raises:
            NoRecurrenceError: if it is gathered.
        """
        if not isinstance(index, Affine):
            raise NoRecurrenceError(f"{index} is an index")
        return index.at(self.given.sizes)

    def _coefficient(self, index: Index) -> int:
        return index.coefficient(self.variable) if isinstance(index, Affine) else 0

    def ascending(self, einsum: Einsum) -> Einsum:
        """An Einsum of a block that counts down, with the variable counted the other way round."""

        def counted(index: Index) -> Index:
            c = self._coefficient(index)
            if not c or not isinstance(index, Affine):
                return index
            terms = [(n, -d if n == self.variable else d) for n, d in index.terms]
            held = affine(terms, index.constant + c * (self.extent - 1))
            return held.at(self.given.sizes)

        def access(operand: Operand) -> Operand:
            if isinstance(operand, Scalar):
                return operand
            if any(self.variable in g.variables for g in operand.gathers):
                raise NoRecurrenceError(f"{operand} is gathered in a block that counts down")
            return replace(operand, indices=tuple(map(counted, operand.indices)))

        output, operands = access(einsum.output), tuple(map(access, einsum.operands))
        asked = einsum.condition
        if asked is not None and self.variable in asked.variables:
            left, right = counted(asked.left), counted(asked.right)
            assert isinstance(left, Affine)
            assert isinstance(right, Affine)
            asked = Condition(left, asked.relation, right)
        assert isinstance(output, Access)
        return replace(einsum, output=output, operands=operands, condition=asked, text="")

    def place(self, number: int, einsum: Einsum) -> _Place:
        """Where an Einsum of the block writes."""
        axes = [n for n, i in enumerate(einsum.output.indices) if self.variable in i.variables]
        index = self.known(einsum.output.indices[axes[0]]) if len(axes) == 1 else Affine()
        if index.terms != ((self.variable, 1),):
            raise NoRecurrenceError(f"iterations do not write {einsum.output} one after the other")
        if any(e.name == einsum.name for e in self.body[:number]):
            raise NoRecurrenceError(f"an iteration writes {einsum.name} twice")
        return _Place(axes[0], index.constant, number)

    def distance(self, access: Access) -> int:
        """How many iterations before its own an access finds the element that it reads written."""
        place = self.places[access.tensor]
        others = [i for n, i in enumerate(access.indices) if n != place.axis]
        index = self.known(access.indices[place.axis])
        if index.terms != ((self.variable, 1),) or any(self._coefficient(i) for i in others):
            raise NoRecurrenceError(f"it reads {access}, which many iterations write")
        apart = place.offset - index.constant
        return -apart if self.is_descending else apart

    # dependences

    def components(self) -> list[list[int]]:
        """Einsums that need each other, by number, each component behind those that it needs."""
        needs = [self.needed(n, e) for n, e in enumerate(self.body)]
        reach = [set(n) for n in needs]
        for middle in range(len(reach)):
            for one in (r for r in reach if middle in r):
                one |= reach[middle]
        parts = [[m for m in range(len(reach)) if m == n or (m in reach[n] and n in reach[m])]
                 for n in range(len(reach))]  # fmt: skip
        ordered: list[list[int]] = []
        while len({n for p in ordered for n in p}) < len(parts):
            done = {n for p in ordered for n in p}
            ordered.append(
                next(p for p in parts if not done & set(p) and all(reach[n] <= done | set(p) for n in p))
            )
        return ordered

    def needed(self, reader: int, einsum: Einsum) -> set[int]:
        """Einsums of the block that one of them reads."""
        gathered = {g.access.tensor for a in einsum.accesses for g in a.gathers}
        if gathered & set(self.places):
            raise NoRecurrenceError(f"{einsum.name} reads indices that iterations compute")
        found = set()
        for access in (a for a in einsum.accesses if a.tensor in self.places):
            distance, writer = self.distance(access), self.places[access.tensor].number
            if distance < 0 or (not distance and reader <= writer):
                raise NoRecurrenceError(f"{einsum.name} reads {access} before it is written")
            found.add(writer)
        return found

    def is_cyclic(self, component: Sequence[int]) -> bool:
        """Whether Einsums need what an iteration before computed of them."""
        return len(component) > 1 or component[0] in self.needed(component[0], self.body[component[0]])

    # the result

    def cascade(self) -> Cascade:
        """The cascade with the block taken apart.

        Raises:
            NoRecurrenceError: if that is not possible.
        """
        components = self.components()
        scans = [c for c in components if self.is_cyclic(c)]
        if not scans:
            raise NoRecurrenceError("no iteration needs another")
        self.need_no_wide_results([self.body[n] for c in scans for n in c])
        for component in components:
            if component in scans:
                self.scan([self.body[n] for n in component])
            else:
                self.steps.append(self.over_all(self.body[component[0]]))
        behind = tuple(self.read_last(s) for s in self.behind)
        steps = (*self.beginnings(), *(self.with_first(e, behind) for e in self.ordered()), *behind)
        return replace(self.given, tensors=self.tensors, steps=steps, sizes=self.sizes)

    def ordered(self) -> list[Einsum]:
        """The new Einsums, each behind those that it needs, those of few ranks first.

        What has the ranks of a state stands together, and may run in the nest of its scan.
        """
        waiting, done = list(self.steps), list[Einsum]()
        while waiting:
            missing = {e.name for e in waiting}
            ready = [e for e in waiting if not missing & {t for t in e.reads if t != e.name}]
            done.append(min(ready, key=lambda e: len(e.variables)))
            waiting.remove(done[-1])
        return done

    def need_no_wide_results(self, scanned: Sequence[Einsum]) -> None:
        """Refuse results of more ranks than any state, of which an iteration needs its own part alone."""
        lanes = [set(e.output.variables) for e in scanned]
        for einsum in self.body:
            is_wide = not any(set(einsum.output.variables) <= own for own in lanes)
            if is_wide and einsum.name not in self.given.outputs:
                raise NoRecurrenceError(f"{einsum.output} of all iterations takes more room than any state")

    def over_all(self, einsum: Einsum) -> Einsum:
        """An Einsum over all iterations, which reads the state before each from a tensor of its own."""
        operands = tuple(
            self.previous[o.tensor] if isinstance(o, Access) and self.is_previous(o) else o
            for o in einsum.operands
        )
        return einsum if operands == einsum.operands else replace(einsum, operands=operands)

    def is_previous(self, access: Access) -> bool:
        """Whether an access reads a state as the iteration before left it, at the scan's own variables."""
        if access.tensor not in self.previous or self.distance(access) != 1:
            return False
        return self.lanes(access) == self.lanes(self.body[self.places[access.tensor].number].output)

    def lanes(self, access: Access) -> list[str]:
        """The indices of an access besides that of the iteration."""
        axis = self.places[access.tensor].axis
        return [str(i) for n, i in enumerate(access.indices) if n != axis]

    # states

    def scan(self, component: Sequence[Einsum]) -> None:
        """Add the scan of Einsums that need each other, and those of them besides the state."""
        state = self.state_of(component)
        form = scan_form(_Reduction(self, component, state).form())
        initial = self.initial_of(state)
        coefficients = _Operands(self, state.output)
        operands = (coefficients.operand(form.first), coefficients.operand(form.second), initial)
        recurrence = Recurrence(
            self.variable, "scan", self.is_descending, False, form.op0, form.op1, form.reverse0, form.reverse1
        )
        told = f"{state.output}: a scan over {self.variable} of {' . '.join(map(str, operands))}"
        self.steps.append(replace(state, operands=operands, map_op="", recurrence=recurrence, text=told))
        self.previous[state.name] = self.derived(
            state, "before", state.output.variables, (state.output, initial)
        )
        self.lasts[state.name] = self.derived(state, "last", self.lane_variables(state), (state.output,))
        self.steps += [self.over_all(e) for e in component if e is not state]

    def state_of(self, component: Sequence[Einsum]) -> Einsum:
        """The one Einsum whose result the next iteration reads."""
        names = {e.name for e in component}
        reads = [(e, a) for e in component for a in e.accesses if a.tensor in names and self.distance(a)]
        states = list(dict.fromkeys(a.tensor for _, a in reads))
        if len(states) > 1:
            raise NoRecurrenceError(f"{' and '.join(states)} depend on each other")
        far = next(
            (f"{e.name} reads {a}, {d} iterations back" for e, a in reads if (d := self.distance(a)) > 1), ""
        )
        if far:
            raise NoRecurrenceError(far)
        state = next(e for e in component if e.name == states[0])
        plain = [i.plain for n, i in enumerate(state.output.indices) if n != self.places[state.name].axis]
        if not all(plain) or len(set(plain)) < len(plain):
            raise NoRecurrenceError(f"{state.output} has other indices than variables")
        return state

    def lane_variables(self, state: Einsum) -> tuple[str, ...]:
        return tuple(v for v in state.output.variables if v != self.variable)

    def derived(
        self, state: Einsum, kind: str, variables: Sequence[str], operands: tuple[Operand, ...]
    ) -> Access:
        """An access of a new tensor that has values of a state."""
        made = self.declared(f"{state.name}_{kind}", variables, state)
        recurrence = Recurrence(self.variable, kind, self.is_descending)
        text = f"{made}: {operands[0]}, {'one iteration before' if kind == 'before' else 'the last'}"
        self.steps.append(Einsum(made, operands, recurrence=recurrence, text=text))
        return made

    def declared(self, name: str, variables: Sequence[str], like: Einsum) -> Access:
        """An access of a new tensor by variables."""
        while name in self.tensors:
            name += "_"
        ranks = {i.plain: r for r, i in self.given.axes(like.output)} | {self.variable: self.variable.upper()}
        self.tensors[name] = Tensor(name, tuple(ranks[v] for v in variables))
        return Access(name, tuple(Affine(((v, 1),)) for v in variables))

    # first and last values

    def ends(self, tensor: str) -> tuple[int, int]:
        """The indices of a state before the first and after the last iteration."""
        low, high = self.places[tensor].offset, self.places[tensor].offset + self.extent - 1
        return (high + 1, low) if self.is_descending else (low - 1, high)

    def stands_at(self, access: Access) -> int | None:
        """Where along the iterations an access outside of the block stands; None if variables choose it."""
        index = self.known(access.indices[self.places[access.tensor].axis])
        return None if index.terms else index.constant

    def initial_of(self, state: Einsum) -> Operand:
        """What a state is before the first iteration."""
        setting = [e for e in self.outside() if e.name == state.name]
        if not setting:
            return Scalar(value=0.0)
        first, lanes = setting[0], list(setting[0].output.indices)
        del lanes[self.places[state.name].axis]
        is_before = (
            any(first is s for s in self.before) and self.stands_at(first.output) == self.ends(state.name)[0]
        )
        if len(setting) > 1 or not is_before:
            raise NoRecurrenceError(
                f"{state.name} is written outside of the block, other than before it begins"
            )
        names = {i.plain: v for i, v in zip(lanes, self.lane_variables(state), strict=True)}
        if "" in names or len(names) < len(lanes):
            raise NoRecurrenceError(f"{first.output} sets a part of the first values")
        if not (first.map_op or first.reduce_op or first.condition):
            self.firsts[state.name] = []
            return renamed(first.operands[0], names)
        made = self.declared(f"{state.name}_first", self.lane_variables(state), state)
        back = {v: k for k, v in names.items()}
        own = renamed(made, back)
        assert isinstance(own, Access)
        self.firsts[state.name] = [replace(first, output=own, text="")]
        return made

    def outside(self) -> Iterator[Einsum]:
        """Einsums of other steps."""
        for step in (*self.before, *self.behind):
            yield from step.body if isinstance(step, Iterate) else (step,)

    def read_last(self, step: Step) -> Step:
        """A step behind the block, which reads the last of a state from a tensor of its own."""
        if isinstance(step, Iterate):
            return replace(step, body=tuple(map(self.with_last, step.body)))
        return self.with_last(step)

    def with_last(self, einsum: Einsum) -> Einsum:
        """An Einsum behind the block with the last of states."""

        def read(operand: Operand) -> Operand:
            if isinstance(operand, Scalar) or operand.tensor not in self.lasts:
                return operand
            if self.stands_at(operand) != self.ends(operand.tensor)[1]:
                return operand
            axis, made = self.places[operand.tensor].axis, self.lasts[operand.tensor]
            return replace(made, indices=tuple(i for n, i in enumerate(operand.indices) if n != axis))

        operands = tuple(map(read, einsum.operands))
        return einsum if operands == einsum.operands else replace(einsum, operands=operands)

    def beginnings(self) -> Iterator[Step]:
        """The steps before the block, and the zeros that iterations read where nothing is written before."""
        for step in self.before:
            yield from self.firsts.get(step.name, [step]) if isinstance(step, Einsum) else (step,)
        inside = [a for e in self.steps for a in e.accesses if a.tensor in self.places]
        known = {e.name for e in self.outside()} | set(self.lasts)
        for tensor in {a.tensor: None for a in inside if a.tensor not in known}:
            yield from self.zeros(tensor, max(self.distance(a) for a in inside if a.tensor == tensor))

    def with_first(self, einsum: Einsum, behind: Sequence[Step]) -> Einsum:
        """A scan that writes what it begins with too, if a tensor is read or returned with it."""
        if einsum.recurrence is None or einsum.recurrence.kind != "scan":
            return einsum
        later = (e for s in behind for e in (s.body if isinstance(s, Iterate) else (s,)))
        reads = (a for e in (*self.steps, *later) for a in e.accesses if a.tensor == einsum.name)
        is_read = any(str(a) != str(einsum.output) for a in reads)
        is_read |= einsum.name in self.given.outputs and einsum.name in self.firsts
        is_read = is_read and self.has_room_before(einsum)
        return replace(einsum, recurrence=replace(einsum.recurrence, has_first=is_read))

    def has_room_before(self, einsum: Einsum) -> bool:
        """Whether a state has a place for what it begins with."""
        size = self.given.shape(einsum.name)[self.places[einsum.name].axis]
        return 0 <= self.ends(einsum.name)[0] < size

    def zeros(self, tensor: str, count: int) -> Iterator[Einsum]:
        """What a tensor is some iterations before the first."""
        axis, size = self.places[tensor].axis, self.given.shape(tensor)[self.places[tensor].axis]
        output = self.body[self.places[tensor].number].output
        step = 1 if self.is_descending else -1
        for at in (self.ends(tensor)[0] + step * n for n in range(count)):
            indices = tuple(Affine(constant=at) if n == axis else i for n, i in enumerate(output.indices))
            if 0 <= at < size:
                yield Einsum(Access(tensor, indices), (Scalar(value=0.0),))


def renamed(operand: Operand, names: Mapping[str, str]) -> Operand:
    """An operand with other variables.

    Raises:
        NoRecurrenceError: if it is gathered.
    """
    if isinstance(operand, Scalar):
        return operand
    if operand.gathers:
        raise NoRecurrenceError(f"{operand} is gathered")
    indices = tuple(i.renamed(names) for i in operand.indices if isinstance(i, Affine))
    return replace(operand, indices=indices)


class _Reduction:
    """Brings Einsums that need each other to one form of the state.

    Args:
        block: whose Einsums they are.
        component: the Einsums.
        state: the one whose result the next iteration reads.
    """

    def __init__(self, block: _Distribution, component: Sequence[Einsum], state: Einsum) -> None:
        self.block, self.state = block, state
        self.einsums = {e.name: e for e in component}

    def form(self) -> Form:
        """What an iteration does to the state."""
        form = self.value(self.state, {})
        assert isinstance(form, Form), "an Einsum that needs itself depends on the state"
        return form

    def value(self, einsum: Einsum, names: Mapping[str, str]) -> Form | Coefficient:
        """The value of an Einsum whose variables have other names."""
        if einsum.reduced:
            raise NoRecurrenceError(f"{einsum.name} combines the state over {', '.join(einsum.reduced)}")
        if einsum.condition is not None:
            raise NoRecurrenceError(f"{einsum.name} has a condition")
        operands = [self.operand(renamed(o, names)) for o in einsum.operands]
        if len(operands) == 1:
            return self.function(einsum.map_op, operands[0])
        value = operands[0]
        for other in operands[1:]:
            value = self.binary(einsum.map_op, value, other)
        return value

    def operand(self, operand: Operand) -> Form | Coefficient:
        """The value of an operand."""
        if isinstance(operand, Scalar):
            return factor(operand) if operand.name else number(operand.value)
        einsum = self.einsums.get(operand.tensor)
        if einsum is None:
            return factor(operand)
        if self.block.distance(operand):
            if self.block.lanes(operand) != self.block.lanes(self.state.output):
                raise NoRecurrenceError(f"{self.state.output} reads other values of the state: {operand}")
            return Form()
        inner = [i.plain for i in einsum.output.indices]
        outer = [i.plain for i in operand.indices]
        axis = self.block.places[operand.tensor].axis
        names = {i: o for n, (i, o) in enumerate(zip(inner, outer, strict=True)) if n != axis}
        if "" in names or "" in names.values() or len(set(names.values())) < len(inner) - 1:
            raise NoRecurrenceError(f"{operand} has other indices than variables")
        return self.value(einsum, names)

    def function(self, name: str, value: Form | Coefficient) -> Form | Coefficient:
        """An operator of one value; none is a copy."""
        if not name or OPERATORS[name].arity != 1:
            return value
        if isinstance(value, Coefficient):
            return factor(Applied(name, (value,)))
        if name == "negative":
            return value.then("multiply", -ONE)
        if name == "relu":
            return value.then("maximum", number(0.0))
        raise NoRecurrenceError(f"it takes {name} of the state")

    def binary(self, name: str, left: Form | Coefficient, right: Form | Coefficient) -> Form | Coefficient:
        """An operator of two values."""
        if isinstance(left, Coefficient) and isinstance(right, Coefficient):
            return factor(Applied(name, (left, right)))
        if not OPERATORS[name].alu and name != "divide":
            raise NoRecurrenceError(f"it takes {name} of the state")
        if isinstance(left, Form) and isinstance(right, Form):
            return together(name, left, right)
        if isinstance(left, Form):
            assert isinstance(right, Coefficient)
            return left.then(name, right)
        assert isinstance(right, Form)
        return right.then(name, left, True)


class _Operands:
    """Coefficients as operands of a scan: as they stand, or as Einsums over all iterations.

    Args:
        block: whose state they go with.
        output: of the scan.
    """

    def __init__(self, block: _Distribution, output: Access) -> None:
        self.block, self.output = block, output

    def operand(self, value: Coefficient) -> Operand:
        """What has the value of a coefficient."""
        if value.value is not None:
            return Scalar(value=value.value)
        terms = sorted(value.terms, key=lambda t: t[1] < 0)
        if len(terms) == 2 and terms[1][1] < 0 < terms[0][1]:
            left, right = (self.product(t, abs(s)) for t, s in terms)
            return self.computed("subtract", [left, right])
        products = [self.product(t, s) for t, s in terms]
        return products[0] if len(products) == 1 else self.computed("add", products)

    def product(self, factors: Sequence[Factor], scale: float) -> Operand:
        """What has the value of a product."""
        operands = [self.factor(f) for f in factors]
        if scale != 1.0 or not operands:
            operands.append(Scalar(value=scale))
        return operands[0] if len(operands) == 1 else self.computed("multiply", operands)

    def factor(self, value: Factor) -> Operand:
        """What has the value of a factor."""
        if not isinstance(value, Applied):
            return value
        return self.computed(value.op, [self.operand(o) for o in value.operands])

    def computed(self, op: str, operands: Sequence[Operand]) -> Operand:
        """The result of an Einsum over the variables of its operands."""
        known = {v for o in operands for v in o.variables}
        variables = [v for v in self.output.variables if v in known]
        state = self.block.body[self.block.places[self.output.tensor].number]
        made = self.block.declared(f"{self.output.tensor}_factor", variables, state)
        self.block.steps.append(Einsum(made, tuple(operands), op))
        return made


__all__ = ["STEPWISE", "with_scans"]
