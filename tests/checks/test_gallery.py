"""Every kernel of the gallery has exactly the findings that its lines are marked with."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest

import nkilab
from nkilab.checking import Options, every_launch, filled, report_of
from nkilab.checks.declare import RULES
from nkilab.checks.report import Report
from nkilab.dialects.kernel import Kernel
from nkilab.place import Dependence
from tests.checks.gallery import case

FOLDER = Path(__file__).parent / "gallery"
for module in sorted(FOLDER.glob("[!_]*.py")):
    import_module(f"tests.checks.gallery.{module.stem}")
CASES = case.CASES
every_case = pytest.mark.parametrize("held", CASES, ids=[c.name for c in CASES])


def reported(held: case.Case, table: Mapping[str, Dependence] | None = None) -> Report:
    options, k = held.options, held.kernel
    if "version" in options:
        k = Kernel(k.function, k.spelling, options["version"], k.options, k.grid)
    if "ranks" in options:
        with every_launch(Options(table=table)) as reports:
            nkilab.launch(k, options["ranks"])(*(filled(a) for a in held.args))
        return reports[0]
    asked = Options(
        options.get("target", ""), options.get("replay", 0), options.get("numerics", False), table
    )
    return report_of(k, held.args, {}, asked)


@every_case
def test_a_kernel_has_the_findings_that_its_lines_are_marked_with(held: case.Case) -> None:
    found = reported(held).findings
    marked = {rule for rule, _ in held.expected}
    # notes and advice stand beside what is wrong; a case about them marks them
    told = {(f.rule, f.site.line) for f in found if f.fails or f.rule in marked}
    assert told == held.expected


@every_case
def test_wrong_kernels_are_marked_and_repaired_ones_are_not(held: case.Case) -> None:
    assert bool(held.expected) == held.is_wrong
    assert {rule for rule, _ in held.expected} <= set(RULES)


def test_there_are_many_wrong_kernels_in_both_spellings() -> None:
    wrong = [c for c in CASES if c.is_wrong]
    spellings = {c.kernel.spelling for c in wrong}
    assert len(wrong) >= 60
    assert spellings == {"nki", "neuronxcc"}
