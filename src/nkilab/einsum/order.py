"""Proofs of order: every read of a tile finds the value of its own turn, or the one that its loop hands on.

A tile lives from where it is made to the end of that turn. The last write before each read, and before each
further write, is what isl finds as the flow of values. A value may go from one turn of a loop to another only
where turns run in order, in tiles with versions for two turns (`prove.py`), and in sums (`sums.py`). What a
scan or a state hands on comes from the turn right before. Nothing but constants is overwritten unread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from .._lazy import islpy
from .room import views_of
from .sets import Access, ProofError, points, told, turns
from .sums import adds
from .tree.expr import ZERO, Atom, Expr, name_of
from .tree.nodes import TURNS, Alloc, Buffer, Comment, Fill, Loop, Statement, Tally, all_of, walked


@dataclass
class Life:
    """The accesses of a buffer from one place where it is made."""

    buffer: Buffer  # in question, or what it is a view of
    scope: tuple[Loop, ...]  # loops around the place
    accesses: list[Access] = field(default_factory=list)  # in order, numbered by their places in the tree
    places: dict[int, int] = field(default_factory=dict)  # of all loops of the tree, by identity
    sums: set[int] = field(default_factory=set)  # statements that add to sums, by their places

    def inner(self, access: Access) -> tuple[Loop, ...]:
        """Loops around an access that begin and end while the buffer lives."""
        return access.loops[len(self.scope) :]


def lives_of(body: Iterable[Statement]) -> list[Life]:
    """Lives of all buffers that a body reads, but what callers give."""
    every: list[Life] = []
    alive: dict[int, Life] = {}
    places: dict[int, int] = {}
    sums: set[int] = set()
    last = 0

    def begun(buffer: Buffer, loops: tuple[Loop, ...]) -> Life:
        every.append(Life(buffer, loops, [], places, sums))
        return alive.setdefault(id(buffer), every[-1])

    for place, (statement, loops) in enumerate(walked(body)):
        if isinstance(statement, Alloc) and statement.buffer.base is None:
            alive.pop(id(statement.buffer), None)
            begun(statement.buffer, loops)
        elif isinstance(statement, Loop):
            places[id(statement)] = place
        elif isinstance(statement, Tally):
            sums.add(last)
        elif not isinstance(statement, Comment | Alloc):
            last = place
            for name, view in views_of(statement):
                base = view.buffer.base or view.buffer
                own = Access(view, name in ("dst", "total"), loops, place, statement)
                (alive.get(id(base)) or begun(base, ())).accesses.append(own)
    return [life for life in every if {a.is_write for a in life.accesses} - {life.buffer.role != "input"}]


def proved_order(body: Iterable[Statement]) -> int:
    """How many lives of buffers are proved whose values turns might confuse.

    Raises:
        ProofError: at the first read that finds the value of another turn, or value that nothing reads.
    """
    return sum(_Flow(life).proved() for life in lives_of(body))


class _Flow:
    """Where the values of a life go."""

    def __init__(self, life: Life) -> None:
        self.life, self.stored = life, next((a.view.buffer for a in life.accesses if a.is_write), life.buffer)
        self.by_name = {f"A{n}": a for n, a in enumerate(life.accesses)}
        self.depth = max(len(a.loops) for a in life.accesses) - len(life.scope)
        self.fixed = ", ".join(loop.variable for loop in life.scope)

    def map(self, name: str, onto: str, claims: Iterable[str] = ()) -> Any:
        """From the turns of an access to something."""
        inner = ", ".join(loop.variable for loop in self.life.inner(self.by_name[name]))
        where = " and ".join(f"({c})" for c in claims) or "true"
        return islpy().UnionMap(f"[{self.fixed}] -> {{ {name}[{inner}] -> {onto} : {where} }}")

    def elements(self, name: str) -> Any:
        """What an access touches in each of its turns."""
        access = self.by_name[name]
        claims, counts = turns(access.loops)
        axes = ", ".join(f"D{n}" for n in range(len(self.stored.shape or (1,))))
        # of what is read as another view, all
        view = access.view if access.view.buffer is self.stored else all_of(self.stored)
        return self.map(name, f"[{axes}]", [*claims, *points(view, counts)])

    def time(self, name: str) -> Any:
        """When an access comes in each of its turns: places and turns of its loops; reads before writes."""
        access = self.by_name[name]
        when = [f"{self.life.places[id(p)]}, {p.variable}" for p in self.life.inner(access)]
        when += [f"{access.number}, {int(access.is_write)}"]
        return self.map(name, f"[{', '.join(when + ['0, 0'] * (self.depth + 1 - len(when)))}]")

    def flows(self) -> Iterator[tuple[Access, Access, Any]]:
        """Pairs of a write and the next access of an element, with {write -> [access -> element]}.

        Raises:
            ProofError: if nothing wrote an element before a read.
        """
        touched = {n: self.elements(n) for n in self.by_name}
        every = reduce(_union, touched.values())
        times = reduce(_union, map(self.time, self.by_name)).intersect_domain(every.domain())
        none = islpy().UnionMap(f"[{self.fixed}] -> {{ }}")
        written, read = (
            reduce(_union, (touched[n] for n, a in self.by_name.items() if a.is_write is kind), none)
            for kind in (True, False)
        )
        asked = islpy().UnionAccessInfo.from_sink(every).set_must_source(written).set_schedule_map(times)
        flow, maps = asked.compute_flow(), list[Any]()
        flow.get_must_no_source().intersect(read).foreach_map(maps.append)
        kind = islpy().dim_type.in_
        for one in maps:
            told_of = told(self.by_name[one.get_tuple_name(kind)].statement)
            raise ProofError(f"{told_of} reads of {self.life.buffer.name} what nothing wrote before")
        flow.get_full_must_dependence().foreach_map(maps.append)
        for one in maps:
            names = one.get_tuple_name(kind), one.range().unwrap().get_tuple_name(kind)
            yield self.by_name[names[0]], self.by_name[names[1]], one

    def proved(self) -> int:
        """How many reads are proved."""
        read, lost = (islpy().UnionMap(f"[{self.fixed}] -> {{ }}") for _ in range(2))
        for write, access, flow in self.flows():
            elements = islpy().UnionMap.from_map(flow).range_factor_range()
            if not access.is_write:
                self.stays_in_turn(write, access, flow.range_factor_domain())
            if not access.is_write or adds(access):
                read = read.union(elements)
            elif not isinstance(write.statement, Fill):
                lost = lost.union(elements)
        if not lost.is_subset(read):
            raise ProofError(f"{self.life.buffer.name} is written anew before what it had is read")
        return sum(not a.is_write for a in self.life.accesses)

    def stays_in_turn(self, write: Access, read: Access, flow: Any) -> None:
        """What is read is of as many turns as the read says; to other turns values go only in order."""
        name = self.life.buffer.name
        if read.view.turn is not None:
            claim = self.between(write, read, write.view.turn or ZERO, read.view.turn)
            if not flow.is_subset(claim):
                raise ProofError(f"{told(read.statement)} reads of {name} what another turn than it says left")
        both = zip(self.life.inner(write), self.life.inner(read), strict=False)
        for loop in (a for a, b in both if a is b):
            turn = name_of(loop.variable)
            same = self.between(write, read, turn, turn)
            if loop.is_sequential or read.number in self.life.sums or flow.is_subset(same):
                continue
            following = self.between(write, read, turn + 1, turn)
            if self.life.buffer.role != TURNS or not flow.subtract(same).is_subset(following):
                where = f"another turn of {loop.variable}"
                raise ProofError(f"{told(read.statement)} reads of {name} what {where} wrote")

    def between(self, write: Access, read: Access, one: Expr, other: Expr) -> Any:
        """From the turns of a write to those of a read, where an expression of either is the same."""
        ends = []
        for access, mark in ((write, "w"), (read, "r")):
            loops = self.life.inner(access)
            names: dict[Atom, Expr] = {loop.variable: name_of(f"{mark}_{loop.variable}") for loop in loops}
            ends.append((", ".join(map(str, names.values())), (one, other)[len(ends)].replaced(names)))
        (turns_of_write, left), (turns_of_read, right) = ends
        mapped = f"{self.name_of(write)}[{turns_of_write}] -> {self.name_of(read)}[{turns_of_read}]"
        return islpy().Map(f"[{self.fixed}] -> {{ {mapped} : {left} = {right} }}")

    def name_of(self, access: Access) -> str:
        """The name of an access."""
        return next(n for n, a in self.by_name.items() if a is access)


def _union(one: Any, other: Any) -> Any:
    return one.union(other)
