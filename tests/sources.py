"""The modules of nkilab as text and as trees, read once, for tests that hold all of them to a rule."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import nkilab

ROOT = Path(nkilab.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    """A module's path below the package."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    """What a file says."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All of a file's tree."""
    return tuple(ast.walk(tree(path)))


def dotted(node: ast.AST) -> str:
    """A name with dots, as it is written; of anything else only what stands behind it."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""
