"""What a file written for one version of NKI has to change for another. The file is read, never executed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..dialects.history import BETA1, NEWEST, VERSIONS, Event, at, history, order
from ..dialects.versions import version_named
from ..disk import replace_whole
from ..errors import UsageError
from ..isa import REGISTRY
from ..isa.declare import Instruction
from .changes import ADVICE, MUST, SILENT, Change, import_changes, name_changes
from .rules import rule_changes
from .source import Edit, Source, Use, applied, read, unified


class Recognition(Struct, frozen=True):
    """What a file is written for."""

    spelling: str  # "neuronxcc", "nki", or "" where it uses neither
    version: str  # taken for it; "" where it uses neither
    accepted_by: tuple[str, ...]  # every version that accepts all that it uses


def recognised(source: Source, spelling: str = "") -> Recognition:
    """The spelling and version of a file: the newest version that accepts most of what it uses."""
    spellings = {u.spelling for u in source.uses} | _imported(source)
    chosen_spelling = spelling or ("neuronxcc" if "neuronxcc" in spellings else "nki" if spellings else "")
    if chosen_spelling != "nki":
        return Recognition(
            chosen_spelling, BETA1 if chosen_spelling else "", (BETA1,) if chosen_spelling else ()
        )
    numbered = [v for v in VERSIONS if v != BETA1]
    refused = {v: _refused(source, v) for v in numbered}
    fewest = min(refused.values())
    best = [v for v in numbered if refused[v] == fewest]
    # what all versions since have is taken for the newest whose stubs show that they do
    shown = [v for v in best if order(v) <= order(NEWEST)]
    return Recognition(chosen_spelling, (shown or best)[-1], tuple(v for v in numbered if not refused[v]))


def _imported(source: Source) -> set[str]:
    dotted = source.bindings.values()
    roots = {"neuronxcc" if d.startswith("neuronxcc") else d.partition(".")[0] for d in dotted}
    return roots & {"neuronxcc", "nki"}


def _refused(source: Source, version: str) -> int:
    """How many of the uses of `nki` in a file a version does not accept."""
    uses = [u for u in source.uses if u.spelling == "nki" and u.name in history()]
    bad = sum(not _accepts(u, version) for u in uses)
    # forms that this version left behind: what had to change on the way to it
    earliest = VERSIONS[1]
    left = (
        sum(c.severity == MUST for c in rule_changes(source, earliest, version)) if version != earliest else 0
    )
    return bad + left


def _accepts(use: Use, version: str) -> bool:
    event = at(use.name, version)
    if event is None:
        return False
    if use.call is None:
        return True
    return event.kind != "word" and (event.kind != "function" or _binds(use, event))


def _binds(use: Use, event: Event) -> bool:
    assert use.call is not None
    signature = event.signature
    if signature.is_open:
        return True
    keywords = [k.arg for k in use.call.keywords]
    known = all(k is None or k == "name" or signature.named(k) is not None for k in keywords)
    if not known or len(use.call.args) > len(signature.positional):
        return False
    arguments = [*zip(signature.positional, use.call.args, strict=False),
             *((k.arg, k.value) for k in use.call.keywords if k.arg)]  # fmt: skip
    cls = REGISTRY.get(use.name.removeprefix("isa."))
    return cls is None or all(_may_be(cls, name, value) for name, value in arguments)


def _may_be(cls: type[Instruction], name: str, value: ast.expr) -> bool:
    """Whether what is written may stand for a parameter: no number for a tile, no list for an operator."""
    operand = cls.operands.get(name)
    if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and operand is not None:
        return operand.may_be_number
    return not (name in _OPERATORS and isinstance(value, ast.List | ast.Tuple | ast.Constant))


# Parameters of instructions that take an operator.
_OPERATORS = ("op", "reduce_op", "cmp_op", "comp_op0", "comp_op1")


SCHEMA = "nkilab.migrate/1"
_SEVERITIES = (MUST, SILENT, ADVICE)


@dataclass(frozen=True)
class Migration:
    """What changes between the version of a file and another one."""

    source: Source
    recognition: Recognition
    version: str
    changes: tuple[Change, ...]

    def count(self, severity: str) -> int:
        """Number of changes of one severity."""
        return sum(c.severity == severity for c in self.changes)

    @property
    def is_needed(self) -> bool:
        """Whether anything is refused or means something else there."""
        return any(c.severity != ADVICE for c in self.changes)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        entries = []
        for change in self.changes:
            entry = {k: v for k, v in asdict(change).items() if k != "edits"}
            entries.append(
                {**entry, "text": self.source.line(change.line), "is_mechanical": bool(change.edits)}
            )
        return {
            "schema": SCHEMA, "file": self.source.path, "spelling": self.recognition.spelling,
            "from": self.recognition.version, "accepted_by": list(self.recognition.accepted_by),
            "to": self.version, "is_needed": self.is_needed,
            "counts": {s: self.count(s) for s in _SEVERITIES}, "changes": entries,
        }  # fmt: skip

    @property
    def rewritten(self) -> str:
        """The text of the file with the mechanical rewrites."""
        return _rewritten(self.source, [c.edits for c in self.changes if c.edits])

    @property
    def diff(self) -> str:
        """The same as a unified diff; "" if there is none."""
        return unified(self.source.path, self.source.text, self.rewritten)

    def write(self) -> bool:
        """Put the rewritten text in the place of the file, whole or not at all; whether it differs.

        Raises:
            FileError: if it cannot be written.
        """
        text = self.rewritten
        if text == self.source.text:
            return False
        replace_whole(self.source.path, text.encode(self.source.encoding))
        return True


def migration(path: str, to: str = "", since: str = "") -> Migration:
    """Find what a file has to change.

    Args:
        path: of a Python file.
        to: version to reach; the newest with public stubs if "".
        since: version that it is written for; recognised from its names if "".

    Raises:
        UsageError: if there is no such file or version, or the file is no Python.
    """
    version = version_named(to) if to else NEWEST
    if version == BETA1:
        raise UsageError("--to is beta1; nothing migrates to it", hint=f"give a version of nki: {NEWEST}")
    source = read(path)
    recognition = recognised(source)
    if since and recognition.spelling:
        named = version_named(since)
        spelling = "neuronxcc" if named == BETA1 else "nki"
        recognition = Recognition(spelling, named, recognised(source, spelling).accepted_by)
    return Migration(source, recognition, version, tuple(_ordered(_changes(source, recognition, version))))


def _changes(source: Source, recognition: Recognition, version: str) -> list[Change]:
    if not recognition.version:
        return []
    starts = [recognition.version]
    if recognition.spelling == "neuronxcc" and any(u.spelling == "nki" for u in source.uses):
        starts.append(recognised(source, "nki").version)
    return [
        c
        for s in starts
        for kind in (name_changes, import_changes, rule_changes)
        for c in kind(source, s, version)
    ]


def _ordered(changes: Iterable[Change]) -> list[Change]:
    """In the order of the file; what two checks find at one place is told once."""
    unique = {(c.line, c.column, c.what, c.why): c for c in changes}
    return sorted(unique.values(), key=lambda c: (c.line, c.column, _SEVERITIES.index(c.severity)))


def _rewritten(source: Source, groups: Sequence[tuple[Edit, ...]]) -> str:
    """The text with the rewrites that do not get in each other's way and leave it Python."""
    whole = source.whole
    chosen: list[tuple[Edit, ...]] = []
    for group in groups:
        if not any(_meet(a, b) for a in group for other in chosen for b in other):
            chosen.append(group)
    text = applied(whole, chain(*chosen))
    if _is_python(text):
        return text
    kept: list[tuple[Edit, ...]] = []
    for group in chosen:
        if _is_python(applied(whole, chain(*kept, group))):
            kept.append(group)
    return applied(whole, chain(*kept))


