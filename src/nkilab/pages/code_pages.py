"""Pages of the codes of the vendor's compiler."""

from __future__ import annotations

from ..checks.declare import RULES
from ..compiler_codes import COMPILER_CODES, families
from .content import Bullets, Page, Section, Text, code, sentence


def compiler_code_page(name: str) -> Page:
    """What a code means, what is known to raise it, the way out, and the rules of the checks that tell it."""
    row = COMPILER_CODES[name]
    finding = [code(r.id) for r in RULES.values() if r.refusal is not None and r.refusal.code == name]
    facts = {
        "raised by": row.trigger,
        "way out": row.way_out or "nobody tells one",
        "versions": row.versions,
        "rules of `nkilab check` that tell it": ", ".join(finding),
        "source": row.source,
    }
    listed = tuple(f"{what}: {fact}" for what, fact in facts.items() if fact)
    opening = (Text(sentence(row.meaning)), Text(sentence(f"it is {families(name)}")), Bullets(listed))
    return Page(name, "code of the compiler", (Section("", opening),))
