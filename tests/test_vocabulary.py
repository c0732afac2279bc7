"""One word, one sense: names say what a thing is, and modules of one name are of one kind."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from .budgets import budgets, figures
from .sources import ROOT, SOURCES, name_of
from .vocabulary import GLOSSARY, banned, banned_names, words

HERE = Path(__file__).parent
OTHERS = [
    path
    for folder in (HERE, *(HERE.parent / name for name in ("benchmarks", "docs", "examples")))
    for path in sorted(folder.rglob("*.py"))
]
SENSE = f"see the glossary of {GLOSSARY.name}"


def test_the_glossary_is_read() -> None:
    assert {"held", "found", "given", "made", "told", "turned"} <= banned()
    assert {"turn", "iteration", "point", "rank", "rendezvous", "residency"} <= words("Words").keys()


def test_no_folder_has_more_banned_names_than_are_recorded() -> None:
    ceilings = budgets()["banned_names"]
    worse = [home for home, count in figures()["banned_names"].items() if count > ceilings.get(home, 0)]
    lines = [
        line
        for path in SOURCES
        if name_of(path).split("/")[0] in worse
        for line in banned_names(path)
    ]  # fmt: skip
    assert not worse, f"{worse}: say what the thing is; {SENSE}\n" + "\n".join(lines)


def test_no_test_page_or_benchmark_has_a_banned_name() -> None:
    lines = [line for path in OTHERS for line in banned_names(path)]
    assert not lines, f"say what the thing is; {SENSE}\n" + "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        "held = 1", "_held = 1", "(held, rest) = 1, 2", "self.held = 1", "for held in (): pass", "HELD = 1",
        "def held(): pass", "def _held(): pass", "class Held: pass", "def f(held): pass",
        "def f(*held): pass", "def f(*, held=1): pass", "f = lambda held: 1", "x = [1 for held in ()]",
        "if (held := 1): pass",
        "with f() as held: pass", "import json as held", "from json import loads as held", "held: int",
        "def test_held(): pass", "match x:\n    case [held]: pass", "try: pass\nexcept OSError as held: pass",
    ],
)  # fmt: skip
def test_every_way_to_bind_a_banned_name_is_seen(text: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(text)
    assert len(banned_names(path)) == 1


@pytest.mark.parametrize(
    "text",
    ["held_tiles = 1", "is_held = 1", "from hypothesis import given", "x = y.held", "f(held=1)", "'held'"],
)
def test_what_a_name_says_more_or_was_named_elsewhere_is_no_fault(text: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(text)
    assert banned_names(path) == []


@pytest.mark.parametrize("name", ["held", "_made", "test_given"])
def test_a_module_of_a_banned_name_is_seen(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.py"
    path.write_text("")
    assert banned_names(path) == [f"{path}:1: {name}"]


def shared_names(paths: list[Path]) -> dict[str, list[str]]:
    """The names of modules that stand in several folders, with their paths."""
    places = defaultdict(list)
    for path in paths:
        places[path.stem].append(name_of(path))
    return {name: places for name, places in places.items() if len(places) > 1 and not name.startswith("__")}


def test_modules_of_one_name_have_one_sense_that_the_glossary_gives() -> None:
    senses, waiting = words("Modules of one name"), budgets()["einsum_module_names"]["names"]
    unknown = {
        name: places for name, places in shared_names(SOURCES).items() if name not in {*senses, *waiting}
    }
    assert not unknown, f"name one after what it has alone, or give the sense that they share; {SENSE}"


def test_every_sense_of_modules_of_one_name_is_needed() -> None:
    outside = [path for path in SOURCES if ROOT / "einsum" not in path.parents]
    assert set(words("Modules of one name")) == set(shared_names(outside))


def test_every_listed_name_is_shared_with_a_module_of_einsum() -> None:
    outside = shared_names([path for path in SOURCES if ROOT / "einsum" not in path.parents])
    listed = budgets()["einsum_module_names"]["names"]
    assert set(listed) == set(shared_names(SOURCES)) - set(outside)
