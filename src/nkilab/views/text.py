"""A profile as text: verdict, metrics, timeline, critical path, stalls, costliest lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import Any, TextIO

import numpy as np

from .._lazy import rich
from ..progress import columns, console_for
from .cores import HEADINGS, Together
from .difference import Difference, metric_cells, time_cells
from .run import Run
from .stalls import Stall
from .terminal import level, print_findings, summary_table
from .traffic import mean_rate
from .units import duration, quantity
from .words import ENGINE_NAMES, spent_on_path, verdict

_LANE = 14
COSTLIEST = 10
_METRICS = 16


def print_profile(run: Run, file: TextIO | None = None) -> None:
    """Print a profile.

    Args:
        run: of the kernel.
        file: where to; standard output if None.
    """
    console = console_for(file, markup=False, soft_wrap=False)
    low, high = run.interval_us
    console.print(
        f"{run.summary.kernel} on {run.summary.machine}: {run.timeline.latency_us:.2f} us predicted, "
        f"{low:.2f} to {high:.2f} us (timing model {run.summary.model})"
    )
    for note in run.notes:
        console.print(f"note: {note}")
    if run.together is not None:
        _print_cores(run.together, console)
    console.print()
    for sentence in verdict(run):
        console.print(fill(sentence, columns()))
    for text in _guidance(run):
        console.print(fill(text, columns(), subsequent_indent="    "))
    console.print(summary_table(run.summary))
    console.print("timeline: how busy each engine and DMA queue is")
    _print_lanes(run, run.timeline.latency_ns, console)
    console.print("\ncritical path: what the time went to")
    console.print(_path_table(run))
    console.print("engines: where their time went, from the launch to the end")
    console.print(_stall_table(run))
    shown = run.lines[:COSTLIEST]
    console.print(f"costliest lines: {len(shown)} of {len(run.lines)}, by time on the critical path")
    console.print(_line_table(run))
    print_findings(run.summary, console)


def _guidance(run: Run) -> Iterator[str]:
    """What pays, and how far the limits are."""
    for own in run.guidance.advice:
        yield from own.lines()
    for limit in run.guidance.distances:
        times = f"{limit.time_us:.2f} us, {limit.share:.2f} times as fast"
        yield f"{limit.limit}: {times}: {limit.separates}"


def _print_lanes(run: Run, last: float, console: Any) -> None:
    """Print the lanes of every core until a moment."""
    for name, own in run.runs:
        console.print(f"{name}:" if name else "", end="\n" if name else "")
        console.print(lane_bars(own, last=last))


def _print_cores(together: Together, console: Any) -> None:
    """Print what each core does, how much faster they are than one, and whom the rest is told of."""
    rows = together.rows()
    sides = dict.fromkeys(HEADINGS, "right") | {"cores": "left", "bound by": "left"}
    console.print()
    console.print(_table(sides, rows, "cores"))
    if together.one_core is not None:
        console.print(together.speed_up())
    shown = together.cores[together.shown].name
    console.print(f"what follows is of {shown}" + (", the slowest" if len(together.cores) > 1 else ""))


def print_difference(difference: Difference, file: TextIO | None = None) -> None:
    """Print what changes from one run to another.

    Args:
        difference: of two runs.
        file: where to; standard output if None.
    """
    console = console_for(file, markup=False, soft_wrap=False)
    first, second = difference.names
    console.print(f"{difference.headline}; {difference.bounds}")
    both = (difference.before, difference.after)
    longest = max(run.timeline.latency_ns for run in both)
    for name, run in zip(difference.names, both, strict=True):
        console.print(f"\n{name}: {run.summary.kernel} on {run.summary.machine}")
        _print_lanes(run, longest, console)
    sides = {first: "right", second: "right", "change": "right"}
    console.print("\nmetrics that differ")
    rows = [(one.name, *metric_cells(one)) for one in difference.metrics()[:_METRICS]]
    console.print(_table({"metric": "left", **sides}, rows, "metric"))
    console.print("critical path: what the time went to")
    rows = [(one.name, *time_cells(one)) for one in difference.path()]
    console.print(_table({"what": "left", **sides}, rows, "what"))
    console.print("source lines: time on the critical path")
    rows = [(one.name, *time_cells(one)) for one in difference.lines()[:COSTLIEST]]
    console.print(_table({"line": "left", **sides}, rows, "line"))


def lane_bars(run: Run, width: int = 0, last: float = 0.0) -> str:
    """One line per lane, of `width` columns or as many as fit: how busy it is until `last`, or the end."""
    if not len(run.timeline):
        return "(no events)"
    last = last or run.timeline.latency_ns
    label = max(_LANE, *map(len, run.lanes.names))
    width = (width or columns()) - label - 3
    edges = np.linspace(0.0, last, width + 1)
    lines = []
    for number, name in enumerate(run.lanes.names):
        here = np.flatnonzero(run.lanes.of_event == number)
        share = busy_share(run, here, edges)
        lines.append(f"{name:>{label}} |{''.join(level(s) for s in share)}|")
    right = duration(last)
    lines.append(f"{'':{label}}  0{right:>{width - 1}}")
    return "\n".join(lines)


def busy_share(run: Run, here: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The share of the time between neighbouring moments that events occupy their lane."""
    start, end = run.timeline.start_ns[here], run.lanes.until_ns[here]
    return np.clip(mean_rate(start, end, end - start, edges), 0.0, 1.0)


