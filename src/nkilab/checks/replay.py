"""`--replay N`: the recorded program on fresh memory, in orders that the table of dependences allows.

The kernel's Python does not run again. Where a result differs from that of the recorded order, the order is
shown, with the pair of rows that it turned round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..errors import UnsupportedError
from ..place.slots import DMA, ENGINES, distinct
from ..tiles.convert import widen
from ..tiles.dtypes import DType
from .conflicts import Pair
from .declare import Example, rule
from .evidence import Evidence, Track
from .finding import NOWHERE, Finding, Severity, Site
from .graph import Graph
from .loops import find as loop_findings
from .order import NOBODY
from .race_rules import REUSED, SCATTERED
from .recording import Action, Recording
from .registers import unscheduled
from .world import World

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
    engine = np.concatenate([track.slots.engine for track in graph.tracks]) if count else row

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
    for number in distinct(engine[engine != DMA]).tolist():
        word = ENGINES[number]
        yield Ordering(f"{word} ahead of the others", laid_out(lambda n, e=number: (int(engine[n] != e), n)))  # type: ignore[misc]
        yield Ordering(f"{word} behind the others", laid_out(lambda n, e=number: (int(engine[n] == e), n)))  # type: ignore[misc]
    yield Ordering("the latest instruction that may run", laid_out(lambda n: (-n,)))
    rng = np.random.default_rng(seed)
    while count > 1:
        chance = rng.permutation(count)
        yield Ordering("the instructions at random", laid_out(lambda n, chance=chance: (int(chance[n]),)))  # type: ignore[misc]


def _constraints(graph: Graph, *, has_streams: bool = True) -> tuple[np.ndarray, list[list[int]]]:
    """Per node how many it waits for, and who waits for it; rows that meet wait for what either waits for."""
    count = int(graph.base[-1])
    edges = {(later, earlier) for later, earlier in graph.edges.tolist() if later != earlier}
    stream = graph.streams
    for own in distinct(stream[stream != NOBODY]).tolist() if has_streams else ():
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


_SWAPPED = REUSED.replace(
    "b[...]", "# nkilab: ignore[race-direct-overlap] replayed to see what it does\nb[...]"
)
_OPTIONS = ("--replay", "4")
DIFFERS = rule("order-changes-result", "replay", "error",
    title="every order that the framework may choose gives the same result",
    what="a result of the recorded program differs when its rows run in another order that is allowed",
    why="the device chooses an order by timing, which differs from run to run. It is a warning where public "
    "documents do not settle whether the two are ordered",
    fix="order the two lines, or let them use memory of their own", source="nkilab.place.DEPENDENCES",
    kernel=Example(_SWAPPED, {"x": "f32[128,512]"}, "neuronxcc", options=_OPTIONS), wrong="0", right="2048",
    other=replace(SCATTERED, options=_OPTIONS).pair(
        "dma_copy(back, held[0:1])  # nkilab: ignore[race-dynamic-hbm] replayed to see what it does",
        "tensor_copy(back, tile)"),
)  # fmt: skip

# a sum in another order: a few units of the last place, relative to the largest element of the result
_TOLERANCES = {4: 1e-4, 2: 3e-2, 1: 2e-1}
# orders that are looked at per order that is replayed, until one is new
_PATIENCE = 20


class Replay(Struct, frozen=True):
    """What one order showed."""

    ordering: Ordering
    swapped: int  # pairs of rows that came the other way round than recorded
    differing: int  # elements that differ, over all results
    # the first of them: tensor, place, recorded and replayed value
    first: tuple[str, tuple[int, ...], float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        result: dict[str, Any] = {
            "order": self.ordering.name, "swapped_pairs": self.swapped, "differing_elements": self.differing,
        }  # fmt: skip
        if self.first is not None:
            tensor, place, recorded, replayed = self.first
            result["first"] = {
                "tensor": tensor,
                "place": list(place),
                "recorded": recorded,
                "replayed": replayed,
            }
        return result


def replays(graph: Graph, recording: Recording, count: int) -> tuple[list[Replay], list[Finding], list[str]]:
    """Replay a launch in up to `count` orders.

    Returns:
        What each order showed, findings, and notes.
    """
    evidence = graph.evidence
    actions = _by_node(graph, recording)
    outputs = _outputs(evidence)
    try:
        recorded = _computed(evidence, recording, actions, Ordering("as recorded", graph.sequence), outputs)
        done = [
            _compared(
                evidence,
                ordering,
                recorded,
                _computed(evidence, recording, actions, ordering, outputs),
                graph,
            )
            for ordering in _distinct(graph, count)
        ]
    except UnsupportedError as error:
        return [], [], [f"not replayed: {error.problem}"]
    notes = [] if len(done) >= count else [f"the rows have only {len(done)} other orders that were found"]
    return done, list(_findings(evidence, graph, done)), notes


def _distinct(graph: Graph, count: int) -> Iterator[Ordering]:
    """Orders that differ from the recorded one and from each other."""
    races = [p for p in graph.open if not graph.order.is_before(p.earlier, p.later)]
    seen = {graph.sequence.tobytes()}
    missed = distinct = 0
    for ordering in orderings(graph, races):
        key = ordering.sequence.astype(graph.sequence.dtype).tobytes()
        if distinct == count or missed > _PATIENCE:
            return
        if key in seen:
            missed += 1
            continue
        seen.add(key)
        distinct, missed = distinct + 1, 0
        yield ordering


def _by_node(graph: Graph, recording: Recording) -> dict[int, list[Action]]:
    """The actions of each node, in the order in which they were computed."""
    actions: dict[int, list[Action]] = {}
    for action in recording.actions:
        actions.setdefault(int(graph.base[action.rank]) + action.row, []).append(action)
    return actions


def _outputs(evidence: Evidence) -> list[tuple[int, int]]:
    """The memories of results in HBM."""
    return list(dict.fromkeys((0, tensor.storage) for tensor in evidence.tracks[0].marks.returned))


def _computed(
    evidence: Evidence, recording: Recording, actions: dict[int, list[Action]], ordering: Ordering,
    outputs: list[tuple[int, int]],
) -> list[np.ndarray]:  # fmt: skip
    """The results of an order, [elements] each."""
    world = World(evidence, recording, has_threads=True)
    groups = _Groups(recording) if ordering.permutes else None
    with world.open():
        for action in _in_order(evidence, actions, ordering):
            world.compute(action, values=groups.values(action) if groups else None)
    return [world.elements(memory).reshape(-1).copy() for memory in outputs if memory in recording.shapes]


def _in_order(evidence: Evidence, actions: dict[int, list[Action]], ordering: Ordering) -> Iterator[Action]:
    """The actions in an order; of two rows that meet, both send before either receives."""
    base = len(evidence.tracks[0].program)
    pairs_of_rows = [(m.rows[0], base + m.rows[1]) for m in evidence.rendezvous]
    joined = dict(pairs_of_rows) | {other: one for one, other in pairs_of_rows}
    late: dict[int, list[Action]] = {}
    for node in ordering.sequence.tolist():
        own = actions.get(node, [])
        if node not in joined or len(own) < 2:
            yield from own
            continue
        yield own[0]
        late[node] = own[1:]
        if joined[node] in late:
            yield from (*late.pop(joined[node]), *late.pop(node))


class _Groups:
    """Which matmuls make one sum: whichever of them comes first overwrites."""

    def __init__(self, recording: Recording) -> None:
        self._group: dict[int, int] = {}
        self._started: set[int] = set()
        starts: dict[object, int] = {}
        for action in recording.actions:
            if not action.form.accumulates:
                continue
            dst = action.operands[action.form.written_slots[0]]
            key = (dst.memory, dst.offset, dst.layout)
            if not action.form.reads_result(action.values):
                starts[key] = len(starts) + len(self._group)
            if key in starts:
                self._group[id(action)] = starts[key]

    def values(self, action: Action) -> tuple[Any, ...] | None:
        """The values with which a matmul of a sum is computed now; None for those recorded."""
        group = self._group.get(id(action))
        if group is None:
            return None
        is_first = group not in self._started
        self._started.add(group)
        names = list(action.form.values)
        return tuple(
            not is_first if name == "accumulate" else value
            for name, value in zip(names, action.values, strict=False)
        )


def _compared(
    evidence: Evidence, ordering: Ordering, recorded: list[np.ndarray], replayed: list[np.ndarray],
    graph: Graph,
) -> Replay:  # fmt: skip
    track = evidence.tracks[0]
    differing, first = 0, None
    for (_, number), one, other in zip(_outputs(evidence), recorded, replayed, strict=False):
        record = track.program.storages[number]
        apart = _apart(one, other, record.dtype, is_exact=not ordering.permutes)
        places = np.flatnonzero(apart)
        differing += len(places)
        if len(places) and first is None:
            at = int(places[0])
            place = tuple(int(i) for i in np.unravel_index(at, record.shape))
            first = (track.describe(number), place, _number(one, at), _number(other, at))
    rank = np.empty(len(ordering.sequence), np.int64)
    rank[ordering.sequence] = np.arange(len(rank))
    swapped = int(np.count_nonzero(np.diff(rank[graph.sequence]) < 0))
    return Replay(ordering, swapped, differing, first)


def _number(elements: np.ndarray, at: int) -> float:
    return float(np.asarray(elements[at]).astype(np.float32))


def _apart(one: np.ndarray, other: np.ndarray, dtype: DType, *, is_exact: bool) -> np.ndarray:
    """Which elements differ: bit by bit, or beyond what another order of a sum explains."""
    bits = f"u{one.dtype.itemsize}"
    differing: np.ndarray = one.view(bits) != other.view(bits)
    if is_exact or not dtype.is_float or not differing.any():
        return differing
    a, b = (widen(v, dtype).astype(np.float64) for v in (one, other))
    scale = np.max(np.abs(a[np.isfinite(a)]), initial=0.0)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= _TOLERANCES.get(dtype.itemsize, 1e-4) * max(scale, 1e-30)
    return ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))


def _findings(evidence: Evidence, graph: Graph, done: list[Replay]) -> Iterator[Finding]:
    """One finding per pair of lines whose order matters."""
    reported: set[tuple[Site, Site]] = set()
    for replay in done:
        if not replay.differing or replay.first is None:
            continue
        site, other, severity = _culprits(evidence, graph, replay.ordering)
        if (site, other) in reported:
            continue
        reported.add((site, other))
        tensor, place, recorded, replayed = replay.first
        yield DIFFERS.finding(
            f"{tensor} differs in {replay.differing} element{'s' * (replay.differing > 1)} with "
            f"{replay.ordering.name}: [{', '.join(map(str, place))}] is {replayed:g} instead of {recorded:g}",
            site if site.file else evidence.definition, other, "it came first when the program was recorded",
            notes=[f"instructions that change places with a neighbour: {replay.swapped}"], severity=severity,
        )  # fmt: skip


def _culprits(evidence: Evidence, graph: Graph, ordering: Ordering) -> tuple[Site, Site, Severity]:
    """The lines of an unordered pair that an order turned round, and whether that is sure to be one."""
    if ordering.permutes:
        carried = next(iter(loop_findings(evidence)), None)
        sites = (NOWHERE, NOWHERE) if carried is None else (carried.site, carried.other_site)
        return (*sites, "error")
    rank = np.empty(len(ordering.sequence), np.int64)
    rank[ordering.sequence] = np.arange(len(rank))
    pair = ordering.pair
    if pair is None or rank[pair.later] > rank[pair.earlier]:
        reversed_pairs = [p for p in graph.open if rank[p.later] < rank[p.earlier]]
        pair = reversed_pairs[0] if reversed_pairs else None
    if pair is None:
        return NOWHERE, NOWHERE, "error"
    kind = evidence.table.get(pair.kind)
    is_sure = kind is None or kind.certainty == "documented"
    return _site(graph, pair.later), _site(graph, pair.earlier), "error" if is_sure else "warning"


def _site(graph: Graph, node: int) -> Site:
    number = graph.track_of(node)
    return graph.tracks[number].site(int(node - graph.base[number]))
