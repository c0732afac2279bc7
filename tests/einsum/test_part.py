"""Of a matrix that every turn multiplies, what fits on chip stays there over the turns."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.plan import part

POWERS = """
einsum:
  declaration: {{A: [{axes}], X0: [K], X: [I1, K], Y: [I, M], Z: [K]}}
  expressions:
    - X[0, k] = X0[k]
    - iterate: i
      body: ["Y[i, m] = A[{indices}] . X[i, k] ;; M mul V add", "X[i+1, m] = Y[i, m] ;; M unary(tanh)"]
    - Z[k] = X[I, k]
  shape: {{M: {size}, K: {size}, I: 8, I1: 9}}
options: {{cascade-outputs: [Z]}}
"""


def test_a_matrix_larger_than_the_chip_stays_in_part() -> None:
    kernel = einsum.compile(POWERS.format(size=4096, axes="M, K", indices="m, k"), dtypes="bfloat16")
    assert "A_turned: 2816 of 4096 rows stay on chip over the turns" in kernel.changes


def test_what_the_chip_cannot_hold_is_read_again_within_two_turns() -> None:
    spec = POWERS.format(size=4096, axes="M, K", indices="m, k")
    wide, narrow = (einsum.compile(spec, dtypes=dtype).roofline for dtype in ("float32", "bfloat16"))
    # 224 KiB of SBUF and 16 of PSUM on 128 partitions; turns 2, 4 and 6 of 8 begin with no more than that
    chip = (224 + 16) * 1024 * 128
    assert wide.times_ns["hbm"] * 435 == wide.bytes + 3 * (4 * 4096**2 - chip)
    assert narrow.times_ns["hbm"] * 435 == narrow.bytes + 3 * (2 * 4096**2 - chip)


def test_turns_read_what_stays_and_what_they_load(monkeypatch: pytest.MonkeyPatch) -> None:
    # room for some of 16 blocks of 128 rows, two of which are those that a turn loads
    monkeypatch.setattr(part, "SHARE", 0.3)
    kernel = einsum.compile(POWERS.format(size=2048, axes="K, M", indices="k, m"), dtypes="bfloat16")
    assert any("of 2048 rows stay on chip" in change for change in kernel.changes)
    rng = np.random.default_rng(8)
    matrix = (rng.normal(size=(2048, 2048)) / 34).astype(ml_dtypes.bfloat16)
    first = rng.normal(size=2048).astype(ml_dtypes.bfloat16)
    result, expected = kernel(matrix, first), first.astype(np.float64)
    for _ in range(8):
        expected = np.tanh(
            matrix.T.astype(np.float64) @ expected.astype(ml_dtypes.bfloat16).astype(np.float64)
        )
    np.testing.assert_allclose(result.astype(np.float64), expected, atol=0.02)
