"""Math operators that instructions take as `op`: one table.

Source: NKI API common fields, "Supported math operators for NKI ISA" (SDK 2.26 and later).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct

from ..errors import RuleError, did_you_mean


class Operator(Struct, frozen=True, eq=False):
    """One math operator."""

    name: str  # as in nki.language
    function: Callable[..., Any]  # over float32 arrays (arithmetic) or integer arrays (bitvec)
    is_bitvec: bool = False  # whether it works on bit patterns of integers
    reduces: bool = False  # whether a reduction may use it
    is_unary: bool = False  # whether it takes one input
    engines: tuple[str, ...] = ("vector",)  # engines that can run it
    since: int = 2  # first chip generation; 2 is trn1

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


def _truth(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *inputs: function(*inputs).astype(np.float32)


def _shift_right(x: Any, places: Any) -> Any:
    # logical: the sign does not come along
    x = np.asarray(x)
    unsigned = x.view(x.dtype.str.replace("i", "u"))
    return (unsigned >> np.asarray(places).astype(unsigned.dtype)).view(x.dtype)


def _shift_left(x: Any, places: Any) -> Any:
    x = np.asarray(x)
    return np.left_shift(x, np.asarray(places).astype(x.dtype))


def _larger_magnitude(x: Any, y: Any) -> Any:
    return np.where(np.abs(x) > np.abs(y), x, y)


def _smaller_magnitude(x: Any, y: Any) -> Any:
    return np.where(np.abs(x) < np.abs(y), x, y)


_EVERY = ("vector", "gpsimd", "scalar")

OPERATORS: dict[str, Operator] = {
    op.name: op
    for op in (
        Operator("invert", np.invert, is_bitvec=True, is_unary=True),
        Operator("bitwise_and", np.bitwise_and, is_bitvec=True, reduces=True),
        Operator("bitwise_or", np.bitwise_or, is_bitvec=True, reduces=True),
        Operator("bitwise_xor", np.bitwise_xor, is_bitvec=True, reduces=True),
        Operator("left_shift", _shift_left, is_bitvec=True),
        Operator("right_shift", _shift_right, is_bitvec=True),
        Operator("add", np.add, reduces=True, engines=_EVERY),
        Operator("subtract", np.subtract, reduces=True),
        Operator("multiply", np.multiply, reduces=True, engines=_EVERY),
        Operator("maximum", np.maximum, reduces=True),
        Operator("minimum", np.minimum, reduces=True),
        Operator("divide", np.divide),
        Operator("equal", _truth(np.equal)),
        Operator("not_equal", _truth(np.not_equal)),
        Operator("greater_equal", _truth(np.greater_equal)),
        Operator("greater", _truth(np.greater)),
        Operator("less_equal", _truth(np.less_equal)),
        Operator("less", _truth(np.less)),
        Operator("logical_not", _truth(np.logical_not), is_unary=True),
        Operator("logical_and", _truth(np.logical_and), reduces=True),
        Operator("logical_or", _truth(np.logical_or), reduces=True),
        Operator("logical_xor", _truth(np.logical_xor), reduces=True),
        Operator("rsqrt", lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(np.float32),
                 is_unary=True, engines=("gpsimd", "scalar")),
        Operator("reciprocal", np.reciprocal, is_unary=True, engines=("vector", "scalar")),
        Operator("abs", np.abs, is_unary=True, engines=("vector", "scalar")),
        Operator("power", np.power, engines=("gpsimd",)),
        Operator("abs_max", _larger_magnitude, reduces=True, since=4),
        Operator("abs_min", _smaller_magnitude, reduces=True, since=4),
        Operator("square", np.square, is_unary=True, since=4),
        Operator("relu", lambda x: np.maximum(x, 0), is_unary=True, since=4),
        Operator("mod", np.mod),
        Operator("fmod", np.fmod),
    )
}  # fmt: skip

# NumPy functions that Beta 1 accepts for an operator, by their own name.
NUMPY_NAMES = {"max": "maximum", "amax": "maximum", "min": "minimum", "amin": "minimum", "sum": "add",
                "prod": "multiply", "absolute": "abs", "true_divide": "divide", "bitwise_not": "invert",
                "bitwise_invert": "invert", "bitwise_left_shift": "left_shift", "all": "logical_and",
                "bitwise_right_shift": "right_shift", "remainder": "mod", "pow": "power"}  # fmt: skip


def operator_named(spelled: Any) -> Operator:
    """The operator that a token spells: a nki.language function, a NumPy function, a name or an Operator.

    Raises:
        RuleError: if it spells none.
    """
    if isinstance(spelled, Operator):
        return spelled
    name = spelled if isinstance(spelled, str) else getattr(spelled, "__name__", None) or repr(spelled)
    known_operator = OPERATORS.get(NUMPY_NAMES.get(name, name))
    if known_operator is None:
        raise RuleError(
            f"op is {name}; it must be one of {', '.join(OPERATORS)}",
            hint=did_you_mean(name, OPERATORS),
            source='NKI API common fields, "Supported math operators"',
        )
    return known_operator


def apply(op: Operator, x: Any, y: Any, reverse: bool = False) -> Any:
    """`x <op> y`, or `y <op> x` if reversed; a unary operator ignores `y`."""
    if op.is_unary:
        return op.function(x)
    return op.function(y, x) if reverse else op.function(x, y)
