"""What transfers move: bytes, sizes of their descriptors, bandwidth over time."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ..place.slots import DMA
from ..timing.timeline import Timeline
from ..timing.work import QUEUES, Work
from .nodes import TABLE_LOAD

# Descriptor sizes are counted by powers of two.
_SMALLEST = 2


class Traffic(Struct, frozen=True, eq=False):
    """Transfers in order of start."""

    event: np.ndarray  # of each
    # start_ns, end_ns: from first to last byte
    start_ns: np.ndarray
    end_ns: np.ndarray
    kind: np.ndarray  # per transfer, position in `timing.work.QUEUES`
    total_bytes: np.ndarray  # per transfer
    hbm_bytes: np.ndarray  # per transfer, bytes that cross the HBM interface
    descriptors: np.ndarray  # per transfer, how many runs of contiguous bytes it has
    descriptor_bytes: np.ndarray  # per transfer, the length of such a run

    def __len__(self) -> int:
        return len(self.event)

    def sizes(self) -> list[tuple[int, int, int]]:
        """Per power of two: descriptors of at least that size and less than twice it, and their bytes."""
        if not len(self):
            return []
        power = np.floor(np.log2(np.maximum(self.descriptor_bytes, 1))).astype(np.int64)
        counts = np.bincount(power, self.descriptors)
        moved = np.bincount(power, self.total_bytes)
        return [(2**p, int(counts[p]), int(moved[p])) for p in np.flatnonzero(counts).tolist()]

    def bandwidth(self, edges: np.ndarray, kind: str = "") -> np.ndarray:
        """Bytes per nanosecond between neighbouring moments, of one kind of transfer or of all.

        A transfer moves its bytes evenly from its first to its last.
        """
        keep = self.kind == QUEUES.index(kind) if kind else np.ones(len(self), np.bool_)
        return mean_rate(self.start_ns[keep], self.end_ns[keep], self.total_bytes[keep], edges)


def running_rate(start: np.ndarray, end: np.ndarray, amount: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What intervals that spread an amount evenly add up to, per unit of time, from each moment on.

    Args:
        start, end: of each interval; every end lies after its start.
        amount: of each.

    Returns:
        The moments, ascending, and the rate from each to the next.
    """
    rate = amount / (end - start)
    moments = np.concatenate([start, end])
    order = np.argsort(moments, kind="stable")
    return moments[order], np.cumsum(np.concatenate([rate, -rate])[order])


def mean_rate(start: np.ndarray, end: np.ndarray, amount: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """What intervals that spread an amount evenly add up to, per unit of time, between neighbouring edges."""
    lasts = end > start
    start, end, amount = start[lasts], end[lasts], amount[lasts].astype(np.float64)
    if not len(amount):
        return np.zeros(len(edges) - 1)
    moment, running = running_rate(start, end, amount)
    # the integral of the running rate, at every moment and then at the edges
    reached = np.concatenate([[0.0], np.cumsum(running[:-1] * np.diff(moment))])
    at_edges = np.interp(edges, moment, reached)
    spans = np.diff(edges)
    return np.maximum(np.diff(at_edges), 0.0) / np.where(spans > 0, spans, 1.0)


def traffic_of(timeline: Timeline, work: Work) -> Traffic:
    """The transfers of a timeline."""
    here = timeline.of_engine("dma")
    share = work.share[timeline.node[here]]
    place = _place_in_node(timeline, here)
    counts = np.array([len(s.steps) for s in work.shares], np.int64)
    first = (np.cumsum(counts) - counts)[share] + place
    steps = [step for s in work.shares for step in s.steps]
    descriptors = np.array([s.descriptors for s in steps], np.int64)[first] if len(here) else first
    sizes = np.array([s.descriptor_bytes for s in steps], np.int64)[first] if len(here) else first
    total = np.array([s.moved_bytes for s in steps], np.int64)[first] if len(here) else first
    whole = np.array([s.total_bytes for s in work.shares], np.float64)[share]
    crossing = np.array([s.hbm_bytes for s in work.shares], np.float64)[share]
    return Traffic(
        here,
        timeline.start_ns[here],
        timeline.end_ns[here],
        timeline.queue[here].astype(np.int64) % len(QUEUES),
        total,
        np.rint(total * crossing / np.maximum(whole, 1)).astype(np.int64),
        descriptors,
        sizes,
    )


def _place_in_node(timeline: Timeline, here: np.ndarray) -> np.ndarray:
    """Per event which of its node's events it is."""
    assert timeline.engine[here].min(initial=DMA) == DMA
    assert TABLE_LOAD not in {timeline.labels[n] for n in set(timeline.label[here].tolist())}
    order = np.argsort(timeline.node[here], kind="stable")
    begins = np.flatnonzero(np.diff(timeline.node[here][order], prepend=-1))
    sizes = np.diff(np.append(begins, len(order)))
    place = np.zeros(len(here), np.int64)
    place[order] = np.arange(len(order)) - np.repeat(begins, sizes)
    return place
