"""Advice for a kernel: every transformation looks, what may save most is tried, and what pays is told.

Nothing is estimated: a gain is the difference of two simulations, of the program and of the edited one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from ..conformal import gain_factors
from ..errors import NkilabError
from ..trace.program import Program
from ..views.guidance import Advice
from .declare import CATALOGUE, Candidate, Edit, site_of
from .draft import Unfit
from .subject import MOST_ROWS, Subject, edited_latency_ns

Best = tuple[str, float]
Named = tuple[str, Edit]
# what is not worth a word, as a share of the latency
LEAST_GAIN = 0.02
# transformations that are tried, those with the most time behind them; candidates and further edits of each;
# edits and rows of all
MOST_TRIED, MOST_OF_ONE, MOST_OTHERS, MOST_EDITS = 6, 1, 2, 10
TRIED_ROWS = 4 * MOST_ROWS


class Tried(Struct, frozen=True):
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


def best_edit(subject: Subject, candidate: Candidate, edits: Sequence[Named] = ()) -> Best | None:
    """The best of a candidate's edits, or of some of them, with its latency in nanoseconds."""
    best: Best | None = None
    for words, edit in edits or candidate.edits:
        try:
            outcome = edit()
            latency = edited_latency_ns(outcome) if isinstance(outcome, Program) else outcome
        except (Unfit, NkilabError):
            continue
        if best is None or latency < best[1]:
            best = words, latency
    return best


def tried(subject: Subject) -> list[Tried]:
    """What was simulated: the candidates with the most time behind them, within limits of work.

    Of each the likeliest edit that can be made is tried first; of those that pay the others follow.
    """
    ranked = sorted(candidates_of(subject), key=lambda pair: -pair[1].weight_ns)
    left = max(1, min(MOST_EDITS, TRIED_ROWS // max(1, len(subject.written))))
    firsts: list[tuple[Tried, tuple[Named, ...]]] = []
    counts: Counter[str] = Counter()
    for id, candidate in ranked:
        if len(firsts) >= left or candidate.weight_ns < LEAST_GAIN * subject.latency_ns:
            break
        if counts[id] >= MOST_OF_ONE or (id not in counts and len(counts) >= MOST_TRIED):
            continue
        outcomes = (best_edit(subject, candidate, [edit]) for edit in candidate.edits)
        place, best = next(((n, own) for n, own in enumerate(outcomes) if own is not None), (0, None))
        if best is not None:
            counts[id] += 1
            firsts.append((Tried(id, candidate, *best), candidate.edits[place + 1 :][:MOST_OTHERS]))
    paying = [own for own, _ in firsts if own.latency_ns < (1 - LEAST_GAIN) * subject.latency_ns]
    left -= len(firsts)
    result = []
    for own, others in firsts:
        is_worth = own in paying and left > 0 and others
        best = best_edit(subject, own.candidate, others[:left]) if is_worth else None
        left -= len(others[:left]) if is_worth else 0
        better = best is not None and best[1] < own.latency_ns
        result.append(Tried(own.id, own.candidate, *best) if better and best is not None else own)
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
