"""The page of a run, or of two side by side: a template, a style sheet, scripts and data, in one text."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib import resources
from typing import Any

from ..difference import Compared, Difference, metric_cells, time_cells
from ..metrics import METRICS
from ..run import Run
from .data import page_data

# In the order in which they stand in the page.
SCRIPTS = (
    "base.js", "data.js", "colours.js", "lanes.js", "arrows.js", "timeline.js", "pointer.js", "ruler.js",
    "flame.js", "memory.js", "details.js", "source.js", "panels.js", "search.js", "main.js",
)  # fmt: skip


@cache
def asset(name: str) -> str:
    """The text of a file of the folder `assets`."""
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def report_html(run: Run) -> str:
    """The report of a run: one page that needs nothing else, no network either."""
    return page_of([("", run)])


def page_of(runs: Sequence[tuple[str, Run]], comparison: dict[str, object] | None = None) -> str:
    """The page of runs that are looked at together, with what is said of them besides."""
    tables, columns = page_data(runs)
    summary = runs[-1][1].summary
    title = str(comparison["title"]) if comparison else f"{summary.kernel} on {summary.machine}"
    return page("report.html", SCRIPTS, title, {
        "tables": data_block({**tables, "comparison": comparison}),
        "columns": columns.text(),
    })  # fmt: skip


def page(template: str, scripts: tuple[str, ...], title: str, blocks: dict[str, str]) -> str:
    """A template with its marks filled: @title@, @policy@, @style@, @script@ and those of `blocks`."""
    script = "\n".join(["(() => {", '"use strict";', *map(asset, scripts), "})();", ""]) if scripts else ""
    sheet = asset("report.css")
    policy = f"default-src 'none'; style-src '{_digest(sheet)}'; img-src data:"
    policy += f"; script-src '{_digest(script)}'" if script else ""
    filled = {"title": escape(title), "policy": policy, "style": sheet, "script": script, **blocks}
    parts = asset("frame.html").replace("@body@", asset(template)).split("@")
    # marks stand between two @; what is put in is not searched again
    text = "".join(filled[part] if place % 2 else part for place, part in enumerate(parts))
    # a name may hold what no encoding has
    return text.encode("utf-8", "replace").decode()


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(sha256(text.encode()).digest()).decode()


def data_block(tables: dict[str, Any]) -> str:
    """JSON that may stand within a script element: no sign in it ends the element or opens a comment."""
    text = json.dumps(tables, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


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
