"""`nkilab explain` has pages of everything that a user meets by name."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

import nkilab
from nkilab.error_keys import ERROR_KEYS
from nkilab.errors import UsageError
from nkilab.explain import explanation, explanation_data, known_names, pages_of, print_explanation
from nkilab.isa import REGISTRY
from nkilab.isa.activations import ACTIVATIONS
from nkilab.isa.declare import Rule
from nkilab.isa.operators import OPERATORS
from nkilab.ledger.sensitivity import other_of
from nkilab.machine import MACHINES
from nkilab.ops import matrix
from nkilab.pages.check_rules import FINDINGS
from nkilab.pages.content import Text
from nkilab.pages.subjects import rule_page, rules
from nkilab.pages.terminal import text
from nkilab.pages.terms import glossary
from nkilab.tiles.dtypes import DTYPES
from nkilab.views.bound import BOUNDS
from nkilab.views.metrics import METRICS
from tests.command_line import KERNEL, call, script


def words_of(name: str) -> str:
    """The text of a page with its line breaks as spaces."""
    return " ".join(explanation(name).split())


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("instruction", REGISTRY),
        ("operator", OPERATORS),
        ("activation function", ACTIVATIONS),
        ("data type", DTYPES),
        ("chip", MACHINES),
        ("metric", METRICS),
        ("bound", BOUNDS),
        ("finding", FINDINGS),
        ("error key", ERROR_KEYS),
        ("rule", rules()),
    ],
)
def test_there_is_a_page_of_every_name_and_none_is_wider_than_the_terminal(kind: str, names: object) -> None:
    for name in names:  # type: ignore[attr-defined]
        pages = pages_of(name)
        assert kind in {page.kind for page in pages}, name
        assert max(len(line) for page in pages for line in text(page).split("\n")) <= 100, name


def test_the_page_of_an_instruction_names_operands_limits_refusals_and_sources() -> None:
    page = words_of("nc_matmul")
    # nki.isa.nc_matmul, tile size: 512 columns, 4096 on trn3
    assert "N 512 512 4096 nki.isa.nc_matmul, tile size" in page
    assert "stationary read [K, M*] SBUF any float" in page
    assert "perf_mode is double_row" in page
    assert "- source: nki.isa.nc_matmul" in page
    assert "moving = [[3, 4, 5], [1, -1, 2]] nisa.nc_matmul(dst, stationary, moving)" in page


def test_a_spelling_that_lacks_an_instruction_says_so() -> None:
    assert "neuronxcc.nki (Beta 1) does not have it." in explanation("rng")


@pytest.mark.parametrize("spelled", ["nki.isa.iota", "nisa.iota", "neuronxcc.nki.isa.iota", "iota"])
def test_a_name_may_be_spelled_as_in_a_kernel(spelled: str) -> None:
    assert explanation(spelled) == explanation("iota")


def test_a_chip_shows_facts_with_certainty_and_source_and_what_it_lacks() -> None:
    page = words_of("trn1")
    # trn1 guide: TensorE at 2.8 GHz; 24 MiB of SBUF are 192 KiB per partition, 16 of which are kept back
    assert "tensor_clock_ghz 2.8 documented trn1 guide, engines" in page
    assert "sbuf_bytes_per_partition 180224 documented" in page
    assert "also called inf2, trn1n, gen2" in page
    assert "exponential" in page.split("Instructions it does not have")[1]
    assert explanation("gen2") == explanation("trn1")


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_the_page_of_a_chip_names_every_fact(name: str) -> None:
    page = words_of(name)
    for fact_name, fact in MACHINES[name].facts().items():
        assert fact_name in page
        assert fact.source.split()[0] in page


DTYPE_FACTS = [
    # IEEE 754
    ("float32", ["1, 8, 23", "3.402823466e+38", "1.175494e-38", "infinity and NaN"]),
    ("float16", ["1, 5, 10", "65504", "6.103516e-05", "overflow becomes: infinity"]),
    ("bfloat16", ["1, 8, 7", "3.389531389e+38", "bytes: 2"]),
    # NKI API common fields: 1S,8E,10M in four bytes; (2 - 2**-10) * 2**127
    ("tfloat32", ["1, 8, 10", "3.401162134e+38", "bytes: 4", "2**-10"]),
    # OCP 8-bit floating point: e5m2 57344, e4m3fn 448 and no infinity; the IEEE-like e4m3 ends at 240
    ("float8_e5m2", ["1, 5, 2", "57344", "bytes: 1"]),
    ("float8_e4m3fn", ["1, 4, 3", "448", "has: NaN", "overflow becomes: NaN"]),
    ("float8_e4m3", ["1, 4, 3", "240", "has: infinity and NaN"]),
    # OCP microscaling formats: e2m1 ends at 6; e8m0 is a power of two from -127 to 127
    ("float4_e2m1fn_x4", ["1, 2, 1", "largest finite: 6", "bits of each number: 4", "bytes: 2"]),
    ("float8_e8m0fnu", ["2**-127 to 2**127"]),
    ("int8", ["-128 to 127", "saturates", "nearest value"]),
    ("uint32", ["0 to 4294967295"]),
]


@pytest.mark.parametrize(("name", "facts"), DTYPE_FACTS)
def test_a_data_type_shows_its_bits_range_and_rounding(name: str, facts: list[str]) -> None:
    page = words_of(name)
    for fact in facts:
        assert fact in page


RANGES = [
    # NKI API common fields, "Supported Activation Functions", Valid Input Range
    ("exp", "any"),
    ("log", "2**-64 to 2**64"),
    ("sin", "-pi to pi"),
    ("arctan", "-pi / 2 to pi / 2"),
    ("sqrt", "2**-116 to 2**118"),
    ("rsqrt", "2**-87 to 2**97"),
    ("reciprocal", "magnitude from 2**-42 to 2**42"),
]


@pytest.mark.parametrize(("name", "valid"), RANGES)
def test_a_function_shows_its_valid_input(name: str, valid: str) -> None:
    (page,) = [page for page in pages_of(name) if page.kind == "activation function"]
    assert f"- valid input: {valid} " in words_of(name)
    assert page.name == name


def test_an_operator_shows_what_the_table_of_the_manual_has() -> None:
    # NKI API common fields, "Supported Math Operators": legal reduction Y, Vector/GpSIMD/Scalar
    page = words_of("add")
    assert "add operator x + y. - inputs: two - computes: in float32" in page
    assert "- reduces: yes - engines listed: VectorE, GpSimdE, ScalarE - chips: trn1, trn2, trn3" in page
    # bitwise operators are none of the reductions of VectorE's scans
    assert "tensor_tensor_scan" not in words_of("bitwise_and")
    assert "chips: trn3 -" in words_of("abs_max")


def test_a_name_of_several_things_shows_them_all() -> None:
    assert [page.kind for page in pages_of("reciprocal")] == [
        "instruction",
        "operator",
        "activation function",
    ]


def test_a_rule_shows_its_counterexample_and_the_message_that_follows() -> None:
    assert explanation("scalar_tensor_tensor.one_input_in_sbuf") == "\n".join([
        "scalar_tensor_tensor.one_input_in_sbuf  rule",
        "",
        "  Refused: data and operand1 are both in psum; at least one must be in sbuf.",
        "",
        "  - instruction: scalar_tensor_tensor",
        "  - chips: trn1, trn2, trn3",
        "  - way out: copy one of them to sbuf with tensor_copy",
        "  - source: nki.isa.scalar_tensor_tensor",
        "  - key: err_unsupported_memory",
        "",
        "Broken by",
        "  A use of scalar_tensor_tensor that is legal but for:",
        "",
        "  - data.memory = 'psum'",
        "  - operand1.memory = 'psum'",
        "",
        "  On trn2 the message reads, after the line of the kernel:",
        "  scalar_tensor_tensor: data and operand1 are both in psum; at least one must be in sbuf",
        "    hint: copy one of them to sbuf with tensor_copy",
        "    source: nki.isa.scalar_tensor_tensor",
        "    key: err_unsupported_memory",
    ])  # fmt: skip


def test_a_rule_of_several_instructions_is_found_by_its_bare_name() -> None:
    names = [page.name for page in pages_of("one_input_in_sbuf")]
    assert len(names) > 2
    assert all(name.endswith(".one_input_in_sbuf") for name in names)


def test_a_constant_shows_its_value_on_every_chip_and_what_hangs_on_it() -> None:
    (page,) = pages_of("vector_overhead_ns")
    known, matter = page.sections
    (facts,) = known.blocks
    assert [row[0] for row in facts.rows] == ["trn1", "trn2", "trn3"]
    assert facts.rows[1][1:3] == ("40", "fitted")
    changes = {row[0]: row[1:] for row in matter.blocks[1].rows}
    # documented to within exp(0.1), fitted exp(0.3), assumed exp(0.5)
    factors = {"trn1": "1.11", "trn2": "1.35", "trn3": "1.65"}
    assert {chip: row[0] for chip, row in changes.items()} == factors
    assert all(0 < float(row[2].rstrip("%")) < 35 for row in changes.values())


@pytest.mark.parametrize(
    ("constant", "value", "thrown"), [("engine_choice", 1, "off"), ("engines_in_order", 0, "on")]
)
def test_a_constant_that_is_a_switch_is_thrown(constant: str, value: int, thrown: str) -> None:
    assert other_of(constant, MACHINES["trn2"]) == (1 - value, thrown)


def test_every_rule_carries_what_the_declaration_says() -> None:
    for name, ((cls, rule), *_) in rules().items():
        if "." in name:
            page = " ".join(text(rule_page(cls, rule)).split())
            assert " ".join(rule.sentence.split()) in page
            if isinstance(rule, Rule) and rule.broken_by:
                assert "the message reads" in page


def test_an_error_key_shows_condition_example_way_out_and_release() -> None:
    page = explanation("err_while_loop_requires_unconditional_entry")
    key = ERROR_KEYS["err_while_loop_requires_unconditional_entry"]
    # "NKI API Errors" of SDK 2.24 is the first that has it
    assert "- documented since: SDK 2.24" in page
    assert key.condition in " ".join(page.split())
    assert key.way_out in " ".join(page.split())
    assert f"\nExample\n  {key.example}" in page


def test_an_error_key_lists_the_instructions_that_raise_it() -> None:
    page = words_of("err_num_partition_exceed_arch_limit")
    assert "most P is over 128 on trn1, 128 on trn2, 128 on trn3" in page


def test_a_metric_shows_its_unit_and_definition() -> None:
    assert explanation("total_time") == "\n".join([
        "total_time  metric",
        "",
        "  From the start of the kernel to its end, fixed costs included.",
        "",
        "  - unit: us",
        "  - what to do: see what it is bound by, and make that smaller first",
    ])  # fmt: skip


@pytest.mark.parametrize(
    "word",
    ["load", "store", "matmul", "affine_range", "ndarray", "par_dim", "mask", "psum", "sbuf", "hbm", "tile",
     "partition", "jit", "nki.jit", "nl.load", "MFU", "stall", "bound", "bottleneck",
     "critical path", "spill", "advice", "transpose", "PSUM bank", "stationary", "layout", "weights", "LNC",
     "data race", "SPMD", "all-reduce", "block size", "broadcasting", "double buffering", "flash attention",
     "arithmetic intensity", "stochastic rounding", "NaN", "stride", "gather", "dge_mode", "warmup", "NEFF",
     "Beta 2", "Inferentia", "cumsum", "top-k", "softmax", "RMSNorm", "conv2d", "autotune", "oob", "garbage",
     "mxfp8"],
)  # fmt: skip
def test_what_beginners_type_has_a_page_that_says_what_to_do(word: str) -> None:
    page, *_ = pages_of(word)
    first, remedy, *_ = [block for section in page.sections for block in section.blocks]
    assert isinstance(first, Text)
    assert len(first.words) > 60
    assert remedy


def test_a_type_is_known_by_its_short_name() -> None:
    assert words_of("bf16") == words_of("bfloat16")
    assert words_of("fp8e4") == words_of("float8_e4m3")


def test_every_name_that_a_term_leads_to_has_a_page() -> None:
    names = {name for term in glossary().words.values() for name in (*term.pages, *term.others)}
    assert names - {*known_names()} == set()


def test_no_word_stands_for_two_terms() -> None:
    words = [word for name, term in glossary().words.items() for word in (name, *term.others)]
    assert [word for word, count in Counter(words).items() if count > 1] == []


def test_every_public_name_of_every_version_has_a_page_that_tells_its_fate() -> None:
    for row in matrix().rows:
        words = words_of(row.spelled)
        for status in {*row.status.values()} - {""}:
            assert status in words or row.name.removeprefix("isa.") in REGISTRY, row.spelled


def test_a_public_name_shows_its_calls_by_version_and_the_way_out_where_it_is_missing() -> None:
    page = words_of("nl.mgrid")
    # the vendor's stubs: Beta 1 has it, 0.1 took it away
    assert "- NKI Beta 1: nl.mgrid" in page
    assert "- NKI 0.1 to 0.7: no such name; index with slices or nl.ds" in page
    page = words_of("program_id")
    assert "- NKI Beta 1 to 0.2: nl.program_id(axis)" in page
    assert "- NKI 0.3 to 0.7: nl.program_id(axis=0)" in page


@pytest.mark.parametrize("verb", ["estimate", "profile"])
def test_every_metric_bound_and_stall_that_is_printed_is_explained(tmp_path: Path, verb: str) -> None:
    script(tmp_path, KERNEL, "kernels.py")
    printed = call(
        verb, "kernels.py:added", "--arg", "f32[64,512]", "--arg", "f32[64,512]", folder=tmp_path
    ).stdout
    names = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", printed)) - {"kernels_py", "program_id"}
    assert {"total_time", "dma_active_time"} <= names
    for name in names:
        assert "what to do" in words_of(name), name
    bound = re.search(r"ound by ([^:]+):", printed)
    assert bound
    assert pages_of(" ".join(bound[1].split()))
    assert pages_of("first byte")


def test_the_page_of_sbuf_has_both_figures_of_every_chip() -> None:
    page = words_of("sbuf")
    for machine in MACHINES.values():
        whole = machine["sbuf_physical_bytes_per_partition"]
        assert f"{whole // 1024:.0f} KiB on {machine.name}" in page
        # what a kernel may use: 16 KiB less, and 8 bytes less on the newer ones
        usable = machine["sbuf_bytes_per_partition"]
        assert f"{-(-usable // 1024):.0f} KiB" in page
        assert whole - usable in (16 * 1024, 16 * 1024 + 8)


def test_every_finding_of_the_plan_has_a_page() -> None:
    folder = Path(nkilab.__file__).parent / "place"
    sources = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    assert set(re.findall(r'Finding\(\s*"([\w-]+)"', sources)) <= set(FINDINGS)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("nc_matmull", "nc_matmul"),
        ("err_unsuported_memory", "err_unsupported_memory"),
        ("bfloat61", "bfloat16"),
        ("trn9", "trn1"),
        ("mfu_percent", "mfu_estimated_percent"),
    ],
)
def test_a_name_without_a_page_offers_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        explanation(wrong)
    problem, hint = str(caught.value).split("\n")
    assert problem == f"there is no page of {wrong}"
    assert hint.startswith("  hint: did you mean ")
    assert near in hint


def test_a_name_like_no_other_says_what_has_a_page() -> None:
    with pytest.raises(UsageError) as caught:
        explanation("zzzzzzzz")
    assert (
        str(caught.value) == "there is no page of zzzzzzzz\n"
        "  hint: try a public name, type, chip, metric or rule, or a word such as tile"
    )


def test_data_has_a_schema_the_text_and_its_parts() -> None:
    document = json.loads(json.dumps(explanation_data("nl.rsqrt")))
    assert document["schema"] == "nkilab.explain/1"
    assert document["name"] == "nl.rsqrt"
    assert document["page"].startswith(explanation("rsqrt"))
    assert [page["kind"] for page in document["pages"]] == ["operator", "activation function", "name"]
    opening = document["pages"][1]["sections"][0]["blocks"]
    assert opening[0] == {"type": "text", "words": "`1 / sqrt(x)`."}
    assert "valid input: `2**-87` to `2**97`" in opening[1]["items"]


def test_what_is_printed_to_a_pipe_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    print_explanation("abs")
    printed = capsys.readouterr().out
    assert printed == explanation("abs") + "\n"
    assert "\x1b" not in printed
    assert not [line for line in printed.split("\n") if line.endswith(" ")]
