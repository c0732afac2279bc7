"""Advice for a kernel: every transformation looks, what may save most is tried, and what pays is told.

Nothing is estimated: a gain is the difference of two simulations, of the program and of the edited one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ..conformal import gain_factors
from ..errors import NkilabError
from ..trace.program import Program
from ..views.guidance import Advice
from .declare import CATALOGUE, Candidate, site_of
from .draft import Unfit
from .subject import MOST_ROWS, Subject, edited_latency_ns

# what is not worth a word, as a share of the latency
LEAST_GAIN = 0.02
# transformations that are tried, those with the most time behind them; how often each; edits and rows of all
MOST_TRIED, MOST_OF_ONE, MOST_EDITS = 7, 2, 20
TRIED_ROWS = 4 * MOST_ROWS


@dataclass(frozen=True)
class Tried:
    """A candidate that was simulated.

    Args:
        id: of the transformation.
        candidate: it.
        edit: which of its edits was best.
        latency_ns: with that edit.
    """

    id: str
    candidate: Candidate
    edit: str
    latency_ns: float


def candidates_of(subject: Subject) -> Iterator[tuple[str, Candidate]]:
    """Everything that may save time, by its transformation; nothing is tried yet."""
    for id, own in CATALOGUE.items():
        for candidate in own.find(subject):
            yield id, candidate


def best_edit(
    subject: Subject, candidate: Candidate, most: int = MOST_EDITS
) -> tuple[str, float, int] | None:
    """The best of a candidate's edits, its latency in nanoseconds, and how many were simulated."""
    best: tuple[str, float] | None = None
    count = 0
    for words, edit in candidate.edits[:most]:
        try:
            outcome = edit()
            latency = edited_latency_ns(outcome) if isinstance(outcome, Program) else outcome
        except (Unfit, NkilabError):
            continue
        count += 1
        if best is None or latency < best[1]:
            best = words, latency
    return None if best is None else (*best, count)


def tried(subject: Subject) -> list[Tried]:
    """What was simulated: the candidates with the most time behind them, within limits of work."""
    ranked = sorted(candidates_of(subject), key=lambda pair: -pair[1].weight_ns)
    left = max(1, min(MOST_EDITS, TRIED_ROWS // max(1, len(subject.written))))
    result: list[Tried] = []
    counts: Counter[str] = Counter()
    for id, candidate in ranked:
        if left <= 0 or candidate.weight_ns < LEAST_GAIN * subject.latency_ns:
            break
        if counts[id] >= MOST_OF_ONE or (id not in counts and len(counts) >= MOST_TRIED):
            continue
        counts[id] += 1
        best = best_edit(subject, candidate, min(left, MOST_EDITS // 4))
        if best is not None:
            result.append(Tried(id, candidate, best[0], best[1]))
            left -= best[2]
    return result


def edits_of(subject: Subject, id: str) -> list[float]:
    """Latencies in nanoseconds with the best edit of each candidate of one transformation."""
    bests = [best_edit(subject, candidate) for candidate in CATALOGUE[id].find(subject)]
    return [best[1] for best in bests if best is not None]


def advice_of(subject: Subject) -> tuple[Advice, ...]:
    """What pays, the most first."""
    latency = subject.latency_ns
    pieces = [_advice(subject, own) for own in tried(subject) if own.latency_ns <= (1 - LEAST_GAIN) * latency]
    paying = sorted((a for a in pieces if a.interval_us[0] > 0), key=lambda a: -a.gain_us)
    seen: set[str] = set()
    # the same at another place comes after everything else: it is looked at again once the first is done
    first = [own for own in paying if not (own.id in seen or seen.add(own.id))]  # type: ignore[func-returns-value]
    return (*first, *(own for own in paying if own not in first))


def _advice(subject: Subject, own: Tried) -> Advice:
    site = site_of(subject.base, own.candidate.line)
    rule = CATALOGUE[own.id].rule
    latency = subject.latency_ns / 1000
    after = own.latency_ns / 1000
    low, high = gain_factors(after / latency)
    return Advice(
        own.id, str(site), own.candidate.message, latency - after, (latency * low, latency * high), own.edit,
        rule.fix, rule.source, own.candidate.rounds, *site,
    )  # fmt: skip
