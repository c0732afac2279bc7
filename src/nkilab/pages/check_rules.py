"""Pages of the rules of the checks: one each, and the list of all with what is not covered."""

from __future__ import annotations

from collections.abc import Iterator

from ..advice import catalogue as catalogue
from ..checks.declare import FAMILIES, PACKAGES, RULES, Refusal, Rule
from ..checks.restricted_language import NOT_COVERED
from ..dialects.grammar import FIRST_PARSED, FORMS, KNOWN_BUILTINS, KNOWN_MATH, LAST_PARSED, REFUSED
from ..dialects.history import VERSIONS
from ..machine import MACHINES
from .content import Bullets, Code, Page, Section, Text, code, sentence, table

# What the checks find: rules by identifier.
FINDINGS = RULES


def finding_page(name: str) -> Page:
    """What a rule asks for, when it is broken and what happens then, with both examples."""
    rule = FINDINGS[name]
    facts = (
        f"severity: {rule.severity}",
        f"origin: {rule.origin}; certainty: {rule.certainty}",
        f"family: {FAMILIES[rule.family][0].lower()}{FAMILIES[rule.family][1:]}",
        f"way out: {rule.fix}",
        f"silence it: {code(f'# nkilab: ignore[{rule.id}] reason')}",
        f"source: {rule.source}",
        *_scope(rule),
    )
    verb = "Pays" if rule.family == "advice" else "Broken"
    opening = (Text(sentence(rule.title)), Text(f"{verb} where {rule.what}."), Text(sentence(rule.why)),
               Bullets(facts))  # fmt: skip
    sections = [Section("", opening)]
    for pair in rule.pairs:
        where = f" ({PACKAGES[pair.wrong.spelling]})" if len(rule.pairs) > 1 else ""
        sections.append(Section(f"Broken by{where}", (Code(pair.wrong.shown),)))
        sections.append(Section(f"Kept by{where}", (Code(pair.right.shown),)))
    return Page(name, "finding", tuple(sections))


def _scope(rule: Rule) -> Iterator[str]:
    """Which spelling has a rule, which builds refuse what breaks it, and how they say it."""
    if rule.one_spelling:
        yield f"{code(PACKAGES[rule.pairs[0].wrong.spelling])} alone: {rule.one_spelling}"
    refusal = rule.refusal
    if refusal is None:
        return
    versions = [v for v in VERSIONS if refusal.applies(v, 0)]
    yield f"refused by: {', '.join(versions)}"
    if refusal.generations:
        yield f"chips: {', '.join(m.name for m in MACHINES.values() if m.generation in refusal.generations)}"
    said = " ".join(part for part in (refusal.code and code(refusal.code), refusal.build_error) if part)
    if said:
        yield f"the build says: {said}"


def rules_page() -> Page:
    """All rules by family, and documented rules that are not covered."""
    opening = (
        Text(
            f"The {len(RULES)} rules that {code('nkilab check')} knows. Errors and warnings make it fail, "
            f"notes and advice never do. {code('nkilab explain RULE')} shows each; where it is about right "
            "and wrong, with an example of both. The origin is who refuses what breaks the rule."
        ),
    )
    sections = (Section("", opening), *_families(), _builds(), _grammar(), _not_covered())
    return Page("Rules", "index", sections)


def _families() -> Iterator[Section]:
    for family, title in FAMILIES.items():
        rules_of_family = [r for r in RULES.values() if r.family == family]
        rows = [(code(r.id), r.severity, r.origin, r.title, r.fix) for r in rules_of_family]
        if rows:
            yield Section(title, (table(("rule", "severity", "origin", "asks that", "way out"), rows),))


def _builds() -> Section:
    """Which versions refuse what, for which chips, and how that is known."""
    words = Text(
        "What the compiler of a version refuses, for all chips or those named. Certain are documents, logs "
        "and reports of builds; what is derived or disputed is a note and does not fail."
    )
    rows = [
        (
            code(rule.id),
            rule.refusal.code,
            rule.certainty,
            *(_chips(rule.refusal, v) for v in VERSIONS),
            rule.source,
        )
        for rule in RULES.values()
        if rule.refusal is not None
    ]
    heads = ("rule", "code", "certainty", *VERSIONS, "source")
    return Section("Which builds refuse what", (words, table(heads, rows)))


def _grammar() -> Section:
    """What the front ends of each version do not parse of Python."""
    known, of_math = (", ".join(map(code, sorted(names))) for names in (KNOWN_BUILTINS, KNOWN_MATH))
    words = Text(
        f"What the front ends of NKI {FIRST_PARSED} to {LAST_PARSED} refuse in a kernel and in the functions "
        "that it calls, whether it is reached or not; Python itself traces Beta 1 and later versions. All "
        f"else of the grammar is parsed. Of Python's functions they have {known}, of {code('math')} "
        f"{of_math}."
    )
    constructs = dict.fromkeys((*REFUSED.values(), *(construct for _, _, construct in FORMS)))
    rows = [(c.words, f"{c.since} to {c.until}", c.sentence, c.way_out) for c in constructs]
    heads = ("in a kernel", "NKI", "the build says", "way out")
    return Section("What front ends do not parse", (words, table(heads, rows)))


def _chips(refusal: Refusal, version: str) -> str:
    """The chips for which a version refuses it, "all" or ""."""
    chips = [m.name for m in MACHINES.values() if refusal.applies(version, m.generation)]
    return "all" if len(chips) == len(MACHINES) else ", ".join(chips)


def _not_covered() -> Section:
    words = Text("Rules that public documents state and nothing here looks for:")
    return Section("Not covered", (words, table(("rule", "told in", "why not"), NOT_COVERED)))
