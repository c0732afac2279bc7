"""Ranks whose programs are equal: the first is traced on shapes alone, the others follow from it.

They are equal where all are called alike, nothing asks which rank it is, and all meet in each collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from ..arguments import Call
from ..arrays import ArraySpec
from ..isa.between_cores import Sendrecv
from ..isa.collectives import Collective
from ..trace.program import Program
from ..trace.session import Together
from .grid import ProgramGrid
from .rendezvous import Rendezvous


def are_alike(calls: Sequence[Call], program_grid: ProgramGrid) -> bool:
    """Whether ranks of one core each, all of them here, are called with the same."""
    if program_grid.cores > 1 or not 1 < program_grid.launched == len(program_grid.ranks):
        return False
    first = calls[0]
    return all(other is first or _are_equal(first, other) for other in calls)


def _are_equal(mine: Call, theirs: Call) -> bool:
    (args, kwargs), (own, named) = mine, theirs
    pairs = zip((*args, *kwargs, *kwargs.values()), (*own, *named, *named.values()), strict=True)
    return len(args) == len(own) and all(
        a is b or (isinstance(a, ArraySpec | str) and type(a) is type(b) and a == b) for a, b in pairs
    )


def of_all_ranks(
    program: Program, together: Together, program_grid: ProgramGrid
) -> tuple[list[Program], list[Rendezvous]] | None:
    """The programs of all ranks, and where they meet, from that of the first; None where they may differ."""
    if together.is_rank_asked or any(isinstance(form, Sendrecv) for form in program.forms):
        return None
    numbers = [n for n, form in enumerate(program.forms) if isinstance(form, Collective)]
    met: list[Rendezvous] = []
    collective_values: dict[int, tuple[int, ...]] = {}
    for row in np.flatnonzero(np.isin(program.form_column, numbers)).tolist():
        known = int(program.value_column[row])
        (_, *group), *further = program.values[known]
        if further or len(group) < len(program_grid):
            return None
        collective_values[known] = tuple(group)
        parties = program_grid.of_group(tuple(group), 0)
        met.append(Rendezvous(program.form_of(row).name, (row,) * len(parties), parties))
    return [_of_rank(program, rank, collective_values) for rank in program_grid.ranks], met


def _of_rank(program: Program, rank: int, collective_values: dict[int, tuple[int, ...]]) -> Program:
    """The same rows, whose collectives name the place of another rank."""
    other = copy(program)
    other.met, other.values = [], list(program.values)
    for known, group in collective_values.items():
        other.values[known] = ((group.index(rank), *group),)
    return other
