"""tensor_reduce and nc_transpose against loops over Python numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest

from nkilab.errors import RuleError
from nkilab.isa import REGISTRY
from nkilab.isa.operators import OPERATORS
from nkilab.machine import MACHINES
from nkilab.tiles.dtypes import DTYPES
from tests.uses import Tile, call, new_tile, open_session, result

TENSOR_REDUCE, NC_TRANSPOSE = REGISTRY["tensor_reduce"], REGISTRY["nc_transpose"]
FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "maximum": max,
    "minimum": min,
    "logical_and": lambda x, y: float(bool(x) and bool(y)),
    "logical_or": lambda x, y: float(bool(x) or bool(y)),
    "logical_xor": lambda x, y: float(bool(x) != bool(y)),
    "abs_max": lambda x, y: x if abs(x) > abs(y) else y,
    "abs_min": lambda x, y: x if abs(x) < abs(y) else y,
}
BIT_FOLDS: dict[str, Callable[[int, int], int]] = {
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
}
DATA = np.random.default_rng(1).integers(-2, 3, (3, 2, 3, 4)).astype(np.float32)
# as the user spells it, and the number of last axes it means
AXES = [(-1, 1), (3, 1), ([3], 1), ([2, 3], 2), ((-1, -2), 2), ([1, 2, 3], 3)]


def folded(fold: Callable[[Any, Any], Any], data: np.ndarray, last: int) -> list[Any]:
    rows = data.reshape(-1, int(np.prod(data.shape[-last:]))).tolist()
    return [reduce(fold, row) for row in rows]


def test_every_reducing_operator_has_a_fold_here() -> None:
    assert {name for name, op in OPERATORS.items() if op.reduces} == {*FOLDS, *BIT_FOLDS}


@pytest.mark.parametrize(("axis", "last"), AXES)
@pytest.mark.parametrize("op", FOLDS)
@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("keepdims", [False, True])
def test_an_operator_folds_over_the_last_axes(
    op: str, axis: Any, last: int, negate: bool, keepdims: bool
) -> None:
    kept = DATA.shape[: 4 - last]
    shape = (*kept, *(1,) * last) if keepdims else kept if len(kept) > 1 else (*kept, 1)
    got = result(
        TENSOR_REDUCE, shape, machine="trn3", op=op, data=DATA, axis=axis, negate=negate, keepdims=keepdims
    )
    expected = np.array(folded(FOLDS[op], DATA, last)) * (-1 if negate else 1)
    np.testing.assert_array_equal(got.reshape(-1), expected)


@pytest.mark.parametrize("op", BIT_FOLDS)
@pytest.mark.parametrize("name", ["int8", "uint16", "int32", "uint32"])
def test_a_bitwise_operator_folds_integers_as_they_are(op: str, name: str) -> None:
    storage = DTYPES[name].storage
    data = (
        np.random.default_rng(2)
        .integers(0, 256, 2 * 5 * storage.itemsize, np.uint8)
        .view(storage)
        .reshape(2, 5)
    )
    got = result(TENSOR_REDUCE, Tile((2, 1), name), op=op, data=(data, name), axis=1)
    assert got[:, 0].tolist() == folded(BIT_FOLDS[op], data, 1)


def test_a_sum_of_bfloat16_is_rounded_once() -> None:
    # 256 + 1 + 1 needs nine bits: rounding after each addition would leave 256
    got = result(
        TENSOR_REDUCE, Tile((1, 1), "bfloat16"), op="add", data=(np.array([[256, 1, 1]]), "bfloat16"), axis=1
    )
    assert float(got[0, 0]) == 258


def test_a_sum_of_integers_saturates_in_its_type() -> None:
    got = result(TENSOR_REDUCE, Tile((1, 1), "int8"), op="add", data=(np.array([[100, 100]]), "int8"), axis=1)
    assert got[0, 0] == 127


def test_a_single_element_folds_to_its_truth_under_a_logical_operator() -> None:
    got = result(TENSOR_REDUCE, (2, 1), op="logical_and", data=np.float32([[3], [0]]), axis=1)
    assert got.tolist() == [[1], [0]]


def test_an_axis_beyond_the_rank_is_refused() -> None:
    session = open_session(MACHINES["trn2"])
    dst, data = new_tile(session, Tile((4, 1)), name="out"), new_tile(session, np.ones((4, 4)), name="a")
    with pytest.raises(RuleError) as caught:
        call(session, TENSOR_REDUCE, dst=dst, data=data, op="add", axis=4)
    lines = str(caught.value).split("\n")
    assert lines[0].endswith(": tensor_reduce: axis is [4]; the tile has 2 axes")
    assert lines[1:] == [
        "  dst = out: float32[4, 1] in sbuf",
        "  data = a: float32[4, 4] in sbuf",
        "  source: nki.isa.tensor_reduce",
    ]


TRANSPOSES = [
    ("tensor", "sbuf", "psum"),
    ("vector", "sbuf", "sbuf"),
    ("vector", "psum", "psum"),
    ("unknown", "sbuf", "psum"),
]


@pytest.mark.parametrize(("engine", "source", "target"), TRANSPOSES)
@pytest.mark.parametrize("chip", MACHINES)
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int32"])
def test_a_transpose_swaps_partitions_and_elements(
    engine: str, source: str, target: str, chip: str, name: str
) -> None:
    data = np.arange(6 * 4).reshape(6, 4)
    got = result(
        NC_TRANSPOSE, Tile((4, 6), name, target), machine=chip, data=(data, name, source), engine=engine
    )
    np.testing.assert_array_equal(got.astype(np.int64), data.T)


def test_a_transpose_takes_the_free_axes_as_one() -> None:
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    got = result(NC_TRANSPOSE, Tile((12, 2), memory="psum"), data=data)
    np.testing.assert_array_equal(got, data.reshape(2, 12).T)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_spoil_a_column_on_trn1_and_not_on_trn2(bad: float) -> None:
    data = np.float32([[1, bad], [3, 4]])
    tile = Tile((2, 2), memory="psum")
    exact = result(NC_TRANSPOSE, tile, machine="trn2", data=data, engine="tensor")
    np.testing.assert_array_equal(exact, data.T)
    # hand: the second row of the result is [bad * 1 + 4 * 0, bad * 0 + 4 * 1]
    spoilt = result(NC_TRANSPOSE, tile, machine="trn1", data=data, engine="tensor")
    np.testing.assert_array_equal(spoilt, np.float32([[1, 3], [bad, np.nan]]))


def test_the_vector_engine_of_trn1_moves_nan_without_harm() -> None:
    data = np.float32([[1, np.nan], [3, 4]])
    got = result(NC_TRANSPOSE, (2, 2), machine="trn1", data=data, engine="vector")
    np.testing.assert_array_equal(got, data.T)


def test_a_transpose_into_the_wrong_shape_names_the_right_one() -> None:
    session = open_session(MACHINES["trn2"])
    dst = new_tile(session, Tile((3, 2), memory="psum"), name="out")
    with pytest.raises(RuleError) as caught:
        call(session, NC_TRANSPOSE, dst=dst, data=new_tile(session, np.ones((3, 2)), name="a"))
    assert str(caught.value).split(": ", 1)[1] == (
        "nc_transpose: dst is [3, 2]; the transpose of data is [2, 3]\n"
        "  dst = out: float32[3, 2] in psum\n"
        "  data = a: float32[3, 2] in sbuf\n"
        "  source: nki.isa.nc_transpose"
    )
