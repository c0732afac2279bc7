"""Numbers that scale what a mask chooses come behind it and its maximum; VectorE has both in one pass."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum

MASKED = """
S[q, n] = where(M[n] > 0, sum(Q[q, e] * K[n, e], e) * {scale}, {otherwise})
X[q] = max(S[q, n], n)
Z[q] = sum(exp(S[q, n] - X[q]), n)
"""
SIZES = {"Q": 128, "N": 1024, "E": 16}


def _computed(scale: float, otherwise: str, dialect: str) -> tuple[str, np.ndarray, np.ndarray]:
    """The source of a kernel, its maxima and sums beside those of NumPy."""
    compiled = einsum.compile(
        MASKED.format(scale=scale, otherwise=otherwise), sizes=SIZES, outputs=["X", "Z"], dialect=dialect
    )
    rng = np.random.default_rng(5)
    q, k = rng.standard_normal((128, 16)), rng.standard_normal((1024, 16))
    mask = (rng.random(1024) < 0.5) * 1.0
    chosen = np.where(mask > 0, scale * q @ k.T, float(otherwise))
    largest = chosen.max(axis=1)
    arrays = {name: a.astype(np.float32) for name, a in {"Q": q, "K": k, "M": mask}.items()}
    own = np.stack([largest, np.exp(chosen - largest[:, None]).sum(axis=1)])
    return compiled.source, np.stack([np.asarray(a) for a in compiled(**arrays)]), own


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("otherwise", ["-inf", "0"])
def test_what_chooses_has_the_maxima_and_the_exponential_scales(otherwise: str, dialect: str) -> None:
    source, results, wanted = _computed(0.125, otherwise, dialect)
    np.testing.assert_allclose(results, wanted, rtol=2e-5)
    # one pass chooses and has the maxima of 512 columns each, one scales, subtracts, exponentiates and sums
    assert source.count("reset_reduce") == source.count("select_reduce") == 1
    assert "tensor_copy" not in source.split("select_reduce")[1].split("activation_reduce")[0]
    assert "scale=0.125" in source.split("activation_reduce")[1]


@pytest.mark.parametrize(("scale", "otherwise"), [(-0.125, "0"), (0.125, "3")])
def test_what_a_number_changes_or_turns_round_is_scaled_before(scale: float, otherwise: str) -> None:
    source, results, wanted = _computed(scale, otherwise, "nki")
    np.testing.assert_allclose(results, wanted, rtol=2e-5)
    assert "unscaled" not in source
