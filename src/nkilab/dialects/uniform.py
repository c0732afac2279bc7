"""Loops of which every iteration is the same function of its index, as far as the user's text tells.

Such a loop carries no variable from one iteration to the next, changes no object that outlives an iteration,
and calls nothing but functions of NKI, a few of Python's, and functions of the user's of which the same holds.
Only a few kinds of statements and values are known here; a loop with any other is not one of these.
"""

from __future__ import annotations

import ast
import builtins
import dis
import linecache
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, pairwise
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from ..arrays import framework_of
from ..tiles.tile import PSUM, Storage, View
from ..trace.repeats import Affine
from ..trace.source import is_users
from .kernel import Kernel

# functions of Python's that change nothing and go by what they are given
BUILTINS = {f.__name__: f for f in (
    abs, all, any, bool, divmod, enumerate, float, int, len, list, max, min, range, reversed, round, slice,
    str, sum, tuple, zip,
)}  # fmt: skip
# and these of what a kernel may run twice
SILENT = {*BUILTINS, *(n for n, v in vars(builtins).items() if isinstance(v, type) and issubclass(v, Exception)),
          "callable", "chr", "complex", "dict", "filter", "frozenset", "getattr", "hasattr", "hash", "id",
          "isinstance", "issubclass", "iter", "map", "next", "ord", "pow", "repr", "set", "sorted", "type",
          "format", "bytes", "object"}  # fmt: skip
SILENT_MODULES = {"nki", "numpy", "math", "operator", "itertools", "functools", "ml_dtypes"}
# methods of tensors, which make views
METHODS = {"ap", "broadcast", "expand_dim", "flatten_dims", "permute", "rearrange", "reshape", "reshape_dim", "select",
           "slice", "squeeze_dim", "view"}  # fmt: skip
RANGES = ("affine_range", "range", "sequential_range", "static_range")
MODULES = ("nki.language", "nki.isa")
# names of these modules that do more than make tiles and rows
REFUSED = {
    "VirtualRegister", "core_barrier", "device_print", "dropout", "dynamic_range", "fori_loop", "no_reorder",
    "ptr", "rand", "random_seed", "rng", "sendrecv", "shared_constant", "shared_identity_matrix", "while_loop",
}  # fmt: skip
STATEMENTS = (ast.Assign, ast.Expr, ast.For, ast.If, ast.Pass, ast.Return)
EXPRESSIONS = (
    ast.Attribute, ast.BinOp, ast.BoolOp, ast.Call, ast.Compare, ast.Constant, ast.FormattedValue,
    ast.GeneratorExp, ast.IfExp, ast.JoinedStr, ast.List, ast.ListComp, ast.Name, ast.Slice, ast.Subscript,
    ast.Tuple, ast.UnaryOp,
)  # fmt: skip
PARTS = (
    ast.arg, ast.arguments, ast.boolop, ast.cmpop, ast.comprehension, ast.expr_context, ast.keyword,
    ast.operator, ast.unaryop,
)  # fmt: skip
# values that nobody changes, and that say what they are
NUMBERS = (int, float, str, bool, type(None))
# what makes it unclear which statements of a function follow each other, or what its names are
UNCLEAR = (
    ast.AsyncFor, ast.AsyncFunctionDef, ast.AsyncWith, ast.Await, ast.Break, ast.ClassDef, ast.Continue,
    ast.Delete, ast.FunctionDef, ast.Global, ast.Lambda, ast.Match, ast.NamedExpr, ast.Nonlocal, ast.Try, ast.While, ast.With, ast.Yield, ast.YieldFrom,
)  # fmt: skip


@dataclass(frozen=True)
class Text:
    """What some statements use.

    Args:
        names: variables of the function that they read.
        outer: names beyond the function, and what of modules: "nl.affine_range" as ("nl", "affine_range").
    """

    names: frozenset[str]
    outer: frozenset[tuple[str, ...]]


@dataclass
class Function:
    """A function's loops that qualify by its text, by the place of what they run over, and itself if it does."""

    loops: dict[tuple[int | None, ...], Text] = field(default_factory=dict)
    whole: Text | None = None


def shared_by(frame: FrameType) -> list[Storage] | None:
    """What the iterations of the loop that begins in a frame share of tiles; None if it does not qualify."""
    place = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    function = _function(frame.f_code)
    text = None if function is None else function.loops.get(tuple(place))
    if text is None or not _are_harmless(text.outer, frame.f_globals, frame.f_builtins, set()):
        return None
    held = frame.f_locals
    found: list[Storage] = []
    known = (held[name] for name in text.names if name in held)
    return found if all(_is_plain(value, found) for value in known) else None


