"""Formulas: expressions with the signs and functions of arithmetic, as the Einsums that they stand for.

`Z[m, n] = A[m, k] * B[k, n] + C[n]`, `P[m, n] = exp(X[m, n] - max(X[m, n], n))`. As in tensor notation a term
is summed over the variables that it has and the output has not; `sum(..., n)` says where, if it is not clear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from itertools import count, pairwise
from math import inf
from re import compile as pattern

from ...errors import SpecError, nearest
from .ast import (
    NOWHERE,
    Access,
    Affine,
    Condition,
    Digit,
    Einsum,
    Operand,
    Place,
    Position,
    Scalar,
    affine,
)  # fmt: skip
from .expressions import RELATIONS, UNSAID, Reader, Token
from .functions import COMPOSED, FUNCTIONS, INSTEAD, REDUCING
from .operators import OPERATORS, operator_named
from .subexpressions import (
    ONE,
    PRODUCT,
    Choice,
    Part,
    Term,
    chosen,
    combined,
    is_summed_behind,
    number,
    raised,
    where,
)

NAME = pattern(r"[A-Za-z_]\w*")
POWERS = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
# whole exponents up to which a power is made of products
MOST_FACTORS = 16
SUMS, PRODUCTS = {"+": "add", "-": "subtract"}, {"*": "multiply", "/": "divide"}
COMPARED = {"==": "equal", "!=": "not_equal", ">": "greater", ">=": "greater_equal", "<": "less",
            "<=": "less_equal"}  # fmt: skip
# words for what an operator computes, in names of tensors
RESULTS = {"multiply": "product", "add": "sum", "subtract": "difference", "divide": "quotient", "": "masked",
           "maximum": "max", "minimum": "min", "subtract_exp": "exp", "where": "chosen"}  # fmt: skip
# what stands behind a condition
BEHIND = ("and", "or", "else", ")", ",", "")


class FormulaReader(Reader):
    """Reads one formula."""

    def __init__(self, text: str, place: Place = NOWHERE, called: str = "einsum.expressions") -> None:
        super().__init__(text, place, called)
        # names within brackets are variables, and in capitals their extents, wherever else they stand
        self.indexing, depth = set[str](), 0
        # what names, and n, stand for in a composed function
        self.bound: Mapping[str, Part] = {}
        self.over: Sequence[str] = ()
        self.is_added = False
        # those that stand before a sum and make its first product negative
        self.signs = set[Token]()
        for token, then in pairwise([*self.tokens, self.peek(len(self.tokens))]):
            depth += (token.text == "[") - (token.text == "]")
            if depth and token.kind == "name" and then.text != "[":
                self.indexing |= {token.text, token.text.upper()}

    def is_formula(self) -> bool:
        """Whether signs or functions of arithmetic stand here, instead of operands and actions."""
        if any(token.text in (".", ";;") for token in self.tokens):
            return False
        try:
            self.output = self.access("the output")
            self.need("=", "the output")
            operand = self.operand()
            lost = {*operand.variables} - {*self.output.variables}
            self.choice()
            parts = any(isinstance(n, Digit) for i in self.output.indices for n, _ in getattr(i, "terms", ()))
            parts |= isinstance(operand, Access) and len(operand.ways()) > 1
            return self.peek().kind != "end" or bool(lost) or parts
        except SpecError:
            return True
        finally:
            self.at = 0

    def formula(self) -> Part:
        """What the output is."""
        self.output = self.access("the output")
        self.is_added = self.take("+=")
        if not self.is_added:
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
            if number(rest) != -inf:
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
        """One comparison, a chain of them, its contrary, or what stands in parentheses."""
        if self.take("not"):
            inner = self.asked()
            return lambda value, rest: inner(rest, value)
        at = self.at
        for read in (self.grouped, self.of_indices):
            if choice := self.whole(read):
                return choice
            self.at = at
        return self.of_values()

    def whole(self, read: Callable[[], Choice]) -> Choice | None:
        """A condition behind which another, or the value elsewhere, stands; None if it is read otherwise."""
        with suppress(SpecError):
            choice = read()
            return choice if self.peek().text in BEHIND else None
        return None

    def of_values(self) -> Choice:
        """What values are, which are compared or not zero."""
        truth = self.compared()
        return lambda value, rest: chosen(truth, value, rest)

    def grouped(self) -> Choice:
        """Conditions in parentheses."""
        self.need("(", "a condition")
        inner = self.either()
        self.need(")", "a condition")
        return inner

    def of_indices(self) -> Choice:
        """A chain of comparisons of indices."""
        chain = [self.condition()]
        while self.peek().text in RELATIONS:
            relation = self.tokens[self.at].text
            self.at += 1
            chain.append(Condition(chain[-1].right, relation, self.affine()))
        return lambda value, rest: reduce(lambda kept, one: where(one, kept, rest), chain, value)

    def compared(self) -> Part:
        """A sum, or a chain of comparisons: one where all hold, zero elsewhere."""
        at, left, every = self.here, self.total(), list[Part]()
        while op := COMPARED.get(self.peek().text, ""):
            self.at += 1
            right = self.total()
            every.append(combined(op, (left, right), at))
            left = right
        return combined("multiply", every, at) if every else left

    def condition(self) -> Condition:
        """A comparison of variables that tensors of the expression are indexed by."""
        at, read = self.here, super().condition()
        if strange := next((v for v in read.variables if v not in self.indexing), ""):
            hint = "a condition compares variables of the expression, extents of ranks and whole numbers"
            raise self.fail(f"nothing is indexed by {strange}", hint, at)
        return read

    def chain(
        self, signs: Mapping[str, str], op: str, inner: Callable[[], Part], first: Part | None = None
    ) -> Iterator[Part | None]:
        """What stands behind one sign and behind the other, combined by the first; None for nothing."""
        at, parts = self.here, {name: list[Part]() for name in signs.values()}
        while op:
            parts[op].append(first or inner())
            first = None
            op = signs.get(self.peek().text, "")
            self.at += bool(op)
        yield from (combined(next(iter(parts)), own, at) if own else None for own in parts.values())

    def total(self) -> Part:
        """Products that are added and subtracted."""
        at, op = self.here, "subtract" if self.take("-") else "add"
        self.signs |= {self.tokens[self.at - 1]} if op == "subtract" else set()
        more, less = self.chain(SUMS, op, self.product)
        if less is None or more is None:
            return combined("negative", (less,), at) if less else more or ONE
        return combined("subtract", (more, less), at)

    def product(self) -> Part:
        """Powers that are multiplied and divided, and what is left of divisions."""
        at, sign, value = self.here, self.tokens[self.at - 1 : self.at], self.quotient()
        while self.take("%"):
            if sign and sign[0] in self.signs:
                raise self.fail("what stands before % is not clear", "write 0 - x % 2, or (-x) % 2", at)
            value = self.quotient(combined("mod", (value, self.power()), at))
        return value

    def quotient(self, first: Part | None = None) -> Part:
        """Powers that are multiplied and divided; the first may be read already."""
        at = self.here
        above, below = self.chain(PRODUCTS, "multiply", self.power, first)
        if above is None or below is None:
            return above or ONE
        if divisor := number(below):
            return combined("multiply", (above, Scalar(value=1 / divisor)), at)
        is_one = number(above) == 1
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
        power = number(exponent) or 0.0
        if power in range(1, MOST_FACTORS + 1):
            return raised(base, int(power), at)
        op = POWERS.get(power)
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
                self.need(")", "what stands in parentheses", INSTEAD.get(self.peek().text, ""))
            return inner
        if token.kind == "name" and then.text == "(" and token.text != "const":
            return self.call()
        if self.take(token.text if token.text in self.bound else "()"):
            return self.bound[token.text]
        if self.over and self.take("N"):
            return combined("multiply", [Position(affine([(v.upper(), 1)])) for v in self.over], self.here)
        if token.text in self.indexing and then.text != "[":
            if then.text in ("//", "%") and self.at and self.tokens[self.at - 1].text in ("*", "/"):
                raise self.fail(f"what stands before {then.text} is not clear", UNSAID["first"])
            return Position(affine([(self.part(), 1)]))
        return self.read()

    def read(self) -> Part:
        """An operand; of a tensor whose indices go on at the other edge a sum, as 0 lies outside."""
        at, operand = self.here, self.operand()
        ways = operand.ways() if isinstance(operand, Access) else []
        return combined("add", ways, at) if len(ways) > 1 else operand

    def call(self) -> Part:
        """NAME(value, ...)."""
        at = self.here
        name = self.name("a function")
        self.need("(", name)
        if name == "where":
            return self.where()
        values = [self.value()]
        while self.take(","):
            values.append(self.value())
        self.need(")", name, f"write the variables alone: {name}(..., n)" if self.peek().text == "=" else "")
        if len(values) == 2 and isinstance(values[0], Position) and isinstance(values[1], Term | Access):
            values.reverse()
        over = [p.index.plain for p in values[1:] if isinstance(p, Position) and p.index.plain]
        if not self.over and (name in COMPOSED or (name in REDUCING and operator_named(name) is None)):
            over += [v.name for v in values[1:] if isinstance(v, Scalar) and v.name]
        if self.over and values[1:] == [Scalar("n")]:
            over, values = [*self.over], [values[0], *(ONE for _ in self.over)]
        if name in COMPOSED or (name in REDUCING and len(over) == len(values) - 1):
            lost = [v for v in values[0].variables if v not in self.output.variables]
            return self.reduced(name, values[0], over or lost, at)
        op = operator_named(name)
        if name in FUNCTIONS and not (op and self.bound):
            return self.function(name, values, at)
        if op is None:
            known = sorted({*REDUCING, *COMPOSED, *FUNCTIONS, *OPERATORS})
            close = " or ".join(nearest(name, known)) or f"one of {', '.join(known)}"
            raise self.fail(f"{name} is no function", INSTEAD.get(name, f"write {close}"), at)
        if op.arity not in (0, len(values)):
            problem = f"{name} takes {op.arity} value{'s' * (op.arity > 1)}; {len(values)} are given"
            raise self.fail(problem, at=at)
        return combined(op.name, values, at)

    def where(self) -> Part:
        """The rest of where(CONDITION, value, value)."""
        choose = self.either()
        self.need(",", "where")
        value = self.value()
        self.need(",", "where")
        other = self.value()
        self.need(")", "where")
        return choose(value, other)

    def function(self, name: str, values: Sequence[Part], at: int) -> Part:
        """What a function of single values is."""
        takes, formula = FUNCTIONS[name]
        names, numbers = zip(
            *(n.split(" = ") if "=" in n else (n, "") for n in takes.split(", ")), strict=True
        )
        every = [*values, *(Scalar(value=float(n)) for n in numbers[len(values) :] if n)]
        if len(every) != len(names):
            raise self.fail(f"{name} takes {takes}; {len(values)} are given", f"write {name}({takes})", at)
        return self.composed(formula, dict(zip(names, every, strict=True)), at)

    def composed(self, formula: str, bound: Mapping[str, Part], at: int, over: Sequence[str] = ()) -> Part:
        """What a formula is, given what its names stand for."""
        own = FormulaReader(formula)
        own.output, own.bound, own.over = self.output, bound, tuple(over)
        value = own.value()
        return replace(value, at=at) if isinstance(value, Term) else value

    def line_with_sum(self, at: int, variable: str) -> str:
        """The formula with a sum around the term that begins at a column."""
        depth, end = 0, len(self.text)
        at = max(at, next(token.at for before, token in pairwise(self.tokens) if "=" in before.text))
        for before, token in pairwise(token for token in self.tokens if token.at >= at):
            depth += (before.text in "([") - (before.text in ")]")
            is_sign = token.text in "+-" and before.text not in ("*", "/", "**")
            if not depth and (is_sign or token.text in (*BEHIND, "if", *RELATIONS)):
                end = token.at
                break
        term = self.text[at:end].rstrip()
        return f"{self.text[:at]}sum({term}, {variable}){self.text[at + len(term) :]}".strip()

    def reduced(self, name: str, value: Part, over: Sequence[str], at: int) -> Part:
        """A value reduced over variables; if over none, over what the output lacks of their parts."""
        absent = next((v for v in over if v not in value.variables), "")
        own = value if isinstance(value, Term) and not value.reduce_op else Term("", (value,), at=at)
        names = (n for i in self.output.indices for n, _ in getattr(i, "terms", ()) if isinstance(n, Digit))
        is_of_parts = not over and any(n.variable in value.variables for n in names)
        is_whole = self.text[:at].rstrip().endswith("=") and self.peek().kind == "end"
        if is_of_parts and is_whole and REDUCING.get(name) in OPERATORS:
            return replace(own, reduce_op=REDUCING[name])
        if absent or not over:
            inner = value.variables[-1] if value.variables else "n"
            lack = f"what {name} reduces has no {absent}" if absent else f"{name} needs what it reduces over"
            hint = "write sum(...) on a line of its own" if is_of_parts else f"write {name}(..., {inner})"
            raise self.fail(lack, hint, at)
        if name in COMPOSED:
            return self.composed(COMPOSED[name], {"x": value}, at, over)
        return replace(own, reduce_op=REDUCING[name], over=tuple(over))


class Formula:
    """Writes a formula out as Einsums.

    Args:
        taken: names that stand for something else; those of new tensors are added.
    """

    def __init__(self, reader: FormulaReader, taken: set[str]) -> None:
        self.reader, self.taken = reader, taken
        value = reader.formula()
        self.output = reader.output
        value = self.summed(value)
        # what is reduced over a variable of the output is the same along it
        is_whole = isinstance(value, Term) and not {*value.over} & {*self.output.variables}
        self.whole = value if isinstance(value, Term) and is_whole else Term("", (value,))
        self.every = {*self.whole.terms()}
        if reader.is_added:
            self.whole = self.added()
        elif self.whole.is_plain and self.whole.op in PRODUCT and self.is_part_lost():
            self.whole = replace(self.whole, reduce_op="add")
        self.every = {*self.whole.terms()}
        self.einsums: list[Einsum] = []
        # by what they are
        self.known: dict[Term, Access] = {}

    def written(self) -> list[Einsum]:
        """Its Einsums in order; the last one writes the output."""
        last = self.einsum(self.output, self.whole)
        return [*self.einsums, replace(last, text=self.reader.text.strip())]

    def einsum(self, output: Access, term: Term) -> Einsum:
        """The Einsum that writes a term; what is reduced for it is written before what it computes last."""
        for part in sorted(
            term.parts, key=lambda p: not (isinstance(p, Term) and any(t.over for t in p.terms()))
        ):
            self.operand(part)
        return Einsum(
            output, tuple(map(self.operand, term.parts)), term.op, term.reduce_op, term.condition,
            term.otherwise, place=self.reader.place, formula=self.reader.text.strip(),
        )  # fmt: skip

    def is_part_lost(self) -> bool:
        """Whether the output has parts alone of a variable of which operands have all, or other parts."""
        kept = {name for i in self.output.indices if isinstance(i, Affine) for name, _ in i.terms}
        parts = {name.variable for name in kept if isinstance(name, Digit)} - kept
        accesses = (p for t in self.every for p in t.parts if isinstance(p, Access))
        names = {n for a in accesses for i in a.indices if isinstance(i, Affine) for n, _ in i.terms} - kept
        return any((n.variable if isinstance(n, Digit) else n) in parts for n in names)

    def added(self) -> Term:
        """What `+=` adds up: what falls to the same place, or what is summed anyhow."""
        if self.whole.reduce_op == "add":
            return self.whole
        if not self.output.gathers:
            problem = f"{self.output} += sums nothing: every variable stands on the left"
            hint = "write '='; what is added to another tensor needs a name of its own: T[m] = S[m] + X[m]"
            raise self.reader.fail(problem, hint, 0)
        return (
            Term("", (self.whole,), "add") if self.whole.reduce_op else replace(self.whole, reduce_op="add")
        )

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
        if part.op == "where" and part.is_plain and not {*lost} & {*part.parts[0].variables}:
            return replace(part, parts=(part.parts[0], *map(self.summed, part.parts[1:])))
        if unclear := next((v for v in lost if not is_summed_behind(part, v)), ""):
            clear = [t for t in part.terms() if is_summed_behind(t, unclear)]
            lines = (self.reader.line_with_sum(t.at, unclear) for t in (part, *clear[:1]))
            hint = f"write {' or '.join(dict.fromkeys(lines))}"
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
        taken: names of the specification; those of tensors that formulas add are added.

    Raises:
        SpecError: at the column where it stops to make sense.
    """
    reader = FormulaReader(text, place, called)
    return Formula(reader, taken).written() if reader.is_formula() else [reader.einsum()]
