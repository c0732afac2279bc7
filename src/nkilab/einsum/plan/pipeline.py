"""Software pipelining: what a turn of a loop computes without the state of the others runs one turn ahead.

Engines take their instructions in order. Where a turn waits for the state that the turn before leaves, an
engine waits too, though the next turn has work for it that needs no state. So the statements of a loop are
divided: early ones touch nothing that late ones write, in any turn. Early ones of the first turn run before
the loop; each turn then runs its late statements and the early ones of the next; those of the last turn run
behind the loop. Tiles that early statements hand to late ones have two versions, for even and odd turns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod

from ..hardware import Hardware
from ..room import NoRoomError, proved_room, views_of
from ..tree import nodes
from ..tree.expr import ZERO, Expr, expr, name_of
from ..tree.rewrite import Change, copied

# fields of statements that name what they write
WRITTEN = ("dst", "total")
# loops of fewer turns stay as they are
FEWEST_TURNS = 4
# part of the work of a loop from which running ahead is worth a longer kernel
LEAST = 0.05
# elements per partition from which an instruction is worth being ahead
WIDE = 64


@dataclass(frozen=True, eq=False)
class Unit:
    """A statement or loop of a body."""

    statement: nodes.Statement  # it
    before: tuple[nodes.Alloc, ...]  # the making of tiles that it is the first to touch
    comments: tuple[nodes.Comment, ...]  # that stand above it, or above units before it
    # reads, writes: identities of buffers
    reads: frozenset[int]
    writes: frozenset[int]
    after: tuple[nodes.Tally, ...] = ()  # what it adds to sums

    @property
    def touches(self) -> frozenset[int]:
        """Every buffer that it reads or writes."""
        return self.reads | self.writes

    @cached_property
    def bound(self) -> frozenset[str]:
        """Names that it gives to tiles and loops."""
        inner = [*self.before, *nodes.statements([self.statement])]
        tiles = (s.buffer.name for s in inner if isinstance(s, nodes.Alloc))
        loops = (n for s in inner if isinstance(s, nodes.Loop) for n in (s.variable, s.count_name) if n)
        return frozenset((*tiles, *loops))

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of all tiles that it touches, and of its loops."""
        views = (v for s in nodes.statements([self.statement]) for _, v in views_of(s))
        return self.bound | {v.buffer.name for v in views}


def units_of(body: Sequence[nodes.Statement]) -> list[Unit]:
    """The statements of a body with what belongs before them."""
    found: list[Unit] = []
    comments: tuple[nodes.Comment, ...] = ()
    made: dict[int, nodes.Alloc] = {}
    is_new = True
    for statement in body:
        if isinstance(statement, nodes.Comment):
            comments = (*(() if is_new else comments), statement)
            is_new = False
        elif isinstance(statement, nodes.Alloc):
            made[id(statement.buffer)] = statement
        elif isinstance(statement, nodes.Tally):
            # it tells of the statement before it
            found[-1] = replace(found[-1], after=(*found[-1].after, statement))
        else:
            reads, writes = _touched(statement)
            tiles = [made.pop(n) for n in list(made) if n in reads | writes]
            # what was told before a loop that tells of itself is not of it, nor of what follows it
            is_other = is_new and isinstance(statement, nodes.Loop) and bool(statement.comment)
            comments = comments * (not is_other)
            found.append(Unit(statement, tuple(tiles), comments, reads, writes))
            is_new = True
    return found


def listed(units: Sequence[Unit], apart: Collection[int] = ()) -> list[nodes.Statement]:
    """Statements of units behind what tells of them and the making of their tiles, but of those apart."""
    body: list[nodes.Statement] = []
    shown: tuple[nodes.Comment, ...] = ()
    for unit in units:
        body += [a for a in unit.before if id(a.buffer) not in apart]
        body += unit.comments if unit.comments is not shown else ()
        shown = unit.comments
        body += (unit.statement, *unit.after)
    return body


