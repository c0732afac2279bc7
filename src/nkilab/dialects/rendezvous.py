"""Calls at which the programs of a launch meet."""

from __future__ import annotations

from typing import Any

from ..errors import RuleError
from ..isa.between_cores import CoreBarrier, Sendrecv
from ..isa.declare import Instruction
from ..trace.builder import located, record
from ..trace.session import Known, Session
from ..trace.source import Site

RENDEZVOUS_CLASSES = frozenset({Sendrecv, CoreBarrier})


def rendezvous_finish(
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], extras: tuple[Any, ...], where: Site | None = None, known: Known | None = None,
) -> None:  # fmt: skip
    """Append a row at which programs meet, if this launch has those that it names.

    Raises:
        RuleError: if it has not, completed with the user's line and the operands.
    """
    count = session.together.count
    error = None
    if cls is Sendrecv and count == 1:
        error = RuleError(
            "it exchanges tiles with another program; this launch has one",
            hint="launch on two cores, kernel[2](...), or call it only if nl.num_programs(0) is 2",
            source=cls.source,
        )
    elif cls is CoreBarrier and attributes[0] != tuple(range(count)):
        runs = "one program, on core 0" if count == 1 else f"{count} programs"
        error = RuleError(
            f"cores is {attributes[0]}; this launch has {runs}",
            hint="launch on two cores, kernel[2](...), or pass cores=(0,)" if count == 1 else "pass (0, 1)",
            source=cls.source,
        )
    if error is not None:
        raise located(error, cls.name, cls, operands)
    record(session, cls, operands, attributes, values, None, where, known)
