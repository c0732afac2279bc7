"""Proofs of order: every read of a tile finds the value of its own turn, or the one that its loop hands on.

A tile lives from where it is made to the end of that turn. The last write before each read, and before each
further write, is what isl finds as the flow of values. A value may go from one turn of a loop to another only
where turns run in order, in tiles with versions for two turns (`prove.py`), and in sums (`sums.py`). What a
scan or a state hands on comes from the turn right before. Nothing but constants is overwritten unread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from .._lazy import islpy
from .room import views_of
from .sets import Access, ProofError, points, told, touched, turns
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
        self.life, self.fixed = life, ", ".join(loop.variable for loop in life.scope)
        self.stored = next((a.view.buffer for a in life.accesses if a.is_write), life.buffer)
        self.names = {id(a): f"A{n}" for n, a in enumerate(life.accesses)}
        self.by_name = dict(zip(self.names.values(), life.accesses, strict=True))

    def proved(self) -> int:
        """How many reads are proved."""
        if not self.is_plain:
            self.follow()
        return sum(not a.is_write for a in self.life.accesses)

    @property
    def is_plain(self) -> bool:
        """Whether there is one write, which covers in its own turn all reads that follow."""
        write, *reads = self.life.accesses
        around = len(write.loops)
        if not write.is_write or any(a.is_write or a.view.turn for a in reads):
            return False
        chains = (zip_longest(write.loops, a.loops[:around]) for a in reads)
        if self.stored.base or any(one is not other for chain in chains for one, other in chain):
            return False
        whole = touched(write, write.loops)
        return all(touched(a, write.loops).is_subset(whole) for a in reads)

    def relation(self, parts: Iterable[str]) -> Any:
        """From the turns of accesses to something."""
        return islpy().UnionMap(f"[{self.fixed}] -> {{ {'; '.join(parts)} }}")

    def instance(self, access: Access, mark: str = "") -> str:
        """An access in its turns."""
        loops = (f"{mark}{loop.variable}" for loop in self.life.inner(access))
        return f"{self.names[id(access)]}[{', '.join(loops)}]"

    def elements(self, access: Access) -> str:
        """What an access touches in each of its turns: of what is read as another view, all."""
        claims, counts = turns(access.loops)
        axes = ", ".join(f"D{n}" for n in range(len(self.stored.shape or (1,))))
        claims += points(access.view if access.view.buffer is self.stored else all_of(self.stored), counts)
        return f"{self.instance(access)} -> [{axes}] : {' and '.join(f'({c})' for c in claims)}"

    def time(self, access: Access) -> str:
        """When an access comes in each of its turns: places and turns of its loops; reads before writes."""
        when = [f"{self.life.places[id(p)]}, {p.variable}" for p in self.life.inner(access)]
        when += [f"{access.number}, {int(access.is_write)}"]
        rest = max(len(a.loops) for a in self.life.accesses) - len(access.loops)
        return f"{self.instance(access)} -> [{', '.join(when + ['0, 0'] * rest)}]"

    def flows(self) -> Iterator[tuple[Access, Access, Any]]:
        """Pairs of a write and the next access of an element, with {write -> [access -> element]}.

        Raises:
            ProofError: if nothing wrote an element before a read.
        """
        every = self.life.accesses
        read, written = (
            self.relation(self.elements(a) for a in every if a.is_write is kind) for kind in (False, True)
        )
        times = self.relation(map(self.time, every)).intersect_domain(read.union(written).domain())
        asked = islpy().UnionAccessInfo.from_sink(read.union(written)).set_must_source(written)
        flow, maps, kind = asked.set_schedule_map(times).compute_flow(), list[Any](), islpy().dim_type.in_
        flow.get_must_no_source().intersect(read).foreach_map(maps.append)
        for one in maps:
            reads = told(self.by_name[one.get_tuple_name(kind)].statement)
            raise ProofError(f"{reads} reads of {self.life.buffer.name} what nothing wrote before")
        flow.get_full_must_dependence().foreach_map(maps.append)
        for one in maps:
            names = one.get_tuple_name(kind), one.range().unwrap().get_tuple_name(kind)
            yield self.by_name[names[0]], self.by_name[names[1]], one

    def follow(self) -> None:
        """Prove a life by where its values go."""
        read = lost = self.relation(())
        for write, access, flow in self.flows():
            elements = islpy().UnionMap.from_map(flow).range_factor_range()
            if not access.is_write:
                self.stays_in_turn(write, access, flow.range_factor_domain())
            if not access.is_write or adds(access):
                read = read.union(elements)
            elif not isinstance(write.statement, Fill):
                lost = lost.union(elements)
        # what nobody ever reads may be copied along
        if not lost.intersect_range(read.range()).is_subset(read):
            raise ProofError(f"{self.life.buffer.name} is written anew before what it had is read")

    def stays_in_turn(self, write: Access, read: Access, flow: Any) -> None:
        """What is read is of as many turns as the read says; to other turns values go only in order."""
        told_of = f"{told(read.statement)} reads of {self.life.buffer.name} what"
        left, said = write.view.turn or ZERO, read.view.turn
        if said is not None and not flow.is_subset(self.between(write, read, left, said)):
            raise ProofError(f"{told_of} another turn left than the one that it says")
        if read.number in self.life.sums:
            return
        both = zip(self.life.inner(write), self.life.inner(read), strict=False)
        is_in_versions = self.life.buffer.role == TURNS
        for loop in (a for a, b in both if a is b and (is_in_versions or not a.is_sequential)):
            turn = name_of(loop.variable)
            other, following = (
                flow.subtract(self.between(write, read, turn, turn)),
                self.between(write, read, turn + 1, turn),
            )
            if not (other.is_empty() or (is_in_versions and other.is_subset(following))):
                raise ProofError(f"{told_of} another turn of {loop.variable} wrote")

    def between(self, write: Access, read: Access, one: Expr, other: Expr) -> Any:
        """From the turns of a write to those of a read, where an expression of either is the same."""
        instances, sides = [], []
        for access, mark, value in ((write, "w_", one), (read, "r_", other)):
            loops = self.life.inner(access)
            names: dict[Atom, Expr] = {loop.variable: name_of(mark + loop.variable) for loop in loops}
            instances.append(self.instance(access, mark))
            sides.append(str(value.replaced(names)))
        return islpy().Map(f"[{self.fixed}] -> {{ {' -> '.join(instances)} : {' = '.join(sides)} }}")
