"""Fresh memory on which a recording is computed again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import numpy as np

from ..errors import NkilabError, UnsupportedError
from ..execute import execute, one_blas_thread, open_threads
from ..isa.declare import Instruction
from ..place.direct_allocation import WIDTH, bytes_of_memory, in_memory
from ..tiles.convert import widen
from ..tiles.dtypes import UINT8, DType
from ..tiles.tile import Index, Layout, Storage, View, layout
from ..trace.program import Program, StorageRecord
from ..trace.run_notes import Address
from ..trace.session import MemoryKey, Session, tracing
from .evidence import Evidence, Track
from .recording import Action, Memory, Operand, Recording


def typed(record: StorageRecord, shown: Layout, offset: int, address: Address) -> tuple[Layout, int] | None:
    """A view of a tile as one of its memory; None where elements lie across its boundaries."""
    known, first = in_memory(record, shown, offset, address)
    size = shown.itemsize
    if first % size or any(s % size for s in known.strides[:-1]):
        return None
    strides = tuple(s // size for s in known.strides[:-1])
    start = first // WIDTH
    axis = shown.partition_axis
    return layout(shown.shape, strides, shown.dtype, shown.memory, axis, start), first // size


# What changes a type, of what a memory holds and of what a view shows.
Retype = Callable[[DType], DType]


class World:
    """Memories with elements of their own, as a run found them when it began.

    Args:
        evidence: of the run.
        recording: what it computed.
        retype: the type that each type becomes.
        has_addresses: whether tiles at overlapping addresses share bytes.
        has_threads: whether rows of one program are computed on threads; elements are looked at behind the
            block of `open` then.
    """

    def __init__(
        self, evidence: Evidence, recording: Recording, retype: Retype = lambda dtype: dtype, *,
        has_addresses: bool = True,
        has_threads: bool = False,
    ) -> None:  # fmt: skip
        self._has_addresses = has_addresses
        self.tracks = evidence.tracks
        self.recording = recording
        self._retype = retype
        self._memories: dict[object, Storage] = {}
        self._views: dict[Operand, View] = {}
        self._shared = _shared(evidence)
        machine = self.tracks[0].program.machine
        self.sessions = {
            track.rank: Session(machine, Program(machine), execute, rank=track.rank) for track in self.tracks
        }
        self.sessions[-1] = self.sessions[self.tracks[0].rank]
        if has_threads and len(self.tracks) == 1:
            self.sessions[self.tracks[0].rank].threads = open_threads()

    def home(self, memory: Memory) -> object:
        """What stands for a memory: one of all cores, a space of addresses, or itself."""
        shared = self._shared.get(memory)
        if shared is not None:
            return shared
        track = self._track(memory)
        if track is not None and self._is_addressed(track, memory[1]):
            address = track.program.addresses[memory[1]]
            return ("space", memory[0], address.space, track.program.storages[memory[1]].memory)
        return memory

    def _is_addressed(self, track: Track, number: int) -> bool:
        return self._has_addresses and number in track.program.addresses

    def _track(self, memory: Memory) -> Track | None:
        return self.tracks[memory[0]] if memory[0] >= 0 else None

    def storage(self, memory: Memory) -> Storage:
        """The memory, made when it is first asked for."""
        home = self.home(memory)
        storage = self._memories.get(home)
        if storage is None:
            storage = self._memories[home] = self._new_storage(memory, home)
        return storage

    def _new_storage(self, memory: Memory, home: object) -> Storage:
        shape, dtype, where = self.recording.shapes[memory]
        if isinstance(home, tuple) and home[0] == "space":
            extent = bytes_of_memory(self.tracks[0].program.machine)
            space = Storage(-1, "", extent, UINT8, where, "tile", 0)
            # what nothing wrote is NaN in every float; shadow bits of 32 MiB would cost more than the rows
            space.allocate(np.full(extent, 0xFF, np.uint8))
            return space
        fresh = Storage(-1, "", shape, self._retype(dtype), where, "tile", 0)
        data = next(
            (self.recording.inputs[m] for m in self._alike(memory) if m in self.recording.inputs), None
        )
        is_constant = self.recording.changed.isdisjoint(self._alike(memory))
        if data is not None and fresh.dtype is dtype and is_constant:
            # nothing changes it: tiles may stand for its elements
            fresh.is_mutable = False
            fresh.allocate(np.ascontiguousarray(data).reshape(shape))
        elif data is not None:
            elements = data if fresh.dtype is dtype else widen(np.ascontiguousarray(data), dtype)
            fresh.allocate(np.ascontiguousarray(elements.reshape(shape)).copy())
        return fresh

    def _alike(self, memory: Memory) -> Iterable[Memory]:
        """The memories of all cores that are one with a memory."""
        home = self._shared.get(memory)
        return [memory] if home is None else [m for m, other in self._shared.items() if other == home]

    def view(self, operand: Operand) -> View:
        """A view of this world's memory.

        Raises:
            UnsupportedError: if it lies at an address across the boundaries of its elements.
        """
        known = self._views.get(operand)
        if known is not None:
            return known
        storage = self.storage(operand.memory)
        layout, offset = self._placed(operand)
        indices = tuple(Index(self.view(of), step, most, many) for of, step, most, many in operand.indices)
        copy_of = View(storage, offset, layout, indices)
        self._views[operand] = copy_of
        return copy_of

    def _placed(self, operand: Operand) -> tuple[Layout, int]:
        known, offset = operand.layout, operand.offset
        track = self._track(operand.memory)
        number = operand.memory[1]
        if track is not None and self._is_addressed(track, number):
            places = self.recording.places
            if operand not in places:
                record, address = track.program.storages[number], track.program.addresses[number]
                places[operand] = typed(record, known, offset, address)
            place = places[operand]
            if place is None:
                raise UnsupportedError("a tile lies at an address across the boundaries of its elements")
            return place
        retyped = self._retype(known.dtype)
        if retyped is known.dtype:
            return known, offset
        return (
            layout(
                known.shape, known.strides, retyped, known.memory, known.partition_axis,
                known.start_partition, known.indices,
            ), offset,
        )  # fmt: skip

    def compute(
        self, action: Action, form: Instruction | None = None, values: tuple[object, ...] | None = None
    ) -> None:
        """Compute one action here, in a block of `open`."""
        operands = [self.view(o) if isinstance(o, Operand) else o for o in action.operands]
        session = self.sessions[action.rank]
        new_values = action.values if values is None else values
        with suppress(NkilabError):
            # an offset that an order without its load makes wild is an access that the run does not see
            execute(session, form or action.form, operands, new_values, action.mask)

    @contextmanager
    def open(self) -> Iterator[World]:
        """Compute in a block: quietly, and with one thread per product, as a launch does."""
        session = next(iter(self.sessions.values()))
        with one_blas_thread(), tracing(session), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield self

    def elements(self, memory: Memory) -> np.ndarray:
        """What a memory holds; zeros where nothing wrote."""
        storage = self.storage(memory)
        storage.own()
        assert storage.data is not None
        if not storage.written.is_full:
            storage.data.reshape(-1)[~storage.written.bits] = np.zeros((), storage.dtype.storage)
        return storage.data


def _shared(evidence: Evidence) -> dict[Memory, tuple[str, MemoryKey]]:
    """Per memory that all cores see, what stands for it."""
    return {
        (rank, number): ("shared", key)
        for key, numbers in evidence.memories.items()
        for rank, number in enumerate(numbers)
        if number is not None
    }
