"""docs/frameworks.md: its code runs, and what it links to exists."""

from __future__ import annotations

import linecache
import re
from pathlib import Path

import pytest

import nkilab

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"


def blocks() -> list[tuple[str, str]]:
    """Python blocks, each with the last heading of level two before it."""
    found, heading = [], ""
    for match in re.finditer(r"^## ([^\n]+)$|^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S):
        if match[1]:
            heading = match[1]
        else:
            found.append((heading, match[2]))
    return found


def run(framework: str) -> None:
    """Run the kernels of the page and the blocks of a framework, in order."""
    texts = [text for heading, text in blocks() if heading in ("", framework)]
    assert len(texts) > 1
    names: dict[str, object] = {}
    with nkilab.activate():
        for number, text in enumerate(texts):
            # a kernel's own text is read, for loops and branches of Beta 1
            filename = f"<frameworks.md {framework} {number}>"
            linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
            exec(compile(text, filename, "exec"), names)


@pytest.mark.torch
def test_the_blocks_for_pytorch_run(capsys):
    pytest.importorskip("torch")
    run("PyTorch")
    assert "Candidates for kernels on trn2, by roofline" in capsys.readouterr().out


@pytest.mark.jax
def test_the_blocks_for_jax_run():
    pytest.importorskip("jax")
    run("JAX")


def test_every_block_is_run_by_a_test():
    assert {heading for heading, _ in blocks()} == {"", "PyTorch", "JAX"}


def test_links_lead_somewhere():
    named = re.findall(r"\]\((?!https?://|#)([^)#]+)", PAGE.read_text("utf-8"))
    assert named
    assert [name for name in named if not (PAGE.parent / name).exists()] == []
