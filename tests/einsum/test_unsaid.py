"""What a specification cannot say is refused with the nearest thing that it can, which means what it says."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum
from nkilab.errors import SpecError


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("Z[n] = X[n // m]", "'m' stands where n needs a whole number", "n // 4, n % 4, n // 4 % 2"),
        ("Z[n] = X[2*n // 4]", "2*n // 4 has two meanings", "write 2*(n // 4)"),
        (
            "Z[n, m] = X[(n + m) // 4]",
            "'+' stands where what is taken of an index needs ')'",
            "J[n] = floor((n + 1) / 2), then X[J[n]]",
        ),
        ("Z[n] = X[(n // 2 // 3)]", "'//' stands where what is taken of an index needs ')'", "n // 4, n % 4"),
        (
            "Z[n] = X[n] * [1, 2][n]",
            "'[' stands where a number is needed",
            "write W[0] = 0.25 and W[1] = 0.5",
        ),
        ("Z[t] = X[I[J[t]]]", "I[J[t]] is gathered by what is gathered", "K[t] = I[J[t]], then X[K[t]]"),
        ("Z[m] = X[m] if m < 3", "the expression ends where a condition needs 'else'", "else 0"),
        (
            "Z[t, d] = X[2*I[t] + 1, d]",
            "'[' stands where an index of X needs ','",
            "give the tensor of indices",
        ),
        (
            "Z[m] = X[m] . Y[m] ;; M mul if L[m] > m else 0",
            "'[' stands where a comparison is needed",
            "Z[m] = X[m] if X[m] > L[m] else 0",
        ),
    ],
)
def test_what_cannot_be_said_is_refused_with_the_nearest_thing(text: str, problem: str, hint: str) -> None:
    with pytest.raises(SpecError) as refused:
        einsum.compile(text, sizes={})
    lines = str(refused.value).splitlines()
    assert problem in lines[0]
    assert hint in next(line for line in lines if line.strip().startswith("hint: "))


def test_what_is_told_of_periodic_indices_and_lists_computes_them() -> None:
    x = np.arange(7, dtype=np.float32)
    kernel = einsum.compile("Z[n] = X[n + 1] + X[n + 1 - N]", sizes={"N": 7}, shapes={"X": (7,)})
    assert np.array_equal(kernel(x), np.roll(x, -1))
    kernel = einsum.compile(
        "W[0] = 0.25; W[1] = 0.5; Z[n] = X[n + k] * W[k]", sizes={"N": 6}, shapes={"X": (7,)}
    )
    assert np.array_equal(kernel(x), 0.25 * x[:-1] + 0.5 * x[1:])


def test_quotients_and_remainders_are_split_ranks() -> None:
    x = np.random.default_rng(1).normal(size=12).astype(np.float32)
    for text, size, wanted in (
        ("Z[4*a + b] = X[a]", 12, x[np.arange(48) // 4]),
        ("Z[4*a + b] = X[b]", 4, x[np.arange(48) % 4]),
    ):
        kernel = einsum.compile(text, sizes={"A": 12, "B": 4, "Z_0": 48})
        assert np.array_equal(np.asarray(kernel.kernel(x[:size])), wanted)
