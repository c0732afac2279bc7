"""Ranks whose programs are equal: the first is traced on shapes alone, the others follow from it.

They are equal where all are called alike, nothing asks which rank it is, all meet in each collective, and the
kernel leaves what outlives it as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from copy import copy
from io import StringIO
from typing import TypeVar

import numpy as np

from ..arguments import Call
from ..arrays import ArraySpec
from ..dialects.lasting import Lasting
from ..isa.collectives import Collective
from ..trace.program import Program
from .common_clock import signature
from .grid import ProgramGrid
from .rendezvous import Rendezvous

Traced = TypeVar("Traced")


def are_alike(calls: Sequence[Call], program_grid: ProgramGrid) -> bool:
    """Whether ranks, all of them here, are called with the same."""
    if not 1 < program_grid.launched == len(program_grid.ranks):
        return False
    first = calls[0]
    return all(other is first or _are_equal(first, other) for other in calls)


def _are_equal(mine: Call, theirs: Call) -> bool:
    (args, kwargs), (own, named) = mine, theirs
    pairs = zip((*args, *kwargs, *kwargs.values()), (*own, *named, *named.values()), strict=True)
    return len(args) == len(own) and all(
        a is b or (isinstance(a, ArraySpec | str) and type(a) is type(b) and a == b) for a, b in pairs
    )


def as_each_rank(
    trace: Callable[[], tuple[Sequence[Program], Traced] | None], reach: Callable[[], Lasting], ranks: int
) -> Traced | None:
    """What ranks leave that all find what the first does; None if some may not, and then all is as it was.

    What the first leaves for others the second may find, if the third finds no more and their programs are
    equal. What one prints is printed for each.

    Args:
        trace: runs one of them; the programs of its cores, and what all leave if they do as this one.
        reach: finds what outlives a run.
        ranks: how many there are.
    """
    first = lasting = reach()
    at_first = before = first.hold()
    texts: list[str] = []
    known: list[object] = []
    while lasting.is_known and len(known) < 2:
        run = _quietly(trace, texts)
        if run is None:
            break
        programs, left = run
        known.append([(signature(program), program.values) for program in programs])
        if lasting.is_as(before) and known[0] == known[-1]:
            sys.stdout.write(texts[0] + texts[-1] * (ranks - 1))
            return left
        lasting = reach()
        before = lasting.hold()
    first.put_back(at_first)
    return None


def _quietly(trace: Callable[[], Traced], texts: list[str]) -> Traced:
    """What a rank leaves; what it prints goes behind some texts, or to the user if he interrupts it."""
    text = StringIO()
    try:
        with redirect_stdout(text):
            left = trace()
    except BaseException:
        sys.stdout.write(text.getvalue())
        raise
    texts.append(text.getvalue())
    return left


def of_all_ranks(
    programs: Sequence[Program], program_grid: ProgramGrid, of_first: Sequence[Rendezvous]
) -> tuple[list[list[Program]], list[Rendezvous]] | None:
    """The programs of all ranks, and where they meet, from those of the first; None where they may differ.

    Args:
        programs: of the cores of the first rank.
        program_grid: of all ranks.
        of_first: where its cores met.
    """
    ranks = program_grid.ranks
    met = [Rendezvous(r.name, r.rows, program_grid.of_rank(rank)) for rank in ranks for r in of_first]
    groups = [_groups(program, len(ranks)) for program in programs]
    for core, (program, own) in enumerate(zip(programs, groups, strict=True)):
        if own is None:
            return None
        for row, group in own.items():
            parties = program_grid.of_group(group, core)
            met.append(Rendezvous(program.form_of(row).name, (row,) * len(parties), parties))
    cores = list(zip(programs, groups, strict=True))
    return [[_of_rank(program, rank, own or {}) for program, own in cores] for rank in ranks], met


def _groups(program: Program, ranks: int) -> dict[int, tuple[int, ...]] | None:
    """The group of each row of a program that is a collective; None if one has another than all ranks."""
    numbers = [n for n, form in enumerate(program.forms) if isinstance(form, Collective)]
    groups: dict[int, tuple[int, ...]] = {}
    for row in np.flatnonzero(np.isin(program.form_column, numbers)).tolist():
        (_, *group), *further = program.values_of(row)
        if further or len(group) < ranks:
            return None
        groups[row] = tuple(group)
    return groups


def _of_rank(program: Program, rank: int, groups: dict[int, tuple[int, ...]]) -> Program:
    """The same rows, whose collectives name the place of another rank."""
    other = copy(program)
    other.met, other.values = [], list(program.values)
    for row, group in groups.items():
        other.values[int(program.value_column[row])] = ((group.index(rank), *group),)
    return other
