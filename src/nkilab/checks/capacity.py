"""What lies on chip over time: bytes of SBUF and banks of PSUM, and what does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from ..dialects.history import BETA1
from ..errors import LimitError
from ..place.plan import Finding as PlanFinding
from ..place.plan import Placements
from ..place.slots import distinct
from ..tiles.tile import HBM, PSUM, SBUF
from ..trace.program import Program
from .declare import Example, Refusal, rule
from .evidence import Evidence, Track
from .finding import Finding, Site

_LARGEST = 5
# samples of the curve of occupancy
_POINTS = 64
_SPILLED = """
tiles: total f32[128,8192] sbuf; out f32[128,8192] hbm < total
tiles = []
for i in range({}):
    tiles: tile f32[128,8192] sbuf < x[i]
    tiles.append(tile)
nisa.memset(total, 0.0)
for tile in tiles:
    nisa.tensor_tensor(total, total, tile, op=nl.add)
"""
SPILL = rule("spill", "capacity", "warning", title="all tiles that are live at once fit into SBUF",
    what="more bytes per partition are live than SBUF has, so that tiles are saved to HBM and read back",
    why="the vendor's compiler spills too, and the traffic takes its time; it is counted in "
    "`spill_save_bytes` and `spill_reload_bytes`",
    fix="make the tiles smaller, or use one up before the next is loaded",
    source="trn1 architecture guide, SBUF; profile schema, spill_save_bytes",
    kernel=Example(_SPILLED, {"x": "f32[{},128,8192]"}), wrong="8", right="4",
)  # fmt: skip

_BANKS = """
tiles: left bf16[128,128] sbuf < a; right bf16[128,512] sbuf < b; out f32[{0},128,512] hbm
sums = []
for i in range({0}):
    tiles: total f32[128,512] psum
    nisa.nc_matmul(total, left, right)
    sums.append(total)
for i in range({0}):
    tiles: result f32[128,512] sbuf
    nisa.tensor_copy(result, sums[i])
    nisa.dma_copy(out[i], result)
"""
PSUM_FULL = rule(
    "psum-full", "capacity", "error", title="no more banks of PSUM are live at once than there are",
    what="a tile in PSUM is needed while all eight banks hold results that are read later",
    why="PSUM is not spilled: the compiler gives up, though every simulator without a memory model runs on",
    fix="copy finished tiles to sbuf before the next one is computed",
    source="trn1 architecture guide, PSUM: 8 banks of 2 KiB per partition",
    kernel=Example(_BANKS, {"a": "bf16[128,128]", "b": "bf16[128,512]"}), wrong="9", right="8",
)  # fmt: skip

_WIDE = Example("tiles: tile f32[128,{0}] sbuf < x; out f32[128,{0}] hbm < tile", {"x": "f32[128,{}]"})
SBUF_FULL = rule(
    "sbuf-full", "capacity", "error", title="the operands of one instruction fit into SBUF together",
    what="the tiles in which the operands of an instruction lie need more bytes per partition than SBUF has",
    why="nothing can be spilled to make room for them", fix="split the free axis into smaller tiles",
    source="trn1 architecture guide, SBUF", kernel=_WIDE, wrong="65536", right="32768",
)  # fmt: skip

_FIXED = """
tiles: left bf16[128,128] sbuf < a; right bf16[128,512] sbuf < b; out f32[8,128,512] hbm
for i in range(8):
    tiles: total f32[128,512] psum, address=(0, 2048 * i); other f32[128,512] psum{}; result f32[128,512] sbuf
    nisa.nc_matmul(total, left, right)
    nisa.tensor_copy(other, total)
    nisa.tensor_copy(result, other)
    nisa.dma_copy(out[i], result)
