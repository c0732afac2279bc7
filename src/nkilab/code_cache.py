"""Compiled code on disk: kept from one run to the next, and loaded only where nobody else can have put it.

Code that is loaded is run. So it is kept in a folder of the user's own, which nobody else may write, each
piece in a file of its own: a digest, then what numba makes of a compiled function, pickled. What does not
belong to this user is not looked at, and what does not match its digest is compiled again.
"""

from __future__ import annotations

import os
import pickle
import stat
import sys
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Protocol, cast

from ._lazy import numba, numba_code
from .disk import cache_folder, opened, replace_whole
from .errors import FileError, NkilabError, reason_of

_DIGEST_BYTES = 32
_HINT = "NKILAB_CACHE_DIR names another folder"


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
        place = folder()
        path = place and self._path(place, signature, context.codegen())
        if path is None or not path.exists():
            return None
        try:
            _, compiler, _ = numba_code()
            return compiler.CompileResult._rebuild(context, *pickle.loads(_content_of(path)))
        except OSError as error:
            tell_once(f"the compiled code in {path} is not loaded: {reason_of(error)}", _HINT)
        except Exception:
            # whatever numba makes of content that is not what it wrote
            tell_once(f"the compiled code in {path} is damaged; it is compiled again")
        return None

    def save_overload(self, signature: object, compiled: _Compiled) -> None:
        """Keep a compiled function, if that can be done."""
        place = folder()
        if place is None or compiled.library.has_dynamic_globals:
            return
        dumps, _, _ = numba_code()
        content = dumps(compiled._reduce())
        path = self._path(place, signature, compiled.codegen)
        if path.exists() and not path.is_file():
            return
        try:
            replace_whole(path, sha256(content).digest() + content, is_private=True)
        except FileError as error:
            _tell_not_kept(place, error.problem.rpartition("cannot be written: ")[2])

    def _path(self, place: Path, signature: object, codegen: _Target) -> Path:
        """Where the code for a signature and this kind of processor is kept."""
        key = sha256(repr((signature, codegen.magic_tuple())).encode()).hexdigest()[:16]
        return place / f"{self._stem}-{key}"

    def enable(self) -> None:
        """It always is."""

    def disable(self) -> None:
        """It never is."""

    def flush(self) -> None:
        """Nothing waits to be written."""


def base_folder() -> Path:
    """The folder below which compiled code is kept; honours NUMBA_CACHE_DIR.

    Raises:
        FileError: if this user has none.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return Path(chosen).absolute() if chosen else cache_folder() / "numba"


def folder() -> Path | None:
    """The folder that compiled code is kept in, made if need be; None, told once, if it may not be used."""
    try:
        base = base_folder()
    except FileError as error:
        _tell_not_kept(None, error.problem)
        return None
    return _checked(base / f"code-{_user()}")


@cache
def _checked(place: Path) -> Path | None:
    """The folder by its real path, so that no link leads elsewhere later; None if it may not be used."""
    try:
        _make(place)
        place = Path(os.path.realpath(place))
        reason = next(_objections(place), "")
    except OSError as error:
        reason = reason_of(error)
    if reason:
        _tell_not_kept(place, reason)
    return None if reason else place


def _make(place: Path) -> None:
    """Make a folder, and those above it, for this user alone."""
    for missing in reversed([one for one in (place, *place.parents) if not one.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _user() -> int:
    """The number of this user; 0 where the system has none."""
    number: Callable[[], int] = getattr(os, "geteuid", lambda: 0)
    return number()


def _objections(place: Path) -> Iterator[str]:
    """Why somebody else may have put something into a folder, or nothing can be put there."""
    if not place.is_dir():
        yield "it is a file"
    if not os.access(place, os.W_OK):
        yield "it may not be written"
    yield from _foreign(os.stat(place))
    for above in place.parents if hasattr(os, "geteuid") else ():
        mode = os.stat(above).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            yield f"anybody may replace it, as {above} may be written by all"


def _foreign(status: os.stat_result) -> Iterator[str]:
    """Why something may be another user's work; nothing where the system has no users."""
    if not hasattr(os, "geteuid"):
        return
    if status.st_uid != _user():
        yield "it belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield "other users may write to it"


def _content_of(path: Path) -> bytes:
    """What a file holds behind its digest.

    Raises:
        PermissionError: if it may be another user's work.
        ValueError: if it does not match its digest.
    """
    with opened(path) as file:
        reason = next(_foreign(os.fstat(file.fileno())), "")
        content = b"" if reason else file.read()
    if reason:
        raise PermissionError(reason)
    if sha256(content[_DIGEST_BYTES:]).digest() != content[:_DIGEST_BYTES]:
        raise ValueError("it does not match its digest")
    return content[_DIGEST_BYTES:]


def _tell_not_kept(place: Path | None, reason: str) -> None:
    """Tell why compiled code is not kept in a folder; None where there is none."""
    tell_once(f"compiled code is not kept{f' in {place}' if place else ''}: {reason}", _HINT)


@cache
def tell_once(sentence: str, hint: str = "") -> None:
    """Tell what costs a compilation."""
    print(f"nkilab: {NkilabError(sentence, hint=hint)}", file=sys.stderr, flush=True)
