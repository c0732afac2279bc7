"""Plain functions over records, run as they stand for a short job and compiled for a long one.

The functions are written once, in the part of Python that numba knows. A record is an object with named
numbers; a table of records is a list of such objects, or one array for compiled code. Both yield the same.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from dis import get_instructions
from functools import cache, cached_property, partial
from hashlib import sha256
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct

from ._lazy import numba, numba_events
from .code_cache import keep

T = TypeVar("T")
# From about this many steps on, loading numba and the compiled code (0.7 s) costs less than running without.
LONG = 80_000
# Steps of one call, as compiled code does not hear who interrupts it, and what asks for another call.
AT_ONCE, PAUSED = 1 << 15, -9
# Nothing is allocated by compiled code, so that nothing needs to be counted; division by zero is infinite.
_OPTIONS = {"no_cfunc_wrapper": True, "error_model": "numpy", "_nrt": False}
# Records that are read or written at once, column by column: few enough for the cache.
_PIECE = 2048
# Numbers that take one or two bytes in an array.
Byte = int
Short = int
# What a field of a record is in an array, by its annotation.
COLUMN_TYPES = {"int": "i4", "float": "f8", "bool": "b1", "Byte": "i1", "Short": "i2"}


class Job:
    """A function of records, and of the functions that it calls, that is compiled when it is worth it.

    Args:
        function: takes tables of records and arrays of numbers; no function that it calls calls itself, and
            none holds another one in it (a comprehension does).
        what: its name in the notice that it is compiled.
    """

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        self._function = function
        self._what = what
        self._steps = 0

    def chosen(self, steps: int) -> tuple[Callable[..., Any], bool]:
        """What runs the function, again while it is paused, and whether it takes arrays.

        Many short programs are as long as a long one: what ran before counts too; honours NUMBA_DISABLE_JIT.
        """
        self._steps += steps
        is_long = self._steps >= LONG or "compiled" in vars(self)
        if is_long and not numba().config.DISABLE_JIT:
            return partial(to_its_end, self.compiled), True
        return partial(to_its_end, self._function), False

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        """The compiled function; compiled once on each computer, then kept as `code_cache` says."""
        return _compiled(self._function, self._what)


def to_its_end(function: Callable[..., T], *arguments: object) -> T:
    """What a function returns that goes on where it paused."""
    while (result := function(*arguments)) == PAUSED:
        continue
    return result


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _compiled(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    """`function` compiled; the first call compiles it unless that was done before, and says so."""
    assert isinstance(function, FunctionType)
    entry = numba().njit(**_OPTIONS)(_twin(function, {}))
    keep(entry, _digest(function))

    def run(*arguments: Any) -> Any:
        if entry.signatures:
            return entry(*arguments)
        with numba_events().install_listener("numba:compile", _notice(what)):
            return entry(*arguments)

    return run


def _twin(function: FunctionType, known: dict[FunctionType, Any]) -> FunctionType:
    """A copy of a function that calls compiled copies, each made once, of the functions that it calls."""
    names = dict(function.__globals__)
    for name, used in _used(function):
        if not isinstance(used, FunctionType):
            continue
        if used not in known:
            known[used] = numba().njit(no_cpython_wrapper=True, **_OPTIONS)(_twin(used, known))
        names[name] = known[used]
    return FunctionType(function.__code__, names, function.__name__)


def _used(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The globals of its module that a function uses, by name."""
    loaded = {i.argval for i in get_instructions(function) if i.opname == "LOAD_GLOBAL"}
    return ((name, function.__globals__[name]) for name in sorted(loaded) if name in function.__globals__)


def _digest(function: Callable[..., Any]) -> str:
    """What names the code of a function, the numbers that it knows, and the functions that it calls."""
    assert isinstance(function, FunctionType)
    code = function.__code__
    own = repr((code.co_code, code.co_consts, code.co_names, code.co_varnames))
    used = [_digest(u) if isinstance(u, FunctionType) else repr(u) for _, u in _used(function)]
    return sha256("\n".join([own, *used]).encode()).hexdigest()[:16]


@cache
def _announce(what: str) -> None:
    """Say once that something is compiled."""
    print(f"nkilab: compiling {what}, once", file=sys.stderr, flush=True)


def _notice(what: str) -> Any:
    """A listener that says so when it begins."""

    class Notice(numba_events().Listener):  # type: ignore[misc]
        def on_start(self, _event: Any) -> None:
            _announce(what)

        def on_end(self, _event: Any) -> None:
            pass

    return Notice()


