"""How far a prediction may be off: as far as those of measured kernels are, the nearest ones above all.

Each kernel that was measured and may be fitted to is predicted with constants fitted to all other
structures. Its error over the error that other kernels lead one to expect is its score; the interval is
what is expected of a new kernel, times the score that nine of ten stay below. Expected is the mean error of
the kernels that use the chip alike, near ones weighing most; more of it the farther the nearest is, and the
less the busiest part of the chip is busy: how long it works is surer than how long everything waits.
Scores are taken twice for each kernel: without the shapes it was measured at, as of a kernel known from
other shapes, and without all kernels of its structure.

The method is split conformal prediction with a difficulty (Papadopoulos and others, 2011) on groups (Lee,
Barber and Willett, 2023): a shape counts once, however many kernels were measured of it.
`benchmarks/residuals.py` writes the table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from math import exp, expm1, log, log10
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

TABLE = Path(__file__).parent / "residuals.json"
SHARE = 0.9
# How near kernels weigh in, and from where on nothing is near: nine of ten measured kernels have one of
# another structure nearer to them. A share of time counts one, a size that is ten times as large 0.45.
REACH, FAR = 0.45, 0.6
# What all structures together weigh, as against a kernel that uses the chip in the same way.
COMMON = 0.3
# By how much an error grows with the time that no part is busy.
IDLE = 1.0
# Another chip and another compiler are as far as these shares of time.
OTHER_CHIP, OTHER_COMPILER = 0.5, 0.25
NEAREST = 3
# measured: by how much experts gained more than the edit, in logarithms, for each unit of its gain and of the
# floor of pairs; seven of eight in published sequences lie below (benchmarks/ladders.py)
EXPERTS = 2.0
_SHARES = ("tensor_engine", "vector_engine", "scalar_engine", "gpsimd_engine", "dma")


class Traits(NamedTuple):
    """How a kernel uses its chip."""

    # chip, compiler: names
    chip: str
    compiler: str
    numbers: tuple[float, ...]  # shares of time and logarithms of sizes, by which distances go

    @property
    def idle(self) -> float:
        """The share of time that the busiest engine, or the DMA engines, have nothing to do."""
        busiest = max(*self.numbers[: len(_SHARES) - 1], *self.numbers[len(_SHARES) :][:1])
        return max(1 - busiest, 0.0)


class Band(NamedTuple):
    """How far a prediction may be off."""

    half_width: float  # of the logarithm of the time
    nearest: tuple[str, ...]  # measured kernels that use the chip most alike, one of each structure
    is_unlike: bool  # whether none of them is near, or none is of the same chip


class Residuals(Struct, frozen=True):
    """Errors of measured kernels, predicted by constants that were fitted to other structures."""

    # ids, structures, shapes: names of the rows, of their structures, and of those of equal arrays
    ids: tuple[str, ...]
    structures: tuple[str, ...]
    shapes: tuple[str, ...]
    traits: tuple[Traits, ...]  # of each
    errors: np.ndarray  # absolute logarithms of predicted / measured
    score: float = 1.0  # what `SHARE` of scores stay below

    def expected(self, traits: Traits, keep: np.ndarray) -> tuple[float, np.ndarray]:
        """The error to be expected of a kernel by those to keep, and how far each of these is."""
        own = [one for one, kept in zip(self.traits, keep, strict=True) if kept]
        square = ((np.array([one.numbers for one in own]) - traits.numbers) ** 2).sum(axis=1)
        square += OTHER_CHIP**2 * np.array([one.chip != traits.chip for one in own])
        square += OTHER_COMPILER**2 * np.array([one.compiler != traits.compiler for one in own])
        distances, errors = np.sqrt(square), self.errors[keep]
        # many rows of one shape tell little more than a few
        weights = np.exp(-square / REACH**2 / 2) / np.sqrt(_counts(np.array(self.shapes)[keep]))
        by_structure = 1 / _counts(np.array(self.structures)[keep])
        common = float(errors @ by_structure / by_structure.sum())
        mean = (COMMON * common + float(weights @ errors)) / (COMMON + float(weights.sum()))
        return mean * (1 + float(distances.min())) * (1 + IDLE * traits.idle), distances

    def band(self, traits: Traits, without: frozenset[str] = frozenset()) -> Band:
        """How far the prediction of a kernel may be off, as if some rows had not been measured."""
        keep = np.array([one not in without for one in self.ids])
        error, distances = self.expected(traits, keep)
        kept = np.array(self.structures)[keep][np.argsort(distances, kind="stable")].tolist()
        nearest = tuple(dict.fromkeys(kept))[:NEAREST]
        is_unlike = bool(distances.min() >= FAR) or all(one.chip != traits.chip for one in self.traits)
        return Band(error * self.score, nearest, is_unlike)

    @property
    def left_out(self) -> dict[str, dict[str, float]]:
        """By structure and chip the relative errors of its rows."""
        result: dict[str, dict[str, float]] = {}
        for name, structure, traits, error in zip(
            self.ids, self.structures, self.traits, self.errors.tolist(), strict=True
        ):
            result.setdefault(f"{structure}, {traits.chip}", {})[name] = expm1(error)
        return result

    def calibrated(self) -> Residuals:
        """The same with the score that its rows ask for."""
        structures, shapes = np.array(self.structures), np.array(self.shapes)
        scores: list[tuple[str, float]] = []
        for number, traits in enumerate(self.traits):
            apart = structures != structures[number]
            others = shapes != shapes[number]
            # a structure of one shape has nothing left of it
            for keep in (apart, others) if (others & ~apart).any() else (apart,):
                error, _ = self.expected(traits, keep)
                scores.append((self.shapes[number], float(self.errors[number]) / error))
        return replace(self, score=quantile(scores, SHARE))


def _counts(names: np.ndarray) -> np.ndarray:
    """How often each of the names stands there."""
    _, number, counts = np.unique(names, return_inverse=True, return_counts=True)
    return counts[number]


def quantile(scores: Sequence[tuple[str, float]], share: float) -> float:
    """What a share of scores stays below, of which those of a group count as one, and one is to come.

    With too few groups for the share the largest score: a kernel of another group exceeds it once in as many
    cases as there are groups, and one more.
    """
    groups = [group for group, _ in scores]
    each = {group: 1 / groups.count(group) / (len(set(groups)) + 1) for group in set(groups)}
    below = 0.0
    for group, score in sorted(scores, key=lambda pair: pair[1]):
        below += each[group]
        if below >= share - 1e-9:
            return score
    return max((score for _, score in scores), default=1.0)


def traits_of(values: dict[str, float], engines: float, chip: str, compiler: str) -> Traits:
    """How a kernel uses its chip, by the metrics of its estimate."""
    total, count = max(values["total_time"], 1e-3), max(values["instruction_count"], 1)
    shares = [values[f"{engine}_active_time_percent"] / 100 for engine in _SHARES]
    moving = values["dma_packet_time"] / engines / total
    each = max(values["dma_transfer_average_bytes"], 1)
    sizes = (0.45 * log10(each), 0.2 * log10(total), 0.3 * log10(count / total))
    return Traits(chip, compiler, tuple(round(number, 3) for number in (*shares, moving, *sizes)))


@cache
def residuals() -> Residuals:
    """The table that comes with nkilab."""
    document = json.loads(TABLE.read_text("utf-8"))
    rows = document["rows"]
    traits = tuple(Traits(row["chip"], row["compiler"], tuple(row["numbers"])) for row in rows)
    ids, structures, shapes = (tuple(row[name] for row in rows) for name in ("id", "structure", "shape"))
    errors = np.array([row["error"] for row in rows])
    return Residuals(ids, structures, shapes, traits, errors, document["score"])


class Pairs(Struct, frozen=True):
    """How measured ratios of kernels lie about predicted ones, all in logarithms."""

    resolution: float  # from here on nine of ten predicted changes have the right sign
    lower: float  # what nine of ten measured changes exceed, for each unit beyond the resolution
    # upper, floor: how far above the prediction nine of ten stay, for each unit of it and the floor
    upper: float
    floor: float

    def interval(self, change: float) -> tuple[float, float]:
        """Least and most of what a predicted change is measured to be, eight times of ten."""
        above = change + self.upper * (self.floor + change)
        below = self.lower * (change - self.resolution) if change >= self.resolution else 2 * change - above
        return below, above


def gain_factors(share: float) -> tuple[float, float]:
    """Least and most of the latency that a change to `share` of it saves, eight times of ten.

    Kernels of the same arguments, measured by the same clock, tell how far a predicted ratio may be off. What
    two predictions have in common cancels, so that this is less than either may be off; the constants were
    fitted with some of these kernels.
    """
    below, above = _of_pairs().interval(abs(log(share)))
    low, high = (below, above) if share <= 1 else (-above, -below)
    return 1 - exp(-low), 1 - exp(-high)


def advised_factors(share: float, left: float) -> tuple[float, float]:
    """Least and most of the latency that advice saves whose edit brings it to `share`.

    An edit makes one change; experts make what goes with it, too. Where they made it and gained, seven of
    eight gained at most this (docs/ladders.md). None gains more than what other engines leave.

    Args:
        share: of the latency, with the edit.
        left: of the latency, launch and end, and the work of engines that have as much to do as before.
    """
    change, pairs = -log(share), _of_pairs()
    low, high = gain_factors(share)
    with_others = change + EXPERTS * (pairs.floor + abs(change))
    _, to_the_limit = pairs.interval(-log(min(left, 1.0)))
    return low, max(high, 1 - exp(-min(with_others, to_the_limit)))


def least_gain() -> float:
    """The share of the latency that a change saves at least where its interval does not reach zero."""
    return 1 - exp(-_of_pairs().resolution)


@cache
def _of_pairs() -> Pairs:
    """Of the table that comes with nkilab."""
    return Pairs(**json.loads(TABLE.read_text("utf-8"))["pairs"])
