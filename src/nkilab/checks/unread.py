"""What nothing reads: parts of inputs, results, and those of all iterations of a loop but the last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from ..place.boxes import Boxes
from ..place.slots import distinct
from ..tiles.tile import HBM, PSUM, SBUF
from ..trace.program import StorageRecord
from .declare import Example, rule
from .evidence import Evidence, Track
from .finding import Finding, once
from .initialisation import holes
from .loops import in_traced_loop

_SUM = """
tiles: left bf16[128,4,128] sbuf < a; right bf16[128,4,512] sbuf < b
tiles: result f32[128,512] sbuf; out f32[128,512] hbm < result
{}
nisa.tensor_copy(result, total)
"""
_TILE = "total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)\n"
_LOOP = "for k in range(4):\n    "
_PRODUCT = "nisa.nc_matmul(total, left[:, k], right[:, k])\n"
LOST_ITERATIONS = rule(
    "lost-iterations", "loops", "warning", title="each iteration leaves something that is read",
    what="a line in a loop makes a new tile in each iteration, a matmul of other operands fills it, and only "
    "the tile of the last iteration is ever read",
    why="all iterations but the last work in vain: what should add up over them begins anew in each",
    fix="make the tile before the loop that adds up in it",
    source="nkilab: a value that nothing reads is lost",
    kernel=Example(_SUM, {"a": "bf16[128,4,128]", "b": "bf16[128,4,512]"}),
    wrong=f"{_LOOP}{_TILE}    {_PRODUCT}", right=f"{_TILE}{_LOOP}{_PRODUCT}",
)  # fmt: skip

_ROWS = """
tiles: out f32[128,64 * {0}] hbm
for i in nl.affine_range({0}):
    tiles: tile f32[128,64] sbuf < x[:, nl.ds(i * 64, 64)]
    nisa.dma_copy(out[:, nl.ds(i * 64, 64)], tile)
