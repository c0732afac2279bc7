"""DMA in time: issuing units, queues, and 16 engines that share their time among the queues.

A transfer that is ready waits for an issuing unit (oldest first), then for its first byte, then for its turn
in its queue. The heads of the queues share the DMA engines as round-robin over short packets does: each gets
the same share of every engine, a narrow transfer no more than it can use. HBM limits all of them together.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from ..machine import Machine
from .work import QUEUES, Share

_FOREVER = float("inf")


class Transfers:
    """The transfers that are under way.

    Args:
        machine: the chip.
        shares: distinct shares.
        share: per node, the number of its share.
    """

    def __init__(self, machine: Machine, shares: tuple[Share, ...], share: list[int]) -> None:
        self.lanes = [s.lanes for s in shares]
        self.work = [s.work_ns for s in shares]
        self.hbm_rate = [s.hbm_bytes / s.work_ns if s.work_ns else 0.0 for s in shares]
        self.kind = [s.queue for s in shares]
        self.share = share
        self.engines = machine["dma_engines"]
        self.hbm_limit = machine["hbm_bytes_per_ns"]
        # whether all engines together can ask for more than HBM gives
        self.hbm_binds = max(self.hbm_rate, default=0.0) * self.engines > self.hbm_limit
        self.issue_ns = [s.issue_ns for s in shares]
        self.start_ns = machine["dma_start_ns"]
        self.units = [0.0] * machine.limit("dma_issuing_units")
        self.unit_node = [-1] * len(self.units)
        self.now = 0.0
        self.arrivals: list[tuple[float, int, int]] = []
        self.issued: deque[tuple[float, int, int]] = deque()
        queues = len(self.units) * len(QUEUES)
        self.queues: list[deque[tuple[float, int]]] = [deque() for _ in range(queues)]
        self.last_node = [-1] * queues
        self.left = [0.0] * queues
        self.wanted = [0.0] * queues
        self.head_hbm = [0.0] * queues
        self.rate = [0.0] * queues
        self.active: list[int] = []
        self.next_end = _FOREVER
        self.next_queue = -1
        # results, per node
        self.start: dict[int, float] = {}
        self.queue_of: dict[int, int] = {}
        self.held_by: dict[int, tuple[str, int]] = {}

    def add(self, ready_ns: float, order: int, node: int) -> None:
        """Let a transfer be issued from `ready_ns` on; at equal times program order decides."""
        heappush(self.arrivals, (ready_ns, order, node))

    def step(self) -> tuple[float, int] | None:
        """Go to the next event: (time, node) if a transfer ended, (time, -1) if not, None after the last."""
        arrival = self.arrivals[0][0] if self.arrivals else _FOREVER
        begin = self.issued[0][0] if self.issued else _FOREVER
        if self.next_end <= arrival and self.next_end <= begin:
            if not self.active:
                return None
            ended = self._end()
            return self.now, ended
        if begin <= arrival:
            self._begin(*self.issued.popleft())
        else:
            self._issue(*heappop(self.arrivals))
        return self.now, -1

    def _issue(self, ready: float, order: int, node: int) -> None:
        unit = self.units.index(min(self.units))
        at = ready
        if self.units[unit] > ready:
            at = self.units[unit]
            self.held_by[node] = ("issue", self.unit_node[unit])
        issue = self.issue_ns[self.share[node]]
        self.units[unit], self.unit_node[unit] = at + issue, node
        queue = unit * len(QUEUES) + self.kind[self.share[node]]
        self.queue_of[node] = queue
        # the first byte moves while later descriptors are still being made
        self.issued.append((at + self.start_ns, node, queue))

    def _begin(self, at: float, node: int, queue: int) -> None:
        if self.queues[queue]:
            self.held_by[node] = ("queue", self.queues[queue][-1][1])
        self.queues[queue].append((at, node))
        if len(self.queues[queue]) == 1:
            self._advance(at)
            self._head(queue)
            self.active.append(queue)
            self.active.sort()
            self._share_out()

    def _end(self) -> int:
        queue = self.next_queue
        self._advance(self.next_end)
        _, node = self.queues[queue].popleft()
        if self.queues[queue]:
            self._head(queue)
        else:
            self.active.remove(queue)
        self._share_out()
        return node

    def _head(self, queue: int) -> None:
        """The first transfer of `queue` begins to move bytes."""
        node = self.queues[queue][0][1]
        self.start[node] = self.now
        share = self.share[node]
        self.left[queue], self.wanted[queue] = self.work[share], self.lanes[share]
        self.head_hbm[queue] = self.hbm_rate[share]

    def _advance(self, at: float) -> None:
        passed = at - self.now
        for queue in self.active:
            self.left[queue] -= self.rate[queue] * passed
        self.now = at

    def _share_out(self) -> None:
        """Give each active queue its share of the engines, and find who ends first."""
        active, rate, wanted, free = self.active, self.rate, self.wanted, self.engines
        waiting = len(active)
        # whoever wants least is served first: what it leaves is shared by the others
        for queue in sorted(active, key=wanted.__getitem__) if waiting > 1 else active:
            rate[queue] = given = min(wanted[queue], free / waiting)
            free -= given
            waiting -= 1
        if self.hbm_binds:
            self._limit_by_hbm()
        now, left, soonest = self.now, self.left, _FOREVER
        for queue in active:
            end = now + left[queue] / rate[queue]
            if end < soonest:
                soonest, self.next_queue = end, queue
        self.next_end = max(soonest, now)

    def _limit_by_hbm(self) -> None:
        total = sum(self.rate[q] * self.head_hbm[q] for q in self.active)
        if total <= self.hbm_limit:
            return
        for queue in self.active:
            if self.head_hbm[queue]:
                self.rate[queue] *= self.hbm_limit / total
