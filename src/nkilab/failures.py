"""What goes wrong in a verb or in a user's code: one message, which is also a JSON document."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from typing import NamedTuple

from ._lazy import part
from .errors import (
    EXIT_BUG,
    EXIT_FAULT,
    EXIT_INTERRUPTED,
    EXIT_PIPE_CLOSED,
    EXIT_USAGE,
    FileError,
    NkilabError,
    SpecError,
    UsageError,
    did_you_mean,
    message_of,
    printable,
    reason_of,
)
from .tracebacks import is_bug, is_library, is_users_file, leave_out_ours

SCHEMA = "nkilab.error/1"
_BUG = "nkilab: this is a bug of nkilab; please report it with the lines above"


class Frame(NamedTuple):
    """A line of the user's, and the function that it stands in."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Failure:
    """An error as a verb tells it."""

    # usage, kernel, specification, file, syntax, exception, exit, output, memory, interrupted, closed or bug
    kind: str
    status: int  # what the process ends with
    text: str  # what standard error gets; "" for nothing
    error: BaseException  # that was raised

    def to_dict(self) -> dict[str, object]:
        """Ready for JSON, as docs/schemas/nkilab.error-1.json describes it."""
        error, frames = self.error, users_frames(self.error)
        site = {"file": frames[-1].file, "line": frames[-1].line} if frames else None
        where = f"{os.path.basename(frames[-1].file)}:{frames[-1].line}" if frames else ""
        said = {"message": str(error) or self.text, "where": where}
        if isinstance(error, NkilabError):
            said = {"message": error.problem, "where": error.where}
        said |= {key: getattr(error, key, "") for key in ("called", "hint", "source", "key")}
        return {
            "schema": SCHEMA, "kind": self.kind, "status": self.status, "error": type(error).__name__,
            **{key: printable(value) for key, value in said.items()}, "site": site,
            "operands": [*getattr(error, "facts", ())], "frames": [frame._asdict() for frame in frames],
            "text": self.text,
        }  # fmt: skip


def users_frames(error: BaseException) -> list[Frame]:
    """The user's lines that led to an error, the innermost last."""
    frames = [
        Frame(frame.filename, frame.lineno or 1, frame.name)
        for frame in traceback.extract_tb(error.__traceback__)
        if is_users_file(frame.filename) and not is_library(frame.filename)
    ]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append(Frame(error.filename, error.lineno or 1, "<module>"))
    return frames


def failure_of(error: BaseException, name: str = "nkilab") -> Failure:
    """What an error means for a program of this name: whose fault it is, what is said, which status."""
    match error:
        case IndexError(__cause__=NkilabError() as cause):
            # an index of Beta 1 that is out of bounds at run time has NumPy's type, and ours as its cause
            return failure_of(cause, name)
        case NkilabError():
            status = EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAULT
            kinds = {UsageError: "usage", SpecError: "specification", FileError: "file"}
            kind = next((kinds[base] for base in kinds if isinstance(error, base)), "kernel")
            return Failure(kind, status, message_of(error, name), error)
        case SystemExit():
            return _exit(error, name)
        case KeyboardInterrupt():
            return Failure("interrupted", EXIT_INTERRUPTED, f"{name}: {error or 'interrupted'}", error)
        case BrokenPipeError() if _nobody_reads(error):
            return Failure("closed", EXIT_PIPE_CLOSED, "", error)
    if is_bug(error):
        return _own(error, name)
    leave_out_ours(error)
    kind = "syntax" if isinstance(error, SyntaxError) else "exception"
    return Failure(kind, EXIT_FAULT, _users_text(error, name), error)


def _exit(error: SystemExit, name: str) -> Failure:
    """A user's file that ends Python before the verb is done, or rich, which does so where nobody reads."""
    if isinstance(error.__context__, BrokenPipeError):
        return Failure("closed", EXIT_PIPE_CLOSED, "", error)
    if error.code is None or isinstance(error.code, int):
        text = f"{name}: the file ends Python with status {error.code or 0} before its kernel is run"
        return Failure("exit", error.code or EXIT_FAULT, text, error)
    return Failure("exit", EXIT_FAULT, str(error.code), error)


def _nobody_reads(error: BrokenPipeError) -> bool:
    """Whether standard output was closed, and not a connection of the user's code."""
    if is_bug(error):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return not (sys.stdout.isatty() or (frames and is_library(frames[-1].filename)))


def _own(error: BaseException, name: str) -> Failure:
    """What our own code met and nobody's kernel is at fault for."""
    match error:
        case UnicodeEncodeError():
            character = error.object[error.start]
            problem = f"standard output takes no {character!r}: its encoding is {error.encoding}"
            text = f"{name}: {problem}\n  hint: set PYTHONIOENCODING=utf-8"
            return Failure("output", EXIT_FAULT, printable(text), error)
        case OSError():
            where = error.filename or "standard output"
            text = printable(f"{name}: {where} cannot be used: {reason_of(error)}")
            return Failure("output", EXIT_FAULT, text, error)
        case MemoryError():
            return Failure("memory", EXIT_FAULT, f"{name}: there is not enough memory for this", error)
    text = "".join(traceback.format_exception(error))
    return Failure("bug", EXIT_BUG, f"{text}\n{_BUG}", error)


def _users_text(error: BaseException, name: str) -> str:
    """The user's part of a traceback, and what helps where it does not say enough."""
    text = "".join(traceback.format_exception(error)).rstrip("\n")
    if hidden := _hidden(error):
        text += f"\n\n{message_of(hidden, name)}"
    root = (getattr(error, "name", None) or "").partition(".")[0]
    served = part("dialects.serve").ROOTS
    if isinstance(error, ModuleNotFoundError) and root and root not in served:
        problem = f"the environment of {sys.executable} has no module {root}"
        text += f"\n{message_of(UsageError(problem, hint=did_you_mean(root, served)), name)}"
    return text


def _hidden(error: BaseException) -> NkilabError | None:
    """Our error behind one that PyTorch raised in its place, where the traceback does not show it."""
    cause: BaseException | None = error
    is_shown = not type(error).__module__.startswith("torch.")
    while cause is not None:
        if isinstance(cause, NkilabError):
            return None if is_shown else cause
        cause = cause.__cause__ or cause.__context__
    return None
