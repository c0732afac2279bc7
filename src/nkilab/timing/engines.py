"""Engines in time: each runs its instructions in program order, as soon as what they wait for is done."""

from __future__ import annotations

from ..place.slots import DMA
from .state import NOBODY, Clock
from .transfers import add


def settle(clock: Clock) -> None:
    """Run engines, and release transfers, as far as what is done allows."""
    moment = clock.moment
    while moment.agenda > 0:
        moment.agenda -= 1
        number = clock.agenda[moment.agenda]
        engine = clock.nodes[number].engine
        if engine != DMA:
            run_engine(clock, engine)
        elif is_ready(clock, number):
            add(clock, number)


def note(clock: Clock, number: int) -> None:
    """Put a node on the agenda."""
    clock.agenda[clock.moment.agenda] = number
    clock.moment.agenda += 1


def is_ready(clock: Clock, number: int) -> bool:
    """Whether all that a node waits for is done; else it is woken by the first that is not."""
    node = clock.nodes[number]
    while node.wait < node.last_wait:
        wait = clock.waits[node.wait]
        earlier = clock.nodes[wait.node]
        if earlier.done < 0:
            watch(clock, number, wait.node)
            return False
        at = earlier.done + wait.delay
        if at > node.ready:
            node.ready, node.cause = at, node.wait
        node.wait += 1
    return True


def watch(clock: Clock, number: int, watched: int) -> None:
    """Have a node woken when another one is done."""
    other = clock.nodes[watched]
    clock.nodes[number].next = NOBODY
    if other.first_watcher == NOBODY:
        other.first_watcher = number
    else:
        clock.nodes[other.last_watcher].next = number
    other.last_watcher = number


def run_engine(clock: Clock, number: int) -> None:
    """Issue instructions of one engine, in order, until one is not ready."""
    engine = clock.engines[number]
    while engine.position < engine.end and is_ready(clock, clock.stream[engine.position]):
        issue(clock, number, clock.stream[engine.position])
        engine.position += 1


def issue(clock: Clock, engine_number: int, number: int) -> None:
    """Start one instruction as early as its engine and what it waits for allow."""
    node, engine = clock.nodes[number], clock.engines[engine_number]
    cost, moment = clock.costs[node.share], clock.moment
    start = node.ready
    if cost.background:
        # weights load into shadow registers, which the previous multiplication frees when it starts
        begin = max(start, engine.last_start, engine.loaded)
        node.background_start = begin
        start = engine.loaded = begin + cost.background
    if engine.free > start:
        start = engine.free
        node.previous = engine.last_node
    if cost.table != 0 and cost.table != moment.table:
        # the load belongs to the instruction and waits with it (DMA overview figures)
        moment.table = cost.table
        node.loads_table = True
        start += moment.table_ns
    node.start = engine.last_start = start
    engine.free = start + cost.busy
    engine.last_node = number
    finish(clock, number, start + cost.visible)


def finish(clock: Clock, number: int, at: float) -> None:
    """Record that the result of a node is visible, and wake who waits for it."""
    node = clock.nodes[number]
    node.done = at
    watcher = node.first_watcher
    while watcher != NOBODY:
        note(clock, watcher)
        watcher = clock.nodes[watcher].next
