"""Loops and functions of a user's text that consist of known kinds of statements alone."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from types import CodeType

from msgspec import Struct, field
from msgspec.structs import replace

# methods of tensors, which make views
METHODS = {
    "ap", "astype", "broadcast", "broadcast_to", "expand_dim", "expand_dims", "flatten_dims", "permute",
    "rearrange", "reshape", "reshape_dim", "select", "slice", "squeeze_dim", "view",
}  # fmt: skip
# members of tensors, which are those of others that are alike, and of index grids
MEMBERS = {"dtype", "ndim", "p", "shape", "size", "strides", "x", "y"}
RANGES = ("affine_range", "range", "sequential_range", "static_range")
# kinds of nodes of which nothing is asked, and all that are known
PARTS = (ast.boolop, ast.cmpop, ast.expr_context, ast.operator, ast.unaryop)
PLAIN = {
    *(kind for part in PARTS for kind in part.__subclasses__()), ast.BinOp, ast.BoolOp, ast.Constant,
    ast.Expr, ast.FormattedValue, ast.GeneratorExp, ast.If, ast.IfExp, ast.JoinedStr, ast.List, ast.ListComp,
    ast.Pass, ast.Slice, ast.Subscript, ast.Tuple, ast.UnaryOp, ast.arg, ast.arguments, ast.comprehension,
    ast.keyword,
}  # fmt: skip
KINDS = {
    *PLAIN,
    ast.Assign,
    ast.Attribute,
    ast.AugAssign,
    ast.Call,
    ast.Compare,
    ast.For,
    ast.Name,
    ast.Return,
}
# what makes it unclear which statements of a function follow each other, or what its names are
UNCLEAR = {
    ast.AsyncFor, ast.AsyncFunctionDef, ast.AsyncWith, ast.Await, ast.Break, ast.ClassDef, ast.Continue,
    ast.Delete, ast.FunctionDef, ast.Global, ast.Lambda, ast.Match, ast.NamedExpr, ast.Nonlocal, ast.Try,
    ast.TryStar, ast.While, ast.With, ast.Yield, ast.YieldFrom,
}  # fmt: skip


class Text(Struct, frozen=True):
    """What some statements use."""

    names: frozenset[str]  # variables of the function
    outer: frozenset[tuple[str, ...]]  # names beyond it, with what of their modules
    sets_items: bool  # whether they set items of variables, or add to these in place
    added_to: frozenset[str] = frozenset()  # variables that every iteration adds to


# what is read before it is written, and what is written whatever was there
Effect = tuple[set[str], set[str]]


class Function(Struct):
    """Those of a function's loops that qualify, by place, and the function itself if it does."""

    loops: dict[tuple[int | None, ...], Text] = field(default_factory=dict)
    whole: Text | None = None


@lru_cache(maxsize=512)
def function_of(code: CodeType) -> Function | None:
    """What qualifies of a function, if its text is at hand and is that of its code."""
    known = functions_of(code.co_filename).get((code.co_name, code.co_firstlineno))
    if known is None or known[1] != code:
        return None
    node = known[0]
    if not UNCLEAR.isdisjoint(type(part) for part in nodes_of(node) if part is not node):
        return None
    return _Reader(code).read(node)


@lru_cache(maxsize=64)
def functions_of(filename: str) -> dict[tuple[str, int], tuple[ast.FunctionDef, CodeType]]:
    """The functions of a file by name and first line, as trees and as code."""
    tree, codes = read_file(filename)
    known = {(c.co_name, c.co_firstlineno): c for c in codes}
    functions = {}
    for node in (n for statement in tree.body for n in nodes_of(statement)):
        if not isinstance(node, ast.FunctionDef):
            continue
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        if (node.name, first) in known:
            functions[node.name, first] = (node, known[node.name, first])
    return functions


