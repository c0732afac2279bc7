"""Calling the program `nkilab` as a user does, and a file of kernels to call it on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nkilab

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


def call(*args, folder=None, env=None, python=("-m", "nkilab")):
    """Run the program; standard output, standard error and exit status."""
    environment = {**os.environ, "PYTHONPATH": SOURCE, **(env or {})}
    command = [sys.executable, "-W", "error", *python, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


def told(done):
    return done.returncode, done.stdout, done.stderr


def script(folder, text, name="host.py"):
    path = folder / name
    path.write_text(text)
    return path
