"""`nkilab compare`: a prediction against what the profiler says of a run on a card, metric by metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log
from pathlib import Path

import numpy as np

from .estimates import Estimate, estimate_programs
from .ledger.counters import COUNTERS, quantities_in
from .ledger.fitting import MODEL_ERROR, SPREAD, free_constants, sensitivities
from .ledger.predict import Judged
from .ledger.quantities import QUANTITIES
from .ledger.row import Row, Source
from .machine import Machine
from .profiles import Profile
from .progress import say
from .timing import MODEL_VERSION
from .trace.program import recosted
from .views.explorer.card import CardProfile, read_profile
from .views.metrics import METRICS
from .views.units import quantity

SCHEMA = "nkilab.compare/1"
# How many constants are named, and what share of the mean error one has to explain.
MOST, LEAST = 5, 0.1
# A change of more than so many times what is known of a constant explains nothing.
FAR = 4.0
# Counts that differ by less are the same to a reader.
SAME = 0.005


@dataclass(frozen=True)
class Pair:
    """A metric on the card and predicted."""

    quantity: str  # of `ledger.quantities`
    # card, predicted: in the unit that the quantity's name carries
    card: float
    predicted: float

    @property
    def name(self) -> str:
        """As the profiler calls it."""
        return COUNTERS[self.quantity]

    @property
    def off(self) -> float:
        """Predicted over that of the card, less 1."""
        return self.predicted / self.card - 1

    @property
    def is_time(self) -> bool:
        """Whether it is a time, which constants of the clock decide."""
        return QUANTITIES[self.quantity].sort in ("time", "activity")


@dataclass(frozen=True)
class Explanation:
    """A constant that, changed alone, brings prediction and card together."""

    constant: str  # its name
    # before, after: its value, and the one that fits best within what is known of it
    before: float
    after: float
    certainty: str  # how sure it is
    left: float  # the mean error of the times that remains


@dataclass(frozen=True)
class Comparison:
    """A kernel predicted and on a card."""

    # kernel, target: compared
    kernel: str
    target: str
    profile: CardProfile  # of the card
    extra_us: float  # microseconds that total_time holds beyond the latency, as predicted
    pairs: tuple[Pair, ...]  # metric by metric
    explanations: tuple[Explanation, ...]  # constants that would explain the times, the best first

    @property
    def error(self) -> float:
        """Mean absolute logarithm of predicted over measured times, as a relative error."""
        timed = [p for p in self.pairs if p.is_time and p.predicted]
        return float(np.mean([abs(log(p.predicted / p.card)) for p in timed]))

    @property
    def reasons(self) -> list[str]:
        """Where they part, a line each, from what no constant decides to what constants do."""
        off = {p.quantity: p.off for p in self.pairs}
        counts = [p for p in self.pairs if not p.is_time and abs(p.off) > SAME]
        lines = [_counted(pair) for pair in counts]
        if not counts and any(not p.is_time for p in self.pairs):
            lines.append("bytes, transfers and instructions agree: what differs is time alone")
        engines = [p for p in self.pairs if p.is_time and p.quantity != "profile_us" and abs(p.off) > 0.05]
        if engines and abs(off["profile_us"]) > 0.05:
            worst = max(engines, key=lambda p: abs(p.predicted - p.card))
            lines.append(
                f"{worst.name} differs most: {quantity(worst.card, 'us')} on the card, "
                f"{quantity(worst.predicted, 'us')} predicted"
            )
        elif abs(off["profile_us"]) > 0.05:
            lines.append("engines and transfers are active as long as predicted, but overlap differently")
        return lines

    def to_dict(self) -> dict[str, object]:
        """Ready for JSON, as docs/schemas/nkilab.compare-1.json describes it."""
        return {
            "schema": SCHEMA,
            "kernel": self.kernel,
            "target": self.target,
            "model_version": MODEL_VERSION,
            "profile": {"path": str(self.profile.path), "format": self.profile.format},
            "metrics": [{"name": pair.name, **vars(pair), "off": pair.off} for pair in self.pairs],
            "reasons": self.reasons,
            "mean_error_of_times": self.error,
            "explained_by": [vars(one) for one in self.explanations],
        }


def _counted(pair: Pair) -> str:
    unit = METRICS[pair.name].unit
    more = "more" if pair.predicted > pair.card else "fewer"
    return (
        f"predicted are {abs(pair.off):.1%} {more} {pair.name} than on the card: "
        f"{quantity(pair.predicted, unit)} and {quantity(pair.card, unit)}"
    )


def compare(profiled: Profile, path: str) -> Comparison:
    """A prediction against a profile.

    Args:
        profiled: the kernel, on the chip that the profile is of.
        path: of a summary as JSON or text, of Summary.parquet, or of the folder that it lies in.

    Raises:
        FileError: if it is no profile.
    """
    card = read_profile(Path(path))
    machine = profiled.program.machine
    row = _row(profiled, quantities_in(card.metrics))
    predicted = _Predicted(profiled, row)
    pairs = tuple(Pair(name, value, predicted(name, machine)) for name, value in row.measured.items())
    timed = [p for p in pairs if p.is_time and p.predicted]
    times = [Judged(row, p.quantity, p.card, partial(predicted, p.quantity)) for p in timed]
    explanations = _explanations(times, machine)
    extra_us = machine["profile_extra_ns"] / 1000
    return Comparison(profiled.kernel_name, profiled.target, card, extra_us, pairs, explanations)


class _Predicted:
    """Quantities of one kernel under any constants; the estimate of the latest is kept.

    Args:
        profiled: the kernel.
        row: that asks.
    """

    def __init__(self, profiled: Profile, row: Row) -> None:
        self._profiled, self._row = profiled, row
        self._latest: tuple[Machine, Estimate] = (profiled.program.machine, profiled)

    def __call__(self, name: str, machine: Machine) -> float:
        if self._latest[0] is not machine:
            programs = [recosted(program, machine) for program in self._profiled.traced]
            self._latest = (machine, estimate_programs(programs))
        return QUANTITIES[name].predict(self._row, [self._latest[1]])


def _row(profiled: Profile, measured: dict[str, float]) -> Row:
    return Row(
        id=profiled.kernel_name, family=profiled.kernel_name, kernel=profiled.kernel_name, calls=(),
        measured=measured, source=Source("card", "the user's"), chip=profiled.program.machine.name,
        dialect="", trust="B", split="fit", noise=0.01,
    )  # fmt: skip


def _explanations(times: Sequence[Judged], machine: Machine) -> tuple[Explanation, ...]:
    """Constants by how much of the mean error each explains alone, as far as it may be off."""
    names = free_constants(machine)
    known = sensitivities(times, machine, names)
    error = float(np.mean(np.abs(known.log_ratio)))
    explanations = []
    for name, slope in zip(names, known.slopes.T, strict=True):
        certainty = getattr(machine, name).certainty
        pull = (MODEL_ERROR / SPREAD[certainty]) ** 2
        change = -float(slope @ known.log_ratio) / (float(slope @ slope) + pull)
        left = float(np.mean(np.abs(known.log_ratio + slope * change)))
        if left < (1 - LEAST) * error and abs(change) < FAR * SPREAD[certainty]:
            value = machine[name]
            explanations.append(Explanation(name, value, value * exp(change), certainty, left))
    return tuple(sorted(explanations, key=lambda one: one.left)[:MOST])


def print_comparison(one: Comparison) -> None:
    """Metrics, where they part, and constants."""
    say(f"{one.kernel} on {one.target}, timing model {MODEL_VERSION}, against {one.profile.path}")
    say(f"{'':<36}{'card':>16}{'predicted':>16}{'off':>10}")
    for pair in one.pairs:
        unit = METRICS[pair.name].unit
        values = f"{quantity(pair.card, unit):>16}{quantity(pair.predicted, unit):>16}"
        say(f"{pair.name:<36}{values}{pair.off:>+10.1%}")
    for line in one.reasons:
        say(f"  {line}")
    if any(pair.quantity == "profile_us" for pair in one.pairs):
        say(f"  total_time is the predicted latency and {one.extra_us:.2f} us that the profiler adds")
    say(f"times are off by {one.error:.1%} on average")
    if not one.explanations:
        say("no single constant of the timing model explains it")
        return
    say(f"constants that would explain it, each by itself:{'now':>12}{'then':>12}{'left':>10}")
    for constant in one.explanations:
        name = f"  {constant.constant} ({constant.certainty})"
        say(f"{name:<44}{constant.before:>12,.4g}{constant.after:>12,.4g}{constant.left:>10.1%}")
