"""Which of several points to take: of those that the model cannot tell apart the one that asks least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..estimates import Estimate

# Latencies that lie so close are one to the model: what a measured time is off by when it is measured again,
# and within which pairs of a grid count as equal.
TIED = 0.02


@dataclass(frozen=True, order=True)
class Demand:
    """What a point asks of memory; less is more robust, and what stands first decides first.

    Args:
        spilled_bytes: saved to HBM and loaded again, because SBUF does not hold everything.
        transfers: of DMA: fewer of them are larger blocks, and depend less on what a transfer costs to start.
        dma_bytes: that they move.
        sbuf_bytes: the most per partition in use at once.
    """

    spilled_bytes: int
    transfers: int
    dma_bytes: int
    sbuf_bytes: int


def demand_of(estimates: Sequence[Estimate]) -> Demand:
    """What kernels that run one after another ask of memory."""
    summaries = [estimate.summary for estimate in estimates]
    return Demand(
        sum(_spilled(estimate) for estimate in estimates),
        int(sum(s["dma_transfer_count"] for s in summaries)),
        int(sum(s["dma_transfer_total_bytes"] for s in summaries)),
        int(max(s["sbuf_peak_bytes"] for s in summaries)),
    )


def _spilled(estimate: Estimate) -> int:
    summary = estimate.summary
    spills = summary["spill_save_bytes"] + summary["spill_reload_bytes"]
    return int(spills + estimate.plan.loaded_again_bytes)


def robust(latencies: Sequence[float], demands: Sequence[Demand]) -> int:
    """The place of the point to take.

    Args:
        latencies: predicted, at least one.
        demands: of the same points.

    Returns:
        Of the points within `TIED` of the fastest the one with the least demand; of equals the fastest.
    """
    reach = min(latencies) * (1 + TIED)
    tied = [i for i, latency in enumerate(latencies) if latency <= reach]
    return min(tied, key=lambda i: (demands[i], latencies[i], i))
