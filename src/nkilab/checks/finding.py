"""What a check says about a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os.path import basename
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

Severity = Literal["error", "warning", "note", "advice"]
# In the order in which they are told.
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note", "advice")
# What fails a check; notes and advice never do.
FAILING: tuple[Severity, ...] = ("error", "warning")
Origin = Literal["hardware", "compiler"]
# How a rule is known: documents, the log of a build, a report, a conclusion; or sources disagree.
Certainty = Literal["documented", "log", "report", "derived", "disputed"]
# What is sure enough to fail a check.
CERTAIN: tuple[Certainty, ...] = ("documented", "log", "report")


class Site(NamedTuple):
    """A line of the user's: path of the file, number of the line; 0 where no line is known."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{basename(self.file)}:{self.line}" if self.file else ""


NOWHERE = Site()


class Finding(Struct, frozen=True):
    """Something that is wrong with a kernel, or could be better.

    Args:
        rule: identifier of what is broken; `nkilab explain RULE` tells more.
        message: what is the matter, values first.
        where: "file.py:41".
        other_where: the second line of a pair, or "".
        fix: one thing to do, imperative; "" if there is none.
        severity: "error"; "warning" where public documents do not settle it, or the author may mean it;
            "note" where it is uncertain whether the compiler refuses it; "advice" about speed.
        site, other_site: the same two lines with whole paths.
        other_message: what happens on the second line.
        notes: facts that help, one line each.
        gain_us: microseconds that the fix saves by two simulations; None where no simulation tells.
        command: what reproduces the gain, or "".
        origin: who refuses it: the hardware, or the vendor's compiler alone.
        certainty: how the rule is known.
        code: of the compiler's error, "NCC_INLA001", or "".
        build_error: the sentence that the build ends with, or "".
    """

    rule: str
    message: str
    where: str
    other_where: str = ""
    fix: str = ""
    severity: Severity = "error"
    site: Site = NOWHERE
    other_site: Site = NOWHERE
    other_message: str = ""
    notes: tuple[str, ...] = ()
    gain_us: float | None = None
    command: str = ""
    origin: Origin = "hardware"
    certainty: Certainty = "documented"
    code: str = ""
    build_error: str = ""

    @property
    def fails(self) -> bool:
        """Whether a kernel with it does not pass: all but notes and advice."""
        return self.severity in FAILING

    def to_dict(self) -> dict[str, Any]:
        """A plain dictionary, ready for JSON."""
        fields = asdict(self)
        for name in ("site", "other_site"):
            site = getattr(self, name)
            fields[name] = {"file": site.file, "line": site.line} if site.file else None
        fields["notes"] = list(self.notes)
        return fields

    @property
    def order(self) -> tuple[Any, ...]:
        """Findings are told file by file, line by line, errors first; then advice, as it is ordered."""
        if self.severity == "advice":
            return (True,)
        rank = SEVERITIES.index(self.severity)
        return (False, self.site, rank, self.rule, self.other_site, self.message)


def once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The first finding of each rule at the same two lines."""
    places: set[tuple[str, frozenset[Site]]] = set()
    for finding in findings:
        place = (finding.rule, frozenset((finding.site, finding.other_site)))
        if place not in places:
            places.add(place)
            yield finding
