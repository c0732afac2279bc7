"""The events of a finished simulation: one per step of each node, and one per load of a function table."""

from __future__ import annotations

import numpy as np

from ..isa.declare import Step
from ..machine import Machine
from ..place.edges import KINDS, REUSE, SPILL
from ..place.slots import DMA
from ..records import column
from .state import NOTHING, Clock
from .timeline import REASONS, Timeline
from .work import Work

MODEL_VERSION = "4"
_NONE, _DMA, _ENGINE, _REUSE, _SPILL, _ORDER, _ISSUE, _QUEUE, _PORT, _MEETING = range(len(REASONS))


def timeline_of(machine: Machine, work: Work, clock: Clock) -> Timeline:
    """The events of a finished simulation."""
    labels: dict[str, int] = {}
    node, label, began, ended, busy = _sorted(_step_events(work, clock, labels), _table_events(clock, labels))
    ready_reason, ready_node = _readiness(work, clock)
    reason, waited = _reasons(work, clock, ready_reason, ready_node)
    moving = np.flatnonzero(work.engine[node] == DMA)
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
        work.engine[node].astype(np.int8),
        column(clock.nodes, "queue")[node].astype(np.int16),
        began,
        ended,
        busy,
        column(clock.nodes, "ready")[node],
        column(clock.nodes, "issued")[node],
        work.row[node].astype(np.int32),
        node.astype(np.int32),
        label.astype(np.int16),
        reason[node].astype(np.int8),
        waited_row[node].astype(np.int32),
        waited[node].astype(np.int32),
        ready_reason[node].astype(np.int8),
        ready_node[node].astype(np.int32),
        column(clock.nodes, "issuer")[node].astype(np.int32),
    )


# node, label, start, end, occupancy
Events = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _sorted(*events: Events) -> Events:
    """Events of several lists in order of start, then of node."""
    node, label, began, ended, busy = (np.concatenate(column) for column in zip(*events, strict=True))
    order = np.lexsort((node, began))
    return node[order], label[order], began[order], ended[order], busy[order]


def _step_events(work: Work, clock: Clock, labels: dict[str, int]) -> Events:
    """One event per step of each node."""
    counts = np.array([len(s.steps) for s in work.shares], np.int64)
    first_step = np.cumsum(counts) - counts
    columns = np.array([c for s in work.shares for c in _step_columns(s.steps, labels)]).reshape(-1, 4)
    node = np.repeat(np.arange(len(work.share)), counts[work.share])
    first_event = np.cumsum(counts[work.share]) - counts[work.share]
    step = first_step[work.share[node]] + np.arange(len(node)) - first_event[node]
    offset, busy, duration, label = columns[step].T
    slower = column(clock.nodes, "slowdown")[node]
    # what is pipelined behind the work itself keeps its time
    offset, busy, duration = offset * slower, busy * slower, duration + busy * (slower - 1)
    start, done = column(clock.nodes, "start"), column(clock.nodes, "done")
    is_dma = work.engine[node] == DMA
    is_background = ~is_dma & (busy == 0)
    began = np.where(is_background, column(clock.nodes, "background_start")[node], start[node] + offset)
    ended = np.where(is_dma, done[node], began + duration)
    return node, label, began, ended, np.where(is_dma, ended - began, busy)


def _table_events(clock: Clock, labels: dict[str, int]) -> Events:
    """One event per load of a function table, right before the instruction that needs it."""
    node = np.flatnonzero(column(clock.nodes, "loads_table"))
    ended = column(clock.nodes, "start")[node]
    lasts = np.full(len(node), clock.moment.table_ns)
    label = np.full(len(node), labels.setdefault("ACT_TABLE_LOAD", len(labels)) if len(node) else 0)
    return node, label, ended - lasts, ended, lasts


def _step_columns(steps: tuple[Step, ...], labels: dict[str, int]) -> list[tuple[float, float, float, int]]:
    """Per step: offset from the start of its node, occupancy, duration, label."""
    offset = 0.0
    result = []
    for step in steps:
        label = labels.setdefault(step.label, len(labels))
        result.append((offset, step.busy_ns, step.busy_ns + step.latency_ns, label))
        offset += step.busy_ns
    return result


def _readiness(work: Work, clock: Clock) -> tuple[np.ndarray, np.ndarray]:
    """Per node why it was not ready earlier, and the node it waited for (-1 if none)."""
    cause = column(clock.nodes, "cause")
    waited = (
        np.where(cause >= 0, work.wait_node[cause], -1) if len(work.wait_node) else np.full(len(cause), -1)
    )
    by_kind = np.full(len(KINDS), _NONE)
    by_kind[REUSE], by_kind[SPILL] = _REUSE, _SPILL
    kind = work.wait_kind[cause] if len(work.wait_kind) else np.zeros(len(cause), np.int64)
    data = np.where(work.engine[waited] == DMA, _DMA, _ENGINE) if len(cause) else cause
    return np.where(cause < 0, _NONE, np.where(by_kind[kind] != _NONE, by_kind[kind], data)), waited


def _reasons(
    work: Work, clock: Clock, reason: np.ndarray, waited: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Per node why it did not start earlier, and the node it waited for (-1 if none)."""
    previous = column(clock.nodes, "previous")
    before = np.where(work.engine[previous] == work.engine, _ORDER, _PORT) if len(previous) else previous
    reason, waited = np.where(previous >= 0, before, reason), np.where(previous >= 0, previous, waited)
    held = column(clock.nodes, "held")
    named = np.array([_NONE, _ISSUE, _QUEUE, _MEETING])
    reason = np.where(held == NOTHING, reason, named[held.astype(np.int64)])
    return reason, np.where(held == NOTHING, waited, column(clock.nodes, "held_by"))
