"""Why engines stand still: every gap between instructions, by what the next one waited for."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ..place.slots import DMA, ENGINES
from ..timing.timeline import REASONS, Timeline
from .nodes import Nodes

STALLS = {
    "dma": "data that a transfer brings, or space that it empties",
    "tensor": "a result of TensorE",
    "vector": "a result of VectorE",
    "scalar": "a result of ScalarE",
    "gpsimd": "a result of GpSimdE",
    "sync": "a result of SyncE",
    "buffer": "the last access of the tile that held its bytes before",
    "spill": "a spill or reload",
    "port": "a port of a memory that another engine held",
    "issue": "a unit that issues transfers",
    "first byte": "the first byte of a transfer, after its issue",
    "start": "nothing: the launch of the kernel",
    "end": "nothing: no more work for it",
}
_BY_REASON = {"none": "start", "dma": "dma", "reuse": "buffer", "spill": "spill"}


class Stall(Struct, frozen=True):
    """What one engine lost to one reason."""

    engine: str  # of `ENGINES`
    reason: str  # a key of `STALLS`
    time_ns: float  # in all
    count: int  # gaps
    longest_ns: float  # the longest of them
    event: int  # the event that ended the longest one; -1 for the time after the last one


class Stalls(Struct, frozen=True, eq=False):
    """Where the time of each engine went, from launch to end: busy and stalled time are the latency."""

    # per engine that does anything, how long it is occupied, with weights that it waits to have loaded; of
    # "dma" how long bytes move
    busy_ns: dict[str, float]
    stalls: tuple[Stall, ...]  # by engine, the longest first
    before_ns: np.ndarray  # per event, how long its engine stood still before it

    def of(self, engine: str) -> dict[str, float]:
        """Time by reason of one engine."""
        return {s.reason: s.time_ns for s in self.stalls if s.engine == engine}


_NUMBER = {name: number for number, name in enumerate(STALLS)}


def stalls_of(timeline: Timeline, nodes: Nodes, launch_ns: float) -> Stalls:
    """Attribute every gap of every engine that does anything; until `launch_ns` none can begin."""
    why = _readiness(timeline, nodes)
    ready, issued = timeline.ready_ns[nodes.event], timeline.issued_ns[nodes.event]
    busy: dict[str, float] = {}
    stalls: list[Stall] = []
    before, weights = np.zeros(len(timeline)), np.bincount(timeline.node, timeline.weights_ns(), len(nodes))
    for number, engine in enumerate(ENGINES):
        here = np.flatnonzero(nodes.engine == number)
        if not len(here):
            continue
        here = here[np.argsort(nodes.start[here], kind="stable")]
        reached = np.maximum.accumulate(np.append(0.0, nodes.free[here]))
        since, until = reached[:-1], nodes.start[here] - weights[here]
        gap = np.maximum(until - since, 0.0)
        waiting = np.clip(ready[here] - since, 0.0, gap)
        launch = np.clip(launch_ns - since, 0.0, waiting)
        parts = [(launch, np.full(len(here), _NUMBER["start"])), (waiting - launch, why[here])]
        parts += _rest(number, since, until, waiting, issued[here])
        before[nodes.event[here]] = gap
        tail = timeline.latency_ns - float(reached[-1])
        busy[engine] = timeline.latency_ns - float(gap.sum()) - tail
        stalls += _summed(engine, nodes.event[here], parts)
        if tail > 0:
            stalls.append(Stall(engine, "end", tail, 1, tail, -1))
    return Stalls(busy, tuple(stalls), before)


def _readiness(timeline: Timeline, nodes: Nodes) -> np.ndarray:
    """Per node the reason, a position in `STALLS`, why it was not ready earlier."""
    own = nodes.event
    waited = timeline.ready_node[own]
    by_engine = np.array([_NUMBER[e] for e in ENGINES])
    by_reason = np.array([_NUMBER.get(_BY_REASON.get(r, ""), -1) for r in REASONS])
    reason = by_reason[timeline.ready_reason[own]]
    return np.where(reason >= 0, reason, by_engine[nodes.engine[waited]]) if len(own) else reason


def _rest(
    engine: int, since: np.ndarray, until: np.ndarray, waiting: np.ndarray, issued: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """What remains of gaps once the next one was ready: lengths and reasons."""
    rest = np.maximum(until - since, 0.0) - waiting
    if engine != DMA:
        return [(rest, np.full(len(rest), _NUMBER["port"]))]
    first_byte = np.clip(until - np.maximum(issued, since), 0.0, rest)
    return [
        (first_byte, np.full(len(rest), _NUMBER["first byte"])),
        (rest - first_byte, np.full(len(rest), _NUMBER["issue"])),
    ]


def _summed(engine: str, event: np.ndarray, parts: list[tuple[np.ndarray, np.ndarray]]) -> list[Stall]:
    """Gaps of one engine by reason, the longest sum first."""
    stalls = []
    for reason, number in _NUMBER.items():
        lengths = sum((np.where(why == number, length, 0.0) for length, why in parts), np.zeros(len(event)))
        # a rounding error of sums of times is no gap
        count = int(np.count_nonzero(lengths > 1e-6))
        if count:
            longest = int(np.argmax(lengths))
            total, most = float(lengths.sum()), float(lengths[longest])
            stalls.append(Stall(engine, reason, total, count, most, int(event[longest])))
    return sorted(stalls, key=lambda s: -s.time_ns)
