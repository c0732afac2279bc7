"""Pages of rules of instructions, error keys and codes of the compiler, metrics, bounds and chips."""

from __future__ import annotations

from collections.abc import Iterator

from ..checks.declare import RULES
from ..compiler_codes import COMPILER_CODES, families
from ..error_keys import ERROR_KEYS
from ..errors import KernelError
from ..isa import REGISTRY
from ..isa.declare import CallRule, Instruction, Limit, Rule
from ..isa.uses import chips_of, form_of, smallest_use
from ..machine import MACHINES, Machine
from ..machine.chips import ALIASES
from ..views.bound import BOUNDS
from ..views.metrics import Metric
from ..views.stalls import STALLS
from ..views.words import HINTS
from .content import Block, Bullets, Code, Page, Section, Text, code, listed, sentence, table
from .example import spelled
from .terms import glossary

_REPLIES = {
    "error": "nkilab raises it as an error.",
    "warning": "nkilab runs the kernel and warns",
    "accepted": "nkilab accepts it",
}
_SPECIFICATION_OF_KEYS = "documents of SDK 2.20 to 2.26, NKI API Errors"


def rules() -> dict[str, list[tuple[type[Instruction], Rule | CallRule]]]:
    """Every rule of an instruction under its identifier, `instruction.rule`, and under its bare name."""
    rules_by_title: dict[str, list[tuple[type[Instruction], Rule | CallRule]]] = {}
    for cls, rule in _rules_of_instructions():
        for name in (rule_name(cls, rule), rule.name):
            rules_by_title.setdefault(name, []).append((cls, rule))
    return rules_by_title


def _rules_of_instructions() -> Iterator[tuple[type[Instruction], Rule | CallRule]]:
    for cls in REGISTRY.values():
        yield from ((cls, rule) for rule in cls.rules)
        yield from ((cls, rule) for rule in cls.call_rules)


def rule_name(cls: type[Instruction], rule: Rule | CallRule) -> str:
    """The identifier of a rule."""
    return f"{cls.name}.{rule.name}"


def rule_page(cls: type[Instruction], rule: Rule | CallRule) -> Page:
    """What a rule refuses, on which chips, a use that breaks it and the message that follows."""
    chips = [m.name for m in chips_of(cls)]
    where = (rule.chips if isinstance(rule, Rule) else ()) or chips
    facts = [f"instruction: {code(cls.name)}", f"chips: {', '.join(where)}"]
    if rule.hint:
        facts.append(f"way out: {rule.hint}")
    facts.append(f"source: {rule.source}")
    if getattr(rule, "key", ""):
        facts.append(f"key: {code(getattr(rule, 'key', ''))}")
    sections = [Section("", (Text(f"Refused: {rule.sentence}."), Bullets(tuple(facts))))]
    if rule.broken_by:
        sections.append(
            Section("Broken by", tuple(_counterexample(cls, rule, "trn2" if "trn2" in where else where[-1])))
        )
    return Page(rule_name(cls, rule), "rule", tuple(sections))


def _counterexample(cls: type[Instruction], rule: Rule | CallRule, chip: str) -> Iterator[Block]:
    yield Text(f"A use of {code(cls.name)} that is legal but for:")
    yield Bullets(
        tuple(f"{code(path)} = {code(_said(path, value))}" for path, value in rule.broken_by.items())
    )
    if isinstance(rule, Rule):
        message = _message(cls, rule, chip)
        yield Text(f"On {chip} the message reads, after the line of the kernel:")
        yield Code(message, "text")


def _said(path: str, value: object) -> str:
    is_plain = value is None or isinstance(value, str | int | float | tuple | list)
    return spelled(path, value) if is_plain else str(value)


def _message(cls: type[Instruction], rule: Rule, chip: str) -> str:
    """What is raised for the counterexample, word for word."""
    try:
        form_of(cls, MACHINES[chip], smallest_use(cls, rule.broken_by))
    except KernelError as error:
        return f"{cls.name}: {error}"
    raise AssertionError(f"{cls.name} accepts what breaks {rule.name}")


