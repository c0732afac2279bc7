"""Where points are evaluated: here, in processes of this machine, or on any executor, such as dask's.

A worker finds the kernel anew from its file, once, and keeps it; what travels are texts, points and outcomes.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from multiprocessing import get_context
from pathlib import Path
from threading import Lock, Timer, current_thread, get_ident, main_thread
from types import FrameType
from typing import Any, Protocol

from .. import __version__
from .._lazy import distributed
from ..api import as_kernel, machine_for
from ..arguments import extents
from ..errors import LimitPassed, UsageError
from ..machine import Machine
from ..runner import kernel_from, serve_names
from ..timing import MODEL_VERSION
from ..tracebacks import public
from ..workers import end_with_parent
from .objective import KernelObjective, Objective, cases_of
from .outcome import FAILED, Outcome
from .space import Point

# Seconds from which on a limit is none; clocks of the system do not count much further.
LONGEST = 1e8
# Seconds after which an alarm rings again, in case it rang where errors go no further.
_AGAIN = 0.1


def limited(evaluate: Callable[[Point], Outcome], point: Point, seconds: float) -> Outcome:
    """Evaluate a point, which fails if it takes more than so many seconds, 0 for no limit.

    What ends in time is left alone: a call into compiled code ends first.
    """
    try:
        with _ringing(seconds):
            return evaluate(point)
    except LimitPassed:
        message = f"it takes more than {seconds:g} seconds; --point-seconds says how many it may"
        return Outcome(point, FAILED, reason="out of time", message=message)


@contextmanager
def _ringing(seconds: float) -> Iterator[None]:
    if not 0 < seconds < LONGEST:
        yield
    elif current_thread() is main_thread() and hasattr(signal, "setitimer"):
        with _alarm(seconds):
            yield
    else:
        with _timer(seconds):
            yield


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Of the process, which also ends a sleep."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise LimitPassed

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.signal(signal.SIGALRM, before)


@contextmanager
def _timer(seconds: float) -> Iterator[None]:
    """Of a thread, as dask's workers are: it rings between two of Python's instructions."""
    lock, is_over, thread = Lock(), False, get_ident()

    def ring() -> None:
        with lock:
            if not is_over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(LimitPassed)
                )

    timer = Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            is_over = True
        timer.cancel()


# Points that are on their way, per worker: the next one waits where the work is.
AHEAD = 2
# How often workers may die before the search gives up.
DEATHS = 20
DIED = "its worker ended without an answer, twice"
SILENT = "its worker gave no answer, twice"
# Seconds that a worker may take beyond what its points may: to start, and to load compiled code.
PATIENCE = 60.0


def release() -> str:
    """What of nkilab decides outcomes; workers are to have the same."""
    return f"nkilab {__version__}, timing model {MODEL_VERSION}"


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """What a worker needs to know to judge points; it is told to processes, and compared by them."""

    version: str = ""  # of NKI, "" for any
    machine: Machine | None = None  # with other constants than the chip's, if not None
    limit: float = 0.0  # seconds that a point may take, 0 for no limit
    made_by: str = field(default_factory=release)  # the release that asks; one that differs does not answer

    @abstractmethod
    def objective(self) -> Objective:
        """What judges points, under the chip's own constants."""

    @property
    def absolute(self) -> Task:
        """The same for a worker in another folder."""
        return self


@dataclass(frozen=True)
class Work(Task):
    """Points of a kernel.

    Args:
        kernel: "FILE.py:KERNEL", with a path that workers can read.
        args, keywords, weights, grid: as on the command line.
        goals: names of `objective.GOALS`.
        target: chip, "" for the kernel's own.
    """

    kernel: str
    args: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    grid: str = ""
    goals: tuple[str, ...] = ("latency",)
    target: str = ""

    @property
    def absolute(self) -> Work:
        """With a path that a worker in another folder finds."""
        path, _, name = self.kernel.rpartition(":")
        return replace(self, kernel=f"{Path(path).resolve()}:{name}")

    def objective(self, load: Callable[[str], Any] = kernel_from) -> KernelObjective:
        """The objective; the names that the kernel's file imports are served already."""
        kernel, sizes = as_kernel(load(self.kernel)), extents(self.grid)
        cases = cases_of(self.args, self.keywords, self.weights)
        machine = machine_for(kernel, self.target)
        return KernelObjective(kernel[sizes] if sizes else kernel, cases, machine, self.goals)


