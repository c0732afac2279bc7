"""Rules that are read from the text of a kernel: who looks for which, in which spelling."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from .declare import Rule
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
