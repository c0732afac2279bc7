"""Advice for a kernel: every transformation looks, what may save most is tried, and what pays is told.

Nothing is estimated: a gain is the difference of two simulations, of the program and of the edited one. On
edited programs more is tried: what saves more together than one by one is told together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..conformal import advised_factors, least_gain
from ..cores import signature
from ..errors import NkilabError
from ..trace.program import Program
from ..views.guidance import Advice, Equality
from .declare import CATALOGUE, Candidate, Edit, place_of, site_of
from .draft import Unfit
from .equal_results import are_equal, results_of
from .subject import MOST_ROWS, Subject, edited_latency_ns, subject_of_program

Best = tuple[str, float, Program | None]
Named = tuple[str, Edit]
# edits that are tried of most programs, and at most: every verb shows one list
USUAL_EDITS, MOST_EDITS = 8, 24
# changes that are told together, those that they begin with, and edits that are tried behind each
MOST_TOGETHER, MOST_FIRSTS, FOLLOWERS = 3, 3, 3
# further edits of a candidate that pays; rows of all edits, of a long program and of a short one
MOST_OTHERS = 2
TRIED_ROWS, FEW_ROWS = 4 * MOST_ROWS, 72_000
# rows of a program from which on no changes are tried together
SMALL_ROWS = 2_500
# gains from this share of a larger one on are as good as equal to it
NEAR = 0.75
# how much a gain counts that is only supposed, and one that the results may be too narrow for
SUPPOSED, NARROWED = 0.5, 0.3


class Tried(Struct, frozen=True):
    """A candidate that was simulated."""

    # id, candidate: of which transformation
    id: str
    candidate: Candidate
    edit: str  # what was changed
    latency_ns: float  # with the change
    program: Program | None = None  # the edited one; None where only costs or waits changed
    before: tuple[Tried, ...] = ()  # what was changed before it, in a piece of advice of several changes

    @property
    def changes(self) -> tuple[Tried, ...]:
        """All changes, in order."""
        return (*self.before, self)


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
            best = words, latency, outcome if isinstance(outcome, Program) else None
    return best


def _affordable(subject: Subject) -> int:
    """How many edits are tried of a program: more of a short one, fewer of a long one."""
    rows = max(1, len(subject.written))
    return max(1, min(USUAL_EDITS, TRIED_ROWS // rows), min(MOST_EDITS, FEW_ROWS // rows))


def tried(subject: Subject, left: int) -> list[Tried]:
    """What was simulated with so many edits: the candidates that may save most.

    Of each transformation the likeliest candidate comes first, of each candidate the likeliest edit that can
    be made; what is left goes to the other edits of those that pay, then to the other candidates.
    """
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
            # what changes costs or waits alone is timed at once
            left -= best[2] is not None
    return result, left


def together(subject: Subject, singles: Sequence[Tried]) -> Iterator[Tried]:
    """Changes that save more one after the other than each by itself, two or three of them.

    They begin with what saves most, and with what neither saves nor costs anything that the model resolves.
    """
    least = least_gain() * subject.latency_ns
    saved = _saved_by_id(subject, singles)
    firsts = [own for own in singles if own.program is not None and not own.candidate.since_ns]
    firsts = [own for own in firsts if _saved(subject, own) > -least]
    for first in sorted(firsts, key=lambda own: own.latency_ns)[:MOST_FIRSTS]:
        last = first
        while (follower := _follower(saved, last, least)) is not None:
            last = follower
        if last is not first:
            yield last


def _follower(saved: dict[str, float], last: Tried, least: float) -> Tried | None:
    """What saves most on an edited program beyond what it saves by itself, if the model resolves that."""
    if last.program is None or len(last.changes) == MOST_TOGETHER:
        return None
    edited = subject_of_program(last.program)
    taken = {own.id for own in last.changes}
    fresh = [
        own for own in tried(edited, FOLLOWERS) if own.id not in taken and not own.candidate.since_ns
        and not CATALOGUE[own.id].adds_cores and _saved(edited, own) > saved.get(own.id, 0.0) + least
    ]  # fmt: skip
    best = min(fresh, key=lambda own: own.latency_ns, default=None)
    return best and replace(best, before=last.changes)


def _saved_by_id(subject: Subject, singles: Sequence[Tried]) -> dict[str, float]:
    """The most that each transformation saves by itself, at least 0."""
    result: dict[str, float] = {}
    for own in singles:
        result[own.id] = max(result.get(own.id, 0.0), _saved(subject, own))
    return result


def _saved(subject: Subject, own: Tried) -> float:
    """Nanoseconds that a change, or several, save."""
    return _since(subject, own) - own.latency_ns


def advice_of(subject: Subject) -> tuple[Advice, ...]:
    """What pays of the edits that are tried; an interval from 0.1 % on reaches zero.

    Several changes stand where what they save beyond each of them would stand. What computes something else
    is left out.
    """
    part = subject.part
    singles = tried(part, _affordable(part))
    several = list(together(part, singles)) if len(part.written) <= SMALL_ROWS else []
    saved = _saved_by_id(part, singles)
    ranked: list[tuple[float, Tried, Advice]] = []
    for own in (*singles, *several):
        piece, gain = _advice(subject, own), _saved(part, own)
        gain -= sum(saved.get(one.id, 0.0) for one in own.changes) if own.before else 0.0
        if piece.interval_us[0] > 1e-6 * subject.latency_ns and (equal := _equality(part, own)):
            gain *= SUPPOSED if equal == "assumed" else 1.0
            gain *= NARROWED if any(CATALOGUE[one.id].narrows for one in own.changes) else 1.0
            ranked.append((gain, own, replace(piece, equal=equal)))
    result: dict[tuple[object, ...], Advice] = {}
    for own, piece in _in_order(ranked):
        # edits of a line that make one program are one, whatever they are called
        same = piece.id if own.program is None else signature(own.program)
        # and so are the same changes one after the other, whichever comes first
        changed = frozenset((piece.id, *piece.combined_with)) if own.before else (piece.line, same)
        key = own.latency_ns, changed
        known = result.setdefault(key, piece)
        if piece.id not in (known.id, *known.also_called):
            result[key] = replace(known, also_called=(*known.also_called, piece.id))
    return _with_places(result.values())


def _in_order(ranked: Sequence[tuple[float, Tried, Advice]]) -> list[tuple[Tried, Advice]]:
    """What saves most first; of gains that are as good as equal what experts do first.

    A second piece of the same changes comes behind the first of all the others, and more cores behind all.
    """
    left, ordered = sorted(ranked, key=lambda one: -one[0]), list[tuple[Tried, Advice]]()
    while left:
        most = left[0][0]
        near = [one[1:] for one in left if one[0] >= min(most, NEAR * most)]
        left = left[len(near) :]
        ordered += sorted(near, key=lambda one: place_of(one[1].id))
    names = [(piece.id, piece.combined_with) for _, piece in ordered]
    numbers = sorted(range(len(names)), key=lambda n: (ordered[n][1].adds_cores, names.index(names[n]) != n))
    return [ordered[n] for n in numbers]


def _with_places(pieces: Iterable[Advice]) -> tuple[Advice, ...]:
    """Pieces that make the same change at several places and gain about as much are one, with its places."""
    result = list[Advice]()
    for own in pieces:
        alike = (
            n for n, one in enumerate(result) if (one.id, one.edit) == (own.id, own.edit)
            and own.gain_us >= NEAR * one.gain_us and own.where not in (one.where, *one.places)
        )  # fmt: skip
        number = next(alike, None)
        if number is None:
            result.append(own)
        else:
            one, where = result[number], own.where
            message = f"{one.message}{' and' if one.places else '; as much is gained at'} {where}"
            result[number] = replace(one, message=message, places=(*one.places, where))
    return tuple(result)


def _equality(subject: Subject, own: Tried) -> Equality | None:
    """How it is known that changes leave the results as they are; None where they do not."""
    if any(one.program is None for one in own.changes):
        return "assumed"
    if any(CATALOGUE[one.id].by_formula for one in own.changes):
        return "by formula"
    changed = results_of(own.program) if subject.results and own.program is not None else None
    if subject.results is None or changed is None:
        return "proved"
    rounds = any(one.candidate.rounds for one in own.changes)
    return "computed" if are_equal(subject.results, changed, subject.base, rounds=rounds) else None


def _since(subject: Subject, own: Tried) -> float:
    return own.changes[0].candidate.since_ns or subject.latency_ns


def _advice(subject: Subject, own: Tried) -> Advice:
    """A change, or several, as they are told; the line is the first one's."""
    first, part = own.changes[0].candidate, subject.part
    site = site_of(part.base, first.line)
    rules = [CATALOGUE[one.id].rule for one in own.changes]
    latency = _since(part, own) / part.latency_ns * subject.latency_ns / 1000
    share = own.latency_ns / _since(part, own)
    relieved = frozenset[str]().union(*(CATALOGUE[one.id].relieves for one in own.changes))
    low, high = advised_factors(share, part.left_share(relieved) * part.latency_ns / _since(part, own))
    fresh = ", once every load and every sum has a tile of its own" if first.since_ns else ""
    return Advice(
        rules[0].id, str(site), "; then ".join(one.candidate.message for one in own.changes),
        latency * (1 - share), (latency * low, latency * high),
        "; then ".join(one.edit for one in own.changes) + fresh, "; then ".join(r.fix for r in rules),
        "; ".join(dict.fromkeys(r.source for r in rules)), any(one.candidate.rounds for one in own.changes),
        *site, tuple(r.id for r in rules[1:]), adds_cores=CATALOGUE[own.id].adds_cores,
    )  # fmt: skip
