"""What a compiler of kernels reads of a file: the kernel, and functions of the file that it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TypeVar

from msgspec import Struct

from ..dialects.history import BETA1, NEWEST
from ..dialects.kernel import Kernel
from ..migrate.source import Function, Source, compiled, names_in
from .finding import Site
from .sources import Sources

Node = TypeVar("Node", bound=ast.AST)
# loops whose body the compiler of Beta 1 traces once
TRACED = ("language.affine_range", "language.sequential_range")


class Scope(Struct, frozen=True, dict=True):
    """What is compiled; the bodies of the loops `traced` are taken for traced once."""

    source: Source
    kernel: Function
    version: str = NEWEST
    traced: tuple[str, ...] = TRACED

    @cached_property
    def functions(self) -> list[Function]:
        """The kernel and the functions of the file that it calls, directly or not."""
        return self.source.reached_from([self.kernel])

    def nodes(self) -> Iterator[ast.AST]:
        """Every node of these functions, without decorators; nested functions once."""
        return iter(self._nodes)

    @cached_property
    def _nodes(self) -> tuple[ast.AST, ...]:
        return tuple(dict.fromkeys(node for function in self.functions for node in compiled(function)))

    def of(self, *kinds: type[Node]) -> Iterator[Node]:
        """Those of some kinds."""
        return (node for node in self._nodes if isinstance(node, kinds))

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Calls of functions of NKI."""
        return (node for node in self.of(ast.Call) if self.name_of(node.func) in names)

    def plain_calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Calls of functions by a name without a module, with the name."""
        return ((node.func.id, node) for node in self.of(ast.Call) if isinstance(node.func, ast.Name))

    def passed(self, name: str) -> Iterator[ast.expr]:
        """What is passed as an argument by this name."""
        return (keyword.value for keyword in self.of(ast.keyword) if keyword.arg == name)

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
        return self.loops_over(*self.traced)

    def loops_over(self, *names: str) -> list[ast.For]:
        """The loops over a call of one of the names."""
        return [
            n for n in self.of(ast.For) if isinstance(n.iter, ast.Call) and self.name_of(n.iter.func) in names
        ]

    def is_symbol(self, name: ast.Name) -> bool:
        """Whether a name stands for a variable of such a loop, or for what is computed from one."""
        for around in self.source.around(name):
            if isinstance(around, ast.For) and name.id in names_in(around.target):
                return around in self.traced_loops
            if not isinstance(around, Function):
                continue
            if (around, name.id) in self.derived:
                return True
            if name.id in parameters(around):
                return False
        return False

    @cached_property
    def derived(self) -> dict[tuple[Function, str], set[ast.expr]]:
        """What names of functions are bound to that is made of loop variables and numbers alone.

        Followed through assignments and arguments of calls until nothing is added.
        """
        # what is_symbol reads while it grows
        derived = self.__dict__["derived"] = dict[tuple[Function, str], set[ast.expr]]()
        bound = list(self._bound()) if self.traced_loops else []
        size = -1
        while size != len(derived):
            size = len(derived)
            for name, value in (each for each in bound if self.symbol_in(each[1])):
                derived.setdefault(name, set()).add(value)
        return derived

    def _bound(self) -> Iterator[tuple[tuple[Function, str], ast.expr]]:
        """Names of functions with what they are bound to: assigned arithmetic, and arguments of calls."""
        assigned = [n for n in self.of(ast.Assign) if _is_arithmetic(n.value)]
        for assignment in assigned:
            function = self.source.function_of(assignment)
            names = [target.id for target in assignment.targets if isinstance(target, ast.Name)]
            if function is not None:
                yield from (((function, name), assignment.value) for name in names)
        by_name = {function.name: function for function in self.functions}
        for word, node in self.plain_calls():
            if word in by_name:
                called = by_name[word]
                yield from (((called, name), value) for name, value in _arguments(called, node))

    def symbol_in(self, node: ast.expr) -> str:
        """A loop variable that an expression depends on, outside of subscripts and calls, or ""."""
        if isinstance(node, ast.Name):
            return node.id if self.is_symbol(node) else ""
        if isinstance(node, ast.Subscript | ast.Call | ast.Attribute):
            return ""
        inner = (self.symbol_in(c) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr))
        return next((name for name in inner if name), "")


def parameters(function: Function) -> list[str]:
    """The names of a function's parameters."""
    arguments = function.args
    several = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *several)]


def _arguments(function: Function, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Parameters of a function with what a call gives for them."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if not any(isinstance(a, ast.Starred) for a in call.args):
        yield from zip(names, call.args, strict=False)
    yield from ((k.arg, k.value) for k in call.keywords if k.arg)


def _is_arithmetic(node: ast.expr) -> bool:
    """Whether an expression is made of names, numbers, operators and comparisons alone."""
    kinds = (
        ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Name, ast.Constant, ast.operator, ast.unaryop,
        ast.boolop, ast.cmpop, ast.expr_context,
    )  # fmt: skip
    return all(isinstance(part, kinds) for part in ast.walk(node))


def version_compiled(kernel: Kernel) -> str:
    """The version of NKI whose compiler takes a kernel."""
    return BETA1 if kernel.spelling == "neuronxcc" else kernel.version or NEWEST


def scope_of(kernel: Kernel, sources: Sources) -> Scope | None:
    """The text of a kernel; None where it cannot be read."""
    code = getattr(kernel.function, "__code__", None)
    source = sources.file(code.co_filename).source if code is not None else None
    if source is None or code is None:
        return None
    # a script may launch its kernels thousands of times
    version = version_compiled(kernel)
    key = (Scope, code.co_name, code.co_firstlineno, version)
    if key not in source.kept:
        source.kept[key] = _scope(source, code.co_name, code.co_firstlineno, version)
    return source.kept[key]


def _scope(source: Source, name: str, line: int, version: str) -> Scope | None:
    """The function of a name that begins on a line, decorators and all."""
    for function in source.functions:
        first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        if function.name == name and first <= line <= function.lineno:
            return Scope(source, function, version)
    return None
