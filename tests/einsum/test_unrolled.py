"""Small ranks of pairs value by value: the cascades and the values that are left, and kernels of these."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.language.ast import Cascade
from nkilab.einsum.language.extents import sized
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.reference import evaluate
from nkilab.einsum.rewrite.unrolled import with_unrolled_ranks
from nkilab.tiles.dtypes import DTYPES

FORCES = """
E[i, j, d] = X[i, d] - Y[j, d]
R[i, j] = sum(E[i, j, d]**2, d)
F[i, d] = sum(E[i, j, d] * exp(-R[i, j]), j)
"""
X, Y = (np.random.default_rng(seed).integers(-8, 9, (130, 3)) / 8 for seed in (1, 2))
EACH = X[:, None] - Y[None]
NEAR = np.random.default_rng(3).integers(0, 130, (130, 48))


def cascade_of(text: str, outputs: tuple[str, ...], **sizes: int) -> Cascade:
    """A cascade with extents."""
    cascade = spec_from(text, {}, outputs).cascade
    return sized(replace(cascade, sizes={"I": 130, "J": 130, "D": 3, **sizes}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FORCES, (EACH * np.exp(-(EACH**2).sum(-1))[..., None]).sum(1)),
        ("E[i, j, d] = X[i, d] - Y[j, d]\nF[i, j] = max(abs(E[i, j, d]), d)", abs(EACH).max(-1)),
        ("E[i, j, d] = X[i, d] * Y[j, d]\nF[i, j, d] = exp(E[i, j, d])", np.exp(X[:, None] * Y)),
        ("E[i, j, d] = X[i, d] - Y[j, d]\nF[] = sum(E[i, j, d]**2, i, j, d)", (EACH**2).sum()),
        ("E[i, j, d] = X[i, d] - Y[j, d]\nF[i, j] = E[i, j, 2] - E[i, j, 0]", EACH[..., 2] - EACH[..., 0]),
        ("E[i, j, d] = X[i, d] - Y[j, d]\nF[j, e, d] = sum(E[i, j, d] * E[i, j, e], i)", None),
        ("E[i, j, d] = X[i, d] - Y[j, d] if d < i else 0\nF[i, j] = sum(E[i, j, d], d)", None),
    ],
)
def test_a_small_rank_is_unrolled_and_values_are_those_of_numpy(
    text: str, expected: np.ndarray | None
) -> None:
    cascade = cascade_of(text, ("F",))
    unrolled = with_unrolled_ranks(cascade)
    assert (unrolled is cascade) == (expected is None)
    if expected is not None:
        assert np.allclose(evaluate(unrolled, {"X": X, "Y": Y})["F"], expected)
        assert not any(e.variables[-1:] == ("d",) and len(e.variables) > 2 for e in unrolled.einsums)


def test_a_rank_of_many_values_and_a_small_tensor_stay_as_they_are() -> None:
    for sizes in ({"D": 5}, {"I": 16, "J": 16}):
        cascade = cascade_of(FORCES, ("F",), **sizes)
        assert with_unrolled_ranks(cascade) is cascade


def values(array: np.ndarray, dtype: str) -> np.ndarray:
    """Eighths, which both types have."""
    return array.astype(DTYPES[dtype].storage)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_forces_of_all_pairs_have_the_values_of_numpy(dtype: str) -> None:
    dtypes = {"X": dtype, "Y": dtype, "F": "float32"}
    kernel = einsum.compile(FORCES, sizes={"I": 130, "J": 130, "D": 3}, dtypes=dtypes, outputs=["F"])
    expected = (EACH * np.exp(-(EACH**2).sum(-1))[..., None]).sum(1)
    assert np.allclose(kernel(values(X, dtype), values(Y, dtype)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_forces_of_neighbours_have_the_values_of_numpy(dtype: str) -> None:
    text = FORCES.replace("Y[j, d]", "X[NB[i, k], d]").replace("j", "k")
    dtypes = {"X": dtype, "NB": "int32", "F": "float32"}
    sizes = {"I": 130, "K": 48, "D": 3}
    kernel = einsum.compile(text, sizes=sizes, dtypes=dtypes, outputs=["F"])
    each = X[:, None] - X[NEAR]
    expected = (each * np.exp(-(each**2).sum(-1))[..., None]).sum(1)
    assert np.allclose(kernel(values(X, dtype), NEAR.astype(np.int32)), expected, rtol=1e-4, atol=1e-4)


def test_columns_that_numbers_name_come_as_rows_once() -> None:
    text = "W[i, j] = max(min(B[i, 1], B[j, 1]) - max(B[i, 0], B[j, 0]), 0)"
    kernel = einsum.compile(text, sizes={"I": 300, "J": 300}, shapes={"B": (300, 2)})
    box = np.random.default_rng(0).standard_normal((300, 2)).astype(np.float32)
    ends, starts = (
        function.outer(box[:, n], box[:, n]) for function, n in ((np.minimum, 1), (np.maximum, 0))
    )
    assert np.array_equal(kernel(box), np.maximum(ends - starts, 0))
    # no partition reads every other element of HBM
    assert "[[0, I_TILE], [B_1, I]]" not in kernel.source
    assert "b_scratch" in kernel.source
