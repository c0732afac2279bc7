"""Values along a rank that a comparison tells apart, each piece of them by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.language.extents import sized, sizes_of_arrays
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.reference import evaluate
from nkilab.einsum.rewrite.pieces import with_pieces

N = 100
A, B = (np.random.default_rng(seed).standard_normal((7, N)) for seed in (1, 2))
FIRST, EVEN = np.arange(N) < 40, np.arange(N) % 2 == 0
FOURTH, HALVES = np.arange(N) % 4 == 3, np.arange(N) // 2


def pieces_of(text: str, outputs: tuple[str, ...] = ("Z",)) -> tuple[bool, dict[str, np.ndarray]]:
    """Whether a cascade comes in pieces, and what these compute of A and B."""
    cascade = spec_from(text, {}, outputs).cascade
    arrays = {name: array for name, array in (("A", A), ("B", B)) if name in cascade.inputs}
    sizes = sizes_of_arrays(cascade, {n: a.shape for n, a in arrays.items()})
    cascade = sized(replace(cascade, sizes={**sizes, "N": N}))
    parted = with_pieces(cascade)
    return parted is not cascade, evaluate(parted, arrays)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Z[m, n] = A[m, n] if n < 40 else B[m, n]", np.where(FIRST, A, B)),
        ("Z[m, n] = A[m, n] if 39 >= n else 3", np.where(FIRST, A, 3.0)),
        ("T[m, n] = A[m, n] if n >= 40 else 0\nZ[m, n] = T[m, n] - B[m, n]", np.where(FIRST, 0, A) - B),
        ("T[m, n] = A[m, n] if n >= 40 else 0\nZ[m, n] = B[m, n] - T[m, n]", B - np.where(FIRST, 0, A)),
        ("T[m, n] = A[m, n] if n < 40 else 1\nZ[m, n] = T[m, n] * B[m, n]", np.where(FIRST, A, 1) * B),
        ("T[m, n] = A[m, n] if n < 40 else 2\nZ[m, n] = B[m, n] / T[m, n]", B / np.where(FIRST, A, 2)),
        ("T[m, n] = A[m, n] if n < 40 else 1\nZ[m, n] = exp(T[m, n])", np.exp(np.where(FIRST, A, 1))),
        (
            "T[m, n] = A[m, n] if n < 40 else 0\nU[m, n] = T[m, n] if n == 70 else 5\n"
            "Z[m, n] = U[m, n] + B[m, n]",
            np.where(np.arange(N) == 70, 0.0, 5.0) + B,
        ),
        # by another name, and read beyond the border
        ("T[m, n] = A[m, n] if n < 40 else 0\nZ[a, k] = T[a, k] + B[a, k]", np.where(FIRST, A, 0) + B),
        ("Z[m, n] = A[m, n + 60] if n < 40 else A[m, n - 40]", np.roll(A, 40, 1)),
        # what is computed before, and another comparison
        ("E[m, n] = exp(A[m, n])\nZ[m, n] = E[m, n] if n < 40 else B[m, n]", np.where(FIRST, np.exp(A), B)),
        (
            "T[m, n] = A[m, n] if n < 40 else (B[m, n] if n < 70 else 0)\nZ[m, n] = T[m, n] - A[m, n]",
            np.where(FIRST, A, np.where(np.arange(N) < 70, B, 0)) - A,
        ),
        (
            "Z[m, n] = A[m, n] if n < 40 else (B[m, n] if m < 3 else 0)",
            np.where(FIRST, A, np.where(np.arange(7)[:, None] < 3, B, 0)),
        ),
        # pieces that lie between each other
        ("Z[m, n] = A[m, n] if n % 2 == 0 else B[m, n]", np.where(EVEN, A, B)),
        ("Z[m, n] = A[m, n // 2] if n % 2 == 1 else -A[m, n // 2]", np.where(EVEN, -1, 1) * A[:, HALVES]),
        (
            "Z[m, n] = B[m, n] + (-A[m, n + 1] if n % 2 == 0 else A[m, n - 1])",
            B + np.where(EVEN, -np.roll(A, -1, 1), np.roll(A, 1, 1)),
        ),
        ("T[m, n] = A[m, n] if n % 4 < 3 else 1\nZ[a, k] = T[a, k] * B[a, k]", B * np.where(FOURTH, 1, A)),
        (
            "T[m, n] = A[m, n] if n % 2 == 0 else 0\nZ[m, n] = T[m, n] if n < 40 else B[m, n]",
            np.where(FIRST, np.where(EVEN, A, 0), B),
        ),
    ],
)  # fmt: skip
def test_pieces_have_the_values_of_the_whole(text: str, expected: np.ndarray) -> None:
    is_parted, values = pieces_of(text)
    assert is_parted
    np.testing.assert_allclose(values["Z"], expected, rtol=1e-12)


def test_what_others_read_is_put_together() -> None:
    text = "T[m, n] = A[m, n] if n < 40 else B[m, n]\nS[m] = sum(T[m, n], n)\nZ[m, n] = T[m, n] + S[m]"
    is_parted, values = pieces_of(text, ("T", "Z"))
    whole = np.where(FIRST, A, B)
    assert is_parted
    np.testing.assert_allclose(values["T"], whole, rtol=1e-12)
    np.testing.assert_allclose(values["Z"], whole + whole.sum(1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "Z[m, n] = A[m, n] if n < 8 else 0",  # few columns
        "Z[m, n] = A[m, n] if n == 40 else 0",  # two borders
        "Z[m, n] = A[m, n] if n % 10 == 0 else 0",  # many pieces
        "Z[m, n] = A[m, n] if m % 7 == 0 else 0",  # a piece of one row
        "Z[m, n] = A[m, n] if n < m + 40 else 0",  # of two variables
        "Z[m] = sum(A[m, n] if n < 40 else 0, n)",  # summed
    ],
)
def test_what_has_no_two_pieces_stays(text: str) -> None:
    assert not pieces_of(text)[0]


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_rotary_embeddings_of_halves_select_nothing(dialect: str) -> None:
    text = "Z[t, e] = X[t, e] * C[t, e] + (-X[t, e + 64] if e < 64 else X[t, e - 64]) * S[t, e]"
    shape = (512, 128)
    kernel = einsum.compile(text, shapes=dict.fromkeys("XCS", shape), dialect=dialect)
    assert "affine_select" not in kernel.source
    x, c, s = (np.random.default_rng(n).standard_normal(shape, np.float32) for n in range(3))
    rotated = np.concatenate([-x[:, 64:], x[:, :64]], 1)
    np.testing.assert_allclose(kernel(X=x, C=c, S=s), x * c + rotated * s, atol=1e-5)
