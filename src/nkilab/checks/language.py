"""What the compiler of a generation refuses, or means otherwise, though Python runs it: read from the text.

Beta 1 traces the body of affine_range and sequential_range once, with symbols for loop variables. The
compilers of
NKI 0.1 to 0.6 parse the kernel and know a part of Python. From 0.7 on kernels are traced by Python.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from ..dialects.history import NEWEST, order
from ..dialects.kernel import Kernel
from .branches import escapes, is_condition
from .declare import Example, Rule, rule
from .finding import Finding
from .scope import Scope, scope_of
from .sources import Sources

_GUIDE = "NKI language guide"
_UPDATE = "NKI 0.3 update guide"
_ONCE = "the body of the loop is traced once, with a symbol for the loop variable"
# A place, what is said of it, and the way out where it is not the rule's.
Place = tuple[ast.AST, str, str]
Find = Callable[[Scope], Iterator[Place]]
# by spelling: what is looked for; in `nki` up to `_LAST_PARSED`
_FINDERS: dict[str, list[tuple[Rule, Find]]] = {"neuronxcc": [], "nki": []}
_LAST_PARSED = "0.6"

_X1 = {"x": "f32[4,128,512]"}


def _beta1(body: str) -> Example:
    return Example(
        f"out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)\n{body}\nreturn out", _X1, "neuronxcc"
    )


_COPY = """
tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(tile, x)
{}
nisa.dma_copy(out, tile)
return out
"""
_X2 = {"x": "f32[128,512]"}
_SCALED = "nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=by)"


def _nki(middle: str, above: str = "") -> Example:
    return Example(_COPY.format(middle.strip("\n")), _X2, above=above)


def _for(spelling: str, held: Rule) -> Callable[[Find], Find]:
    """Have a rule looked for by the decorated function."""

    def keep(find: Find) -> Find:
        _FINDERS[spelling].append((held, find))
        return find

    return keep


INDEX_BRANCH = rule(
    "index-branch", "language", "error",
    title="Python does not branch on the variable of a traced loop",
    what="a while, an assert or a conditional expression asks for the value of a variable of affine_range or "
    "sequential_range; or an if does, and asks for more than an affine comparison, binds a name that is used "
    "after it, or leaves the loop",
    why=f"{_ONCE}: an if on an affine comparison becomes a condition of the instructions in it; of all else "
    "Python takes one branch for all iterations, or the compiler refuses the question",
    fix="use nl.static_range, hide elements with mask=, or treat the special iteration outside of the loop",
    source="NKI programming model, loops; err_control_flow_condition_depending_on_arange; attention with a "
    "sliding window of NxD Inference",
    wrong=_beta1("""
for i in nl.affine_range(4):
    tile = nl.load(x[i])
    if i == 0:
        tile = nl.exp(tile)
    nl.store(out[i], tile)"""),
    right=_beta1("""
for i in nl.static_range(4):
    tile = nl.load(x[i])
    if i == 0:
        tile = nl.exp(tile)
    nl.store(out[i], tile)"""),
)  # fmt: skip


@_for("neuronxcc", INDEX_BRANCH)
def _index_branches(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        test = getattr(node, "test", None)
        name = scope.symbol_in(test) if isinstance(test, ast.expr) else ""
        if not name or not isinstance(test, ast.expr):
            continue
        word = {ast.If: "if", ast.While: "while", ast.Assert: "assert"}.get(
            type(node), "a conditional expression"
        )
        told = f"{word} asks for {scope.words(test)}, and {name} is a symbol while the loop is traced"
        if isinstance(node, ast.If) and is_condition(scope, test):
            for what in escapes(scope, node):
                yield node, f"{told}: {what}", ""
        else:
            yield node, told, ""


TRACED_EFFECT = rule(
    "traced-effect", "language", "error",
    title="Python's own values do not change in a traced loop",
    what="a list grows, or a number of Python's changes, inside an affine_range or sequential_range loop",
    why=f"{_ONCE}: it happens once, not once per iteration",
    fix="use nl.static_range, or keep the value in a tile",
    source="NKI programming model, loops: Python side effects in traced loops are undefined",
    wrong=_beta1("""
