"""Whose turn it is: several programs, of which exactly one runs.

The caller's thread runs the first program. Only where a program waits for the others does the next one get a
thread of its own; who runs next is the nearest higher rank that can, going round, so that every run of a
launch is the same. A program that fails ends the others: they leave the place where they wait by an
exception that is none of the user's, one after another.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextvars import Context, copy_context
from enum import Enum
from threading import Lock, Thread
from typing import Any

from msgspec import Struct

from ..errors import DeadlockError, NkilabError

# seconds after which a thread that waits looks up: a signal that comes just before it blocks shows only then
_PATIENCE = 0.1
CORES_ADVICE = "let all programs come to the same calls of sendrecv and core_barrier, in the same order"
CORES_SOURCE = "nki.isa.sendrecv, pipe_id; nki.isa.core_barrier"


class Ended(BaseException):
    """Leaves a program because another one failed; the user's `except Exception` lets it pass."""


class Wait(Struct, frozen=True):
    """What a program waits for.

    Args:
        key: programs that wait under equal keys, for the same parties, meet.
        what: for messages: "sendrecv with pipe_id 0".
        called: name of the instruction.
        where: its line: "kernel.py:41".
        letter: what the others get.
        parties: the programs that meet, in the order of what they get; None for all.
        advice, source: what an error says if they never do.
    """

    key: Hashable
    what: str
    called: str
    where: str
    letter: Any
    parties: tuple[int, ...] | None = None
    advice: str = CORES_ADVICE
    source: str = CORES_SOURCE


class _Turn:
    """What a thread waits for until another one gives it; given twice, it counts once."""

    def __init__(self) -> None:
        # a bare lock: a semaphore is made of several and costs more
        self._lock = Lock()
        self._lock.acquire()

    def give(self) -> None:
        """Let whoever waits go on, or whoever will wait."""
        if self._lock.locked():
            self._lock.release()

    def take(self) -> None:
        """Wait until it is given."""
        while not self._lock.acquire(timeout=_PATIENCE):
            pass


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
        self.turn = _Turn()
        self.thread: Thread | None = None


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
        self._is_over = _Turn()
        # rank of the program in the caller's thread; None while that thread only waits
        self._here: int | None = None
        self._context: Context | None = None

    def run(self) -> list[Any]:
        """Run all programs; returns their results by rank.

        Raises:
            DeadlockError: if nobody can run.
            BaseException: what the first program to fail raised.
        """
        self._context = copy_context()
        try:
            self._run_here()
        except BaseException as interruption:
            self._fail(interruption)
        self._end_threads()
        results = [p.result for p in self._programs]
        failure, self._failure = self._failure, None
        # what the programs hold goes with them, not when cycles are next looked for: tensors are large
        self._programs, self._context = [], None
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
        following = self._next(rank)
        if following is None:
            deadlock = self._deadlock()
            self._fail(deadlock)
            raise deadlock
        self._hand_over(following)
        self._park(me)
        if self._failure is not None:
            raise Ended
        met, me.met = me.met, []
        return met

    def _ask(self, agree: Callable[[list[Wait]], None], met: list[Wait]) -> None:
        try:
            agree(met)
        except NkilabError as error:
            # it tells of all who met: no note
            self._fail(error)
            raise

    def _run_here(self) -> None:
        """Run programs in the caller's thread until all are done or one failed."""
        rank: int | None = 0
        while rank is not None:
            self._here = rank
            self._run(rank)
            self._here = None
            following = self._next_or_fail(rank)
            rank = None
            if following is not None and self._programs[following].state is _State.NEW:
                rank = following
            elif following is not None:
                self._hand_over(following)
        if self._failure is None and any(p.state is not _State.DONE for p in self._programs):
            # a program in another thread has the turn; the last one to end wakes this thread
            self._is_over.take()

    def _run(self, rank: int) -> None:
        """Run one program to its end, in this thread."""
        me = self._programs[rank]
        me.state = _State.RUNNING
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

    def _run_in_thread(self, rank: int) -> None:
        """What a thread does: a program, then it hands the turn on."""
        try:
            self._run(rank)
            following = self._next_or_fail(rank)
            if following is not None:
                self._hand_over(following)
            elif self._here is not None:
                # it waits for a program that failed, or for one that does not come
                self._programs[self._here].turn.give()
            else:
                self._is_over.give()
        except Ended:
            return

    def _next(self, rank: int) -> int | None:
        """The nearest rank after `rank`, going round, that can run."""
        count = len(self._programs)
        for step in range(1, count):
            other = (rank + step) % count
            if self._programs[other].state in (_State.NEW, _State.READY):
                return other
        return None

    def _next_or_fail(self, rank: int) -> int | None:
        """Who runs after a program that returned; if some wait and nobody can, that is the failure."""
        if self._failure is not None:
            return None
        following = self._next(rank)
        if following is None and any(p.state is _State.WAITING for p in self._programs):
            self._fail(self._deadlock())
        return following

    def _hand_over(self, rank: int) -> None:
        """Let another program run."""
        other = self._programs[rank]
        if other.state is _State.NEW:
            assert self._context is not None
            context = self._context.copy()
            other.thread = Thread(
                target=context.run,
                args=(self._run_in_thread, rank),
                name=f"nkilab program {rank}",
                daemon=True,
            )
            other.state = _State.RUNNING
            other.thread.start()
        else:
            other.state = _State.RUNNING
            other.turn.give()

    def _park(self, me: _Program) -> None:
        """Wait for the turn of a program whose thread this is."""
        try:
            me.turn.take()
        except BaseException as interruption:
            # Ctrl-C comes to the caller's thread while another program runs
            self._fail(interruption)
            raise

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

    def _end_threads(self) -> None:
        """End the threads, in order of rank; all of them have nothing to do, or are told to leave."""
        for program in self._programs:
            thread = program.thread
            if thread is None or thread.ident is None:
                continue
            if program.state is _State.RUNNING and self._failure is not None:
                # interrupted: this program runs while the caller's thread ends
                _raise_in(thread)
            while thread.is_alive():
                program.turn.give()
                thread.join(_PATIENCE)


def _standing(program: _Program) -> str:
    """Where a program stands, and what it waits for or last waited for."""
    state, wait = program.state, program.wait
    link = {_State.WAITING: "for", _State.READY: "after"}.get(state)
    if link is None or wait is None:
        return state.value
    return f"{state.value} at {wait.where} {link} {wait.what}"


def _raise_in(thread: Thread) -> None:
    """Let `Ended` come up in a thread at its next step in Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Ended))
