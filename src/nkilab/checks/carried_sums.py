"""Sums that iterations of Beta 1's loops carry, and what its compilers made of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..dialects.history import BETA1
from ..migrate.source import names_in
from .declare import Example, Refusal
from .front_end import bound_to, root_of
from .scope import Scope
from .text_rules import Place, text_rule

_SUM = """
tiles: out x.dtype[128,512] hbm < total
total = nl.zeros((nl.par_dim(128), 512), x.dtype, buffer=nl.sbuf)
for i in nl.{} nl.load(x[i])
"""
_X4 = {"x": "f32[4,128,512]"}
_PRODUCT = """
tiles: out f32[128,512] hbm < nl.copy(total)
total = nl.zeros((nl.par_dim(128), 512), nl.float32, buffer=nl.{})
for i in nl.affine_range(4):
    total[...] += nisa.nc_matmul(nl.load(x[i, :, 0:128]), nl.load(x[i]))
"""


@text_rule("neuronxcc", "matmul-into-sbuf",
    Refusal("report", "NCC_ITEN404", "NeuronInstComb:Can only handle single store", BETA1, BETA1),
    title="matmuls add up in psum",
    what="a matmul is added by += to a tile that nl.zeros, nl.full, nl.ones or nl.ndarray make in sbuf",
    why="TensorE adds to psum alone; AWS calls c += nl.matmul(a, b), with c in psum, which works",
    fix="make the tile with buffer=nl.psum, and copy it to sbuf after the loop",
    source="aws-neuron-sdk issues 1051, 1056",
    kernel=Example(_PRODUCT, _X4, "neuronxcc"), wrong="sbuf", right="psum",
)  # fmt: skip
def _products(scope: Scope) -> Iterator[Place]:
    for target, value in _updates(scope):
        if _is_matmul(scope, value):
            yield target, f"{scope.words(target)} is in sbuf, and a matmul is added to it", ""


@text_rule("neuronxcc", "affine-plus-assign",
    Refusal("disputed", "NCC_ITEN404", "NeuronInstComb:Can only handle single store", BETA1, BETA1),
    title="what += adds up in affine_range are matmuls in psum",
    what="an update such as += in an affine_range loop is of a tile in sbuf, at a place that stays",
    why="compilers before SDK 2.22 make two stores of it and stop; the manual lets such sums be carried, "
    "and kernels of nki-samples do so", fix="write total[...] = total + x in a nl.sequential_range loop",
    source="aws-neuron-sdk issues 1047, 1051, 1056; SDK 2.22 release notes; nki-samples",
    kernel=Example(_SUM, _X4, "neuronxcc"), wrong="affine_range(4):\n    total[...] +=",
    right="sequential_range(4):\n    total[...] = total +",
)  # fmt: skip
def _added(scope: Scope) -> Iterator[Place]:
    for target, value in _updates(scope):
        loop = next((a for a in scope.source.around(target) if a in scope.traced_loops), None)
        if not isinstance(loop, ast.For) or _is_matmul(scope, value):
            continue
        if loop in scope.loops_over("language.affine_range") and not _is_moved(scope, target, loop):
            yield target, f"{scope.words(target)} is in sbuf and updated in every iteration", ""


def _updates(scope: Scope) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets in sbuf and the terms of updates: t += x, and t[...] = nl.add(t, x)."""
    tiles = _tiles_in_sbuf(scope)
    pairs = [(node.target, node.value) for node in scope.of(ast.AugAssign)]
    for node in scope.of(ast.Assign):
        value = node.value
        if isinstance(value, ast.Call) and scope.name_of(value.func) == "language.add":
            roots = {root_of(argument) for argument in value.args}
            pairs += [
                (t, value) for t in node.targets if isinstance(t, ast.Subscript) and root_of(t) in roots
            ]
    return ((target, value) for target, value in pairs if root_of(target) in tiles)


def _is_matmul(scope: Scope, node: ast.expr) -> bool:
    called = scope.name_of(node.func) if isinstance(node, ast.Call) else ""
    return called in ("isa.nc_matmul", "language.matmul")


def _is_moved(scope: Scope, target: ast.expr, loop: ast.For) -> bool:
    """Whether the place of an update has the loop's variable in it, or the tile is made within the loop."""
    moving = names_in(loop.target)
    stored = names_in(loop, stored=True)
    names = names_in(target)
    derived = any(scope.symbol_in(part) for part in _chosen(target))
    return (
        bool(names & moving) or derived or (root_of(target) in stored and isinstance(target, ast.Subscript))
    )


def _chosen(target: ast.expr) -> Iterator[ast.expr]:
    while isinstance(target, ast.Subscript):
        yield target.slice
        target = target.value


def _tiles_in_sbuf(scope: Scope) -> set[str]:
    """Names that are bound to tiles which nl.zeros, nl.full or nl.ndarray make in sbuf."""
    makers = ("language.zeros", "language.full", "language.ndarray", "language.ones")
    buffers = {
        name: next((k.value for k in call.keywords if k.arg == "buffer"), None)
        for name, call in bound_to(scope, makers).items()
    }
    return {
        name
        for name, buffer in buffers.items()
        if buffer is not None and scope.name_of(buffer) == "language.sbuf"
    }