tiles = []
for i in nl.affine_range(4):
    tiles.append(i * 2)
    nl.store(out[i], nl.load(x[i]))"""),
    right=_beta1("""
tiles = []
for i in nl.static_range(4):
    tiles.append(i * 2)
    nl.store(out[i], nl.load(x[i]))"""),
)  # fmt: skip
_ADDRESSES = ("buffer", "base_addr", "base_bank", "base_partition")
_GROWS = ("append", "extend", "insert", "pop", "remove", "update", "setdefault")


@_for("neuronxcc", TRACED_EFFECT)
def _traced_effects(scope: Scope) -> Iterator[Place]:
    plain, lists = _python_values(scope)
    for loop in scope.traced_loops:
        assigned = [n for n in ast.walk(loop) if isinstance(n, ast.Assign)]
        made = {t.id for n in assigned for t in n.targets if isinstance(t, ast.Name)}
        for node in ast.walk(loop):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                held, word = node.func.value, node.func.attr
                name = held.id if isinstance(held, ast.Name) else ""
                told = f"{name}.{word} runs" if word in _GROWS and name in lists - made else ""
            else:
                target = node.target if isinstance(node, ast.AugAssign) else None
                name = target.id if isinstance(target, ast.Name) else ""
                told = f"{name} changes" if name in plain - made and not _is_address(scope, name) else ""
            if told:
                yield node, f"{told} once, not once per iteration", ""


def _is_address(scope: Scope, name: str) -> bool:
    """Whether a number goes into addresses alone: each allocation is traced once, and keeps its first one."""
    uses = [
        n for n in scope.nodes() if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
    ]
    return bool(uses) and all(
        any(isinstance(a, ast.keyword) and a.arg in _ADDRESSES for a in scope.source.around(use))
        for use in uses
    )


def _python_values(scope: Scope) -> tuple[set[str], set[str]]:
    """Names that are bound to numbers, and to lists or dictionaries, outside of traced loops."""
    inside = {n for loop in scope.traced_loops for n in ast.walk(loop)}
    plain: set[str] = set()
    lists: set[str] = set()
    for node in scope.nodes():
        if isinstance(node, ast.Assign) and node not in inside:
            names = {t.id for t in node.targets if isinstance(t, ast.Name)}
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, int | float):
                plain |= names
            elif isinstance(node.value, ast.List | ast.Dict | ast.ListComp | ast.DictComp):
                lists |= names
    return plain, lists


MASK = rule(
    "mask-expression", "language", "error",
    title="a mask is an affine comparison",
    what="mask= holds a remainder or a division of a variable of affine_range or sequential_range",
    why="the compiler of Beta 1 makes bounds of a mask, which only sums and multiples of indices have",
    fix="write the mask with sums and multiples of indices alone, or split the range",
    source="err_unsupported_expression_in_mask",
    wrong=_beta1("""