def _touched(statement: nodes.Statement) -> tuple[frozenset[int], frozenset[int]]:
    reads: set[int] = set()
    writes: set[int] = set()
    for inner in nodes.statements([statement]):
        for name, view in views_of(inner):
            (writes if name in WRITTEN else reads).add(id(view.buffer))
    return frozenset(reads), frozenset(writes)


def local_to(units: Sequence[Unit]) -> set[int]:
    """Tiles that a turn makes."""
    inner = [
        s for u in units for s in (*u.before, *nodes.statements([u.statement])) if isinstance(s, nodes.Alloc)
    ]
    return {id(s.buffer) for s in inner}


def state_of(units: Sequence[Unit], variable: str, *, is_far: bool = False) -> set[int]:
    """Tiles, also in HBM if asked, that turns write and do not make, but those with a part for every turn."""
    every = [s for u in units for s in nodes.statements([u.statement])]
    views = [(n, v) for s in every for n, v in views_of(s) if is_far or v.buffer.memory != nodes.HBM]
    own: dict[int, set[object]] = {}
    for _, v in views:
        parts: set[object] = {(n, i) for n, i in enumerate(v.index) if variable in nodes.names_in([i])}
        own[id(v.buffer)] = own.get(id(v.buffer), parts) & parts
    written = {id(v.buffer) for n, v in views if n in WRITTEN}
    return {b for b in written - local_to(units) if not own[b]}


def early_of(units: Sequence[Unit], hardware: Hardware, variable: str) -> list[Unit]:
    """The units that run a turn ahead.

    Where turns hand on a state, those that do not need it. Narrow ones, a few elements per partition, come
    along with a state of their own, if nothing else touches that. Where turns are independent, as many as
    share the work of a turn best with the rest, which needs TensorE for what other engines made of products.
    """
    local, state = local_to(units), state_of(units, variable)
    free = _without(units, [u for u in units if u.touches & state])
    late = [u for u in units if u not in free and _is_wide(u.statement)]
    if late:
        return _without(units, late, local)
    return _shared_best(units, hardware, local)


def _shared_best(units: Sequence[Unit], hardware: Hardware, local: set[int]) -> list[Unit]:
    """The first units of a turn, so many that they and the others need about as long."""
    last = _last_product(units, hardware)
    times = {id(u): sum(hardware.total([u.statement]).values()) for u in units}
    best: list[Unit] = []
    least = sum(times.values())
    for place in range(1, last + 1) if last is not None else ():
        early = _without(units, units[place:], local)
        ahead = sum(times[id(u)] for u in early)
        longest = max(ahead, sum(times.values()) - ahead)
        if longest < least:
            best, least = early, longest
    return best


def _last_product(units: Sequence[Unit], hardware: Hardware) -> int | None:
    """The last unit on TensorE that waits for what other engines made of products; None if none does."""
    changes: dict[int, int] = {}
    found = None
    for number, unit in enumerate(units):
        # odd on TensorE, even where other engines work on what it made
        level = max((changes.get(n, 0) for n in unit.reads), default=0)
        is_tensor = "tensor" in hardware.total([unit.statement])
        level += (level % 2 == 0) if is_tensor else (level % 2 == 1)
        changes |= dict.fromkeys(unit.writes, level)
        if is_tensor and level > 1:
            found = number
    return found


def _without(units: Sequence[Unit], late: Sequence[Unit], local: Collection[int] = ()) -> list[Unit]:
    """The units that touch nothing which late ones write, and write nothing that late ones write or keep."""
    while True:
        early = [u for u in units if u not in late]
        barred = frozenset[int]().union(*(u.writes for u in late))
        # what outlives a turn would be a turn ahead for those that stay
        kept = frozenset[int]().union(*(u.touches for u in late)) - frozenset(local)
        more = [u for u in early if u.touches & barred or (local and u.writes & kept)]
        if not more:
            return early
        late = [*late, *more]


def is_summed_over(loop: nodes.Loop) -> bool:
    """Whether products of all turns are one sum in PSUM, which a turn outside would begin anew."""
    products = (s for s in nodes.statements(loop.body) if isinstance(s, nodes.MatMul))
    return any(loop.variable in s.over for s in products)


