"""Every documented constraint is told of where it is broken, and of nothing where it is just kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from nkilab.isa.declare import REGISTRY
from tests.checks.constraints import Constraint, constraints, example, findings_of, page, rule_of, spans

pytestmark = pytest.mark.corpus

ROWS = list(constraints())
PAGE = Path(__file__).parents[2] / "docs" / "constraints.md"
TRIED = [(c, version) for c in ROWS if not c.why_open for version in spans(c)]
IDS = [f"{c.name}@{version}" for c, version in TRIED]


@pytest.mark.parametrize(("constraint", "version"), TRIED, ids=IDS)
def test_a_call_that_breaks_a_constraint_is_told_of_and_one_that_keeps_it_is_not(
    constraint: Constraint, version: str, tmp_path: Path
) -> None:
    path = tmp_path / "kernel_file.py"
    assert findings_of(example(constraint, version, is_right=False), path)
    assert not findings_of(example(constraint, version, is_right=True), path)


def test_every_instruction_of_nki_isa_has_constraints() -> None:
    # the moves between registers ask for registers alone
    has_none = {name for name, declared in REGISTRY.items() if declared.module == "isa"} - {
        c.function for c in ROWS
    }
    assert has_none == {"register_move"}


def test_a_constraint_stands_in_the_file_once() -> None:
    assert len({c.name for c in ROWS}) == len(ROWS)


def test_the_page_has_every_row() -> None:
    text = PAGE.read_text()
    assert all(f"| {c.says} |" in text for c in ROWS)
    assert all(c.why_open in text for c in ROWS)


@pytest.mark.slow
def test_the_page_is_written_anew() -> None:
    assert PAGE.read_text() == page()


def test_the_page_names_the_rule_that_tells(tmp_path: Path) -> None:
    row = next(c for c in ROWS if c.name.startswith("tensor_scalar: columns"))
    said = "tensor_scalar: operand0 is bfloat16; arithmetic takes float32"
    assert rule_of(row, tmp_path / "kernel_file.py") == f"`operand-float32`: {said}"
