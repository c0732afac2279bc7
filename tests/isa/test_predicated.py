"""Predicated copies and selections against hand values and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.tiles.dtypes import DTYPES
from nkilab.tiles.tile import View, array_of
from nkilab.trace.session import Session
from tests.isa.warned import heard
from tests.uses import Tile, call, form_of, new_tile, open_session, result, smallest_use

COPY, SELECT, RANGE = (
    REGISTRY["tensor_copy_predicated"],
    REGISTRY["select_reduce"],
    REGISTRY["range_select"],
)
TENSOR_COPY = REGISTRY["tensor_copy"]
FP32_MIN = np.finfo(np.float32).min
COMPARE = {
    "equal": np.equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


@pytest.fixture
def session() -> Session:
    return open_session(MACHINES["trn2"])


@pytest.mark.parametrize("name", ["uint8", "uint16", "uint32", "bool"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_predicated_copy_is_numpy_where(session: Session, name: str, reverse: bool) -> None:
    draw = np.random.default_rng(1)
    old, new = draw.random((8, 6), np.float32), draw.random((8, 6), np.float32)
    predicate = draw.integers(0, 3, (8, 6))
    dst = new_tile(session, old)
    call(
        session,
        COPY,
        dst=dst,
        src=new_tile(session, new),
        predicate=new_tile(session, predicate, name),
        reverse_pred=reverse,
    )
    np.testing.assert_array_equal(array_of(dst), np.where((predicate == 0) == reverse, new, old))


def test_a_predicated_copy_takes_operands_of_other_ranks(session: Session) -> None:
    # NKI 0.6 release notes: ranks may differ if the elements per partition agree
    dst = new_tile(session, np.zeros((2, 2, 1, 2)))
    src, predicate = (
        new_tile(session, [[1, 2, 3, 4], [5, 6, 7, 8]]),
        new_tile(session, np.array([[[0, 1], [1, 0]], [[1, 1], [0, 0]]]), "uint8"),
    )
    call(session, COPY, dst=dst, src=src, predicate=predicate)
    assert array_of(dst).reshape(2, 4).tolist() == [[0, 2, 3, 0], [5, 6, 0, 0]]


@pytest.mark.parametrize(
    ("dtype", "number", "rounded"),
    [
        ("float32", 0.5, 0.5),
        ("bfloat16", 1 + 2.0**-9, 1.0),
        ("int8", 300, 127),
        ("int32", 2**31 - 1, 2**31 - 1),
    ],
)
def test_a_number_is_copied_rounded_to_the_type_of_dst(
    session: Session, dtype: str, number: float, rounded: float
) -> None:
    dst = new_tile(session, [[3, 3]], dtype)
    call(session, COPY, dst=dst, src=number, predicate=new_tile(session, [[0, 1]], "uint8"))
    assert array_of(dst).astype(np.float64).tolist() == [[3, rounded]]


def test_a_predicated_copy_moves_bits(session: Session) -> None:
    bits = np.array([[0x7FC01234, 0x00000001]], np.uint32)
    src = new_tile(session, bits.view(np.float32))
    dst = new_tile(session, [[0, 0]])
    call(session, COPY, dst=dst, src=src, predicate=new_tile(session, [[1, 1]], "uint8"))
    assert array_of(dst).view(np.uint32).tolist() == bits.tolist()


def test_what_a_predicated_copy_leaves_out_stays_unwritten(session: Session) -> None:
    dst, src = new_tile(session, Tile((1, 4)), name="t"), new_tile(session, [[1, 2, 3, 4]])
    predicate, out = new_tile(session, [[1, 0, 0, 1]], "uint8"), new_tile(session, Tile((1, 4)))
    with heard() as texts:
        call(session, COPY, dst=dst, src=src, predicate=predicate)
        call(session, TENSOR_COPY, dst=out, src=dst)
        np.testing.assert_array_equal(array_of(out), [[1, np.nan, np.nan, 4]])
        # the copy hands on what is unwritten; who stores it is told of
        for tile in (dst, out):
            assert tile.storage.written.missing(tile).tolist() == [[False, True, True, False]]
        call(session, COPY, dst=dst, src=src, predicate=predicate, reverse_pred=True)
        call(session, TENSOR_COPY, dst=out, src=dst)
    assert texts == []
    assert array_of(out).tolist() == [[1, 2, 3, 4]]


def test_a_mask_narrows_what_a_predicated_copy_writes(session: Session) -> None:
    dst, out = new_tile(session, Tile((1, 4))), new_tile(session, Tile((1, 4)))
    with heard() as texts:
        call(
            session,
            COPY,
            np.array([[True, True, False, False]]),
            dst=dst,
            src=2.0,
            predicate=new_tile(session, [[1, 0, 1, 1]], "uint8"),
        )
        call(session, TENSOR_COPY, dst=out, src=dst)
    np.testing.assert_array_equal(array_of(out), [[2, np.nan, np.nan, np.nan]])
    assert out.storage.written.missing(out).tolist() == [[False, True, True, True]]
    assert texts == []


def test_a_predicated_copy_counts_as_reading_dst() -> None:
    assert form_of(COPY, MACHINES["trn2"], smallest_use(COPY)).reads_dst


@pytest.mark.parametrize("name", ["uint8", "int8", "uint16", "int16", "bool"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_selection_is_numpy_where(name: str, reverse: bool) -> None:
    draw = np.random.default_rng(2)
    on_true, on_false = draw.random((8, 6), np.float32), draw.random((8, 1), np.float32)
    predicate = draw.integers(0, 2, (8, 6))
    got = result(
        SELECT, (8, 6), predicate=(predicate, name), on_true=on_true, on_false=on_false, reverse_pred=reverse
    )
    np.testing.assert_array_equal(got, np.where((predicate == 0) == reverse, on_true, on_false))


def test_a_negative_predicate_is_true() -> None:
    got = result(SELECT, (1, 2), predicate=([[-1, 0]], "int8"), on_true=np.float32([[5, 6]]), on_false=-2.5)
    assert got.tolist() == [[5, -2.5]]


def select(session: Session, data: Any, cmd: str, res: View | None = None) -> None:
    """Select all of `data`, and reduce it into the registers as `cmd` says."""
    rows = new_tile(session, np.float32(data))
    ones = new_tile(session, np.ones(np.shape(data)), "uint8")
    call(
        session,
        SELECT,
        dst=new_tile(session, Tile(rows.layout.shape)),
        predicate=ones,
        on_true=rows,
        on_false=0.0,
        reduce_cmd=cmd,
        reduce_res=res,
    )


def test_the_registers_keep_the_maximum_over_calls(session: Session) -> None:
    res = new_tile(session, Tile((2, 1)))
    select(session, [[-5, -7], [3, 1]], "reset_reduce")
    select(session, [[-9, -8], [2, 4]], "reduce", res)
    assert array_of(res).tolist() == [[-5], [4]]
    select(session, [[-9, -8], [2, 1]], "reset_reduce", res)
    assert array_of(res).tolist() == [[-8], [2]]


def test_an_idle_selection_leaves_the_registers_unknown(session: Session) -> None:
    res = new_tile(session, Tile((1, 1)))
    select(session, [[1, 2]], "reset_reduce")
    select(session, [[1, 2]], "idle")
    with heard() as texts:
        select(session, [[1, 2]], "reduce", res)
    assert np.isnan(array_of(res)).all()
    assert texts == [
        "select_reduce: reduce_cmd is reduce and the registers hold nothing known, as nothing reset or "
        "loaded them before or an instruction was idle; the result is nan"
    ]


def test_nan_among_the_data_is_not_taken_for_unknown_registers(session: Session) -> None:
    with heard() as texts:
        select(session, [[np.nan, 2]], "reset_reduce")
        select(session, [[1, 2]], "reduce")
    assert texts == []


def test_the_reset_alone_leaves_minus_infinity(session: Session) -> None:
    res = new_tile(session, Tile((1, 1)))
    select(session, [[4, 5]], "reset", res)
    assert array_of(res).tolist() == [[-np.inf]]


def test_the_maximum_is_of_float32_results(session: Session) -> None:
    # 1 + 2^-9 rounds to 1 in bfloat16
    res, dst = new_tile(session, Tile((1, 1))), new_tile(session, Tile((1, 2), "bfloat16"))
    call(
        session,
        SELECT,
        dst=dst,
        predicate=new_tile(session, [[1, 1]], "uint8"),
        on_true=new_tile(session, [[1 + 2.0**-9, 0]]),
        on_false=0.0,
        reduce_cmd="reset_reduce",
        reduce_res=res,
    )
    assert array_of(dst).astype(np.float32).tolist() == [[1, 0]]
    assert array_of(res).tolist() == [[1 + 2.0**-9]]


@pytest.mark.parametrize("second", COMPARE)
@pytest.mark.parametrize("first", COMPARE)
def test_a_range_holds_where_both_comparisons_do(first: str, second: str) -> None:
    data = np.arange(1, 33, dtype=np.float32).reshape(4, 8)
    low, high = np.float32([[3], [5], [7], [40]]), np.float32([[6], [5], [9], [41]])
    got = result(
        RANGE,
        (4, 8),
        on_true_tile=data,
        comp_op0=first,
        comp_op1=second,
        bound0=low,
        bound1=high,
        range_start=2,
    )
    index = 2 + np.arange(8)
    kept = COMPARE[first](index, low) & COMPARE[second](index, high)
    np.testing.assert_array_equal(got, np.where(kept, data, FP32_MIN))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3", "float8_e5m2"])
def test_the_filling_of_a_range_is_minus_infinity_in_small_floats(name: str) -> None:
    # nki.isa.range_select, note on numerical stability
    bound = np.float32([[1]])
    got = result(
        RANGE,
        Tile((1, 2), name),
        on_true_tile=(np.array([[3, 4]]), name),
        comp_op0="less",
        comp_op1="less",
        bound0=bound,
        bound1=bound,
    )
    assert got.astype(np.float32).tolist() == [[3, -np.inf]]


def test_a_range_without_elements_reduces_to_the_filling(session: Session) -> None:
    res, bound = new_tile(session, Tile((1, 1))), new_tile(session, [[0]])
    call(
        session,
        RANGE,
        dst=new_tile(session, Tile((1, 3), "bfloat16")),
        on_true_tile=new_tile(session, [[1, 2, 3]]),
        comp_op0="less",
        comp_op1="less",
        bound0=bound,
        bound1=bound,
        reduce_res=res,
    )
    assert array_of(res).tolist() == [[FP32_MIN]]


def test_a_range_goes_on_in_the_registers_of_another_instruction(session: Session) -> None:
    res, bound = new_tile(session, Tile((1, 1))), new_tile(session, [[9]])
    select(session, [[50, 60]], "reset_reduce")
    call(
        session,
        RANGE,
        dst=new_tile(session, Tile((1, 2))),
        on_true_tile=new_tile(session, [[55, 70]]),
        comp_op0="greater_equal",
        comp_op1="less_equal",
        bound0=bound,
        bound1=bound,
        range_start=9,
        reduce_cmd="reduce",
        reduce_res=res,
    )
    assert array_of(res).tolist() == [[60]]


@pytest.mark.parametrize("start", [7, 7.0, np.int64(7), -3])
def test_a_range_starts_at_any_whole_number(start: Any) -> None:
    got = result(
        RANGE,
        (1, 3),
        on_true_tile=np.float32([[1, 2, 3]]),
        comp_op0="equal",
        comp_op1="equal",
        bound0=np.float32([[start + 1]]),
        bound1=np.float32([[start + 1]]),
        range_start=start,
    )
    assert got.tolist() == [[FP32_MIN, 2, FP32_MIN]]


def test_the_index_runs_over_all_free_axes() -> None:
    data = np.arange(1, 7, dtype=np.float32).reshape(1, 2, 3)
    bound = np.float32([[4]])
    got = result(
        RANGE,
        (1, 2, 3),
        on_true_tile=data,
        comp_op0="greater_equal",
        comp_op1="greater_equal",
        bound0=bound,
        bound1=bound,
    )
    assert got.reshape(-1).tolist() == [FP32_MIN] * 4 + [5, 6]


def test_the_filling_may_be_spelled_as_a_python_or_numpy_number() -> None:
    for spelled in (-3.4028235e38, FP32_MIN, float(FP32_MIN)):
        form_of(RANGE, MACHINES["trn2"], smallest_use(RANGE, {"on_false_value": spelled}))


def test_selections_take_all_types_but_three() -> None:
    numbers = {name for name, dtype in DTYPES.items() if not dtype.is_packed}
    assert numbers - set(SELECT.operands["on_true"].dtypes) == {"tfloat32", "int32", "uint32"}


ROW_ENDS = {"bound0": [[0], [0]], "bound1": [[3], [2]], "comp_op0": "greater_equal", "comp_op1": "less"}


@pytest.mark.parametrize("command", ["idle", "reset_reduce"])
def test_a_range_may_leave_out_what_nothing_wrote(session: Session, command: str) -> None:
    # rows hold 3 and 2 elements; what lies behind them was never written
    data, dst = new_tile(session, [[1, 2, 3, 9], [4, 5, 9, 9]]), new_tile(session, Tile((2, 4)))
    largest = new_tile(session, Tile((2, 1)))
    data.storage.written.remove_where(data, array_of(data) == 9)
    bounds = {n: new_tile(session, v) if n.startswith("bound") else v for n, v in ROW_ENDS.items()}
    outputs = {} if command == "idle" else {"reduce_res": largest}
    with heard() as texts:
        call(session, RANGE, dst=dst, on_true_tile=data, reduce_cmd=command, **bounds, **outputs)
    assert texts == []
    assert array_of(dst).tolist() == [[1, 2, 3, FP32_MIN], [4, 5, FP32_MIN, FP32_MIN]]
    assert dst.storage.written.of(dst) == "all"
    if outputs:
        assert array_of(largest).tolist() == [[3], [5]]


def test_a_maximum_over_a_range_that_nothing_wrote_in_part_is_told_of(session: Session) -> None:
    data, dst = new_tile(session, [[1, 9, 3, 9], [4, 5, 9, 9]], name="s"), new_tile(session, Tile((2, 4)))
    data.storage.written.remove_where(data, array_of(data) == 9)
    bounds = {n: new_tile(session, v) if n.startswith("bound") else v for n, v in ROW_ENDS.items()}
    with heard() as texts:
        call(session, RANGE, dst=dst, on_true_tile=data, reduce_res=new_tile(session, Tile((2, 1))), **bounds)
    assert texts == [
        "reads s: float32[2, 4] in sbuf, which was written in part only; unwritten elements read as nan"
    ]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_selection_uses_of_either_source_what_it_selects(session: Session, reverse: bool) -> None:
    # the second row takes nothing of the column, the first nothing of its second half of the tile
    predicate = np.array([[1, 1, 0, 0], [1, 1, 1, 1]])
    tile, dst = new_tile(session, [[1, 2, 9, 9], [3, 4, 5, 6]]), new_tile(session, Tile((2, 4)))
    column = new_tile(session, [[-1], [9]])
    for view in (tile, column):
        view.storage.written.remove_where(view, array_of(view) == 9)
    with heard() as texts:
        call(
            session, SELECT, dst=dst, predicate=new_tile(session, predicate ^ reverse, "uint8"), on_true=tile,
            on_false=column, reverse_pred=reverse,
        )  # fmt: skip
    assert texts == []
    assert array_of(dst).tolist() == [[1, 2, -1, -1], [3, 4, 5, 6]]
    assert dst.storage.written.of(dst) == "all"


def test_a_selection_hands_on_what_it_takes_of_the_unwritten(session: Session) -> None:
    predicate = new_tile(session, [[1, 0, 1, 0]] * 2, "uint8")
    tile, dst = new_tile(session, [[1, 2, 9, 9], [1, 2, 3, 4]]), new_tile(session, Tile((2, 4)))
    tile.storage.written.remove_where(tile, array_of(tile) == 9)
    with heard() as texts:
        call(session, SELECT, dst=dst, predicate=predicate, on_true=tile, on_false=-1.0)
    assert texts == []
    assert dst.storage.written.missing(dst).tolist() == [[False, False, True, False], [False] * 4]


def test_a_selection_by_a_predicate_that_nothing_wrote_is_told_of(session: Session) -> None:
    predicate = new_tile(session, Tile((1, 4), "uint8"), name="which")
    with heard() as texts:
        call(
            session, SELECT, dst=new_tile(session, Tile((1, 4))), predicate=predicate,
            on_true=new_tile(session, Tile((1, 4)), name="t"), on_false=-1.0,
        )  # fmt: skip
    assert "reads which: uint8[1, 4] in sbuf, which was never written; unwritten elements read as 0" in texts
