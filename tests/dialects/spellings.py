"""The two spellings for tests, and asserting messages whole."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab.dialects.kernel import Kernel
from nkilab.errors import NkilabError
from nkilab.launches import launch
from nkilab.machine import machine_named
from nkilab.trace.program import Program

with nkilab.activate():
    import neuronxcc.nki as nki1
    import neuronxcc.nki.compiler as ncc1
    import neuronxcc.nki.isa as nisa1
    import neuronxcc.nki.language as nl1
    import nki as nki2
    import nki.isa as nisa2
    import nki.language as nl2

__all__ = ["HERE", "ncc1", "nisa1", "nisa2", "nki1", "nki2", "nl1", "nl2", "program_of", "refusal", "traced"]

HERE = "HERE"


def program_of(kernel: Kernel, *args: Any, target: str = "trn2", **kwargs: Any) -> Program:
    """The program that a run on data leaves."""
    return launch(kernel, args, kwargs, machine_named(target), has_data=True).program


def traced(kernel: Kernel, *args: Any) -> list[str]:
    """Names of the instructions of a run, row by row."""
    program = program_of(kernel, *args)
    return [program.form_of(row).name for row in range(len(program))]


def marked_line(function: Callable[..., Any], mark: str = "# refused") -> str:
    """ "file.py:41" of the line of a function that ends with a mark."""
    lines, first = inspect.getsourcelines(function)
    marked = [first + i for i, line in enumerate(lines) if line.rstrip().endswith(mark)]
    assert len(marked) == 1, f"{len(marked)} lines are marked"
    return f"{Path(inspect.getsourcefile(function) or '').name}:{marked[0]}"


def refusal(kernel: Any, *args: Any, kind: type[NkilabError], also: type[Exception] = ValueError) -> str:
    """The whole message of a run that is refused at the marked line, which it shows as HERE.

    Args:
        kernel: jitted; one line of it ends with "# refused".
        args: what it is called with.
        kind: class of ours that the error is of.
        also: built-in type that it is of too.
    """
    with pytest.raises(kind) as caught:
        kernel(*args)
    assert isinstance(caught.value, also)
    place = marked_line(kernel.function)
    text = str(caught.value)
    assert text.startswith(place + ": "), text
    return HERE + text.removeprefix(place)


def ramp(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """0, 1, 2, ... in a shape."""
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def copied_in(x: Any, dtype: Any = None) -> Any:
    """A tile of a kernel of `nki` with the elements of x."""
    tile = nl2.ndarray(x.shape, dtype or x.dtype, buffer=nl2.sbuf)
    nisa2.dma_copy(dst=tile, src=x)
    return tile


def copied_out(tile: Any) -> Any:
    """The result of a kernel of `nki`, with the elements of a tile."""
    out = nl2.ndarray(tile.shape, tile.dtype, buffer=nl2.shared_hbm)
    nisa2.dma_copy(dst=out, src=tile)
    return out
