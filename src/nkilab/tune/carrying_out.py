"""A search from its beginning to its end: workers, journal, progress, and what an interruption leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
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


@dataclass(frozen=True)
class Options:
    """How a search runs."""

    space: str  # path of the space, "" for none
    parameters: tuple[str, ...] = ()  # in place of one, "NAME=VALUE,...", each
    trials: int = 1000  # how many points to look at, at most
    seconds: float = 0.0  # after which no further point is looked at; 0 for no limit
    seed: int = 0  # the same seed gives the same points
    sampler: str = "auto"  # of `samplers.SAMPLERS`
    workers: str = "1"  # a number of processes, or the address of a dask scheduler
    journal: str = ""  # path of the journal, "" for none
    confirm: str = ""  # path of measured points, "" for none; where there is no file, a form is written
    measure: str = ""  # program that measures a point, "" for none
    measurements: int = 8  # how many points it measures at most
    picture: str = ""  # path of the SVG to write, "" for none
    as_json: bool = False  # print JSON alone
    point_seconds: float = 600.0  # that one point may take, 0 for no limit


def carried_out(space: Space, objective: Objective, sampler: Sampler, work: Task, options: Options) -> Found:
    """What a search finds; started again with the same journal, it goes on where it was interrupted.

    Args:
        space, objective, sampler: see `study.search`.
        work: what workers need to know.
        options: its trials, seconds, workers and journal.

    Raises:
        KeyboardInterrupt: which says how far the search came, and where that is kept.
    """
    study = sha256(f"{objective.digest} {space.digest} {','.join(objective.goals)}".encode()).hexdigest()[:16]
    kept = Journal(Path(options.journal), study) if options.journal else None
    heard: list[Progress] = []
    try:
        with (
            kept or nullcontext(), shown_progress() as progress,
            evaluating(work, options.workers, objective) as evaluator,
        ):  # fmt: skip
            return search(
                space, objective, sampler, evaluator, trials=options.trials, seconds=options.seconds or inf,
                journal=kept, progress=_heard(progress, heard),
            )  # fmt: skip
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interrupted(heard, options.journal)) from None


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
