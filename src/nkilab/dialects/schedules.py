"""Dependences between named instructions, which `kernel.with_schedule` adds.

Instructions run here in program order, which keeps every value; a schedule is checked and changes no result.

Source: NKI guide, How to Use the NKI Scheduling APIs.
"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from ..errors import UseError, did_you_mean
from ..trace.session import Session

# consumers and the producers that each runs after
Schedule = tuple[tuple[str, tuple[str, ...]], ...]
_NAMES = "names of instructions"


def as_schedule(value: Any) -> Schedule:
    """A list of pairs (consumer, producer or list of producers), by the `name=` of instructions.

    Raises:
        UseError: if it is none, or its edges make a circle.
    """
    edges = []
    for pair in value if isinstance(value, list | tuple) else (value,):
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise UseError(f"an edge is {pair!r}; it must be a pair: consumer, producer or list of producers")
        consumer, producers = pair
        producers = tuple(producers) if isinstance(producers, list | tuple) else (producers,)
        if not all(isinstance(name, str) for name in (consumer, *producers)):
            raise UseError(f"an edge is {pair!r}; it must hold names of instructions, as name= gives them")
        edges.append((consumer, producers))
    graph: TopologicalSorter[str] = TopologicalSorter()
    for consumer, producers in edges:
        graph.add(consumer, *producers)
    try:
        graph.prepare()
    except CycleError as error:
        raise UseError(f"the schedule goes round in a circle: {' -> '.join(error.args[1])}") from None
    return tuple(edges)


def note_name(session: Session, name: str, row: int) -> None:
    """Remember the row of an instruction that has a name."""
    session.keyed.setdefault(_NAMES, {}).setdefault(name, row)
    marks = session.program.marks
    if marks.names.setdefault(name, row) != row:
        marks.odd.append(("name", f"another instruction is called {name}", row))


def check_schedule(schedule: Schedule, sessions: Sequence[Session]) -> None:
    """Hold the names of a schedule against those of the instructions that the programs of a launch ran.

    Raises:
        UseError: if a name is none.
    """
    known = {name for session in sessions for name in session.keyed.get(_NAMES, {})}
    for consumer, producers in schedule:
        unknown = next((name for name in (consumer, *producers) if name not in known), None)
        if unknown is not None:
            raise UseError(
                f"with_schedule names {unknown}; no instruction of the kernel has this name",
                hint=did_you_mean(unknown, sorted(known), "give the instruction name="),
            )
        for session in sessions:
            marks = session.program.marks
            rows = [marks.names[name] for name in producers if name in marks.names]
            marks.edges += [(marks.names[consumer], row) for row in rows if consumer in marks.names]
