"""What Beta 1 makes of Python in loops: bodies of affine_range and sequential_range are traced once.

Loop variables are symbols then, and what Python does by itself happens once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec.structs import replace

from ..dialects.history import BETA1
from ..migrate.source import Function, names_in
from .branches import escapes, is_condition
from .declare import COPIED, Example, Refusal
from .front_end import bound_to
from .scope import Scope
from .text_rules import Place, text_rule

_ONCE = "the body of the loop is traced once, with a symbol for the loop variable"
_BETA1 = Refusal("documented", since=BETA1, until=BETA1)


_STORED = Example(
    "out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)\n{}\nreturn out",
    {"x": "f32[4,128,512]"},
    "neuronxcc",
)
_LOOP, _STORE_EACH = "for i in nl.static_range(4):", "    nl.store(out[i], nl.load(x[i]))"
_PART = "part = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)"
_THROUGH_PART = ("    nl.store(part, nl.load(x[i]))", "    nl.store(out[i], nl.load(part))")


@text_rule("neuronxcc", "index-branch", _BETA1,
    title="Python does not branch on the variable of a traced loop",
    what="a while, an assert or a conditional expression asks for the value of a variable of affine_range; "
    "or an if does, and asks for more than an affine comparison, or leaves the loop; or an if on it or on a "
    "variable of sequential_range binds a name that is used after it",
    why=f"{_ONCE}: an if on an affine comparison becomes a condition of the instructions in it; of all else "
    "Python takes one branch for all iterations, or the compiler refuses the question",
    fix="use nl.static_range, hide elements with mask=, or treat the special iteration outside of the loop",
    source="NKI programming model, loops; err_control_flow_condition_depending_on_arange; attention with a "
    "sliding window of NxD Inference", kernel=_STORED.around("""for i in nl.{}(4):
    tile = nl.load(x[i])
    if i == 0:
        tile = nl.exp(tile)
    nl.store(out[i], tile)"""), wrong="affine_range", right="static_range",
)  # fmt: skip
def _index_branches(scope: Scope) -> Iterator[Place]:
    # a build of 2026 branched on the variable of sequential_range, and was right; scopes end there too
    affine = replace(scope, traced=("language.affine_range",))
    for node in scope.nodes():
        test = getattr(node, "test", None)
        name = scope.symbol_in(test) if isinstance(test, ast.expr) else ""
        if not name or not isinstance(test, ast.expr):
            continue
        is_affine = bool(affine.symbol_in(test))
        word = {ast.If: "if", ast.While: "while", ast.Assert: "assert"}.get(
            type(node), "a conditional expression"
        )
        sentence = f"{word} asks for {scope.words(test)}, and {name} is a symbol while the loop is traced"
        if isinstance(node, ast.If) and is_condition(scope, test):
            yield from ((node, f"{sentence}: {what}", "") for what in escapes(scope, node, jumps=is_affine))
        elif is_affine:
            yield node, sentence, ""


_NEED_NUMBERS = ("abs", "bool", "divmod", "float", "int", "max", "min", "pow", "range", "round", "sum")


@text_rule("neuronxcc", "index-value", _BETA1,
    title="Python does not compute with the variable of a traced loop",
    what="the variable of affine_range or sequential_range, or what is computed from it, chooses from a "
    "list or dictionary of Python's, is an exponent, is multiplied by another one, or goes into a shape or "
    "into range, min, max, int, float or another function of Python's that needs a number",
    why=f"{_ONCE}, which has no value: sums, multiples, quotients and remainders index tensors",
    fix="use nl.static_range, or keep the values in a tensor and index that",
    source="NKI programming model, loops; nki.language.affine_range: the variable is symbolic",
    kernel=_STORED.around("""scales = [1.0, 2.0, 3.0, 4.0]
