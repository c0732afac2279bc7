"""Coverage floors by folder; figures of the cases are made up here."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from .budgets import ROOT, budgets

pytest.importorskip("coverage", reason="needs coverage, which the extra `dev` has")
from .floors import complaints, home_of, raised


@pytest.mark.parametrize(
    ("path", "home"),
    [
        ("/venv/site-packages/nkilab/timing/clock.py", "timing"),
        ("/nkilab/src/nkilab/views/report/page.py", "views"),
        ("src\\nkilab\\api.py", "modules"),
    ],
)
def test_a_file_counts_for_its_folder(path: str, home: str) -> None:
    assert home_of(path) == home


def test_a_folder_below_its_floor_is_told_and_one_that_reaches_it_is_not() -> None:
    measured = {"tiles": (200, 189), "place": (200, 190), "new": (10, 10)}
    assert complaints(measured, {"tiles": 95, "place": 95, "gone": 1}) == [
        "gone has a floor and no statement", "new has no floor",
        "tiles is covered to 94.5 %; its floor is 95 %",
    ]  # fmt: skip


def test_floors_only_rise_and_are_rounded_down() -> None:
    text = "[lines]\ncode = 1\n[coverage]\ntiles = 95\nplace = 90\n"
    written = raised(text, {"place": (1000, 929), "tiles": (200, 189)})
    assert tomllib.loads(written) == {"lines": {"code": 1}, "coverage": {"tiles": 95, "place": 92}}


def test_every_folder_has_a_floor() -> None:
    folders = {path.name for path in Path(ROOT).iterdir() if any(path.glob("*.py"))}
    assert set(budgets()["coverage"]) == folders | {"modules"}
