"""Formulas: expressions with the signs and functions of arithmetic, as the Einsums that they stand for.

`Z[m, n] = A[m, k] * B[k, n] + C[n]`, `P[m, n] = exp(X[m, n] - max(X[m, n], n))`. As in tensor notation a term
is summed over the variables that it has and the output has not; `sum(..., n)` says where, if it is not clear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import count, pairwise
from math import inf
from re import compile as pattern

from ...errors import SpecError
from .ast import NOWHERE, Access, Condition, Einsum, Operand, Place, Position, Scalar, affine
from .expressions import RELATIONS, UNSAID, Reader
from .operators import OPERATORS, operator_named

NAME = pattern(r"[A-Za-z_]\w*")
# functions that reduce what stands first over the variables behind it
REDUCING = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "multiply", "argmax": "argmax",
            "argmin": "argmin"}  # fmt: skip
# functions of x over n, as formulas; N is the number of values
COMPOSED = {
    "mean": "sum(x, n) / N",
    "var": "mean((x - mean(x, n))**2, n)",
    "std": "sqrt(var(x, n))",
    "norm": "sqrt(sum(x**2, n))",
    "logsumexp": "max(x, n) + log(sum(exp(x - max(x, n)), n))",
    "softmax": "exp(x - max(x, n)) / sum(exp(x - max(x, n)), n)",
}
POWERS = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
SUMS, PRODUCTS = {"+": "add", "-": "subtract"}, {"*": "multiply", "/": "divide"}
COMPARED = {"==": "equal", "!=": "not_equal", ">": "greater", ">=": "greater_equal", "<": "less",
            "<=": "less_equal"}  # fmt: skip
OPPOSITE = {"==": "!=", "!=": "==", ">": "<=", ">=": "<", "<": ">=", "<=": ">"}
# what is written for signs and words of other languages
INSTEAD = {
    "@": "write Z[m, n] = A[m, k] * B[k, n]",
    "where": "write X[m, n] if m >= n else 0, or of values (X[m] > 0) * X[m]",
    "cos": "write sin(x + 1.5707963), with angles reduced to -pi to pi",
    "tan": "write sin(x) / sin(x + 1.5707963), with angles reduced to -pi to pi",
    "clip": "write min(max(X[m, n], 0), 1)",
    "cumsum": "write an iterate block: S[t+1, m] = S[t, m] + X[t, m]",
    "sort": "write Z[m, k] = X[m, n] ;; V topk, with as many k as n: the largest come first",
}
# words for what an operator computes, in names of tensors
RESULTS = {"multiply": "product", "add": "sum", "subtract": "difference", "divide": "quotient",
           "maximum": "max", "minimum": "min", "subtract_exp": "exp", "": "masked"}  # fmt: skip
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


def _number(part: Part) -> float | None:
    return part.value if isinstance(part, Scalar) and not part.name else None


def combined(op: str, parts: Sequence[Part], at: int) -> Part:
    """What an operator computes of parts: a number, or a term; products of products are one."""
    is_nary = op in ("multiply", "add")
    if is_nary and len(parts) == 1:
        return parts[0]
    numbers = [n for n in map(_number, parts) if n is not None]
    function = OPERATORS[op].function
    if len(numbers) == len(parts) and not (op in ("divide", "reciprocal") and not numbers[-1]):
        return Scalar(value=float(reduce(function, numbers) if len(numbers) > 1 else function(*numbers)))
    first = parts[0]
    if op == "exp" and isinstance(first, Term) and first.op == "subtract" and first.is_plain:
        return replace(first, op="subtract_exp")
    if is_nary:
        inner = [p.parts if isinstance(p, Term) and p.op == op and p.is_plain else (p,) for p in parts]
        parts = [own for every in inner for own in every]
    return Term(op, tuple(parts), at=at)


def where(condition: Condition, value: Part, other: Part) -> Part:
    """A value where a comparison of indices holds, another elsewhere."""
    otherwise, opposite = _number(other), replace(condition, relation=OPPOSITE[condition.relation])
    if otherwise is None and _number(value) is not None:
        return where(opposite, other, value)
    if otherwise is None:
        zero, at = Scalar(value=0.0), value.at if isinstance(value, Term) else 0
        return combined("add", (where(condition, value, zero), where(opposite, other, zero)), at)
    if isinstance(value, Term) and value.is_plain:
        return replace(value, condition=condition, otherwise=otherwise)
    return Term("", (value,), condition=condition, otherwise=otherwise)


def factors(part: Part) -> list[Operand]:
    """Operands that make zero of a term where they are zero: those of a product, masked or not."""
    if not isinstance(part, Term):
        return [part]
    if part.over or part.op not in ("", "multiply"):
        return []
    return [p for p in part.parts if not isinstance(p, Term)] if part.op else factors(part.parts[0])


class FormulaReader(Reader):
    """Reads one formula.

    Args:
        text: of the formula.
        place: where its first character stands.
        called: key that holds it, for messages.
    """

    def __init__(self, text: str, place: Place = NOWHERE, called: str = "einsum.expressions") -> None:
        super().__init__(text, place, called)
        # names within brackets are variables, and in capitals their extents, wherever else they stand
        self.indexing, depth = set[str](), 0
        # what x and n stand for in a composed function
        self.bound: Part | None = None
        self.over: Sequence[str] = ()
        for token, then in pairwise([*self.tokens, self.peek(len(self.tokens))]):
            depth += (token.text == "[") - (token.text == "]")
            if depth and token.kind == "name" and then.text != "[":
                self.indexing |= {token.text, token.text.upper()}

    def is_formula(self) -> bool:
        """Whether signs or functions of arithmetic stand here, instead of operands and actions."""
        if any(token.text in (".", ";;") for token in self.tokens):
            return False
        try:
            self.access("the output")
            self.need("=", "the output")
            self.operand()
            self.choice()
            return self.peek().kind != "end"
        except SpecError:
            return True
        finally:
            self.at = 0

    def formula(self) -> Part:
        """What the output is."""
        self.output = self.access("the output")
        self.need("=", "the output", "write '='; what has variables that the output lacks is summed")
        value = self.value()
        if self.peek().kind != "end":
            hint = INSTEAD.get(self.peek().text, "write '*' between factors")
            raise self.fail(f"{self._found()} where an operator or the end is needed", hint)
        return value

    def value(self) -> Part:
        """A comparison or a sum; of two the one that a condition chooses."""
        value = self.compared()
        if not self.take("if"):
            return value
        choose = self.either()
        self.need("else", "a condition", "write 'else' and what stands elsewhere: else 0")
        return choose(value, self.value())

    def either(self) -> Choice:
        """Conditions, one of which must hold."""
        one = self.both()
        if not self.take("or"):
            return one
        other = self.either()

        def chosen(value: Part, rest: Part) -> Part:
            if _number(rest) != -inf:
                return one(value, other(value, rest))
            at = value.at if isinstance(value, Term) else 0
            return combined("maximum", (one(value, rest), other(value, rest)), at)

        return chosen

    def both(self) -> Choice:
        """Conditions that must all hold."""
        one = self.asked()
        if not self.take("and"):
            return one
        other = self.both()
        return lambda value, rest: one(other(value, rest), rest)

    def asked(self) -> Choice:
        """One comparison of indices, a chain of them, its contrary, or what stands in parentheses."""
        if self.take("not"):
            inner = self.asked()
            return lambda value, rest: inner(rest, value)
        if self.take("("):
            inner = self.either()
            self.need(")", "a condition")
            return inner
        chain = [self.condition()]
        while self.peek().text in RELATIONS:
            relation = self.tokens[self.at].text
            self.at += 1
            chain.append(Condition(chain[-1].right, relation, self.affine()))
        if self.peek().text == "[":
            raise self.fail(f"{self._found()} in a condition, which compares indices", UNSAID["comparison"])
        return lambda value, rest: reduce(lambda kept, one: where(one, kept, rest), chain, value)

    def compared(self) -> Part:
        """A sum, or a comparison of two: one where it holds, zero elsewhere."""
        at, left = self.here, self.total()
        op = COMPARED.get(self.peek().text, "")
        self.at += bool(op)
        return combined(op, (left, self.total()), at) if op else left

    def condition(self) -> Condition:
        """A comparison of variables that tensors of the expression are indexed by."""
        at, read = self.here, super().condition()
        if strange := next((v for v in read.variables if v not in self.indexing), ""):
            hint = "a condition compares variables of the expression, extents of ranks and whole numbers"
            raise self.fail(f"nothing is indexed by {strange}", hint, at)
        return read

    def chain(self, signs: Mapping[str, str], op: str, inner: Callable[[], Part]) -> Iterator[Part | None]:
        """What stands behind one sign and behind the other, combined by the first; None for nothing."""
        at, parts = self.here, {name: list[Part]() for name in signs.values()}
        while op:
            parts[op].append(inner())
            op = signs.get(self.peek().text, "")
            self.at += bool(op)
        yield from (combined(next(iter(parts)), own, at) if own else None for own in parts.values())

    def total(self) -> Part:
        """Products that are added and subtracted."""
        at, op = self.here, "subtract" if self.take("-") else "add"
        more, less = self.chain(SUMS, op, self.product)
        if less is None or more is None:
            return combined("negative", (less,), at) if less else more or ONE
        return combined("subtract", (more, less), at)

    def product(self) -> Part:
        """Powers that are multiplied and divided."""
        at = self.here
        above, below = self.chain(PRODUCTS, "multiply", self.power)
        if above is None or below is None:
            return above or ONE
        if divisor := _number(below):
            return combined("multiply", (above, Scalar(value=1 / divisor)), at)
        is_one = _number(above) == 1
        return combined("reciprocal", (below,), at) if is_one else combined("divide", (above, below), at)

    def power(self) -> Part:
        """A factor, perhaps raised, perhaps negative."""
        at = self.here
        if self.take("-"):
            return combined("negative", (self.power(),), at)
        base = self.factor()
        if not self.take("**"):
            return base
        exponent = self.power()
        if exponent == ONE:
            return base
        op = POWERS.get(_number(exponent) or 0.0)
        return combined(op, (base,), at) if op else combined("power", (base, exponent), at)

    def factor(self) -> Part:
        """A number, a name, an access, a function's value, or what stands in parentheses."""
        token, then, at = self.peek(), self.peek(1), self.at
        if token.text == "(":
            inner: Part = ONE
            with suppress(SpecError):
                inner = self.operand()
            if not {*inner.variables} & self.indexing:
                # no index, but a formula
                self.at = at + 1
                inner = self.value()
                self.need(")", "what stands in parentheses")
            return inner
        if token.kind == "name" and then.text == "(" and token.text != "const":
            return self.call()
        if self.bound is not None and self.take("x"):
            return self.bound
        if self.over and self.take("N"):
            return combined("multiply", [Position(affine([(v.upper(), 1)])) for v in self.over], self.here)
        if token.text in self.indexing and then.text != "[":
            return Position(affine([(self.name("a variable"), 1)]))
        return self.operand()

    def call(self) -> Part:
        """NAME(value, ...)."""
        at = self.here
        name = self.name("a function")
        self.need("(", name)
        values = [self.value()]
        while self.take(","):
            values.append(self.value())
        self.need(")", name)
        if len(values) == 2 and isinstance(values[0], Position) and isinstance(values[1], Term | Access):
            values.reverse()
        over = [p.index.plain for p in values[1:] if isinstance(p, Position) and p.index.plain]
        if self.over and values[1:] == [Scalar("n")]:
            over, values = [*self.over], [values[0], *(ONE for _ in self.over)]
        if name in COMPOSED or (name in REDUCING and len(over) == len(values) - 1):
            lost = [v for v in values[0].variables if v not in self.output.variables]
            return self.reduced(name, values[0], over or lost, at)
        op = operator_named(name)
        if op is None:
            known = ", ".join(sorted({*REDUCING, *COMPOSED, *OPERATORS}))
            raise self.fail(f"{name} is no function", INSTEAD.get(name, f"use one of {known}"), at)
        if op.arity not in (0, len(values)):
            problem = f"{name} takes {op.arity} value{'s' * (op.arity > 1)}; {len(values)} are given"
            raise self.fail(problem, at=at)
        return combined(op.name, values, at)

    def reduced(self, name: str, value: Part, over: Sequence[str], at: int) -> Part:
        """A value reduced over variables."""
        absent = next((v for v in over if v not in value.variables), "")
        if absent or not over:
            inner = value.variables[-1] if value.variables else "n"
            problem = (
                f"what {name} reduces has no {absent}" if absent else f"{name} needs what it reduces over"
            )
            raise self.fail(problem, f"write {name}(..., {inner})", at)
        if name in COMPOSED:
            own = FormulaReader(COMPOSED[name])
            own.output, own.bound, own.over = self.output, value, tuple(over)
            return own.value()
        if isinstance(value, Term) and not value.reduce_op:
            return replace(value, reduce_op=REDUCING[name], over=tuple(over))
        return Term("", (value,), REDUCING[name], tuple(over), at=at)