def _is_plain(value: Any, found: list[Storage]) -> bool:
    """Whether a value is a number, a tensor or a list of such; storages of tensors are added to a list."""
    kind = type(value)
    if isinstance(value, View):
        found.append(value.storage)
        return not value.indices
    if kind is list or kind is tuple:
        return all(_is_plain(part, found) for part in value)
    return kind in NUMBERS or kind is Affine or kind.__name__ == "LoopIndex"


def only_goes_through_ranges(code: CodeType) -> bool:
    """Whether each `range` in a function's text is what a `for` runs over."""
    node = _functions(code.co_filename).get((code.co_name, code.co_firstlineno), (None, None))
    if node[0] is None or node[1] != code:
        return False
    loops = [n.iter for n in ast.walk(node[0]) if isinstance(n, ast.For) and isinstance(n.iter, ast.Call)]
    named = sum(isinstance(n, ast.Name) and n.id == "range" for n in ast.walk(node[0]))
    through = sum(isinstance(n.func, ast.Name) and n.func.id == "range" and not n.keywords for n in loops)
    return 0 < named == through


def takes_evenly(frame: FrameType, index: Affine) -> bool:
    """Whether a frame is about to take tiles by an index out of a list of evenly numbered ones.

    The list is a variable of the frame or in one, and a slice has as many in every iteration.
    """
    place = tuple(next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)))
    base, is_slice = _subscripts(frame.f_code).get(place, (None, False))
    tiles = None if base is None else _held(base, frame.f_locals)
    repeats = next(iter(index.terms)).repeats
    low, high = index.bounds
    if not _are_even(tiles) or low < 0 or high >= len(tiles) + is_slice:
        return False
    begun, repeats.begun = repeats.begun, None
    if not is_slice:
        return begun is None
    if begun is None:
        repeats.begun = (frame, frame.f_lasti, index)
        return True
    count = index - begun[2]
    return begun[:2] == (frame, frame.f_lasti) and type(count) is int and count > 0


def _held(node: ast.expr, names: dict[str, Any]) -> Any:
    """The list that a variable holds, or that lies in such a list; None for anything else."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name | ast.Constant):
        lists = _held(node.value, names)
        at = names.get(node.slice.id) if isinstance(node.slice, ast.Name) else node.slice.value
        if type(lists) in (list, tuple) and type(at) is not Affine and isinstance(at, int):
            return lists[at]
    return None


def _are_even(tiles: Any) -> bool:
    """Whether a list holds tiles alike, each as far from the last one in number and offset, none in PSUM.

    Of a list of lists that is asked of those that stand at the same place in each.
    """
    if type(tiles) not in (list, tuple) or not tiles:
        return False
    first = tiles[0]
    if any(type(t) is not type(first) for t in tiles):
        return False
    if type(first) in (list, tuple):
        return all(len(t) == len(first) for t in tiles) and all(map(_are_even, zip(*tiles, strict=True)))
    if not isinstance(first, View) or first.layout.indices or first.layout.memory == PSUM:
        return False
    kinds = {(t.layout, t.storage.shape, t.storage.dtype, t.storage.is_mutable, t.storage.place) for t in tiles}
    places = [(t.storage.number, t.offset) for t in tiles]
    steps = {(n - m, o - p) for (m, p), (n, o) in pairwise(places)}
    return len(kinds) == 1 and len(steps) <= 1 and first.storage.place is None


@lru_cache(maxsize=512)
def _subscripts(code: CodeType) -> dict[tuple[int | None, ...], tuple[ast.expr, bool]]:
    """Subscripts in a function's file, by place: of what, and whether they are slices."""
    tree, codes = _read_file(code.co_filename)
    if code not in codes:
        return {}
    return {
        (n.lineno, n.end_lineno, n.col_offset, n.end_col_offset): (n.value, isinstance(n.slice, ast.Slice))
        for n in ast.walk(tree)
        if isinstance(n, ast.Subscript) and _is_even(n.slice)
    }


def _is_even(key: ast.expr) -> bool:
    """Whether a subscript is no slice, or one with both ends and no step."""
    return not isinstance(key, ast.Slice) or None not in (key.lower, key.upper) and key.step is None


def _are_harmless(
    outer: Iterable[tuple[str, ...]], names: dict[str, Any], own_builtins: Any, under_way: set[CodeType]
) -> bool:
    """Whether everything beyond a function that it names changes nothing."""
    for name, *members in outer:
        is_builtin = name in BUILTINS and own_builtins.get(name) is BUILTINS[name]
        if is_builtin and (name not in names or name == "range"):
            # what stands for `range` is `loops.PlainRange`: `can_start_again` knows no other
            continue
        if name in names:
            held = names[name]
        else:
            return False
        if members:
            is_known = type(held).__module__.startswith("nkilab.") or type(held) is ModuleType
            if not (is_known and getattr(held, "__name__", "") in MODULES) or members[0] in REFUSED:
                return False
        elif not _is_harmless(held, under_way):
            return False
    return True


