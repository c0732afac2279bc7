"""Instructions, transfers, and the dependences between them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ...place.slots import DMA, ENGINES, distinct
from ...place.walk import ANTI, DIRECT, KINDS, OUTPUT
from ...tiles.tile import HBM
from ...timing.work import QUEUES
from ..flops import flops_of
from ..lanes import ENGINE_LANES, WEIGHTS, queue_name
from ..nodes import is_hidden
from ..run import Run
from ..summary import bytes_by_row

Columns = dict[str, Any]
_DEPENDENCES = {ANTI: "ANTI_DEPENDENCE", DIRECT: "ANTI_DEPENDENCE", OUTPUT: "OUTPUT_DEPENDENCE"}
# Scopes of tensors that a kernel returns.
OUTPUTS = ("shared", "output")
_OPS = {"load": "read", "store": "write", "on_chip": "copy", "spill_save": "write", "spill_reload": "read",
        "collective": "copy"}  # fmt: skip


def whole(times: np.ndarray) -> np.ndarray:
    """Times in whole nanoseconds."""
    return np.rint(times).astype(np.int64)


def span(start: np.ndarray, end: np.ndarray) -> Columns:
    """Start, end and duration of events."""
    first, last = whole(start), whole(end)
    return {"start_ts": first, "end_ts": last, "duration_ns": last - first}


def instructions(run: Run) -> Columns:
    """One row per event of an engine, in order of start."""
    timeline = run.timeline
    here = np.flatnonzero(timeline.engine != DMA)
    row = timeline.row[here]
    engine = timeline.engine[here]
    hidden = is_hidden(timeline)[here]
    lanes = [ENGINE_LANES[name] for name in ENGINES[:-1]]
    pc = np.zeros(len(here), np.int64)
    for number in distinct(engine).tolist():
        own = engine == number
        pc[own] = np.arange(np.count_nonzero(own))
    texts = _operand_texts(run)
    opcodes = [opcode_of(timeline.labels[n]) for n in timeline.label[here].tolist()]
    forms = np.asarray(run.program.form_column, np.int64)[row]
    flops, adjusted, transposes = _flops(run, here, forms)
    return {
        **span(timeline.start_ns[here], timeline.end_ns[here]),
        "engine": [ENGINES[n] for n in engine.tolist()],
        "timeline_track": [
            WEIGHTS if h else lanes[n] for n, h in zip(engine.tolist(), hidden.tolist(), strict=True)
        ],
        "pcore_idx": np.zeros(len(here), np.int64),
        "opcode": [opcode for opcode, _ in opcodes],
        "operands": [texts(r) + mode for r, (_, mode) in zip(row.tolist(), opcodes, strict=True)],
        "id": here,
        "pc": pc,
        "evt_wait_time_ns": whole(run.stalls.before_ns[here]),
        "nki_source_location": [run.program.place_of(r) for r in row.tolist()],
        **_moved(run, here),
        "raw_flops": flops,
        "adjusted_flops": adjusted,
        "flops_transpose": transposes,
    }


def opcode_of(label: str) -> tuple[str, str]:
    """A label as the schema has it: opcode, and what its operands say of the pass of a float32 product."""
    opcode, _, mode = label.partition(" ")
    return opcode, f" fp32_mode={mode}" if mode else ""


def _operand_texts(run: Run) -> Any:
    """A function from a row to its tiles with their layouts, results first."""
    program = run.program
    start, stored = program.operand_start.tolist(), program.storage_column.tolist()

    @cache
    def patterns(form: int) -> list[tuple[str, str]]:
        slots = program.forms[form].tile_slots()
        return [
            (name, f"{layout.dtype.name}{list(layout.shape)}")
            for name, _, layout in slots
            if layout is not None
        ]

    forms = np.asarray(program.form_column, np.int64).tolist()

    def text(row: int) -> str:
        own = patterns(forms[row])
        tiles = stored[start[row] : start[row + 1]]
        return " ".join(
            f"{name}={run.tile_names[tile]}:{layout}" for (name, layout), tile in zip(own, tiles, strict=True)
        )

    return text


def _flops(run: Run, here: np.ndarray, forms: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operations per event, the same weighted against bfloat16, and those of transposes.

    Only multiplications have any; the passes of one share its operations.
    """
    timeline = run.timeline
    per_form = [flops_of(form) for form in run.program.forms]
    total = np.array([own.once for own in per_form] or [0], np.int64)[forms]
    only = np.array([own.transposes > 0 for own in per_form] or [False], np.bool_)[forms]
    adjusted = np.array([own.adjusted for own in per_form] or [0], np.int64)[forms]
    multiplies = np.array([label.startswith("MATMUL") for label in timeline.labels], np.bool_)
    does = multiplies[timeline.label[here]] & (total > 0) if len(timeline.labels) else np.zeros(0, np.bool_)
    node = timeline.node[here]
    passes = np.bincount(node[does], minlength=int(node.max(initial=0)) + 1)[node]
    raw, weighted = (np.where(does, own // np.maximum(passes, 1), 0) for own in (total, adjusted))
    return raw, weighted, np.where(only, raw, 0)


def _moved(run: Run, here: np.ndarray) -> Columns:
    """Bytes per event; those of a row stand at its last event."""
    last = np.zeros(len(run.timeline), np.bool_)
    last[run.nodes.event] = True
    own = last[here] & (run.timeline.node[here] < len(run.program))
    row = run.timeline.row[here]
    counted = bytes_by_row(run.program, as_counted=True)
    return {
        f"{place}_bytes": whole(np.where(own, rows[row], 0))
        for place, rows in counted.items()
        if not place.startswith(HBM)
    }


def transfers(run: Run) -> Columns:
    """One row per transfer, in order of start."""
    traffic, timeline, program = run.traffic, run.timeline, run.program
    event = traffic.event
    queue = timeline.queue[event].astype(np.int64)
    nodes, rows = timeline.node[event].tolist(), timeline.row[event].tolist()
    sides = [_sides(run, node, row) for node, row in zip(nodes, rows, strict=True)]
    kind = "data" if program.has_static_descriptors else "hardware_dynamic"
    lasts = np.maximum(traffic.end_ns - traffic.start_ns, 1e-3)
    crosses = traffic.total_bytes
    return {
        **span(traffic.start_ns, traffic.end_ns),
        "id": event,
        "pcore_idx": np.zeros(len(event), np.int64),
        "block_id": _within(queue),
        "queue_idx": queue,
        "queue_name": [queue_name(n) for n in queue.tolist()],
        "queue_type": [kind] * len(event),
        "op": [_OPS[QUEUES[k]] for k in traffic.kind.tolist()],
        "variable": [side["variable"] for side in sides],
        "read_bytes": crosses, "write_bytes": crosses, "transfer_bytes": crosses,
        "throughput": crosses / lasts * 1e9,
        "source": [side["source"] for side in sides],
        "dest": [side["dest"] for side in sides],
        **{
            f"{way}_{what}": [side[way][what] for side in sides]
            for way in ("read", "write")
            for what in ("sbuf_partitions", "num_sbuf_partitions", "shape", "steps")
        },
        "trigger": whole(timeline.issued_ns[event]),
    }  # fmt: skip


def _within(queue: np.ndarray) -> np.ndarray:
    """Per transfer its number within its queue."""
    result = np.zeros(len(queue), np.int32)
    for number in distinct(queue).tolist():
        own = queue == number
        result[own] = np.arange(np.count_nonzero(own))
    return result


def _sides(run: Run, node: int, row: int) -> dict[str, Any]:
    """What a transfer reads and writes."""
    program = run.program
    inserted = node - len(program)
    if 0 <= inserted < len(run.plan.transfers):
        moved = run.plan.transfers[inserted]
        chip = _chip(moved.descriptors, [moved.descriptors, moved.descriptor_bytes], [])
        spills = moved.kind == "spill_save"
        return {
            "variable": run.tile_names[moved.storage],
            "source": "[SB]" if spills else "[DRAM]",
            "dest": "[DRAM]" if spills else "[SB]",
            "read": chip if spills else _chip(0, chip["shape"], []),
            "write": _chip(0, chip["shape"], []) if spills else chip,
        }
    written, read = None, None
    for access in program.accesses(row):
        if access.is_written and written is None:
            written = access
        elif not access.is_written and read is None:
            read = access
    read = read or written
    hbm_sides = [a for a in (read, written) if a is not None and a.layout.memory == HBM]
    hbm_sides = hbm_sides or [a for a in (read,) if a is not None]
    return {
        "variable": run.tile_names[hbm_sides[0].storage] if hbm_sides else "",
        "source": _place(run, read), "dest": _place(run, written),
        "read": _access(read), "write": _access(written),
    }  # fmt: skip


def _place(run: Run, access: Any) -> str:
    if access is None:
        return "[]"
    if access.layout.memory != HBM:
        return "[SB]"
    scope = run.program.storages[access.storage].scope
    return "[INPUT]" if scope == "input" else "[OUTPUT]" if scope in OUTPUTS else "[DRAM]"


def _access(access: Any) -> dict[str, Any]:
    if access is None:
        return _chip(0, [], [])
    layout = access.layout
    partitions = layout.partitions if layout.memory != HBM else 0
    first = layout.start_partition if partitions else 0
    return _chip(partitions, list(layout.shape), list(layout.strides), first)


def _chip(partitions: int, shape: Any, steps: list[int], first: int = 0) -> dict[str, Any]:
    return {
        "sbuf_partitions": f"{first}-{first + partitions - 1}" if partitions else "",
        "num_sbuf_partitions": partitions,
        "shape": str(shape),
        "steps": str(steps),
    }


def active_times(run: Run) -> Columns:
    """Merged times in which an engine has an instruction under way."""
    busy = [(e, s, t) for e in ENGINES[:-1] for s, t in run.timeline.busy_intervals(e).tolist()]
    return {
        **span(np.array([s for _, s, _ in busy]), np.array([t for _, _, t in busy])),
        "engine": [engine for engine, _, _ in busy],
        "pcore_idx": np.zeros(len(busy), np.int64),
    }


def opcode_summary(run: Run) -> Columns:
    """Per engine and opcode how many there are, and how long they take."""
    timeline = run.timeline
    rows = []
    names = [opcode_of(label)[0] for label in timeline.labels]
    opcode = np.array([names.index(name) for name in names], np.int64)[timeline.label]
    for number, engine in enumerate(ENGINES[:-1]):
        own = timeline.engine == number
        for label in distinct(opcode[own]).tolist():
            here = np.flatnonzero(own & (opcode == label))
            start, end = timeline.start_ns[here], timeline.end_ns[here]
            reached = np.maximum.accumulate(end)
            before = np.append(start[:1], np.maximum(reached[:-1], start[1:]))
            active = float(np.maximum(end - np.maximum(start, before), 0).sum())
            rows.append((engine, names[label], len(here), float((end - start).sum()), active))
    return {
        "engine": [r[0] for r in rows],
        "opcode": [r[1] for r in rows],
        "instruction_count": np.array([r[2] for r in rows], np.int64),
        "instruction_time_ns": whole(np.array([r[3] for r in rows])),
        "active_time_ns": whole(np.array([r[4] for r in rows])),
        "active_time_percent": np.array([timeline.share(r[4]) for r in rows]),
    }


def flows(run: Run) -> Columns:
    """Who waits for whom: the last event of one node for the last of another."""
    work, event, timeline = run.work, run.nodes.event, run.timeline
    later = np.repeat(np.arange(len(work.share)), np.diff(work.wait_start)) if len(work.share) else event
    earlier = work.wait_node.astype(np.int64)
    is_dma = timeline.engine[event] == DMA if len(event) else event
    tables = np.where(is_dma, "dma_block", "instruction")
    gap = timeline.start_ns[event[later]] - timeline.end_ns[event[earlier]] if len(later) else later
    names = [_DEPENDENCES.get(kind, "FLOW_DEPENDENCE") for kind in range(len(KINDS))]
    return {
        "in_id": event[earlier] if len(later) else later,
        "out_id": event[later] if len(later) else later,
        "in_table": tables[earlier].tolist() if len(later) else [],
        "out_table": tables[later].tolist() if len(later) else [],
        "dependency_type": [names[kind] for kind in work.wait_kind.tolist()],
        "gap_time": whole(gap),
    }
