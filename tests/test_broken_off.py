"""Kernels that break off half way: what ran is told, beside the error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import inside
from tests.views.test_schemas import check

KERNEL = """\
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def halves(x):
    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=0.5)
    BREAK
"""
BREAKS = {
    "an exception": (
        "raise LookupError('mine')",
        "the kernel broke off, after 2 instructions: mine; this is what ran",
    ),
    "a limit": (
        "nl.ndarray((200, 4), nl.float32, buffer=nl.sbuf)",
        "the kernel broke off at kernel.py:10, after 2 instructions: ",
    ),
}


@pytest.mark.parametrize("kind", BREAKS)
def test_a_kernel_that_breaks_off_has_a_page_and_a_document_of_what_ran(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line, note = BREAKS[kind]
    (tmp_path / "kernel.py").write_text(KERNEL.replace("BREAK", line))
    options = ("profile", "kernel.py:halves", "--arg", "f32[128,512]", "--html", "page.html", "--json")
    assert inside(*options, folder=tmp_path) == 1
    printed, errors = capfd.readouterr()
    document = json.loads(printed)
    check(document)
    assert document["schema"] == "nkilab.profile/1"
    assert document["advice"] == []
    assert document["notes"][0].startswith(note)
    # by hand: one load, one instruction of an engine
    assert document["summary"]["metrics"]["dma_transfer_count"] == 1
    assert note in (tmp_path / "page.html").read_text()
    assert "nkilab: wrote page.html\n" in errors
    assert errors != "nkilab: wrote page.html\n"


def test_a_kernel_that_breaks_off_is_reported_on_the_terminal_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line, note = BREAKS["an exception"]
    (tmp_path / "kernel.py").write_text(KERNEL.replace("BREAK", line))
    assert inside("profile", "kernel.py:halves", "--arg", "f32[128,512]", folder=tmp_path) == 1
    printed, errors = capfd.readouterr()
    assert f"note: {note}\n" in printed
    assert "mine" in errors


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("estimate", f"note: {BREAKS['an exception'][1]}\n"),
        # launch 9.2 us and end 2.3 us are of every kernel
        ("check", "note: the kernel stopped before its end, after 2 instructions (1"),
    ],
)
def test_every_verb_tells_what_ran_until_a_kernel_broke_off(
    verb: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL.replace("BREAK", BREAKS["an exception"][0]))
    assert inside(verb, "kernel.py:halves", "--arg", "f32[128,512]", folder=tmp_path) == 1
    assert said in capfd.readouterr().out


def test_a_kernel_that_breaks_off_at_once_leaves_the_error_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernel.py").write_text(
        KERNEL.replace("    tile =", "    raise LookupError('mine')\n    tile =")
    )
    options = ("profile", "kernel.py:halves", "--arg", "f32[128,512]", "--html", "page.html", "--json")
    assert inside(*options, folder=tmp_path) == 1
    assert json.loads(capfd.readouterr().out)["schema"] == "nkilab.error/1"
    assert not (tmp_path / "page.html").exists()
