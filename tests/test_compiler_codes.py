"""`nkilab explain` tells what the codes of the vendor's compiler mean."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nkilab.compiler_codes import COMPILER_CODES, code_in
from nkilab.errors import UsageError
from nkilab.explain import explanation, pages_of
from tests.command_line import call, outcome_of


def test_a_code_has_meaning_triggers_way_out_versions_and_source() -> None:
    assert explanation("NCC_IBIR182") == (
        "NCC_IBIR182  code of the compiler\n\n"
        "  What a collective reads may be unwritten.\n\n"
        "  It is an error within the compiler.\n\n"
        "  - raised by: outputs of kernels that go into collectives\n"
        "  - way out: nobody tells one\n"
        "  - versions: repaired in SDK 2.30\n"
        "  - source: AWS Neuron SDK, release notes"
    )


@pytest.mark.parametrize(
    "pasted",
    [
        "[NCC_INLA001]",
        "ncc_inla001",
        "[INTERNAL_ERROR] [NCC_INLA001] Unhandled exception with message: === BIR verification failed",
        "Ncc_Inla001:",
    ],
)
def test_a_code_is_known_as_it_is_pasted(pasted: str) -> None:
    assert [page.name for page in pages_of(pasted)] == ["NCC_INLA001"]


def test_a_code_is_known_under_the_name_of_another_compiler() -> None:
    assert code_in("[TEN404] Internal tensorizer error") == "NCC_ITEN404"
    assert code_in("sch713") == "SCH713"


def test_a_code_that_nobody_knows_names_near_ones() -> None:
    done = call("explain", "[NCC_IBIR606]")
    hint = "did you mean NCC_IBIR605 or NCC_IBIR039 or NCC_IBIR058?"
    text = f"nkilab: there is no page of [NCC_IBIR606]\n  hint: {hint}\n"
    assert outcome_of(done) == (2, "", text)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("op 'dst' free total elements 64 != 'rhs' free total elements 1", ["nl-rms-norm"]),
        ("k.py:7:0: source tensor must have 4 dimmensions", ["dma-transpose-rank"]),
        ("[NCC_INLA001] Expected 2D tensor but got 3D AP", ["NCC_INLA001", "affine-select-axes"]),
        (
            "'dst' free total elements 64 != 'rhs' free total elements 1; Generated MLIR failed verification",
            ["nl-rms-norm", "Generated MLIR failed verification"],
        ),
        (
            "failed to compile NKI kernel: Collected 3 different diagnostics",
            ["failed to compile NKI kernel"],
        ),
    ],
)  # fmt: skip
def test_a_sentence_of_a_build_names_the_rules_that_it_answers(line: str, names: list[str]) -> None:
    """Sentences of public logs; sizes are those of another kernel than the rule's."""
    assert [page.name for page in pages_of(line)] == names


def test_words_without_a_code_stay_unknown() -> None:
    with pytest.raises(UsageError):
        pages_of("[INTERNAL_ERROR]")


@pytest.mark.parametrize("name", COMPILER_CODES)
def test_every_code_says_what_it_means_and_who_tells_it(name: str) -> None:
    row = COMPILER_CODES[name]
    is_sentence = " " in name
    assert is_sentence or re.fullmatch(r"NCC_[A-Z]{3,4}\d{3}|[A-Z]{1,3}\d{3}", name)
    for words in (row.meaning, row.way_out, row.trigger, row.versions):
        assert not words.endswith(".")
    assert row.meaning
    assert row.source
    assert is_sentence or code_in(f"[{name.lower()}]") == name


# what builds of such kernels end with, as public logs have it
REFUSED = {
    "NCC_INLA001": "nisa.memset(tile[16:20], 0.0)",
    "NCC_IBIR158": "nisa.memset(tile.ap([[1024, 64], [1, 512]]), 0.0)",
    "NCC_IBIR229": "nl.ndarray((128, 2**20), nl.float32, buffer=nl.sbuf)",
    "NCC_IBIR530": "nisa.nc_matmul_mx(total, packed, packed, scale, scale)",
}
_TILES = """import nki, nki.language as nl, nki.isa as nisa
@nki.jit
def k(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    packed = nl.ndarray((128, 128), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
    scale = nl.ndarray((128, 128), nl.uint8, buffer=nl.sbuf)
    total = nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
    """


@pytest.mark.parametrize("code", REFUSED)
def test_an_error_of_the_run_has_the_code_that_the_build_ends_with(code: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(_TILES + REFUSED[code])
    done = call("check", f"{path}:k", "--target", "trn2", "--arg", "x=f32[4,4]", "--json")
    (finding,) = [f for f in json.loads(done.stdout)["findings"] if f["severity"] == "error"]
    assert (finding["code"], f"key: {code}" in finding["notes"]) == (code, True)
    assert code in COMPILER_CODES
