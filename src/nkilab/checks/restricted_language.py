"""What the compiler of a generation refuses, or means otherwise, though Python runs it: read from the text.

The compilers of NKI 0.1 to 0.6 parse the kernel and know a part of Python. From 0.7 on kernels are traced by
Python. What Beta 1 makes of loops stands in `traced`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec.structs import replace

from ..dialects.grammar import LAST_PARSED, KindOf, refused, refused_value
from ..dialects.history import order
from ..dialects.kernel import Kernel
from ..migrate.source import Function, names_in
from .declare import COPIED, SCALED, Refusal, Rule, rule
from .finding import Finding, once
from .scope import Scope, parameters, scope_of
from .sources import Sources, tracing_file
from .text_rules import FINDERS, Place, found_by, text_rule
from .traced import GROWS

_DISPLAYS = {
    ast.List: "list", ast.Tuple: "tuple", ast.Dict: "dict", ast.JoinedStr: "str", ast.Compare: "bool",
    ast.Set: "set",
}  # fmt: skip
_SAME = "same"
# of functions and methods by name
_RESULTS = {
    "list": "list", "tuple": "tuple", "dict": "dict", "str": "str", "int": "int", "float": "float",
    "len": "int", "keys": "list", "values": "list", "items": "list", "set": "set", "frozenset": "set",
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


_GUIDE = "NKI language guide"
_UPDATE = "NKI 0.3 update guide"
_DOCUMENTED = Refusal("documented", until=LAST_PARSED)


@text_rule("nki", "kernel-parameters", replace(_DOCUMENTED, since="0.3"),
    title="parameters of a kernel are positional and take tuples",
    what="a kernel has parameters after a bare *, or a list as a default",
    why="the compiler of NKI 0.3 to 0.6 has no keyword-only parameters and no list arguments",
    fix="leave the * out, and write a tuple", source=_UPDATE,
    wrong=replace(COPIED.around("pass"), args={**COPIED.args, "shape=[128, 512]": "f32[1,1]"}),
    right=replace(COPIED.around("pass"), args={**COPIED.args, "shape=(128, 512)": "f32[1,1]"}),
)  # fmt: skip
def _parameters(scope: Scope) -> Iterator[Place]:
    arguments = scope.kernel.args
    if arguments.kwonlyargs and arguments.vararg is None:
        yield scope.kernel, f"{scope.kernel.name} has parameters after *", "leave the * out"
    for default in (*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)):
        if isinstance(default, ast.List):
            yield default, f"{scope.kernel.name} has a list as a default", "write a tuple"


@text_rule("nki", "unsupported-python", _DOCUMENTED,
    title="a kernel uses the part of Python that its front end parses",
    what="a kernel, or a function that it calls, holds a part of Python's grammar that the front ends of "
    "NKI 0.1 to 0.6 refuse, whether it is reached or not; `dialects/grammar.py` has all of them",
    why="these versions read the text of a kernel and specialize it; the simulator runs any Python",
    fix="do it on the host, before the kernel is called",
    source="leanprover/KLR, gather.c and Simplify.lean; device logs of public kernels, NKI 0.3 to 0.6; "
    f"{_GUIDE}", wrong=COPIED.around(SCALED.format("factor(x)"),
                        "def factor(x):\n    if x.shape[0] > 128:\n        raise ValueError\n    return 2.0"),
    right=COPIED.around(SCALED.format("factor(x)"),
                        "def factor(x):\n    assert x.shape[0] <= 128\n    return 2.0\n"),
)  # fmt: skip
def _constructs(scope: Scope) -> Iterator[Place]:
    for node in scope.nodes():
        construct = refused(node, scope.version)
        if construct is not None:
            place = node if hasattr(node, "lineno") else scope.source.parents[node]
            said = f"the build says: {construct.sentence}"
            yield place, f"{construct.words} stands in a kernel; {said}", construct.way_out
    kind_of = kinds(scope)
    places = {n: c for n in scope.nodes() if (c := refused_value(n, kind_of, scope.version)) is not None}
    for node in (n for n in (reached(scope) if places else ()) if n in places):
        said = f"{places[node].words} is reached; the build says: {places[node].sentence}"
        yield node, said, places[node].way_out


@text_rule("nki", "dictionary-key", _DOCUMENTED,
    title="keys of dictionaries are strings", what="a dictionary in a kernel has a key that is no string",
    why="dictionaries of the NKI language have string keys only", fix="use str(key), or a list",
    source=f"{_GUIDE}, values", wrong=("scales = {0: 2.0}", SCALED.format("scales[0]")),
    right=('scales = {"0": 2.0}', SCALED.format('scales["0"]')),
)  # fmt: skip
def _dictionaries(scope: Scope) -> Iterator[Place]:
    kind_of = kinds(scope)
    keys: list[ast.expr | None] = []
    for node in scope.nodes():
        match node:
            case ast.Dict(keys=written):
                keys += written
            case ast.Subscript(value=target, slice=chosen, ctx=ast.Store()) if kind_of(target) == "dict":
                keys.append(chosen)
    for key in keys:
        if key is not None and kind_of(key) not in ("str", ""):
            yield key, f"the key {scope.words(key)} is no string", ""


_BASES = ("NKIObject", "Enum", "IntEnum", "StrEnum", "NamedTuple")


@text_rule("nki", "class-base", _DOCUMENTED, title="classes of a kernel inherit from NKIObject",
    what="a kernel makes an object of a class of its file that inherits neither from NKIObject nor from Enum",
    why="the compiler takes in only classes that are meant for it",
    fix="let the class inherit from nl.NKIObject and nothing else", source=f"{_GUIDE}, class support",
    wrong=COPIED.around(SCALED.format("Scale(2.0).by"),
                        "class Scale:\n    def __init__(self, by):\n        self.by = by\n"),
    right=COPIED.around(SCALED.format("Scale(2.0).by"), "class Scale(nl.NKIObject):\n    by: float = 1.0\n"),
)  # fmt: skip
def _classes(scope: Scope) -> Iterator[Place]:
    classes = {n.name: n for n in scope.source.tree.body if isinstance(n, ast.ClassDef)}
    for name, node in scope.plain_calls():
        class_def = classes.get(name)
        if class_def is not None and not _is_known_class(class_def, classes):
            yield node, f"{class_def.name} does not inherit from NKIObject", ""


def _is_known_class(class_def: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> bool:
    for base in class_def.bases:
        name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
        if name in _BASES or (name in classes and _is_known_class(classes[name], classes)):
            return True
    return False


_FROZEN = (
    "from dataclasses import dataclass\n\n\n@dataclass{}\nclass Scale(nl.NKIObject):\n    by: float = 1.0\n"
)


@text_rule("nki", "frozen-object", Refusal("documented", "", "FrozenInstanceError", until="0.3"),
    title="before NKI 0.4 the front end sets the fields of an object",
    what="a kernel makes an object of a class of its file that is a frozen dataclass",
    why="the front end sets the fields after the object is made", fix="leave frozen=True out",
    source="NKI 0.4 release notes, bug fixes",
    wrong=COPIED.around(SCALED.format("Scale(2.0).by"), _FROZEN.format("(frozen=True)"), ("--nki", "0.3")),
    right=COPIED.around(SCALED.format("Scale(2.0).by"), _FROZEN.format(""), ("--nki", "0.3")),
)  # fmt: skip
def _frozen(scope: Scope) -> Iterator[Place]:
    classes = {n.name: n for n in scope.source.tree.body if isinstance(n, ast.ClassDef)}
    for name, node in scope.plain_calls():
        decorators = classes[name].decorator_list if name in classes else []
        words = (k for d in decorators if isinstance(d, ast.Call) for k in d.keywords if k.arg == "frozen")
        if any(isinstance(k.value, ast.Constant) and k.value.value for k in words):
            yield node, f"{name} is a frozen dataclass", ""


PURE = rule("impure-kernel", "language", "error", title="a kernel depends on its arguments alone",
    what="a kernel reads the clock, the environment, a random generator or a file, or changes its module",
    why="compiled kernels are kept by their arguments: a later call gets what an earlier one saw",
    fix="pass the value as an argument", source=f"{_GUIDE}, kernel caching",
    kernel=COPIED.around(("by = {}", SCALED.format("by")), "import time"),
    wrong="float(time.time() > 0)", right="1.0",
)  # fmt: skip
_OUTSIDE = ("time.", "random.", "numpy.random.", "os.environ", "os.getenv", "datetime.", "secrets.", "uuid.")


@found_by("nki", PURE)
@found_by("neuronxcc", PURE)
def _impure(scope: Scope) -> Iterator[Place]:
    assigned = [n for n in scope.source.tree.body if isinstance(n, ast.Assign)]
    outside = {t.id for n in assigned for t in n.targets if isinstance(t, ast.Name)}
    for node in scope.nodes():
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name) as target, attr=word)) if (
                word in GROWS and name in outside and not _is_local(scope, target)
            ):
                yield node, f"{name}.{word} changes a value of the module", ""
            case ast.Call(func=called) if _asks_host(scope, called):
                yield node, f"{scope.words(called)} is called in a kernel", ""
            case ast.Subscript(value=ast.Name(id=name) as target, ctx=ast.Store()) if (
                name in outside and not _is_local(scope, target)
            ):
                yield node, f"{scope.words(node)} of the module is assigned", ""


def _asks_host(scope: Scope, called: ast.expr) -> bool:
    """Whether a function is the host's clock, environment, random generator, or opens a file."""
    is_open = isinstance(called, ast.Name) and called.id in ("open", "input")
    return is_open or scope.source.dotted(called).startswith(_OUTSIDE)


