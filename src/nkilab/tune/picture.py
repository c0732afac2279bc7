"""One picture of a search: every point with its interval, or the front of two goals, as SVG."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from math import floor, log10

from ..ledger.picture import document, line_of, words_at
from .outcome import Outcome, key_of
from .verdict import Verdict, interval_of

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
