"""Calls computed behind the caller leave what calls computed at once leave, bit for bit."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from hypothesis import given, settings
from hypothesis import strategies as st

import nkilab
from nkilab import launches
from nkilab._lazy import threadpools
from nkilab.errors import LimitPassed
from nkilab.execute import batch, threads
from nkilab.execute.threads import LARGE, Threads
from nkilab.isa.elementwise import Reciprocal
from nkilab.tapes import forget_tapes
from nkilab.tiles import tile
from nkilab.tiles.dtypes import FLOAT32
from nkilab.tiles.tile import Storage
from nkilab.trace.session import running
from nkilab.tracebacks import PACKAGE
from tests.examples import examples

with nkilab.activate():
    import nki
    import nki.isa as nisa
    import nki.language as nl


@nki.jit
def summed(a, b, breaks_off):  # type: ignore[no-untyped-def]
    """a.T @ b of [512, 128] and [512, 512], of which less than a whole tile is written; or nothing."""
    out = nl.ndarray((128, 512), a.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
    for k in range(4):
        left = nl.ndarray((128, 160), a.dtype, buffer=nl.sbuf)
        right = nl.ndarray((128, 600), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(left[:, 0:128], a[128 * k : 128 * k + 128, :])
        nisa.dma_copy(right[:, 0:512], b[128 * k : 128 * k + 128, :])
        nisa.nc_matmul(total, left[:, 0:128], right[:, 0:512])
    if breaks_off:
        breaks_off()
    copy = nl.ndarray((128, 512), a.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(copy, total)
    nisa.dma_copy(out, copy)
    return out


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each product that was computed with others, how many added up."""
    # what measures coverage looks on, and has everything computed at once
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    counts: list[int] = []
    compute = batch.compute

    def counted(block: Any, *factors: Any) -> None:
        counts.append(len(block[0][0].moving))
        compute(block, *factors)

    monkeypatch.setattr(batch, "compute", counted)
    return counts


def matrices(seed: int) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal((512, columns), np.float32) for columns in (128, 512)]


def storage(name: str) -> Storage:
    return Storage(0, name, (4,), FLOAT32, "sbuf", "tile", 0)


@pytest.fixture(scope="module")
def two() -> Threads:
    return Threads(2)


# per call: tiles that it reads, the tile that it writes
calls = st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=2), st.integers(0, 3)), max_size=40)


@settings(max_examples=examples(60), deadline=None)
@given(calls)
def test_any_order_of_reads_and_writes_ends_as_in_sequence(two: Threads, given_calls: Any) -> None:
    tiles = [storage(str(n)) for n in range(4)]
    arrays, expected = ([np.full(4, n, np.float32) for n in range(4)] for _ in range(2))

    def compute(out: np.ndarray, step: int, *ins: np.ndarray) -> None:
        out[...] = out * 3 + sum(i * 5 for i in ins) + step
        out %= 1009

    for step, (reads, write) in enumerate(given_calls):
        compute(expected[write], step, *[expected[r] for r in reads])
        arguments = (arrays[write], step, *[arrays[r] for r in reads])
        two.submit(compute, arguments, [tiles[r] for r in reads], [tiles[write]])
    two.drain()
    assert two.is_idle
    np.testing.assert_array_equal(arrays, expected)


def test_calls_on_different_tiles_run_side_by_side(two: Threads) -> None:
    together = threading.Barrier(2, timeout=20)
    for n in range(2):
        two.submit(together.wait, (), [], [storage(str(n))])
    two.drain()


def test_a_failure_is_raised_where_somebody_waits_and_only_there(two: Threads) -> None:
    tile, seen = storage("t"), []
    two.submit(lambda: 1 / 0, (), [], [tile])
    two.submit(lambda: seen.append(1), (), [], [tile])
    with pytest.raises(ZeroDivisionError):
        two.drain()
    assert seen == []
    two.submit(lambda: seen.append(2), (), [], [tile])
    two.drain()
    assert seen == [2]


