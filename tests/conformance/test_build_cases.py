"""`nkilab check` says what real toolchains said, on the cases that NKILAB_BUILD_CASES names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.build_cases import (
    HELD_OUT,
    OPEN,
    VARIABLE,
    BuildCase,
    Verdict,
    build_cases,
    halves,
    named_files,
    own_files,
    table,
    totals,
    verdict_of,
)

needs_cases = pytest.mark.skipif(not named_files(), reason=f"{VARIABLE} is not set")
# rejections that are told as errors, by half; they may only become more
REJECTIONS = {OPEN: 26, HELD_OUT: 20}
# accepted cases with an error or a warning
FALSE = {OPEN: 0, HELD_OUT: 0}
# of our own cases what is known to be told otherwise: docs/checks.md says why
OTHERWISE = {
    "ag-act-reciprocal", "ag-is-not-none", "ag-rmw-one-source", "b1-activation-of-slice",
    "b1-broadcast-multiply", "b1-one-arange", "fe-jit-subkernel", "fe-list-remove-all", "nu-mx-from-hbm",
    "nu-eight-activations", "nu-offset-of-index", "nu-range-select-bf16", "sd-activation-zeroes",
    "ver-scale-tile-activation-reduce", "vw-ap-of-view", "vw-blocks-folded",
}  # fmt: skip


def case(label: str, kind: str = "rule") -> BuildCase:
    return BuildCase("name", "rule", label, kind, OPEN, (), "")


def verdict(label: str, *severities: str, status: int = 0, kind: str = "rule") -> Verdict:
    findings = tuple({"severity": severity, "rule": "some-rule"} for severity in severities)
    return Verdict(case(label, kind), status, findings)


@pytest.mark.conformance
@needs_cases
def test_verdicts_are_those_of_real_toolchains(tmp_path: Path) -> None:
    verdicts = [verdict_of(one, tmp_path) for one in build_cases(named_files())]
    report = "\n".join(table(verdicts))
    for half in (OPEN, HELD_OUT):
        sure = [v for v in verdicts if v.case.half == half and v.case.kind != "disputed"]
        rejected = sum(v.is_right for v in sure if v.case.label == "reject")
        false = sum(not v.is_right for v in sure if v.case.label == "accept")
        assert rejected >= REJECTIONS[half], report
        assert false <= FALSE[half], report


# they need no file, but more than a minute: they run where the others do
@pytest.mark.conformance
@needs_cases
def test_our_own_cases_are_told_as_their_sources_have_them(tmp_path: Path) -> None:
    own = [one for one in build_cases(own_files()) if "@" not in one.name]
    verdicts = [verdict_of(one, tmp_path) for one in own]
    report = "\n".join(table(verdicts))
    told_otherwise = {v.case.name for v in verdicts if not v.is_right and v.case.half == OPEN}
    assert told_otherwise <= OTHERWISE, report
    held_out = [v for v in verdicts if v.case.half == HELD_OUT and v.case.kind != "disputed"]
    # of 41 each when they were run for the first time
    assert sum(v.is_right for v in held_out if v.case.label == "reject") >= 39, report
    assert sum(not v.is_right for v in held_out if v.case.label == "accept") == 0, report


def test_half_of_the_rules_are_held_out_and_always_the_same() -> None:
    rules = ["a", "b", "c", "d", "e", "a"]
    assert sorted(halves(rules).values()) == [HELD_OUT] * 2 + [OPEN] * 3
    assert halves(rules) == halves(reversed(rules))


@pytest.mark.parametrize(
    ("one", "is_right"),
    [
        (verdict("reject", "error", status=1), True),
        (verdict("reject", "warning", status=1), False),
        (verdict("reject"), False),
        (verdict("accept"), True),
        (verdict("accept", "advice", "note"), True),
        (verdict("accept", "warning", status=1), False),
        # a crash of the program is no verdict
        (verdict("accept", status=3), False),
        (verdict("reject", "note", kind="disputed"), True),
        (verdict("reject", "error", status=1, kind="disputed"), False),
    ],
)
def test_a_verdict_is_right_by_severity_and_status(one: Verdict, *, is_right: bool) -> None:
    assert one.is_right == is_right


def test_totals_count_rejections_and_false_findings() -> None:
    verdicts = [
        verdict("reject", "error", status=1),
        verdict("reject"),
        verdict("accept", "warning", status=1),
    ]
    assert list(totals(verdicts)) == [
        "rejections told as errors: 1 of 2",
        "accepted cases with errors: 0 of 1",
        "accepted cases with warnings: 1 of 1",
        "disputed cases told as notes: 0 of 0",
    ]