for i in nl.{}(4):
    nl.store(out[i], nl.load(x[i]) * scales[i])"""), wrong="affine_range", right="static_range",
)  # fmt: skip
def _index_values(scope: Scope) -> Iterator[Place]:
    _, lists = _python_values(scope)
    for node in scope.nodes():
        name = ""
        match node:
            case ast.Subscript(value=ast.Name(id=target), slice=chosen, ctx=ast.Load()) if target in lists:
                name = scope.symbol_in(chosen)
            case ast.Call(func=ast.Name(id=word), args=arguments) if word in _NEED_NUMBERS:
                name = next((n for a in arguments if (n := scope.symbol_in(a))), "")
            case ast.Call(func=called) if scope.name_of(called) in _CREATED:
                name = next((n for size in _shape(node) if (n := scope.symbol_in(size))), "")
            case ast.BinOp(op=ast.Pow()):
                name = scope.symbol_in(node)
            case ast.BinOp() if _is_product(scope, node):
                name = scope.symbol_in(node.left)
        if name and isinstance(node, ast.expr):
            sentence = f"{scope.words(node)} needs the value of {name}"
            yield node, f"{sentence}, which is a symbol while the loop is traced", ""


def _is_product(scope: Scope, node: ast.BinOp) -> bool:
    """Whether two symbols are multiplied, outside of a mask, which has a rule of its own."""
    if not isinstance(node.op, ast.Mult) or not scope.symbol_in(node.right):
        return False
    return not any(isinstance(a, ast.keyword) and a.arg == "mask" for a in scope.source.around(node))


_ADDRESSES = ("buffer", "base_addr", "base_bank", "base_partition")
GROWS = ("append", "extend", "insert", "pop", "remove", "update", "setdefault")


@text_rule("neuronxcc", "traced-effect", _BETA1, title="Python's own values do not change in a traced loop",
    what="a list grows, an item of a list or dictionary is set, a number of Python's changes, or names "
    "change places, inside an affine_range or sequential_range loop",
    why=f"{_ONCE}: it happens once, not once per iteration",
    fix="use nl.static_range, or keep the value in a tile",
    source="NKI programming model, loops: Python side effects in traced loops are undefined",
    kernel=_STORED.around("""tiles = []
for i in nl.{}(4):
    tiles.append(i * 2)
    nl.store(out[i], nl.load(x[i]))"""), wrong="affine_range", right="static_range",
)  # fmt: skip
def _traced_effects(scope: Scope) -> Iterator[Place]:
    plain, lists = _python_values(scope)
    for loop in scope.traced_loops:
        made_here = _made_within(loop)
        effects = (
            (node, _effect(scope, node, plain - made_here, lists - made_here)) for node in ast.walk(loop)
        )
        yield from (
            (node, f"{sentence} once, not once per iteration", "") for node, sentence in effects if sentence
        )


def _made_within(loop: ast.For) -> set[str]:
    """Names that a loop binds to what does not depend on what they were."""
    assigned = [n for n in ast.walk(loop) if isinstance(n, ast.Assign)]
    return {
        t.id
        for n in assigned
        for t in n.targets
        if isinstance(t, ast.Name) and not names_in(n.value) & {t.id}
    }


def _effect(scope: Scope, node: ast.AST, plain: set[str], lists: set[str]) -> str:
    """What a node does to values of Python's: to numbers and to lists of these names; or ""."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=word)):
            return f"{name}.{word} runs" if word in GROWS and name in lists else ""
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name))]):
            return f"{name}[...] = runs" if name in lists else ""
        case ast.AugAssign(target=ast.Name(id=name)):
            is_counted = name in plain
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            is_counted = name in plain and name in names_in(value)
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            names = [t.id for t in targets if isinstance(t, ast.Name)]
            names_given = [v.id for v in values if isinstance(v, ast.Name)]
            is_permutation = len(names) > 1 and sorted(names) == sorted(names_given) and names != names_given
            return f"{', '.join(names)} change places" if is_permutation else ""
        case _:
            return ""
    return f"{name} changes" if is_counted and not _is_address(scope, name) else ""


