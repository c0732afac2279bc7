"""Which measurements tell a fitted constant: none may rest on a single one.

A measurement tells a constant if its prediction moves by more than the measurement's noise when the constant
moves by its uncertainty. Measurements of one setting (kernel, shapes, type, chip, options) count once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any

import numpy as np

from ..machine import MACHINES, Machine
from .bars import Bar
from .fitting import SPREAD
from .predict import Predictor
from .quantities import QUANTITIES
from .row import Row

# Fitted numbers that act in steps, and by which factor each is moved.
STEPWISE = dict.fromkeys(
    ("redundant_load_window_bytes", "tile_buffers", "spare_block_buffers", "psum_shared_bytes",
     "collective_peer_engines"), 2.0,
)  # fmt: skip
# A prediction that moves by less tells nothing, however exact the measurement is.
LEAST = 0.003
ENOUGH = 2
# The chip whose row the others are made from.
BASE = "trn2"


def fitted_constants(machine: Machine) -> tuple[str, ...]:
    """Constants of a chip that were fitted; trn1 and trn3 have none that they take over from trn2."""
    base = MACHINES[BASE].facts() if machine.name != BASE else {}
    fitted = [name for name, fact in machine.facts().items() if fact.certainty == "fitted"]
    return tuple(n for n in fitted if machine.facts()[n] != base.get(n))


def all_telling(rows: Sequence[Row], predictor: Predictor) -> dict[str, list[str]]:
    """Rows that tell each fitted constant of each chip, by "constant, chip"."""
    return {
        f"{name}, {machine.name}": telling(name, machine, rows, predictor)
        for machine in MACHINES.values()
        for name in fitted_constants(machine)
    }


def bar_of_constants(identified: Mapping[str, Sequence[str]]) -> Bar:
    """No constant may be fitted to a single measurement."""
    unidentified = [name for name, rows in identified.items() if len(rows) < ENOUGH]
    name = "fitted constants that fewer than two measurements tell"
    return Bar(name, "none", "; ".join(unidentified) or "none", not unidentified)


def telling(name: str, machine: Machine, rows: Sequence[Row], predictor: Predictor) -> list[str]:
    """Rows of different settings that tell a constant, as many as are enough.

    Args:
        name: of the constant.
        machine: with the constants as they are.
        rows: what was measured, on any chip.
        predictor: holds the traces.
    """
    spread = SPREAD[machine.facts()[name].certainty]
    nudged = machine.with_constants({name: machine[name] * STEPWISE.get(name, exp(spread))}, "nudged")
    rows_of_constants: dict[tuple[str, ...], str] = {}
    is_collective = name.startswith("collective_")
    own = [
        row for row in sorted(rows, key=_elements)
        if (row.chip, row.split, row.kind == "collective") == (machine.name, "fit", is_collective)
        and not row.contradicts
    ]  # fmt: skip
    for row in own:
        if row.setting not in rows_of_constants and _moves(row, predictor, machine, nudged):
            rows_of_constants[row.setting] = row.id
        if len(rows_of_constants) == ENOUGH:
            break
    return list(rows_of_constants.values())


def _moves(row: Row, predictor: Predictor, machine: Machine, nudged: Machine) -> bool:
    """Whether a prediction of a row moves by more than what was measured is sure to."""
    metrics = [name for name in row.measured if not QUANTITIES[name].has_host]
    if not metrics:
        return False
    before, after = predictor.known(row, machine), predictor.estimates(row, nudged)
    for name in metrics:
        one, other = before[name], QUANTITIES[name].predict(row, after)
        if one > 0 and other > 0 and abs(log(other / one)) > max(LEAST, row.noise):
            return True
    return False


def _elements(row: Row) -> int:
    """About how large a row's kernels are: the elements of their arguments."""
    return sum(_count(argument) for call in row.calls for argument in call.args)


def _count(argument: Any) -> int:
    if not isinstance(argument, str) or not argument.endswith("]"):
        return 0
    return int(np.prod([int(n) for n in argument[argument.index("[") + 1 : -1].split(",")]))