def _is_local(scope: Scope, name: ast.Name) -> bool:
    """Whether a function around a name has a variable of that name."""
    functions = [a for a in scope.source.around(name) if isinstance(a, Function)]
    return any(name.id in parameters(f) or name.id in names_in(f, stored=True) for f in functions)


@text_rule("nki", "dynamic-exit", _DOCUMENTED,
    title="a loop on the device runs to its end, outside of no_reorder blocks",
    what="break, continue or return stands in a dynamic_range loop, or such a loop in a no_reorder block",
    why="the loop is one hardware loop, whose body runs as often as its register says",
    fix="leave the exit out, or put the no_reorder block into the body of the loop",
    source="dynamic loops guide, interaction with no_reorder; NKI language guide, dynamic control flow",
    wrong=f"with nl.no_reorder():\n    for i in nl.dynamic_range(4):\n        {SCALED.format('2.0')}",
    right=f"for i in nl.dynamic_range(4):\n    {SCALED.format('2.0')}",
)  # fmt: skip
def _exits(scope: Scope) -> Iterator[Place]:
    for loop in scope.loops_over("language.dynamic_range"):
        if any(_keeps_order(scope, around) for around in scope.source.around(loop)):
            yield loop, "a dynamic_range loop stands in a no_reorder block", ""
        exits = [n for n in ast.walk(loop) if isinstance(n, ast.Break | ast.Continue | ast.Return)]
        yield from ((n, f"{type(n).__name__.lower()} stands in a dynamic_range loop", "") for n in exits)


