"""One picture of a search: every point with its interval, or the front of two goals, as SVG."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from math import floor, log10

from .outcome import Outcome, key_of
from .verdict import Verdict, interval_of

_WIDTH, _HEIGHT, _MARGIN, _RIGHT = 720, 420, 80, 230
_STYLE = "font-family: sans-serif; font-size: 12px"
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
    width, height = _WIDTH + _MARGIN + _RIGHT, _HEIGHT + 2 * _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" style="{_STYLE}">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            f'<text x="{_MARGIN}" y="{_MARGIN / 2}" font-size="15">{escape(title)}</text>',
            f'<g transform="translate({_MARGIN} {_MARGIN})">',
            *body,
            *_legend(verdict),
            "</g>",
            "</svg>",
            "",
        ]
    )


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
        y = (1 - tick / top) * _HEIGHT
        parts += [
            f'<line x1="0" y1="{y:g}" x2="{_WIDTH}" y2="{y:g}" stroke="{_GRID}"/>',
            f'<text x="-8" y="{y + 4:g}" text-anchor="end">{_tick_label(tick)}</text>',
        ]
    for tick in _ticks(most):
        # points are counted in whole numbers
        if most < 5 and tick != int(tick):
            continue
        x = tick / most * _WIDTH
        parts.append(f'<text x="{x:g}" y="{_HEIGHT + 18}" text-anchor="middle">{_tick_label(tick)}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 42}" text-anchor="middle">{escape(below)}</text>')
    middle = f'transform="translate(-62 {_HEIGHT / 2}) rotate(-90)" text-anchor="middle"'
    return [*parts, f"<text {middle}>latency, us</text>"]


def _mark(outcome: Outcome, x: float, top: float, colour: str, *, has_bar: bool) -> list[str]:
    def place(value: float) -> float:
        return _HEIGHT * (1 - min(value, top) / top)

    low, high = interval_of(outcome)
    line = f'<line x1="{x:.1f}" y1="{place(low):.1f}" x2="{x:.1f}" y2="{place(high):.1f}" stroke="{colour}"/>'
    title = f"{key_of(outcome.point)}: {outcome.latency_us:.4g} us, {low:.4g} to {high:.4g}"
    fill = colour if outcome.measured_us is None else "white"
    y = place(outcome.latency_us)
    mark = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}" stroke="{colour}">'
    return [*([line] if has_bar else []), f"{mark}<title>{escape(title)}</title></circle>"]


def _front(verdict: Verdict, second: str, most: float, top: float) -> str:
    """The front as a line of steps."""
    points = sorted((o.values[second], o.values["latency"]) for o in verdict.front)
    places = [(x / most * _WIDTH, _HEIGHT * (1 - min(y, top) / top)) for x, y in points]
    steps = [f"{places[0][0]:.1f},{places[0][1]:.1f}"]
    for (_, before), (x, y) in pairwise(places):
        steps += [f"{x:.1f},{before:.1f}", f"{x:.1f},{y:.1f}"]
    return f'<polyline points="{" ".join(steps)}" fill="none" stroke="{_CLOSE}"/>'


def _legend(verdict: Verdict) -> list[str]:
    rows = [(_BEST, "best"), (_CLOSE, "too close to tell apart"), (_OTHER, "slower")]
    parts = []
    for i, (colour, words) in enumerate(rows):
        y = 12 + 20 * i
        parts.append(f'<circle cx="{_WIDTH + 20}" cy="{y}" r="3.5" fill="{colour}"/>')
        parts.append(f'<text x="{_WIDTH + 32}" y="{y + 4}">{words}</text>')
    point = ["the best:", *(f"{name} = {value}" for name, value in verdict.best.point.items())]
    for i, line in enumerate(point):
        parts.append(f'<text x="{_WIDTH + 14}" y="{104 + 16 * i}">{escape(line)}</text>')
    if any(o.measured_us is not None for o in verdict.found.timed):
        parts.append(f'<text x="{_WIDTH + 14}" y="72">open: measured</text>')
    return parts
