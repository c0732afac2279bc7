"""A pytest plugin that fails a test which runs too long or needs too much memory, instead of ending the run.

Options:
    --limit-seconds N: fail a test that runs longer (POSIX).
    --limit-gib N: fail a test while whose call the process has more memory resident (POSIX). Memory that is
        reserved and never touched does not count, but for a guard: one call that asks for everything at once
        cannot be interrupted, so that the process may not reserve more than 1.25 times N.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Generator
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread, main_thread
from time import monotonic
from types import FrameType
from typing import Any, Self

import pytest

from .. import _lazy
from ..errors import LimitPassed

GIB = 1 << 30
_GUARD = 1.25
_PERIOD_SECONDS, _AGAIN_SECONDS = 0.02, 1.0
_STATM = Path("/proc/self/statm")
# Of a report: the most memory that its process had resident meanwhile, looked at now and then.
RESIDENT_GIB = "nkilab resident GiB"


def pytest_addoption(parser: Any) -> None:
    """Declare the options."""
    group = parser.getgroup("nkilab")
    group.addoption(
        "--limit-seconds", type=float, default=0, metavar="N", help="fail a test that runs longer"
    )
    group.addoption(
        "--limit-gib", type=float, default=0, metavar="N", help="fail a test that has more memory resident"
    )


def pytest_configure(config: Any) -> None:
    """Set the guard."""
    if config.option.limit_gib:
        resident_reader()
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        reserved = min(_GUARD * config.option.limit_gib * GIB, memory)
        resource.setrlimit(resource.RLIMIT_DATA, (int(reserved), resource.RLIM_INFINITY))


def resident_reader() -> Callable[[], int]:
    """What tells how many bytes of this process are resident.

    Raises:
        pytest.UsageError: if nothing here can tell.
    """
    if _STATM.exists():
        page = resource.getpagesize()
        return lambda: int(_STATM.read_bytes().split()[1]) * page
    if find_spec("psutil"):
        process = _lazy.psutil().Process()
        return lambda: int(process.memory_info().rss)
    raise pytest.UsageError("--limit-gib needs /proc or psutil; install psutil")


class Watch:
    """Interrupts the main thread when a limit is passed, and once more each second until it is left.

    Args:
        seconds: 0 for no limit.
        gib: 0 for no limit.

    Attributes:
        problem: what to raise for the limit that was passed, or None.
        most: the most memory that was resident, in GiB; 0 where nobody asks.
    """

    def __init__(self, seconds: float, gib: float) -> None:
        self.problem: Exception | None = None
        self.most = 0.0
        self._seconds, self._gib = seconds, gib
        self._resident = resident_reader() if gib else lambda: 0
        self._is_left, self._is_located = Event(), False
        self._thread = Thread(target=self._watch, name="nkilab limits", daemon=True)
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGALRM, self._interrupt)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_left.set()
        self._thread.join()
        signal.signal(signal.SIGALRM, self._before)

    def _watch(self) -> None:
        end = monotonic() + self._seconds
        period = _PERIOD_SECONDS
        while not self._is_left.wait(period):
            resident = self._resident() / GIB
            self.most = max(self.most, resident)
            if self._gib and resident > self._gib:
                problem: Exception = MemoryError(f"the test needed more than {self._gib:g} GiB")
            elif self._seconds and monotonic() > end:
                problem = TimeoutError(f"the test ran longer than {self._seconds:g} s")
            else:
                continue
            self.problem = self.problem or problem
            period = _AGAIN_SECONDS
            signal.pthread_kill(main_thread().ident or 0, signal.SIGALRM)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.problem is None or self._is_left.is_set():
            return
        if frame is not None and not self._is_located:
            where = "/".join(Path(frame.f_code.co_filename).parts[-2:])
            self.problem.args = (f"{self.problem}, at {where}:{frame.f_lineno}",)
            self._is_located = True
        raise LimitPassed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, object, object]:
    """Hold a test to its limits, whatever it makes of the interruption."""
    option = item.config.option
    if not (option.limit_seconds or option.limit_gib):
        return (yield)
    result = None
    with Watch(option.limit_seconds, option.limit_gib) as watch:
        result = yield from _outcome(item, watch)
    if watch.problem is None:
        return result
    # anew: where a signal interrupts there may be no line, which pytest cannot show
    raise watch.problem


def _outcome(item: pytest.Item, watch: Watch) -> Generator[None, object, object]:
    """Run a test; what it makes of an interruption does not count."""
    try:
        return (yield)
    except (Exception, LimitPassed, pytest.skip.Exception, pytest.fail.Exception):
        if watch.problem is None:
            raise
    finally:
        item.user_properties.append((RESIDENT_GIB, round(watch.most, 2)))
    return None


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Give back what the last test leaves: arrays that a failure's frames hold, and freed memory.

    The allocator of glibc keeps what threads freed, more than a GiB after large tests, for later; the next
    test would begin with it.
    """
    for name in ("last_exc", "last_value", "last_traceback"):
        if hasattr(sys, name):
            delattr(sys, name)
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