"""
MIXED = rule(
    "mixed-addresses", "capacity", "warning", title="tiles without an address fit beside those that have one",
    what="tiles at addresses that the kernel gives leave too little of a memory for its other tiles",
    why="the compiler places the others where none of these ever lies; they are timed as if apart",
    fix="give every tile an address, or none",
    source="direct allocation guide: direct and automatic allocation do not mix",
    kernel=Example(_FIXED, {"a": "bf16[128,128]", "b": "bf16[128,512]"}), wrong="", right=", address=(0, 0)",
    one_spelling="a kernel of Beta 1 that gives an address and leaves one out stops, as `kernel-error` tells",
)  # fmt: skip

_BOTH = """
tiles: fixed f32[128,512] sbuf, address=(0, 8192) < x; other f32[128,512] sbuf{}
tiles: out f32[128,512] hbm < other
nisa.tensor_copy(other, fixed)
"""
BOTH = rule("mixed-allocation", "capacity",
    Refusal("report", "NCC_EGCA111", "Memory allocation failed; spilling is disabled"),
    title="all tiles in sbuf have an address, or none has",
    what="a kernel of `nki` gives addresses to some of its tiles in sbuf",
    why="the allocator cannot colour the others around bytes that are taken, and fails with room left",
    fix="give every tile an address, or none",
    source="nki-moe-megakernel, SBUF allocation; a report of pitfalls on trn2, NKI 0.6",
    kernel=Example(_BOTH, {"x": "f32[128,512]"}), wrong="", right=", address=(0, 16384)",
)  # fmt: skip


_KEPT = "tiles: tile f32[128,512] sbuf, address=(0, 0) < x; out f32[128,512] hbm < tile\n{}"
ALLOCATED = rule("allocated-scratch", "compiler",
    Refusal("documented", "", "Non IO HBM tensor is not supported in allocated NKI kernel", BETA1, BETA1),
    title="a kernel with addresses has arguments and results in hbm, and nothing else",
    what="a kernel that gives tiles their addresses makes a tensor in hbm that it does not return",
    why="the compiler of Beta 1 finds such tensors no place in hbm",
    fix="return the tensor, or leave the addresses to the compiler",
    source="direct allocation guide, known limitations",
    kernel=Example(_KEPT, {"x": "f32[128,512]"}, "neuronxcc"),
    wrong="kept = nl.ndarray((128, 512), x.dtype, buffer=nl.hbm)\nnl.store(kept, tile)", right="",
)  # fmt: skip


class Use(Struct, frozen=True):
    """How full a memory is over the rows of a program; `used` units from `row` on."""

    memory: str
    unit: str
    capacity: int
    row: np.ndarray
    used: np.ndarray

    @property
    def peak(self) -> int:
        """Most units at once."""
        return int(self.used.max(initial=0))

    @property
    def peak_row(self) -> int:
        """The row at which that is so for the first time."""
        return int(self.row[int(np.argmax(self.used))]) if len(self.row) else 0


def use_of(track: Track, memory: str) -> Use:
    """How full SBUF (bytes per partition) or PSUM (banks) is."""
    machine, plan = track.program.machine, track.plan
    if memory == "sbuf":
        return _use(plan.sbuf, memory, "bytes per partition", machine.limit("sbuf_bytes_per_partition"), 1)
    return _use(plan.psum, memory, "banks", machine.limit("psum_banks"), machine.limit("psum_bank_bytes"))


def _use(placements: Placements, memory: str, unit: str, capacity: int, size: int) -> Use:
    units = -(-placements.size // size)
    rows = np.concatenate([placements.first_row, placements.last_row + 1])
    change = np.concatenate([units, -units])
    order = np.argsort(rows, kind="stable")
    at, first = np.unique(rows[order], return_index=True)
    used = np.cumsum(np.add.reduceat(change[order], first)) if len(at) else np.zeros(0, np.int64)
    return Use(memory, unit, capacity, at, used)


def largest_live(track: Track, memory: str, row: int) -> list[str]:
    """The largest tiles that lie in a memory at a row, with their lines."""
    placements = track.plan.sbuf if memory == "sbuf" else track.plan.psum
    live = np.flatnonzero((placements.first_row <= row) & (placements.last_row >= row))
    live = live[np.argsort(-placements.size[live], kind="stable")]
    tiles = ((int(placements.storage[p]), int(placements.size[p])) for p in live)
    largest = Counter(
        f"{track.describe(storage)}, {size} bytes per partition, {track.birthplace(storage)}"
        for storage, size in tiles
    )
    several = [f"{count} x {text}" if count > 1 else text for text, count in largest.items()]
    return several[:_LARGEST]


def occupancy(track: Track) -> dict[str, Any]:
    """Peak use of both memories and what lies there then, ready for JSON."""
    figures: dict[str, Any] = {}
    for memory in ("sbuf", "psum"):
        use = use_of(track, memory)
        figures[memory] = {
            "unit": use.unit,
            "capacity": use.capacity,
            "peak": use.peak,
            "peak_line": str(_site(track.compiled, use.peak_row)) if use.peak else "",
            "over_time": _curve(track.compiled, use),
            "largest": largest_live(track, memory, use.peak_row) if use.peak else [],
        }
    return figures


def _curve(program: Program, use: Use) -> list[dict[str, Any]]:
    """How full a memory is where it is fullest within each of up to `_POINTS` stretches of the rows."""
    if not len(use.row):
        return []
    stretch = use.row * np.int64(_POINTS) // max(1, int(use.row[-1]) + 1)
    samples = []
    for number in distinct(stretch).tolist():
        own = np.flatnonzero(stretch == number)
        most = own[int(np.argmax(use.used[own]))]
        row = int(use.row[most])
        samples.append({"row": row, "line": str(_site(program, row)), "used": int(use.used[most])})
    return samples


def _site(program: Program, row: int) -> Site:
    row = min(row, len(program) - 1)
    return Site(*program.lines[int(program.line_column[row])])


def find(evidence: Evidence) -> Iterator[Finding]:
    """Spills and shortage."""
    for track in evidence.tracks:
        if not len(track.program):
            continue
        try:
            plan_findings = track.compiled.findings if _fits_at_once(track) else track.plan.findings
        except LimitError as error:
            yield _shortage(track, error)
            continue
        is_parsed = evidence.kernel.spelling == "nki"
        mixture = list(_mixture(track)) if is_parsed else []
        yield from mixture
        yield from () if is_parsed else _scratch(track)
        others = (f for f in plan_findings if not mixture or f.rule != MIXED.id)
        yield from (_planned(track, plan_finding) for plan_finding in others)


def _fits_at_once(track: Track) -> bool:
    """Whether all tiles fit into memory beside each other: planning then has nothing to tell."""
    program, machine = track.compiled, track.program.machine
    room = {SBUF: machine.limit("sbuf_bytes_per_partition"), PSUM: machine.limit("psum_banks")}
    unit = {SBUF: 1, PSUM: machine.limit("psum_bank_bytes")}
    for record in program.storages:
        if record.memory in room:
            room[record.memory] -= -(-record.bytes_per_partition // unit[record.memory])
    return not program.addresses and min(room.values()) >= 0


def _mixture(track: Track) -> Iterator[Finding]:
    """The first tile in sbuf that has no address, of a program in which others have one."""
    program = track.program
    tiles = [n for n, record in enumerate(program.storages) if record.memory == SBUF]
    others = [number for number in tiles if number not in program.addresses]
    if others and len(others) < len(tiles):
        fixed = next(number for number in tiles if number in program.addresses)
        yield BOTH.finding(
            f"{track.describe(others[0])} has no address, and {track.describe(fixed)} has one",
            track.birthplace(others[0]), track.birthplace(fixed), "made here",
        )  # fmt: skip


def _scratch(track: Track) -> Iterator[Finding]:
    """Tensors in HBM of an allocated kernel of Beta 1 that it neither is given nor returns."""
    known = {r.storage for r in track.marks.returned}
    for number, record in enumerate(track.program.storages if track.program.addresses else ()):
        if record.memory == HBM and record.scope != "input" and number not in known:
            yield ALLOCATED.finding(f"{track.describe(number)} is no result", track.birthplace(number))


def _planned(track: Track, plan_finding: PlanFinding) -> Finding:
    """What planning found, with what is live there; with a spill goes what is spilled."""
    site = _full_site(track, plan_finding.where)
    if plan_finding.rule == MIXED.id:
        return MIXED.finding(plan_finding.message, site)
    said, _, live = plan_finding.message.partition("; the largest live here are ")
    notes = [*_spilled(track), *(f"live: {text}" for text in live.split("; ") if text)]
    return (PSUM_FULL if plan_finding.rule == PSUM_FULL.id else SPILL).finding(said, site, notes=notes)


def _spilled(track: Track) -> list[str]:
    plan = track.plan
    if not plan.transfers:
        return []
    sentence = f"{plan.spill_save_bytes} bytes are saved to hbm, {plan.spill_reload_bytes} read back"
    again = plan.loaded_again_bytes
    return [f"{sentence}; {again} bytes of inputs are loaded again" if again else sentence]


def _shortage(track: Track, error: LimitError) -> Finding:
    """What planning refuses."""
    rule = PSUM_FULL if error.problem.startswith("psum is full") else SBUF_FULL
    notes = [fact for fact in error.facts if " lies in " in fact]
    return rule.finding(f"{error.called}: {error.problem}", _full_site(track, error.where), notes=notes)


def _full_site(track: Track, where: str) -> Site:
    """The line that "file.py:41" of a plan names."""
    name, _, number = where.rpartition(":")
    for file, line in (*track.program.lines, *track.compiled.lines):
        if str(line) == number and file.rsplit("/", 1)[-1] == name:
            return Site(file, line)
    return Site(name, int(number) if number.isdigit() else 0)
