"""What names a kernel: the texts and values that its function reaches, so that what changes it is noticed."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..dialects.kernel import Kernel
from ..dialects.loop_text import codes_of
from ..packages import file_of
from ..tracebacks import is_users_file

# Python's own code and that of packages do not change between two searches, but for the kernel's own package.
_PYTHON = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_INSTALLED = tuple({sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib")})
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def identity_of(function: Any) -> str:
    """A digest of the files that a kernel's function reaches and of the values that it reads there.

    Reached are the functions, classes and modules that the code names, outside Python, nkilab and packages
    other than the function's; read are globals, closures and defaults.
    """
    code = getattr(function, "__code__", None)
    walk = _Walk(_package_of(code.co_filename) if code else "")
    walk.see(function)
    return sha256(repr((sorted(walk.texts), walk.values)).encode()).hexdigest()


def _package_of(filename: str) -> str:
    """Where the installed package of a file begins; "" if it belongs to none."""
    for folder in _INSTALLED:
        if filename.startswith(folder):
            return folder + filename[len(folder) :].split(os.sep)[0]
    return ""


class _Walk:
    """What is reached from a function, each thing once.

    Args:
        own: where the installed package begins that counts as the user's, "" for none.

    Attributes:
        texts: digests of files, and of code that stands in no file.
        values: in the order in which they are reached.
    """

    def __init__(self, own: str) -> None:
        self.texts: set[str] = set()
        self.values: list[str] = []
        self._own = own
        self._seen: dict[int, Any] = {}
        self._files: set[str] = set()

    def see(self, value: Any, name: str = "") -> None:
        """Note a value and what it reaches."""
        if isinstance(value, _PLAIN):
            self.values.append(f"{name}={value!r}")
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        match value:
            case Kernel():
                self.see(value.function, name)
            case FunctionType():
                self._see_function(value, name)
            case MethodType():
                self.see((value.__func__, value.__self__), name)
            case partial():
                self.see((value.func, value.args, value.keywords), name)
            case ModuleType():
                self._read(file_of(value))
            case type():
                self._see_class(value, name)
            case list() | tuple() | set() | frozenset() | dict():
                self._see_items(value, name)
            case _:
                self._see_object(value, name)

    def _see_function(self, function: FunctionType, name: str) -> None:
        code = function.__code__
        if not self._is_users(code.co_filename):
            return
        if not self._read(code.co_filename):
            # a cell of a notebook has no file
            self.texts.add(sha256(repr(list(map(_instructions, codes_of(code)))).encode()).hexdigest())
        self.values.append(f"{name}: {function.__qualname__}")
        names = sorted({word for part in codes_of(code) for word in part.co_names})
        for word in names:
            if word in function.__globals__:
                self._see_named(function.__globals__[word], word, names)
        for word, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self.see(_cell_contents(cell), word)
        self.see((function.__defaults__, function.__kwdefaults__), name)
        self.see(getattr(function, "__wrapped__", None), name)

    def _see_named(self, value: Any, word: str, names: list[str]) -> None:
        """A global, and of a module of the user's what the code takes of it."""
        self.see(value, word)
        if not isinstance(value, ModuleType) or not self._is_users(file_of(value)):
            return
        for name in names:
            if name in vars(value):
                self.see(vars(value)[name], f"{word}.{name}")

    def _see_class(self, value: type, name: str) -> None:
        self.values.append(f"{name}: {value.__module__}.{value.__qualname__}")
        if not self._is_users(file_of(sys.modules.get(value.__module__))):
            return
        self._read(file_of(sys.modules[value.__module__]))
        for word, member in vars(value).items():
            if isinstance(member, FunctionType | property | classmethod | staticmethod):
                self.see(getattr(member, "fget", None) or getattr(member, "__func__", member), word)

    def _see_items(self, value: Any, name: str) -> None:
        self.values.append(f"{name}: {type(value).__name__} of {len(value)}")
        if isinstance(value, set | frozenset):
            self.values.append(repr(sorted(map(repr, value))))
            return
        for item in value.items() if isinstance(value, dict) else value:
            self.see(item, name)

    def _see_object(self, value: Any, name: str) -> None:
        """An object of the user's by its attributes, an array by its elements, any other as it is written."""
        self.see(type(value), name)
        if isinstance(value, np.ndarray):
            self.values.append(sha256(np.ascontiguousarray(value).tobytes()).hexdigest())
        elif self._is_users(file_of(sys.modules.get(type(value).__module__))):
            self.see(getattr(value, "__dict__", None), name)
        else:
            # most objects without a text of their own are written with their address
            self.values.append(repr(value).partition(" at 0x")[0])

    def _read(self, filename: str) -> bool:
        """Note the text of a user's file; whether there is one."""
        if filename in self._files:
            return True
        if not self._is_users(filename):
            return False
        try:
            self.texts.add(sha256(Path(filename).read_bytes()).hexdigest())
        except (OSError, ValueError):
            return False
        self._files.add(filename)
        return True

    def _is_users(self, filename: str) -> bool:
        if not filename or not is_users_file(filename):
            return False
        if filename.startswith(_INSTALLED):
            return bool(self._own) and filename.startswith(self._own)
        return not filename.startswith(_PYTHON)


def _cell_contents(cell: CellType) -> Any:
    """What a name of an outer function stands for; None before it is bound."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _instructions(code: CodeType) -> tuple[Any, ...]:
    constants = [repr(constant) for constant in code.co_consts if not isinstance(constant, CodeType)]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars
