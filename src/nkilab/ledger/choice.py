"""Which of several points to take: of those that the model cannot tell apart the one that asks least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..estimates import Estimate

# Pairs of a grid whose measured times lie so close are not ranked.
TIED = 0.02
# Latencies that lie so close are one to the model. Beyond it the order of predictions is the better judge: of
# pairs of measured points predicted 0.1 to 2 % apart (model 7, grids that may be fitted to) it was right in
# 47 of 85, fewer transfers in 33.
EQUAL = 0.001


@dataclass(frozen=True, order=True)
class Demand:
    """What a point asks of memory; less is more robust, and what stands first decides first."""

    spilled_bytes: int  # saved to HBM and loaded again, because SBUF does not hold everything
    sbuf_bytes: int  # the most per partition in use at once
    transfers: int  # of DMA
    dma_bytes: int  # that they move


NOTHING = Demand(0, 0, 0, 0)


def demand_of(estimates: Sequence[Estimate]) -> Demand:
    """What kernels that run one after another ask of memory."""
    summaries = [estimate.summary for estimate in estimates]
    return Demand(
        sum(_spilled(estimate) for estimate in estimates),
        int(max(s["sbuf_peak_bytes"] for s in summaries)),
        int(sum(s["dma_transfer_count"] for s in summaries)),
        int(sum(s["dma_transfer_total_bytes"] for s in summaries)),
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
        Of the points within `EQUAL` of the fastest the one with the least demand; of equals the fastest.
    """
    reach = min(latencies) * (1 + EQUAL)
    tied = [i for i, latency in enumerate(latencies) if latency <= reach]
    return min(tied, key=lambda i: (demands[i], latencies[i], i))