def error_page(name: str) -> Page:
    """When a documented error is raised, how to mend it, an example, and which instructions raise it."""
    key = ERROR_KEYS[name]
    reply = _REPLIES[key.reply] + (f": {key.why_accepted}." if key.why_accepted else "")
    facts = (f"way out: {key.way_out}", f"documented since: SDK {key.since}",
             f"source: {_SPECIFICATION_OF_KEYS}")  # fmt: skip
    opening = (Text(f"Beta 1 raises it where {key.condition}."), Text(reply), Bullets(facts))
    sections = [Section("", opening), Section("Example", (Code(key.example),))]
    raisers = list(_raisers(name))
    if raisers:
        heads = ("instruction", "what is refused", "way out")
        sections.append(Section("Raised by", (table(heads, raisers),)))
    return Page(name, "error key", tuple(sections))


def _raisers(key: str) -> Iterator[tuple[str, str, str]]:
    """Rules and limits of instructions that carry a key; a limit that all share is one row."""
    shared: dict[tuple[str, str], list[str]] = {}
    for cls in REGISTRY.values():
        facts: tuple[Rule | Limit, ...] = (*cls.rules, *cls.limits)
        for fact in (fact for fact in facts if fact.key == key):
            shared.setdefault(_refusal(fact), []).append(cls.name)
    for (refusal, hint), names in shared.items():
        yield "most" if len(names) > 10 else listed(names), refusal, hint


def _refusal(fact: Rule | Limit) -> tuple[str, str]:
    """What is refused, and the way out."""
    if isinstance(fact, Rule):
        return fact.sentence, fact.hint
    limits = {m.name: m.limit(fact.constant) for m in MACHINES.values()}
    most = ", ".join(f"{limit} on {name}" for name, limit in limits.items())
    return f"{code(fact.axis.rstrip('*'))} is over {most}", fact.hint_for(*limits.values())


def term_page(name: str) -> Page:
    """A word of those who begin, and what to do about it."""
    term = glossary().words[name]
    others = (f"also called: {', '.join(term.others)}",) if term.others else ()
    facts = Bullets((*others, f"see also: {listed(term.pages)}"))
    texts = (Text(" ".join(words.split())) for words in (term.meaning, term.remedy))
    return Page(name, "word", (Section("", (*texts, facts)),))


def stall_page(name: str) -> Page:
    """What an engine waits for where a profile says so, or what `stall` is."""
    meaning = "Time in which an engine stands still: a profile says what its next instruction waits for."
    remedy = "Work on two or more tiles in turn, and begin loads earlier, so that engines need not wait."
    rows = [(code(reason), what) for reason, what in STALLS.items() if name in ("stall", reason)]
    blocks = (Text(meaning), table(("name", "waits for"), rows), Text(remedy))
    return Page(name, "stall", (Section("", blocks),))


def metric_page(metric: Metric) -> Page:
    """The unit and definition of a metric, and what makes it better."""
    remedy = next(remedy for part, remedy in glossary().remedies.items() if part in metric.name)
    facts = Bullets((f"unit: {metric.unit}", f"what to do: {remedy}"))
    return Page(metric.name, "metric", (Section("", (Text(sentence(metric.definition)), facts)),))


def bound_page(name: str) -> Page:
    """When a kernel is said to be bound by something."""
    others = ", ".join(code(other) for other in BOUNDS if other != name)
    remedy = (Text(f"First thing to try: {HINTS[name]}."),) if HINTS[name] else ()
    text = (Text(f"A kernel is bound by it where {BOUNDS[name]}."), *remedy, Text(f"Other bounds: {others}."))
    return Page(name, "bound", (Section("", text),))


def chip_page(machine: Machine) -> Page:
    """Every number about a chip, with how sure it is and its source."""
    rows = [
        (code(name), f"{fact.value:.10g}", fact.certainty, fact.source)
        for name, fact in machine.facts().items()
    ]
    others = [alias for alias, name in ALIASES.items() if name == machine.name]
    title = f"{machine.name}, NeuronCore-v{machine.generation}"
    also = f"; also called {', '.join(others)}" if others else ""
    heads = ("constant", "value", "certainty", "source")
    lacks = [name for name, cls in REGISTRY.items() if machine not in chips_of(cls)]
    blocks = (Text(f"{title}{also}. The numbers are those of one NeuronCore."), table(heads, rows, ["value"]))
    sections = [Section("", blocks)]
    if lacks:
        sections.append(Section("Instructions it does not have", (Text(listed(lacks)),)))
    return Page(machine.name, "chip", tuple(sections))


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