def _meet(a: Edit, b: Edit) -> bool:
    return a == b or (a.start < b.end and b.start < a.end)


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def report_text(migrated: Migration) -> str:
    """The changes for people: one block each, then how many there are."""
    recognition, path = migrated.recognition, migrated.source.path
    if not recognition.version:
        return f"{path}: uses no name of nki or neuronxcc.nki"
    shown = "NKI Beta 1 (neuronxcc.nki)" if recognition.version == BETA1 else f"NKI {recognition.version}"
    others = [v for v in recognition.accepted_by if v != recognition.version]
    also = f" (also accepted by {', '.join(others)}; --from names another)" if others else ""
    lines = [f"{path}: written for {shown}{also}; to NKI {migrated.version}"]
    for change in migrated.changes:
        mark = {SILENT: "silent: ", ADVICE: "advice: "}.get(change.severity, "")
        lines += ["", f"{Path(path).name}:{change.line}: {mark}{change.what}: {change.why}",
                  f"  {migrated.source.line(change.line)}"]  # fmt: skip
        if change.replacement:
            lines.append(f"  hint: {change.replacement}" + (" (--diff does it)" if change.edits else ""))
        if change.source:
            lines.append(f"  source: {change.source}")
    lines += [""] if migrated.changes else []
    mechanical = sum(bool(c.edits) for c in migrated.changes)
    lines.append(
        f"{migrated.count(MUST)} to change, {migrated.count(SILENT)} that change silently, "
        f"{migrated.count(ADVICE)} to consider; {mechanical} mechanical"
        if migrated.changes
        else "nothing to change"
    )
    return "\n".join(lines)
