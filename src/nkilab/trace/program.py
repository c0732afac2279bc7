"""The program that a kernel's run leaves behind: growable columns, no references to data."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from itertools import accumulate
from math import copysign
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from ..errors import UsageError
from ..isa.declare import Instruction, Operand
from ..machine import Machine
from ..tiles.dtypes import DType
from ..tiles.tile import HBM, Layout, View
from .run_notes import Addresses, Marks, Positions


class StorageRecord(NamedTuple):
    """What a program remembers of a storage; see `tiles.tile.Storage` for the fields."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    memory: str
    scope: str
    line: int

    @property
    def partitions(self) -> int:
        """Partitions it occupies on chip."""
        return self.shape[0] if self.shape else 1

    @property
    def bytes_per_partition(self) -> int:
        """Bytes in each of its partitions; all bytes in HBM."""
        size = self.dtype.itemsize
        for extent in self.shape if self.memory == HBM else self.shape[1:]:
            size *= extent
        return size


# numbers per row, and how many of them are packed at a time
ROW = 4
PACKED_AT_ONCE = ROW << 15

# How kernels are compiled: in order and as written; by the stand-alone compiler of `nki`; through the middle
# end of Beta 1.
AS_WRITTEN, STANDALONE, MIDDLE_END = "as written", "standalone", "middle end"


class Access(Struct, frozen=True):
    """One operand of one row: which storage, from which element, in which layout, read or written."""

    operand: str
    storage: int
    offset: int
    layout: Layout
    is_read: bool
    is_written: bool


def _array(numbers: list[int]) -> np.ndarray:
    """Whole numbers as an array; `np.array` takes twice as long."""
    return np.frombuffer(array("q", numbers), np.int64)


def _tail(packed: list[np.ndarray], count: int, height: int) -> np.ndarray:
    """The last columns of some arrays, [height, count], which are one array from then on."""
    if not count:
        return np.zeros((height, 0), np.int64)
    parts: list[np.ndarray] = []
    occupied = 0
    while occupied < count:
        parts.append(packed.pop())
        occupied += parts[-1].shape[1]
    packed.append(np.concatenate(parts[::-1], axis=1) if len(parts) > 1 else parts[0])
    return packed[-1][:, occupied - count :]


