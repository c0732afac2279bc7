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
from typing import Any

from ._lazy import numba, numba_code
from .disk import cache_folder, opened, replace_whole
from .errors import FileError, NkilabError, reason_of

_DIGEST_BYTES = 32


def keep(dispatcher: Any, digest: str) -> None:
    """Have the code of a function that numba compiles kept on disk.

    Args:
        dispatcher: what `numba.njit` makes of the function.
        digest: changes with all that its code is made of.
    """
    dispatcher._cache = CodeCache(dispatcher.__name__, digest)


def compiled(function: Callable[..., None], digest: str) -> Any:
    """A function that is compiled at its first call, runs without the interpreter's lock, and is kept.

    Args:
        function: over arrays and numbers.
        digest: see `keep`.
    """
    dispatcher = numba().njit(nogil=True, error_model="numpy")(function)
    keep(dispatcher, digest)
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

    @property
    def is_usable(self) -> bool:
        """Whether code can be kept, as far as that is known before it is tried."""
        return folder() is not None

    @property
    def has_code(self) -> bool:
        """Whether there is code for some signature."""
        place = folder()
        return place is not None and any(place.glob(f"{self._stem}-*"))

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The compiled function for a signature; None if there is none that may be loaded."""
        context.refresh()
        place = folder()
        path = place and self._path(place, signature, context.codegen())
        if path is None or not path.exists():
            return None
        try:
            _, compile_result, _ = numba_code()
            return compile_result._rebuild(context, *pickle.loads(_content_of(path)))
        except OSError as error:
            tell_once(path.parent, f"{path.name} cannot be read: {reason_of(error)}")
        except Exception:
            # whatever numba makes of content that is not what it wrote
            tell_once(path.parent, f"{path.name} is damaged, and compiled again", "")
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
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
            tell_once(place, error.problem.rpartition("cannot be written: ")[2])

    def _path(self, place: Path, signature: Any, codegen: Any) -> Path:
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
        tell_once(None, error.problem)
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
        tell_once(place, reason)
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
    if not hasattr(os, "geteuid"):
        return
    yield from _foreign(os.stat(place))
    for above in place.parents:
        mode = os.stat(above).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            yield f"anybody may replace it, as {above} may be written by all"


def _foreign(status: os.stat_result) -> Iterator[str]:
    """Why something may be another user's work."""
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
        if hasattr(os, "geteuid"):
            for reason in _foreign(os.fstat(file.fileno())):
                raise PermissionError(reason)
        content = file.read()
    if sha256(content[_DIGEST_BYTES:]).digest() != content[:_DIGEST_BYTES]:
        raise ValueError("it does not match its digest")
    return content[_DIGEST_BYTES:]


@cache
def tell_once(place: Path | None, reason: str, hint: str = "NKILAB_CACHE_DIR names another folder") -> None:
    """Tell that compiled code is not kept, or not taken from where it is kept."""
    where = f" in {place}" if place else ""
    error = NkilabError(f"compiled code is not kept{where}: {reason}", hint=hint)
    print(f"nkilab: {error}", file=sys.stderr, flush=True)
