"""Scans against loops over Python numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.tiles.tile import array_of
from nkilab.trace.session import Session
from tests.isa.warned import heard
from tests.uses import Tile, call, new_tile, open_session, result

SCAN, CUMULATIVE = REGISTRY["tensor_tensor_scan"], REGISTRY["tensor_scalar_cumulative"]
OPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "maximum": max,
    "minimum": min,
    "greater": lambda x, y: float(x > y),
}
IDENTITY = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}
DRAW = np.random.default_rng(1)
# small whole numbers: every order of operations gives the same float32
ONE, TWO = (DRAW.integers(-2, 3, (3, 6)).astype(np.float32) for _ in range(2))


@pytest.mark.parametrize("reverse1", [False, True])
@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("op1", OPS)
@pytest.mark.parametrize("op0", OPS)
def test_a_scan_is_a_recurrence_along_each_row(op0: str, op1: str, reverse0: bool, reverse1: bool) -> None:
    initial = np.float32([[1], [-2], [3]])
    got = result(
        SCAN,
        (3, 6),
        data0=ONE,
        data1=TWO,
        initial=initial,
        op0=op0,
        op1=op1,
        reverse0=reverse0,
        reverse1=reverse1,
    )
    for row in range(3):
        running = float(initial[row, 0])
        for x, y, z in zip(ONE[row].tolist(), TWO[row].tolist(), got[row].tolist(), strict=True):
            inner = OPS[op0](running, x) if reverse0 else OPS[op0](x, running)
            running = OPS[op1](y, inner) if reverse1 else OPS[op1](inner, y)
            assert z == running


def test_a_scan_goes_on_from_the_last_column_of_another() -> None:
    # the public example: two halves chained are one scan
    draw = np.random.default_rng(2)
    a, b = draw.random((4, 10), np.float32), draw.random((4, 10), np.float32)
    whole = result(SCAN, (4, 10), data0=a, data1=b, initial=0, op0="multiply", op1="add")
    left = result(SCAN, (4, 5), data0=a[:, :5], data1=b[:, :5], initial=0, op0="multiply", op1="add")
    right = result(
        SCAN, (4, 5), data0=a[:, 5:], data1=b[:, 5:], initial=left[:, 4:], op0="multiply", op1="add"
    )
    np.testing.assert_array_equal(whole, np.concatenate([left, right], axis=1))


def test_a_scan_keeps_float32_between_steps() -> None:
    # bfloat16 would stay at 256: 256 + 1 rounds back
    got = result(
        SCAN,
        Tile((1, 3), "bfloat16"),
        data0=(np.ones((1, 3)), "bfloat16"),
        data1=(np.ones((1, 3)), "bfloat16"),
        initial=256.0,
        op0="multiply",
        op1="add",
    )
    assert got.astype(np.float32).tolist() == [[256, 258, 260]]


def test_a_scan_runs_through_all_free_axes() -> None:
    ones = np.ones((2, 2, 3), np.float32)
    got = result(SCAN, (2, 2, 3), data0=ones, data1=ones, initial=0.0, op0="multiply", op1="add")
    assert got[1].tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("op1", IDENTITY)
@pytest.mark.parametrize("op0", OPS)
def test_a_cumulative_call_is_a_running_reduction(op0: str, op1: str) -> None:
    column = np.float32([[2], [-1], [0]])
    got = result(CUMULATIVE, (3, 6), src=ONE, op0=op0, op1=op1, imm0=column)
    for row in range(3):
        running = IDENTITY[op1]
        for x, z in zip(ONE[row].tolist(), got[row].tolist(), strict=True):
            running = OPS[op1](OPS[op0](x, float(column[row, 0])), running)
            assert z == running


def cumulate(session: Session, cmd: str, op1: str = "add", imm1: Any = None) -> list[float]:
    """The running reduction of 1, 2, 3 by `cmd`."""
    dst = new_tile(session, Tile((1, 3)))
    call(
        session,
        CUMULATIVE,
        dst=dst,
        src=new_tile(session, [[1, 2, 3]]),
        op0="add",
        op1=op1,
        imm0=0.0,
        imm1=imm1,
        reduce_cmd=cmd,
    )
    return array_of(dst)[0].tolist()


def test_cumulative_calls_continue_load_and_reset_the_registers() -> None:
    session = open_session(MACHINES["trn2"])
    assert cumulate(session, "reset_reduce") == [1, 3, 6]
    assert cumulate(session, "reduce") == [7, 9, 12]
    # the public example gives imm1 with reduce too, which does not read it
    assert cumulate(session, "reduce", imm1=100.0) == [13, 15, 18]
    assert cumulate(session, "load_reduce", imm1=100.0) == [101, 103, 106]
    assert cumulate(session, "load_reduce", imm1=new_tile(session, [[-1]])) == [0, 2, 5]
    assert cumulate(session, "reduce", "subtract") == [-4, 6, -3]
    assert cumulate(session, "reset_reduce") == [1, 3, 6]


def test_continuing_from_registers_that_nothing_set_is_nan_and_a_warning() -> None:
    session = open_session(MACHINES["trn2"])
    with heard() as texts:
        running = cumulate(session, "reduce")
    assert np.isnan(running).all()
    assert texts == [
        "tensor_scalar_cumulative: reduce_cmd is reduce and the registers hold nothing known, as nothing "
        "reset or loaded them before or an instruction was idle; the result is nan"
    ]


def test_a_cumulative_sum_in_eight_bits_saturates_on_the_write_alone() -> None:
    got = result(
        CUMULATIVE,
        Tile((1, 3), "int8"),
        src=(np.array([[100, 100, -90]]), "int8"),
        op0="add",
        op1="add",
        imm0=0.0,
    )
    assert got.tolist() == [[100, 127, 110]]


def test_a_unary_operator_leaves_the_immediate_out() -> None:
    got = result(CUMULATIVE, (1, 3), src=np.float32([[-1, 2, -3]]), op0="abs", op1="add", imm0=5.0)
    assert got.tolist() == [[1, 3, 6]]
