"""The simulation: engines in program order, transfers on queues, signals between them.

An instruction's times follow from those of what it waits for and of the instruction before it on its engine,
whatever else happens. So engines are run as far as they can; then the transfers go one event further in time,
and so on: a transfer that nobody has started yet can only be released by one that ends later than now.
"""

from __future__ import annotations

import numpy as np

from ..place.plan import Plan
from ..place.slots import DMA
from ..records import Job, column
from ..trace.program import Program
from .engines import finish, note, settle
from .events import timeline_of
from .state import NOT_YET, Clock, clock_of
from .timeline import Timeline
from .transfers import NONE_LEFT, step
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
    """Run every node."""
    for back in range(len(clock.nodes)):
        number = len(clock.nodes) - 1 - back
        if clock.nodes[number].engine == DMA:
            note(clock, number)
    for engine in clock.engines:
        if engine.position < engine.end:
            note(clock, clock.stream[engine.position])
    settle(clock)
    ended = step(clock)
    while ended != NONE_LEFT:
        if ended >= 0:
            finish(clock, ended, clock.moment.now)
            settle(clock)
        ended = step(clock)


_JOB = Job(run_all, "the clock")
