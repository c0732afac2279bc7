"""The kinds of Python's values in a kernel, as far as its text says them, and what is reached for sure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..dialects.grammar import KindOf
from ..migrate.source import Function
from .scope import Scope

_DISPLAYS = {
    ast.List: "list", ast.Tuple: "tuple", ast.Dict: "dict", ast.JoinedStr: "str", ast.Compare: "bool",
    ast.Set: "set",
}  # fmt: skip
_SAME = "same"
# of functions and methods by name
_RESULTS = {
    "list": "list", "tuple": "tuple", "dict": "dict", "str": "str", "int": "int", "float": "float",
    "len": "int", "keys": "list", "values": "list", "items": "list",
    "set": "set", "frozenset": "set",
}  # fmt: skip


def kinds(scope: Scope) -> KindOf:
    """What kind of value an expression of a kernel has, or "" where its text does not say."""

    def kind_of(node: ast.AST) -> str:
        match node:
            case ast.Constant(value=value):
                return type(value).__name__
            case ast.Attribute(attr="shape"):
                return "tuple"
            case ast.Subscript(value=ast.Attribute(attr="shape"), slice=place):
                return "" if isinstance(place, ast.Slice) else "int"
            case ast.Call(func=ast.Name(id=word)) | ast.Call(func=ast.Attribute(attr=word)):
                return _RESULTS.get(word, classes.get(word, ""))
            case ast.BinOp(left=left, right=right):
                pair = {kind_of(left), kind_of(right)} - {_SAME}
                return pair.pop() if len(pair) == 1 and not isinstance(node.op, ast.Div) else ""
            case ast.Name():
                return kind_of_name(scope.source.function_of(node), node.id)
        return _DISPLAYS.get(type(node), "")

    known: dict[tuple[Function | None, str], str] = {}
    classes = {n.name: "object" for n in scope.source.tree.body if isinstance(n, ast.ClassDef)}

    def kind_of_name(function: Function | None, name: str) -> str:
        if (function, name) not in known:
            # a name that is bound to what it was, as in x = x + 1
            known[function, name] = _SAME
            bound = set(_bound_kinds(scope, function, name, kind_of)) - {_SAME}
            if function is not None and not bound:
                bound = {kind_of_name(None, name)}
            known[function, name] = bound.pop() if len(bound) == 1 else ""
        return known[function, name]

    return kind_of


def _bound_kinds(scope: Scope, function: Function | None, name: str, kind_of: KindOf) -> Iterator[str]:
    """The kinds of what a function binds a name to; "" for a binding that does not say."""
    if function is None:
        constants = [a for a in scope.source.assignments(None) if isinstance(a, ast.Assign)]
        yield from (kind_of(a.value) for a in constants if name in [ast.unparse(t) for t in a.targets])
        return
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip([a.arg for a in positional][::-1], arguments.defaults[::-1], strict=False))
    if name in [a.arg for a in (*positional, *arguments.kwonlyargs)]:
        yield kind_of(defaults[name]) if name in defaults else ""
    stored = [n for n in scope.of(ast.Name) if n.id == name and not isinstance(n.ctx, ast.Load)]
    for node in (n for n in stored if scope.source.function_of(n) is function):
        match scope.source.parents[node]:
            case ast.Assign(targets=targets, value=value) if node in targets:
                yield kind_of(value)
            case ast.AnnAssign(value=ast.expr() as value) | ast.AugAssign(value=value):
                yield kind_of(value)
            case ast.For(iter=ast.Call(func=called)) if ast.unparse(called).endswith("range"):
                yield "" if ast.unparse(called).endswith("dynamic_range") else "int"
            case _:
                yield ""


def reached(scope: Scope) -> Iterator[ast.AST]:
    """The nodes that a kernel is sure to come to: no branch and no message of an assert is around them."""
    functions: list[Function] = [scope.kernel]
    calls = [(name, node) for name, node in scope.plain_calls() if not _is_branched(scope, node)]
    for function in functions:
        names = {name for name, node in calls if scope.source.function_of(node) is function}
        functions += [f for f in scope.functions if f.name in names and f not in functions]
    for node in scope.nodes():
        if scope.source.function_of(node) in functions and not _is_branched(scope, node):
            yield node


def _is_branched(scope: Scope, node: ast.AST) -> bool:
    """Whether it depends on a value whether a function comes to a node of its own."""
    inner = node
    for around in scope.source.around(node):
        match around:
            case (
                ast.If(test=first) | ast.IfExp(test=first) | ast.While(test=first) | ast.Assert(test=first)
                | ast.BoolOp(values=[first, *_])
            ) if inner is not first:  # fmt: skip
                return True
            case ast.FunctionDef():
                return False
        inner = around
    return False
