"""The whole text of what a user reads when an operand does not fit its declaration."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from nkilab.errors import KernelError, LimitError, RuleError, UseError
from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.tiles.tile import View
from nkilab.trace.builder import record
from nkilab.trace.session import Session, tracing
from tests.uses import Tile, call, new_tile, open_session, part_of

TENSOR_COPY, TENSOR_TENSOR, ACTIVATION = (
    REGISTRY["tensor_copy"],
    REGISTRY["tensor_tensor"],
    REGISTRY["activation"],
)
NC_MATMUL, IOTA, MEMSET = REGISTRY["nc_matmul"], REGISTRY["iota"], REGISTRY["memset"]


def refusal(session: Session, cls: Any, kind: type[KernelError] = RuleError, **use: Any) -> str:
    """The message without its place, which names this file."""
    with pytest.raises(kind) as caught:
        call(session, cls, **use)
    place, text = str(caught.value).split(": ", 1)
    assert re.fullmatch(r"test_messages\.py:\d+", place)
    assert len(session.program) == 0
    return text


@pytest.fixture
def a(session: Session) -> View:
    return new_tile(session, Tile((16, 8)), name="a")


def test_an_operand_in_the_wrong_memory_is_told_where_it_belongs(session: Session, a: View) -> None:
    far = new_tile(session, Tile((16, 8), memory="hbm"), name="far")
    assert refusal(session, TENSOR_COPY, dst=a, src=far) == (
        "tensor_copy: src is in hbm; it must be in sbuf or psum\n"
        "  dst = a: float32[16, 8] in sbuf\n"
        "  src = far: float32[16, 8] in hbm\n"
        "  hint: load it to sbuf first\n"
        "  source: nki.isa.tensor_copy\n"
        "  key: err_unsupported_memory"
    )


def test_an_operand_of_the_wrong_type_is_told_the_types(session: Session) -> None:
    dst = new_tile(session, Tile((8, 8), memory="psum"), name="acc")
    x, y = new_tile(session, Tile((8, 8), "int8"), name="x"), new_tile(session, Tile((8, 8)), name="y")
    assert refusal(session, NC_MATMUL, dst=dst, stationary=x, moving=y) == (
        "nc_matmul: stationary is int8; it must be float8_e4m3 or float8_e5m2 or float8_e4m3fn or "
        "bfloat16 or "
        "float16 or tfloat32 or float32\n"
        "  dst = acc: float32[8, 8] in psum\n"
        "  stationary = x: int8[8, 8] in sbuf\n"
        "  moving = y: float32[8, 8] in sbuf\n"
        "  source: nki.isa.nc_matmul"
    )


def test_operands_over_other_partitions_are_counted(session: Session, a: View) -> None:
    b = new_tile(session, Tile((32, 8)), name="b")
    assert refusal(session, TENSOR_COPY, dst=a, src=b) == (
        "tensor_copy: src has 32 partitions; the operands before it have 16\n"
        "  dst = a: float32[16, 8] in sbuf\n"
        "  src = b: float32[32, 8] in sbuf\n"
        "  source: nki.isa.tensor_copy\n"
        "  key: err_num_partition_mismatch"
    )


def test_operands_of_other_free_sizes_are_counted(session: Session, a: View) -> None:
    b = new_tile(session, Tile((16, 3, 3)), name="b")
    assert refusal(session, TENSOR_COPY, dst=a, src=b) == (
        "tensor_copy: src is 9 along F; it must be 8, as in the operands before it\n"
        "  dst = a: float32[16, 8] in sbuf\n"
        "  src = b: float32[16, 3, 3] in sbuf\n"
        "  source: nki.isa.tensor_copy"
    )


def test_a_column_operand_with_two_elements_per_partition_is_refused(session: Session, a: View) -> None:
    bias = new_tile(session, Tile((16, 2)), name="bias")
    assert refusal(session, ACTIVATION, dst=a, op="copy", data=a, bias=bias) == (
        "activation: bias is 2 along the free axes; it must be 1\n"
        "  dst = a: float32[16, 8] in sbuf\n"
        "  data = a: float32[16, 8] in sbuf\n"
        "  bias = bias: float32[16, 2] in sbuf\n"
        "  scale = 1.0\n"
        "  source: nki.isa.activation"
    )


def test_a_number_where_a_tile_belongs_is_refused(session: Session, a: View) -> None:
    assert refusal(session, TENSOR_COPY, dst=a, src=3.0) == (
        "tensor_copy: src is a number; it must be a tile [P, F*]\n"
        "  dst = a: float32[16, 8] in sbuf\n"
        "  src = 3.0\n"
        "  source: nki.isa.tensor_copy"
    )


def test_a_missing_operand_is_named(session: Session, a: View) -> None:
    assert refusal(session, TENSOR_COPY, dst=a, src=None) == (
        "tensor_copy: src is missing; it must be [P, F*]\n"
        "  dst = a: float32[16, 8] in sbuf\n"
        "  source: nki.isa.tensor_copy"
    )


def test_an_array_where_a_tensor_belongs_is_refused(session: Session, a: View) -> None:
    assert refusal(session, TENSOR_COPY, UseError, dst=a, src=np.ones(2)) == (
        "tensor_copy: an operand is of type ndarray; operands are tensors of the kernel or numbers\n"
        "  dst = a: float32[16, 8] in sbuf\n"
        "  src = array([1., 1.])\n"
        "  hint: pass arrays as arguments of the kernel"
    )


@pytest.mark.parametrize(
    ("start", "count", "allowed"),
    [(16, 16, "0, 32, 64 or 96"), (32, 64, "0 or 64"), (32, 65, "0"), (64, 33, None)],
)
def test_a_slice_starts_at_a_partition_that_engines_reach(
    start: int, count: int, allowed: str | None
) -> None:
    session = open_session(MACHINES["trn2"])
    rows = part_of(new_tile(session, Tile((128, 4)), name="t"), (start, 0), (count, 4))
    if allowed is None:
        call(session, MEMSET, dst=rows, value=0)
        return
    assert refusal(session, MEMSET, dst=rows, value=0) == (
        f"memset: dst starts at partition {start} with {count} partitions; it must start at {allowed}\n"
        f"  dst = t: float32[{count}, 4] in sbuf\n"
        "  hint: copy the rows to a tile of their own with dma_copy, or choose another split\n"
        "  source: trn1 architecture guide, start partition\n"
        "  key: NCC_INLA001"
    )


def test_a_contraction_over_the_limit_reads_as_one_message(session: Session) -> None:
    wide = new_tile(session, Tile((128, 1024), memory="psum"), name="wide")
    lhs, rhs = (
        new_tile(session, Tile((128, 128)), name="lhs"),
        new_tile(session, Tile((128, 1024)), name="rhs"),
    )
    assert refusal(session, NC_MATMUL, LimitError, dst=wide, stationary=lhs, moving=rhs) == (
        "nc_matmul: N is 1024; trn2 allows 512 (moving free max)\n"
        "  dst = wide: float32[128, 1024] in psum\n"
        "  stationary = lhs: float32[128, 128] in sbuf\n"
        "  moving = rhs: float32[128, 1024] in sbuf\n"
        "  hint: split the free axis of `moving`\n"
        "  source: nki.isa.nc_matmul, tile size\n"
        "  key: err_size_of_dimension_exceed_arch_limit"
    )


def test_an_input_of_the_kernel_may_not_be_written(session: Session, a: View) -> None:
    input_tile = new_tile(session, Tile((16, 8)), name="given")
    input_tile.storage.is_mutable = False
    a.storage.written.fill()
    assert refusal(session, TENSOR_COPY, UseError, dst=input_tile, src=a) == (
        "tensor_copy: dst is an input of the kernel, which may not be written\n"
        "  dst = given: float32[16, 8] in sbuf\n"
        "  src = a: float32[16, 8] in sbuf\n"
        "  hint: write to a tensor of its own, made with nl.ndarray(..., buffer=nl.shared_hbm)\n"
        "  key: err_cannot_update_immutable_parameter"
    )


@pytest.mark.parametrize(
    ("cls", "attribute", "spelled", "expected"),
    [
        (TENSOR_TENSOR, "engine", "tensor", "engine is 'tensor'; it must be one of unknown, vector, gpsimd"),
        (REGISTRY["tensor_scalar"], "reverse0", "yes", "reverse0 is 'yes'; it must be one of True, False"),
        (IOTA, "pattern", 3, "pattern is 3; it must be a list of up to four [step, count]"),
        (REGISTRY["tensor_reduce"], "axis", "x", "axis is 'x'; it must be an integer or a list of them"),
        (
            NC_MATMUL,
            "tile_size",
            (1, 2, 3),
            "a tile position or size has 3 numbers; it must be (row, column)",
        ),
    ],
)
def test_an_attribute_that_spells_nothing_lists_what_it_may_be(
    cls: Any, attribute: str, spelled: Any, expected: str
) -> None:
    with pytest.raises(RuleError) as caught:
        cls.attributes[attribute].canonical(attribute, spelled)
    assert caught.value.problem == expected


def test_an_unknown_operator_lists_the_operators() -> None:
    with pytest.raises(RuleError) as caught:
        TENSOR_TENSOR.attributes["op"].canonical("op", "plus")
    assert caught.value.problem.startswith("op is plus; it must be one of invert, bitwise_and, ")


@pytest.mark.parametrize(
    ("function", "expected"),
    [(np.add, "add"), (np.max, "maximum"), (np.amin, "minimum"), (np.multiply, "multiply")],
)
def test_a_numpy_function_spells_an_operator(function: Any, expected: str) -> None:
    assert TENSOR_TENSOR.attributes["op"].canonical("op", function).name == expected


def test_a_row_remembers_its_values_by_type_and_sign(session: Session) -> None:
    # 1, 1.0 and True are equal in Python, 0.0 and -0.0 too; the program must not confuse them
    values = [1, 1.0, True, 0.0, -0.0, 0, False, 1]
    dst = new_tile(session, Tile((1, 1)))
    for value in values:
        call(session, MEMSET, dst=dst, value=value)
    kept = [session.program.values_of(row)[0] for row in range(len(values))]
    assert [repr(v) for v in kept] == [repr(v) for v in values]
    assert session.program.value_column[0] == session.program.value_column[7]


def test_a_foreign_array_that_has_a_layout_is_refused_as_any_other(session: Session, a: View) -> None:
    class Foreign:
        layout = "strided"

        def __repr__(self) -> str:
            return "Foreign()"

    assert refusal(session, TENSOR_COPY, UseError, dst=a, src=Foreign()) == (
        "tensor_copy: an operand is of type Foreign; operands are tensors of the kernel or numbers\n"
        "  dst = a: float32[16, 8] in sbuf\n"
        "  src = Foreign()"
    )


def test_an_error_in_a_call_told_where_it_stands_names_that_line(session: Session, a: View) -> None:
    # a result that waits for its destination is recorded later than it was called
    far = new_tile(session, Tile((16, 8), memory="hbm"))
    with pytest.raises(RuleError) as caught, tracing(session):
        record(session, TENSOR_COPY, [a, far], ("unknown",), (), None, ("/somewhere/kernel.py", 41))
    assert str(caught.value).startswith("kernel.py:41: tensor_copy: src is in hbm; ")


def test_the_source_of_a_rule_begins_with_the_page_of_its_instruction_where_it_names_none() -> None:
    sources = {
        (name, rule.name): rule.source
        for name in ("sendrecv", "activation", "activation_reduce")
        for rule in REGISTRY[name].rules
    }
    assert sources["sendrecv", "chip_has_it"] == "nki.isa.sendrecv"
    assert sources["sendrecv", "shapes_agree"] == "nki.isa.sendrecv, constraints"
    # a rule that says whose page it is keeps that, also in another instruction
    assert sources["activation_reduce", "scale_is_float32"] == "nki.isa.activation"


@pytest.mark.parametrize(
    "cls", [c for c in REGISTRY.values() if any("P" in o.axes for o in c.operands.values())]
)
def test_whatever_has_an_axis_of_partitions_is_held_to_those_of_the_chip(cls: Any) -> None:
    limits = [limit.constant for limit in cls.limits if limit.axis == "P"]
    assert limits == ["partitions"]
