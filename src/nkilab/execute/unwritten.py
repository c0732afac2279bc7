"""What was never written and is read: what it reads as, whether it is told of, and where it comes out.

An instruction on chip hands unwritten elements on, without a word: those of its results that depend on them
count as unwritten in turn. A read is told of where more would depend on it than is unwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from ..isa.declare import Instruction
from ..tiles.dtypes import unwritten_value
from ..tiles.tile import View, array_of, settle_elements
from ..trace.run_notes import Unwritten
from ..trace.session import Session
from ..trace.source import name_of, user_frame


def fill_operands(
    session: Session, form: Instruction, operands: Sequence[Any], values: tuple[Any, ...], mask: Any,
    partly: Sequence[int],
) -> dict[int, np.ndarray] | None:  # fmt: skip
    """Fill what was never written of operands that are read, and tell of it unless it is handed on.

    Args:
        session: the launch; receives the warnings.
        form, operands, values: of the call.
        mask: booleans over the first result, where to write; None for everywhere.
        partly: slots of operands that are read, of storages that were written in part.

    Returns:
        Booleans over each operand that has unwritten elements, by slot: which. None where there are none, or
        the reads are told of.
    """
    can_hand_on = form.hands_on and not _is_seen_otherwise(form, operands, values)
    needed = missing = {}
    if can_hand_on or _leaves_out(form):
        written = {s: operands[s].storage.written for s in partly}
        missing = {s: w.missing(operands[s]) for s, w in written.items() if w.of(operands[s]) != "all"}
        needed = _needed(form, operands, values, missing)
    is_told = not (can_hand_on and all(_is_handed_on(form, s, missing[s], n) for s, n in needed.items()))
    for slot in partly:
        fill(session, operands[slot], mask, is_told=is_told and (slot in needed or slot not in missing))
    return None if is_told else needed or None


def _leaves_out(form: Instruction) -> bool:
    """Whether a call may leave elements of its operands out."""
    return type(form).used_elements is not Instruction.used_elements


def _needed(
    form: Instruction, operands: Sequence[View], values: tuple[object, ...], missing: dict[int, np.ndarray]
) -> dict[int, np.ndarray]:
    """What of the unwritten elements of operands a call uses, by slot; without the slots where it is none."""
    if not _leaves_out(form):
        return missing
    for slot in missing:
        if operands[slot].storage.data is None:
            operands[slot].storage.own()
    arguments = [array_of(o) if slot in form.read_slots else o for slot, o in enumerate(operands)]
    used, names = form.used_elements(*arguments, *values), list(form.operands)
    uses = {slot: used.get(names[slot], np.True_) for slot in missing}
    needed = {slot: m & uses[slot].reshape(m.shape if uses[slot].ndim else ()) for slot, m in missing.items()}
    return {slot: elements for slot, elements in needed.items() if elements.any()}


def _is_seen_otherwise(form: Instruction, operands: Sequence[Any], values: tuple[Any, ...]) -> bool:
    """Whether more than the operands that are read decides the results, or other tiles have their bytes."""
    reads_more = not form.keeps and (form.reads_dst or form.reads_result(values))
    return reads_more or any(operands[slot].storage.place for slot in form.view_slots)


def _is_handed_on(form: Instruction, slot: int, missing: np.ndarray, needed: np.ndarray) -> bool:
    """Whether all results get just what is needed of what an operand misses; not if it misses all."""
    if missing.all():
        return False
    axes = [spec.axes for spec in form.operands.values()]
    by_element = [_is_by_element(form, slot, result) for result in form.written_slots]
    if all(by_element):
        return True
    shares_partitions = all(axes[result][0] == "P" == axes[slot][0] for result in form.written_slots)
    is_missing, is_needed = (elements.reshape(len(missing), -1) for elements in (missing, needed))
    return shares_partitions and bool(is_missing[is_needed.any(1)].all())


def _is_by_element(form: Instruction, slot: int, result: int) -> bool:
    """Whether an element of a result depends on that at the same place of an operand alone."""
    specs = list(form.operands.values())
    return not form.mixes and specs[slot].axes == specs[result].axes


def hand_on(
    form: Instruction, operands: Sequence[Any], unwritten: dict[int, np.ndarray], part: np.ndarray | None
) -> None:
    """Count as unwritten what of the results was computed from what is.

    Args:
        form, operands: of the call.
        unwritten: what `fill_operands` returned.
        part: booleans over the first result, where it was written; None for everywhere.
    """
    for result, (slot, missing) in product(form.written_slots, unwritten.items()):
        shape = operands[result].layout.shape
        if _is_by_element(form, slot, result):
            bits = missing.reshape(shape)
        else:
            lanes = missing.reshape(len(missing), -1).any(1)
            bits = np.broadcast_to(lanes.reshape(-1, *(1,) * (len(shape) - 1)), shape)
        if part is not None and result == form.written_slots[0]:
            bits = bits & part
        operands[result].storage.written.remove_where(operands[result], bits)


def fits(mask: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Whether a mask broadcasts over a shape without growing it."""
    ends = zip(reversed(mask.shape), reversed(shape), strict=False)
    return mask.ndim <= len(shape) and all(m in (1, n) for m, n in ends)


def fill(session: Session, view: View, mask: np.ndarray | None = None, *, is_told: bool = True) -> None:
    """Put the value of never-written elements where the storage has any, and tell if `view` reads some.

    Where a mask over the result fits the view, what it leaves out counts as not read.
    """
    storage = view.storage
    if storage.place is not None:
        settle_elements()
        storage.place.recall(storage)
    state = storage.written.of(view)
    if state == "all":
        return
    settle_elements()
    if storage.data is None:
        storage.own()
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
