"""Tracebacks that show the user's frames alone: nkilab's are left out where an error leaves nkilab."""

from __future__ import annotations

import os
import re
import signal
import sysconfig
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from .errors import NkilabError, StartAgain

# shows all frames where it is 1
FULL_TRACE = "NKILAB_FULL_TRACE"
_PYTHON = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
# what nkilab calls, and is called by; other packages that are installed are a user's
_CALLED = re.compile(
    _INSTALLED.pattern + r"(?:click|dask|distributed|islpy|jax|jaxlib|ml_dtypes|numba|numpy|optuna|"
    r"pyarrow|rich|ruamel|torch)[/\\]"
)

PACKAGE = str(Path(__file__).resolve().parent) + "/"
_KERNELS = (PACKAGE + "examples/", PACKAGE + "ledger/kernels/")
# Whether a file belongs to nkilab; a dictionary look-up per frame instead of a string comparison.
_IS_OURS: dict[str, bool] = {}

F = TypeVar("F", bound=Callable[..., Any])


def public(function: F) -> F:
    """Leave nkilab's frames out of the traceback of what the decorated function raises."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if isinstance(error, TypeError) and sum(1 for _ in _entries(error.__traceback__)) == 1:
                # the arguments do not bind: the call is at fault
                error.__traceback__ = None
            else:
                leave_out_ours(error)
            # with nothing behind it, so that this frame is not added again
            raise

    return call  # type: ignore[return-value]


def is_whole() -> bool:
    """Whether the user asks for all frames."""
    return os.environ.get(FULL_TRACE) == "1"


def leave_out_ours(error: BaseException) -> None:
    """Take nkilab's frames, and what lies between them, out of an error's traceback and of its causes'.

    A bug of nkilab's keeps all of its frames: it is no error of ours, and was raised or met in our code.
    """
    if is_whole() or is_bug(error):
        return
    for link in _chain(error):
        # what one of our errors is raised from was met on purpose
        if isinstance(error, NkilabError) or not is_bug(link):
            link.__traceback__ = without_ours(link.__traceback__)
        context = link.__context__
        if context is not None and link.__cause__ is None and _is_inside(context):
            # how nkilab found out, which nobody else can read
            link.__suppress_context__ = True


def is_from_outside(error: BaseException) -> bool:
    """Whether an error may end work anywhere: an interrupt, a limit, a signal's handler, want of memory."""
    if not isinstance(error, Exception | StartAgain) or isinstance(error, MemoryError):
        return True
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    return any(entry.tb_frame.f_code in handlers for entry in _entries(error.__traceback__))


def is_users_file(filename: str) -> bool:
    """Whether a file lies outside nkilab; the examples' and the ledger's kernels count as a user's."""
    ours = _IS_OURS.get(filename)
    if ours is None:
        inside = filename.startswith((PACKAGE, "<nkilab"))
        ours = _IS_OURS[filename] = inside and not filename.startswith(_KERNELS)
    return not ours


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without nkilab's frames, those of libraries that it called, and the import machinery's."""
    kept = []
    is_inside = False
    for entry in _entries(trace):
        filename = _file_of(entry)
        if not is_users_file(filename):
            is_inside = True
        elif not filename.startswith("<frozen ") and not (is_inside and is_library(filename)):
            is_inside = False
            kept.append(entry)
    shown = None
    for entry in reversed(kept):
        shown = TracebackType(shown, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return shown


def is_library(filename: str) -> bool:
    """Whether a file is Python's, or one of a package that nkilab works with: neither the user's nor ours."""
    if not is_users_file(filename):
        return False
    if _INSTALLED.search(filename):
        return _CALLED.search(filename) is not None
    return filename.startswith(("<frozen ", *_PYTHON))


def is_bug(error: BaseException) -> bool:
    """Whether our own code raised an error, or called what did, and did not mean to."""
    if isinstance(error, NkilabError | ImportError) or isinstance(error.__cause__, NkilabError):
        return False
    if isinstance(error, SyntaxError) and is_users_file(error.filename or ""):
        return False
    names = [_file_of(entry) for entry in _entries(error.__traceback__)]
    while names and is_library(names[-1]):
        names.pop()
    return bool(names) and not is_users_file(names[-1])


def _is_inside(error: BaseException) -> bool:
    """Whether an error was raised and caught in nkilab, far from any line of the user's."""
    names = [_file_of(entry) for entry in _entries(error.__traceback__)]
    return not isinstance(error, NkilabError) and all(not is_users_file(n) or is_library(n) for n in names)


def _file_of(entry: TracebackType) -> str:
    """The file of a frame; of a method that a dataclass of nkilab was given, our own."""
    name = entry.tb_frame.f_code.co_filename
    is_made = name == "<string>" and entry.tb_frame.f_globals.get("__name__", "").startswith(__package__)
    return PACKAGE if is_made else name


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what caused it, and what was being handled, each once."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        error_seen = waiting.pop()
        if error_seen is not None and id(error_seen) not in seen:
            seen.add(id(error_seen))
            yield error_seen
            waiting += [error_seen.__cause__, error_seen.__context__]


def _entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next
