"""Findings as SARIF 2.1.0, which editors and code hosts show beside the lines.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .declare import RULES, Rule
from .finding import Finding, Site
from .report import Report
from .sources import Sources

VERSION = "2.1.0"
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "note": "note", "advice": "note"}


def sarif(reports: Sequence[Report], version: str, folder: Path) -> dict[str, Any]:
    """One run with the findings of all reports; paths below `folder` are told relative to it."""
    used = list(dict.fromkeys(f.rule for r in reports for f in (*r.findings, *r.silenced, *r.known)))
    place = {name: number for number, name in enumerate(used)}
    silenced = {"suppressions": [{"kind": "inSource"}]}
    results = []
    for report in reports:
        # all results of a run have a state, or none has: section 3.27.24
        new, known = ({"baselineState": s} if report.has_baseline else {} for s in ("new", "unchanged"))
        groups = ((report.findings, new), (report.silenced, new | silenced), (report.known, known))
        for findings, state in groups:
            results += [{**_result(f, report.sources, place, folder), **state} for f in findings]
    driver = {"name": "nkilab", "version": version, "rules": [_rule(RULES[name]) for name in used]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SCHEMA, "version": VERSION, "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": _sentence(rule.title)},
        "fullDescription": {"text": f"{_sentence(rule.what)} {_sentence(rule.why)}"},
        "help": {"text": f"{_sentence(rule.fix)} Source: {rule.source}."},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {
            "tags": [rule.family, rule.origin],
            "origin": rule.origin,
            "certainty": rule.certainty,
        },
    }


def _result(finding: Finding, sources: Sources, place: dict[str, int], folder: Path) -> dict[str, Any]:
    sentence = finding.message + (f". Hint: {finding.fix}" if finding.fix else "")
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": place[finding.rule],
        "level": _LEVELS[finding.severity],
        "message": {"text": sentence},
        "properties": {part: getattr(finding, part) for part in ("severity", "origin", "certainty")},
    }
    if finding.code:
        result["properties"]["code"] = finding.code
    # code hosts refuse a result without a place: the kernel's file stands for none
    site = finding.site if finding.site.file or not sources.paths else Site(sources.paths[0], 1)
    if site.file:
        result["locations"] = [_location(site, sources, folder)]
    if finding.other_site.file:
        other = _location(finding.other_site, sources, folder)
        result["relatedLocations"] = [
            {"id": 0, **other, "message": {"text": finding.other_message or "the other side"}}
        ]
    if finding.gain_us is not None:
        result["properties"] |= {"gainMicroseconds": finding.gain_us, "command": finding.command}
    return result


def _location(site: Site, sources: Sources, folder: Path) -> dict[str, Any]:
    start, end = sources.span(site)
    region = {"startLine": max(1, site.line), "startColumn": start + 1, "endColumn": max(end, start + 1) + 1}
    if not sources.line(site):
        region = {"startLine": max(1, site.line)}
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(site.file, folder)}, "region": region}}


def _uri(file: str, folder: Path) -> str:
    path = Path(file)
    if not path.is_absolute():
        return quote(path.as_posix())
    try:
        return quote(path.resolve().relative_to(folder.resolve()).as_posix())
    except ValueError:
        return path.as_uri()


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:].rstrip('.')}."
