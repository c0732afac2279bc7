"""Tapes: launches that repeat are computed again without the Python of the kernel.

A kernel that prints nothing, keeps nothing and looks at no element makes the same rows whenever its arguments
have the same shapes and types and its text reads the same values. The first such launch is watched; from the
second on the rows of its program are computed on new data.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from threading import Lock
from typing import NamedTuple, cast

import numpy as np

from .arrays import dtype_of, framework_of, shape_of
from .border import BoundCall
from .dialects.gate import ServedModule
from .dialects.kernel import Kernel
from .dialects.lasting import can_start_again
from .dialects.uniform import itself, readings
from .errors import NkilabError
from .execute import (
    Call,
    Factor,
    Log,
    Threads,
    compute_row,
    execute,
    is_at_once,
    lend,
    one_blas_thread,
    open_threads,
    shared_memory,
)
from .isa.declare import Instruction
from .machine import Machine
from .tiles.tile import HBM, SEQUENCER, Index, Layout, Storage, View, noting_looks
from .trace.builder import settle
from .trace.program import Program
from .trace.session import RunNeeded, Session, ask, tracing

# in `Session.keyed`: the tape that watches the launch
TAPE = "tape"
# tapes of this process that are kept, and rows of all of them
MOST_TAPES, MOST_ROWS = 64, 200_000
# bytes that a tape keeps from launch to launch, so that its rows are calls on the same arrays, and all tapes
MOST_BYTES, MOST_OF_ALL = 1 << 27, 1 << 28
# elements that a call writes from which threads compute the calls of a tape, on the average
WORTH_THREADS = 1 << 16
# what the vendor's variables begin with
_VARIABLES = ("NKI", "NEURON")


class Row(NamedTuple):
    """A call to compute."""

    where: tuple[str, int]  # file and line of the user's, for warnings
    # form, operands, values, mask: as `execute` gets them, once addresses that data say are settled
    form: Instruction
    operands: Sequence[object]
    values: tuple[object, ...]
    mask: np.ndarray | None

    def view(self, slot: int) -> View:
        """An operand that is a view."""
        return cast(View, self.operands[slot])


# what the program leaves unsaid of most rows
_NOTHING: tuple[None, tuple[()]] = (None, ())
# storage, offset and layout of a view
Place = tuple[int, int, Layout]
# of an operand at an address that data say, per index: its source, and what else an `Index` says
Indices = tuple[tuple[Place, int, int, bool], ...]


class Tape:
    """The rows of launches that are alike, on storages of its own.

    Attributes:
        launched: what the first launch left; None until it ended, and where other data may make other rows.
        results: what the kernel returned.
        size: rows.
        kept_bytes: of the arrays that it keeps from launch to launch.
        was_tried: whether a launch used it, or tried to.
        lock: held by the launch that uses it.
    """

    def __init__(self) -> None:
        self.launched: object = None
        self.results: object = None
        self.size = self.kept_bytes = 0
        self.was_tried = False
        self.lock = Lock()
        self._program: Program
        # rows that are alike are one object
        self._rows: list[Row] = []
        # by number of a row, views of the storages that no later one names
        self._last: dict[int, list[View]] = {}
        # what the program does not say of a row: its mask, of equal ones one, and per slot its indices
        self._unsaid: dict[int, tuple[np.ndarray | None, tuple[Indices, ...]]] = {}
        self._masks: dict[object, np.ndarray] = {}
        self._storages: dict[int, Storage] = {}
        self._views: dict[tuple[object, ...], View] = {}
        # why other data may make other rows, found while it ran; and whether calls can stand for rows
        self._why_not, self._are_calls = "", True
        # storages whose elements outlive the rows
        self._kept: set[int] = set()
        self._returned: list[View] = []
        # the calls of a launch, on arrays that stay; those for threads, if they are worth it; what they join
        self._calls: list[Call] = []
        self._buffers: dict[int, np.ndarray] = {}
        # per array of a launch what its elements are copied to; None where no row names it
        self._inputs: list[np.ndarray | None] = []
        # by number of a storage the bytes that it lies in, in which others lie before and after
        self._places: dict[int, np.ndarray] = {}
        self._is_played = False
        self._session: Session
        self._log: Log = []
        self._factors: list[Factor] = []

    @property
    def has_calls(self) -> bool:
        """Whether its rows are calls that were written down."""
        return bool(self._calls)

    @property
    def says_more(self) -> bool:
        """Whether some rows have more than the program says of them: masks, or addresses that data say."""
        return bool(self._unsaid)

    @contextmanager
    def watches(self, session: Session) -> Iterator[None]:
        """Watch the function of a kernel, which runs in a block."""
        self._unsaid, self._masks = {}, {}
        session.note_row = self._note
        with noting_looks() as looks:
            yield
        if looks:
            self._why_not = f"it looks at the elements of {looks[0].describe()}"

    def _note(self, row: int, mask: np.ndarray | None, operands: Sequence[object]) -> None:
        indices = (
            tuple((_place(source), *said) for source, *said in getattr(o, "indices", ())) for o in operands
        )
        if mask is not None:
            mask = self._masks.setdefault((mask.shape, mask.tobytes()), mask)
        self._unsaid.setdefault(row, (mask, tuple(indices)))

    def finish(self, session: Session, launched: object, results: object) -> None:
        """Keep what a launch left, if other data make the same rows and nothing was told to the user.

        Args:
            session: that it watched.
            launched: without arrays.
            results: what the kernel returned.
        """
        is_list = type(results) in (tuple, list)
        tensors = cast(Sequence[object], results) if is_list else [results]
        views = [tensor for tensor in tensors if isinstance(tensor, View)]
        program = session.program
        why = self._why_not or _why_not_fixed(session)
        if not views or len(views) < len(tensors):
            why = "it returns something else than tensors"
        elif sum(mask.nbytes for mask in self._masks.values()) > MOST_BYTES:
            why = f"its masks take more than {MOST_BYTES >> 20} MiB"
        if why:
            self._unsaid, self._masks = {}, {}
            explain(program.kernel_name, why)
            return
        self.launched, self._program, self.size = launched, program, len(program)
        self._returned = own = [self._view(*_place(tensor)) for tensor in views]
        self.results = (tuple(own) if isinstance(results, tuple) else own) if is_list else own[0]
        self._kept = {view.storage.number for view in own}

    def _read(self) -> None:
        """Make rows of those of the first launch."""
        program = self._program
        stored, start = program.storage_column, program.operand_start
        slots, offsets = stored.tolist(), program.offset_column.tolist()
        forms = [(form, len(form.view_slots)) for form in program.forms]
        columns = (program.form_column, program.line_column, program.value_column, start[:-1])
        alike: dict[tuple[object, ...], Row] = {}
        for number, (kind, line, known, first) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            form, count = forms[kind]
            mask, indices = self._unsaid.get(number, _NOTHING)
            numbers, places = slots[first : first + count], offsets[first : first + count]
            key = (kind, line, known, id(mask), indices, *numbers, *places)
            row = alike.get(key)
            if row is None:
                call = self._call(form, known, indices, numbers, places)
                row = alike[key] = Row(program.lines[line], form, *call, mask)
            self._rows.append(row)
        self._are_calls = not any(indices for _, indices in self._unsaid.values())
        views: dict[int, list[View]] = {}
        for view in self._views.values():
            views.setdefault(view.storage.number, []).append(view)
        numbers, behind = np.unique(stored[::-1], return_index=True)
        last = np.searchsorted(start, len(stored) - 1 - behind, side="right") - 1
        for number, row in zip(numbers.tolist(), last.tolist(), strict=True):
            if number not in self._kept:
                self._last.setdefault(row, []).extend(views[number])

    def _call(
        self, form: Instruction, known: int, indices: tuple[Indices, ...], numbers: list[int],
        places: list[int],
    ) -> tuple[list[object], tuple[object, ...]]:  # fmt: skip
        """Operands and values of a row of views of storages by number, at places."""
        values, layouts = self._program.values[known], form.layouts
        operands: list[object] = [None] * len(layouts)
        for slot, number, place in zip(form.view_slots, numbers, places, strict=True):
            added = indices[slot] if indices else ()
            operands[slot] = self._view(number, place, cast(Layout, layouts[slot]), added)
        own = len(values) - len(form.number_slots)
        for slot, value in zip(form.number_slots, values[own:], strict=True):
            operands[slot] = value
        return operands, values[:own]

    def _view(self, number: int, offset: int, layout: Layout, indices: Indices = ()) -> View:
        key = (number, offset, layout, indices)
        view = self._views.get(key)
        if view is None:
            storage = self._storages.get(number)
            if storage is None:
                storage = self._storages[number] = Storage(number, *self._program.storages[number])
            added = tuple(Index(self._view(*of), step, most, many) for of, step, most, many in indices)
            view = self._views[key] = View(storage, offset, layout, added)
        return view

    def play(self, session: Session) -> None:
        """Compute the rows on the inputs of a session.

        Raises:
            RunNeeded, NkilabError: where the user would be told of something.
        """
        session.is_replay = self._is_played = True
        # what is said of a result names the line that made it
        session.program.lines = self._program.lines
        if not self._rows:
            self._read()
        inputs = [storage for key, storage in session.shared.items() if key[0] == "input"]
        known = self._storages
        own = [(known[s.number], s.data) for s in inputs if s.number in known and s.data is not None]
        # arrays that stay are worth it from the second of its launches on
        may_keep = self.was_tried and self._are_calls and all(map(self._is_whole, self._returned))
        needed = self._needed() if may_keep else 0
        is_kept = may_keep and needed <= MOST_BYTES
        for storage, data in own:
            storage.allocate(data.copy() if is_kept else data)
        if is_kept:
            self._record(session, [storage.number for storage in inputs])
        else:
            self._compute(session)

    def again(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Make the calls that were written down, on other inputs; the elements of the results.

        Raises:
            RunNeeded: where the user would be told of something.
        """
        session, threads = self._session, open_threads() if self._log else None
        session.reset_registers()
        for buffer, elements in zip(self._inputs, inputs, strict=True):
            if buffer is not None:
                np.copyto(buffer, elements)
        with one_blas_thread(), tracing(session):
            if threads is not None:
                threads.play(self._log)
            for compute, arguments, _, _ in () if threads is not None else self._calls:
                compute(*arguments)
            return [self._buffers[view.storage.number].copy() for view in self._returned]

    def _compute(self, session: Session) -> None:
        """Compute row after row, and let go of what no later one names."""
        for number, row in enumerate(self._rows):
            session.where, form, operands, values, mask = row
            if form.keeps or form.is_indirect:
                self._keep_only(session, row)
                operands = settle(session, form, operands)
            execute(session, form, operands, values, mask)
            for view in self._last.get(number, ()):
                view.forget()

    def _record(self, session: Session, inputs: Sequence[int]) -> None:
        """Compute rows on arrays that stay, and write down what is called, if that is so in each launch.

        Loads lend as they do in a first launch: what waits with others, and adds up with them, is the same.
        """
        log: Log = []
        for number, memory in self._places.items():
            self._storages[number].lie_in(memory)
        session.threads = threads = Threads(0, log)
        is_fit = True
        for row in self._rows:
            session.where, form = row.where, row.form
            reads = form.read_slots
            if form.reads_dst or form.reads_result(row.values):
                reads += form.written_slots
            # what nothing wrote is told of, or counts as unwritten in turn: that is looked at each time
            if any(view.storage.written.of(view) != "all" for view in map(row.view, reads)):
                is_fit = False
                threads.drain()
            self._keep_only(session, row)
            if form.is_plain_copy and row.mask is None and lend(row.view(0), row.view(1)):
                continue
            log += self._owned(row)
            compute_row(session, form, row.operands, row.values, row.mask)
        threads.drain()
        if is_fit and all(view.storage.written.of(view) == "all" for view in self._returned):
            self._keep(log, inputs)

    def _keep(self, log: Log, inputs: Sequence[int]) -> None:
        """Have the next launch make these calls, or first write them down on memory that they share."""
        calls = [call for call in log if call is not None]
        sizes = [sum(prod(written.shape) for written in call.writes) for call in calls]
        is_large = sum(sizes) >= WORTH_THREADS * len(sizes)
        own = [s for n, s in self._storages.items() if s.scope != "input" and n not in self._kept]
        # calls that threads share out have no order in which one is done with memory before another begins
        places = {} if is_large or self._places else shared_memory(calls, own)
        if places:
            # the next launch computes there
            self._places = places
            return
        self._calls = calls
        self._log = log if is_large else []
        self._factors = [a for call in calls for a in call.arguments if isinstance(a, Factor)]
        self._buffers = {n: s.data for n, s in self._storages.items() if s.data is not None}
        self._inputs = [self._buffers.get(number) for number in inputs]
        machine = self._program.machine
        self._session = Session(machine, Program(machine), execute)
        self._session.is_replay = True
        shared = {id(memory): memory.nbytes for memory in self._places.values()}
        apart = sum(b.nbytes for number, b in self._buffers.items() if number not in self._places)
        self.kept_bytes = apart + sum(shared.values())
        for tape in list(_tapes.values()):
            if sum(t.kept_bytes for t in _tapes.values()) > MOST_OF_ALL and tape is not self:
                tape.let_go()
        for view in self._returned:
            view.storage.data = self._buffers[view.storage.number].copy()

    def _owned(self, row: Row) -> Iterator[Call]:
        """Give tiles of a row elements of their own where those that were lent do not do; the copies."""
        for slot in row.form.view_slots:
            view = row.view(slot)
            lent = view.storage.lent
            if lent is not None and (slot in row.form.written_slots or not self._is_whole(view)):
                view.storage.own()
                yield Call(np.copyto, (view.storage.data, lent), (view.storage.written,), ())

    def _keep_only(self, session: Session, row: Row) -> None:
        """Give the tape up before a row of which data say what it leaves written, if a launch is replayed."""
        form = row.form
        if not session.is_replay or not (form.keeps or getattr(form, "oob_mode", "error") == "skip"):
            return
        if not all(row.view(slot).storage.written.is_full for slot in form.written_slots):
            self.launched, self._why_not = None, "data say what of its tiles it leaves written"
            raise RunNeeded

    def _needed(self) -> int:
        """Bytes of arrays that stay: none for tiles that are loaded from inputs alone, and named whole."""
        copies = [row for row in self._rows if row.form.is_plain_copy]
        loads = Counter(r.view(0).storage.number for r in copies if r.view(1).storage.scope == "input")
        writers = Counter(
            row.view(slot).storage.number for row in self._rows for slot in row.form.written_slots
        )
        parts = {view.storage.number for view in self._views.values() if not self._is_whole(view)}
        own = [s for n, s in self._storages.items() if n in parts or n not in loads or writers[n] > loads[n]]
        return sum(max(1, loads[s.number]) * prod(s.shape) * s.dtype.itemsize for s in own)

    def _is_whole(self, view: View) -> bool:
        """Whether a view is that of all that this launch makes there, as its type has it."""
        storage, known = view.storage, view.layout
        is_all = known.shape == storage.shape and known.is_compact and known.dtype is storage.dtype
        return is_all and (storage.scope != "input" or storage.number not in self._kept)

    def rewind(self) -> None:
        """Let go of all elements but those that calls which were written down write again."""
        for factor in self._factors:
            factor.forget()
        for view in self._views.values() if self._is_played else ():
            view.forget()
        self._is_played = False

    def let_go(self) -> None:
        """Keep no array from launch to launch, unless one is under way."""
        if self.lock.acquire(blocking=False):
            self._calls, self._log, self._factors, self._buffers, self.kept_bytes = [], [], [], {}, 0
            self._inputs, self._places = [], {}
            self.lock.release()


