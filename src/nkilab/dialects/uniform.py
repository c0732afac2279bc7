"""Loops of which every iteration is the same function of its index, as far as the user's text tells.

Such a loop carries no variable from one iteration to the next, changes no object that outlives an iteration,
and calls nothing but functions of NKI, a few of Python's, and functions of the user's of which the same
holds. Only a few kinds of statements and values are known here; a loop with any other is not one of these.
"""

from __future__ import annotations

import ast
import builtins
import dis
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, pairwise
from operator import is_
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..tiles.dtypes import DType
from ..tiles.tile import PSUM, Storage, View
from ..trace.affine import Affine, OfIndices
from ..trace.source import is_users
from .kernel import Kernel
from .loop_text import Text, codes_of, function_of, functions_of, nodes_of, read_file

# functions of Python's that change nothing and go by what they are given
BUILTINS = {f.__name__: f for f in (
    abs, all, any, bool, divmod, enumerate, float, int, len, list, max, min, range, reversed, round, slice,
    str, sum, tuple, zip,
)}  # fmt: skip
# and these of what a kernel may run twice
SILENT = {
    *BUILTINS, *(n for n, v in vars(builtins).items() if isinstance(v, type) and issubclass(v, Exception)),
    "bytes", "callable", "chr", "complex", "dict", "filter", "format", "frozenset", "getattr", "hasattr",
    "hash", "id", "isinstance", "issubclass", "iter", "map", "next", "object", "ord", "pow", "repr", "set",
    "sorted", "type",
}  # fmt: skip
SILENT_MODULES = {"nki", "neuronxcc", "numpy", "math", "operator", "itertools", "functools", "ml_dtypes"}
# of these, what tells of more than it is given; and what NumPy reads elsewhere
ODD = {"getattr", "hash", "id", "object"}
FILES = {
    "", "fromfile", "fromregex", "genfromtxt", "lib", "load", "loadtxt", "memmap", "ctypeslib", "DataSource"
}  # fmt: skip
# what is the same of the storages of tensors that are alike
ALIKE = ("shape", "dtype", "name", "line", "is_mutable", "place")
MODULES = ("nki.language", "nki.isa", "neuronxcc.nki.language", "neuronxcc.nki.isa")
# names of these modules that do more than make tiles and rows
REFUSED = {
    "VirtualRegister", "core_barrier", "device_print", "dropout", "dynamic_range", "fori_loop", "loop_reduce",
    "no_reorder", "ptr", "rand", "random_seed", "rng", "sendrecv", "shared_constant",
    "shared_identity_matrix", "while_loop",
}  # fmt: skip
_STORES = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "STORE_NAME"}
# values that nobody changes, and that say what they are
NUMBERS = (int, float, str, bool, type(None))


def text_at(frame: FrameType) -> Text | None:
    """What the loop that begins in a frame uses; None if it has statements of other kinds than are known."""
    function = function_of(frame.f_code)
    return None if function is None else function.loops.get(_place_of(frame.f_code, frame.f_lasti))


