"""What a run asked to be computed, kept without its elements: enough to compute it again on fresh memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from ..isa.declare import Instruction
from ..tiles.dtypes import DType
from ..tiles.tile import Layout, Storage, View, settle_elements
from ..trace.session import Session

# A memory: the rank of its program and the number of its storage there; rank -1 for tiles of no program.
Memory = tuple[int, int]


class Operand(NamedTuple):
    """A view without elements, and what a `tiles.tile.Index` says of each of its indices."""

    memory: Memory
    offset: int
    layout: Layout
    indices: tuple[tuple[Operand, int, int, bool], ...] = ()


class Action(Struct, frozen=True):
    """One call of what computes rows: per declared operand a view without elements, a number or None."""

    rank: int
    row: int
    form: Instruction
    operands: tuple[Any, ...]
    values: tuple[Any, ...]
    mask: Any


@dataclass
class Recording:
    """All actions of a launch in the order in which they were computed, and what lay in memories before."""

    actions: list[Action] = field(default_factory=list)
    shapes: dict[Memory, tuple[tuple[int, ...], DType, str]] = field(default_factory=dict)
    inputs: dict[Memory, np.ndarray] = field(default_factory=dict)
    # where operands lie at addresses, found once for all replays; None where that is no view
    places: dict[Operand, tuple[Layout, int] | None] = field(default_factory=dict, repr=False)
    # tiles of no program, held so that their identities stay theirs
    _loose: dict[int, tuple[Storage, int]] = field(default_factory=dict, repr=False)

    @cached_property
    def changed(self) -> set[Memory]:
        """The memories that something writes."""
        return {a.operands[slot].memory for a in self.actions for slot in a.form.written_slots}

    def add(
        self, session: Session, form: Instruction, operands: Sequence[Any], values: tuple[Any, ...], mask: Any
    ) -> None:
        """Keep one call."""
        kept = tuple(self._operand(session, o) if isinstance(o, View) else o for o in operands)
        row = len(session.program) - 1
        self.actions.append(Action(session.rank, row, form, kept, values, mask))

    def _operand(self, session: Session, view: View) -> Operand:
        indices = tuple(
            (self._operand(session, i.source), i.step_bytes, i.extent, i.is_vector) for i in view.indices
        )
        return Operand(self._memory(session, view.storage), view.offset, view.layout, indices)

    def _memory(self, session: Session, storage: Storage) -> Memory:
        memory = (session.rank, storage.number)
        if storage.number < 0:
            _, number = self._loose.setdefault(id(storage), (storage, len(self._loose)))
            memory = (-1, number)
        if memory not in self.shapes:
            self.shapes[memory] = (storage.shape, storage.dtype, storage.memory)
            if storage.written.is_full and storage.is_known and storage.place is None:
                settle_elements()
                elements = storage.data if storage.lent is None else storage.lent
                assert elements is not None
                # an input that the kernel may write changes while it runs
                self.inputs[memory] = elements.copy() if storage.is_mutable else elements
        return memory
