"""A timeline as a still picture: lanes of engines and DMA queues, for notebooks, pages and comparisons."""

from __future__ import annotations

from html import escape
from math import ceil, log10

import numpy as np

from ..place.slots import ENGINES
from .colours import MEANINGS, meaning_of
from .run import Run
from .traffic import mean_rate
from .units import duration, micro

_GUTTER, _RULER, _LANE, _GAP = 118, 22, 22, 5
# More events than this per lane are drawn as how busy the lane is, not one by one.
_MOST = 400
# Cores whose timelines are drawn.
_MOST_CORES = 4
# Colours of text and lanes of all pictures.
_STYLE = (
    ".nkilab{font:12px system-ui,sans-serif}.nkilab text{fill:#44505c}.nkilab .lane{fill:#8c9aa81f}"
    ".nkilab .rule{stroke:#8c9aa855}.nkilab .in{fill:#fff;font-size:10px}"
    "@media(prefers-color-scheme:dark){.nkilab text{fill:#c3ccd6}.nkilab .in{fill:#fff}}"
)


def timeline_svg(
    run: Run, width: int = 960, start_ns: float = 0.0, end_ns: float | None = None, title: str = ""
) -> str:
    """The lanes of a run as SVG.

    Args:
        run: what is drawn.
        width: of the picture, in pixels.
        start_ns, end_ns: the time that is shown; from the launch to the end if not given.
        title: for readers of the screen; kernel and chip if "".
    """
    last = run.timeline.latency_ns if end_ns is None else end_ns
    edges = np.linspace(start_ns, max(last, start_ns + 1e-3), width - _GUTTER - 8 + 1)
    body = _ruler(edges, len(run.lanes.names))
    for number, name in enumerate(run.lanes.names):
        body += _lane(run, number, name, edges)
    legend, below = _legend(run, _RULER + len(run.lanes.names) * (_LANE + _GAP) + 18, width)
    body += legend
    height = below + 8
    title_text = escape(title or f"Timeline of {run.summary.kernel} on {run.summary.machine}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="nkilab" viewBox="0 0 {width} {height}" '
        f'width="{width}" role="img" aria-label="{title_text}"><title>{title_text}</title>'
        f"<style>{_STYLE}</style>{''.join(body)}</svg>"
    )


def timelines_html(run: Run) -> str:
    """The timeline of a run; of several cores those of the slowest, on one scale, under their names."""
    last = run.timeline.latency_ns
    if run.together is None:
        return timeline_svg(run, end_ns=last)
    slowest = sorted(run.runs, key=lambda named: -named[1].timeline.latency_ns)[:_MOST_CORES]
    return "".join(
        f"<p>{escape(name)}</p>" + timeline_svg(own, end_ns=last, title=name)
        for name, own in run.runs
        if any(own is one for _, one in slowest)
    )


