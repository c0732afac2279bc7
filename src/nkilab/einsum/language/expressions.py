"""Reading expressions: tokens, then recursive descent over the grammar of docs/einsum.md."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

from ...errors import SpecError, nearest
from .ast import Condition, Einsum, Operand, Place
from .functions import INSTEAD
from .indices import (
    NOWHERE,
    Access,
    Affine,
    Around,
    Digit,
    Gather,
    Index,
    Position,
    Scalar,
    affine,
    is_variable,
)
from .operators import ALIASES, OPERATORS, SYNONYMS, Operator, operator_named, reducing
from .shorthand import REDUCTIONS

LONGEST = 4000
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>;;|//|\*\*|\+=|<=|>=|==|!=|[][(),.=+*/@<>%-]))"
)
# what a specification cannot say, and how it says the nearest thing
UNSAID = {
    "gathered": "gather the indices before, by an expression of their own: K[t] = I[J[t]], then X[K[t]]",
    "round": "compute it in a tensor before: J[n] = floor((n + 1) / 2), then X[J[n]]",
    "part": "parts are taken of one variable, by a number or a rank: n // 4, n % 4, n // 4 % 2, n // G",
    "/": "write // for whole parts: n // 2",
    "first": "write what is divided first in parentheses: X[n] * (n // 2)",
    ">": "write // for whole parts: n // 2",
    "mod": "write % for the rest: n % 2",
    "%": "compute it before, in a tensor of whole numbers: J[n] = mod(I[n], 2), then X[J[n]]",
    "//": "compute it before, in a tensor of whole numbers: J[n] = floor(I[n] / 2), then X[J[n]]",
    "(": "parts of an index are n // 2 and n % 2; compute else in a tensor: J[n] = min(n, 3), then X[J[n]]",
    "[": "give the tensor of indices as it is used, multiplied and added to before",
    "comparison": "write a formula, without ';;': Z[m] = X[m] if X[m] > L[m] else 0",
}
# what stands for no tensor, scalar or variable
WORDS = ("inf", "if", "else", "and", "or", "not")
RELATIONS = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True)
class Token:
    """A word of an expression and the column it begins in, from 0."""

    kind: str
    text: str
    at: int


class Reader:
    """Reads one expression.

    Args:
        place: where its first character stands.
        called: key that holds it, for messages.
    """

    def __init__(self, text: str, place: Place = NOWHERE, called: str = "einsum.expressions") -> None:
        self.text, self.place, self.called = text, place, called
        self.tokens = self._tokens()
        self.at = 0

    def fail(self, problem: str, hint: str = "", at: int | None = None) -> SpecError:
        """An error at a column of the expression."""
        column = self.here if at is None else at
        spot = Place(self.place.file, self.place.line, self.place.column + column if self.place.column else 0)
        error = SpecError(problem, hint=hint)
        error.located(str(spot), self.called, (f"expression: {self.text.strip()[:200]}",))
        return error

    def _tokens(self) -> list[Token]:
        if len(self.text) > LONGEST:
            self.tokens, self.at = [], 0
            raise self.fail(
                f"the expression has {len(self.text)} characters; at most {LONGEST} are read", at=0
            )
        found, at = [], 0
        while at < len(self.text.rstrip()):
            match = _TOKEN.match(self.text, at)
            if match is None:
                self.tokens, self.at = [], 0
                at += len(self.text[at:]) - len(self.text[at:].lstrip())
                raise self.fail(f"{self.text[at]!r} means nothing here", INSTEAD.get(self.text[at], ""), at)
            kind = match.lastgroup or ""
            found.append(Token(kind, match[kind], match.start(kind)))
            at = match.end()
        return found

    @property
    def here(self) -> int:
        """Column of the next token."""
        return self.tokens[self.at].at if self.at < len(self.tokens) else len(self.text.rstrip())

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or one after it."""
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else Token("end", "", len(self.text))

    def take(self, text: str) -> bool:
        """Go past a sign or word if it comes next."""
        if self.peek().text == text and self.peek().kind != "end":
            self.at += 1
            return True
        return False

    def need(self, text: str, where: str, hint: str = "") -> None:
        """Go past a sign that must come next."""
        if not self.take(text):
            raise self.fail(f"{self._found()} where {where} needs {text!r}", hint)

    def _found(self) -> str:
        token = self.peek()
        return "the expression ends" if token.kind == "end" else f"{token.text!r} stands"

    def name(self, what: str) -> str:
        """A word that must come next."""
        token = self.peek()
        if token.kind != "name":
            raise self.fail(f"{self._found()} where {what} is needed")
        self.at += 1
        return token.text

    def number(self) -> float:
        """A number with its sign; inf too."""
        sign = -1.0 if self.take("-") else 1.0
        token = self.peek()
        if token.text == "inf" or token.kind == "number":
            self.at += 1
            return sign * float(token.text)
        raise self.fail(f"{self._found()} where a number is needed")

    def einsum(self) -> Einsum:
        """The whole expression."""
        output = self.access("the output")
        self.need("=", "the output", "write '=', and what sums after ';;': ;; V add")
        operands = [self.operand()]
        while self.take("."):
            operands.append(self.operand())
        map_op = reduce_op = ""
        if self.take(";;"):
            map_op, reduce_op = self.actions(len(operands))
        if len(operands) == 1 and map_op and not OPERATORS[map_op].arity:
            # what combines any number of operands leaves one as it is
            map_op = ""
        condition, otherwise = self.choice()
        if self.peek().kind != "end":
            hint = "write '.' between operands and what is done to them after ';;': A[m] . B[m] ;; M mul"
            if self.peek().text == "(":
                hint = "write the function alone and its values behind it: sum(X[m, n], n)"
            raise self.fail(f"{self._found()} after the end of the expression", hint)
        accessed = {v for o in (output, *operands) for v in o.variables}
        operands = [
            Position(affine([(o.name, 1)])) if isinstance(o, Scalar) and o.name in accessed else o
            for o in operands
        ]
        read = Einsum(
            output, tuple(operands), map_op, reduce_op, condition, otherwise, self.text.strip(), self.place
        )
        self._check(read)
        return read

    def choice(self) -> tuple[Condition | None, float]:
        """if CONDITION else NUMBER, where it stands."""
        if not self.take("if"):
            return None, 0.0
        condition = self.condition()
        self.need("else", "a condition", "write 'else' and the number that stands elsewhere: else 0")
        return condition, self.number()

    def _check(self, read: Einsum) -> None:
        if len(read.operands) > 1 and not read.map_op:
            raise self.fail(
                f"{len(read.operands)} operands and no map operator",
                "write ';; M mul' or another operator",
                0,
            )
        if read.reduced and not read.reduce_op:
            names = ", ".join(read.reduced)
            raise self.fail(
                f"{names} vanishes from the right to the left and nothing reduces it",
                f"write ';; V add' or sum(..., {names}) in a formula, or keep the variable on the left",
                0,
            )

    def access(self, what: str) -> Access:
        """TENSOR[index, ...]."""
        at = self.here
        name = self.name(what)
        self.need(
            "[", f"tensor {name}", f"write its indices in brackets: {name}[m, n], {name}[] for one number"
        )
        indices: list[Index] = []
        while not self.take("]"):
            if indices:
                self.need(",", f"an index of {name}", UNSAID.get(self.peek().text, ""))
            indices.append(self.index())
        column = self.place.column + at if self.place.column else 0
        return Access(name, tuple(indices), Place(self.place.file, self.place.line, column))

    def index(self) -> Index:
        """An affine sum, or TENSOR[...]."""
        if self.peek().kind == "name" and self.peek(1).text == "[":
            at = self.here
            gather = Gather(self.access("a tensor of indices"))
            if gather.access.gathers:
                raise self.fail(f"{gather} is gathered by what is gathered", UNSAID["gathered"], at)
            return gather
        return self.around() or self.affine()

    def around(self) -> Around | None:
        """(SUM) % EXTENT; None where anything else stands."""
        start = self.at
        with suppress(SpecError):
            self.need("(", "an index")
            index = self.affine()
            self.need(")", "an index")
            self.need("%", "an index")
            period = self.parts_of("an index")
            terms = tuple(t for t in index.terms if t[0] != period)
            last = Affine((), period - 1) if isinstance(period, int) else Affine(((period, 1),), -1)
            if self.peek().text in (",", "]") and not index.plain:
                return Around(terms, index.constant, last)
        self.at = start
        return None

    def affine(self) -> Affine:
        """Sums of whole numbers, names, and products of both."""
        terms: list[tuple[str, int]] = []
        constant, sign = 0, -1 if self.take("-") else 1
        is_bare = sign < 0 and self.peek().text != "("
        while True:
            factor, name = self.term()
            if is_bare and isinstance(name, Digit):
                raise self.fail(f"-{str(name)[1:-1]} has two meanings", f"write -{name}")
            is_bare = False
            if name:
                terms.append((name, sign * factor))
            else:
                constant += sign * factor
            if self.take("+"):
                sign = 1
            elif self.take("-"):
                sign = -1
            else:
                return affine(terms, constant)

    def term(self) -> tuple[int, str]:
        """A whole number, a name, or their product either way round."""
        token = self.peek()
        if token.kind == "number":
            if not token.text.isdigit():
                raise self.fail(f"{token.text} is no whole number; indices are affine in whole numbers")
            self.at += 1
            if not self.take("*"):
                return self.bounded(token), ""
            is_plain = self.peek().text != "("
            name = self.part()
            if is_plain and isinstance(name, Digit):
                raise self.fail(
                    f"{token.text}*{str(name)[1:-1]} has two meanings", f"write {token.text}*{name}"
                )
            return self.bounded(token), name
        name = self.part()
        if not self.take("*"):
            return 1, name
        token = self.peek()
        if token.kind != "number" or not token.text.isdigit():
            raise self.fail(
                f"{name} is multiplied with {token.text or 'nothing'}; indices are affine: a whole number "
                "times a variable",
                "write the number, or take parts of one variable: Z[n // D, n % D] = X[n]",
            )
        self.at += 1
        return self.bounded(token), name

    def part(self) -> str:
        """A name, or what is taken of one: n // 4, n % G, n // 4 % 2, perhaps in parentheses."""
        is_inside = self.take("(")
        name = self.name("an index")
        divisor = self.parts_of(name) if self.take("//") else 1
        modulus = self.parts_of(name) if self.take("%") else 0
        if is_inside:
            self.need(
                ")", "what is taken of an index", UNSAID["round" if self.peek().text in "+-" else "part"]
            )
        return Digit(name, divisor, modulus) if divisor != 1 or modulus else name

    def parts_of(self, name: str) -> int | str:
        """How many values of a variable a part has: a number, or a rank with so many elements."""
        token = self.peek()
        if token.kind == "name" and not is_variable(token.text):
            self.at += 1
            return token.text
        if token.kind != "number" or not token.text.isdigit() or not self.bounded(token):
            raise self.fail(
                f"{self._found()} where {name} needs a whole number of at least 1, or a rank", UNSAID["part"]
            )
        self.at += 1
        return self.bounded(token)

    def bounded(self, token: Token) -> int:
        """A whole number of an index."""
        if len(token.text) > 9:
            raise self.fail(
                f"{token.text[:20]} stands in an index; whole numbers have at most 9 digits", at=token.at
            )
        return int(token.text)

    def operand(self) -> Operand:
        """A tensor, const(NUMBER), a number, the name of a scalar or of a variable, (INDEX)."""
        token = self.peek()
        if self.take("("):
            index = self.affine()
            self.need(")", "the value of an index")
            return Position(index)
        if token.kind == "name" and token.text == "const" and self.peek(1).text == "(":
            self.at += 2
            value = self.number()
            self.need(")", "const")
            return Scalar(value=value)
        if token.kind == "name" and token.text not in WORDS:
            if self.peek(1).text == "[":
                return self.access("an operand")
            self.at += 1
            return Scalar(token.text)
        if token.text in INSTEAD:
            raise self.fail(f"{self._found()} where a number is needed", INSTEAD[token.text])
        return Scalar(value=self.number())

    def actions(self, operands: int) -> tuple[str, str]:
        """M op, V op, or both."""
        map_op = reduce_op = ""
        at = self.here
        if self.take("M"):
            found = self.operator(operands)
            map_op = found.name
        if self.take("V") and self.peek().text in REDUCTIONS:
            reduce_op = self.name("an operator")
        elif self.tokens[self.at - 1].text == "V":
            at = self.here
            found = self.operator(0)
            if found.identity is None:
                raise self.fail(
                    f"{found.name} reduces nothing: it has no identity; {', '.join(reducing())} do", at=at
                )
            reduce_op = found.name
        if not map_op and not reduce_op:
            raise self.fail(f"{self._found()} where M or V is needed after ';;'", at=at)
        return map_op, reduce_op

    def operator(self, operands: int) -> Operator:
        """A name, unary(name) or binary(name), that fits the number of operands; 0 for a reduction."""
        at = self.here
        spelled = name = self.name("an operator")
        form = 0
        if name in ("unary", "binary") and self.take("("):
            form = 1 if name == "unary" else 2
            name = self.name("an operator")
            self.need(")", spelled)
        found = operator_named(name)
        if found is None:
            close = [SYNONYMS[name]] if name in SYNONYMS else nearest(name, (*OPERATORS, *ALIASES))
            hint = f"write {close[0]}, if that is meant" if close else f"use one of {', '.join(OPERATORS)}"
            raise self.fail(f"{name} is no operator", hint, at)
        if (form and found.arity not in (0, form)) or (form == 1 and found.arity == 0):
            raise self.fail(f"{found.name} is not {spelled}: it takes {_count(found)}", at=at)
        if operands and found.arity not in (0, operands):
            count = f"{operands} are" if operands > 1 else "one is"
            raise self.fail(f"{found.name} takes {_count(found)}; {count} given", at=at)
        return found

    def condition(self) -> Condition:
        """affine RELATION affine."""
        left = self.affine()
        relation = self.peek().text
        if relation not in RELATIONS:
            hint = UNSAID["comparison"] if relation == "[" else ""
            raise self.fail(f"{self._found()} where a comparison is needed: {', '.join(RELATIONS)}", hint)
        self.at += 1
        return Condition(left, relation, self.affine())


def _count(op: Operator) -> str:
    return ("two or more operands", "one operand", "two operands", "three operands")[op.arity]


def read_einsum(text: str) -> Einsum:
    """The Einsum that an expression means.

    Raises:
        SpecError: at the column where it stops to make sense.
    """
    return Reader(text).einsum()
