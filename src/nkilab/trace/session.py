"""The state of the program being traced, and what a dialect may ask of the world."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ..errors import NkilabWarning, StartAgain, UseError, printable
from ..isa.accumulators import register_files
from ..isa.declare import Instruction
from ..isa.random_numbers import fresh_generators
from ..machine import Machine, Topology
from ..tiles.dtypes import DType
from ..tiles.tile import HBM, Storage
from .program import Program, StorageRecord
from .source import place_of, user_frame, user_site

Execute = Callable[["Session", Instruction, Sequence[Any], tuple[Any, ...], Any], None]


# What a memory that all programs of a launch see is called: "input" or "shared", its name, and which of that
# name it is.
MemoryKey = tuple[str, str, int]
# In `Session.keyed`: how an instance of a grid meets others that run on its core. The first call that needs
# it leaves the kernel, which then starts again with all instances taking turns.
TURNS = "turns"


class RunNeeded(StartAgain):
    """The user is told of something where the kernel does not run, which then has to run."""


class TurnsNeeded(StartAgain):
    """An instance meets others of its core, which run one after another."""


# A form and its number in the program.
Known = tuple[Instruction, int]


class Together:
    """What the programs of one launch have in common.

    Args:
        count: how many programs there are, each on a core of its own.
        rank: of the launch, as collectives count.
        ranks: how many ranks there are, each with programs of its own.
        topology: where they lie; None for chips and nodes as the machine has them.

    Attributes:
        storages: of the first program that met it, per memory that all of them see.
        warned: which warnings were given, by line and kind.
        own_rank: the rank, for what is the same function of it in every program.
        is_rank_asked: whether anything else asked for it.
    """

    def __init__(
        self, count: int = 1, rank: int = 0, ranks: int = 1, topology: Topology | None = None
    ) -> None:
        self.count = count
        self.own_rank, self.ranks = rank, ranks
        self.is_rank_asked = False
        self.topology = topology
        self.storages: dict[MemoryKey, Storage] = {}
        self.warned: set[tuple[str, int, str]] = set()

    @property
    def rank(self) -> int:
        """The rank of the launch; whoever asks may do something else in another one."""
        self.is_rank_asked = True
        return self.own_rank


class Session:
    """One program of a launch: the rows under construction and everything that a call may look at.

    Args:
        machine: the chip.
        program: grows by a row per call.
        execute: computes a row; None where only shapes are known.
        version: the NKI version asked for, or "" for whatever some version accepts.
        grid: number of program instances along each axis.
        together: what it has in common with the other programs of the launch; None if it is alone.
        rank: its core within the logical core.

    Attributes:
        has_data: whether tiles hold elements.
        shared: its storages in memory that all programs of the launch see.
        changed_inputs: inputs that were written, whose elements the caller's arrays get at the end.
    """

    def __init__(
        self, machine: Machine, program: Program, execute: Execute | None, version: str = "",
        grid: tuple[int, ...] = (), together: Together | None = None, rank: int = 0,
    ) -> None:  # fmt: skip
        self.machine = machine
        self.program = program
        self.execute = execute
        self.has_data = execute is not None
        self.version = version
        self.grid = grid
        self.program_id: tuple[int, ...] = (0,) * len(grid)
        self.position = 0
        self.where: tuple[str, int] = ("", 0)
        self.pending: Any = None
        self.forms: dict[Any, Known] = {}
        # attributes and form of a call, by what it gives: layouts, and words for attributes as spelled
        self.calls: dict[Any, Any] = {}
        self.together = Together() if together is None else together
        self.rank = rank
        self.shared: dict[MemoryKey, Storage] = {}
        self._created: dict[str, int] = {}
        # what is remembered of storages, by all that tells them apart
        self._records: dict[tuple[Any, ...], StorageRecord] = {}
        self.keyed: dict[Any, Any] = {}
        # threads that compute calls behind the caller (execute.threads.Threads); None to compute them at once
        self.threads: Any = None
        self.changed_inputs: list[Storage] = []
        # gets what a program does not say of a row: its mask, and its operands if some have indices
        self.note_row: Callable[..., None] = lambda *said: None
        # whether rows are computed without the kernel
        self.is_replay = False

    @cached_property
    def registers(self) -> dict[str, Any]:
        """The register files of a core, as they are at the start of a kernel."""
        lanes = self.machine.limit("partitions")
        return {**register_files(lanes), "random": fresh_generators(lanes)}

    def reset_registers(self) -> None:
        """Have the register files be as at the start."""
        vars(self).pop("registers", None)

    def begin(self, instance: tuple[int, ...]) -> None:
        """Turn to the next program instance that runs on this core."""
        self.program_id = instance
        self.program.marks.instances.append((len(self.program), instance))
        self._created.clear()

    def leave(self) -> tuple[Any, ...]:
        """Where this instance stands, while another one of its core runs."""
        self.flush()
        return self.program_id, dict(self._created), self.position, self.where

    def come_back(self, kept: tuple[Any, ...]) -> None:
        """Go on where an instance left."""
        self.program_id, created, self.position, self.where = kept
        self._created = created

    def new_storage(
        self, shape: tuple[int, ...], dtype: DType, memory: str, scope: str, name: str = "", depth: int = 1
    ) -> Storage:
        """A storage of this program, registered; it has no data yet.

        The nearest `depth` frames above this one are known to be ours.
        """
        kind = (user_site(depth), shape, dtype, memory, scope, name)
        record = self._records.get(kind)
        if record is None:
            line = self.program.site_number(kind[0])
            record = self._records[kind] = StorageRecord(name, shape, dtype, memory, scope, line)
        return Storage(self._append(record), *record)

    def register(self, storage: Storage) -> None:
        """Number a storage that was made ahead of its first use."""
        own = (storage.name, storage.shape, storage.dtype, storage.memory, storage.scope, storage.line)
        storage.number = self._append(self._records.setdefault(own, StorageRecord(*own)))

    def _append(self, record: StorageRecord) -> int:
        """The number of a storage that is made here; of those alike one record is kept."""
        program = self.program
        program.marks.births.append(self.position)
        program.storages.append(record)
        return len(program.storages) - 1

    def shared_output(self, shape: tuple[int, ...], dtype: DType, name: str) -> Storage:
        """The storage of an HBM tensor that all program instances see: the n-th of its name is the same."""
        nth = self._created.get(name, 0)
        self._created[name] = nth + 1
        return self.shared_storage(("shared", name, nth), shape, dtype)

    def shared_storage(self, key: MemoryKey, shape: tuple[int, ...], dtype: DType) -> Storage:
        """This program's storage in a memory that all programs of the launch see; made if nobody has it."""
        mine = self.shared.get(key)
        if mine is not None:
            return mine
        scope, name, _ = key
        first = self.together.storages.get(key)
        if first is None:
            mine = self.new_storage(shape, dtype, HBM, scope, name)
        else:
            mine = self.new_storage(first.shape, first.dtype, HBM, scope, name)
            if self.has_data and first.data is None:
                first.allocate()
            _put_on(mine, first)
        self.share(key, mine)
        return mine

    def catch_up(self) -> None:
        """See the inputs that other programs gave new elements while this one waited."""
        for storage in self.changed_inputs:
            mine = self.shared.get(("input", storage.name, 0))
            if mine is not None and mine is not storage:
                _put_on(mine, storage)

    def share(self, key: MemoryKey, storage: Storage) -> None:
        """Let the other programs of the launch find one of this program's storages."""
        self.shared[key] = storage
        self.together.storages.setdefault(key, storage)

    def flush(self) -> None:
        """Commit the result that waits for its destination, if one does."""
        pending = self.pending
        if pending is not None:
            self.pending = None
            pending.commit()

    def warn(self, message: str, key: str = "", category: type[NkilabWarning] = NkilabWarning) -> None:
        """Warn once per source line and kind of message, at the line of the row being recorded."""
        filename, lineno = self.where
        mark = (filename, lineno, key or message)
        if self.is_replay:
            raise RunNeeded
        if mark not in self.together.warned:
            self.together.warned.add(mark)
            with _printable_warnings():
                warnings.warn_explicit(printable(message), category, filename, lineno)


