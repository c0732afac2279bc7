"""What a specification cannot say is refused with the nearest thing that it can, which means what it says."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum
from nkilab.errors import SpecError, UnsupportedError


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("J[m] = X[m, n] ;; V argmax", "argmax is no operator", "for the last place of the largest"),
        ("J[m] = X[m, n] ;; V argmin", "argmin is no operator", "for the last place of the smallest"),
        ("Z[m, k] = X[m, n] ;; V topk", "topk is no operator", "an Einsum has one result; write V max"),
        ("Z[n] = X[n // 4]", "'/' means nothing here", "split the rank: Z[4*a + b] = X[a] for X[n // 4]"),
        ("Z[n] = X[n % 4]", "'%' means nothing here", "Z[4*a + b] = X[b] for X[n % 4]"),
        ("Z[I[t], d] = X[t, d]", "Z[I[t], d] is written where a tensor says", "Z[s, d] = X[J[s], d]"),
        (
            "Z[t, d] = X[2*I[t] + 1, d]",
            "'[' stands where an index of X needs ','",
            "give the tensor of indices",
        ),
        ("Z[m, n] = X[m, n] if L[m] > n else 0", "'[' stands where a comparison is needed", "M greater"),
        ("Z[m, n] = X[m, n] . n ;; M mul", "the scalar n has no value", "write N[n]"),
    ],
)
def test_what_cannot_be_said_is_refused_with_the_nearest_thing(text: str, problem: str, hint: str) -> None:
    with pytest.raises(SpecError) as refused:
        einsum.compile(text, sizes={})
    lines = str(refused.value).splitlines()
    assert problem in lines[0]
    assert hint in next(line for line in lines if line.strip().startswith("hint: "))


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_the_place_of_the_largest_is_found_as_the_hint_says(dialect: str) -> None:
    kernel = einsum.compile(
        "Z[m] = X[m, n] ;; V max; E[m, n] = X[m, n] . Z[m] ;; M equal; P[m, n] = E[m, n] . N[n] ;; M mul;"
        "J[m] = P[m, n] ;; V max",
        sizes={"M": 200, "N": 300}, outputs=["Z", "J"], dialect=dialect,
    )  # fmt: skip
    x = np.random.default_rng(1).normal(size=(200, 300)).astype(np.float32)
    inputs = {"X": x, "N": np.arange(300, dtype=np.float32)}
    largest, place = kernel.kernel(*(inputs[name] for name in kernel.inputs))
    assert np.array_equal(np.asarray(largest), x.max(1))
    assert np.array_equal(np.asarray(place), x.argmax(1))


def test_quotients_and_remainders_are_split_ranks() -> None:
    x = np.random.default_rng(1).normal(size=12).astype(np.float32)
    for text, size, wanted in (
        ("Z[4*a + b] = X[a]", 12, x[np.arange(48) // 4]),
        ("Z[4*a + b] = X[b]", 4, x[np.arange(48) % 4]),
    ):
        kernel = einsum.compile(text, sizes={"A": 12, "B": 4, "Z_0": 48})
        assert np.array_equal(np.asarray(kernel.kernel(x[:size])), wanted)


@pytest.mark.parametrize(("access", "sizes"), [("X[I[t], J[t]]", {"X_0": 32}), ("X[t, I[t]]", {})])
def test_a_gather_by_more_than_the_first_index_is_refused(access: str, sizes: dict[str, int]) -> None:
    with pytest.raises(UnsupportedError) as refused:
        einsum.compile(f"Z[t] = {access}", sizes={"T": 32, "X_1": 48, **sizes})
    assert "is gathered" in str(refused.value)
    assert "hint: declare the" in str(refused.value)