def _is_address(scope: Scope, name: str) -> bool:
    """Whether a number goes into addresses alone: each allocation is traced once, and keeps its first one."""
    uses = [n for n in scope.of(ast.Name) if n.id == name and isinstance(n.ctx, ast.Load)]
    return bool(uses) and all(
        any(isinstance(a, ast.keyword) and a.arg in _ADDRESSES for a in scope.source.around(use))
        for use in uses
    )


def _python_values(scope: Scope) -> tuple[set[str], set[str]]:
    """Names that are bound to numbers, and to lists or dictionaries, outside of traced loops."""
    inside = {n for loop in scope.traced_loops for n in ast.walk(loop)}
    plain: set[str] = set()
    lists: set[str] = set()
    for node in scope.of(ast.Assign):
        if node in inside:
            continue
        names = {t.id for t in node.targets if isinstance(t, ast.Name)}
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, int | float):
            plain |= names
        elif _is_collection(node.value):
            lists |= names
    return plain, lists


def _is_collection(node: ast.expr) -> bool:
    """Whether an expression is a list or a dictionary of Python's: written out, or [None] * 4."""
    if isinstance(node, ast.BinOp):
        return _is_collection(node.left) or _is_collection(node.right)
    is_called = (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _COLLECTIONS
    )
    return is_called or isinstance(node, ast.List | ast.Dict | ast.ListComp | ast.DictComp)


_COLLECTIONS = ("list", "dict")


@text_rule("neuronxcc", "mask-expression", _BETA1, title="a mask is an affine comparison",
    what="mask= holds a remainder, a division or a product of variables of affine_range or sequential_range",
    why="the compiler of Beta 1 makes bounds of a mask, which only sums and multiples of indices have",
    fix="write the mask with sums and multiples of indices alone, or split the range",
    source="err_unsupported_expression_in_mask", kernel=_STORED.around("""i_p, i_f = nl.mgrid[0:128, 0:512]
for i in nl.affine_range(4):
    nl.store(out[i, i_p, i_f], nl.load(x[i, i_p, i_f]), mask=i_p >= {})"""),
    wrong="128 * (i // 4)", right="0",
)  # fmt: skip
def _masks(scope: Scope) -> Iterator[Place]:
    parts = [(mask, p) for mask in scope.passed("mask") for p in ast.walk(mask) if isinstance(p, ast.BinOp)]
    for mask, part in parts:
        is_quotient = isinstance(part.op, ast.Mod | ast.FloorDiv | ast.Div)
        is_product = isinstance(part.op, ast.Mult) and bool(scope.symbol_in(part.right))
        if (is_quotient or is_product) and scope.symbol_in(part.left):
            yield mask, f"mask holds {scope.words(part)}, which is not affine", ""


# a fault of the compiler that a report tells of, and no other source
_FAULT = Refusal("report", since=BETA1, until=BETA1, generations=(2,), milder="note")


@text_rule("neuronxcc", "activation-of-slice", _FAULT,
    title="builds of Beta 1 for trn1 may get an activation of a slice wrong",
    what="nisa.activation reads a slice of a tile that was reshaped to more axes, on trn1",
    why="a report shows wrong values for even batches from 4 to 16; simulation is right, and the build says "
    "nothing", fix="apply nisa.activation to the tile before reshape, or compare on the chip",
    source="aws-neuron-sdk issue 1255", kernel=_STORED.around("""for i in nl.affine_range(4):
    cube = nl.load(x[i]).reshape((128, 1, 512))
    nl.store(out[i], nisa.activation(op=nl.exp, data={}))"""),
    wrong="cube[:, 0, :]", right="nl.load(x[i])", options=("--target", "trn1"),
)  # fmt: skip
def _sliced(scope: Scope) -> Iterator[Place]:
    reshaped = {
        name for n in scope.of(ast.Assign) for name in names_in(n.targets[0])
        if isinstance(n.value, ast.Call) and ast.unparse(n.value.func).endswith(".reshape")
    }  # fmt: skip
    for data in scope.passed("data"):
        if not isinstance(data, ast.Subscript) or not names_in(data.value) <= reshaped:
            continue
        keys = data.slice.elts if isinstance(data.slice, ast.Tuple) else []
        if not all(isinstance(key, ast.Slice) for key in keys):
            yield data, f"{scope.words(data)} is a slice of a reshaped tile", ""


