"""Work shared out over the cores of a logical core."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...cores import signature, simulate_together
from ...place import dependences, plan
from ...place.compiler_passes import compiled
from ...place.edges import DEPENDENCES
from ..declare import Candidate, Edit, Subject, plural, transformation
from ..loops import Loop
from ..subject import later_of

# rows of a program that its loop has at least, as a share: each core repeats the others
_LEAST_SHARE = 0.8


@transformation(
    "split_cores", adds_cores=True, title="the second core has no work",
    what="all iterations of a loop run on one core, though none needs what another computes",
    why="a logical core has two cores, each with engines and SBUF of its own",
    fix="launch the kernel on both cores, as kernel[2] (Beta 1: kernel[nl.nc(2)]), and let nl.program_id(0) "
    "choose the half of the iterations that each computes",
    source="logical core guide; NKI guide, SPMD over the cores of a logical core",
)  # fmt: skip
def two_cores(subject: Subject) -> Iterator[Candidate]:
    """The loop with most rows whose iterations are independent: each core runs half of them."""
    cores = subject.base.machine.limit("cores_per_logical_core")
    if cores < 2 or subject.base.title:
        return
    least = _LEAST_SHARE * len(subject.base)
    loops = [own for own in subject.loops if own.members.size >= least and len(own.start) >= cores]
    for loop in sorted(loops, key=lambda own: len(own.start)):
        if _is_independent(subject, loop):
            message = f"{plural(len(loop.start), 'independent iteration', 'run')} on one of {cores} cores"
            weight = subject.latency_ns * (1 - 1 / cores)
            yield Candidate(
                loop.line, message, weight, (("half of the iterations on each core", _shared(subject, loop)),)
            )
            return


def _is_independent(subject: Subject, loop: Loop) -> bool:
    """Whether no row needs what another iteration computes, nor writes where another one does in HBM."""
    base, slots = subject.base, subject.slots
    turn = np.full(len(base), -1)
    turn[loop.members] = np.arange(len(loop.members))[:, None]
    stores = np.zeros(len(base), np.bool_)
    stores[slots.row[slots.is_written & slots.kinds.lie_in("hbm")[slots.storage]]] = True
    for kind, rows in (("flow", np.ones(len(base), np.bool_)), ("output", stores)):
        waits = dependences(base, {kind: DEPENDENCES[kind]})
        earlier, later = waits.node, later_of(waits)
        crosses = (turn[earlier] >= 0) & (turn[earlier] != turn[later])
        if (crosses & rows[earlier] & rows[later]).any():
            return False
    return bool((turn[stores] >= 0).any())


def _shared(subject: Subject, loop: Loop) -> Edit:
    def latency() -> float:
        base, half = subject.base, -(-len(loop.members) // 2)
        others = np.setdiff1d(np.arange(len(base)), loop.members)
        shares = [
            compiled(base.arranged(np.sort(np.concatenate([others, part.ravel()]))))
            for part in (loop.members[:half], loop.members[half:])
        ]
        for core, program in enumerate(shares):
            program.core = core
        keys, plans = [signature(own) for own in shares], [plan(own) for own in shares]
        return max(own.latency_ns for own in simulate_together(shares, plans, keys).timelines)

    return latency
