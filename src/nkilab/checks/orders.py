"""Orders of a launch's rows that the table of dependences allows, made to go wrong where they can."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush

import numpy as np
from msgspec import Struct

from ..place.slots import DMA, ENGINES
from .conflicts import Pair
from .evidence import Track
from .graph import Graph
from .order import NOBODY
from .registers import unscheduled

# orders that are made for one unordered pair each
MOST_DIRECTED = 8


class Ordering(Struct, frozen=True):
    """One order of all nodes; `pair` is the unordered one that it reverses."""

    name: str
    sequence: np.ndarray
    pair: Pair | None = None
    permutes: bool = False


def orderings(graph: Graph, races: list[Pair], seed: int = 0) -> Iterator[Ordering]:
    """Orders, those most likely to differ first; without end, so that a caller takes as many as he wants."""
    count = int(graph.base[-1])
    waits, followers = _constraints(graph)
    row = np.arange(count)
    engine = np.concatenate([track.slots_engine for track in graph.tracks]) if count else row

    def laid_out(key: Callable[[int], tuple[int, ...]]) -> np.ndarray:
        return _listed(waits, followers, key)

    for pair in races[:MOST_DIRECTED]:
        wanted = graph.order.before(pair.later) | {pair.later}
        first = np.isin(row, list(wanted))
        yield Ordering(
            "the second of an unordered pair as early as possible",
            laid_out(lambda n, first=first: (int(not first[n]), n)), pair,  # type: ignore[misc]
        )  # fmt: skip
    for pair in unscheduled(graph):
        # the scheduler, which writes the streams of the engines, is asked here, and not the engines
        wanted = graph.order_of_scheduler.before(pair.later) | {pair.later}
        first = np.isin(row, list(wanted))
        free = _listed(*_constraints(graph, has_streams=False), lambda n, first=first: (int(not first[n]), n))  # type: ignore[misc]
        yield Ordering("the second of two that share registers first", free, pair)
    yield Ordering("transfers as late as possible", laid_out(lambda n: (int(engine[n] == DMA), n)))
    for number, track in enumerate(graph.tracks):
        permuted = permuted_rows(track) + graph.base[number]
        if len(permuted) and (np.diff(permuted) < 0).any() and len(graph.tracks) == 1:
            yield Ordering("iterations of affine_range backwards", permuted, permutes=True)
    yield Ordering("transfers as early as possible", laid_out(lambda n: (int(engine[n] != DMA), n)))
    for number in np.unique(engine[engine != DMA]).tolist():
        word = ENGINES[number]
        yield Ordering(f"{word} ahead of the others", laid_out(lambda n, e=number: (int(engine[n] != e), n)))  # type: ignore[misc]
        yield Ordering(f"{word} behind the others", laid_out(lambda n, e=number: (int(engine[n] == e), n)))  # type: ignore[misc]
    yield Ordering("the latest row that may run", laid_out(lambda n: (-n,)))
    rng = np.random.default_rng(seed)
    while count > 1:
        chance = rng.permutation(count)
        yield Ordering("the rows at random", laid_out(lambda n, chance=chance: (int(chance[n]),)))  # type: ignore[misc]


def _constraints(graph: Graph, *, has_streams: bool = True) -> tuple[np.ndarray, list[list[int]]]:
    """Per node how many it waits for, and who waits for it; rows that meet wait for what either waits for."""
    count = int(graph.base[-1])
    edges = {(later, earlier) for later, earlier in graph.edges.tolist() if later != earlier}
    stream = graph.streams
    for own in np.unique(stream[stream != NOBODY]).tolist() if has_streams else ():
        nodes = graph.sequence[stream[graph.sequence] == own].tolist()
        edges |= set(zip(nodes[1:], nodes[:-1], strict=True))
    partner = {a: b for one, other in graph.joins for a, b in ((one, other), (other, one))}
    followers: list[list[int]] = [[] for _ in range(count)]
    waits = np.zeros(count, np.int64)
    for later, earlier in _of_both(edges, partner):
        followers[earlier].append(later)
        waits[later] += 1
    return waits, followers


def _of_both(edges: Iterable[tuple[int, int]], partner: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Who waits for whom: for one of two that meet is for both, and both wait for what one waits for."""
    for later, earlier in edges:
        both = {later, partner.get(later, later)}
        yield from ((after, earlier) for after in both if after != earlier and partner.get(after) != earlier)
        if earlier in partner and partner[earlier] != later and partner.get(later) != earlier:
            yield later, partner[earlier]


def _listed(
    waits: np.ndarray, followers: list[list[int]], key: Callable[[int], tuple[int, ...]]
) -> np.ndarray:
    """All nodes, at each step the one with the least key of those that wait for nothing more."""
    left = waits.copy()
    ready = [(key(node), node) for node in np.flatnonzero(left == 0).tolist()]
    heapify(ready)
    nodes = []
    while ready:
        _, node = heappop(ready)
        nodes.append(node)
        for other in followers[node]:
            left[other] -= 1
            if not left[other]:
                heappush(ready, (key(other), other))
    assert len(nodes) == len(waits), "rows wait for each other"
    return np.array(nodes, np.int64)


def permuted_rows(track: Track) -> np.ndarray:
    """The rows of a program with the iterations of every affine loop backwards; else as they are."""
    kinds = track.marks.loops
    position = np.asarray(track.program.position_column, np.int64).tolist()
    if "affine" not in kinds.values() or track.marks.carried:
        # what is made in the first iteration for all others must come first
        return np.arange(len(position))
    first: dict[int, int] = {}
    for row, own in enumerate(position):
        for loop, _ in track.loops_of_position[own]:
            first.setdefault(loop, row)
    keys: dict[int, tuple[tuple[int, int], ...]] = {}
    for own in set(position):
        keys[own] = tuple(
            (first[loop], -iteration if kinds.get(loop) == "affine" else iteration)
            for loop, iteration in track.loops_of_position[own]
        )
    return np.array(sorted(range(len(position)), key=lambda r: (*keys[position[r]], (r, 0))), np.int64)
