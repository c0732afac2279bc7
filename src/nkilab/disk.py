"""Files on disk: read whole, written whole or not at all, and never over a file that is being read.

A file is written beside its place and moved there; the files of a folder are all written before the first is
moved.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import BinaryIO

from .errors import FileError, UsageError, reason_of

AnyPath = str | os.PathLike[str]
# Where Python's own modules and those of packages lie: too many to compare, and nobody's outputs.
INSTALLED = tuple(sysconfig.get_path(key) + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib"))


def cache_folder() -> Path:
    """The folder of the user's caches for nkilab; honours NKILAB_CACHE_DIR and XDG_CACHE_HOME.

    Raises:
        FileError: if the user has no home folder and neither is set.
    """
    chosen = os.environ.get("NKILAB_CACHE_DIR")
    if chosen:
        return Path(chosen).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if base.is_absolute():
        return base / "nkilab"
    try:
        home = Path.home()
    except RuntimeError:
        home = Path()
    # an empty HOME becomes the root of all folders
    if home == Path(home.anchor):
        raise FileError("this user has no home folder for caches", hint="set NKILAB_CACHE_DIR to a folder")
    return home / ".cache" / "nkilab"


def opened(path: AnyPath) -> BinaryIO:
    """A file to read; a named pipe, which may never end, is an OSError, but not standard input."""
    real = Path(os.path.realpath(path))
    if real.is_fifo() and Path(path).parts[:2] != ("/", "dev"):
        raise OSError(errno.EINVAL, "it is a named pipe, no file", os.fspath(path))
    return open(path, "rb")


def read_bytes(path: AnyPath) -> bytes:
    """The bytes of a file; OSError as of `opened`."""
    with opened(path) as file:
        return file.read()


def read_text(path: AnyPath) -> str:
    """The text of a file, UTF-8; OSError as of `opened`, or UnicodeDecodeError."""
    return read_bytes(path).decode("utf-8")


def read_whole(path: AnyPath) -> bytes:
    """The bytes of a file.

    Raises:
        FileError: if it cannot be read.
    """
    try:
        return read_bytes(path)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason_of(error)}") from None


def write_whole(path: AnyPath, content: bytes) -> None:
    """Write a file whole or not at all; a link stays one, and a device or pipe gets the bytes.

    Raises:
        FileError: if the folder does not exist or may not be written, or a module runs from that file.
    """
    check_no_source(path)
    replace_whole(path, content)


def replace_whole(path: AnyPath, content: bytes, *, is_private: bool = False) -> None:
    """`write_whole`, of a source too: what rewrites one means it.

    Args:
        path, content: of the file.
        is_private: whether this user alone may read it.
    """
    place = Path(path)
    temporary = ""
    try:
        if place.exists() and not place.is_file():
            place.write_bytes(content)
            return
        place = Path(os.path.realpath(place))
        mode = _mode_of(place)
        handle, temporary = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        if not is_private:
            os.chmod(temporary, mode)
        os.replace(temporary, place)
    except OSError as error:
        raise _unwritten(path, error) from None
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def write_whole_folder(path: AnyPath, files: Mapping[str, bytes]) -> None:
    """Write files into a folder: all of them, or the folder stays as it was, as do those above it.

    Args:
        path: of the folder, made if it is not there.
        files: by name, which may have folders within it.

    Raises:
        FileError: if the folder cannot be made or written, or a module runs from one of the files.
    """
    place = Path(path)
    for name in files:
        check_no_source(place / name)
    above = [folder for folder in (place, *place.parents) if not folder.exists()]
    stage: Path | None = None
    is_written = False
    try:
        place.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".nkilab-", dir=place))
        for number, (name, content) in enumerate(files.items()):
            mode = _mode_of(place / name)
            (stage / str(number)).write_bytes(content)
            os.chmod(stage / str(number), mode)
        for number, name in enumerate(files):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(stage / str(number), os.path.realpath(place / name))
        is_written = True
    except OSError as error:
        raise _unwritten(path, error) from None
    finally:
        if stage is not None:
            shutil.rmtree(stage, ignore_errors=True)
        if above and not is_written:
            shutil.rmtree(above[-1], ignore_errors=True)


def _mode_of(place: Path) -> int:
    """The rights of what is written to a place: those of the file there, else as any new file has.

    Raises:
        OSError: if the file there is a folder, or may not be written.
    """
    try:
        mode = os.stat(place).st_mode
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(place))
    if not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
    return stat.S_IMODE(mode)


def _unwritten(path: AnyPath, error: OSError) -> FileError:
    return FileError(f"{path} cannot be written: {reason_of(error)}")


def check_no_source(path: AnyPath) -> None:
    """Refuse to write over a file that a module of this process was read from, whatever its name there is.

    Raises:
        FileError: if one was.
    """
    if not os.path.isfile(path):
        return
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and not file.startswith(INSTALLED) and is_same(file, path):
            raise FileError(f"{path} is the source of the module {name}", hint="name another file")


def is_same(one: AnyPath, other: AnyPath) -> bool:
    """Whether two paths name one file, as a link and what it leads to do, or that are to name one."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return os.path.realpath(one) == os.path.realpath(other)