class Pipeline:
    """A loop whose statements are divided."""

    def __init__(self, loop: nodes.Loop, hardware: Hardware) -> None:
        self.loop, self.hardware, self.units = loop, hardware, units_of(loop.body)
        self.early = early_of(self.units, hardware, loop.variable)
        self.has_state = bool(state_of(self.units, loop.variable))
        self.late = [u for u in self.units if u not in self.early]
        self.local = {id(a.buffer): a.buffer for u in self.units for a in u.before}
        written = frozenset().union(*(u.writes for u in self.early))
        handed = written & frozenset().union(*(u.reads for u in self.late))
        self.handed = {n: versions(b, 2, nodes.TURNS) for n, b in self.local.items() if n in handed}

    @property
    def is_useful(self) -> bool:
        """Whether early statements keep an engine busy for which late ones wait."""
        trips = expr(self.loop.trips).value
        if trips is None or trips < FEWEST_TURNS or self.loop.count_name or not self.handed:
            return False
        if is_summed_over(self.loop):
            return False
        ahead, behind = (
            set[str]().union(*(self.hardware.total([u.statement]) for u in held if _is_wide(u.statement)))
            for held in (self.early, self.late)
        )
        return bool(ahead & behind - {"dma"}) and all(map(self.may_have_versions, self.early))

    @property
    def is_bound(self) -> bool:
        """Whether what runs ahead has a part in the time, and transfers do not take all of it anyway."""
        total = self.hardware.total
        held, ahead = total([self.loop]), total([u.statement for u in self.early])
        work, early = (sum(t for e, t in part.items() if e != "dma") for part in (held, ahead))
        early *= expr(self.loop.trips).value or 1
        return early > LEAST * work and (self.has_state or work > held.get("dma", 0.0))

    def may_have_versions(self, unit: Unit) -> bool:
        """Whether sums that a unit hands on are single products: one in PSUM that is cut begins at zeros."""
        return not any(
            isinstance(s, nodes.MatMul) and id(s.dst.buffer) in self.handed and (s.over or s.is_begun)
            for s in nodes.statements([unit.statement])
        )

    def statements(self) -> list[nodes.Statement]:
        """What stands for the loop."""
        loop, i = self.loop, name_of(self.loop.variable)
        last = (expr(loop.trips).value or 0) - 1
        next_version, version = (i + 1) % 2, i % 2
        first, rest = self.divided()
        body: list[nodes.Statement] = []
        place = 0
        if self.has_state:
            products = (n for n, u in enumerate(self.late) if "tensor" in self.hardware.total([u.statement]))
            place = next(products, 0)
        ahead = self.turn(first, i + 1, next_version, is_copy=False)
        body += self.turn(self.late[:place], i, version, is_copy=False)
        body += [nodes.Comment("the turn after this one, as far as it needs no other"), *ahead]
        body += self.turn(self.late[place:], i, version, is_copy=False)
        body += self.turn(rest, i + 1, next_version, is_copy=False)
        return [
            *(nodes.Alloc(b) for b in self.handed.values()),
            nodes.Comment(f"the first turn of {loop.variable}, as far as it needs no other"),
            *self.turn(self.early, ZERO, ZERO, is_copy=True),
            replace(loop, trips=last, body=body, apart=1),
            nodes.Comment(f"the rest of the last turn of {loop.variable}"),
            *self.turn(self.late, expr(last), expr(last % 2), is_copy=True),
        ]

    def divided(self) -> tuple[list[Unit], list[Unit]]:
        """Early units up to the first small one of ScalarE or GpSimdE, and the rest.

        The rest is a chain of small steps that ends a turn: engines that wait for it have nothing left to do.
        """
        for n, unit in enumerate(self.early):
            engines = self.hardware.total([unit.statement]).keys()
            if engines & {"scalar", "gpsimd"} and not _is_wide(unit.statement):
                return self.early[:n], self.soonest_first(self.early[n:])
        return self.early, []

    def soonest_first(self, units: Sequence[Unit]) -> list[Unit]:
        """Small units in the order in which wide ones of the next turn need them, as far as they may."""
        waiting = [u for u in self.late if _is_wide(u.statement)]
        found: list[Unit] = []
        for reader in waiting:
            needed = needed_for(reader.reads, units)
            found += [u for u in units if u in needed and u not in found]
        found += [u for u in units if u not in found]
        return found if _keeps_order(units, found) else list(units)

    def turn(self, units: Sequence[Unit], at: Expr, version: Expr, is_copy: bool) -> list[nodes.Statement]:
        """Units as they are in one turn; a copy has tiles of its own."""
        made = (a.buffer for u in units for a in u.before)
        buffers = {id(b): replace(b) if is_copy else b for b in made}

        def view(held: nodes.View) -> nodes.View:
            handed = self.handed.get(id(held.buffer))
            if handed is None:
                return replace(held, buffer=buffers.get(id(held.buffer), held.buffer))
            return in_version(held, handed, version)

        change = Change({self.loop.variable: at}, view, buffers)
        return copied(listed(units, self.handed), change)