def _place_of(code: CodeType, step: int) -> tuple[int | None, ...]:
    """Where a step of a function stands in its file."""
    return _places_of(code)[step // 2]


@lru_cache(maxsize=512)
def _places_of(code: CodeType) -> tuple[tuple[int | None, ...], ...]:
    return (*code.co_positions(),)


def shared_by(frame: FrameType, text: Text) -> list[Storage] | None:
    """What the iterations of the loop that begins in a frame share of tiles; None if it does not qualify."""
    called = set[CodeType]()
    if not _are_harmless(text.outer, frame.f_globals, frame.f_builtins, called):
        return None
    local_names = frame.f_locals
    storages: list[Storage] = []
    known = [local_names[name] for name in text.names if name in local_names]
    # an item of a list outlives the iteration that sets it, and so does a number that is added to
    sets_items = any(one is None or one.sets_items for one in (text, *map(_whole, called)))
    sequences = tuple if sets_items else (list, tuple)
    is_plain = all(isinstance(local_names.get(name), View) for name in text.added_to)
    return storages if is_plain and all(_is_plain(value, storages, sequences) for value in known) else None


def has_uniform_loops(function: Any) -> bool:
    """Whether the iterations of some loop in a function's text may be the same function of their index."""
    text = function_of(function.__code__) if type(function) is FunctionType else None
    return text is not None and bool(text.loops)


def _is_plain(value: Any, storages: list[Storage], sequences: type[Any] | tuple[type[Any], ...]) -> bool:
    """Whether a value is a number, a tensor or a sequence of such; tensors' storages are added to a list."""
    if isinstance(value, View):
        storages.append(value.storage)
        return not value.indices
    if isinstance(value, sequences):
        return all(_is_plain(part, storages, sequences) for part in value)
    return isinstance(value, (*NUMBERS, OfIndices, np.dtype, DType))


@lru_cache(maxsize=512)
def only_goes_through_ranges(code: CodeType) -> bool:
    """Whether each `range` in a function's text is what a `for` runs over."""
    node, known = functions_of(code.co_filename).get((code.co_name, code.co_firstlineno), (None, None))
    if node is None or known != code:
        return False
    loops = [n.iter for n in nodes_of(node) if isinstance(n, ast.For) and isinstance(n.iter, ast.Call)]
    named = sum(isinstance(n, ast.Name) and n.id == "range" for n in nodes_of(node))
    through = sum(isinstance(n.func, ast.Name) and n.func.id == "range" and not n.keywords for n in loops)
    return 0 < named == through


def takes_evenly(frame: FrameType, index: Affine) -> bool:
    """Whether a frame is about to take tiles by an index out of a list of evenly numbered ones.

    The list is a variable of the frame or in one, and a slice has as many in every iteration.
    """
    place = _place_of(frame.f_code, frame.f_lasti)
    base, is_slice = _subscripts(frame.f_code).get(place, (None, False))
    tiles = None if base is None else _object_named(base, frame.f_locals)
    repeats = next(iter(index.terms)).repeats
    low, high = index.bounds
    if tiles is None or not _are_even(tiles) or low < 0 or high >= len(tiles) + is_slice:
        return False
    begun, repeats.begun = repeats.begun, None
    if not is_slice:
        return begun is None
    if begun is None:
        repeats.begun = (frame, frame.f_lasti, index)
        return True
    count = index - begun[2]
    return begun[:2] == (frame, frame.f_lasti) and type(count) is int and count > 0


def _object_named(node: ast.expr, names: dict[str, Any]) -> Any:
    """The list that a variable holds, or that lies in such a list; None for anything else."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name | ast.Constant):
        lists = _object_named(node.value, names)
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
    kinds = {(t.layout, *[getattr(t.storage, word) for word in ALIKE]) for t in tiles}
    places = [(t.storage.number, t.offset) for t in tiles]
    steps = {(n - m, o - p) for (m, p), (n, o) in pairwise(places)}
    return len(kinds) == 1 and len(steps) <= 1 and first.storage.place is None


@lru_cache(maxsize=512)
def _subscripts(code: CodeType) -> dict[tuple[int | None, ...], tuple[ast.expr, bool]]:
    """Subscripts in a function's file, by place: of what, and whether they are slices."""
    tree, codes = read_file(code.co_filename)
    if code not in codes:
        return {}
    return {
        (n.lineno, n.end_lineno, n.col_offset, n.end_col_offset): (n.value, isinstance(n.slice, ast.Slice))
        for n in ast.walk(tree)
        # no slice, or one with both ends and no step
        if isinstance(n, ast.Subscript) and (not isinstance(key := n.slice, ast.Slice)
                                             or (None not in (key.lower, key.upper) and key.step is None))
    }  # fmt: skip


def _are_harmless(
    outer: Iterable[tuple[str, ...]], names: dict[str, Any], own_builtins: Any, called: set[CodeType]
) -> bool:
    """Whether everything beyond a function that it names changes nothing; functions are added to a set."""
    for name, *members in outer:
        is_builtin = name in BUILTINS and own_builtins.get(name) is BUILTINS[name]
        if is_builtin and (name not in names or name == "range"):
            # what stands for `range` is `loops.PlainRange`: `can_start_again` knows no other
            continue
        if name not in names:
            return False
        value = names[name]
        if not (_has_harmless(value, members[0]) if members else _is_harmless(value, called)):
            return False
    return True


def _has_harmless(value: Any, member: str) -> bool:
    """Whether an object is a module of ours, or one that is known, and its member changes nothing."""
    if value is np:
        return isinstance(getattr(np, member, None), np.ufunc)
    is_known = type(value).__module__.startswith("nkilab.") or type(value) is ModuleType
    return is_known and getattr(value, "__name__", "") in MODULES and member not in REFUSED


def _is_harmless(value: Any, called: set[CodeType]) -> bool:
    """Whether a value beyond a function is a number, or a function that changes nothing."""
    if type(value) is tuple:
        return all(_is_harmless(part, called) for part in value)
    if type(value) is Kernel and not value.grid:
        value = value.function
    if type(value) is not FunctionType:
        return type(value) in NUMBERS
    code = value.__code__
    if code in called:
        return True
    defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    whole = _whole(code)
    if whole is None or value.__closure__ or not all(map(is_constant, defaults)):
        return False
    called.add(code)
    return _are_harmless(whole.outer, value.__globals__, vars(builtins), called)


def _whole(code: CodeType) -> Text | None:
    """What a function uses, if all of it is of known kinds."""
    function = function_of(code)
    return None if function is None else function.whole


def is_constant(value: Any) -> bool:
    return type(value) in NUMBERS or (type(value) is tuple and all(map(is_constant, value)))


def itself(value: object) -> MethodType:
    """A value that equals itself alone, kept so that no other one gets its identity.

    Bound methods are compared by what they are bound to, its identity alone, without a call of Python.
    """
    return MethodType(itself, value)


def readings(function: Any) -> MethodType | None:
    """What the text of a function reads beyond its arguments, to compare; None if it may read anything.

    Numbers and texts by value, functions of the user's by what they read in turn, anything else as itself.
    """
    if type(function) is not FunctionType:
        return None
    readers, objects, answer = _READ.get(function, _UNREAD)
    if readers and all(map(is_, chain.from_iterable(map(_objects_of, readers)), objects)):
        return answer
    known: dict[FunctionType, list[Any]] = {}
    if not _is_read_by(function, known):
        return None
    answer = _one(tuple((one.__code__, *values) for one, values in known.items()))
    readers = [(one, names_of(one.__code__)) for one in known]
    if len(_READ) >= _MOST_READ:
        _READ.clear()
    _READ[function] = readers, [*chain.from_iterable(map(_objects_of, readers))], answer
    return answer


# functions with the names that they read
_Readers = list[tuple[FunctionType, tuple[str, ...]]]
# by function: whatever it leads to reads, the objects that these names stood for last, and what was said then
_READ: dict[FunctionType, tuple[_Readers, list[Any], MethodType | None]] = {}
_UNREAD: tuple[_Readers, list[Any], MethodType | None] = ([], [], None)
_MOST_READ = 512


def _objects_of(reader: tuple[FunctionType, tuple[str, ...]]) -> list[Any]:
    """The objects that decide what a function reads: as long as they are the same, it reads the same."""
    function, read = reader
    names, named, own = function.__globals__, function.__kwdefaults__ or {}, vars(function)
    objects = [function.__code__, function.__defaults__, *named, *named.values(), *own, *own.values(), None]
    for name in read:
        value = names.get(name, builtins)
        objects.append(value.function if type(value) is Kernel else value)
    return objects


@lru_cache(maxsize=_MOST_READ)
def _one(answer: tuple[Any, ...]) -> MethodType:
    """Of equal answers one."""
    return itself(answer)


def _is_read_by(function: FunctionType, known: dict[FunctionType, list[Any]]) -> bool:
    """Whether it is clear what a function reads, which is noted by function."""
    if function in known:
        return True
    code, names = function.__code__, function.__globals__
    values, called, functions = known.setdefault(function, []), names_of(code), list[FunctionType]()
    for value in (*_kept_by(function), *[names.get(name, builtins) for name in called]):
        own = value.function if type(value) is Kernel else value
        if type(own) is FunctionType and is_users(own.__code__):
            functions.append(own)
            values.append(own.__code__)
            continue
        values.append((type(value), repr(value)) if is_constant(value) else itself(value))
        if value is np and any(names.get(n) is np and _members(code, n) & FILES for n in called):
            return False
    return ODD.isdisjoint(called) and all(_is_read_by(one, known) for one in functions)


def _kept_by(function: FunctionType) -> list[Any]:
    """Defaults of a function's parameters, and its own attributes, with their names."""
    named = [*(function.__kwdefaults__ or {}).items(), *vars(function).items()]
    return [*(function.__defaults__ or ()), *chain.from_iterable(named)]


@lru_cache(maxsize=512)
def _members(code: CodeType, module: str) -> frozenset[str]:
    """What a function takes of a module by its name there; "" where it does anything else with it."""
    steps = [step for own in codes_of(code) for step in dis.get_instructions(own)]
    taken = ("LOAD_ATTR", "LOAD_METHOD")
    uses = [after for step, after in pairwise(steps) if step.argval == module and step.opname not in taken]
    return frozenset(after.argval if after.opname in taken else "" for after in uses)


@lru_cache(maxsize=512)
def names_of(code: CodeType) -> tuple[str, ...]:
    return tuple(sorted({name for own in codes_of(code) for name in own.co_names}))


class Steps(NamedTuple):
    """What the steps of a function do beyond it: names of its module or of Python that it reads, and modules
    that it imports; and whether it gives such names, or attributes of objects, new values."""

    read: frozenset[str]
    imported: frozenset[str]
    stores: bool


@lru_cache(maxsize=1024)
def steps_of(code: CodeType) -> Steps:
    """What the steps of a function do."""
    steps = [(i.opname, i.argval) for own in codes_of(code) for i in dis.get_instructions(own)]
    return Steps(
        frozenset(name for word, name in steps if word in ("LOAD_GLOBAL", "LOAD_NAME")),
        frozenset(name for word, name in steps if word == "IMPORT_NAME"),
        not _STORES.isdisjoint(word for word, _ in steps),
    )
