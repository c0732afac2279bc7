"""Memory for calls that are made again and again: storages that no two calls need at one time share bytes.

A processor's caches then hold what a launch touches.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

import numpy as np

from ..tiles.tile import Storage
from .batch import Call


def shared_memory(calls: Iterable[Call], storages: Iterable[Storage]) -> dict[int, np.ndarray]:
    """Bytes for storages, by number: the same for those of which one is done with before another begins.

    Args:
        calls: in order, with the shadow bits of all storages that they touch.
        storages: with elements of their own, which a call writes before any reads them.
    """
    spans: dict[int, list[int]] = {}
    for number, call in enumerate(calls):
        for touched in (*call.reads, *call.writes):
            spans.setdefault(id(touched), [number, number])[1] = number
    # bytes that are in use, with the last call that needs them, and those that are free again, by their count
    used: list[tuple[int, int, np.ndarray]] = []
    free: dict[int, list[np.ndarray]] = {}
    places: dict[int, np.ndarray] = {}
    own = [s for s in storages if s.data is not None and id(s.written) in spans]
    for storage in sorted(own, key=lambda s: (spans[id(s.written)][0], s.number)):
        first, last = spans[id(storage.written)]
        while used and used[0][0] < first:
            *_, memory = heappop(used)
            free.setdefault(memory.nbytes, []).append(memory)
        assert storage.data is not None
        alike = free.get(storage.data.nbytes)
        places[storage.number] = memory = alike.pop() if alike else np.empty(storage.data.nbytes, np.uint8)
        heappush(used, (last, storage.number, memory))
    return places
