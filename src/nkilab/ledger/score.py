"""How far predictions are off: errors, ranks, intervals, and the bars that they are held to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, median

from ..views.bound import is_of_transfers
from .choice import NOTHING, Demand
from .quantities import QUANTITIES
from .row import Row


@dataclass(frozen=True)
class Compared:
    """One quantity of one row, measured and predicted."""

    row: Row  # where it stands
    metric: str  # the quantity
    # measured, predicted: in its unit
    measured: float
    predicted: float
    # between which the model believes the value to lie; None for what has no interval
    interval: tuple[float, float] | None
    bound: str  # what bounds the kernel, as the estimate says
    demand: Demand = NOTHING  # what it asks of memory

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted / self.measured - 1

    @property
    def is_inside(self) -> bool:
        """Whether the measured value lies in the interval."""
        return self.interval is not None and self.interval[0] <= self.measured <= self.interval[1]

    @property
    def half_width(self) -> float:
        """Half the length of the interval over the prediction, without what differences round off."""
        low, high = self.interval or (self.predicted, self.predicted)
        return round((high - low) / 2 / self.predicted, 9)

    @property
    def is_dma_bound(self) -> bool:
        """Whether transfers bound the kernel."""
        return is_of_transfers(self.bound)

    @property
    def is_primary(self) -> bool:
        """Whether it is the quantity that the row stands for."""
        return self.metric == self.row.metric

    @property
    def sort(self) -> str:
        """Of the quantity: time, activity or count."""
        return QUANTITIES[self.metric].sort

    @property
    def is_known_collective(self) -> bool:
        """Whether it is a collective's own time, on a chip that is named."""
        is_known = self.row.kind == "collective" and not self.row.hardware.startswith("not named")
        return self.is_primary and is_known and not QUANTITIES[self.metric].has_host

    @property
    def is_whole(self) -> bool:
        """Whether it is the time of a whole kernel on the core."""
        is_time = self.sort == "time" and not QUANTITIES[self.metric].has_host
        return self.is_primary and self.row.kind == "kernel" and is_time


@dataclass(frozen=True)
class Score:
    """How good a set of comparisons is."""

    settings: int  # how many there are, several measurements of one setting counting once
    mape: float  # mean of the absolute relative errors, one value per setting
    # per family of at least two settings that differ beyond noise, Kendall's rank correlation
    tau: dict[str, float]
    worst: Compared  # the comparison that is off most
    coverage: float  # share of measured values inside their intervals
    half_width: float  # median half-width of the intervals, relative


def score_of(compared: Sequence[Compared]) -> Score | None:
    """The score of comparisons of times; None of none."""
    if not compared:
        return None
    by_setting = settings_of(compared)
    return Score(
        len(by_setting),
        mean(mean(abs(c.error) for c in own) for own in by_setting),
        taus_of(compared),
        max(compared, key=lambda c: abs(c.error)),
        mean(mean(c.is_inside for c in own) for own in by_setting),
        median(c.half_width for c in compared),
    )


def settings_of(compared: Iterable[Compared]) -> list[list[Compared]]:
    """Comparisons by what was measured: kernel, shapes, type, chip, options."""
    settings: dict[tuple[str, ...], list[Compared]] = {}
    for one in compared:
        settings.setdefault(one.row.setting, []).append(one)
    return list(settings.values())


def families_of(compared: Iterable[Compared]) -> dict[str, list[Compared]]:
    """Comparisons by the family of their row."""
    families: dict[str, list[Compared]] = {}
    for one in compared:
        families.setdefault(one.row.family, []).append(one)
    return families


def taus_of(compared: Sequence[Compared]) -> dict[str, float]:
    """Kendall's tau per family; only rows of one chip and one time base are ranked with each other."""
    ranked = {family: tau_of(own) for family, own in families_of(compared).items()}
    return {family: tau for family, tau in ranked.items() if tau is not None}


def tau_of(compared: Sequence[Compared], ties: float = 0.0) -> float | None:
    """Kendall's tau: concordant less discordant pairs over all pairs that differ beyond noise and ties.

    A pair that is predicted equal is neither; None if no pair differs.
    """
    total = balance = 0
    for one, other in combinations(compared, 2):
        if one.metric != other.metric or one.row.chip != other.row.chip:
            continue
        noise = max(ties, one.row.noise, other.row.noise)
        if abs(one.measured - other.measured) <= noise * max(one.measured, other.measured):
            continue
        total += 1
        product = (one.measured - other.measured) * (one.predicted - other.predicted)
        balance += (product > 0) - (product < 0)
    return balance / total if total else None
