"""Modules and functions stay short enough to read at once."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import nkilab

ROOT = Path(nkilab.__file__).parent
TESTS = Path(__file__).parent
MODULE_LINES, FUNCTION_LINES = 500, 40
SOURCES = sorted(ROOT.rglob("*.py"))
every_source = pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring and without functions that it only holds."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    inner = [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n is not function
    ]
    held = sum((n.end_lineno or 0) - n.lineno + 1 for n in inner if n in function.body)
    return (function.end_lineno or 0) - function.lineno + 1 - docstring - held


@pytest.mark.parametrize(
    "path", [*SOURCES, *sorted(TESTS.rglob("*.py"))], ids=lambda p: f"{p.parent.name}/{p.name}"
)
def test_no_module_is_longer_than_500_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MODULE_LINES


@every_source
def test_no_function_is_longer_than_40_lines(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert lines_of(node) <= FUNCTION_LINES, f"{node.name} has {lines_of(node)} lines"