_SKIPPED = Example(
    "tiles: out f32[128,128] hbm\nnl.store(out, nl.matmul(nl.load(x), nl.load(x), transpose_x=True))",
    {"x": "f32[128,128]"}, "neuronxcc",
)  # fmt: skip


@text_rule("neuronxcc", "reshaped-blocks", _FAULT,
    title="builds of Beta 1 for trn1 may get a reshape of blocks wrong",
    what="a tile with an axis before its partitions is given other axes by reshape, on trn1",
    why="a comment tells of other values on the device; simulation is right, and the build says nothing",
    fix="make the tile with the axes that are wanted, or compare on the chip",
    source="aws-neuron-sdk issue 1051, a comment on weights",
    kernel=Example("tiles: out f32[128,128] hbm; w f32[2,nl.par_dim(128),256] sbuf\nw[0] = nl.load(x)\n"
                   "nl.store(out, {})", {"x": "f32[128,256]"}, "neuronxcc"),
    wrong="w.reshape((2, nl.par_dim(128), 2, 128))[0, :, 0, :]", right="w[0, :, 0:128]",
    options=("--target", "trn1"),
)  # fmt: skip
def _reshaped(scope: Scope) -> Iterator[Place]:
    for call in scope.of(ast.Call):
        inner = (n.func for argument in call.args for n in ast.walk(argument) if isinstance(n, ast.Call))
        is_reshape = isinstance(call.func, ast.Attribute) and call.func.attr == "reshape"
        if is_reshape and any(scope.name_of(called) == "language.par_dim" for called in inner):
            yield call, f"{scope.words(call.func)} changes the axes of a tile of blocks", ""


@text_rule("neuronxcc", "skipped-middle-end", Refusal("disputed", "DVR002", since=BETA1, until=BETA1),
    title="kernels with products take all passes of the compiler",
    what="a kernel with nl.matmul or nc_matmul is decorated with skip_middle_end_transformations",
    why="one report has the compiler fail; published convolutions have the decorator",
    fix="if the build refuses it, leave the decorator out",
    source="nki-samples issue 91; against it nki-samples, convolutions",
    wrong=replace(_SKIPPED, above="@ncc.skip_middle_end_transformations"), right=_SKIPPED,
)  # fmt: skip
def _skipped(scope: Scope) -> Iterator[Place]:
    product = next(scope.calls("language.matmul", "isa.nc_matmul"), None)
    names = {scope.name_of(decorator) for decorator in scope.kernel.decorator_list}
    if product is not None and "compiler.skip_middle_end_transformations" in names:
        yield product, "the kernel skips the middle end, and has a product", ""


_CREATED = tuple(f"language.{name}" for name in ("ndarray", "zeros", "ones", "full", "empty"))
_TOTAL = """
tiles: out f32[128,1] hbm; total f32[128,1] sbuf
total[{}] = nl.sum(nl.load(x), axis=1, keepdims=True)
nl.store(out, total)
"""


@text_rule("neuronxcc", "tile-axes", _BETA1, title="tiles have two axes, and are indexed by both",
    what="a tile in sbuf or psum is made with one axis, or a [N, 1] or [1, M] tile is indexed by one index",
    why="the compiler of Beta 1 has tiles of a partition and a free axis: Insufficient rank",
    fix="make it (N, 1), and write tile[0:N, 0] or tile[...]",
    source="NKI known issues of Beta 1, unsupported syntax",
    kernel=Example(_TOTAL, {"x": "f32[128,512]"}, "neuronxcc"), wrong="0:128", right="0:128, 0",
)  # fmt: skip
def _few_axes(scope: Scope) -> Iterator[Place]:
    bound = bound_to(scope, _CREATED)
    shapes = {name: _shape(call) for name, call in bound.items()}
    unused = {call for name, call in bound.items() if _is_bound_anew(scope, name, call)}
    for call in (c for c in scope.calls(*_CREATED) if c not in unused):
        if len(_shape(call)) == 1 and not any("hbm" in scope.words(k.value) for k in call.keywords):
            yield call, "a tile has one axis", ""
    for node in scope.of(ast.Subscript):
        shape = shapes.get(node.value.id, []) if isinstance(node.value, ast.Name) else []
        is_thin = len(shape) == 2 and any(isinstance(n, ast.Constant) and n.value == 1 for n in shape)
        if is_thin and isinstance(node.slice, ast.Slice):
            yield node, f"{scope.words(node)} has one index of two", ""