def computed(program: Program, fill: Callable[[Storage], np.ndarray]) -> dict[int, np.ndarray]:
    """What the tensors of a program in HBM hold when its rows were computed, by number of their storage.

    Args:
        program: without run-time addresses.
        fill: gives the elements of an input.
    """
    tape, session = Tape(), Session(program.machine, Program(program.machine), execute)
    tape._program = program
    tape._kept = {number for number, record in enumerate(program.storages) if record.memory == HBM}
    tape._read()
    for storage in tape._storages.values():
        if storage.scope == "input":
            storage.allocate(fill(storage))
    with one_blas_thread(), tracing(session), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tape._compute(session)
    own = {number: tape._storages[number] for number in tape._kept & tape._storages.keys()}
    for storage in own.values():
        storage.own()
    return {number: storage.data for number, storage in own.items() if storage.data is not None}


def _place(view: View) -> Place:
    return view.storage.number, view.offset, view.layout


def _why_not_fixed(session: Session) -> str:
    """Why other data may make other rows than a session has, or be told of to the user; "" if they do not."""
    program = session.program
    # an input that the kernel wrote is mutable by now; what registers and other inputs hold, the host gave
    inputs = [storage for key, storage in session.shared.items() if key[0] == "input"]
    reasons = {
        "it raised a warning": session.together.warned,
        "it gives addresses to its tiles": program.addresses,
        f"it has more than {MOST_ROWS:,} instructions": len(program) > MOST_ROWS,
        "it reads constants of the host": len(inputs) < sum(r.scope == "input" for r in program.storages),
        "it writes to an input": any(storage.is_mutable for storage in inputs),
        "it has registers": any(record.memory == SEQUENCER for record in program.storages),
    }
    return next((why for why, is_so in reasons.items() if is_so), "")


