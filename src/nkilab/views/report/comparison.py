"""Two runs side by side in one HTML file, without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..difference import Compared, Difference, metric_cells, time_cells
from ..svg import STYLE, timelines_html
from ..units import micro
from .page import page


def comparison_html(difference: Difference) -> str:
    """The page of a difference: headline, both timelines on one scale, tables."""
    longest = max(run.timeline.latency_ns for run in (difference.before, difference.after))
    pictures = "".join(
        f"<section><h2>{escape(name)}</h2><p class='note'>{escape(run.summary.kernel)} on "
        f"{escape(run.summary.machine)}, bound by {escape(run.summary.bound)}</p>"
        f'<div class="scroll picture">{timelines_html(run, longest, name, has_style=False)}'
        "</div></section>"
        for name, run in zip(difference.names, (difference.before, difference.after), strict=True)
    )
    metrics = [(one.name, *metric_cells(one)) for one in difference.metrics()]
    path = [(one.name, *time_cells(one)) for one in difference.path()]
    lines = [(one.name, _places(one), *time_cells(one)) for one in difference.lines()]
    names = difference.names
    return page("comparison.html", (), f"{names[0]} and {names[1]}", {
        "headline": escape(micro(difference.headline)),
        "bounds": escape(difference.bounds),
        "pictures": pictures,
        "metrics": _table(("Metric", *names, "Ratio"), metrics, 1),
        "path": _table(("Critical path", *names, "Change"), path, 1),
        "lines": _table(("Source line", "Where", *names, "Change"), lines, 2),
    }, STYLE)  # fmt: skip


def _places(one: Compared) -> str:
    return " → ".join(dict.fromkeys(filter(None, one.lines)))


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], texts: int) -> str:
    """A table whose first columns are texts and whose others are numbers with their units."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[:texts])
        + "".join(f'<td class="number">{escape(micro(cell))}</td>' for cell in row[texts:])
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
