"""What a timeline says of each node: when it began and ended, and what it waited for.

A node is what happens in time: a row, one engine's share of a row, or a transfer that planning inserted.
It is one event, or several in a row: two passes of a multiplication, weights that load before it, a table.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ..place.slots import DMA
from ..timing.timeline import Timeline

TABLE_LOAD = "ACT_TABLE_LOAD"


class Nodes(Struct, frozen=True, eq=False):
    """Columns of nodes, times in nanoseconds."""

    event: np.ndarray  # the last event of each
    # when it occupied its engine first, a function table that it loads included; of a transfer the first byte
    start: np.ndarray
    free: np.ndarray  # when its engine accepted the next one; of a transfer the last byte
    done: np.ndarray  # when its result was visible
    weights: np.ndarray  # when its weights began to load; `start` where it loads none
    table: np.ndarray  # how long it loaded a function table before it began
    # engine, row: as in the timeline
    engine: np.ndarray
    row: np.ndarray

    def __len__(self) -> int:
        return len(self.event)


def is_hidden(timeline: Timeline) -> np.ndarray:
    """Per event whether it runs beside what its engine does: weights that load."""
    return (timeline.engine != DMA) & (timeline.busy_ns == 0)


def nodes_of(timeline: Timeline) -> Nodes:
    """The nodes of a timeline, in the order of their numbers."""
    order = np.lexsort((timeline.start_ns, timeline.node))
    begins = np.flatnonzero(np.diff(timeline.node[order], prepend=-1))
    assert len(begins) == (int(timeline.node.max()) + 1 if len(timeline) else 0), "a node has no event"
    hidden = is_hidden(timeline)[order]
    start, end = timeline.start_ns[order], timeline.end_ns[order]
    busy = np.where(hidden, 0.0, timeline.busy_ns[order])
    is_table = np.array([label == TABLE_LOAD for label in timeline.labels], np.bool_)
    table = np.where(is_table[timeline.label[order]], busy, 0.0) if len(order) else busy
    shown = np.where(hidden, np.inf, start)
    first = _reduced(np.minimum, shown, begins)
    weights = np.minimum(_reduced(np.minimum, np.where(hidden, start, np.inf), begins), first)
    last = np.append(begins[1:], len(order)) - 1
    return Nodes(
        order[last].astype(np.int64) if len(begins) else begins,
        first,
        _reduced(np.maximum, np.where(hidden, -np.inf, start + busy), begins),
        _reduced(np.maximum, end, begins),
        weights,
        _reduced(np.add, table, begins),
        timeline.engine[order][begins].astype(np.int64),
        timeline.row[order][begins].astype(np.int64),
    )


def _reduced(function: np.ufunc, values: np.ndarray, begins: np.ndarray) -> np.ndarray:
    return function.reduceat(values, begins) if len(begins) else np.zeros(0)