def check_outputs(outputs: Mapping[str, str], words: Collection[str], folders: Collection[str] = ()) -> None:
    """Refuse paths that nothing can be written to, or nothing should be, before the work that fills them.

    Args:
        outputs: paths by the option that names them.
        words: the others of the command line: a file that one of them names is read, such as k.py of k.py:f,
            x.npy of name=@x.npy, own.yaml of trn2,own.yaml.
        folders: those of `outputs` that name folders.

    Raises:
        UsageError: if a path is an input's or another output's, of the wrong kind, or may not be written.
    """
    inputs = [file for word in words for file in _files_in(word)]
    seen: dict[str, str] = {}
    for option, path in outputs.items():
        twice = next((other for other, known in seen.items() if is_same(path, known)), "")
        if twice:
            raise UsageError(
                f"{twice} and {option} both name {path}", hint="give each file a name of its own"
            )
        seen[option] = path
        if any(is_same(path, file) for file in inputs):
            raise UsageError(f"{option} is {path}, which the command reads", hint="name another file")
        if option in folders:
            _check_folder(path)
        else:
            check_writable(path)


def _files_in(word: str) -> list[str]:
    """The files that a word of a command line names."""
    names = [word, word.rpartition(":")[0], word.partition("@")[2], *word.split(",")]
    return [name for name in names if name and os.path.isfile(name)]


def check_writable(path: AnyPath) -> None:
    """Refuse a path that no file can be written to, before the work that fills it.

    Raises:
        UsageError: if it is a folder, or it or its folder may not be written, or its folder does not exist.
    """
    place = Path(path)
    if place.is_dir():
        raise UsageError(f"{path} is a folder; a file is to be written there", hint="name a file in it")
    if not place.parent.is_dir():
        raise UsageError(
            f"the folder of {path} does not exist", hint=f"make {place.parent}, or name another file"
        )
    if place.exists() and not os.access(place, os.W_OK):
        raise UsageError(f"{path} may not be written", hint="name another file")
    is_plain = place.is_file() or not place.exists()
    if is_plain and not os.access(os.path.realpath(place.parent), os.W_OK):
        raise UsageError(f"the folder of {path} may not be written", hint="name a file elsewhere")


def _check_folder(path: AnyPath) -> None:
    """Refuse a path that no folder can be made at, or whose folder takes no files."""
    nearest = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
    if not nearest.is_dir():
        raise UsageError(f"{nearest} is a file; a folder is to be written there", hint="name another folder")
    if not os.access(nearest, os.W_OK):
        raise UsageError(f"the folder {nearest} may not be written", hint="name another folder")
