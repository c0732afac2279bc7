"""What the front ends of NKI parse of Python within a kernel: one row per part of the grammar.

The front ends of NKI 0.1 to 0.6 read the text of a kernel and of the functions that it calls; Python itself
traces Beta 1 and NKI 0.7. Source: the public front end of AWS, leanprover/KLR at 7ccd18c, where
interop/klr/gather.c parses, and KLR/NKI/Simplify.lean and KLR/Trace/Python.lean give meaning. Logs and
reports of builds of 0.3, 0.5 and 0.6 have its sentences; the 711 functions that kernels of nki-library 2.29
reach have nothing of what it refuses.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterator
from inspect import isbuiltin

from msgspec import Struct

from .history import order

FIRST_PARSED, LAST_PARSED = "0.1", "0.6"


class Construct(Struct, frozen=True):
    """A part of the grammar that is refused."""

    words: str  # what it is, with its article
    sentence: str  # what the build says
    way_out: str  # imperative
    since: str = FIRST_PARSED  # the first version that refuses it
    until: str = LAST_PARSED  # the last version that does

    def is_refused_by(self, version: str) -> bool:
        """Whether the front end of a version refuses it."""
        return order(self.since) <= order(version) <= order(self.until)


# Parsed wherever they stand, but for the forms below.
PARSED: frozenset[type[ast.AST]] = frozenset((
    ast.Pass, ast.Expr, ast.Assert, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.For,
    ast.While, ast.Break, ast.Continue, ast.With, ast.Constant, ast.Name, ast.Attribute, ast.Tuple, ast.List,
    ast.Dict, ast.Subscript, ast.Slice, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Call,
    ast.JoinedStr, ast.FormattedValue,
))  # fmt: skip
# A function within a kernel is a rule of its own: what is refused depends on what is done with it.
ELSEWHERE = frozenset((ast.FunctionDef,))


def _statement(words: str, keyword: str, way_out: str) -> Construct:
    return Construct(words, f"NKI does not support {keyword}", way_out)


def _expression(words: str, way_out: str) -> Construct:
    return Construct(words, "unsupported expression", way_out)


_ASYNC = _statement("async", "'async'", "write functions and loops without it")
_IMPORT = _statement("an import", "'import' statements within a function", "import above the kernel")
_TRY = _statement("a try", "'try' statements", "use if, or assert")
_LIST = _expression("a comprehension", "append to a list in a for loop, or write the elements out")
_YIELD = _expression("a yield", "append to a list, and return it")
_SHARED = "pass the value, and return it"
# By kind of node; names of kinds, for Python 3.12 and 3.14 have more.
_REFUSED = {
    "Raise": _statement("a raise", "'raise' statements", "use assert, or check on the host before the call"),
    "Try": _TRY, "TryStar": _TRY, "Import": _IMPORT, "ImportFrom": _IMPORT,
    "Global": _statement("a global statement", "'global' statements", _SHARED),
    "Nonlocal": _statement("a nonlocal statement", "'nonlocal' statements", _SHARED),
    "Delete": _statement("a del", "'del' statements at this time", "leave it out"),
    "Match": _statement("a match", "'match' statements at this time", "use if and elif"),
    "TypeAlias": _statement("a type statement", "'type' statements at this time", "move it to the module"),
    "ClassDef": _statement("a class", "'class' definitions within a function", "define it in the module"),
    "AsyncFunctionDef": _ASYNC, "AsyncFor": _ASYNC, "AsyncWith": _ASYNC, "Await": _ASYNC,
    "ListComp": _LIST, "SetComp": _LIST, "DictComp": _LIST, "GeneratorExp": _LIST,
    "Set": _expression("a set", "use a tuple or a list"),
    "Lambda": _expression("a lambda", "define a function in the module"),
    "NamedExpr": _expression("an assignment within an expression", "assign in a line of its own"),
    "Yield": _YIELD, "YieldFrom": _YIELD,
    "TemplateStr": _expression("a template string", "use an f-string"),
    "Starred": Construct("an unpacking *", "tuple expansion is not supported", "write the arguments out"),
}  # fmt: skip
REFUSED: dict[type[ast.AST], Construct] = {
    getattr(ast, name): construct for name, construct in _REFUSED.items() if hasattr(ast, name)
}


def _is_other_block(node: ast.With) -> bool:
    """Whether a with is anything but one call of no_reorder without arguments, of whatever module."""
    call = node.items[0].context_expr
    has_more = len(node.items) > 1 or node.items[0].optional_vars is not None
    if has_more or not isinstance(call, ast.Call) or call.args or call.keywords:
        return True
    return ast.unparse(call.func).rpartition(".")[2] != "no_reorder"


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    """What a target is made of, through tuples."""
    if isinstance(target, ast.Tuple):
        yield from (part for element in target.elts for part in _parts(element))
    else:
        yield target


def _unpacks_otherwise(node: ast.Assign) -> bool:
    """Whether a tuple is unpacked into anything but names."""
    tuples = [t for t in node.targets if isinstance(t, ast.Tuple | ast.List)]
    return not all(isinstance(part, ast.Name | ast.Starred) for t in tuples for part in _parts(t))


def _compares_identity(node: ast.Compare) -> bool:
    """Whether `is` asks for anything but None."""
    pairs = zip(node.ops, node.comparators, strict=True)
    nothing = [isinstance(c, ast.Constant) and c.value is None for o, c in pairs if isinstance(o, _IDENTITY)]
    return not all(nothing)


_IDENTITY, _MEMBERSHIP = (ast.Is, ast.IsNot), (ast.In, ast.NotIn)


def _is_large(node: ast.Constant, least: int = 2**32) -> bool:
    return type(node.value) is int and node.value >= least


_ELSE = "set a flag in the loop, and ask for it after the loop"
# Forms of what is parsed that are refused: kind of node, condition, what is said.
FORMS: tuple[tuple[type[ast.AST], Callable[..., bool], Construct], ...] = (
    (ast.For, lambda n: not isinstance(n.target, ast.Name),
     Construct("a loop over several names", "expecting simple variable", "loop over indices, and subscript")),
    (ast.For, lambda n: bool(n.orelse),
     Construct("an else of a loop", "for-orelse is not supported in NKI", _ELSE)),
    (ast.While, lambda n: bool(n.orelse),
     Construct("an else of a loop", "while-orelse is not supported in NKI", _ELSE)),
    (ast.With, _is_other_block,
     Construct("a with other than nl.no_reorder()",
               "NKI only supports with statements with a single, simple function call as context",
               "write it as nl.no_reorder(), or leave it out")),
    (ast.Assign, _unpacks_otherwise,
     Construct("an unpacking into what is no name", "expecting pattern",
               "unpack into names, then assign each")),
    (ast.Assign, lambda n: sum(isinstance(t, ast.Subscript | ast.Attribute) for t in n.targets) > 1,
     Construct("one assignment of several places", "mutating assignments must be in separate statements",
               "assign each in a line of its own")),
    (ast.Compare, _compares_identity,
     Construct("an `is` of other than None", "is / is not operators are not supported. Use == / !=",
               "write == or !=", since="0.3")),
    (ast.Compare, lambda n: len(n.ops) > 1 and any(isinstance(o, _MEMBERSHIP) for o in n.ops),
     Construct("an `in` in a chain of comparisons", "the 'in' operator is not supported in NKI",
               "write the comparisons one by one, joined by and")),
    (ast.Constant, _is_large,
     Construct("an integer of more than 32 bits", "integer value is too large",
               "use a float, or a smaller number")),
    # kernels of trnrand have masks of 32 bits, and ran in NKI 0.3 on trn1 and trn2
    (ast.Constant, lambda n: _is_large(n, 2**31),
     Construct("an integer of more than 31 bits", "integer value is too large",
               "use a float, or a smaller number", until="0.2")),
    (ast.BinOp, lambda n: isinstance(n.op, ast.MatMult),
     Construct("the operator @", "the matmul operator is not supported in NKI", "use nisa.nc_matmul")),
    (ast.Call, lambda n: isinstance(n.func, ast.Name) and n.func.id in ("max", "min") and len(n.args) > 2,
     Construct("a min or max of three", "invalid arguments", "pass a list, or nest calls of two",
               until="0.3")),
    (ast.Call, lambda n: any(k.arg is None for k in n.keywords),
     Construct("an unpacking **", "keyword expansion is not supported", "write the arguments out")),
    (ast.FormattedValue, lambda n: n.format_spec is not None,
     Construct("a format of an f-string", "NKI does no support format specifiers", "leave the format out")),
    (ast.arguments, lambda n: any(n.kw_defaults),
     Construct("a default after a bare *", "missing argument", "write the parameter before it",
               until="0.1")),
    (ast.arguments, lambda n: n.vararg is not None,
     Construct("a parameter *", "varargs are not supported in NKI", "name the parameters, or pass a tuple")),
)  # fmt: skip

# Functions of Python's that the front end has; it resolves no other name of `builtins`.
KNOWN_BUILTINS = frozenset((
    "abs", "bool", "dict", "divmod", "float", "hasattr", "int", "isinstance", "len", "list", "max", "min",
    "print", "range", "slice", "str", "tuple", "type",
))  # fmt: skip
KNOWN_MATH = frozenset(("ceil", "floor", "gcd", "log2", "log10", "pow", "sqrt", "pi", "e", "inf", "nan"))


# Methods that the values of Python's have there; `name` of a kind that is not here says nothing.
METHODS: dict[str, frozenset[str]] = {
    "list": frozenset(("append", "clear", "copy", "count", "extend", "index", "pop", "remove", "reverse")),
    "dict": frozenset(("clear", "copy", "get", "items", "keys", "pop", "setdefault", "values")),
    "str": frozenset(), "tuple": frozenset(), "int": frozenset(), "float": frozenset(),
}  # fmt: skip
# What kind of value an expression has, a key of METHODS, or "".
KindOf = Callable[[ast.AST], str]
_LAST_KNOWN = "0.3"  # kernels of a later version with such values are public


def _method(node: ast.Call, kind: KindOf, *names: str) -> bool:
    """Whether a call is of a method of a kind of values: one of these, or, of none, one that it lacks."""
    if not isinstance(node.func, ast.Attribute):
        return False
    of, word = kind(node.func.value), node.func.attr
    return f"{of}.{word}" in names if names else of in METHODS and word not in METHODS[of]


def _iterates(node: ast.Call, kind: KindOf) -> bool:
    """Whether a call goes through its only argument, which cannot be gone through."""
    called = node.func.id if isinstance(node.func, ast.Name) else ""
    called = "extend" if _method(node, kind, "list.extend") else called
    refused_kinds = {"len": ("str",), "list": _NO_ITERABLE, "tuple": _NO_ITERABLE, "extend": _NO_ITERABLE}
    return len(node.args) == 1 and kind(node.args[0]) in refused_kinds.get(called, ())


def _is_below_zero(node: ast.expr | None) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


def _has_no_operator(node: ast.BinOp, kind: KindOf) -> bool:
    """Whether strings or floats are asked for an operator that they lack."""
    left, right = kind(node.left), kind(node.right)
    if "str" in (left, right):
        return not (isinstance(node.op, ast.Add) and {left, right} <= {"str", ""})
    return isinstance(node.op, ast.Mod) and "float" in (left, right) and {left, right} <= {"int", "float"}


def _subscripts_otherwise(node: ast.Subscript, kind: KindOf) -> bool:
    """Whether a string is subscripted, or a sequence sliced backwards, or set from its end."""
    of, place = kind(node.value), node.slice
    is_backwards = isinstance(place, ast.Slice) and _is_below_zero(place.step)
    is_set = isinstance(node.ctx, ast.Store) and of == "list" and _is_below_zero(place)
    return of == "str" or (of in ("list", "tuple") and is_backwards) or is_set


def _is_range(node: ast.AST) -> bool:
    """Whether Python's range is called, which is part of the grammar of loops there and no value."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


