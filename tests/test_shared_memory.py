"""Storages of calls in order share bytes where one is done with before another begins, and never else."""

from __future__ import annotations

import numpy as np
import pytest

import nkilab
from nkilab import tapes
from nkilab.execute import Call, shared_memory
from nkilab.tiles.dtypes import as_dtype
from nkilab.tiles.tile import SBUF, Storage

from .test_tapes import module, x_of


def storage(number: int, columns: int = 4) -> Storage:
    new = Storage(number, f"tile{number}", (2, columns), as_dtype("float32"), SBUF, "tile", 0)
    new.allocate()
    return new


def test_a_storage_takes_the_bytes_of_one_that_no_later_call_needs() -> None:
    a, b, c, wide, never = storage(0), storage(1), storage(2), storage(3, 8), storage(4)
    uses = [((), (a,)), ((a,), (b,)), ((b,), (c,)), ((c,), (wide,)), ((wide,), ())]
    calls = [Call(print, (), [s.written for s in r], [s.written for s in w]) for r, w in uses]
    places = shared_memory(calls, [a, b, c, wide, never])
    # a ends with the call in which b begins, so that only c, one call later, may lie where a lay
    assert {number: memory.nbytes for number, memory in places.items()} == {0: 32, 1: 32, 2: 32, 3: 64}
    assert places[2] is places[0]
    assert places[1] is not places[0]
    assert places[3] is not places[1]


def test_a_long_chain_of_tiles_keeps_few_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    # what measures coverage looks on, and nothing is replayed
    monkeypatch.setattr("sys.gettrace", lambda: None)
    tapes.forget_tapes()
    kernel = module("""
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        for i in range(20):
            following = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(following, tile, op0=nl.add, operand0=1.0)
            tile = following
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out
    """).kernel
    with nkilab.activate():
        for seed in range(6):
            np.testing.assert_allclose(kernel(x_of(seed)), x_of(seed) + 20, rtol=1e-6)
    (tape,) = tapes._tapes.values()
    # the input, the result, and two tiles in turn
    assert tape.has_calls
    assert tape.kept_bytes == 4 * x_of(0).nbytes
    tapes.forget_tapes()
