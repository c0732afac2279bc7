"""Finding forms of writing that no table of names shows."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from ..dialects.grammar import LAST_PARSED, refused
from ..dialects.history import BETA1, at, spelled
from .changes import Find, Place, without
from .source import Edit, Function, Source, Use, compiled
from .tiles import CREATES, Creation, argument, buffer_place, creation_by, tile_of, tiles_of

Node = ast.expr | ast.stmt | ast.keyword
# Whether a rule is about a call, given also the parameters that its function takes by position.
Condition = Callable[[ast.Call, Sequence[str]], bool]


def _calls(source: Source, before: str, *names: str) -> Iterator[tuple[Use, ast.Call]]:
    spelling = "neuronxcc" if before == BETA1 else "nki"
    for use in source.uses:
        if use.call is not None and use.spelling == spelling and (not names or use.name in names):
            yield use, use.call


def keyword_of(call: ast.Call, name: str) -> ast.keyword | None:
    """A keyword of a call, or None."""
    return next((k for k in call.keywords if k.arg == name), None)


# Keywords of nki.jit that are gone together.
_OF_JIT = ("mode", "platform_target")


def jit_keyword(name: str) -> Find:
    """Every use of a keyword of nki.jit."""

    def find(source: Source, before: str) -> Iterator[Place]:
        for _, call in _calls(source, before, "jit"):
            keyword = keyword_of(call, name)
            if keyword is not None:
                yield keyword, f"nki.jit({name}=)", without(source, call, keyword, _OF_JIT)

    return find


def simulate_kernel(source: Source, before: str) -> Iterator[Place]:
    """Calls of nki.simulate_kernel, and the same with nki.simulate."""
    for use, call in _calls(source, before, "simulate_kernel"):
        yield call, "nki.simulate_kernel(...)", _simulated(source, use.node, call)


def _simulated(source: Source, node: ast.expr, call: ast.Call) -> list[Edit]:
    """A call of nki.simulate_kernel as one of nki.simulate, where the text names `nki` and the kernel."""
    root = node.value if isinstance(node, ast.Attribute) else None
    if not call.args or isinstance(call.args[0], ast.Starred) or not isinstance(root, ast.Name):
        return []
    start, _ = source.span(node)
    _, end = source.span(call.args[0])
    following: list[ast.expr | ast.keyword] = [*call.args[1:], *call.keywords]
    if following:
        end = min(source.span(a)[0] for a in following)
    return [Edit(start, end, f"{root.id}.simulate({source.text_of(call.args[0])})(")]


def string_buffers(source: Source, before: str) -> Iterator[Place]:
    """Buffers that are named by a string."""
    for use, call in _calls(source, before, *CREATES):
        buffer = argument(call, "buffer", buffer_place(use.name))
        if isinstance(buffer, ast.Constant) and isinstance(buffer.value, str):
            root = source.text_of(use.node).rpartition(".")[0]
            edits = [Edit(*source.span(buffer), f"{root}.{buffer.value}")] if root else []
            yield buffer, f"buffer={buffer.value!r}", edits


# the names of memories in kernels of NKI 0.1 and 0.2, and the buffer that each becomes; results are in hbm
_MEMORIES = {"sbuf": "sbuf", "psum": "psum", "hbm": "shared_hbm"}


def memory_names(source: Source, before: str) -> Iterator[Place]:
    """Uses of the names sbuf, psum and hbm that the file neither imports nor makes."""
    names = [n for n in source.nodes(ast.Name) if n.id in _MEMORIES]
    bound_names = {n.id for n in names if isinstance(n.ctx, ast.Store)} | source.bindings.keys()
    bound_names |= {a.arg for a in source.nodes(ast.arg)}
    alias = next((name for name, dotted in source.bindings.items() if dotted == "nki.language"), "")
    for node in (n for n in names if n.id not in bound_names):
        parent = source.parents[node]
        call = source.parents.get(parent)
        if isinstance(parent, ast.Attribute) and parent.attr == "view" and isinstance(call, ast.Call):
            yield call, f"{node.id}.view(...)", _as_ndarray(source, call, f"{alias}.{_MEMORIES[node.id]}")
        else:
            yield node, node.id, [Edit(*source.span(node), f"{alias}.{_MEMORIES[node.id]}")] if alias else []


def _as_ndarray(source: Source, call: ast.Call, buffer: str) -> list[Edit]:
    """A call of view as one of nl.ndarray, where the file imports nki.language and the call says enough."""
    alias = buffer.partition(".")[0]
    arguments = dict(zip(("dtype", "shape", "name"), call.args, strict=False))
    arguments |= {k.arg or "": k.value for k in call.keywords}
    if not alias or not {"dtype", "shape"} <= arguments.keys() <= {"dtype", "shape", "name"}:
        return []
    words = [source.text_of(arguments["shape"]), source.text_of(arguments["dtype"]), f"buffer={buffer}"]
    words += [f"name={source.text_of(arguments['name'])}"] if "name" in arguments else []
    return [Edit(*source.span(call), f"{alias}.ndarray({', '.join(words)})")]


_MEMBERS = {
    "dge_mode": ("unknown", "swdge", "hwdge", "none"),
    "engine": ("unknown", "tensor", "scalar", "gpsimd", "dma", "vector", "sync"),
    "oob_mode": ("error", "skip"),
    "reduce_cmd": ("idle", "reset", "reduce", "reset_reduce", "load_reduce"),
}
# Beta 1 numbers this one from the other end.
_BETA1_DGE = ("none", "swdge", "hwdge", "unknown")


def integer_enums(source: Source, before: str) -> Iterator[Place]:
    """Numbers where a member of an enumeration of nki.isa is meant."""
    for use, call in _calls(source, before):
        if not use.name.startswith("isa."):
            continue
        root = source.text_of(use.node).rpartition(".")[0]
        for keyword, number, word in _members(call, before):
            edits = [Edit(*source.span(keyword.value), f"{root}.{word}")] if root else []
            yield keyword, f"{keyword.arg}={number} is {word}", edits


def _members(call: ast.Call, before: str) -> Iterator[tuple[ast.keyword, int, str]]:
    """Keywords of a call that give a member of an enumeration as a number, the number, and the member."""
    for keyword in call.keywords:
        number = _number(keyword.value)
        if keyword.arg not in _MEMBERS or not isinstance(number, int):
            continue
        members = _BETA1_DGE if before == BETA1 and keyword.arg == "dge_mode" else _MEMBERS[keyword.arg]
        if 0 <= number < len(members):
            yield keyword, number, f"{keyword.arg}.{members[number]}"


def _number(node: ast.expr | None) -> int | float | None:
    """The value of a number that is written out; True and False are none."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def results_in_hbm(source: Source, before: str) -> Iterator[Place]:
    """Results of kernels that do not lie in shared HBM."""
    for function in source.kernels:
        for name, creation, buffer in _returned_from_private(source, function):
            text = source.text_of(buffer)
            head = text[: -len(creation.memory)] if text.endswith(creation.memory) else ""
            edits = [Edit(*source.span(buffer), f"{head}shared_hbm")] if head else []
            yield creation.call, f"{name} is returned and lies in {creation.memory}", edits


