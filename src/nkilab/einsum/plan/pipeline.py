"""Software pipelining: the statements of a turn are divided into stages, each a turn ahead of the next.

Engines take their instructions in order, and tiles in PSUM rotate through its banks in that order. Where a
turn waits for the state that the turn before leaves, or TensorE for what others make of its products, an
engine waits too, though another turn has work for it. Stages touch nothing that later ones write, in any
turn. Each turn of the loop runs the last stage of its own turn and the earlier ones of those that follow;
what the first turns need before stands before the loop, the rest of the last turns behind it. Tiles that a
stage hands on have a version for each turn that is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations, pairwise
from math import inf, prod

from ..hardware import Hardware
from ..room import NoRoomError, proved_room, size_of, views_of
from ..tree import nodes
from ..tree.expr import Expr, expr, name_of
from ..tree.rewrite import Change, copied

# units of a turn, those first that run ahead
Stages = list[list["Unit"]]
# fields of statements that name what they write
WRITTEN = ("dst", "total")
# loops of fewer turns stay as they are
FEWEST_TURNS = 4
# part of the work of a loop from which running ahead is worth a longer kernel
LEAST = 0.05
# turns that the first stage is before the last at most, and part of the time from which one more is worth it
MOST_AHEAD, SOONER = 3, 0.96
NUMBERS = ("none", "one", "two", "three")  # of turns ahead, in words
# times that a turn may fill PSUM for more than one stage ahead
MOST_FILLED = 2
# nanoseconds that one engine waits for another, and turns that are looked at
WAIT_NS, TURNS = 60.0, 16
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

    @cached_property
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
    written = {id(v.buffer) for n, v in views if n in WRITTEN} - local_to(units)
    own: dict[int, set[object]] = {}
    for v in (v for _, v in views if id(v.buffer) in written):
        parts: set[object] = {(n, i) for n, i in enumerate(v.index) if variable in nodes.names_in([i])}
        own[id(v.buffer)] = own.get(id(v.buffer), parts) & parts
    return {b for b in written if not own[b]}


class Clock:
    """Times the units of a loop, whose turns hand on tiles of a state, on engines that take them in order.

    Transfers count for nothing, as they run ahead.
    """

    def __init__(self, units: Sequence[Unit], hardware: Hardware, state: Set[int]) -> None:
        self.state, self.load_ns = state, hardware.machine["activation_table_load_ns"]
        self.tables = {id(u): hardware.tables(u.statement) for u in units}
        self.times = {
            id(u): {e: ns for e, ns in hardware.total([u.statement]).items() if e != "dma"} for u in units
        }

    def time(self, order: Iterable[tuple[Unit, int]]) -> float:
        """Nanoseconds until units in their turns are done, each once what it touches is there."""
        free: dict[str, float] = {}
        ready: dict[tuple[int, int], float] = {}
        table = ""  # what ScalarE has loaded
        for unit, turn in order:
            keys = {n: (0 if n in self.state else turn, n) for n in unit.touches}
            done = begin = max((ready.get(key, 0.0) for key in keys.values()), default=0.0)
            loads = 0
            if tables := self.tables[id(unit)]:
                loads = sum(a != b for a, b in pairwise((table, *tables)))
                table = tables[-1]
            for engine, ns in self.times[id(unit)].items():
                own_ns = ns + loads * self.load_ns * (engine == "scalar")
                free[engine] = max(begin, free.get(engine, 0.0)) + own_ns
                done = max(done, free[engine] + WAIT_NS)
            ready |= {keys[n]: done for n in unit.writes}
        return max(free.values(), default=0.0)

    def ahead(self, stages: Sequence[Sequence[Unit]], trips: int) -> float:
        """Nanoseconds that so many turns, or some of them, take in stages, each a turn ahead of the next."""
        turns = min(trips, TURNS)
        steps = (
            (step - n, stage) for step in range(turns + len(stages) - 1) for n, stage in enumerate(stages)
        )
        return self.time((unit, turn) for turn, stage in steps if 0 <= turn < turns for unit in stage)


def stages_of(loop: nodes.Loop, units: Sequence[Unit], hardware: Hardware) -> Iterator[tuple[float, Stages]]:
    """Ways to have a turn in stages, each a turn ahead of the next, and as it is: nanoseconds, and stages.

    Where turns hand on a state, what does not need it is ahead. Narrow units, a few elements per partition,
    come along with a state of their own, if nothing else touches that. Where turns are independent, stages
    are cut so that they share the work of a turn best, or where TensorE needs what other engines made of
    products: what engines end soonest with, which take instructions in order.
    """
    local, state, trips = local_to(units), state_of(units, loop.variable), expr(loop.trips).value or 1
    free = _without(units, [u for u in units if u.touches & state])
    late = [u for u in units if u not in free and _is_wide(u.statement)]
    if late:
        yield from ((0.0, _in_stages(units, [_without(units, late, local)])), (inf, [[*units]]))
        return
    is_short, clock = _is_short(loop, hardware), Clock(units, hardware, state)
    last = _products(units, hardware, is_fine=False)[-1]
    places = _products(units, hardware, is_fine=True)[:-1] if is_short else ()
    judged = {1: (clock.ahead([units], trips), [[*units]])}
    ways = _cut(units, places, local)
    for stages in chain([_shared_best(units, clock, local, last)], ways):
        ns, (least, best) = clock.ahead(stages, trips), [*judged.values()][-1]
        # the clock knows no transfers: two stages are better where it sees no difference
        if not is_short or len(stages) == 2 or ns < least * SOONER ** (len(stages) - max(len(best), 2)):
            judged[len(stages)] = ns, stages
    yield from reversed(judged.values())


def _cut(units: Sequence[Unit], places: Sequence[int], local: set[int]) -> Iterator[Stages]:
    """Stages that begin at some places of a turn."""
    for cuts in chain.from_iterable(combinations(places, n) for n in range(2, MOST_AHEAD + 1)):
        early = [[*units]]
        for place in reversed(cuts):
            behind = [u for u in early[0] if u in units[place:]]
            early.insert(0, _without(early[0], behind, local))
        yield _in_stages(units, early[:-1])


def _in_stages(units: Sequence[Unit], early: Sequence[Sequence[Unit]]) -> Stages:
    """Stages of units, each that of the first part that has them; the rest are the last."""
    first = [next((n for n, part in enumerate(early) if u in part), len(early)) for u in units]
    return [[u for u, n in zip(units, first, strict=True) if n == k] for k in range(len(early) + 1)]


def _shared_best(units: Sequence[Unit], clock: Clock, local: set[int], last: int) -> Stages:
    """Two stages up to the last place that need about as long as each other; or one."""
    times = {n: sum(part.values()) for n, part in clock.times.items()}
    best: list[Unit] = []
    least = sum(times.values())
    for place in range(1, last + 1):
        early = _without(units, units[place:], local)
        ahead = sum(times[id(u)] for u in early)
        longest = max(ahead, sum(times.values()) - ahead)
        if longest < least:
            best, least = early, longest
    return _in_stages(units, [best])


def _products(units: Sequence[Unit], hardware: Hardware, *, is_fine: bool) -> list[int]:
    """Units on TensorE that need what others made of products: the first by how often that is, and the last.

    Args:
        is_fine: whether what is in a loop is judged apart, and not as a whole.
    """
    changes: dict[int, int] = {}
    first: dict[int, int] = {}
    last = 0
    inner = ((n, s) for n, u in enumerate(units) for s in nodes.statements([u.statement]))
    own = (one for one in inner if not isinstance(one[1], nodes.Loop))
    for number, part in own if is_fine else enumerate(u.statement for u in units):
        reads, writes = _touched(part)
        is_tensor = "tensor" in hardware.total([part])
        # odd on TensorE, even where other engines work on what it made
        level = max((changes.get(n, 0) for n in reads), default=0)
        level += level % 2 != is_tensor
        changes |= dict.fromkeys(writes, level)
        if is_tensor and level > 1:
            first.setdefault(level, number)
            last = number
    return [*sorted(first.values()), last]


def _is_short(loop: nodes.Loop, hardware: Hardware) -> bool:
    """Whether a turn fills PSUM so seldom that it waits for its own tiles there, not for those of others."""
    made = ((s.buffer, n) for s, n in nodes.weighted(loop.body) if isinstance(s, nodes.Alloc))
    filled, machine = sum(size_of(b) * n for b, n in made if b.memory == nodes.PSUM), hardware.machine
    return filled <= MOST_FILLED * machine["psum_banks"] * machine["psum_bank_bytes"]


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

    def __init__(
        self, loop: nodes.Loop, hardware: Hardware, units: Sequence[Unit], ns: float, stages: Stages
    ) -> None:
        self.loop, self.hardware, self.units, self.stages, self.ns = loop, hardware, units, stages, ns
        *early, self.late = self.stages
        self.early = [u for stage in early for u in stage]
        self.ahead = len(early)  # turns that the first stage is before the last
        self.has_state = bool(state_of(self.units, loop.variable))
        tiles = {id(a.buffer): a.buffer for u in self.units for a in u.before}
        # tiles that say for themselves of how many turns they have what is there
        every = (s for u in units for s in nodes.statements([u.statement]))
        self.counted = {id(v.buffer) for s in every for _, v in views_of(s) if v.turn is not None}
        self.handed = {n: versions(b, lag + 1, nodes.TURNS) for n, b in tiles.items() if (lag := self.lag(n))}

    def lag(self, tile: int) -> int:
        """How many turns a tile waits for the last stage that touches it."""
        stages = [n for n, stage in enumerate(self.stages) if any(tile in u.touches for u in stage)]
        return stages[-1] - stages[0] if stages else 0

    @property
    def is_useful(self) -> bool:
        """Whether early statements keep an engine busy for which late ones wait."""
        ahead, behind = (
            set[str]().union(*(self.hardware.total([u.statement]) for u in held if _is_wide(u.statement)))
            for held in (self.early, self.late)
        )
        # PSUM has few banks
        if self.ahead > 1 and any(b.memory == nodes.PSUM for b in self.handed.values()):
            return False
        return bool(self.handed and ahead & behind - {"dma"}) and all(map(self.may_have_versions, self.early))

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
        loop, i, early = self.loop, name_of(self.loop.variable), range(self.ahead)
        last = (expr(loop.trips).value or 0) - 1
        products = (n for n, u in enumerate(self.late) if "tensor" in self.hardware.total([u.statement]))
        place = next(products, 0) if self.has_state else 0
        body = self.turn(self.late[:place], i, is_copy=False)
        for stage, lead in zip(self.stages, range(self.ahead, 0, -1), strict=False):
            which = f"the turn {lead} after this one" if lead > 1 else "the turn after this one"
            body.append(nodes.Comment(f"{which}, as far as it needs no other"))
            body += self.turn(stage, i + lead, is_copy=False)
        body += [nodes.Comment("the rest of this one")] * (self.ahead > 1)
        body += self.turn(self.late[place:], i, is_copy=False)
        # by the turn that is begun, and how many stages of each are before the loop
        begun = [(k - n, n) for k in early for n in range(k + 1)]
        left = [(last + 1 + k - n, n) for k in early for n in range(k + 1, self.ahead + 1)]
        return [
            *(nodes.Alloc(b) for b in self.handed.values()),
            nodes.Comment(f"the first turn of {loop.variable}, as far as it needs no other"),
            *(s for at, n in begun for s in self.turn(self.stages[n], expr(at), is_copy=True)),
            replace(loop, trips=last + 1 - self.ahead, body=body, apart=self.ahead),
            nodes.Comment(f"the rest of the last turn of {loop.variable}"),
            *(s for at, n in left for s in self.turn(self.stages[n], expr(at), is_copy=True)),
        ]

    def turn(self, units: Sequence[Unit], at: Expr, is_copy: bool) -> list[nodes.Statement]:
        """Units as they are in one turn; a copy has tiles of its own."""
        made = (a.buffer for u in units for a in u.before)
        buffers = {id(b): replace(b) if is_copy else b for b in made}

        def view(held: nodes.View) -> nodes.View:
            handed = self.handed.get(id(held.buffer))
            if handed is None:
                return replace(held, buffer=buffers.get(id(held.buffer), held.buffer))
            # turns by their remainders, as a reader expects them
            count, i = expr(handed.shape[1]).value or 1, name_of(self.loop.variable)
            lead = (at - i).value
            version = at % count if lead is None else (i + lead % count) % count
            return replace(
                in_version(held, handed, version), turn=held.turn if id(held.buffer) in self.counted else at
            )

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


def pipelines(loop: nodes.Loop, hardware: Hardware) -> list[Pipeline]:
    """Useful ways to have turns of a loop under way at once, the best first, and then as it is; or none."""
    units, trips = units_of(loop.body), expr(loop.trips).value
    if trips is None or trips < FEWEST_TURNS or loop.count_name or is_summed_over(loop):
        return []
    *ways, plain = (Pipeline(loop, hardware, units, *way) for way in stages_of(loop, units, hardware))
    useful = [each for each in ways if each.is_useful and each.is_bound]
    return [*useful, plain] if useful else []


def pipelined(
    kernel: nodes.Kernel, hardware: Hardware, choose: Callable[[Sequence[Pipeline]], Pipeline]
) -> nodes.Kernel:
    """A kernel whose loops run ahead what they can, where that is useful and its tiles fit.

    Args:
        choose: one of some ways to have turns of a loop, the last that in which they are.
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
        place, before = next(n for n, s in enumerate(body) if s is loop), list(body)
        ways = pipelines(loop, hardware)
        while len(ways) > 1 and (chosen := choose(ways)).ahead:
            body[place : place + 1] = chosen.statements()
            try:
                proved_room(kernel, hardware.machine)
                return True
            except NoRoomError:
                body[:] = before
                ways.remove(chosen)
        return False

    changed(kernel.body)
    return kernel
