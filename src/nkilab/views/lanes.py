"""The lanes of a timeline as the vendor's profiler draws them: engines, then DMA queues.

TensorE has two: Tensor for the weights that load, TensorMatrix for the multiplications, because they overlap.
Products that run side by side, on tiles of its array, have a lane each: TensorMatrix, TensorMatrix 2, ...

Source: neuron-profile user guide, "Difference between TensorE and TensorMatrixE rows in timeline".
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ..place.slots import DMA, ENGINES
from ..timing.timeline import Timeline
from ..timing.work import QUEUES
from .nodes import is_hidden

ENGINE_LANES = {
    "tensor": "TensorMatrix",
    "vector": "Vector",
    "scalar": "Scalar",
    "gpsimd": "GpSimd",
    "sync": "Sync",
}
WEIGHTS = "Tensor"
# Position of the multiplications among lanes: behind the weights.
_PRODUCTS = ENGINES.index("tensor") + 1
# Times are sums of the same terms in another order.
_SAME = 1e-6
_QUEUE_NAMES = {
    "load": "Load",
    "store": "Store",
    "on_chip": "OnChip",
    "spill_save": "SpillSave",
    "spill_reload": "SpillReload",
    "collective": "Collective",
}


class Lanes(Struct, frozen=True, eq=False):
    """The lanes that a timeline uses."""

    names: tuple[str, ...]  # of the lanes, from top to bottom
    engine: tuple[str, ...]  # per lane, the engine it belongs to, of `ENGINES`
    of_event: np.ndarray  # per event, its lane
    # per event, when it leaves its lane to the next one: an instruction when its engine accepts another, a
    # transfer at its last byte, but no later than when the next one starts
    until_ns: np.ndarray


def queue_name(queue: int) -> str:
    """ "qSyncLoad0" for the queue of loads of the first issuing unit, and so on."""
    unit, kind = divmod(queue, len(QUEUES))
    return f"qSync{_QUEUE_NAMES[QUEUES[kind]]}{unit}"


def lanes_of(timeline: Timeline) -> Lanes:
    """The lanes that have events: Tensor, TensorMatrix, Vector, Scalar, GpSimd, Sync, queues."""
    queues = int(timeline.queue.max(initial=-1)) + 1
    # hidden weights first, then engines, then queues
    key = np.where(timeline.engine == DMA, len(ENGINES) + timeline.queue, timeline.engine + 1)
    key = np.where(is_hidden(timeline), 0, key)
    names = [WEIGHTS, *ENGINE_LANES.values(), *map(queue_name, range(queues))]
    engines = [ENGINES[0], *ENGINES[:-1], *["dma"] * queues]
    products = np.flatnonzero(key == _PRODUCTS)
    row = _rows(timeline.start_ns[products], timeline.busy_ns[products])
    row_count = int(row.max(initial=0))
    # further rows of products stand below the first
    key = np.where(key > _PRODUCTS, key + row_count, key)
    key[products] += row
    below = _PRODUCTS + 1
    names[below:below] = [f"{names[_PRODUCTS]} {n + 2}" for n in range(row_count)]
    engines[below:below] = [ENGINES[0]] * row_count
    # with counts NumPy does not ask for masks, whose module is large
    used, _ = np.unique(key, return_counts=True)
    lane = np.searchsorted(used, key).astype(np.int16)
    return Lanes(
        tuple(names[k] for k in used.tolist()),
        tuple(engines[k] for k in used.tolist()),
        lane,
        _until(timeline, lane),
    )


def _rows(start: np.ndarray, busy: np.ndarray) -> np.ndarray:
    """Per product the first row that is free when it starts."""
    row = np.zeros(len(start), np.int64)
    end = start + busy
    if not np.any(start[1:] < end[:-1] - _SAME):
        return row
    free: list[float] = []
    for place, (begins, ends) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        own = next((n for n, since in enumerate(free) if since <= begins + _SAME), len(free))
        free[own : own + 1] = [ends]
        row[place] = own
    return row


def _until(timeline: Timeline, lane: np.ndarray) -> np.ndarray:
    """Per event when it leaves its lane."""
    if not len(timeline):
        return np.zeros(0)
    own = np.where(is_hidden(timeline), timeline.end_ns, timeline.start_ns + timeline.busy_ns)
    order = np.lexsort((timeline.start_ns, lane))
    start, of = timeline.start_ns[order], lane[order]
    # the parts of one transfer start together and leave together
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (np.diff(start) != 0) | (np.diff(of) != 0)
    firsts = np.flatnonzero(is_new)
    following = np.append(firsts[1:], len(order))
    inside = following < len(order)
    limit = np.full(len(firsts), np.inf)
    limit[inside] = np.where(of[following[inside]] == of[firsts[inside]], start[following[inside]], np.inf)
    result = np.empty(len(order))
    result[order] = np.repeat(limit, np.diff(np.append(firsts, len(order))))
    return np.minimum(own, result)
