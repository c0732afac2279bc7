"""What `nkilab explain NAME` finds: the pages of a name, the nearest names where there is none."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from .compiler_codes import COMPILER_CODES, code_in
from .error_keys import ERROR_KEYS
from .errors import UsageError, did_you_mean
from .isa import REGISTRY
from .isa.activations import ACTIVATIONS
from .isa.operators import NUMPY_NAMES, OPERATORS
from .machine import MACHINES
from .machine.chips import ALIASES
from .pages.check_rules import FINDINGS, finding_page, rules_page
from .pages.code_pages import compiler_code_page
from .pages.content import Page, as_data
from .pages.instruction import instruction_page
from .pages.subjects import bound_page, chip_page, error_page, metric_page, rule_page, rules
from .pages.terminal import print_page, text
from .pages.tokens import activation_page, dtype_page, operator_page
from .tiles.dtypes import DTYPES
from .views.bound import BOUNDS
from .views.metrics import METRICS

SCHEMA, RULES_SCHEMA = "nkilab.explain/1", "nkilab.rules/1"
_PREFIXES = ("neuronxcc.", "nki.", "isa.", "language.", "nisa.", "nl.")

Makers = Mapping[str, Callable[[], list[Page]]]


@cache
def _tables() -> list[Makers]:
    """What there are pages of, by kind; a name may stand in several."""

    def one(make: Callable[[Any], Page], rows: Mapping[str, Any]) -> Makers:
        return {name: partial(lambda row: [make(row)], row) for name, row in rows.items()}

    aliases = {alias: OPERATORS[name] for alias, name in NUMPY_NAMES.items()}
    chips = {**MACHINES, **{alias: MACHINES[name] for alias, name in ALIASES.items()}}
    return [
        one(instruction_page, REGISTRY),
        one(operator_page, {**aliases, **OPERATORS}),
        one(activation_page, ACTIVATIONS),
        one(dtype_page, DTYPES),
        one(chip_page, chips),
        one(metric_page, METRICS),
        one(bound_page, {name: name for name in BOUNDS}),
        one(finding_page, {name: name for name in FINDINGS}),
        one(error_page, {key: key for key in ERROR_KEYS}),
        one(compiler_code_page, {name: name for name in COMPILER_CODES}),
        {
            name: partial(lambda uses: [rule_page(*use) for use in uses], uses)
            for name, uses in rules().items()
        },
    ]


def pages_of(name: str) -> list[Page]:
    """All pages of a name: an instruction, an operator, a data type, a chip, a metric, a rule, an error key,
    a code of the compiler, which may stand within a line of its log.

    Raises:
        UsageError: if there is none.
    """
    word = name
    for prefix in _PREFIXES:
        word = word.removeprefix(prefix)
    tables = _tables()
    if not any(word in makers for makers in tables):
        word = code_in(name) or word
    pages = [page for makers in tables if word in makers for page in makers[word]()]
    if not pages:
        known = [other for makers in tables for other in makers]
        hint = did_you_mean(word, known, f"instructions are {', '.join(REGISTRY)}", most=3)
        raise UsageError(f"there is no page of {name}", hint=hint)
    return pages


def known_names() -> list[str]:
    """Every name that there is a page of."""
    return list(dict.fromkeys(name for makers in _tables() for name in makers))


def explanation(name: str) -> str:
    """The pages of a name as plain text, 100 columns wide.

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
        print(json.dumps({"schema": RULES_SCHEMA, **as_data(rules_page())}, indent=2))
    else:
        print_page(rules_page())


def print_explanation(name: str) -> None:
    """Print the pages of a name, in colour on a terminal."""
    for place, page in enumerate(pages_of(name)):
        if place:
            sys.stdout.write("\n")
        print_page(page)