def _returned_from_private(source: Source, function: Function) -> Iterator[tuple[str, Creation, ast.expr]]:
    """The tiles in private HBM that a function creates and returns, with the buffers that they are given."""
    returns = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    names = {n.id for value in returns for n in ast.walk(value) if isinstance(n, ast.Name)}
    for name, creation in tiles_of(source, function).items():
        is_private = creation.memory in ("hbm", "private_hbm")
        if name not in names or not is_private or creation.creator not in CREATES:
            continue
        buffer = argument(creation.call, "buffer", buffer_place(creation.creator))
        if buffer is not None:
            yield name, creation, buffer


def psum_zeros(source: Source, before: str) -> Iterator[Place]:
    """Products into a PSUM tile that was given values."""
    for use, call in _calls(source, before, "isa.nc_matmul", "isa.nc_matmul_mx"):
        dst = argument(call, "dst", 0)
        creation = tile_of(source, dst) if dst is not None else None
        is_set = creation is not None and creation.memory == "psum" and creation.creator != "language.ndarray"
        if (
            is_set
            and creation is not None
            and creation.creator in CREATES
            and keyword_of(call, "accumulate") is None
        ):
            yield call, f"{spelled(use.name)} into a PSUM tile of {spelled(creation.creator)}", ()


_PRODUCTS = ("isa.nc_matmul", "language.matmul")


def added_matmul(source: Source, before: str) -> Iterator[Place]:
    """Products that are added with +=."""
    for node in source.nodes(ast.AugAssign):
        product = creation_by(source, node.value)
        if isinstance(node.op, ast.Add) and product is not None and product.creator in _PRODUCTS:
            yield node, f"+= {spelled(product.creator)}(...)", ()


_WORDS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.MatMult: "@", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.FloorDiv: "//",
}  # fmt: skip


def unparsed(source: Source, before: str) -> Iterator[Place]:
    """What front ends do not parse, in kernels and the functions that they call."""
    kernels = sorted(source.kernels, key=lambda function: function.lineno)
    nodes = dict.fromkeys(n for f in source.reached_from(kernels) for n in compiled(f))
    for node in nodes:
        construct = refused(node, LAST_PARSED)
        if construct is not None and isinstance(node, ast.expr | ast.stmt):
            yield node, f"{construct.words}; {construct.way_out}", ()


