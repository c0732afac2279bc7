"""The live line: on a terminal alone, for long work alone, gone afterwards."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time

import pytest

from nkilab.progress import is_wanted, phase
from tests.command_line import SOURCE, read_terminal

WORK = """
import time
from nkilab.progress import phase
done = [0]
with phase("tracing", lambda: done[0]):
    for i in range(12):
        time.sleep(0.1)
        done[0] = 1234 * (i + 1)
        {line}
print("ready", flush=True)
"""


def on_terminal(program: str, **env: str) -> str:
    """What a program writes to a terminal that is its standard error."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": SOURCE, "TERM": "xterm", **env}
    done = subprocess.Popen(
        [sys.executable, "-c", program], stderr=theirs, stdout=subprocess.PIPE, env=environment
    )
    os.close(theirs)
    written = read_terminal(ours)
    out, _ = done.communicate()
    assert (done.returncode, out) == (0, b"ready\n")
    return written


def test_a_terminal_shows_phase_count_and_time() -> None:
    written = on_terminal(WORK.format(line=""))
    assert "nkilab: tracing" in written
    assert " instructions" in written
    # the line is taken away: the last thing written erases it
    assert "\x1b[2K" in written[-40:]


def test_work_that_is_done_at_once_shows_nothing() -> None:
    assert (
        on_terminal("from nkilab.progress import phase\nwith phase('tracing'):\n    pass\nprint('ready')")
        == ""
    )


@pytest.mark.parametrize("env", [{"NKILAB_PROGRESS": "0"}, {"TERM": "dumb"}])
def test_it_can_be_switched_off(env: dict[str, str]) -> None:
    assert on_terminal(WORK.format(line=""), **env) == ""


def test_a_debugger_is_left_alone() -> None:
    assert on_terminal(WORK.format(line="import pdb")) == ""


def test_no_terminal_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert not is_wanted()
    with phase("tracing"), phase("within"):
        time.sleep(0.01)
    assert capfd.readouterr() == ("", "")


def test_an_error_within_a_phase_goes_through() -> None:
    with pytest.raises(ValueError, match="mine"), phase("tracing"):
        raise ValueError("mine")
