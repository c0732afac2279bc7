"""Engines in time: each takes what is ready, and of that what stands first in the program.

The compiler lays instructions out so that an engine does not wait while others could run; what it can foresee
is when data arrive. Choosing at run time what is ready comes to the same.
"""

from __future__ import annotations

from ..place.slots import DMA, ENGINES
from ..records import drop_first, push
from .state import ARRAY_TILES, FOREVER, NOBODY, RENDEZVOUS, Clock, Engine, Moment
from .transfers import add

TENSOR = ENGINES.index("tensor")


def settle(clock: Clock) -> None:
    """Hand nodes that wait for nothing more to their engines, or to the transfers."""
    moment = clock.moment
    while moment.agenda > 0:
        moment.agenda -= 1
        number = clock.agenda[moment.agenda]
        if not is_ready(clock, number):
            continue
        node = clock.nodes[number]
        if node.engine == DMA and node.meets:
            come(clock, number)
        elif node.engine == DMA:
            add(clock, number)
        else:
            engine = clock.engines[node.engine]
            push(clock.coming[node.engine], engine.coming, node.ready, node.order)
            engine.coming += 1


def next_start(clock: Clock, number: int) -> float:
    """When an engine can start its next instruction, as far as it is known."""
    engine = clock.engines[number]
    if engine.ready > 0:
        return engine.free
    if engine.coming > 0:
        return max(engine.free, clock.coming[number][0].key)
    return FOREVER


def choose(clock: Clock, number: int, at: float) -> None:
    """Start the instruction that stands first in the program of those that are ready at a time."""
    engine = clock.engines[number]
    coming, ready = clock.coming[number], clock.ready[number]
    while engine.coming > 0 and coming[0].key <= at:
        order = coming[0].number
        drop_first(coming, engine.coming)
        engine.coming -= 1
        push(ready, engine.ready, 0.0, order)
        engine.ready += 1
    order = ready[0].number
    drop_first(ready, engine.ready)
    engine.ready -= 1
    issue(clock, number, clock.in_order[order])


def note(clock: Clock, number: int) -> None:
    """Put a node on the agenda."""
    clock.agenda[clock.moment.agenda] = number
    clock.moment.agenda += 1


def is_ready(clock: Clock, number: int) -> bool:
    """Whether all that a node waits for is done; else it is woken by the first that is not."""
    node = clock.nodes[number]
    while node.wait < node.last_wait:
        awaited = clock.wait_node[node.wait]
        earlier = clock.nodes[awaited]
        if earlier.done < 0:
            watch(clock, number, awaited)
            return False
        at = earlier.done + clock.delays[clock.wait_delay[node.wait]]
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


def issue(clock: Clock, engine_number: int, number: int) -> None:
    """Start one instruction as early as its engine and what it waits for allow."""
    node, engine = clock.nodes[number], clock.engines[engine_number]
    cost, moment = clock.costs[node.share], clock.moment
    start = node.ready
    if cost.background:
        # weights load into shadow registers, which a multiplication frees when it starts
        begin = max(start, engine.weights_free, engine.loaded)
        node.background_start = begin
        start = engine.loaded = begin + cost.background
    if moment.has_tiles:
        start = at_tile(clock, engine_number, number, start)
    elif engine.free > start:
        start, node.previous = engine.free, engine.last_node
    start = at_ports(clock, number, start)
    if cost.table != 0 and cost.table != moment.table:
        # the load belongs to the instruction and waits with it (DMA overview figures)
        moment.table = cost.table
        node.loads_table = True
        start += moment.table_ns
    if engine_number == TENSOR and is_cold(moment, engine, start):
        node.is_slow = True
    slower = moment.slowdown if node.is_slow else 1.0
    busy = cost.busy * slower
    engine.used += busy
    node.start, engine.weights_free = start, start + cost.weights_free * slower
    if node.meets:
        # it takes nothing else until all have come
        engine.free, engine.last_node, engine.array_node = FOREVER, number, number
        come(clock, number)
        return
    engine.free, engine.last_node = start + busy, number
    if moment.has_tiles:
        occupy(clock, engine, number, busy)
    if cost.sbuf_port:
        moment.sbuf_free, moment.sbuf_node = engine.free, number
    if cost.psum_port:
        moment.psum_free, moment.psum_node = engine.free, number
    finish(clock, number, start + cost.visible - cost.busy + busy)


