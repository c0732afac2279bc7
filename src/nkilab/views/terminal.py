"""The summary and a small timeline as text."""

from __future__ import annotations

from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING

import numpy as np

from ..place.slots import ENGINES
from ..timing.timeline import Timeline
from .metrics import METRICS
from .summary import Summary

if TYPE_CHECKING:
    from rich.console import RenderableType

_WIDTH = 100
_LEVELS = " ▁▂▃▄▅▆▇█"
_SCALES = {
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")),
    "flops": ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")),
    "us": ((1e6, "s"), (1e3, "ms")),
}
_PLAIN = {"bytes": "B", "flops": "FLOP", "us": "us", "percent": "%", "count": "", "ratio": ""}


def quantity(value: float, unit: str) -> str:
    """A value with its unit, four significant digits."""
    for scale, name in _SCALES.get(unit, ()):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {name}"
    if unit == "count":
        return f"{value:,.0f}"
    return f"{value:.4g} {_PLAIN[unit]}".rstrip()


def bars(timeline: Timeline, width: int = 72) -> str:
    """One line per engine: how busy it is over the run, from first to last event, in `width` columns."""
    if not len(timeline):
        return "(no events)"
    first, last = float(timeline.start_ns.min()), float(timeline.end_ns.max())
    edges = np.linspace(first, last, width + 1)
    lines = []
    for engine in ENGINES:
        intervals = timeline.busy_intervals(engine)
        if len(intervals):
            lines.append(f"{engine:>7} |{''.join(_level(share) for share in _shares(intervals, edges))}|")
    left, right = f"{first / 1000:.1f} us", f"{last / 1000:.1f} us"
    lines.append(f"{'':7}  {left}{right:>{width - len(left)}}")
    return "\n".join(lines)


def _shares(intervals: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The busy share between neighbouring edges."""
    busy_before = np.concatenate([[0.0], np.cumsum(intervals[:, 1] - intervals[:, 0])])
    place = np.searchsorted(intervals[:, 0], edges, "right")
    inside = np.where(place > 0, np.minimum(edges, intervals[place - 1, 1]) - intervals[place - 1, 0], 0.0)
    until = busy_before[np.maximum(place - 1, 0)] + inside
    spans = np.diff(edges)
    return np.diff(until) / np.where(spans > 0, spans, 1.0)


def _level(share: float) -> str:
    if share <= 0:
        return _LEVELS[0]
    return _LEVELS[max(1, min(len(_LEVELS) - 1, round(share * (len(_LEVELS) - 1))))]


def summary_table(summary: Summary) -> RenderableType:
    """The metrics that are not zero as a table of rich."""
    table_class = import_module("rich.table").Table
    table = table_class(
        title=f"{summary.kernel} on {summary.machine}: {quantity(summary['total_time'], 'us')}, "
        f"bound by {summary.bound}",
        width=_WIDTH,
    )
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("definition")
    for name, value in summary.values.items():
        if value or name == "total_time":
            table.add_row(name, quantity(value, METRICS[name].unit), METRICS[name].definition)
    return table


def text_of(summary: Summary, timeline: Timeline) -> str:
    """Table, timeline and findings as plain text of 100 columns."""
    console = import_module("rich.console").Console(file=StringIO(), width=_WIDTH, force_terminal=False)
    console.print(summary_table(summary))
    console.print(f"bound: {summary.bound}: {summary.bound_text}", highlight=False)
    console.print(bars(timeline, _WIDTH - 10), highlight=False, markup=False)
    for finding in summary.findings:
        console.print(f"{finding.where}: {finding.rule}: {finding.message}", highlight=False, markup=False)
        if finding.fix:
            console.print(f"  hint: {finding.fix}", highlight=False, markup=False)
    return str(console.file.getvalue())
