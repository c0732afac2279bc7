"""The tile operands of a program as columns: one slot per operand per row."""

from __future__ import annotations

from operator import itemgetter

import numpy as np
from msgspec import Struct

from ..isa.declare import Instruction
from ..tiles.tile import Layout
from ..trace.program import Program, StorageRecord

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync", "dma")
DMA = ENGINES.index("dma")
_KIND = itemgetter(*map(StorageRecord._fields.index, ("shape", "dtype", "memory")))
# Rows of programs whose columns are kept: about 100 bytes a row.
KEPT = 50_000


class Kinds(Struct, frozen=True):
    """Storages that are alike: of one shape, type and memory.

    Args:
        of_storage: per storage, its kind.
        samples: per kind, one of its storages.
    """

    of_storage: np.ndarray
    samples: tuple[StorageRecord, ...]

    def lie_in(self, memory: str) -> np.ndarray:
        """Per storage whether it lies in a memory."""
        return np.array([s.memory == memory for s in self.samples], np.bool_)[self.of_storage]


def kinds_of(program: Program) -> Kinds:
    """The kinds of storages of `program`, in order of their first."""
    storages = program.storages
    # keys are made twice: keeping them costs more, they are as many as the tiles of the program
    numbers = {key: number for number, key in enumerate(dict.fromkeys(map(_KIND, storages)))}
    of_storage = np.fromiter(map(numbers.__getitem__, map(_KIND, storages)), np.int64, len(storages))
    first = np.zeros(len(numbers), np.int64)
    # of several assignments to one place the last one stays
    first[of_storage[::-1]] = np.arange(len(of_storage))[::-1]
    return Kinds(of_storage, tuple(program.storages[i] for i in first.tolist()))


class Slots(Struct, frozen=True):
    """Every tile operand of every row, in trace order.

    Args:
        row: of the operand.
        storage: that it lies in.
        offset: of its first element, in elements of the layout's type.
        layout: position in `layouts`.
        is_read: whether the row reads it.
        is_written: whether the row writes it.
        layouts: the distinct layouts.
        engine: per row, the engine that completes it, as a position in `ENGINES`.
        kinds: of the storages.
    """

    row: np.ndarray
    storage: np.ndarray
    offset: np.ndarray
    layout: np.ndarray
    is_read: np.ndarray
    is_written: np.ndarray
    layouts: tuple[Layout, ...]
    engine: np.ndarray
    kinds: Kinds


def runs(column: np.ndarray) -> list[tuple[int, int]]:
    """Where the runs of equal neighbours in a column of numbers begin and stop."""
    starts = np.flatnonzero(np.diff(column, prepend=-1)).tolist()
    return list(zip(starts, [*starts[1:], len(column)], strict=False))


def slots_of(program: Program) -> Slots:
    """The columns of `program`, with the flags that `Program.accesses` would give row by row.

    Those of a short program are kept with it: planning and the summary ask again.
    """
    rows, kept = program.kept
    if rows == len(program):
        return kept
    slots = _slots_of(program)
    if len(program) <= KEPT:
        program.kept = len(program), slots
    return slots


def _slots_of(program: Program) -> Slots:
    start = np.array(program.operand_start, np.int64)
    form = np.array(program.form_column, np.int64)
    row = np.repeat(np.arange(len(program), dtype=np.int64), np.diff(start))
    layouts, base, layout_table, written_table = _form_tables(program.forms)
    place = base[form[row]] + np.arange(len(row)) - start[row]
    is_written = written_table[place]
    is_read = ~is_written | _reads_result(program, form)[row]
    engine_of_form = np.array([ENGINES.index(f.steps[-1].engine) for f in program.forms], np.int64)
    return Slots(
        row,
        np.array(program.storage_column, np.int64),
        np.array(program.offset_column, np.int64),
        layout_table[place],
        is_read,
        is_written,
        tuple(layouts),
        engine_of_form[form],
        kinds_of(program),
    )


def _form_tables(forms: list[Instruction]) -> tuple[list[Layout], np.ndarray, np.ndarray, np.ndarray]:
    """Distinct layouts; where each form's operands begin; per operand its layout, whether written."""
    numbers: dict[Layout, int] = {}
    base: list[int] = []
    layouts: list[int] = []
    written: list[bool] = []
    for form in forms:
        base.append(len(layouts))
        tiles = list(form.tile_slots())
        layouts.extend(numbers.setdefault(layout, len(numbers)) for _, _, layout in tiles)
        written.extend(spec.is_written for _, spec, _ in tiles)
    return list(numbers), np.array(base, np.int64), np.array(layouts, np.int64), np.array(written, np.bool_)


def _reads_result(program: Program, form: np.ndarray) -> np.ndarray:
    """Per row, whether it also reads what it writes."""
    inherited = vars(Instruction)["reads_result"]
    asks = np.array([_defines(type(f), "reads_result") is not inherited for f in program.forms], np.bool_)
    result = np.array([f.reads_dst for f in program.forms], np.bool_)[form]
    value = np.array(program.value_column, np.int64)
    rows = np.flatnonzero(asks[form])
    count = len(program.values)
    pairs, back = np.unique(form[rows] * count + value[rows], return_inverse=True)
    known = [program.forms[p // count].reads_result(program.values[p % count]) for p in pairs.tolist()]
    result[rows] |= np.array(known, np.bool_)[back]
    return result


def _defines(cls: type[Instruction], name: str) -> object:
    """What `name` is in the class of a form, as it stands in the nearest class that defines it."""
    return next(vars(base)[name] for base in cls.__mro__ if name in vars(base))
