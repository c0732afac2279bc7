"""Where time goes that need not: advice, each piece with what it would save by simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import LimitError
from ..isa.data_movement import DmaCopy
from ..isa.declare import Step
from ..isa.tensor_engine import NcMatmul
from ..place.slots import DMA, slots_of
from ..place.walk import KINDS
from ..tiles.tile import HBM, SBUF
from ..timing.work import TABLELESS
from ..trace.program import Program
from .declare import Rule
from .evidence import Evidence, Track
from .finding import Finding, Site
from .slow import HELD_BANK, IDLE_ARRAY, RELOADED, REPEATED, SHORT_ROWS, SINGLE_BUFFER, SLOW_AXIS
from .whatif import by_line, latency_with_steps, latency_without_rows, latency_without_waits, later_of

# hw: below this a DMA engine spends more on descriptors than on bytes (DMA guide, "Descriptor size")
EFFICIENT_BYTES = 2048
# what is not worth a word: shares of the latency, of an engine's time, of the rows of a systolic array
LEAST_GAIN, LEAST_SHARE, LEAST_FULL = 0.02, 0.02, 0.75
# pieces of advice that are simulated, those with the most time behind them
MOST_TRIED = 4


@dataclass(frozen=True)
class Candidate:
    """Something that may save time.

    Args:
        rule: what it is.
        site: the line.
        message: what is the matter.
        weight_ns: time that it is about, before anything is simulated.
        try_out: simulates the program without it; nanoseconds.
    """

    rule: Rule
    site: Site
    message: str
    weight_ns: float
    try_out: Callable[[], float]

    @property
    def name(self) -> str:
        """As `--what-if` spells it."""
        return f"{self.rule.id}@{self.site.line}"


def slowest(tracks: Sequence[Track]) -> Track | None:
    """The program that ends last, which decides when the launch ends; None if nothing can be timed."""
    try:
        timed = [(track.timeline.latency_ns, -number) for number, track in enumerate(tracks)]
    except LimitError:
        return None
    return tracks[-max(timed)[1]] if timed else None


def find(evidence: Evidence) -> Iterator[Finding]:
    """Advice that saves time worth a word, the most first."""
    track = slowest([track for track in evidence.tracks if len(track.program)])
    if track is None:
        return
    latency = track.timeline.latency_ns
    findings: list[Finding] = []
    for candidate in sorted(candidates(track), key=lambda c: -c.weight_ns)[:MOST_TRIED]:
        if candidate.weight_ns < LEAST_SHARE * latency:
            continue
        gain = latency - candidate.try_out()
        if gain >= LEAST_GAIN * latency:
            findings.append(_finding(evidence, candidate, gain, latency))
    yield from sorted(findings, key=lambda f: -(f.gain_us or 0.0))


def _finding(evidence: Evidence, candidate: Candidate, gain: float, latency: float) -> Finding:
    command = f"{evidence.command} --what-if {candidate.name}" if evidence.command else ""
    return candidate.rule.finding(
        candidate.message, candidate.site, gain_us=gain / 1000, command=command,
        notes=[f"{latency / 1000:.2f} us predicted, {(latency - gain) / 1000:.2f} us without it"],
    )  # fmt: skip


def candidates(track: Track) -> Iterator[Candidate]:
    """Everything that may save time in a program, not tried yet."""
    yield from _short_rows(track)
    yield from _repeated(track)
    yield from _idle_array(track)
    yield from _reloads(track)
    yield from _slow_axis(track)
    yield from _single_buffer(track)
    yield from _held_banks(track)


def _site(program: Program, line: int) -> Site:
    return Site(*program.lines[line])


def _durations(track: Track) -> np.ndarray:
    """Per row how long its events last, in nanoseconds."""
    timeline = track.timeline
    own = timeline.node < len(track.compiled)
    spans = (timeline.end_ns - timeline.start_ns)[own]
    return np.bincount(timeline.row[own], spans, minlength=len(track.compiled))


def _busy(track: Track) -> np.ndarray:
    """Per row how long it keeps its engine."""
    timeline = track.timeline
    own = timeline.node < len(track.compiled)
    return np.bincount(timeline.row[own], timeline.busy_ns[own], minlength=len(track.compiled))


def _rows_of_forms(program: Program, wanted: list[bool]) -> np.ndarray:
    return (
        np.flatnonzero(np.array(wanted, np.bool_)[program.form_column]) if wanted else np.zeros(0, np.int64)
    )


def _short_rows(track: Track) -> Iterator[Candidate]:
    program, spent = track.compiled, _durations(track)
    short = [
        any(s.engine == "dma" and s.descriptors > 1 and s.descriptor_bytes < EFFICIENT_BYTES for s in f.steps)
        for f in program.forms
    ]

    def widened(step: Step) -> Step:
        if step.engine != "dma" or step.descriptor_bytes >= EFFICIENT_BYTES:
            return step
        total = step.moved_bytes
        size = min(EFFICIENT_BYTES, total)
        return replace(step, descriptors=max(1, -(-total // size)), descriptor_bytes=size)

    for line, rows in by_line(program, _rows_of_forms(program, short)).items():
        steps = [s for s in program.form_of(int(rows[0])).steps if s.engine == "dma"]
        size = min(s.descriptor_bytes for s in steps)
        yield Candidate(
            SHORT_ROWS, _site(program, line),
            f"{len(rows)} transfer{'s' * (len(rows) > 1)} in runs of {size} bytes; DMA is efficient from "
            f"{EFFICIENT_BYTES} on", float(spent[rows].sum()),
            lambda rows=rows: latency_with_steps(track, rows, widened),  # type: ignore[misc]
        )  # fmt: skip


def _repeated(track: Track) -> Iterator[Candidate]:
    """Loads of elements that an earlier row loaded into a tile of the same shape."""
    program = track.compiled
    slots = slots_of(program)
    written = np.bincount(slots.storage[slots.is_written], minlength=len(program.storages))
    is_load = [_is_plain_load(form) for form in program.forms]
    start = np.asarray(program.operand_start, np.int64)
    form = program.form_column
    first_rows: dict[tuple[int, int, int], int] = {}
    again: list[int] = []
    tiles: dict[int, int] = {}
    for row in _rows_of_forms(program, is_load).tolist():
        tile, source = int(slots.storage[start[row]]), int(slots.storage[start[row] + 1])
        if written[tile] != 1 or written[source]:
            continue
        key = (int(form[row]), source, int(slots.offset[start[row] + 1]))
        if key in first_rows:
            again.append(row)
            tiles[row] = first_rows[key]
        else:
            first_rows[key] = tile
    spent = _durations(track)
    for line, rows in by_line(program, again).items():
        stands_for = {int(slots.storage[start[r]]): tiles[r] for r in rows.tolist()}
        total = sum(_bytes(program, r) for r in rows.tolist())
        yield Candidate(
            REPEATED, _site(program, line),
            f"{len(rows)} transfer{'s' * (len(rows) > 1)} load {total} bytes that were loaded before",
            float(spent[rows].sum()),
            lambda rows=rows, s=stands_for: latency_without_rows(track, rows, s),  # type: ignore[misc]
        )  # fmt: skip


def _bytes(program: Program, row: int) -> int:
    return sum(s.moved_bytes for s in program.form_of(row).steps)


def _is_plain_load(form: object) -> bool:
    if not isinstance(form, DmaCopy):
        return False
    dst, src = form.layouts
    return bool(
        dst.memory == SBUF and src.memory == HBM and dst.is_compact and not (dst.indices or src.indices)
    )


def _idle_array(track: Track) -> Iterator[Candidate]:
    """Matmuls that fill a part of the systolic array only."""
    program, busy = track.compiled, _busy(track)
    side = program.machine.limit("partitions")
    shares = [_share_of_array(form, side) for form in program.forms]
    for line, rows in by_line(program, _rows_of_forms(program, [s < LEAST_FULL for s in shares])).items():
        form = program.form_of(int(rows[0]))
        rows_used, columns = _extent_of_array(form)
        share = _share_of_array(form, side)

        def filled(step: Step, share: float = share) -> Step:
            return replace(step, busy_ns=step.busy_ns * share) if step.busy_ns else step

        yield Candidate(
            IDLE_ARRAY, _site(program, line),
            f"{len(rows)} matmul{'s' * (len(rows) > 1)} use {rows_used} rows and {columns} columns of the "
            f"{side} x "
            f"{side} array ({share:.0%})", float(busy[rows].sum()),
            lambda rows=rows, f=filled: latency_with_steps(track, rows, f),  # type: ignore[misc]
        )  # fmt: skip


def _extent_of_array(form: object) -> tuple[int, int]:
    """Rows (of the contraction) and columns (of the stationary tile) that a matmul fills."""
    assert isinstance(form, NcMatmul)
    stationary = form.layouts[list(form.operands).index("stationary")]
    return stationary.partitions, stationary.free_size


def _share_of_array(form: object, side: int) -> float:
    # several tiles share the array where the kernel positions them
    if not isinstance(form, NcMatmul) or form.is_transpose or form.tile_size or form.perf_mode != "none":
        return 1.0
    rows, columns = _extent_of_array(form)
    return min(rows, side) * min(columns, side) / side**2


def _reloads(track: Track) -> Iterator[Candidate]:
    """Loads of function tables beyond one per table."""
    program = track.compiled
    tables = [next((s.table for s in f.steps if s.table not in TABLELESS), "") for f in program.forms]
    rows = _rows_of_forms(program, [bool(t) for t in tables])
    if len(rows) < 2:
        return
    names = [tables[n] for n in program.form_column[rows].tolist()]
    switches = [i for i in range(1, len(names)) if names[i] != names[i - 1]]
    extra = len(switches) + 1 - len(set(names))
    if extra < 1:
        return
    cost = program.machine["activation_table_load_ns"]
    site = _site(program, int(program.line_column[rows[switches[-1]]]))
    first = {names[i]: i for i in reversed(range(len(names)))}
    # each table is loaded once, where it is first used
    kept = rows[[i for i in range(len(names)) if i not in first.values()]]
    yield Candidate(
        RELOADED, site,
        f"ScalarE loads a function table {len(switches) + 1} times for {len(set(names))} tables: "
        f"{', '.join(dict.fromkeys(names))}", extra * cost,
        lambda: latency_with_steps(track, kept, lambda s: replace(s, table="")),
    )  # fmt: skip


def _slow_axis(track: Track) -> Iterator[Candidate]:
    """Reductions over partitions, which GpSimdE does one after another."""
    program, busy = track.compiled, _busy(track)
    slow = [form.name == "tensor_partition_reduce" for form in program.forms]
    clock = program.machine["vector_clock_ghz"]
    for line, rows in by_line(program, _rows_of_forms(program, slow)).items():
        data = program.form_of(int(rows[0])).layouts[-1]

        def along(step: Step, elements: int = data.partitions) -> Step:
            return Step("vector", "TENSOR_REDUCE", busy_ns=max(elements, 64) / clock)

        yield Candidate(
            SLOW_AXIS, _site(program, line),
            f"{len(rows)} reduction{'s' * (len(rows) > 1)} over {data.partitions} partitions on GpSimdE",
            float(busy[rows].sum()),
            lambda rows=rows, f=along: latency_with_steps(track, rows, f),  # type: ignore[misc]
        )  # fmt: skip


def _single_buffer(track: Track) -> Iterator[Candidate]:
    """Loads that wait until the tile they fill has been used up."""
    program, plan = track.compiled, track.plan
    later = later_of(plan.waits)
    slots = slots_of(program)
    is_load = np.zeros(len(plan.waits.start) - 1, np.bool_)
    dst = slots.storage[np.asarray(program.operand_start)[:-1].clip(max=max(len(slots.storage) - 1, 0))]
    on_chip = slots.kinds.lie_in(SBUF)[dst] if len(dst) else np.zeros(0, np.bool_)
    is_load[: len(program)] = (slots.engine == DMA) & on_chip
    wanted = is_load[later] & np.isin(plan.waits.kind, [KINDS.index("anti"), KINDS.index("output")])
    spent = _durations(track)
    for line, rows in by_line(program, np.unique(later[wanted])).items():
        mine = np.flatnonzero(wanted & np.isin(later, rows))
        storage = int(dst[rows[0]])
        yield Candidate(
            SINGLE_BUFFER, _site(program, line),
            f"{len(rows)} load{'s' * (len(rows) > 1)} into {track.describe(storage)} wait until what it "
            f"holds is "
            "used up", float(spent[rows].sum()),
            lambda mine=mine: latency_without_waits(track, mine),  # type: ignore[misc]
        )  # fmt: skip


def _held_banks(track: Track) -> Iterator[Candidate]:
    """Matmuls that wait for a bank of PSUM to be copied out."""
    program, plan, timeline = track.compiled, track.plan, track.timeline
    mine = timeline.of_engine("tensor")
    is_product = np.array([form.accumulates for form in program.forms], np.bool_)
    if not len(mine) or not is_product.any():
        return
    is_product = is_product[program.form_column]
    later, waits = later_of(plan.waits), plan.waits
    kinds = [KINDS.index(name) for name in ("reuse", "anti", "output")]
    rows = later < len(program)
    rows[rows] = is_product[later[rows]]
    mine_too = waits.node < len(program)
    mine_too[mine_too] = is_product[waits.node[mine_too]]
    emptied = rows & np.isin(waits.kind, kinds) & ~mine_too
    pairs = later[emptied] * len(waits.start) + waits.node[emptied]
    # from the end of what TensorE did before to the start
    until = np.maximum.accumulate((timeline.start_ns + timeline.busy_ns)[mine])
    idle = timeline.start_ns[mine] - np.append(0.0, until[:-1])
    cause = timeline.node[mine] * len(waits.start) + timeline.waited_node[mine]
    is_held = np.isin(cause, pairs) & (idle > 0)
    stalls = np.bincount(timeline.row[mine][is_held], idle[is_held], minlength=len(program))
    line = np.asarray(program.line_column, np.int64)
    for number, matmuls in by_line(program, np.flatnonzero(stalls)).items():
        all_of_line = np.flatnonzero(is_product & (line == number))
        dropped = np.flatnonzero(emptied & np.isin(later, all_of_line))
        yield Candidate(
            HELD_BANK, _site(program, number),
            f"{len(matmuls)} matmul{'s' * (len(matmuls) > 1)} wait until a bank of PSUM has been copied out",
            float(stalls[matmuls].sum()),
            lambda dropped=dropped: latency_without_waits(track, dropped),  # type: ignore[misc]
        )  # fmt: skip