"""
UNREAD_INPUT = rule("unread-input", "initialisation", "note", title="a kernel uses all of its inputs",
    what="no instruction reads some elements of an argument that others are read of, or of a tile that was "
    "loaded, at addresses that are known before the kernel runs",
    why="a loop that ends too soon, an index that stays where it was, or a stride that is too short leaves "
    "out part of the data; no value looks wrong by itself. Some kernels are called with more than they need",
    fix="compare the loop and the offsets that read it with its shape",
    source="nkilab: an input that nothing reads has no effect",
    kernel=Example(_ROWS, {"x": "f32[128,256]"}), wrong="3", right="4",
)  # fmt: skip

_SCALED = "tiles: out f32[128,512] hbm < {}; tile f32[128,512] sbuf < x; scaled f32[128,512] sbuf\n" \
          "nisa.tensor_scalar(scaled, tile, nl.multiply, 2.0)"  # fmt: skip
UNREAD_RESULT = rule("unread-result", "initialisation", "note", title="a kernel uses all of its results",
    what="what a line loads or computes fills tiles that no instruction reads, each time that it runs",
    why="a bias that is loaded and never added, or a tile stored in the place of the one that was scaled, "
    "looks right but for its values; what is meant so, as products that warm up TensorE, only takes time",
    fix="use the result, or leave the line out", source="nkilab: a value that nothing reads is lost",
    kernel=Example(_SCALED, {"x": "f32[128,512]"}), wrong="tile", right="scaled",
)  # fmt: skip

# first and last corners of boxes, a row each
Corners = tuple[np.ndarray, np.ndarray]
# accesses, and cells between their borders, beyond which nobody asks what is read of a tensor
_MOST_ACCESSES, _MOST_CELLS = 100_000, 4_000_000


def find(evidence: Evidence) -> Iterator[Finding]:
    """Iterations that are lost, once per line; inputs and loaded tiles of one program that are read in part.

    Beta 1 refuses a tile behind the traced loop that makes it (`out-of-scope`). What was never written tells
    of a loop that ends too soon by itself.
    """
    is_traced = evidence.kernel.spelling == "neuronxcc"
    yield from once(f for track in evidence.tracks for f in _lost_iterations(track, is_traced=is_traced))
    track, *others = evidence.tracks
    if not others and not track.marks.unwritten and not any(holes(evidence)):
        yield from once(_unread_inputs(track))
        yield from _unread_results(track)


def _lost_iterations(track: Track, *, is_traced: bool) -> Iterator[Finding]:
    slots, program = track.slots, track.program
    start = np.asarray(track.slot_start)
    is_read, filled = np.zeros((2, len(program.storages)), np.int64)
    is_read[slots.storage[slots.is_read & ~slots.is_written]] = True
    adds = np.array([form.accumulates for form in program.forms], np.bool_)[np.asarray(program.form_column)]
    on_chip = ~slots.kinds.lie_in(HBM)[slots.storage]
    written = np.flatnonzero(slots.is_written & on_chip & adds[slots.row])
    filled[slots.storage[written]] = written + 1
    tiles = dict[tuple[int, int, int], list[int]]()
    births = track.marks.births
    for storage in np.flatnonzero(filled).tolist():
        if is_traced and in_traced_loop(track, births[storage]):
            continue
        slot = int(filled[storage]) - 1
        row = int(slots.row[slot])
        key = program.storages[storage].line, int(program.line_column[row]), slot - int(start[row])
        tiles.setdefault(key, []).append(storage)
    for own in tiles.values():
        last = np.flatnonzero(is_read[own])
        every = int(last[0]) + 1 if len(last) else 0
        if every < 2 or not np.array_equal(last, np.arange(every - 1, len(own), every)):
            continue
        first, second = slots.row[filled[own[:2]] - 1].tolist()
        # the same product again and again is one of a measurement
        if last[-1] == len(own) - 1 and _operands(track, first) != _operands(track, second):
            yield LOST_ITERATIONS.finding(
                f"nothing reads {every - 1} of every {every} tiles that this line makes: "
                f"{track.called(first)} fills each, and the last one alone is read",
                track.birthplace(own[0]), track.site(first), "filled here",
            )  # fmt: skip


def _operands(track: Track, row: int) -> list[tuple[int, int]]:
    """Where what a row reads lies: storages and boxes."""
    own = range(track.slot_start[row], track.slot_start[row + 1])
    read = [slot for slot in own if track.slots.is_read[slot] and not track.slots.is_written[slot]]
    return [(int(track.slots.storage[slot]), int(track.boxes.of_slot[slot])) for slot in read]


def _unread_results(track: Track) -> Iterator[Finding]:
    """Lines of which no result is read, however often they run; a tile that is only cleared is none."""
    slots, program = track.slots, track.program
    is_lost = slots.kinds.lie_in(SBUF) | slots.kinds.lie_in(PSUM)
    written = np.flatnonzero(slots.is_written)
    # what a tile is read for that only writes the tile itself leaves it unread
    first, last = np.full(len(program), len(is_lost)), np.full(len(program), -1)
    np.minimum.at(first, slots.row[written], slots.storage[written])
    np.maximum.at(last, slots.row[written], slots.storage[written])
    is_own = (first[slots.row] == slots.storage) & (last[slots.row] == slots.storage)
    is_lost[slots.storage[slots.is_read & ~slots.is_written & ~is_own]] = False
    row, storage = slots.row[written], slots.storage[written]
    line = np.asarray(program.line_column)[row]
    is_used = np.zeros(int(line.max(initial=-1)) + 1, np.bool_)
    is_used[line[~is_lost[storage]]] = True
    for first in np.unique(line, return_index=True)[1].tolist():
        if not is_used[line[first]] and track.called(row[first]) != "memset":
            tile = track.describe(int(storage[first]))
            yield UNREAD_RESULT.finding(
                f"nothing reads {tile}, which this line fills", track.site(row[first])
            )


def _unread_inputs(track: Track) -> Iterator[Finding]:
    """Arguments of which a part is read, and tiles that loads fill of which not all is read."""
    slots, program = track.slots, track.program
    order = np.argsort(slots.storage, kind="stable")
    start = np.searchsorted(slots.storage[order], np.arange(len(program.storages) + 1))
    seen = set[tuple[object, ...]]()
    for storage, record in enumerate(program.storages):
        if record.memory == HBM and record.scope != "input":
            continue
        own = order[start[storage] : start[storage + 1]]
        written, read = own[slots.is_written[own]], own[~slots.is_written[own]]
        if not _may_be_left_out(track, record, own, written):
            continue
        loaded, used = (distinct(track.boxes.of_slot[which]) for which in (written, read))
        key = record.line, loaded.tobytes(), used.tobytes()
        unread = () if key in seen else _unread_part(track.boxes, record, loaded, used)
        seen.add(key)
        if unread:
            first = int(slots.row[(written if len(written) else read)[0]])
            yield _unread_finding(track, storage, unread, first)


def _may_be_left_out(track: Track, record: StorageRecord, own: np.ndarray, written: np.ndarray) -> bool:
    """Whether a tensor is an argument that nothing writes, or a tile that loads alone fill; and is read."""
    slots, boxes = track.slots, track.boxes
    is_tile = record.memory != HBM
    if is_tile != bool(len(written)):
        return False
    if not len(written) < len(own) <= _MOST_ACCESSES or boxes.is_flat[boxes.of_slot[own]].any():
        return False
    return all(track.called(row) == "dma_copy" for row in slots.row[written].tolist())


def _unread_part(
    boxes: Boxes, record: StorageRecord, loaded: np.ndarray, used: np.ndarray
) -> tuple[tuple[int, int], ...]:
    corners = [(boxes.low[which], boxes.high[which]) for which in (used, loaded)]
    shape, itemsize = record.shape or (1,), record.dtype.itemsize
    return _unread(shape, itemsize, corners[0], corners[1] if len(loaded) else None)


def _unread_finding(track: Track, storage: int, unread: Sequence[tuple[int, int]], row: int) -> Finding:
    record = track.program.storages[storage]
    whole = zip(unread, record.shape, strict=False)
    did = "read in part" if record.memory == HBM else "loaded"
    ranges = ", ".join(":" if part == (0, size) else "{}:{}".format(*part) for part, size in whole)
    return UNREAD_INPUT.finding(
        f"nothing reads [{ranges}] of {track.describe(storage)}, which is {did} here", track.site(row)
    )


def _unread(
    shape: tuple[int, ...], itemsize: int, read: Corners, loaded: Corners | None = None
) -> tuple[tuple[int, int], ...]:
    """The first block of a tensor, as a range per axis, of which no box is read; () if there is none.

    It lies in boxes that are loaded, if those are given. The borders of boxes cut the tensor into cells.
    """
    ends = (*shape[:-1], shape[-1] * itemsize)
    low, high = (side[:, : len(ends)] for side in read)
    if ((low == 0) & (high == ends)).all(axis=1).any():
        return ()
    corners = [*read, *(loaded or ())]
    borders = [
        np.unique([0, end, *(n for c in corners for n in c[:, axis])]) for axis, end in enumerate(ends)
    ]
    if np.prod([len(own) for own in borders]) > _MOST_CELLS:
        return ()
    is_free = ~_covered(borders, read)
    if loaded is not None:
        is_free &= _covered(borders, loaded)
    if not is_free.any():
        return ()
    place = np.argwhere(is_free)[0].tolist()
    block = [slice(at, at + 1) for at in place]
    for axis in reversed(range(len(shape))):
        row = is_free[(*block[:axis], slice(place[axis], None), *block[axis + 1 :])]
        lines = np.moveaxis(row, axis, 0).reshape(row.shape[axis], -1).all(axis=1)
        block[axis] = slice(place[axis], place[axis] + int(np.append(lines, False).argmin()))
    ranges = [(int(own[part.start]), int(own[part.stop])) for own, part in zip(borders, block, strict=True)]
    start, end = ranges[-1]
    ranges[-1] = -(-start // itemsize), end // itemsize
    return tuple(ranges)


def _covered(borders: Sequence[np.ndarray], boxes: Corners) -> np.ndarray:
    """Per cell whether it lies in a box: each adds one to its cells by its corners."""
    counts = [len(own) for own in borders]
    cells = np.zeros(counts, np.int32)
    first, last = (
        [np.searchsorted(own, side[:, axis]) for axis, own in enumerate(borders)] for side in boxes
    )
    for corner in product((False, True), repeat=len(counts)):
        place = tuple((last if is_last else first)[axis] for axis, is_last in enumerate(corner))
        np.add.at(cells, place, -1 if sum(corner) % 2 else 1)
    for axis in range(len(counts)):
        np.cumsum(cells, axis=axis, out=cells)
    return np.asarray(cells[tuple(slice(n - 1) for n in counts)] > 0)
