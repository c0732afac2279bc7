"""A transformation of the compiler: zeroes that a product overwrites are not written.

A tile in PSUM that is filled with zeroes and then accumulated on starts with the first product, which
overwrites. Evidence for the middle end of Beta 1: in published profiles of products on trn1, whose kernels
fill every tile in PSUM, VectorE is idle (NKIBench).
"""

from __future__ import annotations

import numpy as np

from ..isa.elementwise import Memset
from ..isa.tensor_engine import NcMatmul
from ..tiles.tile import PSUM
from ..trace.program import Program
from .slots import slots_of


def without_zero_fills(program: Program) -> Program:
    """A program without the zeroes that TensorE alone writes over; itself if there are none."""
    forms = program.forms
    is_fill = np.array([isinstance(f, Memset) and f.dst.memory == PSUM for f in forms], np.bool_)
    if not is_fill.any():
        return program
    slots = slots_of(program)
    is_product = np.array([isinstance(f, NcMatmul) for f in forms], np.bool_)
    form = program.form_column[slots.row]
    # the tiles that something but a fill with zeroes or a product writes
    others = np.zeros(len(program.storages), np.bool_)
    others[slots.storage[slots.is_written & ~is_product[form] & ~_is_zero(program, is_fill)[slots.row]]] = (
        True
    )
    first_product = np.full(len(program.storages), len(program), np.int64)
    products = np.flatnonzero(slots.is_written & is_product[form])
    first_product[slots.storage[products[::-1]]] = slots.row[products[::-1]]
    first_read = np.full(len(program.storages), len(program), np.int64)
    reads = np.flatnonzero(~slots.is_written)
    first_read[slots.storage[reads[::-1]]] = slots.row[reads[::-1]]
    is_spare = ~others & (first_product < first_read)
    fills = np.flatnonzero(is_fill[program.form_column])
    removed = fills[is_spare[program.storage_column[program.operand_start[fills]]]]
    if not len(removed):
        return program
    keep = np.ones(len(program), np.bool_)
    keep[removed] = False
    return program.selected(keep, np.arange(len(program.storages)))


def _is_zero(program: Program, is_fill: np.ndarray) -> np.ndarray:
    """Per row whether it fills a tile in PSUM with zeroes."""
    zero = np.array([bool(values) and values[0] == 0 for values in program.values], np.bool_)
    return is_fill[program.form_column] & zero[program.value_column]
