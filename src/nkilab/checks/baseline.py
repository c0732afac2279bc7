"""Baselines: files of findings that are known, so that a check tells new ones alone.

A finding is known by its rule, its kernel and the texts of its lines, so that it stays so where lines move.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ..errors import UsageError, reason_of
from .faults import KERNEL_ERROR
from .finding import Finding
from .report import Advised, Report

SCHEMA = "nkilab.baseline/1"
_PARTS = ("file", "kernel", "rule", "text", "other_text")


@dataclass(frozen=True)
class Files:
    """The files that `nkilab check` reads and writes; "" for none."""

    sarif: str = ""  # gets the findings as SARIF
    baseline: str = ""  # holds findings that are known, which are not told
    new_baseline: str = ""  # gets all findings, in the place of those of the kernel that it holds


NO_FILES = Files()


class Entry(NamedTuple):
    """What a finding is known by: relative path, kernel, rule, and its two lines, stripped."""

    file: str
    kernel: str
    rule: str
    text: str
    other_text: str


Baseline = Mapping[Entry, int]


def read(path: Path) -> Baseline:
    """How often each entry stands in a baseline.

    Raises:
        UsageError: if the file cannot be read or is not a baseline file.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        hint = "write one with --write-baseline FILE"
        raise UsageError(f"{path} cannot be read: {reason_of(error)}", hint=hint) from None
    except ValueError:
        raise _no_baseline(path) from None
    rows = content.get("findings") if isinstance(content, dict) else None
    if not isinstance(rows, list) or content.get("schema") != SCHEMA or not all(map(_is_row, rows)):
        raise _no_baseline(path)
    return Counter({Entry(*(row[part] for part in _PARTS)): row["count"] for row in rows})


def _no_baseline(path: Path) -> UsageError:
    return UsageError(f"{path} is not a baseline file", hint="write one with --write-baseline FILE")


def _is_row(row: object) -> bool:
    if not isinstance(row, dict) or row.keys() != {*_PARTS, "count"}:
        return False
    return all(isinstance(row[part], str) for part in _PARTS) and type(row["count"]) is int


def without_known(report: Report, baseline: Baseline, folder: Path) -> Report:
    """A report whose findings are those that a baseline in a folder does not have.

    A note says how many of the baseline are gone, unless the kernel stopped on its way.
    """
    left = Counter[Entry]()
    for entry in _of_kernel(report, baseline, folder):
        left[entry._replace(kernel=report.kernel)] += baseline[entry]
    fresh: list[Finding] = []
    known: list[Finding] = []
    for finding in report.findings:
        entry = _entry(finding, report, folder)
        (known if left[entry] > 0 else fresh).append(finding)
        left[entry] -= 1
    gone, notes = (+left).total(), report.notes
    if gone and all(finding.rule != KERNEL_ERROR.id for finding in report.findings):
        notes = (*notes, f"no longer found: {gone} of the baseline, which --write-baseline leaves out")
    return replace(report, findings=Advised(fresh), known=tuple(known), notes=notes, has_baseline=True)


def updated(report: Report, baseline: Baseline, folder: Path) -> bytes:
    """The baseline with the findings of a report in the place of those of its kernel."""
    counts = Counter(_entry(finding, report, folder) for finding in report.findings)
    own = _of_kernel(report, baseline, folder)
    rows = {entry: count for entry, count in baseline.items() if entry not in own} | counts
    listed = [{**entry._asdict(), "count": rows[entry]} for entry in sorted(rows)]
    return (json.dumps({"schema": SCHEMA, "findings": listed}, indent=1) + "\n").encode()


def _of_kernel(report: Report, baseline: Baseline, folder: Path) -> set[Entry]:
    """The entries of a kernel, and of those that its files no longer define: it may have had such a name."""
    texts = {_relative(path, folder): report.sources.file(path).text for path in report.sources.paths}
    own = {e for e in baseline if e.kernel == report.kernel and (e.file in texts or not e.file)}
    rest = (e for e in baseline if e.file in texts)
    return own | {e for e in rest if not re.search(rf"\bdef {re.escape(e.kernel)}\b", texts[e.file])}


def _entry(finding: Finding, report: Report, folder: Path) -> Entry:
    texts = (report.sources.line(site).strip() for site in (finding.site, finding.other_site))
    return Entry(_relative(finding.site.file, folder), report.kernel, finding.rule, *texts)


def _relative(file: str, folder: Path) -> str:
    """A path as it stands in a baseline: the same wherever the project lies."""
    return Path(os.path.relpath(Path(file).resolve(), folder.resolve())).as_posix() if file else ""
