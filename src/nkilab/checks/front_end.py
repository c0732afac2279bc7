"""What the front end of the NKI compiler does not parse, as builds and release notes tell it.

`language` has what the language guide says of the part of Python that kernels may use; what stands here was
learnt from builds that failed where the simulator ran.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from symtable import Function as Block
from symtable import SymbolTable, symtable

from msgspec.structs import replace

from ..dialects.grammar import KNOWN_BUILTINS, KNOWN_MATH, LAST_PARSED, unknown_function
from ..dialects.history import order
from ..migrate.source import Function
from .declare import COPIED, SCALED, Example, Refusal
from .scope import Scope
from .text_rules import Place, text_rule

_REPORT = "trnrand, development notes of its NKI kernels"
_OLD = ("--nki", "0.3")
_HELPER = "def scaled(t, by):\n    nisa.tensor_scalar(t, t, op0=nl.multiply, operand0=by)\n"


@text_rule("nki", "python-inner-function",
    Refusal("report", until=LAST_PARSED, build_error="NKI does not support inner function definitions"),
    title="functions of a kernel stand in the module",
    what="a kernel, or a function that it calls, defines a function; in NKI 0.6 one that is called, and no "
    "body that fori_loop or while_loop is given, or calls a function of the module by a name of its own",
    why="the front end refuses the definition; that of 0.6 takes in bodies of loops alone",
    fix="move the function out of the kernel, and pass it what it uses",
    source=f"leanprover/KLR, gather.c; {_REPORT}, NKI 0.3; a probe of NKI 0.5 on trn2; logs of public "
    "kernels and tests of an indexer, NKI 0.6",
    wrong=f"{_HELPER}\nscaled(tile, 2.0)", right=COPIED.around("scaled(tile, 2.0)", _HELPER),
)  # fmt: skip
def _inner_functions(scope: Scope) -> Iterator[Place]:
    called = {name for name, _ in scope.plain_calls()}
    has_bodies = order(scope.version) >= order(LAST_PARSED)
    for node in scope.of(ast.FunctionDef):
        is_inner = scope.source.function_of(node) in scope.functions
        if is_inner and (not has_bodies or node.name in called):
            yield node, f"{node.name} is defined in a function", ""
    functions = {f.name for f in scope.source.functions}
    for alias in (n for n in scope.of(ast.Assign) if has_bodies):
        match alias:
            case ast.Assign([ast.Name(other)], ast.Name(name)) if name in functions and other in called:
                yield alias, f"{other} is another name of {name}, and is called", ""


@text_rule("nki", "python-builtin",
    Refusal("log", until=LAST_PARSED, build_error="failed to resolve name 'builtins."),
    title="a kernel calls functions of Python that the front end has",
    what=f"a kernel, or a function that it calls, calls a function of Python's other than "
    f"{', '.join(sorted(KNOWN_BUILTINS))}, or a function of math other than {', '.join(sorted(KNOWN_MATH))}",
    why="the front end specializes the kernel by itself, and has these functions alone",
    fix="write it as a loop over range, or compute it on the host and pass it",
    source="leanprover/KLR, KLR/Trace/Python.lean; a report on trn2, NKI 0.6; nki-library calls no other",
    wrong=SCALED.format("sum((1.0, 2.0))"),
    right="by = 0.0\nfor part in (1.0, 2.0):\n    by += part\n" + SCALED.format("by"),
)  # fmt: skip
def _unknown(scope: Scope) -> Iterator[Place]:
    functions = {function.name for function in scope.source.functions}
    for node in scope.of(ast.Call):
        if isinstance(scope.source.parents[node], ast.Raise):
            continue
        plain = node.func.id if isinstance(node.func, ast.Name) else ""
        called = scope.source.dotted(node.func) or plain
        if plain not in functions and unknown_function(called, scope.version):
            yield node, f"{called} is called in a kernel, which its front end does not know", ""
        asked = node.args[1:] if called == "isinstance" else ()
        for kind in (a for a in asked if scope.source.dotted(a).startswith("enum.")):
            yield kind, f"{scope.words(kind)} is a class that its front end does not know", ""


# what describes types, which published kernels give to instructions
_OF_TYPES = ("numpy.dtype", "numpy.finfo", "numpy.iinfo")
# takes arrays of the host's
_CONSTANT = "language.shared_constant"


@text_rule("nki", "python-numpy", Refusal("report", until=LAST_PARSED),
    title="a kernel calls no functions of NumPy",
    what="a kernel, or a function that it calls, calls a function of NumPy",
    why="the compiler does not run NumPy, the simulator does; it knows math and Python's own functions",
    fix="use the function of math, or compute the number on the host and pass it",
    source="a public agent's kernel with np.sqrt on trn2, NKI 0.6; kernels of nki-library call math alone",
    wrong=COPIED.around(SCALED.format("float(np.log2(x.shape[1]))"), "import numpy as np"),
    right=COPIED.around(SCALED.format("math.log2(x.shape[1])"), "import math"),
)  # fmt: skip
def _numpy(scope: Scope) -> Iterator[Place]:
    for node in scope.of(ast.Call):
        called = scope.source.dotted(node.func)
        if not called.startswith("numpy.") or called in _OF_TYPES:
            continue
        calls = [a for a in scope.source.around(node) if isinstance(a, ast.Call)]
        if not any(scope.name_of(call.func) == _CONSTANT for call in calls):
            yield node, f"{scope.words(node.func)} is called in a kernel", ""


_OF_SBUF = ("total_available_sbuf_size", "sbuf_fmax_bytes", "sbuf_fmax", "sbuf_size_bytes")


@text_rule("nki", "tile-size-on-host",
    Refusal("report", "", "No backend set. Call `_activate_backend()`", LAST_PARSED, LAST_PARSED),
    title="sizes of sbuf are asked for in a kernel",
    what="the module of a kernel asks nl.tile_size for a size of sbuf outside of functions",
    why="the size is that of a chip, which NKI 0.6 knows while it compiles a kernel alone",
    fix="ask within the kernel, or write the number", source="vendor operators in NKI, notes of NKI 0.6",
    wrong=COPIED.around(SCALED.format("ROOM"), "ROOM = nl.tile_size.total_available_sbuf_size"),
    right=SCALED.format("nl.tile_size.total_available_sbuf_size"),
)  # fmt: skip
def _on_host(scope: Scope) -> Iterator[Place]:
    lines = (line for line in scope.source.tree.body if not isinstance(line, Function | ast.ClassDef))
    for node in (n for line in lines for n in ast.walk(line) if isinstance(n, ast.Attribute)):
        if node.attr in _OF_SBUF and scope.name_of(node).startswith("language.tile_size"):
            yield node, f"{scope.words(node)} is read outside of a kernel", ""


@text_rule("nki", "python-closure",
    Refusal("report", until=LAST_PARSED, build_error="failed to resolve name"),
    title="a kernel reads names of its module",
    what="a kernel that is defined in a function reads a variable of that function",
    why="the front end looks names up in the module of the kernel, and finds no closures",
    fix="pass the value as an argument, and import in the module",
    source="a probe of NKI 0.5 on trn2; notes of kernels on trn1, NKI 0.6; leanprover/KLR, gather.c",
    wrong=replace(COPIED.around(SCALED.format("scale")), within="made(scale=2.0)"),
    right=COPIED.around(SCALED.format("scale"), "scale = 2.0"),
)  # fmt: skip
def _closures(scope: Scope) -> Iterator[Place]:
    names = _free(scope) - {function.name for function in scope.functions}
    for node in scope.of(ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id in names:
            yield node, f"{node.id} is a variable of the function around the kernel", ""


def _free(scope: Scope) -> set[str]:
    """Names that a kernel and functions outside of it take from a function around them."""
    around = set(scope.source.around(scope.kernel))
    lines = {(f.name, f.lineno) for f in scope.functions if scope.source.function_of(f) in around}
    tables: list[SymbolTable] = [symtable(scope.source.text, scope.source.path, "exec")]
    for table in tables:
        tables += table.get_children()
    functions = (t for t in tables if isinstance(t, Block) and (t.get_name(), t.get_lineno()) in lines)
    return {name for function in functions for name in function.get_frees()}


@text_rule("nki", "legacy-namespace", Refusal("documented", since="0.4", until=LAST_PARSED),
    title="kernels of `nki` use its names alone", what="a kernel of `nki` uses a name of neuronxcc.nki",
    why="NKI 0.4 made an error of what was a warning", fix="import the name from nki",
    source="NKI 0.4 release notes, breaking changes",
    wrong=COPIED.around(SCALED.format("2.0").replace("nl.m", "old.m"),
                        "import neuronxcc.nki.language as old"), right=SCALED.format("2.0"),
)  # fmt: skip
def _legacy(scope: Scope) -> Iterator[Place]:
    for node in scope.of(ast.Attribute):
        resolved = scope.source.resolve(node)
        if resolved is not None and resolved[0] == "neuronxcc" and resolved[1].count(".") == 1:
            yield node, f"{scope.words(node)} is a name of neuronxcc.nki", ""


_ENUMS = ("dge_mode", "oob_mode", "reduce_cmd", "engine", "perf_mode")


@text_rule("nki", "integer-enum", Refusal("documented", since="0.3"),
    title="members of enumerations are named",
    what="an instruction is given a number for dge_mode, oob_mode, reduce_cmd, engine or perf_mode",
    why="from NKI 0.3 on these take members alone, which are numbered otherwise",
    fix="write the member, as nisa.dge_mode.swdge", source="NKI 0.3 update guide, integer enum constants",
    kernel="nisa.dma_copy(tile, x, dge_mode={})", wrong="2", right="nisa.dge_mode.unknown",
)  # fmt: skip
def _enums(scope: Scope) -> Iterator[Place]:
    keywords = (k for n in scope.of(ast.Call) if scope.name_of(n.func).startswith("isa.") for k in n.keywords)
    for name, value in ((k.arg, k.value) for k in keywords if isinstance(k.value, ast.Constant)):
        if name in _ENUMS and type(value.value) is int:
            yield value, f"{name} is {value.value}, a number", ""


@text_rule("nki", "kernel-calls-kernel", Refusal("disputed", until=LAST_PARSED),
    title="kernels call plain functions", what="a kernel calls a function that nki.jit decorates too",
    why="reports have the inner kernel refused, or its arguments taken for the host's; KLR knows it",
    fix="take the decorator off the inner one, or call its undecorated function",
    source="nki-autotune, learnings; nki-moe-megakernel, common pitfalls; against them leanprover/KLR",
    wrong=COPIED.around("scaled(tile, 2.0)", f"@nki.jit\n{_HELPER}"),
    right=COPIED.around("scaled(tile, 2.0)", _HELPER),
)  # fmt: skip
def _inner_kernels(scope: Scope) -> Iterator[Place]:
    others = {function.name for function in scope.source.kernels - {scope.kernel}}
    for name, node in scope.plain_calls():
        if name in others:
            yield node, f"{name} is a kernel itself", ""


@text_rule("nki", "seed-engine",
    Refusal("documented", since="0.3", until="0.4", generations=(2, 3), milder="warning"),
    title="before trn3 seeds and numbers come from one engine",
    what="a kernel calls nl.random_seed and nl.rand on trn1 or trn2",
    why="rand may run on another engine than random_seed, which then has no effect",
    fix="use nisa.set_rng_seed and nisa.rng, with the engine named",
    source="NKI 0.3 and 0.4 release notes, known issues",
    wrong="seed = nl.full((1, 1), 42, nl.int32, buffer=nl.sbuf)\nwith nl.no_reorder():\n"
          "    nl.random_seed(seed)\n    nisa.tensor_copy(tile, nl.rand((128, 512), nl.float32))",
    right="nisa.tensor_copy(tile, nl.rand((128, 512), nl.float32))", options=("--nki", "0.4"),
)  # fmt: skip
def _seeds(scope: Scope) -> Iterator[Place]:
    calls = {scope.name_of(n.func): n for n in scope.of(ast.Call)}
    if "language.random_seed" in calls and "language.rand" in calls:
        yield calls["language.rand"], "nl.rand may not see the seed", ""


_AT = Example("""
tiles: index i32[1,2] sbuf < at; tile f32[1,128] sbuf; out f32[1,128] hbm < tile
nisa.dma_copy(tile, x.ap(pattern=[[128, 1], [1, 128]], scalar_offset={}))
""", {"x": "f32[4,128]", "at": "i32[1,2]"})  # fmt: skip
_FIRST = "index.ap(pattern=[[2, 1], [1, 1]], offset=0)"


@text_rule("nki", "scalar-offset-place", Refusal("disputed", until="0.3"),
    title="a run-time offset is the first element of its tile",
    what="scalar_offset= is an access pattern that does not begin at the start of its tile",
    why="the address of the element is fixed as if the tile lay where it does in this kernel alone: within "
    "a model another element is read",
    fix="copy the element into a tile of its own, and pass that one from its start",
    source="nki-moe-megakernel, common pitfalls, NKI 0.2 and 0.3; against it nki-library, cross_entropy",
    kernel=_AT, wrong=_FIRST.replace("offset=0", "offset=1"), right=_FIRST, options=("--nki", "0.3"),
)  # fmt: skip
def _index_places(scope: Scope) -> Iterator[Place]:
    for value in scope.passed("scalar_offset"):
        keywords = value.keywords if isinstance(value, ast.Call) else ()
        offsets = [k.value for k in keywords if k.arg == "offset"]
        if offsets and not (isinstance(offsets[0], ast.Constant) and not offsets[0].value):
            yield value, f"{scope.words(offsets[0])} is the offset of the element", ""


@text_rule("nki", "nl-matmul-transposed", Refusal("documented", since="0.3"),
    title="nl.matmul is given its left side transposed", what="nl.matmul is called without transpose_x=True",
    why="the call is not lowered for the device; it works in simulation",
    fix="load the left side transposed, and pass transpose_x=True",
    source="NKI 0.3 and 0.4 release notes, known issues",
    kernel=Example("tiles: out f32[128,128] hbm\nnl.store(out, nl.copy(nl.matmul(nl.load(a), nl.load(b){})))",
                   {"a": "f32[128,128]", "b": "f32[128,128]"}), wrong="", right=", transpose_x=True",
)  # fmt: skip
def _matmuls(scope: Scope) -> Iterator[Place]:
    for node in scope.calls("language.matmul"):
        values = [k.value for k in node.keywords if k.arg == "transpose_x"] + node.args[2:3]
        if not values or (isinstance(values[0], ast.Constant) and not values[0].value):
            yield node, "nl.matmul has no transpose_x=True", ""


def root_of(node: ast.expr | None) -> str:
    """The name that a subscript is of."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def bound_to(scope: Scope, makers: tuple[str, ...]) -> dict[str, ast.Call]:
    """Names that are bound to what some functions of NKI make, each with the call."""
    pairs = (pair for n in scope.of(ast.Assign) for target in n.targets for pair in _pairs(target, n.value))
    return {name: call for name, call in pairs if scope.name_of(call.func) in makers}


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.Call]]:
    """Names with the calls that an assignment binds them to, of tuples one by one."""
    match target, value:
        case ast.Name(id=name), ast.Call():
            yield name, value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values):
            yield from (pair for both in zip(targets, values, strict=False) for pair in _pairs(*both))


