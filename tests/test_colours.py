"""Colours and progress are for somebody who looks at a terminal, and for nobody else."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.command_line import SOURCE, call, read_terminal

pty = pytest.importorskip("pty")
# a foreground or background colour among the attributes of a sequence
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-9]|4[0-9]|9[0-7])(?:;\d+)*m")


def on_terminal(*words, **environment):
    """What the program writes where standard output is a terminal."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "PYTHONPATH": SOURCE, "TERM": "xterm-256color", **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "nkilab", *words], stdout=theirs, stderr=theirs, env=variables, close_fds=True
    )
    os.close(theirs)
    text = read_terminal(ours)
    assert process.wait() == 0
    return text


def test_a_terminal_shows_colours_unless_it_is_asked_not_to():
    assert COLOUR.search(on_terminal("explain", "nc_matmul"))
    assert not COLOUR.search(on_terminal("explain", "nc_matmul", NO_COLOR="1"))


def test_a_pipe_has_none():
    done = call("explain", "nc_matmul")
    assert "\x1b" not in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
