"""The simulation: engines in program order, transfers on queues, signals between them.

An instruction's times follow from those of what it waits for and of the instruction before it on its engine,
whatever else happens. So engines are run as far as they can; then the transfers go one event further in time,
and so on: a transfer that nobody has started yet can only be released by one that ends later than now.
"""

from __future__ import annotations

import numpy as np

from ..isa.declare import Step
from ..machine import Machine
from ..place.edges import KINDS, REUSE, SPILL
from ..place.plan import Plan
from ..place.slots import DMA
from ..trace.program import Program
from .timeline import REASONS, Timeline
from .transfers import Transfers
from .work import Work, work_of

MODEL_VERSION = "1"
_NOT_YET = -1.0
_NONE, _DMA, _ENGINE, _REUSE, _SPILL, _ORDER, _ISSUE, _QUEUE = range(len(REASONS))


def simulate(program: Program, plan: Plan) -> Timeline:
    """Time a program under its plan.

    Returns:
        The events; the same program and plan give the same events, bit for bit.
    """
    work = work_of(program, plan)
    clock = _Clock(program.machine, work)
    clock.run()
    return _timeline(program.machine, work, clock)


class _Clock:
    """The state of the machine, and per node when it was ready, started and was done."""

    def __init__(self, machine: Machine, work: Work) -> None:
        nodes = len(work.share)
        self.begin = machine["kernel_start_ns"]
        self.table_ns = machine["activation_table_load_ns"]
        self.share = work.share.tolist()
        self.engine = work.engine.tolist()
        self.order = work.order.tolist()
        self.stream = [nodes.tolist() for nodes in work.stream]
        self.wait_start = work.wait_start.tolist()
        self.wait_node = work.wait_node.tolist()
        self.wait_delay = work.wait_delay.tolist()
        self.busy = [s.busy_ns for s in work.shares]
        self.visible = [s.visible_ns for s in work.shares]
        self.background = [s.background_ns for s in work.shares]
        self.table = [s.table for s in work.shares]
        # per node
        self.done = [_NOT_YET] * nodes
        self.start = [_NOT_YET] * nodes
        self.ready = [self.begin] * nodes
        self.scan = self.wait_start[:-1]
        self.cause = [-1] * nodes
        self.previous = [-1] * nodes
        self.background_start = [_NOT_YET] * nodes
        self.loads_table: list[int] = []
        self.watchers: dict[int, list[int]] = {}
        # per engine
        self.position = [0] * len(self.stream)
        self.free = [self.begin] * len(self.stream)
        self.last_node = [-1] * len(self.stream)
        self.last_start = [self.begin] * len(self.stream)
        self.loaded = [self.begin] * len(self.stream)
        self.current_table = ""
        self.agenda: list[int] = []
        self.transfers = Transfers(machine, work.shares, self.share)

    def run(self) -> None:
        """Run every node."""
        self.agenda = [n for n, e in enumerate(self.engine) if e == DMA][::-1]
        self.agenda.extend(stream[0] for stream in self.stream if stream)
        self.settle()
        event = self.transfers.step()
        while event is not None:
            at, node = event
            if node >= 0:
                self.finish(node, at)
                self.settle()
            event = self.transfers.step()
        assert _NOT_YET not in self.done, (
            f"node {self.done.index(_NOT_YET)} waits for something that never happens"
        )

    def settle(self) -> None:
        """Run engines, and release transfers, as far as what is done allows."""
        agenda = self.agenda
        while agenda:
            node = agenda.pop()
            if self.engine[node] != DMA:
                self.run_engine(self.engine[node])
            elif self.is_ready(node):
                self.transfers.add(self.ready[node], self.order[node], node)

    def is_ready(self, node: int) -> bool:
        """Whether all that a node waits for is done; else it is woken by the first that is not."""
        done, scan, at = self.done, self.scan[node], self.ready[node]
        stop = self.wait_start[node + 1]
        while scan < stop:
            signal = done[self.wait_node[scan]]
            if signal < 0:
                self.scan[node], self.ready[node] = scan, at
                self.watchers.setdefault(self.wait_node[scan], []).append(node)
                return False
            signal += self.wait_delay[scan]
            if signal > at:
                at = signal
                self.cause[node] = scan
            scan += 1
        self.scan[node], self.ready[node] = scan, at
        return True

    def run_engine(self, engine: int) -> None:
        """Issue instructions of one engine, in order, until one is not ready."""
        stream, place = self.stream[engine], self.position[engine]
        while place < len(stream) and self.is_ready(stream[place]):
            self.issue(engine, stream[place])
            place += 1
        self.position[engine] = place

    def issue(self, engine: int, node: int) -> None:
        """Start one instruction as early as its engine and what it waits for allow."""
        share = self.share[node]
        start = self.ready[node]
        if self.background[share]:
            # weights load into shadow registers, which the previous multiplication frees when it starts
            begin = max(start, self.last_start[engine], self.loaded[engine])
            self.background_start[node] = begin
            start = self.loaded[engine] = begin + self.background[share]
        if self.free[engine] > start:
            start = self.free[engine]
            self.previous[node] = self.last_node[engine]
        if self.table[share] and self.table[share] != self.current_table:
            # the load belongs to the instruction and waits with it (DMA overview figures)
            self.current_table = self.table[share]
            self.loads_table.append(node)
            start += self.table_ns
        self.start[node] = self.last_start[engine] = start
        self.free[engine] = start + self.busy[share]
        self.last_node[engine] = node
        self.finish(node, start + self.visible[share])

    def finish(self, node: int, at: float) -> None:
        """Record that the result of a node is visible, and wake who waits for it."""
        self.done[node] = at
        waiting = self.watchers.pop(node, None)
        if waiting is not None:
            self.agenda.extend(waiting)


