"""What a check yields: findings, what was silenced, and figures beside them."""

from __future__ import annotations

from collections import Counter, UserList
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from .finding import SEVERITIES, Finding
from .sources import Sources

SCHEMA = "nkilab.check/1"
T = TypeVar("T")


class Advised(UserList[T]):
    """What a check tells at once, and advice behind it, which is looked for when somebody looks at it.

    Args:
        verdict: what is told at once.
        advice: looks for what follows.
    """

    def __init__(self, verdict: Iterable[T], advice: Callable[[], Iterable[T]] = tuple) -> None:
        self.verdict, self._advice = tuple(verdict), advice

    @cached_property
    def data(self) -> list[T]:  # type: ignore[override]
        """The verdict and the advice; what looks for it keeps the launch, and goes."""
        advice, self._advice = self._advice, tuple
        return [*self.verdict, *advice()]


class Shown(Protocol):
    """What a piece of advice says of itself."""

    def to_dict(self) -> dict[str, object]:
        """Ready for JSON."""


class Prediction(Struct, frozen=True):
    """What is predicted of a launch, as an estimate has it."""

    latency_us: float
    interval_us: tuple[float, float]
    bound: str
    model_version: str


@dataclass(frozen=True)
class Report:
    """The outcome of checking one launch.

    Args:
        kernel: its name.
        target: the chip.
        findings: in the order in which they are told.
        silenced: what comments and settings silence.
        notes: what the check leaves out.
        occupancy: per program, how full SBUF and PSUM are at their peak.
        replays: what replaying in other orders showed, one entry per order.
        tensors: what `--numerics` measured, one entry per tensor.
        known: what a baseline has; `has_baseline` says whether one was read.
        predicted: latency and bound; None where it does not fit or does not run to its end.
        sources: the user's files.
        pieces: of advice, most gain first; they stand among the findings too.
    """

    kernel: str
    target: str
    findings: Advised[Finding]
    silenced: Sequence[Finding] = ()
    notes: tuple[str, ...] = ()
    occupancy: tuple[dict[str, Any], ...] = ()
    replays: tuple[dict[str, Any], ...] = ()
    tensors: tuple[dict[str, Any], ...] = ()
    known: tuple[Finding, ...] = ()
    predicted: Prediction | None = None
    sources: Sources = field(default_factory=Sources, repr=False)
    pieces: Sequence[Shown] = ()
    has_baseline: bool = False

    @property
    def passes(self) -> bool:
        """Whether nothing but notes and advice was found."""
        return not any(finding.fails for finding in self.findings.verdict)

    @property
    def counts(self) -> dict[str, int]:
        """How many findings there are of each severity."""
        counts = Counter(finding.severity for finding in self.findings)
        return {severity: counts[severity] for severity in SEVERITIES}

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "schema": SCHEMA,
            "kernel": self.kernel,
            "target": self.target,
            "passes": self.passes,
            "predicted": None if self.predicted is None else asdict(self.predicted),
            "counts": self.counts,
            "findings": [finding.to_dict() for finding in self.findings],
            "silenced": [finding.to_dict() for finding in self.silenced],
            "known": [finding.to_dict() for finding in self.known],
            "notes": list(self.notes),
            "occupancy": list(self.occupancy),
            "replays": list(self.replays),
            "tensors": list(self.tensors),
            "advice": [own.to_dict() for own in self.pieces],
        }


def summary_line(reports: Sequence[Report]) -> str:
    """How much was found, in one line."""
    total: Counter[str] = Counter()
    for report in reports:
        total.update(report.counts)
    silenced = sum(len(report.silenced) for report in reports)
    known = sum(len(report.known) for report in reports)
    kinds = [kind for kind in ("error", "warning", "note") if total[kind] or kind != "note"]
    words = [f"{total[kind]} {kind}{'s' * (total[kind] != 1)}" for kind in kinds]
    if total["advice"]:
        words.append(f"{total['advice']} piece{'s' * (total['advice'] != 1)} of advice")
    if silenced:
        words.append(f"{silenced} silenced")
    if known:
        words.append(f"{known} known")
    return ", ".join(words)