class Program:
    """Rows of calls over shared forms.

    Columns hold, per row: form, source line, loop position, values, and for each tile operand a storage
    and an offset in elements. Forms, lines, positions, values and storages are tables. New rows wait in
    lists, which cost less to grow, and are packed into arrays many at a time.
    """

    def __init__(self, machine: Machine, kernel_name: str = "kernel") -> None:
        self.machine = machine
        self.kernel_name = kernel_name
        self.forms: list[Instruction] = []
        self.lines: list[tuple[str, int]] = []
        self.positions = Positions()
        # loops that Python unrolls, and of which the compiler sees the iterations alone
        self.unrolled: list[int] = []
        self.values: list[tuple[Any, ...]] = [()]
        self.storages: list[StorageRecord] = []
        self.addresses = Addresses()
        self.notes: list[str] = []
        # what compiling it found: place.plan.Finding
        self.findings: list[Any] = []
        # of a launch over several cores: what messages call this program, the core that runs it, and per
        # rendezvous, in order, who takes part: programs, and which rendezvous of theirs it is
        self.title = ""
        self.core = 0
        self.met: list[tuple[tuple[int, int], ...]] = []
        # how the kernel is compiled: see place.compiler_passes
        self.compiler = ""
        # whether all descriptors of transfers are made before the kernel runs
        self.has_static_descriptors = False
        # what `place.slots` made of so many rows
        self.kept: tuple[int, Any] = (-1, None)
        # of the run that wrote the rows; those of a changed program stay with the original
        self.marks = Marks()
        # per row: form, line, position, values; per tile operand: storage, offset
        self._rows: list[int] = []
        self._slots: list[int] = []
        self._packed_rows: list[np.ndarray] = []
        self._packed_slots: list[np.ndarray] = []
        self._packed = self._packed_operands = 0
        self._start = np.zeros(1, np.int64)
        self._line_numbers: dict[tuple[str, int], int] = {}
        self._value_numbers: dict[tuple[Any, ...], int] = {((),): 0}
        # per form so far what `Instruction.tile_slots` gives
        self._tile_slots: list[list[tuple[str, Operand, Layout]]] = []
        # the same of (False,) and (True,), which most rows of matmuls have
        self._flag_numbers = [-1, -1]

    def __len__(self) -> int:
        return self._packed + len(self._rows) // ROW

    def append(
        self, form: int, where: tuple[str, int], position: int, values: tuple[Any, ...], views: Sequence[View]
    ) -> int:
        """Add a row: number of the form, file and line, loop position, values, tile operands in order.

        Returns:
            The number of the row.
        """
        return self.append_numbers(form, where, position, self.value_number(values) if values else 0, views)

    def append_numbers(
        self, form: int, where: tuple[str, int], position: int, values: int, views: Sequence[View]
    ) -> int:
        """As `append`, with the number of the values."""
        line = self._line_numbers.get(where)
        if line is None:
            line = self.site_number(where)
        rows, slots = self._rows, self._slots
        row = self._packed + len(rows) // ROW
        rows += (form, line, position, values)
        for view in views:
            slots += (view.storage.number, view.offset)
        if len(rows) >= PACKED_AT_ONCE:
            self._pack()
        return row

    def _pack(self) -> None:
        """Move what waits in lists into arrays."""
        if self._rows:
            self._packed_rows.append(_array(self._rows).reshape(-1, ROW).T.astype(np.int32))
            self._packed_slots.append(_array(self._slots).reshape(-1, 2).T.copy())
            self._packed += len(self._rows) // ROW
            self._packed_operands += len(self._slots) // 2
            self._rows.clear()
            self._slots.clear()

    @property
    def operand_count(self) -> int:
        """Tile operands of all rows so far."""
        return self._packed_operands + len(self._slots) // 2

    def is_named_since(self, operand: int, storage: int) -> bool:
        """Whether a row names a storage, among the tile operands from one on."""
        if operand < self._packed_operands:
            return bool((self.storage_column[operand:] == storage).any())
        return storage in self._slots[2 * (operand - self._packed_operands) :: 2]

    def writes_since(self, row: int, operand: int, storage: int) -> list[tuple[int, int, Layout]]:
        """Row, offset and layout of each write of a storage, in the rows and tile operands from these on."""
        if row >= self._packed:
            slots = self._slots[2 * (operand - self._packed_operands) :]
            stored = slots[::2]
            if storage not in stored:
                return []
            forms, offsets = self._rows[ROW * (row - self._packed) :: ROW], slots[1::2]
        else:
            rows, columns = self.since(row, operand)
            forms, (stored, offsets) = rows[0].tolist(), columns.tolist()
        known = self._tile_slots
        known += [list(form.tile_slots()) for form in self.forms[len(known) :]]
        ends = [*accumulate([len(known[form]) for form in forms])]
        writes, place = [], -1
        for _ in range(stored.count(storage)):
            place = stored.index(storage, place + 1)
            index = bisect_right(ends, place)
            _, spec, layout = known[forms[index]][place - ends[index]]
            if spec.is_written:
                writes.append((row + index, offsets[place], layout))
        return writes

    def since(self, row: int, operand: int) -> tuple[np.ndarray, np.ndarray]:
        """Columns of the rows and of their tile operands from these numbers on."""
        self._pack()
        return (
            _tail(self._packed_rows, self._packed - row, ROW),
            _tail(self._packed_slots, self._packed_operands - operand, 2),
        )

    def extend(self, rows: np.ndarray, slots: np.ndarray) -> None:
        """Add rows as columns: form, line, position, values; storage, offset per tile operand."""
        self._pack()
        self._packed_rows.append(rows)
        self._packed_slots.append(slots)
        self._packed += rows.shape[1]
        self._packed_operands += slots.shape[1]

    def _joined(self, packed: list[np.ndarray], height: int) -> np.ndarray:
        """All columns of one kind, [height, N], in one array."""
        self._pack()
        if len(packed) != 1:
            packed[:] = [np.concatenate(packed, axis=1) if packed else np.zeros((height, 0), np.int64)]
        return packed[0]

    @property
    def form_column(self) -> np.ndarray:
        """Per row the number of its form."""
        return self._joined(self._packed_rows, ROW)[0]

    @property
    def line_column(self) -> np.ndarray:
        """Per row the number of its source line."""
        return self._joined(self._packed_rows, ROW)[1]

    @property
    def position_column(self) -> np.ndarray:
        """Per row the number of its place in loops."""
        return self._joined(self._packed_rows, ROW)[2]

    def position_of(self, row: int) -> int:
        """The number of the place in loops of a row; those that wait are not packed for it."""
        if row < self._packed:
            return int(self.position_column[row])
        return self._rows[ROW * (row - self._packed) + 2]

    @property
    def value_column(self) -> np.ndarray:
        """Per row the number of its values."""
        return self._joined(self._packed_rows, ROW)[3]

    @property
    def storage_column(self) -> np.ndarray:
        """Per tile operand, row after row, the number of its storage."""
        return self._joined(self._packed_slots, 2)[0]

    @property
    def offset_column(self) -> np.ndarray:
        """Per tile operand, row after row, its offset in elements of its type."""
        return self._joined(self._packed_slots, 2)[1]

    @property
    def operand_start(self) -> np.ndarray:
        """Per row where its tile operands begin, and the end of the last: [rows + 1]."""
        if len(self._start) == len(self) + 1:
            return self._start
        counts = np.array([sum(1 for _ in form.tile_slots()) for form in self.forms], np.int64)
        start = np.zeros(len(self) + 1, np.int64)
        np.cumsum(counts[self.form_column], out=start[1:])
        self._start = start
        return start

    def fill(self, rows: Sequence[np.ndarray] | np.ndarray, slots: Sequence[np.ndarray]) -> None:
        """Take over columns that were read from a file: form, line, position, values; storage, offset.

        Raises:
            ValueError: if they point outside the tables.
        """
        self._packed_rows = [np.array(rows, np.int32)]
        self._packed_slots = [np.array(slots, np.int64)]
        self._packed, self._packed_operands = self._packed_rows[0].shape[1], self._packed_slots[0].shape[1]
        tables: tuple[Sized, ...] = (self.forms, self.lines, self.positions, self.values)
        columns = [*self._packed_rows[0], self.storage_column]
        lengths = [*map(len, tables), len(self.storages)]
        if any(len(c) and not 0 <= c.min() <= c.max() < n for c, n in zip(columns, lengths, strict=True)):
            raise ValueError("a row points outside the tables")
        if self.operand_start[-1] != len(self.storage_column):
            raise ValueError("rows and operands do not agree")

    def named_as(self, other: Program) -> Program:
        """These rows as those of another program of the launch, which are equal."""
        if other.core == self.core:
            return self
        copy = self._copied()
        copy.title, copy.core, copy.met = other.title, other.core, other.met
        copy.lines, copy.values = self.lines, self.values
        return copy

    def with_forms(self, forms: list[Instruction], column: np.ndarray) -> Program:
        """This program with other forms: their table, and per row the number of its form."""
        other = self._copied()
        other.forms = forms
        other._packed_rows[0][0] = column
        return other

    def with_operands(self, storages: list[StorageRecord], stored: np.ndarray, offset: np.ndarray) -> Program:
        """This program with other storages: their table, and per tile operand the storage and the offset."""
        other = self._copied()
        other.storages = storages
        other._packed_slots = [np.array([stored, offset], np.int64)]
        return other

    def without(self, rows: Sequence[int] | np.ndarray, stands_for: Mapping[int, int]) -> Program:
        """This program without some rows; itself if there are none.

        Args:
            rows: their numbers.
            stands_for: per storage that is replaced, the one that stands for it.
        """
        if not len(rows):
            return self
        keep, stored = np.ones(len(self), np.bool_), np.arange(len(self.storages))
        keep[rows] = False
        for storage, other in stands_for.items():
            stored[storage] = other
        return self._selected(keep, stored)

    def _copied(self) -> Program:
        """A program of the same rows over the same tables."""
        return self._selected(np.ones(len(self), np.bool_), np.arange(len(self.storages)))

    def _selected(self, keep: np.ndarray, stored: np.ndarray) -> Program:
        per_slot = np.repeat(keep, np.diff(self.operand_start))
        return self._with_rows(
            self._joined(self._packed_rows, ROW)[:, keep],
            [stored[self.storage_column[per_slot]], self.offset_column[per_slot]],
        )

    def arranged(self, rows: np.ndarray) -> Program:
        """This program with its rows in another order; a row may come several times, or not at all."""
        start, count = self.operand_start[:-1][rows], np.diff(self.operand_start)[rows]
        begins = np.cumsum(count) - count
        slots = np.repeat(start - begins, count) + np.arange(int(count.sum()))
        return self._with_rows(
            self._joined(self._packed_rows, ROW)[:, rows],
            [self.storage_column[slots], self.offset_column[slots]],
        )

    def _with_rows(self, rows: np.ndarray, slots: Sequence[np.ndarray]) -> Program:
        """A program of these rows and operands over the same tables."""
        other = Program(self.machine, self.kernel_name)
        other.compiler, other.has_static_descriptors = self.compiler, self.has_static_descriptors
        other.title, other.core, other.met = self.title, self.core, self.met
        for table in ("forms", "lines", "positions", "unrolled", "values", "storages", "addresses", "notes",
                      "findings"):  # fmt: skip
            setattr(other, table, getattr(self, table))
        other.fill(rows, slots)
        return other

    def site_number(self, site: tuple[str, int]) -> int:
        """The number of a source line, given as file and line."""
        known = self._line_numbers.get(site)
        if known is None:
            known = self._line_numbers[site] = len(self.lines)
            self.lines.append(site)
        return known

    def value_number(self, values: tuple[Any, ...]) -> int:
        """The number of a tuple of values in their table."""
        # 1, 1.0 and True are equal, and so are 0.0 and -0.0: types and signs tell them apart
        key: tuple[Any, ...] = (values, *map(type, values))
        if 0.0 in values:
            key += tuple(copysign(1, v) for v in values if v == 0.0)
        known = self._value_numbers.get(key)
        if known is None:
            known = self._value_numbers[key] = len(self.values)
            self.values.append(values)
        return known

    def flag_number(self, flag: bool) -> int:
        """The number of the values (flag,)."""
        known = self._flag_numbers[flag]
        if known < 0:
            known = self._flag_numbers[flag] = self.value_number((flag,))
        return known

    def form_of(self, row: int) -> Instruction:
        """The form of a row."""
        return self.forms[int(self.form_column[row])]

    def values_of(self, row: int) -> tuple[Any, ...]:
        """The values of a row, in declared order, numbers that stand for operands last."""
        return self.values[int(self.value_column[row])]

    def place_of(self, row: int) -> str:
        """ "file.py:41" of a row."""
        filename, lineno = self.lines[int(self.line_column[row])]
        return f"{filename.rsplit('/', 1)[-1]}:{lineno}"

    def accesses(self, row: int) -> Iterator[Access]:
        """The tile operands of a row, in declared order."""
        form = self.form_of(row)
        at = int(self.operand_start[row])
        reads_result = form.reads_result(self.values_of(row)) or getattr(form, "reads_dst", False)
        for name, spec, layout in form.tile_slots():
            is_read = not spec.is_written or reads_result
            storage, offset = int(self.storage_column[at]), int(self.offset_column[at])
            yield Access(name, storage, offset, layout, is_read, spec.is_written)
            at += 1

    def opcodes(self) -> dict[str, int]:
        """How many rows each instruction has."""
        totals: dict[str, int] = {}
        counts = np.bincount(np.asarray(self.form_column, np.int64), minlength=len(self.forms))
        for form, count in zip(self.forms, counts.tolist(), strict=True):
            if count:
                totals[form.name] = totals.get(form.name, 0) + count
        return totals


def recosted(program: Program, machine: Machine) -> Program:
    """The same rows with the costs that another set of constants gives their forms.

    Raises:
        UsageError: if the constants belong to another chip; its kernels may differ.
        KernelError: if a form exceeds a limit that the constants lower.
    """
    if machine.name != program.machine.name:
        raise UsageError(f"the program is for {program.machine.name}, the constants are of {machine.name}")
    if machine is program.machine:
        return program
    forms = [type(form)(machine, form.layouts, form.attribute_values) for form in program.forms]
    result = program.with_forms(forms, program.form_column)
    result.machine = machine
    return result


_KEY = "nkilab_program"


@contextmanager
def errors_know(program: Program) -> Iterator[None]:
    """Give an error of a kernel what it recorded until then."""
    try:
        yield
    except Exception as error:
        vars(error)[_KEY] = program
        raise


def program_until(error: Exception) -> Program | None:
    """The program that was recorded until an error; None if it is no kernel's, or nothing was."""
    return vars(error).get(_KEY) or None
