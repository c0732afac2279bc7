"""What is loaded, transposed or computed again though its tile could have stayed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...place.redundant import lives_in_sbuf
from ...tiles.tile import SBUF
from ..declare import Candidate, Edit, Subject, plural, transformation
from ..draft import Unfit, transposes
from ..equal_values import without_copies
from .windows import windows

_LOAD, _TRANSPOSE, _COMPUTE = "load", "transposition", "computation"


def _repeats(subject: Subject, kind: str) -> Iterator[Candidate]:
    """Tiles of one kind of origin that an earlier one equals, as far as SBUF has room to keep that one."""
    again, own = _again(subject, kind), subject
    if not again:
        # waits for tiles end too, behind which anything may stand
        subject = subject.renewed
        again = _again(subject, kind)
    if not again:
        return
    rows = np.array(sorted(row for tile in again for row in subject.equals.writers[tile]), np.int64)
    feeding = _feeding(subject, again)
    lines = np.asarray(subject.base.line_column, np.int64)[rows]
    line = int(np.bincount(lines).argmax())
    every = {t: f for t, f in subject.equals.first.items() if _kind(subject, t) == _LOAD} | again

    def kept(tiles: dict[int, int]) -> Edit:
        return lambda: without_copies(subject.base, _fitting(subject, tiles), subject.equals)[0]

    edits = [(f"{plural(len(again), kind)} left out; the first tile is kept", kept(again))]
    if kind == _TRANSPOSE and len(every) > len(again):
        edits.append(
            (f"{plural(len(every), kind)} and loads left out; the first tiles are kept", kept(every))
        )
    if nearer := _nearer(subject, kind, len(again)):
        edit = (
            f"{plural(len(nearer), kind)} left out; the first tile is kept through one trip of an outer loop"
        )
        kept_bytes = sum(subject.base.storages[t].bytes_per_partition for t in set(again.values()))
        is_much = 2 * kept_bytes > subject.base.machine.limit("sbuf_bytes_per_partition")
        edits.insert(0 if is_much else len(edits), (edit, kept(nearer)))
    total = sum(_bytes(subject, tile) for tile in again)
    yield Candidate(
        line, f"{plural(len(again), kind)} of {total} bytes repeat what an earlier one made",
        subject.weight(np.union1d(rows, feeding)) if subject is own else subject.latency_ns, tuple(edits),
        since_ns=0.0 if subject is own else own.renewed_ns,
    )  # fmt: skip


def _nearer(subject: Subject, kind: str, most: int) -> dict[int, int]:
    """Tiles of one kind that repeat an earlier one of the same trip of an outer loop."""
    nests = [(own, n) for own in subject.loops[:4] for n in (1, *own.periods(subject.base))]
    for loop, period in sorted(nests, key=lambda own: -own[0].length * own[1]):
        member = np.full(len(subject.base), -1)
        member[loop.rows()] = np.arange(len(loop.start))[:, None] // period
        known = subject.equals.first_within(member)
        tiles = {tile: first for tile, first in known.items() if _kind(subject, tile) == kind}
        if most > len(tiles) >= most // 4 > 0:
            return tiles
    return {}


def _again(subject: Subject, kind: str) -> dict[int, int]:
    """Tiles of one kind of origin with the earlier ones that they equal."""
    return {tile: first for tile, first in subject.equals.first.items() if _kind(subject, tile) == kind}


def _kind(subject: Subject, tile: int) -> str:
    """What makes a tile: a load, a transposition on its way, or a computation."""
    forms = [subject.base.form_of(row) for row in subject.equals.writers[tile]]
    if all(form.name == "dma_copy" for form in forms):
        return _LOAD
    if any(map(transposes, forms)):
        return _TRANSPOSE
    sources = {s for row in subject.equals.writers[tile] for s in subject.read_by(row)}
    if all(form.name == "tensor_copy" for form in forms):
        # a copy of what was loaded goes with its load
        known = {_kind(subject, s) for s in sources if s in subject.equals.writers}
        return known.pop() if len(known) == 1 else _COMPUTE
    in_psum = [s for s in sources if subject.base.storages[s].memory == "psum"]
    forms = [subject.base.form_of(row) for s in in_psum for row in subject.writers.get(s, [])]
    return _TRANSPOSE if any(map(transposes, forms)) else _COMPUTE


def _feeding(subject: Subject, again: dict[int, int]) -> np.ndarray:
    """Rows that make what only repeated tiles are made from."""
    rows = {row for tile in again for row in subject.equals.writers[tile]}
    tiles = {storage for row in rows for storage in subject.read_by(row) if not subject.lies_in_hbm(storage)}
    feeding = [w for t in tiles if set(subject.readers[t]) <= rows for w in subject.writers.get(t, [])]
    return np.array(sorted(feeding), np.int64)


def _bytes(subject: Subject, tile: int) -> int:
    record = subject.base.storages[tile]
    return record.partitions * record.bytes_per_partition


def _fitting(subject: Subject, again: dict[int, int]) -> dict[int, int]:
    """Those tiles whose earlier one SBUF has room to keep until they are used."""
    lives, _, most = lives_in_sbuf(subject.base, subject.slots)
    result: dict[int, int] = {}
    for tile in sorted(again, key=lambda t: subject.equals.writers[t][0]):
        if subject.base.storages[tile].memory != SBUF:
            continue
        if lives.extend(again[tile], tile, subject.equals.writers[tile][0], most):
            result[tile] = again[tile]
    if not result:
        raise Unfit
    return result


@transformation(
    "hoist_loads", relieves=("dma",), title="what SBUF holds is not loaded again",
    what="a transfer loads elements that an earlier one loaded, and nothing has changed in HBM",
    why="HBM is the slowest memory; the same bytes cross it again",
    fix="load what the iterations share once, before the loop, and keep the tile",
    source="NKI performance guide, avoid data reloading",
)  # fmt: skip
def repeated_loads(subject: Subject) -> Iterator[Candidate]:
    """Loads of what an earlier load brought, or of windows that overlap."""
    yield from _repeats(subject, _LOAD)
    yield from windows(subject)


@transformation(
    "hoist_transposes",
    title="an operand is transposed once",
    what="a tile is transposed again though nothing in it has changed",
    why="TensorE, which transposes by a multiplication, has no time left for products",
    fix="transpose before the loop that uses the tile, and keep the transposed tile",
    source="NKI performance guide, avoid data reloading; course write-ups of convolutions",
)
def repeated_transpositions(subject: Subject) -> Iterator[Candidate]:
    """Transpositions of what was transposed before."""
    yield from _repeats(subject, _TRANSPOSE)


@transformation(
    "hoist_compute",
    title="what stays the same is computed once",
    what="an instruction computes what an earlier one computed from the same operands",
    why="the engine does the same work in each iteration",
    fix="compute what the iterations share once, before the loop, and keep the tile",
    source="NKI performance guide, loop invariants",
)
def repeated_computations(subject: Subject) -> Iterator[Candidate]:
    """Computations of what was computed before."""
    yield from _repeats(subject, _COMPUTE)
