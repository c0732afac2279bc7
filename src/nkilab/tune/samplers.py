"""Who proposes points: everything, at random, or optuna's samplers behind the same three words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from random import Random
from typing import Any, Protocol

from .._lazy import optuna
from ..argument_checks import need, whole
from ..errors import UsageError, did_you_mean
from ..tracebacks import public
from .outcome import Outcome, key_of
from .space import Parameter, Point, Space

AUTO, EXHAUSTIVE, RANDOM = "auto", "exhaustive", "random"
# optuna's samplers by our name; all take a seed
OPTUNA = {"tpe": "TPESampler", "nsga2": "NSGAIISampler", "gp": "GPSampler"}
SAMPLERS = (AUTO, EXHAUSTIVE, RANDOM, *OPTUNA)
# How many points are proposed before the outcomes of the earlier ones are looked at, whoever evaluates them:
# the same points then come for any number of workers.
ADAPTIVE_BATCH, BATCH = 8, 256
# How often a sampler may propose what is known or not allowed before a point is drawn at random.
TRIES = 50
# How many combinations that were seen before are drawn one after another before a climb ends, and its seed.
MOST_MISSES, SEED = 50, 0
# How many draws at random look for a point before the space is gone through from its beginning.
DRAWS = 20_000


class Sampler(Protocol):
    """Proposes points and hears what became of them. The same seed and outcomes give the same points."""

    @property
    def batch(self) -> int:
        """How many points to ask for at once."""

    def ask(self, count: int) -> list[Point]:
        """Up to `count` points that were never proposed before; none if there are no more."""

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """What became of the points, in the order in which they were proposed."""


class Listed:
    """Points of a list that does not depend on outcomes: all of a space in order, or in random order."""

    batch = BATCH

    def __init__(self, points: Iterator[Point]) -> None:
        self._points = points

    def ask(self, count: int) -> list[Point]:
        """The next points."""
        return list(islice(self._points, count))

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing depends on it."""


