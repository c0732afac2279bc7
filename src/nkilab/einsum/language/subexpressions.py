"""Terms of formulas: what operators compute of operands and of each other, before it has names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from .ast import Condition, Operand, Scalar
from .operators import OPERATORS

OPPOSITE = {"==": "!=", "!=": "==", ">": "<=", ">=": "<", "<": ">=", "<=": ">"}
# operators through which it is clear that a sum is of what they compute: products, and choices
PRODUCT = ("", "multiply", "divide", "square")
TRANSPARENT = (*PRODUCT, "negative", "where")
ONE = Scalar(value=1.0)


@dataclass(frozen=True)
class Term:
    """What an operator computes of operands and other terms."""

    op: str  # its name; "" for what only reduces
    parts: tuple[Term | Operand, ...]  # in order
    reduce_op: str = ""  # over variables; "" for none
    over: tuple[str, ...] = ()  # these
    condition: Condition | None = None  # where it counts before it is reduced; None for everywhere
    otherwise: float = 0.0  # the value elsewhere
    at: int = field(default=0, compare=False)  # its column, for messages

    @property
    def variables(self) -> tuple[str, ...]:
        """Rank variables that it has values for."""
        asked = self.condition.variables if self.condition else ()
        every = dict.fromkeys((*(v for part in self.parts for v in part.variables), *asked))
        return tuple(v for v in every if v not in self.over)

    @property
    def is_plain(self) -> bool:
        """Whether it is the operator's result, neither reduced nor anything else elsewhere."""
        return not self.reduce_op and self.condition is None

    @property
    def mapped(self) -> Term:
        """It before it is reduced."""
        return replace(self, reduce_op="", over=())

    def terms(self) -> Iterator[Term]:
        """It and the terms within it."""
        yield self
        for part in self.parts:
            yield from part.terms() if isinstance(part, Term) else ()


Part = Term | Operand
# one value where a condition holds, another elsewhere
Choice = Callable[[Part, Part], Part]


def number(part: Part) -> float | None:
    """The number that a part is; None if it is none."""
    return part.value if isinstance(part, Scalar) and not part.name else None


def combined(op: str, parts: Sequence[Part], at: int = 0) -> Part:
    """What an operator computes of parts: a number, or a term; products of products are one."""
    is_nary = op in ("multiply", "add")
    if is_nary and len(parts) == 1:
        return parts[0]
    numbers = [n for n in map(number, parts) if n is not None]
    if len(numbers) == len(parts) and not (op in ("divide", "reciprocal") and not numbers[-1]):
        return Scalar(value=OPERATORS[op].on(*numbers))
    first = parts[0]
    if op == "exp" and isinstance(first, Term) and first.op == "subtract" and first.is_plain:
        return replace(first, op="subtract_exp")
    if is_nary:
        inner = [p.parts if isinstance(p, Term) and p.op == op and p.is_plain else (p,) for p in parts]
        parts = [own for every in inner for own in every]
    return Term(op, tuple(parts), at=at)


def raised(base: Part, exponent: int, at: int) -> Part:
    """A power of a whole exponent, as squares and products."""
    if exponent == 1:
        return base
    even = combined("square", (raised(base, exponent // 2, at),), at)
    return combined("multiply", (base, even), at) if exponent % 2 else even


def chosen(truth: Part, value: Part, other: Part) -> Part:
    """A value where another is not zero, and a third elsewhere."""
    if not (isinstance(truth, Term) and truth.is_plain and truth.op and OPERATORS[truth.op].is_truth):
        truth = combined("not_equal", (truth, Scalar(value=0.0)))
    return truth if (number(value), number(other)) == (1, 0) else combined("where", (truth, value, other))


def where(condition: Condition, value: Part, other: Part) -> Part:
    """A value where a comparison of indices holds, another elsewhere."""
    otherwise, opposite = number(other), replace(condition, relation=OPPOSITE[condition.relation])
    if otherwise is None and number(value) is not None:
        return where(opposite, other, value)
    if otherwise is None:
        zero, at = Scalar(value=0.0), value.at if isinstance(value, Term) else 0
        return combined("add", (where(condition, value, zero), where(opposite, other, zero)), at)
    if isinstance(value, Term) and value.is_plain:
        return replace(value, condition=condition, otherwise=otherwise)
    return Term("", (value,), condition=condition, otherwise=otherwise)


def is_summed_behind(part: Part, variable: str) -> bool:
    """Whether a sum over a variable can only mean that of all of a term: an operand that has it is a factor,
    a divisor, or what decides which of two values counts; or several factors have it."""
    if not isinstance(part, Term):
        return variable in part.variables
    having = [n for n, p in enumerate(part.parts) if variable in p.variables]
    if (part.op == "where" and 0 in having) or (part.op in ("multiply", "divide") and having[1:]):
        return not part.over
    return not part.over and part.op in TRANSPARENT and any(is_summed_behind(p, variable) for p in part.parts)
