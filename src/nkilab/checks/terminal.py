"""Findings as a compiler prints them: line, caret, second line, hint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from textwrap import wrap
from typing import Any, TextIO

from .._lazy import rich
from ..errors import printable
from ..progress import columns
from .declare import RULES
from .finding import CERTAIN, Finding, Site
from .report import Report
from .sources import Sources

# warnings and pieces of advice of one rule that are printed
MOST = 5
# tensors whose figures are printed
_SHOWN = 12
_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold blue", "advice": "bold cyan"}
# A line of text, and how it looks: parts with their styles.
Line = list[tuple[str, str]]


def lines_of(finding: Finding, sources: Sources) -> Iterator[Line]:
    """The lines of one finding."""
    style = _STYLES[finding.severity]
    where = f"{finding.where}: " if finding.where else ""
    head = f"{where}{finding.severity}: {finding.message} [{finding.rule}]"
    first, *rest = _wrapped(head, "  ")
    lead = len(where) + len(finding.severity) + 1
    yield [(first[: len(where)], "bold"), (first[len(where) : lead], style), (first[lead:], "bold")]
    yield from ([(line, "bold")] for line in rest)
    yield from _excerpt(finding.site, sources, "^", style)
    if finding.other_where:
        yield [(f"  {finding.other_where}: {finding.other_message or 'the other side'}", "")]
        yield from _excerpt(finding.other_site, sources, "-", "blue")
    if finding.fix:
        yield from _labelled("hint", finding.fix)
    for note in finding.notes:
        yield from _labelled("note", note)
    if finding.origin == "compiler":
        yield from _labelled("build", _refusal(finding))
    if finding.gain_us is not None:
        yield from _labelled("gain", f"{finding.gain_us:.2f} us by simulation")
        if finding.command:
            # one line, to be copied
            yield [("  try: ", "bold"), (finding.command, "")]


def _refusal(finding: Finding) -> str:
    """Who says that the build refuses it, and with which words, or that it does not."""
    said = " ".join(filter(None, (finding.code and f"[{finding.code}]", finding.build_error)))
    known = {"log": "the log of a build", "report": "a report of a build", "derived": "concluded, not seen"}
    verdict = "refused" if finding.severity == "error" or finding.certainty not in CERTAIN else "takes it"
    return f"{said or verdict} ({known.get(finding.certainty, finding.certainty)})"


def _excerpt(site: Site, sources: Sources, mark: str, style: str) -> Iterator[Line]:
    """A line of the user's with marks under what it is about."""
    text = sources.line(site)
    if not text.strip():
        return
    start, end = sources.span(site)
    number = str(site.line)
    margin = " " * max(0, 5 - len(number))
    # tabs count one column here and in the marks below
    shown = text.rstrip().replace("\t", " ")
    yield [(f"{margin}{number} | ", "dim"), (shown, "")]
    yield [(f"{' ' * max(5, len(number))} | ", "dim"), (" " * start + mark * max(1, end - start), style)]


def _labelled(word: str, text: str) -> Iterator[Line]:
    first, *rest = _wrapped(f"  {word}: {text}", "    ")
    yield [(first[: len(word) + 3], "bold"), (first[len(word) + 3 :], "")]
    yield from ([(line, "")] for line in rest)


def _wrapped(text: str, indent: str) -> list[str]:
    """A text in lines that fit the terminal, all but the first with an indent."""
    lines = wrap(text, columns(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines or [""]


def text_of(report: Report) -> str:
    """The findings of a report as plain text, without the summary line."""
    blocks = []
    for finding in report.findings:
        lines = ["".join(part for part, _ in line).rstrip() for line in lines_of(finding, report.sources)]
        blocks.append("\n".join(lines))
    return printable("\n\n".join(blocks))


def print_report(report: Report, file: TextIO | None = None) -> None:
    """Print the findings of a report, in colour on a terminal; of warnings of one rule the first few."""
    console = rich("console").Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)
    counts: Counter[str] = Counter()
    for finding in report.findings:
        counts[finding.rule] += 1
        if finding.severity != "error" and counts[finding.rule] > MOST:
            continue
        for line in lines_of(finding, report.sources):
            console.print(_styled(line), end="\n")
        console.print()
    for rule, count in counts.items():
        if count > MOST and RULES[rule].severity != "error":
            console.print(f"{count - MOST} more of {rule}; --json lists all")
            console.print()


def _styled(line: Line) -> Any:
    text = rich("text").Text()
    for part, style in line:
        text.append(printable(part), style=style)
    return text


def figures(report: Report) -> Iterator[str]:
    """What replays and `--numerics` measured, as lines of text."""
    for one in report.replays:
        count = one["differing_elements"]
        yield f"replayed with {one['order']}: {f'{count} elements differ' if count else 'same results'}"
    if report.tensors:
        yield f"{'tensor':<28} {'type':<14} {'most ulp':>10} {'relative':>10}  parts at"
    for one in report.tensors[:_SHOWN]:
        name = f"{one['tensor']} ({one['line']})"
        yield (
            f"{name:<28} {one['dtype']:<14} {one['max_ulp']:>10.3g} {one['max_relative']:>10.2g}  "
            f"{one['parted_at']}"
        ).rstrip()
