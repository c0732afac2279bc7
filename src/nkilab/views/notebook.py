"""Runs in notebooks: a short form with a still timeline, and the whole report in a frame."""

from __future__ import annotations

from html import escape

from .report import report_html
from .run import Run
from .svg import timelines_html
from .units import duration, micro
from .words import verdict

# A longer page makes a notebook slow to open; the short form stands for it.
_LONGEST = 12_000_000
_HEIGHT = 780


def short_html(run: Run) -> str:
    """Latency, why, and the timeline, without scripts."""
    low, high = run.interval_us
    reasons = "".join(f"<li>{escape(micro(sentence))}</li>" for sentence in verdict(run))
    notes = "".join(f"<li>{escape(note)}</li>" for note in run.notes)
    return (
        f"<div><p><b>{escape(run.summary.kernel)}</b> on {escape(run.summary.machine)}: "
        f"<b>{micro(duration(run.timeline.latency_ns))}</b> predicted, {micro(duration(low * 1000))} to "
        f"{micro(duration(high * 1000))} (timing model {escape(run.summary.model)})</p>"
        f"<ul>{reasons}{notes}</ul>{_pictures(run)}</div>"
    )


def _pictures(run: Run) -> str:
    """The timeline of every core, and how much faster they are than one."""
    speed_up = "" if run.together is None else run.together.speed_up()
    return (f"<p>{escape(micro(speed_up))}</p>" if speed_up else "") + timelines_html(run)


def framed_html(run: Run) -> str:
    """The report in a frame of its own; the short form if the report is too long for a notebook."""
    page = report_html(run)
    if len(page) > _LONGEST:
        return short_html(run)
    title = escape(f"Profile of {run.summary.kernel}", quote=True)
    return (
        f'<iframe title="{title}" sandbox="allow-scripts" style="width:100%;height:{_HEIGHT}px;border:0" '
        f'srcdoc="{escape(page, quote=True)}"></iframe>'
    )
