"""The source stays within its budgets, and lists of exceptions only get shorter."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from .budgets import FILE, ROOT, SOURCES, budgets, depth, figures, lowered, name_of, parameters, table_share

TESTS = Path(__file__).parent
LOWER = "run `python -m tests.budgets --lower` and commit tests/budgets.toml"
# How far below its ceiling a figure may lie before the ceiling has to follow: not every change moves it.
SLACK = {"lines": 300, "any": 10, "banned_names": 40}
# What a module must have of table rows to count as a table
TABLE_SHARE = 0.7
INSTEAD = {
    "nesting": "return early, or move the inner block to a function with a name",
    "parameters": "group what travels together in a dataclass, best in one that exists",
    "function_lines": "split the function where a sentence describes the part",
}


def function(text: str) -> ast.FunctionDef:
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    return function


def test_no_module_is_longer_than_its_limit() -> None:
    limit = budgets()["limits"]["module_lines"]
    for path in [*SOURCES, *sorted(TESTS.rglob("*.py"))]:
        count = len(path.read_text(encoding="utf-8").splitlines())
        assert count <= limit, f"{path} has {count} lines, {limit} are allowed: split it by subject"


@pytest.mark.parametrize("kind", INSTEAD)
def test_no_function_is_beyond_its_limit_unless_it_is_listed(kind: str) -> None:
    limit, listed = budgets()["limits"][kind], budgets()[kind]
    worse = [
        f"{key}: {kind} is {figure}, {listed.get(key, limit)} is allowed"
        for key, figure in figures()[kind].items()
        if figure > listed.get(key, limit)
    ]
    assert not worse, (
        f"{INSTEAD[kind]}; a function that was renamed keeps its line in {FILE.name}\n" + "\n".join(worse)
    )


@pytest.mark.parametrize("kind", INSTEAD)
def test_every_listed_function_is_still_beyond_its_limit(kind: str) -> None:
    better = [key for key, ceiling in budgets()[kind].items() if figures()[kind].get(key, 0) < ceiling]
    assert not better, f"{kind}: {better} are better than listed, or gone; {LOWER}"


@pytest.mark.parametrize("kind", ["code", "einsum", "kernels", "tables", "assets"])
def test_lines_stay_within_their_ceiling(kind: str) -> None:
    figure, ceiling = figures()["lines"][kind], budgets()["lines"][kind]
    assert figure <= ceiling, (
        f"{kind} has {figure} lines, {ceiling} are allowed: delete what the change makes dead, share what it "
        "repeats. A ceiling rises with a commit that says what came in; of code and einsum that is a debt"
    )


def test_any_stays_where_it_is_allowed() -> None:
    ceilings = budgets()["any"]
    worse = {home: count for home, count in figures()["any"].items() if count > ceilings.get(home, 0)}
    assert not worse, (
        f"`Any` in the code of {worse}, allowed {ceilings}: write the type, or `object` where none is known"
    )


@pytest.mark.parametrize("table", SLACK)
def test_ceilings_follow_figures_down(table: str) -> None:
    ceilings = {key: value for key, value in budgets()[table].items() if isinstance(value, int)}
    far = [key for key, value in ceilings.items() if value - figures()[table].get(key, 0) > SLACK[table]]
    gone = [key for key in ceilings if not figures()[table].get(key, 0)]
    assert not far + gone, f"{table}: {far + gone} need less than recorded; {LOWER}"


def test_a_module_that_counts_as_a_table_is_one() -> None:
    modules = budgets()["lines"]["table_modules"]
    assert set(modules) <= {name_of(path) for path in SOURCES}, (
        f"a table of {FILE.name} was renamed: {modules}"
    )
    code = {name: round(table_share(name), 2) for name in modules if table_share(name) < TABLE_SHARE}
    assert not code, f"these are code, not tables: {code}"


def test_places_with_rights_of_their_own_exist() -> None:
    for place in budgets()["lines"]["kernel_places"] + budgets()["any_allowed"]["places"]:
        assert (ROOT / place).exists(), f"{place} of {FILE.name} was renamed"


@pytest.mark.parametrize(
    ("body", "levels"),
    [
        ("return x", 0),
        ("for a in x:\n  if a:\n   pass", 2),
        ("if x:\n  pass\n elif y:\n  pass\n elif z:\n  for a in x:\n   pass", 2),
        ("try:\n  with x:\n   pass\n except E:\n  if x:\n   while y:\n    pass", 3),
        ("for a in x:\n  def g():\n   if a:\n    pass", 1),
        ("for a in x:\n  match a:\n   case 1:\n    if a:\n     pass", 3),
        ("for a in x:\n  pass\n else:\n  if x:\n   pass", 2),
    ],
)
def test_nesting_counts_compound_statements_below_the_def(body: str, levels: int) -> None:
    assert depth(function(f"def f():\n {body}\n").body) == levels


def test_parameters_are_what_a_caller_names() -> None:
    assert parameters(function("def f(self, a, /, b, *c, d=1, **e): pass")) == 3


def test_lowering_never_raises_a_ceiling_and_drops_what_nobody_needs() -> None:
    code = figures()["lines"]["code"]
    rest = "einsum = 1\n[nesting]\n{}[limits]\nnesting = 2\n"
    text = f"# why\n[lines]\ncode = {code + 999}\n" + rest.format('"gone.py:f" = 5\n')
    rounded = -(-code // 100) * 100
    assert lowered(text) == f"# why\n[lines]\ncode = {rounded}\n" + rest.format("")
