"""The published measurements that NKILAB_MEASUREMENTS names: each a row, or left out with a reason."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from nkilab.ledger import left_out, own_rows

from .conftest import file_or_skip

pytestmark = pytest.mark.conformance
MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
ROWS = {row.id: row for row in own_rows()}


@cache
def entries_of(path: Path) -> dict[str, dict[str, Any]]:
    entries = YAML(typ="safe").load(path.read_text())
    assert len({entry["id"] for entry in entries}) == len(entries)
    return {entry["id"]: entry for entry in entries}


@pytest.fixture
def published() -> dict[str, dict[str, Any]]:
    return entries_of(file_or_skip("NKILAB_MEASUREMENTS"))


def test_every_published_measurement_is_a_row_or_is_left_out_with_a_reason(published):
    places = Counter([*ROWS, *left_out()])
    assert {name: places[name] for name in published if places[name] != 1} == {}


def test_nothing_is_left_out_that_was_never_published(published):
    assert sorted(set(left_out()) - set(published)) == []


def test_rows_have_the_split_that_was_published(published):
    """Above all: what was published to judge by is never fitted. What may be fitted may be left alone."""
    allowed = {"fit": {"fit", "context"}, "judge": {"judge"}, "context": {"context"}}
    rows = [ROWS[name] for name in published if name in ROWS]
    assert {row.id: row.split for row in rows if row.split not in allowed[published[row.id]["split"]]} == {}
    # of these the chip is not named, so that they are neither fitted nor judged
    left = {row.id for row in rows if row.split != published[row.id]["split"]}
    assert left == {"nccom-allg-r32-8192", "nccom-allg-r32-524288", "nccom-allgv-r4-2048"}


def test_rows_have_the_times_that_were_published(published):
    off = {}
    for name, entry in published.items():
        unit = MICROSECONDS.get(entry["unit"])
        row = ROWS.get(name)
        if row is None or unit is None or not row.metric.endswith(("_us", "_ns")):
            continue
        value = row.value * MICROSECONDS[row.metric[-2:]]
        if abs(value / (entry["value"] * unit) - 1) > 2e-4:
            off[name] = (value, entry["value"] * unit)
    assert off == {}
