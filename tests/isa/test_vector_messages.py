"""The whole text of what a user reads when a call of VectorE's rarer instructions breaks a rule."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nkilab.errors import LimitError, RuleError
from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from tests.uses import Tile, call, new_tile, open_session, part_of, smallest_use

# instruction, chip, what is changed of the smallest use, the message without its place; tiles have no name
MESSAGES: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "tensor_copy_predicated", "trn2", {"src.memory": "psum", "predicate.memory": "psum"},
        "tensor_copy_predicated: src and predicate are both in psum; at least one must be in sbuf\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  src = float32[16, 16] in psum\n"
        "  predicate = uint8[16, 16] in psum\n"
        "  hint: copy one of them to sbuf with tensor_copy\n"
        "  source: nki.isa.tensor_copy_predicated\n"
        "  key: err_unsupported_memory",
    ),
    (
        "tensor_copy_predicated", "trn2", {"src.dtype": "bfloat16"},
        "tensor_copy_predicated: src and dst have different types; they must have the same\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  src = bfloat16[16, 16] in sbuf\n"
        "  predicate = uint8[16, 16] in sbuf\n"
        "  hint: cast src with tensor_copy first\n"
        "  source: nki.isa.tensor_copy_predicated",
    ),
    (
        "select_reduce", "trn2", {"on_true.memory": "psum", "predicate.memory": "psum"},
        "select_reduce: on_true and predicate are both in psum; at least one must be in sbuf\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  predicate = uint8[16, 16] in psum\n"
        "  on_true = float32[16, 16] in psum\n"
        "  on_false = float32[16, 1] in sbuf\n"
        "  hint: copy one of them to sbuf with tensor_copy\n"
        "  source: nki.isa.select_reduce, memory constraints\n"
        "  key: err_unsupported_memory",
    ),
    (
        "select_reduce", "trn2", {"reduce_op": "add"},
        "select_reduce: reduce_op is not maximum\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  predicate = uint8[16, 16] in sbuf\n"
        "  on_true = float32[16, 16] in sbuf\n"
        "  on_false = float32[16, 1] in sbuf\n"
        "  source: nki.isa.select_reduce",
    ),
    (
        "select_reduce", "trn2", {"reduce_res.dtype": "float32"},
        "select_reduce: reduce_res is given and reduce_cmd is idle, which leaves the registers unknown\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  predicate = uint8[16, 16] in sbuf\n"
        "  on_true = float32[16, 16] in sbuf\n"
        "  on_false = float32[16, 1] in sbuf\n"
        "  reduce_res = float32[16, 1] in sbuf\n"
        "  hint: give reduce_cmd=nisa.reduce_cmd.reset_reduce\n"
        "  source: nki.isa.exponential, \"Accumulator behavior\"",
    ),
    (
        "range_select", "trn1", {},
        "range_select: it exists from trn2 on\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  on_true_tile = float32[16, 16] in sbuf\n"
        "  bound0 = float32[16, 1] in sbuf\n"
        "  bound1 = float32[16, 1] in sbuf\n"
        "  source: nki.isa.range_select",
    ),
    (
        "range_select", "trn2", {"comp_op0": "not_equal"},
        "range_select: comp_op0 or comp_op1 is none of equal, less, less_equal, greater, greater_equal\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  on_true_tile = float32[16, 16] in sbuf\n"
        "  bound0 = float32[16, 1] in sbuf\n"
        "  bound1 = float32[16, 1] in sbuf\n"
        "  source: nki.isa.range_select",
    ),
    (
        "range_select", "trn2", {"on_false_value": 0.0},
        "range_select: on_false_value is not FP32_MIN, -3.4028235e38, which is all that the hardware writes\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  on_true_tile = float32[16, 16] in sbuf\n"
        "  bound0 = float32[16, 1] in sbuf\n"
        "  bound1 = float32[16, 1] in sbuf\n"
        "  hint: leave on_false_value out\n"
        "  source: nki.isa.range_select",
    ),
    (
        "range_select", "trn2", {"reduce_op": "add"},
        "range_select: reduce_op is not maximum\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  on_true_tile = float32[16, 16] in sbuf\n"
        "  bound0 = float32[16, 1] in sbuf\n"
        "  bound1 = float32[16, 1] in sbuf\n"
        "  source: nki.isa.range_select",
    ),
    (
        "range_select", "trn2", {"reduce_res.dtype": "float32", "reduce_cmd": "idle"},
        "range_select: reduce_res is given and reduce_cmd is idle, which leaves the registers unknown\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  on_true_tile = float32[16, 16] in sbuf\n"
        "  bound0 = float32[16, 1] in sbuf\n"
        "  bound1 = float32[16, 1] in sbuf\n"
        "  reduce_res = float32[16, 1] in sbuf\n"
        "  hint: give reduce_cmd=nisa.reduce_cmd.reset_reduce\n"
        "  source: nki.isa.exponential, \"Accumulator behavior\"",
    ),
    (
        "range_select", "trn2", {"range_start": 0.5},
        "range_select: range_start is not a whole number\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  on_true_tile = float32[16, 16] in sbuf\n"
        "  bound0 = float32[16, 1] in sbuf\n"
        "  bound1 = float32[16, 1] in sbuf\n"
        "  source: nki.isa.range_select",
    ),
    (
        "range_select", "trn2", {"range_start": 2**24},
        "range_select: an index leaves the range of -2^24 to 2^24, in which float32 has every integer\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  on_true_tile = float32[16, 16] in sbuf\n"
        "  bound0 = float32[16, 1] in sbuf\n"
        "  bound1 = float32[16, 1] in sbuf\n"
        "  source: nki.isa.range_select",
    ),
    (
        "tensor_tensor_scan", "trn2", {"data0.memory": "psum", "data1.memory": "psum"},
        "tensor_tensor_scan: data0 and data1 are both in psum; at least one must be in sbuf\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  data0 = float32[16, 16] in psum\n"
        "  data1 = float32[16, 16] in psum\n"
        "  initial = float32[16, 1] in sbuf\n"
        "  hint: copy one of them to sbuf with tensor_copy\n"
        "  source: nki.isa.tensor_tensor_scan\n"
        "  key: err_unsupported_memory",
    ),
    (
        "tensor_tensor_scan", "trn2", {"op0": "bitwise_and"},
        "tensor_tensor_scan: an operator is bitwise or takes one input; both must be arithmetic and "
        "take two\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  data0 = float32[16, 16] in sbuf\n"
        "  data1 = float32[16, 16] in sbuf\n"
        "  initial = float32[16, 1] in sbuf\n"
        "  source: nki.isa.tensor_tensor_scan",
    ),
    (
        "tensor_tensor_scan", "trn1", {"op1": "abs_max"},
        "tensor_tensor_scan: an operator exists from trn3 on\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  data0 = float32[16, 16] in sbuf\n"
        "  data1 = float32[16, 16] in sbuf\n"
        "  initial = float32[16, 1] in sbuf\n"
        "  source: NKI API common fields, \"Supported math operators\"",
    ),
    (
        "tensor_scalar_cumulative", "trn2", {"op0": "bitwise_or"},
        "tensor_scalar_cumulative: op0 is bitwise; it must be arithmetic\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  src = float32[16, 16] in sbuf\n"
        "  imm0 = float32[16, 1] in sbuf\n"
        "  source: nki.isa.tensor_scalar_cumulative",
    ),
    (
        "tensor_scalar_cumulative", "trn2", {"op1": "greater"},
        "tensor_scalar_cumulative: op1 is none of add, subtract, multiply, maximum, minimum\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  src = float32[16, 16] in sbuf\n"
        "  imm0 = float32[16, 1] in sbuf\n"
        "  source: nki.isa.tensor_scalar_cumulative",
    ),
    (
        "tensor_scalar_cumulative", "trn2", {"reduce_cmd": "load_reduce"},
        "tensor_scalar_cumulative: reduce_cmd is load_reduce and imm1 is missing\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  src = float32[16, 16] in sbuf\n"
        "  imm0 = float32[16, 1] in sbuf\n"
        "  hint: give imm1, from which the registers are loaded\n"
        "  source: nki.isa.tensor_scalar_cumulative",
    ),
    (
        "tensor_scalar_cumulative", "trn1", {"op0": "abs_max"},
        "tensor_scalar_cumulative: op0 exists from trn3 on\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  src = float32[16, 16] in sbuf\n"
        "  imm0 = float32[16, 1] in sbuf\n"
        "  source: NKI API common fields, \"Supported math operators\"",
    ),
    (
        "tensor_scalar_reduce", "trn2", {"op0": "bitwise_or"},
        "tensor_scalar_reduce: op0 is bitwise; it must be arithmetic\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  data = float32[16, 16] in sbuf\n"
        "  operand0 = float32[16, 1] in sbuf\n"
        "  source: nki.isa.tensor_scalar_reduce",
    ),
    (
        "tensor_scalar_reduce", "trn2", {"operand0": None},
        "tensor_scalar_reduce: op0 takes two inputs and operand0 is missing\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  data = float32[16, 16] in sbuf\n"
        "  source: nki.isa.tensor_scalar_reduce",
    ),
    (
        "tensor_scalar_reduce", "trn2", {"op0": "abs"},
        "tensor_scalar_reduce: op0 takes one input and operand0 is a tile; it must be None or 0\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  data = float32[16, 16] in sbuf\n"
        "  operand0 = float32[16, 1] in sbuf\n"
        "  source: nki.isa.tensor_scalar_reduce",
    ),
    (
        "tensor_scalar_reduce", "trn2", {"reduce_op": "logical_and"},
        "tensor_scalar_reduce: reduce_op is none of add, multiply, maximum, minimum\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  data = float32[16, 16] in sbuf\n"
        "  operand0 = float32[16, 1] in sbuf\n"
        "  source: nki.isa.tensor_scalar_reduce",
    ),
    (
        "tensor_scalar_reduce", "trn2", {"reverse0": True},
        "tensor_scalar_reduce: reverse0 is True, which the instruction does not support yet\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  data = float32[16, 16] in sbuf\n"
        "  operand0 = float32[16, 1] in sbuf\n"
        "  source: nki.isa.tensor_scalar_reduce",
    ),
    (
        "tensor_scalar_reduce", "trn2", {"reduce_cmd": "load_reduce"},
        "tensor_scalar_reduce: reduce_cmd is load_reduce and reduce_init is missing\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  data = float32[16, 16] in sbuf\n"
        "  operand0 = float32[16, 1] in sbuf\n"
        "  hint: give reduce_init, from which the registers are loaded\n"
        "  source: nki.isa.tensor_scalar_reduce",
    ),
    (
        "tensor_scalar_reduce", "trn2", {"reduce_init": 1.0},
        "tensor_scalar_reduce: reduce_init is given and reduce_cmd is not load_reduce, which alone reads it\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  data = float32[16, 16] in sbuf\n"
        "  operand0 = float32[16, 1] in sbuf\n"
        "  reduce_init = 1.0\n"
        "  source: nki.isa.tensor_scalar_reduce",
    ),
    (
        "tensor_scalar_reduce", "trn1", {"op0": "abs_max"},
        "tensor_scalar_reduce: op0 exists from trn3 on\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  data = float32[16, 16] in sbuf\n"
        "  operand0 = float32[16, 1] in sbuf\n"
        "  source: NKI API common fields, \"Supported math operators\"",
    ),
    (
        "bn_aggr", "trn2", {"F": 16},
        "bn_aggr: data does not hold triples: its elements per partition are no multiple of 3\n"
        "  dst = float32[16, 2] in sbuf\n"
        "  data = float32[16, 16] in sbuf\n"
        "  source: nki.isa.bn_aggr",
    ),
    (
        "max8", "trn2", {"F": 7},
        "max8: src has fewer than 8 elements per partition\n"
        "  dst = float32[16, 8] in sbuf\n"
        "  src = float32[16, 7] in sbuf\n"
        "  source: nki.isa.max8",
    ),
    (
        "max8", "trn2", {"src.shape": (16, 2, 2, 2, 2, 1)},
        "max8: src has more than five axes\n"
        "  dst = float32[16, 8] in sbuf\n"
        "  src = float32[16, 2, 2, 2, 2, 1] in sbuf\n"
        "  source: nki.isa.max8",
    ),
    (
        "nc_find_index8", "trn2", {"F": 7},
        "nc_find_index8: data has fewer than 8 elements per partition\n"
        "  dst = uint32[16, 8] in sbuf\n"
        "  data = float32[16, 7] in sbuf\n"
        "  vals = float32[16, 8] in sbuf\n"
        "  source: nki.isa.nc_find_index8",
    ),
    (
        "nc_find_index8", "trn2", {"vals.shape": (16, 2, 2, 2)},
        "nc_find_index8: data has more than five axes, or vals more than three\n"
        "  dst = uint32[16, 8] in sbuf\n"
        "  data = float32[16, 16] in sbuf\n"
        "  vals = float32[16, 2, 2, 2] in sbuf\n"
        "  source: nki.isa.nc_find_index8",
    ),
    (
        "nc_match_replace8", "trn2", {"vals.shape": (16, 2, 2, 2)},
        "nc_match_replace8: data has more than five axes, or vals more than three\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  data = float32[16, 16] in sbuf\n"
        "  vals = float32[16, 2, 2, 2] in sbuf\n"
        "  source: nki.isa.nc_match_replace8",
    ),
    (
        "nc_match_replace8", "trn2", {"imm": "zero"},
        "nc_match_replace8: imm is not a number\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  data = float32[16, 16] in sbuf\n"
        "  vals = float32[16, 8] in sbuf\n"
        "  source: nki.isa.nc_match_replace8",
    ),
    (
        "nc_stream_shuffle", "trn2", {"src.dtype": "bfloat16"},
        "nc_stream_shuffle: dst and src have different types; they must have the same\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  src = bfloat16[128, 16] in sbuf\n"
        "  hint: cast one of them with tensor_copy first\n"
        "  source: nki.isa.nc_stream_shuffle",
    ),
    (
        "nc_stream_shuffle", "trn2", {"S": 16, "shuffle_mask": [31] * 32},
        "nc_stream_shuffle: shuffle_mask names a row that src does not have in this quadrant\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  src = float32[16, 16] in sbuf\n"
        "  source: nki.isa.nc_stream_shuffle",
    ),
    (
        "exponential", "trn1", {},
        "exponential: it exists from trn3 on\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  src = float32[16, 16] in sbuf\n"
        "  max_value = 0.0\n"
        "  reduce_init = 0.0\n"
        "  source: nki.isa.exponential",
    ),
    (
        "exponential", "trn3", {"reduce_res.dtype": "float32"},
        "exponential: reduce_res is given and reduce_cmd is idle, which leaves the registers unknown\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  src = float32[16, 16] in sbuf\n"
        "  max_value = 0.0\n"
        "  reduce_res = float32[16, 1] in sbuf\n"
        "  reduce_init = 0.0\n"
        "  hint: give reduce_cmd=nisa.reduce_cmd.reset_reduce\n"
        "  source: nki.isa.exponential, \"Accumulator behavior\"",
    ),
    (
        "exponential", "trn3", {"reduce_init.dtype": "float32"},
        "exponential: reduce_init is a tile and reduce_cmd is not load_reduce, which alone reads it\n"
        "  dst = float32[16, 16] in sbuf\n"
        "  src = float32[16, 16] in sbuf\n"
        "  max_value = 0.0\n"
        "  reduce_init = float32[16, 1] in sbuf\n"
        "  source: nki.isa.exponential",
    ),
]  # fmt: skip
FAMILY = {name for name, *_ in MESSAGES} | {"bn_stats"}


def refusal(name: str, chip: str, use: dict[str, Any]) -> str:
    """The message of one call, without its place."""
    session = open_session(MACHINES[chip], has_data=False)
    views = {k: new_tile(session, v) for k, v in use.items() if isinstance(v, Tile)}
    with pytest.raises(RuleError) as caught:
        call(session, REGISTRY[name], **{**use, **views})
    place, text = str(caught.value).split(": ", 1)
    assert re.fullmatch(r"test_vector_messages\.py:\d+", place)
    return text


@pytest.mark.parametrize(("name", "chip", "changes", "message"), MESSAGES)
def test_a_broken_rule_says_what_is_wrong_with_which_operands(
    name: str, chip: str, changes: dict[str, Any], message: str
) -> None:
    assert refusal(name, chip, smallest_use(REGISTRY[name], changes)) == message


def test_every_rule_has_its_message_here() -> None:
    heard = {(name, text.split("\n")[0].split(": ", 1)[1]) for name, _, _, text in MESSAGES}
    rules = {(n, r.sentence) for n in FAMILY for r in (*REGISTRY[n].rules, *REGISTRY[n].call_rules)}
    starts = {(n, s) for n, s in rules if "starts where" in s}
    assert heard == rules - starts


def test_a_shuffle_of_two_sizes_starts_where_the_larger_may() -> None:
    session = open_session(MACHINES["trn2"], has_data=False)
    src = part_of(new_tile(session, Tile((64, 8)), name="a"), (32, 0), (32, 8))
    with pytest.raises(RuleError) as caught:
        call(
            session, REGISTRY["nc_stream_shuffle"], dst=new_tile(session, Tile((64, 8)), name="b"), src=src,
            shuffle_mask=list(range(32)),
        )  # fmt: skip
    assert str(caught.value).split(": ", 1)[1] == (
        "nc_stream_shuffle: dst or src starts where the larger of them may not: up to 32 partitions start at "
        "0, 32, 64 or 96, up to 64 at 0 or 64, more at 0\n"
        "  dst = b: float32[64, 8] in sbuf\n"
        "  src = a: float32[32, 8] in sbuf\n"
        "  source: nki.isa.nc_stream_shuffle"
    )


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        ([0] * 31, "shuffle_mask has 31 elements; it must have 32\n  source: nki.isa.nc_stream_shuffle"),
        (
            [32] * 32,
            "shuffle_mask holds 32; it must hold 0 to 31, or 255\n  source: nki.isa.nc_stream_shuffle",
        ),
        ("all", "shuffle_mask is 'all'; it must be a list of 32 integers"),
    ],
)
def test_a_shuffle_mask_of_another_form_is_refused(mask: Any, problem: str) -> None:
    with pytest.raises(RuleError) as caught:
        REGISTRY["nc_stream_shuffle"].attributes["shuffle_mask"].canonical("shuffle_mask", mask)
    assert str(caught.value) == problem


def test_an_on_false_value_that_is_no_number_is_refused() -> None:
    with pytest.raises(RuleError, match=r"^on_false_value is 'low'; it must be a number$"):
        REGISTRY["range_select"].attributes["on_false_value"].canonical("on_false_value", "low")


def test_statistics_of_more_than_512_elements_say_how_to_split() -> None:
    session = open_session(MACHINES["trn2"], has_data=False)
    dst, data = new_tile(session, Tile((16, 6)), name="s"), new_tile(session, Tile((16, 1024)), name="x")
    with pytest.raises(LimitError) as caught:
        call(session, REGISTRY["bn_stats"], dst=dst, data=data)
    assert str(caught.value).split(": ", 1)[1] == (
        "bn_stats: F is 1024; trn2 allows 512 (bn stats free max)\n"
        "  dst = s: float32[16, 6] in sbuf\n"
        "  data = x: float32[16, 1024] in sbuf\n"
        "  hint: call it once per 512 elements and combine all results with one bn_aggr\n"
        "  source: nki.isa.bn_stats\n"
        "  key: err_size_of_dimension_exceed_arch_limit"
    )


def test_a_result_of_another_size_is_told_its_size() -> None:
    session = open_session(MACHINES["trn2"], has_data=False)
    dst, src = new_tile(session, Tile((16, 4)), name="top"), new_tile(session, Tile((16, 64)), name="x")
    with pytest.raises(RuleError) as caught:
        call(session, REGISTRY["max8"], dst=dst, src=src)
    assert str(caught.value).split(": ", 1)[1] == (
        "max8: dst is 4 along the free axes; it must be 8\n"
        "  dst = top: float32[16, 4] in sbuf\n"
        "  src = x: float32[16, 64] in sbuf\n"
        "  source: nki.isa.max8"
    )
