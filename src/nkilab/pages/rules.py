"""Pages of the rules of the checks: one each, and the list of all with what is not covered."""

from __future__ import annotations

from collections.abc import Iterator

from ..checks.declare import FAMILIES, RULES
from ..checks.language import NOT_COVERED
from .content import Bullets, Code, Page, Section, Text, code, sentence, table

# What the checks find: rules by identifier.
FINDINGS = RULES


def finding_page(name: str) -> Page:
    """What a rule asks for, when it is broken and what happens then, with both examples."""
    held = FINDINGS[name]
    facts = (
        f"severity: {held.severity}",
        f"family: {FAMILIES[held.family][0].lower()}{FAMILIES[held.family][1:]}",
        f"way out: {held.fix}",
        f"silence it: {code(f'# nkilab: ignore[{held.id}] reason')}",
        f"source: {held.source}",
    )
    opening = (Text(sentence(held.title)), Text(f"Broken where {held.what}."), Text(sentence(held.why)),
               Bullets(facts))  # fmt: skip
    sections = [Section("", opening)]
    for title, example in (("Broken by", held.wrong), ("Kept by", held.right)):
        if example is not None:
            sections.append(Section(title, (Code(example.shown),)))
    return Page(name, "finding", tuple(sections))


def rules_page() -> Page:
    """All rules by family, and documented rules that are not covered."""
    opening = (
        Text(
            f"The {len(RULES)} rules that {code('nkilab check')} knows. Errors and warnings make it fail, "
            f"advice never does. {code('nkilab explain RULE')} shows each with an example that breaks it and "
            "one that keeps it."
        ),
    )
    return Page("Rules", "index", (Section("", opening), *_families(), _not_covered()))


def _families() -> Iterator[Section]:
    for family, title in FAMILIES.items():
        held = [r for r in RULES.values() if r.family == family]
        rows = [(code(r.id), r.severity, r.title, r.fix) for r in held]
        if rows:
            yield Section(title, (table(("rule", "severity", "asks that", "way out"), rows),))


def _not_covered() -> Section:
    words = Text("Rules that public documents state and nothing here looks for:")
    return Section("Not covered", (words, table(("rule", "told in", "why not"), NOT_COVERED)))
