"""The simulation: engines that take what is ready, transfers on queues, signals between them.

What happens next in time happens first: an engine starts an instruction, a transfer goes one event further.
What that releases is ready later than it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from ..place.plan import Plan
from ..place.slots import pieces
from ..records import AT_ONCE, Job, column
from ..trace.program import Program
from .engines import choose, finish, meet, next_start, note, settle
from .events import latency_of, outcome_of, timeline_of
from .state import FOREVER, NOBODY, NOT_YET, Clock, clock_of
from .timeline import Timeline
from .transfers import next_event, pause, resume, step
from .work import Work, work_of

# the first call of `run_on`
BEGIN = -2


def simulate(program: Program, plan: Plan, work: Work | None = None) -> Timeline:
    """Time a program under its plan.

    Args:
        program, plan: what is to be timed.
        work: of them, where it was worked out before.

    Returns:
        The events; the same program and plan give the same events, bit for bit.
    """
    work, *clock = _run_out(program, work or work_of(program, plan))
    return timeline_of(program.machine, work, outcome_of(work, clock, is_given_up=True))


def latency_ns(program: Program, plan: Plan, known: Work | None = None) -> float:
    """`simulate(program, plan).latency_ns`, without the timeline; `known` as for `work_of`."""
    return latency_of(program.machine, *_run_out(program, work_of(program, plan, known)))


def _run_out(program: Program, work: Work) -> tuple[Work, Clock]:
    """The work of a program and its clock at the end, without what has no more say."""
    run, clock = opened(program, work)
    none = work.row[:0]
    work = replace(work, order=none, wait_start=none, wait_delay=none, ring=none)
    coming = run(clock, BEGIN, 0.0, FOREVER)
    while coming < FOREVER:
        coming = run(clock, NOBODY, 0.0, FOREVER)
    _check_all_happened(clock)
    return work, clock._replace(wait_delay=[], agenda=[], arrivals=[], in_order=[], coming=(), ready=())


def ended(program: Program, work: Work, clock: Clock) -> Timeline:
    """The timeline of a clock that ran to its end."""
    _check_all_happened(clock)
    return timeline_of(program.machine, work, outcome_of(work, [clock], is_given_up=False))


def _check_all_happened(clock: Clock) -> None:
    for piece in pieces(len(clock.nodes)):
        never = np.flatnonzero(column(clock.nodes[piece], "done") == NOT_YET)
        assert not len(never), f"node {piece.start + never[0]} waits for something that never happens"


def opened(program: Program, work: Work) -> tuple[Callable[..., float], Clock]:
    """What runs a clock further (see `run_on`), and the clock before anything has happened."""
    run, as_array = _JOB.chosen(len(work.share))
    return run, clock_of(program.machine, work, as_array=as_array)


def run_on(clock: Clock, number: int, at: float, until: float) -> float:
    """Run nodes in the order of time, until a time or until one comes to a rendezvous, or some of them.

    Where cores share HBM, a call goes as far as it can: the next one shares out anew.

    Args:
        clock: where it stands.
        number: the node to let go on from a rendezvous that is complete; `BEGIN` for the first call, `NOBODY`
            for none.
        at: when the rendezvous was complete.
        until: the last time to run, in nanoseconds.

    Returns:
        When the next event is; infinite if there is none before a rendezvous is complete.
    """
    left = AT_ONCE
    if number == BEGIN:
        for back in range(len(clock.nodes)):
            note(clock, len(clock.nodes) - 1 - back)
    elif number != NOBODY:
        meet(clock, number, at)
    settle(clock)
    if clock.moment.shares_hbm:
        resume(clock)
    while True:
        soonest, engine = FOREVER, NOBODY
        for number in range(len(clock.engines)):
            at = next_start(clock, number)
            if at < soonest:
                soonest, engine = at, number
        moved = next_event(clock)
        coming = min(soonest, moved)
        if coming == FOREVER or coming > until or clock.moment.first_met != NOBODY or left == 0:
            break
        if not clock.moment.shares_hbm:
            left -= 1
        if moved <= soonest:
            last = step(clock)
            if last < 0:
                continue
            cost = clock.costs[clock.nodes[last].share]
            finish(clock, last, clock.moment.now + cost.visible)
        else:
            choose(clock, engine, soonest)
        settle(clock)
    if clock.moment.shares_hbm and clock.moment.first_met == NOBODY and until < coming:
        pause(clock, until)
    return coming


_JOB = Job(run_on, "the clock")
