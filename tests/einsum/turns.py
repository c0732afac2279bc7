"""Cascades with recurrences, evaluated turn by turn in NumPy: what rewrites of them are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nkilab.einsum.language.additions import Additions
from nkilab.einsum.language.ast import Access, Affine, Cascade, Einsum, Operand, Tensor
from nkilab.einsum.language.extents import runs_of
from nkilab.einsum.language.operators import OPERATORS
from nkilab.einsum.reference import Evaluator


def evaluated(cascade: Cascade, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Every tensor of a cascade whose ranks have extents, given its inputs."""
    values = {t: np.zeros(cascade.shape(t)) for t in cascade.tensors}
    values |= {t: np.asarray(inputs[t], np.float64) for t in cascade.inputs}
    machine = Evaluator(cascade, values, np.float64)
    for einsum, bound in runs_of(cascade):
        if einsum.recurrence is None or einsum.is_choice:
            machine.run(einsum, bound)
        else:
            _Turns(machine, einsum).run()
    return values


class _Turns:
    """The turns of one recurrence; a tensor "_" has the value of a turn for every lane."""

    def __init__(self, machine: Evaluator, einsum: Einsum) -> None:
        assert einsum.recurrence is not None
        self.einsum, self.known, self.turn = einsum, einsum.recurrence, einsum.recurrence.variable
        cascade = machine.cascade
        lanes = [v for v in einsum.variables if v != self.turn]
        ranks = tuple(Additions(cascade).rank_of(v, einsum) for v in lanes)
        self.lanes = Access("_", tuple(Affine(((v, 1),)) for v in lanes))
        self.shape = tuple(cascade.extent(v, einsum) for v in lanes)
        known = replace(cascade, tensors={**cascade.tensors, "_": Tensor("_", ranks)})
        self.machine, self.extent = (
            Evaluator(known, machine.held, np.float64),
            cascade.extent(self.turn, einsum),
        )

    def value(self, operand: Operand, turn: int) -> Any:
        self.machine.held["_"] = np.zeros(self.shape)
        self.machine.run(Einsum(self.lanes, (operand,)), {self.turn: turn})
        return self.machine.held["_"].copy()

    def write(self, value: Any, turn: int) -> None:
        self.machine.held["_"] = value
        self.machine.run(Einsum(self.einsum.output, (self.lanes,)), {self.turn: turn})

    def run(self) -> None:
        """Every turn in order."""
        known, operands = self.known, self.einsum.operands
        turns = [*range(self.extent)][:: -1 if known.is_descending else 1]
        if known.kind == "last":
            self.write(self.value(operands[0], turns[-1]), turns[-1])
            return
        state = self.value(operands[-1], turns[0])
        if known.has_first:
            self.write(state, turns[0] + (1 if known.is_descending else -1))
        for turn in turns:
            if known.kind == "before":
                self.write(state, turn)
                state = self.value(operands[0], turn)
                continue
            first, second = (self.value(o, turn) for o in operands[:2])
            inner = _applied(known.op0, first, state, known.reverse0)
            state = _applied(known.op1, inner, second, known.reverse1)
            self.write(state, turn)


def _applied(op: str, left: Any, right: Any, is_reversed: bool) -> Any:
    """An operator of engines; its operands the other way round if it is told so."""
    function = next(o.function for o in OPERATORS.values() if o.alu == op)
    return function(right, left) if is_reversed else function(left, right)
