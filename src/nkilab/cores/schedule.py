"""Whose turn it is: several programs, of which exactly one runs.

Each is a greenlet of the caller's thread: where it waits for others, the caller lets another one go on. Who
runs next is the nearest higher rank that can, going round, so that every run of a launch is the same. A
program that fails ends the others: they leave the place where they wait by an exception that is none of the
user's, one after another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextvars import copy_context
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from greenlet import getcurrent, greenlet
from msgspec import Struct

from ..errors import DeadlockError, NkilabError
from ..trace.session import TURNS, Session, tracing
from ..trace.source import user_site

CORES_ADVICE = "let all programs come to the same calls of sendrecv and core_barrier, in the same order"
CORES_SOURCE = "nki.isa.sendrecv, pipe_id; nki.isa.core_barrier"


class Ended(BaseException):
    """Leaves a program because another one failed; the user's `except Exception` lets it pass."""


class Wait(Struct, frozen=True):
    """What a program waits for."""

    key: Hashable  # programs that wait under equal keys, for the same parties, meet
    what: str  # for messages: "sendrecv with pipe_id 0"
    called: str  # name of the instruction
    where: str  # its line: "kernel.py:41"
    letter: Any  # what the others get
    # the programs that meet, in the order of what they get; None for all
    parties: tuple[int, ...] | None = None
    # advice, source: what an error says if they never do
    advice: str = CORES_ADVICE
    source: str = CORES_SOURCE


class _State(Enum):
    NEW = "has not started"
    RUNNING = "runs"
    READY = "goes on"
    WAITING = "waits"
    DONE = "has returned"


