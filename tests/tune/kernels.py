"""A kernel with something to choose, and spaces of it, for tests."""

from __future__ import annotations

from pathlib import Path

KERNEL = """\
import os

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def copied(x, columns, fault="none"):
    if fault == "raise" and columns == 256:
        raise ZeroDivisionError("it breaks")
    if fault == "exit" and columns == 256:
        os._exit(9)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = 256 if columns == 2048 else 128
    for n in nl.affine_range(x.shape[1] // columns):
        tile = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, n * columns : (n + 1) * columns])
        nisa.dma_copy(dst=out[:, n * columns : (n + 1) * columns], src=tile)
    return out
"""
HALF = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def blocks(x, columns):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for n in nl.affine_range(x.shape[1] // columns):
        tile = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, n * columns : (n + 1) * columns])
        nisa.dma_copy(dst=out[:, n * columns : (n + 1) * columns], src=tile)
    return out
"""
ODD = """\
import sys
import time

import nki
import nki.isa as nisa
import nki.language as nl

seen = []


@nki.jit
def odd(x, columns, fault="none"):
    if fault == "end" and columns == 256:
        sys.exit()
    if fault == "state":
        seen.append(columns)
        columns *= 2 ** (len(seen) > 5)
    if fault == "slow":
        time.sleep(0.1)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for n in nl.affine_range(x.shape[1] // columns):
        tile = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, n * columns : (n + 1) * columns])
        nisa.dma_copy(dst=out[:, n * columns : (n + 1) * columns], src=tile)
    return out
"""
SPACE = """\
schema: nkilab.space/1
parameters:
  columns: {powers_of_two: [64, 2048]}
"""
FAULTS = SPACE + "  fault: [none, raise]\n"


def written(folder: Path, space: str = SPACE) -> Path:
    """The folder with kernels.py and space.yaml."""
    (folder / "kernels.py").write_text(KERNEL)
    (folder / "space.yaml").write_text(space)
    return folder
