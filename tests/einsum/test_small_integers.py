"""Integers of 8 bits on TensorE: they come as bfloat16, which has them, and products of two, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum

# sums of k products: rows of A as they lie, and both operands turned round
SPELLINGS = {
    "Y[m, n] = sum(A[m, k] * B[k, n], k)": ((40, 200), (200, 60)),
    "Y[m, n] = A[k, m] * B[n, k]": ((200, 40), (60, 200)),
}


@pytest.mark.parametrize("text", SPELLINGS)
@pytest.mark.parametrize(("kinds", "least", "most"), [("int8 int8", -128, 127), ("uint8 uint8", 0, 255)])
def test_sums_of_small_integers_are_exact(text: str, kinds: str, least: int, most: int) -> None:
    shapes = dict(zip("AB", SPELLINGS[text], strict=True))
    kernel = einsum.compile(text, shapes=shapes, dtypes=dict(zip("AB", kinds.split(), strict=True)))
    assert "nc_matmul" in kernel.source
    full = {name: np.full(shape, most) for name, shape in shapes.items()}
    # 200 * 127 * 127 and 200 * 255 * 255 are below 2^24: float32 has them, bfloat16 has not
    assert np.array_equal(kernel(**full), np.full((40, 60), 200 * most * most))
    np.moveaxis(full["A"], shapes["A"].index(200), 0)[::2] = least
    assert np.array_equal(kernel(**full), np.full((40, 60), 100 * (most + least) * most))


@pytest.mark.parametrize("kinds", [{"A": "int8"}, {"A": "bfloat16", "Y": "float32"}])
def test_an_input_of_float32_is_not_rounded_to_what_it_is_multiplied_with(kinds: dict[str, str]) -> None:
    text, shapes = "Y[m, n] = sum(A[m, k] * B[k, n], k)", {"A": (8, 64), "B": (64, 8)}
    kernel = einsum.compile(text, shapes=shapes, dtypes=kinds)
    # bfloat16 would round 1 + 2^-12 to 1
    result = kernel(A=np.ones((8, 64)), B=np.full((64, 8), 1 + 2.0**-12))
    assert np.array_equal(result, np.full((8, 8), 64 + 2.0**-6))


def test_integers_of_16_bits_are_no_operands_of_products() -> None:
    kernel = einsum.compile(
        "Y[m, n] = sum(A[m, k] * B[k, n], k)",
        shapes={"A": (8, 64), "B": (64, 8)},
        dtypes={"A": "int16", "B": "int8"},
    )
    assert "nc_matmul" not in kernel.source
    # 4097 needs 13 bits
    assert np.array_equal(kernel(A=np.full((8, 64), 4097), B=np.ones((64, 8))), np.full((8, 8), 64 * 4097))
