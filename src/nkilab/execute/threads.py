"""Computing calls behind the caller, on as many threads as there are cores: same results, in less time.

A call goes to a *thread* that computes its calls in order. One that needs what others leave goes to
their thread, or waits for them; calls that touch different storages run side by side. Everything that a user
can be told is decided before a call is handed over, and whoever looks at elements waits for all of them first
(`tiles.tile.array_of`), so that nothing but time tells the difference. Small calls are computed at once:
handing one over costs more than computing it.

NKILAB_SYNC=1, or a tracing function (debuggers, coverage), switches threads off.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Lock, RLock, Thread
from typing import Any

import numpy as np

from .._lazy import threadpools
from ..records import processors
from ..tiles.coverage import Coverage
from ..tiles.tile import before_reading, settle_elements
from ..tracebacks import is_from_outside
from .batch import MOST_WAITING, Batch, Call
from .joined_products import Product

# elements from which a call is worth handing over: about 10 us of work
LARGE = 1 << 14
# calls under way from which the caller waits, so that memory does not fill with tiles
MOST_UNDER_WAY = 128


class Task:
    """A call under way.

    Args:
        compute: the meaning of its form.
        arguments: arrays and values.
        thread: number of the thread that computes it.
        waits: calls of other threads that it needs.

    Attributes:
        done: locked until it is computed.
    """

    __slots__ = ("arguments", "compute", "done", "thread", "waits")

    def __init__(self, compute: Callable[..., Any], arguments: Sequence[Any], thread: int, waits: list[Task]):
        self.compute = compute
        self.arguments = arguments
        self.thread = thread
        self.waits = waits
        self.done = Lock()
        self.done.acquire()

    def wait(self) -> None:
        """Wait until it is computed."""
        with self.done:
            return


# what is computed, at once where it names no storage that it writes; None where all before it has to be done
Log = list[Call | None]


class Threads:
    """The threads, and which calls under way touch which storages.

    Args:
        count: of threads.
        log: gets what is computed, in order, all of it by the caller; None where threads compute.
    """

    def __init__(self, count: int, log: Log | None = None) -> None:
        self._log = log
        self._queues: list[SimpleQueue[Task]] = [SimpleQueue() for _ in range(count)]
        # those that may not be done yet, in order
        self._under_way: deque[Task] = deque()
        # of each thread, what it was given last: one whose queue is empty may still compute it
        self._last = [_DONE] * count
        self._writers: dict[int, Task] = {}
        self._readers: dict[int, list[Task]] = {}
        # shadow bits are held while a call under way touches their storage: their identities are keys
        self._touched: list[Coverage] = []
        self._batch = Batch()
        self.failure: BaseException | None = None
        self.is_idle = True
        for thread, queue in enumerate(self._queues):
            Thread(target=self._work, args=(queue,), name=f"nkilab-thread-{thread}", daemon=True).start()

    def touches(self, storages: Sequence[Coverage]) -> bool:
        """Whether a call under way touches one of these storages."""
        is_under_way = any(id(s) in self._writers or id(s) in self._readers for s in storages)
        return is_under_way or self._batch.touches(storages)

    def at_once(
        self, compute: Callable[..., object], arguments: Sequence[object], touched: Iterable[Coverage]
    ) -> None:
        """Compute a call that needs nothing that is under way."""
        if self._log is not None:
            self._log.append(Call(compute, arguments, [*touched], ()))
        compute(*arguments)

    def submit(
        self, compute: Callable[..., object], arguments: Sequence[object], reads: Sequence[Coverage],
        writes: Sequence[Coverage],
    ) -> None:  # fmt: skip
        """Have a call computed after those under way that leave what it needs or use what it overwrites."""
        call = Call(compute, arguments, reads, writes)
        if not self._batch.takes(call):
            self.hand_out(call)
        elif len(self._batch) >= MOST_WAITING:
            self._release()

    def multiply(self, product: Product, reads: Sequence[Coverage], tile: Coverage) -> None:
        """Have a product computed, with others if more come."""
        if len(self._batch) >= MOST_WAITING:
            self._release()
        self._batch.multiply(product, reads, tile)
        self.is_idle = False

    def _release(self) -> None:
        for call in self._batch.release():
            self.hand_out(call)

    def hand_out(self, call: Call) -> None:
        """Give a call to a thread."""
        compute, arguments, reads, writes = call
        if self._log is not None:
            self._log.append(call)
            self._writers |= dict.fromkeys(map(id, (*reads, *writes)), _DONE)
            self.is_idle = False
            compute(*arguments)
            return
        if len(self._under_way) >= MOST_UNDER_WAY:
            self._wait(len(self._under_way) // 2)
        needed: dict[int, Task] = {}
        for storage in (*reads, *writes):
            writer = self._writers.get(id(storage))
            if writer is not None and writer.done.locked():
                needed[id(writer)] = writer
        for storage in writes:
            readers = self._readers.pop(id(storage), ())
            needed |= {id(reader): reader for reader in readers if reader.done.locked()}
        before = list(needed.values())
        threads = {task.thread for task in before}
        thread = min(threads or range(len(self._queues)), key=self._load)
        task = Task(compute, arguments, thread, [t for t in before if t.thread != thread])
        self.is_idle = False
        self._touched += (*reads, *writes)
        # in this order: whoever is interrupted between them waits for nothing that no thread has
        self._queues[thread].put(task)
        self._last[thread] = task
        self._under_way.append(task)
        for storage in writes:
            self._writers[id(storage)] = task
        for storage in reads:
            self._readers.setdefault(id(storage), []).append(task)

    def _load(self, thread: int) -> int:
        """How many calls a thread has not begun, and whether it has one that is not done."""
        return self._queues[thread].qsize() + self._last[thread].done.locked()

    def play(self, log: Log) -> None:
        """Compute what another one wrote down."""
        for call in (*log, None):
            if call is None:
                self.drain()
            elif call.writes:
                self.hand_out(call)
            else:
                call.compute(*call.arguments)

    def drain(self) -> None:
        """Wait until everything is computed; raise what went wrong, a fault of ours."""
        if self.is_idle:
            return
        self._release()
        if self._log is not None:
            self._log.append(None)
        self._wait(len(self._under_way))
        self._writers.clear()
        self._readers.clear()
        self._touched.clear()
        self.is_idle = True
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def give_up(self, error: BaseException) -> None:
        """Compute nothing more of what is under way, which nobody will see; whoever waits next hears why."""
        self.failure = None if self.is_idle else error
        self._batch = Batch()

    def _wait(self, count: int) -> None:
        """Wait for the first of the calls under way."""
        try:
            for _ in range(count):
                self._under_way[0].wait()
                self._under_way.popleft()
        except BaseException as error:
            self.give_up(error)
            raise

    @np.errstate(all="ignore")
    def _work(self, queue: SimpleQueue[Task]) -> None:
        while True:
            self._finish(queue.get())

    def _finish(self, task: Task) -> None:
        """Compute a task, after those that it waits for; what goes wrong is raised where somebody waits."""
        for other in task.waits:
            other.wait()
        try:
            if self.failure is None:
                task.compute(*task.arguments)
        except BaseException as error:
            self.failure = error
        task.arguments = task.waits = ()  # type: ignore[assignment]
        task.done.release()


# stands for what a log has, too
_DONE = Task(print, (), 0, [])
_DONE.done.release()
_threads: Threads | None = None


def open_threads() -> Threads | None:
    """The threads of this process; None where calls are computed at once."""
    global _threads
    if _threads is None and not is_at_once():
        _threads = Threads(processors())
        before_reading(_threads.drain)
    return _threads


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Have products computed by the thread that asks for them, as tiles are too small to share, in a block.

    At its end all that calls make is there.
    """
    block = object()
    try:
        _take_one(block)
        with _settled():
            yield
    finally:
        try:
            _give_back(block)
        finally:
            # once more where the first is interrupted
            _give_back(block)


