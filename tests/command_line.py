"""Calling the program `nkilab` as a user does, and a file of kernels to call it on."""

from __future__ import annotations

import os
import subprocess
import sys
from contextvars import copy_context
from pathlib import Path

import nkilab
from nkilab.cli import main
from tests.forks import server

SOURCE = str(Path(nkilab.__file__).parent.parent)

KERNEL = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

print("imported")

@nki.jit
def doubled(x, factor=2.0):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    nl.store(out[i * 64 : (i + 1) * 64], nl.load(x[i * 64 : (i + 1) * 64]) * factor)
    return out

@nki.jit
def added(x, y):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) + nl.load(y))
    return out

def plain(x):
    return x
"""


# what Python and numba read when they start
AT_START = ("PYTHON", "NUMBA", "LANG", "LC_")


def call(*args, folder=None, env=None, python=("-m", "nkilab")):
    """Run the program as a process of its own; standard output, standard error and exit status.

    The process is forked from one that has nkilab loaded, unless `env` or `python` ask for a start.
    """
    environment = {**os.environ, "PYTHONPATH": SOURCE, **(env or {})}
    is_started = any(name.startswith(AT_START) for name in env or ()) or python != ("-m", "nkilab")
    if hasattr(os, "fork") and not is_started:
        return server().run([*map(str, args)], str(folder or os.getcwd()), environment)
    command = [sys.executable, "-W", "error", *python, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


def outcome_of(done):
    return done.returncode, done.stdout, done.stderr


def script(folder, text, name="host.py"):
    path = folder / name
    path.write_text(text)
    return path


def inside(*args, folder):
    """Run the program in this process, which is quicker, and forget what it served; its exit status."""
    before = os.getcwd(), list(sys.path), list(sys.meta_path), set(sys.modules), dict(os.environ)
    os.chdir(folder)
    try:
        copy_context().run(main.main, [str(word) for word in args], "nkilab")
    except SystemExit as request:
        return request.code
    finally:
        os.chdir(before[0])
        sys.path[:], sys.meta_path[:] = before[1], before[2]
        os.environ.clear()
        os.environ.update(before[4])
        served = ("nki", "neuronxcc", "torch_xla", "torch_neuronx", "neuron_dtypes", "nki_cpu_simulator")
        for name in set(sys.modules) - before[3]:
            path = getattr(sys.modules[name], "__file__", None) or ""
            if name.split(".")[0] in served or path.startswith(str(folder)):
                del sys.modules[name]
    raise AssertionError("the program does not end")


def read_terminal(ours):
    """What a process writes to the terminal at whose other end we are, until it ends; closes our end."""
    text = b"".join(iter(lambda: read_piece(ours), b""))
    os.close(ours)
    return text.decode()


def read_piece(terminal):
    """What was written to a terminal since it was read; nothing when nobody is left to write."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
