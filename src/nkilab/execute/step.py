"""Computing one row: arrays of the operands, the meaning of the form, shadow bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..isa.declare import Instruction
from ..tiles.dtypes import unwritten_value
from ..tiles.tile import View, memory_of, settle_elements
from ..trace.marks import Unwritten
from ..trace.session import Session
from ..trace.source import name_of, user_frame
from .indirect import execute_indirect
from .lanes import LARGE, Lanes


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
    if form.is_indirect and any(operands[slot].indices for slot in form.view_slots):
        execute_indirect(session, form, operands, values, mask, execute)
        return
    if form.is_plain_copy and mask is None and _lend(*operands):
        return
    behind = session.lanes
    if behind is not None and (mask is not None or form.keeps or form.registers):
        behind.drain()
        behind = None
    # operands that are read though not all of their storage was written: mostly none
    partly = [operands[s] for s in form.read_slots if not operands[s].storage.written.is_full]
    left_out = _filled(session, form, operands, values, mask, partly) if partly else None
    arrays = _arrays(session, form, operands, values)
    part = _part(form, arrays, mask) if form.keeps else mask
    if mask is not None:
        _compute_masked(session, form, arrays, values, mask)
    elif form.registers:
        _compute(session, form, arrays, values)
    elif behind is None or (form.largest < LARGE and behind.is_idle):
        form.compute(*arrays, *values)
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
    if left_out is not None:
        for slot in written:
            operands[slot].storage.written.remove_lanes(operands[slot], left_out)


def _filled(
    session: Session, form: Instruction, operands: Sequence[Any], values: tuple[Any, ...], mask: Any,
    partly: list[View],
) -> np.ndarray | None:  # fmt: skip
    """Fill what was never written of operands that are read, and tell of it; lanes that stay unwritten."""
    left_out = None
    if mask is None and form.is_lanewise:
        left_out = _lanes_left_out(form, operands, values, partly)
    for view in partly:
        _fill_unwritten(session, view, mask, is_told=left_out is None)
    return left_out


def _lanes_left_out(
    form: Instruction, operands: Sequence[Any], values: tuple[Any, ...], partly: list[View]
) -> np.ndarray | None:
    """Partitions that a lanewise call reads though nothing wrote them.

    These count as unwritten in turn, and are told of where they are stored or reach other partitions.
    None where no such partition is read, or more than whole partitions is unwritten.

    Args:
        form, operands, values: of the call.
        partly: operands that are read, of storages that were written in part.
    """
    unwritten = [view for view in partly if view.storage.written.of(view) != "all"]
    if not unwritten:
        return None
    if form.reads_dst or form.reads_result(values) or any(operands[s].storage.place for s in form.view_slots):
        return None
    left_out = np.zeros(unwritten[0].layout.shape[0], np.bool_)
    for view in unwritten:
        lanes = view.storage.written.lanes_left_out(view)
        if lanes is None or lanes.all():
            return None
        left_out |= lanes
    return left_out if left_out.any() else None


def elements_of(session: Session, view: View, mask: Any = None) -> np.ndarray:
    """The elements of a view that is read; what was never written is filled, and the user warned.

    Args:
        session: the launch; receives the warnings.
        view: of a storage with data.
        mask: booleans over the view, which of its elements are read; None for all.
    """
    if not view.storage.written.is_full:
        _fill_unwritten(session, view, mask)
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
            _fill_unwritten(session, view)
        arrays[slot] = memory_of(view)
    return arrays


def _lend(dst: View, src: View) -> bool:
    """Let a whole tile stand for elements of an input, which do not change while the kernel runs.

    The copy is made when something writes the tile or looks at a part of it.
    """
    storage, given = dst.storage, src.storage
    known = dst.layout
    if given.is_mutable or known.shape != storage.shape or not known.is_compact or not known.is_on_chip:
        return False
    elements = memory_of(src)
    if elements.shape != storage.shape:
        squeezed = [n for n in elements.shape if n != 1]
        if squeezed != [n for n in storage.shape if n != 1]:
            return False
        elements = elements.reshape(storage.shape)
    storage.lend(elements)
    return True


def _part(form: Instruction, arrays: list[Any], mask: Any) -> Any:
    """Where a call writes its first result: booleans that broadcast over it, or None for everywhere."""
    own = form.written_where(*arrays)
    return mask if own is None else own if mask is None else mask & own


def _hand_over(behind: Lanes, form: Instruction, operands: Sequence[Any], arguments: tuple[Any, ...]) -> None:
    """Have a call computed behind the caller if it is large, or needs what is under way; else compute it."""
    reads = [operands[slot].storage for slot in form.read_slots]
    writes = [operands[slot].storage for slot in form.written_slots]
    if form.largest < LARGE and not behind.touches((*reads, *writes)):
        form.compute(*arguments)
    else:
        behind.submit(form.compute, arguments, reads, writes)


def fits(mask: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Whether a mask broadcasts over a shape without growing it."""
    ends = zip(reversed(mask.shape), reversed(shape), strict=False)
    return mask.ndim <= len(shape) and all(m in (1, n) for m, n in ends)


def _compute(session: Session, form: Any, arrays: list[Any], values: tuple[Any, ...]) -> None:
    if not form.registers:
        form.compute(*arrays, *values)
        return
    warning = form.compute(*arrays, *values, session.registers[form.registers])
    if warning:
        session.warn(f"{form.name}: {warning}")


def _compute_masked(
    session: Session, form: Instruction, arrays: list[Any], values: tuple[Any, ...], mask: Any
) -> None:
    dst = arrays[0]
    kept = dst.copy()
    _compute(session, form, arrays, values)
    np.copyto(dst, kept, where=~np.broadcast_to(mask, dst.shape))


def _fill_unwritten(session: Session, view: View, mask: Any = None, *, is_told: bool = True) -> None:
    """Put the value of never-written elements where the storage has any, and tell if `view` reads some.

    Where a mask over the result fits the view, what it leaves out counts as not read.
    """
    settle_elements()
    storage = view.storage
    if storage.place is not None:
        storage.place.recall(storage)
    if storage.data is None:
        storage.own()
    state = storage.written.of(view)
    if state == "all":
        return
    assert storage.data is not None
    value = unwritten_value(storage.dtype)
    storage.data.reshape(-1)[~storage.written.bits] = value
    if mask is not None and fits(mask, view.layout.shape) and storage.written.of(view, mask) == "all":
        return
    if not is_told:
        return
    program = session.program
    program.marks.unwritten.append(Unwritten(len(program) - 1, storage.number, view.layout, state))
    name = storage.name or name_of(view, user_frame()) or "a tensor"
    share = "was never written" if state == "none" else "was written in part only"
    session.warn(
        f"reads {name}: {view.layout}, which {share}; unwritten elements read as {value}", key="unwritten"
    )