def _table(sides: dict[str, str], rows: Sequence[tuple[str, ...]], wide: str) -> Any:
    """A table of rich: heading and side of each column; all keep their width but `wide`."""
    table = rich("table").Table(width=columns(), pad_edge=True)
    for place, (heading, side) in enumerate(sides.items()):
        needed = max([len(heading), *(len(row[place]) for row in rows)])
        kept = {"ratio": 1} if heading == wide else {"min_width": needed}
        table.add_column(heading, justify=side, no_wrap=True, overflow="ellipsis", **kept)
    for row in rows:
        table.add_row(*row)
    return table


def _path_table(run: Run) -> Any:
    rows = [
        (f"{100 * s.share:.2f} %", duration(s.time_ns), s.text, s.lines[0][0] if s.lines else "")
        for s in spent_on_path(run)
    ]
    sides = {"share": "right", "time": "right", "what": "left", "mostly at": "left"}
    return _table(sides, rows, "what")


def _stall_table(run: Run) -> Any:
    rows = []
    for engine, busy in run.stalls.busy_ns.items():
        lost = [_stall(s, run) for s in run.stalls.stalls if s.engine == engine]
        share = f"{100 * run.timeline.share(busy):.2f} %"
        rows.append((ENGINE_NAMES[engine], share, ", ".join(filter(None, lost))))
    sides = {"engine": "left", "busy": "right", "stands still, waiting for": "left"}
    return _table(sides, rows, "stands still, waiting for")


def _stall(stall: Stall, run: Run) -> str:
    share = 100 * run.timeline.share(stall.time_ns)
    name = {"start": "launch", "end": "nothing more to do"}.get(stall.reason)
    name = name or ENGINE_NAMES.get(stall.reason, stall.reason)
    return f"{name} {share:.2f} %" if share >= 0.005 else ""


def _line_table(run: Run) -> Any:
    rows = []
    for cost in run.lines[:COSTLIEST]:
        text = run.sources[cost.path].lines
        source = text[cost.line - 1].strip() if cost.line <= len(text) else ", ".join(cost.opcodes)
        moved = quantity(cost.moved_bytes, "bytes") if cost.moved_bytes else ""
        times = (duration(t) for t in (cost.path_ns, cost.busy_ns, cost.stalled_ns))
        rows.append((cost.where, *times, f"{cost.count:,}", moved, source))
    sides = dict.fromkeys(("where", "path", "busy", "stalled", "calls", "bytes", "source"), "right")
    return _table({**sides, "where": "left", "source": "left"}, rows, "source")
