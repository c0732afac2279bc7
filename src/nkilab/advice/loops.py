"""Loops as a program shows them: rows of one line that come back, with what stands between them.

A program has no loops of Python's, only the lines that its rows come from. Lines that come equally often,
each once between two comings of the others, are of one loop; from one coming to the next is an iteration.
Lines that come more often belong to loops within, whose iterations count as one where they follow each other.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ..trace.program import Program

# iterations of which a loop is made at least, rows that one may have, and loops within each other
FEWEST = 2
MOST_ROWS = 16_384
MOST_DEPTH = 6


class Loop(Struct, frozen=True, eq=False):
    """A loop of a program."""

    # per iteration its rows, [iterations, length]; all do the same. Others may lie between
    members: np.ndarray
    line: int  # of the first row, in the program's table

    @property
    def start(self) -> np.ndarray:
        """Per iteration its first row."""
        return self.members[:, 0]

    @property
    def length(self) -> int:
        """Rows of each iteration."""
        return int(self.members.shape[1])

    def rows(self) -> np.ndarray:
        """Per iteration its rows, [iterations, length]."""
        return self.members

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
    first = program.operand_start[loop.members]
    counts = np.diff(program.operand_start)[loop.members[0]]
    each = [first[:, n, None] + np.arange(count) for n, count in enumerate(counts[:64].tolist())]
    places = np.concatenate(each, axis=1)[:, :64]
    stored = program.storage_column[places]
    in_hbm = [s.memory == "hbm" for s in program.storages]
    return [
        program.offset_column[places[:, at]]
        for at in range(places.shape[1])
        if in_hbm[stored[0, at]] and (stored[:, at] == stored[0, at]).all()
    ]


def loops_of(program: Program) -> list[Loop]:
    """The loops of a program, those with most iterations first.

    Loops within loops are found from the inside: iterations that follow each other are folded into one step
    each time, until nothing comes back.
    """
    lines, forms = program.line_column.astype(np.int64), program.form_column.astype(np.int64)
    steps = steps_of_rows = lines * (len(program.forms) + 1) + forms
    begin = np.arange(len(lines) + 1)
    result: dict[tuple[int, ...], Loop] = {}
    for _ in range(MOST_DEPTH):
        loops = _in_sequence(steps)
        result |= {
            (length, *start.tolist()): _whole(steps_of_rows, start, length, int(lines[start[0]]))
            for start, length in (_in_rows(begin, *loop) for loop in loops)
            if len(start) >= FEWEST and length <= MOST_ROWS
        }
        shorter = _folded(steps, begin, loops)
        if len(shorter[0]) == len(steps):
            break
        steps, begin = shorter
    return sorted(result.values(), key=lambda loop: -len(loop.start))


def _whole(steps: np.ndarray, start: np.ndarray, length: int, line: int) -> Loop:
    """The loop, with the iteration before its first one that does the same, and a little more once."""
    members = start[:, None] + np.arange(length)[None, :]
    row, before = int(start[0]), list[int]()
    for step in steps[members[len(members) // 2]][::-1].tolist():
        earlier = steps[max(0, row - 1 - length // 2) : row][::-1]
        (places,) = np.nonzero(earlier == step)
        if not len(places):
            return Loop(members, line)
        row -= int(places[0]) + 1
        before.insert(0, row)
    if before[-1] - before[0] - length >= length // 2 or (len(start) > 1 and start[1] - start[0] < length):
        return Loop(members, line)
    return Loop(np.concatenate([[before], members]), line)


def _in_rows(begin: np.ndarray, start: np.ndarray, length: int) -> tuple[np.ndarray, int]:
    """First rows of a loop's iterations that have as many rows as the one in its middle, and how many."""
    sizes = begin[start + length] - begin[start]
    middle = int(sizes[len(sizes) // 2])
    return begin[start][sizes == middle], middle


def _in_sequence(steps: np.ndarray) -> list[tuple[np.ndarray, int]]:
    """The loops that show in a sequence of steps: where iterations begin, and how many steps each has."""
    order = np.argsort(steps, kind="stable")
    begins = np.flatnonzero(np.diff(steps[order], prepend=-1))
    by_count: dict[int, list[np.ndarray]] = {}
    for own in np.split(order, begins[1:]):
        if len(own) >= FEWEST:
            by_count.setdefault(len(own), []).append(own)
    groups = [group for count in sorted(by_count, reverse=True) for group in _interleaved(by_count[count])]
    return [loop for group in groups if (loop := _loop(steps, group)) is not None]


def _folded(
    steps: np.ndarray, begin: np.ndarray, loops: list[tuple[np.ndarray, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Steps and their first rows, with an innermost loop's iterations as one step each, and runs as one."""
    number, inside = int(steps.max(initial=0)) + 1, np.zeros(len(steps), np.bool_)
    steps, keep = steps.copy(), np.ones(len(steps), np.bool_)
    for start, length in sorted(loops, key=lambda loop: loop[1]):
        body = (start[:, None] + np.arange(length)).ravel()
        if inside[body].any() or not (np.diff(start) == length).any():
            continue
        inside[body] = True
        steps[start] = number
        number += 1
        keep[np.setdiff1d(body, start)] = False
    steps, first = steps[keep], begin[:-1][keep]
    fresh = np.flatnonzero(np.diff(steps, prepend=-1))
    counts = np.diff(np.append(fresh, len(steps)))
    _, runs = np.unique(steps[fresh] * (len(steps) + 1) + counts, return_inverse=True)
    return runs.astype(np.int64), np.append(first[fresh], begin[-1])


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


def _loop(steps: np.ndarray, group: list[np.ndarray]) -> tuple[np.ndarray, int] | None:
    """The loop of a group of steps: cut behind its last or before its first, where iterations agree."""
    head, tail = group[0], group[-1]
    gaps = np.diff(tail)
    length = int(np.bincount(gaps).argmax()) if len(gaps) and gaps.max() < 1 << 20 else 0
    if not np.median(tail - head) < length <= MOST_ROWS:
        return None
    candidates = []
    for start in (tail - length + 1, head):
        start = start[(start >= 0) & (start + length <= len(steps))]
        if len(start) < FEWEST:
            continue
        same = steps[start[:, None] + np.arange(length)] == steps[start[len(start) // 2] + np.arange(length)]
        candidates.append(start[same.all(1)])
    best = max(candidates, key=len, default=np.zeros(0, np.int64))
    return (best, length) if len(best) >= FEWEST else None
