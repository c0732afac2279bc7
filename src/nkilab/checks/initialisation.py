"""Reading what was never written. Shadow bits of the run decide, element by element; no value does."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from ..place.slots import distinct
from ..tiles.tile import HBM
from .declare import Example, rule
from .evidence import Evidence, Track
from .finding import Finding, Site

SOURCE = "NKI simulator guide, uninitialized memory detection"

_PARTLY = "tiles: tile f32[128,512] sbuf; out f32[128,512] hbm < tile\nnisa.dma_copy(tile{0}, x{0})"
UNWRITTEN_READ = rule(
    "unwritten-read", "initialisation", "error", title="every element is written before it is read",
    what="an instruction reads elements of a tile, or of an HBM tensor, that nothing has written. What an "
    "instruction on chip makes of them at the same place counts as unwritten in turn, and is told of where "
    "it is stored or other elements depend on it",
    why="on the device they hold what earlier kernels left there; simulators show NaN, or some integer",
    fix="write the whole tensor first, with nisa.memset or a full load", source=SOURCE,
    kernel=Example(_PARTLY, {"x": "f32[128,512]"}), wrong="[:, 0:500]", right="",
)  # fmt: skip

_STORED = """
tiles: out f32[512,64] hbm
for i in nl.affine_range({}):
    tiles: tile f32[128,64] sbuf < x[nl.ds(i * 128, 128)]
    nisa.dma_copy(out[nl.ds(i * 128, 128)], tile)
"""
UNWRITTEN_OUTPUT = rule(
    "unwritten-output", "initialisation", "error", title="every element of a result is written",
    what="a kernel returns a tensor of which it wrote a part only",
    why="the rest of the result is what lay in that memory before",
    fix="store the missing part, or make the tensor smaller", source=SOURCE,
    kernel=Example(_STORED, {"x": "f32[512,64]"}), wrong="3", right="4",
)  # fmt: skip

_KEPT = "tiles: tile f32[128,512] sbuf < x; kept f32[128,512] hbm < tile\n{}"
NO_OUTPUT = rule("no-output", "initialisation", "warning",
    title="a kernel leaves a result", what="a kernel returns no tensor and writes to none of its arguments",
    why="what it computed is lost; the compiler of Beta 1 refuses such kernels",
    fix="return the tensor in shared_hbm that holds the result", source="err_tensor_output_not_written_to",
    kernel=Example(_KEPT, {"x": "f32[128,512]"}), wrong="", right="return kept",
)  # fmt: skip


def find(evidence: Evidence, reported: Collection[tuple[int, int]] = ()) -> Iterator[Finding]:
    """Reads of what was never written, but for `reported` ones, once per line; results with holes."""
    yield from _unwritten_reads(evidence, reported)
    yield from holes(evidence)
    if not _leaves_result(evidence):
        yield NO_OUTPUT.finding(
            f"{evidence.kernel.name} returns no tensor and writes to none of its arguments",
            evidence.definition,
        )  # fmt: skip


def _unwritten_reads(evidence: Evidence, reported: Collection[tuple[int, int]]) -> Iterator[Finding]:
    seen: set[tuple[Site, Site]] = set()
    reads = ((track, *read) for track in evidence.tracks for read in track.marks.unwritten)
    for track, row, storage, layout, state in reads:
        if (track.rank, row) in reported:
            continue
        site = track.site(row)
        birthplace = track.birthplace(storage) if storage >= 0 else Site()
        if (site, birthplace) in seen:
            continue
        seen.add((site, birthplace))
        name = track.describe(storage) if storage >= 0 else "a tile of the other core"
        share = "nothing has written" if state == "none" else "was written in part only"
        yield UNWRITTEN_READ.finding(
            f"{track.called(row)} reads {list(layout.shape)} of {name}, which {share}",
            site, birthplace, "made here, unwritten", fix=_fix(evidence, track, row, storage),
        )  # fmt: skip


def _leaves_result(evidence: Evidence) -> bool:
    """Whether a kernel returns a tensor, or writes to an argument; what does nothing loses nothing."""
    if evidence.tracks[0].marks.returned or not any(len(track.program) for track in evidence.tracks):
        return True
    return any(
        track.program.storages[storage].scope == "input"
        for track in evidence.tracks
        for storage in distinct(track.slots.storage[track.slots.is_written]).tolist()
    )


def _fix(evidence: Evidence, track: Track, row: int, storage: int) -> str:
    if storage < 0 or track.program.storages[storage].memory != HBM:
        return ""
    is_copy = evidence.kernel.spelling == "nki" and track.program.form_of(row).name == "dma_copy"
    if is_copy and not track.slots.is_written[track.slots.storage == storage].any():
        return "exchange dst and src if the copy is to write to it: dma_copy writes to dst"
    return "store to all of it before it is loaded"


def holes(evidence: Evidence) -> Iterator[Finding]:
    """Results of which a part is written."""
    track = evidence.tracks[0]
    for storage, written, total in track.marks.returned:
        if written < total:
            row, other_message, fix = _written_instead(track, storage) if not written else (-1, "", "")
            yield UNWRITTEN_OUTPUT.finding(
                f"{evidence.kernel.name} returns {track.describe(storage)} with {written} of {total} "
                f"elements written ({written / total:.1%})",
                track.birthplace(storage), track.site(row) if row >= 0 else Site(), other_message, fix=fix,
            )  # fmt: skip


def _written_instead(track: Track, storage: int) -> tuple[int, str, str]:
    """Where an input of the shape and type of a result is written: row, sentence, hint; row -1 if nowhere."""
    slots, storages = track.slots, track.program.storages
    result = storages[storage]
    for slot in np.flatnonzero(slots.is_written).tolist():
        record = storages[int(slots.storage[slot])]
        if record.scope == "input" and (record.shape, record.dtype) == (result.shape, result.dtype):
            name = track.name(int(slots.storage[slot]))
            hint = f"write to {track.name(storage)} there, not to {name}, if that is meant"
            return int(slots.row[slot]), f"{name}, an input, is written here", hint
    return -1, "", ""