@contextmanager
def _settled() -> Iterator[None]:
    """Begin and end a block with nothing under way; if it is broken off, what has not begun is left out."""
    left = _threads and _threads.failure
    try:
        settle_elements()
    except BaseException as error:
        # nobody hears again of what a launch told of as it waited for its calls
        if error is not left:
            raise
    try:
        yield
    except BaseException as error:
        if _threads is not None and is_from_outside(error):
            _threads.give_up(error)
        raise
    finally:
        settle_elements()


# blocks under way in which the BLAS has one thread, and how many its libraries had before the first
_blocks: set[object] = set()
_before: list[int] = []
_changing = RLock()


def _take_one(block: object) -> None:
    libraries = threadpools().lib_controllers
    with _changing:
        if not _blocks:
            _before[:] = [library.num_threads for library in libraries]
        _blocks.add(block)
        for library in libraries:
            library.set_num_threads(1)


def _give_back(block: object) -> None:
    with _changing:
        _blocks.discard(block)
        counts = [] if _blocks else _before
        for library, count in zip(threadpools().lib_controllers, counts, strict=False):
            library.set_num_threads(count)
        counts.clear()


def is_at_once() -> bool:
    """Whether calls are computed one by one, for somebody who looks on."""
    return os.environ.get("NKILAB_SYNC") == "1" or sys.gettrace() is not None


def _forget() -> None:
    """A forked process has no threads but its own."""
    global _threads
    _threads = None
    before_reading(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
