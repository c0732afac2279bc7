"""Products of few rows beside each other on their own columns of the systolic array."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum

SPEC = """
einsum:
  declaration: {A: [J, K], X: [I1, J], S: [I, K], Z: [J]}
  expressions:
    - X[0, j] = const(1)
    - iterate: i
      body: ["S[i, k] = A[j, k] . X[i, j] ;; M mul V add", "X[i+1, k] = S[i, k] ;; M unary(tanh)"]
    - Z[j] = X[I, j]
options: {cascade-outputs: [Z]}
"""


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_a_row_times_a_matrix_takes_four_tiles_of_the_array(dialect: str) -> None:
    sizes = {"J": 1024, "K": 1024, "I": 3, "I1": 4}
    compiled = einsum.compile(SPEC, sizes=sizes, dtypes="bfloat16", dialect=dialect)
    assert [compiled.source.count(f"tile_position=(0, {at})") for at in (0, 32, 64, 96)] == [1] * 4
    matrix = np.random.default_rng(2).standard_normal((1024, 1024)) / 32
    state = np.ones(1024)
    for _ in range(3):
        state = np.tanh(state @ matrix)
    # three turns of values of 8 bits
    np.testing.assert_allclose(np.asarray(compiled(A=matrix), np.float64), state, atol=0.04)
