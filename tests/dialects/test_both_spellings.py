"""A kernel of one spelling calls one of the other, inline, on its tensors; against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dialects.spellings import nisa2, nki1, nki2, nl1, nl2

X = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)


@nki1.jit
def exponentials(x, factor=1.0):
    out = nl1.ndarray(x.shape, dtype=x.dtype, buffer=nl1.shared_hbm)
    nl1.store(out, nl1.exp(nl1.load(x)) * factor)
    return out


@nki1.jit
def sum_and_tile(tiles):
    """Takes tiles in a list; the second result still waits for a place when it is returned."""
    first, second = tiles
    return nl1.add(first, second), nl1.multiply(first, second)


@nki2.jit
def doubled(x):
    out = nl2.ndarray(x.shape, dtype=x.dtype, buffer=nl2.shared_hbm)
    tile = nl2.ndarray(x.shape, dtype=x.dtype, buffer=nl2.sbuf)
    nisa2.dma_copy(dst=tile, src=x)
    nisa2.tensor_scalar(dst=tile, data=tile, op0=nl2.multiply, operand0=2.0)
    nisa2.dma_copy(dst=out, src=tile)
    return out


@nki2.jit
def of_nki(x):
    return doubled(exponentials(x, factor=3.0))


@nki1.jit
def of_beta1(x):
    out = nl1.ndarray(x.shape, dtype=x.dtype, buffer=nl1.shared_hbm)
    nl1.store(out, nl1.load(doubled(exponentials(x))) + 1.0)
    return out


@nki2.jit
def tiles_of_nki(x):
    tile = nl2.ndarray(x.shape, dtype=x.dtype, buffer=nl2.sbuf)
    nisa2.dma_copy(dst=tile, src=x)
    total, product = sum_and_tile([tile, tile])
    out = nl2.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl2.shared_hbm)
    nisa2.dma_copy(dst=out[0], src=total)
    nisa2.dma_copy(dst=out[1], src=product)
    return out


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [(of_nki, 6 * np.exp(X)), (of_beta1, 2 * np.exp(X) + 1), (tiles_of_nki, np.stack([2 * X, X * X]))],
    ids=["nki", "beta1", "tiles"],
)
def test_a_kernel_of_the_other_spelling_runs_inline(kernel, expected):
    np.testing.assert_allclose(kernel(X), expected, rtol=2e-6)
