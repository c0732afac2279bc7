"""Traces for ui.perfetto.dev: the lanes of the report, flows from what decided a start, counters.

A core is a process. The form is JSON, which needs nothing. Times are whole nanoseconds.

Source: "Trace Event Format" of Perfetto's documentation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from ..timing.timeline import REASON_TEXTS, REASONS
from .path import KINDS
from .run import Run
from .traffic import running_rate

PROCESS = 1
PATH_LANE = "Critical path"
# What a start in its own lane waits for needs no arrow.
_OWN_LANE = ("none", "order", "queue", "issue")


class Slice(Struct):
    """A piece of a lane."""

    lane: int  # its number, from 1 on
    name: str  # shown in it
    # start_ns, end_ns: whole nanoseconds
    start_ns: int
    end_ns: int
    details: dict[str, Any]  # names and values, shown when it is selected
    event: int  # of the timeline, or -1
    waited: int  # the event that decided when it started, or -1 if that is in its own lane


class Counter(Struct, frozen=True):
    """A number over time."""

    # name, unit: of the number
    name: str
    unit: str
    # moments, values: from each moment on it has a value
    moments: np.ndarray
    values: np.ndarray


def lane_names(run: Run) -> list[str]:
    """Lanes by number, from 1 on."""
    return [PATH_LANE, *run.lanes.names]


def _critical(run: Run) -> Iterator[Slice]:
    """The slices of the critical path."""
    path = run.path
    for start, stop, kind, event in zip(
        _whole(path.start_ns), _whole(path.end_ns), path.kind.tolist(), path.event.tolist(), strict=True
    ):
        name = list(KINDS)[kind]
        details = {"what": KINDS[name]} | ({"line": _line(run, event)} if event >= 0 else {})
        yield Slice(1, name, start, stop, details, -1, -1)


def slices(run: Run) -> Iterator[Slice]:
    """All slices, lane after lane, those of one lane in order of time."""
    yield from _critical(run)
    timeline = run.timeline
    order = np.lexsort((timeline.start_ns, run.lanes.of_event)).tolist()
    starts, stops, visible = map(_whole, (timeline.start_ns, run.lanes.until_ns, timeline.end_ns))
    moved = dict(zip(run.traffic.event.tolist(), run.traffic.total_bytes.tolist(), strict=True))
    lanes, labels, waited = run.lanes.of_event.tolist(), timeline.label.tolist(), _waited(run)
    tell = _teller(run)
    for event in order:
        details = tell(event)
        if event in moved:
            details["bytes"] = moved[event]
        if event not in moved:
            details["visible_ns"] = visible[event]
        elif visible[event] > stops[event]:
            # its slice ends where that of the next transfer of the queue begins
            details["last_byte_ns"] = visible[event]
        yield Slice(
            lanes[event] + 2, timeline.labels[labels[event]], starts[event], stops[event], details, event,
            waited[event],
        )  # fmt: skip


def _whole(times: np.ndarray) -> list[int]:
    return np.rint(times).astype(np.int64).tolist()


def _line(run: Run, event: int) -> str:
    return run.program.place_of(int(run.timeline.row[event]))


def _teller(run: Run) -> Callable[[int], dict[str, Any]]:
    """A function that tells of an event its line, instruction, tiles, and why it started when it did."""
    program, timeline = run.program, run.timeline
    rows, nodes, reasons = timeline.row.tolist(), timeline.node.tolist(), timeline.reason.tolist()
    forms, lines = program.form_column.tolist(), program.line_column.tolist()
    start, stored = program.operand_start.tolist(), program.storage_column.tolist()
    places = [f"{run.sources[path].name}:{line}" for path, line in program.lines]
    names, texts = run.tile_names, [REASON_TEXTS[reason] for reason in REASONS]

    def tell(event: int) -> dict[str, Any]:
        row = rows[event]
        inserted = nodes[event] - len(program)
        details: dict[str, Any] = {"line": places[lines[row]]}
        if 0 <= inserted < len(run.plan.transfers):
            details["tile"] = names[run.plan.transfers[inserted].storage]
        else:
            details["instruction"] = program.forms[forms[row]].name
            details["operands"] = ", ".join([names[s] for s in stored[start[row] : start[row + 1]]])
        details["started_then"] = texts[reasons[event]]
        return details

    return tell


def _waited(run: Run) -> list[int]:
    """Per event the one that decided when it started; -1 if that is in its own lane."""
    timeline = run.timeline
    if not len(timeline):
        return []
    own = np.array([reason in _OWN_LANE for reason in REASONS])[timeline.reason]
    return np.where(own | (timeline.waited_node < 0), -1, run.nodes.event[timeline.waited_node]).tolist()


def counters(run: Run) -> tuple[Counter, ...]:
    """Bandwidth of DMA, bytes of SBUF in use, banks of PSUM in use."""
    traffic = run.traffic
    ends = np.maximum(traffic.end_ns, traffic.start_ns + 1e-3)
    moments, bandwidth = running_rate(traffic.start_ns, ends, traffic.total_bytes)
    bank = run.program.machine.limit("psum_bank_bytes")
    sbuf_time, sbuf = run.occupancy.sbuf.changes()
    psum_time, psum = run.occupancy.psum.changes()
    return (
        Counter("DMA throughput", "GB/s", moments, np.round(np.maximum(bandwidth, 0.0), 3)),
        Counter("SBUF in use", "bytes a partition", sbuf_time, sbuf),
        Counter("PSUM in use", "banks", psum_time, -(-psum // bank)),
    )


def _title(name: str, run: Run) -> str:
    """What a process of the trace is called: the kernel, and the core if there are several."""
    core = f"{name}: " if name else ""
    return f"{core}{run.summary.kernel} on {run.summary.machine}, predicted by nkilab"


def trace_json(run: Run) -> bytes:
    """The trace as JSON; cores are processes."""
    events: list[dict[str, Any]] = []
    for process, (name, own) in enumerate(run.runs, PROCESS):
        events += _process_json(process, _title(name, own), own, len(events))
    content = {"traceEvents": events, "displayTimeUnit": "ns"}
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def _process_json(process: int, title: str, run: Run, first_flow: int) -> list[dict[str, Any]]:
    """The events of one core."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": process, "args": {"name": title}},
        {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}},
    ]
    for number, name in enumerate(lane_names(run), 1):
        own = {"ph": "M", "pid": process, "tid": number}
        events.append({**own, "name": "thread_name", "args": {"name": name}})
        events.append({**own, "name": "thread_sort_index", "args": {"sort_index": number}})
    all_slices = list(slices(run))
    by_event = {one.event: one for one in all_slices if one.event >= 0}
    for one in all_slices:
        events.append(
            {
                "ph": "X", "name": one.name, "cat": "nkilab", "pid": process, "tid": one.lane,
                "ts": one.start_ns / 1000, "dur": (one.end_ns - one.start_ns) / 1000, "args": one.details,
            }
        )  # fmt: skip
        if one.waited >= 0:
            events += _flow(by_event[one.waited], one, process, first_flow)
    for counter in counters(run):
        name = f"{counter.name} ({counter.unit})"
        for at, value in zip(_whole(counter.moments), counter.values.tolist(), strict=True):
            events.append(
                {"ph": "C", "name": name, "pid": process, "ts": at / 1000, "args": {"value": value}}
            )
    return events


def _flow(earlier: Slice, later: Slice, process: int, first: int) -> list[dict[str, Any]]:
    """An arrow from one slice to another."""
    own = {"name": "waits for", "cat": "nkilab", "id": first + later.event, "pid": process}
    return [
        {**own, "ph": "s", "tid": earlier.lane, "ts": earlier.start_ns / 1000},
        {**own, "ph": "f", "bp": "e", "tid": later.lane, "ts": later.start_ns / 1000},
    ]
