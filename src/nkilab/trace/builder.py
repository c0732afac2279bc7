"""From a call to a row: look the form up, resolve the values, append, compute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import NkilabError, RuleError, UseError, shown
from ..isa.declare import NUMBER, ON_CHIP, Instruction
from ..tiles.coverage import Coverage
from ..tiles.dtypes import NUMBERS
from ..tiles.indirect import OutOfBoundsError, check_scalars, numbers_in, rows_of, scalar_values, settled
from ..tiles.tile import SEQUENCER, Storage, View
from .affine import Affine
from .origins import written_views
from .session import Known, Session
from .source import name_of, place_of, user_frame, user_site

# In `Session.keyed`: forms by what they are made from, which launches on one machine share; else each makes
# its own.
FORMS = "forms"


class NothingToWriteError(UseError):
    """Something that was never written would be written to an input of the kernel."""


def stand_in(operand: object) -> Any:
    """What a form sees of an operand that is no view: None, or the marker of a number.

    Raises:
        UseError: if it is something else.
    """
    if operand is None:
        return None
    if isinstance(operand, NUMBERS):
        return NUMBER
    raise no_tensor("an operand", operand, "operands are tensors of the kernel or numbers")


def no_tensor(name: str, value: object, allowed: str) -> UseError:
    """The error about a value that stands where a tensor of the kernel belongs, with the way to make it one.

    Args:
        name: of the operand, for messages.
        value: of the host, or a tensor of the other spelling.
        allowed: what may stand there, as a clause.
    """
    # a pattern outside its storage says so when it is asked for anything
    getattr(value, "layout", None)
    hint = ""
    if isinstance(value, View):
        hint = "take nki.jit, nki.language and nki.isa from one package, nki or neuronxcc.nki"
    elif isinstance(value, list | tuple):
        hint = "pass np.array(...) of it to the kernel"
    elif hasattr(value, "__array__"):
        hint = "pass arrays as arguments of the kernel"
    return UseError(f"{name} is of type {type(value).__name__}; {allowed}", hint=hint)


def record(
    session: Session, cls: type[Instruction], operands: Sequence[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], mask: Any = None, where: tuple[str, int] | None = None,
    known: Known | None = None,
) -> int:  # fmt: skip
    """Append one call to the program and compute it where there are data.

    Args:
        session: the launch.
        cls: the instruction.
        operands: per declared operand a view, a number or None.
        attributes: per declared attribute its canonical value.
        values: per declared value what the call gives.
        mask: boolean array over dst, where to write; None for everywhere.
        where: file and line of the call; the nearest frame of the user's if None.
        known: the form of the call and its number, if the caller looked them up; see `Session.forms`.

    Returns:
        The number of the row.

    Raises:
        KernelError: completed with the user's line and the operands.
    """
    if session.pending is not None:
        session.flush()
    session.where = where = where or user_site(1)
    if known is not None and known[0].is_plain and mask is None:
        target = operands[cls.result_slot].storage
        if target.is_mutable and target.place is None:
            row = session.program.append_numbers(known[1], where, session.position, 0, operands)
            if session.execute is not None:
                session.execute(session, known[0], operands, (), None)
            return row
    try:
        operands = _spread(cls, operands) if cls.list_name else operands
        form, number = known or _form_of(session, cls, operands, attributes)
        named = views = operands if form.has_views_only else [operands[i] for i in form.view_slots]
        if mask is not None or form.is_indirect:
            session.note_row(len(session.program), mask, operands)
        if form.is_indirect:
            named = [*views, *[index.source for v in views for index in v.indices]]
            operands = settle(session, form, operands)
            views = [operands[i] for i in form.view_slots]
        if values or cls.call_rules or cls.resolves:
            values = _resolved(session, form, operands, views, values)
        for slot in form.written_slots:
            if not operands[slot].storage.is_mutable:
                _write_input(session, form, slot, operands)
    except NkilabError as error:
        raise located(error, cls.name, cls, operands, where) from None
    call_values = values if form.has_views_only else (*values, *[operands[i] for i in form.number_slots])
    row = session.program.append(number, where, session.position, call_values, named)
    if session.execute is not None:
        session.execute(session, form, operands, values, mask)
        _spread_written(form, operands)
    if form.psum_slots:
        _note_psum(cls, [operands[slot] for slot in form.psum_slots])
    return row


def _spread_written(form: Instruction, operands: Sequence[Any]) -> None:
    """Have tiles at addresses that overlap see what a call wrote."""
    for slot in form.written_slots:
        place = operands[slot].storage.place
        if place is not None:
            place.space.spread(operands[slot])


def record_product(
    session: Session, number: int, operands: Sequence[View], written: Coverage, where: tuple[str, int] | None
) -> None:
    """Append a matmul of known form where only shapes are known.

    Args:
        session: the launch.
        number: of the form, whose operands are views at fixed addresses.
        operands: the first is written.
        written: what of its storage matmuls wrote: all, and this one adds, or nothing.
        where: file and line of the call; the nearest frame of the user's if None.
    """
    if session.pending is not None:
        session.flush()
    session.where = where = where or user_site(1)
    program = session.program
    flag = program.flag_number(written.is_full)
    program.append_numbers(number, where, session.position, flag, operands)
    if not written.is_full:
        written.add(operands[0])


def _note_psum(cls: type[Instruction], written: list[View]) -> None:
    """Note per PSUM storage which elements a matmul wrote since anything else did."""
    for view in written:
        if cls.accumulates:
            view.storage.accumulated.add(view)
        else:
            view.storage.accumulated.remove(view)
            view.storage.initialised.add(view)


def settle(session: Session, form: Instruction, operands: Sequence[Any]) -> list[Any]:
    """Operands at the addresses that their run-time offsets have by now; vectors of indices stay.

    Where only shapes are known, offsets count as 0: dependences take such accesses for the whole storage. An
    offset out of bounds stays in place if the instruction skips those, so that `execute` leaves the call out.

    Raises:
        OutOfBoundsError: if an offset is out of bounds and the instruction does not skip those.
    """
    skips = getattr(form, "oob_mode", "error") == "skip"
    placed: list[Any] = list(operands)
    for slot in form.view_slots:
        if operands[slot].indices:
            placed[slot] = _settled(operands[slot], session.has_data, skips)
    return placed


def _settled(view: View, has_data: bool, skips: bool) -> View:
    """One operand of `settle`; as it is if its offset is out of bounds and the instruction skips those."""
    if not has_data:
        return settled(view, None)
    values = scalar_values(view)
    try:
        check_scalars(view, values)
    except OutOfBoundsError:
        if not skips:
            raise
        return view
    placed = settled(view, values)
    rows_of(placed, skips=skips)
    return placed


def _spread(cls: type[Instruction], operands: Sequence[Any]) -> Sequence[Any]:
    """Operands with the tiles of the list that stands last, one after another."""
    *fixed, tiles = operands
    if not isinstance(tiles, list | tuple):
        raise UseError(f"{cls.list_name} is of type {type(tiles).__name__}; it must be a list of tensors")
    return [*fixed, *tiles]


def _form_of(
    session: Session, cls: type[Instruction], operands: Sequence[Any], attributes: tuple[Any, ...]
) -> Known:
    """The form of a call and its number, made and checked if it is new."""
    layouts = [o.layout if isinstance(o, View) else stand_in(o) for o in operands]
    key = (cls, *layouts, *attributes)
    known = session.forms.get(key)
    if known is None:
        forms_by_key = session.keyed.get(FORMS, {})
        form = forms_by_key.get(key)
        if form is None:
            form = forms_by_key[key] = cls(session.machine, layouts, attributes)
        known = session.forms[key] = (form, len(session.program.forms))
        session.program.forms.append(form)
    return known


def _write_input(session: Session, form: Instruction, slot: int, operands: Sequence[Any]) -> None:
    """Give an input elements of its own, where the spelling writes inputs in place.

    Raises:
        UseError: if it does not, or what would be written to the input was never written itself.
    """
    storage, names = operands[slot].storage, list(form.operands)
    source = next((s for s in form.read_slots if _is_unwritten(session, operands[s].storage)), None)
    hint = "write to a tensor of its own, made with nl.ndarray(..., buffer=nl.shared_hbm)"
    if source is not None:
        hint = f"exchange {names[slot]} and {names[source]}: {form.name} writes to {names[slot]}"
    if storage.host_array is None:
        raise (UseError if source is None else NothingToWriteError)(
            f"{names[slot]} is an input of the kernel, which may not be written", hint=hint,
            key="err_cannot_update_immutable_parameter",
        )  # fmt: skip
    if source is not None:
        raise NothingToWriteError(
            f"{names[slot]} is an input of the kernel, and nothing has written {names[source]}, which would "
            "take its place",
            hint=hint, source="NKI simulator guide, uninitialized memory detection",
        )  # fmt: skip
    storage.copy_on_write()
    session.changed_inputs.append(storage)


def _is_unwritten(session: Session, storage: Storage) -> bool:
    """Whether nothing has written to a tensor; where nothing is computed, rows tell of tiles on chip."""
    if storage.place is not None or storage.written.is_full:
        return False
    if session.has_data:
        return storage.written.is_empty
    # another core may have written to a tensor in HBM
    return storage.memory in ON_CHIP and not written_views(session.program, storage.number)


def check_form(
    session: Session, cls: type[Instruction], operands: Sequence[Any], attributes: tuple[Any, ...]
) -> Known:
    """The form of a call and its number, looked up or made, without recording a row.

    Raises:
        KernelError: completed with the user's line and the operands.
    """
    try:
        return _form_of(session, cls, _spread(cls, operands) if cls.list_name else operands, attributes)
    except NkilabError as error:
        raise located(error, cls.name, cls, operands) from None


def _resolved(
    session: Session, form: Instruction, operands: Sequence[Any], views: Sequence[View],
    values: tuple[Any, ...],
) -> tuple[Any, ...]:  # fmt: skip
    """Values as they count: what registers hold, 0 where only shapes are known; rules are kept."""
    for value in values:
        if isinstance(value, View) or type(value) is Affine:
            values = tuple(_number(session, v) for v in values)
            break
    if form.call_rules:
        _check_values(form, operands, values)
    return type(form).resolve(form, views, values) if form.resolves else values


def _number(session: Session, value: object) -> object:
    """A value of a call as a number: what a register holds, or an index in this iteration."""
    if type(value) is Affine:
        return value.settled()
    return _register_value(session, value) if isinstance(value, View) else value


def _register_value(session: Session, register: View) -> int:
    if register.layout.memory != SEQUENCER:
        raise UseError(
            f"a value is {register.layout}; it must be a number or a register",
            hint="load it into a register with nisa.register_load",
        )
    return int(numbers_in(register)[0]) if session.has_data else 0


def _check_values(form: Instruction, operands: Sequence[Any], values: tuple[Any, ...]) -> None:
    named = dict(zip(form.values, values, strict=True))
    for r in form.call_rules:
        numbers = {}
        if r.numbers:
            by_name = dict(zip(form.operands, operands, strict=True))
            numbers = {n: None if isinstance(by_name[n], View) else by_name[n] for n in r.numbers}
        if not r.holds(form, **named, **numbers):
            raise RuleError(r.sentence, hint=r.hint, source=r.source)


def located(
    error: NkilabError, called: str, cls: type[Instruction], operands: Sequence[Any],
    where: tuple[str, int] | None = None,
) -> NkilabError:  # fmt: skip
    """`error` completed with the user's line (that of the nearest frame if None) and one line per operand."""
    frame = user_frame(2)
    facts = []
    for name, operand in zip(cls.slots(len(operands)), operands, strict=True):
        if isinstance(operand, View):
            tile_name = operand.storage.name or name_of(operand, frame)
            facts.append(f"{name} = {tile_name + ': ' if tile_name else ''}{operand.layout}")
        elif operand is not None:
            text = shown(operand)
            facts.append(f"{name} {'is' if text.startswith('of type') else '='} {text}")
    return error.located(
        place_of(frame) if where is None else f"{Path(where[0]).name}:{where[1]}", called, facts
    )
