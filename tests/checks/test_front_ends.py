"""Which front end compiles a kernel is read from its project: one parses it, the other one runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nkilab.checks.restricted_language import violations
from nkilab.checks.scope import Scope
from nkilab.migrate.source import read

KERNEL = """
import functools
import nki
import nki.isa as nisa
import nki.language as nl
{above}

@nki.jit
def kernel(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(tile, x)
    {line}
    nisa.dma_copy(out, tile)
    return out
"""
COMPREHENSION = "parts = [i for i in range(2)]"
NAME = "Tracer" + "Frontend"


def findings(folder: Path, line: str = COMPREHENSION, above: str = "") -> list[tuple[str, str, str]]:
    """Rule, severity and notes of what the text of a kernel breaks in NKI 0.6 on trn2."""
    path = folder / "kernels" / "kernel.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(KERNEL.format(line=line, above=above))
    source = read(str(path))
    (kernel,) = source.kernels
    violated = violations(Scope(source, kernel, "0.6"), "nki", "0.6", 3)
    return [(f.rule, f.severity, " ".join(f.notes)) for f in violated]


def host(folder: Path, text: str) -> None:
    """Another file of the project, which has a pyproject.toml."""
    (folder / "pyproject.toml").write_text("")
    (folder / "compile_all.py").write_text(text)


@pytest.mark.parametrize(
    "text",
    [
        f"from nki.compiler.frontend import {NAME}\n",
        f"def compile():\n    from nki.compiler.frontend import Other, {NAME}\n",
        f"import nki.compiler.frontend as f\nclass Mine(f.{NAME}):\n    pass\n",
        f"front = {NAME}()\n",
    ],
)
def test_what_a_parser_refuses_is_a_note_where_a_project_runs_its_kernels(tmp_path: Path, text: str) -> None:
    host(tmp_path, text)
    ((rule, severity, notes),) = findings(tmp_path)
    assert (rule, severity) == ("unsupported-python", "note")
    assert notes == f"compile_all.py of its project compiles kernels with {NAME}, which runs them as Python"


@pytest.mark.parametrize(
    "text", ["", f"# we do not use {NAME}\n", f"x = 1  # import {NAME}\n", f"My{NAME}()\n"]
)
def test_it_is_an_error_where_nothing_says_so(tmp_path: Path, text: str) -> None:
    host(tmp_path, text)
    assert [(rule, severity) for rule, severity, _ in findings(tmp_path)] == [("unsupported-python", "error")]


def test_files_beside_the_project_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(f"from nki.compiler.frontend import {NAME}\n")
    project = tmp_path / "project"
    project.mkdir()
    host(project, "")
    assert [severity for _, severity, _ in findings(project)] == ["error"]


def test_what_every_front_end_refuses_stays_an_error(tmp_path: Path) -> None:
    host(tmp_path, f"from nki.compiler.frontend import {NAME}\n")
    errors = findings(tmp_path, "kernel.count = 1; table.append(x)", "table = []")
    assert [(rule, severity) for rule, severity, _ in errors] == [("impure-kernel", "error")]


@pytest.mark.parametrize(
    ("line", "above", "is_refused"),
    [
        # a function in C has no text to parse; one of Python's has
        ("n = functools.reduce(max, x.shape)", "", True),
        ("n = textwrap.dedent('a')", "import textwrap", False),
        ("assert isinstance(x, Enum)", "from enum import Enum", True),
        # nki-library asks so within kernels
        ("assert hasattr(x, 'shape')", "", False),
        ("n = getattr(x, 'shape')", "", True),
    ],
)
def test_functions_without_a_text_are_unknown_to_a_parser(
    tmp_path: Path, line: str, above: str, *, is_refused: bool
) -> None:
    assert [rule for rule, _, _ in findings(tmp_path, line, above)] == ["python-builtin"] * is_refused
