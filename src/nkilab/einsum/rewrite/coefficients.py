"""What an Einsum does to a state: operators in a row, with operands that are free of the state.

Operands are sums of products in one normal form, so that neither the order of factors nor the spelling of a
difference matters. Rules shorten a row of operators: a product after a sum is a sum after products, a sum
after a maximum is a maximum after sums, and max(min(max(s, a), b), c) = min(max(s, max(a, c)), max(b, c)).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from ..language.ast import Operand


class NoRecurrenceError(Exception):
    """Why the values of a block are no recurrence that an instruction computes."""


@dataclass(frozen=True)
class Applied:
    """An operator of the language over coefficients."""

    op: str
    operands: tuple[Coefficient, ...]


Factor = Operand | Applied
Term = tuple[tuple[Factor, ...], float]


@dataclass(frozen=True)
class Coefficient:
    """A sum of products of factors, each with a number, in normal form."""

    terms: tuple[Term, ...] = ()

    @property
    def value(self) -> float | None:
        """The number that it is; None if it has factors."""
        if not self.terms:
            return 0.0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def is_negative(self) -> bool:
        """Whether it is one product with a negative number."""
        return len(self.terms) == 1 and bool(self.terms[0][0]) and self.terms[0][1] < 0

    def __add__(self, other: Coefficient) -> Coefficient:
        return _normal([*self.terms, *other.terms])

    def __mul__(self, other: Coefficient) -> Coefficient:
        return _normal([((*a, *b), x * y) for a, x in self.terms for b, y in other.terms])

    def __neg__(self) -> Coefficient:
        return self * number(-1.0)


def _normal(terms: list[Term]) -> Coefficient:
    sums: dict[tuple[Factor, ...], float] = {}
    for factors, scale in terms:
        ordered = tuple(sorted(factors, key=str))
        sums[ordered] = sums.get(ordered, 0.0) + scale
    return Coefficient(tuple((f, s) for f, s in sorted(sums.items(), key=str) if s))


def number(value: float) -> Coefficient:
    """A number as a coefficient."""
    return Coefficient((((), float(value)),) if value else ())


def factor(operand: Factor) -> Coefficient:
    """An operand as a coefficient."""
    return Coefficient((((operand,), 1.0),))


ZERO, ONE = number(0.0), number(1.0)
ORDERS = {"maximum": max, "minimum": min}
# what is least and most of all for a sum of it not to leave float32
FURTHEST = 1e38


def combined(op: str, left: Coefficient, right: Coefficient) -> Coefficient:
    """A coefficient from two by an operator of an engine."""
    if op == "add":
        return left + right
    if op == "multiply":
        return left * right
    if left == right and op in ORDERS:
        return left
    if op in ORDERS and left.value is not None and right.value is not None:
        return number(ORDERS[op](left.value, right.value))
    return factor(Applied(op, (left, right)))


@dataclass(frozen=True)
class Step:
    """One operator on the state and a coefficient."""

    op: str  # of an engine
    by: Coefficient  # the coefficient
    is_reversed: bool = False  # whether the state is its right operand


@dataclass(frozen=True)
class Form:
    """Operators on the state, in order; none leaves it as it is."""

    steps: tuple[Step, ...] = ()

    def then(self, op: str, by: Coefficient, is_reversed: bool = False) -> Form:
        """One more operator of the language.

        Raises:
            NoRecurrenceError: if no engine has it on the state.
        """
        if op == "subtract":
            return self.then("multiply", -ONE).then("add", by) if is_reversed else self.then("add", -by)
        if op == "divide":
            if is_reversed:
                raise NoRecurrenceError("it divides by the state")
            return self.then(
                "multiply", number(1.0 / by.value) if by.value else factor(Applied("reciprocal", (by,)))
            )
        if op in ("add", "multiply", *ORDERS):
            return Form(_merged(self.steps, op, by))
        return Form((*self.steps, Step(op, by, is_reversed)))

    def parts(self, outer: str) -> tuple[Coefficient, Coefficient | None] | None:
        """(a, b) with which it is `(a inner state) outer b`; b is None where it is left out.

        The inner operator is a product where the outer is a sum, a sum where it is a maximum or minimum.
        """
        inner = "multiply" if outer == "add" else "add"
        ops = [s.op for s in self.steps]
        if ops not in ([], [inner], [outer], [inner, outer]):
            return None
        first = self.steps[0].by if inner in ops else ONE if outer == "add" else ZERO
        return first, self.steps[-1].by if outer in ops else None


def _merged(steps: tuple[Step, ...], op: str, by: Coefficient) -> tuple[Step, ...]:
    """Steps and one more, as few as the rules leave."""
    if (op, by.value) in (("add", 0.0), ("multiply", 1.0)):
        return steps
    last = steps[-1] if steps else Step("", ZERO)
    if last.op == op:
        return _merged(steps[:-1], op, combined(op, last.by, by))
    is_clamp = {op, last.op} == set(ORDERS) and len(steps) > 1 and steps[-2].op == op
    if (op == "multiply" and last.op == "add") or (op == "add" and last.op in ORDERS) or is_clamp:
        return _merged(_merged(steps[:-1], op, by), last.op, combined(op, last.by, by))
    return (*steps, Step(op, by))


def together(op: str, left: Form, right: Form) -> Form:
    """Two forms of the same state in one operator.

    Raises:
        NoRecurrenceError: if no rule makes one form of them.
    """
    if op == "subtract":
        return together("add", left, right.then("multiply", -ONE))
    one, two = (left.parts(op), right.parts(op)) if op in ("add", *ORDERS) else (None, None)
    if one is None or two is None:
        reasons = {"multiply": "multiplies the state with itself", "divide": "divides by the state"}
        raise NoRecurrenceError(f"it {reasons.get(op, f'takes {op} of two values that depend on the state')}")
    form = Form().then("multiply" if op == "add" else "add", combined(op, one[0], two[0]))
    for rest in (r for r in (one[1], two[1]) if r is not None):
        form = form.then(op, rest)
    return form


def chosen(
    truth: Form | Coefficient, value: Form | Coefficient, other: Form | Coefficient
) -> Form | Coefficient:
    """One of two values, either or both of which depend on the state.

    Raises:
        NoRecurrenceError: if the state decides, or no rule makes one form of them.
    """
    if isinstance(truth, Form):
        raise NoRecurrenceError("the state decides which of two values it has")
    if isinstance(value, Coefficient) and isinstance(other, Coefficient):
        return factor(Applied("where", (truth, value, other)))
    for outer, nothing in (("add", ZERO), ("maximum", number(-FURTHEST)), ("minimum", number(FURTHEST))):
        # where a value is free of the state, that is multiplied with 0, or far below or above
        free = ZERO if outer == "add" else nothing
        one, two = (v.parts(outer) if isinstance(v, Form) else (free, v) for v in (value, other))
        if one is None or two is None:
            continue
        inner, behind = ((a, b) if a == b else (nothing if a is None else a, nothing if b is None else b)
                         for a, b in zip(one, two, strict=True))  # fmt: skip
        form = Form().then("multiply" if outer == "add" else "add", _either(truth, *inner))
        return form if behind == (None, None) else form.then(outer, _either(truth, *behind))
    raise NoRecurrenceError("it takes where of two values that no rule brings to one form")


def _either(truth: Coefficient, value: Coefficient | None, other: Coefficient | None) -> Coefficient:
    """One of two coefficients."""
    assert value is not None
    assert other is not None
    return value if value == other else factor(Applied("where", (truth, value, other)))


@dataclass(frozen=True)
class ScanForm:
    """(first op0 state) op1 second, as the instruction takes it."""

    first: Coefficient
    op0: str
    reverse0: bool
    second: Coefficient
    op1: str
    reverse1: bool


def scan_form(form: Form) -> ScanForm:
    """A form as one instruction.

    Raises:
        NoRecurrenceError: if it has more operators.
    """
    steps = form.steps
    for n, (one, two) in enumerate(pairwise(steps)):
        if len(steps) > 2 and (one.op, one.by, two.op) == ("multiply", -ONE, "add"):
            steps = (*steps[:n], Step("subtract", two.by, True), *steps[n + 2 :])
    if len(steps) > 2:
        ops = ", ".join(s.op for s in steps)
        raise NoRecurrenceError(
            f"it takes {len(steps)} operators of the state in a row ({ops}); a scan takes two"
        )
    if not steps or (len(steps) == 1 and steps[0].op == "add"):
        steps = (Step("multiply", ONE), steps[0] if steps else Step("add", ZERO))
    if len(steps) == 1:
        # a maximum twice is the maximum, and needs no tile of zeros
        steps = (steps[0], steps[0] if steps[0].op in ORDERS else Step("add", ZERO))
    one, two = steps
    if (one.op, two.op) == ("multiply", "add"):
        if two.by.is_negative:
            two = Step("subtract", -two.by)
        elif one.by.is_negative:
            one, two = Step("multiply", -one.by), Step("subtract", two.by, True)
    is_symmetric = one.op in ("add", "multiply", *ORDERS)
    return ScanForm(one.by, one.op, not (is_symmetric or one.is_reversed), two.by, two.op, two.is_reversed)
