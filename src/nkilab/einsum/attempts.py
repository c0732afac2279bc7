"""Plans in order: by the rules; with less of SBUF; and where the proof refuses these, with other choices.

What the rules choose may meet an extent that a nest was not written for: a fault of ours, which the proof or
an assertion finds before a kernel is printed. Another plan of the same cascade need not have it. So a few
others are tried, and each must pass the same proof. What comes out says that it was made so, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from ..errors import SpecError, UnsupportedError
from .plan.context import Plan, PlanError, Planner, reason
from .plan.knobs import RULES, Decision, Knobs
from .room import NoRoomError

Result = TypeVar("Result")
Maker = Callable[[Plan, Sequence[str]], Result]
# choices of which another option is tried, the last that were made first
MOST_CHOICES = 16


def attempted(built: Planner, compiled: Maker[Result]) -> Result:
    """What is compiled from the first plan that its proof accepts.

    Args:
        compiled: proves the tree of a plan, and makes a result of both and of what is told beside.

    Raises:
        NoRoomError: if no share of SBUF gives tiles that fit.
        PlanError: if no plan that is tried is proved.
    """
    none: Exception = NoRoomError("no share of SBUF is tried")
    for knobs in RULES.shares():
        is_less = knobs.share < RULES.share
        told = [f"plans fill {knobs.share:g} of SBUF, so that all tiles fit"] if is_less else []
        made = _tried(built, compiled, replace(knobs, is_edged=is_less), told)
        if isinstance(made, PlanError):
            return _other(built, compiled, made)
        if not isinstance(made, NoRoomError):
            return made
        none = made
    raise none


def _tried(
    built: Planner, compiled: Maker[Result], knobs: Knobs, told: Sequence[str]
) -> Result | PlanError | NoRoomError:
    """What is compiled with some choices, or why nothing is."""
    decisions: Sequence[Decision] = ()
    try:
        plan = built(knobs)
        decisions = plan[1].decisions
        return compiled(plan, told)
    except (PlanError, NoRoomError) as error:
        return error
    except (SpecError, UnsupportedError, MemoryError):
        raise
    except Exception as error:
        refused = PlanError(error, decisions)
        refused.__cause__ = error
        return refused


def _other(built: Planner, compiled: Maker[Result], refused: PlanError) -> Result:
    """What is compiled from the first of other plans that is proved."""
    before: list[str] = []
    for what, knobs in _others(refused.decisions):
        told = f"PLANNED ANOTHER WAY, a fault of the rules: their plan is refused ({refused}); {what}"
        made = _tried(built, compiled, knobs, [told + "".join(f"; not {b}" for b in before)])
        if not isinstance(made, PlanError | NoRoomError):
            return made
        before.append(f"{what} ({reason(made)})")
    problem = (
        f"no plan of these expressions is proved: {refused}; this is a fault of nkilab, not of the "
        "expressions: report it with them, and until it is mended change an extent, or split an expression"
    )
    raise PlanError(AssertionError(problem), ()) from refused


def _others(decisions: Sequence[Decision]) -> Iterator[tuple[str, Knobs]]:
    """Other plans, in a few words, those that lose least first."""
    others = [other for decision in decisions for other in decision.others()]
    yield from reversed(others[-MOST_CHOICES:])
    yield "tiles of one block of partitions", replace(RULES, group_blocks=1)
    yield "no shared loops", replace(RULES, is_fused=False)
    yield "no shared loops, half of SBUF", replace(RULES, is_fused=False, share=0.4)
    slow = replace(RULES, is_fused=False, has_products=False)
    yield "no shared loops, sums on VectorE", slow
    yield "no shared loops, sums on VectorE, 512 columns", replace(slow, most_columns=512)
