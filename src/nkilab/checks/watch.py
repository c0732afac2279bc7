"""Looking on while a kernel runs: what only the state of the moment tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..isa.declare import Instruction
from ..tiles.tile import HBM, array_of, elements_now
from ..trace.session import Execute, Session
from .recording import Recording


class Accumulated(NamedTuple):
    """A matmul that adds to elements which no matmul wrote."""

    rank: int
    row: int
    is_initialised: bool
    is_zero: bool = False


class Watcher:
    """Sees every row before it is computed; keeps what is computed where replays follow."""

    def __init__(self, *, records: bool) -> None:
        self.accumulated: list[Accumulated] = []
        # rank and row of transfers that stored to shared memory what lay there already
        self.repeated: set[tuple[int, int]] = set()
        # rank and row of calls that write where a mask says
        self.masked: set[tuple[int, int]] = set()
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
            if mask is not None:
                self.masked.add((session.rank, len(session.program) - 1))
            before = self._shared_target(session, form, operands)
            compute(session, form, operands, values, mask)
            if before is not None:
                self._note_repeated(session, operands[form.written_slots[0]], before)

        return step

    @staticmethod
    def _shared_target(session: Session, form: Instruction, operands: Sequence[Any]) -> bytes | None:
        """What lies where a transfer of one of several cores stores, if all of it was stored to before."""
        if session.together.count < 2 or len(form.written_slots) != 1:
            return None
        dst = operands[form.written_slots[0]]
        if dst.layout.memory != HBM or dst.indices or dst.storage.written.of(dst) != "all":
            return None
        return elements_now(dst).tobytes()

    def _note_repeated(self, session: Session, dst: Any, before: bytes) -> None:
        if elements_now(dst).tobytes() == before:
            self.repeated.add((session.rank, len(session.program) - 1))

    def _note(self, session: Session, dst: Any) -> None:
        storage = dst.storage
        if storage.accumulated.of(dst) != "all":
            is_initialised = storage.initialised.of(dst) != "none"
            row = len(session.program) - 1
            is_zero = is_initialised and not array_of(dst).any()
            self.accumulated.append(Accumulated(session.rank, row, is_initialised, is_zero))


def around_ranks(watchers: Mapping[int, Watcher]) -> Callable[[Execute], Execute]:
    """What makes a step of `compute` that the watcher of its rank sees."""
    if len(watchers) == 1:
        return next(iter(watchers.values())).around

    def around(compute: Execute) -> Execute:
        steps = {rank: watcher.around(compute) for rank, watcher in watchers.items()}

        def step(
            session: Session, form: Instruction, operands: Sequence[Any], values: tuple[Any, ...], mask: Any
        ) -> None:
            steps[session.together.rank](session, form, operands, values, mask)

        return step

    return around
