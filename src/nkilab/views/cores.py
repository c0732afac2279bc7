"""What the cores of a launch do in one time: a line and a dictionary for those that do the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

METRICS = ("hbm_read_bytes", "hbm_write_bytes", "mfu_estimated_percent")


@dataclass(frozen=True)
class Cores:
    """Programs of a launch that do the same at the same time.

    Args:
        titles: what messages call them: "program 0", "rank 3".
        estimate: of one of them, in the time of all.
    """

    titles: tuple[str, ...]
    estimate: Any = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Their time, bytes and use, ready for JSON; bytes and FLOPs are of one of them."""
        one, summary = self.estimate, self.estimate.summary
        return {
            "programs": list(self.titles),
            "latency_us": one.latency_us,
            "bound": summary.bound,
            **{name: summary[name] for name in METRICS},
        }

    def told(self) -> str:
        """What they do, in a line."""
        first, last, summary = self.titles[0], self.titles[-1], self.estimate.summary
        names = first if first == last else f"{first} to {last} ({len(self.titles)} programs)"
        read, written, mfu = (summary[name] for name in METRICS)
        each = "" if first == last else " each"
        return (
            f"{names}: {self.estimate.latency_us:.2f} us; {read:.0f} bytes read from HBM and {written:.0f} "
            f"written{each}; MFU {mfu:.2f} %"
        )
