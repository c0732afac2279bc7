"""A search from its beginning to its end: workers, journal, progress, and what an interruption leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import inf
from pathlib import Path

from .executors import Task, evaluating
from .journal import Journal
from .objective import Objective
from .outcome import key_of
from .report import shown_progress
from .samplers import Sampler
from .space import Space
from .study import Found, Progress, search


def carried_out(
    space: Space, objective: Objective, sampler: Sampler, work: Task, study: str, *, trials: int,
    workers: str = "1", journal: str = "", seconds: float = inf,
) -> Found:  # fmt: skip
    """What a search finds; started again with the same journal, it goes on where it was interrupted.

    Args:
        space, objective, sampler, trials, seconds: see `study.search`.
        work: what workers need to know.
        study: names all that outcomes depend on besides the point and the chip's constants.
        workers: a number of processes, or the address of a dask scheduler.
        journal: path of a file of outcomes, "" for none.

    Raises:
        KeyboardInterrupt: which says how far the search came, and where that is kept.
    """
    kept = Journal(Path(journal), study) if journal else None
    heard: list[Progress] = []
    try:
        with (
            kept or nullcontext(), shown_progress() as progress,
            evaluating(work, workers, objective) as evaluator,
        ):  # fmt: skip
            return search(
                space, objective, sampler, evaluator, trials=trials, seconds=seconds, journal=kept,
                progress=_heard(progress, heard),
            )  # fmt: skip
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interrupted(heard, journal)) from None


def _heard(progress: Callable[[Progress], None] | None, heard: list[Progress]) -> Callable[[Progress], None]:
    """Tells of progress, and keeps the latest of it."""

    def report_progress(latest: Progress) -> None:
        heard[:] = [latest]
        if progress:
            progress(latest)

    return report_progress


def _interrupted(heard: Sequence[Progress], journal: str) -> str:
    """How far a search came, and where that is kept."""
    if not heard:
        return "interrupted before a point was done"
    latest, best = heard[0], ""
    if latest.best:
        best = f"; the best has {latest.best.latency_us:.2f} us, {key_of(latest.best.point)}"
    kept = (
        f"{journal} has them: the same command goes on from there"
        if journal
        else "none is kept: --journal FILE would"
    )
    return f"interrupted after {latest.done} of {latest.count} points{best}\n  {kept}"
