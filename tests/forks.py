"""A process that has nkilab loaded and forks for each run of the program: all of a run but the imports.

Run as a script it answers requests, one line of JSON each on standard input, with the wait status.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import cache
from pathlib import Path

import nkilab

# what imports a framework, a served name or pytest, or is for an interpreter's start
LEFT_OUT = (
    "nkilab.torch", "nkilab.jax", "nkilab.frameworks", "nkilab.__main__", "nkilab.autostart", "nkilab.suites",
    "nkilab.examples.", "nkilab.ledger.kernels.", "nkilab.projects.template",
)  # fmt: skip
# modules of others that most verbs come to load
HEAVY = ("numba", "rich.console", "rich.table", "ruamel.yaml", "islpy")


class Server:
    """The process, from the first run to the end of the tests."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(nkilab.__file__).parent.parent)}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", __file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        atexit.register(self._end)

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, arguments: list[str], folder: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run the program with arguments in a folder, as a new process with these variables alone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as scratch:
            paths = [os.path.join(scratch, name) for name in ("output", "complaint")]
            asked = {"arguments": arguments, "folder": folder, "env": env, "paths": paths}
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            status = os.waitstatus_to_exitcode(int(self._process.stdout.readline()))
            texts = [Path(path).read_text(encoding="utf-8") for path in paths]
        return subprocess.CompletedProcess(["nkilab", *arguments], status, *texts)


@cache
def server() -> Server:
    """The one of this process."""
    return Server()


def _load() -> None:
    for name in HEAVY:
        importlib.import_module(name)
    root = Path(nkilab.__file__).parent
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        if not name.startswith(LEFT_OUT):
            importlib.import_module(name)


def _become(request: dict) -> None:
    """Make this process what was asked for."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(request["paths"], start=1):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), number)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    sys.path[0] = os.getcwd()
    sys.argv = ["nkilab", *request["arguments"]]


def _run() -> None:
    """Run the program and end without taking everything apart first, which takes longer than most verbs."""
    status = 1
    try:
        importlib.import_module("nkilab.cli").main(prog_name="nkilab")
    except SystemExit as request:
        status = int(request.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        # as the interpreter ends: threads, then what asked to be called, then what is not written yet
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _serve() -> None:
    _load()
    gc.collect()
    # so that no run's collection copies the pages of what is loaded
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(json.loads(line))
            _run()
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    _serve()