class Beginning:
    """A sampler after a point of one's own.

    Args:
        first: proposed before all others, and never again.
        sampler: proposes the others, and hears of the first.
    """

    def __init__(self, first: Point, sampler: Sampler) -> None:
        self.batch = sampler.batch
        self._first, self._sampler = first, sampler
        self._has_begun = False

    def ask(self, count: int) -> list[Point]:
        """The first point alone, then those of the sampler."""
        if not self._has_begun:
            self._has_begun = True
            return [self._first]
        points = self._sampler.ask(count)
        others = [p for p in points if key_of(p) != key_of(self._first)]
        return others or (self._sampler.ask(count) if points else [])

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Hand outcomes on."""
        self._sampler.tell(outcomes)


class Climb:
    """Changes one thing at a time as long as that makes the kernel faster, then draws combinations.

    Args:
        start: the first point.
        changes: of one thing, of a point.
        joined: a point with what several others change.
        work: that may be spent.
        least, cost: of a point that is not timed, or as fast as another one, and of any other.
    """

    batch = 4

    def __init__(
        self, start: Point, changes: Callable[[Point], Sequence[Point]], joined: Callable[..., Point],
        work: int, *, least: int = 1, cost: int = 1,
    ) -> None:  # fmt: skip
        self._start, self._changes, self._joined = start, changes, joined
        self.work, self._spent, self._least, self._cost = work, 0, least, cost
        self._best: Outcome | None = None
        self._is_better, self.is_exhausted = True, False
        self._seen, self._times = set[str](), set[float]()
        # what is proposed before all else
        self._waiting: list[Point] = []
        self._points = self._proposed()

    def ask(self, count: int) -> list[Point]:
        """The next points, as far as there is work left for them."""
        most = min(count, max(1, (self.work - self._spent) // self._cost))
        points: list[Point] = []
        while len(points) < most and self._spent < self.work:
            try:
                point = next(self._points)
            except StopIteration:
                self.is_exhausted = not points
                break
            if point is not None:
                points.append(point)
            elif points:
                break
        return points

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """What became of points: what is faster is kept, and joined if there are several."""
        before = self._best
        for outcome in outcomes:
            latency = outcome.latency_us if outcome.is_timed else 0.0
            self._spent += self._least if latency in self._times or not latency else self._cost
            self._times |= {latency} if latency else set()
            if latency and (self._best is None or latency < self._best.latency_us):
                self._best = outcome
        if before is None or self._best is before:
            return
        self._is_better = True
        better = [o.point for o in outcomes if o.is_timed and o.latency_us < before.latency_us]
        self._waiting = [self._joined(*better)] if len(better) > 1 else []

    def _proposed(self) -> Iterator[Point | None]:
        """Points never proposed before: the first, one change at a time, combinations of several.

        None stands where what comes next depends on what became of all before.
        """
        yield from self._new(self._start)
        yield None
        random, misses, here = Random(SEED), 0, dict(self._top)
        changes = self._changes(here)
        self._is_better = True
        while misses < MOST_MISSES:
            if here != self._top:
                here = dict(self._top)
                changes = self._changes(here)
            if self._is_better:
                yield from self._climbed(changes)
                continue
            drawn = [random.choice(changes) for _ in range(random.choice((2, 2, 3, 4)))]
            points = list(self._new(self._joined(self._top, *drawn)))
            misses = 0 if points else misses + 1
            yield from points

    def _climbed(self, changes: Sequence[Point]) -> Iterator[Point | None]:
        """One change after another of the best point of its time."""
        self._is_better = False
        for change in changes:
            yield from self._new(self._joined(self._top, change))
        yield None

    @property
    def _top(self) -> Point:
        """The best point so far."""
        return self._best.point if self._best is not None else self._start

    def _new(self, point: Point) -> Iterator[Point]:
        """A point and those that wait, as far as they are new."""
        for one in (*self._waiting, point):
            key = key_of(one)
            if key not in self._seen:
                self._seen.add(key)
                yield one
        self._waiting = []


def shuffled(space: Space, seed: int) -> Iterator[Point]:
    """Points of a space in random order, none twice; all of them where they can be counted."""
    random = Random(seed)
    if space.count is not None:
        points = list(space.points())
        random.shuffle(points)
        yield from points
        return
    seen: set[str] = set()
    while (point := drawn(space, random, seen)) is not None:
        seen.add(key_of(point))
        yield point


def drawn(space: Space, random: Random, seen: set[str]) -> Point | None:
    """A point that was not seen, drawn at random; where some thousand draws find none, the first of all."""
    for _ in range(DRAWS):
        point = space.drawn(random)
        if key_of(point) not in seen and space.holds(point):
            return point
    return next((point for point in space.among_first() if key_of(point) not in seen), None)


class FromOptuna:
    """One of optuna's samplers, which learn from outcomes.

    Points that are known or that the constraints forbid are told to it at once and never proposed.

    Args:
        space: what is searched.
        make: makes optuna's sampler.
        goals: how many values an outcome has.
        seed: of what is drawn where optuna proposes nothing new.
    """

    batch = ADAPTIVE_BATCH

    def __init__(self, space: Space, make: Callable[[], Any], goals: int, seed: int) -> None:
        optuna().logging.set_verbosity(optuna().logging.ERROR)
        self._space = space
        self._study = optuna().create_study(directions=["minimize"] * goals, sampler=make())
        self._distributions = {p.name: _distribution(p) for p in space.parameters}
        self._random = Random(seed)
        self._waiting: dict[str, Any] = {}
        self._known: dict[str, Outcome] = {}

    def ask(self, count: int) -> list[Point]:
        """Up to `count` new points."""
        points: list[Point] = []
        while len(points) < count and self._has_more():
            trial, point = self._proposed()
            if point is None:
                break
            self._waiting[key_of(point)] = trial
            points.append(point)
        return points

    def _has_more(self) -> bool:
        most = self._space.count
        return most is None or len(self._known) + len(self._waiting) < most

    def _proposed(self) -> tuple[Any, Point | None]:
        """A trial of optuna's and its point, or a point at random and no trial."""
        for _ in range(TRIES):
            trial = self._study.ask(self._distributions)
            point = {p.name: _value(p, trial.params[p.name]) for p in self._space.parameters}
            key = key_of(point)
            if key in self._known:
                self._settle(trial, self._known[key])
            elif key in self._waiting or not self._space.holds(point):
                self._study.tell(trial, state=optuna().trial.TrialState.FAIL)
            else:
                return trial, point
        return None, drawn(self._space, self._random, self._waiting.keys() | self._known.keys())

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Teach optuna what became of points; those it did not propose as well."""
        for outcome in outcomes:
            key = key_of(outcome.point)
            self._known[key] = outcome
            trial = self._waiting.pop(key, None)
            if trial is not None:
                self._settle(trial, outcome)
            elif outcome.is_timed:
                self._study.add_trial(self._finished(outcome))

    def _settle(self, trial: Any, outcome: Outcome) -> None:
        if outcome.is_timed:
            self._study.tell(trial, list(outcome.values.values()))
        else:
            self._study.tell(trial, state=optuna().trial.TrialState.FAIL)

    def _finished(self, outcome: Outcome) -> Any:
        params = {p.name: _optunas(p, outcome.point[p.name]) for p in self._space.parameters}
        return optuna().trial.create_trial(
            params=params, distributions=self._distributions, values=list(outcome.values.values())
        )


def _distribution(parameter: Parameter) -> Any:
    """Ordered values by their place among them, the others as they are."""
    distributions = optuna().distributions
    if parameter.is_ordered:
        return distributions.IntDistribution(0, len(parameter.values) - 1)
    return distributions.CategoricalDistribution([repr(value) for value in parameter.values])


def _value(parameter: Parameter, index: Any) -> Any:
    if parameter.is_ordered:
        return parameter.values[index]
    return next(value for value in parameter.values if repr(value) == index)


def _optunas(parameter: Parameter, value: Any) -> Any:
    return parameter.values.index(value) if parameter.is_ordered else repr(value)


@public
def sampler_named(name: str, space: Space, trials: int, goals: int, seed: int) -> Sampler:
    """The sampler of a name.

    Args:
        name: of `SAMPLERS`; "auto" looks at everything where `trials` suffice for it, else takes tpe.
        space: what is searched.
        trials: how many points may be evaluated.
        goals: how many values an outcome has.
        seed: the same seed gives the same points.

    Raises:
        UsageError: if there is no such sampler, it takes no such seed, or what it needs is not installed.
    """
    need("sampler", name, str, f"one of {', '.join(SAMPLERS)}")
    need("space", space, Space, "an nkilab.tune.Space", "make one with nkilab.tune.space_of")
    whole("trials", trials, 1)
    whole("goals", goals, 1)
    if name not in SAMPLERS:
        raise UsageError(
            f"--sampler is {name!r}; there are {', '.join(SAMPLERS)}", hint=did_you_mean(name, SAMPLERS)
        )
    if not 0 <= seed < 1 << 32:
        raise UsageError(f"the seed is {seed}; it must be a whole number from 0 to {(1 << 32) - 1:,}")
    is_small = space.count is not None and space.count <= trials
    if name == EXHAUSTIVE or (name == AUTO and is_small):
        return Listed(space.points())
    if name == RANDOM:
        return Listed(shuffled(space, seed))
    own = OPTUNA["tpe" if name == AUTO else name]
    try:
        samplers = optuna().samplers
    except ModuleNotFoundError:
        count = "more than can be counted" if space.count is None else f"{space.count:,}"
        raise UsageError(
            f"the space has {count} points, --trials is {trials}; a sampler that learns needs optuna",
            hint="pip install 'nkilab[tune]', or use --sampler random",
        ) from None
    try:
        return FromOptuna(space, lambda: getattr(samplers, own)(seed=seed), goals, seed)
    except ImportError as error:
        raise UsageError(
            f"--sampler {name} needs more than optuna: {str(error).splitlines()[0]}",
            hint="use --sampler tpe, which does not",
        ) from None
