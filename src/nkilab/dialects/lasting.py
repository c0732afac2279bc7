"""What outlives a run of a kernel and may change: objects that its text and its arguments lead to.

Whoever runs a kernel only to see what it does looks here whether anybody may notice.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterable, Sequence
from enum import Enum, EnumMeta
from functools import partial
from itertools import chain
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from ..arrays import framework_of
from ..tiles.tile import View
from ..trace.source import is_users
from .kernel import Kernel
from .uniform import NUMBERS, SILENT, SILENT_MODULES, is_constant, names_of, steps_of

# of Python's own, what changes nothing but what it is called with
_PURE = {*SILENT_MODULES, "_operator", "abc", "collections", "copy", "dataclasses", "enum", "types", "typing"}
_CALLED = {*SILENT, "NotImplemented", "__name__", "classmethod", "print", "property", "staticmethod", "super"}
# kinds of values, and packages of such, that stay what they are
_FIXED = (bytes, complex, range, slice, type(...), GetSetDescriptorType, np.generic, np.dtype)
_FIXED_PACKAGES = {"_abc", "dataclasses", "ml_dtypes", "nkilab", "typing"}


class Lasting:
    """The objects that outlive a run of a kernel, and may change.

    Args:
        function: the kernel's.
        values: its arguments.

    Attributes:
        is_known: whether everything that they lead to is of a known kind, and does not draw at random.
        prints: whether some of it may print.
        objects: those that may change; first of each of the user's functions its attributes.
        codes: of these functions.
    """

    def __init__(self, function: Any, values: Sequence[Any] = ()) -> None:
        self.is_known, self.prints = True, False
        self.objects: list[Any] = []
        self.codes: list[CodeType] = []
        self._modules: list[ModuleType] = []
        self._names: set[str] = set()
        seen: dict[int, Any] = {}
        todo = [function, *(value for value in values if not framework_of(value))]
        while todo and self.is_known:
            seen |= {id(value): value for value in todo}
            further = [one for value in todo for one in self._beyond(value)]
            further += [v for m in self._modules for n, v in vars(m).items() if n in self._names]
            todo = [*{id(value): value for value in further if id(value) not in seen}.values()]

    def hold(self) -> list[list[Any]]:
        """What the objects hold."""
        return [_parts(one) for one in self.objects]

    def is_as(self, before: list[list[Any]]) -> bool:
        """Whether the objects hold what they did before."""
        return all(_are_same(_parts(one), parts) for one, parts in zip(self.objects, before, strict=True))

    def put_back(self, before: list[list[Any]]) -> None:
        """Have the objects hold what they did before."""
        for one, parts in zip(self.objects, before, strict=True):
            if not _are_same(_parts(one), parts):
                _put_back(one, parts)

    def _beyond(self, value: Any) -> Iterable[Any]:
        """What an object leads to."""
        match value:
            case Kernel():
                return (value.function,)
            case FunctionType():
                return self._beyond_function(value)
            case ModuleType():
                return self._beyond_module(value)
            case type():
                return self._beyond_class(value)
            case staticmethod() | classmethod() | MethodType():
                return (value.__func__, getattr(value, "__self__", None))
            case property():
                return (value.fget, value.fset, value.fdel)
            case partial():
                return (value.func, value.args, value.keywords)
            case tuple() | frozenset():
                return (*value, type(value))
            case Enum():
                return (type(value), value.value)
            case BuiltinFunctionType():
                self.is_known &= value.__module__ in _PURE or value.__name__ in SILENT
                return ()
        return () if _is_fixed(value) else self._beyond_object(value)

    def _beyond_object(self, value: Any) -> Iterable[Any]:
        is_plain = isinstance(value, list | dict | set | CellType)
        own = getattr(value, "__dict__", None)
        if is_plain or type(value) is np.ndarray:
            self.objects.append(value)
        elif own is None or _package(type(value)) in _PURE:
            self.is_known = False
        parts = (*_parts(value), getattr(value, "default_factory", None)) if is_plain else ()
        return parts if own is None else (*parts, own, type(value))

    def _beyond_module(self, module: ModuleType) -> Iterable[Any]:
        name, *further = module.__name__.split(".")
        if name not in SILENT_MODULES:
            self._modules.append(module)
            self.objects.append(vars(module))
        self.is_known &= "random" not in further
        return ()

    def _beyond_class(self, cls: type) -> Iterable[Any]:
        if _package(cls) in {*_PURE, "builtins", "nkilab"}:
            return ()
        own = [part for name, part in vars(cls).items() if name != "__annotations__"]
        if isinstance(cls, EnumMeta):
            kinds = (FunctionType, property, staticmethod, classmethod)
            return [*vars(cls)["_member_map_"].values(), *(part for part in own if type(part) in kinds)]
        self.objects.append(cls)
        return (*own, *cls.__bases__)

    def _beyond_function(self, function: FunctionType) -> Iterable[Any]:
        code, names = function.__code__, function.__globals__
        if not is_users(code) or str(names.get("__name__")).split(".")[0] in _PURE:
            return ()
        steps, own = steps_of(code), vars(function)
        imported = [name.split(".") for name in steps.imported]
        # numpy.random goes on from where it was
        draws = "random" in {*names_of(code), *chain.from_iterable(imported)}
        of_python = steps.read & vars(builtins).keys() - names.keys()
        is_silent = all(parts[0] in SILENT_MODULES for parts in imported)
        self.is_known &= of_python <= _CALLED and is_silent and not draws
        self.prints |= "print" in of_python
        self.codes.append(code)
        self._names |= {*names_of(code)}
        self.objects[:0] = [own]
        self.objects += [names] * steps.stores
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        reached = (names[name] for name in steps.read & names.keys())
        return (*defaults, *own.values(), *(function.__closure__ or ()), *reached)


def can_start_again(function: Any, values: Sequence[Any], read: Collection[object] = ()) -> bool:
    """Whether nobody notices that a kernel runs more than once: it prints nothing, and keeps nothing.

    Args:
        function: the kernel's.
        values: its arguments, of which it may change lists and other objects.
        read: functions of which it is known what they read, if it may run no other: none out of a tuple.
    """
    if type(function) is not FunctionType or not all(type(v) in NUMBERS or framework_of(v) for v in values):
        return False
    lasting = Lasting(function)
    attributes, others = lasting.objects[: len(lasting.codes)], lasting.objects[len(lasting.codes) :]
    is_silent = lasting.is_known and not lasting.prints and not any(attributes) and not others
    is_read = not read or all(code in read for code in lasting.codes)
    return is_silent and is_read and not any(steps_of(code).stores for code in lasting.codes)


def _package(cls: type) -> str:
    return cls.__module__.split(".")[0]


def _is_fixed(value: Any) -> bool:
    """Whether a value is what it is as long as it lives: a number, a text, a word of ours."""
    is_word = _package(type(value)) in _FIXED_PACKAGES and not isinstance(value, View)
    # what np.frompyfunc makes calls a function that nobody sees
    is_ufunc = isinstance(value, np.ufunc) and getattr(np, value.__name__, None) is value
    return is_constant(value) or isinstance(value, _FIXED) or is_word or is_ufunc


def _parts(value: Any) -> list[Any]:
    """What an object holds: keys before their values."""
    match value:
        case type():
            return [*vars(value), *vars(value).values()]
        case dict():
            return [*value, *value.values()]
        case CellType():
            return [] if value == CellType() else [value.cell_contents]
        case np.ndarray():
            return [value.tobytes()]
    return list(value)


def _are_same(parts: list[Any], before: list[Any]) -> bool:
    return len(parts) == len(before) and all(
        a is b or (type(a) is type(b) and (type(a) is bytes or is_constant(a)) and a == b)
        for a, b in zip(parts, before, strict=True)
    )


def _put_back(value: Any, parts: list[Any]) -> None:
    half = len(parts) // 2
    match value:
        case type():
            _set_members(value, dict(zip(parts[:half], parts[half:], strict=True)))
        case dict():
            value.clear()
            value.update(zip(parts[:half], parts[half:], strict=True))
        case list():
            value[:] = parts
        case set():
            value.clear()
            value.update(parts)
        case CellType():
            value.cell_contents = parts[0]
        case np.ndarray():
            value[...] = np.frombuffer(parts[0], value.dtype).reshape(value.shape)


def _set_members(cls: type, members: dict[str, Any]) -> None:
    for name in vars(cls).keys() - members.keys():
        delattr(cls, name)
    for name, part in members.items():
        if vars(cls).get(name) is not part:
            setattr(cls, name, part)
