"""Instructions that share registers of an engine: the scheduler may lay them out in another order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..isa.declare import Instruction
from .conflicts import Pair, Touch
from .evidence import Track
from .graph import Graph

OPEN = "open schedule"
_SEEDS = ("set_rng_seed", "rand_set_state")


def unscheduled(graph: Graph) -> Iterator[Pair]:
    """Pairs of which the second needs what the first left in registers, and nothing but their engine orders.

    Empty where the table of dependences does not leave such pairs open.
    """
    if not graph.evidence.leaves_open(OPEN):
        return
    for number, track in enumerate(graph.tracks):
        base, nobody = int(graph.base[number]), Touch(number, -1)
        pairs = ((base + before, base + row) for before, row in _needed(track))
        unordered = (pair for pair in pairs if not graph.order_of_scheduler.is_before(*pair))
        yield from (Pair(OPEN, nobody, nobody, before, row) for before, row in unordered)


def _needed(track: Track) -> Iterator[tuple[int, int]]:
    """Pairs of rows of which the second needs what the first left in registers."""
    shares = np.array([bool(form.registers) for form in track.program.forms], np.bool_)
    if not shares.any():
        return
    last: dict[str, int] = {}
    for row in np.flatnonzero(shares[track.program.form_column]).tolist():
        form = track.program.form_of(row)
        before = last.get(form.registers, -1)
        if before >= 0 and _goes_on(form, track.program.form_of(before)):
            yield before, row
        last[form.registers] = row


def _goes_on(form: Instruction, before: Instruction) -> bool:
    """Whether an instruction needs what another one left in the registers that both use."""
    if form.registers == "random":
        # which numbers come is as good as any other, but for a seed that comes too late
        return before.name in _SEEDS and form.name not in _SEEDS
    return getattr(form, "reduce_cmd", "") == "reduce"
