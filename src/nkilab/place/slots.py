"""The tile operands of a program as columns: one slot per operand per row."""

from __future__ import annotations

from collections.abc import Iterator
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
# Numbers that are worked on at once where there may be many: each column of them takes two megabytes.
PIECE = 1 << 18


class Kinds(Struct, frozen=True):
    """Storages that are alike: of one shape, type and memory."""

    of_storage: np.ndarray  # per storage, its kind
    samples: tuple[StorageRecord, ...]  # per kind, one of its storages

    def lie_in(self, memory: str) -> np.ndarray:
        """Per storage whether it lies in a memory."""
        return np.array([s.memory == memory for s in self.samples], np.bool_)[self.of_storage]


def kinds_of(program: Program) -> Kinds:
    """The kinds of storages of `program`, in order of their first."""
    storages = program.storages
    numbers: dict[int, int] = {}
    samples: dict[object, StorageRecord] = {}
    # those that are alike mostly share one record
    for identity, record in {id(record): record for record in storages}.items():
        sample = samples.setdefault(_KIND(record), record)
        numbers[identity] = numbers.get(id(sample), len(samples) - 1)
    of_storage = np.fromiter(map(numbers.__getitem__, map(id, storages)), np.int64, len(storages))
    return Kinds(of_storage, tuple(samples.values()))


class Slots(Struct, frozen=True):
    """Every tile operand of every row, in trace order; numbers whose products are large begin wide."""

    row: np.ndarray  # of the operand
    storage: np.ndarray  # that it lies in
    offset: np.ndarray  # of its first element, in elements of the layout's type
    layout: np.ndarray  # position in `layouts`
    is_read: np.ndarray  # whether the row reads it
    is_written: np.ndarray  # whether the row writes it
    layouts: tuple[Layout, ...]  # the distinct layouts
    engine: np.ndarray  # per row, the engine that completes it, as a position in `ENGINES`
    kinds: Kinds  # of the storages


def runs(column: np.ndarray) -> list[tuple[int, int]]:
    """Where the runs of equal neighbours in a column of numbers begin and stop."""
    starts = np.flatnonzero(np.diff(column, prepend=-1)).tolist()
    return list(zip(starts, [*starts[1:], len(column)], strict=False))


def distinct(values: np.ndarray) -> np.ndarray:
    """The distinct numbers, ascending: `np.unique` loads the module of masked arrays for them, 13 ms."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]


def distinct_numbers(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct numbers, ascending, and the place of each value among them."""
    every = distinct(np.concatenate([values[:0], *(distinct(values[p]) for p in pieces(len(values)))]))
    place = np.empty(len(values), np.int32)
    for piece in pieces(len(values)):
        place[piece] = np.searchsorted(every, values[piece])
    return every, place


def pieces(count: int) -> Iterator[slice]:
    """Ranges of so many numbers, each short enough that what is made of it stays small."""
    for start in range(0, count, PIECE):
        yield slice(start, min(start + PIECE, count))


def by_storage(slots: Slots, some: np.ndarray) -> Iterator[np.ndarray]:
    """The slots of some storages, those of one storage together, a piece of all at a time.

    Args:
        slots: of a program.
        some: per storage whether it is one of them.
    """
    uses = np.bincount(slots.storage, minlength=len(some))
    uses[~some] = 0
    used = np.flatnonzero(uses)
    if len(slots.storage) <= PIECE or not len(used):
        yield np.flatnonzero(some[slots.storage])
        return
    first, last = np.zeros((2, len(some)), np.int32)
    # of several assignments to one place the last one stays
    number = np.arange(len(slots.storage), dtype=np.int32)
    first[slots.storage[::-1]], last[slots.storage] = number[::-1], number
    turn = np.cumsum(uses[used]) // PIECE
    for own in np.split(used, np.flatnonzero(np.diff(turn)) + 1):
        begin = int(first[own].min())
        here = slots.storage[begin : int(last[own].max()) + 1]
        yield begin + np.flatnonzero((here >= own[0]) & (here <= own[-1]) & some[here])


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
    start, form = program.operand_start, program.form_column
    count = np.diff(start)
    layouts, base, layout_table, written_table = _form_tables(program.forms)
    # in place: as many as all operands are the most that planning holds
    place = np.repeat((base[form] - start[:-1]).astype(np.int32), count)
    place += np.arange(len(place), dtype=np.int32)
    is_written = written_table[place]
    is_read = np.repeat(_reads_result(program, form), count)
    is_read |= ~is_written
    engine_of_form = np.array([ENGINES.index(f.steps[-1].engine) for f in program.forms], np.int8)
    return Slots(
        np.repeat(np.arange(len(program), dtype=np.int32), count),
        program.storage_column,
        program.offset_column,
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
    return list(numbers), np.array(base, np.int64), np.array(layouts, np.int32), np.array(written, np.bool_)


def _reads_result(program: Program, form: np.ndarray) -> np.ndarray:
    """Per row, whether it also reads what it writes."""
    inherited = vars(Instruction)["reads_result"]
    asks = np.array([_defines(type(f), "reads_result") is not inherited for f in program.forms], np.bool_)
    result = np.array([f.reads_dst for f in program.forms], np.bool_)[form]
    rows = np.flatnonzero(asks[form])
    count = len(program.values)
    pairs, back = distinct_numbers(form[rows].astype(np.int64) * count + program.value_column[rows])
    known = [program.forms[p // count].reads_result(program.values[p % count]) for p in pairs.tolist()]
    result[rows] |= np.array(known, np.bool_)[back]
    return result


def _defines(cls: type[Instruction], name: str) -> object:
    """What `name` is in the class of a form, as it stands in the nearest class that defines it."""
    return next(vars(base)[name] for base in cls.__mro__ if name in vars(base))
