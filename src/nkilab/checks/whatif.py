"""What a program would take if something in it were otherwise: edit it, time it again, compare.

Nothing is estimated here: a gain is the difference of two simulations.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..isa.declare import Instruction, Step
from ..place import plan
from ..place.edges import Waits
from ..timing import latency_ns
from ..trace.program import Program
from .evidence import Track


def with_steps(program: Program, rows: np.ndarray, change: Callable[[Step], Step]) -> Program:
    """A program in which some rows have other costs; forms are shared by the rows that change."""
    column = np.array(program.form_column, np.int64)
    forms = list(program.forms)
    for number in np.unique(column[rows]).tolist():
        changed: Instruction = copy.copy(forms[number])
        changed.steps = tuple(change(step) for step in changed.steps)
        mine = rows[column[rows] == number]
        column[mine] = len(forms)
        forms.append(changed)
    return program.with_forms(forms, column)


def latency_with_steps(track: Track, rows: np.ndarray, change: Callable[[Step], Step]) -> float:
    """Nanoseconds with other costs of some rows under the same plan."""
    return latency_ns(with_steps(track.compiled, rows, change), track.plan, track.work)


def latency_without_waits(track: Track, dropped: np.ndarray) -> float:
    """Nanoseconds where some waits of the plan, by position, are left out."""
    original_plan = track.plan
    keep = np.ones(len(original_plan.waits.node), np.bool_)
    keep[dropped] = False
    kept = np.concatenate([[0], np.cumsum(keep)])
    waits = Waits(
        kept[original_plan.waits.start], original_plan.waits.node[keep], original_plan.waits.kind[keep]
    )
    return latency_ns(track.compiled, replace(original_plan, waits=waits), track.work)


def latency_without_rows(track: Track, rows: np.ndarray, stands_for: dict[int, int]) -> float:
    """Nanoseconds without some rows, where tiles are replaced by others; planned anew."""
    shorter = track.compiled.without(rows, stands_for)
    return latency_ns(shorter, plan(shorter))


def later_of(waits: Waits) -> np.ndarray:
    """Per wait the node that waits."""
    return np.repeat(np.arange(len(waits.start) - 1), np.diff(waits.start))


def by_line(program: Program, rows: Sequence[int] | np.ndarray) -> dict[int, np.ndarray]:
    """Rows by the number of their source line."""
    rows = np.asarray(rows, np.int64)
    lines = np.asarray(program.line_column, np.int64)[rows]
    return {int(line): rows[lines == line] for line in np.unique(lines)}
