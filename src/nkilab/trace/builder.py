"""From a call to a row: look the form up, resolve the values, append, compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import NkilabError, RuleError, UseError
from ..isa.declare import NUMBER, Instruction
from ..tiles.tile import PSUM, View
from .session import Session
from .source import name_of, place_of, user_frame


def _stand_in(operand: Any) -> Any:
    """What a form sees of an operand that is no view: None, or the marker of a number."""
    if operand is None:
        return None
    if isinstance(operand, int | float | np.generic):
        return NUMBER
    raise UseError(
        f"an operand is of type {type(operand).__name__}; operands are tensors of the kernel or numbers",
        hint="pass arrays as arguments of the kernel",
    )


def record(
    session: Session,
    cls: type[Instruction],
    operands: Sequence[Any],
    attributes: tuple[Any, ...],
    values: tuple[Any, ...],
    mask: Any = None,
    where: tuple[str, int] | None = None,
) -> None:
    """Append one call to the program and compute it where there are data.

    Args:
        session: the launch.
        cls: the instruction.
        operands: per declared operand a view, a number or None.
        attributes: per declared attribute its canonical value.
        values: per declared value what the call gives.
        mask: boolean array over dst, where to write; None for everywhere.
        where: file and line of the call; the nearest frame of the user's if None.

    Raises:
        KernelError: completed with the user's line and the operands.
    """
    if session.pending is not None:
        session.flush()
    if where is None:
        frame = user_frame(1)
        where = (frame.f_code.co_filename, frame.f_lineno)
    session.where = where
    try:
        layouts = [o.layout if isinstance(o, View) else _stand_in(o) for o in operands]
        key = (cls, *layouts, *attributes)
        known = session.forms.get(key)
        if known is None:
            known = _new_form(session, cls, layouts, attributes, key)
        form, number = known
        views = [o for o in operands if isinstance(o, View)]
        if cls.call_rules:
            _check_values(form, values)
        values = cls.resolve(form, views, values)
        for (name, spec), operand in zip(cls.operands.items(), operands, strict=True):
            if spec.is_written and isinstance(operand, View) and not operand.storage.is_mutable:
                raise UseError(
                    f"{name} is an input of the kernel, which may not be written",
                    hint="write to a tensor of its own, made with nl.ndarray(..., buffer=nl.shared_hbm)",
                    key="err_cannot_update_immutable_parameter",
                )
    except NkilabError as error:
        raise located(error, cls.name, cls, operands) from None
    _append(session, form, number, operands, views, values, where)
    if session.execute is not None:
        session.execute(session, form, operands, values, mask)
    _follow_accumulation(form, operands, values)


def check_form(
    session: Session, cls: type[Instruction], operands: Sequence[Any], attributes: tuple[Any, ...]
) -> None:
    """Look the form of a call up, or make it, without recording a row.

    Raises:
        KernelError: completed with the user's line and the operands.
    """
    try:
        layouts = [o.layout if isinstance(o, View) else _stand_in(o) for o in operands]
        key = (cls, *layouts, *attributes)
        if key not in session.forms:
            _new_form(session, cls, layouts, attributes, key)
    except NkilabError as error:
        raise located(error, cls.name, cls, operands) from None


def _new_form(
    session: Session, cls: type[Instruction], layouts: Sequence[Any], attributes: tuple[Any, ...], key: Any
) -> tuple[Instruction, int]:
    form = cls(session.machine, layouts, attributes)
    known = session.forms[key] = (form, len(session.program.forms))
    session.program.forms.append(form)
    return known


def _check_values(form: Instruction, values: tuple[Any, ...]) -> None:
    named = dict(zip(form.values, values, strict=True))
    for r in form.call_rules:
        if not r.holds(form, **named):
            raise RuleError(r.sentence, hint=r.hint, source=r.source)


def _append(
    session: Session,
    form: Instruction,
    number: int,
    operands: Sequence[Any],
    views: list[View],
    values: tuple[Any, ...],
    where: tuple[str, int],
) -> None:
    program = session.program
    row = len(program.form_column)
    program.form_column.append(number)
    program.line_column.append(program.line_number(*where))
    program.position_column.append(session.position)
    if len(views) != len(operands):
        values = values + tuple([o for o in operands if o is not None and not isinstance(o, View)])
    program.value_column.append(program.value_number(values) if values else 0)
    for view in views:
        program.storage_column.append(view.storage.number)
        program.offset_column.append(view.offset)
        view.storage.last_row = row
    program.operand_start.append(len(program.storage_column))


def _follow_accumulation(form: Instruction, operands: Sequence[Any], values: tuple[Any, ...]) -> None:
    """Keep, per PSUM storage, which elements a matmul wrote since anything else did."""
    for spec, operand in zip(form.operands.values(), operands, strict=True):
        if spec.is_written and isinstance(operand, View) and operand.storage.memory == PSUM:
            if form.accumulates:
                operand.storage.accumulated.add(operand)
            else:
                operand.storage.accumulated.remove(operand)


def located(error: NkilabError, called: str, cls: type[Instruction], operands: Sequence[Any]) -> NkilabError:
    """`error` completed with the user's line and one line per operand."""
    frame = user_frame(2)
    facts = []
    for name, operand in zip(cls.operands, operands, strict=True):
        if isinstance(operand, View):
            held = operand.storage.name or name_of(operand, frame)
            facts.append(f"{name} = {held + ': ' if held else ''}{operand.layout}")
        elif operand is not None:
            facts.append(f"{name} = {operand!r}")
    return error.located(place_of(frame), called, facts)
