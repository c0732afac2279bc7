"""Decisions of which two options are judged nearly equal: the timing model takes the better kernel.

What rules judge an option by counts instructions and bytes; it cannot see what waits for what. Where that
leaves two options close, both are made, and timed while they run few statements; else what their busiest
engines do is compared. The work is counted in statements: a slow machine makes the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from math import inf
from typing import TypeVar

from ..errors import NkilabError
from .plan.context import Context, Plan, Planner, is_fault, reason
from .plan.groups import groups_of, ordered_steps
from .plan.knobs import Decision, Knobs
from .plan.normal import has_few_rows
from .plan.reach import beyond_edges
from .plan.rewritten import REWRITES
from .tree.nodes import Kernel, run_by

Change = Callable[[Knobs], Knobs]
Measure = Callable[[Kernel], float]
Option = TypeVar("Option")
Result = TypeVar("Result")

# how many times the cost of the best an option may be judged at, to be tried
CLOSE = 2.0
# kernels that are timed besides the first, and statements that all of them run together; what takes as
# long as the first to the last digit is the same kernel, and does not count
MOST_TIMED, MOST_STATEMENTS = 6, 20_000
# Einsums of all plans that are made besides the first together, and plans at least, if one has not more
MOST_PLANNED, FEWEST_PLANS = 144, 6
# blocks of partitions that tiles of loops which Einsums share may have instead
MORE_BLOCKS = 4
# what another choice shows where it ends in an error that is none of the cascade's
FAULT = "A FAULT OF NKILAB, please report it"
# of the time of the kernel by the rules: what saves less leaves it as it is; and of that of its busiest
# engine, which tells nothing of waits; a rewrite that saves less than the last says comes behind all others
WORTH, WORTH_UNSEEN, WORTH_FIRST = 0.98, 0.7, 0.6
# times as long as another plan, from which one is no measure of changes
HOPELESS = 8.0
BUSIEST = "its busiest engine works "


def best_timed(
    built: Planner, latency: Measure, price: Measure, proved: Callable[[Kernel], tuple[str, ...]]
) -> Planner:
    """What makes a tree and its plan of choices, and takes the faster of two options that are judged close.

    Args:
        latency: predicts how long a tree takes.
        price: how long its busiest engine works at least, for what is too long to be timed.
        proved: proves a tree. Like the others it raises where a choice gives none.
    """

    plans, faults, most = dict[Knobs, Plan | None](), list[str](), FEWEST_PLANS

    def best(knobs: Knobs) -> Plan:
        nonlocal most
        plan, notes, tried = built(knobs), list[str](), list[str]()
        if knobs.picks or len(plan[1].cascade.einsums) > MOST_PLANNED:
            return plan
        budget, known = MOST_STATEMENTS - run_by(plan[0].body), dict[Measure, float]()
        plans.clear()
        faults.clear()
        most = max(FEWEST_PLANS, MOST_PLANNED // len(plan[1].cascade.einsums))
        seen, late, changes = set[str](), dict[str, Change](), list[tuple[str, Change]]()
        while changes or (changes := others(plan, seen) or [*late.items()]):
            what, change = changes.pop(0)
            is_first = what in REWRITES and late.pop(what, None) is None
            seen.add(what)
            if (other := made(change(plan[1].knobs))) is None:
                continue
            runs, least = run_by(other[0].body), price(other[0])
            judge, whose = (judged, "") if runs <= budget else (price, BUSIEST)
            before = known[judge] = known[judge] if judge in known else judge(plan[0])
            if whose or least * WORTH_UNSEEN >= before:
                # what is no faster than its busiest engine need not be timed
                after, whose = least, BUSIEST
            else:
                after = judge(other[0])
                budget -= runs * (after != before)
            worth = WORTH if judge is judged else WORTH_UNSEEN
            if is_first and before * WORTH_FIRST <= after < before * worth:
                late[what] = change
                continue
            tried.append(f"{what}: {whose}{after:.1f} us" if after < inf else f"{what}: no room on chip")
            if after >= before * worth or attempt(proved, other[0]) is None:
                continue
            sentence = f"{whose}{after:.1f} us instead of {before:.1f}" + " by the timing model" * (not whose)
            notes.append(f"{what}: {sentence if before < inf else 'by the rules there is no room on chip'}")
            if after * HOPELESS < before:  # what was compared with it tells nothing
                seen, budget = {what}, MOST_STATEMENTS - run_by(other[0].body)
            plan, known, changes = other, {judge: after}, []  # with another plan come other decisions
        plan[1].choices.extend(notes)
        plan[1].tried.extend((*tried, *faults))
        return plan

    def attempt(make: Callable[[Option], Result], option: Option) -> Result | None:
        """What an option gives; None where no nest covers what it asks for, or it shows a fault of ours."""
        try:
            return make(option)
        except Exception as error:
            faults.extend([f"{FAULT}: {reason(error)}"] if is_fault(error) else [])
            return None

    def made(knobs: Knobs) -> Plan | None:
        """The plan of some choices; None if there is none, or enough others were made."""
        if knobs not in plans and len(plans) < most:
            plans[knobs] = attempt(built, knobs)
        return plans.get(knobs)

    def others(plan: Plan, seen: Container[str]) -> list[tuple[str, Change]]:
        """Changes of a plan that were not tried: those of the cascade itself, then the others."""
        rewrites = [each[1:] for d in plan[1].decisions if d.is_rewrite for each in _others(d)]
        rewrites += [*regrouped(plan, rewrites)]
        left = ([one for one in each if one[0] not in seen] for each in (rewrites, _changes(plan[1])))
        return next(filter(None, (by_price(plan, changes) for changes in left)), [])

    def regrouped(plan: Plan, rewrites: Sequence[tuple[str, Change]]) -> Iterator[tuple[str, Change]]:
        """Rewrites after which other steps share most loops."""
        for what, change in rewrites:
            other = made(change(plan[1].knobs)) or plan
            for why, order in _reordered(other[1]):
                yield f"{what}; {why}", partial(_in_turn, change, order)

    def by_price(plan: Plan, changes: Sequence[tuple[str, Change]]) -> list[tuple[str, Change]]:
        """Changes of a plan that are possible, those first whose busiest engine has least to do."""
        others = [(made(change(plan[1].knobs)), (what, change)) for what, change in changes]
        priced = [(attempt(price, other[0]), each) for other, each in others if other is not None]
        return [each for cost, each in sorted(priced, key=lambda one: one[0] or 0.0) if cost is not None]

    def judged(kernel: Kernel) -> float:
        """How long a tree takes; without end where its tiles have no room."""
        try:
            return latency(kernel)
        except NkilabError:
            return inf

    return best


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


def _changes(ctx: Context) -> list[tuple[str, Change]]:
    """Changes of a plan that are worth trying."""
    is_larger = ctx.is_tiled and not ctx.knobs.group_blocks
    larger = (f"tiles of {MORE_BLOCKS} blocks of partitions", partial(replace, group_blocks=MORE_BLOCKS))
    return [*_reordered(ctx), *islice(_close(ctx), MOST_TIMED), *[larger] * is_larger]


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
