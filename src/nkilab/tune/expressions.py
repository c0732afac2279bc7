"""Constraints between parameters: comparisons and arithmetic on names and numbers, and nothing else.

A text is parsed into Python's syntax tree, which is evaluated node by node. What has no row in the tables
below is refused; nothing is ever handed to Python as code.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import UsageError

Value = int | float | str | bool
Values = Mapping[str, Value]

MOST_CHARACTERS = 500
ALLOWED = "names of parameters, numbers, words in quotes, + - * / // %, comparisons, in (...), and, or, not"
_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
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
_JOINING: dict[type[ast.AST], Callable[[Any], bool]] = {ast.And: all, ast.Or: any}


@dataclass(frozen=True)
class Constraint:
    """A claim about parameters."""

    text: str  # as written
    names: frozenset[str]  # of the parameters that it speaks of
    where: str = ""  # "space.yaml:7", "" if it stands in no file
    tree: ast.AST = field(repr=False, compare=False, default=ast.Constant(True))

    def holds(self, values: Values) -> bool:
        """Whether it is true of the values of its names.

        Raises:
            UsageError: if it divides by zero, or compares or adds what cannot be.
        """
        try:
            return bool(_value(self.tree, values))
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
        raise _refused(f"a constraint has {len(text)} characters; it may have {MOST_CHARACTERS}", where)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        used = frozenset(_names_in(tree, names))
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _refused(f"{text!r} is no constraint: {reason}", where) from None
    except RecursionError:
        raise _refused(f"{text[:40]!r}... is nested too deep", where) from None
    if not used:
        raise _refused(
            f"{text!r} names no parameter", where, f"the parameters are {', '.join(sorted(names))}"
        )
    return Constraint(text, used, where, tree)


def _refused(problem: str, where: str, hint: str = f"a constraint has {ALLOWED}") -> UsageError:
    error = UsageError(problem, hint=hint)
    error.located(where, "")
    return error


def _names_in(node: ast.AST, names: frozenset[str]) -> Iterator[str]:
    """The names that an expression uses."""
    match node:
        case ast.Constant(value=int() | float() | str()):
            parts: list[ast.expr] = []
        case ast.Name() | ast.Attribute() if (name := ast.unparse(node)) in names:
            yield name
            return
        case ast.Name(id=name):
            raise ValueError(f"{name} is no parameter; there are {', '.join(sorted(names))}")
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            parts = [operand]
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
            parts = [left, right]
        case ast.BoolOp(values=parts):
            pass
        case ast.Compare(left=left, ops=signs, comparators=others) if _COMPARISONS.keys() >= set(
            map(type, signs)
        ):
            parts = [left, *others]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            pass
        case _:
            raise ValueError(f"{ast.unparse(node)} is not allowed")
    for part in parts:
        yield from _names_in(part, names)


def _value(node: ast.AST, values: Values) -> Any:
    """What an expression that `_names_in` allows is for values of its names."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=sign, operand=operand):
            return _SIGNS[type(sign)](_value(operand, values))
        case ast.BinOp(left=left, op=sign, right=right):
            a, b = _value(left, values), _value(right, values)
            if not isinstance(a, int | float) or not isinstance(b, int | float):
                # * repeats texts and % writes into them, which no constraint needs
                raise TypeError("arithmetic is on numbers")
            return _ARITHMETIC[type(sign)](a, b)
        case ast.BoolOp(op=joining, values=parts):
            return _JOINING[type(joining)](_value(part, values) for part in parts)
        case ast.Compare(left=left, ops=signs, comparators=others):
            sides = [_value(part, values) for part in (left, *others)]
            return all(_COMPARISONS[type(s)](a, b) for s, a, b in zip(signs, sides, sides[1:], strict=False))
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(_value(part, values) for part in parts)
    return values[ast.unparse(node)]
