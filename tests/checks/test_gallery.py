"""Every kernel of the gallery has exactly the findings that its lines are marked with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

import pytest

import nkilab
from nkilab.checking import Options, every_launch, filled, report_of
from nkilab.checks.declare import RULES
from nkilab.checks.finding import Finding
from nkilab.checks.report import Report
from nkilab.dialects.kernel import Kernel
from nkilab.place import Dependence
from tests.checks.gallery import case

FOLDER = Path(__file__).parent / "gallery"
for module in sorted(FOLDER.glob("[!_]*.py")):
    import_module(f"tests.checks.gallery.{module.stem}")
CASES = case.CASES
every_case = pytest.mark.parametrize("planted_case", CASES, ids=[c.name for c in CASES])


def reported(planted_case: case.Case, table: Mapping[str, Dependence] | None = None) -> Report:
    options, k = planted_case.options, planted_case.kernel
    if "version" in options:
        k = Kernel(k.function, k.spelling, options["version"], k.options, k.grid)
    if "ranks" in options:
        with every_launch(Options(table=table)) as reports:
            nkilab.launch(k, options["ranks"])(*(filled(a) for a in planted_case.args))
        return reports[0]
    asked = Options(
        options.get("target", ""), options.get("replay", 0), options.get("numerics", False), table
    )
    return report_of(k, planted_case.args, {}, asked)


@pytest.mark.corpus
@every_case
def test_a_kernel_has_the_findings_that_its_lines_are_marked_with(planted_case: case.Case) -> None:
    findings: Sequence[Finding] = reported(planted_case).findings
    marked = {rule for rule, _ in planted_case.expected}
    # notes and advice stand beside what is wrong; a case about them marks them
    if not any(RULES[rule].severity == "advice" for rule in marked):
        findings = reported(planted_case).findings.verdict
    marked_findings = {(f.rule, f.site.line) for f in findings if f.fails or f.rule in marked}
    assert marked_findings == planted_case.expected


@every_case
def test_wrong_kernels_are_marked_and_repaired_ones_are_not(planted_case: case.Case) -> None:
    assert bool(planted_case.expected) == planted_case.is_wrong
    assert {rule for rule, _ in planted_case.expected} <= set(RULES)


def test_there_are_many_wrong_kernels_in_both_spellings() -> None:
    wrong = [c for c in CASES if c.is_wrong]
    spellings = {c.kernel.spelling for c in wrong}
    assert len(wrong) >= 60
    assert spellings == {"nki", "neuronxcc"}


def test_no_case_breaks_a_rule_in_the_spelling_that_its_declaration_says_not_to_have_the_mistake() -> None:
    examples = {rule.id: {p.wrong.spelling for p in rule.pairs} for rule in RULES.values() if rule.pairs}
    broken = {(rule, c.kernel.spelling) for c in CASES for rule, _ in c.expected if rule in examples}
    assert not [(rule, spelling) for rule, spelling in broken if spelling not in examples[rule]]
