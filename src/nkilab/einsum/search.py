"""Searching where rules leave a choice: layouts, operands, blocks, tiles, shared loops.

A point is what differs from the choices of the rules: knobs of the whole kernel, and of keyed decisions the
rank of the option taken. The tuner's executors judge points, its journal keeps outcomes. The seconds that a
search is given buy a fixed amount of work, counted in statements that kernels run. No clock is read: a slow
or busy machine, one worker or many, one run or several after interruptions find the same kernel.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from hashlib import sha256
from itertools import takewhile

from ..errors import NkilabError, UsageError
from ..hook import activate
from ..machine import Machine
from ..timing import MODEL_VERSION
from ..tune.carrying_out import Options, carried_out
from ..tune.executors import Task, release
from ..tune.objective import Case, KernelObjective, Objective, known_goals, pruned
from ..tune.outcome import PRUNED, Outcome
from ..tune.samplers import Climb
from ..tune.space import Point, Space, choices
from ..tune.study import Found
from .compiled import CompiledEinsum
from .mapped.guided import Guide
from .plan.context import Plan, PlanError
from .plan.given import NOTHING, Given
from .plan.knobs import RULES, Knobs
from .plan.lower import lower
from .prove import proved
from .sets import ProofError
from .tree.nodes import run_by

DEFAULTS = {f.name: getattr(RULES, f.name) for f in fields(Knobs) if f.name != "picks"}
# what is searched of the whole kernel; the first of each is what the rules take
SPACE = Space(
    (
        choices("group_blocks", (0, 1, 2, 4, 8)),
        choices("most_columns", (16384, 4096, 2048, 1024)),
        choices("transfer_bytes", (1 << 20, 1 << 22, 1 << 18)),
        choices("share", (0.85, 0.6)),
    )
)
FLAGS = tuple(name for name, value in DEFAULTS.items() if isinstance(value, bool))
# what one second pays for: statements that kernels run, and building a tree, as many statements
STATEMENTS_PER_SECOND, TREE_STATEMENTS = 40_000, 1_000
# a kernel that runs so many times as many statements as that of the rules is not timed
MOST_TIMES = 2
TOO_LONG = "too long to be timed"


@dataclass(frozen=True)
class Search:
    """How a search runs.

    Args:
        seconds: of work, 40,000 statements each; the first kernel is always tried.
        workers: a number of processes, or the address of a dask scheduler.
        journal: path of a file that keeps outcomes, "" for none.
    """

    seconds: float
    workers: str = "1"
    journal: str = ""


@dataclass(frozen=True)
class Plans:
    """What makes kernels of choices, for one cascade."""

    rules: CompiledEinsum  # the kernel by the rules, of which a search begins
    # guide, given: plans of a mapping, and what it asks of them; None without one
    guide: Guide | None = None
    given: Given = NOTHING
    most: int = 0  # statements of a kernel that is timed; 0 for any number

    def built(self, knobs: Knobs) -> Plan:
        """A tree and its plan."""
        if self.guide is not None:
            return self.guide.kept(self.given, knobs)
        rules = self.rules
        title = rules.tree.title if rules.tree is not None else ""
        return lower(rules.cascade, rules.dtypes, rules.machine, rules.name, title, knobs)

    def compiled(self, plan: Plan) -> CompiledEinsum:
        """The kernel of a plan, proved."""
        cascade = self.rules.cascade if self.guide is None else self.guide.cascade
        proofs = proved(plan[0], cascade, self.rules.machine)
        return replace(self.rules.of_tree(plan[0]), proofs=proofs, knobs=plan[1].knobs)


@dataclass(frozen=True)
class PlanTask(Task):
    """Points of a cascade."""

    plans: bytes  # a pickled `Plans`, so that a worker knows the one that it has
    goals: tuple[str, ...] = ("latency",)  # names of `objective.GOALS`

    def objective(self) -> PlanObjective:
        """What judges points."""
        return PlanObjective(pickle.loads(self.plans), self.goals)


class PlanObjective(Objective):
    """The predicted latency of an Einsum compiled with other choices than those of the rules.

    Choices that compile to the same kernel are judged once.
    """

    space = SPACE

    def __init__(self, plans: Plans, goals: Sequence[str] = ("latency",)) -> None:
        self.goals, self._plans = known_goals(goals), plans
        self.name, self.spelling, self.machine = plans.rules.name, plans.rules.dialect, plans.rules.machine
        # what judges the kernels that choices compile to, and by their text; None of one that is too long
        self._known: dict[Knobs, KernelObjective | None] = {}
        self._texts: dict[str, KernelObjective] = {}

    @cached_property
    def digest(self) -> str:
        """The rules' kernel and its cascade, the mapping, the chip, the release and the model's version."""
        rules, spec = self._plans.rules, self._plans.rules.spec
        mapping = (spec.partitioning, spec.loop_order, spec.spacetime, spec.fusion, spec.placements)
        key = (rules.source, rules.cascade.steps, mapping, rules.target, self._plans.most, release())
        return sha256(repr((*key, MODEL_VERSION)).encode()).hexdigest()[:16]

    def begins(self, space: Space) -> Point | None:
        """What the rules choose, as a point of a space; None if it is none."""
        point = {p.name: DEFAULTS[p.name] for p in space.parameters}
        is_there = all(point[p.name] in p.values for p in space.parameters) and space.holds(point)
        return point if is_there else None

    def check(self, space: Space) -> None:
        """Refuse a space of other things than the compiler's choices.

        Raises:
            UsageError: if a parameter is none of them.
        """
        for name in space.names:
            if name not in DEFAULTS:
                raise UsageError(
                    f"{name} is no choice of the Einsum compiler; there are {', '.join(DEFAULTS)}",
                    hint="leave --space out to search all of them",
                )

    def evaluate(self, point: Point) -> Outcome:
        """What becomes of a point; what it leaves open the rules choose."""
        knobs = knobs_of(point)
        try:
            if knobs not in self._known:
                self._known[knobs] = self._compiled(knobs)
        except Exception as error:
            # what no nest covers, what the proof refuses, or a fault
            known = error if isinstance(error, NkilabError | AssertionError) else PlanError(error, [])
            return pruned(point, known)
        kernel = self._known[knobs]
        if kernel is None:
            message = f"it runs more than {self._plans.most} statements"
            return Outcome(point, PRUNED, reason=TOO_LONG, message=message)
        with activate():
            is_own = self.machine is self._plans.rules.machine
            return replace((kernel if is_own else kernel.under(self.machine)).evaluate({}), point=point)

    def _compiled(self, knobs: Knobs) -> KernelObjective | None:
        """What judges the kernel that some choices compile to, proved; None of one that is too long."""
        plan = self._plans.built(knobs)
        if 0 < self._plans.most < run_by(plan[0].body):
            return None
        kernel = self._plans.compiled(plan)
        if kernel.source not in self._texts:
            case = Case((), kernel.specs)
            self._texts[kernel.source] = KernelObjective(kernel.kernel, [case], kernel.machine, self.goals)
        return self._texts[kernel.source]

    def under(self, machine: Machine) -> PlanObjective:
        """The same with other constants of the chip; what was compiled and traced is not made again."""
        other = copy(self)
        other.machine = machine
        return other


def knobs_of(point: Point) -> Knobs:
    """The choices that a point names."""
    picks = [(name.rpartition(" #"), rank) for name, rank in point.items() if name not in DEFAULTS]
    ranks = tuple(sorted(((what, int(number)), int(rank)) for (what, _, number), rank in picks))
    return Knobs(**{**DEFAULTS, **{n: v for n, v in point.items() if n in DEFAULTS}}, picks=ranks)


def point_of(knobs: Knobs) -> Point:
    """Choices as a point: what is not as by the rules."""
    changed = {name: value for name, value in vars(knobs).items() if name in DEFAULTS}
    return joined(changed, {_name(key): rank for key, rank in knobs.picks})


def _name(key: tuple[str, int]) -> str:
    return f"{key[0]} #{key[1]}"


def joined(*points: Mapping[str, int | float | str]) -> Point:
    """A point with what later ones change; what is as by the rules is not named."""
    known = {name: value for point in points for name, value in point.items()}
    return {name: value for name, value in known.items() if value != DEFAULTS.get(name, 0)}


def changes_of(plans: Plans, point: Point) -> list[Point]:
    """Changes of one thing: each choice of the plan, its second option first, and the whole kernel's then."""
    decisions = plans.built(knobs_of(point))[1].decisions
    changes: list[Point] = []
    for rank in range(1, max([2, *(len(d.options) for d in decisions)])):
        changes += [{_name(d.key): rank} for d in decisions if rank < len(d.options)]
        if rank == 1:
            # what concerns the whole kernel comes after the second options
            changes += [{p.name: value} for p in SPACE.parameters for value in p.values]
            changes += [{name: not point.get(name, DEFAULTS[name])} for name in FLAGS]
    return changes