def test_an_interrupt_leaves_out_what_waits_to_be_computed(two: Threads) -> None:
    begun = []

    def slow(number: int) -> None:
        begun.append(number)
        time.sleep(0.05)

    for number in range(60):
        tile = storage(str(number))
        two.submit(slow, (number,), [], [tile])
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    for _ in range(2):
        # whoever waits next hears of it, too, and nobody after him
        with pytest.raises(KeyboardInterrupt):
            two.drain()
    two.drain()
    assert len(begun) < 60


class OutOfTimeError(Exception):
    """A limit of the user's own."""


def ends(error: type[BaseException]) -> Any:
    def end(*_: object) -> None:
        raise error

    return end


@pytest.mark.parametrize("error", [KeyboardInterrupt, LimitPassed, MemoryError])
def test_an_interrupted_kernel_leaves_nothing_to_compute(
    error: type[BaseException], joined: list[int]
) -> None:
    a, b = matrices(0)
    with pytest.raises(error):
        summed(a, b, ends(error))
    assert not joined
    # nobody hears of it later
    np.testing.assert_allclose(summed(a, b, None), a.T @ b, rtol=1e-4, atol=1e-3)


@pytest.fixture
def alarm() -> Iterator[Any]:
    """Calls what a user has do when an alarm rings: it ends whatever runs."""
    before = signal.signal(signal.SIGALRM, ends(OutOfTimeError))
    yield partial(signal.raise_signal, signal.SIGALRM)
    signal.signal(signal.SIGALRM, before)


def test_what_a_handler_of_signals_raises_leaves_nothing_to_compute(joined: list[int], alarm: Any) -> None:
    with pytest.raises(OutOfTimeError):
        summed(*matrices(0), alarm)
    assert not joined
    # what a kernel itself does wrong is no interrupt: what it called before is computed
    with pytest.raises(ZeroDivisionError):
        summed(*matrices(0), lambda: 1 / 0)
    assert joined


def test_an_alarm_ends_a_launch_that_is_tried_on_shapes(monkeypatch: pytest.MonkeyPatch, alarm: Any) -> None:
    monkeypatch.setattr(launches, "with_ranges", lambda function: alarm())
    forget_tapes()
    with pytest.raises(OutOfTimeError):
        nkilab.simulate(summed)(*matrices(0), None)
    with pytest.raises(OutOfTimeError):
        nkilab.check(summed, *matrices(0), alarm)


def interrupted(work: Callable[[], object], file: str, at: int) -> int:
    """Interrupt some work where Python would, in a call of some files by its number; how many there were."""
    calls = 0

    def look(frame: FrameType, event: str, _: object) -> Any:
        nonlocal calls
        # as a function begins, and behind one that is not written in Python
        is_one = event in ("call", "c_return") and frame.f_code.co_filename.startswith(file)
        calls += is_one
        if is_one and calls == at:
            raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        with suppress(KeyboardInterrupt):
            work()
    finally:
        sys.setprofile(None)
    return calls


# files of which calls are interrupted, and about how many
PLACES = [(threadpoolctl.__file__, 50), (threads.__file__, 80), (tile.__file__, 50), (PACKAGE, 50)]


