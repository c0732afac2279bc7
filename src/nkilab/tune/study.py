"""A search: points are proposed, evaluated, written down and told, until enough is known."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from ..argument_checks import need, whole
from ..tracebacks import public
from .executors import Evaluator
from .journal import Journal
from .objective import Objective
from .outcome import Outcome, key_of
from .samplers import Sampler
from .space import Point, Space


@dataclass(frozen=True)
class Progress:
    """How far a search is."""

    # done, count: points with an outcome, and how many there will be at most
    done: int
    count: int
    evaluated: int  # how many of them were evaluated now; the others were known
    best: Outcome | None  # the fastest so far, if any is timed


@dataclass(frozen=True)
class Found:
    """What a search found.

    Args:
        space: that was searched.
        goals: names of `objective.GOALS`.
        target: chip, as results call it.
        outcomes: in the order in which their points were proposed.
        evaluated: how many of them were evaluated now; the others were known.
        is_whole: whether every point of the space has an outcome.
        seconds: that the search took.
    """

    space: Space
    goals: tuple[str, ...]
    target: str
    outcomes: tuple[Outcome, ...]
    evaluated: int
    is_whole: bool
    seconds: float = field(compare=False)

    @property
    def timed(self) -> list[Outcome]:
        """Outcomes with values, the fastest first; of equals, the one proposed first."""
        return sorted((o for o in self.outcomes if o.is_timed), key=lambda o: o.latency_us)

    @property
    def pruned(self) -> dict[str, int]:
        """Per reason, how many points are not legal."""
        return dict(Counter(o.reason for o in self.outcomes if o.state == "pruned").most_common())

    @property
    def failed(self) -> list[Outcome]:
        """Points on which the kernel breaks off."""
        return [o for o in self.outcomes if o.state == "failed"]


@public
def search(
    space: Space, objective: Objective, sampler: Sampler, evaluator: Evaluator, *, trials: int,
    seconds: float = float("inf"), journal: Journal | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Found:  # fmt: skip
    """Search a space.

    The sampler is told what became of points in the order in which it proposed them, a batch at a time: so
    the same points come for any number of workers, and a search that was interrupted, started again with the
    same journal, goes the same way; what the journal knows is not evaluated again.

    Args:
        space: that is searched.
        objective: that judges points.
        sampler: that proposes them.
        evaluator: that evaluates them.
        trials: how many points to look at, at most.
        seconds: after which no further point is looked at.
        journal: where outcomes are written down.
        progress: is told after each point.
    """
    need("space", space, Space, "an nkilab.tune.Space", "make one with nkilab.tune.space_of")
    whole("trials", trials, 1)
    start = time.monotonic()
    known = journal.known(objective.constants) if journal else {}
    run = _Run(known, objective.constants, journal, progress, _most(space, trials), start + seconds)
    while len(run.outcomes) < trials and not run.is_over():
        points = sampler.ask(min(sampler.batch, trials - len(run.outcomes)))
        if not points:
            break
        sampler.tell(run.batch(points, evaluator))
    is_whole = space.count is not None and len(run.outcomes) == space.count
    return Found(
        space, objective.goals, objective.target, tuple(run.outcomes), run.evaluated, is_whole,
        time.monotonic() - start,
    )  # fmt: skip


def _most(space: Space, trials: int) -> int:
    return trials if space.count is None else min(trials, space.count)


class _Run:
    """What is known in the course of a search."""

    def __init__(
        self, known: dict[str, Outcome], constants: str, journal: Journal | None,
        progress: Callable[[Progress], None] | None, count: int, end: float,
    ) -> None:  # fmt: skip
        self._known = known
        self._constants = constants
        self._journal = journal
        self._progress = progress
        self._count = count
        self._end = end
        self._best: Outcome | None = None
        self._seen = 0
        self.outcomes: list[Outcome] = []
        self.evaluated = 0

    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._end

    def batch(self, points: Sequence[Point], evaluator: Evaluator) -> list[Outcome]:
        """Outcomes of points in their order; those that time does not suffice for are left out."""
        known = {key_of(p): self._known[key_of(p)] for p in points if key_of(p) in self._known}
        for outcome in known.values():
            self._note(outcome)
        for outcome in self._evaluated([p for p in points if key_of(p) not in known], evaluator):
            known[key_of(outcome.point)] = outcome
            if self._journal:
                self._journal.add(self._constants, outcome)
            self.evaluated += 1
            self._note(outcome)
        outcomes = [known[key_of(p)] for p in points if key_of(p) in known]
        self.outcomes += outcomes
        return outcomes

    def _evaluated(self, points: Sequence[Point], evaluator: Evaluator) -> Iterator[Outcome]:
        with closing(evaluator.evaluate(points)) as outcomes:
            while not self.is_over() and (outcome := next(outcomes, None)) is not None:
                yield outcome

    def _note(self, outcome: Outcome) -> None:
        self._seen += 1
        if outcome.is_timed and (self._best is None or outcome.latency_us < self._best.latency_us):
            self._best = outcome
        if self._progress:
            self._progress(Progress(self._seen, self._count, self.evaluated, self._best))
