"""The state of the program being traced, and what a dialect may ask of the world."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from ..errors import NkilabWarning, UseError
from ..isa.accumulators import register_files
from ..isa.declare import Instruction
from ..isa.random_numbers import fresh_generators
from ..machine import Machine
from ..tiles.dtypes import DType
from ..tiles.tile import Storage
from .program import Program, StorageRecord
from .source import place_of, user_frame

Execute = Callable[["Session", Instruction, Sequence[Any], tuple[Any, ...], Any], None]


class Session:
    """One launch: the program under construction and everything that a call may look at.

    Args:
        machine: the chip.
        program: grows by a row per call.
        execute: computes a row; None where only shapes are known.
        version: the NKI version asked for, or "" for whatever some version accepts.
        grid: number of program instances along each axis.
    """

    def __init__(
        self,
        machine: Machine,
        program: Program,
        execute: Execute | None,
        version: str = "",
        grid: tuple[int, ...] = (),
    ) -> None:
        self.machine = machine
        self.program = program
        self.execute = execute
        self.version = version
        self.grid = grid
        self.program_id: tuple[int, ...] = (0,) * len(grid)
        self.position = 0
        self.where: tuple[str, int] = ("", 0)
        self.pending: Any = None
        self.forms: dict[Any, tuple[Instruction, int]] = {}
        lanes = machine.limit("partitions")
        self.registers = {**register_files(lanes), "random": fresh_generators(lanes)}
        self.shared: list[Storage] = []
        self.shared_at = 0
        self.keyed: dict[Any, Any] = {}
        self._warned: set[tuple[str, int, str]] = set()

    @property
    def has_data(self) -> bool:
        """Whether tiles hold elements."""
        return self.execute is not None

    def new_storage(
        self, shape: tuple[int, ...], dtype: DType, memory: str, scope: str, name: str = ""
    ) -> Storage:
        """A storage of this program, registered; it has no data yet."""
        frame = user_frame(1)
        line = self.program.line_number(frame.f_code.co_filename, frame.f_lineno)
        storage = Storage(-1, name, shape, dtype, memory, scope, line)
        self.register(storage)
        return storage

    def register(self, storage: Storage) -> None:
        """Number a storage that was made ahead of its first use."""
        storage.number = len(self.program.storages)
        self.program.storages.append(
            StorageRecord(
                storage.name, storage.shape, storage.dtype, storage.memory, storage.scope, storage.line
            )
        )

    def flush(self) -> None:
        """Commit the result that waits for its destination, if one does."""
        pending = self.pending
        if pending is not None:
            self.pending = None
            pending.commit()

    def warn(self, message: str, key: str = "") -> None:
        """Warn once per source line and kind of message, at the line of the row being recorded."""
        filename, lineno = self.where
        mark = (filename, lineno, key or message)
        if mark not in self._warned:
            self._warned.add(mark)
            warnings.warn_explicit(message, NkilabWarning, filename, lineno)


_current: ContextVar[Session | None] = ContextVar("nkilab_session", default=None)


def current() -> Session:
    """The session of the kernel being run.

    Raises:
        UseError: outside of a kernel.
    """
    session = _current.get()
    if session is None:
        raise UseError(
            "no kernel is running; NKI calls stand inside a function that nki.jit decorates",
            hint="decorate the function with @nki.jit and call it with arrays",
            key="err_nki_api_outside_of_nki_kernel",
        ).located(place_of(user_frame()), "")
    return session


def running() -> Session | None:
    """The session of the kernel being run, or None outside of one."""
    return _current.get()


@contextmanager
def tracing(session: Session) -> Iterator[Session]:
    """Make `session` the current one. Infinities and NaN are results here: NumPy does not warn of them."""
    token = _current.set(session)
    try:
        # once per kernel: entering it at every call would cost a microsecond each
        with np.errstate(all="ignore"):
            yield session
    finally:
        _current.reset(token)


class World(Protocol):
    """What a dialect may ask for that lies above it; `nkilab.api` provides it when names are served."""

    def run(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a kernel on arrays and return arrays of their kind."""

    def simulate(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a kernel on arrays whatever mode it was decorated with."""

    def baremetal(
        self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        """Run a kernel on arrays and save the files that `options` name."""

    def benchmark(
        self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        """Time a kernel from shapes, print the table, save files, return the latency figures."""

    def profile(
        self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        """Time a kernel from shapes and write its program and trace to a folder."""

    def notice(self, text: str) -> None:
        """Tell the user something once per process."""


class _NoWorld:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"no world was set before a dialect asked for {name}")


world: World = _NoWorld()


def set_world(given: World) -> None:
    """Let dialects reach the interface above them."""
    global world
    world = given


def ask() -> World:
    """The world that was set."""
    return world