# Python tells of what ends a generator that nothing holds any more, and raises it nowhere
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("file", "most"), PLACES, ids=["blas", "threads", "tiles", "all"])
def test_an_interrupt_at_any_call_leaves_nothing_of_a_launch(
    file: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = matrices(0)
    expected, pools = summed(a, b, None).tobytes(), threadpools().lib_controllers
    counts = [pool.num_threads for pool in pools]
    for name in ("gettrace", "getprofile"):
        monkeypatch.setattr(sys, name, lambda: None)

    def work() -> None:
        forget_tapes()
        summed(a, b, None)

    count = interrupted(work, file, 0)
    for at in range(1, count, max(1, count // most)):
        interrupted(work, file, at)
        assert running() is None
        assert [pool.num_threads for pool in pools] == counts
        assert np.geterr()["over"] == "warn"
    assert summed(a, b, None).tobytes() == expected


def test_products_of_parts_of_tiles_add_up_in_every_launch_alike(joined: list[int]) -> None:
    forget_tapes()
    assert len({summed(*matrices(0), None).tobytes() for _ in range(4)}) == 1
    assert {*joined} == {4}


@pytest.mark.parametrize("is_single", [False, True])
def test_a_kernel_of_large_tiles_computes_what_numpy_does(
    is_single: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_single:
        monkeypatch.setattr("nkilab.execute.threads._threads", None)
        monkeypatch.setenv("NKILAB_SYNC", "1")
    with nkilab.activate():
        import nki  # type: ignore[import-not-found]
        import nki.isa as nisa  # type: ignore[import-not-found]
        import nki.language as nl  # type: ignore[import-not-found]

        @nki.jit
        def kernel(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            for start in range(0, x.shape[0], 128):
                tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=x[start : start + 128])
                for _ in range(3):
                    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
                    nisa.tensor_scalar(dst=tile[:, 0:1], data=tile[:, 1:2], op0=nl.add, operand0=1.0)
                nisa.dma_copy(dst=out[start : start + 128], src=tile)
            return out

        x = np.random.default_rng(0).standard_normal((512, 512), dtype=np.float32)
        assert x.size > LARGE
        expected = x.copy()
        for _ in range(3):
            expected += expected
            expected[:, 0] = expected[:, 1] + 1
        np.testing.assert_array_equal(nkilab.simulate(kernel)(x), expected)


def test_ranks_compute_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Threads(2)
    monkeypatch.setattr("nkilab.execute.threads._threads", two)
    monkeypatch.setattr("nkilab.tiles.tile._settle", two.drain)
    together, compute = threading.Barrier(2, timeout=20), Reciprocal.compute

    def after_the_other(*operands: Any) -> None:
        together.wait()
        compute(*operands)

    monkeypatch.setattr(Reciprocal, "compute", after_the_other)
    with nkilab.activate():
        import nki  # type: ignore[import-not-found]
        import nki.collectives as ncc  # type: ignore[import-not-found]
        import nki.isa as nisa  # type: ignore[import-not-found]
        import nki.language as nl  # type: ignore[import-not-found]

    @nki.jit
    def kernel(x):
        own, total = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm) for _ in range(2))
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        nisa.reciprocal(tile, tile)
        nisa.dma_copy(own, tile)
        ncc.all_reduce([own], [total], ncc.ReplicaGroup([[0, 1]]), nl.add)
        return total

    ones = np.ones((128, 512), np.float32)
    assert ones.size > LARGE
    results = nkilab.launch(kernel, 2)(nkilab.per_rank([ones * 2, ones * 4]))
    for result in results:
        np.testing.assert_array_equal(result, ones * np.float32(0.75))


def test_calls_on_memory_that_two_programs_share_keep_their_order(two: Threads) -> None:
    mine, theirs = storage("mine"), storage("theirs")
    theirs.written = mine.written
    seen: list[str] = []

    def slow() -> None:
        time.sleep(0.05)
        seen.append("first")

    two.submit(slow, (), [], [mine.written])
    assert two.touches([theirs.written])
    two.submit(seen.append, ("second",), [], [theirs.written])
    two.drain()
    assert seen == ["first", "second"]


def test_a_launch_hears_of_no_interrupt_of_the_one_before() -> None:
    def slow() -> None:
        time.sleep(0.02)

    assert threads.open_threads() is not None
    with pytest.raises(KeyboardInterrupt), threads.one_blas_thread():
        tile = storage("tile")
        for _ in range(40):
            threads._threads.submit(slow, (), [], [tile])
        # as the launch waits at its end
        threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
    computed = []
    with threads.one_blas_thread():
        threads._threads.submit(computed.append, (1,), [], [tile])
    assert computed == [1]
