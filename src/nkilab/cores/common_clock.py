"""Several cores in one time: each has engines and queues of its own; they wait for each other, and share HBM.

A core runs ahead as long as no other one can still change what it does: until it comes to a rendezvous, and
from then on no farther than the slowest of the others. Cores that share HBM go side by side in short
windows; what one does not want of its half at the begin of a window the other may use in it.

Cores with equal programs, whose partners at every rendezvous are equal, do the same at the same time. One of
each class is simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import Struct, field

from ..errors import RuleError
from ..isa.between_cores import CoreBarrier, Sendrecv
from ..isa.collectives import Collective
from ..isa.declare import Instruction
from ..place.plan import Plan
from ..timing import BEGIN, FOREVER, NOBODY, Timeline, ended, opened
from ..timing.work import work_of
from ..trace.program import Program

# windows in which cores that share HBM go side by side, over the time that their transfers need
WINDOWS, SHORTEST_NS = 400, 100.0
NOT_YET = -1.0
# which rendezvous of a class
Slot = tuple[int, int]


class Together(Struct, frozen=True):
    """Programs in one time."""

    of: tuple[int, ...]  # per program, the class that it belongs to
    timelines: tuple[Timeline, ...]  # per class
    members: tuple[int, ...]  # per class, a program of it

    def timeline(self, program: int) -> Timeline:
        """What a program does in time."""
        return self.timelines[self.of[program]]


class _Core(Struct):
    """A core under way: its clock, the nodes at which it meets, and how far it came."""

    run: Any
    work: Any
    clock: Any
    program: Program
    rows: list[int]
    time: float = 0.0
    waits: set[Slot] = field(default_factory=set)
    released: list[tuple[int, float]] = field(default_factory=list)
    # where it shares HBM: the end of this window, and how long one is
    window: float = FOREVER
    length: float = 0.0

    @property
    def next(self) -> float:
        """When something may happen next; while bytes move, no later than the end of the window."""
        soonest = min([self.time, *(at for _, at in self.released)])
        return min(soonest, self.window) if self.clock.moment.active else soonest

    @property
    def needed(self) -> float:
        """Nanoseconds that its DMA engines need for all of its transfers."""
        counts = np.bincount(self.work.share, minlength=len(self.work.shares))
        total = sum(count * share.work_ns for count, share in zip(counts, self.work.shares, strict=True))
        return float(total) / self.program.machine["dma_engines"]

    @property
    def wanted(self) -> float:
        """Bytes per nanosecond that its transfers under way would move if HBM gave them all."""
        clock = self.clock
        queues = [clock.queues[clock.active[place]] for place in range(int(clock.moment.active))]
        lanes = sum(float(queue.wanted) for queue in queues)
        if not lanes:
            return 0.0
        machine = self.program.machine
        share = min(1.0, machine["dma_engines"] / lanes)
        hbm_rate, moved = (
            share * sum(float(queue.wanted * rate(queue)) for queue in queues)
            for rate in (attrgetter("hbm_rate"), attrgetter("moved_rate"))
        )
        return hbm_rate * min(1.0, machine["hbm_bytes_per_ns"] / moved) if moved else 0.0


def rendezvous_rows(program: Program) -> list[int]:
    """The rows of a program at which it meets others, in order."""
    kinds: tuple[type[Instruction], ...] = (Sendrecv, CoreBarrier, Collective)
    meets = [
        isinstance(form, kinds) and not (isinstance(form, CoreBarrier) and len(form.cores) == 1)
        for form in program.forms
    ]
    if not any(meets):
        return []
    return [int(row) for row in np.flatnonzero(np.array(meets)[np.asarray(program.form_column, np.int64)])]


def signature(program: Program) -> bytes:
    """What decides when the rows of a program happen; the values of its calls do not."""
    forms = [(type(f).__name__, f.layouts, f.attribute_values) for f in program.forms]
    stored = [(s.shape, str(s.dtype), s.memory, s.scope, s.name) for s in program.storages]
    text = repr((program.machine.label, program.compiler, forms, stored, program.positions)).encode()
    columns = (program.form_column, program.storage_column, program.offset_column, program.position_column)
    return sha256(b"".join([text, *(np.ascontiguousarray(c).tobytes() for c in columns)])).digest()


def classes_of(
    keys: Sequence[Any], all_rendezvous: Sequence[Sequence[Sequence[int]]], neighbour: Sequence[int]
) -> list[int]:
    """Programs that do the same at the same time, as the smallest numbers of classes.

    Args:
        keys: per program, what decides it as long as nobody waits.
        all_rendezvous: per program and rendezvous, in order, the programs that take part.
        neighbour: per program, the one that shares its HBM; itself if none does.
    """
    numbers: dict[Any, int] = {}
    of = [numbers.setdefault(key, len(numbers)) for key in keys]
    while True:
        numbers = {}
        finer = [
            numbers.setdefault(
                (
                    of[p],
                    of[neighbour[p]],
                    tuple(tuple(sorted(of[q] for q in who)) for who in all_rendezvous[p]),
                ),
                len(numbers),
            )
            for p in range(len(of))
        ]
        if len(numbers) == len(set(of)):
            return finer
        of = finer


def neighbours(programs: Sequence[Program]) -> list[int]:
    """Per program the one whose core shares its HBM stack; itself where none of them does."""
    machine = programs[0].machine
    if machine.limit("cores_per_chip") // machine.limit("hbm_stacks") != 2:
        return list(range(len(programs)))
    numbers = {program.core: number for number, program in enumerate(programs)}
    return [numbers.get(program.core ^ 1, number) for number, program in enumerate(programs)]


def simulate_together(programs: Sequence[Program], plans: Sequence[Plan], keys: Sequence[Any]) -> Together:
    """Time programs that run together.

    Args:
        programs: one per core, as the compiler leaves them.
        plans: of them.
        keys: per program what decides it; see `signature`.

    Raises:
        RuleError: if the rendezvous of a program cannot be found among its rows.
    """
    neighbour = neighbours(programs)
    who = [[[q for q, _ in slots] for slots in program.met] for program in programs]
    of = classes_of(keys, who, neighbour)
    members = [of.index(number) for number in range(max(of) + 1)]
    cores = [_core(programs[p], plans[p]) for p in members]
    needs = {
        (c, k): frozenset((of[q], nth) for q, nth in slots)
        for c, p in enumerate(members)
        for k, slots in enumerate(programs[p].met)
    }
    _Race(cores, needs, [of[neighbour[p]] if neighbour[p] != p else NOBODY for p in members]).run()
    timelines = tuple(ended(core.program, core.work, core.clock) for core in cores)
    return Together(tuple(of), timelines, tuple(members))


def _core(program: Program, plan: Plan) -> _Core:
    rows = rendezvous_rows(program)
    if len(rows) != len(program.met):
        raise RuleError(
            f"{program.title} has {len(rows)} rows at which it meets others; {len(program.met)} met them"
        )
    work = work_of(program, plan)
    run, clock = opened(program, work)
    for row in rows:
        clock.nodes[row].meets = True
    return _Core(run, work, clock, program, rows)


class _Race:
    """Cores of all classes on their way to the end.

    Args:
        cores: one of each class.
        needs: per rendezvous of a class, what must have come.
        shares: per core, the class whose cores share its HBM; `NOBODY` if none does.
    """

    def __init__(self, cores: list[_Core], needs: dict[Slot, frozenset[Slot]], shares: list[int]) -> None:
        self.cores, self.needs, self.shares = cores, needs, shares
        self.missing = {slot: len(needed) for slot, needed in needs.items()}
        self.waiting: dict[Slot, list[Slot]] = {}
        for slot, needed in needs.items():
            for other in needed:
                self.waiting.setdefault(other, []).append(slot)
        self.came: dict[Slot, float] = {}

    def run(self) -> None:
        """Run all cores to their end, always the one that is least far."""
        for number, core in enumerate(self.cores):
            if self.shares[number] != NOBODY:
                self._share(number)
            self._advance(number, BEGIN, 0.0, NOT_YET)
            assert core.time >= 0
        while True:
            ready = [(core.next, number) for number, core in enumerate(self.cores) if core.next < FOREVER]
            if not ready:
                return
            _, number = min(ready)
            core = self.cores[number]
            others = min((at for at, other in ready if other != number), default=FOREVER)
            node, at = core.released.pop(0) if core.released else (NOBODY, 0.0)
            self._advance(number, node, at, min(others if core.waits else FOREVER, core.window))

    def _advance(self, number: int, node: int, at: float, until: float) -> None:
        """Run one core on, note the rendezvous that it came to, and turn to its next window."""
        core = self.cores[number]
        core.time = float(core.run(core.clock, node, float(at), float(until)))
        moment = core.clock.moment
        here = int(moment.first_met)
        moment.first_met = moment.last_met = NOBODY
        while here != NOBODY:
            record = core.clock.nodes[here]
            self._come((number, core.rows.index(here)), float(max(record.start, record.ready)))
            here = int(record.next)
        if self.shares[number] != NOBODY:
            self._look_at_window(number)

    def _come(self, slot: Slot, at: float) -> None:
        """Note that a core came to a rendezvous, and let go on whoever waited for it alone."""
        number, _ = slot
        self.came[slot] = at
        self.cores[number].waits.add(slot)
        for other in self.waiting[slot]:
            self.missing[other] -= 1
            if not self.missing[other]:
                core = self.cores[other[0]]
                core.waits.discard(other)
                complete = max(self.came[needed] for needed in self.needs[other])
                core.released.append((core.rows[other[1]], complete))

    def _share(self, number: int) -> None:
        """Give a core its half of what HBM gives; one whose partner does the same keeps to it."""
        core = self.cores[number]
        moment = core.clock.moment
        moment.shares_hbm = moment.hbm_binds = True
        moment.hbm_limit = core.program.machine["hbm_stack_bytes_per_ns"] / 2
        if self.shares[number] != number:
            core.length = max(SHORTEST_NS, min(core.needed, self.cores[self.shares[number]].needed) / WINDOWS)
            core.window = core.length

    def _look_at_window(self, number: int) -> None:
        """Behind the end of a window, take what the neighbour does not want of its half."""
        core = self.cores[number]
        if core.window >= core.time or core.time == FOREVER:
            return
        # nothing to share as long as no byte moves
        passed = 0 if core.clock.moment.active else int((core.time - core.window) // core.length)
        core.window += core.length * max(1, passed)
        stack = core.program.machine["hbm_stack_bytes_per_ns"]
        core.clock.moment.hbm_limit = max(stack / 2, stack - self.cores[self.shares[number]].wanted)
