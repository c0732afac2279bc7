"""Two runs in one page: both timelines, and what is better or worse, line by line."""

from __future__ import annotations

from ..difference import Compared, Difference, metric_cells, time_cells
from ..metrics import METRICS
from .page import page_of


def comparison_html(difference: Difference) -> str:
    """The page of a difference: headline, tables of what changes, and the report of both runs."""
    names = difference.names
    return page_of(list(zip(names, (difference.before, difference.after), strict=True)), {
        "title": f"{names[0]} and {names[1]}",
        "headline": difference.headline,
        "bounds": difference.bounds,
        "tables": [
            ["Source lines: time on the critical path", ["Source line", *names, "Change"],
             [_row(one, time_cells(one), -one.change) for one in difference.lines()]],
            ["What the time went to", ["Critical path", *names, "Change"],
             [_row(one, time_cells(one), -one.change) for one in difference.path()]],
            ["Metrics that differ", ["Metric", *names, "Ratio"],
             [_row(one, metric_cells(one), _gain(one)) for one in difference.metrics()]],
        ],
    })  # fmt: skip


def _row(one: Compared, cells: tuple[str, ...], gain: float) -> dict[str, object]:
    """A row of a table: what it is called, lines of both runs, cells, and 1 if it is better, -1 if worse."""
    return {"name": one.name, "lines": one.lines, "cells": cells, "gain": (gain > 0) - (gain < 0)}


def _gain(one: Compared) -> float:
    """How much better a metric is in the second run; 0 where neither more nor less is better."""
    if one.name.startswith(("mfu", "hfu")):
        return one.change
    is_sum = "average" not in one.name and "peak" not in one.name
    return -one.change if is_sum and METRICS[one.name].unit in ("us", "bytes") else 0.0
