"""Long chains of Einsums: no tile lives longer than it is needed, and nothing grows with their square."""

from __future__ import annotations

from time import process_time

import numpy as np
import pytest

from nkilab import einsum


def chain(count: int) -> str:
    """Products and sums in turns, each of the one before."""
    first = "T0[m, n] = X[m, n] ;; M unary(tanh)"
    rest = (
        f"T{i}[m, n] = T{i - 1}[m, n] . {'B' if i % 3 else 'A'}[m, n] ;; M {'mul' if i % 2 else 'add'}"
        for i in range(1, count)
    )
    return "; ".join((first, *rest))


@pytest.mark.corpus(drawn=False)
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_a_long_chain_fits_on_chip_and_is_right(dialect: str) -> None:
    kernel = einsum.compile(chain(120), sizes={"M": 128, "N": 512}, dialect=dialect)
    random = np.random.default_rng(9)
    inputs = {name: random.uniform(-1, 1, (128, 512)) for name in ("X", "A", "B")}
    wanted = np.tanh(inputs["X"])
    for i in range(1, 120):
        other = inputs["B" if i % 3 else "A"]
        wanted = wanted * other if i % 2 else wanted + other
    result = kernel.kernel(*(inputs[name].astype(np.float32) for name in kernel.inputs))
    assert np.abs(np.asarray(result) - wanted).max() <= 1e-4


@pytest.mark.slow
def test_four_hundred_einsums_compile_in_ten_seconds_of_one_core() -> None:
    begun = process_time()
    einsum.compile(chain(400), sizes={"M": 1024, "N": 512})
    assert process_time() - begun < 10