@text_rule("nki", "program-axis",
    Refusal("documented", "", "invalid program axis 1 (must be zero)", until=LAST_PARSED),
    title="a grid has one axis", what="nl.program_id or nl.num_programs is asked for an axis other than 0",
    why="the programs of a launch are the cores of one logical core, in a row", fix="use nl.program_id(0)",
    source="leanprover/KLR, KLR/Trace/Lang.lean",
    kernel=SCALED.format("float(nl.program_id({}) + 1)"), wrong="1", right="0",
)  # fmt: skip
def _program_axes(scope: Scope) -> Iterator[Place]:
    calls = list(scope.calls("language.program_id", "language.num_programs"))
    for axis in (a for n in calls for a in (*n.args, *(k.value for k in n.keywords))):
        if isinstance(axis, ast.Constant) and type(axis.value) is int and axis.value:
            yield axis, f"the axis is {axis.value}", ""


@text_rule("nki", "helper-decorator", Refusal("documented", "", "unsupported decorator", until="0.3"),
    title="functions that a kernel calls have no decorators",
    what="a kernel calls a function that is decorated with other than staticmethod, dataclass or nki.jit",
    why="the front end reads the text of the function, and knows these decorators alone",
    fix="take the decorator off", source="leanprover/KLR, KLR/NKI/Simplify.lean, decorator",
    wrong=COPIED.around("scaled(tile, 2.0)", f"import functools\n\n@functools.cache\n{_HELPER}", _OLD),
    right=COPIED.around("scaled(tile, 2.0)", _HELPER, _OLD),
)  # fmt: skip
def _decorators(scope: Scope) -> Iterator[Place]:
    helpers = [function for function in scope.functions if function is not scope.kernel]
    for function, decorator in ((f, d) for f in helpers for d in f.decorator_list):
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(name).rpartition(".")[2] not in ("staticmethod", "dataclass", "jit"):
            yield function, f"{function.name} is decorated with {scope.words(decorator)}", ""


