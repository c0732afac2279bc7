"""Every block of docs/tune.md: files are written as shown, commands are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.program import call

PAGE = Path(__file__).parents[2] / "docs" / "tune.md"
# a file's name stands in the paragraph before it
_FILE = re.compile(r"`([\w.]+\.(?:py|yaml))`:\n\n```(?:python|yaml)\n(.*?)```", re.S)
_COMMAND = re.compile(r"^\$ nkilab (.*)$", re.M)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    held = tmp_path_factory.mktemp("page")
    for name, text in _FILE.findall(PAGE.read_text("utf-8")):
        (held / name).write_text(text)
    return held


def test_the_page_shows_its_files(folder):
    names = {path.name for path in folder.iterdir()}
    assert names == {"products.py", "space.yaml", "measured.yaml", "cluster.py", "auto.py"}


@pytest.mark.parametrize("command", _COMMAND.findall(PAGE.read_text("utf-8")))
def test_a_command_of_the_page_runs(command, folder):
    done = call(*shlex.split(command), folder=folder, env={"NKILAB_CACHE_DIR": str(folder / "cache")})
    assert done.returncode == 0, done.stderr
    assert done.stdout
