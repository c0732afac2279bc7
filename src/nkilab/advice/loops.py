"""Loops as a program shows them: rows of one line that come back, with what stands between them.

A program has no loops of Python's, only the lines that its rows come from. Lines that come equally often,
each once between two comings of the others, are of one loop; from one coming to the next is an iteration.
Lines that come more often belong to loops within.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ..trace.program import Program

# iterations of which a loop is made at least, and rows that one may have
FEWEST = 2
MOST_ROWS = 4096


class Loop(Struct, frozen=True, eq=False):
    """A loop of a program.

    Args:
        start: per iteration its first row.
        length: rows of each iteration; all do the same.
        line: of the first row, in the program's table.
    """

    start: np.ndarray
    length: int
    line: int

    def rows(self) -> np.ndarray:
        """Per iteration its rows, [iterations, length]."""
        return self.start[:, None] + np.arange(self.length)[None, :]

    def periods(self, program: Program) -> list[int]:
        """After how many iterations an operand in HBM comes back: trips of the innermost of perfect loops."""
        count = len(self.start)
        result: set[int] = set()
        for column in _offsets(program, self):
            again = np.flatnonzero(column[1:] == column[0]) + 1
            fitting = [n for n in again[:4].tolist() if count % n == 0 and n > 1]
            result.update([n for n in fitting if (column[n:] == column[:-n]).all()][:1])
        return sorted(result)


def _offsets(program: Program, loop: Loop) -> list[np.ndarray]:
    """Per operand of an iteration that lies in HBM its offsets, iteration by iteration."""
    first = program.operand_start[loop.start]
    width = int(program.operand_start[loop.start[0] + loop.length] - first[0])
    places = first[:, None] + np.arange(min(width, 64))[None, :]
    stored = program.storage_column[places]
    in_hbm = [s.memory == "hbm" for s in program.storages]
    return [
        program.offset_column[places[:, at]]
        for at in range(places.shape[1])
        if in_hbm[stored[0, at]] and (stored[:, at] == stored[0, at]).all()
    ]


def loops_of(program: Program) -> list[Loop]:
    """The loops of a program, those with most iterations first."""
    lines, forms = program.line_column.astype(np.int64), program.form_column.astype(np.int64)
    if not len(lines):
        return []
    keys = lines * (len(program.forms) + 1) + forms
    order = np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.diff(keys[order], prepend=-1))
    occurrences = [order[a:b] for a, b in zip(begins, [*begins[1:], len(order)], strict=True)]
    by_count: dict[int, list[np.ndarray]] = {}
    for own in occurrences:
        if len(own) >= FEWEST:
            by_count.setdefault(len(own), []).append(own)
    groups = [group for count in sorted(by_count, reverse=True) for group in _interleaved(by_count[count])]
    return [loop for loop in (_loop(keys, lines, group) for group in groups) if loop is not None]


def _interleaved(columns: list[np.ndarray]) -> list[list[np.ndarray]]:
    """Lines in groups, each once between two comings of the others of its group."""
    groups: list[list[np.ndarray]] = []
    for own in sorted(columns, key=lambda c: int(c[0])):
        fitting = (g for g in groups if (g[-1] < own).all() and (own[:-1] < g[0][1:]).all())
        group = next(fitting, None)
        if group is None:
            groups.append([own])
        else:
            group.append(own)
    return groups


def _loop(keys: np.ndarray, lines: np.ndarray, group: list[np.ndarray]) -> Loop | None:
    """The loop of a group of lines: cut behind its last or before its first, where iterations agree."""
    head, tail = group[0], group[-1]
    gaps = np.diff(tail)
    length = int(np.bincount(gaps).argmax()) if len(gaps) and gaps.max() < 1 << 20 else 0
    if not np.median(tail - head) < length <= MOST_ROWS:
        return None
    candidates = []
    for start in (tail - length + 1, head):
        inside = (start >= 0) & (start + length <= len(keys))
        start = start[inside]
        if len(start) < FEWEST:
            continue
        same = (
            keys[start[:, None] + np.arange(length)] == keys[start[len(start) // 2] + np.arange(length)]
        ).all(1)
        candidates.append(start[same])
    best = max(candidates, key=len, default=np.zeros(0, np.int64))
    if len(best) < FEWEST:
        return None
    return Loop(best, length, int(lines[best[0]]))