def _is_harmless(held: Any, under_way: set[CodeType]) -> bool:
    """Whether a value beyond a function is a number, or a function that changes nothing."""
    if type(held) is tuple:
        return all(_is_harmless(part, under_way) for part in held)
    if type(held) is Kernel and not held.grid:
        held = held.function
    if type(held) is not FunctionType:
        return type(held) in NUMBERS
    code = held.__code__
    if code in under_way:
        return True
    function = _function(code)
    given = (*(held.__defaults__ or ()), *(held.__kwdefaults__ or {}).values())
    if function is None or function.whole is None or held.__closure__ or not all(map(_is_constant, given)):
        return False
    return _are_harmless(
        function.whole.outer, held.__globals__, held.__builtins__, {*under_way, code}  # type: ignore[attr-defined]
    )


def _is_constant(value: Any) -> bool:
    return type(value) in NUMBERS or (type(value) is tuple and all(map(_is_constant, value)))


def can_start_again(function: Any, given: Sequence[Any]) -> bool:
    """Whether nobody notices that a kernel runs more than once: it prints nothing, and keeps nothing.

    Args:
        function: the kernel's.
        given: its arguments, of which it may change lists and other objects.
    """
    if type(function) is not FunctionType or function.__closure__:
        return False
    is_fixed = all(type(v) in NUMBERS or framework_of(v) for v in given)
    return is_fixed and _is_silent(function, set())


def _is_silent(function: FunctionType, under_way: set[CodeType]) -> bool:
    code = function.__code__
    if code in under_way:
        return True
    under_way.add(code)
    given = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    if function.__closure__ or not all(map(_is_constant, given)) or _stores_outside(code):
        return False
    for name in {name for own in _codes(code) for name in own.co_names}:
        if name not in function.__globals__:
            if hasattr(builtins, name) and name not in SILENT:
                return False
            continue
        held = function.__globals__[name]
        held = held.function if type(held) is Kernel else held
        if isinstance(held, ModuleType):
            if held.__name__.partition(".")[0] not in SILENT_MODULES:
                return False
        elif type(held) is FunctionType:
            if is_users(held.__code__) and not _is_silent(held, under_way):
                return False
        elif not (_is_constant(held) or type(held).__module__.startswith("nkilab.")):
            return False
    return True


@lru_cache(maxsize=512)
def _stores_outside(code: CodeType) -> bool:
    """Whether a function gives names of its module, or attributes of objects, new values."""
    words = {i.opname for own in _codes(code) for i in dis.get_instructions(own)}
    return bool(words & {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "STORE_NAME"})


@lru_cache(maxsize=512)
def _function(code: CodeType) -> Function | None:
    """What qualifies of a function, if its text is at hand and is that of its code."""
    known = _functions(code.co_filename).get((code.co_name, code.co_firstlineno))
    if known is None or known[1] != code:
        return None
    node = known[0]
    if any(isinstance(part, UNCLEAR) for part in ast.walk(node) if part is not node):
        return None
    return _Reader(code).read(node)


@lru_cache(maxsize=64)
def _functions(filename: str) -> dict[tuple[str, int], tuple[ast.FunctionDef, CodeType]]:
    """The functions of a file by name and first line, as trees and as code."""
    tree, codes = _read_file(filename)
    known = {(c.co_name, c.co_firstlineno): c for c in codes}
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if (node.name, first) in known:
                found[node.name, first] = (node, known[node.name, first])
    return found