def _ruler(edges: np.ndarray, lanes: int) -> list[str]:
    span = edges[-1] - edges[0]
    power = 10.0 ** np.floor(np.log10(span / 8))
    step = power * next(f for f in (1, 2, 5, 10) if span / (power * f) <= 8)
    bottom = _RULER + lanes * (_LANE + _GAP)
    body = []
    for at in np.arange(np.ceil(edges[0] / step) * step, edges[-1], step).tolist():
        x = _GUTTER + (at - edges[0]) / span * (len(edges) - 1)
        body.append(f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="14" y2="{bottom}"/>')
        if x + 50 < _GUTTER + len(edges):
            body.append(f'<text x="{x + 3:.1f}" y="12">{_moment(at, step)}</text>')
    return body


def _moment(at: float, step: float) -> str:
    """A time with as many digits as its neighbours on the ruler need."""
    size, unit = next(
        (s, u) for s, u in ((1e6, "ms"), (1e3, "µs"), (1.0, "ns")) if max(at, step) >= s or s == 1.0
    )
    places = max(0, ceil(-log10(step / size) - 1e-9))
    return f"{at / size:.{places}f} {unit}"


def _lane(run: Run, number: int, name: str, edges: np.ndarray) -> list[str]:
    timeline, pixels = run.timeline, len(edges) - 1
    top = _RULER + number * (_LANE + _GAP)
    body = [
        f'<text x="4" y="{top + _LANE / 2 + 4}">{escape(name)}</text>',
        f'<rect class="lane" x="{_GUTTER}" y="{top}" width="{pixels}" height="{_LANE}"/>',
    ]
    here = np.flatnonzero(run.lanes.of_event == number)
    start, end = timeline.start_ns[here], run.lanes.until_ns[here]
    shown = (end > edges[0]) & (start < edges[-1])
    here, start, end = here[shown], start[shown], end[shown]
    if len(here) > _MOST:
        shares = mean_rate(start, end, end - start, edges)
        return [*body, _busy(shares, top, MEANINGS[_meaning(run, int(here[0]))][1])]
    scale = pixels / (edges[-1] - edges[0])
    for event, left, right in zip(here.tolist(), start.tolist(), end.tolist(), strict=True):
        x = max(0.0, (left - edges[0]) * scale)
        wide = min(pixels, (right - edges[0]) * scale) - x
        body.append(_event(run, event, _GUTTER + x, top, wide))
    return body


def _event(run: Run, event: int, x: float, top: int, wide: float) -> str:
    timeline = run.timeline
    label = timeline.labels[timeline.label[event]]
    lasts = duration(float(timeline.end_ns[event] - timeline.start_ns[event]))
    title = f"{label} at {run.program.place_of(int(timeline.row[event]))}: {micro(lasts)}"
    colour = MEANINGS[_meaning(run, event)][1]
    shape = (
        f'<rect x="{x:.1f}" y="{top}" width="{max(0.6, wide - (wide > 2)):.1f}" height="{_LANE}" '
        f'fill="{colour}">'
        f"<title>{escape(title)}</title></rect>"
    )
    if wide > 6.2 * len(label) + 6:
        shape += f'<text class="in" x="{x + 3:.1f}" y="{top + _LANE / 2 + 3.5}">{escape(label)}</text>'
    return shape


def _meaning(run: Run, event: int) -> str:
    """What the colour of an event means."""
    timeline = run.timeline
    return meaning_of(ENGINES[int(timeline.engine[event])], timeline.labels[int(timeline.label[event])])


def _busy(share: np.ndarray, top: int, colour: str) -> str:
    """How busy a lane is, column by column, as one filled outline."""
    heights = np.round(np.clip(share, 0.0, 1.0) * _LANE, 1)
    changes = np.flatnonzero(np.diff(heights, prepend=-1.0))
    path = [f"M{_GUTTER} {top + _LANE}"]
    for at in changes.tolist():
        path.append(f"H{_GUTTER + at}V{top + _LANE - heights[at]:g}")
    path.append(f"H{_GUTTER + len(heights)}V{top + _LANE}Z")
    return f'<path d="{"".join(path)}" fill="{colour}"/>'


def _legend(run: Run, y: int, width: int) -> tuple[list[str], int]:
    """What colours stand for, in as many rows as are needed, and where the last row stands."""
    body, x = [], float(_GUTTER)
    # with indices NumPy does not ask for masks, whose module is large
    kinds = run.timeline.engine.astype(np.int64) * len(run.timeline.labels) + run.timeline.label
    firsts = np.unique(kinds, return_index=True)[1].tolist() if len(kinds) else []
    for label, colour, _ in (MEANINGS[name] for name in dict.fromkeys(_meaning(run, n) for n in firsts)):
        if x > _GUTTER and x + 20 + 7.6 * len(label) > width:
            x, y = float(_GUTTER), y + 16
        body.append(f'<rect x="{x:.0f}" y="{y - 9}" width="10" height="10" rx="2" fill="{colour}"/>')
        body.append(f'<text x="{x + 14:.0f}" y="{y}">{escape(label)}</text>')
        x += 30 + 7.6 * len(label)
    return body, y