@text_rule("neuronxcc", "hbm-assigned", Refusal("report", since=BETA1, until=BETA1),
    title="tensors in hbm are written by nl.store", what="a tile is assigned to a tensor in hbm",
    why="the compiler of Beta 1 assigns tiles to tiles alone", fix="use nl.store", source="AccelOpt, prompts",
    wrong=Example("tiles: out f32[128,512] hbm\nout[...] = nl.load(x)", COPIED.args, "neuronxcc"),
    right=Example("tiles: out f32[128,512] hbm\nnl.store(out, nl.load(x))", COPIED.args, "neuronxcc"),
)  # fmt: skip
def _hbm_assigned(scope: Scope) -> Iterator[Place]:
    calls = bound_to(scope, _CREATED).items()
    there = {name for name, call in calls if any("hbm" in scope.words(k.value) for k in call.keywords)}
    for node in scope.of(ast.Assign):
        match node:
            case ast.Assign([ast.Subscript(ast.Name(name))]) if name in there:
                yield node, f"{name}, in hbm, is assigned {scope.words(node.value)}", ""


def _is_bound_anew(scope: Scope, name: str, call: ast.Call) -> bool:
    """Whether a name that a call is bound to is bound to something else before it is read."""
    later = [n for n in scope.of(ast.Name) if n.id == name and n.lineno > (call.end_lineno or 0)]
    first = min(later, key=lambda n: (n.lineno, isinstance(n.ctx, ast.Store)), default=None)
    return first is not None and isinstance(first.ctx, ast.Store)


def _shape(call: ast.Call) -> list[ast.expr]:
    """The sizes that a call which makes a tensor is given, where they stand there as a tuple."""
    shapes = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "shape")]
    return shapes[0].elts if shapes and isinstance(shapes[0], ast.Tuple | ast.List) else []


@text_rule("neuronxcc", "shared-hbm-level", _BETA1,
    title="tensors in shared_hbm are made at the top of the kernel",
    what="a tensor in shared_hbm is made inside a loop, or in a function that the kernel calls",
    why="the compiler of Beta 1 refuses it", fix="make it at the top of the kernel and pass it on",
    source="err_shared_hbm_must_in_kernel_level", kernel=_STORED,
    wrong=(_LOOP, f"    {_PART}", *_THROUGH_PART), right=(_PART, _LOOP, *_THROUGH_PART),
)  # fmt: skip
def _levels(scope: Scope) -> Iterator[Place]:
    for node, function, within in _shared_tensors(scope):
        if function is not scope.kernel:
            name = function.name if function is not None else "?"
            yield node, f"shared_hbm is allocated in {name}, which the kernel calls", ""
        elif within is not None:
            yield node, f"shared_hbm is allocated inside {type(within).__name__.lower()}", ""


def _shared_tensors(scope: Scope) -> Iterator[tuple[ast.Call, Function | None, ast.AST | None]]:
    """Calls that make a tensor in shared_hbm, the function of each, and a loop around it."""
    for node in scope.of(ast.Call):
        buffers = [k.value for k in node.keywords if k.arg == "buffer"]
        if any(scope.name_of(buffer) == "language.shared_hbm" for buffer in buffers):
            loops = (a for a in scope.source.around(node) if isinstance(a, ast.For | ast.While))
            yield node, scope.source.function_of(node), next(loops, None)
