"""Activation functions against scalar formulas of the math module, ranges, and the accumulators."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nkilab.errors import NkilabWarning
from nkilab.isa import REGISTRY
from nkilab.isa.activations import ACTIVATIONS
from nkilab.machine import MACHINES
from nkilab.tiles.tile import array_of
from nkilab.trace.session import Session
from tests.uses import Tile, call, new_tile, open_session, result

ACTIVATION, ACTIVATION_REDUCE = REGISTRY["activation"], REGISTRY["activation_reduce"]


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else math.exp(x)


def phi(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def softplus(x: float) -> float:
    return x if x > 40 else math.log1p(math.exp(x))


# NKI API common fields, "Supported activation functions", as scalar functions; derivatives by hand
FORMULAS: dict[str, Callable[[float], float]] = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "sigmoid": logistic,
    "relu": lambda x: x if x > 0 else 0.0,
    "gelu": lambda x: x * normal(x),
    "gelu_dx": lambda x: normal(x) + x * phi(x),
    "gelu_apprx_tanh": lambda x: x * logistic(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)),
    "gelu_apprx_sigmoid": lambda x: x * logistic(1.702 * x),
    "gelu_apprx_sigmoid_dx": lambda x: logistic(1.702 * x) * (1 + 1.702 * x * logistic(-1.702 * x)),
    "silu": lambda x: x * logistic(x),
    "silu_dx": lambda x: logistic(x) * (1 + x * logistic(-x)),
    "tanh": math.tanh,
    "softplus": softplus,
    "mish": lambda x: x * math.tanh(softplus(x)),
    "erf": math.erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x),
    "exp": lambda x: math.exp(x) if x < 700 else math.inf,
    "log": math.log,
    "sin": math.sin,
    "arctan": math.atan,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sign": lambda x: (x > 0) - (x < 0),
    "abs": abs,
    "cos": math.cos,
    "tan": math.tan,
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
}
# NKI API common fields, valid input ranges; the last is a magnitude
RANGES = {
    "log": (2.0**-64, 2.0**64),
    "sin": (-math.pi, math.pi),
    "arctan": (-math.pi / 2, math.pi / 2),
    "sqrt": (2.0**-116, 2.0**118),
    "rsqrt": (2.0**-87, 2.0**97),
    "reciprocal": (2.0**-42, 2.0**42),
}
POINTS = [-12.0, -7.0, -3.3, -1.5, -0.75, -0.1, -1e-3, 0.0, 1e-3, 0.1, 0.75, 1.5, 3.3, 7.0, 12.0, 80.0]
DOCUMENTED = [name for name, function in ACTIVATIONS.items() if function.is_documented]


def points(name: str) -> np.ndarray:
    low, high = RANGES.get(name, (-math.inf, math.inf))
    return np.float32([p for p in POINTS if low <= p <= high])


def test_every_function_has_a_formula_here() -> None:
    assert set(ACTIVATIONS) == set(FORMULAS)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_function_computes_its_formula(name: str) -> None:
    x = points(name)
    got = result(ACTIVATION, (1, x.size), op=name, data=x[None])[0]
    with np.errstate(over="ignore"):
        expected = np.array([FORMULAS[name](float(v)) for v in x], np.float32)
    # two ways to write one function in double precision may differ by one rounding to float32
    np.testing.assert_allclose(got, expected, rtol=2.0**-23, atol=1e-45)


@pytest.mark.parametrize("name", [n for n in ACTIVATIONS if n not in DOCUMENTED])
def test_a_function_of_the_language_alone_computes_its_formula(name: str) -> None:
    x = np.float32(POINTS)
    got = ACTIVATIONS[name].function(x.astype(np.float64)).astype(np.float32)
    expected = np.array([FORMULAS[name](float(v)) for v in x], np.float32)
    np.testing.assert_allclose(got, expected, rtol=2.0**-23)


def test_gelu_keeps_its_digits_in_the_negative_tail() -> None:
    # hand: -8 * erfc(8 / sqrt(2)) / 2; 1 + erf loses all digits there
    got = result(ACTIVATION, (1, 1), op="gelu", data=np.float32([[-8]]))[0, 0]
    assert got == pytest.approx(-8 * 6.220960574271785e-16, rel=2**-23)


@pytest.mark.parametrize("name", RANGES)
def test_the_bounds_of_a_range_are_inside_and_beyond_them_is_one_warning(name: str) -> None:
    low, high = RANGES[name]
    result(ACTIVATION, (1, 2), op=name, data=np.float32([[low, high]]))
    for outside in (np.nextafter(np.float32(high), np.float32(np.inf)), np.float32(low) * np.float32(0.99)):
        beyond = (
            outside
            if (name != "sin" and name != "arctan") or outside > 0
            else np.float32(low) * np.float32(1.01)
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result(ACTIVATION, (1, 2), op=name, data=np.float32([[beyond, 1.0]]))
        assert [(w.category, str(w.message)) for w in caught] == [
            (
                NkilabWarning,
                f"activation: an input of {name} lies outside its documented range [{low:.6g}, {high:.6g}]; "
                "the hardware gives an undefined result there",
            )
        ]


def test_the_range_of_reciprocal_bounds_the_magnitude() -> None:
    assert result(ACTIVATION, (1, 1), op="reciprocal", data=np.float32([[-4.0]]))[0, 0] == -0.25


def test_scale_and_bias_apply_per_partition_before_the_function() -> None:
    got = result(
        ACTIVATION, (2, 2), op="relu", data=np.float32([[1, -1], [2, 3]]),
        scale=np.float32([[2], [-1]]), bias=np.float32([[0.5], [2.5]]),
    )  # fmt: skip
    assert got.tolist() == [[2.5, 0.0], [0.5, 0.0]]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_bias_of_any_float_type_is_added_in_float32(dtype: str) -> None:
    got = result(
        ACTIVATION, (1, 1), op="copy", data=np.float32([[2.0**-12]]), bias=(np.array([[1.0]]), dtype)
    )
    assert got[0, 0] == 1 + 2.0**-12


def test_the_function_is_rounded_once_into_dst() -> None:
    # hand: exp(1) = 2.718281...; bfloat16 neighbours are 2.703125 and 2.71875
    got = result(ACTIVATION, Tile((1, 1), "bfloat16"), op="exp", data=np.float32([[1]]))
    assert float(got[0, 0]) == 2.71875


def reduce_call(session: Session, data: Any, cmd: str, *, reads: bool = True) -> list[float] | None:
    """Sum rows of `data` into the registers; what they hold then, if asked."""
    rows = np.float32(data)
    out = new_tile(session, Tile(rows.shape))
    res = new_tile(session, Tile((rows.shape[0], 1)))
    optional = {"reduce_res": res} if reads else {}
    call(
        session,
        ACTIVATION,
        dst=out,
        op="copy",
        data=new_tile(session, rows),
        reduce_op="add",
        reduce_cmd=cmd,
        **optional,
    )
    return array_of(res)[:, 0].tolist() if reads else None


def test_registers_accumulate_over_calls_until_they_are_reset() -> None:
    session = open_session(MACHINES["trn2"])
    assert reduce_call(session, [[1, 2], [3, 4]], "reset_reduce") == [3, 7]
    assert reduce_call(session, [[10, 20], [30, 40]], "reduce") == [33, 77]
    assert reduce_call(session, [[5, 5], [5, 5]], "idle") == [33, 77]
    assert reduce_call(session, [[5, 5], [5, 5]], "reset") == [0, 0]
    assert reduce_call(session, [[1, 1], [2, 2]], "reduce") == [2, 4]
    assert reduce_call(session, [[7, 7], [1, 1]], "reset_reduce", reads=False) is None
    assert reduce_call(session, [[0, 0], [0, 0]], "idle") == [14, 2]


def test_registers_belong_to_partitions() -> None:
    session = open_session(MACHINES["trn2"])
    reduce_call(session, np.ones((64, 2)), "reset_reduce")
    tile = new_tile(session, np.full((64, 3), 2.0))
    lower = type(tile)(tile.storage, 96, type(tile.layout)((32, 3), (3, 1), tile.layout.dtype, "sbuf", 0, 32))
    call(session, ACTIVATION, dst=lower, op="copy", data=lower, reduce_op="add", reduce_cmd="reduce")
    assert session.registers["scalar"][:96:16].tolist() == [2, 2, 8, 8, 0, 0]


def test_activation_reduce_replaces_what_the_registers_held() -> None:
    session = open_session(MACHINES["trn2"])
    reduce_call(session, [[100, 100]], "reset_reduce")
    res = new_tile(session, Tile((1, 1)))
    for _ in range(2):
        call(
            session, ACTIVATION_REDUCE, dst=new_tile(session, Tile((1, 3))), op="square",
            data=new_tile(session, [[1, 2, 3]]), reduce_op="add", reduce_res=res,
        )  # fmt: skip
    assert array_of(res).tolist() == [[14]]
    assert reduce_call(session, [[1, 1]], "reduce") == [16]


def test_row_sums_are_of_float32_results_not_of_the_rounded_dst() -> None:
    # 1 + 2^-9 rounds to 1 in bfloat16; its float32 sum over four elements does not
    session = open_session(MACHINES["trn2"])
    res = new_tile(session, Tile((1, 1)))
    call(
        session, ACTIVATION_REDUCE, dst=new_tile(session, Tile((1, 4), "bfloat16")), op="copy",
        data=new_tile(session, np.full((1, 4), 1 + 2.0**-9)), reduce_op="add", reduce_res=res,
    )  # fmt: skip
    assert array_of(res).tolist() == [[4 + 2.0**-7]]


def test_rows_of_several_free_axes_are_summed_whole() -> None:
    session = open_session(MACHINES["trn2"])
    res = new_tile(session, Tile((2, 1)))
    call(
        session, ACTIVATION_REDUCE, dst=new_tile(session, Tile((2, 2, 2))), op="copy",
        data=new_tile(session, np.arange(8).reshape(2, 2, 2)), reduce_op="add", reduce_res=res,
    )  # fmt: skip
    assert array_of(res).tolist() == [[6], [22]]