_USES = (ast.Call, ast.Assign, ast.Return, ast.Subscript, ast.List, ast.Tuple, ast.Compare)
_NO_ITERABLE = ("dict", "str")
_WRITTEN_OUT = "write it with what they have: list.append, list.pop(), dict.get, + of strings"


def _of_values(words: str, sentence: str, way_out: str, until: str = _LAST_KNOWN) -> Construct:
    return Construct(words, sentence, way_out, until=until)


# Forms that are refused where they are reached, by the kinds of the values in them.
VALUE_FORMS: tuple[
    tuple[type[ast.AST] | tuple[type[ast.AST], ...], Callable[..., bool], Construct], ...
] = (
    (ast.Call, lambda n, kind: _method(n, kind) and kind(n.func.value) in ("int", "float"),
     _of_values("a method of a number", "is not an attribute of", "call it above the kernel", LAST_PARSED)),
    (ast.Call, _method,
     _of_values("a method that the value has not in NKI", "is not an attribute of", _WRITTEN_OUT)),
    (ast.Call, lambda n, kind: _method(n, kind, "list.sort"),
     _of_values("list.sort", "is not an attribute of", "write the elements in order", LAST_PARSED)),
    (_USES, lambda n, kind: any(map(_is_range, ast.iter_child_nodes(n))),
     _of_values("a range outside of the head of a loop", "failed to resolve name 'range'",
                "append its numbers to a list in a for loop, or write them out", LAST_PARSED)),
    (ast.Call, lambda n, kind: bool(n.args) and _method(n, kind, "list.pop", "list.count"),
     _of_values("an argument of list.pop or list.count", "invalid arguments",
                "go through the list in a loop")),
    (ast.Call, lambda n, kind: bool(n.args) and _method(n, kind, "dict.get", "dict.pop", "dict.setdefault")
     and kind(n.args[0]) not in ("str", ""),
     _of_values("a key that is no string", "expecting string", "use str(key)")),
    (ast.Call, _iterates,
     _of_values("a pass through a dictionary or a string", "not an iterable object",
                "go through keys() of the dictionary, or a tuple")),
    (ast.For, lambda n, kind: kind(n.iter) in _NO_ITERABLE,
     _of_values("a loop through a dictionary or a string", "not an iterable object",
                "go through keys() of the dictionary, or a tuple")),
    (ast.For, lambda n, kind: kind(n.iter) == "object",
     _of_values("a loop through an object of a class", "not an iterable object",
                "loop over a range, and subscript the object", LAST_PARSED)),
    (ast.Compare, lambda n, kind: isinstance(n.ops[-1], _MEMBERSHIP) and kind(n.comparators[-1]) == "dict",
     _of_values("an `in` of a dictionary", "in operator not support on types", "use get(key)")),
    (ast.Compare, lambda n, kind: isinstance(n.ops[-1], _MEMBERSHIP) and kind(n.comparators[-1]) == "set",
     _of_values("an `in` of a set", "'in' expected (any, list) or (any, tuple)", "use a tuple", LAST_PARSED)),
    (ast.Subscript, _subscripts_otherwise,
     _of_values("a subscript of a string, a step backwards or an assignment from the end of a list",
                "string subscript not implemented", "write the index out, from 0 on")),
    (ast.BinOp, _has_no_operator,
     _of_values("an operator that strings or floats have not", "unimplemented operator",
                "add strings by +, or use an f-string; write a remainder with //")),
    (ast.Call, lambda n, kind: ast.unparse(n.func) == "isinstance" and isinstance(n.args[-1], ast.Tuple),
     _of_values("an isinstance of several types", "nothing, and takes it for False",
                "ask for each, joined by or")),
)  # fmt: skip


