"""A transformation of the compiler: what TensorE repeats over partitions is read where it lies, in PSUM.

A partition is repeated by a product with a row of ones. Where all that read the copy of it in SBUF may read
PSUM as well, and PSUM has a bank for as long as they need it, the copy is left out.

Evidence for the middle end of Beta 1: the tutorial on Mamba describes the repetition as one instruction, on
TensorE, and has none on VectorE for it.
"""

from __future__ import annotations

import numpy as np

from ..errors import NkilabError
from ..isa.elementwise import TensorCopy
from ..isa.tensor_engine import NcMatmul
from ..tiles.tile import PSUM, Layout, layout
from ..trace.program import Program
from .direct_allocation import has_address
from .lifetimes import Lives
from .slots import Slots, slots_of


def without_broadcast_copies(program: Program) -> Program:
    """A program whose instructions read what TensorE repeats over partitions in PSUM; itself if none can."""
    if not any(_is_plain_copy(form) for form in program.forms):
        return program
    slots = slots_of(program)
    copies = _copies(program, slots)
    if not copies:
        return program
    readers = _Readers(program, slots)
    most, bank = (program.machine.limit(name) for name in ("psum_banks", "psum_bank_bytes"))
    banks = [-(-s.bytes_per_partition // bank) if s.memory == PSUM else 0 for s in program.storages]
    lives = Lives(program, slots, banks)
    removed, stands_for = [], {}
    for copy, tile, source in copies:
        rows, own = readers.rows(tile), banks[source]
        if not len(rows) or not readers.may_read_psum(rows, tile):
            continue
        # another as large finds room beside it for as long
        if lives.keep(own, copy + 1, int(rows[-1]) + 1, most - own):
            readers.move(rows, tile)
            removed.append(copy)
            stands_for[tile] = source
    if not removed:
        return program
    return program.with_forms(readers.forms, readers.column).without(removed, stands_for)


def _copies(program: Program, slots: Slots) -> list[tuple[int, int, int]]:
    """Rows that copy a whole tile, made by a product over one partition; the tiles they write and read."""
    is_copy = np.array([_is_plain_copy(form) for form in program.forms], np.bool_)
    writes = np.bincount(slots.storage[slots.is_written], minlength=len(program.storages))
    repeats = np.array([_repeats(form) for form in program.forms], np.bool_)[program.form_column]
    is_broadcast = np.zeros(len(program.storages), np.bool_)
    is_broadcast[slots.storage[slots.is_written & repeats[slots.row]]] = True
    reads = np.bincount(slots.storage[~slots.is_written], minlength=len(program.storages))
    rows = np.flatnonzero(is_copy[program.form_column])
    at = program.operand_start[rows]
    tile, source = slots.storage[at], slots.storage[at + 1]
    is_free = ~has_address(program)
    fits = is_broadcast[source] & (writes[source] == 1) & (writes[tile] == 1) & (reads[source] == 1)
    fits &= is_free[source] & is_free[tile]
    shape = [s.shape for s in program.storages]
    same = [shape[t] == shape[s] for t, s in zip(tile.tolist(), source.tolist(), strict=True)]
    chosen = np.flatnonzero(fits & np.array(same, np.bool_))
    return list(zip(rows[chosen].tolist(), tile[chosen].tolist(), source[chosen].tolist(), strict=True))


def _is_plain_copy(form: object) -> bool:
    """Whether a form copies PSUM to SBUF as it is, on no engine in particular."""
    if not isinstance(form, TensorCopy) or form.attribute_values[0] != "unknown":
        return False
    dst, src = form.layouts
    return src.memory == PSUM and src.dtype == dst.dtype and dst.is_compact and src.is_compact


def _repeats(form: object) -> bool:
    return isinstance(form, NcMatmul) and form.layouts[1].partitions == 1


def _in_psum(in_sbuf: Layout) -> Layout:
    start, indices = in_sbuf.start_partition, in_sbuf.indices
    return layout(in_sbuf.shape, in_sbuf.strides, in_sbuf.dtype, PSUM, in_sbuf.partition_axis, start, indices)


class _Readers:
    """The rows that read tiles, and their forms once a tile has moved to PSUM."""

    def __init__(self, program: Program, slots: Slots) -> None:
        self._program = program
        reads = np.flatnonzero(~slots.is_written)
        order = reads[np.argsort(slots.storage[reads], kind="stable")]
        self._row, self._storage = slots.row[order], slots.storage[order]
        self.forms = list(program.forms)
        self.column = np.array(program.form_column, np.int32)
        self._moved: dict[tuple[int, tuple[int, ...]], int] = {}

    def rows(self, tile: int) -> np.ndarray:
        """Rows that read a tile, in order."""
        return self._row[slice(*np.searchsorted(self._storage, [tile, tile + 1]))]

    def may_read_psum(self, rows: np.ndarray, tile: int) -> bool:
        """Whether each of them takes the tile in PSUM."""
        return all(self._form(row, tile) >= 0 for row in rows.tolist())

    def move(self, rows: np.ndarray, tile: int) -> None:
        """Have them read the tile in PSUM."""
        for row in rows.tolist():
            self.column[row] = self._form(row, tile)

    def _form(self, row: int, tile: int) -> int:
        """The number of a row's form with the tile in PSUM; -1 if there is none."""
        at = self._program.operand_start[row : row + 2]
        number = int(self.column[row])
        form = self.forms[number]
        storages = self._program.storage_column[at[0] : at[1]].tolist()
        is_plain = not form.is_indirect and len(storages) == len(form.view_slots)
        if not is_plain or form.steps[0].engine not in ("vector", "scalar"):
            return -1
        places = tuple(
            slot for slot, storage in zip(form.view_slots, storages, strict=True) if storage == tile
        )
        key = number, places
        if key not in self._moved:
            layouts = list(form.layouts)
            for place in places:
                layouts[place] = _in_psum(layouts[place])
            try:
                new_form = type(form)(form.machine, layouts, form.attribute_values)
            except NkilabError:
                self._moved[key] = -1
            else:
                self._moved[key] = len(self.forms)
                self.forms.append(new_form)
        return self._moved[key]
