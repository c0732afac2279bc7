"""What a compiler of kernels reads of a file: the kernel, and functions of the file that it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ..dialects.kernel import Kernel
from ..migrate.source import Function, Source
from .finding import Site
from .sources import Sources

# loops whose body the compiler of Beta 1 traces once
TRACED = ("language.affine_range", "language.sequential_range")


@dataclass(frozen=True)
class Scope:
    """What is compiled.

    Args:
        source: the file.
        kernel: its `def`.
    """

    source: Source
    kernel: Function

    @cached_property
    def functions(self) -> list[Function]:
        """The kernel and the functions of the file that it calls, directly or not."""
        by_name: dict[str, Function] = {}
        for node in ast.walk(self.source.tree):
            if isinstance(node, Function):
                by_name.setdefault(node.name, node)
        found = [self.kernel]
        for function in found:
            for node in ast.walk(function):
                called = by_name.get(node.id) if isinstance(node, ast.Name) else None
                if called is not None and called not in found:
                    found.append(called)
        return found

    def nodes(self) -> Iterator[ast.AST]:
        """Every node of these functions, without decorators; nested functions once."""
        parts = (part for function in self.functions for part in (function.args, *function.body))
        return iter(dict.fromkeys(node for part in parts for node in ast.walk(part)))

    def site(self, node: ast.AST) -> Site:
        """The line of a node."""
        return Site(self.source.path, getattr(node, "lineno", self.kernel.lineno))

    def words(self, node: ast.expr) -> str:
        """The text of an expression on one line."""
        return self.source.words_of(node)

    def name_of(self, node: ast.expr) -> str:
        """The name of NKI that an expression stands for, below `nki`, or ""."""
        resolved = self.source.resolve(node)
        return resolved[1] if resolved is not None else ""

    @cached_property
    def traced_loops(self) -> list[ast.For]:
        """The loops whose body is traced once."""
        return [
            node
            for node in self.nodes()
            if isinstance(node, ast.For)
            and isinstance(node.iter, ast.Call)
            and self.name_of(node.iter.func) in TRACED
        ]

    @cached_property
    def symbols(self) -> dict[str, ast.For]:
        """Loop variables of these loops, and what is computed from them alone, by name."""
        found = {
            n.id: loop for loop in self.traced_loops for n in ast.walk(loop.target) if isinstance(n, ast.Name)
        }
        assigned = [
            (loop, node)
            for loop in self.traced_loops
            for node in ast.walk(loop)
            if isinstance(node, ast.Assign) and _is_arithmetic(node.value)
        ]
        for loop, node in assigned:
            if any(isinstance(n, ast.Name) and n.id in found for n in ast.walk(node.value)):
                found |= {t.id: loop for t in node.targets if isinstance(t, ast.Name)}
        return found

    def symbol_in(self, node: ast.expr) -> str:
        """A loop variable that an expression depends on, outside of subscripts and calls, or ""."""
        if isinstance(node, ast.Name):
            return node.id if node.id in self.symbols else ""
        if isinstance(node, ast.Subscript | ast.Call | ast.Attribute):
            return ""
        inner = (self.symbol_in(c) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr))
        return next((name for name in inner if name), "")


def _is_arithmetic(node: ast.expr) -> bool:
    """Whether an expression is made of names, numbers and operators alone."""
    kinds = (ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.operator, ast.unaryop, ast.expr_context)
    return all(isinstance(part, kinds) for part in ast.walk(node))


def scope_of(kernel: Kernel, sources: Sources) -> Scope | None:
    """The text of a kernel; None where it cannot be read."""
    code = getattr(kernel.function, "__code__", None)
    source = sources.file(code.co_filename).source if code is not None else None
    if source is None or code is None:
        return None
    for node in ast.walk(source.tree):
        if isinstance(node, Function) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first <= code.co_firstlineno <= node.lineno:
                return Scope(source, node)
    return None
