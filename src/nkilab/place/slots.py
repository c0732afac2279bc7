"""The tile operands of a program as columns: one slot per operand per row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..isa.declare import Instruction
from ..tiles.tile import Layout
from ..trace.program import Program

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "dma")
DMA = ENGINES.index("dma")


@dataclass(frozen=True)
class Slots:
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
    """

    row: np.ndarray
    storage: np.ndarray
    offset: np.ndarray
    layout: np.ndarray
    is_read: np.ndarray
    is_written: np.ndarray
    layouts: tuple[Layout, ...]
    engine: np.ndarray


def runs(column: np.ndarray) -> list[tuple[int, int]]:
    """Where the runs of equal neighbours in a column of numbers begin and stop."""
    starts = np.flatnonzero(np.diff(column, prepend=-1)).tolist()
    return list(zip(starts, [*starts[1:], len(column)], strict=False))


def slots_of(program: Program) -> Slots:
    """The columns of `program`, with the flags that `Program.accesses` would give row by row."""
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
    )


def _form_tables(forms: list[Instruction]) -> tuple[list[Layout], np.ndarray, np.ndarray, np.ndarray]:
    """Distinct layouts; where each form's operands begin; per operand of a form its layout and whether written."""
    numbers: dict[Layout, int] = {}
    base, layouts, written = [], [], []
    for form in forms:
        base.append(len(layouts))
        for spec, given in zip(form.operands.values(), form.layouts, strict=True):
            if isinstance(given, Layout):
                layouts.append(numbers.setdefault(given, len(numbers)))
                written.append(spec.is_written)
    return list(numbers), np.array(base, np.int64), np.array(layouts, np.int64), np.array(written, np.bool_)


def _reads_result(program: Program, form: np.ndarray) -> np.ndarray:
    """Per row, whether it also reads what it writes."""
    always = np.array([bool(getattr(f, "reads_dst", False)) for f in program.forms], np.bool_)
    inherited = Instruction.reads_result.__func__  # type: ignore[attr-defined]
    asks = np.array([type(f).reads_result.__func__ is not inherited for f in program.forms], np.bool_)  # type: ignore[attr-defined]
    result = always[form]
    value = np.array(program.value_column, np.int64)
    rows = np.flatnonzero(asks[form])
    pairs, back = np.unique(form[rows] * len(program.values) + value[rows], return_inverse=True)
    known = [
        program.forms[pair // len(program.values)].reads_result(program.values[pair % len(program.values)])
        for pair in pairs.tolist()
    ]
    result[rows] |= np.array(known, np.bool_)[back]
    return result
