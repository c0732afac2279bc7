"""Grids of the ledger: one kernel on the same arrays under several block sizes.

A tuner that looks at the whole of a grid takes the point that is predicted to be fastest, or of those that
the model cannot tell from it the most robust. Its regret is how much longer that point was measured than the
one that was measured fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log, prod
from statistics import pstdev
from typing import Any

from .choice import Demand, demand_of, robust
from .predict import Predictor
from .quantities import QUANTITIES
from .row import Call, Row
from .score import Bar, Compared, tau_of

# How far the choice may be off, and in what share of the grids it may not be.
REGRET_BAR, SHARE_BAR = 0.05, 0.8
# Two points are a comparison; from three on there is something to search.
WIDE = 3


@dataclass(frozen=True)
class Grid:
    """Measurements of one kernel that differ in block sizes alone.

    Args:
        compared: one per setting, measured and predicted.
        demands: what each asks of memory.
    """

    compared: tuple[Compared, ...]
    demands: tuple[Demand, ...]

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
        return self.compared[robust([c.predicted for c in self.compared], self.demands)]

    @property
    def best(self) -> Compared:
        """What was measured fastest."""
        return min(self.compared, key=lambda c: c.measured)

    @property
    def regret(self) -> float:
        """How much longer the choice was measured than the best, relatively."""
        return self.chosen.measured / self.best.measured - 1

    @property
    def is_good(self) -> bool:
        """Whether the choice is within the bar."""
        return self.regret <= REGRET_BAR

    @property
    def tau(self) -> float | None:
        """Kendall's rank correlation, of pairs that differ beyond noise; None if none does."""
        return tau_of(self.compared)

    @property
    def spread(self) -> float:
        """Standard deviation of log(predicted / measured): how far points are off against each other."""
        return pstdev(log(c.predicted / c.measured) for c in self.compared)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "name": self.name,
            "points": len(self.compared),
            "has_host": self.has_host,
            "chosen": self.chosen.row.id,
            "best": self.best.row.id,
            "regret": self.regret,
            "tau": self.tau,
            "spread": self.spread,
        }


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


def judged_grids(
    rows: Iterable[Row], predictor: Predictor, progress: Callable[[int, int], None] | None = None
) -> list[Grid]:
    """The grids among rows, predicted.

    Args:
        rows: of a ledger.
        predictor: runs their kernels; the names that they import are served.
        progress: is told after each row how many are done, of how many.
    """
    numbered = [(number, row) for number, own in enumerate(grids_of(rows)) for row in own]
    grids: dict[Any, list[tuple[Compared, Demand]]] = {}
    for done, (number, row) in enumerate(numbered, 1):
        compared = Compared(row, row.metric, row.value, predictor.predict(row, row.metric), None, "")
        point = (compared, demand_of(predictor.estimates(row)))
        grids.setdefault((number, _results(predictor, row)), []).append(point)
        if progress:
            progress(done, len(numbered))
    return [Grid(*zip(*own, strict=True)) for own in grids.values() if len(own) > 1]


def _results(predictor: Predictor, row: Row) -> tuple[Any, ...]:
    """Sizes of what a row computes: a number that changes them is no block size, but other work."""
    return tuple(
        (prod(storage.shape), str(storage.dtype))
        for call in range(len(row.calls))
        for program in predictor.programs(row, call)
        for storage in program.storages
        if storage.scope in ("shared", "output")
    )


def regret_bar(grids: Sequence[Grid]) -> Bar:
    """The bar that grids measured on the core are held to."""
    core = [grid for grid in grids if not grid.has_host]
    good = sum(grid.is_good for grid in core)
    share = good / len(core) if core else 0.0
    return Bar(
        f"grids whose choice is within {REGRET_BAR:.0%} of the measured best",
        f"at least {SHARE_BAR:.0%}",
        f"{good} of {len(core)}",
        share >= SHARE_BAR,
    )