def explain(kernel: str, why: str) -> None:
    """Say why launches of a kernel are not computed from a tape, once, if the user asks for it."""
    if os.environ.get("NKILAB_EXPLAIN") == "1":
        ask().notice(f"{kernel} runs as Python at each launch, not from its tape: {why}")


_tapes: OrderedDict[object, Tape] = OrderedDict()


def tape_of(kernel: Kernel, call: BoundCall, machine: Machine) -> Tape | None:
    """The tape of launches like this one, a blank one for the first; None where each may differ."""
    function = kernel.function
    is_watched = is_at_once() or sys.gettrace() is not None or sys.getprofile() is not None
    why = "a check or a debugger watches it" if is_watched else "it has a schedule" if kernel.schedule else ""
    known = None if why else readings(function)
    arrays = None if why else _outlines(call.arrays)
    if known is None or arrays is None:
        explain(kernel.name, why or "what it reads, or an argument, cannot be compared")
        return None
    variables = [(name, os.environ[name]) for name in os.environ if name.startswith(_VARIABLES)]
    key = (
        itself(function), known, arrays, repr(call.outlines), *map(type, call.values), itself(machine),
        kernel.spelling, kernel.version, kernel.grid, repr(kernel.options),
        ServedModule.changes, *sorted(variables),
    )  # fmt: skip
    tape = _tapes.get(key)
    if tape is None:
        read = cast(tuple[tuple[object, ...], ...], known.__self__)
        if not can_start_again(function, call.values, {one[0] for one in read}):
            why = "it prints, uses random numbers, or changes something outside of the kernel"
            explain(kernel.name, f"{why}, or a value that it reads holds functions")
            return None
        tape = _tapes[key] = Tape()
        while len(_tapes) > MOST_TAPES or sum(t.size for t in _tapes.values()) > MOST_ROWS:
            _tapes.popitem(last=False)
    _tapes.move_to_end(key)
    return tape


def forget_tapes() -> None:
    """Have every launch run its kernel again."""
    _tapes.clear()


def _outlines(arrays: Mapping[str, object]) -> tuple[object, ...] | None:
    """Arrays as far as rows depend on them: name, framework, shape and type; None if one is odd."""
    outlines: list[object] = []
    for name, array in arrays.items():
        kind = framework_of(array)
        if kind in ("array", "dlpack"):
            return None
        try:
            outlines += (name, kind, shape_of(array, name), dtype_of(array, name))
        except NkilabError:
            return None
    return tuple(outlines)
