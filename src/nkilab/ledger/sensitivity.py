"""How much predictions hang on a constant: short kernels of the ledger under it, and where it is off."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

from ..errors import NkilabError
from ..machine import Machine
from ..machine.model import MAY_BE_ZERO
from .fitting import SPREAD
from .identified import STEPWISE
from .predict import Predictor
from .reading import own_rows
from .row import Row

# Longer kernels are not looked at: tracing them takes a second and more.
LONG_US = 400.0
# By how much a constant is taken to be off; a documented one by as much as a measured one.
OFF = {**SPREAD, "documented": SPREAD["measured"]}


def other_of(name: str, machine: Machine) -> tuple[float, str]:
    """The value that a constant is taken to have instead, and what that is: a factor, or a switch thrown."""
    value = machine[name]
    if name in MAY_BE_ZERO and name not in STEPWISE and value in (0, 1):
        return 1 - value, "off" if value else "on"
    factor = STEPWISE.get(name, exp(OFF[machine.facts()[name].certainty]))
    return value * factor, f"{factor:.2f}"


def changes(name: str, machine: Machine) -> dict[str, float]:
    """Per structure the change of the latency of its shortest kernel on a chip, relative; unmoved ones too.

    Kernels that the chip does not run are left out.
    """
    nudged = machine.with_constants({name: other_of(name, machine)[0]}, "off")
    predictor, result = Predictor(), {}
    for row in _shortest(machine):
        try:
            before, after = (
                sum(e.latency_us for e in predictor.estimates(row, chip)) for chip in (machine, nudged)
            )
        except NkilabError:
            continue
        result[row.structure] = exp(abs(log(after / before))) - 1
    return result


def _shortest(machine: Machine) -> list[Row]:
    """The shortest kernel of each structure, on a chip; no long ones."""
    rows: dict[str, Row] = {}
    for row in sorted(own_rows(), key=lambda row: row.value):
        if row.split == "fit" and row.kind != "instruction" and row.value < LONG_US:
            rows.setdefault(row.structure, row)
    return [replace(row, chip=machine.name) for row in rows.values()]
