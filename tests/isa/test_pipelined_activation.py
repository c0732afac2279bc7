"""activate2 against formulas written out here: stages, functions, reductions, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nkilab.errors import NkilabWarning
from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.tiles.tile import array_of
from nkilab.trace.session import Session
from tests.uses import Tile, call, form_of, new_tile, open_session, refused, result, smallest_use

ACTIVATE2, ACTIVATION = REGISTRY["activate2"], REGISTRY["activation"]
SOURCE = "nki.isa.activate2"
DATA = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -8.0]], np.float32)


@pytest.fixture
def trn3() -> Session:
    return open_session(MACHINES["trn3"])


# hand: the six pairs and their reversed forms on x, with imm0 = 3 and imm1 = 5
STAGES: list[tuple[str, str, dict[str, bool], Any]] = [
    ("multiply", "add", {}, lambda x: 3 * x + 5),
    ("multiply", "subtract", {}, lambda x: 3 * x - 5),
    ("multiply", "subtract", {"reverse1": True}, lambda x: 5 - 3 * x),
    ("multiply", "bypass", {}, lambda x: 3 * x),
    ("add", "bypass", {}, lambda x: x + 3),
    ("subtract", "bypass", {}, lambda x: x - 3),
    ("subtract", "bypass", {"reverse0": True}, lambda x: 3 - x),
    ("bypass", "bypass", {}, lambda x: x),
]


@pytest.mark.parametrize(("op0", "op1", "reversed_", "formula"), STAGES)
def test_two_stages_come_before_the_function(
    op0: str, op1: str, reversed_: dict[str, bool], formula: Any
) -> None:
    stages = {"op0": op0, "op1": op1, **reversed_}
    got = result(ACTIVATE2, DATA.shape, machine="trn3", op="square", data=DATA, imm0=3, imm1=5.0, **stages)
    np.testing.assert_array_equal(got, formula(DATA) ** 2)


def test_immediates_may_differ_per_partition() -> None:
    columns = {"imm0": np.array([[2.0], [3.0]]), "imm1": np.array([[10.0], [20.0]])}
    got = result(
        ACTIVATE2, DATA.shape, machine="trn3", op="copy", data=DATA, op0="multiply", op1="add",
        **{n: c.astype(np.float32) for n, c in columns.items()},
    )  # fmt: skip
    np.testing.assert_array_equal(got, DATA * columns["imm0"] + columns["imm1"])


@pytest.mark.parametrize("slope", [0.25, np.array([[0.5], [2.0]], np.float32)])
def test_prelu_multiplies_what_is_negative(slope: Any) -> None:
    got = result(
        ACTIVATE2, DATA.shape, machine="trn3", op="prelu", data=DATA, imm0=0, imm1=0, op0="bypass",
        op1="bypass", relu_param=slope,
    )  # fmt: skip
    np.testing.assert_array_equal(got, np.where(DATA < 0, DATA * slope, DATA))


def reduction(session: Session, data: np.ndarray, op: str, cmd: str, *, is_read: bool = True) -> Any:
    res = new_tile(session, Tile((len(data), 1))) if is_read else None
    call(
        session, ACTIVATE2, dst=new_tile(session, Tile(data.shape)), op="copy", data=new_tile(session, data),
        imm0=0.0, imm1=0.0, op0="bypass", op1="bypass", reduce_op=op, reduce_res=res, reduce_cmd=cmd,
    )  # fmt: skip
    return None if res is None else array_of(res)[:, 0].tolist()


# hand, on the rows 1 -2 3 and 0.5 4 -8; magnitudes keep their sign
REDUCED = {"add": [2, -3.5], "maximum": [3, 4], "minimum": [-2, -8], "abs_max": [3, -8], "abs_min": [1, 0.5]}


@pytest.mark.parametrize("op", REDUCED)
def test_a_row_is_reduced(trn3: Session, op: str) -> None:
    assert reduction(trn3, DATA, op, "reset_reduce") == REDUCED[op]


def test_a_reduction_goes_on_over_calls_and_with_activation(trn3: Session) -> None:
    reduction(trn3, DATA, "add", "reset_reduce", is_read=False)
    assert reduction(trn3, DATA, "add", "reduce") == [4, -7]
    res = new_tile(trn3, Tile((2, 1)))
    call(
        trn3, ACTIVATION, dst=new_tile(trn3, Tile(DATA.shape)), op="copy", data=new_tile(trn3, DATA),
        reduce_op="add", reduce_res=res, reduce_cmd="reduce",
    )  # fmt: skip
    assert array_of(res)[:, 0].tolist() == [6, -10.5]
    assert reduction(trn3, DATA, "add", "idle") == [6, -10.5]
    assert reduction(trn3, DATA, "maximum", "reset") == [-math.inf, -math.inf]


def test_of_equal_magnitudes_the_last_counts(trn3: Session) -> None:
    # nki.language.abs_max: of a tie the second input is taken
    ties = np.array([[2.0, -2.0, 1.0], [-3.0, 3.0, 3.0]], np.float32)
    assert reduction(trn3, ties, "abs_max", "reset_reduce") == [-2, 3]


def test_an_input_outside_the_range_of_the_function_is_told(trn3: Session) -> None:
    with pytest.warns(NkilabWarning) as caught:
        call(
            trn3, ACTIVATE2, dst=new_tile(trn3, Tile((1, 1))), op="sqrt",
            data=new_tile(trn3, np.array([[1.0]])), imm0=-4.0, imm1=0.0, op0="multiply", op1="bypass",
        )  # fmt: skip
    assert str(caught[0].message) == (
        "activate2: an input of sqrt lies outside its documented range [1.20371e-35, 3.32307e+35]; "
        "the hardware gives an undefined result there"
    )


def test_reading_the_registers_is_a_second_assumed_step() -> None:
    use = smallest_use(ACTIVATE2, {"F": 512, "reduce_res": (16, 1)})
    first, second = form_of(ACTIVATE2, MACHINES["trn3"], use).steps
    assert first.busy_ns == pytest.approx(512 / 1.2 + 115)
    assert second.busy_ns == pytest.approx(64 / 1.2)
    assert min(first.widening, second.widening) > 1


REFUSED = [
    (
        {"op0": "subtract", "op1": "add"},
        "op0 and op1 are not multiply with add, subtract or bypass, nor add, subtract or bypass with bypass\n"
        f"  source: {SOURCE}",
    ),
    (
        {"op0": "bypass", "op1": "bypass", "reverse0": True},
        f"reverse0 or reverse1 is True and its stage is bypass\n  source: {SOURCE}, constraints",
    ),
    ({"imm1.dtype": "float16"}, f"imm0 and imm1 are tiles of two types\n  source: {SOURCE}, constraints"),
    (
        {"reduce_op": "multiply"},
        f"reduce_op is not add, maximum, minimum, abs_max or abs_min\n  source: {SOURCE}, reduce_op",
    ),
    (
        {"reduce_cmd": "reduce"},
        "reduce_cmd reduces and reduce_op is missing\n  hint: give reduce_op=nl.add\n"
        f"  source: {SOURCE}, reduce_cmd",
    ),
    (
        {"op0": "divide"},
        f"a stage is divide; it must be one of multiply, add, subtract, bypass\n  source: {SOURCE}",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_an_activation_that_may_not_be_is_refused(changes: dict[str, Any], message: str) -> None:
    assert refused(ACTIVATE2, changes, "trn3") == message


@pytest.mark.parametrize("chip", ["trn1", "trn2"])
def test_activate2_exists_from_trn3_on(chip: str) -> None:
    assert refused(ACTIVATE2, {}, chip) == (
        "activate2 exists from trn3 on\n  hint: use activation, or tensor_scalar before it\n"
        f"  source: {SOURCE}"
    )
