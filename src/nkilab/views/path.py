"""The critical path: for every moment, what the kernel would have had to do sooner to be done sooner.

The walk begins at the last result and goes back: from a start to what it waited for, from there to what that
waited for, and so on to the launch. Its pieces follow each other without gap or overlap: their durations add
up to the latency.
"""

from __future__ import annotations

from operator import methodcaller

import numpy as np
from msgspec import Struct

from ..machine import Machine
from ..place.slots import DMA
from ..timing.timeline import REASONS, Timeline
from .nodes import Nodes, nodes_of

KINDS = {
    "launch": "the kernel is launched",
    "execute": "an instruction occupies its engine",
    "result": "a result travels through its engine until others see it",
    "weights": "TensorE waits for weights: the multiplications are too short to hide their loading",
    "table": "ScalarE loads a function table",
    "signal": "a semaphore travels from one engine, or from a transfer, to another engine",
    "issue": "a transfer waits for a unit that issues transfers",
    "first byte": "a transfer is issued; its first byte has not moved yet",
    "moving": "a transfer moves bytes",
    "end": "the kernel ends after the last result",
}
_NUMBER = {name: number for number, name in enumerate(KINDS)}
_QUEUE = REASONS.index("queue")
# Times are sums of the same terms in another order: what differs by less than this is the same moment.
_SAME = 1e-6


class Path(Struct, frozen=True, eq=False):
    """The critical path in pieces, from the launch to the end."""

    # start_ns, end_ns: per piece; each begins where the one before it ends
    start_ns: np.ndarray
    end_ns: np.ndarray
    kind: np.ndarray  # per piece, position in `KINDS`
    event: np.ndarray  # per piece, the event that spends the time; -1 for launch and end
    row: np.ndarray  # per piece, the row of the program; -1 likewise

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def duration_ns(self) -> np.ndarray:
        """Per piece, how long it is."""
        return self.end_ns - self.start_ns

    def spent_ns(self) -> dict[str, float]:
        """Time by kind of piece, kinds without time left out."""
        sums = np.bincount(self.kind, self.duration_ns, len(KINDS))
        return {name: float(sums[number]) for name, number in _NUMBER.items() if sums[number] > 0}


def path_of(machine: Machine, timeline: Timeline, nodes: Nodes | None = None) -> Path:
    """The critical path of a run."""
    end = max(float(timeline.end_ns.max(initial=0.0)), machine["kernel_start_ns"])
    if not len(timeline):
        pieces = [(0.0, end, _NUMBER["launch"], -1)]
    else:
        pieces = _Walk(machine, timeline, nodes or nodes_of(timeline)).run()
    pieces = [p for p in pieces if p[1] > p[0]]
    if timeline.latency_ns > end:
        pieces.append((end, timeline.latency_ns, _NUMBER["end"], -1))
    start, stop, kind, event = (
        (np.array(c) for c in zip(*pieces, strict=True)) if pieces else [np.zeros(0)] * 4
    )
    event = event.astype(np.int64)
    row = np.where(event >= 0, timeline.row[event], -1) if len(timeline) else event
    return Path(start, stop, kind.astype(np.int8), event, row)


class _Walk:
    """The walk back; `at` is the moment that is to be explained next."""

    def __init__(self, machine: Machine, timeline: Timeline, nodes: Nodes) -> None:
        self._pieces: list[tuple[float, float, int, int]] = []
        self._signal = machine["semaphore_ns"]
        own = nodes.event
        lists = methodcaller("tolist")
        self._event, self._engine = lists(own), lists(nodes.engine)
        self._start, self._free, self._weights = map(lists, (nodes.start, nodes.free, nodes.weights))
        self._table = lists(nodes.table)
        self._reason, self._waited = lists(timeline.reason[own]), lists(timeline.waited_node[own])
        self._ready, self._ready_node = lists(timeline.ready_ns[own]), lists(timeline.ready_node[own])
        self._issued, self._issuer = lists(timeline.issued_ns[own]), lists(timeline.issuer_node[own])
        self._before = lists(_node_before(nodes))
        self._node = int(timeline.node[int(np.argmax(timeline.end_ns))])
        self._at = float(timeline.end_ns.max())

    def run(self) -> list[tuple[float, float, int, int]]:
        """The pieces in order of time."""
        while self._node >= 0:
            if self._engine[self._node] == DMA:
                self._transfer()
            else:
                self._instruction()
        self._take("launch", 0.0, -1)
        return self._pieces[::-1]

    def _take(self, kind: str, since: float, event: int) -> None:
        """Explain the time from `since` on."""
        if since < self._at - _SAME:
            self._pieces.append((since, self._at, _NUMBER[kind], event))
            self._at = since
        elif since < self._at:
            self._move_last_start(since)

    def _move_last_start(self, since: float) -> None:
        """Let the earliest piece begin a rounding error earlier."""
        if self._pieces:
            _, end, kind, event = self._pieces[-1]
            self._pieces[-1] = (since, end, kind, event)
        self._at = since

    def _instruction(self) -> None:
        node = self._node
        event = self._event[node]
        begin = self._start[node]
        self._take("result", self._free[node], event)
        self._take("execute", begin + self._table[node], event)
        self._take("table", begin, event)
        if REASONS[self._reason[node]] in ("order", "port"):
            self._node = self._waited[node]
            return
        self._take("weights", self._weights[node], event)
        if self._at > self._ready[node] + _SAME and self._before[node] >= 0:
            # the weights waited for the shadow registers, which the multiplication before holds
            self._node = self._before[node]
            return
        self._wait(node)

    def _transfer(self) -> None:
        node = self._node
        self._take("moving", self._start[node], self._event[node])
        if self._reason[node] == _QUEUE:
            self._node = self._waited[node]
            return
        self._take("first byte", self._issued[node], self._event[node])
        while self._issuer[node] >= 0:
            node = self._issuer[node]
            self._take("issue", self._issued[node], self._event[node])
        self._wait(node)

    def _wait(self, node: int) -> None:
        """Go from the moment a node was ready to what it waited for."""
        waited = self._ready_node[node]
        self._node = waited
        if waited < 0:
            return
        if self._engine[waited] == DMA or self._engine[waited] != self._engine[node]:
            self._take("signal", self._ready[node] - self._signal, self._event[node])


def _node_before(nodes: Nodes) -> np.ndarray:
    """Per node the one that its engine started before it; -1 for none."""
    order = np.lexsort((nodes.start, nodes.engine))
    before = np.full(len(nodes), -1)
    same = nodes.engine[order][1:] == nodes.engine[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before
