"""Grids of the ledger: one kernel on the same arrays under several block sizes.

A tuner that looks at the whole of a grid takes the point that is predicted to be fastest, or of those that
the model cannot tell from it the most robust. Its regret is how much longer that point was measured than the
one that was measured fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log, prod
from random import Random
from statistics import pstdev
from typing import Any

from .choice import TIED, robust
from .predict import Predictor
from .quantities import QUANTITIES
from .row import Call, Row
from .score import Compared, tau_of

# From so many points that spread so far on a grid has an order.
WIDE, SPREAD = 6, 0.05
# A search draws so many points of a grid, once with each seed.
TRIALS, SEEDS = 20, range(4)


@dataclass(frozen=True)
class Grid:
    """Measurements of one kernel that differ in block sizes alone."""

    compared: tuple[Compared, ...]  # one per setting, measured and predicted

    @property
    def name(self) -> str:
        """Kernel, arrays, chip and source."""
        row = self.compared[0].row
        arrays = " + ".join(",".join(filter(_is_array, map(str, call.args))) for call in row.calls)
        return f"{row.kernel} {arrays} on {row.chip} ({row.source.name}, {self.compared[0].metric})"

    @property
    def has_host(self) -> bool:
        """Whether time of the host is part of what was measured."""
        return QUANTITIES[self.compared[0].metric].has_host

    @property
    def chosen(self) -> Compared:
        """What `nkilab tune` takes: of those predicted to be fastest the most robust."""
        return _chosen(self.compared)

    @property
    def best(self) -> Compared:
        """What was measured fastest."""
        return min(self.compared, key=lambda c: c.measured)

    @property
    def regret(self) -> float:
        """How much longer the choice was measured than the best, relatively."""
        return self.chosen.measured / self.best.measured - 1

    @property
    def searched(self) -> float:
        """The worst regret of searches that see some points of the grid, drawn at random."""
        if len(self.compared) <= TRIALS:
            return self.regret
        draws = [Random(seed).sample(self.compared, TRIALS) for seed in SEEDS]
        return max(_chosen(points).measured for points in draws) / self.best.measured - 1

    @property
    def is_wide(self) -> bool:
        """Whether it has enough points, far enough apart, to have an order."""
        spread = max(c.measured for c in self.compared) / self.best.measured - 1
        return len(self.compared) >= WIDE and spread > SPREAD

    @property
    def tau(self) -> float | None:
        """Kendall's rank correlation, of pairs that differ beyond noise and ties; None if none does."""
        return tau_of(self.compared, TIED)

    @property
    def spread(self) -> float:
        """Standard deviation of log(predicted / measured): how far points are off against each other."""
        return pstdev(log(c.predicted / c.measured) for c in self.compared)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        names = ("name", "has_host", "regret", "tau", "spread")
        return {name: getattr(self, name) for name in names} | {
            "points": len(self.compared), "chosen": self.chosen.row.id, "best": self.best.row.id,
            "regret_of_searches": self.searched,
        }  # fmt: skip


def _chosen(points: Sequence[Compared]) -> Compared:
    """Of the points predicted to be fastest the most robust."""
    return points[robust([c.predicted for c in points], [c.demand for c in points])]


def grids_of(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows by grid: the same kernel, arrays, chip, options, quantity and source, other block sizes.

    A block size is a whole number that the kernel is called with. Where a setting was measured several times,
    the first row stands for it.
    """
    grids: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if row.kind == "kernel" and QUANTITIES[row.metric].sort == "time":
            grids.setdefault(_grid_of(row), {}).setdefault(repr(row.setting), row)
    return [list(own.values()) for own in grids.values() if len(own) > 1]


def _grid_of(row: Row) -> tuple[Any, ...]:
    """What rows of one grid share."""
    calls = tuple((call.kernel, *_fixed(call)) for call in row.calls)
    keywords = tuple(sorted((k, repr(v)) for k, v in row.keywords.items() if not _is_size(v)))
    sizes = tuple(sorted(k for k, v in row.keywords.items() if _is_size(v)))
    options = tuple(sorted((k, repr(v)) for k, v in row.options.items()))
    return (row.family, row.chip, row.metric, row.source.name, calls, keywords, sizes, options)


def _fixed(call: Call) -> tuple[str, ...]:
    """Arguments of a call, with a mark in place of block sizes."""
    return tuple("(size)" if _is_size(value) else repr(value) for value in call.args)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_array(text: str) -> bool:
    return text.endswith("]")


def compared_grids(compared: Iterable[Compared], predictor: Predictor) -> list[Grid]:
    """The grids among predicted rows; context rows stand in none.

    Args:
        compared: quantities of rows, of which each row's first counts.
        predictor: traced their kernels.
    """
    first = {one.row.id: one for one in compared if one.is_primary and one.row.split != "context"}
    grids: dict[Any, list[Compared]] = {}
    for number, rows in enumerate(grids_of(one.row for one in first.values())):
        for row in rows:
            grids.setdefault((number, _results(predictor, row)), []).append(first[row.id])
    return [Grid(tuple(own)) for own in grids.values() if len(own) > 1]


def _results(predictor: Predictor, row: Row) -> tuple[Any, ...]:
    """Sizes of what a row computes: a number that changes them is no block size, but other work."""
    return tuple(
        (prod(storage.shape), str(storage.dtype))
        for call in range(len(row.calls))
        for program in predictor.programs(row, call)
        for storage in program.storages
        if storage.scope in ("shared", "output")
    )
