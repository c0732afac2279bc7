"""Plans and timelines on disk: a program that another process planned and timed is looked up.

A file is a message of msgspec, which is decoded by types: nothing in it is run. Its name is a digest of
everything that decides a plan and its timeline, with the modules that make them.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np

from .argument_checks import megabytes
from .disk import cache_folder
from .errors import FileError
from .files.neff import digest_of
from .place import Plan
from .private_files import PrivateFolder, content_of, tell_once
from .timing import Timeline
from .trace.program import Program

FOLDER = PrivateFolder("programs", "estimates are", lambda: cache_folder() / "estimates", lambda: limit())
# rows from which on looking up takes less time than planning and timing again
FEWEST_ROWS = 3_000
# of all that may be kept the part that one program may take, and what a row of one takes at least
_SHARE, _ROW_BYTES = 4, 100
# folders of this package, and modules beside them, that plans and timelines follow from
_FOLDERS = ("place", "timing", "isa", "machine", "tiles", "trace")
_MODULES = ("records.py", "kept_estimates.py")


class Kept(msgspec.Struct, frozen=True):
    """What was found about a program: where its tiles lie and who waits for whom, and when it all happens."""

    plan: Plan
    timeline: Timeline


def limit() -> int:
    """Bytes of estimates that may be kept."""
    return megabytes("NKILAB_ESTIMATES", "256", "estimates")


def path_of(program: Program) -> Path | None:
    """Where the plan and the timeline of a program are kept; None if they are not."""
    if not FEWEST_ROWS <= len(program) <= limit() // _SHARE // _ROW_BYTES:
        return None
    if program.met or any(form.is_indirect for form in program.forms):
        # files have neither whom a program meets nor what only its run knows
        return None
    place = FOLDER.place()
    try:
        return place and place / sha256(f"{digest_of(program)} {_makers()}".encode()).hexdigest()
    except FileError:
        # an attribute of an instruction has no form in files
        return None


def recalled(path: Path | None) -> Kept | None:
    """What is kept at a place, if it is whole and this user's own."""
    if path is None or not path.is_file():
        return None
    try:
        return msgspec.msgpack.decode(content_of(path), type=Kept, dec_hook=_array)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        tell_once(f"the estimate in {path} is not used: {error}")
        return None


def keep(path: Path | None, plan: Plan, timeline: Timeline) -> None:
    """Keep what was found about a program, in place of what was used longest ago."""
    content = b"" if path is None else msgspec.msgpack.encode(Kept(plan, timeline), enc_hook=_plain)
    if path is not None and len(content) <= limit() // _SHARE:
        FOLDER.write(path, content)


def _plain(value: object) -> tuple[str, bytes] | int | float:
    """A column as its type and its bytes, a number of NumPy as one of Python's."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "bif":
        return value.dtype.str, value.tobytes()
    if isinstance(value, np.generic):
        number: int | float = value.item()
        return number
    raise NotImplementedError(f"{type(value).__name__} is kept nowhere")


def _array(_: type, value: object) -> np.ndarray:
    """A column of its type and its bytes."""
    dtype, content = msgspec.convert(value, tuple[str, bytes])
    return np.frombuffer(content, dtype).copy()


@cache
def _makers() -> list[tuple[str, int, int]]:
    """Name, size and time of each module that plans and timelines follow from."""
    home = Path(__file__).parent
    files = [home / name for name in _MODULES] + [
        file for name in _FOLDERS for file in (home / name).rglob("*.py")
    ]
    return [(str(f.relative_to(home)), f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(files)]
