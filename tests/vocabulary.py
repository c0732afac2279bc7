"""The glossary of CONTRIBUTING.md, and the names that modules bind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .sources import nodes

GLOSSARY = Path(__file__).parents[1] / "CONTRIBUTING.md"


@cache
def words(title: str) -> dict[str, str]:
    """The rows of one of the glossary's tables: each word of the first cell, with its sense."""
    _, _, section = GLOSSARY.read_text(encoding="utf-8").partition(f"\n### {title}\n")
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", section.partition("\n#")[0], re.MULTILINE)[1:]
    return {word.strip("`"): sense for words, sense in rows for word in words.split(", ")}


@cache
def banned() -> frozenset[str]:
    """The names that name nothing by themselves."""
    return frozenset(words("Names that say nothing by themselves"))


def bound_names(path: Path) -> Iterator[tuple[int, str]]:
    """Every name that a module binds, with its line: its own, and those of variables, parameters, attributes,
    functions and classes. What it imports and reads was named elsewhere.
    """
    yield 1, path.parent.name if path.stem == "__init__" else path.stem
    for node in nodes(path):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.arg(arg=name)
            ):
                yield node.lineno, name
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield node.lineno, name
            case ast.alias(asname=str(name), name=original) if name != original:
                yield 0, name


def banned_names(path: Path) -> list[str]:
    """The banned names that a module binds, in any case, also behind `_` or `test_`, as "path:line: name"."""
    return [
        f"{path}:{line}: {name}"
        for line, name in bound_names(path)
        if name.lower().removeprefix("test_").strip("_") in banned()
    ]
