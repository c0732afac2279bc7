"""Statements of a kernel's text: the loops around them, the names they read and write, how they move."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from inspect import signature

from ..migrate.source import Edit, Source, applied, parse

# Operands that an instruction writes, by the names of its parameters.
_WRITTEN = ("dst", "reduce_res", "dst_state")
_OPERATORS = {ast.Mult: "multiply", ast.Add: "add", ast.Sub: "subtract"}


class Refusal(Exception):
    """Why a change cannot be made in a text."""


@dataclass(frozen=True)
class Called:
    """A statement that calls an instruction or a function of `nl`, or that an operator says as much."""

    name: str  # below nki: "isa.activation"
    call: ast.expr  # the call, or the operation
    arguments: dict[str, ast.expr] = field(default_factory=dict)  # the expressions by the names of parameters


class Place:
    """A statement of a function, which a piece of advice is about."""

    def __init__(self, source: Source, line: int) -> None:
        covering = [n for n in source.nodes(ast.stmt) if n.lineno <= line <= (n.end_lineno or n.lineno)]
        if not covering or source.function_of(covering[-1]) is None:
            raise Refusal(f"line {line} is no statement of a function")
        self.source = source
        self.statement = min(covering, key=lambda n: (n.end_lineno or n.lineno) - n.lineno)

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """Of the function, in the order of lines."""
        function = self.source.function_of(self.statement)
        assert function is not None
        every = [n for n in ast.walk(function) if isinstance(n, ast.stmt) and n is not function]
        return sorted(every, key=lambda n: (n.lineno, n.col_offset))

    @property
    def loops(self) -> list[ast.For]:
        """Those around the statement, the innermost first."""
        around = (self.statement, *self.source.around(self.statement))
        return [n for n in around if isinstance(n, ast.For) and n in self.statements]

    def called(self, statement: ast.stmt) -> Called | None:
        """What a statement calls, if that is all it does and the name is NKI's."""
        call = getattr(statement, "value", None)
        if isinstance(call, ast.BinOp) and type(call.op) in _OPERATORS:
            name = f"language.{_OPERATORS[type(call.op)]}"
            return Called(name, call, {"x": call.left, "y": call.right})
        if not isinstance(call, ast.Call) or any(isinstance(a, ast.Starred) for a in call.args):
            return None
        resolved = self.source.resolve(call.func)
        if resolved is None:
            return None
        module, _, name = self.source.dotted(call.func).rpartition(".")
        named = {own.arg: own.value for own in call.keywords if own.arg}
        try:
            bound = signature(getattr(import_module(module), name)).bind_partial(*call.args, **named)
        except (AttributeError, ImportError, TypeError, ValueError):
            return None
        rest = bound.arguments.pop("unknown", {})
        return Called(resolved[1], call, bound.arguments | rest)

    def written(self, node: ast.stmt) -> set[str]:
        """Names that a statement binds, or whose tensors it writes."""
        names = set[str]()
        for own in (n for n in ast.walk(node) if isinstance(n, ast.stmt)):
            targets = getattr(own, "targets", [getattr(own, "target", None)])
            call = self.called(own)
            operands = [call.arguments.get(name) for name in _WRITTEN] if call else []
            names |= {root for target in (*targets, *operands) for root in _roots(target)}
        return names

    def taken(self, node: ast.stmt) -> set[str]:
        """Names whose values a statement takes: all that it reads, but for tiles that it writes whole."""
        call = self.called(node)
        if call is None or call.name == "isa.nc_matmul" or "dst" not in call.arguments:
            return read(node)
        rest = [own for key, own in call.arguments.items() if key != "dst"]
        return {name for own in rest for name in read(own)}

    def target(self, statement: ast.stmt) -> str:
        """The one name that a statement writes; "" if there are several, or none."""
        names = self.written(statement)
        return next(iter(names)) if len(names) == 1 else ""

    def allocation(self, name: str) -> ast.stmt | None:
        """The one statement that makes a tile of a name, without values."""
        makers = ("language.ndarray", "language.zeros")
        own = [s for s in self.statements if isinstance(s, ast.Assign) and name in self.written(s)
               and (call := self.called(s)) and call.name in makers]  # fmt: skip
        return own[0] if len(own) == 1 else None

    def readers(self, name: str) -> list[ast.Name]:
        """Where a name is read, without the places where its tensor is written."""
        targets: list[ast.expr] = []
        for own in self.statements:
            call = self.called(own)
            targets += getattr(own, "targets", [])
            targets += [call.arguments[key] for key in _WRITTEN if key in call.arguments] if call else []
        written = {id(n) for target in targets for n in ast.walk(target)}
        return [n for n in self.names(name) if id(n) not in written]

    def names(self, name: str) -> list[ast.Name]:
        """Every place where the function says a name."""
        function = self.source.function_of(self.statement)
        assert function is not None
        return [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that a node is part of."""
        own = (node, *self.source.around(node))
        return next(n for n in own if isinstance(n, ast.stmt))

    def first_line(self, statement: ast.stmt) -> int:
        """The number of a statement's first line, with the comments above it."""
        line = statement.lineno
        while line > 1 and self.source.line(line - 1).startswith("#"):
            line -= 1
        return line

    def indent(self, statement: ast.stmt) -> str:
        """The spaces before a statement."""
        return self.source.lines[statement.lineno - 1][: statement.col_offset].decode()

    def block(self, statements: Iterable[ast.stmt], indent: str) -> str:
        """The lines of statements, with comments, at another depth."""
        result = []
        for own in statements:
            before = self.indent(own)
            if before.strip() or self.source.line(own.end_lineno or 0)[-1:] == ";":
                raise Refusal(f"line {own.lineno} has several statements; write one a line")
            lines = [line.decode() for line in self.source.lines[self.first_line(own) - 1 : own.end_lineno]]
            result += [indent + line[len(before) :] if line.strip() else line for line in lines]
        return "".join(line if line.endswith("\n") else line + "\n" for line in result)

    def cut(self, statements: Iterable[ast.stmt]) -> list[Edit]:
        """What takes statements out, with the comments above them."""
        starts = self.source.starts
        return [
            Edit(starts[self.first_line(s) - 1], starts[s.end_lineno or s.lineno], "") for s in statements
        ]

    def erased(self, statements: Iterable[ast.stmt]) -> list[Edit]:
        """What takes statements out and leaves their comments, and loops of nothing else with them."""
        edits, gone = [], [*statements]
        for loop in reversed([s for s in self.statements if isinstance(s, ast.For)]):
            if all(own in gone for own in loop.body) and not loop.orelse:
                gone = [own for own in gone if own not in loop.body] + [loop]
        for own in gone:
            start, end = self.source.starts[own.lineno - 1], self.source.starts[own.end_lineno or own.lineno]
            after = self.source.whole[self.source.span(own)[1] : end].decode().strip()
            edits.append(Edit(start, end, f"{self.indent(own)}{after}\n" if after.startswith("#") else ""))
        return edits

    def inserted(self, text: str, before: ast.stmt) -> Edit:
        """What puts lines before a statement and its comments."""
        start = self.source.starts[self.first_line(before) - 1]
        return Edit(start, start, text)

    def replaced(self, nodes: Iterable[ast.expr], text: str) -> list[Edit]:
        """What puts other text in the place of expressions."""
        return [Edit(*self.source.span(node), text) for node in nodes]

    def with_argument(self, called: Called, text: str) -> list[Edit]:
        """What adds a keyword argument to a call."""
        assert isinstance(called.call, ast.Call)
        values = [*called.call.args, *(own.value for own in called.call.keywords)]
        end = max(self.source.span(own)[1] for own in values)
        return [Edit(end, end, f", {text}")]

    def text(self, edits: Iterable[Edit]) -> str:
        """The file with edits."""
        return applied(self.source.whole, edits)

    def text_of(self, node: ast.expr) -> str:
        """The text of an expression, in brackets where it needs them to become part of another one."""
        words = self.source.text_of(node)
        return words if isinstance(node, ast.Name | ast.Subscript | ast.Call | ast.Constant | ast.Attribute) \
            else f"({words})"  # fmt: skip

    def module(self, name: str) -> str:
        """What the file calls a module of NKI: nisa for "isa".

        Raises:
            Refusal: if it imports it under no name.
        """
        own = [called for called, full in self.source.bindings.items() if full.endswith(f"nki.{name}")]
        if not own:
            raise Refusal(f"the file imports no nki.{name} under a name")
        return own[0]


def at_line(source: Source, text: str, line: int) -> Place:
    """The same place in a changed text."""
    return Place(parse(source.path, text.encode()), line)


def read(node: ast.AST) -> set[str]:
    """Names that a node reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _roots(target: ast.AST | None) -> Iterator[str]:
    """The names that a target, or an operand that is written, begins with."""
    while isinstance(target, ast.Subscript | ast.Attribute | ast.Starred):
        target = target.value
    if isinstance(target, ast.Name):
        yield target.id
    for own in target.elts if isinstance(target, ast.Tuple | ast.List) else ():
        yield from _roots(own)
