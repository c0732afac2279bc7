"""Sums that are rounded at every addition, against bounds and figures made by hand."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nkilab.checking import Options, report_of
from tests.dialects.spellings import nisa2, nki1, nki2, nl1, nl2

STORED = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}


def narrow_sums(kernel: Any, *args: np.ndarray) -> list[Any]:
    """What is found of sums; one that stands still has a rule of its own."""
    found = report_of(kernel, list(args), {}, Options(has_numerics=True)).findings
    return [f for f in found if f.rule in ("numerics-narrow-sum", "numerics-lost-sum")]


def sum_of(count: int, dtype: str) -> Any:
    @nki2.jit
    def kernel(x):
        tile = nl2.ndarray((128, 8), nl2.float32, buffer=nl2.sbuf)
        total = nl2.ndarray((128, 8), getattr(nl2, dtype), buffer=nl2.sbuf)
        out = nl2.ndarray((128, 8), getattr(nl2, dtype), buffer=nl2.shared_hbm)
        nisa2.memset(total, 1.0)
        for i in range(count):
            nisa2.dma_copy(tile, x[i])
            nisa2.tensor_tensor(total, total, tile, op=nl2.add)
        nisa2.dma_copy(out, total)
        return out

    return kernel


def test_four_additions_that_round_up_are_off_by_a_unit() -> None:
    # by hand: a unit of bfloat16 at 1 is 2**-7. Each addition of 3/4 of it rounds up to a whole one: after
    # four the sum is 1 + 4 units instead of 1 + 3, 2**-7 off 1.0234375, which is 0.763 %
    (finding,) = narrow_sums(sum_of(4, "bfloat16"), np.full((4, 128, 8), 0.75 * 2**-7, np.float32))
    assert finding.message == (
        "4 additions to total: bfloat16[128, 8] in sbuf are rounded to bfloat16 each: the sum is off by "
        "0.76% of its largest element, 1 units in the last place; rounded once it is off by half a unit"
    )
    assert finding.severity == "warning"


def test_three_additions_are_few() -> None:
    assert not narrow_sums(sum_of(3, "bfloat16"), np.full((3, 128, 8), 0.75 * 2**-7, np.float32))


@pytest.mark.parametrize("count", [4, 16, 64, 256])
@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("low", [0.0, -1.0])
def test_a_random_sum_in_a_narrow_type_is_told_of_and_one_in_float32_is_not(count, dtype, low) -> None:
    x = np.random.default_rng(count).uniform(low, 1.0, (count, 128, 8)).astype(np.float32)
    exact, rounded = np.ones((128, 8)), np.ones((128, 8), STORED[dtype])
    for addend in x:
        exact += addend
        rounded = (rounded.astype(np.float32) + addend).astype(STORED[dtype])
    error, largest = np.abs(exact - rounded.astype(np.float64)).max(), np.abs(exact).max()
    found = narrow_sums(sum_of(count, dtype), x)
    if dtype == "float32":
        assert not found
        # the claim behind it: n u bounds what float32 loses
        assert error <= count * 2.0**-24 * np.abs(x).sum(0).max() + 2.0**-24 * count
    else:
        assert len(found) == 1
        assert error > 2.0 ** (np.floor(np.log2(largest)) - {"bfloat16": 8, "float16": 11}[dtype])


def test_a_sum_that_is_rounded_once_is_silent() -> None:
    @nki2.jit
    def kernel(x):
        tile = nl2.ndarray((128, 8), nl2.float32, buffer=nl2.sbuf)
        total = nl2.ndarray((128, 8), nl2.float32, buffer=nl2.sbuf)
        out = nl2.ndarray((128, 8), nl2.bfloat16, buffer=nl2.shared_hbm)
        nisa2.memset(total, 0.0)
        for i in range(64):
            nisa2.dma_copy(tile, x[i])
            nisa2.tensor_tensor(total, total, tile, op=nl2.add)
        nisa2.dma_copy(out, total)
        return out

    assert not narrow_sums(kernel, np.random.default_rng(0).random((64, 128, 8), np.float32))


def test_sums_of_two_in_a_tile_that_is_used_again_are_no_long_sum() -> None:
    @nki2.jit
    def kernel(x):
        tile = nl2.ndarray((128, 8), nl2.bfloat16, buffer=nl2.sbuf)
        scaled = nl2.ndarray((128, 8), nl2.bfloat16, buffer=nl2.sbuf)
        both = nl2.ndarray((128, 8), nl2.bfloat16, buffer=nl2.sbuf)
        out = nl2.ndarray((16, 128, 8), nl2.bfloat16, buffer=nl2.shared_hbm)
        for i in range(16):
            nisa2.dma_copy(tile, x[i])
            nisa2.tensor_scalar(scaled, tile, op0=nl2.multiply, operand0=0.3)
            nisa2.tensor_tensor(both, scaled, tile, op=nl2.add)
            nisa2.dma_copy(out[i], both)
        return out

    assert not narrow_sums(kernel, np.random.default_rng(0).random((16, 128, 8), np.float32))


def test_a_sum_that_takes_a_new_tile_for_each_addition_is_one_sum() -> None:
    @nki1.jit
    def kernel(x):
        out = nl1.ndarray((128, 8), nl1.bfloat16, buffer=nl1.shared_hbm)
        total = nl1.load(x[0])
        for i in nl1.static_range(1, 32):
            total = nl1.add(total, nl1.load(x[i]))
        nl1.store(out, total)
        return out

    x = np.random.default_rng(0).random((32, 128, 8), np.float32).astype(ml_dtypes.bfloat16)
    (finding,) = narrow_sums(kernel, x)
    assert finding.message.startswith("31 additions to total: bfloat16[128, 8] in sbuf")


def test_a_transfer_that_adds_to_a_result_rounds_every_time() -> None:
    @nki2.jit
    def kernel(x):
        tile = nl2.ndarray((128, 8), nl2.float32, buffer=nl2.sbuf)
        zeros = nl2.ndarray((128, 8), nl2.bfloat16, buffer=nl2.sbuf)
        out = nl2.ndarray((128, 8), nl2.bfloat16, buffer=nl2.shared_hbm)
        nisa2.memset(zeros, 0.0)
        nisa2.dma_copy(out, zeros)
        for i in range(16):
            nisa2.dma_copy(tile, x[i])
            nisa2.dma_copy(out, tile, dst_rmw_op=nl2.add)
        return out

    assert len(narrow_sums(kernel, np.random.default_rng(0).random((16, 128, 8), np.float32))) == 1
