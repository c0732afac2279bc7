"""The support matrix: every line of the declared support is proven by tests, and the program prints it."""

from __future__ import annotations

import json
from inspect import signature
from types import SimpleNamespace
from typing import Any

import pytest

import nkilab
from nkilab.dialects.history import BETA1, VERSIONS, at, history, versions_with
from nkilab.dialects.serve import tables
from nkilab.dialects.support import ACCEPTED, REFUSED, SUPPORTED
from nkilab.errors import UnsupportedError, UsageError
from nkilab.isa import REGISTRY
from nkilab.isa.declare import ANY_DTYPE
from nkilab.ops import SHOWN, STATUSES, is_served, matrix, status_of
from tests.exercised import exercised
from tests.program import call, told

SPELLINGS = (BETA1, "nki")
INSTRUCTIONS = sorted(n for s in SPELLINGS for n in SUPPORTED[s] if n.removeprefix("isa.") in REGISTRY)


def versions_of(spelling: str) -> tuple[str, ...]:
    return (BETA1,) if spelling == BETA1 else SHOWN[1:]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_name_called_supported_is_run_by_a_test_that_asserts_values(spelling):
    unproven = {n for n in SUPPORTED[spelling] if n.removeprefix("isa.") not in REGISTRY}
    assert sorted(unproven - exercised()[spelling]) == []


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_a_supported_instruction_has_numbers_by_hand_and_a_counterexample(name):
    # tests/isa/test_every_instruction.py asserts both of every declaration, in words of no instruction
    cls = REGISTRY[name.removeprefix("isa.")]
    assert cls.example.expected or cls.example.registers
    narrow = [o for o in cls.operands.values() if o.dtypes != ANY_DTYPE or o.axes[-1].isdigit()]
    assert cls.rules or cls.call_rules or cls.limits or narrow


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_declared_support_is_of_names_that_exist_and_are_served(spelling):
    declared = {*SUPPORTED[spelling], *ACCEPTED[spelling], *REFUSED[spelling]}
    for name in sorted(declared):
        having = [v for v in versions_of(spelling) if at(name, v) is not None]
        assert having, name
        assert all(is_served(name, v) for v in having), name


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_name_has_one_status(spelling):
    assert not SUPPORTED[spelling] & ACCEPTED[spelling].keys()
    assert not SUPPORTED[spelling] & REFUSED[spelling].keys()
    assert not ACCEPTED[spelling].keys() & REFUSED[spelling].keys()


def value_of(spelling: str, name: str) -> Any:
    """What is served under a name, in the newest version that has it."""
    version = BETA1 if spelling == BETA1 else [v for v in versions_with(name) if v in SHOWN][-1]
    root = "neuronxcc.nki" if spelling == BETA1 else "nki"
    module, _, word = name.rpartition(".")
    return tables(root.partition(".")[0], version)[f"{root}.{module}".rstrip(".")][word]


# What needs a kernel or a tensor to be refused; tests of its dialect do that.
WITHIN_KERNELS = ("tensor.indirect",)
CALLED = [(s, n) for s in SPELLINGS for n in REFUSED[s] if n not in WITHIN_KERNELS]


@pytest.mark.parametrize(("spelling", "name"), CALLED)
def test_what_is_refused_raises_our_error_when_it_is_used(spelling, name):
    module = tables("neuronxcc", BETA1).get(f"neuronxcc.nki.{name}") if spelling == BETA1 else None
    for given in [value_of(spelling, name)] if module is None else module.values():
        refuses_calls(given().dump_config if isinstance(given, type) else given)


def refuses_calls(called):
    """Call with nothing in place of each argument."""
    required = [
        p for p in signature(called).parameters.values() if p.default is p.empty and p.kind < p.KEYWORD_ONLY
    ]
    words = [p for p in required if p.kind is not p.VAR_POSITIONAL]
    with nkilab.activate(), pytest.raises(UnsupportedError):
        called(*[None] * len(words))


DECORATORS = ("skip_middle_end_transformations", "enable_stack_allocator", "force_auto_alloc")


@pytest.mark.parametrize("name", [f"compiler.{name}" for name in DECORATORS])
def test_what_is_accepted_leaves_a_function_as_it_is(name):
    def function(x):
        return x

    assert value_of(BETA1, name)(function) is function
    assert value_of(BETA1, name)()(function) is function


