"""Advice for a kernel: every transformation looks, what may save most is tried, and what pays is told.

Nothing is estimated: a gain is the difference of two simulations, of the program and of the edited one.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..conformal import advised_factors, least_gain
from ..errors import NkilabError
from ..trace.program import Program
from ..views.guidance import Advice
from .declare import CATALOGUE, Candidate, Edit, site_of, usual
from .draft import Unfit
from .subject import MOST_ROWS, Subject, edited_latency_ns

Best = tuple[str, float]
Named = tuple[str, Edit]
# edits that are tried: in a check, which runs at each change; in a profile; where advice alone is asked for
IN_CHECK, IN_PROFILE, MOST_EDITS = 4, 8, 24
# further edits of a candidate that pays; rows of all edits, and of those of a small program for each edit
MOST_OTHERS = 2
TRIED_ROWS = 4 * MOST_ROWS
SMALL_ROWS = 2_500


class Tried(Struct, frozen=True):
    """A candidate that was simulated."""

    id: str
    candidate: Candidate
    edit: str
    latency_ns: float


def promising(subject: Subject) -> list[tuple[str, Candidate]]:
    """What may save more than the model resolves, the most first.

    No change saves more than is left of the latency when the engines that it does not relieve have done their
    work; one that relieves an engine, no more than the time behind what it changes. One that relieves none
    ends waits, which may stand behind anything.
    """
    least = least_gain() * subject.latency_ns
    most = {id: subject.most_ns(own.relieves) for id, own in CATALOGUE.items()}
    pairs = [
        (min(most[id], candidate.weight_ns) if own.relieves else most[id], id, candidate)
        for id, own in CATALOGUE.items() if most[id] > least
        for candidate in own.find(subject)
    ]  # fmt: skip
    ranked = sorted((own for own in pairs if own[0] > least), key=lambda own: (-own[0], -own[2].weight_ns))
    return [(id, candidate) for _, id, candidate in ranked]


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


def tried(subject: Subject, most: int) -> list[Tried]:
    """What was simulated: the candidates that may save most, within limits of work.

    Of each transformation the likeliest candidate comes first, of each candidate the likeliest edit that can
    be made; what is left goes to the other edits of those that pay, then to the other candidates.
    """
    rows = max(1, len(subject.written))
    left = max(1, min(most, TRIED_ROWS // rows), min(3 * most, MOST_EDITS, SMALL_ROWS * most // rows))
    waiting, result = promising(subject), list[Tried]()
    while waiting and left:
        likeliest = dict(reversed(waiting))
        firsts, left = _firsts(subject, [own for own in waiting if own[1] is likeliest[own[0]]], left)
        waiting = [own for own in waiting if own[1] is not likeliest[own[0]]]
        for own, others in firsts:
            is_worth = own.latency_ns < (1 - least_gain()) * (own.candidate.since_ns or subject.latency_ns)
            edits = others[:left] if is_worth or left > len(waiting) else ()
            best = best_edit(subject, own.candidate, edits) if edits else None
            left -= len(edits)
            is_better = best is not None and best[1] < own.latency_ns
            result.append(Tried(own.id, own.candidate, *best) if is_better and best is not None else own)
    return result


def _firsts(
    subject: Subject, candidates: Sequence[tuple[str, Candidate]], left: int
) -> tuple[list[tuple[Tried, tuple[Named, ...]]], int]:
    """Per candidate its first edit that can be made, with some that follow; and how many may be tried yet."""
    result = []
    for id, candidate in candidates:
        if not left:
            break
        outcomes = (best_edit(subject, candidate, [edit]) for edit in candidate.edits)
        place, best = next(((n, own) for n, own in enumerate(outcomes) if own is not None), (0, None))
        if best is not None:
            result.append((Tried(id, candidate, *best), candidate.edits[place + 1 :][:MOST_OTHERS]))
            left -= 1
    return result, left


def advice_of(subject: Subject, most: int = MOST_EDITS) -> tuple[Advice, ...]:
    """What pays of so many edits that are tried, the most first; an interval from 0.1 % on reaches zero.

    Of gains that the model cannot tell apart the change comes first that experts make most often.
    """
    pieces = [_advice(subject, own) for own in tried(subject.part, most)]
    paying = [own for own in pieces if own.interval_us[0] > 1e-6 * subject.latency_ns]
    step = least_gain() * subject.latency_ns / 1000
    return tuple(sorted(paying, key=lambda own: (-round(own.gain_us / step), usual(own.id), -own.gain_us)))


def _advice(subject: Subject, own: Tried) -> Advice:
    site = site_of(subject.part.base, own.candidate.line)
    rule = CATALOGUE[own.id].rule
    since = own.candidate.since_ns or subject.part.latency_ns
    latency = since / subject.part.latency_ns * subject.latency_ns / 1000
    share = own.latency_ns / since
    low, high = advised_factors(share)
    first = ", once every load and every sum has a tile of its own" if own.candidate.since_ns else ""
    return Advice(
        own.id, str(site), own.candidate.message, latency * (1 - share), (latency * low, latency * high),
        own.edit + first, rule.fix, rule.source, own.candidate.rounds, *site,
    )  # fmt: skip
