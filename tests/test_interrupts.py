"""Whoever interrupts work that is batched, replayed or on several ranks waits a fifth of a second at most.

Seconds are of the processor, over all threads.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import process_time, sleep
from typing import Any

import numpy as np
import pytest

import nkilab

with nkilab.activate():
    import nki
    import nki.collectives as ncc
    import nki.isa as nisa
    import nki.language as nl

# of the processor, in seconds
LONGEST = 0.2
SIZE, RANKS = 2560, 16


@nki.jit
def products(lhsT: Any, rhs: Any) -> Any:
    out = nl.ndarray((SIZE, SIZE), nl.float32, buffer=nl.shared_hbm)
    for m in range(SIZE // 128):
        for n in range(SIZE // 512):
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in range(SIZE // 128):
                left = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                right = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(left, lhsT[k * 128 : k * 128 + 128, m * 128 : m * 128 + 128])
                nisa.dma_copy(right, rhs[k * 128 : k * 128 + 128, n * 512 : n * 512 + 512])
                nisa.nc_matmul(product, left, right)
            result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(result, product)
            nisa.dma_copy(out[m * 128 : m * 128 + 128, n * 512 : n * 512 + 512], result)
    return out


@nki.jit
def functions(x: Any) -> Any:
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    for _ in range(600):
        nisa.activation(tile, op=nl.tanh, data=tile)
    nisa.dma_copy(out, tile)
    return out


@nki.jit
def on_ranks(x: Any, group: Any) -> Any:
    src, out = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=name) for name in ("src", "out"))
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    for _ in range(28):
        nisa.activation(tile, op=nl.tanh, data=tile)
        nisa.dma_copy(src, tile)
        ncc.all_reduce([src], [out], group, nl.add)
    return out


def _multiplied() -> Callable[[], Any]:
    draw = np.random.default_rng(1)
    arrays = [draw.standard_normal((SIZE, SIZE), np.float32) for _ in range(2)]
    return lambda: products(*arrays)


def _replayed(make: Callable[[], Callable[[], Any]]) -> Callable[[], Callable[[], Any]]:
    def prepared() -> Callable[[], Any]:
        work = make()
        for _ in range(3):
            work()
        return lambda: [work() for _ in range(2)]

    return prepared


def _with_functions() -> Callable[[], Any]:
    x = np.random.default_rng(2).standard_normal((128, 2048), np.float32)
    return lambda: functions(x)


def _over_ranks() -> Callable[[], Any]:
    own = nkilab.per_rank([np.full((128, 1024), rank, np.float32) for rank in range(RANKS)])
    group = ncc.ReplicaGroup([list(range(RANKS))])
    return lambda: nkilab.launch(on_ranks, RANKS)(own, group)


WORK = {
    "products": _multiplied, "products again": _replayed(_multiplied), "functions": _with_functions,
    "functions again": _replayed(_with_functions), "ranks": _over_ranks,
}  # fmt: skip


@contextmanager
def interrupted(after: float) -> Iterator[None]:
    """Interrupt a block, as Ctrl-C does, once it took so many seconds of the processor."""
    at, is_over = process_time() + after, Event()

    def interrupt() -> None:
        while process_time() < at:
            sleep(0.001)
        if not is_over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    thread = Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


FIRST = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("products", "functions")]


@pytest.mark.parametrize("kind", [*FIRST, "products again", "functions again", "ranks"])
def test_who_interrupts_waits_a_fifth_of_a_second_at_most(kind: str) -> None:
    work = WORK[kind]()
    began = process_time()
    work()
    whole = process_time() - began
    # else it might be that nothing was left to do
    assert 0.75 * whole > LONGEST
    began = process_time()
    with pytest.raises(KeyboardInterrupt), interrupted(whole / 4):
        work()
    assert process_time() - began < whole / 4 + LONGEST
