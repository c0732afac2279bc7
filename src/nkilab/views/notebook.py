"""Runs in notebooks: a short form with a still timeline, and the whole report in a frame."""

from __future__ import annotations

from html import escape

from .quantities import duration
from .report import report_html
from .run import Run
from .svg import timeline_svg
from .words import verdict

# A longer page makes a notebook slow to open; the short form stands for it.
_LONGEST = 12_000_000
_HEIGHT = 780
# Timelines of a short form.
_MOST_CORES = 4


def short_html(run: Run) -> str:
    """Latency, why, and the timeline, without scripts."""
    low, high = run.interval_us
    reasons = "".join(f"<li>{escape(sentence)}</li>" for sentence in verdict(run))
    notes = "".join(f"<li>{escape(note)}</li>" for note in run.notes)
    return (
        f"<div><p><b>{escape(run.summary.kernel)}</b> on {escape(run.summary.machine)}: "
        f"<b>{duration(run.timeline.latency_ns)}</b> predicted, {duration(low * 1000)} to "
        f"{duration(high * 1000)} (timing model {escape(run.summary.model)})</p>"
        f"<ul>{reasons}{notes}</ul>{_pictures(run)}</div>"
    )


def _pictures(run: Run) -> str:
    """The timeline; of several cores those of the slowest, on one scale, under their names."""
    if run.together is None:
        return timeline_svg(run)
    slowest = sorted(run.runs, key=lambda named: -named[1].timeline.latency_ns)[:_MOST_CORES]
    last = run.timeline.latency_ns
    pictures = [
        f"<p>{escape(name)}</p>{timeline_svg(own, end_ns=last, title=name)}"
        for name, own in run.runs
        if any(own is one for _, one in slowest)
    ]
    speed_up = run.together.speed_up()
    return (f"<p>{escape(speed_up)}</p>" if speed_up else "") + "".join(pictures)


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
