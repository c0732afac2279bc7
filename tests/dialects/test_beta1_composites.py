"""Functions of `neuronxcc.nki.language` that take several instructions, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.dialects.spellings import nki1 as nki
from tests.dialects.spellings import nl1 as nl
from tests.dialects.spellings import ramp

import nkilab
from nkilab.dialects.serve import tables

NKI = tables("neuronxcc", "")["neuronxcc.nki"]
NL = tables("neuronxcc", "")["neuronxcc.nki.language"]
# float32 arithmetic in another order than the reference: a few units in the last place
CLOSE = {"rtol": 2e-6, "atol": 1e-6}
X = np.random.default_rng(7).standard_normal((32, 24)).astype(np.float32)


def run(body: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """The result of `body` over tiles that hold the arrays, in its own type."""

    def kernel(inputs: list[Any]) -> Any:
        result = body(*(NL["load"](a) for a in inputs))
        out = NL["ndarray"](result.shape, result.dtype, buffer=NL["shared_hbm"])
        NL["store"](out, result)
        return out

    result: np.ndarray = nkilab.simulate(NKI["jit"](kernel))(list(arrays))
    return result


def test_softmax_is_that_of_float64() -> None:
    powers = np.exp(X.astype(np.float64) - X.max(axis=1, keepdims=True))
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(run(lambda x: NL["softmax"](x, 1), X), expected, **CLOSE)


def test_rms_norm_is_that_of_float64() -> None:
    w = np.linspace(0.5, 2, 24, dtype=np.float32)[None].repeat(32, 0)
    wide = X.astype(np.float64)
    expected = wide / np.sqrt((wide**2).sum(axis=1, keepdims=True) / 24 + 1e-6) * w
    np.testing.assert_allclose(run(lambda x, y: NL["rms_norm"](x, y, 1, 24), X, w), expected, **CLOSE)


@pytest.mark.parametrize("other", ["tile", "number"])
def test_where_picks_as_numpy_does(other: str) -> None:
    y = -X
    if other == "tile":
        result = run(lambda a, b: NL["where"](NL["greater"](a, 0.25), a, b), X, y)
        np.testing.assert_array_equal(result, np.where(X > 0.25, X, y))
    else:
        result = run(lambda a: NL["where"](NL["greater"](a, 0.25), a, 3.0), X)
        np.testing.assert_array_equal(result, np.where(X > 0.25, X, np.float32(3)))


def test_where_takes_a_condition_of_floats_as_not_zero() -> None:
    condition = (X > 0).astype(np.float32) * 0.5
    result = run(lambda c, a: NL["where"](c, a, 0.0), condition, X)
    np.testing.assert_array_equal(result, np.where(X > 0, X, np.float32(0)))


def test_dropout_keeps_or_clears_each_element() -> None:
    result = run(lambda a: NL["dropout"](a, 0.5), X)
    cleared = result == 0
    np.testing.assert_array_equal(result[~cleared], X[~cleared])
    # 768 draws of probability one half lie within 5 deviations (69) of 384
    assert abs(int(cleared.sum()) - 384) < 70


def test_random_tiles_are_uniform_below_one_and_follow_the_seed() -> None:
    def body(a: Any) -> Any:
        NL["random_seed"](11)
        return NL["rand"]((32, 64))

    first, second = run(body, X), run(body, X)
    np.testing.assert_array_equal(first, second)
    assert 0 <= first.min() < 0.01
    assert 0.99 < first.max() < 1
    # the mean of 2048 uniform draws lies within 5 deviations (0.032) of one half
    assert abs(float(first.mean()) - 0.5) < 0.032


def test_an_identity_matrix_is_a_constant_that_may_not_be_written() -> None:
    result = run(lambda a: NL["load"](NL["shared_identity_matrix"](8, np.float32)), X)
    np.testing.assert_array_equal(result, np.eye(8, dtype=np.float32))
    with pytest.raises(ValueError, match="dst is an input of the kernel, which may not be written"):
        run(lambda a: NL["store"](NL["shared_identity_matrix"](24, np.float32), a[0:24]), X)


def test_gather_flattened_picks_within_each_partition() -> None:
    places = np.random.default_rng(8).integers(0, 24, (32, 10)).astype(np.uint32)
    result = run(lambda a, i: NL["gather_flattened"](a, i), X, places)
    np.testing.assert_array_equal(result, np.take_along_axis(X, places.astype(np.int64), axis=1))


def test_a_number_goes_to_any_partition() -> None:
    def body(a: Any) -> Any:
        tile = NL["zeros"]((32, 4), np.float32)
        for i in NL["static_range"](32):
            tile[i, 1] = i + 0.5
        return tile

    expected = np.zeros((32, 4), np.float32)
    expected[:, 1] = np.arange(32) + 0.5
    np.testing.assert_array_equal(run(body, X), expected)


def test_a_row_goes_to_any_partition() -> None:
    def body(a: Any) -> Any:
        tile = NL["zeros"]((32, 24), np.float32)
        row = NL["copy"](a[0:1, :])
        NL["copy"](a)
        tile[7:8, :] = row
        return tile

    expected = np.zeros((32, 24), np.float32)
    expected[7] = X[0]
    np.testing.assert_array_equal(run(body, X), expected)


def test_grids_of_three_axes_are_called_p_x_y_in_order() -> None:
    grid = NL["mgrid"][0:4, 0:3, 0:2]
    assert [g.shape for g in (grid.p, grid.x, grid.y)] == [g.shape for g in grid]


def test_a_type_is_no_array_among_arguments() -> None:
    def kernel(x: Any, dtype: Any) -> Any:
        out = NL["ndarray"](x.shape, dtype, buffer=NL["shared_hbm"])
        NL["store"](out, NL["load"](x, dtype=dtype))
        return out

    result = nkilab.simulate(NKI["jit"](kernel))(X, np.float16)
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, X.astype(np.float16))


def test_a_reduction_starts_anew_after_a_reset_between_two_loops() -> None:
    def body(a: Any) -> Any:
        total = NL["zeros"]((32, 24), np.float16)
        for k in NL["affine_range"](3):
            total[...] = NL["loop_reduce"](a, np.add, [k])
        total[...] = 0
        for k in NL["affine_range"](2):
            total[...] = NL["loop_reduce"](a, np.add, [k])
        return total

    np.testing.assert_array_equal(run(body, np.ones((32, 24), np.float32)), 2)


def test_a_reset_inside_the_loop_is_not_forgotten() -> None:
    def body(a: Any) -> Any:
        total = NL["zeros"]((32, 24), np.float16)
        for k in NL["affine_range"](3):
            total[:, 0:4] = 10
            total[:, 0:4] = NL["loop_reduce"](a[:, 0:4], np.add, [k])
            total[:, 4:8] = NL["loop_reduce"](a[:, 4:8], np.add, [k])
        return total

    expected = np.zeros((32, 24))
    expected[:, 0:4], expected[:, 4:8] = 11, 3
    np.testing.assert_array_equal(run(body, np.ones((32, 24), np.float32)), expected)


def test_a_narrow_reduction_rounds_no_partial_sum() -> None:
    # 2048 + 1 is a tie in float16 and rounds back to 2048 each time; carried, the ones add up
    def body(a: Any) -> Any:
        total = NL["full"]((32, 24), 2048, np.float16)
        for k in NL["affine_range"](4):
            for n in NL["affine_range"](6):
                columns = NL["ds"](n * 4, 4)
                total[:, columns] = NL["loop_reduce"](a[:, columns], np.add, [k])
        return total

    np.testing.assert_array_equal(run(body, np.ones((32, 24), np.float32)), 2052)


@nki.jit
def masked_composites(x: Any, rows: int) -> Any:
    """Each function under a mask of rows and columns, written into a tile of -1."""
    shape = (4, *x.shape)
    out = nl.ndarray(shape, x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:8, 0:6]
    mask = (i_p < rows) & (i_f >= 2)
    tile, weights = nl.load(x[i_p, i_f], mask=i_p < rows), nl.full((8, 6), 2.0, x.dtype)
    tiles = [
        nl.where(nl.greater(tile, 3.0, mask=mask), tile, 0.5, mask=mask),
        nl.softmax(tile, axis=1, mask=mask),
        nl.rms_norm(tile, weights, axis=1, n=4, mask=mask),
        nl.dropout(tile, 1.0, mask=mask),
    ]
    for i in nl.static_range(4):
        nl.store(out[i], nl.full((8, 6), -1.0, x.dtype))
        nl.store(out[i, i_p, i_f], tiles[i], mask=mask)
    return out


def test_a_mask_leaves_elements_out_of_functions_of_several_instructions() -> None:
    x = ramp(8, 6) / 8
    part = x[:5, 2:].astype(np.float64)
    powers = np.exp(part - part.max(axis=1, keepdims=True))
    expected = np.full((4, 8, 6), -1.0)
    expected[0, :5, 2:] = np.where(part > 3, part, 0.5)
    expected[1, :5, 2:] = powers / powers.sum(axis=1, keepdims=True)
    expected[2, :5, 2:] = 2 * part / np.sqrt((part**2).sum(axis=1, keepdims=True) / 4 + 1e-6)
    expected[3, :5, 2:] = 0
    np.testing.assert_allclose(masked_composites(x, 5), expected, rtol=1e-6)
