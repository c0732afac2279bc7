"""Iterations done together: rows of one place in each follow one another, equal ones once, or joined.

This one edit is what blocking, wider tiles, larger transfers, more partitions and phases have in common. The
order of rows changes only as far as dependences allow; rows go where an equal one came before; rows that
work on neighbouring regions become one where the instruction takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from ..isa.declare import Instruction
from ..tiles.tile import HBM
from ..trace.program import Program
from .draft import FREE, Draft, Unfit, movable
from .equal_values import Equals, without_copies
from .loops import Loop
from .reorder import legal_merges, reordered


class Block(Struct, frozen=True):
    """Which iterations of a loop are done together."""

    loop: Loop
    near: int  # so many that follow one another
    far: int = 1  # so many that lie `period` apart
    period: int = 1  # trips of the inner one of two perfect loops; 1 for none

    @property
    def size(self) -> int:
        """Iterations that are done together."""
        return self.near * self.far

    def groups(self) -> np.ndarray:
        """Numbers of iterations, [groups, size].

        Raises:
            Unfit: if the loop does not divide evenly.
        """
        count = len(self.loop.start)
        period = self.period if self.far > 1 else count
        if self.size < 2 or count % (period * self.far) or period % self.near:
            raise Unfit
        outer = np.arange(count // (period * self.far)) * period * self.far
        inner = np.arange(period // self.near) * self.near
        base = (outer[:, None] + inner[None, :]).ravel()
        members = (np.arange(self.far)[:, None] * period + np.arange(self.near)[None, :]).ravel()
        return base[:, None] + members[None, :]


def jammed(
    known: Equals, block: Block, axis: str = FREE, joins: Callable[[Instruction], bool] | None = None,
    *, shares: bool = True,
) -> Program:  # fmt: skip
    """A program in which blocks of iterations are done together.

    Args:
        known: the program as the kernel wrote it, and its equal values.
        block: which.
        axis: along which neighbouring rows are joined.
        joins: which instructions are; None for none.
        shares: whether tiles of equal value within a block are one.

    Raises:
        Unfit: if it cannot be done here.
    """
    program, groups = known.program, block.groups()
    rows = block.loop.rows()[groups]  # [groups, size, length]
    key, member_of = _keys(len(program), rows)
    origin = np.arange(len(program))
    edited = program
    if shares:
        edited, origin = without_copies(program, known.first_within(member_of), known)
    edited, order = reordered(edited, key[origin])
    origin = origin[order]
    if joins is None:
        return edited
    return _joined(edited, _alike(edited, origin, rows), axis, joins)


def _keys(count: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per row its key in the new order, and per row its block; -1 outside."""
    blocks, size, length = rows.shape
    key, member_of = np.arange(count, dtype=np.float64), np.full(count, -1)
    begin = rows[:, :, 0].min(axis=1)
    step = np.arange(length * size).reshape(length, size).T / (length * size + 1)
    # all of a block stands where its first row stood, in the order of places
    key[rows] = begin[:, None, None] + step[None, :, :]
    member_of[rows] = np.arange(blocks)[:, None, None]
    return key, member_of


def _alike(edited: Program, origin: np.ndarray, rows: np.ndarray) -> list[list[int]]:
    """Rows of one place in the iterations of a block, those that are left."""
    place = np.full(int(max(rows.max(), origin.max())) + 1, -1)
    place[origin] = np.arange(len(origin))
    result = []
    for block in place[rows].transpose(0, 2, 1).reshape(-1, rows.shape[1]).tolist():
        if -1 not in block and block == sorted(block):
            result.append(block)
    return result


def _joined(
    edited: Program, groups: Sequence[list[int]], axis: str, joins: Callable[[Instruction], bool]
) -> Program:
    """A program whose rows in groups are one each, as far as that can be."""
    wanted = [g for g in groups if joins(edited.form_of(g[0]))]
    column = np.full(len(edited), -1)
    for number, group in enumerate(wanted):
        column[group] = number
    legal = legal_merges(edited, column)
    wanted = [g for g in wanted if legal[g[0]] >= 0]
    if not wanted:
        raise Unfit
    draft = Draft(edited)
    draft.relocate(_places(draft, wanted, axis))
    if not sum(draft.merge(group, axis) for group in wanted):
        raise Unfit
    return draft.program()


def _places(draft: Draft, groups: Sequence[list[int]], axis: str) -> dict[int, tuple[int, int, int]]:
    """Per tile that is joined with others where it goes."""
    fine = movable(draft.base)
    places: dict[int, tuple[int, int, int]] = {}
    of_tile: dict[int, tuple[int, ...]] = {}
    columns = (zip(*(draft.slots(row) for row in group), strict=True) for group in groups)
    for tiles in dict.fromkeys(tuple(slot[0] for slot in column) for own in columns for column in own):
        if len(set(tiles)) == 1 or draft.storages[tiles[0]].memory == HBM:
            continue
        known = {of_tile.get(tile) for tile in tiles}
        if len(set(tiles)) < len(tiles) or known != {None} or not all(fine[t] for t in tiles):
            raise Unfit
        of_tile.update(dict.fromkeys(tiles, tiles))
        places.update(draft.join(tiles, axis))
    return places


def interchanged(known: Equals, loop: Loop, period: int) -> Program:
    """A program in which two perfect loops have changed places, and what the inner one repeats is done once.

    Raises:
        Unfit: if the loop does not divide evenly.
    """
    program, count = known.program, len(loop.start)
    if count % period:
        raise Unfit
    rows = loop.rows()
    transposed = np.arange(count).reshape(-1, period).T.ravel()
    key = np.arange(len(program), dtype=np.float64)
    member = np.full(len(program), -1)
    outer = np.repeat(np.arange(period), count // period)
    spread = np.sort(rows.ravel()).reshape(count, loop.length)
    key[rows[transposed]] = spread
    member[rows[transposed]] = outer[:, None]
    edited, origin = without_copies(program, known.first_within(member), known)
    return reordered(edited, key[origin])[0]
