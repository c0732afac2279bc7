"""What the front end of the NKI compiler does not parse, as builds and release notes tell it.

`language` has what the language guide says of the part of Python that kernels may use; what stands here was
learnt from builds that failed where the simulator ran.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..dialects.history import BETA1
from .declare import Example, Refusal, rule
from .scope import Scope
from .text_rules import Place, found_by

# The compilers that parse a kernel; from 0.7 on Python traces it.
_PARSED = "0.6"
_COPY = """
tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(tile, x)
{}
nisa.dma_copy(out, tile)
return out
"""
_SCALED = "nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0={})"
_X = {"x": "f32[128,512]"}
_REPORT = "trnrand, development notes of its NKI kernels"


def _nki(middle: str, above: str = "") -> Example:
    return Example(_COPY.format(middle.strip("\n")), _X, above=above)


RAISE = rule(
    "python-raise", "language",
    Refusal(
        "log", until=_PARSED,
        build_error="NKI does not support 'raise' statements; use 'if/else' control flow within kernels, or "
        "'assert' for fatal errors",
    ),
    title="a kernel raises nothing",
    what="a kernel, or a function that it calls, holds a raise, whether it is reached or not",
    why="the parser refuses the statement; the simulator runs it",
    fix="use assert, or check on the host before the kernel is called",
    source="device logs of public kernels, NKI 0.6",
    wrong=_nki(_SCALED.format("factor(x)"),
               "def factor(x):\n    if x.shape[0] > 128:\n        raise ValueError(x.shape)\n    return "
               "2.0\n"),
    right=_nki(_SCALED.format("factor(x)"),
               "def factor(x):\n    assert x.shape[0] <= 128\n    return 2.0\n"),
)  # fmt: skip


@found_by("nki", RAISE)
def _raises(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        if isinstance(node, ast.Raise):
            yield node, "raise stands in a kernel", ""


COMPREHENSION = rule(
    "python-comprehension", "language",
    Refusal("report", until=_PARSED, build_error="unsupported expression"),
    title="a kernel builds lists in loops",
    what="a kernel, or a function that it calls, holds a list comprehension",
    why="the parser has no such expression; none stands in the kernels of nki-library",
    fix="append to a list in a for loop, or write the elements out",
    source=f"{_REPORT}, NKI 0.3; a report of pitfalls on trn2, NKI 0.6",
    wrong=_nki("by = [float(i) for i in range(3)]\n" + _SCALED.format("by[2]")),
    right=_nki("by = []\nfor i in range(3):\n    by.append(float(i))\n" + _SCALED.format("by[2]")),
)  # fmt: skip


@found_by("nki", COMPREHENSION)
def _comprehensions(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        if isinstance(node, ast.ListComp):
            yield node, f"{scope.words(node)} is a list comprehension", ""


EXPRESSION = rule(
    "python-expression", "language",
    Refusal("derived", until=_PARSED, build_error="unsupported expression"),
    title="a kernel uses expressions that its parser is known to take",
    what="a kernel, or a function that it calls, holds a lambda, a generator, a dictionary comprehension or "
    "an assignment within an expression",
    why="list comprehensions are refused; these are as near to them as anything, and none stands in the "
    "kernels of nki-library",
    fix="write a function, a loop or a statement",
    source="concluded from `python-comprehension`",
    wrong=_nki("twice = lambda by: by * 2\n" + _SCALED.format("twice(1.0)")),
    right=_nki(_SCALED.format("twice(1.0)"), "def twice(by):\n    return by * 2\n"),
)  # fmt: skip
_UNSEEN: dict[type[ast.AST], str] = {
    ast.Lambda: "a lambda", ast.GeneratorExp: "a generator", ast.DictComp: "a dictionary comprehension",
    ast.NamedExpr: "an assignment within an expression",
}  # fmt: skip


@found_by("nki", EXPRESSION)
def _unseen(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        word = _UNSEEN.get(type(node), "")
        if word and isinstance(node, ast.expr):
            yield node, f"{scope.words(node)} is {word}", ""


UNPACKED = rule(
    "python-unpack", "language",
    Refusal("report", until=_PARSED),
    title="several values are assigned to names",
    what="a kernel, or a function that it calls, unpacks a tuple into subscripts or attributes",
    why="the parser takes names alone on the left of such an assignment; the kernels of nki-library unpack "
    "430 times, into names",
    fix="unpack into names, then assign each",
    source=f"{_REPORT}, NKI 0.3",
    wrong=_nki("pair = [1.0, 2.0]\npair[0], pair[1] = pair[1], pair[0]\n" + _SCALED.format("pair[0]")),
    right=_nki("pair = [1.0, 2.0]\nfirst, second = pair[1], pair[0]\npair[0] = first\n"
               + _SCALED.format("pair[0]")),
)  # fmt: skip


@found_by("nki", UNPACKED)
def _unpacked(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        targets = node.targets if isinstance(node, ast.Assign) else []
        parts = [part for t in targets if isinstance(t, ast.Tuple | ast.List) for part in t.elts]
        wrong = next((p for p in parts if isinstance(p, ast.Subscript | ast.Attribute)), None)
        if wrong is not None:
            yield node, f"a tuple is unpacked into {scope.words(wrong)}", ""


_HELPER = "def scaled(t, by):\n    nisa.tensor_scalar(t, t, op0=nl.multiply, operand0=by)\n"
INNER_FUNCTION = rule(
    "python-inner-function", "language",
    # fori_loop and while_loop, which came with 0.6, are given functions of the kernel's
    Refusal("report", until="0.5"),
    title="functions of a kernel stand in the module",
    what="a kernel, or a function that it calls, defines a function",
    why="the parser refuses the definition",
    fix="move the function out of the kernel, and pass it what it uses",
    source=f"{_REPORT}, NKI 0.3",
    wrong=Example(_COPY.format(f"{_HELPER}\nscaled(tile, 2.0)"), _X, options=("--nki", "0.3")),
    right=Example(_COPY.format("scaled(tile, 2.0)"), _X, options=("--nki", "0.3"), above=_HELPER),
)  # fmt: skip


@found_by("nki", INNER_FUNCTION)
def _inner_functions(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        if isinstance(node, ast.FunctionDef) and scope.source.function_of(node) in scope.functions:
            yield node, f"{node.name} is defined in a function", ""


NUMPY = rule(
    "python-numpy", "language",
    Refusal("report", until=_PARSED),
    title="a kernel calls no functions of NumPy",
    what="a kernel, or a function that it calls, calls a function of NumPy",
    why="the compiler does not run NumPy, and the simulator does; math and Python's own functions are known "
    "to it",
    fix="use the function of math, or compute the number on the host and pass it",
    source="a public agent's kernel with np.sqrt on trn2, NKI 0.6; kernels of nki-library call math alone",
    wrong=_nki(_SCALED.format("float(np.log2(x.shape[1]))"), "import numpy as np\n"),
    right=_nki(_SCALED.format("math.log2(x.shape[1])"), "import math\n"),
)  # fmt: skip
# what describes types, which published kernels give to instructions
_OF_TYPES = ("numpy.dtype", "numpy.finfo", "numpy.iinfo")
# takes arrays of the host's
_CONSTANT = "language.shared_constant"


@found_by("nki", NUMPY)
def _numpy(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        called = scope.source.dotted(node.func) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or not called.startswith("numpy.") or called in _OF_TYPES:
            continue
        calls = [a for a in scope.source.around(node) if isinstance(a, ast.Call)]
        if not any(scope.name_of(call.func) == _CONSTANT for call in calls):
            yield node, f"{scope.words(node.func)} is called in a kernel", ""


_NESTED = """
tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(tile, x)
for i in nl.{}(2):
    for j in nl.dynamic_range(3):
        nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=2.0)
