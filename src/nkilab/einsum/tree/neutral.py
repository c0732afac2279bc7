"""What statements make of columns that all have one value: whether reductions miss them."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan, nan
from operator import add, sub

from ..language.operators import OPERATORS
from . import nodes
from .nodes import Select, Statement

# what stands for minus infinity: numbers above it make exp() of the difference zero
LEAST = -1e29
FUNCTIONS: dict[str, Callable[[float, float], float]]
FUNCTIONS = {"add": add, "subtract": sub, "maximum": max, "minimum": min}


def reducer(alu: str) -> str:
    """The operator of the language that an engine's is."""
    return next((n for n, o in OPERATORS.items() if o.alu == alu and o.identity is not None), "")


def summed(op: str, value: float | None) -> float | None:
    """What a reduction makes of columns of one value, if that changes no other; None if it might."""
    if value is None:
        return None
    is_neutral = {"add": value == 0.0, "max": value <= LEAST, "min": value >= -LEAST}
    return value if is_neutral.get(OPERATORS[op].alu[:3] if op else "", False) else None


def value_of(s: Statement, operands: dict[str, float | None]) -> float | None:
    """What a statement makes of columns that all have one value; None if that is not known."""
    value = operands.get("src", operands.get("left"))
    match s:
        case Select(otherwise=otherwise):
            return otherwise if operands["src"] in (None, otherwise) else None
        case nodes.Copy() | nodes.Transpose():
            return value
        case nodes.Activate(function=function, scale=scale, bias=bias) if value is not None:
            if function == "exp" and value <= LEAST and isinstance(scale, float | int) and scale > 0:
                return 0.0
            is_even = function in ("copy", "square", "relu", "silu", "tanh", "gelu")
            return 0.0 if is_even and value == 0.0 and bias is None else None
        case nodes.Scale(op0=op0, reverse0=False, op1=op1, reverse1=False) if value is not None:
            return _scaled(_scaled(value, op0), op1) if op1 else _scaled(value, op0)
        case nodes.Combine(op=op):
            return _combined(operands["left"], op, operands["right"])
        case nodes.ScaleCombine(op0=op0, reverse0=False, op1=op1):
            left, right = _scaled(value, op0), operands["right"]
            return _combined(right, op1, left) if s.reverse1 else _combined(left, op1, right)
        case nodes.MatMul() if 0.0 in (operands["stationary"], operands["moving"]):
            return 0.0
        case nodes.Reduce(op=op):
            return summed(reducer(op), value)
    return None


def _combined(left: float | None, op: str, right: float | None) -> float | None:
    """What an operator makes of two values; None if it is not known."""
    if op == "multiply" and 0.0 in (left, right):
        return 0.0
    if left is None or right is None:
        return None
    result = FUNCTIONS[op](left, right) if op in FUNCTIONS else nan
    return None if isnan(result) else result


def _scaled(value: float | None, op: str) -> float | None:
    """A value with an operator and another operand, of which nothing is known."""
    if value is None:
        return None
    is_kept = (op in ("multiply", "divide") and value == 0.0) or (
        op in ("add", "subtract") and value <= LEAST
    )
    return value if is_kept else None
