"""A search as text: progress while it runs, the verdict at its end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from html import escape
from itertools import pairwise
from math import floor, log10
from typing import Any

from .._lazy import rich
from ..ledger.picture import document, line_of, words_at
from ..progress import console_for, is_wanted, quiet, say
from ..timing import MODEL_VERSION
from ..views.guidance import Advice
from .confirm import Recalibrated
from .measuring import FIRST, worth_measuring
from .outcome import Outcome, key_of
from .study import Progress
from .verdict import Verdict, counts, interval_of

# Points that the table shows, and characters of a line of its heads.
SHOWN, HEAD = 12, 12


@contextmanager
def shown_progress() -> Iterator[Callable[[Progress], None] | None]:
    """A bar with the time that is left and the best so far, on a terminal while it runs."""
    if not is_wanted():
        with quiet():
            yield None
        return
    rich_progress, begun = rich("progress"), time.monotonic()
    columns = (
        rich_progress.TextColumn("{task.description}"),
        # the bar alone gives way on a narrow terminal
        rich_progress.BarColumn(None, table_column=rich("table").Column(max_width=40)),
        rich_progress.MofNCompleteColumn(), rich_progress.TextColumn("{task.fields[left]}"),
        rich_progress.TextColumn("{task.fields[best]}"),
    )  # fmt: skip
    console = rich("console").Console(stderr=True, emoji=False)
    with quiet(), rich_progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("points", total=None, left="", best="")

        def report_progress(progress: Progress) -> None:
            best = f"best {progress.best.latency_us:.2f} us" if progress.best else "none is legal so far"
            left = time_left(progress, time.monotonic() - begun)
            bar.update(task, completed=progress.done, total=progress.count, left=left, best=best)

        yield report_progress


def time_left(progress: Progress, seconds: float) -> str:
    """ "0:01:05 left," at the pace of the points that were evaluated; what a journal knows takes no time."""
    if not progress.evaluated:
        return ""
    left = (progress.count - progress.done) * seconds / progress.evaluated
    return f"{timedelta(seconds=round(left))} left,"


def print_verdict(verdict: Verdict, kernel: str, confirmed: Recalibrated | None) -> None:
    """Best point, counts, table and reasons."""
    best, result = verdict.best, verdict.found
    low, high = interval_of(best)
    how = "measured" if best.measured_us is not None else f"predicted, {low:.2f} to {high:.2f} us"
    say(f"{kernel} on {result.target}: {best.latency_us:.2f} us {how} (timing model {MODEL_VERSION})")
    say(f"best: {', '.join(f'{name}={value!r}' for name, value in best.point.items())}")
    for line in verdict.reasons:
        _say(line)
    _print_counts(verdict)
    if confirmed is not None:
        _print_confirmed(confirmed)
    _print_table(verdict)
    _print_close(verdict, confirmed)


def print_advice(advice: Sequence[Advice]) -> None:
    """What makes the best point faster still, which no parameter of the space does."""
    if advice:
        say("\nwhat no parameter of the space gains, at the best point and the first case")
    for own in advice:
        for line in own.lines():
            say(line, "      ")


def _say(line: str) -> None:
    say(f"  {line}", "")


def _print_counts(verdict: Verdict) -> None:
    result = verdict.found
    by_state = counts(result)
    whole = (
        "the whole space" if result.is_whole else f"of {result.space.count or result.space.combinations:,}"
    )
    say(
        f"\n{len(result.outcomes)} points, {whole}: {by_state['timed']} timed, "
        f"{by_state['pruned']} pruned before they were timed, {by_state['failed']} failed"
    )
    for reason, count in result.pruned.items():
        say(f"  pruned {count:>5}  {reason}")
    for outcome in result.failed[:SHOWN]:
        say(f"  failed        {key_of(outcome.point)}: {outcome.message.splitlines()[0]}")
    if len(result.failed) > SHOWN:
        say(f"  failed        and {len(result.failed) - SHOWN} more; --json lists them")


def _print_confirmed(confirmed: Recalibrated) -> None:
    fitted = confirmed.fitted
    say(
        f"\n{len(confirmed.measured)} measured points: mean error {fitted.before:.1%} before, "
        f"{fitted.after:.1%} after {len(fitted.changed)} constants moved"
    )
    if abs(confirmed.scale - 1) >= 0.0005:
        say(f"what they still have in common scales the other predictions by {confirmed.scale:.3f}")
    for name, (before, after) in fitted.changed.items():
        say(f"  {name:<40}{before:>12,.4g}{after:>12,.4g}")


def _print_table(verdict: Verdict) -> None:
    """The fastest points, or the front of several goals."""
    goals = verdict.found.goals
    rows = list(verdict.front or verdict.found.timed)
    names = [
        name for name in verdict.found.space.names if len({repr(o.point[name]) for o in rows[:SHOWN]}) > 1
    ]
    if shared := [name for name in verdict.found.space.names if name not in names]:
        _say("in all rows: " + ", ".join(f"{name}={rows[0].point[name]!r}" for name in shared))
    table = rich("table").Table(pad_edge=True)
    table.title = "front" if verdict.front else None
    for name in names:
        table.add_column(_head(name), justify="right", no_wrap=True)
    for title in ("latency us", "from", "to", *goals[1:], "bound"):
        table.add_column(title, justify="left" if title == "bound" else "right")
    for outcome in rows[:SHOWN]:
        table.add_row(*_cells(outcome, names, goals))
    console = console_for(markup=False)
    console.print(table)
    if len(rows) > SHOWN:
        say(f"and {len(rows) - SHOWN} more; --json lists them")


def _head(name: str) -> str:
    """A name over several lines, broken where its words end."""
    lines = [""]
    for word in re.findall(r"[^_.]+[_.]*|[_.]+", name):
        if lines[-1] and len(lines[-1]) + len(word) > HEAD:
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)


def _cells(outcome: Outcome, names: Sequence[str], goals: tuple[str, ...]) -> list[str]:
    low, high = interval_of(outcome)
    latency = f"{outcome.latency_us:.2f}{'' if outcome.measured_us is None else ' *'}"
    rest = [f"{outcome.values[goal]:,.0f}" for goal in goals[1:]]
    values: list[Any] = [outcome.point[name] for name in names]
    return [*map(str, values), latency, f"{low:.2f}", f"{high:.2f}", *rest, outcome.cases[0].bound]


def _print_close(verdict: Verdict, confirmed: Recalibrated | None) -> None:
    others = len(verdict.found.timed) - 1
    if not others:
        return
    _say(
        f"the interval of the model cannot separate {len(verdict.overlapping)} of {others} other points from "
        "the best"
    )
    _say(
        f"points of one kernel are off by {verdict.spread:.1%} against their mean ({verdict.spread_from}): "
        f"{len(verdict.close)} are too close to the best"
    )
    points = [] if confirmed else worth_measuring(verdict, (), FIRST)
    if len(points) > 1:
        _say("worth measuring: " + "; ".join(key_of(outcome.point) for outcome in points))
        say("  --measure 'python3 measure.py {file}' has a program of yours measure them,")
        say("  --confirm FILE.yaml writes a form for their times and reads it once it is filled in")


_WIDTH, _HEIGHT, _MARGIN, _RIGHT = 720, 420, 80, 150
# colours that people with common colour blindness tell apart (Okabe and Ito)
_BEST, _CLOSE, _OTHER, _GRID = "#d55e00", "#0072b2", "#999999", "#dddddd"
_WORDS = {"latency": "latency, us", "sbuf": "SBUF in use, bytes per partition", "dma": "bytes moved"}
MOST = 2000


def svg(verdict: Verdict, title: str) -> str:
    """Points in order of latency with their intervals; with a second goal, latency against it."""
    shown = verdict.found.timed[:MOST]
    second = verdict.found.goals[1] if len(verdict.found.goals) > 1 else ""
    across = [o.values[second] for o in shown] if second else list(map(float, range(1, len(shown) + 1)))
    top = max(o.latency_us if second else min(interval_of(o)[1], 4 * o.latency_us) for o in shown) * 1.05
    most = max(*across, 1.0) * 1.05
    close = {key_of(o.point) for o in verdict.close}
    best = key_of(verdict.best.point)
    body = _axes(most, top, _WORDS[second] if second else "points, the fastest first")
    if second:
        body.append(_front(verdict, second, most, top))
    for outcome, x in reversed(list(zip(shown, across, strict=True))):
        own = key_of(outcome.point)
        colour = _BEST if own == best else _CLOSE if own in close else _OTHER
        body += _mark(outcome, x / most * _WIDTH, top, colour, has_bar=not second)
    return document(title, (_WIDTH, _HEIGHT), (_MARGIN, _RIGHT), [*body, *_legend(verdict)])


def _tick_label(tick: float) -> str:
    return f"{tick:,.6g}" if tick < 1e6 else f"{tick:,.0f}"


def _ticks(most: float) -> list[float]:
    """Round numbers from 0 to `most`, some five of them: 1, 2 or 5 and zeros apart."""
    size = 10.0 ** floor(log10(most / 5))
    step = next(size * times for times in (1, 2, 5, 10) if size * times >= most / 6)
    return [step * i for i in range(int(most / step) + 1)]


def _axes(most: float, top: float, below: str) -> list[str]:
    parts = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="black"/>']
    for tick in _ticks(top):
        y = tick / top * _HEIGHT
        parts += [line_of(0, y, _WIDTH, y, _GRID), words_at(-8, y - 4, _tick_label(tick), "end")]
    # points are counted in whole numbers
    shown = [tick for tick in _ticks(most) if most >= 5 or tick == int(tick)]
    parts += [words_at(tick / most * _WIDTH, -18, _tick_label(tick), "middle") for tick in shown]
    parts.append(words_at(_WIDTH / 2, -42, below, "middle"))
    latency = words_at(0, 0, "latency, us", "middle")
    return [*parts, f'<g transform="translate(-62 {_HEIGHT / 2}) rotate(90)">{latency}</g>']


def _circle(x: float, y: float, colour: str, fill: str, title: str = "") -> str:
    words = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}" stroke="{colour}">{words}</circle>'


def _mark(outcome: Outcome, x: float, top: float, colour: str, *, has_bar: bool) -> list[str]:
    low, high = interval_of(outcome)
    bottom, middle, end = (_HEIGHT * min(v, top) / top for v in (low, outcome.latency_us, high))
    title = f"{key_of(outcome.point)}: {outcome.latency_us:.4g} us, {low:.4g} to {high:.4g}"
    mark = _circle(x, middle, colour, colour if outcome.measured_us is None else "white", title)
    return [line_of(x, bottom, x, end, colour), mark] if has_bar else [mark]


def _front(verdict: Verdict, second: str, most: float, top: float) -> str:
    """The front as a line of steps."""
    points = sorted((o.values[second], o.values["latency"]) for o in verdict.front)
    places = [(x / most * _WIDTH, _HEIGHT * min(y, top) / top) for x, y in points]
    steps = [places[0]]
    for (_, before), (x, y) in pairwise(places):
        steps += [(x, before), (x, y)]
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in steps)
    return f'<polyline points="{text}" fill="none" stroke="{_CLOSE}"/>'


def _legend(verdict: Verdict) -> list[str]:
    parts, y = [], float(_HEIGHT)
    for colour, words in ((_BEST, "best"), (_CLOSE, "too close to tell apart"), (_OTHER, "slower")):
        y -= 20
        parts += [_circle(_WIDTH + 20, y + 4, colour, colour), words_at(_WIDTH + 32, y, words)]
    is_measured = any(o.measured_us is not None for o in verdict.found.timed)
    point = ["the best:", *(f"{name} = {value}" for name, value in verdict.best.point.items())]
    lines = [*(["open: measured"] if is_measured else []), "", *point]
    return [*parts, *(words_at(_WIDTH + 14, y - 16 * i, line) for i, line in enumerate(lines, 1))]
