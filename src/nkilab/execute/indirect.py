"""Computing a row whose addresses are known at run time: gather, compute on copies, scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..isa.declare import Instruction
from ..tiles.indirect import Rows, gathered, rows_of, scattered
from ..tiles.tile import View
from ..trace.session import Session


def execute_indirect(
    session: Session, form: Any, operands: Sequence[Any], values: tuple[Any, ...], mask: Any,
    compute: Callable[[Session, Instruction, Sequence[Any], tuple[Any, ...], Any], None],
) -> None:  # fmt: skip
    """Compute one row with operands whose rows are chosen by indices.

    An offset that is still open is out of bounds, and the call is skipped. Rows out of bounds are skipped
    where the instruction allows that: what is read for them is not written, what is written for them is
    dropped.

    Args:
        compute: computes a row of operands with fixed addresses; the rest is as for `execute`.

    Raises:
        OutOfBoundsError: if an index is out of bounds and the instruction does not skip those.
    """
    skips = getattr(form, "oob_mode", "error") == "skip"
    views = [operands[slot] for slot in form.view_slots]
    if any(not i.is_vector for v in views for i in v.indices):
        return
    direct: list[Any] = list(operands)
    scatters: list[tuple[View, Rows, View]] = []
    for slot in form.view_slots:
        view = operands[slot]
        if not view.indices:
            continue
        rows = rows_of(view, skips=skips)
        copy = direct[slot] = gathered(view, rows)
        if slot in form.read_slots:
            mask = _and(mask, _where(form, rows, view))
            continue
        if not (form.reads_dst or form.reads_result(values)):
            copy.storage.written.clear()
        scatters.append((view, rows, copy))
    compute(session, form, direct, values, mask)
    for view, rows, copy in scatters:
        scattered(view, rows, copy)


def _where(form: Instruction, rows: Rows, src: View) -> Any:
    """Where the result gets rows of `src` that are in bounds, as a mask over it; None for everywhere."""
    if rows.are_in.all():
        return None
    shape = src.layout.shape
    is_in = np.broadcast_to(rows.are_in.reshape(-1, *(1,) * (len(shape) - 1)), shape)
    return form.where_read(is_in)


def _and(first: Any, second: Any) -> Any:
    return second if first is None else first if second is None else first & second
