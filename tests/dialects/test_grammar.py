"""What front ends parse: the whole grammar of Python is divided, and what is refused is found by its form."""

from __future__ import annotations

import ast

import pytest

from nkilab.dialects.grammar import (
    ELSEWHERE,
    KNOWN_BUILTINS,
    PARSED,
    REFUSED,
    refused,
    unknown_function,
)
from nkilab.dialects.history import BETA1

PARSING = ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6")


def kinds(base: type[ast.AST]) -> set[type[ast.AST]]:
    """Node classes of the running Python below one, without its deprecated names of constants."""
    deprecated = {"Num", "Str", "Bytes", "NameConstant", "Ellipsis", "Index", "ExtSlice", "Suite", "AugLoad"}
    return {kind for kind in base.__subclasses__() if kind.__name__ not in deprecated}


def test_every_statement_and_expression_of_python_is_parsed_or_refused() -> None:
    divided = PARSED | REFUSED.keys() | ELSEWHERE
    assert kinds(ast.stmt) | kinds(ast.expr) <= divided
    assert not PARSED & REFUSED.keys()


# what gather.c, Simplify.lean and the guide say of each, by hand
WRONG = {
    "raise ValueError": "a raise",
    "try:\n    pass\nfinally:\n    pass": "a try",
    "import math": "an import",
    "from math import pi": "an import",
    "global a": "a global statement",
    "del a": "a del",
    "match a:\n    case 1:\n        pass": "a match",
    "class A:\n    pass": "a class",
    "[i for i in a]": "a comprehension",
    "{i: 1 for i in a}": "a comprehension",
    "f(i for i in a)": "a comprehension",
    "{1, 2}": "a set",
    "lambda i: i": "a lambda",
    "f(b := 1)": "an assignment within an expression",
    "yield 1": "a yield",
    "f(*a)": "an unpacking *",
    "f(**a)": "an unpacking **",
    "a, *b = c": "an unpacking *",
    "for i, j in a:\n    pass": "a loop over several names",
    "for i in a:\n    pass\nelse:\n    pass": "an else of a loop",
    "while a:\n    pass\nelse:\n    pass": "an else of a loop",
    "with f(1):\n    pass": "a with other than nl.no_reorder()",
    "with nl.no_reorder() as b:\n    pass": "a with other than nl.no_reorder()",
    "with nl.no_reorder(), g():\n    pass": "a with other than nl.no_reorder()",
    "a[0], b = 1, 2": "an unpacking into what is no name",
    "[a, b] = 1, 2": "an unpacking into what is no name",
    "a[0] = b.c = 1": "one assignment of several places",
    "a @ b": "the operator @",
    "1 < 2 in (2, 3)": "an `in` in a chain of comparisons",
    "a = 4294967296": "an integer of more than 32 bits",
    "f'{a:.2f}'": "a format of an f-string",
}
RIGHT = (
    "a = b = 1", "a, (b, c) = 1, (2, 3)", "a[0] = b = 1", "a += 1", "a: int = 1", "assert a, 'b'", "pass",
    "return a", "for i in range(3):\n    break", "while a:\n    continue",
    "if a:\n    pass\nelif b:\n    pass",
    "with nl.no_reorder():\n    pass", "f(a, b=1)", "f'{a} {b!r}'", "{'a': 1}", "a if b else c",
    "a[0:1, ..., ::2]", "not a and b or -c", "a < b <= c", "a in b", "a is None", "a is not None",
    "a = 0xFFFFFFFF", "a == 1.0e30",
)  # fmt: skip


def constructs(text: str, version: str) -> list[str]:
    rows = (refused(node, version) for node in ast.walk(ast.parse(text)))
    return [row.words for row in rows if row is not None]


@pytest.mark.parametrize("text", WRONG)
def test_a_refused_construct_is_refused_by_the_versions_that_parse_alone(text: str) -> None:
    assert all(WRONG[text] in constructs(text, version) for version in PARSING)
    assert constructs(text, BETA1) == [] == constructs(text, "0.7")


@pytest.mark.parametrize("text", RIGHT)
def test_what_front_ends_parse_is_not_refused(text: str) -> None:
    assert constructs(text, "0.6") == []


def test_identity_is_asked_of_none_alone_from_0_3_on() -> None:
    assert constructs("a is True", "0.3") == ["an `is` of other than None"]
    assert constructs("a is True", "0.2") == []


def test_integers_have_a_sign_until_0_2() -> None:
    assert constructs("a = 2147483648", "0.2") == ["an integer of more than 31 bits"]
    assert constructs("a = 2147483647", "0.2") == []


def test_defaults_behind_a_bare_star_are_lost_in_0_1() -> None:
    assert constructs("def f(a, *, b=1):\n    pass", "0.1") == ["a default after a bare *"]
    assert constructs("def f(a, *, b=1):\n    pass", "0.2") == []


def test_a_parameter_with_a_star_is_refused_and_one_with_two_is_not() -> None:
    assert constructs("def f(*a):\n    pass", "0.3") == ["a parameter *"]
    assert constructs("def f(a, b=1, **c):\n    pass", "0.3") == []


@pytest.mark.parametrize(
    ("called", "is_unknown"),
    [("enumerate", True), ("repr", True), ("range", False), ("math.exp", True), ("math.sqrt", False),
     ("nki.language.add", False), ("helper", False)],
)  # fmt: skip
def test_functions_of_python_that_the_front_end_lacks(called: str, *, is_unknown: bool) -> None:
    assert unknown_function(called, "0.6") is is_unknown
    assert not unknown_function(called, "0.7")
    assert not is_unknown or called not in KNOWN_BUILTINS
