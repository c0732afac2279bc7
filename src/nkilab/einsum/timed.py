"""Decisions of which two options are judged nearly equal: the timing model takes the better kernel.

What rules judge an option by counts instructions and bytes; it cannot see what waits for what. Where that
leaves two options close, and kernels run few statements, both are made and timed. The work is counted in
statements: a slow machine takes longer, and makes the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf

from ..errors import NkilabError
from .plan.context import Context, Plan, Planner
from .plan.knobs import Key, Knobs
from .plan.normal import has_few_rows
from .plan.reach import beyond_edges
from .plan.recomputed import far_results
from .tree.nodes import Kernel, run_by

Change = Callable[[Knobs], Knobs]

# how many times the cost of the best an option may be judged at, to be tried
CLOSE = 2.0
# kernels that are timed besides the first, and statements that all of them run together
MOST_TIMED, MOST_STATEMENTS = 4, 6_000
# of the time of the kernel by the rules: what saves less leaves it as it is
WORTH = 0.98


def best_timed(
    built: Planner, latency: Callable[[Kernel], float], proved: Callable[[Kernel], object]
) -> Planner:
    """What makes a tree and its plan of choices, and takes the faster of two options that are judged close.

    Args:
        built: makes a tree and its plan.
        latency: predicts how long a tree takes.
        proved: proves a tree. Like the others it raises where a choice gives none.
    """

    def best(knobs: Knobs) -> Plan:
        plan, least = built(knobs), 0.0
        options = list(_close(plan[1]))[:MOST_TIMED] if not knobs.picks else []
        budget = MOST_STATEMENTS - run_by(plan[0].body)
        while options and budget > 0:
            what, change = options.pop(0)
            time = least
            # an option that rules do not take may ask for what no nest covers
            with suppress(NkilabError, AssertionError):
                time = least = least or latency_of(plan[0])
                other = built(change(knobs))
                budget -= run_by(other[0].body)
                time = least if budget < 0 else lower(other[0], least)
            if budget < 0:
                break
            if time < least:
                before = f"{time:.1f} us instead of {least:.1f} by the timing model"
                told = before if least < inf else "by the rules there is no room on chip"
                other[1].choices.append(f"{what}: {told}")
                # with other ranks come other decisions
                is_other = other[1].knobs.is_spread != plan[1].knobs.is_spread
                options = list(_close(other[1]))[: len(options)] if is_other else options
                plan, least, knobs = other, time, change(knobs)
        return plan

    def latency_of(kernel: Kernel) -> float:
        """How long the plan by the rules takes; without end where its tiles have no room."""
        try:
            return latency(kernel)
        except NkilabError:
            return inf

    def lower(kernel: Kernel, least: float) -> float:
        """The time of a tree that is proved, if it saves enough of the least."""
        time = latency(kernel)
        if time < least * WORTH:
            proved(kernel)
            return time
        return least

    return best


def _close(ctx: Context) -> Iterator[tuple[str, Change]]:
    """Changes of a plan that are judged close to it, in a few words, the closest first."""
    if not ctx.knobs.is_spread and has_few_rows(ctx.cascade, ctx.lanes):
        yield "long rows over all partitions", lambda knobs: replace(knobs, is_spread=True)
    if not ctx.knobs.is_edged and beyond_edges(ctx, ctx.cascade.einsums):
        yield "zeros around copies in HBM", lambda knobs: replace(knobs, is_edged=True)
    if not ctx.knobs.is_recomputed and far_results(ctx):
        yield "what HBM holds between its readers computed again", lambda k: replace(k, is_recomputed=True)
    options = [
        (cost / max(decision.costs[0], 1e-9), decision, rank)
        for decision in ctx.decisions
        for rank, cost in enumerate(decision.costs)
        if rank and cost <= CLOSE * decision.costs[0]
    ]
    for _, decision, rank in sorted(options, key=lambda each: each[0]):
        yield f"{decision.what}: {decision.options[rank]}", _picking(decision.key, rank)


def _picking(key: Key, rank: int) -> Change:
    return lambda knobs: knobs.picking(key, rank)
