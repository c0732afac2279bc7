"""Tapes: launches that repeat are computed again without the Python of the kernel.

A kernel that prints nothing, keeps nothing and looks at no element makes the same rows whenever its arguments
have the same shapes and types and its text reads the same values. The first such launch is watched; from the
second on the rows of its program are computed on new data.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from threading import Lock
from typing import NamedTuple

import numpy as np

from .arrays import dtype_of, framework_of, shape_of
from .dialects.kernel import Kernel
from .dialects.uniform import Same, can_start_again, readings
from .errors import NkilabError
from .execute import LARGE, compute_row, execute, is_at_once, written_arrays
from .isa.declare import Instruction
from .machine import Machine
from .rank_arguments import Call
from .tiles.tile import SEQUENCER, Layout, Storage, View, noting_looks
from .trace.program import Program
from .trace.session import Session

# in `Session.keyed`: the tape that watches the launch
TAPE = "tape"
# tapes of this process that are kept, and rows of all of them
MOST_TAPES, MOST_ROWS = 64, 200_000
# bytes of tiles that a tape keeps from launch to launch, so that their rows are calls on the same arrays
MOST_BYTES = 1 << 20
# what the vendor's variables begin with
_VARIABLES = ("NKI", "NEURON")


# a function, and what it is called with
Invocation = tuple[Callable[..., object], tuple[object, ...]]


class Row(NamedTuple):
    """A call to compute.

    Args:
        where: file and line of the user's, for warnings.
        form, operands, values: as `execute` gets them.
        last: views of the storages that no later row names.
    """

    where: tuple[str, int]
    form: Instruction
    operands: Sequence[object]
    values: tuple[object, ...]
    last: list[View]


class Tape:
    """The rows of launches that are alike, on storages of its own.

    Attributes:
        launched: what the first launch left; None until it ended, and where other data may make other rows.
        results: what the kernel returned.
        size: rows.
        lock: held by the launch that uses it.
    """

    def __init__(self) -> None:
        self.launched: object = None
        self.results: object = None
        self.size = 0
        self.lock = Lock()
        self._session: Session | None = None
        self._program: Program
        self._rows: list[Row] = []
        self._storages: dict[int, Storage] = {}
        self._views: dict[tuple[int, int, Layout], View] = {}
        # storages whose elements outlive the rows
        self._kept: set[int] = set()
        # storages whose bytes the next launch writes again, and by row what to call on them if that is known
        self._again: set[int] = set()
        self._calls: list[Invocation | None] = []

    @contextmanager
    def watches(self, session: Session) -> Iterator[None]:
        """Watch the function of a kernel, which runs in a block."""
        with noting_looks() as looks:
            yield
        self._session = None if looks else session

    def finish(self, launched: object, results: object) -> None:
        """Keep what a launch left, if other data make the same rows and nothing was told to the user.

        Args:
            launched: without arrays.
            results: what the kernel returned.
        """
        session, self._session = self._session, None
        tensors = [results] if isinstance(results, View) else results
        if not isinstance(tensors, tuple | list) or type(tensors) not in (tuple, list):
            return
        views = [tensor for tensor in tensors if isinstance(tensor, View)]
        if session is None or not views or len(views) < len(tensors) or not _is_fixed(session):
            return
        program = session.program
        own = [self._view(program, t.storage.number, t.offset, t.layout) for t in views]
        self.results = own[0] if isinstance(results, View) else type(tensors)(own)
        self._kept = {view.storage.number for view in own}
        self.launched, self._program, self.size = launched, program, len(program)

    def _read(self) -> None:
        """Make rows of those of the first launch."""
        program = self._program
        stored, start = program.storage_column, program.operand_start
        slots = list(zip(stored.tolist(), program.offset_column.tolist(), strict=True))
        columns = (program.form_column, program.line_column, program.value_column, start[:-1])
        alike: dict[object, tuple[list[object], tuple[object, ...]]] = {}
        for number, line, known, first in zip(*(column.tolist() for column in columns), strict=True):
            form = program.forms[number]
            key = (number, known, *slots[first : first + len(form.view_slots)])
            operands, values = alike.get(key) or alike.setdefault(key, self._call(form, known, key[2:]))
            self._rows.append(Row(program.lines[line], form, operands, values, []))
        views: dict[int, list[View]] = {}
        for view in self._views.values():
            views.setdefault(view.storage.number, []).append(view)
        numbers, behind = np.unique(stored[::-1], return_index=True)
        last = np.searchsorted(start, len(stored) - 1 - behind, side="right") - 1
        for number, row in zip(numbers.tolist(), last.tolist(), strict=True):
            self._rows[row].last.extend(() if number in self._kept else views[number])
        self._calls = [None] * len(self._rows)
        self._keep_bytes()

    def _keep_bytes(self) -> None:
        """Keep small tiles' bytes from launch to launch, as many as there is room for."""
        room = MOST_BYTES
        for number, storage in self._storages.items():
            elements = prod(storage.shape)
            size = elements * storage.dtype.storage.itemsize
            if storage.scope != "input" and number not in self._kept and elements < LARGE and size <= room:
                room -= size
                self._again.add(number)
        for row in self._rows:
            row.last[:] = [view for view in row.last if view.storage.number not in self._again]

    def _call(
        self, form: Instruction, known: int, slots: Iterable[tuple[int, int]]
    ) -> tuple[list[object], tuple[object, ...]]:
        """Operands and values of a row."""
        values, program = self._program.values[known], self._program
        own, places = len(values) - len(form.number_slots), iter(slots)
        numbers = iter(values[own:])
        operands: list[object] = [
            self._view(program, *next(places), layout)
            if isinstance(layout, Layout)
            else (None if layout is None else next(numbers))
            for layout in form.layouts
        ]
        return operands, values[:own]

    def _view(self, program: Program, number: int, offset: int, layout: Layout) -> View:
        key = (number, offset, layout)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = View(self._storage(program, number), offset, layout)
        return view

    def _storage(self, program: Program, number: int) -> Storage:
        storage = self._storages.get(number)
        if storage is None:
            storage = self._storages[number] = Storage(number, *program.storages[number])
        return storage

    def play(self, session: Session) -> None:
        """Compute the rows on the inputs of a session."""
        if not self._rows:
            self._read()
        for (scope, *_), storage in session.shared.items():
            own = self._storages.get(storage.number)
            if scope == "input" and own is not None:
                own.allocate(storage.data)
        behind, calls = session.threads, self._calls
        # calls of rows so far, by the operands that rows of one form and values share
        known: dict[int, Invocation | None] = {}
        for number, (row, call) in enumerate(zip(self._rows, calls, strict=True)):
            session.where = row.where
            if call is None:
                call = calls[number] = known.get(id(row.operands))
            if call is not None and (behind is None or behind.is_idle):
                call[0](*call[1])
                continue
            calls[number] = known[id(row.operands)] = self._compute(session, row)
            for view in row.last:
                view.forget()

    def _compute(self, session: Session, row: Row) -> Invocation | None:
        """Compute a row; returns what to call in the next launch, if that is known."""
        form, operands, values = row.form, row.operands, row.values
        storages = [o.storage.number for o in operands if isinstance(o, View)]
        arrays = None
        is_call = form.largest < LARGE and (form.is_direct or form.is_plain_copy)
        if is_call and self._again.issuperset(storages):
            # every element was written by now, and will be in each launch: no row looks at data
            arrays = written_arrays(form, operands)
        if form.is_plain_copy and storages[0] in self._again:
            # a tile that borrows the elements of an input would let go of its own
            compute_row(session, form, operands, values, None)
        else:
            execute(session, form, operands, values, None)
        return None if arrays is None else (form.compute, (*arrays, *values))

    def rewind(self) -> None:
        """Let go of all elements but those that the next launch writes again."""
        for view in self._views.values():
            if view.storage.number in self._again:
                view.storage.written.clear()
            else:
                view.forget()


def _is_fixed(session: Session) -> bool:
    """Whether other data make the rows of a session, which told the user nothing."""
    program = session.program
    if session.together.warned or session.has_masks or program.addresses or len(program) > MOST_ROWS:
        return False
    # an input that the kernel wrote is mutable by now; what registers and other inputs hold, the host gave
    inputs = [storage for key, storage in session.shared.items() if key[0] == "input"]
    return not (
        len(inputs) < sum(record.scope == "input" for record in program.storages)
        or any(form.keeps or form.is_indirect for form in program.forms)
        or any(storage.is_mutable for storage in inputs)
        or any(record.memory == SEQUENCER for record in program.storages)
    )


_tapes: OrderedDict[object, Tape] = OrderedDict()


def tape_of(kernel: Kernel, call: Call, machine: Machine) -> Tape | None:
    """The tape of launches like this one, a blank one for the first; None where each may differ."""
    function, (args, kwargs) = kernel.function, call
    if is_at_once() or sys.gettrace() is not None or sys.getprofile() is not None or kernel.schedule:
        return None
    known, outlines = readings(function), _outlines([*args, *kwargs.values()])
    if known is None or outlines is None:
        return None
    variables = [(name, os.environ[name]) for name in os.environ if name.startswith(_VARIABLES)]
    key = (
        Same(function), known, outlines, *kwargs, Same(machine), kernel.spelling, kernel.version, kernel.grid,
        repr(kernel.options), *sorted(variables),
    )  # fmt: skip
    tape = _tapes.get(key)
    if tape is None:
        if not can_start_again(function, [*args, *kwargs.values()]):
            return None
        tape = _tapes[key] = Tape()
        while len(_tapes) > MOST_TAPES or sum(t.size for t in _tapes.values()) > MOST_ROWS:
            _tapes.popitem(last=False)
    _tapes.move_to_end(key)
    return tape


def forget_tapes() -> None:
    """Have every launch run its kernel again."""
    _tapes.clear()


def _outlines(values: Iterable[object]) -> tuple[object, ...] | None:
    """Arguments as far as rows depend on them: of arrays framework, shape and type; None if one is odd."""
    outlines: list[object] = []
    for value in values:
        kind = framework_of(value)
        if kind in ("array", "dlpack"):
            return None
        try:
            outlines.append(
                (kind, shape_of(value, ""), dtype_of(value, "")) if kind else (type(value), repr(value))
            )
        except NkilabError:
            return None
    return tuple(outlines)