nisa.dma_copy(out, tile)
return out
"""
_DYNAMIC = "language.dynamic_range"
NESTED_LOOPS = rule(
    "nested-dynamic-range", "language",
    Refusal("documented", build_error="Could not find register", since="0.4", until="0.5"),
    title="loops on the device stand beside each other",
    what="a dynamic_range loop stands in another one, and carries a value from iteration to iteration",
    why="the compiler loses the register of the outer loop",
    fix="use nl.affine_range or nl.static_range for the outer loop",
    source="NKI 0.4 release notes, known issues, which those of 0.5 carry forward; repaired in 0.6, "
    "aws-neuron-sdk issue 1346",
    wrong=Example(_NESTED.format("dynamic_range"), _X, options=("--nki", "0.4")),
    right=Example(_NESTED.format("static_range"), _X, options=("--nki", "0.4")),
)  # fmt: skip


@found_by("nki", NESTED_LOOPS)
def _nested_loops(scope: Scope) -> Iterator[Place]:
    loops = [n for n in scope.nodes() if isinstance(n, ast.For) and _is_dynamic(scope, n)]
    for loop in loops:
        outer = next((a for a in scope.source.around(loop) if a in loops), None)
        carried = _carried(loop, outer) if isinstance(outer, ast.For) else ""
        if carried:
            yield loop, f"a dynamic_range loop stands in another one and carries {carried}", ""


def _is_dynamic(scope: Scope, loop: ast.For) -> bool:
    return isinstance(loop.iter, ast.Call) and scope.name_of(loop.iter.func) == _DYNAMIC


def _carried(loop: ast.For, outer: ast.For) -> str:
    """A name from before the outer loop that a call in the inner one both writes and reads, or ""."""
    own = {n.id for n in ast.walk(outer) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for call in (n for n in ast.walk(loop) if isinstance(n, ast.Call)):
        written = next(
            (k.value for k in call.keywords if k.arg == "dst"), call.args[0] if call.args else None
        )
        rest = [a for a in (*call.args, *(k.value for k in call.keywords)) if a is not written]
        root = _root(written)
        if root and root not in own and root in map(_root, rest):
            return root
    return ""


def _root(node: ast.expr | None) -> str:
    """The name that a subscript is of."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


