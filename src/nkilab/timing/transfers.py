"""DMA in time: issuing units, queues, and 16 engines that share their time among the queues.

A transfer that is ready waits for an issuing unit (oldest first), then for its first byte, then for its turn
in its queue. The heads of the queues share the DMA engines as round-robin over short packets does: each gets
the same share of every engine, a narrow transfer no more than it can use. HBM limits all of them together.
"""

from __future__ import annotations

from ..records import drop_first, push
from .state import FOREVER, ISSUE, NOBODY, QUEUE, QUEUES_OF_UNIT, Clock

NONE_ENDED = -1


def step(clock: Clock) -> int:
    """Go to the next event, of which there is one.

    Returns:
        The node of the transfer that ended, `NONE_ENDED` if none did.
    """
    moment = clock.moment
    arrival, begin = FOREVER, FOREVER
    if moment.arrivals > 0:
        arrival = clock.arrivals[0].key
    if moment.first_issued != NOBODY:
        begin = clock.nodes[moment.first_issued].start
    if moment.next_end <= arrival and moment.next_end <= begin:
        return _end(clock)
    if begin <= arrival:
        _begin(clock)
    else:
        _issue(clock, _next_arrival(clock))
    return NONE_ENDED


def next_event(clock: Clock) -> float:
    """When the next event is."""
    moment = clock.moment
    at = moment.next_end if moment.active > 0 else FOREVER
    if moment.arrivals > 0:
        at = min(at, clock.arrivals[0].key)
    if moment.first_issued != NOBODY:
        at = min(at, clock.nodes[moment.first_issued].start)
    return at


def add(clock: Clock, number: int) -> None:
    """Let a transfer be issued from when it is ready on; at equal times program order decides."""
    node = clock.nodes[number]
    push(clock.arrivals, clock.moment.arrivals, node.ready, node.order)
    clock.moment.arrivals += 1


def _next_arrival(clock: Clock) -> int:
    """The transfer that has been ready longest; it is taken off the heap."""
    order = clock.arrivals[0].number
    drop_first(clock.arrivals, clock.moment.arrivals)
    clock.moment.arrivals -= 1
    return clock.in_order[order]


def _issue(clock: Clock, number: int) -> None:
    node = clock.nodes[number]
    cost = clock.costs[node.share]
    best = 0
    for other in range(len(clock.units)):
        if clock.units[other].free < clock.units[best].free:
            best = other
    unit = clock.units[best]
    at = node.ready
    if unit.free > at:
        at = unit.free
        node.blocked_on, node.held_by, node.issuer = ISSUE, unit.node, unit.node
    unit.free, unit.node, node.issued = at + cost.issue, number, at
    node.queue = (best + node.ring * len(clock.units)) * QUEUES_OF_UNIT + cost.kind
    # the first byte moves while later descriptors are still being made
    node.start = at + cost.start
    node.next = NOBODY
    if clock.moment.first_issued == NOBODY:
        clock.moment.first_issued = number
    else:
        last = clock.nodes[clock.moment.last_issued]
        # none overtakes the one before it
        node.start = max(node.start, last.start)
        last.next = number
    clock.moment.last_issued = number


def _begin(clock: Clock) -> None:
    """The transfer that was issued first joins its queue."""
    moment = clock.moment
    number = moment.first_issued
    node = clock.nodes[number]
    moment.first_issued, node.next = node.next, NOBODY
    queue = clock.queues[node.queue]
    if queue.first != NOBODY:
        node.blocked_on, node.held_by = QUEUE, queue.last
        clock.nodes[queue.last].next = number
        queue.last = number
        return
    queue.first = queue.last = number
    _advance(clock, node.start)
    _head(clock, node.queue)
    _activate(clock, node.queue)
    _share_out(clock)


def _end(clock: Clock) -> int:
    """The transfer that ends first leaves its queue."""
    moment = clock.moment
    number = moment.next_queue
    _advance(clock, moment.next_end)
    queue = clock.queues[number]
    ended = queue.first
    queue.first = clock.nodes[ended].next
    if queue.first != NOBODY:
        _head(clock, number)
    else:
        _deactivate(clock, number)
    _share_out(clock)
    return ended


def _head(clock: Clock, number: int) -> None:
    """The first transfer of a queue begins to move bytes."""
    queue = clock.queues[number]
    node = clock.nodes[queue.first]
    node.start = clock.moment.now
    cost = clock.costs[node.share]
    queue.left, queue.wanted = cost.work, cost.lanes
    queue.hbm_rate, queue.moved_rate = cost.hbm_rate, cost.moved_rate


def _activate(clock: Clock, number: int) -> None:
    active, place = clock.active, clock.moment.active
    clock.moment.active += 1
    while place > 0 and active[place - 1] > number:
        active[place] = active[place - 1]
        place -= 1
    active[place] = number


def _deactivate(clock: Clock, number: int) -> None:
    active, place = clock.active, 0
    while active[place] != number:
        place += 1
    clock.moment.active -= 1
    while place < clock.moment.active:
        active[place] = active[place + 1]
        place += 1


def _advance(clock: Clock, at: float) -> None:
    """Move bytes until a time."""
    moment = clock.moment
    passed = at - moment.now
    for place in range(moment.active):
        queue = clock.queues[clock.active[place]]
        queue.left -= queue.rate * passed
    moment.now = at


def pause(clock: Clock, at: float) -> None:
    """Move bytes until a time before the next event, so that HBM may give another rate from then on."""
    if at > clock.moment.now:
        _advance(clock, at)


def resume(clock: Clock) -> None:
    """Share out again what HBM gives."""
    if clock.moment.active > 0:
        _share_out(clock)


def _share_out(clock: Clock) -> None:
    """Give each active queue its share of the engines, and find who ends first."""
    moment = clock.moment
    _order_by_hunger(clock)
    free = moment.engines
    # whoever wants least is served first: what it leaves is shared by the others
    for place in range(moment.active):
        queue = clock.queues[clock.hungry[place]]
        queue.rate = min(queue.wanted, free / (moment.active - place))
        free -= queue.rate
    if moment.hbm_binds:
        _limit_by_hbm(clock)
    soonest = FOREVER
    for place in range(moment.active):
        queue = clock.queues[clock.active[place]]
        end = moment.now + queue.left / queue.rate
        if end < soonest:
            soonest, moment.next_queue = end, clock.active[place]
    moment.next_end = max(soonest, moment.now)


def _order_by_hunger(clock: Clock) -> None:
    """Order the active queues by the lanes that they want; equal ones stay in order."""
    hungry = clock.hungry
    for count in range(clock.moment.active):
        queue, place = clock.active[count], count
        while place > 0 and clock.queues[hungry[place - 1]].wanted > clock.queues[queue].wanted:
            hungry[place] = hungry[place - 1]
            place -= 1
        hungry[place] = queue


def _limit_by_hbm(clock: Clock) -> None:
    """Slow all queues down by one factor if they ask for more than HBM gives or their engines move."""
    moment, delivered, moved = clock.moment, 0.0, 0.0
    for place in range(moment.active):
        queue = clock.queues[clock.active[place]]
        delivered += queue.rate * queue.hbm_rate
        moved += queue.rate * queue.moved_rate
    factor = 1.0
    if delivered > moment.hbm_limit:
        factor = moment.hbm_limit / delivered
    if moved > moment.moved_limit:
        factor = min(factor, moment.moved_limit / moved)
    if factor == 1.0:
        return
    for place in range(moment.active):
        queue = clock.queues[clock.active[place]]
        if queue.hbm_rate:
            queue.rate *= factor
