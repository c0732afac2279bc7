"""The simulation: engines that take what is ready, transfers on queues, signals between them.

What happens next in time happens first: an engine starts an instruction, a transfer goes one event further.
What that releases is ready later than it.
"""

from __future__ import annotations

import numpy as np

from ..place.plan import Plan
from ..records import Job, column
from ..trace.program import Program
from .engines import choose, finish, next_start, note, settle
from .events import timeline_of
from .state import FOREVER, NOBODY, NOT_YET, Clock, clock_of
from .timeline import Timeline
from .transfers import next_event, step
from .work import work_of


def simulate(program: Program, plan: Plan) -> Timeline:
    """Time a program under its plan.

    Returns:
        The events; the same program and plan give the same events, bit for bit.
    """
    work = work_of(program, plan)
    run, as_array = _JOB.chosen(len(work.share))
    clock = clock_of(program.machine, work, as_array=as_array)
    run(clock)
    never = np.flatnonzero(column(clock.nodes, "done") == NOT_YET)
    assert not len(never), f"node {never[0]} waits for something that never happens"
    return timeline_of(program.machine, work, clock)


def run_all(clock: Clock) -> None:
    """Run every node, in the order of time."""
    for back in range(len(clock.nodes)):
        note(clock, len(clock.nodes) - 1 - back)
    settle(clock)
    while True:
        soonest, engine = FOREVER, NOBODY
        for number in range(len(clock.engines)):
            at = next_start(clock, number)
            if at < soonest:
                soonest, engine = at, number
        moved = next_event(clock)
        if soonest == FOREVER and moved == FOREVER:
            break
        if moved <= soonest:
            ended = step(clock)
            if ended < 0:
                continue
            cost = clock.costs[clock.nodes[ended].share]
            finish(clock, ended, clock.moment.now + cost.visible)
        else:
            choose(clock, engine, soonest)
        settle(clock)


_JOB = Job(run_all, "the clock")
