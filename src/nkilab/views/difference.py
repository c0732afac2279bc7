"""Two runs side by side: latency, bound, metrics, critical path, lines."""

from __future__ import annotations

from math import isclose
from typing import Any

from msgspec import Struct

from .metrics import METRICS
from .run import Run
from .units import duration, quantity
from .words import spent_on_path

SCHEMA = "nkilab.diff/1"
# Compared first; the others follow where they differ.
_FIRST = (
    "total_time", "tensor_engine_active_time_percent", "vector_engine_active_time_percent",
    "scalar_engine_active_time_percent", "dma_active_time_percent", "dma_transfer_count",
    "dma_transfer_total_bytes", "dma_transfer_average_bytes", "hbm_read_bytes", "hbm_write_bytes",
    "spill_save_bytes", "mfu_estimated_percent", "mbu_estimated_percent", "sbuf_peak_bytes",
    "psum_peak_banks", "instruction_count",
)  # fmt: skip


class Compared(Struct, frozen=True):
    """A quantity of both runs."""

    name: str  # of the quantity
    # before, after: of the first and the second run, in one unit
    before: float
    after: float
    lines: tuple[str, str] = ("", "")  # "file.py:41" in either run, for a source line

    @property
    def change(self) -> float:
        """The second less the first; 0 for what only rounding tells apart."""
        return self.after - self.before if self.differs else 0.0

    @property
    def differs(self) -> bool:
        """Whether they differ by more than the rounding of sums."""
        return not isclose(self.before, self.after, rel_tol=1e-9, abs_tol=1e-6)


class Difference(Struct, frozen=True, eq=False):
    """What changes from one run to another."""

    # before, after: the runs
    before: Run
    after: Run
    names: tuple[str, str]  # what they are called
    # of the chip that make the second run out of the first; "" if they are of different kernels
    changes: str = ""

    @property
    def speedup(self) -> float:
        """How many times as fast the second run is."""
        return self.before.timeline.latency_ns / self.after.timeline.latency_ns

    @property
    def headline(self) -> str:
        """Which is faster, and by how much."""
        first, second = (run.timeline.latency_ns for run in (self.before, self.after))
        comparison = f"{duration(second)} instead of {duration(first)}"
        subject, other = self.names[1], f" {self.names[0]}"
        if self.changes:
            subject, other = f"with {self.changes} it", ""
        if abs(self.speedup - 1) < 5e-4:
            return f"{subject} takes as long as {other.strip() or 'before'}: {duration(second)}"
        if self.speedup > 1:
            return f"{subject} is {self.speedup:.4g} times as fast{other and ' as' + other}: {comparison}"
        return f"{subject} takes {1 / self.speedup:.4g} times as long{other and ' as' + other}: {comparison}"

    @property
    def bounds(self) -> str:
        """What bounds either run."""
        first, second = self.before.summary.bound, self.after.summary.bound
        return f"both are bound by {first}" if first == second else f"bound by {second} instead of {first}"

    def metrics(self) -> tuple[Compared, ...]:
        """Metrics that differ, the important ones first."""
        first, second = self.before.summary.values, self.after.summary.values
        names = dict.fromkeys((*_FIRST, *METRICS))
        compared = [Compared(name, first[name], second[name]) for name in names]
        return tuple(one for one in compared if one.name == "total_time" or one.differs)

    def path(self) -> tuple[Compared, ...]:
        """Nanoseconds on the critical path by what they went to, the greatest change first."""
        sides: tuple[dict[str, float], ...] = ({}, {})
        for side, run in zip(sides, (self.before, self.after), strict=True):
            for spent in spent_on_path(run):
                side[spent.text] = side.get(spent.text, 0.0) + spent.time_ns
        return _compared(*sides)

    def lines(self) -> tuple[Compared, ...]:
        """Nanoseconds on the critical path by source line, the greatest change first.

        Lines of the two runs are the same line if their text is, wherever it stands.
        """
        sides: tuple[dict[str, float], ...] = ({}, {})
        where: tuple[dict[str, str], ...] = ({}, {})
        for side, places, run in zip(sides, where, (self.before, self.after), strict=True):
            for cost in run.lines:
                text = run.sources[cost.path].lines
                name = text[cost.line - 1].strip() if cost.line <= len(text) else cost.where
                side[name] = side.get(name, 0.0) + cost.path_ns
                places.setdefault(name, cost.where)
        return tuple(
            Compared(
                one.name, one.before, one.after, (where[0].get(one.name, ""), where[1].get(one.name, ""))
            )
            for one in _compared(*sides)
            if one.before or one.after
        )

    def to_dict(self) -> dict[str, Any]:
        """A plain dictionary, ready for JSON; times in microseconds."""
        return {
            "schema": SCHEMA,
            "headline": self.headline,
            "changes": self.changes,
            "speedup": self.speedup,
            "runs": [
                {
                    "name": name,
                    "kernel": run.summary.kernel,
                    "target": run.summary.machine,
                    "model_version": run.timeline.model,
                    "latency_us": run.timeline.latency_us,
                    "interval_us": list(run.interval_us),
                    "bound": run.summary.bound,
                }
                for name, run in zip(self.names, (self.before, self.after), strict=True)
            ],
            "advice": [own.to_dict() for own in self.after.guidance.advice],
            "metrics": [{"name": o.name, "before": o.before, "after": o.after} for o in self.metrics()],
            "critical_path": [
                {"what": o.name, "before_us": o.before / 1000, "after_us": o.after / 1000}
                for o in self.path()
            ],
            "lines": [
                {
                    "text": o.name, "where_before": o.lines[0], "where_after": o.lines[1],
                    "before_us": o.before / 1000, "after_us": o.after / 1000,
                }
                for o in self.lines()
            ],
        }  # fmt: skip


def _compared(before: dict[str, float], after: dict[str, float]) -> tuple[Compared, ...]:
    names = dict.fromkeys((*before, *after))
    compared = (Compared(name, before.get(name, 0.0), after.get(name, 0.0)) for name in names)
    return tuple(sorted(compared, key=lambda one: (-abs(one.change), one.name)))


def metric_cells(one: Compared) -> tuple[str, str, str]:
    """A metric of both runs with its unit, and the second as a multiple of the first."""
    unit = METRICS[one.name].unit
    ratio = f"{one.after / one.before:.4g}x" if one.before else ""
    return quantity(one.before, unit), quantity(one.after, unit), ratio


def time_cells(one: Compared) -> tuple[str, str, str]:
    """A time of both runs in nanoseconds, and how it changes."""
    sign = "+" if one.change > 0 else "-" if one.change < 0 else ""
    return duration(one.before), duration(one.after), sign + duration(abs(one.change))