@lru_cache(maxsize=64)
def read_file(filename: str) -> tuple[ast.Module, tuple[CodeType, ...]]:
    """The tree of a file and all code in it, the module's first; of none that is at hand and Python's."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
        return tree, (*codes_of(compile(tree, filename, "exec", dont_inherit=True)),)
    except (SyntaxError, ValueError):
        return ast.Module([], []), ()


@lru_cache(maxsize=8192)
def nodes_of(node: ast.AST) -> tuple[ast.AST, ...]:
    """A node and all below it, in no certain order: a statement within others is asked for several times."""
    if not isinstance(node, ast.stmt):
        return tuple(ast.walk(node))
    return (node, *(n for child in ast.iter_child_nodes(node) for n in nodes_of(child)))


def forget_files() -> None:
    """Read the text of files anew where it is asked for again: a user edits them while this process runs."""
    linecache.checkcache()
    read_file.cache_clear()
    functions_of.cache_clear()


def codes_of(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


class _Reader:
    """Reads one function: which variables are alive where, and which loops qualify."""

    def __init__(self, code: CodeType) -> None:
        self.own = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
        self.function, self.names = Function(), set[str]()
        self.effect_of = cache(self.effect)

    def read(self, node: ast.FunctionDef) -> Function:
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        self.names = {n.id for statement in body for n in nodes_of(statement) if isinstance(n, ast.Name)}
        self.go_through(body, set())
        if not node.args.vararg and not node.args.kwarg:
            self.function.whole = self.text_of(*body, may_return=True)
        return self.function

    def effect_on(self, body: Sequence[ast.stmt]) -> Effect:
        """Of statements in order."""
        reads, writes = set[str](), set[str]()
        for own_reads, own_writes in map(self.effect_of, reversed(body)):
            reads, writes = own_reads | (reads - own_writes), writes | own_writes
        return reads, writes

    def effect(self, node: ast.stmt) -> Effect:
        """Of one statement."""
        match node:
            case ast.For():
                return self.handed_on(node) | _read(node.iter), set()
            case ast.If():
                (reads, writes), (others, also) = self.effect_on(node.body), self.effect_on(node.orelse)
                return reads | others | _read(node.test), writes & also
            case ast.Return():
                return _read(node), self.names
            case ast.Assign() if all(isinstance(t, ast.Name | ast.Tuple) for t in node.targets):
                return _read(node.value), _written(*node.targets)
        # what is written here may be alive before, too
        return _read(node) | _written(node), set()

    def handed_on(self, node: ast.For) -> set[str]:
        """What iterations read before they write it, and what is read behind the last of them."""
        return self.effect_on(node.body)[0] - _written(node.target) | self.effect_on(node.orelse)[0]

    def go_through(self, body: Sequence[ast.stmt], live: set[str]) -> None:
        """Note the loops of a body that qualify, given the variables that are alive behind it."""
        for statement in reversed(body):
            if isinstance(statement, ast.For):
                self.go_through(statement.orelse, live)
                live = live | self.handed_on(statement)
                self.note(statement, live)
                self.go_through(statement.body, live)
            elif isinstance(statement, ast.If):
                self.go_through(statement.body, live)
                self.go_through(statement.orelse, live)
            reads, writes = self.effect_of(statement)
            live = reads | (live - writes)

    def note(self, node: ast.For, head: set[str]) -> None:
        """Note a loop if it qualifies, given the variables that are alive where an iteration begins."""
        target = _written(node.target)
        carried = head & (_written(*node.body) | target)
        added_to = carried - target - _written(*node.body, is_assigned=True)
        text, run = None, node.iter
        is_plain = carried == added_to and not node.orelse
        if is_plain and isinstance(node.target, ast.Name) and _is_range(run):
            text = self.text_of(*node.body, may_return=False)
            text = text and replace(text, added_to=frozenset(added_to))
        for part in (node, run):
            # versions of Python differ in the place of the step that asks for the first iteration
            place = (part.lineno, part.end_lineno, part.col_offset, part.end_col_offset)
            self.function.loops |= {} if text is None else {place: text}

    def text_of(self, *body: ast.stmt, may_return: bool) -> Text | None:
        """What statements use; None if one is of no known kind."""
        outer: set[tuple[str, ...]] = set()
        names: set[str] = set()
        inner: set[str] = set()
        nodes = [node for statement in body for node in nodes_of(statement)]
        for node in nodes:
            if isinstance(node, ast.comprehension):
                inner |= _written(node.target)
        for node in (n for n in nodes if type(n) not in PLAIN):
            match node:
                case ast.Return() if not may_return:
                    return None
                case ast.Assign() if not all(map(_is_target, node.targets)):
                    return None
                case ast.AugAssign() if not _is_target(node.target):
                    return None
                case ast.For() if node.orelse or not _is_name(node.target):
                    return None
                case ast.Call() if not self.is_call(node, inner):
                    return None
                case ast.Compare() if not _is_of_numbers(node):
                    return None
                case ast.Attribute() if not self.is_member(node, inner):
                    return None
                case ast.Name() if node.id in self.own or node.id in inner:
                    names.add(node.id)
                case ast.Name():
                    outer.add((node.id,))
                case _ if type(node) not in KINDS:
                    return None
        outer = self.with_members(nodes, outer)
        sets_items = any(
            isinstance(n, ast.AugAssign) or (isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
            for n in nodes
        )
        return Text(frozenset(names), frozenset(outer), sets_items)

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
        return isinstance(called, ast.Attribute) and (
            called.attr in METHODS or self.is_outer(called.value, inner)
        )

    def is_member(self, node: ast.Attribute, inner: set[str]) -> bool:
        """Whether a member belongs to something beyond the function, or is the same of tensors alike."""
        return node.attr in METHODS | MEMBERS or self.is_outer(node.value, inner)

    def is_outer(self, node: ast.expr, inner: set[str]) -> bool:
        """Whether an expression is a name beyond the function, or a member of a member of one."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id not in self.own and node.id not in inner


def _is_range(node: ast.expr) -> bool:
    """Whether a loop runs over a range itself, and not over what something makes of one."""
    called = node.func if isinstance(node, ast.Call) else node
    return getattr(called, "attr", getattr(called, "id", "")) in RANGES


def _is_of_numbers(node: ast.Compare) -> bool:
    """Whether a comparison cannot tell which of several tensors that are alike it was given."""
    sides = [node.left, *node.comparators]
    is_ordered = all(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops)
    return is_ordered or (len(sides) == 2 and any(isinstance(side, ast.Constant) for side in sides))


def _is_name(node: ast.expr) -> bool:
    """Whether a target is a name, or a tuple of names."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Tuple) and all(map(_is_name, node.elts)))


def _is_target(node: ast.expr) -> bool:
    """Whether a target is a name, a tuple of names, or an item of what a variable holds."""
    return _is_name(node) or (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name))


def _read(node: ast.AST) -> set[str]:
    """The names that are read, but for those that comprehensions make for themselves."""
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    names: set[str] = set().union(*map(_read, ast.iter_child_nodes(node)))
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        # what the first of them runs over is read outside
        names -= _written(*(g.target for g in node.generators))
        names |= _read(node.generators[0].iter)
    return names


def _written(*nodes: ast.AST, is_assigned: bool = False) -> set[str]:
    """The names that are written; only those that are not merely added to, if so asked."""
    parts = [n for node in nodes for n in nodes_of(node)]
    left_out = {id(n.target) for n in parts if is_assigned and isinstance(n, ast.AugAssign)}
    return {
        n.id for n in parts
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and id(n) not in left_out
    }  # fmt: skip
