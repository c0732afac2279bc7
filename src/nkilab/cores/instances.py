"""Program instances of one core that meet: they take turns, where otherwise one runs after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..trace.session import TURNS, Session, tracing
from ..trace.source import user_site
from .schedule import Schedule, Wait

ADVICE = "let all program instances along the axes come to the same calls of all_reduce, in the same order"
SOURCE = "nki.language.all_reduce"


def run_in_turns(
    session: Session, instances: Sequence[tuple[int, ...]], body: Callable[[], Any]
) -> list[Any]:
    """Run the instances of one core, each until it meets others; returns what each returns.

    Args:
        session: of the core, which all of them share.
        instances: their coordinates, in order.
        body: one instance; `session` tells which.

    Raises:
        DeadlockError: if an instance waits for one that does not come.
    """
    numbers = {instance: number for number, instance in enumerate(instances)}

    def run(instance: tuple[int, ...]) -> Any:
        with tracing(session):
            session.position = 0
            session.begin(instance)
            result = body()
            session.flush()
            return result

    def meet(brought: Any, axes: tuple[int, ...], what: str) -> tuple[int, list[Any]]:
        """The place of this instance on its core, and what all of them along the axes bring."""
        mine = session.program_id
        apart = [axis for axis in range(len(mine)) if axis not in axes]
        parties = tuple(n for i, n in numbers.items() if all(i[axis] == mine[axis] for axis in apart))
        filename, line = user_site(1)
        key = (what, tuple(mine[axis] for axis in apart))
        held_back = session.leave()
        wait = Wait(
            key, what, "all_reduce", f"{Path(filename).name}:{line}", brought, parties, ADVICE, SOURCE
        )
        met = schedule.meet(numbers[mine], wait)
        session.come_back(held_back)
        return numbers[mine], [other.letter for other in met]

    schedule = Schedule([partial(run, i) for i in instances], [f"instance {list(i)}" for i in instances])
    session.keyed[TURNS] = meet
    return schedule.run()
