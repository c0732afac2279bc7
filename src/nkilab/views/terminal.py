"""The summary and a small timeline as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from textwrap import fill
from typing import Any, Protocol, TextIO

import numpy as np

from .._lazy import rich
from ..errors import printable
from ..place.slots import ENGINES
from ..progress import columns, console_for
from ..timing.timeline import Timeline
from .metrics import METRICS
from .summary import Summary
from .traffic import mean_rate
from .units import quantity

_LEVELS = " ▁▂▃▄▅▆▇█"


class Estimated(Protocol):
    """What `print_estimate` needs of an estimate."""

    @property
    def latency_us(self) -> float:
        """Predicted latency in microseconds."""

    @property
    def interval_us(self) -> tuple[float, float]:
        """Between which it is believed to lie."""

    @property
    def timeline(self) -> Timeline:
        """Events."""

    @property
    def summary(self) -> Summary:
        """Metrics."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers leave out."""

    @property
    def cautions(self) -> tuple[str, ...]:
        """Why they are less sure than others."""


def bars(timeline: Timeline, width: int = 0) -> str:
    """One line per engine, of `width` columns or as many as fit: how busy it is from first to last event."""
    width = width or columns() - 10
    if not len(timeline):
        return "(no events)"
    first, last = float(timeline.start_ns.min()), float(timeline.end_ns.max())
    edges = np.linspace(first, last, width + 1)
    lines = []
    for engine in ENGINES:
        intervals = timeline.busy_intervals(engine)
        if len(intervals):
            start, end = intervals.T
            share = mean_rate(start, end, end - start, edges)
            lines.append(f"{engine:>7} |{''.join(map(level, share))}|")
    left, right = f"{first / 1000:.1f} us", f"{last / 1000:.1f} us"
    lines.append(f"{'':7}  {left}{right:>{width - len(left)}}")
    return "\n".join(lines)


def level(share: float) -> str:
    """A share from 0 to 1 as a block: blank only for none at all."""
    if share <= 0:
        return _LEVELS[0]
    return _LEVELS[max(1, min(len(_LEVELS) - 1, round(share * (len(_LEVELS) - 1))))]


def summary_table(summary: Summary) -> Any:
    """The metrics that are not zero as a table of rich, two to a line where they fit; see `explain`."""
    shown = [(n, quantity(v, METRICS[n].unit)) for n, v in summary.values.items() if v or n == "total_time"]
    half = -(-len(shown) // 2)
    sides = [shown[:half], [*shown[half:], ("", "")]]
    widths = [max(map(len, column)) for side in sides for column in zip(*side, strict=True)]
    # two spaces and a border each, and one border more
    needed, room = sum(widths) + 3 * len(widths) + 1, columns()
    if needed - 2 > room:
        sides, widths = [shown], [max(map(len, column)) for column in zip(*shown, strict=True)]
    table = rich("table").Table(width=room, pad_edge=needed <= room or len(sides) == 1)
    for value in widths[1::2]:
        table.add_column("metric", no_wrap=True)
        table.add_column("value", justify="right", no_wrap=True, min_width=value)
    for cells in zip(*sides, strict=False):
        table.add_row(*chain(*cells))
    return table


def print_summary(summary: Summary, timeline: Timeline | None = None, file: TextIO | None = None) -> None:
    """Print metrics, bound, timeline and findings, as wide as the terminal.

    Args:
        summary: metrics.
        timeline: drawn if given.
        file: where to; standard output if None.
    """
    print(f"{summary.kernel} on {summary.machine}: {quantity(summary['total_time'], 'us')}", file=file)
    _print_body(summary, timeline, file)


def print_estimate(estimate: Estimated, file: TextIO | None = None) -> None:
    """Print the latency with its interval, then what `print_summary` prints."""
    summary = estimate.summary
    low, high = estimate.interval_us
    heading = (
        f"{summary.kernel} on {summary.machine}: {estimate.latency_us:.2f} us predicted, "
        f"{low:.2f} to {high:.2f} us (timing model {summary.model})"
    )
    for line in (heading, *(f"note: {note}" for note in (*estimate.notes, *estimate.cautions))):
        print(fill(line, columns(), break_long_words=False, break_on_hyphens=False), file=file)
    _print_body(summary, estimate.timeline, file)


def print_comparison(estimates: Sequence[Estimated], file: TextIO | None = None) -> None:
    """Print estimates of one kernel on several chips: a column for each."""
    summaries = [estimate.summary for estimate in estimates]
    console = console_for(file, markup=False)
    console.print(f"{summaries[0].kernel} on {', '.join(s.machine for s in summaries)} "
                  f"(timing model {summaries[0].model})")  # fmt: skip
    table = rich("table").Table(width=columns(), pad_edge=True)
    table.add_column("metric", no_wrap=True)
    for summary in summaries:
        table.add_column(summary.machine, justify="right")
    table.add_row("predicted latency", *(f"{e.latency_us:.2f} us" for e in estimates))
    for word, side in (("at least", 0), ("at most", 1)):
        table.add_row(word, *(f"{e.interval_us[side]:.2f} us" for e in estimates))
    table.add_row("bound by", *(s.bound for s in summaries))
    for name, metric in METRICS.items():
        if any(summary.values.get(name) for summary in summaries):
            table.add_row(name, *(quantity(s.values.get(name, 0.0), metric.unit) for s in summaries))
    console.print(table)
    for estimate in estimates:
        for note in estimate.notes:
            console.print(f"note, {estimate.summary.machine}: {note}")
        for finding in estimate.summary.findings:
            line = f"{finding.where}: {finding.rule}, {estimate.summary.machine}: {finding.message}"
            console.print(printable(line))


def _print_body(summary: Summary, timeline: Timeline | None, file: TextIO | None) -> None:
    console = console_for(file, markup=False)
    console.print(summary_table(summary))
    console.print(f"bound by {summary.bound}: {summary.bound_text}")
    if timeline is not None:
        console.print(bars(timeline))
    print_findings(summary, console)


def print_findings(summary: Summary, console: Any) -> None:
    """Print on a console of rich what the plan found."""
    for finding in summary.findings:
        console.print(printable(f"\n{finding.where}: {finding.rule}: {finding.message}"))
        if finding.fix:
            console.print(printable(f"  hint: {finding.fix}"))