MATMUL = rule(
    "nl-matmul-transposed", "language",
    Refusal("documented", since="0.3"),
    title="nl.matmul is given its left side transposed",
    what="nl.matmul is called without transpose_x=True",
    why="the call is not lowered for the device; it works in simulation",
    fix="load the left side transposed, and pass transpose_x=True",
    source="NKI 0.3 and 0.4 release notes, known issues",
    wrong=Example("out = nl.ndarray((128, 128), nl.float32, buffer=nl.shared_hbm)\n"
                  "nl.store(out, nl.copy(nl.matmul(nl.load(a), nl.load(b))))\nreturn out",
                  {"a": "f32[128,128]", "b": "f32[128,128]"}),
    right=Example("out = nl.ndarray((128, 128), nl.float32, buffer=nl.shared_hbm)\n"
                  "nl.store(out, nl.copy(nl.matmul(nl.load(a), nl.load(b), transpose_x=True)))\nreturn out",
                  {"a": "f32[128,128]", "b": "f32[128,128]"}),
)  # fmt: skip


@found_by("nki", MATMUL)
def _matmuls(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        if not isinstance(node, ast.Call) or scope.name_of(node.func) != "language.matmul":
            continue
        values = [k.value for k in node.keywords if k.arg == "transpose_x"] + node.args[2:3]
        if not values or (isinstance(values[0], ast.Constant) and not values[0].value):
            yield node, "nl.matmul has no transpose_x=True", ""


_SCRATCH = """
scratch = nl.ndarray((256, 8), x.dtype, buffer=nl.shared_hbm)
out = nl.ndarray((8, 128), x.dtype, buffer=nl.shared_hbm)
for i in range(2):
    nl.store(scratch[i * 128 : i * 128 + 128], nl.load(x[i * 128 : i * 128 + 128]))
nl.store(out, nl.load_transpose2d({}[0:128]))
return out
"""
_TRN1 = ("--nki", "0.3", "--target", "trn1")
LOCAL_TRANSPOSE = rule(
    "load-transpose-local", "language",
    Refusal("report", until=_PARSED, generations=(2,)),
    title="on trn1 nl.load_transpose2d reads arguments of the kernel",
    what="nl.load_transpose2d reads a tensor in hbm that the kernel itself makes, on trn1",
    why="the build fails, with no message that names the reason; the simulator transposes it",
    fix="keep the values in sbuf and transpose them with nisa.nc_transpose",
    source="trnfft, notes of its kernels, NKI 0.3 on trn1",
    wrong=Example(_SCRATCH.format("scratch"), {"x": "f32[256,8]"}, options=_TRN1),
    right=Example(_SCRATCH.format("x"), {"x": "f32[256,8]"}, options=_TRN1),
)  # fmt: skip


@found_by("nki", LOCAL_TRANSPOSE)
def _local_transposes(scope: Scope) -> Iterator[Place]:
    local = _bound_to(scope, ("language.ndarray", "language.zeros", "language.full"))
    for node in scope.nodes():
        if not isinstance(node, ast.Call) or scope.name_of(node.func) != "language.load_transpose2d":
            continue
        src = next((k.value for k in node.keywords if k.arg == "src"), node.args[0] if node.args else None)
        if _root(src) in local:
            yield node, f"{_root(src)} is made by the kernel", ""


def _bound_to(scope: Scope, makers: tuple[str, ...]) -> dict[str, ast.Call]:
    """Names that are bound to what some functions of NKI make, each with the call."""
    assignments = (n for n in scope.nodes() if isinstance(n, ast.Assign))
    pairs = (pair for n in assignments for target in n.targets for pair in _pairs(target, n.value))
    return {name: call for name, call in pairs if scope.name_of(call.func) in makers}


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.Call]]:
    """Names with the calls that an assignment binds them to, of tuples one by one."""
    match target, value:
        case ast.Name(id=name), ast.Call():
            yield name, value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values):
            yield from (pair for both in zip(targets, values, strict=False) for pair in _pairs(*both))


