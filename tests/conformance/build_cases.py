"""Verdicts of real toolchains beside those of `nkilab check`, on our own cases and on files that are named.

`python -m tests.conformance.build_cases [FILE...]` prints every case and the totals. The rules of a file that
names no half are in two halves: `open` ones were looked at when rules of the checks were written, `held-out`
ones were not. Our own stand for all versions and chips that their source is about, and have right twins.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.command_line import call

VARIABLE = "NKILAB_BUILD_CASES"
OWN = tuple(Path(__file__).parent / f"own_build_cases_{half}.yaml" for half in ("open", "held_out"))
OPEN, HELD_OUT = "open", "held-out"
# of the shuffle that holds out half of the rules
_SEED = 20
FAILING = ("error", "warning")


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
        expected: the least that is said: "error", "warning", "note", or "clean".
    """

    name: str
    rule: str
    label: str
    kind: str
    half: str
    options: tuple[str, ...]
    kernel: str
    expected: str = ""


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
        """What is expected of what is rejected, neither error nor warning else, a note of disputes."""
        if self.case.kind == "disputed":
            return "note" in self.severities and not self.severities & set(FAILING)
        if self.case.label == "reject":
            if self.case.expected == "note":
                return self.status == 0 and "note" in self.severities
            least = FAILING if self.case.expected == "warning" else FAILING[:1]
            return self.status == 1 and bool(self.severities & set(least))
        return self.status == 0 and not self.severities & set(FAILING)

    @property
    def words(self) -> str:
        """The verdict with the rules that told it."""
        rules = [f["rule"] for f in self.findings if f["severity"] in (*FAILING, "note")]
        worst = next((s for s in (*FAILING, "note") if s in self.severities), "accept")
        crash = f" (status {self.status})" if self.status not in (0, 1) else ""
        return f"{worst}{crash} {', '.join(dict.fromkeys(rules))}".strip()


def halves(rules: Iterable[str]) -> dict[str, str]:
    """Which half each rule is in; half of the rules are held out, by chance with a fixed seed."""
    names = sorted(set(rules))
    random.Random(_SEED).shuffle(names)
    return {name: HELD_OUT if place < len(names) // 2 else OPEN for place, name in enumerate(names)}


def build_cases(files: Sequence[Path]) -> list[BuildCase]:
    """The cases of some files."""
    return [case for path in files for case in _cases_of(YAML(typ="safe").load(path.read_text()))]


def named_files() -> list[Path]:
    """The files that the variable names."""
    return [Path(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def own_files() -> list[Path]:
    """Those of our own."""
    return [path for path in OWN if path.exists()]


def _cases_of(content: dict[str, Any]) -> Iterator[BuildCase]:
    rows = content["cases"]
    half = halves(row["rule"] for row in rows)
    of_file = {"open": OPEN, "held-out": HELD_OUT}.get(content["half"].replace("_", "-"))
    for row in rows:
        yield from _variants(row, of_file or half[row["rule"]])


def _variants(row: dict[str, Any], half: str) -> Iterator[BuildCase]:
    """A case, the same for the other versions and chips that it holds for, and its right twin."""
    span = row.get("holds_for", {"nki": [], "chip": []})
    others = [(v, c) for v in span["nki"] for c in span["chip"] if (v, c) != (row["nki"], row["chip"])]
    yield _case(row, half)
    for version, chip in others:
        yield _case({**row, "id": f"{row['id']}@{version}-{chip}", "nki": version, "chip": chip}, half)
    twin = row.get("right_twin")
    if twin:
        kernel = twin.get("kernel", row["minimal_kernel"])
        changes = {"id": f"{row['id']}-right", "label": "accept", "kind": "rule", "expected": "clean"}
        yield _case({**row, **twin, **changes, "minimal_kernel": kernel}, half)


def _case(row: dict[str, Any], half: str) -> BuildCase:
    options = ["--nki", str(row["nki"]), "--target", row["chip"], "--json"]
    for word in row["shapes"]:
        options += ["--arg", word]
    for word in row.get("keywords", ()):
        options += ["--kw", word]
    if "grid" in row:
        options += ["--grid", str(row["grid"])]
    kernel, expected = row["minimal_kernel"], row.get("expected", "")
    return BuildCase(
        row["id"], row["rule"], row["label"], row["kind"], half, tuple(options), kernel, expected
    )


def verdict_of(case: BuildCase, folder: Path) -> Verdict:
    """Check a case in a folder."""
    path = folder / f"{re.sub('[^a-z0-9]', '_', case.name)}.py"
    path.write_text(case.kernel)
    done = call("check", f"{path}:k", *case.options, folder=folder)
    document: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    findings: Sequence[dict[str, Any]] = document.get("findings", ())
    if done.returncode == 1 and "error" in document:
        # the user's module or call raised: the one document is of that error
        rule = f"{document['error']}: {document['message']}"[:60]
        findings = ({"severity": "error", "rule": rule},)
    return Verdict(case, done.returncode, tuple(findings))


def totals(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """How many rejections are told, and how many errors and warnings on accepted cases are false."""
    sure = [v for v in verdicts if v.case.kind != "disputed"]
    rejected = [v for v in sure if v.case.label == "reject"]
    accepted = [v for v in sure if v.case.label == "accept"]
    disputed = [v for v in verdicts if v.case.kind == "disputed"]
    yield f"rejections told as errors: {sum(v.is_right for v in rejected)} of {len(rejected)}"
    for severity in FAILING:
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
    files = [Path(name) for name in sys.argv[1:]] or [*named_files(), *own_files()]
    cases = build_cases(files)
    with tempfile.TemporaryDirectory() as folder:
        verdicts = [verdict_of(case, Path(folder)) for case in cases]
    print("\n".join(table(verdicts)))


if __name__ == "__main__":
    main()
