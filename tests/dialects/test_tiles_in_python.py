"""What Python, copies and printing do with tiles, and tiles that no memory holds."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.dialects.spellings import nisa2, nki1, nki2, nl1, nl2, ramp

import nkilab
from nkilab.errors import LimitError, NkilabError

WHEN = "a tile has its elements only when the kernel runs on the device"
TILE = "t: float32[4, 6] in sbuf"
NEITHER = f"Python neither copies nor pickles a tile; {WHEN}\n  {TILE}\n  hint: write nl.copy(tile)"
HOST = f"it computes on the host; {WHEN}\n  t: float32[4, 6] in sbuf\n  hint: write"
ASKED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "deepcopy": (lambda t: copy.deepcopy(t), f"copy.deepcopy: {NEITHER}"),
    "copy": (lambda t: copy.copy(t), f"copy.copy: {NEITHER}"),
    "pickle": (lambda t: pickle.dumps(t), f"pickle.dumps: {NEITHER}"),
    "sum": (lambda t: sum(t), f"sum: {HOST} nl.sum(t, axis=1)"),
    "min": (lambda t: min(t), f"min: {HOST} nl.min(t, axis=1)"),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("spelling", ["nki", "neuronxcc"])
def test_what_python_asks_of_a_tile_itself_is_refused_by_name(asked: str, spelling: str) -> None:
    ask, message = ASKED[asked]

    def dst_first(x):
        tile = nl2.ndarray((4, 6), x.dtype, buffer=nl2.sbuf)
        nisa2.dma_copy(tile, x)
        ask(tile)

    def value_returning(x):
        ask(nl1.load(x))

    kernel = nki2.jit(dst_first) if spelling == "nki" else nki1.jit(value_returning)
    with pytest.raises(NkilabError) as caught:
        kernel(ramp(4, 6))
    assert str(caught.value).partition(": ")[2] == message


def test_torch_tensor_of_a_tile_is_refused() -> None:
    torch = pytest.importorskip("torch")

    @nki1.jit
    def kernel(x):
        t = nl1.load(x)
        torch.tensor(t)

    with pytest.raises(NkilabError) as caught:
        kernel(ramp(4, 6))
    assert str(caught.value).partition(": ")[2] == (
        f"torch.tensor: it computes on the host; {WHEN}\n  {TILE}\n"
        "  hint: compute on the host before the call, or with functions of nki.language and nki.isa"
    )


def test_an_argument_without_elements_is_refused() -> None:
    torch = pytest.importorskip("torch")

    @nki1.jit
    def kernel(x):
        return x

    with pytest.raises(NkilabError) as caught:
        kernel(torch.ones(4, 6, device="meta"))
    assert str(caught.value).partition("kernel: ")[2] == (
        "argument x lies on PyTorch's device meta, which has no elements\n"
        "  hint: pass a tensor of the CPU; nkilab estimate takes shapes alone"
    )


def test_a_partly_written_tile_prints_no_garbage(capsys: pytest.CaptureFixture[str]) -> None:
    @nki2.jit
    def kernel(x):
        tile = nl2.ndarray((2, 3), nl2.float32, buffer=nl2.sbuf)
        nisa2.memset(tile[:, 0:2], 7)
        nl2.device_print("tile ", tile)
        print(tile)

    kernel(ramp(2, 3))
    rows = "[[7.0 7.0 --]\n [7.0 7.0 --]]\n(-- was never written)\n"
    assert capsys.readouterr().out == f"tile {rows}<tile: float32[2, 3] in sbuf>\n{rows}"


def test_print_says_what_a_tile_holds_or_why_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    @nki1.jit
    def loaded(x):
        out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
        rows = nl1.load(x)
        print(rows)
        nl1.store(out, rows)
        return out

    @nki2.jit
    def copied(x):
        tile = nl2.ndarray((1, 2), nl2.float32, buffer=nl2.sbuf)
        print(tile)
        nisa2.dma_copy(tile, x)
        print(tile)
        return x

    # what a call returned is not written anywhere yet: print is the first to look at it
    loaded(np.array([[1, 2]], np.float32))
    assert capsys.readouterr().out == "<rows: float32[1, 2] in sbuf>\n[[1. 2.]]\n"
    copied(np.array([[1, 2]], np.float32))
    what = "<tile: float32[1, 2] in sbuf"
    assert capsys.readouterr().out == f"{what}, never written>\n{what}>\n[[1. 2.]]\n"
    nkilab.estimate(loaded, nkilab.spec((1, 2), "float32"))
    nkilab.estimate(copied, nkilab.spec((1, 2), "float32"))
    no_data = ", whose shape alone is known>\n"
    assert capsys.readouterr().out == f"<rows: float32[1, 2] in sbuf{no_data}{what}{no_data}{what}{no_data}"


@pytest.mark.parametrize(("nki", "nl"), [(nki1, nl1), (nki2, nl2)])
@pytest.mark.parametrize("verb", ["simulate", "estimate"])
def test_a_tile_that_no_memory_holds_is_refused_where_it_is_made(nki: Any, nl: Any, verb: str) -> None:
    @nki.jit
    def kernel(x):
        nl.ndarray((128, 60_000), nl.float32, buffer=nl.sbuf)
        return x

    call = nkilab.simulate(kernel) if verb == "simulate" else lambda x: nkilab.estimate(kernel, x)
    with pytest.raises(LimitError) as caught:
        call(np.ones((4, 6), np.float32))
    # 60,000 elements of 4 bytes; 208 KiB less 8 bytes are there
    assert str(caught.value).partition("ndarray: ")[2] == (
        "the tile has 240,000 bytes per partition; sbuf of trn2 has 212,984"
        " (208 KiB; the compiler keeps the rest of the chip's 224)\n"
        "  hint: split the free axes into tiles\n  source: trn1 architecture guide, SBUF\n"
        "  key: NCC_IBIR229"
    )


def test_the_line_below_a_warning_is_printable(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text(
        "import numpy as np, nki, nki.isa as nisa, nki.language as nl\n@nki.jit\ndef k(x):\n"
        "    out = nl.ndarray((2, 2), nl.float32, buffer=nl.shared_hbm)\n"
        "    t = nl.ndarray((2, 2), nl.float32, buffer=nl.sbuf)\n"
        "    nisa.dma_copy(out, t)  # \x1b[31mred\n    return out\nk(np.ones((2, 2), np.float32))\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "nkilab", "run", str(kernel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "NkilabWarning: reads t: float32[2, 2] in sbuf" in done.stderr
    assert "# \\x1b[31mred" in done.stderr
    assert "\x1b" not in done.stderr
