"""What limits a kernel: the rule, and the walk back along what waited for what."""

from __future__ import annotations

import numpy as np

from ..machine import Machine
from ..place.slots import ENGINES
from ..timing.timeline import Timeline

# The share of the time between first and last event that a resource must be occupied to be called the bound.
# The performance guide calls an engine that is active 90 % of the time the bound; filling and emptying the
# pipeline of a short kernel takes its part of that.
_BOUND_SHARE = 0.8

BOUNDS = {
    "tensor engine": "TensorE is occupied at least 80 % of the time between first and last event",
    "vector engine": "VectorE is occupied at least 80 % of the time between first and last event",
    "scalar engine": "ScalarE is occupied at least 80 % of the time between first and last event",
    "gpsimd engine": "GpSimdE is occupied at least 80 % of the time between first and last event",
    "sync engine": "SyncE is occupied at least 80 % of the time between first and last event",
    "DMA bandwidth": "the DMA engines spend at least 80 % of that time moving bytes",
    "DMA issue": "the units that issue transfers are occupied at least 80 % of that time",
    "DMA latency": "no resource is; on the longest chain of waits, transfers take more than half of the time",
    "dependence": "no resource is; on the longest chain of waits, engines take at least half of the time",
    "nothing": "the program has no instructions",
}


def occupancies(machine: Machine, timeline: Timeline) -> dict[str, float]:
    """The share of the time between first and last event that each resource is occupied."""
    if not len(timeline):
        return {}
    span = float(timeline.end_ns.max() - machine["kernel_start_ns"]) or 1.0
    result = {
        f"{engine} engine": float(timeline.busy_ns[timeline.of_engine(engine)].sum()) / span
        for engine in ENGINES[:-1]
    }
    result["DMA bandwidth"] = timeline.active_ns("dma") / span
    result["DMA issue"] = timeline.issue_ns / machine["dma_issuing_units"] / span
    return result


def bound_of(machine: Machine, timeline: Timeline, lane_share: float) -> str:
    """The bound, a key of `BOUNDS`.

    Args:
        machine: the chip.
        timeline: of the run.
        lane_share: how many of the DMA engines move bytes, on average while one does, from 0 to 1.
    """
    shares = occupancies(machine, timeline)
    if not shares:
        return "nothing"
    shares["DMA bandwidth"] *= lane_share
    name, most = max(shares.items(), key=lambda item: item[1])
    if most >= _BOUND_SHARE:
        return name
    chain = critical_path(timeline)
    spent = _time_on(timeline, chain)
    return "DMA latency" if spent["dma"] > sum(spent.values()) / 2 else "dependence"


def critical_path(timeline: Timeline) -> np.ndarray:
    """Positions of the events that the end waited for, last one first, each waiting for the next."""
    if not len(timeline):
        return np.zeros(0, np.int64)
    last_event = np.full(int(timeline.node.max()) + 1, -1, np.int64)
    order = np.argsort(timeline.end_ns, kind="stable")
    last_event[timeline.node[order]] = order
    waited = timeline.waited_node.tolist()
    event = int(np.argmax(timeline.end_ns))
    chain = [event]
    while waited[event] >= 0:
        event = int(last_event[waited[event]])
        chain.append(event)
    return np.array(chain, np.int64)


def _time_on(timeline: Timeline, chain: np.ndarray) -> dict[str, float]:
    """Time along a chain by who spent it: transfers (their latency included) or engines."""
    since = np.append(timeline.end_ns[chain[1:]], timeline.ready_ns[chain[-1:]])
    spent = np.maximum(timeline.end_ns[chain] - since, 0.0)
    is_dma = timeline.engine[chain] == ENGINES.index("dma")
    return {"dma": float(spent[is_dma].sum()), "engines": float(spent[~is_dma].sum())}
