"""Several turns of a loop together: each part of a turn is computed for all of them before the next part.

Engines take their instructions in order. Where an engine works on what others made of its own results, it
waits for them in every turn, though the next turn has work for it; ScalarE loads a table for each kind of
function. Turns are taken a few at a time, in a strip: a loop over the strip for each part of a turn. Tiles
that one part hands to another have a version for each turn of the strip. What goes through PSUM stays in
one part, as that has few banks, and so does what a turn hands on to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from functools import cached_property

from ..hardware import Hardware
from ..room import buffers_that_fit
from ..tree import nodes
from ..tree.expr import expr, name_of
from ..tree.rewrite import Change, copied
from .pipeline import (
    TURNS,
    Clock,
    Unit,
    are_in_order,
    in_version,
    is_summed_over,
    local_to,
    state_of,
    units_of,
    versions,
)

# turns of a strip at most
MOST = 8
# part of the time of a loop that strips may take at most, to be worth a longer kernel
WORTH = 0.85


def parts_of(units: Sequence[Unit], state: Set[int] = frozenset()) -> list[list[Unit]]:
    """The units of a turn, those together that share tiles in PSUM, or what turns hand on."""
    parts: list[list[Unit]] = []
    last: dict[int, int] = {}
    for number, unit in enumerate(units):
        last |= dict.fromkeys(unit.touches, number)
    banks = {id(a.buffer) for u in units for a in u.before if a.buffer.memory == nodes.PSUM}
    end = -1
    for number, unit in enumerate(units):
        if number > end:
            parts.append([])
        parts[-1].append(unit)
        end = max([end, number, *(last[n] for n in unit.touches & (banks | state))])
    return parts


def sunk(units: Sequence[Unit]) -> list[Unit]:
    """Units of a turn, those that write tiles in PSUM right before the first that needs them there."""
    banks = {id(a.buffer) for u in units for a in u.before if a.buffer.memory == nodes.PSUM}
    ordered: list[Unit] = []
    for unit in reversed(units):
        behind = (n for n, other in enumerate(ordered) if are_in_order(unit, other))
        ordered.insert(next(behind, len(ordered)) if unit.writes & banks else 0, unit)
    return ordered


def sizes_of(loop: nodes.Loop) -> list[int]:
    """Turns that strips of a loop may have, the most first; none of a loop that cannot be parted."""
    trips = expr(loop.trips).value or 1
    if loop.count_name or loop.total is not None or loop.apart or is_summed_over(loop):
        return []
    return [n for n in range(min(MOST, trips), 1, -1) if trips % n == 0]


class Strips:
    """A loop whose turns may be taken a few at a time."""

    def __init__(self, loop: nodes.Loop, hardware: Hardware) -> None:
        self.loop, self.units, self.hardware = loop, units_of(loop.body), hardware
        if len(set(hardware.tables(loop))) > 1:
            # parts with functions of one table each
            self.units = sunk(self.units)
        self.state = state_of(self.units, loop.variable, is_far=True)
        self.parts = parts_of(self.units, self.state)
        local = local_to(self.units)
        tiles = {id(a.buffer): a.buffer for u in self.units for a in u.before}
        touched = [frozenset[int]().union(*(u.touches for u in part)) for part in self.parts]
        self.handed = {n: b for n, b in tiles.items() if n in local and sum(n in t for t in touched) > 1}

    @cached_property
    def clock(self) -> Clock:
        """What times the parts."""
        return Clock(self.units, self.hardware, self.state)

    @property
    def is_free(self) -> bool:
        """Whether turns have parts that need nothing of each other."""
        return self.loop.is_sequential <= bool(self.state) and len(self.parts) > 1

    def best(self) -> Iterator[tuple[int, float]]:
        """Turns of a strip and the part of the time that it takes, the least first; none above `WORTH`."""
        trips = expr(self.loop.trips).value or 1
        plain = self.time(1, min(trips, TURNS))
        judged = sorted((self.time(n, min(trips, TURNS)), n) for n in sizes_of(self.loop))
        yield from ((n, ns / plain) for ns, n in judged if ns < WORTH * plain)

    def time(self, size: int, turns: int) -> float:
        """How long some turns take in strips, on engines that take instructions in order."""
        firsts = range(0, turns, size)
        return self.clock.time(
            (unit, first + n) for first in firsts for part in self.parts for n in range(size) for unit in part
        )

    def statements(self, size: int, variable: str) -> list[nodes.Statement]:
        """What stands for the loop, with strips of so many turns; one strip needs no loop around it."""
        loop, wide = self.loop, {n: versions(b, size, b.role) for n, b in self.handed.items()}
        strips, version = (expr(loop.trips).value or 1) // size, name_of(variable)
        at = version if strips == 1 else name_of(loop.variable) * size + version

        def view(one: nodes.View) -> nodes.View:
            handed = wide.get(id(one.buffer))
            return one if handed is None else in_version(one, handed, version)

        change = Change({loop.variable: at}, view, {})
        body: list[nodes.Statement] = []
        shown: tuple[nodes.Comment, ...] = ()
        for part in self.parts:
            inner: list[nodes.Statement] = []
            for unit in part:
                # names are given where tiles are first touched: a loop before may have the same
                body += [nodes.Alloc(wide[n]) for a in unit.before if (n := id(a.buffer)) in wide]
                inner += [a for a in unit.before if id(a.buffer) not in wide]
                inner += [*(unit.comments if unit.comments is not shown else ()), unit.statement, *unit.after]
                shown = unit.comments
            is_chain = any(unit.touches & self.state for unit in part)
            body.append(nodes.Loop(variable, size, copied(inner, change), is_sequential=is_chain))
        if strips > 1:
            return [replace(loop, trips=strips, body=body)]
        return [*([nodes.Comment(loop.comment)] if loop.comment else []), *body]


def in_strips(
    kernel: nodes.Kernel, hardware: Hardware, fresh: Callable[[str], str],
    may: Callable[[nodes.Loop, int, float], bool],
) -> None:  # fmt: skip
    """Take turns of loops together where that is judged to pay and tiles fit, of the outermost that can be.

    Args:
        kernel: changed in place.
        may: whether a loop is to be changed, to strips of so many turns, which take that part of its time.
    """

    def changed(body: list[nodes.Statement]) -> None:
        for loop in [s for s in body if isinstance(s, nodes.Loop)]:
            inner = list(loop.body)
            if not taken(loop, body):
                changed(loop.body)
            # turns whose inner loop is in parts now have more parts themselves
            if loop.body != inner:
                taken(loop, body)

    def taken(loop: nodes.Loop, body: list[nodes.Statement]) -> bool:
        if not sizes_of(loop):
            return False
        strips, place = Strips(loop, hardware), next(n for n, s in enumerate(body) if s is loop)
        sizes = list(strips.best()) if strips.is_free else []
        before = buffers_that_fit(kernel, hardware.machine) if sizes else []
        plain = list(body)
        for size, share in sizes:
            body[place : place + 1] = strips.statements(size, fresh(loop.variable))
            # a strip that takes the second buffers of tiles hides less than it saves
            if buffers_that_fit(kernel, hardware.machine) >= before and may(loop, size, share):
                return True
            body[:] = plain
        return False

    changed(kernel.body)