@text_rule("nki", "keyword-default", Refusal("disputed", "", "missing argument", "0.2", LAST_PARSED),
    title="a call of a helper passes what stands behind a bare *",
    what="a kernel calls a function without a keyword-only argument, for which it has a default",
    why="public kernels of NKI 0.6 have the front end lose such defaults; its own tests of 0.2 keep them",
    fix="pass the argument, or write the parameter before the *",
    source="kernels of vLLM for trn2, comments at their helpers; against them NKI 0.2",
    kernel=COPIED.around("{}", _HELPER.replace("by)", "*, by=2.0)", 1)),
    wrong="scaled(tile)", right="scaled(tile, by=2.0)",
)  # fmt: skip
def _keyword_defaults(scope: Scope) -> Iterator[Place]:
    by_name = {function.name: function.args for function in scope.functions}
    for name, call in scope.plain_calls():
        arguments = by_name.get(name)
        pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if arguments else ()
        left_out = {a.arg for a, default in pairs if default is not None} - {k.arg for k in call.keywords}
        if left_out:
            yield call, f"{min(left_out)} of {name} is left to its default", ""


def _typed(dtype: str) -> Example:
    """A kernel with a type as the default of a parameter."""
    kernel = COPIED.around("pass", "import numpy as np", ("--nki", "0.3"))
    return replace(kernel, args={**COPIED.args, f"dtype={dtype}": "f32[1,1]"})


