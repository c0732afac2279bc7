"""Computing one row: arrays of the operands, the meaning of the form, shadow bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..isa.declare import Instruction
from ..tiles.coverage import Coverage
from ..tiles.indirect import Rows, gathered, rows_of, scattered
from ..tiles.tile import View, memory_of
from ..trace.session import Session, current
from .joined_products import Product
from .threads import LARGE, Threads
from .unwritten import fill, fill_operands, hand_on


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


def execute(
    session: Session, form: Instruction, operands: Sequence[Any], values: tuple[Any, ...], mask: Any
) -> None:
    """Compute one row on the data of its operands.

    Args:
        session: the launch; receives the warnings.
        form: whose meaning it is.
        operands: per declared operand a view, a number or None.
        values: per declared value its resolved value.
        mask: boolean array over the first written operand, where to write; None for everywhere.
    """
    behind = session.threads
    if mask is None and form.largest < LARGE and (behind is None or behind.is_idle) and form.is_direct:
        arrays = written_arrays(form, operands)
        if arrays is not None:
            form.compute(*arrays, *values)
            return
    if form.is_indirect and any(operands[slot].indices for slot in form.view_slots):
        execute_indirect(session, form, operands, values, mask, execute)
        return
    if not (form.is_plain_copy and mask is None and lend(*operands)):
        compute_row(session, form, operands, values, mask)


def compute_row(
    session: Session, form: Instruction, operands: Sequence[Any], values: tuple[object, ...],
    mask: np.ndarray | None,
) -> None:  # fmt: skip
    """Compute one row with fixed addresses that lends nothing."""
    behind = session.threads
    if behind is not None and (mask is not None or form.keeps or form.registers):
        behind.drain()
    # operands that are read though not all of their storage was written: mostly none
    partly = [s for s in form.read_slots if not operands[s].storage.written.is_full]
    unwritten = fill_operands(session, form, operands, values, mask, partly) if partly else None
    arrays = _arrays(session, form, operands, values)
    part = _part(form, arrays, mask, unwritten) if form.keeps else mask
    if mask is not None:
        compute_masked = partial(_compute_masked, session.where, form, arrays, values, mask)
        compute_masked() if behind is None else behind.at_once(compute_masked, (), _touched(form, operands))
    elif behind is None:
        _compute(session, form, arrays, values)
    elif form.registers:
        behind.at_once(_compute_on_registers, (session.where, form, arrays, values), _touched(form, operands))
    elif form.keeps or (form.largest < LARGE and behind.is_idle):
        behind.at_once(form.compute, (*arrays, *values), _touched(form, operands))
    else:
        _hand_over(behind, form, operands, (*arrays, *values))
    written = form.written_slots
    for slot in written:
        coverage = operands[slot].storage.written
        if coverage.is_full:
            continue
        # the mask is over the first result; what else is written is written whole
        if part is None or slot != written[0]:
            coverage.add(operands[slot])
        else:
            coverage.add_where(operands[slot], part)
    if unwritten is not None:
        hand_on(form, operands, unwritten, part)


def _touched(form: Instruction, operands: Sequence[View]) -> Iterator[Coverage]:
    """The shadow bits of all that a call reads or writes."""
    return (operands[slot].storage.written for slot in form.view_slots)


def written_arrays(form: Instruction, operands: Sequence[Any]) -> list[object] | None:
    """Operands as arrays where all of them were written before and results have elements of their own."""
    arrays: list[object] = list(operands)
    for slot in form.view_slots:
        view = operands[slot]
        storage = view.storage
        if not storage.written.is_full:
            return None
        own = storage.bytes
        if own is not None and own is view._bytes:
            arrays[slot] = view._elements
        elif own is not None or slot not in form.written_slots:
            arrays[slot] = memory_of(view)
        else:
            return None
    return arrays


def elements_of(session: Session, view: View, mask: np.ndarray | None = None) -> np.ndarray:
    """The elements of a view that is read, maybe under way; what was never written is filled and told of.

    Args:
        session: the launch; receives the warnings.
        view: of a storage with data.
        mask: booleans over the view, which of its elements are read; None for all.
    """
    if not view.storage.written.is_full:
        fill(session, view, mask)
    return memory_of(view)


def put(view: View, write: Callable[[np.ndarray], object], mask: Any = None) -> None:
    """Have elements of a view written, and note in its shadow bits that they were.

    Args:
        view: that is written.
        write: gets its elements and changes them in place.
        mask: booleans over the view that say afterwards which were written; None for all.
    """
    if view.storage.data is None:
        view.storage.own()
    write(memory_of(view))
    if mask is None:
        view.storage.written.add(view)
    else:
        view.storage.written.add_where(view, mask)


def _arrays(
    session: Session, form: Instruction, operands: Sequence[Any], values: tuple[Any, ...]
) -> list[Any]:
    """Operands as arrays; what was never written of a result that is read, too, is filled."""
    arrays: list[Any] = list(operands)
    for slot in form.read_slots:
        arrays[slot] = memory_of(operands[slot])
    for slot in form.written_slots:
        view = operands[slot]
        storage = view.storage
        if storage.data is None:
            storage.own()
        if not storage.written.is_full and not form.keeps and (form.reads_dst or form.reads_result(values)):
            fill(session, view)
        arrays[slot] = memory_of(view)
    return arrays


def lend(dst: View, src: View) -> bool:
    """Let a whole tile stand for elements of an input, which do not change while the kernel runs.

    The copy is made when something writes the tile or looks at a part of it.
    """
    storage, source_storage = dst.storage, src.storage
    known = dst.layout
    if (
        source_storage.is_mutable
        or known.shape != storage.shape
        or not known.is_compact
        or not known.is_on_chip
    ):
        return False
    elements = memory_of(src)
    if elements.shape != storage.shape:
        squeezed = [n for n in elements.shape if n != 1]
        if squeezed != [n for n in storage.shape if n != 1]:
            return False
        elements = elements.reshape(storage.shape)
    storage.lend(elements)
    return True


def _part(form: Instruction, arrays: list[Any], mask: Any, unwritten: dict[int, np.ndarray] | None) -> Any:
    """Where a call writes its first result: booleans that broadcast over it, or None for everywhere.

    Where nothing wrote what decides, it may.
    """
    own = form.written_where(*arrays)
    if unwritten is not None and form.decided_by:
        missing = unwritten.get(list(form.operands).index(form.decided_by))
        own = own if missing is None else own | missing.reshape(own.shape)
    return mask if own is None else own if mask is None else mask & own


def _hand_over(
    behind: Threads, form: Instruction, operands: Sequence[Any], arguments: tuple[Any, ...]
) -> None:
    """Have a call computed behind the caller if it is large, or needs what is under way; else compute it."""
    reads = [operands[slot].storage.written for slot in form.read_slots]
    writes = [operands[slot].storage.written for slot in form.written_slots]
    if form.largest < LARGE and not behind.touches((*reads, *writes)):
        behind.at_once(form.compute, arguments, _touched(form, operands))
    elif form.factors:
        behind.multiply(Product(form, *arguments), reads, writes[0])
    else:
        behind.submit(form.compute, arguments, reads, writes)


def _compute(session: Session, form: Any, arrays: list[Any], values: tuple[Any, ...]) -> None:
    if not form.registers:
        form.compute(*arrays, *values)
        return
    warning = form.compute(*arrays, *values, session.registers[form.registers])
    if warning:
        session.warn(f"{form.name}: {warning}")


def _compute_on_registers(
    where: tuple[str, int], form: Instruction, arrays: list[object], values: tuple[object, ...]
) -> None:
    """Compute a call of a line on the registers of the launch that runs."""
    session = current()
    session.where = where
    _compute(session, form, arrays, values)


def _compute_masked(
    where: tuple[str, int], form: Instruction, arrays: list[Any], values: tuple[Any, ...], mask: Any
) -> None:
    dst = arrays[0]
    kept = dst.copy()
    _compute_on_registers(where, form, arrays, values)
    np.copyto(dst, kept, where=~np.broadcast_to(mask, dst.shape))
