"""Labelled cases of our own with public sources: what real toolchains and chips make of small kernels.

`python -m tests.conformance.own_build_cases [FILE]` prints what `nkilab check` says of each, and totals. The
file beside this module is one half, by rule; rules of the checks are judged on the other one as well.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.conformance.build_cases import OPEN, BuildCase, Verdict, verdict_of

OPEN_FILE = Path(__file__).with_name("own_build_cases_open.yaml")
# what a finding may at most be where less is asked for
_TOO_MUCH = {"clean": {"error", "warning"}, "note": {"error", "warning"}, "warning": set(), "error": set()}
_ENOUGH = {
    "clean": set(),
    "note": {"note"},
    "warning": {"warning", "error"},
    "error": {"error"},
}


@dataclass(frozen=True)
class OwnVerdict:
    """What `nkilab check` says of a case and of what is right in its place.

    Args:
        row: of the file.
        case: of the kernel itself.
        twin: of the right kernel, if the row has one.
    """

    row: dict[str, Any]
    case: Verdict
    twin: Verdict | None

    @property
    def is_right(self) -> bool:
        """At least the finding that is expected, and nothing that fails a kernel which is accepted."""
        expected = self.row["expected"]
        severities = self.case.severities
        if self.case.status not in (0, 1) or severities & _TOO_MUCH[expected]:
            return False
        return expected == "clean" or bool(severities & _ENOUGH[expected])

    @property
    def twin_passes(self) -> bool:
        """Whether the right kernel has neither error nor warning."""
        return self.twin is None or (
            self.twin.status == 0 and not self.twin.severities & {"error", "warning"}
        )


def texts_of(path: Path) -> dict[str, str]:
    """The cases of a file as they stand there, by name: reading YAML takes longer than most tests."""
    _, *texts = re.split("^(?=- id: )", path.read_text(), flags=re.MULTILINE)
    return {text.split(maxsplit=3)[2]: text for text in texts}


@cache
def row_of(text: str) -> dict[str, Any]:
    """The case that a text of a file is."""
    (row,) = YAML(typ="safe").load(text)
    return dict(row)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The cases of a file."""
    return [row_of(text) for text in texts_of(path).values()]


def build_case(row: dict[str, Any]) -> BuildCase:
    """One row as the cases of real builds are checked."""
    options = ["--nki", str(row["nki"]), "--target", row["chip"], "--json"]
    for word in row["shapes"]:
        options += ["--arg", word]
    for word in row.get("keywords", ()):
        options += ["--kw", word]
    if "grid" in row:
        options += ["--grid", str(row["grid"])]
    return BuildCase(
        row["id"], row["rule"], row["label"], row["kind"], OPEN, tuple(options), row["minimal_kernel"]
    )


def right_case(row: dict[str, Any]) -> BuildCase:
    """The right kernel of a row, with what it has from the wrong one."""
    twin = dict(row["right_twin"])
    kernel = twin.pop("kernel", row["minimal_kernel"])
    return build_case({**row, **twin, "id": f"{row['id']}-right", "minimal_kernel": kernel})


def own_verdict(row: dict[str, Any], folder: Path) -> OwnVerdict:
    """Check a case and its right twin in a folder."""
    twin = verdict_of(right_case(row), folder) if "right_twin" in row else None
    return OwnVerdict(row, verdict_of(build_case(row), folder), twin)


def totals(verdicts: Sequence[OwnVerdict]) -> Iterator[str]:
    """Right verdicts by what is expected, then by mechanism; twins that do not pass."""
    for key in ("expected", "kind", "mechanism", "evidence"):
        of = Counter(verdict.row[key] for verdict in verdicts)
        right = Counter(verdict.row[key] for verdict in verdicts if verdict.is_right)
        yield f"{key}: " + ", ".join(f"{name} {right[name]} of {count}" for name, count in sorted(of.items()))
    refused = [verdict.row["id"] for verdict in verdicts if not verdict.twin_passes]
    yield f"right twins that are refused: {len(refused)} of {sum(v.twin is not None for v in verdicts)}"


def table(verdicts: Sequence[OwnVerdict]) -> Iterator[str]:
    """One line per case by rule, then the totals."""
    for verdict in sorted(verdicts, key=lambda v: (v.row["mechanism"], v.row["rule"], v.row["id"])):
        row = verdict.row
        word = "right" if verdict.is_right else "WRONG"
        twin = "" if verdict.twin_passes else "  TWIN REFUSED"
        yield f"{row['rule']:<26} {row['id']:<28} {row['expected']:<8} {word}  {verdict.case.words}{twin}"
    yield from totals(verdicts)


def main() -> None:
    """Print the table of a file."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else OPEN_FILE
    with tempfile.TemporaryDirectory() as folder:
        verdicts = [own_verdict(row, Path(folder)) for row in rows_of(path)]
    print("\n".join(table(verdicts)))


if __name__ == "__main__":
    main()