@text_rule("nki", "numpy-type-argument",
    Refusal("log", "", "numpy dtypes are not supported as arguments", until=LAST_PARSED),
    title="types that a kernel is given are of nki.language",
    what="a parameter of a kernel has a type of NumPy as its default",
    why="the front end specializes the kernel for its arguments, and has no types of NumPy",
    fix="write nl.float32 for np.float32",
    source="nki-library, tests of moe_block, NKI 0.3; xpu-perf, changes of its kernels, NKI 0.6",
    wrong=_typed("np.float32"), right=_typed("nl.float32"),
)  # fmt: skip
def _numpy_types(scope: Scope) -> Iterator[Place]:
    arguments = scope.kernel.args
    for default in filter(None, (*arguments.defaults, *arguments.kw_defaults)):
        if scope.source.dotted(default).startswith("numpy."):
            yield default, f"{scope.words(default)} is the default of a parameter", ""


@text_rule("nki", "block-dimension", Refusal("documented", until=LAST_PARSED),
    title="the partition axis stands first", what="nl.par_dim stands after another axis of a shape",
    why="there are no block axes in `nki`: the first axis is the partition axis, whatever par_dim says",
    fix="make a list of tiles, or lay the blocks out in the free axis",
    source="NKI migration guide, removing block dimensions",
    kernel=SCALED.format("2.0") + "\nblocks = nl.ndarray({}, nl.float32, buffer=nl.sbuf)\n"
           "nisa.memset(blocks, 0.0)", wrong="(4, nl.par_dim(128), 64)", right="(nl.par_dim(128), 4, 64)",
)  # fmt: skip
def _block_dimensions(scope: Scope) -> Iterator[Place]:
    shapes = [n for n in scope.of(ast.Tuple) if "hbm" not in ast.unparse(scope.source.parents[n])]
    for axis in (axis for shape in shapes for axis in shape.elts[1:]):
        if isinstance(axis, ast.Call) and scope.name_of(axis.func) == "language.par_dim":
            yield axis, f"{scope.words(axis)} is not the first axis", ""