@cache
def _serve(version: str) -> None:
    serve_names(version, "")


@lru_cache(maxsize=2)
def _traced(work: Task) -> Objective:
    """The objective in a worker under the chip's own constants: the kernel's file runs once."""
    _serve(work.version)
    return work.objective()


@lru_cache(maxsize=2)
def _objective_of(work: Task) -> Objective:
    traced = _traced(replace(work, machine=None))
    return traced if work.machine is None else traced.under(work.machine)


def evaluate_in_worker(work: Task, point: Point) -> Outcome:
    """What becomes of a point; runs in a worker, whose standard output belongs to nobody.

    Raises:
        UsageError: if another release of nkilab asks.
    """
    if work.made_by != release():
        raise UsageError(
            f"a worker has {release()}; this is {work.made_by}", hint="install the same on all machines"
        )
    stdout, sys.stdout = sys.stdout, sys.stderr
    try:
        return limited(_objective_of(work).evaluate, point, work.limit)
    finally:
        sys.stdout = stdout


class Evaluator(Protocol):
    """Evaluates points."""

    def evaluate(self, points: Sequence[Point]) -> Generator[Outcome, None, None]:
        """Outcomes as they become known, in any order; closing the generator gives up the rest."""


class Inline:
    """Evaluates points here, one after another.

    Args:
        objective: that judges them.
        limit: seconds that a point may take, 0 for no limit.
    """

    def __init__(self, objective: Objective, limit: float = 0.0) -> None:
        self._objective = objective
        self._limit = limit

    def evaluate(self, points: Sequence[Point]) -> Generator[Outcome, None, None]:
        """Outcomes in order."""
        for point in points:
            yield limited(self._objective.evaluate, point, self._limit)


class Pooled:
    """Evaluates points on an executor.

    Args:
        work: what workers need to know.
        make: makes the executor, and another one when its processes died.
        workers: how many evaluate at a time.
    """

    def __init__(self, work: Task, make: Callable[[], Executor], workers: int) -> None:
        self._work = work
        self._make = make
        self._workers = workers
        self._executor = make()
        self._deaths = 0

    def evaluate(self, points: Sequence[Point]) -> Generator[Outcome, None, None]:
        """Outcomes as they become known.

        Raises:
            UsageError: if workers die again and again.
        """
        running: dict[Future[Outcome], Point] = {}
        try:
            yield from self._evaluated(points, running)
        finally:
            for future in running:
                future.cancel()

    def _evaluated(self, points: Sequence[Point], running: dict[Future[Outcome], Point]) -> Iterator[Outcome]:
        """Outcomes as they become known; what is under way stands in `running`."""
        waiting, suspects = list(reversed(points)), list[Point]()
        while waiting or suspects or running:
            # which of those that were under way ended a worker shows when each of them runs alone
            is_alone = bool(suspects)
            queue, most = (suspects, 1) if is_alone else (waiting, AHEAD * self._workers)
            while queue and len(running) < most:
                point = queue.pop()
                running[self._submitted(point)] = point
            settled, lost = _settled(running, self._longest)
            yield from settled
            is_silent = not settled and not lost
            if is_silent:
                lost = _given_up(running)
            if lost:
                self._renew()
            if lost and is_alone:
                message = SILENT if is_silent else DIED
                yield Outcome(lost[0], FAILED, reason="its worker ended", message=message)
            elif lost:
                suspects += [*reversed(lost), *running.values()]
                running.clear()

    def _submitted(self, point: Point) -> Future[Outcome]:
        try:
            return self._executor.submit(evaluate_in_worker, self._work, point)
        except BrokenExecutor:
            self._renew()
            return self._executor.submit(evaluate_in_worker, self._work, point)

    def _renew(self) -> None:
        self._deaths += 1
        if self._deaths > DEATHS:
            raise UsageError(
                f"workers ended {self._deaths} times without an answer", hint="evaluate with --workers 1"
            )
        self.abandon()
        self._executor = self._make()

    @property
    def _longest(self) -> float | None:
        """Seconds after which an executor that answers nothing has lost what it was given."""
        return AHEAD * self._work.limit + PATIENCE if 0 < self._work.limit < LONGEST else None

    def close(self) -> None:
        """Let the workers go, once they have done what they are at."""
        self._executor.shutdown(wait=True)

    def abandon(self) -> None:
        """Let the workers go whatever they are at; processes of this machine are ended."""
        children = list((getattr(self._executor, "_processes", None) or {}).values())
        self._executor.shutdown(wait=False)
        for child in children:
            child.terminate()