def operators(source: Source, before: str) -> Iterator[Place]:
    """Python's operators on tiles."""
    for node in ast.walk(source.tree):
        match node:
            case ast.BinOp() if any(tile_of(source, side) is not None for side in (node.left, node.right)):
                yield node, f"the operator {_WORDS[type(node.op)]} on a tile", ()
            case ast.AugAssign() if _changes_tile(source, node):
                yield node, f"the operator {_WORDS[type(node.op)]}= on a tile", ()
            case ast.Compare() if _compares_tiles(source, node):
                yield node, "a comparison of a tile", ()


def _changes_tile(source: Source, node: ast.AugAssign) -> bool:
    """Whether a tile is the target, and not of a product, which `added_matmul` finds."""
    value = creation_by(source, node.value)
    return tile_of(source, node.target) is not None and (value is None or value.creator not in _PRODUCTS)


def _compares_tiles(source: Source, node: ast.Compare) -> bool:
    sides = pairwise((node.left, *node.comparators))
    return any(
        tile_of(source, side) is not None
        for op, both in zip(node.ops, sides, strict=True)
        if not isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn)
        for side in both
    )


def assigned_parts(source: Source, before: str) -> Iterator[Place]:
    """Assignments to a part of a tile of what is no instruction."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Subscript):
            continue
        creation = tile_of(source, node.targets[0])
        value = creation_by(source, node.value)
        if creation is not None and (value is None or not value.creator.startswith("isa.")):
            yield node, "an assignment to a part of a tile", ()


def integer_rows(source: Source, before: str) -> Iterator[Place]:
    """Integers on the first axis of on-chip tiles."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
            continue
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        creation = tile_of(source, node) if isinstance(node.value, ast.Name) else None
        is_whole = isinstance(first, ast.Constant) and type(first.value) is int
        if creation is not None and creation.is_on_chip and creation.creator in CREATES and is_whole:
            yield node, f"{source.words_of(node)} takes one row of an on-chip tile", ()


def reduce_axis(source: Source, before: str) -> Iterator[Place]:
    """Reductions over axis 1 of what may have more than two axes."""
    for _, call in _calls(source, before, "isa.tensor_reduce"):
        axis, data = argument(call, "axis", 3), argument(call, "data", 2)
        creation = tile_of(source, data) if data is not None else None
        is_one = isinstance(axis, ast.Constant) and axis.value == 1
        if is_one and (creation is None or creation.rank != 2):
            yield call, "nisa.tensor_reduce(..., axis=1)", ()


def named(name: str, condition: Condition = lambda call, positional: True) -> Find:
    """Every call of a function for which a condition holds."""

    def find(source: Source, before: str) -> Iterator[Place]:
        event = at(name, before)
        positional = event.signature.positional if event is not None else ()
        for use, call in _calls(source, before, name):
            if condition(call, positional):
                yield call, f"{spelled(use.name)}(...)", ()

    return find


_BINARY = (
    "add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "equal", "not_equal", "greater",
    "greater_equal", "less", "less_equal", "bitwise_and", "bitwise_or", "bitwise_xor",
)  # fmt: skip


def binary_functions(source: Source, before: str) -> Iterator[Place]:
    """Calls of functions of two tiles."""
    for use, call in _calls(source, before, *(f"language.{n}" for n in _BINARY)):
        yield call, f"{spelled(use.name)}(...)", ()


def no_hardware(source: Source, before: str) -> Iterator[Place]:
    """Calls of functions that no instruction computes."""
    for use, call in _calls(source, before, "language.divide", "language.mod", "language.fmod"):
        yield call, f"{spelled(use.name)}(...)", ()


def is_not_true(parameter: str) -> Condition:
    """A condition: the parameter is not given as True."""

    def holds(call: ast.Call, positional: Sequence[str]) -> bool:
        passed_value = _argument_of(call, parameter, positional)
        return not (isinstance(passed_value, ast.Constant) and passed_value.value is True)

    return holds


def is_number(parameter: str) -> Condition:
    """A condition: the parameter is given as a number."""
    return lambda call, positional: _number(_argument_of(call, parameter, positional)) is not None


def dma_from_psum(source: Source, before: str) -> Iterator[Place]:
    """Transfers out of PSUM."""
    for _, call in _calls(source, before, "isa.dma_copy"):
        src = argument(call, "src", 1)
        creation = tile_of(source, src) if src is not None else None
        if creation is not None and creation.memory == "psum":
            yield call, "nisa.dma_copy from a PSUM tile", ()


def memset_types(source: Source, before: str) -> Iterator[Place]:
    """Floats that integer tiles are filled with."""
    for _, call in _calls(source, before, "isa.memset"):
        dst, value = argument(call, "dst", 0), argument(call, "value", 1)
        creation = tile_of(source, dst) if dst is not None else None
        number = _number(value)
        if creation is None or value is None or not creation.dtype.startswith(("int", "uint")):
            continue
        if isinstance(number, float):
            edits = [Edit(*source.span(value), str(int(number)))] if number.is_integer() else []
            yield call, f"nisa.memset of {creation.dtype} with {number}", edits