i_p, i_f = nl.mgrid[0:128, 0:512]
for i in nl.affine_range(4):
    nl.store(out[i, i_p, i_f], nl.load(x[i, i_p, i_f]), mask=i_p >= 128 * (i // 4))"""),
    right=_beta1("""
i_p, i_f = nl.mgrid[0:128, 0:512]
for i in nl.affine_range(4):
    nl.store(out[i, i_p, i_f], nl.load(x[i, i_p, i_f]), mask=i_p >= 0)"""),
)  # fmt: skip


@_for("neuronxcc", MASK)
def _masks(scope: Scope) -> Iterator[Place]:
    masks = [n.value for n in scope.nodes() if isinstance(n, ast.keyword) and n.arg == "mask"]
    parts = [(mask, p) for mask in masks for p in ast.walk(mask) if isinstance(p, ast.BinOp)]
    for mask, part in parts:
        if isinstance(part.op, ast.Mod | ast.FloorDiv | ast.Div) and scope.symbol_in(part.left):
            yield mask, f"mask holds {scope.words(part)}, which is not affine", ""


HBM_LEVEL = rule(
    "shared-hbm-level", "language", "error",
    title="tensors in shared_hbm are made at the top of the kernel",
    what="a tensor in shared_hbm is made inside a loop, a branch, or a function that the kernel calls",
    why="the compiler of Beta 1 refuses it",
    fix="make it at the top of the kernel and pass it on",
    source="err_shared_hbm_must_in_kernel_level",
    wrong=_beta1("""
for i in nl.static_range(4):
    part = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    nl.store(part, nl.load(x[i]))
    nl.store(out[i], nl.load(part))"""),
    right=_beta1("""
part = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
for i in nl.static_range(4):
    nl.store(part, nl.load(x[i]))
    nl.store(out[i], nl.load(part))"""),
)  # fmt: skip


@_for("neuronxcc", HBM_LEVEL)
def _levels(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        if not isinstance(node, ast.Call) or not any(
            k.arg == "buffer" and scope.name_of(k.value) == "language.shared_hbm" for k in node.keywords
        ):
            continue
        function = scope.source.function_of(node)
        within = next(
            (a for a in scope.source.around(node) if isinstance(a, ast.For | ast.While | ast.If | ast.With)),
            None,
        )
        if function is not scope.kernel:
            name = function.name if function is not None else "?"
            yield node, f"shared_hbm is allocated in {name}, which the kernel calls", ""
        elif isinstance(within, ast.For | ast.While | ast.If):
            yield node, f"shared_hbm is allocated inside {type(within).__name__.lower()}", ""


IDENTITY = rule(
    "is-operator", "language", "advice",
    title="values are compared with == and !=",
    what="a kernel compares with `is` or `is not`",
    why="the update guide says that the compiler of NKI 0.3 to 0.6 has neither; kernels of the vendor's "
    "library use "
    "`is None` all the same",
    fix="use == or !=",
    source=_UPDATE,
    wrong=_nki(f"by = None\nif by is None:\n    by = 1.0\n{_SCALED}"),
    right=_nki(f"by = None\nif by == None:\n    by = 1.0\n{_SCALED}"),
)  # fmt: skip


@_for("nki", IDENTITY)
def _identities(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            yield node, f"{scope.words(node)} compares identities", ""


PARAMETERS = rule(
    "kernel-parameters", "language", "error",
    title="parameters of a kernel are positional and take tuples",
    what="a kernel has parameters after a bare *, or a list as a default",
    why="the compiler of NKI 0.3 to 0.6 has no keyword-only parameters and no list arguments",
    fix="leave the * out, and write a tuple",
    source=_UPDATE,
    wrong=Example(_COPY.format("pass"), {"x": "f32[128,512]", "shape=[128, 512]": "f32[1,1]"}, options=()),
    right=Example(_COPY.format("pass"), {"x": "f32[128,512]", "shape=(128, 512)": "f32[1,1]"}, options=()),
)  # fmt: skip


@_for("nki", PARAMETERS)
def _parameters(scope: Scope) -> Iterator[Place]:
    given = scope.kernel.args
    if given.kwonlyargs and given.vararg is None:
        yield scope.kernel, f"{scope.kernel.name} has parameters after *", "leave the * out"
    for default in (*given.defaults, *(d for d in given.kw_defaults if d is not None)):
        if isinstance(default, ast.List):
            yield default, f"{scope.kernel.name} has a list as a default", "write a tuple"


CONSTRUCTS = rule(
    "unsupported-python", "language", "error",
    title="a kernel uses the part of Python that its compiler knows",
    what="a kernel holds a statement that the compiler of NKI 0.1 to 0.6 does not know: try, yield, global, "
    " nonlocal, del, import, match, async, a class, a set, a with that is no no_reorder block",
    why="the parser of these versions refuses it; the simulator runs any Python",
    fix="do it on the host, before the kernel is called",
    source=f"{_GUIDE}, values and control flow; simulator guide, meta-programming support",
    wrong=_nki("try:\n    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=2.0)\nfinally:\n    pass"),
    right=_nki("nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=2.0)"),
)  # fmt: skip
_UNKNOWN: dict[type[ast.AST], str] = {
    ast.Try: "try", ast.Yield: "yield", ast.YieldFrom: "yield from",
    ast.Global: "global", ast.Nonlocal: "nonlocal", ast.Delete: "del", ast.Import: "import",
    ast.ImportFrom: "import", ast.Match: "match", ast.AsyncFor: "async for", ast.AsyncWith: "async with",
    ast.Await: "await", ast.ClassDef: "class", ast.Set: "a set", ast.SetComp: "a set",
}  # fmt: skip


@_for("nki", CONSTRUCTS)
def _constructs(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        word = _UNKNOWN.get(type(node), "")
        if isinstance(node, ast.With):
            called = [i.context_expr.func for i in node.items if isinstance(i.context_expr, ast.Call)]
            # whatever the module is called in this file
            names = [ast.unparse(function).rpartition(".")[2] for function in called]
            word = "" if names == ["no_reorder"] else "with"
        if word:
            yield node, f"{word} stands in a kernel", ""


DICTIONARY = rule(
    "dictionary-key", "language", "error",
    title="keys of dictionaries are strings",
    what="a dictionary in a kernel has a key that is no string",
    why="dictionaries of the NKI language have string keys only",
    fix="use str(key), or a list",
    source=f"{_GUIDE}, values",
    wrong=_nki("scales = {0: 2.0}\nnisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=scales[0])"),
    right=_nki('scales = {"0": 2.0}\nnisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=scales["0"])'),
)  # fmt: skip


@_for("nki", DICTIONARY)
def _dictionaries(scope: Scope) -> Iterator[Place]:
    keys = (key for node in scope.nodes() if isinstance(node, ast.Dict) for key in node.keys)
    for key in keys:
        if isinstance(key, ast.Constant) and not isinstance(key.value, str):
            yield key, f"the key {scope.words(key)} is no string", ""


CLASSES = rule(
    "class-base", "language", "error",
    title="classes of a kernel inherit from NKIObject",
    what="a kernel makes an object of a class of its file that does not inherit from NKIObject, or of an "
    "Enum",
    why="the compiler takes in only classes that are meant for it",
    fix="let the class inherit from nl.NKIObject and nothing else",
    source=f"{_GUIDE}, class support",
    wrong=_nki("nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=Scale(2.0).by)",
               "class Scale:\n    def __init__(self, by):\n        self.by = by\n"),
    right=_nki("nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=Scale(2.0).by)",
               "class Scale(nl.NKIObject):\n    by: float = 1.0\n"),
)  # fmt: skip
_BASES = ("NKIObject", "Enum", "IntEnum", "StrEnum", "NamedTuple")


@_for("nki", CLASSES)
def _classes(scope: Scope) -> Iterator[Place]:
    classes = {n.name: n for n in scope.source.tree.body if isinstance(n, ast.ClassDef)}
    for node in scope.nodes():
        held = (
            classes.get(node.func.id)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            else None
        )
        if held is not None and not _is_known_class(held, classes):
            yield node, f"{held.name} does not inherit from NKIObject", ""


def _is_known_class(held: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> bool:
    for base in held.bases:
        name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
        if name in _BASES or (name in classes and _is_known_class(classes[name], classes)):
            return True
    return False


PURE = rule(
    "impure-kernel", "language", "error",
    title="a kernel depends on its arguments alone",
    what="a kernel reads the clock, the environment, a random generator of the host or a file",
    why="compiled kernels are kept by their arguments: a later call gets what an earlier one saw",
    fix="pass the value as an argument",
    source=f"{_GUIDE}, kernel caching",
    wrong=_nki(f"by = float(time.time() > 0)\n{_SCALED}", "import time\n"),
    right=_nki(f"by = 1.0\n{_SCALED}", "import time\n"),
)  # fmt: skip
_OUTSIDE = ("time.", "random.", "numpy.random.", "os.environ", "os.getenv", "datetime.", "secrets.", "uuid.")


@_for("nki", PURE)
@_for("neuronxcc", PURE)
def _impure(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        if not isinstance(node, ast.Call):
            continue
        dotted = scope.source.dotted(node.func)
        is_open = isinstance(node.func, ast.Name) and node.func.id in ("open", "input")
        if is_open or dotted.startswith(_OUTSIDE):
            yield node, f"{scope.words(node.func)} is called in a kernel", ""


DYNAMIC_EXIT = rule(
    "dynamic-exit", "language", "error",
    title="a loop on the device runs to its end, outside of no_reorder blocks",
    what="break, continue or return stands in a dynamic_range loop, or such a loop in a no_reorder block",
    why="the loop is one hardware loop, whose body runs as often as its register says",
    fix="leave the exit out, or put the no_reorder block into the body of the loop",
    source="dynamic loops guide, interaction with no_reorder; NKI language guide, dynamic control flow",
    wrong=Example("""
out = nl.ndarray((4, 128, 512), nl.float32, buffer=nl.shared_hbm)
with nl.no_reorder():
    for i in nl.dynamic_range(4):
        tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, x[i])
        nisa.dma_copy(out[i], tile)
return out
""", {"x": "f32[4,128,512]"}),
    right=Example("""
out = nl.ndarray((4, 128, 512), nl.float32, buffer=nl.shared_hbm)
for i in nl.dynamic_range(4):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(tile, x[i])
    nisa.dma_copy(out[i], tile)
return out
""", {"x": "f32[4,128,512]"}),
)  # fmt: skip


@_for("nki", DYNAMIC_EXIT)
def _exits(scope: Scope) -> Iterator[Place]:
    for loop in scope.nodes():
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
            continue
        if scope.name_of(loop.iter.func) != "language.dynamic_range":
            continue
        for around in scope.source.around(loop):
            calls = [i.context_expr for i in around.items] if isinstance(around, ast.With) else []
            if any(isinstance(c, ast.Call) and scope.name_of(c.func) == "language.no_reorder" for c in calls):
                yield loop, "a dynamic_range loop stands in a no_reorder block", ""
        for node in ast.walk(loop):
            if isinstance(node, ast.Break | ast.Continue | ast.Return):
                yield node, f"{type(node).__name__.lower()} stands in a dynamic_range loop", ""


# Documented rules of the compilers that nothing here looks for: what, where it is told, why it is left out.
NOT_COVERED: tuple[tuple[str, str, str], ...] = (
    (
        "annotations of local names agree with shapes",
        "err_annotation_shape_mismatch",
        "Python does not evaluate them",
    ),
    (
        "a tensor's partition axis is its first",
        "err_leading_dimension_of_tensor_must_be_partition",
        "only a warning of the compiler for kernels with block axes",
    ),
    (
        "integers and floats fit into 32 bits",
        f"{_GUIDE}, values",
        "values of Python in kernels are not followed",
    ),
    (
        "negative subscripts",
        "front end of NKI 0.2",
        "which subscript is a tensor's is not known from the text",
    ),
    (
        "lambda and comprehensions",
        _GUIDE,
        "the documents do not say which of them the parser takes",
    ),
    (
        "compiler options and environment variables",
        "compiler reference",
        "they are not the kernel's",
    ),
    ("DMA descriptors per ring", "DMA overview", "the size of rings is not published"),
)


def find(kernel: Kernel, sources: Sources) -> Iterator[Finding]:
    """What the compiler of the kernel's generation would refuse in its text."""
    scope = scope_of(kernel, sources)
    if scope is None:
        return
    spelling = kernel.spelling
    if spelling == "nki" and order(kernel.version or NEWEST) > order(_LAST_PARSED):
        return
    seen: set[tuple[str, str]] = set()
    for held, look in _FINDERS[spelling]:
        for node, message, fix in look(scope):
            site = scope.site(node)
            if (held.id, str(site)) not in seen:
                seen.add((held.id, str(site)))
                yield held.finding(message, site, fix=fix)