def needed_for(buffers: Iterable[int], units: Sequence[Unit]) -> list[Unit]:
    """The units that what buffers hold in the end depends on, directly or not."""
    found: list[Unit] = []
    reads = set(buffers)
    for unit in reversed(units):
        if unit.writes & reads:
            found.append(unit)
            reads |= unit.reads
    return found


def _keeps_order(before: Sequence[Unit], after: Sequence[Unit]) -> bool:
    """Whether units that touch what another writes stand in the same order."""
    place = {id(u): n for n, u in enumerate(after)}
    return all(place[id(a)] < place[id(b)] for a, b in combinations(before, 2) if _depend(a, b))


def _depend(first: Unit, second: Unit) -> bool:
    """Whether one of two units writes what the other touches."""
    return bool(first.writes & second.touches or first.touches & second.writes)


def are_in_order(first: Unit, second: Unit) -> bool:
    """Whether two units cannot change places: they touch the same, or one gives a name that both have."""
    return _depend(first, second) or bool(first.bound & second.names or first.names & second.bound)


def versions(buffer: nodes.Buffer, count: int, role: str) -> nodes.Buffer:
    """A tile with so many of another, behind its partitions."""
    return replace(buffer, shape=(buffer.shape[0], count, *buffer.shape[1:]), role=role)


def in_version(view: nodes.View, buffer: nodes.Buffer, version: Expr) -> nodes.View:
    """A view of one of the versions of its tile that a buffer has."""
    place = 1 + len(view.index) - len(view.buffer.shape)
    return replace(view, buffer=buffer, index=(*view.index[:place], nodes.At(version), *view.index[place:]))


def _is_wide(statement: nodes.Statement) -> bool:
    """Whether an instruction of a statement works on many columns."""
    views = (view for inner in nodes.statements([statement]) for _, view in views_of(inner))
    return any(prod(cut.count.value or WIDE for cut in view.cuts[1:]) >= WIDE for view in views)


def pipelined(kernel: nodes.Kernel, hardware: Hardware, may: Callable[[nodes.Loop], bool]) -> nodes.Kernel:
    """A kernel whose loops run a turn ahead what they can, where that is useful and its tiles fit.

    Args:
        may: whether a loop is to be changed.
    """

    def changed(body: list[nodes.Statement]) -> bool:
        """Change the loops of a body in place, the innermost that can be; whether one was."""
        is_changed = False
        for loop in [s for s in body if isinstance(s, nodes.Loop)]:
            # a loop around one that is written out already would be written out twice over
            is_changed |= changed(loop.body) or ahead(loop, body)
        return is_changed

    def ahead(loop: nodes.Loop, body: list[nodes.Statement]) -> bool:
        """Change one loop of a body; whether that is useful and fits."""
        pipeline = Pipeline(loop, hardware)
        if not pipeline.is_useful or not pipeline.is_bound or not may(loop):
            return False
        place, before = next(n for n, s in enumerate(body) if s is loop), list(body)
        body[place : place + 1] = pipeline.statements()
        try:
            proved_room(kernel, hardware.machine)
        except NoRoomError:
            body[:] = before
            return False
        return True

    changed(kernel.body)
    return kernel
