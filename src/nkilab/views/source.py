"""Source files of a program: their text, and the names that their lines give to tiles."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from msgspec import Struct

from ..errors import printable
from ..trace.program import Program

# A file that is longer than this is shown around the lines that the program uses.
_LONGEST = 20_000


class SourceFile(Struct, frozen=True, dict=True):
    """A file that rows of a program come from."""

    path: str  # as the program has it
    text: str  # of the file; "" if it is not there any more

    @property
    def name(self) -> str:
        """Its name without folders."""
        return printable(self.path.replace("\\", "/").rsplit("/", 1)[-1])

    @cached_property
    def lines(self) -> list[str]:
        """Its lines, without their ends."""
        return [printable(line) for line in self.text.splitlines()[:_LONGEST]]

    @cached_property
    def assigned(self) -> dict[int, str]:
        """Per line of a statement that gives something a name, or returns it, that name or the function's."""
        try:
            tree = ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError):
            return {}
        return dict(_assignments(tree))


def _assignments(tree: ast.AST) -> Iterator[tuple[int, str]]:
    functions = (f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef))
    returns = ((f.name, node) for f in functions for node in ast.walk(f) if isinstance(node, ast.Return))
    for name, returned in returns:
        # what a function makes and returns at once goes by its name
        yield from _spread(returned, name)
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        if targets and isinstance(targets[0], ast.Tuple):
            yield from _spread(node, ", ".join(map(ast.unparse, targets[0].elts)))
        elif targets:
            yield from _spread(node, ast.unparse(targets[0]))


def _spread(node: Any, name: str) -> Iterator[tuple[int, str]]:
    return ((line, name) for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))


def sources_of(program: Program) -> dict[str, SourceFile]:
    """The files of a program's lines by path, in order of their first use."""
    paths = dict.fromkeys(path for path, _ in program.lines)
    return {path: SourceFile(path, "".join(linecache.getlines(path))) for path in paths}


def tile_names(program: Program, sources: dict[str, SourceFile]) -> list[str]:
    """Per storage its name: the one it was given, else that of its source line, else that line."""
    known: dict[int, str] = {}
    names = []
    for storage in program.storages:
        if storage.name:
            names.append(printable(storage.name))
            continue
        name = known.get(storage.line)
        if name is None:
            path, line = program.lines[storage.line]
            assigned = sources[path].assigned.get(line)
            name = known[storage.line] = assigned or f"{sources[path].name}:{line}"
        names.append(name)
    return names
