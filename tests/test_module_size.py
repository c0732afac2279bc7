"""Modules and functions stay short enough to read at once."""

from __future__ import annotations

import ast
from pathlib import Path

from .sources import SOURCES, name_of, nodes

TESTS = Path(__file__).parent
MODULE_LINES, FUNCTION_LINES = 500, 40


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


def test_no_module_is_longer_than_500_lines() -> None:
    for path in [*SOURCES, *sorted(TESTS.rglob("*.py"))]:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= MODULE_LINES, path


def test_no_function_is_longer_than_40_lines() -> None:
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = lines_of(node)
                assert count <= FUNCTION_LINES, f"{name_of(path)}: {node.name} has {count} lines"