@contextmanager
def _printable_warnings() -> Iterator[None]:
    """Have Python print warnings, and the line of source below them, as a terminal may get them."""
    own = warnings.formatwarning

    def formatted(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return printable(own(message, category, filename, lineno, line))

    warnings.formatwarning = formatted
    try:
        yield
    finally:
        warnings.formatwarning = own


def _put_on(mine: Storage, other: Storage) -> None:
    """Put a storage on the elements and the shadow bits of another program's."""
    # numbers and last rows are a program's own, so that each has a Storage of its own
    mine.data, mine.bytes, mine.written = other.data, other.bytes, other.written
    mine.is_mutable, mine.host_array = other.is_mutable, other.host_array


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


# The session of the kernel being run, or None outside of one; the variable's own method: every call asks.
running: Callable[[], Session | None] = _current.get


class tracing:
    """Make `session` the current one in a block, in which NumPy does not warn: infinities are results."""

    # no generator: one that an interrupt leaves unfinished would end later, in some other launch
    def __init__(self, session: Session) -> None:
        self._session = session
        # once per kernel: entering it at every call would cost a microsecond each
        self._errors = np.errstate(all="ignore")

    def __enter__(self) -> Session:
        self._token = _current.set(self._session)
        self._errors.__enter__()
        return self._session

    def __exit__(self, *error: object) -> None:
        self._errors.__exit__(None, None, None)
        _current.reset(self._token)


class World(Protocol):
    """What a dialect may ask for that lies above it; `nkilab.api` provides it when names are served."""

    def run(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a kernel on arrays and return arrays of their kind."""

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

    def machine(self) -> Machine:
        """The chip chosen for kernels that name none."""

    def notice(self, text: str) -> None:
        """Tell the user something once per process."""


class _NoWorld:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"no world was set before a dialect asked for {name}")


world: World = _NoWorld()


def set_world(new_world: World) -> None:
    """Let dialects reach the interface above them."""
    global world
    world = new_world


def ask() -> World:
    """The world that was set."""
    return world
