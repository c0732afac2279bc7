"""Decisions of which two options are judged nearly equal: the timing model takes the better kernel.

What rules judge an option by counts instructions and bytes; it cannot see what waits for what. Where that
leaves two options close, both are made, and timed while they run few statements; else what their busiest
engines do is compared. The work is counted in statements: a slow machine makes the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf, log
from typing import TypeVar

from ..errors import NkilabError
from .plan.context import Context, Plan, Planner, is_fault, reason
from .plan.groups import groups_of, ordered_steps
from .plan.knobs import MORE_BLOCKS, Decision, Knobs
from .plan.normal import has_few_rows
from .plan.reach import beyond_edges
from .tree.nodes import Kernel, run_by

Change = Callable[[Knobs], Knobs]
Measure = Callable[[Kernel], float]
Option = TypeVar("Option")
Result = TypeVar("Result")

# how many times the cost of the best an option may be judged at, to be tried
CLOSE = 2.0
# kernels that are timed besides the first, and statements that all of them run together; what takes as
# long as the first to the last digit is the same kernel, and does not count
MOST_TIMED, MOST_STATEMENTS = 8, 20_000
# Einsums of all plans that are made besides the first together, and plans as long as the best at least
MOST_PLANNED, FEWEST_PLANS = 160, 6
# columns that tiles may have instead at most, so that one is moved while another is computed; and statements
# that a kernel of few turns runs
FEWER_COLUMNS, FEW_STATEMENTS = (2048, 1024), 200
# what another choice shows where it ends in an error that is none of the cascade's
FAULT = "A FAULT OF NKILAB, please report it"
# of the time of the kernel by the rules: what saves less leaves it as it is; and of that of its busiest
# engine, which tells nothing of waits; a rewrite that saves less than the last says comes behind all others
WORTH, WORTH_UNSEEN, WORTH_FIRST = 0.98, 0.7, 0.6
# of the time of another plan, from which on one is taken at once
ENOUGH = 0.9
# times as long as the plan its busiest engine works with a change that is not tried again
FAR = 4.0
# times as long as another plan, from which one is no measure of changes
HOPELESS = 8.0
BUSIEST = "its busiest engine works "


@dataclass(frozen=True)
class Trial:
    """A plan beside another one."""

    what: str  # was changed
    plan: Plan
    measure: Measure  # of the other plan
    before: float  # us of the other plan
    after: float  # us of this one
    is_busiest: bool  # whether that is its busiest engine's alone
    worth: float  # part of the other's time from which on this one is no better

    @property
    def is_better(self) -> bool:
        """Whether this plan is taken for the other."""
        return self.after < self.before * self.worth

    @property
    def told(self) -> str:
        """What was found, in a few words."""
        whose = BUSIEST * self.is_busiest
        return f"{self.what}: " + (f"{whose}{self.after:.1f} us" if self.after < inf else "no room on chip")

    @property
    def reason(self) -> str:
        """Why it is taken."""
        if self.before == inf:
            return f"{self.what}: by the rules there is no room on chip"
        return f"{self.told} instead of {self.before:.1f}" + " by the timing model" * (not self.is_busiest)


class Timed:
    """What makes a tree and its plan of choices, and takes the faster of options that are judged close.

    Args:
        built: makes one plan.
        latency: predicts how long a tree takes.
        price: how long its busiest engine works at least, for what is too long to be timed.
        proved: proves a tree. Like the others it raises where a choice gives none.
    """

    def __init__(
        self, built: Planner, latency: Measure, price: Measure, proved: Callable[[Kernel], tuple[str, ...]]
    ) -> None:
        self.built, self.latency, self.price, self.proved = built, latency, price, proved

    def best(self, knobs: Knobs) -> Plan:
        """The plan of choices, or the fastest that is found from there on and proved."""
        first = self.built(knobs)
        if knobs.picks or len(first[1].cascade.einsums) > MOST_PLANNED:
            return first
        self.climb(first, is_each_proved=False)
        if self.plan is not first and self.attempt(self.proved, self.plan[0]) is None:
            # rare: some step on the way is not proved, so that the way is gone again, each step proved
            self.climb(first, is_each_proved=True)
        self.plan[1].choices.extend(self.notes)
        self.plan[1].tried.extend((*self.tried, *self.faults))
        return self.plan

    def climb(self, first: Plan, is_each_proved: bool) -> None:
        """Go from a plan to faster ones, as long as changes give any."""
        self.plan, self.notes, self.tried = first, list[str](), list[str]()
        self.plans, self.faults, self.late = dict[Knobs, Plan | None](), list[str](), dict[str, Change]()
        self.timed = set[Knobs]()
        self.begin(set())
        while changes := self.others() or self.postponed():
            trials = [*self.trials(changes)]
            self.tried += [t.told for t in trials]
            better = sorted((t for t in trials if t.is_better), key=lambda t: t.after)
            is_good = (self.attempt(self.proved, t.plan[0]) is not None for t in better)
            best = next((t for t in better if not is_each_proved or next(is_good)), None)
            # with another plan come other decisions, and what else was better may be still
            self.seen |= {t.what for t in better[: better.index(best) + 1 if best else None]}
            if best is not None:
                self.notes.append(best.reason)
                self.take(best)

    def begin(self, seen: set[str]) -> None:
        """Begin to compare the plan with others."""
        self.seen, self.known, self.planned = seen, dict[Measure, float](), 0
        runs = run_by(self.plan[0].body)
        # what runs more by itself is timed once, beside what runs far fewer
        is_long = MOST_STATEMENTS < runs <= 2 * MOST_STATEMENTS
        self.budget = MOST_STATEMENTS // 2 if is_long else MOST_STATEMENTS - runs

    def take(self, best: Trial) -> None:
        """Go on from a better plan."""
        self.plan = best.plan
        if best.after * HOPELESS < best.before:  # what was compared with it tells nothing
            self.begin({best.what})
        self.known = {best.measure: best.after}

    def trials(self, changes: Sequence[tuple[str, Change]]) -> Iterator[Trial]:
        """What changes lead to, up to one that is far better; what is better may be tried again."""
        for number, (what, change) in enumerate(changes, 1):
            other = self.made(change(self.plan[1].knobs))
            trial = None if other is None else self.compared(what, other)
            if trial is None or not trial.is_better:
                self.seen.add(what)
            elif self.are_rewrites and trial.after >= trial.before * WORTH_FIRST:
                self.seen.add(what)
                self.late |= {what: change, f"{what} alone": partial(replace, **vars(trial.plan[1].knobs))}
            if trial is not None and what not in self.late:
                yield trial
            if trial is not None and what not in self.late and trial.after < trial.before * ENOUGH:
                self.late |= {what: change for what, change in changes[number:] if what in self.seen}
                return

    def compared(self, what: str, other: Plan) -> Trial:
        """Another plan beside the present one."""
        runs, least = run_by(other[0].body), self.price(other[0])
        is_timed = other[1].knobs in self.timed or runs <= self.budget
        measure, worth = (self.judged, WORTH) if is_timed else (self.price, WORTH_UNSEEN)
        before = self.known[measure] = self.known[measure] if measure in self.known else measure(self.plan[0])
        if not is_timed or least >= min(before / WORTH_UNSEEN, max(before, self.price(self.plan[0]))):
            # what is no faster than its busiest engine need not be timed; ragged tiles are priced whole
            return Trial(what, other, measure, before, least, True, worth)
        after = measure(other[0])
        self.budget -= runs * (after != before and other[1].knobs not in self.timed)
        self.timed.add(other[1].knobs)
        return Trial(what, other, measure, before, after, False, worth)

    def attempt(self, make: Callable[[Option], Result], option: Option) -> Result | None:
        """What an option gives; None where no nest covers what it asks for, or it shows a fault of ours."""
        try:
            return make(option)
        except Exception as error:
            self.faults.extend([f"{FAULT}: {reason(error)}"] if is_fault(error) else [])
            return None

    def made(self, knobs: Knobs) -> Plan | None:
        """The plan of some choices; None if there is none, or enough others were made."""
        each = len(self.plan[1].cascade.einsums)
        if knobs not in self.plans and self.planned < max(MOST_PLANNED, FEWEST_PLANS * each):
            self.plans[knobs] = other = self.attempt(self.built, knobs)
            self.planned += each if other is None else len(other[1].cascade.einsums)
        return self.plans.get(knobs)

    def others(self) -> list[tuple[str, Change]]:
        """Changes of the plan that were not tried: those of the cascade itself, then the others."""
        rewrites = [each[1:] for d in self.plan[1].decisions if d.is_rewrite for each in _others(d)]
        rewrites = [one for one in rewrites if one[0] not in self.seen]
        rewrites += [one for one in self.regrouped(rewrites) if one[0] not in self.seen]
        left = self.by_price(rewrites)
        self.are_rewrites = bool(left)
        changes = [one for one in _changes(self.plan) if one[0] not in self.seen]
        # as many as can be timed, of half the statements: busiest engines tell nothing of what is so close
        most = 2 * self.budget // run_by(self.plan[0].body) if self.judged in self.known else None
        return left or self.by_price(changes[:most])

    def postponed(self) -> list[tuple[str, Change]]:
        """Rewrites that save little, once all others were tried, however many plans that were."""
        now = self.plan[1].knobs
        left = {change(now): (what, change) for what, change in reversed(self.late.items())}
        self.late = {}
        self.planned -= len(left) * len(self.plan[1].cascade.einsums)
        return [*left.values()][::-1]

    def regrouped(self, rewrites: Sequence[tuple[str, Change]]) -> Iterator[tuple[str, Change]]:
        """Rewrites after which other steps share most loops."""
        for what, change in rewrites:
            other = self.made(change(self.plan[1].knobs)) or self.plan
            for why, order in _reordered(other[1]):
                yield f"{what}; {why}", partial(_in_turn, change, order)

    def by_price(self, changes: Sequence[tuple[str, Change]]) -> list[tuple[str, Change]]:
        """Changes of the plan that are possible, those first whose busiest engine has least to do."""
        others = [(self.made(change(self.plan[1].knobs)), (what, change)) for what, change in changes]
        priced = [(self.attempt(self.price, other[0]), each) for other, each in others if other is not None]
        # once it is known that the plan has room
        far = self.price(self.plan[0]) * FAR if min(self.known.values(), default=inf) < inf else inf
        self.seen |= {what for cost, (what, _) in priced if cost is not None and cost > far}
        near = ((cost, each) for cost, each in priced if cost is not None and cost <= far)
        # as close as they are judged where that is nearly the same
        return [each for _, each in sorted(near, key=lambda one: round(log(one[0] or 1.0), 1))]

    def judged(self, kernel: Kernel) -> float:
        """How long a tree takes; without end where its tiles have no room."""
        try:
            return self.latency(kernel)
        except NkilabError:
            return inf


def _in_turn(first: Change, then: Change, knobs: Knobs) -> Knobs:
    return then(first(knobs))


def _others(decision: Decision) -> Iterator[tuple[float, str, Change]]:
    """Options of a decision that are judged close to the best: how close, in a few words, and the change."""
    for rank, cost in enumerate(decision.costs):
        option = decision.options[rank]
        if rank and cost <= CLOSE * decision.costs[0]:
            told = decision.what if option == "yes" else f"{decision.what}: {option}"
            change = partial(Knobs.picking, key=decision.key, rank=rank)
            yield cost / max(decision.costs[0], 1e-9), told, change


def _changes(plan: Plan) -> list[tuple[str, Change]]:
    """Changes of a plan that are worth trying."""
    kernel, ctx = plan
    widths = [n for n in FEWER_COLUMNS if n < ctx.widest and run_by(kernel.body) < FEW_STATEMENTS]
    narrow = [(f"tiles of {n} columns at most", partial(replace, most_columns=n)) for n in widths]
    is_larger = ctx.is_larger and not ctx.knobs.group_blocks
    larger = (f"tiles of {MORE_BLOCKS} blocks of partitions", partial(replace, group_blocks=MORE_BLOCKS))
    return [*_reordered(ctx), *islice(_close(ctx), MOST_TIMED), *[larger] * is_larger, *narrow]


def _reordered(ctx: Context) -> list[tuple[str, Change]]:
    """The order and the groups of steps in which those share loops that share most, if they are others."""
    what = "what lies between steps over one loop comes first"
    if ctx.knobs.is_ordered or not ctx.knobs.is_fused:
        return []
    is_other = groups_of(ordered_steps(ctx.cascade), is_parted=True) != groups_of(ctx.cascade)
    return [(what, partial(replace, is_ordered=True))] * is_other


def _close(ctx: Context) -> Iterator[tuple[str, Change]]:
    """Changes of a plan that are judged close to it, in a few words, the closest first."""
    if not ctx.knobs.is_spread and has_few_rows(ctx.cascade, ctx.lanes):
        yield "long rows over all partitions", lambda knobs: replace(knobs, is_spread=True)
    if not ctx.knobs.is_edged and beyond_edges(ctx, ctx.cascade.einsums):
        yield "zeros around copies in HBM", lambda knobs: replace(knobs, is_edged=True)
    options = [each for d in ctx.decisions if not d.is_rewrite for each in _others(d)]
    yield from ((what, change) for _, what, change in sorted(options, key=lambda each: each[0]))
