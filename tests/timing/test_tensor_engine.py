"""Times of TensorE, calculated by hand from the manuals' figures."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from nkilab.machine import MACHINES, Machine
from nkilab.timing import Timeline
from tests.place.handmade import Kernel, columns

from .round_numbers import fact, spans, start_of, timed

WARM = replace(MACHINES["trn2"], tensor_warm_up_ns=fact(0.0))


def matmuls(machine: Machine, dtype: str, size: int, count: int = 4, weights: int = 128) -> Timeline:
    """Matmuls of resident tiles, one after the other, with a warm clock: rows 2 and on."""
    k = Kernel(replace(machine, tensor_warm_up_ns=fact(0.0)))
    a, b = k.tile(128, weights, dtype=dtype), k.tile(128, size, dtype=dtype)
    k.fill(a)
    k.fill(b)
    for _ in range(count):
        k.matmul(k.psum(weights, size), a, b)
    return timed(k)


def test_bf16_matmuls_of_512_columns_are_520_cycles_apart_on_trn2() -> None:
    # 512 rows of moving at 2.4 GHz, and 8 cycles for the instruction
    timeline = matmuls(MACHINES["trn2"], "bfloat16", 512)
    starts = [start_of(timeline, row, "MATMUL") for row in range(2, 6)]
    assert np.diff(starts) == pytest.approx([520 / 2.4] * 3, rel=1e-9)


def test_float32_matmuls_take_two_instructions_of_two_passes() -> None:
    # published profiles: 4.03 cycles per row
    timeline = matmuls(MACHINES["trn2"], "float32", 512)
    starts = [start_of(timeline, row, "MATMUL") for row in range(2, 6)]
    assert np.diff(starts) == pytest.approx([2 * (1024 + 8) / 2.4] * 3, rel=1e-9)
    labels = [label for label, _, _ in spans(timeline, 2)]
    assert labels == ["LDWEIGHTS", "MATMUL LOW", "LDWEIGHTS", "MATMUL HIGH"]


def test_short_matmuls_are_72_cycles_apart() -> None:
    # 64 cycles between the starts of two multiplications, however short, and 8 for the instruction
    timeline = matmuls(MACHINES["trn2"], "bfloat16", 1, weights=32)
    starts = [start_of(timeline, row, "MATMUL") for row in range(2, 6)]
    assert np.diff(starts) == pytest.approx([(64 + 8) / 2.4] * 3, rel=1e-9)


def test_loading_weights_delays_only_the_first_matmul() -> None:
    # 128 columns at 2.4 GHz; the second load runs while the first multiplication streams
    timeline = matmuls(MACHINES["trn2"], "bfloat16", 512)
    (_, load, loaded), (_, first, _) = spans(timeline, 2)
    assert loaded - load == pytest.approx(128 / 2.4 + 52.0)
    assert first - load == pytest.approx(128 / 2.4)
    assert start_of(timeline, 3, "LDWEIGHTS") == first


def test_accumulation_does_not_wait_for_the_result_before() -> None:
    k = Kernel(WARM)
    a, b = k.tile(128, 128, dtype="bfloat16"), k.tile(128, 512, dtype="bfloat16")
    k.fill(a)
    k.fill(b)
    out = k.psum(128, 512)
    k.matmul(out, a, b)
    k.matmul(out, a, b, accumulate=True)
    timeline = timed(k)
    apart = start_of(timeline, 3, "MATMUL") - start_of(timeline, 2, "MATMUL")
    assert apart == pytest.approx(520 / 2.4, rel=1e-9)


def test_a_copy_out_of_psum_waits_for_the_latency_of_the_matmul() -> None:
    machine = replace(WARM, tensor_latency_ns=fact(170.0), semaphore_ns=fact(58.0))
    k = Kernel(machine)
    a, b = k.tile(128, 128, dtype="bfloat16"), k.tile(128, 512, dtype="bfloat16")
    out, result = k.psum(128, 512), k.tile(128, 512)
    k.matmul(out, a, b)
    k.copy(result, out)
    timeline = timed(k)
    # interval, latency, semaphore
    waited = start_of(timeline, 1) - start_of(timeline, 0, "MATMUL")
    assert waited == pytest.approx(520 / 2.4 + 170.0 + 58.0)


def test_float32_halves_of_few_rows_wait_for_their_weights() -> None:
    # each loads 128 columns in 256 cycles while the one before streams: 2 x 64 + 8 cycles, or 2 x 128 + 8,
    # which profiles of attention show as 112 ns
    for rows, apart in ((64, 256 / 2.4), (128, 264 / 2.4)):
        timeline = matmuls(WARM, "float32", rows)
        starts = [start_of(timeline, row, "MATMUL") for row in range(2, 6)]
        assert np.diff(starts) == pytest.approx([2 * apart] * 3, rel=1e-9)
        (_, low, _), (_, second, _), (_, high, _) = spans(timeline, 3)[1:]
        assert (second - low, high - low) == pytest.approx((0, apart))


def test_float32_weights_load_slower_and_those_of_transposes_four_times_as_fast() -> None:
    # a column a cycle at 2.4 GHz, and 52 ns until they are there (profiles: 105 ns in bfloat16)
    k = Kernel("trn2")
    a, b = k.tile(128, 128), k.tile(128, 512)
    out = k.psum(128, 512)
    k.matmul(out, a, b)
    k.call("nc_transpose", k.psum(128, 128), a, engine="tensor")
    timeline = timed(k)
    lasts = [spans(timeline, row)[0][2] - spans(timeline, row)[0][1] for row in (0, 1)]
    assert lasts == pytest.approx([256 / 2.4 + 52.0, 128 / 4 / 2.4 + 52.0])


def test_weights_delay_multiplications_that_are_shorter_than_their_load() -> None:
    # 64 rows take 72 cycles, 128 columns of weights 128
    timeline = matmuls(MACHINES["trn2"], "bfloat16", 64)
    starts = [start_of(timeline, row, "MATMUL") for row in range(3, 6)]
    assert np.diff(starts) == pytest.approx([128 / 2.4] * 2, rel=1e-9)


def test_the_clock_is_slow_after_a_window_of_which_less_than_half_was_busy() -> None:
    # published profiles: half the rate in some windows of 3,413 ns; Neuron Explorer: after one that is less
    # than half busy; 512 rows of bfloat16 take 520 cycles at 2.4 GHz
    k = Kernel("trn2")
    a, b, seen = k.tile(128, 128, dtype="bfloat16"), k.tile(128, 512, dtype="bfloat16"), k.tile(128, 8000)
    for _ in range(30):
        k.matmul(k.psum(128, 512), a, b)
    # VectorE keeps b busy until a window has passed without a product
    for _ in range(5):
        k.copy(seen, k.tile(128, 8000))
    k.copy(b, columns(seen, 0, 512))
    k.matmul(k.psum(128, 512), a, b)
    timeline = timed(k)
    window, warm, visible = 3413.0, 520 / 2.4, 170.0
    products = [spans(timeline, row)[-1] for row in [*range(30), 36]]
    busy = [(begin, end - visible) for _, begin, end in products]
    slow = [end - begin > 1.5 * warm for begin, end in busy]
    assert [end - begin for begin, end in busy] == pytest.approx([warm * (1 + is_slow) for is_slow in slow])
    for (begin, _), is_slow in zip(busy, slow, strict=True):
        last = (begin // window - 1) * window
        used = sum(max(0.0, min(end, last + window) - max(start, last)) for start, end in busy)
        assert is_slow == (used < window / 2)
    # at the beginning, at most for two windows, and after the pause
    assert slow[0]
    assert not any(busy[number][0] > busy[0][0] + 2 * window and slow[number] for number in range(30))
    assert slow[-1]
    # trn1 has no such clock; its products keep 6/7 of 2.8 GHz
    first, second = (start_of(matmuls(MACHINES["trn1"], "bfloat16", 512), row, "MATMUL") for row in (2, 3))
    assert second - first == pytest.approx(512 / 2.4)
