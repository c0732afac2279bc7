"""What the cores of a launch do in one time: those that do the same, and all together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from .units import duration, quantity

METRICS = ("hbm_read_bytes", "hbm_write_bytes", "mfu_estimated_percent")
HEADINGS = ("cores", "time", "bound by", "HBM read", "HBM written", "MFU")


@dataclass(frozen=True)
class Cores:
    """Programs of a launch that do the same at the same time."""

    titles: tuple[str, ...]  # what messages call them: "program 0", "rank 3"
    estimate: Any = field(repr=False)  # of one of them, in the time of all

    @property
    def name(self) -> str:
        """All of them in few words."""
        first, last = self.titles[0], self.titles[-1]
        return first if first == last else f"{first} to {last} ({len(self.titles)} programs)"

    def to_dict(self) -> dict[str, Any]:
        """Their time, bytes and use, ready for JSON; bytes and FLOPs are of one of them."""
        one, summary = self.estimate, self.estimate.summary
        return {
            "programs": list(self.titles),
            "latency_us": one.latency_us,
            "bound": summary.bound,
            **{name: summary[name] for name in METRICS},
        }

    def described(self) -> str:
        """What they do, in a line."""
        read, written, mfu = (self.estimate.summary[name] for name in METRICS)
        each = "" if len(self.titles) == 1 else " each"
        return (
            f"{self.name}: {self.estimate.latency_us:.2f} us; {read:.0f} bytes read from HBM and "
            f"{written:.0f} written{each}; MFU {mfu:.2f} %"
        )


class OneCore(Struct, frozen=True):
    """The same launch on one core."""

    latency_us: float  # what it takes there
    bound: str  # what bounds it there


class Together(Struct, frozen=True, eq=False):
    """A launch over several cores or ranks."""

    cores: tuple[Cores, ...]  # all of them, by what they do
    shown: int  # which of them is the slowest, whom everything else is described of
    # the same launch on one core; None if one does not do all of it, or nobody looked
    one_core: OneCore | None = None

    @property
    def count(self) -> int:
        """Programs of the launch."""
        return sum(len(one.titles) for one in self.cores)

    @property
    def slowest(self) -> Any:
        """The estimate of the slowest core."""
        return self.cores[self.shown].estimate

    def total(self, metric: str) -> float:
        """The sum of a metric over all programs."""
        return float(sum(len(one.titles) * one.estimate.summary[metric] for one in self.cores))

    @property
    def mfu_percent(self) -> float:
        """FLOPs of all programs, of what all cores could do until the last one ends."""
        slowest = self.slowest
        peak = slowest.program.machine["peak_tflops_bf16"] * 1e12
        return 100 * self.total("model_flops") / (self.count * peak * slowest.latency_us * 1e-6)

    @property
    def times_one_core(self) -> float | None:
        """How many times as fast as one core they are."""
        return None if self.one_core is None else self.one_core.latency_us / self.slowest.latency_us

    def speed_up(self) -> str:
        """How many times as fast they are as one core, with what bounds both; "" where that is not known."""
        one = self.one_core
        if one is None:
            return ""
        return (
            f"one core takes {one.latency_us:.2f} us, bound by {one.bound}; {self.count} cores are "
            f"{self.times_one_core:.2f} times as fast, bound by {self.slowest.summary.bound}"
        )

    def described(self) -> tuple[str, ...]:
        """What each does and how much faster they are than one, a line each."""
        lines = [one.described() for one in self.cores]
        return (*lines, *filter(None, [self.speed_up()]))

    def rows(self) -> list[tuple[str, ...]]:
        """A table of what each does, under `HEADINGS`; the last row is of all together."""
        rows = [
            (one.name, one.estimate.latency_us, one.estimate.summary.bound,
             *(one.estimate.summary[metric] for metric in METRICS))
            for one in self.cores
        ]  # fmt: skip
        total = (*map(self.total, METRICS[:2]), self.mfu_percent)
        rows.append((f"all {self.count}", self.slowest.latency_us, "", *total))
        return [
            (name, duration(us * 1000), bound, *(quantity(n, "bytes") for n in moved), f"{mfu:.2f} %")
            for name, us, bound, *moved, mfu in rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything but single events, ready for JSON."""
        one = self.one_core
        return {
            "cores": [cores.to_dict() for cores in self.cores],
            "shown": self.shown,
            "hbm_read_bytes": self.total("hbm_read_bytes"),
            "hbm_write_bytes": self.total("hbm_write_bytes"),
            "mfu_estimated_percent": self.mfu_percent,
            "one_core": None if one is None else {"latency_us": one.latency_us, "bound": one.bound},
            "times_one_core": self.times_one_core,
        }