class _Program:
    """One program and where it stands."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.state = _State.NEW
        self.wait: Wait | None = None
        self.met: list[Wait] = []
        self.result: Any = None
        # what to switch to; None until it starts
        self.place: greenlet | None = None


class Schedule:
    """Runs the programs of a launch, one at a time.

    Args:
        works: per program what it does.
        names: per program what messages call it; "program 0" and so on if not given.
    """

    def __init__(self, works: Sequence[Callable[[], Any]], names: Sequence[str] | None = None) -> None:
        self._names = list(names or [f"program {number}" for number in range(len(works))])
        self._programs = [_Program(work) for work in works]
        # how many programs wait, by key and parties
        self._waiting: Counter[Hashable] = Counter()
        self._failure: BaseException | None = None
        # who lets programs go on
        self._caller = getcurrent()

    def run(self) -> list[Any]:
        """Run all programs; returns their results by rank.

        Raises:
            DeadlockError: if nobody can run.
            BaseException: what the first program to fail raised.
        """
        self._caller = getcurrent()
        rank: int | None = 0
        try:
            while rank is not None:
                self._resume(rank)
                rank = self._next_or_fail(rank)
        except BaseException as interruption:
            self._fail(interruption)
        for program in self._programs:
            while program.place is not None and program.state is not _State.DONE:
                program.place.throw(Ended)
        results = [p.result for p in self._programs]
        failure, self._failure = self._failure, None
        # what the programs hold goes with them, not when cycles are next looked for: tensors are large
        self._programs = []
        if failure is not None:
            raise failure
        return results

    def meet(self, rank: int, wait: Wait, agree: Callable[[list[Wait]], None] | None = None) -> list[Wait]:
        """Wait until every party waits under the same key; returns what each waits for, in their order.

        The last one to come goes on at once, the others when their turn comes.

        Args:
            rank: of the program.
            wait: what it waits for.
            agree: refuses what the parties brought, if it does not fit; the last one to come asks. What it
                raises ends all programs, even if that one catches it.

        Raises:
            DeadlockError: if nobody can run then.
        """
        if self._failure is not None:
            raise Ended
        me = self._programs[rank]
        me.wait = wait
        terms = (wait.key, wait.parties)
        if self._waiting[terms] + 1 == len(self._programs if wait.parties is None else wait.parties):
            parties = [self._programs[n] for n in wait.parties or range(len(self._programs))]
            others = [p for p in parties if p is not me]
            met = [p.wait for p in parties if p.wait is not None]
            del self._waiting[terms]
            if agree is not None:
                self._ask(agree, met)
            for other in others:
                other.met, other.state = met, _State.READY
            return met
        me.state = _State.WAITING
        self._waiting[terms] += 1
        me.place = getcurrent()
        self._caller.switch()
        met, me.met = me.met, []
        return met

    def _ask(self, agree: Callable[[list[Wait]], None], met: list[Wait]) -> None:
        try:
            agree(met)
        except NkilabError as error:
            # it tells of all who met: no note
            self._fail(error)
            raise

    def _resume(self, rank: int) -> None:
        """Let a program go on, until it waits or ends."""
        program = self._programs[rank]
        program.state = _State.RUNNING
        if program.place is None:
            program.place = greenlet(partial(self._run, rank))
            program.place.gr_context = copy_context()
        program.place.switch()

    def _run(self, rank: int) -> None:
        """Run one program to its end."""
        me = self._programs[rank]
        try:
            me.result = me.work()
        except Ended as ended:
            # by another schedule, in which this one stands, if nothing failed here
            self._fail(ended)
        except BaseException as error:
            if isinstance(error, Exception) and self._failure is None and len(self._programs) > 1:
                error.add_note(self._raised_in(rank))
            self._fail(error)
        me.state = _State.DONE

    def _raised_in(self, rank: int) -> str:
        """Which program raised something, and where the others stand meanwhile."""
        others = [line for other, line in enumerate(self.standing()) if other != rank]
        name = self._names[rank].rstrip(",")
        return "\n  ".join([f"raised in {name} of {len(self._programs)}", *others])

    def _fail(self, error: BaseException) -> None:
        """Remember the first failure; from then on every program that waits leaves its place."""
        if self._failure is None:
            self._failure = error

    def _next(self, rank: int) -> int | None:
        """The nearest rank after `rank`, going round, that can run."""
        count = len(self._programs)
        for step in range(1, count):
            other = (rank + step) % count
            if self._programs[other].state in (_State.NEW, _State.READY):
                return other
        return None

    def _next_or_fail(self, rank: int) -> int | None:
        """Who runs after a program that waits or ended; if some wait and nobody can, that is the failure."""
        following = None if self._failure is not None else self._next(rank)
        if self._failure or following is not None or all(p.state is _State.DONE for p in self._programs):
            return following
        deadlock = self._deadlock()
        self._fail(deadlock)
        last = self._programs[rank]
        if last.state is _State.WAITING and last.place is not None:
            last.place.throw(deadlock)
        return None

    def _deadlock(self) -> DeadlockError:
        """The error that says what every program waits for, at the line of the first that waits."""
        first = next(p.wait for p in self._programs if p.state is _State.WAITING and p.wait is not None)
        error = DeadlockError(
            "nobody can run: each program waits for one that does not come",
            hint=first.advice,
            source=first.source,
        )
        error.located(first.where, first.called, self.standing())
        return error

    def standing(self) -> list[str]:
        """Where every program stands: a line each."""
        return [f"{name} {_standing(p)}" for name, p in zip(self._names, self._programs, strict=True)]


def _standing(program: _Program) -> str:
    """Where a program stands, and what it waits for or last waited for."""
    state, wait = program.state, program.wait
    link = {_State.WAITING: "for", _State.READY: "after"}.get(state)
    if link is None or wait is None:
        return state.value
    return f"{state.value} at {wait.where} {link} {wait.what}"


ADVICE = "let all program instances along the axes come to the same calls of all_reduce, in the same order"
SOURCE = "nki.language.all_reduce"


def run_in_turns(
    session: Session, instances: Sequence[tuple[int, ...]], body: Callable[[], Any]
) -> list[Any]:
    """Run the instances of one core, each until it meets others; returns what each returns.

    Args:
        session: of the core, which all of them share.
        instances: their coordinates, in order.
        body: one instance; `session` tells which.

    Raises:
        DeadlockError: if an instance waits for one that does not come.
    """
    numbers = {instance: number for number, instance in enumerate(instances)}

    def run(instance: tuple[int, ...]) -> Any:
        with tracing(session):
            session.position = 0
            session.begin(instance)
            result = body()
            session.flush()
            return result

    def meet(brought: Any, axes: tuple[int, ...], what: str) -> tuple[int, list[Any]]:
        """The place of this instance on its core, and what all of them along the axes bring."""
        mine = session.program_id
        apart = [axis for axis in range(len(mine)) if axis not in axes]
        parties = tuple(n for i, n in numbers.items() if all(i[axis] == mine[axis] for axis in apart))
        filename, line = user_site(1)
        key = (what, tuple(mine[axis] for axis in apart))
        held_back = session.leave()
        wait = Wait(
            key, what, "all_reduce", f"{Path(filename).name}:{line}", brought, parties, ADVICE, SOURCE
        )
        met = schedule.meet(numbers[mine], wait)
        session.come_back(held_back)
        return numbers[mine], [other.letter for other in met]

    schedule = Schedule([partial(run, i) for i in instances], [f"instance {list(i)}" for i in instances])
    session.keyed[TURNS] = meet
    return schedule.run()
