"""bn_stats and bn_aggr against hand values and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab.isa import REGISTRY
from nkilab.tiles.dtypes import BFLOAT16
from nkilab.tiles.tile import Layout, layout
from tests.uses import Tile, result

BN_STATS, BN_AGGR = REGISTRY["bn_stats"], REGISTRY["bn_aggr"]
# sums of some hundred float32 in another order
CLOSE = 1e-5


def data_layout(*shape: int) -> Layout:
    strides = tuple(int(np.prod(shape[k + 1 :])) for k in range(len(shape)))
    return layout(shape, strides, BFLOAT16, "sbuf", 0, 0)


@pytest.mark.parametrize("count", [1, 2, 7, 128, 511, 512])
def test_even_and_odd_elements_are_counted_apart(count: int) -> None:
    data = np.random.default_rng(1).random((4, count), np.float32)
    got = result(BN_STATS, (4, 6), data=data)
    for first, half in ((0, got[:, :3]), (1, got[:, 3:])):
        rows = data[:, first::2].astype(np.float64)
        size = rows.shape[1]
        mean, spread = (rows.mean(1), rows.var(1) * size) if size else (np.zeros(4), np.zeros(4))
        np.testing.assert_allclose(half, np.stack([np.full(4, size), mean, spread], 1), rtol=CLOSE, atol=1e-9)


@pytest.mark.parametrize("count", [1, 5, 128, 512])
def test_the_aggregate_of_one_tile_is_its_mean_and_variance(count: int) -> None:
    data = np.random.default_rng(2).random((8, count), np.float32) * 100
    got = result(BN_AGGR, (8, 2), data=result(BN_STATS, (8, 6), data=data))
    wide = data.astype(np.float64)
    np.testing.assert_allclose(got, np.stack([wide.mean(1), wide.var(1)], 1), rtol=CLOSE, atol=1e-9)


def test_the_aggregate_of_two_tiles_is_that_of_both_together() -> None:
    # the public example: 1024 elements in tiles of 512, here of unequal length and in three axes
    data = np.random.default_rng(3).random((8, 700), np.float32) * 100
    parts = [result(BN_STATS, (8, 6), data=d) for d in (data[:, :512], data[:, 512:])]
    got = result(BN_AGGR, (8, 2), data=np.stack(parts, axis=1))
    wide = data.astype(np.float64)
    np.testing.assert_allclose(got, np.stack([wide.mean(1), wide.var(1)], 1), rtol=CLOSE)


def test_statistics_of_bfloat16_are_computed_in_float32() -> None:
    # hand: mean of 256, 256, 256, 260 is 257, which eight mantissa bits do not hold
    data = np.zeros((1, 8), np.float32)
    data[0, 0::2] = [256, 256, 256, 260]
    got = result(BN_STATS, (1, 6), data=(data, "bfloat16"))
    assert got.tolist() == [[4, 257, 12, 4, 0, 0]]


def test_a_difference_of_large_numbers_keeps_its_variance() -> None:
    # hand: 10000 and 10002 in turn; a sum of squares less a squared mean would lose 1
    data = np.float32([[10000, 0, 10002, 0, 10000, 0, 10002, 0]])
    assert result(BN_STATS, (1, 6), data=data).tolist() == [[4, 10001, 4, 4, 0, 0]]


def test_results_that_a_call_returns_have_six_and_two_elements_of_the_type_of_data() -> None:
    layouts = {"data": data_layout(16, 2, 6)}
    for cls, size in ((BN_STATS, 6), (BN_AGGR, 2)):
        fresh = cls.fresh(layouts, {})
        assert (fresh.shape, fresh.dtype, fresh.memory) == ((16, size), BFLOAT16, "sbuf")


def test_a_result_may_have_a_third_axis() -> None:
    got = result(BN_STATS, Tile((1, 1, 6)), data=np.float32([[1, 2]]))
    assert got.tolist() == [[[1, 1, 0, 1, 2, 0]]]
