"""Other orders of a program's rows: the nearest to what is asked for that keeps every dependence."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from ..place import dependences
from ..place.edges import Waits
from ..place.slots import distinct, slots_of
from ..tiles.tile import HBM
from ..trace.program import Program


def reordered(program: Program, key: np.ndarray, known: Waits | None = None) -> tuple[Program, np.ndarray]:
    """The rows in the order of their keys as far as dependences allow, and which row each of them was.

    A row comes when all that it waits for has come, and before every ready row with a larger key.

    Args:
        program: the rows.
        key: per row.
        known: `dependences` of the program, where they were worked out before.
    """
    order = np.argsort(key, kind="stable")
    waits = known or dependences(program)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    later = np.repeat(np.arange(len(program)), np.diff(waits.start)[: len(program)])
    if (place[waits.node[: len(later)]] > place[later]).any():
        order = _legal(place, waits)
    return program.arranged(order), order


def _legal(place: np.ndarray, waits: Waits) -> np.ndarray:
    """A topological order in which of all ready rows the one with the least place comes first."""
    count = len(place)
    missing = np.diff(waits.start)[:count].copy()
    later = np.repeat(np.arange(count), np.diff(waits.start)[:count])
    by_earlier = np.argsort(waits.node[: len(later)], kind="stable")
    after = later[by_earlier].tolist()
    first = np.searchsorted(waits.node[: len(later)][by_earlier], np.arange(count + 1)).tolist()
    left, places = missing.tolist(), place.tolist()
    ready = [(places[row], row) for row in np.flatnonzero(missing == 0).tolist()]
    heapify(ready)
    result: list[int] = []
    while ready:
        row = heappop(ready)[1]
        result.append(row)
        for other in after[first[row] : first[row + 1]]:
            left[other] -= 1
        for other in [n for n in dict.fromkeys(after[first[row] : first[row + 1]]) if not left[n]]:
            heappush(ready, (places[other], other))
    return np.array(result, np.int64)


def longest_after(waits: Waits, lasts: np.ndarray) -> np.ndarray:
    """Per row the longest way from its start to the end of the program, by how long each row lasts."""
    level = lasts.tolist()
    start, node = waits.start.tolist(), waits.node.tolist()
    own = list(level)
    for row in range(len(level) - 1, -1, -1):
        for earlier in node[start[row] : start[row + 1]]:
            level[earlier] = max(level[earlier], own[earlier] + level[row])
    return np.array(level)


def as_needed(program: Program) -> np.ndarray:
    """Keys by which each row comes for the first store that needs it, so that results follow each other."""
    waits = dependences(program)
    slots = slots_of(program)
    stores = distinct(slots.row[slots.is_written & slots.kinds.lie_in(HBM)[slots.storage]])
    need = np.full(len(program), len(program), np.int64)
    need[stores] = np.arange(len(stores))
    starts, nodes = waits.start.tolist(), waits.node.tolist()
    needs = need.tolist()
    for row in range(len(program) - 1, -1, -1):
        for earlier in nodes[starts[row] : starts[row + 1]]:
            needs[earlier] = min(needs[earlier], needs[row])
    return np.array(needs, np.int64)


def legal_merges(program: Program, group: np.ndarray) -> np.ndarray:
    """Per row its group, -1 where joining the group's rows at its first one breaks a dependence.

    Products of one sum may be joined: they wait for each other because all add to the same tile.
    """
    count = len(program)
    waits = dependences(program)
    later = np.repeat(np.arange(count), np.diff(waits.start)[:count])
    earlier = waits.node[: len(later)]
    first = np.arange(count)
    number = int(group.max(initial=-1)) + 1
    begin = np.full(number, count, np.int64)
    np.minimum.at(begin, group[group >= 0], np.flatnonzero(group >= 0))
    first[group >= 0] = begin[group[group >= 0]]
    bad = (first[earlier] >= first[later]) & ((group[earlier] >= 0) | (group[later] >= 0))
    adds = np.array([form.accumulates for form in program.forms], np.bool_)[program.form_column]
    bad &= ~(adds[later] & (group[earlier] == group[later]))
    broken = np.union1d(group[earlier][bad], group[later][bad])
    return np.where(np.isin(group, broken[broken >= 0]), -1, group)
