"""What limits a kernel: the rule."""

from __future__ import annotations

from ..machine import Machine
from ..place.slots import ENGINES
from ..timing.timeline import Timeline
from .path import path_of

# The share of the time between first and last event that a resource must be occupied to be called the bound.
# The performance guide calls an engine that is active 90 % of the time the bound; filling and emptying the
# pipeline of a short kernel takes its part of that.
_BOUND_SHARE = 0.8

_UNOCCUPIED = "no resource is occupied 80 % of the time; on the critical path,"
BOUNDS = {
    "tensor engine": "TensorE is occupied at least 80 % of the time between first and last event",
    "vector engine": "VectorE is occupied at least 80 % of the time between first and last event",
    "scalar engine": "ScalarE is occupied at least 80 % of the time between first and last event",
    "gpsimd engine": "GpSimdE is occupied at least 80 % of the time between first and last event",
    "sync engine": "SyncE is occupied at least 80 % of the time between first and last event",
    "DMA bandwidth": "the DMA engines spend at least 80 % of that time moving bytes",
    "HBM bandwidth": "the HBM stack gives and takes at least 80 % of what it can in that time",
    "DMA issue": "the units that issue transfers are occupied at least 80 % of that time",
    "DMA latency": f"{_UNOCCUPIED} transfers take more time than engines",
    "dependence": f"{_UNOCCUPIED} engines take at least as much time as transfers",
    "nothing": "the program has no instructions",
}

# Bounds that are about transfers, whose constants are less certain than those of engines.
_OF_TRANSFERS = ("DMA bandwidth", "HBM bandwidth", "DMA issue", "DMA latency")


def is_of_transfers(bound: str) -> bool:
    """Whether a bound is about transfers."""
    return bound in _OF_TRANSFERS


def occupancies(
    machine: Machine, timeline: Timeline, hbm_bytes: float, lane_share: float
) -> dict[str, float]:
    """The share of the time between first and last event that each resource is occupied.

    Args:
        machine: the chip.
        timeline: of the run.
        hbm_bytes: what its stack of HBM gives and takes, for all cores that share it.
        lane_share: how many of the DMA engines move bytes, on average while one does, from 0 to 1.
    """
    if not len(timeline):
        return {}
    span = float(timeline.end_ns.max() - machine["kernel_start_ns"]) or 1.0
    result = {f"{engine} engine": timeline.occupied_ns(engine) / span for engine in ENGINES[:-1]}
    result["DMA bandwidth"] = lane_share * timeline.active_ns("dma") / span
    result["HBM bandwidth"] = hbm_bytes / machine["hbm_stack_bytes_per_ns"] / span
    result["DMA issue"] = timeline.issue_ns / machine["dma_issuing_units"] / span
    return result


def bound_of(machine: Machine, timeline: Timeline, shares: dict[str, float]) -> str:
    """The bound, a key of `BOUNDS`.

    Args:
        machine, timeline: of the run.
        shares: what `occupancies` says of it.
    """
    if not shares:
        return "nothing"
    name, most = max(shares.items(), key=lambda item: item[1])
    if most >= _BOUND_SHARE:
        return name
    spent = path_of(machine, timeline).spent_ns()
    transfers = sum(spent.get(kind, 0.0) for kind in ("issue", "first byte", "moving"))
    engines = sum(spent.get(kind, 0.0) for kind in ("execute", "result", "weights", "table"))
    return "DMA latency" if transfers > engines else "dependence"
