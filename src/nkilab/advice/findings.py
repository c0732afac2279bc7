"""Advice as findings of a check."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from ..checks.evidence import Evidence, Track
from ..checks.finding import Finding, Site
from ..cores import signature
from ..dialects.uniform import itself
from ..errors import LimitError
from ..views.guidance import Advice
from .declare import CATALOGUE, Candidate
from .subject import Subject, subject_of
from .trials import advice_of

# advice about programs that were looked at: a suite checks the same kernel on other data again and again
MOST_KNOWN = 64
_known: OrderedDict[object, tuple[Advice, ...]] = OrderedDict()


def slowest(tracks: tuple[Track, ...]) -> Subject | None:
    """The program that ends last, which decides when the launch ends; None if nothing can be timed."""
    try:
        timed = [
            (track.timeline.latency_ns, -number) for number, track in enumerate(tracks) if len(track.program)
        ]
    except LimitError:
        return None
    if not timed:
        return None
    track = tracks[-max(timed)[1]]
    return subject_of(track.program, track.compiled, track.plan, track.timeline)


def find(evidence: Evidence) -> tuple[Advice, ...]:
    """What pays of the edits of the slowest program of a launch, the most first."""
    subject = slowest(evidence.tracks)
    if subject is None:
        return ()
    program = subject.written
    rows = (signature(program), program.line_column.tobytes(), program.value_column.tobytes())
    # the line of an input is that of the call, which may be any
    named = {own.line for own in program.storages if own.scope != "input"}.union(program.line_column.tolist())
    lines = [program.lines[number] for number in sorted(named)]
    key = (*rows, *lines, repr(program.values), itself(program.machine))
    advice = _known.get(key)
    if advice is None:
        advice = _known[key] = advice_of(subject)
        while len(_known) > MOST_KNOWN:
            _known.popitem(last=False)
    return advice


def finding_of(advice: Advice, evidence: Evidence) -> Finding:
    """A piece of advice among the findings of a check."""
    name = f"{advice.id}@{advice.line}"
    latency = next(own for own in [slowest(evidence.tracks)] if own is not None).latency_ns / 1000
    low, high = advice.interval_us
    # one change is tried out again, several are not
    command = f"{evidence.command} --what-if {name}" if not advice.combined_with else ""
    return CATALOGUE[advice.id].rule.finding(
        advice.message, Site(advice.path, advice.line), fix=advice.fix, gain_us=advice.gain_us,
        command=command if evidence.command else "",
        notes=[
            f"{latency:.2f} us predicted, {latency - advice.gain_us:.2f} us with {advice.edit}",
            f"the gain is believed to lie between {low:.2f} and {high:.2f} us",
        ],
    )  # fmt: skip


def named_candidates(evidence: Evidence) -> Iterator[tuple[str, Subject, Candidate]]:
    """Everything that may be tried out, by its name, ID@LINE, the most time behind it first."""
    subject = slowest(evidence.tracks)
    if subject is None:
        return
    subject = subject.part
    every = [(id, candidate) for id, own in CATALOGUE.items() for candidate in own.find(subject)]
    for id, own in sorted(every, key=lambda pair: -pair[1].weight_ns):
        yield f"{id}@{subject.base.lines[own.line][1]}", subject, own
