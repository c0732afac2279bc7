"""Rules that are read from the text of a kernel: who looks for which, in which spelling."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Unpack

from .declare import Facts, Refusal, Rule, rule
from .finding import Severity
from .scope import Scope

# A place, what is said of it, and the way out where it is not the rule's.
Place = tuple[ast.AST, str, str]
Find = Callable[[Scope], Iterator[Place]]
# by spelling
FINDERS: dict[str, list[tuple[Rule, Find]]] = {"neuronxcc": [], "nki": []}


def found_by(spelling: str, rule: Rule) -> Callable[[Find], Find]:
    """Have a rule looked for by the decorated function."""

    def keep(find: Find) -> Find:
        FINDERS[spelling].append((rule, find))
        return find

    return keep


def text_rule(
    spelling: str, id: str, severity: Severity | Refusal, **facts: Unpack[Facts]
) -> Callable[[Find], Find]:
    """Declare a rule of the language that the decorated function looks for."""
    return found_by(spelling, rule(id, "language", severity, **facts))
