"""What lies in SBUF and PSUM when: stays of tiles in time, and how full the memories are."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ..place.plan import Placements, Plan
from ..timing.timeline import Timeline


class Residencies(Struct, frozen=True, eq=False):
    """Tiles, or parts of tiles, in one memory, in order of their beginning.

    A stay lasts from the start of its first access in the program to the end of its last.
    """

    storage: np.ndarray  # per stay, the tile
    # start_ns, end_ns: per stay
    start_ns: np.ndarray
    end_ns: np.ndarray
    address: np.ndarray  # per stay, first byte per partition; of the first piece, if it lies in several
    size: np.ndarray  # per stay, bytes per partition
    pieces: np.ndarray  # per stay, how many pieces it lies in

    def __len__(self) -> int:
        return len(self.storage)

    def changes(self) -> tuple[np.ndarray, np.ndarray]:
        """Moments at which the memory's content changes, ascending, and bytes per partition from then on."""
        moments = np.concatenate([self.start_ns, self.end_ns])
        sizes = np.concatenate([self.size, -self.size])
        # what ends at a moment leaves before what begins there
        order = np.lexsort((sizes, moments))
        return moments[order], np.cumsum(sizes[order])

    def most(self, edges: np.ndarray) -> np.ndarray:
        """The most bytes per partition in use between neighbouring moments."""
        moments, used = self.changes()
        if not len(moments):
            return np.zeros(len(edges) - 1, np.int64)
        at_edge = np.concatenate([[0], used])[np.searchsorted(moments, edges[:-1], "right")]
        result = at_edge.copy()
        place = np.searchsorted(edges, moments, "right") - 1
        inside = (place >= 0) & (place < len(result))
        np.maximum.at(result, place[inside], used[inside])
        return result


class Occupancy(Struct, frozen=True):
    """Both memories on chip."""

    sbuf: Residencies
    psum: Residencies


def occupancy_of(plan: Plan, timeline: Timeline) -> Occupancy:
    """Residencies of tiles under a plan in the time of a run."""
    start, end = np.full(plan.rows, np.inf), np.full(plan.rows, -np.inf)
    own = timeline.node < plan.rows
    np.minimum.at(start, timeline.row[own], timeline.start_ns[own])
    np.maximum.at(end, timeline.row[own], timeline.end_ns[own])
    return Occupancy(_residencies_of(plan.sbuf, start, end), _residencies_of(plan.psum, start, end))


def _residencies_of(placed: Placements, start: np.ndarray, end: np.ndarray) -> Residencies:
    begins = start[placed.first_row] if len(placed.storage) else np.zeros(0)
    ends = end[placed.last_row] if len(placed.storage) else np.zeros(0)
    # a transfer that the program names last may end first
    ends = np.maximum(begins, ends)
    order = np.argsort(begins, kind="stable")
    return Residencies(
        placed.storage[order].astype(np.int64),
        begins[order],
        ends[order],
        placed.address[order].astype(np.int64),
        placed.size[order].astype(np.int64),
        placed.pieces[order].astype(np.int64),
    )
