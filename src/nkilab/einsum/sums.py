"""Proofs of sums: each adds every value of what it runs over exactly once, and is read only after that.

The planner tells in a `Tally`, after each statement that adds to a sum, which values of the summed variables
it takes. With loops outside of the sum held fixed, the turns of those inside must take disjoint values for
every element of the place, and together all; a statement that adds without a tally is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from .._lazy import islpy
from .room import views_of
from .sets import Access, ProofError, points, told, turns, within
from .tree.along import axes_of
from .tree.expr import Expr, expr
from .tree.nodes import Activate, Choose, Fill, Loop, MatMul, Reduce, Tally


@dataclass(frozen=True)
class Sum:
    """One statement that adds, with its tally."""

    tally: Tally  # what it adds
    loops: tuple[Loop, ...]  # around it
    number: int  # of it
    fixed: tuple[Loop, ...]  # loops outside of the sum
    begun: int  # number of the statement that begins it; that of itself where it begins itself

    @property
    def running(self) -> tuple[Loop, ...]:
        """Loops that the sum runs over."""
        return tuple(loop for loop in self.loops if not any(loop is f for f in self.fixed))


def proved_sums(accesses: list[Access]) -> int:
    """How many sums are proved.

    Raises:
        ProofError: at the first that adds a value twice or not at all, or is read before it is complete.
    """
    by_buffer: dict[int, list[Access]] = {}
    tallies = {a.number: a.statement for a in accesses if isinstance(a.statement, Tally)}
    for access in accesses:
        by_buffer.setdefault(id(access.view.buffer), []).append(access)
    choices = (a.statement for a in accesses if isinstance(a.statement, Choose))
    pieces = {id(c.total.buffer): c.dst.cuts[-1].count for c in choices if c.total is not None}
    count = 0
    for held in by_buffer.values():
        sums = [_sum(a, held, tallies.keys(), pieces) for a in held if isinstance(a.statement, Tally)]
        _need_tallies(held, {s.number for s in sums})
        for group in _together(sums):
            _adds_each_once(group)
            count += 1
        for one in sums:
            _is_read_after(one, sums, held)
            _is_whole(one, sums, held, tallies)
    return count


def adds(write: Access) -> bool:
    """Whether a write adds to what lies in its place, which its statement then reads too."""
    if isinstance(write.statement, MatMul):
        return bool(write.statement.over) or write.statement.is_begun
    itself = Activate(write.view, "copy", write.view)
    if isinstance(write.statement, Activate) and replace(write.statement, total=None) == itself:
        return False  # a copy for its sum alone
    reads = (view for name, view in views_of(write.statement) if name not in ("dst", "total"))
    return any(view == write.view for view in reads)


def _sum(tallied: Access, held: list[Access], tallies: Collection[int], pieces: Mapping[int, Expr]) -> Sum:
    """What is told of a sum; `pieces` are the elements behind each of a buffer that has maxima already."""
    tally = tallied.statement
    assert isinstance(tally, Tally)
    adding = next((a for a in held if a.number == tallied.number and a.is_write), None)
    if adding is None:
        raise ProofError(f"nothing adds to {tally.into.buffer.name} what is told of it")
    statement, loops, begun = adding.statement, adding.loops, adding.number
    if isinstance(statement, Reduce):
        # partitions that are added up later are values of the sum
        kept = axes_of(tally.into)[1 if tally.is_across else 0 :]
        taken = _product(axes_of(statement.src)) * pieces.get(id(statement.src.buffer), 1)
        if taken != _product(kept) * prod(s.count for s in tally.added):
            raise ProofError(f"{told(statement)} takes other elements than the sum {tally.into.buffer.name}")
    fixed = loops
    if isinstance(statement, MatMul):
        fixed = tuple(loop for loop in loops if loop.variable not in statement.over)
        opening = _first_part(adding, held) if statement.is_begun else adding
        fixed = tuple(a for a, b in zip(fixed, opening.loops) if a is b)
        begun = min(a.number for a in held if a.is_write and _is_same_sum(opening, a))
    elif adds(adding):
        # zeros, or the first value
        begins = (a for a in held if a.is_write and a.number < tallied.number and not adds(a))
        first = [a for a in begins if isinstance(a.statement, Fill) or a.number in tallies]
        if not first:
            raise ProofError(f"the sum {tally.into.buffer.name} is taken up before it is begun")
        begun = first[-1].number
        fixed = tuple(a for a, b in zip(loops, first[-1].loops) if a is b)
    return Sum(tally, loops, tallied.number, fixed, begun)


def _first_part(adding: Access, held: list[Access]) -> Access:
    """The product that begins the sum to which another one adds in loops of its own."""
    before = [a for a in held if a.is_write and a.number < adding.number]
    begins = [a for a in before if isinstance(a.statement, MatMul) and not a.statement.is_begun]
    if not begins or begins[-1].view != adding.view:
        raise ProofError(f"the sum {adding.view.buffer.name} is taken up before it is begun")
    return begins[-1]


def _product(axes: list[tuple[Expr, Expr]]) -> Expr:
    return prod((count for _, count in axes), start=expr(1))


def _is_same_sum(first: Access, second: Access) -> bool:
    """Whether two products go on with one sum: a loop that both run over stands around them."""
    if first.number == second.number:
        return True
    return bool(_summed_by(first) & _summed_by(second))


def _summed_by(access: Access) -> set[int]:
    """The loops that a product runs over."""
    over = access.statement.over if isinstance(access.statement, MatMul) else ()
    return {id(loop) for loop in access.loops if loop.variable in over}


def _need_tallies(held: list[Access], tallied: set[int]) -> None:
    """Every statement that adds to a sum tells what, and nothing else adds to it."""
    for access in held:
        is_adding = access.is_write and adds(access)
        if is_adding and access.number not in tallied and (tallied or isinstance(access.statement, MatMul)):
            raise ProofError(f"{told(access.statement)} adds to {access.view.buffer.name} once more")


def _together(sums: list[Sum]) -> list[list[Sum]]:
    """Statements that add to one sum: those with the same beginning; with the loops outside of all."""
    found: dict[int, list[Sum]] = {}
    for one in sums:
        found.setdefault(one.begun, []).append(one)
    outside = {n: set.intersection(*({id(f) for f in s.fixed} for s in group)) for n, group in found.items()}
    return [
        [replace(s, fixed=tuple(f for f in s.fixed if id(f) in outside[n])) for s in group]
        for n, group in found.items()
    ]


def _taken(one: Sum) -> Any:
    """From the turns of the loops it runs over to (element, values) that are added."""
    held, counts = turns(one.loops)
    into = one.tally.into
    axes = range(1 if one.tally.is_across else 0, len(into.buffer.shape))
    held += [c for c in points(into, counts) if not (one.tally.is_across and _is_about(c, "D0"))]
    for n, summed in enumerate(one.tally.added):
        held += within(f"X{n}", summed.start, summed.count, counts)
    elements = [f"D{n}" for n in axes] + [f"X{n}" for n in range(len(one.tally.added))]
    turn = ", ".join(loop.variable for loop in one.running)
    fixed = ", ".join(loop.variable for loop in one.fixed)
    inner = " and ".join(f"({h})" for h in held) or "true"
    return islpy().Map(f"[{fixed}] -> {{ [{turn}] -> [{', '.join(elements)}] : {inner} }}")


def _is_about(constraint: str, name: str) -> bool:
    return name in constraint.split()


def _wanted(one: Sum, elements: Any) -> Any:
    """All (element, value) pairs that a sum is made of, for its elements."""
    held, counts = turns(one.fixed)
    within_it = {loop.variable for loop in one.running}
    for n, summed in enumerate(one.tally.added):
        if loose := within_it & (summed.whole_start.names | summed.whole_count.names):
            name = one.tally.into.buffer.name
            raise ProofError(f"what the sum {name} runs over depends on {', '.join(loose)} within it")
        held += within(f"X{n}", summed.whole_start, summed.whole_count, counts)
    names = ", ".join(f"X{n}" for n in range(len(one.tally.added)))
    fixed = ", ".join(loop.variable for loop in one.fixed)
    inner = " and ".join(f"({h})" for h in held) or "true"
    return elements.flat_product(islpy().Set(f"[{fixed}] -> {{ [{names}] : {inner} }}"))


def _adds_each_once(group: list[Sum]) -> None:
    """The turns of all statements that add to a sum take disjoint values, and together all."""
    name = group[0].tally.into.buffer.name
    whole: Any = None
    for one in group:
        taken = _taken(one)
        here = taken.range()
        if one.running and not taken.is_injective():
            raise ProofError(f"the sum {name} takes up a value in two turns")
        if whole is not None and not whole.is_disjoint(here):
            raise ProofError(f"the sum {name} takes up a value in two statements")
        whole = here if whole is None else whole.union(here)
    count = len(group[0].tally.added)
    rank = whole.dim(islpy().dim_type.set)
    elements = whole.project_out(islpy().dim_type.set, rank - count, count)
    if not _wanted(group[0], elements).is_subset(whole):
        over = ", ".join(s.variable for s in group[0].tally.added)
        raise ProofError(f"the sum {name} does not take up every value of {over}")


def _is_read_after(one: Sum, sums: list[Sum], held: list[Access]) -> None:
    """Nothing reads a sum in the loops that it runs over, or before the last addition."""
    name = one.tally.into.buffer.name
    adding = {s.number for s in sums}
    last = max(s.number for s in sums if s.begun == one.begun)
    for read in held:
        if read.is_write or read.number in adding or isinstance(read.statement, Tally):
            continue
        is_inside = any(loop is r for loop in read.loops for r in one.running)
        if is_inside or one.begun < read.number < last:
            raise ProofError(f"{told(read.statement)} reads {name} before its sum is complete")


def _read_by(read: Access, sums: list[Sum]) -> int | None:
    """Which sum in a place a statement reads, by the number of its beginning; None if none is before it."""
    before = [s for s in sums if s.number < read.number]
    return max(before, key=lambda s: s.number).begun if before else None


def _is_whole(one: Sum, sums: list[Sum], held: list[Access], tallies: dict[int, Tally]) -> None:
    """What is a part of a sum is added up by all that read it, each time all of the part."""
    reads = [a for a in held if not a.is_write and not isinstance(a.statement, Tally)]
    reads = [a for a in reads if _read_by(a, sums) in (None, one.begun)]
    parts = [s for s in one.tally.added if s.is_part]
    for mine, read in product(parts, reads):
        added = tallies[read.number].added if read.number in tallies else ()
        theirs = [(s.start, s.count) for s in added if s.variable == mine.variable]
        if theirs != [(mine.whole_start, mine.whole_count)]:
            name = one.tally.into.buffer.name
            raise ProofError(f"{told(read.statement)} reads a part of {name} as if it were the whole sum")
