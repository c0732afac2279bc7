"""Happens-before: which rows are over before others begin, whatever the timing.

Rows are nodes of a graph; its edges are waits that the vendor's framework inserts, orders that the kernel
asks for, and streams that run in order: engines and DMA queues. Every node has a clock, per stream the number
of its rows that are over before the node begins, so that one comparison answers whether one row is before
another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..place.slots import distinct
from ..records import AT_ONCE, Job, numbers

NOBODY = -1


class Order:
    """The order of some nodes.

    Args:
        count: of nodes.
        later, earlier: edges, each from a node to one that it waits for.
        stream: per node the in-order stream that it is of; -1 for none.
        sequence: all nodes, each after those that it waits for.
        joins: pairs of nodes that wait for each other.
    """

    def __init__(
        self, count: int, later: np.ndarray, earlier: np.ndarray, stream: np.ndarray,
        sequence: np.ndarray | None = None, joins: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        self._count = count
        order = np.argsort(later, kind="stable")
        self._earlier = np.asarray(earlier, np.int64)[order]
        self._start = np.searchsorted(np.asarray(later)[order], np.arange(count + 1))
        self._stream = np.asarray(stream, np.int64)
        self._sequence = np.arange(count) if sequence is None else sequence
        self._partner = np.full(count, NOBODY)
        for one, other in joins:
            self._partner[one], self._partner[other] = other, one
        self._previous, self._place = _streams(self._stream, self._sequence)
        self._clocks: np.ndarray | None = None

    def is_before(self, first: int, second: int) -> bool:
        """Whether `first` is over before `second` begins."""
        if self._stream[first] == NOBODY:
            return first in self.before(second)
        if self._clocks is None:
            self._clocks = self._ticked()
        return bool(self._clocks[second, self._stream[first]] >= self._place[first])

    def before(self, node: int) -> set[int]:
        """All nodes that are over before `node` begins, by going back along the edges."""
        seen: set[int] = set()
        todo = list(self._waits(node))
        while todo:
            other = todo.pop()
            if other not in seen:
                seen.add(other)
                todo.extend(self._waits(other))
        seen.discard(node)
        return seen

    def _waits(self, node: int) -> list[int]:
        own = self._earlier[self._start[node] : self._start[node + 1]].tolist()
        if self._previous[node] != NOBODY:
            own.append(int(self._previous[node]))
        partner = int(self._partner[node])
        if partner != NOBODY:
            # they go on together: what the partner waited for is over, and the partner has come
            own.append(partner)
        return own

    def _ticked(self) -> np.ndarray:
        """Per node and stream, how many rows of the stream are over before it."""
        streams = int(self._stream.max(initial=0)) + 1
        run, as_array = _JOB.chosen(self._count * 4)
        columns: list[Any] = [
            self._sequence, self._start, self._earlier, self._stream, self._previous, self._place,
            self._partner, np.zeros(self._count * streams, np.int64),
        ]  # fmt: skip
        tables = [numbers(column, as_array=as_array) for column in columns]
        for begin in range(0, len(self._sequence), AT_ONCE):
            run(begin, *tables)
        clocks = np.array(tables[-1], np.int64).reshape(self._count, streams)
        own = np.flatnonzero(self._stream >= 0)
        # a node is not before itself
        clocks[own, self._stream[own]] = self._place[own] - 1
        return clocks


def _streams(stream: np.ndarray, sequence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per node the one before it in its stream, and its place there, from 1."""
    previous = np.full(len(stream), NOBODY)
    place = np.zeros(len(stream), np.int64)
    for own in distinct(stream[stream >= 0]):
        nodes = sequence[stream[sequence] == own]
        previous[nodes[1:]] = nodes[:-1]
        place[nodes] = np.arange(1, len(nodes) + 1)
    return previous, place


def tick(
    begin: int, sequence: Any, start: Any, earlier: Any, stream: Any, previous: Any, place: Any,
    partner: Any, clocks: Any,
) -> int:  # fmt: skip
    """Work clocks out, node by node from one on; returns how many edges were followed."""
    followed, streams = 0, len(clocks) // len(sequence)
    for number in range(begin, min(begin + AT_ONCE, len(sequence))):
        node = sequence[number]
        for edge in range(start[node], start[node + 1]):
            pull(streams, node, earlier[edge], stream, place, clocks)
            followed += 1
        if previous[node] != -1:
            pull(streams, node, previous[node], stream, place, clocks)
        other = partner[node]
        # of two that meet the second to come has both sides before it
        if other != -1 and seen(streams, other, stream, place, clocks):
            pull(streams, node, other, stream, place, clocks)
            pull(streams, other, node, stream, place, clocks)
            mark(streams, other, stream, place, clocks)
        mark(streams, node, stream, place, clocks)
    return followed


def pull(streams: int, node: int, other: int, stream: Any, place: Any, clocks: Any) -> None:
    """Let `other`, and all that is before it, be before `node`."""
    for own in range(streams):
        if clocks[other * streams + own] > clocks[node * streams + own]:
            clocks[node * streams + own] = clocks[other * streams + own]
    own = stream[other]
    if own != -1 and place[other] > clocks[node * streams + own]:
        clocks[node * streams + own] = place[other]


def mark(streams: int, node: int, stream: Any, place: Any, clocks: Any) -> None:
    """Let a node be over for those that wait for it."""
    own = stream[node]
    if own != -1 and place[node] > clocks[node * streams + own]:
        clocks[node * streams + own] = place[node]


def seen(streams: int, node: int, stream: Any, place: Any, clocks: Any) -> bool:
    """Whether the clock of a node has been worked out."""
    own = stream[node]
    return own == -1 or clocks[node * streams + own] >= place[node]


_JOB = Job(tick, "the order of rows")
