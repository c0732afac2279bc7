"""Verdicts of real toolchains, from the file that NKILAB_BUILD_CASES names, beside those of `nkilab check`.

`python -m tests.conformance.build_cases` prints every case and the totals. The rules are in two halves:
`open` ones were looked at when rules of the checks were written, `held-out` ones were not.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.command_line import call

VARIABLE = "NKILAB_BUILD_CASES"
OPEN, HELD_OUT = "open", "held-out"
# of the shuffle that holds out half of the rules
_SEED = 20
_FAILING = ("error", "warning")


@dataclass(frozen=True)
class BuildCase:
    """One kernel with what a real toolchain made of it.

    Args:
        name: of the case.
        rule: what it is about; several cases may share one.
        label: "accept" or "reject".
        kind: "rule", "compiler-bug", "silent-wrong" or "disputed".
        half: `OPEN` or `HELD_OUT`.
        options: of `nkilab check`.
        kernel: text of the file.
    """

    name: str
    rule: str
    label: str
    kind: str
    half: str
    options: tuple[str, ...]
    kernel: str


@dataclass(frozen=True)
class Verdict:
    """What `nkilab check` says of a case.

    Args:
        case: that was checked.
        status: of the program.
        findings: as the JSON has them.
    """

    case: BuildCase
    status: int
    findings: tuple[dict[str, Any], ...]

    @property
    def severities(self) -> set[str]:
        """Of its findings."""
        return {finding["severity"] for finding in self.findings}

    @property
    def is_right(self) -> bool:
        """An error on what is rejected, neither error nor warning on what is accepted, a note of disputes."""
        if self.case.kind == "disputed":
            return "note" in self.severities and not self.severities & set(_FAILING)
        if self.case.label == "reject":
            return self.status == 1 and "error" in self.severities
        return self.status == 0 and not self.severities & set(_FAILING)

    @property
    def words(self) -> str:
        """The verdict with the rules that told it."""
        rules = [f["rule"] for f in self.findings if f["severity"] in (*_FAILING, "note")]
        worst = next((s for s in (*_FAILING, "note") if s in self.severities), "accept")
        crash = f" (status {self.status})" if self.status not in (0, 1) else ""
        return f"{worst}{crash} {', '.join(dict.fromkeys(rules))}".strip()


def halves(rules: Iterable[str]) -> dict[str, str]:
    """Which half each rule is in; half of the rules are held out, by chance with a fixed seed."""
    names = sorted(set(rules))
    random.Random(_SEED).shuffle(names)
    return {name: HELD_OUT if place < len(names) // 2 else OPEN for place, name in enumerate(names)}


def build_cases() -> list[BuildCase]:
    """All cases; none where the variable is not set."""
    named = os.environ.get(VARIABLE)
    if not named:
        return []
    rows = YAML(typ="safe").load(Path(named).read_text())["cases"]
    half = halves(row["rule"] for row in rows)
    return [_case(row, half[row["rule"]]) for row in rows]


def _case(row: dict[str, Any], half: str) -> BuildCase:
    options = ["--nki", str(row["nki"]), "--target", row["chip"], "--json"]
    for word in row["shapes"]:
        options += ["--arg", word]
    for word in row.get("keywords", ()):
        options += ["--kw", word]
    return BuildCase(
        row["id"], row["rule"], row["label"], row["kind"], half, tuple(options), row["minimal_kernel"]
    )


def verdict_of(case: BuildCase, folder: Path) -> Verdict:
    """Check a case in a folder."""
    path = folder / f"{case.name.replace('-', '_')}.py"
    path.write_text(case.kernel)
    done = call("check", f"{path}:k", *case.options, folder=folder)
    findings: Sequence[dict[str, Any]] = ()
    if done.stdout.startswith("{"):
        findings = json.loads(done.stdout)["findings"]
    elif done.returncode == 1:
        # the user's module or call raised: the program stops with a traceback of his own frames
        findings = ({"severity": "error", "rule": done.stderr.strip().rpartition("\n")[2][:60]},)
    return Verdict(case, done.returncode, tuple(findings))


def totals(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """How many rejections are told, and how many errors and warnings on accepted cases are false."""
    sure = [v for v in verdicts if v.case.kind != "disputed"]
    rejected = [v for v in sure if v.case.label == "reject"]
    accepted = [v for v in sure if v.case.label == "accept"]
    disputed = [v for v in verdicts if v.case.kind == "disputed"]
    yield f"rejections told as errors: {sum(v.is_right for v in rejected)} of {len(rejected)}"
    for severity in _FAILING:
        false = sum(severity in v.severities for v in accepted)
        yield f"accepted cases with {severity}s: {false} of {len(accepted)}"
    yield f"disputed cases told as notes: {sum(v.is_right for v in disputed)} of {len(disputed)}"


def table(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """One line per case by rule, then the totals of each half."""
    for verdict in sorted(verdicts, key=lambda v: (v.case.half, v.case.rule, v.case.name)):
        case = verdict.case
        word = "right" if verdict.is_right else "WRONG"
        truth = "disputed" if case.kind == "disputed" else case.label
        yield f"{case.half:<9} {case.rule:<26} {case.name:<26} {truth:<9} {word}  {verdict.words}"
    for half in (OPEN, HELD_OUT):
        yield f"{half}:"
        yield from (f"  {line}" for line in totals([v for v in verdicts if v.case.half == half]))
    yield "both:"
    yield from (f"  {line}" for line in totals(verdicts))


def main() -> None:
    """Print the table."""
    cases = build_cases()
    if not cases:
        sys.exit(f"{VARIABLE} names no file of cases")
    with tempfile.TemporaryDirectory() as folder:
        verdicts = [verdict_of(case, Path(folder)) for case in cases]
    print("\n".join(table(verdicts)))


if __name__ == "__main__":
    main()
