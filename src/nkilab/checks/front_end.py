"""What the front end of the NKI compiler does not parse, as builds and release notes tell it.

`language` has what the language guide says of the part of Python that kernels may use; what stands here was
learnt from builds that failed where the simulator ran.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..dialects.grammar import KNOWN_BUILTINS, KNOWN_MATH, LAST_PARSED, unknown_function
from ..dialects.history import BETA1, order
from .declare import Example, Refusal, rule
from .scope import Scope
from .text_rules import Place, found_by

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


_HELPER = "def scaled(t, by):\n    nisa.tensor_scalar(t, t, op0=nl.multiply, operand0=by)\n"
INNER_FUNCTION = rule(
    "python-inner-function", "language",
    Refusal("report", until=LAST_PARSED, build_error="NKI does not support inner function definitions"),
    title="functions of a kernel stand in the module",
    what="a kernel, or a function that it calls, defines a function; in NKI 0.6 one that is called, and no "
    "body that fori_loop or while_loop is given",
    why="the front end refuses the definition; that of 0.6 takes in bodies of loops alone",
    fix="move the function out of the kernel, and pass it what it uses",
    source=f"leanprover/KLR, gather.c; {_REPORT}, NKI 0.3; a probe of NKI 0.5 on trn2; logs of public "
    "kernels, NKI 0.6",
    wrong=Example(_COPY.format(f"{_HELPER}\nscaled(tile, 2.0)"), _X),
    right=Example(_COPY.format("scaled(tile, 2.0)"), _X, above=_HELPER),
)  # fmt: skip


@found_by("nki", INNER_FUNCTION)
def _inner_functions(scope: Scope) -> Iterator[Place]:
    called = {n.func.id for n in scope.nodes() if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    has_bodies = order(scope.version) >= order(LAST_PARSED)
    for node in scope.nodes():
        if not isinstance(node, ast.FunctionDef) or scope.source.function_of(node) not in scope.functions:
            continue
        if not has_bodies or node.name in called:
            yield node, f"{node.name} is defined in a function", ""


BUILTIN = rule(
    "python-builtin", "language",
    Refusal("log", until=LAST_PARSED, build_error="failed to resolve name 'builtins."),
    title="a kernel calls functions of Python that the front end has",
    what=f"a kernel, or a function that it calls, calls a function of Python's other than "
    f"{', '.join(sorted(KNOWN_BUILTINS))}, or a function of math other than {', '.join(sorted(KNOWN_MATH))}",
    why="the front end specializes the kernel by itself, and has these functions alone",
    fix="write it as a loop over range, or compute it on the host and pass it",
    source="leanprover/KLR, KLR/Trace/Python.lean; a report of pitfalls on trn2, NKI 0.6; kernels of "
    "nki-library call no other",
    wrong=_nki(_SCALED.format("sum((1.0, 2.0))")),
    right=_nki("by = 0.0\nfor part in (1.0, 2.0):\n    by += part\n" + _SCALED.format("by")),
)  # fmt: skip


@found_by("nki", BUILTIN)
def _unknown(scope: Scope) -> Iterator[Place]:
    functions = {function.name for function in scope.source.functions}
    for node in scope.nodes():
        if not isinstance(node, ast.Call) or isinstance(scope.source.parents[node], ast.Raise):
            continue
        plain = node.func.id if isinstance(node.func, ast.Name) else ""
        called = scope.source.dotted(node.func) or plain
        if plain not in functions and unknown_function(called, scope.version):
            yield node, f"{called} is called in a kernel, which its front end does not know", ""


NUMPY = rule(
    "python-numpy", "language",
    Refusal("report", until=LAST_PARSED),
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
    Refusal("report", until=LAST_PARSED, generations=(2,)),
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
