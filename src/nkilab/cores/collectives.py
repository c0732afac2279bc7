"""Collectives where programs run: what the ranks of a group bring, and what each of them gets.

Equal programs of the ranks meet: the first of each, the second of each. A group meets in the order of its
calls; whoever comes with another call, another shape or another type is told where all of them stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from ..errors import RuleError
from ..execute import elements_of, put
from ..isa.declare import Instruction
from ..isa.varying_collectives import RECEIVED, Varying, receive
from ..tiles.convert import cast, store
from ..tiles.tile import View, settle_elements
from ..trace.session import Session
from .grid import ProgramGrid
from .schedule import Schedule, Wait

ADVICE = "let all ranks of a group come to the same collectives, in the same order"
PAGE = "nki.collectives"


class Brought(Struct):
    """What a rank brings to a collective, and what it gets to take its part of."""

    row: int  # of the rank's program
    form: Instruction  # of the collective
    # the elements of what is read, which may be under way; none where only shapes are known
    arrays: tuple[np.ndarray, ...] = ()
    combined: object = None  # what the group makes of the arrays of all ranks, once all have come


def gather(
    session: Session, schedule: Schedule, program_grid: ProgramGrid, wait_for: Callable[..., Wait], form: Any,
    operands: Sequence[Any], values: tuple[Any, ...],
) -> list[Wait]:  # fmt: skip
    """Run one rank's part of a collective; returns what each rank of the group brought.

    Raises:
        RuleError: if ranks do not agree, or a rank of the group runs elsewhere.
    """
    members = values[0]
    group = members[1:]
    absent = program_grid.absent(group)
    if absent:
        raise RuleError(
            f"the group {list(group)} names rank {absent[0]}, which runs in another task of the executor",
            hint="pass launch the groups= of ranks that run together",
            source=PAGE,
        )
    reads = [operands[slot] for slot in form.read_slots]
    arrays: tuple[np.ndarray, ...] = ()
    if session.has_data:
        arrays = tuple(elements_of(session, view) for view in reads)
        if isinstance(form, Varying):
            arrays = (*arrays, _counts(session, form, operands[2]))
    wait = wait_for(session, form, ("collective", group, session.rank), _what(form, group),
                    Brought(len(session.program) - 1, form, arrays))  # fmt: skip
    parties = program_grid.of_group(group, session.rank)
    wait = Wait(wait.key, wait.what, wait.called, wait.where, wait.letter, parties, ADVICE, PAGE)
    met = schedule.meet(
        program_grid.of(session.together.own_rank, session.rank), wait, partial(_combine, form, members)
    )
    if session.has_data:
        written = [operands[slot].storage.written for slot in form.written_slots]
        if session.threads is not None and session.threads.touches(written):
            session.threads.drain()
        _receive(form, operands, form.part(met[members[0]].letter.combined, *values))
    return met


def _combine(form: Any, members: tuple[int, ...], met: list[Wait]) -> None:
    """Let the ranks of a group, once all have come, have what they make together: once, by the last to come.

    Raises:
        RuleError: if they do not agree.
    """
    _check_agreement(form, members, met)
    brought = [wait.letter for wait in met]
    settle_elements()
    arrays = [tuple(array.copy() for array in one.arrays) for one in brought]
    combined = form.combined(arrays) if brought[0].arrays else None
    for one in brought:
        one.combined = combined


def _what(form: Any, group: tuple[int, ...]) -> str:
    layout = form.layouts[form.read_slots[0]]
    return f"{form.name} of {layout.dtype}{list(layout.shape)} with ranks {list(group)}"


def _check_agreement(form: Any, members: tuple[int, ...], met: list[Wait]) -> None:
    """Refuse a collective that ranks of a group call in different ways.

    Raises:
        RuleError: with where every rank of the group stands.
    """
    place, *group = members
    mine = _terms(form)
    for rank, wait in zip(group, met, strict=True):
        theirs = mine if wait.letter.form is form else _terms(wait.letter.form)
        if theirs != mine:
            name = next((k for k in mine if theirs.get(k) != mine[k]), "the call")
            other = theirs.get(name, "absent")
            error = RuleError(
                f"{name} is {mine[name]} in rank {group[place]} and {other} in rank {rank}",
                hint=ADVICE,
                source=PAGE,
            )
            descriptions = [f"rank {r} is at {w.where} in {w.what}" for r, w in zip(group, met, strict=True)]
            raise error.located(met[place].where, form.name, descriptions)


def _terms(form: Any) -> dict[str, str]:
    """What the ranks of a collective agree on, in words."""
    terms = {"the call": form.name}
    for name, value in zip(form.attributes, form.attribute_values, strict=True):
        # of a ring, each pair of neighbours lies in its own way
        if name != "span":
            terms[name] = str(value)
    skipped = {"dst"} if isinstance(form, Varying) else set()
    for (name, spec), layout in zip(form.operands.items(), form.layouts, strict=True):
        if name in skipped or name == "metadata":
            continue
        terms[name] = f"{layout.dtype}{list(layout.shape)} in {layout.memory}"
        if isinstance(form, Varying) and not spec.is_written:
            terms[name] = f"{layout.dtype}"
    return terms


def _counts(session: Session, form: Any, metadata: Any) -> np.ndarray:
    """The metadata of a collective, whose row of received counts may not be written yet."""
    mask = np.ones(metadata.layout.shape, np.bool_)
    mask[..., RECEIVED, :] = False
    return elements_of(session, metadata, mask)


def _receive(form: Any, operands: Sequence[View], result: Any) -> None:
    """Write what a rank gets."""
    if isinstance(form, Varying):
        _, dst, metadata = operands
        received = np.zeros(dst.layout.shape, np.bool_)

        def write(elements: np.ndarray, counts: np.ndarray) -> None:
            received[...] = receive(form, elements, counts, result)

        counted = np.zeros(metadata.layout.shape, np.bool_) if form.recv_counts_known else None
        put(dst, lambda elements: put(metadata, lambda counts: write(elements, counts), counted), received)
        return
    (slot,) = form.written_slots
    dst = operands[slot]
    if "op" in form.attributes:
        # what is reduced is float32 yet
        put(dst, lambda elements: store(elements, result, dst.layout.dtype))
    else:
        put(dst, lambda elements: cast(elements, dst.layout.dtype, result, dst.layout.dtype))
