"""tensor_scalar_reduce and exponential against hand values, NumPy and the math module."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.tiles.tile import View, array_of
from nkilab.trace.session import Session
from tests.uses import Tile, call, new_tile, open_session, part_of, result

REDUCE, EXPONENTIAL = REGISTRY["tensor_scalar_reduce"], REGISTRY["exponential"]
DATA = np.random.default_rng(1).integers(-3, 4, (4, 2, 5)).astype(np.float32)
REDUCTIONS: dict[str, Any] = {"add": np.sum, "multiply": np.prod, "maximum": np.max, "minimum": np.min}


def reduced(session: Session, **use: Any) -> list[float] | None:
    """Row results of one call, if it reads them out."""
    data = use.pop("data", np.float32([[1, 2, 3]]))
    res = new_tile(session, Tile((len(data), 1))) if use.pop("reads", True) else None
    attributes = {"op0": "add", "operand0": 0.0, "reduce_op": "add", **use}
    call(
        session,
        REDUCE,
        dst=new_tile(session, Tile(data.shape)),
        data=new_tile(session, data),
        reduce_res=res,
        **attributes,
    )
    return None if res is None else array_of(res)[:, 0].tolist()


@pytest.mark.parametrize("reduce_op", REDUCTIONS)
def test_rows_are_reduced_over_all_free_axes(reduce_op: str) -> None:
    session = open_session(MACHINES["trn2"])
    column = np.float32([[1], [2], [-1], [0]])
    got = reduced(session, data=DATA, op0="subtract", operand0=new_tile(session, column), reduce_op=reduce_op)
    expected = REDUCTIONS[reduce_op]((DATA - column[..., None]).reshape(4, -1), axis=1)
    assert got == expected.tolist()


def test_the_tile_result_is_that_of_tensor_scalar() -> None:
    got = result(REDUCE, DATA.shape, data=DATA, op0="multiply", operand0=3, reduce_op="maximum")
    np.testing.assert_array_equal(got, DATA * 3)


def test_a_unary_operator_takes_no_operand() -> None:
    for operand in (None, 0):
        got = result(REDUCE, DATA.shape, data=DATA, op0="abs", operand0=operand, reduce_op="add")
        np.testing.assert_array_equal(got, np.abs(DATA))


def test_the_registers_carry_over_until_they_are_reset_or_loaded() -> None:
    session = open_session(MACHINES["trn2"])
    assert reduced(session, reads=False) is None
    assert reduced(session, reduce_cmd="reduce") == [12]
    assert reduced(session, reduce_cmd="load_reduce", reduce_init=100.0) == [106]
    assert reduced(session, reduce_cmd="load_reduce", reduce_init=new_tile(session, [[7]])) == [13]
    assert reduced(session) == [6]


def test_the_sign_is_turned_in_the_result_and_not_in_the_registers() -> None:
    session = open_session(MACHINES["trn2"])
    assert reduced(session, reduce_res_negate=True) == [-6]
    assert reduced(session, reduce_cmd="reduce") == [12]


def test_row_results_are_of_float32_not_of_the_rounded_tile() -> None:
    # 1 + 2^-9 rounds to 1 in bfloat16
    session = open_session(MACHINES["trn2"])
    res, dst = new_tile(session, Tile((1, 1))), new_tile(session, Tile((1, 4), "bfloat16"))
    call(
        session,
        REDUCE,
        dst=dst,
        data=new_tile(session, np.ones((1, 4))),
        op0="add",
        operand0=2.0**-9,
        reduce_op="add",
        reduce_res=res,
    )
    assert array_of(res).tolist() == [[4 + 2.0**-7]]


def test_a_result_column_inside_dst_is_written_last() -> None:
    # NKI 0.6 release notes, for activation: reduce_res that aliases dst is not overwritten by it
    session = open_session(MACHINES["trn2"])
    dst = new_tile(session, Tile((1, 3)))
    call(
        session,
        REDUCE,
        dst=dst,
        data=new_tile(session, [[1, 2, 3]]),
        op0="add",
        operand0=0.0,
        reduce_op="add",
        reduce_res=part_of(dst, (0, 0), (1, 1)),
    )
    assert array_of(dst).tolist() == [[6, 2, 3]]


def test_registers_belong_to_partitions() -> None:
    session = open_session(MACHINES["trn2"])
    tile = new_tile(session, np.ones((64, 3)))
    lower = part_of(tile, (32, 0), (32, 3))
    for view, factor in ((tile, 1.0), (lower, 10.0)):
        call(
            session,
            REDUCE,
            dst=view,
            data=view,
            op0="multiply",
            operand0=factor,
            reduce_op="add",
            reduce_cmd="reset_reduce",
        )
    assert session.registers["vector"][:64:16].tolist() == [3, 3, 30, 30]


def exponential(session: Session, data: Any, cmd: str = "reset_reduce", **use: Any) -> tuple[View, View]:
    rows = new_tile(session, np.float32(data))
    dst, res = new_tile(session, Tile(rows.layout.shape)), new_tile(session, Tile((rows.layout.shape[0], 1)))
    call(session, EXPONENTIAL, dst=dst, src=rows, reduce_cmd=cmd, reduce_res=res, **use)
    return dst, res


def test_a_power_of_e_is_taken_of_the_difference_in_float32() -> None:
    session = open_session(MACHINES["trn3"])
    src, most = np.float32([[-3.5, 0, 2.25], [10, 11, 12]]), np.float32([[2.25], [12]])
    dst, _ = exponential(session, src, max_value=new_tile(session, most))
    expected = [[math.exp(float(x - m)) for x in row] for row, (m,) in zip(src, most, strict=True)]
    np.testing.assert_array_equal(array_of(dst), np.array(expected, np.float32))


def test_row_sums_of_powers_run_over_calls() -> None:
    session = open_session(MACHINES["trn3"])
    assert array_of(exponential(session, [[0, 0]])[1]).tolist() == [[2]]
    assert array_of(exponential(session, [[1, 1]], "reduce", max_value=1.0)[1]).tolist() == [[4]]
    loaded = exponential(session, [[0]], "load_reduce", reduce_init=0.5)[1]
    assert array_of(loaded).tolist() == [[1.5]]


def test_a_power_of_e_goes_into_integers_rounded_to_even() -> None:
    # hand: e = 2.718, e^2 = 7.389, e^5 = 148.4 which int8 does not hold
    got = result(EXPONENTIAL, Tile((1, 3), "int8"), machine="trn3", src=(np.array([[1, 2, 5]]), "int16"))
    assert got.tolist() == [[3, 7, 127]]
