"""Looking on while a kernel runs: what only the state of the moment tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..isa.declare import Instruction
from ..trace.session import Execute, Session
from .recording import Recording


class Accumulated(NamedTuple):
    """A matmul that adds to elements which no matmul wrote.

    Args:
        rank, row: of the matmul.
        is_initialised: whether another instruction wrote them.
    """

    rank: int
    row: int
    is_initialised: bool


class Watcher:
    """Sees every row before it is computed.

    Args:
        records: whether to keep what is computed, for replays.
    """

    def __init__(self, *, records: bool) -> None:
        self.accumulated: list[Accumulated] = []
        self.recording = Recording() if records else None

    def around(self, compute: Execute) -> Execute:
        """What is called in the place of `compute`."""

        def step(
            session: Session, form: Instruction, operands: Sequence[Any], values: tuple[Any, ...], mask: Any
        ) -> None:
            if form.accumulates and form.reads_result(values):
                self._note(session, operands[form.written_slots[0]])
            if self.recording is not None:
                self.recording.add(session, form, operands, values, mask)
            compute(session, form, operands, values, mask)

        return step

    def _note(self, session: Session, dst: Any) -> None:
        storage = dst.storage
        if storage.accumulated.of(dst) != "all":
            is_initialised = storage.initialised.of(dst) != "none"
            row = len(session.program) - 1
            self.accumulated.append(Accumulated(session.rank, row, is_initialised))


def by_rank(watchers: Mapping[int, Watcher], compute: Execute) -> Execute:
    """What is called in the place of `compute` on several ranks: what the rank's watcher calls."""
    steps = {rank: watcher.around(compute) for rank, watcher in watchers.items()}

    def step(
        session: Session, form: Instruction, operands: Sequence[Any], values: tuple[Any, ...], mask: Any
    ) -> None:
        steps[session.together.rank](session, form, operands, values, mask)

    return step