def _keeps_order(scope: Scope, node: ast.AST) -> bool:
    """Whether a node is a no_reorder block."""
    calls = [item.context_expr for item in node.items] if isinstance(node, ast.With) else []
    return any(isinstance(c, ast.Call) and scope.name_of(c.func) == "language.no_reorder" for c in calls)


# Documented rules of the compilers that nothing here looks for: what, where it is told, why it is left out.
NOT_COVERED: tuple[tuple[str, str, str], ...] = (
    ("annotations of local names agree with shapes", "err_annotation_shape_mismatch",
     "Python does not evaluate them"),
    ("a tensor's partition axis is its first", "err_leading_dimension_of_tensor_must_be_partition",
     "only a warning of the compiler for kernels with block axes"),
    ("integers and floats fit into 32 bits", f"{_GUIDE}, values",
     "values of Python in kernels are not followed"),
    ("negative subscripts", "front end of NKI 0.2",
     "which subscript is a tensor's is not known from the text"),
    ("compiler options and environment variables", "compiler reference", "they are not the kernel's"),
    ("functions of other files keep to the same part of Python", _GUIDE,
     "the text of the kernel's own file is read, and no other"),
    ("DMA descriptors per ring", "DMA overview", "the size of rings is not published"),
)  # fmt: skip


def find(kernel: Kernel, sources: Sources, generation: int) -> Iterator[Finding]:
    """What the compiler of the kernel's version would refuse in its text for a generation of chips."""
    scope = scope_of(kernel, sources)
    if scope is None:
        return
    spelling, version = kernel.spelling, scope.version
    if spelling == "nki" and order(version) > order(LAST_PARSED):
        return
    key = (find, scope.kernel, spelling, version, generation)
    if key not in scope.source.kept:
        scope.source.kept[key] = tuple(violations(scope, spelling, version, generation))
    yield from scope.source.kept[key]


def violations(scope: Scope, spelling: str, version: str, generation: int) -> Iterator[Finding]:
    """What a version refuses in the text of a kernel for a generation of chips, 0 for any."""
    for own_rule, look in FINDERS[spelling]:
        if own_rule.refusal is not None and not own_rule.refusal.applies(version, generation):
            continue
        for finding in once(own_rule.finding(said, scope.site(at), fix=fix) for at, said, fix in look(scope)):
            traces = tracing_file(scope.source.path) if _is_of_parser(own_rule) and finding.fails else ""
            yield _as_traced(finding, traces) if traces else finding


def _is_of_parser(own_rule: Rule) -> bool:
    """Whether the front end that parses kernels refuses it; errors with a code come from behind it."""
    refusal = own_rule.refusal
    return refusal is not None and refusal.until == LAST_PARSED and not refusal.code


def _as_traced(finding: Finding, path: str) -> Finding:
    """A finding of the front end that parses, about a kernel that another one may compile."""
    said = f"{path} of its project compiles kernels with TracerFrontend, which runs them as Python"
    return replace(finding, severity="note", certainty="disputed", notes=(*finding.notes, said))
