"""The history of benchmarks: what a recorded run says, and the picture of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.docs.pages import DOCS, ROOT, script

history = script(DOCS / "site" / "history.py")
RUNS: list[dict[str, Any]] = [
    {"date": "2026-01-01", "commit": "a<b", "ratios": {"one": 2.0, "gone": 1.0}},
    {"date": "2026-01-02", "commit": "b", "ratios": {"one": 8.0}},
    {"date": "2026-01-03", "commit": "c", "ratios": {"one": 4.0, "new": 3.0}},
]


def test_every_recorded_run_says_when_where_and_how_much() -> None:
    runs = history.runs_of(history.HISTORY.read_text("utf-8"))
    days = [date.fromisoformat(run["date"]) for run in runs]
    assert days == sorted(days)
    for run in runs:
        assert set(run) == {"date", "commit", "python", "machine_factor", "calibration_s", "ratios"}
        assert min([run["machine_factor"], *run["calibration_s"].values(), *run["ratios"].values()]) > 0


def test_a_row_goes_from_run_to_run_by_logarithm() -> None:
    one, gone, new = history.rows_of(RUNS)
    assert (one.name, gone.name, new.name) == ("one", "gone", "new")
    left, right, line = history.LEFT, history.RIGHT, history.LINE
    middle = (left + right) / 2
    # hand: 2, 8 and 4 are the least, the most and their geometric mean; less lies lower
    assert one.places(3) == [(left, line), (middle, 0.0), (right, pytest.approx(line / 2))]
    # one value lies in the middle, at its run
    assert gone.places(3) == [(left, line / 2)]
    assert new.places(3) == [(right, line / 2)]


def test_a_change_by_a_tenth_looks_small() -> None:
    row = history.Row("one", ((0, 1.0), (1, 1.1)))
    (_, first), (_, second) = row.places(2)
    assert 0 < first - second < history.LINE / 4


@pytest.mark.parametrize("runs", [RUNS, RUNS[:1]], ids=["three runs", "one run"])
def test_the_picture_is_xml_with_a_point_for_every_ratio(runs: list[dict[str, Any]]) -> None:
    root = ElementTree.fromstring(history.svg(runs))
    names = {element.text for element in root.iter() if element.tag.endswith("text")}
    assert "2026-01-01, a<b" in names
    points = [element for element in root.iter() if element.tag.endswith("circle")]
    assert len(points) == sum(len(run["ratios"]) for run in runs)


@pytest.fixture(scope="module")
def record() -> Iterator[ModuleType]:
    # a benchmark finds its neighbours as Python finds them for a script
    folder = str(ROOT / "benchmarks")
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        yield script(Path(folder) / "record.py")
    finally:
        sys.path.remove(folder)
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(folder):
                del sys.modules[name]


def test_a_machine_that_is_half_as_fast_records_the_same_ratios(record: ModuleType) -> None:
    times = {"python loop": 0.1, "blas loop": 0.4, "one": 0.6}
    line = record.line_of(times, "a", "2026-01-01")
    # hand: the geometric mean of the loops is 0.2 s
    assert (line["machine_factor"], line["ratios"]) == (2.0, {"one": 3.0})
    slower = record.line_of({name: 2 * t for name, t in times.items()}, "a", "2026-01-01")
    assert (slower["machine_factor"], slower["ratios"]) == (4.0, {"one": 3.0})


def test_a_wrong_use_of_the_recorder_is_told(record: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert record.main(["--prnt"]) == 2
    assert capsys.readouterr().err == "usage: python benchmarks/record.py [--print]\n"
