"""Every block of docs/einsum.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nkilab.einsum import compile as compile_einsum
from nkilab.einsum.checks.engines import INSTRUCTIONS
from tests.program import call

PAGE = (Path(__file__).parents[2] / "docs" / "einsum.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.M | re.S)


def test_the_page_has_no_other_blocks() -> None:
    assert PAGE.count("```") == 2 * len(BLOCKS)
    assert {kind for kind, _ in BLOCKS} == {"python", "yaml", "console"}


def test_the_python_runs_in_order() -> None:
    names: dict[str, Any] = {}
    for kind, text in BLOCKS:
        if kind == "python":
            exec(text, names)


def test_the_specification_compiles_and_its_commands_run(tmp_path: Path) -> None:
    (spec,) = [text for kind, text in BLOCKS if kind == "yaml"]
    assert not [str(v) for v in compile_einsum(spec).verify() if not v.is_fine]
    (tmp_path / "spec.yaml").write_text(spec)
    for line in [line for kind, text in BLOCKS if kind == "console" for line in text.splitlines()]:
        done = call(*line.removeprefix("$ nkilab ").split(), folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert call("run", "test_moving_average.py", folder=tmp_path).returncode == 0


def test_the_page_names_every_instruction() -> None:
    assert all(name in PAGE for name in INSTRUCTIONS)