class Formula:
    """Writes a formula out as Einsums.

    Args:
        reader: at the begin of its formula.
        taken: names that stand for something else; those of new tensors are added.
    """

    def __init__(self, reader: FormulaReader, taken: set[str]) -> None:
        self.reader, self.taken = reader, taken
        value = reader.formula()
        self.output = reader.output
        value = self.summed(value)
        self.whole = value if isinstance(value, Term) else Term("", (value,))
        self.every = {*self.whole.terms()}
        self.einsums: list[Einsum] = []
        # by what they are
        self.known: dict[Term, Access] = {}

    def written(self) -> list[Einsum]:
        """Its Einsums in order; the last one writes the output."""
        last = self.einsum(self.output, self.whole)
        return [*self.einsums, replace(last, text=self.reader.text.strip())]

    def einsum(self, output: Access, term: Term) -> Einsum:
        """The Einsum that writes a term."""
        return Einsum(
            output, tuple(map(self.operand, term.parts)), term.op, term.reduce_op, term.condition,
            term.otherwise, place=self.reader.place,
        )  # fmt: skip

    def summed(self, part: Part) -> Part:
        """A term with its sums over what the output has not; sums of terms are summed each by itself."""
        lost = [v for v in part.variables if v not in self.output.variables]
        if not lost:
            return part
        if not isinstance(part, Term):
            return Term("", (part,), "add", tuple(lost))
        if part.condition and not part.over and {*part.condition.variables} <= {*self.output.variables}:
            # it chooses among sums, not among what is summed
            inner = replace(part, condition=None) if part.op else part.parts[0]
            return replace(part, op="", parts=(self.summed(inner),))
        if part.op in ("add", "subtract", "negative") and part.is_plain:
            return replace(part, parts=tuple(map(self.summed, part.parts)))
        if part.op == "divide" and part.is_plain and not {*lost} & {*part.parts[1].variables}:
            return replace(part, parts=(self.summed(part.parts[0]), part.parts[1]))
        unclear = next((v for v in lost if not any(v in p.variables for p in factors(part))), "")
        if unclear:
            hint = f"write sum(..., {unclear}) around what is summed, or {unclear} on the left"
            raise self.reader.fail(f"it is not clear where {unclear} is summed", hint, part.at)
        return replace(part, reduce_op="add", over=tuple(lost))

    def operand(self, part: Part) -> Operand:
        """What a term computes, as a tensor that an Einsum before writes."""
        if not isinstance(part, Term):
            return part
        if (part.op or part.condition) and part.over and part.mapped in self.every:
            # what is reduced is needed as it is, too
            part = Term("", (part.mapped,), part.reduce_op, part.over)
        if part not in self.known:
            own = self.output.variables
            ordered = sorted(part.variables, key=lambda v: own.index(v) if v in own else len(own))
            op = part.reduce_op or part.op
            access = Access(self.unused(RESULTS.get(op, op)), tuple(affine([(v, 1)]) for v in ordered))
            self.einsums.append(self.einsum(access, part))
            self.known[part] = access
        return self.known[part]

    def unused(self, hint: str) -> str:
        """A name of a new tensor."""
        tries = (f"{self.output.tensor}_{hint}{n or ''}" for n in count())
        name = next(name for name in tries if name not in self.taken)
        self.taken.add(name)
        return name


def read_expression(text: str, place: Place, called: str, taken: set[str]) -> list[Einsum]:
    """The Einsums that an expression stands for, in order.

    Args:
        text: an expression, or a formula.
        place: where its first character stands.
        called: key that holds it, for messages.
        taken: names of the specification; those of tensors that formulas add are added.

    Raises:
        SpecError: at the column where it stops to make sense.
    """
    reader = FormulaReader(text, place, called)
    return Formula(reader, taken).written() if reader.is_formula() else [reader.einsum()]
