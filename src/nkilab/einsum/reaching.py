"""Proofs of order: every read of a buffer finds what its own turn wrote, or what a turn before hands on.

A buffer lives from where it is made to the end of that turn. The last write before each read, and before each
further write, is what isl finds as the flow of values. A value may go from one turn of a loop to another only
where turns run in order, in sums (`sums.py`), and to the next in tiles with versions for two turns. What
scans and states hand on says how many turns made it (`View.turn`). Of other tiles that hold no tensor of the
cascade, which may overwrite its own, nothing but constants is overwritten unread.
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
from .tree.expr import ZERO, Atom, Expr, expr, name_of
from .tree.nodes import TURNS, Alloc, Buffer, Fill, Loop, Statement, Tally, all_of, walked


def proved_order(body: Iterable[Statement]) -> int:
    """How many reads find what is meant for them.

    Raises:
        ProofError: at the first that finds nothing, or the value of another turn; at a value that is lost.
    """
    return sum(life.proved() for life in _lives_of(body))


def _lives_of(body: Iterable[Statement]) -> list[_Life]:
    """Lives of all buffers that a body reads, but what callers give."""
    every: list[_Life] = []
    alive: dict[int, _Life] = {}
    places: dict[int, int] = {}
    last: Statement | None = None

    def begun(buffer: Buffer, loops: tuple[Loop, ...]) -> _Life:
        every.append(_Life(buffer, loops, places))
        alive[id(buffer)] = every[-1]
        return every[-1]

    for place, (statement, loops) in enumerate(walked(body)):
        if isinstance(statement, Alloc) and statement.buffer.base is None:
            begun(statement.buffer, loops)
        elif isinstance(statement, Loop):
            places[id(statement)] = place
        elif isinstance(statement, Tally):
            places[id(last)] = place
            continue
        last = statement
        for name, view in views_of(statement):
            base = view.buffer.root
            own = Access(view, name in ("dst", "total"), loops, place, statement)
            (alive.get(id(base)) or begun(base, ())).accesses.append(own)
    return [life for life in every if {a.is_write for a in life.accesses} - {life.buffer.role != "input"}]


@dataclass
class _Life:
    """The accesses of a buffer from one place where it is made, and where its values go."""

    buffer: Buffer  # in question, or what it is a view of
    scope: tuple[Loop, ...]  # loops around the place
    places: dict[int, int]  # in the tree, of loops and of statements that add to sums, by identity
    accesses: list[Access] = field(default_factory=list)  # in order, numbered by their places in the tree

    def proved(self) -> int:
        """How many reads are proved."""
        if not self.is_plain:
            self.follow()
        return sum(not a.is_write for a in self.accesses)

    @property
    def is_plain(self) -> bool:
        """Whether there is one write, which covers in its own turn all reads that follow."""
        write, *reads = self.accesses
        around = len(write.loops)
        chains = (zip_longest(write.loops, a.loops[:around]) for a in reads)
        if not write.is_write or any(one is not other for chain in chains for one, other in chain):
            return False
        if any(a.is_write or a.view.turn or a.view.buffer is not self.stored for a in reads):
            return False
        whole = touched(write, write.loops)
        return all(touched(a, write.loops).is_subset(whole) for a in reads)

    @property
    def stored(self) -> Buffer:
        """What is written, of which others may be views."""
        return next((a.view.buffer for a in self.accesses if a.is_write), self.buffer)

    def inner(self, access: Access) -> tuple[Loop, ...]:
        """Loops around an access that begin and end while the buffer lives."""
        return access.loops[len(self.scope) :]

    def relation(self, parts: Iterable[str], kind: str = "UnionMap") -> Any:
        """From the turns of accesses to something."""
        fixed = ", ".join(loop.variable for loop in self.scope)
        return getattr(islpy(), kind)(f"[{fixed}] -> {{ {'; '.join(parts)} }}")

    def instance(self, number: int, mark: str = "") -> str:
        """An access in its turns."""
        loops = (f"{mark}{loop.variable}" for loop in self.inner(self.accesses[number]))
        return f"A{number}[{', '.join(loops)}]"

    def elements(self, number: int) -> str:
        """What an access touches in each of its turns: of another view all to read, nothing to write."""
        claims, counts = turns((access := self.accesses[number]).loops)
        axes = ", ".join(f"D{n}" for n in range(len(self.stored.shape or (1,))))
        is_stored = access.view.buffer is self.stored
        claims += points(access.view if is_stored else all_of(self.stored), counts)
        claims += ["0 = 1"] if access.is_write and not is_stored else []
        return f"{self.instance(number)} -> [{axes}] : {' and '.join(f'({c})' for c in claims)}"

    def time(self, number: int) -> str:
        """When an access comes in each of its turns: places and turns of its loops; reads before writes."""
        access = self.accesses[number]
        when = [f"{self.places[id(p)]}, {p.variable}" for p in self.inner(access)]
        when += [f"{access.number}, {int(access.is_write)}"]
        rest = max(len(a.loops) for a in self.accesses) - len(access.loops)
        return f"{self.instance(number)} -> [{', '.join(when + ['0, 0'] * rest)}]"

    def flows(self) -> Iterator[tuple[int, int, Any]]:
        """Pairs of a write and the next access of an element, with {write -> [access -> element]}.

        Raises:
            ProofError: if nothing wrote an element before a read.
        """
        numbers, kind = range(len(self.accesses)), islpy().dim_type.in_
        read, written = (
            self.relation(self.elements(n) for n in numbers if self.accesses[n].is_write is is_write)
            for is_write in (False, True)
        )
        times = self.relation(map(self.time, numbers)).intersect_domain(read.union(written).domain())
        asked = islpy().UnionAccessInfo.from_sink(read.union(written)).set_must_source(written)
        flow, maps = asked.set_schedule_map(times).compute_flow(), list[Any]()
        flow.get_must_no_source().intersect(read).foreach_map(maps.append)
        for one in maps:
            statement, name = self.accesses[int(one.get_tuple_name(kind)[1:])].statement, self.buffer.name
            raise ProofError(f"{told(statement)} reads of {name} what nothing wrote before")
        flow.get_full_must_dependence().foreach_map(maps.append)
        for one in maps:
            names = one.get_tuple_name(kind), one.range().unwrap().get_tuple_name(kind)
            yield int(names[0][1:]), int(names[1][1:]), one

    def follow(self) -> None:
        """Prove a life by where its values go."""
        read = lost = self.relation(())
        for write, number, flow in self.flows():
            access = self.accesses[number]
            if not access.is_write:
                self.stays_in_turn(write, number, flow.range_factor_domain())
            elements = islpy().UnionMap.from_map(flow).range_factor_range()
            if not access.is_write or adds(access):
                read = read.union(elements)
            elif not isinstance(self.accesses[write].statement, Fill):
                lost = lost.union(elements)
        # what nobody ever reads may be copied along; the last of what turns hand on is read by none
        is_told = bool(self.buffer.tensor) or any(a.view.turn for a in self.accesses)
        if not is_told and not lost.intersect_range(read.range()).is_subset(read):
            raise ProofError(f"{self.buffer.name} is written anew before what it had is read")

    def stays_in_turn(self, write: int, number: int, flow: Any) -> None:
        """What is read is of as many turns as the read says; to other turns values go only in order."""
        read, left = self.accesses[number], self.accesses[write].view.turn or ZERO
        told_of = f"{told(read.statement)} reads of {self.buffer.name} what"
        said, is_in_versions = read.view.turn, self.buffer.role == TURNS
        if said is not None and not flow.is_subset(self.between(write, number, left, said)):
            raise ProofError(f"{told_of} another turn left than the one that it says")
        if id(read.statement) in self.places:
            return
        both = zip(self.inner(self.accesses[write]), self.inner(read), strict=False)
        for loop in (a for a, b in both if a is b and (is_in_versions or not a.is_sequential)):
            turn = name_of(loop.variable)
            other = flow.subtract(self.between(write, number, turn, turn))
            for lag in range(1, (expr(self.buffer.shape[1]).value or 1) if is_in_versions else 1):
                other = other.subtract(self.between(write, number, turn + lag, turn))
            if not other.is_empty():
                raise ProofError(f"{told_of} another turn of {turn} wrote")

    def between(self, write: int, read: int, one: Expr, other: Expr) -> Any:
        """From the turns of a write to those of another access, where an expression of either is the same."""
        instances, sides = [], []
        for number, mark, value in ((write, "w_", one), (read, "r_", other)):
            loops = self.inner(self.accesses[number])
            names: dict[Atom, Expr] = {loop.variable: name_of(mark + loop.variable) for loop in loops}
            instances.append(self.instance(number, mark))
            sides.append(str(value.replaced(names)))
        return self.relation([f"{' -> '.join(instances)} : {' = '.join(sides)}"], "Map")
