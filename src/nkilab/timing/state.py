"""The state of a simulation: tables of records that engines and transfers read and write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from ..machine import Machine
from ..place.slots import DMA
from ..records import Byte, Entry, Short, numbers, table
from .work import PSUM_PORT, QUEUES, SBUF_PORT, Share, Work

NOT_YET = -1.0
NOBODY = -1
FOREVER = float("inf")
# What a transfer was held up by, besides what it waits for.
NOTHING, ISSUE, QUEUE, RENDEZVOUS = range(4)
QUEUES_OF_UNIT = len(QUEUES)
# of [32, 32] in the systolic array
ARRAY_TILES = 16


class Node(Struct):
    """What happens in time.

    Args:
        share, engine, order: see `Work`.
        wait, last_wait: the next of its waits that is not looked at yet, and where they end.
        ready: when all that it waits for, as far as it is known, was there.
        ring: see `Work`.
        start, done: when it began, and when its result was visible.
        background_start: when its hidden step began.
        cause: the wait that made it ready last.
        previous: the node that its engine was busy with when it was ready.
        queue: of a transfer.
        held, held_by: what a transfer was held up by, and the node that held it.
        issued, issuer: when a transfer was issued, and the one whose issuing it waited for.
        next: the node behind it in the list in which it stands: of watchers, of issued transfers, of a queue.
        first_watcher, last_watcher: the list of nodes to wake when it is done.
        meets: whether it waits for what runs on other cores.
        loads_table: whether it loads a function table first.
        is_slow: whether its engine takes longer for it than when warm.
    """

    share: int
    engine: Byte
    order: int
    wait: int
    last_wait: int
    ready: float
    ring: Byte = 0
    start: float = NOT_YET
    done: float = NOT_YET
    background_start: float = NOT_YET
    cause: int = NOBODY
    previous: int = NOBODY
    queue: Short = NOBODY
    blocked_on: Byte = NOTHING
    held_by: int = NOBODY
    issued: float = NOT_YET
    issuer: int = NOBODY
    next: int = NOBODY
    first_watcher: int = NOBODY
    last_watcher: int = NOBODY
    meets: bool = False
    loads_table: bool = False
    is_slow: bool = False


class Cost(Struct):
    """What a share costs; see `Share`."""

    # busy, visible, background, weights_free, lanes, work, kind, issue, start: as there, in nanoseconds
    busy: float
    visible: float
    background: float
    weights_free: float
    table: int  # number of its function table, 0 for none
    lanes: float
    work: float
    hbm_rate: float  # bytes that cross the HBM interface per nanosecond of work
    moved_rate: float  # the same, of a transfer within HBM counted once: what its DMA engines move
    kind: int
    issue: float
    start: float
    # sbuf_port, psum_port: whether it needs a port for itself that another engine uses as well
    sbuf_port: bool
    psum_port: bool
    # array_tile, interval: see `Share`
    array_tile: int
    interval: float


class Engine(Struct):
    """An engine: what it did last, and how many nodes stand in its heaps of `Clock`."""

    free: float  # when it accepts the next instruction; TensorE on another tile of the array, if it is on one
    loaded: float  # when the weights are there that were loaded last
    # array_free, array_node: when it accepts any instruction, and what it is busy with until then; kept if
    # the moment has tiles
    array_free: float
    # weights_free, last_node: when weights may load again, and what it started last
    weights_free: float
    last_node: int = NOBODY
    array_node: int = NOBODY
    # is_cold, window, used: of TensorE whether its clock is slow, since which window, and for how long it was
    # busy in it
    is_cold: bool = True
    window: int = NOBODY
    used: float = 0.0
    # coming, ready: nodes of `Clock.coming` and `Clock.ready`
    coming: int = 0
    ready: int = 0


class ArrayTile(Struct):
    """A [32, 32] of the systolic array: until when a product on a tile occupies it, and which one."""

    free: float = 0.0
    node: int = NOBODY


class Unit(Struct):
    """A unit that issues transfers: from when on it is free, and what it issued last."""

    free: float = 0.0
    node: int = NOBODY


class Queue(Struct):
    """A queue of transfers."""

    # first, last: the list of them
    first: int = NOBODY
    last: int = NOBODY
    left: float = 0.0  # of the first one, work in nanoseconds
    # wanted, rate: DMA engines that it can use, and that it has
    wanted: float = 0.0
    rate: float = 0.0
    # hbm_rate, moved_rate: see `Cost`
    hbm_rate: float = 0.0
    moved_rate: float = 0.0


class Moment(Struct):
    """Where the simulation is."""

    table_ns: float  # loading a function table
    # warm_up_ns, slowdown: the windows by which the clock of TensorE slows down, and how much slower it is
    warm_up_ns: float
    slowdown: float
    engines: float  # how many DMA engines there are
    # moved_limit, hbm_limit: bytes per nanosecond that they move to and from HBM, and that HBM gives
    moved_limit: float
    hbm_limit: float
    hbm_binds: bool  # whether transfers can ask for more
    has_tiles: bool  # whether products run on tiles of the systolic array
    table: int = 0  # function table that is loaded
    now: float = 0.0  # of the transfers
    # next_end, next_queue: when and on which queue the next transfer ends
    next_end: float = FOREVER
    next_queue: int = NOBODY
    shares_hbm: bool = False  # whether another core takes part of what HBM gives
    # first_met, last_met: the list of nodes that have come to a rendezvous and were not told
    first_met: int = NOBODY
    last_met: int = NOBODY
    # first_issued, last_issued: the list of transfers whose first byte is still to come
    first_issued: int = NOBODY
    last_issued: int = NOBODY
    # sbuf_free, psum_free: until when an engine needs a shared port for itself
    sbuf_free: float = 0.0
    psum_free: float = 0.0
    # sbuf_node, psum_node: who does
    sbuf_node: int = NOBODY
    psum_node: int = NOBODY
    # agenda, arrivals, active: how many entries of these columns are in use
    agenda: int = 0
    arrivals: int = 0
    active: int = 0


class Clock(NamedTuple):
    """Everything that a simulation reads and writes."""

    # nodes, costs, engines, units, queues, array_tiles: tables
    nodes: Sequence[Node]
    # wait_node, wait_delay, delays: see `Work`
    wait_node: Sequence[int]
    wait_delay: Sequence[int]
    delays: Sequence[float] | np.ndarray
    costs: Sequence[Cost]
    engines: Sequence[Engine]
    units: Sequence[Unit]
    queues: Sequence[Queue]
    array_tiles: Sequence[ArrayTile]
    moment: Moment  # where it is
    agenda: list[int]  # nodes to look at, the next one last
    arrivals: list[Entry]  # a heap of transfers that are ready, by when and by their place in program order
    in_order: list[int]  # the node at each place in program order
    active: list[int]  # queues that move bytes, ascending
    hungry: list[int]  # the same, those that want the fewest lanes first
    coming: tuple[list[Entry], ...]  # per engine a heap of nodes by when they are ready
    # per engine a heap of nodes that are ready, by their place in program order
    ready: tuple[list[Entry], ...]


def clock_of(machine: Machine, work: Work, *, as_array: bool) -> Clock:
    """The state before anything has happened."""
    nodes, units = len(work.share), machine.limit("dma_issuing_units")
    columns = {
        "share": work.share, "engine": work.engine, "order": work.order, "wait": work.wait_start[:-1],
        "last_wait": work.wait_start[1:], "ready": machine["kernel_start_ns"],
        "ring": work.ring,
    }  # fmt: skip
    # of each unit, one per ring
    queues = units * machine.limit("dma_rings") * QUEUES_OF_UNIT
    costs = _costs(work.shares, as_array=as_array)
    in_order = np.empty(nodes, np.int32)
    in_order[work.order] = np.arange(nodes, dtype=np.int32)
    rooms = np.bincount(work.engine, minlength=DMA)[:DMA].tolist()
    # a heap is never empty, so that compiled code gets tables alone
    heaps = [tuple(table(Entry, {}, max(1, own), as_array=as_array) for own in rooms) for _ in range(2)]
    return Clock(
        table(Node, columns, nodes, as_array=as_array),
        numbers(work.wait_node, as_array=as_array),
        numbers(work.wait_delay, as_array=as_array),
        work.delays if as_array else work.delays.tolist(),
        costs,
        _engines(machine, DMA, as_array=as_array),
        table(Unit, {}, units, as_array=as_array),
        table(Queue, {}, queues, as_array=as_array),
        table(ArrayTile, {}, ARRAY_TILES, as_array=as_array),
        _moment(machine, costs, as_array=as_array),
        numbers(np.zeros(nodes, np.int32), as_array=as_array),
        table(Entry, {}, int(np.count_nonzero(work.engine == DMA)), as_array=as_array),
        numbers(in_order, as_array=as_array),
        numbers(np.zeros(queues, np.int64), as_array=as_array),
        numbers(np.zeros(queues, np.int64), as_array=as_array),
        *heaps,
    )


def _costs(shares: tuple[Share, ...], *, as_array: bool) -> Any:
    tables = {"": 0}
    columns = {
        "busy": [s.busy_ns for s in shares],
        "visible": [s.visible_ns for s in shares],
        "background": [s.background_ns for s in shares],
        "weights_free": [s.weights_free_ns for s in shares],
        "table": [tables.setdefault(s.table, len(tables)) for s in shares],
        "lanes": [s.lanes for s in shares],
        "work": [s.work_ns for s in shares],
        "hbm_rate": [s.hbm_bytes / s.work_ns if s.work_ns else 0.0 for s in shares],
        "moved_rate": [s.total_bytes / s.work_ns if s.hbm_bytes and s.work_ns else 0.0 for s in shares],
        "kind": [s.queue for s in shares],
        "issue": [s.issue_ns for s in shares],
        "start": [s.start_ns for s in shares],
        "sbuf_port": [bool(s.ports & SBUF_PORT) for s in shares],
        "psum_port": [bool(s.ports & PSUM_PORT) for s in shares],
        "array_tile": [s.array_tile for s in shares],
        "interval": [s.interval_ns for s in shares],
    }
    return table(Cost, columns, len(shares), as_array=as_array)


def _engines(machine: Machine, count: int, *, as_array: bool) -> Any:
    begin = np.full(count, machine["kernel_start_ns"])
    return table(
        Engine,
        dict.fromkeys(("free", "loaded", "array_free", "weights_free"), begin),
        count,
        as_array=as_array,
    )


def _moment(machine: Machine, costs: Any, *, as_array: bool) -> Any:
    engines = machine["dma_engines"]
    moved, delivered = machine["hbm_bytes_per_ns"], machine["hbm_stack_bytes_per_ns"]
    most_moved = max((cost.moved_rate for cost in costs), default=0.0) * engines
    most_given = max((cost.hbm_rate for cost in costs), default=0.0) * engines
    columns = {
        "table_ns": machine["activation_table_load_ns"],
        "warm_up_ns": machine["tensor_warm_up_ns"], "slowdown": 1 / machine["tensor_cold_rate"],
        "engines": engines, "moved_limit": moved, "hbm_limit": delivered,
        "hbm_binds": most_moved > moved or most_given > delivered,
        "has_tiles": any(cost.array_tile for cost in costs),
    }  # fmt: skip
    return table(Moment, columns, 1, as_array=as_array)[0]
