"""Running a user's script as `python3` would, with the names served and its mistakes told briefly."""

from __future__ import annotations

import os
import runpy
import stat
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

from . import api
from ._lazy import part
from .dialects.serve import ROOTS
from .disk import read_bytes
from .errors import (
    EXIT_BUG,
    EXIT_FAULT,
    EXIT_FINE,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    NkilabError,
    UsageError,
    did_you_mean,
    message_of,
    reason_of,
)
from .hook import check_free, switch_on
from .packages import home_of, home_of_script, imported, put_in_front
from .tracebacks import is_bug, is_library, leave_out_ours


def serve_names(version: str, target: str, *, in_front: bool = False) -> None:
    """Serve the names in this process, unless another distribution has them.

    Args:
        version, target: that kernels are held to; "" for neither.
        in_front: whether to serve them even then.

    Raises:
        UsageError: if one has, or the version or chip does not exist.
    """
    if not in_front:
        check_free("choose with nkilab run --backend sim or vendor, or use an environment without it")
    if target:
        api.machine_for(None, target)
    finder = switch_on(version, serves_shims=True, in_front=in_front)
    api.choose(version=finder.version, target=target)
    if finder.version:
        # for the script's children, such as workers of pytest-xdist
        os.environ["NKILAB_NKI"] = finder.version


def run_script(script: str, arguments: Sequence[str], *, as_module: bool = False, ranks: int = 0) -> int:
    """Run a script or module and return its status: its own, or 1 for an error it does not catch.

    With `ranks` it runs once for each of them; see `ranks.run_ranked`.

    Raises:
        UsageError: if there is no such file or module.
    """
    if as_module:
        sys.path.insert(0, os.getcwd())
        if util.find_spec(script.partition(".")[0]) is None:
            raise UsageError(f"there is no module {script}", hint="pass one that python3 -m would run")
        sys.argv = [script, *arguments]
        return _once_or_ranked(lambda: runpy.run_module(script, run_name="__main__", alter_sys=True), ranks)
    path = Path(script)
    if not path.is_file():
        raise UsageError(f"{script} is no file", hint="pass the path of a Python script")
    sys.argv = [script, *arguments]
    home = home_of_script(path)
    put_in_front(path, home)

    def work() -> None:
        _check_source(path)
        if home.is_package:
            runpy.run_module(home.name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")

    return _once_or_ranked(work, ranks)


def _once_or_ranked(work: Callable[[], Any], ranks: int) -> int:
    return guarded((lambda: part("ranks").run_ranked(ranks, work)) if ranks else work)


def guarded(action: Callable[[], Any]) -> int:
    """Do something of the user's; tell what goes wrong in his terms and return the exit status."""
    try:
        action()
    except SystemExit as request:
        if request.code is None or isinstance(request.code, int):
            return request.code or EXIT_FINE
        print(request.code, file=sys.stderr)
        return EXIT_FAULT
    except NkilabError as error:
        print(message_of(error), file=sys.stderr)
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAULT
    except IndexError as error:
        # an index of Beta 1 that is out of bounds at run time has NumPy's type, and ours as its cause
        if not isinstance(error.__cause__, NkilabError):
            return _tell(error)
        print(message_of(error.__cause__), file=sys.stderr)
        return EXIT_FAULT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError as error:
        # raised where the script prints, it means that nobody reads; the program ends quietly then
        if sys.stdout.isatty() or is_library(traceback.extract_tb(error.__traceback__)[-1].filename):
            return _tell(error)
        raise
    except BaseException as error:
        return _tell(error)
    return EXIT_FINE


def _tell(error: BaseException) -> int:
    """Print the user's part of a traceback; an error that our own code raised is our bug."""
    if is_bug(error):
        traceback.print_exception(error)
        print("\nnkilab: this is a bug of nkilab; please report it with the lines above", file=sys.stderr)
        return EXIT_BUG
    leave_out_ours(error)
    traceback.print_exception(error)
    if hidden := _hidden(error):
        print(f"\n{message_of(hidden)}", file=sys.stderr)
    root = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and root and root not in ROOTS:
        hint = did_you_mean(root, ROOTS)
        problem = f"the environment of {sys.executable} has no module {root}"
        print(message_of(UsageError(problem, hint=hint)), file=sys.stderr)
    return EXIT_FAULT


def _hidden(error: BaseException) -> NkilabError | None:
    """Our error behind one that PyTorch raised in its place, where the traceback does not show it."""
    cause: BaseException | None = error
    is_shown = not type(error).__module__.startswith("torch.")
    while cause is not None:
        if isinstance(cause, NkilabError):
            return None if is_shown else cause
        cause = cause.__cause__ or cause.__context__
    return None


def put_tools_on_path() -> tempfile.TemporaryDirectory[str]:
    """A folder in front of PATH, for the children of a script, with a `neuron-profile` that calls ours."""
    folder = tempfile.TemporaryDirectory(prefix="nkilab-tools-")
    tool = Path(folder.name) / "neuron-profile"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nkilab neuron-profile "$@"\n', "utf-8")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    os.environ["PATH"] = folder.name + os.pathsep + os.environ.get("PATH", "")
    return folder


def kernel_from(designation: str) -> Any:
    """The kernel that FILE.py:KERNEL names; the file is run with the names served.

    Raises:
        UsageError: if the designation has no kernel part, or there is no such file or kernel.
    """
    filename, _, name = designation.rpartition(":")
    if not filename or not name:
        hint = f"write {designation.strip(':') if designation.endswith(('.py', ':')) else 'FILE.py'}:KERNEL"
        raise UsageError(f"{designation} names no kernel", hint=hint)
    path = Path(filename)
    if not path.is_file():
        raise UsageError(f"{filename} is no file", hint="pass FILE.py:KERNEL")
    module = _module_from(path)
    kernel = getattr(module, name, None)
    if kernel is None:
        kernels = [n for n, v in vars(module).items() if type(v).__name__ in ("Kernel", "Measured")]
        listed = f"its kernels are {', '.join(kernels)}" if kernels else "decorate a function with nki.jit"
        raise UsageError(f"{filename} has no {name}", hint=did_you_mean(name, kernels, listed))
    return kernel


def _check_source(path: Path) -> None:
    """Refuse a file that is no text; Python refuses it too, but does not say which file it is.

    Raises:
        SyntaxError: if it holds a null byte.
        UsageError: if it cannot be read.
    """
    try:
        is_text = b"\0" not in read_bytes(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {reason_of(error)}") from None
    if not is_text:
        raise SyntaxError("this is no Python source: it holds null bytes", (str(path), 1, None, None))


def _module_from(path: Path) -> ModuleType:
    _check_source(path)
    home = home_of(path)
    put_in_front(path, home)
    return imported(path, home)
