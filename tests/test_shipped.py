"""What others start nkilab by: the GitHub action, the pre-commit hooks, the Dockerfile."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from nkilab.cli import main as program

ROOT = Path(__file__).parents[1]
ACTION = YAML(typ="safe").load((ROOT / "action.yml").read_text("utf-8"))
HOOKS = YAML(typ="safe").load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, a line each, with what follows."""
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    words = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in words]


def step(name: str) -> dict[str, Any]:
    return next(step for step in ACTION["runs"]["steps"] if step.get("name") == name)


def test_every_input_of_the_action_is_used_and_none_in_the_text_of_a_script() -> None:
    text = (ROOT / "action.yml").read_text("utf-8")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    for step in ACTION["runs"]["steps"]:
        # an expression in a script would be replaced before the shell reads it, quotes and all
        assert "${{" not in step.get("run", "")
        assert ("shell" in step) == ("run" in step)


@pytest.mark.parametrize(("name", "called"), [("nkilab", "nkilab"), ("pytest", "python")])
@pytest.mark.parametrize("status", [0, 1])
def test_the_action_hands_words_on_as_a_shell_reads_them(
    name: str, called: str, status: int, tmp_path: Path
) -> None:
    stub = tmp_path / called
    stub.write_text(
        f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\nsys.exit({status})\n"
    )
    stub.chmod(0o755)
    words = {"WORDS": "check 'a b.py:k' --arg 'f32[1,2]'"}
    # the way in which GitHub starts `shell: bash`
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step(name)["run"]],
        capture_output=True, text=True, check=False,
        env={**words, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    expected = ["check", "a b.py:k", "--arg", "f32[1,2]"]
    assert json.loads(done.stdout) == (expected if name == "nkilab" else ["-m", "pytest", *expected])
    assert done.returncode == status


def test_hooks_are_verbs_of_the_program_and_get_no_file_names() -> None:
    assert [hook["id"] for hook in HOOKS] == ["nkilab-check", "nkilab-migrate"]
    for hook in HOOKS:
        called, verb = hook["entry"].split()
        assert called in PROJECT["project"]["scripts"]
        assert verb in program.commands
        assert (hook["language"], hook["pass_filenames"]) == ("python", False)


def test_the_image_gets_all_that_a_wheel_is_made_of() -> None:
    copied = [tuple(rest.split()) for name, rest in instructions() if name == "COPY"]
    sources = [source for *names, _ in copied for source in names]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    project, wheel = PROJECT["project"], PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [project["readme"], *project["license-files"], *wheel["packages"], *wheel["force-include"]]
    assert [name for name in needed if not any(name == s or name.startswith(f"{s}/") for s in sources)] == []
    # what is copied into a folder keeps its place below it
    assert all(target in ("./", "src") or names[0].startswith(target) for *names, target in copied)


def test_the_image_starts_the_program_as_a_user_of_its_own() -> None:
    by_name = dict(instructions())
    assert next(iter(by_name)) == "FROM"
    assert json.loads(by_name["ENTRYPOINT"])[0] in PROJECT["project"]["scripts"]
    assert by_name["USER"] not in ("root", "0")
    lowest = PROJECT["project"]["requires-python"].removeprefix(">=")
    version = re.fullmatch(r"python:(\d+)\.(\d+)-slim", by_name["FROM"])
    assert version is not None
    assert (int(version[1]), int(version[2])) >= tuple(map(int, lowest.split(".")))