def test_every_name_of_every_version_stands_in_the_matrix():
    held = matrix()
    names = {row.name for row in held.rows}
    assert names == {n for n in history() if set(versions_with(n)) & set(SHOWN)}
    for row in held.rows:
        for version in SHOWN:
            assert bool(row.status[version]) == (at(row.name, version) is not None)
    assert VERSIONS == SHOWN


# hand: what the API reference of v2.33.0 has and that of v2.32.0 has not, apart from what is gone
NEW_IN_0_7 = {
    "nisa.NkiScalar", "nisa.scalar_load", "nisa.scalar_store", "nl.NkiBlockGrid", "nl.NkiGrid",
    "nl.NkiTileGrid", "nl.alloc_blocks", "nl.alloc_tiles", "nl.blocks", "nl.tiles",
    "nki.collectives.all_gather_v_prepare", "nki.collectives.all_gather_v_trigger",
    "nki.collectives.all_to_all_v_prepare", "nki.collectives.all_to_all_v_trigger",
}  # fmt: skip


@pytest.mark.parametrize("version", SHOWN)
def test_every_name_is_proven_accepted_or_refused(version):
    told_of = {row.spelled: row.status[version] for row in matrix().rows}
    lacking = {name: status for name, status in told_of.items() if status in ("unproven", "missing")}
    assert lacking == (dict.fromkeys(NEW_IN_0_7, "missing") if version == "0.7" else {})


def test_a_name_that_is_not_served_is_missing_where_a_version_has_it(monkeypatch):
    monkeypatch.setattr("nkilab.ops._served", lambda version: {})
    assert status_of("isa.topk", "0.6") == ("missing", "")
    assert status_of("isa.topk", "0.5") == ("", "")
    assert [r.name for r in matrix("topk", only_missing=True).rows] == ["isa.topk"]


def test_words_choose_a_name_or_a_part_of_one():
    assert [r.name for r in matrix("nisa.dma_copy").rows] == ["isa.dma_copy"]
    assert [r.name for r in matrix("dma_copy").rows] == ["isa.dma_copy"]
    assert [r.name for r in matrix("tensor_copy_dynamic").rows] == [
        "isa.tensor_copy_dynamic_dst", "isa.tensor_copy_dynamic_src",
    ]  # fmt: skip
    with pytest.raises(UsageError) as caught:
        matrix("nl.loda")
    assert str(caught.value).startswith("no version of NKI has nl.loda\n  hint: did you mean nl.load")


def test_assumed_steps_are_counted(monkeypatch):
    sure, unsure = SimpleNamespace(certainty="documented"), SimpleNamespace(certainty="assumed")
    made = [SimpleNamespace(steps=((sure, unsure), (unsure,))), SimpleNamespace(steps=((sure,),))]
    monkeypatch.setattr("nkilab.ops.examples", lambda cls: made)
    row = matrix("nisa.nc_matmul").rows[0]
    assert (row.assumed_steps, row.steps) == (2, 4)
    # what is no instruction takes no steps of its own
    assert matrix("nl.load").rows[0].steps == 0


def test_the_document_of_json_counts_what_it_lists():
    told_of = json.loads(json.dumps(matrix().to_dict()))
    assert told_of["schema"] == "nkilab.ops/1"
    assert told_of["versions"] == list(SHOWN)
    assert told_of["statuses"] == STATUSES
    for version in SHOWN:
        for status, count in told_of["counts"][version].items():
            assert count == sum(name["status"][version] == status for name in told_of["names"])


def test_the_program_prints_the_matrix_as_text_and_as_json():
    code, out, err = told(call("ops", "nisa.nc_matmul"))
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["name", *SHOWN, "assumed", "why"]
    assert out.splitlines()[1].split()[:8] == ["nisa.nc_matmul", *["●"] * 7]
    code, out, err = told(call("ops", "nisa.nc_matmul", "--json"))
    assert (code, err, json.loads(out)["names"][0]["spelled"]) == (0, "", "nisa.nc_matmul")
    code, out, err = told(call("ops", "nl.loda"))
    assert (code, out) == (2, "")
    code, out, err = told(call("ops", "nisa.nc_matmul", "--missing"))
    assert (code, out, err) == (0, "nothing is missing\n", "")