def _timeline(machine: Machine, work: Work, clock: _Clock) -> Timeline:
    """The events of a finished simulation."""
    labels: dict[str, int] = {}
    node, label, began, ended, busy = _sorted(_step_events(work, clock, labels), _table_events(clock, labels))
    reason, waited = _reasons(work, clock)
    queue = np.full(len(work.share), -1, np.int16)
    queue[list(clock.transfers.queue_of)] = list(clock.transfers.queue_of.values())
    moving = np.flatnonzero(work.engine[node] == DMA)
    moving = moving if len(moving) else np.arange(len(node))
    begin = machine["kernel_start_ns"]
    waited_row = np.where(waited >= 0, work.row[waited], -1) if len(waited) else waited
    return Timeline(
        machine.name,
        MODEL_VERSION,
        float(ended.max() if len(node) else begin) + machine["kernel_end_ns"],
        (float(began[moving].min()), float(ended[moving].max())) if len(node) else (begin, begin),
        float(np.array([s.issue_ns for s in work.shares])[work.share].sum()),
        tuple(labels),
        work.engine[node].astype(np.int8),
        queue[node],
        began,
        ended,
        busy,
        np.array(clock.ready)[node],
        work.row[node].astype(np.int32),
        node.astype(np.int32),
        label.astype(np.int16),
        reason[node].astype(np.int8),
        waited_row[node].astype(np.int32),
        waited[node].astype(np.int32),
    )


# node, label, start, end, occupancy
Events = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _sorted(*events: Events) -> Events:
    """Events of several lists in order of start, then of node."""
    node, label, began, ended, busy = (np.concatenate(column) for column in zip(*events, strict=True))
    order = np.lexsort((node, began))
    return node[order], label[order], began[order], ended[order], busy[order]


def _step_events(work: Work, clock: _Clock, labels: dict[str, int]) -> Events:
    """One event per step of each node."""
    counts = np.array([len(s.steps) for s in work.shares], np.int64)
    first_step = np.cumsum(counts) - counts
    columns = np.array([c for s in work.shares for c in _step_columns(s.steps, labels)]).reshape(-1, 4)
    node = np.repeat(np.arange(len(work.share)), counts[work.share])
    first_event = np.cumsum(counts[work.share]) - counts[work.share]
    step = first_step[work.share[node]] + np.arange(len(node)) - first_event[node]
    offset, busy, duration, label = columns[step].T
    start, done = np.array(clock.start), np.array(clock.done)
    start[list(clock.transfers.start)] = list(clock.transfers.start.values())
    is_dma = work.engine[node] == DMA
    is_background = ~is_dma & (busy == 0)
    began = np.where(is_background, np.array(clock.background_start)[node], start[node] + offset)
    ended = np.where(is_dma, done[node], began + duration)
    return node, label, began, ended, np.where(is_dma, ended - began, busy)


def _table_events(clock: _Clock, labels: dict[str, int]) -> Events:
    """One event per load of a function table, right before the instruction that needs it."""
    node = np.array(clock.loads_table, np.int64)
    ended = np.array(clock.start)[node]
    lasts = np.full(len(node), clock.table_ns)
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


def _reasons(work: Work, clock: _Clock) -> tuple[np.ndarray, np.ndarray]:
    """Per node why it did not start earlier, and the node it waited for (-1 if none)."""
    cause, previous = np.array(clock.cause), np.array(clock.previous)
    waited = (
        np.where(cause >= 0, work.wait_node[cause], -1) if len(work.wait_node) else np.full(len(cause), -1)
    )
    by_kind = np.full(len(KINDS), _NONE)
    by_kind[REUSE], by_kind[SPILL] = _REUSE, _SPILL
    kind = work.wait_kind[cause] if len(work.wait_kind) else np.zeros(len(cause), np.int64)
    data = np.where(work.engine[waited] == DMA, _DMA, _ENGINE) if len(cause) else cause
    reason = np.where(cause < 0, _NONE, np.where(by_kind[kind] != _NONE, by_kind[kind], data))
    reason, waited = np.where(previous >= 0, _ORDER, reason), np.where(previous >= 0, previous, waited)
    held = clock.transfers.held_by
    if held:
        nodes = np.array(list(held))
        reason[nodes] = [_ISSUE if why == "issue" else _QUEUE for why, _ in held.values()]
        waited[nodes] = [node for _, node in held.values()]
    return reason, waited
