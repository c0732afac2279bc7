"""The state of Einsums that need each other: what an iteration does to it, and with which coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Index, Operand, Position, Scalar
from ..language.operators import OPERATORS
from .coefficients import (
    ONE,
    Applied,
    Coefficient,
    Form,
    NoRecurrenceError,
    ScanForm,
    chosen,
    factor,
    number,
    scan_form,
    together,
)


@dataclass
class Places:
    """Where iterations write the tensors of a block: along which axis, how far from their own index."""

    cascade: Cascade  # with extents
    body: Sequence[Einsum]  # Einsums of the block, counted upwards
    variable: str  # that is iterated
    is_descending: bool  # whether iterations go from the greatest value to the least
    axes: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for einsum in self.body:
            axes = [n for n, i in enumerate(einsum.output.indices) if self.variable in i.variables]
            index = self.known(einsum.output.indices[axes[0]]) if len(axes) == 1 else Affine()
            if index.terms != ((self.variable, 1),) or einsum.name in self.axes:
                raise NoRecurrenceError(f"iterations do not write {einsum.output} once, one after the other")
            self.axes[einsum.name], self.offsets[einsum.name] = axes[0], index.constant

    def known(self, index: Index) -> Affine:
        """An index with the extents that it has.

        Raises:
            NoRecurrenceError: if it is gathered.
        """
        if not isinstance(index, Affine):
            raise NoRecurrenceError(f"{index} is an index")
        return index.at(self.cascade.sizes)

    def distance(self, access: Access) -> int:
        """How many iterations before its own an access finds the element that it reads written."""
        index = self.known(access.indices[self.axes[access.tensor]])
        uses = sum(self.variable in i.variables for i in access.indices)
        if index.terms != ((self.variable, 1),) or uses > 1:
            raise NoRecurrenceError(f"it reads {access}, which many iterations write")
        apart = self.offsets[access.tensor] - index.constant
        return -apart if self.is_descending else apart

    def at(self, access: Access) -> int | None:
        """Where along the iterations an access outside of the block stands; None if variables choose it."""
        index = self.known(access.indices[self.axes[access.tensor]])
        return None if index.terms else index.constant

    def lanes(self, access: Access) -> list[str]:
        """The indices of an access besides that of the iteration."""
        return [str(i) for n, i in enumerate(access.indices) if n != self.axes[access.tensor]]


def renamed(operand: Operand, names: Mapping[str, str]) -> Operand:
    """An operand with other variables.

    Raises:
        NoRecurrenceError: if it is gathered.
    """
    if isinstance(operand, Access) and operand.gathers:
        raise NoRecurrenceError(f"{operand} is gathered")
    return operand.renamed(names)


class Reduction:
    """Brings Einsums that need each other to one form of their state.

    `state` is the one whose result the next iteration reads.
    """

    def __init__(self, places: Places, component: Sequence[Einsum]) -> None:
        self.places, self.einsums = places, {e.name: e for e in component}
        reads = [
            (e, a) for e in component for a in e.accesses if a.tensor in self.einsums and places.distance(a)
        ]
        states = list(dict.fromkeys(a.tensor for _, a in reads))
        if len(states) > 1:
            raise NoRecurrenceError(f"{' and '.join(states)} depend on each other")
        for einsum, access in reads:
            if places.distance(access) > 1:
                raise NoRecurrenceError(
                    f"{einsum.name} reads {access}, {places.distance(access)} iterations back"
                )
        self.state = self.einsums[states[0]]
        plain = [i.plain for n, i in enumerate(self.state.output.indices) if n != places.axes[states[0]]]
        if not all(plain) or len(set(plain)) < len(plain):
            raise NoRecurrenceError(f"{self.state.output} has other indices than variables")

    def form(self) -> ScanForm:
        """What an iteration does to the state."""
        form = self.value(self.state, {})
        assert isinstance(form, Form), "an Einsum that needs itself depends on the state"
        return scan_form(form)

    def value(self, einsum: Einsum, names: Mapping[str, str]) -> Form | Coefficient:
        """The value of an Einsum whose variables have other names."""
        if einsum.reduced:
            raise NoRecurrenceError(f"{einsum.name} combines the state over {', '.join(einsum.reduced)}")
        if einsum.condition is not None:
            raise NoRecurrenceError(f"{einsum.name} has a condition")
        value, *others = (self.operand(renamed(o, names)) for o in einsum.operands)
        if not others:
            return self.function(einsum.map_op, value)
        if einsum.map_op == "where":
            return chosen(value, *others)
        for other in others:
            value = self.binary(einsum.map_op, value, other)
        return value

    def operand(self, operand: Operand) -> Form | Coefficient:
        """The value of an operand."""
        if isinstance(operand, Scalar):
            return factor(operand) if operand.name else number(operand.value)
        einsum = None if isinstance(operand, Position) else self.einsums.get(operand.tensor)
        if einsum is None or isinstance(operand, Position):
            return factor(operand)
        if self.places.distance(operand):
            if self.places.lanes(operand) != self.places.lanes(self.state.output):
                raise NoRecurrenceError(f"{self.state.output} reads other values of the state: {operand}")
            return Form()
        pairs = zip(einsum.output.indices, operand.indices, strict=True)
        names = {i.plain: o.plain for n, (i, o) in enumerate(pairs) if n != self.places.axes[operand.tensor]}
        if "" in (*names, *names.values()) or len(set(names.values())) < len(operand.indices) - 1:
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


# coefficients


def declared(hint: str, variables: Sequence[str], like: Einsum, added: Additions, places: Places) -> Access:
    """An access of a new tensor by variables of an Einsum."""
    ranks = {i.plain: r for r, i in places.cascade.axes(like.output)}
    ranks[places.variable] = places.variable.upper()
    return added.by(hint, {v: ranks[v] for v in variables})


def emitted(
    value: Coefficient, state: Einsum, added: Additions, places: Places, steps: list[Einsum]
) -> Operand:
    """What has the value of a coefficient: as it stands, or the result of new Einsums over all iterations."""

    def computed(op: str, operands: Sequence[Operand]) -> Operand:
        known = {v for o in operands for v in o.variables}
        variables = [v for v in state.output.variables if v in known]
        result = declared(f"{state.name}_factor", variables, state, added, places)
        steps.append(Einsum(result, tuple(operands), op))
        return result

    def operand(value: Coefficient) -> Operand:
        if value.value is not None:
            return Scalar(value=value.value)
        terms = sorted(value.terms, key=lambda term: term[1] < 0)
        is_difference = len(terms) == 2 and terms[1][1] < 0 < terms[0][1]
        products = [product(f, abs(s) if is_difference else s) for f, s in terms]
        return (
            products[0] if len(products) == 1 else computed("subtract" if is_difference else "add", products)
        )

    def product(factors: Sequence[Operand | Applied], scale: float) -> Operand:
        operands = [
            computed(f.op, [*map(operand, f.operands)]) if isinstance(f, Applied) else f for f in factors
        ]
        operands += [Scalar(value=scale)] if scale != 1.0 or not operands else []
        return operands[0] if len(operands) == 1 else computed("multiply", operands)

    return operand(value)
