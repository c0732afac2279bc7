"""A limit to the time that a point may take: a kernel of the user's may never come back."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer, current_thread, get_ident, main_thread
from types import FrameType

from .outcome import FAILED, Outcome
from .space import Point

# Seconds from which on a limit is none; clocks of the system do not count much further.
LONGEST = 1e8


class OutOfTime(BaseException):
    """A point takes longer than it may; the user's except lets it pass."""


def limited(evaluate: Callable[[Point], Outcome], point: Point, seconds: float) -> Outcome:
    """Evaluate a point, which fails if it takes more than so many seconds, 0 for no limit.

    What ends in time is left alone: a call into compiled code ends first.
    """
    try:
        with _ringing(seconds):
            return evaluate(point)
    except OutOfTime:
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
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _timer(seconds: float) -> Iterator[None]:
    """Of a thread, as dask's workers are: it rings between two of Python's instructions."""
    lock, is_over, thread = Lock(), False, get_ident()

    def ring() -> None:
        with lock:
            if not is_over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(OutOfTime)
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
