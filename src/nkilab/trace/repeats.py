"""Loops whose later iterations follow from two that were traced.

Where only shapes are known, an iteration of a loop leaves nothing but rows, tiles and places in loops. If its
statements are the same function of the index in every iteration (`dialects.uniform` finds that out), if the
index goes into addresses alone, by sums and multiples (`Affine` holds it to that), and if the second
iteration changed no other state of the launch, then all further ones differ from it by whole multiples of
what it differs by from the first. They are written down at once, as columns.

Whatever does not fit is traced as it stands. An index whose value is asked for stands for that iteration
alone, and one that is compared for those in which the answer is the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from ..tiles.tile import PSUM, Layout, Storage
from .affine import MOST_PARTS, MOST_RUN, REPEATS, Affine, LoopIndex, Repeats
from .program import Program
from .session import Session


class Before(Struct, frozen=True):
    """Where a launch stands before an iteration, or after it."""

    # rows, operands, storages, positions, patterns: how many the program has
    rows: int
    operands: int
    storages: int
    positions: int
    patterns: int
    kept: tuple[Any, ...]  # of everything else that a call may change how much there is
    covered: Mapping[int, tuple[Any, ...]]  # which elements of tiles in PSUM matmuls wrote, and anything else

    def to(self, later: Before) -> tuple[int, ...]:
        """How many rows, operands, storages, places and patterns were made since."""
        return (
            later.rows - self.rows, later.operands - self.operands, later.storages - self.storages,
            later.positions - self.positions, later.patterns - self.patterns,
        )  # fmt: skip


def standing(session: Session, tiles: Mapping[int, Storage], patterns: int) -> Before:
    """Where a launch stands.

    Args:
        session: the launch.
        tiles: storages in PSUM that the iterations share, by number.
        patterns: how many views access patterns made.
    """
    program, marks = session.program, session.program.marks
    noted = (program.addresses, marks.rotating, marks.block_uses, marks.edges, marks.blocks,
             marks.names, marks.instances, marks.carried, marks.odd, marks.reduced, marks.unwritten,
             marks.returned, program.notes, program.met, session.shared, session.changed_inputs,
             session.together.storages, session.together.warned)  # fmt: skip
    created = tuple(session._created.items())
    covered = {
        number: (_bits(s._accumulated), _bits(s._initialised), s.is_mutable) for number, s in tiles.items()
    }
    return Before(
        len(program), program.operand_count, len(program.storages), len(program.positions), patterns,
        (*map(len, noted), created), covered,
    )  # fmt: skip


def _bits(coverage: Any) -> Any:
    """Which elements are covered, as something that compares."""
    if coverage is None or coverage.is_empty:
        return None
    return True if coverage.is_full else coverage.bits.tobytes()


def shared_tiles(tensors: list[Storage]) -> dict[int, Storage]:
    """The storages in PSUM among some, by number."""
    return {s.number: s for s in tensors if s.memory == PSUM}


class Plan:
    """The way through one loop: two iterations by an index that stands for others, and those at once.

    An index that stands for some iterations alone, as the last one is shorter, is followed by another.

    Args:
        session: the launch.
        repeats: of the launch.
        name: of the loop.
        tiles: storages in PSUM that its iterations share, by number.

    Attributes:
        value: of the index in the iteration that runs.
    """

    def __init__(self, session: Session, repeats: Repeats, name: Any, tiles: Mapping[int, Storage]) -> None:
        self.session, self.repeats, self.name, self.tiles = session, repeats, name, tiles
        self.value = 0

    def iterations(self, values: range, *, is_counted: bool) -> Iterator[Any]:
        """The index of each iteration that is to run."""
        left, indices = values, list[LoopIndex]()
        if self.name in self.repeats.late:
            self.value, left = values[0], values[1:]
            yield self.value
        while len(indices) < MOST_PARTS and self.repeats.pays(self.name, len(left)):
            index = LoopIndex(self.repeats, self.name, left)
            run = yield from self.run(index, is_counted=is_counted)
            if index.is_over and len(values) - len(left) + run == MOST_RUN:
                # the first iteration is no part of what others follow from
                self.repeats.late.add(self.name)
            indices.append(index)
            left = left[index.done :]
            if index.done < index.count:
                break
        if indices and not any(index.is_over for index in indices):
            self.repeats.begin_later(self.name)
        for self.value in left:
            yield self.value

    def run(self, index: LoopIndex, *, is_counted: bool) -> Generator[Affine, None, int]:
        """The index of each iteration to run among those that it stands for; returns how many these are."""
        at = [self.standing()]
        while index.done < min(index.count, MOST_RUN):
            self.value = index.values[index.done]
            yield index.standing()
            at.append(self.standing())
            self.repeats.lengths[self.name] = at[-1].rows - at[-2].rows
            further = index.values[index.done : index.count]
            may_move = index in self.repeats.is_of_list
            if (
                further
                and len(at) > 2
                and continued(
                    self.session, (at[-3], at[-2], at[-1]), further, is_counted=is_counted, may_move=may_move
                )
            ):
                run, index.done, index.is_over = index.done, index.count, True
                return run
        return index.done

    def standing(self) -> Before:
        """Where the launch stands; a slice that ends at a number has a length that depends on the index."""
        if self.repeats.begun is not None:
            self.repeats.begun[-1].settled()
            self.repeats.begun = None
        return standing(self.session, self.tiles, len(self.repeats.patterns))


def continued(
    session: Session, at: tuple[Before, Before, Before], values: Sequence[int], *, is_counted: bool,
    may_move: bool,
) -> bool:  # fmt: skip
    """Write down the iterations that follow from two traced ones, if they do.

    Args:
        session: the launch.
        at: where it stood before the first iteration, before the second and after it.
        values: of the index in the further iterations.
        is_counted: whether an iteration is a place in the program's loops of its own.
        may_move: whether iterations take other tiles, out of lists in which their numbers are even.

    Returns:
        Whether they follow; nothing is written if not.
    """
    first, second, third = at
    if session.pending is not None or first.to(second) != second.to(third):
        return False
    if second.kept != third.kept or second.covered != third.covered:
        return False
    program = session.program
    rows, slots = program.since(first.rows, first.operands)
    n, m, new_storages, places, _ = first.to(second)
    (a, b), (s, t) = (rows[:, :n], rows[:, n:]), (slots[:, :m], slots[:, m:])
    is_own = t[0] >= second.storages
    of_tile = t[0] - s[0]
    of_place = np.where(b[2] >= second.positions, places, 0)
    if not (
        np.array_equal(a[:2], b[:2])
        and np.array_equal(a[2] + of_place, b[2])
        and (of_tile[is_own] == new_storages).all()
        and (may_move or not of_tile[~is_own].any())
        and _are_equal(program, at, is_counted)
        and (patterns := _patterns(session, at, len(values), may_move)) is not None
        and _are_known(program, slots[0][np.tile(~is_own, 2)], first, third)
    ):
        return False
    iterations = np.arange(1, len(values) + 1, dtype=np.int64)[:, None]
    further = np.tile(b, (1, len(values)))
    further[2] = (b[2] + iterations * of_place).reshape(-1)
    tiles, offsets = t[0] + iterations * of_tile, t[1] + iterations * (t[1] - s[1])
    program.extend(further, np.stack([tiles.reshape(-1), offsets.reshape(-1)]))
    program.marks.patterns.update(patterns)
    session.keyed[REPEATS].patterns += patterns
    _continue_tables(session, second, third, values, is_counted)
    return True


def _are_equal(program: Program, at: tuple[Before, Before, Before], is_counted: bool) -> bool:
    """Whether two iterations made equal tiles at equal places of equal loops."""
    first, second, third = at
    births, by = program.marks.births, second.positions - first.positions
    new_storages = program.storages[first.storages : second.storages]
    if new_storages != program.storages[second.storages : third.storages]:
        return False
    born = [_moved(place, first, by) for place in births[first.storages : second.storages]]
    if born != births[second.storages : third.storages].tolist():
        return False
    own, other = _places(program, first, second, is_counted), _places(program, second, third, is_counted)
    if [(_moved(p, first, by), _moved(loop, first, by), value) for p, loop, value in own] != other:
        return False
    entered = [(loop + by, *kind) for loop, *kind in _loops(program, first, second, is_counted)]
    return entered == _loops(program, second, third, is_counted)


def _patterns(
    session: Session, at: tuple[Before, Before, Before], iterations: int, may_move: bool
) -> list[tuple[int, int, Layout]] | None:
    """The views that access patterns make in further iterations; None if two iterations differ otherwise."""
    first, second, third = at
    known = session.keyed[REPEATS].patterns
    pairs = list(zip(
        known[first.patterns : second.patterns], known[second.patterns : third.patterns], strict=True
    ))  # fmt: skip
    created = third.storages - second.storages
    for (m, _, layout_before), (n, _, layout) in pairs:
        is_even = n - m == created if n >= second.storages else (may_move or n == m)
        if not is_even or layout_before is not layout:
            return None
    return [
        (n + iteration * (n - m), o + iteration * (o - p), layout)
        for iteration in range(1, iterations + 1)
        for (m, p, _), (n, o, layout) in pairs
    ]


def _moved(place: int, start: Before, by: int) -> int:
    """A place or loop of an iteration in a later one; those around it stay."""
    return place + by if place >= start.positions else place


def _places(program: Program, start: Before, end: Before, is_counted: bool) -> list[tuple[int, int, int]]:
    """Places in loops within an iteration, but not that of the iteration itself."""
    return program.positions.between(start.positions + is_counted, end.positions)


def _loops(program: Program, start: Before, end: Before, is_counted: bool) -> list[tuple[int, str, bool]]:
    """Number, kind, and whether Python unrolls them, of the loops that an iteration entered."""
    kinds, unrolled = program.marks.loops, program.unrolled
    entered = range(start.positions + is_counted, end.positions)
    unrolled_loops = set(unrolled[bisect_left(unrolled, start.positions) :])
    return [(loop, kinds[loop], loop in unrolled_loops) for loop in entered if loop in kinds]


def _are_known(program: Program, storages: np.ndarray, first: Before, third: Before) -> bool:
    """Whether it is known what of the tiles in PSUM that iterations share is written."""
    shared = np.unique(storages).tolist()
    if shared and shared[-1] >= first.storages:
        return False
    return all(n in third.covered for n in shared if program.storages[n].memory == PSUM)


def _continue_tables(
    session: Session, second: Before, third: Before, values: Sequence[int], is_counted: bool
) -> None:
    """Add the tiles, places and loops of further iterations."""
    program, marks = session.program, session.program.marks
    new_storages = program.storages[second.storages : third.storages]
    births = np.array(marks.births[second.storages : third.storages], np.int64)
    inside = np.array(_places(program, second, third, is_counted), np.int64).reshape(-1, 3)
    loops = _loops(program, second, third, is_counted)
    places = third.positions - second.positions
    count = len(values)
    by = places * np.arange(1, count + 1)[:, None]
    filled = [n for n in range(second.storages, third.storages) if n in marks.filled]
    marks.filled.update(n + i * len(new_storages) for i in range(1, count + 1) for n in filled)
    program.storages += new_storages * count
    marks.births.frombytes((births + by * (births >= second.positions)).tobytes())
    table = np.empty((count, is_counted + len(inside), 3), np.int64)
    if is_counted:
        table[:, 0] = program.positions[second.positions]
        table[:, 0, 2] = values
    table[:, is_counted:] = inside
    is_moved = inside[:, :2] >= second.positions
    table[:, is_counted:, :2] += by[:, :, None] * is_moved
    program.positions.extend(table)
    for further in by[:, 0].tolist() if loops else ():
        program.unrolled += [loop + further for loop, _, is_unrolled in loops if is_unrolled]
        for loop, kind, _ in loops:
            marks.loops[loop + further] = session.keyed["loop", loop + further] = kind
