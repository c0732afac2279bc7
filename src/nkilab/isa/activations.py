"""Activation functions of ScalarE: one table.

Each is the mathematical function, evaluated in float64 and rounded to float32; the hardware evaluates
piecewise polynomials whose bits are not published. Ranges and names: NKI API common fields, "Supported
Activation Functions for NKI ISA".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from math import pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from ..code_cache import compiled
from ..errors import RuleError, did_you_mean
from .operators import NUMPY_NAMES


@cache
def _loop(function: Callable[[float], float]) -> Any:
    """A compiled loop of a function over the elements of an array."""

    def each(values: np.ndarray, out: np.ndarray) -> None:
        for i in range(values.size):
            out[i] = function(values[i])

    return compiled(each, function.__name__ + sha256(Path(__file__).read_bytes()).hexdigest())


def _of_each(function: Callable[[float], float], x: np.typing.ArrayLike) -> Any:
    values = np.asarray(x, np.float64)
    out = np.empty(values.shape)
    _loop(function)(values.reshape(-1), out.reshape(-1))
    return out[()]


def erf(x: np.typing.ArrayLike) -> Any:
    """The error function, element by element, float64."""
    return _of_each(math.erf, x)


def erfc(x: np.typing.ArrayLike) -> Any:
    """1 - erf(x) without the cancellation at large x, element by element, float64."""
    return _of_each(math.erfc, x)


class Activation(Struct, frozen=True, eq=False):
    """One activation function."""

    name: str  # as in nki.language
    function: Callable[[Any], Any]  # float64 to float64
    low: float = -np.inf  # smallest magnitude or value of the documented input range
    high: float = np.inf  # largest value of the documented input range
    is_by_magnitude: bool = False  # whether the range bounds the magnitude
    # whether nki.isa.activation lists it; the others only serve nki.language functions
    is_documented: bool = True

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def accepts(self, values: np.ndarray) -> bool:
        """Whether all values (NaN apart) lie in the documented range."""
        if self.low == -np.inf and self.high == np.inf:
            return True
        tested = np.abs(values) if self.is_by_magnitude else values
        # pi and pi/2 as float32 round up; what the user can write as the bound is inside
        return not bool(((tested < np.float32(self.low)) | (tested > np.float32(self.high))).any())


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _normal_cdf(x: Any) -> Any:
    # not 1 + erf: for x < -6 nothing of it would be left
    return 0.5 * erfc(-x / sqrt(2))


def _gelu_dx(x: Any) -> Any:
    return _normal_cdf(x) + x * np.exp(-x * x / 2) / sqrt(2 * pi)


def _gelu_tanh(x: Any) -> Any:
    # (1 + tanh u) / 2 is sigmoid(2 u), which keeps its digits for large negative u
    return x * _sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x**3))


def _gelu_sigmoid(x: Any) -> Any:
    return x * _sigmoid(1.702 * x)


def _gelu_sigmoid_dx(x: Any) -> Any:
    s = _sigmoid(1.702 * x)
    return s + 1.702 * x * s * (1 - s)


def _silu(x: Any) -> Any:
    return x * _sigmoid(x)


def _silu_dx(x: Any) -> Any:
    s = _sigmoid(x)
    return s * (1 + x * (1 - s))


def _softplus(x: Any) -> Any:
    return np.logaddexp(0, x)


def _mish(x: Any) -> Any:
    return x * np.tanh(_softplus(x))


def _erf_dx(x: Any) -> Any:
    return 2 / sqrt(pi) * np.exp(-x * x)


ACTIVATIONS: dict[str, Activation] = {
    f.name: f
    for f in (
        Activation("copy", np.positive),
        Activation("square", np.square),
        Activation("sigmoid", _sigmoid),
        Activation("relu", lambda x: np.maximum(x, 0)),
        Activation("gelu", lambda x: x * _normal_cdf(x)),
        Activation("gelu_dx", _gelu_dx),
        Activation("gelu_apprx_tanh", _gelu_tanh),
        Activation("gelu_apprx_sigmoid", _gelu_sigmoid),
        Activation("gelu_apprx_sigmoid_dx", _gelu_sigmoid_dx),
        Activation("silu", _silu),
        Activation("silu_dx", _silu_dx),
        Activation("tanh", np.tanh),
        Activation("softplus", _softplus),
        Activation("mish", _mish),
        Activation("erf", erf),
        Activation("erf_dx", _erf_dx),
        Activation("exp", np.exp),
        Activation("log", np.log, 2.0**-64, 2.0**64),
        Activation("sin", np.sin, -pi, pi),
        Activation("arctan", np.arctan, -pi / 2, pi / 2),
        Activation("sqrt", np.sqrt, 2.0**-116, 2.0**118),
        Activation("rsqrt", lambda x: 1 / np.sqrt(x), 2.0**-87, 2.0**97),
        Activation("reciprocal", np.reciprocal, 2.0**-42, 2.0**42, is_by_magnitude=True),
        Activation("sign", np.sign),
        Activation("abs", np.abs),
        Activation("cos", np.cos, is_documented=False),
        Activation("tan", np.tan, is_documented=False),
        Activation("ceil", np.ceil, is_documented=False),
        Activation("floor", np.floor, is_documented=False),
        Activation("trunc", np.trunc, is_documented=False),
    )
}


def applied(op: Activation, values: np.ndarray) -> tuple[np.ndarray, str]:
    """A function of float32 `values`, and the sentence to warn with if one lies outside its range, or ""."""
    if op.name == "copy":
        return values, ""
    warning = "" if op.accepts(values) else (
        f"an input of {op} lies outside its documented range [{op.low:.6g}, {op.high:.6g}]; "
        "the hardware gives an undefined result there"
    )  # fmt: skip
    return op.function(values.astype(np.float64)).astype(np.float32), warning


def activation_named(spelled: Any) -> Activation:
    """The activation function that a token spells: a nki.language or NumPy function, a name or an Activation.

    Raises:
        RuleError: if it spells none.
    """
    if isinstance(spelled, Activation):
        return spelled
    name = spelled if isinstance(spelled, str) else getattr(spelled, "__name__", repr(spelled))
    activation_found = ACTIVATIONS.get(NUMPY_NAMES.get(name, name))
    if activation_found is None or not activation_found.is_documented:
        listed = ", ".join(n for n, f in ACTIVATIONS.items() if f.is_documented)
        raise RuleError(
            f"op is {name}; it must be one of {listed}",
            hint=did_you_mean(name, ACTIVATIONS),
            source='NKI API common fields, "Supported activation functions"',
        )
    return activation_found
