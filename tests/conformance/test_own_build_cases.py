"""The file of our own labelled cases is well formed, and `nkilab check` tells no fewer of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.build_cases import OPEN, BuildCase, Verdict
from tests.conformance.own_build_cases import (
    OPEN_FILE,
    OwnVerdict,
    own_verdict,
    right_case,
    row_of,
    rows_of,
    table,
    texts_of,
)

pytestmark = pytest.mark.corpus

TEXTS = texts_of(OPEN_FILE)
REQUIRED = {
    "id", "rule", "mechanism", "kind", "label", "expected", "basis", "evidence", "source", "section", "nki",
    "spelling", "chip", "shapes", "verdicts", "error", "cause", "holds_for", "minimal_kernel",
}  # fmt: skip
OPTIONAL = {"note", "keywords", "grid", "right_twin"}
VALUES = {
    "kind": {"rule", "compiler-bug", "silent-wrong", "difference", "disputed"},
    "label": {"accept", "reject"},
    "expected": {"error", "warning", "note", "clean"},
    "basis": {"build", "chip"},
    "evidence": {"docs", "log", "report", "source", "derived"},
    "spelling": {"nki", "neuronxcc.nki"},
    "chip": {"trn1", "trn2", "trn3"},
}
VERSIONS = {"beta1", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6"}
# one that follows from the kind, where it is not "rule"
EXPECTED = {"silent-wrong": "warning", "difference": "note", "disputed": "note", "compiler-bug": "error"}
TWIN = {"kernel", "nki", "chip", "shapes", "spelling", "keywords", "grid"}
# cases that are told as expected; they may only become more
RIGHT = 499
# right twins with an error or a warning
REFUSED = 0


@pytest.fixture
def row(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A case by its name."""
    return row_of(TEXTS[request.param])


def kernels(row: dict[str, Any]) -> list[str]:
    return [row["minimal_kernel"], *(k for k in [row.get("right_twin", {}).get("kernel")] if k)]


def modules_of(kernel: str) -> set[str]:
    return {
        a.name for node in ast.walk(ast.parse(kernel)) if isinstance(node, ast.Import) for a in node.names
    }


@pytest.mark.parametrize("row", TEXTS, indirect=True)
def test_a_case_has_the_fields_of_the_schema(row: dict[str, Any]) -> None:
    assert REQUIRED <= set(row) <= REQUIRED | OPTIONAL
    for field, values in VALUES.items():
        assert row[field] in values, field
    assert set(row["verdicts"]) == {"simulator", "build", "chip"}
    assert set(row["holds_for"]) == {"nki", "chip"}
    assert row["nki"] in VERSIONS
    assert set(row["holds_for"]["nki"]) <= VERSIONS
    assert set(row["holds_for"]["chip"]) <= VALUES["chip"]


@pytest.mark.parametrize("row", TEXTS, indirect=True)
def test_a_case_names_a_public_source_and_its_place(row: dict[str, Any]) -> None:
    assert re.match(r"https://github\.com/[\w.-]+/[\w.-]+|public (notes|report|kernels) ", row["source"])
    assert row["section"]
    assert row["cause"]


@pytest.mark.parametrize("row", TEXTS, indirect=True)
def test_label_kind_and_expectation_agree(row: dict[str, Any]) -> None:
    plain = "error" if row["label"] == "reject" else "clean"
    assert row["expected"] == EXPECTED.get(row["kind"], plain)
    assert row["kind"] != "silent-wrong" or (row["verdicts"]["build"], row["label"]) == ("accept", "reject")
    # who is told that a kernel is wrong is told what is right
    assert row["label"] == "accept" or "right_twin" in row


@pytest.mark.parametrize("row", TEXTS, indirect=True)
def test_the_kernels_of_a_case_parse_and_are_of_its_spelling(row: dict[str, Any]) -> None:
    for kernel in kernels(row):
        names = {t.id for n in ast.walk(ast.parse(kernel)) if isinstance(n, ast.Assign) for t in n.targets
                 if isinstance(t, ast.Name)}  # fmt: skip
        functions = {n.name for n in ast.walk(ast.parse(kernel)) if isinstance(n, ast.FunctionDef)}
        assert "k" in names | functions
        assert ("nki" in modules_of(kernel)) == (row["spelling"] == "nki")


@pytest.mark.parametrize("row", [n for n, text in TEXTS.items() if "\n  right_twin:" in text], indirect=True)
def test_what_is_right_differs_from_what_is_wrong(row: dict[str, Any]) -> None:
    twin = row["right_twin"]
    assert set(twin) <= TWIN
    assert any(twin[field] != row.get(field) for field in set(twin) - {"kernel"}) or (
        twin["kernel"] != row["minimal_kernel"]
    )


def test_names_are_unique_and_a_rule_has_one_mechanism() -> None:
    names = re.findall("^- id: (.*)$", OPEN_FILE.read_text(), re.MULTILINE)
    assert len(names) == len(TEXTS) == len(set(names))


def verdict(expected: str, *severities: str, status: int = 0) -> OwnVerdict:
    findings = tuple({"severity": severity, "rule": "some-rule"} for severity in severities)
    case = BuildCase("name", "rule", "reject", "rule", OPEN, (), "")
    return OwnVerdict({"expected": expected}, Verdict(case, status, findings), None)


@pytest.mark.parametrize(
    ("one", "is_right"),
    [
        (verdict("error", "error", status=1), True),
        (verdict("error", "warning", status=1), False),
        (verdict("error"), False),
        (verdict("warning", "warning", status=1), True),
        (verdict("warning", "error", status=1), True),
        (verdict("warning", "note"), False),
        (verdict("note", "note"), True),
        (verdict("note", "note", "warning", status=1), False),
        (verdict("note"), False),
        (verdict("clean", "note", "advice"), True),
        (verdict("clean", "warning", status=1), False),
        (verdict("clean", status=3), False),
    ],
)
def test_a_verdict_is_right_by_what_is_expected(one: OwnVerdict, *, is_right: bool) -> None:
    assert one.is_right == is_right


def test_a_twin_takes_over_what_it_does_not_change() -> None:
    row = {
        "id": "a", "rule": "r", "label": "reject", "kind": "rule", "nki": "0.3", "chip": "trn2",
        "shapes": ["f32[40,64]"], "grid": 2, "minimal_kernel": "wrong", "right_twin": {"nki": "0.4"},
    }  # fmt: skip
    twin = right_case(row)
    assert twin.options == (
        *("--nki", "0.4", "--target", "trn2", "--json", "--arg", "f32[40,64]", "--grid", "2"),
    )
    assert (twin.name, twin.kernel) == ("a-right", "wrong")


@pytest.mark.slow
def test_cases_are_told_as_expected_and_right_twins_pass(tmp_path: Path) -> None:
    verdicts = [own_verdict(row, tmp_path) for row in rows_of(OPEN_FILE)]
    report = "\n".join(table(verdicts))
    assert sum(v.is_right for v in verdicts) >= RIGHT, report
    assert sum(not v.twin_passes for v in verdicts) <= REFUSED, report
