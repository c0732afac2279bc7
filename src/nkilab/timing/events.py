"""The events of a finished simulation: one per step of each node, and one per load of a function table."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ..isa.declare import Step
from ..machine import Machine
from ..place.slots import DMA, pieces
from ..place.walk import DIRECT, KINDS, REUSE, SPILL
from ..records import columns_of, dtype_of
from .state import NOTHING, Clock, Node
from .timeline import OF_NODES, REASONS, Timeline
from .work import Work, starts_of

MODEL_VERSION = "12"
# What is read of the nodes of a finished simulation: what decides when their steps end, and the rest.
_ENDS = ("is_slow", "start", "background_start", "done")
_TIMES = ("queue", "ready", "issued", "issuer", "loads_table")
_CAUSES = ("cause", "previous", "blocked_on", "held_by")
_WHY = {"reason": np.int8, "waited": np.int32, "ready_reason": np.int8, "ready_node": np.int32}
_NONE, _DMA, _ENGINE, _REUSE, _SPILL, _ORDER, _ISSUE, _QUEUE, _PORT, _RENDEZVOUS = range(len(REASONS))

Nodes = dict[str, np.ndarray]


def outcome_of(work: Work, clock: list[Clock], *, is_given_up: bool) -> Nodes:
    """All that is left of a finished simulation, a column per field.

    Args:
        work: that was timed.
        clock: the clock alone, which is taken out of the list.
        is_given_up: whether nobody else has it, so that memory of what was read can be given back.
    """
    names, kinds = (*_ENDS, *_TIMES, *_WHY), dtype_of(Node)
    read = (*_ENDS, *_TIMES, *_CAUSES)
    nodes = {name: np.empty(len(work.share), _WHY.get(name) or kinds[name]) for name in names}
    nodes |= _slowdown(clock[0])
    left: Any = clock.pop().nodes
    is_given_up &= isinstance(left, np.recarray)
    left = left.base if is_given_up else left
    for piece in reversed([*pieces(len(work.share))]):
        own = dict(zip(read, columns_of(left[piece], *read), strict=True))
        own["ready_reason"], own["ready_node"] = _readiness(work, own["cause"])
        own["reason"], own["waited"] = _reasons(work, work.engine[piece], own)
        for name in names:
            nodes[name][piece] = own[name]
        if is_given_up:
            left.resize(piece.start, refcheck=False)
    return nodes


def _slowdown(clock: Clock) -> Nodes:
    return {"slowdown": np.array([1.0, clock.moment.slowdown])}


def timeline_of(machine: Machine, work: Work, nodes: Nodes) -> Timeline:
    """The events of a finished simulation, whose outcome is given up column by column."""
    labels: dict[str, int] = {}
    steps = _step_events(work, nodes, labels)
    tables = _table_events(machine["activation_table_load_ns"], nodes, labels)
    for name in (*_ENDS, "loads_table"):
        del nodes[name]
    node, label, began, ended, busy = _sorted(steps, tables)
    moving = (work.engine == DMA)[node]
    moving = moving if moving.any() else ~moving
    begin = machine["kernel_start_ns"]
    waited = nodes.pop("waited")
    waited_row = np.where(waited >= 0, work.row[waited], np.int32(-1)) if len(waited) else waited
    queue, issuer = nodes["queue"].astype(np.int16), nodes["issuer"].astype(np.int32)
    shared = (work.engine, queue, nodes["ready"], nodes["issued"], work.row, nodes["reason"], waited_row,
              waited, nodes["ready_reason"], nodes["ready_node"], issuer)  # fmt: skip
    return Timeline(
        machine.label,
        MODEL_VERSION,
        float(ended.max() if len(node) else begin) + machine["kernel_end_ns"],
        (float(began[moving].min()), float(ended[moving].max())) if len(node) else (begin, begin),
        float(np.array([s.issue_ns for s in work.shares])[work.share].sum()),
        tuple(labels),
        began,
        ended,
        busy,
        node,
        label,
        node,
        dict(zip(OF_NODES, shared, strict=True)),
    )


def latency_of(machine: Machine, work: Work, clock: Clock) -> float:
    """The latency of a finished simulation, as its timeline has it, in nanoseconds."""
    nodes = dict(zip(_ENDS, columns_of(clock.nodes, *_ENDS), strict=True))
    ended = _step_events(work, nodes | _slowdown(clock), {})[3]
    return float(ended.max(initial=machine["kernel_start_ns"])) + machine["kernel_end_ns"]


# node, label, start, end, occupancy
Events = list[np.ndarray]


def _sorted(steps: Events, tables: Events) -> Events:
    """Events in order of start, then of node; those of steps stand in order of node, and are given up."""
    if len(tables[0]):
        steps = [np.concatenate(column) for column in zip(steps, tables, strict=True)]
        order = np.lexsort((steps[0], steps[2]))
    else:
        order = in_order(steps[2])
    for place, column in enumerate(steps):
        steps[place] = sorted_column = np.empty_like(column)
        for piece in pieces(len(order)):
            sorted_column[piece] = column[order[piece]]
    return steps


def in_order(start: np.ndarray) -> np.ndarray:
    """The stable order of times: of many those of one interval after the other, which takes less memory."""
    # one of 4096 tells where about a million times end
    ends = np.sort(start[::4096])[256::256].tolist()
    order, done = np.empty(len(start), np.int32), 0
    for low, high in pairwise([-np.inf, *ends, np.inf]):
        own = np.flatnonzero((start >= low) & (start < high))
        order[done : done + len(own)] = own[np.argsort(start[own], kind="stable")]
        done += len(own)
    return order


def _step_events(work: Work, nodes: Nodes, labels: dict[str, int]) -> Events:
    """One event per step of each node."""
    counts = np.array([len(s.steps) for s in work.shares], np.int64)
    columns = np.array([c for s in work.shares for c in _step_columns(s.steps, labels)]).reshape(-1, 4)
    offsets, occupied, durations, label_of = np.ascontiguousarray(columns.T)
    of_dma = np.repeat(np.array([s.engine == DMA for s in work.shares], np.bool_), counts)
    is_background = np.array(
        [number == 0 and s.background_ns > 0 for s in work.shares for number in range(len(s.steps))], np.bool_
    )
    first = np.cumsum(counts) - counts
    size = int(counts[work.share].sum())
    node, label = np.empty(size, np.int32), np.empty(size, np.int16)
    began, ended, busy = (np.empty(size) for _ in range(3))
    stop = 0
    for piece in pieces(len(work.share)):
        share = work.share[piece]
        each = counts[share]
        start, stop = stop, stop + int(each.sum())
        events = slice(start, stop)
        own = np.repeat(np.arange(piece.start, piece.stop), each)
        step = np.repeat(first[share] - (np.cumsum(each) - each), each) + np.arange(len(own))
        node[events], label[events] = own, label_of[step]
        # what is pipelined behind the work itself keeps its time
        slower = nodes["slowdown"][nodes["is_slow"][own].astype(np.int8)]
        begin = offsets[step] * slower + nodes["start"][own]
        busy[events] = occupied[step] * slower
        lasts = durations[step] + occupied[step] * (slower - 1)
        here = np.flatnonzero(is_background[step])
        begin[here] = nodes["background_start"][own[here]]
        end = begin + lasts
        here = np.flatnonzero(of_dma[step])
        end[here] = nodes["done"][own[here]]
        began[events], ended[events] = begin, end
        busy[start + here] = end[here] - begin[here]
    return [node, label, began, ended, busy]


def _table_events(table_ns: float, nodes: Nodes, labels: dict[str, int]) -> Events:
    """One event per load of a function table, right before the instruction that needs it."""
    node = np.flatnonzero(nodes["loads_table"]).astype(np.int32)
    ended = nodes["start"][node]
    lasts = np.full(len(node), table_ns)
    label = np.full(len(node), labels.setdefault("ACT_TABLE_LOAD", len(labels)) if len(node) else 0, np.int16)
    return [node, label, ended - lasts, ended, lasts]


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


def _reasons(work: Work, engine: np.ndarray, nodes: Nodes) -> tuple[np.ndarray, np.ndarray]:
    """Per node why it did not start earlier, and the node it waited for (-1 if none)."""
    previous, reason, waited = nodes["previous"], nodes["ready_reason"], nodes["ready_node"]
    before = np.where(work.engine[previous] == engine, _ORDER, _PORT) if len(previous) else previous
    reason, waited = np.where(previous >= 0, before, reason), np.where(previous >= 0, previous, waited)
    blocked_on = nodes["blocked_on"]
    named = np.array([_NONE, _ISSUE, _QUEUE, _RENDEZVOUS])
    reason = np.where(blocked_on == NOTHING, reason, named[blocked_on.astype(np.int64)])
    return reason, np.where(blocked_on == NOTHING, waited, nodes["held_by"])
