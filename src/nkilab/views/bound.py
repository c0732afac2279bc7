"""What limits a kernel: the rule."""

from __future__ import annotations

import numpy as np

from ..machine import Machine
from ..place.slots import ENGINES
from ..timing.timeline import Timeline
from ..timing.work import QUEUES
from .path import KINDS, Path, path_of

# The share of the time between first and last event that a resource must be occupied to be called the bound.
# The performance guide calls an engine that is active 90 % of the time the bound; filling and emptying the
# pipeline of a short kernel takes its part of that.
_BOUND_SHARE = 0.8

_WAITING = "nothing is busy 80 % of the time; instructions and transfers wait for each other, mostly for"
BOUNDS = {
    "tensor engine": "TensorE is occupied at least 80 % of the time between first and last event",
    "vector engine": "VectorE is occupied at least 80 % of the time between first and last event",
    "scalar engine": "ScalarE is occupied at least 80 % of the time between first and last event",
    "gpsimd engine": "GpSimdE is occupied at least 80 % of the time between first and last event",
    "sync engine": "SyncE is occupied at least 80 % of the time between first and last event",
    "DMA bandwidth": "DMA engines move bytes at least 80 % of the time from first to last event",
    "HBM bandwidth": "the HBM stack moves at least 80 % of what it can from first to last event",
    "DMA issue": "transfers wait for the units that issue them, which are occupied at least 80 % of the time "
    "from first to last event or take most of a critical path of transfers",
    "collectives": "ranks exchange bytes at least 80 % of the time from first to last event or for most of "
    "the critical path",
    "DMA latency": f"{_WAITING} transfers",
    "dependence": f"{_WAITING} engines",
    "nothing": "the program has no instructions",
}

# Bounds that are about transfers, whose constants are less certain than those of engines.
_OF_TRANSFERS = ("DMA bandwidth", "HBM bandwidth", "DMA issue", "collectives", "DMA latency")


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
    exchanges = is_collective(timeline)
    if exchanges.any():
        own = covered(timeline.start_ns[exchanges], timeline.end_ns[exchanges])
        result["collectives"] = own / span
    return result


def is_collective(timeline: Timeline) -> np.ndarray:
    """Per event whether it is a transfer of a collective."""
    return (timeline.queue >= 0) & (timeline.queue % len(QUEUES) == QUEUES.index("collective"))


def covered(start: np.ndarray, end: np.ndarray) -> float:
    """The length of the union of intervals that ascend by their start."""
    if not len(start):
        return 0.0
    reached = np.maximum.accumulate(end)
    since = np.maximum(start, np.append(start[:1], reached[:-1]))
    return float(np.maximum(end - since, 0.0).sum())


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
    path = path_of(machine, timeline)
    exchanges = _exchange_ns(path, timeline)
    spent = path.spent_ns()
    issue = spent.get("issue", 0.0)
    moving = spent.get("first byte", 0.0) + spent.get("moving", 0.0) - exchanges
    engines = sum(spent.get(kind, 0.0) for kind in ("execute", "result", "weights", "table"))
    if exchanges > max(issue + moving, engines):
        return "collectives"
    if engines >= issue + moving:
        return "dependence"
    return "DMA issue" if issue > moving else "DMA latency"


def _exchange_ns(path: Path, timeline: Timeline) -> float:
    """Time of the critical path that collectives spend."""
    own = (path.event >= 0) & (path.kind != list(KINDS).index("signal"))
    return float(path.duration_ns[own][is_collective(timeline)[path.event[own]]].sum())