def searched(plans: Plans, search: Search) -> CompiledEinsum:
    """The kernel that the timing model likes best, with what was tried and taken.

    Raises:
        KeyboardInterrupt: which says how far the search came, and where that is kept.
    """
    assert plans.rules.tree is not None
    statements, work = run_by(plans.rules.tree.body), max(int(search.seconds * STATEMENTS_PER_SECOND), 1)
    plans = replace(plans, most=MOST_TIMES * max(statements, TREE_STATEMENTS // 8))
    objective = PlanObjective(plans)
    climb = Climb(
        point_of(plans.rules.knobs), partial(changes_of, plans), joined, work,
        least=TREE_STATEMENTS, cost=TREE_STATEMENTS + statements,
    )  # fmt: skip
    result = carried_out(
        SPACE, objective, climb, PlanTask(pickle.dumps(plans)),
        Options("", trials=2 + work // TREE_STATEMENTS, workers=search.workers, journal=search.journal),
    )  # fmt: skip
    best, first = result.timed[0], result.outcomes[0]
    plan = plans.built(knobs_of(best.point))
    tried = (f"{RULES if o is first else knobs_of(o.point)}: {o.latency_us:.1f} us" for o in result.timed)
    # what stands before the choices of a plan is true of every one
    choices = plans.built(plans.rules.knobs)[1].choices
    before = takewhile(lambda note: note not in choices, plans.rules.changes)
    changes = (*before, *plan[1].choices, _sentence(result, best, plan, climb))
    return replace(plans.compiled(plan), changes=changes, alternatives=tuple(tried))


def _sentence(result: Found, best: Outcome, plan: Plan, climb: Climb) -> str:
    """What came of a search, for the report."""
    timed, first = len(result.timed), result.outcomes[0]
    gain = f"{first.latency_us / best.latency_us:.2f} times as fast as by the rules"
    knobs = RULES if best is first else knobs_of(best.point)
    keys = dict(knobs.picks)
    decided = [f"{d.what}: {d.taken or 'none'}" for d in plan[1].decisions if d.key in keys]
    whole = str(replace(knobs, picks=()))
    taken = "; ".join([*decided] if decided and whole == str(RULES) else [whole, *decided])
    # choices that compile to one text have one latency and the same bytes
    kernels = len({(o.latency_us, o.demand) for o in result.timed})
    too_long = result.pruned.get(TOO_LONG, 0)
    refused = len(result.outcomes) - timed - too_long
    tail = f"; {refused} choices gave no kernel" if refused else ""
    faults = sum(result.pruned.get(error.__name__, 0) for error in (PlanError, ProofError))
    told = f", {faults} of them by a fault of nkilab, which the journal names: please report it"
    tail += told if faults else ""
    tail += f"; {too_long} kernels {TOO_LONG}" if too_long else ""
    ended = "nothing was left to try" if climb.is_exhausted else "its work was spent"
    tail += f"; work of {climb.work:,} statements, whatever the clock says: {ended}"
    return f"searched {timed} choices, {kernels} kernels, {gain}; taken: {taken}{tail}"