def come(clock: Clock, number: int) -> None:
    """Note that a node has come to a rendezvous; `meet` lets it go on."""
    moment = clock.moment
    clock.nodes[number].next = NOBODY
    if moment.first_met == NOBODY:
        moment.first_met = number
    else:
        clock.nodes[moment.last_met].next = number
    moment.last_met = number


def meet(clock: Clock, number: int, at: float) -> None:
    """Let a node go on whose rendezvous is complete at a time."""
    node = clock.nodes[number]
    if node.engine == DMA:
        if at > node.ready:
            node.ready, node.blocked_on = at, RENDEZVOUS
        add(clock, number)
        return
    cost = clock.costs[node.share]
    if at > node.start:
        node.start, node.blocked_on = at, RENDEZVOUS
    engine = clock.engines[node.engine]
    engine.free = engine.array_free = node.start + cost.busy
    finish(clock, number, node.start + cost.visible)


def at_ports(clock: Clock, number: int, start: float) -> float:
    """When the ports that an instruction shares with another engine are free."""
    node, moment = clock.nodes[number], clock.moment
    cost = clock.costs[node.share]
    if cost.sbuf_port and moment.sbuf_free > start:
        start, node.previous = moment.sbuf_free, moment.sbuf_node
    if cost.psum_port and moment.psum_free > start:
        start, node.previous = moment.psum_free, moment.psum_node
    return start


def at_tile(clock: Clock, engine_number: int, number: int, start: float) -> float:
    """When an engine takes an instruction; TensorE one on a tile of the systolic array when that is free."""
    node, engine = clock.nodes[number], clock.engines[engine_number]
    tile = clock.costs[node.share].array_tile
    if tile == 0:
        if engine.array_free > start:
            start, node.previous = engine.array_free, engine.array_node
        return start
    if engine.free > start:
        start, node.previous = engine.free, engine.last_node
    for place in range(ARRAY_TILES):
        part = clock.array_tiles[place]
        if tile >> place & 1 and part.free > start:
            start, node.previous = part.free, part.node
    return start


def occupy(clock: Clock, engine: Engine, number: int, busy: float) -> None:
    """Note until when the whole array is occupied, or a tile of it: another one is free after an interval."""
    node = clock.nodes[number]
    cost, until = clock.costs[node.share], node.start + busy
    if until > engine.array_free or cost.array_tile == 0:
        engine.array_free, engine.array_node = until, number
    if cost.array_tile == 0:
        return
    engine.free = node.start + cost.interval * (clock.moment.slowdown if node.is_slow else 1.0)
    for place in range(ARRAY_TILES):
        if cost.array_tile >> place & 1:
            part = clock.array_tiles[place]
            part.free, part.node = until, number


def is_cold(moment: Moment, engine: Engine, start: float) -> bool:
    """Whether the clock of TensorE is slow: for a window after one of which less than half was busy."""
    if moment.warm_up_ns == 0.0:
        return False
    window = int(start / moment.warm_up_ns)
    if window != engine.window:
        ended = engine.array_free if moment.has_tiles else engine.free
        late = max(ended - (engine.window + 1) * moment.warm_up_ns, 0.0)
        is_next = window == engine.window + 1
        engine.is_cold = not is_next or engine.used - late < moment.warm_up_ns / 2
        engine.window, engine.used = window, late if is_next else 0.0
    return engine.is_cold


def finish(clock: Clock, number: int, at: float) -> None:
    """Record that the result of a node is visible, and wake who waits for it."""
    node = clock.nodes[number]
    node.done = at
    watcher = node.first_watcher
    while watcher != NOBODY:
        note(clock, watcher)
        watcher = clock.nodes[watcher].next