def table(record: type[Struct], columns: dict[str, Any], count: int, *, as_array: bool) -> Any:
    """`count` records with the given columns; the other fields have their defaults.

    Args:
        record: a struct of numbers.
        columns: by field, the first ones in the order of the declaration; sequences, or one value for all.
        count: of records.
        as_array: one array for compiled code instead of a list of objects.
    """
    if as_array:
        return _filled(record, columns, count).view(np.recarray)
    assert (*columns,) == record.__struct_fields__[: len(columns)]
    lists = [_listed(column, count) for column in columns.values()]
    return list(map(record, *lists)) if lists else [record() for _ in range(count)]


def _listed(column: Any, count: int) -> list[Any]:
    """A column of plain numbers of one kind; one value stands for all."""
    values = np.asarray(column)
    return values.tolist() if values.ndim else [values.item()] * count


def _filled(record: type[Struct], columns: dict[str, Any], count: int) -> np.ndarray:
    """An array of records, written a piece at a time that the cache holds."""
    table_made = np.empty(count, dtype_of(record))
    defaults, names = record.__struct_defaults__, record.__struct_fields__
    values = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True)) | columns
    whole = {name: own for name, own in values.items() if np.ndim(own)}
    alike: np.ndarray = np.zeros(1, table_made.dtype)
    for name, own in values.items():
        if name not in whole:
            alike[name] = own
    if not whole and not alike.view(np.uint8).any():
        # nothing is written before it is used: much of a long table never is
        return np.zeros(count, table_made.dtype)
    for start in range(0, count, _PIECE):
        piece = table_made[start : start + _PIECE]
        piece[:] = alike
        for name, own in whole.items():
            piece[name] = own[start : start + _PIECE]
    return table_made


@cache
def dtype_of(record: type[Struct]) -> np.dtype:
    """The type of an array of records, wide fields first, so that none is padded."""
    fields = [
        (name, np.dtype(COLUMN_TYPES[record.__annotations__[name]])) for name in record.__struct_fields__
    ]
    return np.dtype(sorted(fields, key=lambda field: -field[1].itemsize), align=True)


def column(records: Any, name: str) -> np.ndarray:
    """One field of all records of a table."""
    (values,) = columns_of(records, name)
    return values


def columns_of(records: Any, *names: str) -> tuple[np.ndarray, ...]:
    """Several fields of all records of a table, read a piece at a time that the cache holds."""
    if not isinstance(records, np.ndarray):
        return tuple(np.array([getattr(record, name) for record in records]) for name in names)
    plain = records.view(np.ndarray)
    arrays = tuple(np.empty(len(plain), plain.dtype[name]) for name in names)
    for start in range(0, len(plain), _PIECE):
        piece = plain[start : start + _PIECE]
        for name, values in zip(names, arrays, strict=True):
            values[start : start + _PIECE] = piece[name]
    return arrays


def give_back() -> None:
    """Have the C library return freed memory to the system, where it keeps that (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def numbers(values: Any, *, as_array: bool) -> Any:
    """Whole numbers as a list, or as an array for compiled code, the given one if it is of its type."""
    return np.asarray(values, np.int32) if as_array else np.asarray(values).tolist()


class Entry(Struct):
    """A key and the number of what it belongs to; of equal keys the smaller number comes first."""

    key: float = 0.0
    number: int = 0


def push(heap: list[Entry], size: int, key: float, number: int) -> None:
    """Add an entry to the first `size` ones of a heap."""
    place = size
    while place > 0:
        above = heap[(place - 1) // 2]
        if above.key < key or (above.key == key and above.number < number):
            break
        heap[place].key, heap[place].number = above.key, above.number
        place = (place - 1) // 2
    heap[place].key, heap[place].number = key, number


def drop_first(heap: list[Entry], size: int) -> None:
    """Take the first entry away from the first `size` ones of a heap."""
    key, number = heap[size - 1].key, heap[size - 1].number
    place, child = 0, 1
    while child < size - 1:
        below, right = heap[child], heap[child + 1]
        is_less = right.key < below.key or (right.key == below.key and right.number < below.number)
        if is_less and child + 1 < size - 1:
            below, child = right, child + 1
        if key < below.key or (key == below.key and number < below.number):
            break
        heap[place].key, heap[place].number = below.key, below.number
        place, child = child, 2 * child + 1
    heap[place].key, heap[place].number = key, number