def refused(node: ast.AST, version: str) -> Construct | None:
    """What the front end of a version refuses of a node within a kernel, if anything."""
    forms = (row for kind, condition, row in FORMS if isinstance(node, kind) and condition(node))
    construct = REFUSED.get(type(node)) or next(forms, None)
    return construct if construct is not None and construct.is_refused_by(version) else None


def refused_value(node: ast.AST, kind_of: KindOf, version: str) -> Construct | None:
    """What the front end of a version refuses of a node that a kernel reaches, by the kinds of its values."""
    forms = (form for form in VALUE_FORMS if isinstance(node, form[0]) and form[2].is_refused_by(version))
    return next((construct for _, refuses, construct in forms if refuses(node, kind_of)), None)


def unknown_function(called: str, version: str) -> bool:
    """Whether a name is of a function of Python's or its modules that the front end of a version lacks.

    It reads the source of what a kernel calls; functions of modules that have none are unknown to it.
    """
    if not order(FIRST_PARSED) <= order(version) <= order(LAST_PARSED):
        return False
    module, _, name = called.rpartition(".")
    if module == "math":
        return name not in KNOWN_MATH
    if module in sys.stdlib_module_names and module not in ("os", "random", "time"):  # of a rule of their own
        # a kernel's file was imported, and with it what it calls
        return isbuiltin(getattr(sys.modules.get(module), name, None))
    return not module and hasattr(builtins, name) and name not in KNOWN_BUILTINS
