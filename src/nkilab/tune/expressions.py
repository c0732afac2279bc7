"""Constraints between parameters: comparisons and arithmetic on names and numbers, and nothing else.

A text is parsed into Python's syntax tree, which is turned into functions node by node. What has no row in
the tables below is refused; nothing is ever handed to Python as code.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import UsageError

Value = int | float | str | bool
Values = Mapping[str, Value]
Evaluate = Callable[[Values], Any]

MOST_CHARACTERS = 500
ALLOWED = "names of parameters, numbers, words in quotes, + - * / // %, comparisons, in (...), and, or, not"
_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.AST], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_SIGNS: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}


@dataclass(frozen=True)
class Constraint:
    """A claim about parameters.

    Args:
        text: as written.
        names: of the parameters that it speaks of.
        where: "space.yaml:7", "" if it stands in no file.
    """

    text: str
    names: frozenset[str]
    where: str = ""
    evaluate: Evaluate = field(repr=False, compare=False, default=lambda values: True)

    def holds(self, values: Values) -> bool:
        """Whether it is true of the values of its names.

        Raises:
            UsageError: if it divides by zero, or compares or adds what cannot be.
        """
        try:
            return bool(self.evaluate(values))
        except (ZeroDivisionError, TypeError, OverflowError) as error:
            values_text = ", ".join(f"{name} = {values[name]!r}" for name in sorted(self.names))
            raise _refused(f"{self.text} has no value for {values_text}: {error}", self.where, "") from None


def constraint(text: str, names: frozenset[str], where: str = "") -> Constraint:
    """The constraint that a text writes.

    Args:
        text: an expression such as "M % (128 * tiles) == 0 and tiles <= 16".
        names: that it may use.
        where: file and line for messages.

    Raises:
        UsageError: if it is no expression, or uses anything that is not allowed.
    """
    if len(text) > MOST_CHARACTERS:
        raise _refused(f"a constraint has {len(text)} characters; it has at most {MOST_CHARACTERS}", where)
    try:
        tree = ast.parse(text.strip(), mode="eval")
        used: set[str] = set()
        evaluate = _function_of(tree.body, names, used)
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _refused(f"{text!r} is no constraint: {reason}", where) from None
    except RecursionError:
        raise _refused(f"{text[:40]!r}... is nested too deep", where) from None
    if not used:
        raise _refused(
            f"{text!r} names no parameter", where, f"the parameters are {', '.join(sorted(names))}"
        )
    return Constraint(text, frozenset(used), where, evaluate)


def _refused(problem: str, where: str, hint: str = f"a constraint has {ALLOWED}") -> UsageError:
    error = UsageError(problem, hint=hint)
    error.located(where, "")
    return error


def _function_of(node: ast.AST, names: frozenset[str], used: set[str]) -> Evaluate:
    """What a node means, as a function of the parameters; notes the names it uses."""

    def inner(part: ast.AST) -> Evaluate:
        return _function_of(part, names, used)

    match node:
        case ast.Constant(value=int() | float() | str() as value):
            return lambda values: value
        case ast.Name(id=name):
            return _name(name, names, used)
        case ast.Attribute() if (name := ast.unparse(node)) in names:
            return _name(name, names, used)
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            return _applied(_SIGNS[type(sign)], [inner(operand)])
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
            return _calculated(_ARITHMETIC[type(sign)], inner(left), inner(right))
        case ast.BoolOp(op=ast.And(), values=parts):
            return _all(list(map(inner, parts)))
        case ast.BoolOp(op=ast.Or(), values=parts):
            return _any(list(map(inner, parts)))
        case ast.Compare(left=left, ops=signs, comparators=others) if all(
            type(sign) in _COMPARISONS for sign in signs
        ):
            tests = [_COMPARISONS[type(sign)] for sign in signs]
            return _compared(tests, [inner(left), *map(inner, others)])
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            listed = list(map(inner, parts))
            return lambda values: tuple(part(values) for part in listed)
    raise ValueError(f"{ast.unparse(node)} is not allowed")


def _name(name: str, names: frozenset[str], used: set[str]) -> Evaluate:
    if name not in names:
        raise ValueError(f"{name} is no parameter; there are {', '.join(sorted(names))}")
    used.add(name)
    return lambda values: values[name]


def _applied(function: Callable[..., Any], parts: list[Evaluate]) -> Evaluate:
    return lambda values: function(*(part(values) for part in parts))


def _calculated(function: Callable[[Any, Any], Any], left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(values: Values) -> Any:
        a, b = left(values), right(values)
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            # * repeats texts and % writes into them, which no constraint needs
            raise TypeError("arithmetic is on numbers")
        return function(a, b)

    return evaluate


def _all(parts: list[Evaluate]) -> Evaluate:
    return lambda values: all(part(values) for part in parts)


def _any(parts: list[Evaluate]) -> Evaluate:
    return lambda values: any(part(values) for part in parts)


def _compared(tests: list[Callable[[Any, Any], bool]], parts: list[Evaluate]) -> Evaluate:
    def evaluate(values: Values) -> bool:
        results = [part(values) for part in parts]
        return all(test(a, b) for test, a, b in zip(tests, results, results[1:], strict=False))

    return evaluate
