"""What became of a point."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ..ledger.choice import Demand
from .space import Point

TIMED, PRUNED, FAILED = "timed", "pruned", "failed"


@dataclass(frozen=True)
class Timed:
    """What the timing model says of one case of a point."""

    # latency_us, low_us, high_us: predicted, with its interval
    latency_us: float
    low_us: float
    high_us: float
    # dma_bytes, transfers: moved, and by how many transfers
    dma_bytes: int
    transfers: int
    sbuf_bytes: int  # the most per partition in use at once
    spilled_bytes: int  # of those moved, saved to HBM and reloaded because SBUF does not hold everything
    bound: str  # what limits the run
    occupancy: dict[str, float]  # per resource, the share of the run that it is occupied


@dataclass(frozen=True)
class Outcome:
    """What became of a point.

    Args:
        point: its values.
        state: "timed"; "pruned" if a limit, a rule or a lack of memory forbids it; "failed" if the kernel
            breaks off on it otherwise.
        values: per goal, less is better; empty unless timed.
        interval_us: of the latency.
        cases: one per case.
        reason: of what is not timed, the kind of error, the same for points that fail alike.
        message: of what is not timed, whole.
        measured_us: its latency as somebody measured it, if somebody did.
    """

    point: Point
    state: str
    values: dict[str, float] = field(default_factory=dict)
    interval_us: tuple[float, float] = (0.0, 0.0)
    cases: tuple[Timed, ...] = ()
    reason: str = ""
    message: str = ""
    measured_us: float | None = None

    @property
    def is_timed(self) -> bool:
        """Whether it has values."""
        return self.state == TIMED

    @property
    def demand(self) -> Demand:
        """What it asks of memory, over all cases."""
        cases = self.cases
        return Demand(
            sum(c.spilled_bytes for c in cases), max((c.sbuf_bytes for c in cases), default=0),
            sum(c.transfers for c in cases), sum(c.dma_bytes for c in cases),
        )  # fmt: skip

    @property
    def latency_us(self) -> float:
        """As measured, or else predicted."""
        return self.values["latency"] if self.measured_us is None else self.measured_us

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        fields = asdict(self)
        return {key: value for key, value in fields.items() if value not in ("", None, (), {}, (0.0, 0.0))}


def outcome_from(document: Any) -> Outcome:
    """The outcome that `to_dict` wrote.

    Raises:
        ValueError, KeyError or TypeError: if it did not.
    """
    if not isinstance(document, dict) or not isinstance(document["point"], dict):
        raise ValueError(f"{document!r} is no outcome")
    cases = tuple(Timed(**case) for case in document.get("cases", ()))
    low, high = document.get("interval_us", (0.0, 0.0))
    outcome = Outcome(**{**document, "cases": cases, "interval_us": (low, high)})
    if outcome.state not in (TIMED, PRUNED, FAILED) or (outcome.is_timed and not outcome.latency_us > 0):
        raise ValueError(f"{document!r} is no outcome")
    return outcome


def key_of(point: Point) -> str:
    """What names a point: its values, with their types."""
    return ", ".join(f"{name}={value!r}" for name, value in sorted(point.items()))
