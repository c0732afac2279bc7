"""Compiled code on disk: kept from one run to the next, and loaded only where nobody else can have put it.

Code that is loaded is run: it is what numba makes of a compiled function, pickled. So it lies in a private
folder, each piece in a file of its own, and what may not be read there is compiled again.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Protocol, cast

from ._lazy import numba, numba_code
from .disk import cache_folder
from .errors import reason_of
from .private_files import HINT, PrivateFolder, content_of, tell_once

# bytes of it that are kept: ten times what one release compiles
MOST_BYTES = 1 << 26
FOLDER = PrivateFolder("code", "compiled code is", lambda: base_folder(), lambda: MOST_BYTES)


class _Dispatcher(Protocol):
    """A function that numba compiles."""

    __name__: str
    _cache: CodeCache


class _Target(Protocol):
    """What numba compiles for: its context, or the code generator of one."""

    def refresh(self) -> None: ...
    def codegen(self) -> _Target: ...
    def magic_tuple(self) -> tuple[object, ...]: ...


class _Compiled(Protocol):
    """What numba makes of a function for one signature."""

    codegen: _Target
    library: _Library

    def _reduce(self) -> tuple[object, ...]: ...


class _Library(Protocol):
    has_dynamic_globals: bool


def keep(dispatcher: _Dispatcher, digest: str) -> None:
    """Have the code of a function that numba compiles kept on disk.

    Args:
        dispatcher: what `numba.njit` makes of the function.
        digest: changes with all that its code is made of.
    """
    dispatcher._cache = CodeCache(dispatcher.__name__, digest)


def compiled(function: Callable[..., None], digest: str) -> Callable[..., None]:
    """A function that is compiled at its first call, runs without the interpreter's lock, and is kept.

    Args:
        function: over arrays and numbers.
        digest: see `keep`.
    """
    dispatcher: Callable[..., None] = numba().njit(nogil=True, error_model="numpy")(function)
    keep(cast(_Dispatcher, dispatcher), digest)
    return dispatcher


class CodeCache:
    """The compiled code of one function, as numba asks for it: a file per signature.

    Args:
        name: of the function.
        digest: see `keep`.
    """

    def __init__(self, name: str, digest: str) -> None:
        _, _, release = numba_code()
        parts = (digest, numba().__version__, release, sys.implementation.cache_tag)
        self._stem = f"{name}-{sha256(repr(parts).encode()).hexdigest()[:16]}"
        self.cache_path = ""

    def load_overload(self, signature: object, context: _Target) -> object:
        """The compiled function for a signature; None if there is none that may be loaded."""
        context.refresh()
        path = self._path(signature, context.codegen())
        if path is None or not path.exists():
            return None
        try:
            _, compiler, _ = numba_code()
            return compiler.CompileResult._rebuild(context, *pickle.loads(content_of(path)))
        except OSError as error:
            tell_once(f"the compiled code in {path} is not loaded: {reason_of(error)}", HINT)
        except Exception:
            # whatever numba makes of content that is not what it wrote
            tell_once(f"the compiled code in {path} is damaged; it is compiled again")
        return None

    def save_overload(self, signature: object, compiled: _Compiled) -> None:
        """Keep a compiled function, if that can be done."""
        path = self._path(signature, compiled.codegen)
        if path is not None and not compiled.library.has_dynamic_globals:
            dumps, _, _ = numba_code()
            FOLDER.write(path, dumps(compiled._reduce()))

    def _path(self, signature: object, codegen: _Target) -> Path | None:
        """Where the code for a signature and this kind of processor is kept; None where it is not."""
        key = sha256(repr((signature, codegen.magic_tuple())).encode()).hexdigest()[:16]
        place = FOLDER.place()
        return place and place / f"{self._stem}-{key}"

    def _do_nothing(self) -> None:
        """It always is enabled, and nothing waits to be written."""

    enable = disable = flush = _do_nothing


def base_folder() -> Path:
    """The folder below which compiled code is kept; honours NUMBA_CACHE_DIR.

    Raises:
        FileError: if this user has none.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return Path(chosen).absolute() if chosen else cache_folder() / "numba"
