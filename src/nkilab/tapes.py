"""Tapes: launches that repeat are computed again without the Python of the kernel.

A kernel that prints nothing, keeps nothing and looks at no element makes the same rows whenever its arguments
have the same shapes and types and its text reads the same values. The first such launch runs as ever, the
second is recorded, and from the third on the rows are computed on new data.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from .arrays import dtype_of, framework_of, shape_of
from .dialects.kernel import Kernel
from .dialects.uniform import can_start_again, readings
from .execute import execute, is_at_once
from .isa.declare import Instruction
from .machine import Machine
from .rank_arguments import Call
from .tiles.tile import Layout, Storage, View, noting_looks
from .trace.session import Session

# in `Session.keyed`: the tape that records the launch
TAPE = "tape"
# tapes of a function, and rows of one, that are kept
MOST_TAPES, MOST_ROWS = 8, 200_000
# what the vendor's variables begin with
_VARIABLES = ("NKI", "NEURON")


class Row(NamedTuple):
    """A call to compute.

    Args:
        where: file and line of the user's, for warnings.
        form, operands, values, mask: as `execute` gets them.
        last: storages that no later row names, with the views of them.
    """

    where: tuple[str, int]
    form: Instruction
    operands: Sequence[Any]
    values: tuple[Any, ...]
    mask: Any
    last: list[tuple[Storage, list[View]]]


class Tape:
    """The rows of a launch, on storages of its own.

    Args:
        machine: that it ran on, of which there is no other while it is kept.

    Attributes:
        launches: how many launches asked for it so far.
        results: what the kernel returned.
        launched: what the recorded launch left; None if there is none, or other data may make other rows.
        lock: held while it is played.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.launches = 0
        self.results: Any = None
        self.launched: Any = None
        self.lock = Lock()
        self._rows: list[Row] = []
        self._storages: dict[int, Storage] = {}
        self._views: dict[tuple[int, int, Layout], View] = {}
        self._kept: set[int] = set()
        self._session: Session | None = None

    @contextmanager
    def records(self, session: Session) -> Iterator[None]:
        """Record the rows of a session in a block, which the kernel's function runs in."""
        with noting_looks() as looks:
            session.execute = self._step
            yield
        session.execute = execute
        if not looks:
            self._session = session

    def _step(
        self, session: Session, form: Instruction, operands: Sequence[Any], values: tuple[Any, ...], mask: Any
    ) -> None:
        own = [self._view(o) if isinstance(o, View) else o for o in operands]
        self._rows.append(Row(session.where, form, own, values, mask, []))
        execute(session, form, operands, values, mask)

    def _view(self, view: View) -> View:
        """The tape's own view of the elements of another."""
        number = view.storage.number
        key = (number, view.offset, view.layout)
        own = self._views.get(key)
        if own is None:
            storage = self._storages.get(number) or self._storage(view.storage)
            own = self._views[key] = type(view)(storage, view.offset, view.layout)
        return own

    def _storage(self, storage: Storage) -> Storage:
        own = self._storages[storage.number] = Storage(
            storage.number,
            storage.name,
            storage.shape,
            storage.dtype,
            storage.memory,
            storage.scope,
            storage.line,
        )
        return own

    def result(self, view: View) -> View:
        """The tape's own view of a result, whose elements outlive the rows."""
        self._kept.add(view.storage.number)
        return self._view(view)

    def finish(self, launched: Any) -> None:
        """Keep what was recorded if the same rows follow from other data, and told the user nothing."""
        session, self._session = self._session, None
        if session is None or not self._is_fixed(session):
            self._rows.clear()
            return
        self._note_last()
        self.launched = launched

    def _is_fixed(self, session: Session) -> bool:
        storages = session.program.storages
        return (
            len(self._rows) == len(session.program) <= MOST_ROWS
            and not session.together.warned
            and not session.changed_inputs
            and not any(row.form.keeps or row.form.is_indirect for row in self._rows)
            and not any(isinstance(v, View) for row in self._rows for v in row.values)
            and all(0 <= number < len(storages) for number in self._storages)
            and not any(storage.is_mutable for key, storage in session.shared.items() if key[0] == "input")
        )

    def _note_last(self) -> None:
        """Note at each row which storages nobody names after it."""
        kept = set(self._kept)
        views: dict[int, list[View]] = {}
        for view in self._views.values():
            views.setdefault(view.storage.number, []).append(view)
        for row in reversed(self._rows):
            named = {o.storage.number: o.storage for o in row.operands if isinstance(o, View)}
            row.last.extend((s, views[n]) for n, s in named.items() if n not in kept)
            kept |= named.keys()

    def play(self, session: Session) -> None:
        """Compute the rows on the inputs of a session."""
        for (scope, *_), storage in session.shared.items():
            own = self._storages.get(storage.number)
            if scope == "input" and own is not None:
                own.allocate(storage.data)
        for where, form, operands, values, mask, last in self._rows:
            session.where = where
            execute(session, form, operands, values, mask)
            for storage, views in last:
                _forget(storage, views)

    def rewind(self) -> None:
        """Let go of all elements."""
        for view in self._views.values():
            _forget(view.storage, [view])


def _forget(storage: Storage, views: Sequence[View]) -> None:
    storage.data = storage.bytes = storage.lent = None
    storage.written.clear()
    for view in views:
        view.forget()


_tapes: WeakKeyDictionary[Any, OrderedDict[Any, Tape]] = WeakKeyDictionary()


def tape_of(kernel: Kernel, call: Call, machine: Machine) -> Tape | None:
    """The tape of launches like this one, which a first one only counts; None where each may differ."""
    function, (args, kwargs) = kernel.function, call
    if is_at_once() or sys.gettrace() is not None or sys.getprofile() is not None:
        return None
    known = readings(function)
    if known is None or kernel.schedule:
        return None
    variables = [(name, value) for name, value in os.environ.items() if name.startswith(_VARIABLES)]
    key = (
        known, _outlines(args), _outlines(kwargs.values()), *kwargs, id(machine),
        kernel.spelling, kernel.version, kernel.grid, repr(kernel.options), *sorted(variables),
    )  # fmt: skip
    tapes = _tapes.setdefault(function, OrderedDict())
    tape = tapes.get(key)
    if tape is None:
        if not can_start_again(function, [*args, *kwargs.values()]):
            return None
        tape = tapes[key] = Tape(machine)
        if len(tapes) > MOST_TAPES:
            tapes.popitem(last=False)
    tapes.move_to_end(key)
    tape.launches += 1
    return tape


def _outlines(values: Any) -> tuple[Any, ...]:
    """Arguments as far as rows depend on them: of arrays the framework, shape and type."""
    return tuple(
        (framework_of(v), tuple(shape_of(v, "")), dtype_of(v, "")) if framework_of(v) else (type(v), repr(v))
        for v in values
    )
