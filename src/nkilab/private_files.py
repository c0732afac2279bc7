"""Files that this program keeps for itself: in a folder that nobody else may write, each with its digest.

What is read there is believed. So what does not belong to this user is not looked at, and what does not match
its digest counts as damaged. A file is written whole or not at all, so that two processes may share a folder.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from .disk import opened, replace_whole
from .errors import FileError, NkilabError, reason_of

_DIGEST_BYTES = 32
HINT = "NKILAB_CACHE_DIR names another folder"


class PrivateFolder(NamedTuple):
    """A folder of this user's for one kind of files."""

    kind: str  # of files, a word of the folder's name
    what: str  # is kept there, with its verb, for messages
    base: Callable[[], Path]  # the folder that it lies in; raises FileError if the user has none
    most: Callable[[], int]  # bytes that are kept; of more, the files used longest ago are taken away

    def place(self) -> Path | None:
        """The folder, made if need be; None, told once, if it may not be used."""
        try:
            base = self.base()
        except FileError as error:
            _tell_not_kept(self.what, None, error.problem)
            return None
        return _checked(base / f"{self.kind}-{_user()}", self.what)

    def write(self, path: Path, content: bytes) -> None:
        """Keep a file in the folder, if that can be done."""
        if path.exists() and not path.is_file():
            return
        try:
            replace_whole(path, sha256(content).digest() + content, is_private=True)
        except FileError as error:
            _tell_not_kept(self.what, path.parent, error.problem.rpartition("cannot be written: ")[2])
        self.shrink(self.most())

    def files(self) -> list[tuple[float, int, Path]]:
        """When each file was used last, its bytes and its path, the one used longest ago first."""
        place = self.place()
        known = []
        for path in place.iterdir() if place else ():
            try:
                status = path.lstat()
            except FileNotFoundError:
                # another process was faster
                continue
            if stat.S_ISREG(status.st_mode):
                known.append((status.st_mtime, status.st_size, path))
        return sorted(known)

    def shrink(self, most_bytes: int) -> None:
        """Take away the files used longest ago, until the others have no more bytes than these."""
        known = self.files()
        total = sum(size for _, size, _ in known)
        for _, size, path in known:
            if total <= most_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size


@cache
def _checked(place: Path, what: str) -> Path | None:
    """The folder by its real path, so that no link leads elsewhere later; None if it may not be used."""
    try:
        for missing in reversed([one for one in (place, *place.parents) if not one.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        place = Path(os.path.realpath(place))
        reason = next(_objections(place), "")
    except OSError as error:
        reason = reason_of(error)
    if reason:
        _tell_not_kept(what, place, reason)
    return None if reason else place


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


def content_of(path: Path) -> bytes:
    """What a file holds behind its digest, as of now the one used last.

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
    os.utime(path)
    return content[_DIGEST_BYTES:]


def _tell_not_kept(what: str, place: Path | None, reason: str) -> None:
    """Tell why something is not kept in a folder; None where there is none."""
    tell_once(f"{what} not kept{f' in {place}' if place else ''}: {reason}", HINT)


@cache
def tell_once(sentence: str, hint: str = "") -> None:
    """Tell what costs time, and nothing else."""
    print(f"nkilab: {NkilabError(sentence, hint=hint)}", file=sys.stderr, flush=True)