@text_rule("nki", "nl-rms-norm",
    Refusal("log", "", "'dst' free total elements 5120 != 'rhs' free total elements 1", "0.6", "0.6"),
    title="nl.rms_norm is written out in NKI 0.6", what="a kernel calls nl.rms_norm",
    why="it hands a column to nisa.tensor_tensor, which takes tiles of one shape",
    fix="square and sum by nisa.activation, nl.rsqrt, and nisa.scalar_tensor_tensor",
    source="xpu-perf, its kernel of the norm",
    kernel="tiles: weights f32[128,512] sbuf; total f32[128,1] sbuf\nnisa.memset(weights, 1.0)\n{}",
    wrong="nisa.tensor_copy(tile, nl.rms_norm(tile, weights, 1, 512))",
    right=("nisa.tensor_tensor(weights, tile, tile, op=nl.multiply)",
           "nisa.tensor_reduce(total, op=nl.add, data=weights, axis=1)", SCALED.format("nl.rsqrt(total)")),
)  # fmt: skip
def _rms_norms(scope: Scope) -> Iterator[Place]:
    yield from ((node, "nl.rms_norm is called", "") for node in scope.calls("language.rms_norm"))


@text_rule("nki", "scalar-offset-slice", Refusal("report", "NCC_IBIR030", until="0.3"),
    title="a run-time offset says how large it may be", what="scalar_offset= is a slice of a tile",
    why="the compiler takes the largest index from the access pattern of the offset; kernels of nki-library "
    "pass registers, whole tiles and access patterns",
    fix="wrap it: offset.ap(pattern=[[1, 1], [1, 1]], offset=0)",
    source="nki-moe-megakernel, common pitfalls",
    kernel=_AT, wrong="index[0:1, 0:1]", right=_FIRST, options=("--nki", "0.3"),
)  # fmt: skip
def _offsets(scope: Scope) -> Iterator[Place]:
    for value in scope.passed("scalar_offset"):
        if isinstance(value, ast.Subscript):
            yield value, f"{scope.words(value)} is a slice that is given as scalar_offset", ""
