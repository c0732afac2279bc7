"""The events of a finished simulation: one per step of each node, and one per load of a function table."""

from __future__ import annotations

import numpy as np

from ..isa.declare import Step
from ..machine import Machine
from ..place.slots import DMA
from ..place.walk import DIRECT, KINDS, REUSE, SPILL
from ..records import columns_of
from .state import NOTHING, Clock
from .timeline import REASONS, Timeline
from .work import Work, starts_of

MODEL_VERSION = "10"
# What is read of the nodes of a finished simulation.
_READ = (
    "queue", "ready", "issued", "issuer", "slowdown", "start", "done", "background_start", "loads_table",
    "cause", "previous", "blocked_on", "held_by",
)  # fmt: skip
# What of it decides when their steps end.
_ENDS = ("slowdown", "start", "background_start", "done")
_NONE, _DMA, _ENGINE, _REUSE, _SPILL, _ORDER, _ISSUE, _QUEUE, _PORT, _RENDEZVOUS = range(len(REASONS))


def timeline_of(machine: Machine, work: Work, clock: Clock) -> Timeline:
    """The events of a finished simulation."""
    labels: dict[str, int] = {}
    nodes = dict(zip(_READ, columns_of(clock.nodes, *_READ), strict=True))
    events = _step_events(work, nodes, labels)
    node, label, began, ended, busy = _sorted(events, _table_events(clock, nodes, labels))
    ready_reason, ready_node = _readiness(work, nodes["cause"])
    reason, waited = _reasons(work, nodes, ready_reason, ready_node)
    engine = work.engine.astype(np.int8)[node]
    moving = np.flatnonzero(engine == DMA)
    moving = moving if len(moving) else np.arange(len(node))
    begin = machine["kernel_start_ns"]
    waited_row = np.where(waited >= 0, work.row[waited], -1) if len(waited) else waited
    return Timeline(
        machine.label,
        MODEL_VERSION,
        float(ended.max() if len(node) else begin) + machine["kernel_end_ns"],
        (float(began[moving].min()), float(ended[moving].max())) if len(node) else (begin, begin),
        float(np.array([s.issue_ns for s in work.shares])[work.share].sum()),
        tuple(labels),
        engine,
        nodes["queue"].astype(np.int16)[node],
        began,
        ended,
        busy,
        nodes["ready"][node],
        nodes["issued"][node],
        work.row.astype(np.int32)[node],
        node.astype(np.int32),
        label.astype(np.int16),
        reason.astype(np.int8)[node],
        waited_row.astype(np.int32)[node],
        waited.astype(np.int32)[node],
        ready_reason.astype(np.int8)[node],
        ready_node.astype(np.int32)[node],
        nodes["issuer"].astype(np.int32)[node],
    )


def latency_of(machine: Machine, work: Work, clock: Clock) -> float:
    """The latency of a finished simulation, as its timeline has it, in nanoseconds."""
    nodes = dict(zip(_ENDS, columns_of(clock.nodes, *_ENDS), strict=True))
    ended = _step_events(work, nodes, {})[3]
    return float(ended.max(initial=machine["kernel_start_ns"])) + machine["kernel_end_ns"]


# node, label, start, end, occupancy
Events = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Nodes = dict[str, np.ndarray]


def _sorted(steps: Events, tables: Events) -> Events:
    """Events in order of start, then of node; those of steps stand in order of node."""
    if not len(tables[0]):
        order = np.argsort(steps[2], kind="stable")
        return tuple(column[order] for column in steps)  # type: ignore[return-value]
    node, label, began, ended, busy = (np.concatenate(column) for column in zip(steps, tables, strict=True))
    order = np.lexsort((node, began))
    return node[order], label[order], began[order], ended[order], busy[order]


def _step_events(work: Work, nodes: Nodes, labels: dict[str, int]) -> Events:
    """One event per step of each node."""
    counts = np.array([len(s.steps) for s in work.shares], np.int64)
    columns = np.array([c for s in work.shares for c in _step_columns(s.steps, labels)]).reshape(-1, 4)
    offsets, occupied, durations, label = np.ascontiguousarray(columns.T)
    of_dma = np.repeat(np.array([s.engine == DMA for s in work.shares], np.bool_), counts)
    each = counts[work.share]
    node = np.repeat(np.arange(len(work.share)), each)
    before = (np.cumsum(counts) - counts)[work.share] - (np.cumsum(each) - each)
    step = np.repeat(before, each) + np.arange(len(node))
    busy = occupied[step]
    # what is pipelined behind the work itself keeps its time
    slower = np.repeat(nodes["slowdown"], each)
    began = offsets[step] * slower + np.repeat(nodes["start"], each)
    busy *= slower
    lasts = durations[step] + occupied[step] * (slower - 1)
    is_background = np.array(
        [number == 0 and s.background_ns > 0 for s in work.shares for number in range(len(s.steps))], np.bool_
    )
    here = np.flatnonzero(is_background[step])
    began[here] = nodes["background_start"][node[here]]
    ended = began + lasts
    here = np.flatnonzero(of_dma[step])
    ended[here] = nodes["done"][node[here]]
    busy[here] = ended[here] - began[here]
    return node, label[step], began, ended, busy


def _table_events(clock: Clock, nodes: Nodes, labels: dict[str, int]) -> Events:
    """One event per load of a function table, right before the instruction that needs it."""
    node = np.flatnonzero(nodes["loads_table"])
    ended = nodes["start"][node]
    lasts = np.full(len(node), clock.moment.table_ns)
    label = np.full(len(node), labels.setdefault("ACT_TABLE_LOAD", len(labels)) if len(node) else 0)
    return node, label, ended - lasts, ended, lasts


def _step_columns(steps: tuple[Step, ...], labels: dict[str, int]) -> list[tuple[float, float, float, int]]:
    """Per step: offset from the start of its node, occupancy, duration, label."""
    return [
        (start, step.busy_ns, step.busy_ns + step.latency_ns, labels.setdefault(step.label, len(labels)))
        for start, step in zip(starts_of(steps), steps, strict=True)
    ]


def _readiness(work: Work, cause: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per node why it was not ready earlier, and the node it waited for (-1 if none)."""
    waited = (
        np.where(cause >= 0, work.wait_node[cause], -1) if len(work.wait_node) else np.full(len(cause), -1)
    )
    by_kind = np.full(len(KINDS), _NONE)
    by_kind[REUSE] = by_kind[DIRECT] = _REUSE
    by_kind[SPILL] = _SPILL
    kind = work.wait_kind[cause] if len(work.wait_kind) else np.zeros(len(cause), np.int64)
    data = np.where(work.engine[waited] == DMA, _DMA, _ENGINE) if len(cause) else cause
    return np.where(cause < 0, _NONE, np.where(by_kind[kind] != _NONE, by_kind[kind], data)), waited


def _reasons(
    work: Work, nodes: Nodes, reason: np.ndarray, waited: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Per node why it did not start earlier, and the node it waited for (-1 if none)."""
    previous = nodes["previous"]
    before = np.where(work.engine[previous] == work.engine, _ORDER, _PORT) if len(previous) else previous
    reason, waited = np.where(previous >= 0, before, reason), np.where(previous >= 0, previous, waited)
    blocked_on = nodes["blocked_on"]
    named = np.array([_NONE, _ISSUE, _QUEUE, _RENDEZVOUS])
    reason = np.where(blocked_on == NOTHING, reason, named[blocked_on.astype(np.int64)])
    return reason, np.where(blocked_on == NOTHING, waited, nodes["held_by"])
