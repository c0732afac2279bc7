"""What a search says: the best point, how sure that is, what is too close to it, and why it wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot
from typing import Any

from ..argument_checks import need
from ..ledger.choice import robust
from ..timing import MODEL_VERSION
from ..tracebacks import public
from .outcome import Outcome, Timed, key_of
from .study import Found

SCHEMA = "nkilab.tune/1"
# How far two points of one kernel are off against each other, relatively: one standard deviation of what is
# left of log(predicted / measured) within a grid, its mean taken away. Measured: 0.064 over 39 settings of a
# blocked float32 product, 0.054 over 31 of a bfloat16 one (`nkilab validate --regret`).
WITHIN = 0.06


@dataclass(frozen=True)
class Verdict:
    """What a search says.

    Args:
        found: by the search.
        best: the fastest point, or of those that the model cannot tell from it the most robust.
        overlapping: other points whose interval reaches down into that of the best: the interval of the model
            cannot separate them from it.
        close: of those, the ones that are not slower by more than points of one kernel are off against each
            other: worth measuring.
        front: points that no other one beats in every goal, if there are several goals; the fastest first.
        spread: how far two points are off against each other, relatively, one standard deviation.
        spread_from: where that is from.
    """

    found: Found
    best: Outcome
    overlapping: tuple[Outcome, ...]
    close: tuple[Outcome, ...]
    front: tuple[Outcome, ...]
    spread: float
    spread_from: str

    @property
    def reasons(self) -> list[str]:
        """Why the best wins, a line each."""
        lines = [_described(case) for case in self.best.cases]
        timed = self.found.timed
        if timed[0] is not self.best:
            lines.append(_preferred(self.best, timed[0]))
        if len(timed) > 1:
            lines += _against("the median point", self.best, timed[len(timed) // 2])
            lines += _against("the slowest point", self.best, timed[-1])
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        result = self.found
        return {
            "schema": SCHEMA,
            "target": result.target,
            "model_version": MODEL_VERSION,
            "goals": list(result.goals),
            "best": self.best.to_dict(),
            "why": self.reasons,
            "cannot_be_separated": [outcome.point for outcome in self.overlapping],
            "close": [outcome.point for outcome in self.close],
            "spread_within_kernel": {"relative": self.spread, "from": self.spread_from},
            "front": [outcome.to_dict() for outcome in self.front],
            "space": {
                "parameters": {p.name: _values(p.values) for p in result.space.parameters},
                "constraints": [c.text for c in result.space.constraints],
                "combinations": result.space.combinations,
                "points": result.space.count,
            },
            "counts": counts(result),
            "pruned": result.pruned,
            "failed": [outcome.to_dict() for outcome in result.failed],
            "outcomes": [outcome.to_dict() for outcome in result.outcomes],
        }


def counts(result: Found) -> dict[str, Any]:
    """How many points became what."""
    by_state = {s: sum(o.state == s for o in result.outcomes) for s in ("timed", "pruned", "failed")}
    return {**by_state, "is_whole": result.is_whole}


@public
def verdict_of(result: Found, spread: float = WITHIN, spread_from: str = "") -> Verdict:
    """The verdict on a search that timed at least one point.

    Args:
        result: by the search.
        spread: how far two points of the kernel are off against each other, relatively.
        spread_from: where that is from; the grids of the ledger if "".
    """
    need("found", result, Found, "what nkilab.tune.search returns")
    timed = result.timed
    best = timed[robust([o.latency_us for o in timed], [o.demand for o in timed])]
    if timed[0].measured_us is not None:
        best = timed[0]
    top = interval_of(best)[1]
    others = [outcome for outcome in timed if outcome is not best and interval_of(outcome)[0] <= top]
    reach = best.latency_us * exp(hypot(spread, spread))
    return Verdict(
        result,
        best,
        tuple(others),
        tuple(outcome for outcome in others if outcome.latency_us <= reach),
        tuple(front_of(timed)) if len(result.goals) > 1 else (),
        spread,
        spread_from or "block-size grids of the ledger",
    )


def interval_of(outcome: Outcome) -> tuple[float, float]:
    """Between which the latency lies: predicted, or the value measured."""
    if outcome.measured_us is not None:
        return (outcome.measured_us, outcome.measured_us)
    return outcome.interval_us


def front_of(timed: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes that no other one beats: at least as good in every goal and better in one. Fastest first."""
    ordered = sorted(timed, key=lambda o: tuple(o.values.values()))
    outcomes: list[Outcome] = []
    for outcome in ordered:
        own = tuple(outcome.values.values())
        if not any(_beats(tuple(other.values.values()), own) for other in outcomes):
            outcomes.append(outcome)
    return outcomes


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _values(values: Sequence[Any]) -> Any:
    if isinstance(values, range):
        return {"integers": [values[0], values[-1]], "step": values.step}
    return list(values)


def _preferred(best: Outcome, fastest: Outcome) -> str:
    """Why a point is taken that is not the one predicted to be fastest."""
    own, its = best.demand, fastest.demand
    words = {
        "spilled_bytes": "fewer bytes spilled",
        "sbuf_bytes": "less SBUF per partition",
        "transfers": "fewer transfers",
        "dma_bytes": "fewer bytes moved",
    }
    name = next((name for name in words if getattr(own, name) < getattr(its, name)), "dma_bytes")
    behind = best.latency_us / fastest.latency_us - 1
    return (
        f"{key_of(fastest.point)} is predicted to be {behind:.2%} faster, which tells nothing; taken is the "
        f"one with {words[name]}, {getattr(own, name):,} where that has {getattr(its, name):,}"
    )


def _busiest(case: Timed) -> str:
    shares = sorted(case.occupancy.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in shares[:3] if share >= 0.01) or "nothing"


def _described(case: Timed) -> str:
    spilled = f", {case.spilled_bytes:,} of them spilled" if case.spilled_bytes else ""
    return (
        f"bound by {case.bound}; busy: {_busiest(case)}; {case.dma_bytes:,} bytes moved{spilled}; "
        f"{case.sbuf_bytes:,} bytes of SBUF per partition"
    )


def _against(named: str, best: Outcome, other: Outcome) -> list[str]:
    """What sets the best apart from another point."""
    if other.point == best.point:
        return []
    lines = []
    for goal, unit in (("dma_bytes", "bytes moved"), ("spilled_bytes", "bytes spilled")):
        own, its = (sum(getattr(case, goal) for case in one.cases) for one in (best, other))
        if own != its:
            lines.append(f"{own:,} {unit} where that has {its:,}")
    mine, theirs = best.cases[0], other.cases[0]
    resource = max(
        theirs.occupancy, key=lambda name: abs(mine.occupancy.get(name, 0) - theirs.occupancy[name])
    )
    lines.append(
        f"{resource} busy {mine.occupancy.get(resource, 0):.0%} of the time where that has "
        f"{theirs.occupancy[resource]:.0%}, bound by {theirs.bound}"
    )
    ratio = other.latency_us / best.latency_us
    return [f"against {named}, which takes {ratio:.2f} times as long: {'; '.join(lines)}"]