OFFSET = rule(
    "scalar-offset-slice", "language",
    Refusal("report", "NCC_IBIR030", until="0.2"),
    title="a run-time offset says how large it may be",
    what="scalar_offset= is a slice of a tile",
    why="the compiler takes the largest index from the access pattern of the offset; kernels of nki-library "
    "pass registers, whole tiles and access patterns",
    fix="wrap it: offset.ap(pattern=[[1, 1], [1, 1]], offset=0)",
    source="nki-moe-megakernel, common pitfalls",
    wrong=None,
    right=None,
)  # fmt: skip


@found_by("nki", OFFSET)
def _offsets(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        if (
            isinstance(node, ast.keyword)
            and node.arg == "scalar_offset"
            and isinstance(node.value, ast.Subscript)
        ):
            yield node.value, f"{scope.words(node.value)} is a slice that is given as scalar_offset", ""


_SUM = """
out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
total = nl.zeros((nl.par_dim(128), 512), x.dtype, buffer=nl.sbuf)
for i in nl.{kind}(4):
    {update}
nl.store(out, total)
return out
"""
_X4 = {"x": "f32[4,128,512]"}
ADDED = rule(
    "affine-plus-assign", "language",
    Refusal("disputed", "NCC_ITEN404", "NeuronInstComb:Can only handle single store", BETA1, BETA1),
    title="what += adds up in affine_range are matmuls in psum",
    what="an update such as += in an affine_range loop is of a tile in sbuf, at a place that the loop does "
    "not move",
    why="compilers before SDK 2.22 make two stores of it and stop; the manual lets such sums be carried, "
    "and kernels of nki-samples do so",
    fix="write total[...] = total + x in a nl.sequential_range loop",
    source="aws-neuron-sdk issues 1047, 1051, 1056; SDK 2.22 release notes; nki-samples",
    wrong=Example(_SUM.format(kind="affine_range", update="total[...] += nl.load(x[i])"), _X4, "neuronxcc"),
    right=Example(_SUM.format(kind="sequential_range", update="total[...] = total + nl.load(x[i])"), _X4,
                  "neuronxcc"),
)  # fmt: skip
_PRODUCT = """
out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
total = nl.zeros((nl.par_dim(128), 512), nl.float32, buffer=nl.{memory})
for i in nl.affine_range(4):
    total[...] += nisa.nc_matmul(nl.load(x[i, :, 0:128]), nl.load(x[i]))
nl.store(out, nl.copy(total))
return out
"""
PRODUCT = rule(
    "matmul-into-sbuf", "language",
    Refusal("report", "NCC_ITEN404", "NeuronInstComb:Can only handle single store", BETA1, BETA1),
    title="matmuls add up in psum",
    what="a matmul is added by += to a tile that nl.zeros, nl.full, nl.ones or nl.ndarray make in sbuf",
    why="TensorE adds to psum alone; AWS calls c += nl.matmul(a, b), with c in psum, the one use of += that "
    "works",
    fix="make the tile with buffer=nl.psum, and copy it to sbuf behind the loop",
    source="aws-neuron-sdk issues 1051, 1056",
    wrong=Example(_PRODUCT.format(memory="sbuf"), _X4, "neuronxcc"),
    right=Example(_PRODUCT.format(memory="psum"), _X4, "neuronxcc"),
)  # fmt: skip


@found_by("neuronxcc", PRODUCT)
def _products(scope: Scope) -> Iterator[Place]:
    for node in _updates(scope):
        if _is_matmul(scope, node.value):
            yield node, f"{scope.words(node.target)} is in sbuf, and a matmul is added to it", ""


@found_by("neuronxcc", ADDED)
def _added(scope: Scope) -> Iterator[Place]:
    for node in _updates(scope):
        loop = next((a for a in scope.source.around(node) if a in scope.traced_loops), None)
        if not isinstance(loop, ast.For) or _is_matmul(scope, node.value):
            continue
        if _is_affine(scope, loop) and not _is_moved(scope, node.target, loop):
            yield node, f"{scope.words(node.target)} is in sbuf and updated in every iteration", ""


def _updates(scope: Scope) -> Iterator[ast.AugAssign]:
    """Updates such as += of tiles in sbuf."""
    tiles = _tiles_in_sbuf(scope)
    updates = (n for n in scope.nodes() if isinstance(n, ast.AugAssign))
    return (node for node in updates if _root(node.target) in tiles)


def _is_matmul(scope: Scope, node: ast.expr) -> bool:
    called = scope.name_of(node.func) if isinstance(node, ast.Call) else ""
    return called in ("isa.nc_matmul", "language.matmul")


def _is_affine(scope: Scope, loop: ast.For) -> bool:
    return isinstance(loop.iter, ast.Call) and scope.name_of(loop.iter.func) == "language.affine_range"


def _is_moved(scope: Scope, target: ast.expr, loop: ast.For) -> bool:
    """Whether the place of an update has the loop's variable in it, or the tile is made within the loop."""
    moving = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    stored = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    names = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    derived = any(scope.symbol_in(part) for part in _chosen(target))
    return bool(names & moving) or derived or (_root(target) in stored and isinstance(target, ast.Subscript))


def _chosen(target: ast.expr) -> Iterator[ast.expr]:
    while isinstance(target, ast.Subscript):
        yield target.slice
        target = target.value


def _tiles_in_sbuf(scope: Scope) -> set[str]:
    """Names that are bound to tiles which nl.zeros, nl.full or nl.ndarray make in sbuf."""
    makers = ("language.zeros", "language.full", "language.ndarray", "language.ones")
    buffers = {
        name: next((k.value for k in call.keywords if k.arg == "buffer"), None)
        for name, call in _bound_to(scope, makers).items()
    }
    return {
        name
        for name, buffer in buffers.items()
        if buffer is not None and scope.name_of(buffer) == "language.sbuf"
    }
