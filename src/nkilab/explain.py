"""What `nkilab explain NAME` finds: the pages of a name, the nearest names where there is none."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from statistics import median
from typing import Any, TypeVar

from .checks.declare import RULES
from .compiler_codes import COMPILER_CODES, code_in
from .documents import print_document
from .error_keys import ERROR_KEYS
from .errors import UsageError, did_you_mean
from .hook import activate
from .isa import REGISTRY
from .isa.activations import ACTIVATIONS
from .isa.operators import NUMPY_NAMES, OPERATORS
from .ledger.sensitivity import changes, other_of
from .machine import MACHINES
from .machine.chips import ALIASES
from .ops import name_page, public_names
from .pages.check_rules import FINDINGS, finding_page, rules_page
from .pages.content import Page, Section, Text, as_data, code, table
from .pages.instruction import instruction_page
from .pages.subjects import (
    bound_page,
    chip_page,
    compiler_code_page,
    error_page,
    metric_page,
    rule_page,
    rules,
    stall_page,
    term_page,
)
from .pages.terminal import print_page, text
from .pages.terms import glossary
from .pages.tokens import activation_page, dtype_page, operator_page
from .tiles.dtypes import DTYPES, SYNONYMS
from .views.bound import BOUNDS
from .views.metrics import METRICS
from .views.stalls import STALLS

SCHEMA, RULES_SCHEMA = "nkilab.explain/1", "nkilab.rules/1"
_PREFIXES = ("neuronxcc.", "nki.", "isa.", "language.", "nisa.", "nl.")

Makers = Mapping[str, Callable[[], list[Page]]]
T = TypeVar("T")


@cache
def _tables() -> list[Makers]:
    """What there are pages of, by kind; a name may stand in several."""

    def some(make: Callable[[T], Page], rows: Mapping[str, Sequence[T]]) -> Makers:
        return {name: partial(lambda own: [*map(make, own)], own) for name, own in rows.items()}

    def one(make: Callable[[T], Page], rows: Mapping[str, T]) -> Makers:
        return some(make, {name: [row] for name, row in rows.items()})

    aliases = {alias: OPERATORS[name] for alias, name in NUMPY_NAMES.items()}
    chips = {**MACHINES, **{alias: MACHINES[name] for alias, name in ALIASES.items()}}
    terms = glossary().words.items()
    named = [
        one(instruction_page, REGISTRY),
        one(operator_page, {**aliases, **OPERATORS}),
        one(activation_page, ACTIVATIONS),
        one(dtype_page, {**DTYPES, **{other: DTYPES[name] for other, name in SYNONYMS.items()}}),
        one(chip_page, chips),
        one(metric_page, METRICS),
        one(bound_page, {name: name for name in BOUNDS}),
        one(term_page, {word: name for name, term in terms for word in (name, *term.others)}),
        one(stall_page, {name: name for name in ("stall", *STALLS)}),
        one(finding_page, {name: name for name in FINDINGS}),
        one(error_page, {key: key for key in ERROR_KEYS}),
        one(constant_page, {name: name for name in MACHINES["trn2"].facts()}),
        one(compiler_code_page, {name: name for name in COMPILER_CODES}),
        some(lambda use: rule_page(*use), rules()),
    ]
    # a type or a function is more than its name; who types `nl.exp` wants both
    names = {w: own for w, own in public_names().items() if not any(w in table for table in named[:5])}
    return [*named, some(name_page, names)]


def constant_page(name: str) -> Page:
    """A constant on every chip, and how much predictions of short kernels hang on it."""
    known: list[tuple[str, ...]] = []
    matter: list[tuple[str, ...]] = []
    for machine in MACHINES.values():
        fact = machine.facts()[name]
        known.append((machine.name, f"{fact.value:.10g}", fact.certainty, fact.source))
        with activate():
            other, words = other_of(name, machine)
            moved = changes(name, machine) if other != fact.value else {}
        if moved:
            most = max(moved, key=lambda structure: moved[structure])
            cells = (words, f"{median(moved.values()):.1%}", f"{moved[most]:.1%}")
            matter.append((machine.name, *cells, code(most) if moved[most] else ""))
    sentence = (
        "How much longer or shorter short kernels of the ledger take, one of each structure, if the constant "
        "is off by a factor, its uncertainty, or where it is a switch, if that is thrown."
    )
    heads = ("chip", "factor", "median", "most", "kernel")
    blocks = (Text(sentence), table(heads, matter, ["factor", "median", "most"]))
    facts = table(("chip", "value", "certainty", "source"), known, ["value"])
    return Page(name, "constant", (Section("", (facts,)), Section("How much it matters", blocks)))


def pages_of(name: str) -> list[Page]:
    """All pages of a name: an instruction, an operator, a data type, a chip, a constant, a metric, a rule, an
    error key, a code of the compiler, which may stand within a line of its log, as a sentence of a build may.

    Raises:
        UsageError: if there is none.
    """
    word = name
    for prefix in _PREFIXES:
        word = word.removeprefix(prefix)
    tables = _tables()
    for other in (word, code_in(name), word.lower()):
        if other and any(other in makers for makers in tables):
            word = other
            break
    # sizes and places within a sentence are those of another kernel
    plain = partial(re.sub, r"\d+", "0")
    said = [(r.id, r.refusal.build_error) for r in RULES.values() if r.refusal and r.refusal.build_error]
    said += [(sentence, sentence) for sentence in COMPILER_CODES if " " in sentence]
    keys = dict.fromkeys((word, name, *(key for key, error in said if plain(error) in plain(name))))
    pages = [page for key in keys for makers in tables if key in makers for page in makers[key]()]
    if not pages:
        known = [other for makers in tables for other in makers]
        hint = did_you_mean(
            code_in(name) or word,
            known,
            "try a public name, type, chip, metric or rule, or a word such as tile",
            most=3,
        )
        raise UsageError(f"there is no page of {name}", hint=hint)
    return list(dict.fromkeys(pages))


def known_names() -> list[str]:
    """Every name that there is a page of."""
    return list(dict.fromkeys(name for makers in _tables() for name in makers))


def explanation(name: str) -> str:
    """The pages of a name as plain text, as wide as the terminal.

    Raises:
        UsageError: if there is none.
    """
    return "\n\n".join(text(page) for page in pages_of(name))


def explanation_data(name: str) -> dict[str, Any]:
    """The pages of a name as data: `page` is the text, `pages` its parts."""
    pages = [as_data(page) for page in pages_of(name)]
    return {"schema": SCHEMA, "name": name, "page": explanation(name), "pages": pages}


def print_rules(*, as_json: bool = False) -> None:
    """Print the rules of the checks and what they do not cover, as text or as JSON."""
    if as_json:
        print_document({"schema": RULES_SCHEMA, **as_data(rules_page())})
    else:
        print_page(rules_page())


def print_explanation(name: str) -> None:
    """Print the pages of a name, in colour on a terminal."""
    for place, page in enumerate(pages_of(name)):
        if place:
            sys.stdout.write("\n")
        print_page(page)
