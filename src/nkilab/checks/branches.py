"""Branches on the variable of a loop that is traced once: which of them become conditions of instructions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ..migrate.source import Function
from .scope import Scope

_AFFINE = (ast.Add, ast.Sub)


def is_condition(scope: Scope, test: ast.expr, above: frozenset[str] = frozenset()) -> bool:
    """Whether a test compares affine expressions of loop variables, or joins such comparisons by & and |.

    Args:
        scope: what is compiled.
        test: the test, or a part of it.
        above: names whose meaning is being asked for: `m = m & (i < 2)` is as good as what is joined to it.
    """
    if isinstance(test, ast.BinOp) and isinstance(test.op, ast.BitAnd | ast.BitOr):
        return is_condition(scope, test.left, above) and is_condition(scope, test.right, above)
    if not scope.symbol_in(test):
        return True
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        is_order = not isinstance(test.ops[0], ast.Is | ast.IsNot | ast.In | ast.NotIn)
        return is_order and all(_is_affine(scope, side) for side in (test.left, test.comparators[0]))
    if isinstance(test, ast.Name):
        meant, within = _meanings(scope, test), above | {test.id}
        return test.id in above or (bool(meant) and all(is_condition(scope, m, within) for m in meant))
    return False


def _meanings(scope: Scope, name: ast.Name) -> set[ast.expr]:
    """What a name was bound to that depends on loop variables; empty for a loop variable."""
    functions = (a for a in scope.source.around(name) if isinstance(a, Function))
    return next((scope.derived[f, name.id] for f in functions if (f, name.id) in scope.derived), set())


def _is_affine(scope: Scope, node: ast.expr) -> bool:
    if not scope.symbol_in(node) or isinstance(node, ast.Name):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub | ast.UAdd) and _is_affine(scope, node.operand)
    if not isinstance(node, ast.BinOp):
        return False
    if isinstance(node.op, ast.Mult) and scope.symbol_in(node.left) and scope.symbol_in(node.right):
        return False
    is_linear = isinstance(node.op, (*_AFFINE, ast.Mult))
    return is_linear and _is_affine(scope, node.left) and _is_affine(scope, node.right)


def escapes(scope: Scope, branch: ast.If, *, jumps: bool) -> Iterator[str]:
    """What of a branch reaches beyond its instructions: jumps, if asked for; names that are used after."""
    if jumps and any(isinstance(n, ast.Break | ast.Continue | ast.Return) for n in ast.walk(branch)):
        yield "it leaves the loop, for all iterations or none"
    inside = set(ast.walk(branch))
    # x += y on a tile is an instruction, and binds nothing
    added = {id(n.target) for n in inside if isinstance(n, ast.AugAssign)}
    names = [n for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    bound = sorted({n.id for n in names if id(n) not in added})
    around = next(f for f in scope.functions if branch in ast.walk(f))
    grown = {n.target for n in ast.walk(around) if isinstance(n, ast.AugAssign)}
    after = [n for n in _in_order(around.body) if n not in inside and n.lineno >= branch.lineno]
    for name in bound:
        first = next((n for n in after if n.id == name), None)
        if first is not None and (isinstance(first.ctx, ast.Load) or first in grown):
            yield f"{name} is bound in it and used after it, where it means the same in every iteration"


def _in_order(body: Sequence[ast.AST]) -> Iterator[ast.Name]:
    """The names of some statements in the order of their evaluation: a value before what it is bound to."""
    for node in body:
        if isinstance(node, ast.Name):
            yield node
        elif isinstance(node, ast.AugAssign):
            yield from (n for n in ast.walk(node) if isinstance(n, ast.Name))
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield from _in_order([node.value] if node.value is not None else [])
            yield from _in_order(node.targets if isinstance(node, ast.Assign) else [node.target])
        else:
            yield from _in_order(list(ast.iter_child_nodes(node)))
