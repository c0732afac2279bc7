"""What is ordered in a launch, by the table of dependences, and which pairs of accesses are left open."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..place.slots import DMA, ENGINES
from ..place.walk import KINDS
from .conflicts import SEMAPHORE, Conflicts, Pair, Touch
from .evidence import Evidence
from .order import NOBODY, Order

ENGINE, QUEUE = "engine order", "queue order"


class Graph:
    """What is ordered in a launch, and the pairs that are not."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.tracks = evidence.tracks
        self.sequence = _sequence(evidence)
        self.conflicts = Conflicts(evidence, self.sequence)
        self.base = self.conflicts.base
        self.open: list[Pair] = []
        self._tensor_edges = [self._through_one(*columns) for columns in self.conflicts.through_one()]
        special: list[tuple[int, int]] = []
        for pair in self.conflicts.pairs():
            kind = self._governing(pair)
            if evidence.orders(kind):
                special.append((pair.later, pair.earlier))
            else:
                self.open.append(pair._replace(kind=kind))
        self._tensor_edges.append(np.array(special, np.int64).reshape(-1, 2))

    def _through_one(self, later: np.ndarray, earlier: np.ndarray, kind: np.ndarray) -> np.ndarray:
        """The edges [n, 2] among pairs of rows that share memory; what the table leaves open is kept."""
        orders = np.array([self.evidence.orders(name) for name in KINDS], np.bool_)
        ordered = orders[kind]
        if not self.evidence.orders(SEMAPHORE):
            ordered &= self._engines[earlier] != DMA
        for edge in np.flatnonzero(~ordered).tolist():
            number = self.track_of(int(later[edge]))
            name = KINDS[kind[edge]] if not orders[kind[edge]] else SEMAPHORE
            nobody = Touch(number, -1)
            self.open.append(Pair(name, nobody, nobody, int(earlier[edge]), int(later[edge])))
        return np.column_stack([later[ordered], earlier[ordered]])

    @cached_property
    def _engines(self) -> np.ndarray:
        return np.concatenate([track.slots.engine for track in self.tracks])

    def _governing(self, pair: Pair) -> str:
        """The row of the table that decides: its own, or that of the signal of a transfer."""
        own = pair.kind
        if self.evidence.orders(own) and self.engine_of(pair.earlier) == DMA:
            return own if self.evidence.orders(SEMAPHORE) else SEMAPHORE
        return own

    def track_of(self, node: int) -> int:
        """The program of a node."""
        return int(np.searchsorted(self.base, node, "right")) - 1

    def engine_of(self, node: int) -> int:
        """The engine of a node."""
        return int(self._engines[node])

    @cached_property
    def edges(self) -> np.ndarray:
        """(later, earlier) of all orders but streams, [n, 2]: through tensors, and as the kernel asks."""
        asked: list[tuple[int, int]] = []
        for number, track in enumerate(self.tracks):
            base = int(self.base[number])
            asked += [(base + c, base + p) for c, p in track.marks.edges if p < c]
            for first, end in track.marks.blocks:
                asked += [(base + row, base + row - 1) for row in range(first + 1, end)]
        return np.concatenate([*self._tensor_edges, np.array(asked, np.int64).reshape(-1, 2)])

    @cached_property
    def joins(self) -> list[tuple[int, int]]:
        """Rows at which programs meet."""
        return [
            (int(self.base[0]) + m.rows[0], int(self.base[1]) + m.rows[1]) for m in self.evidence.rendezvous
        ]

    @cached_property
    def order(self) -> Order:
        """What is before what."""
        return self._order(self.streams)

    @cached_property
    def order_of_scheduler(self) -> Order:
        """The same without streams: what the compiler must keep when it lays the streams out."""
        return self._order(np.full(int(self.base[-1]), NOBODY))

    def _order(self, stream: np.ndarray) -> Order:
        pairs = self.edges
        return Order(int(self.base[-1]), pairs[:, 0], pairs[:, 1], stream, self.sequence, self.joins)

    @cached_property
    def streams(self) -> np.ndarray:
        """Per node the stream that runs in order: an engine's, or a queue's."""
        streams_of = np.full(int(self.base[-1]), NOBODY)
        width = len(ENGINES) + 3
        for number, track in enumerate(self.tracks):
            engine = track.slots.engine
            stream = np.full(len(engine), NOBODY)
            if self.evidence.orders(ENGINE):
                stream[engine != DMA] = engine[engine != DMA] + number * width
            if self.evidence.orders(QUEUE):
                rows = np.flatnonzero(engine == DMA)
                queues = track.queue_of_form[track.program.form_column[rows]]
                stream[rows] = queues + len(ENGINES) + number * width
            streams_of[self.base[number] : self.base[number + 1]] = stream
        return streams_of


def _sequence(evidence: Evidence) -> np.ndarray:
    """All rows in an order that rendezvous allow: each program up to a rendezvous, then the next."""
    if len(evidence.tracks) == 1:
        return np.arange(len(evidence.tracks[0].program))
    sizes = [len(track.program) for track in evidence.tracks]
    base = np.concatenate([[0], np.cumsum(sizes)])
    parts: list[np.ndarray] = []
    done = [0] * len(sizes)
    for rows in [*(m.rows for m in evidence.rendezvous), tuple(n - 1 for n in sizes)]:
        for number, row in enumerate(rows):
            parts.append(base[number] + np.arange(done[number], row + 1))
            done[number] = max(done[number], row + 1)
    return np.concatenate(parts)
