"""Operators of cascades: one table with arity, identity, meaning and how engines compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import pi
from typing import Any, TypeVar

import numpy as np

from ...isa.activations import ACTIVATIONS
from ...isa.operators import OPERATORS as ENGINE_OPERATORS

T = TypeVar("T")
TURN = float(np.float32(2 * pi))


@dataclass(frozen=True)
class Operator:
    """One operator of the language."""

    name: str  # as in `unary(name)` or `binary(name)`
    arity: int  # operands it takes; 0 for any number
    function: Callable[..., Any]  # over float64 arrays, with `arity` arguments, or two where the arity is 0
    # the value that changes nothing; None if it has none, and then it reduces nothing
    identity: float | None = None
    is_commutative: bool = False  # whether its operands may be swapped
    alu: str = ""  # operator of VectorE that computes it; "" if none does
    activation: str = ""  # function of ScalarE that computes it; "" if none does
    is_truth: bool = False  # whether it gives 1 or 0
    infix: str = ""  # how Python writes it between numbers; "" for a function
    # what it is made of where no engine has it: (operator, operands), each the place of one, a number as a
    # float, or -1 for the step before and -2 for the one before that
    steps: tuple[tuple[str, tuple[int | float, ...]], ...] = ()
    is_angular: bool = False  # whether its steps take whole turns off an angle

    def on(self, *numbers: float) -> float:
        """What it makes of numbers."""
        is_nary = not self.arity and len(numbers) > 1
        return float(reduce(self.function, numbers) if is_nary else self.function(*numbers))


def taken_apart(op: Operator, operands: Sequence[T], apply: Callable[..., T], number: Callable[..., T]) -> T:
    """What the last step of an operator makes of operands, by what operators and numbers make."""
    results = list[T]()
    for name, places in op.steps:
        each = (number(p) if isinstance(p, float) else (operands if p >= 0 else results)[p] for p in places)
        results.append(apply(name, [*each]))
    return results[-1]


def _truth(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: function(a, b).astype(np.float64)


_NARY = (
    Operator("multiply", 0, np.multiply, 1.0, True, "multiply", infix="*"),
    Operator("add", 0, np.add, 0.0, True, "add", infix="+"),
    Operator("maximum", 0, np.maximum, -np.inf, True, "maximum"),
    Operator("minimum", 0, np.minimum, np.inf, True, "minimum"),
)
_BINARY = (
    Operator("subtract", 2, np.subtract, alu="subtract", infix="-"),
    Operator("divide", 2, np.divide, steps=(("reciprocal", (1,)), ("multiply", (0, -1))), infix="/"),
    Operator("subtract_exp", 2, lambda a, b: np.exp(a - b), steps=(("subtract", (0, 1)), ("exp", (-1,)))),
    Operator("logexp", 2, lambda a, b: np.log(a) + b, steps=(("log", (0,)), ("add", (-1, 1)))),
    *(
        Operator(name, 2, _truth(getattr(np, name)), None, is_even, name, is_truth=True)
        for name, is_even in (
            ("equal", True),
            ("not_equal", True),
            ("greater", False),
            ("greater_equal", False),
            ("less", False),
            ("less_equal", False),
        )
    ),
    Operator("power", 2, np.power, alu="power"),
    Operator("mod", 2, np.mod, alu="mod"),
)
# the second where the first is not zero, else the third
_TERNARY = (Operator("where", 3, lambda a, b, c: np.where(np.asarray(a) != 0, b, c)),)
_UNARY = (
    Operator("negative", 1, np.negative, steps=(("multiply", (0, -1.0)),)),
    # x = n T + r, T being 2 pi as float32 has it; of n 2 pi, n (T - 2 pi) are left: a part of x
    *(
        Operator(name, 1, function, steps=(
            ("mod", (0, TURN)), *shift, ("multiply", (0, (TURN - 2 * pi) / TURN)), ("add", (-1, -2)),
            ("mod", (-1, TURN)), ("subtract", (pi, -1)), ("sin", (-1,)),
        ), is_angular=True)
        for name, function, shift in (("sine", np.sin, ()), ("cosine", np.cos, (("add", (-1, pi / 2)),)))
    ),
    Operator("reciprocal", 1, np.reciprocal, activation="reciprocal"),
    *(
        Operator(name, 1, ACTIVATIONS[name].function, activation=name)
        for name in (
            "exp", "log", "sqrt", "rsqrt", "square", "abs", "sign", "relu", "sigmoid", "silu", "gelu", "tanh",
            "gelu_apprx_tanh", "softplus", "mish", "erf", "sin", "arctan", "gelu_dx", "silu_dx",
            "erf_dx",
        )
    ),
)  # fmt: skip
OPERATORS: dict[str, Operator] = {op.name: op for op in (*_NARY, *_BINARY, *_TERNARY, *_UNARY)}
ALIASES = {"mul": "multiply", "max": "maximum", "min": "minimum", "sub": "subtract", "div": "divide",
           "true_divide": "divide", "neg": "negative", "eq": "equal", "pow": "power", "swish": "silu",
           "remainder": "mod"}  # fmt: skip
# comparisons of indices
RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal,
    "!=": np.not_equal,
}  # fmt: skip
# What is no name of an operator, and which one is meant.
SYNONYMS = {"sum": "add", "plus": "add", "minus": "subtract", "prod": "multiply", "product": "multiply",
            "times": "multiply"}  # fmt: skip

assert all(not op.alu or op.alu in ENGINE_OPERATORS for op in OPERATORS.values())


def operator_named(name: str) -> Operator | None:
    """The operator of a name or alias; None if there is none."""
    return OPERATORS.get(ALIASES.get(name, name))


def reducing() -> list[str]:
    """Names of operators that may reduce."""
    return [op.name for op in OPERATORS.values() if op.identity is not None]
