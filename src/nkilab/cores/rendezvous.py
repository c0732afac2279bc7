"""Rows at which programs meet: what is sent, what is received, and what partners must agree on.

A program sends by computing the instruction into a tile of nobody's, and receives by computing it from the
tile that the partner filled: src may be dst, and the sender is warned of what it never wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..errors import NkilabError, RuleError
from ..isa.between_cores import CoreBarrier, Sendrecv
from ..isa.collectives import Collective
from ..isa.declare import REGISTRY, Instruction
from ..tiles.tile import HBM, Layout, Storage, View, settle_elements, whole_layout
from ..trace.builder import located
from ..trace.program import Program
from ..trace.session import Execute, Session
from ..trace.source import name_of, user_frame
from .collectives import gather
from .grid import ProgramGrid
from .schedule import Schedule, Wait


class Rendezvous(Struct, frozen=True):
    """A rendezvous that took place."""

    name: str  # of the instruction
    rows: tuple[int, ...]  # of it, one in each program that took part
    programs: tuple[int, ...] = ()  # those programs, as `ProgramGrid` numbers them; all if not given


class _Letter(Struct, frozen=True):
    """What a program brings to a rendezvous: its row, and of a sendrecv its form and what it sends."""

    row: int
    form: Instruction
    sent: View | None = None


def joined(
    schedule: Schedule, program_grid: ProgramGrid, execute: Execute | None, all_rendezvous: list[Rendezvous]
) -> Execute:
    """What computes the rows of programs that are not alone.

    Args:
        schedule: of all programs.
        program_grid: who sits where in it.
        execute: computes a row; None where only shapes are known.
        all_rendezvous: grows by every rendezvous.
    """

    def step(
        session: Session, form: Instruction, operands: Sequence[Any], values: tuple[Any, ...], mask: Any
    ) -> None:
        meet = _RENDEZVOUS.get(type(form))
        if meet is None:
            if execute is not None:
                execute(session, form, operands, values, mask)
            return
        if isinstance(form, CoreBarrier) and len(form.cores) == 1:
            # a rank of one core waits for nobody
            return
        if meet is gather and program_grid.is_one_for_all:
            return
        parties = program_grid.of_rank(session.together.own_rank)
        try:
            if meet is gather:
                parties = program_grid.of_group(values[0][1:], session.rank)
                met = gather(session, schedule, program_grid, _wait, form, operands, values)
            else:
                met = meet(session, schedule, parties, execute, form, operands, values)
        except NkilabError as error:
            raise located(error, form.name, type(form), operands, session.where) from None
        session.catch_up()
        if parties[0] == program_grid.of(session.together.own_rank, session.rank):
            all_rendezvous.append(Rendezvous(form.name, tuple(wait.letter.row for wait in met), parties))

    return step


def _exchange(
    session: Session, schedule: Schedule, parties: tuple[int, ...], execute: Execute | None, form: Any,
    operands: Sequence[Any], values: tuple[Any, ...],
) -> list[Wait]:  # fmt: skip
    """Send src to the other program and receive its src into dst."""
    src, dst = operands
    send_to, recv_from, pipe_id = values
    partner = 1 - session.rank
    for name, answer in (("send_to_rank", send_to), ("recv_from_rank", recv_from)):
        if answer != partner:
            raise RuleError(
                f"{name} is {answer}; in program {session.rank} of 2 it is {partner}",
                hint="pass 1 - nl.program_id(0)",
                source=Sendrecv.source,
            )
    sent = None
    if execute is not None:
        sent = _tile_of_nobody(form.src)
        execute(session, form, [src, sent], values, None)
    row = len(session.program) - 1
    what = f"sendrecv with pipe_id {pipe_id}"
    key = ("sendrecv", session.together.own_rank, pipe_id)
    wait = _wait(session, form, key, what, _Letter(row, form, sent), parties)
    met = _meet(session, schedule, parties, wait, partial(_check_agreement, form, partner))
    if execute is not None:
        theirs: Any = met[partner].letter
        execute(session, form, [theirs.sent, dst], values, None)
    return met


def _check_agreement(mine: Any, partner: int, met: list[Wait]) -> None:
    """Refuse an exchange whose two sides differ."""
    theirs, where = met[partner].letter.form, met[partner].where
    for own, partners in ((mine.dst, theirs.src), (mine.src, theirs.dst)):
        if own.shape != partners.shape or own.dtype is not partners.dtype:
            raise RuleError(
                f"src and dst are {own.dtype}{list(own.shape)}; in program {partner}, at {where}, "
                f"they are {partners.dtype}{list(partners.shape)}",
                hint="exchange tiles of one shape and type",
                source=f"{Sendrecv.source}, constraints",
            )
    if mine.dma_engine != theirs.dma_engine:
        raise RuleError(
            f"dma_engine is {mine.dma_engine}; in program {partner}, at {where}, it is {theirs.dma_engine}",
            hint="choose one for both programs",
            source=f"{Sendrecv.source}, dma_engine",
        )


def _tile_of_nobody(like: Layout) -> View:
    """A tile in no program, whose elements are not written yet."""
    storage = Storage(-1, "", like.shape, like.dtype, like.memory, "tile", 0)
    return View(storage, 0, whole_layout(storage))


def _gather(
    session: Session, schedule: Schedule, parties: tuple[int, ...], execute: Execute | None, form: Any,
    operands: Sequence[Any], values: tuple[Any, ...],
) -> list[Wait]:  # fmt: skip
    """Wait until all programs came to a barrier on the same memory."""
    (data,) = operands
    name = data.storage.name or name_of(data, user_frame())
    key: Any = next((key for key, storage in session.shared.items() if storage is data.storage), None)
    if key is None and data.layout.memory == HBM:
        raise RuleError(
            "data is in private_hbm, which the other program does not see",
            hint="allocate it with buffer=nl.shared_hbm",
            source=CoreBarrier.source,
        )
    # of a tile in sbuf each program has its own
    where = ("sbuf", data.layout.shape) if key is None else key
    what = f"core_barrier on {name + ': ' if name else ''}{data.layout}"
    letter = _Letter(len(session.program) - 1, form)
    key = ("core_barrier", session.together.own_rank, where)
    return _meet(session, schedule, parties, _wait(session, form, key, what, letter, parties))


def _meet(
    session: Session, schedule: Schedule, parties: tuple[int, ...], wait: Wait,
    agree: Callable[[list[Wait]], None] | None = None,
) -> list[Wait]:  # fmt: skip
    """Wait for the other program, once everything that this one computed is there."""
    settle_elements()
    return schedule.meet(parties[session.rank], wait, agree)


def _wait(
    session: Session, form: Instruction, key: Any, what: str, letter: Any,
    parties: tuple[int, ...] | None = None,
) -> Wait:  # fmt: skip
    filename, lineno = session.where
    return Wait(key, what, form.name, f"{Path(filename).name}:{lineno}", letter, parties)


_RENDEZVOUS: dict[type[Instruction], Callable[..., list[Wait]]] = {
    Sendrecv: _exchange, CoreBarrier: _gather,
    **{cls: gather for cls in REGISTRY.values() if issubclass(cls, Collective)},
}  # fmt: skip


def note_rendezvous(
    programs: Sequence[Program], program_grid: ProgramGrid, all_rendezvous: Sequence[Rendezvous]
) -> None:
    """Tell programs what they are called, which core runs them, and whom they met."""
    if len(programs) == 1:
        return
    for number, (program, title) in enumerate(zip(programs, program_grid.names, strict=True)):
        program.title = title.rstrip(",")
        program.core = (
            program_grid.ranks[number // program_grid.cores] * program_grid.cores
            + number % program_grid.cores
        )
    # whoever comes last goes on at once, so that a rendezvous may be noted behind one that it came to later
    rows: list[list[int]] = [[] for _ in programs]
    for rendezvous in all_rendezvous:
        for number, row in zip(rendezvous.programs, rendezvous.rows, strict=True):
            rows[number].append(row)
    place = [{row: nth for nth, row in enumerate(sorted(rows_here))} for rows_here in rows]
    for program, rows_here in zip(programs, rows, strict=True):
        program.met.extend(() for _ in rows_here)
    for rendezvous in all_rendezvous:
        parts = list(zip(rendezvous.programs, rendezvous.rows, strict=True))
        who = tuple((number, place[number][row]) for number, row in parts)
        for number, row in parts:
            programs[number].met[place[number][row]] = who