def par_dim(source: Source, before: str) -> Iterator[Place]:
    """Marks of the partition axis."""
    for _, call in _calls(source, before, "language.par_dim"):
        edits = []
        if len(call.args) == 1 and not call.keywords:
            edits = [Edit(*source.span(call), source.text_of(call.args[0]))]
        yield call, "nl.par_dim(...)", edits


def block_axes(source: Source, before: str) -> Iterator[Place]:
    """Tiles with axes in front of the partition axis."""
    for _, call in _calls(source, before, *CREATES):
        shape = argument(call, "shape", 0)
        following = shape.elts[1:] if isinstance(shape, ast.Tuple) else []
        change: Place = (call, "a tile with axes before its partition axis", ())
        yield from (change for extent in following if _is_par_dim(source, extent))


def _is_par_dim(source: Source, extent: ast.expr) -> bool:
    resolved = source.resolve(extent.func) if isinstance(extent, ast.Call) else None
    return resolved is not None and resolved[1] == "language.par_dim"


def wide_grids(source: Source, before: str) -> Iterator[Place]:
    """Launches on other grids than one or two cores."""
    names = {f.name for f in source.kernels}
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Subscript):
            continue
        kernel, grid = node.func.value, node.func.slice
        is_lnc = isinstance(grid, ast.Constant) and grid.value in (1, 2)
        if isinstance(kernel, ast.Name) and kernel.id in names and not is_lnc:
            yield node, f"the grid {source.words_of(grid)}", ()


def inner_kernels(source: Source, before: str) -> Iterator[Place]:
    """Kernels that kernels call."""
    names = {f.name for f in source.kernels}
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or source.function_of(node) not in source.kernels:
            continue
        if isinstance(node.func, ast.Name) and node.func.id in names:
            yield node, f"{node.func.id} is a kernel called in a kernel", ()


def keyword_only(source: Source, before: str) -> Iterator[Place]:
    """Kernels with parameters after *."""
    for function in source.kernels:
        if function.args.kwonlyargs and function.args.vararg is None:
            yield function, f"{function.name} has parameters after *", ()


def identity(source: Source, before: str) -> Iterator[Place]:
    """Comparisons with `is` in kernels."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Compare) or source.function_of(node) not in source.kernels:
            continue
        if any(isinstance(o, ast.Is | ast.IsNot) for o in node.ops):
            yield node, source.words_of(node), ()


def list_defaults(source: Source, before: str) -> Iterator[Place]:
    """Lists as defaults of parameters of kernels."""
    for function in source.kernels:
        defaults = (*function.args.defaults, *function.args.kw_defaults)
        for default in (d for d in defaults if isinstance(d, ast.List)):
            start, end = source.span(default)
            comma = "," if len(default.elts) == 1 else ""
            edits = [Edit(start, start + 1, "("), Edit(end - 1, end, f"{comma})")]
            yield default, f"{function.name} has a list as a default", edits


def reads_registers(source: Source, before: str) -> Iterator[Place]:
    """Loops whose condition is a register."""
    registers = _registers(source)
    for loop in source.nodes(ast.While):
        test = loop.test
        if isinstance(test, ast.Name) and test.id in registers.get(source.function_of(test), ()):
            yield test, f"while {test.id}", ()


def _registers(source: Source) -> dict[Function | None, set[str]]:
    """The names of registers that each function allocates."""
    register_names: dict[Function | None, set[str]] = {}
    for node in source.nodes(ast.Assign):
        resolved = source.resolve(node.value.func) if isinstance(node.value, ast.Call) else None
        if resolved is not None and resolved[1] == "isa.register_alloc":
            names = {t.id for t in node.targets if isinstance(t, ast.Name)}
            register_names.setdefault(source.function_of(node), set()).update(names)
    return register_names


def deprecated(name: str) -> Find:
    """Every use of a name."""

    def find(source: Source, before: str) -> Iterator[Place]:
        spelling = "neuronxcc" if before == BETA1 else "nki"
        for use in source.uses:
            if use.name == name and use.spelling == spelling:
                yield use.node, spelled(name), ()

    return find


def is_given(parameter: str) -> Condition:
    """A condition: the parameter is given, by keyword or position."""
    return lambda call, positional: _argument_of(call, parameter, positional) is not None


def is_left_out(parameter: str) -> Condition:
    """A condition: the parameter is given neither by keyword nor by position."""
    return lambda call, positional: _argument_of(call, parameter, positional) is None


def _argument_of(call: ast.Call, parameter: str, positional: Sequence[str]) -> ast.expr | None:
    return argument(call, parameter, positional.index(parameter) if parameter in positional else -1)