def _settled(
    running: dict[Future[Outcome], Point], longest: float | None
) -> tuple[list[Outcome], list[Point]]:
    """Wait for one of what is running; outcomes, and points whose worker died; none if the time is up."""
    done, _ = wait(running, longest, return_when=FIRST_COMPLETED)
    points = {future: running.pop(future) for future in done}
    results = [(point, _result_of(future)) for future, point in points.items()]
    return [r for _, r in results if r is not None], [point for point, r in results if r is None]


def _given_up(running: dict[Future[Outcome], Point]) -> list[Point]:
    """The points of what is running, which is nobody's any more."""
    points = list(running.values())
    for future in running:
        future.cancel()
    running.clear()
    return points


def _result_of(future: Future[Outcome]) -> Outcome | None:
    """The outcome; None if the worker died."""
    try:
        return future.result()
    except (BrokenExecutor, CancelledError):
        return None
    except (ImportError, AttributeError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else "no more is known"
        raise UsageError(
            f"a worker breaks off with {type(error).__name__}: {reason}",
            hint=f"install {release()} on all machines, or evaluate with --workers 1",
        ) from error
    except Exception as error:
        if type(error).__name__ == "KilledWorker":
            return None
        raise


@public
def processes(work: Task, count: int) -> Pooled:
    """Processes on this machine, none of which inherits anything of this one."""

    def make() -> ProcessPoolExecutor:
        executor = ProcessPoolExecutor(count, get_context("spawn"), end_with_parent)
        with _uninterrupted():
            # all start now: Ctrl-C is told to this process alone, which ends them
            for _ in range(count):
                executor.submit(release)
        return executor

    return Pooled(work, make, count)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that start here never hear of Ctrl-C; this one hears of it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cluster(work: Task, address: str) -> Pooled:
    """The workers of a dask scheduler.

    Raises:
        UsageError: if dask is not installed, or no scheduler answers there.
    """
    try:
        client = distributed().Client(address, timeout="10s", set_as_default=False)
    except ModuleNotFoundError:
        raise UsageError(
            f"--workers is {address}; this needs dask", hint="pip install 'nkilab[cluster]'"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"no dask scheduler answers at {address}: {error}") from None
    workers = sum(client.nthreads().values())
    if not workers:
        raise UsageError(
            f"the scheduler at {address} has no workers", hint=f"start one: dask worker {address}"
        )
    _check_releases(client)
    # what a dead worker had is done again by another one: dask keeps account of it
    return Pooled(work, lambda: client.get_executor(pure=False), workers)


def _check_releases(client: Any) -> None:
    """Refuse a cluster of which a worker has no nkilab, or another one."""
    for address, release_there in client.run(release, on_error="return").items():
        if release_there != release():
            answer = (
                f"answers with {release_there!r}"
                if isinstance(release_there, Exception)
                else f"has {release_there}"
            )
            raise UsageError(
                f"the worker at {address} {answer}; this is {release()}",
                hint="install the same on all machines, and start their workers again",
            )


def evaluator_for(work: Task, workers: str, objective: Objective) -> Inline | Pooled:
    """The evaluator that `--workers` asks for: a number of processes, or the address of a dask scheduler.

    Raises:
        UsageError: if it is neither, or the scheduler does not answer.
    """
    if "://" in workers:
        return cluster(work, workers)
    if not workers.isdecimal() or not 1 <= int(workers) <= 1024:
        raise UsageError(
            f"--workers is {workers!r}; it must be a number of processes, or the address of a dask scheduler",
            hint="write --workers 2, or --workers tcp://HOST:8786",
        )
    return Inline(objective, work.limit) if int(workers) == 1 else processes(work, int(workers))


@contextmanager
def evaluating(work: Task, workers: str, objective: Objective) -> Iterator[Evaluator]:
    """Who evaluates points; what it is still at when the search breaks off is given up."""
    evaluator = evaluator_for(work.absolute, workers, objective)
    try:
        yield evaluator
    except BaseException:
        if isinstance(evaluator, Pooled):
            evaluator.abandon()
        raise
    if isinstance(evaluator, Pooled):
        evaluator.close()