@lru_cache(maxsize=64)
def _read_file(filename: str) -> tuple[ast.Module, frozenset[CodeType]]:
    """The tree of a file and all code in it; of none that is at hand and Python's."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
        return tree, frozenset(_codes(compile(tree, filename, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return ast.Module([], []), frozenset()


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for held in code.co_consts:
        if isinstance(held, CodeType):
            yield from _codes(held)


class _Reader:
    """Reads one function: which variables are alive where, and which loops qualify."""

    def __init__(self, code: CodeType) -> None:
        self.own = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
        self.found = Function()

    def read(self, node: ast.FunctionDef) -> Function:
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        self.before(body, set())
        if not node.args.vararg and not node.args.kwarg:
            self.found.whole = self.text_of(body, may_return=True)
        return self.found

    def before(self, body: Sequence[ast.stmt], live: set[str]) -> set[str]:
        """The variables that are read after a place before they are written, from those alive at the end."""
        for statement in reversed(body):
            live = self.over(statement, live)
        return live

    def over(self, node: ast.stmt, live: set[str]) -> set[str]:
        match node:
            case ast.For():
                return self.over_loop(node, live)
            case ast.If():
                return self.before(node.body, live) | self.before(node.orelse, live) | _read(node.test)
            case ast.Return():
                return _read(node)
            case ast.Assign() if all(isinstance(t, ast.Name | ast.Tuple) for t in node.targets):
                return (live - _written(*node.targets)) | _read(node.value)
            case _:
                # what is written here may be alive before, too
                return live | _read(node) | _written(node)

    def over_loop(self, node: ast.For, live: set[str]) -> set[str]:
        target = _written(node.target)
        head = set(live) | (self.before(node.orelse, live) if node.orelse else set())
        while True:
            wider = head | (self.before(node.body, head) - target)
            if wider == head:
                break
            head = wider
        carried = head & (_written(*node.body) | target)
        text, run = None, node.iter
        if not carried and not node.orelse and isinstance(node.target, ast.Name) and _is_range(run):
            text = self.text_of(node.body, may_return=False)
        for part in (node, run):
            # versions of Python differ in the place of the step that asks for the first iteration
            place = (part.lineno, part.end_lineno, part.col_offset, part.end_col_offset)
            # a loop within another one is read until nothing changes: the last time counts
            self.found.loops.pop(place, None)
            if text is not None:
                self.found.loops[place] = text
        return head | _read(run)

    def text_of(self, body: Sequence[ast.stmt], *, may_return: bool) -> Text | None:
        """What statements use; None if one is of no known kind."""
        outer: set[tuple[str, ...]] = set()
        names: set[str] = set()
        inner: set[str] = set()
        nodes = [node for statement in body for node in ast.walk(statement)]
        for node in nodes:
            if isinstance(node, ast.comprehension):
                inner |= _written(node.target)
        for node in nodes:
            match node:
                case ast.Return() if not may_return:
                    return None
                case ast.Assign() if not all(map(_is_name, node.targets)):
                    return None
                case ast.For() if node.orelse or not _is_name(node.target):
                    return None
                case ast.Call() if not self.is_call(node, inner):
                    return None
                case ast.Name():
                    if node.id in self.own or node.id in inner:
                        names.add(node.id)
                    else:
                        outer.add((node.id,))
                case ast.stmt() if not isinstance(node, STATEMENTS):
                    return None
                case ast.expr() if not isinstance(node, EXPRESSIONS):
                    return None
                case ast.AST() if not isinstance(node, (*STATEMENTS, *EXPRESSIONS, *PARTS)):
                    return None
        outer = self.with_members(nodes, outer)
        return Text(frozenset(names), frozenset(outer))

    def with_members(self, nodes: Sequence[ast.AST], outer: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
        """Outer names, with what is taken of them in the place of those that stand only before a dot."""
        roots = [n.value for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
        plain = {id(node) for node in roots}
        bare = {n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in plain}
        members = {
            (n.value.id, n.attr)
            for n in nodes
            if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and (n.value.id,) in outer
        }
        return {names for names in outer if names[0] in bare} | members

    def is_call(self, node: ast.Call, inner: set[str]) -> bool:
        """Whether a call is of a name beyond the function, of a member of one, or of a method of tensors."""
        called = node.func
        if isinstance(called, ast.Name):
            return called.id not in self.own and called.id not in inner
        if not isinstance(called, ast.Attribute):
            return False
        root = called.value
        if isinstance(root, ast.Name) and root.id not in self.own and root.id not in inner:
            return True
        return called.attr in METHODS


def _is_range(node: ast.expr) -> bool:
    """Whether a loop runs over a range itself, and not over what something makes of one."""
    called = node.func if isinstance(node, ast.Call) else node
    return getattr(called, "attr", getattr(called, "id", "")) in RANGES


def _is_name(node: ast.expr) -> bool:
    """Whether a target is a name, or a tuple of names."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Tuple) and all(map(_is_name, node.elts)))


def _read(node: ast.AST) -> set[str]:
    """The names that are read, but for those that comprehensions make for themselves."""
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    found: set[str] = set().union(*map(_read, ast.iter_child_nodes(node)))
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        # what the first of them runs over is read outside
        found -= _written(*(g.target for g in node.generators))
        found |= _read(node.generators[0].iter)
    return found


def _written(*nodes: ast.AST) -> set[str]:
    return {
        n.id for node in nodes for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }  # fmt: skip
