"""What a mutant is, and that each that is said to be equivalent still is one of the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from . import mutants
from .mutants import mutants_of

EQUIVALENT = Path(__file__).with_name("equivalent.txt")
TEXT = '''"""A module."""
LIMIT: int = 3

def smallest(values: list[int], start=2):
    """The least of some."""
    assert values
    best = min(values)
    if not best and start < LIMIT:
        return True
    best += 1
    print(best)
    return best
'''


@pytest.fixture
def changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """By description, the text of each mutant of a module."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "module.py").write_text(TEXT)
    monkeypatch.setattr(mutants, "PACKAGE", tmp_path)
    return {m.what: ast.unparse(m.tree()) for m in mutants_of("folder")}


def test_each_mutant_is_one_slip_of_the_hand(changes: dict[str, str]) -> None:
    assert sorted(changes) == sorted([
        "module: 3 -> 4", "module: 3 -> 6", "smallest: 2 -> 3", "smallest: 2 -> 4",
        "smallest: min(values) -> max(values)", "smallest: best = min(values) -> pass",
        "smallest: not best and start < LIMIT -> not best or start < LIMIT",
        "smallest: not best and start < LIMIT -> best and start < LIMIT",
        "smallest: not best and start < LIMIT -> not best and start <= LIMIT", "smallest: True -> False",
        "smallest: best += 1 -> best -= 1", "smallest: best += 1 -> pass", "smallest: 1 -> 2",
        "smallest: print(best) -> pass", "smallest: return best -> return None",
    ])  # fmt: skip


def test_a_mutant_differs_in_its_change_alone(changes: dict[str, str]) -> None:
    original = ast.unparse(ast.parse(TEXT))
    text = changes["smallest: not best and start < LIMIT -> not best and start <= LIMIT"]
    assert text == original.replace("start < LIMIT", "start <= LIMIT")
    assert len(set(changes.values()) | {original}) == len(changes) + 1


def test_every_equivalent_mutant_is_one_of_the_code_and_says_why() -> None:
    blocks = EQUIVALENT.read_text(encoding="utf-8").strip().split("\n\n")[1:]
    named = {str(m) for folder in ("timing", "tiles", "place") for m in mutants_of(folder)}
    for block in blocks:
        mutant, reason = block.split("\n    ", 1)
        assert mutant in named, mutant
        assert reason.strip()
    assert len({block.split("\n")[0] for block in blocks}) == len(blocks)
