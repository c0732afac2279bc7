"""Programs that differ only in where in HBM they load and store."""

from __future__ import annotations

import numpy as np

from ..isa.declare import Instruction
from ..tiles.tile import HBM
from ..trace.program import Program
from .slots import Slots


def is_moved(one: Program, slots: Slots, other: Program, other_slots: Slots) -> bool:
    """Whether two programs have equal rows on equal tiles, but for offsets in HBM.

    Args:
        one, slots: a program and its operands.
        other, other_slots: the other one.
    """
    if len(one) != len(other) or len(one.forms) != len(other.forms):
        return False
    settings = (
        (p.machine.label, p.compiler, p.addresses, p.findings, p.positions, p.lines) for p in (one, other)
    )
    if next(settings) != next(settings):
        return False
    columns = ((one.form_column, other.form_column), (one.position_column, other.position_column),
               (one.line_column, other.line_column), (slots.storage, other_slots.storage),
               (slots.is_read, other_slots.is_read))  # fmt: skip
    if not all(np.array_equal(*pair) for pair in columns):
        return False
    if not all(map(_are_equal, one.forms, other.forms)) or one.storages != other.storages:
        return False
    in_hbm = slots.kinds.lie_in(HBM)[slots.storage]
    return bool(((slots.offset == other_slots.offset) | in_hbm).all())


def _are_equal(one: Instruction, other: Instruction) -> bool:
    return one is other or (
        type(one) is type(other)
        and one.layouts == other.layouts
        and one.attribute_values == other.attribute_values
    )
