"""Running a user's script as `python3` would, with the names served and its mistakes told briefly."""

from __future__ import annotations

import os
import runpy
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import util
from pathlib import Path
from typing import Any

from . import api
from ._lazy import part
from .disk import read_bytes
from .errors import EXIT_FINE, UsageError, did_you_mean, reason_of
from .failures import Failure, failure_of
from .hook import check_free, switch_on
from .packages import home_of, home_of_script, imported, put_in_front

# kernels of a file that a hint names
_MOST_NAMES = 5


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


def run_script(
    script: str, arguments: Sequence[str], *, as_module: bool = False, ranks: int = 0
) -> tuple[int, Failure | None]:
    """Run a script or module; its status, and the error that it does not catch, for which that is 1.

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
        raise UsageError(f"there is no file {script}", hint="pass the path of a Python script")
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


def _once_or_ranked(work: Callable[[], Any], ranks: int) -> tuple[int, Failure | None]:
    return ended((lambda: part("ranks").run_ranked(ranks, work)) if ranks else work)


def ended(script: Callable[[], Any]) -> tuple[int, Failure | None]:
    """Run a script; its exit status, and what went wrong, which is told."""
    try:
        script()
        return EXIT_FINE, None
    except SystemExit as request:
        if request.code is None or isinstance(request.code, int):
            return request.code or EXIT_FINE, None
        failure = failure_of(request)
    except BaseException as error:
        failure = failure_of(error)
        if failure.kind == "closed":
            raise
    # a script that is interrupted says so itself, or ends quietly
    if failure.kind != "interrupted":
        print(failure.text, file=sys.stderr)
    return failure.status, failure


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
    path, name = parts_of(designation)
    _check_source(path)
    home = home_of(path)
    put_in_front(path, home)
    module = imported(path, home)
    kernel = getattr(module, name, None)
    if kernel is None:
        kernels = [n for n, v in vars(module).items() if type(v).__name__ in ("Kernel", "Measured")]
        listed = f"its kernels are {', '.join(kernels)}" if kernels else "decorate a function with nki.jit"
        raise UsageError(f"{path} has no {name}", hint=did_you_mean(name, kernels, listed))
    return kernel


def parts_of(designation: str) -> tuple[Path, str]:
    """The file and the name of FILE.py:KERNEL.

    Raises:
        UsageError: if it has no kernel part, or there is no such file.
    """
    filename, _, name = designation.rpartition(":")
    if not filename or not name:
        file = designation.strip(":") if designation.endswith((".py", ":")) else "FILE.py"
        in_file = part("migrate.source").read(file).kernels if Path(file).is_file() else []
        kernels = [kernel.name for kernel in sorted(in_file, key=lambda kernel: kernel.lineno)]
        names = " or ".join(f"{file}:{name}" for name in kernels[:_MOST_NAMES] or ["KERNEL"])
        raise UsageError(f"{designation} does not name a kernel", hint=f"write {names}")
    path = Path(filename)
    if not path.is_file():
        raise UsageError(f"there is no file {filename}", hint="pass FILE.py:KERNEL")
    return path, name


def _check_source(path: Path) -> None:
    """Refuse a file that is no text; Python refuses it too, but does not say which file it is."""
    try:
        is_text = b"\0" not in read_bytes(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {reason_of(error)}") from None
    if not is_text:
        raise SyntaxError("this is no Python source: it holds null bytes", (str(path), 1, None, None))
