"""The program that a kernel's run leaves behind: growable columns, no references to data."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import copysign
from typing import Any, NamedTuple

import numpy as np

from ..isa.declare import Instruction
from ..machine import Machine
from ..tiles.dtypes import DType
from ..tiles.tile import HBM, Layout, View


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


@dataclass(frozen=True)
class Access:
    """One operand of one row: which storage, from which element, in which layout, read or written."""

    operand: str
    storage: int
    offset: int
    layout: Layout
    is_read: bool
    is_written: bool


class Program:
    """Rows of calls over shared forms.

    Columns hold, per row: form, source line, loop position, values, and for each tile operand a storage
    and an offset in elements. Forms, lines, positions, values and storages are tables.
    """

    def __init__(self, machine: Machine, kernel_name: str = "kernel") -> None:
        self.machine = machine
        self.kernel_name = kernel_name
        self.forms: list[Instruction] = []
        self.lines: list[tuple[str, int]] = []
        self.positions: list[tuple[int, int, int]] = [(-1, -1, 0)]
        self.values: list[tuple[Any, ...]] = [()]
        self.storages: list[StorageRecord] = []
        self.notes: list[str] = []
        self.form_column = array("i")
        self.line_column = array("i")
        self.position_column = array("i")
        self.value_column = array("i")
        self.operand_start = array("q", [0])
        self.storage_column = array("i")
        self.offset_column = array("q")
        self._line_numbers: dict[tuple[str, int], int] = {}
        self._value_numbers: dict[tuple[Any, ...], int] = {((),): 0}

    def __len__(self) -> int:
        return len(self.form_column)

    def append(
        self, form: int, where: tuple[str, int], position: int, values: tuple[Any, ...], views: Sequence[View]
    ) -> None:
        """Add a row: number of the form, file and line, loop position, values, tile operands in order."""
        row = len(self.form_column)
        self.form_column.append(form)
        self.line_column.append(self.line_number(*where))
        self.position_column.append(position)
        self.value_column.append(self.value_number(values) if values else 0)
        for view in views:
            storage = view.storage
            self.storage_column.append(storage.number)
            self.offset_column.append(view.offset)
            storage.last_row = row
        self.operand_start.append(len(self.storage_column))

    def line_number(self, filename: str, lineno: int) -> int:
        """The number of a source line in the table of lines."""
        key = (filename, lineno)
        known = self._line_numbers.get(key)
        if known is None:
            known = self._line_numbers[key] = len(self.lines)
            self.lines.append(key)
        return known

    def value_number(self, values: tuple[Any, ...]) -> int:
        """The number of a tuple of values in their table."""
        # 1, 1.0 and True are equal, and so are 0.0 and -0.0: types and signs tell them apart
        key = (values, *map(type, values), *[copysign(1, v) for v in values if v == 0.0])
        known = self._value_numbers.get(key)
        if known is None:
            known = self._value_numbers[key] = len(self.values)
            self.values.append(values)
        return known

    def form_of(self, row: int) -> Instruction:
        """The form of a row."""
        return self.forms[self.form_column[row]]

    def values_of(self, row: int) -> tuple[Any, ...]:
        """The values of a row, in declared order, numbers that stand for operands last."""
        return self.values[self.value_column[row]]

    def place_of(self, row: int) -> str:
        """ "file.py:41" of a row."""
        filename, lineno = self.lines[self.line_column[row]]
        return f"{filename.rsplit('/', 1)[-1]}:{lineno}"

    def accesses(self, row: int) -> Iterator[Access]:
        """The tile operands of a row, in declared order."""
        form = self.form_of(row)
        at = self.operand_start[row]
        reads_result = form.reads_result(self.values_of(row)) or getattr(form, "reads_dst", False)
        for name, spec, given in form.tile_slots():
            is_read = not spec.is_written or reads_result
            yield Access(
                name, self.storage_column[at], self.offset_column[at], given, is_read, spec.is_written
            )
            at += 1

    def opcodes(self) -> dict[str, int]:
        """How many rows each instruction has."""
        totals: dict[str, int] = {}
        counts = np.bincount(np.asarray(self.form_column, np.int64), minlength=len(self.forms))
        for form, count in zip(self.forms, counts, strict=True):
            totals[form.name] = totals.get(form.name, 0) + int(count)
        return totals
