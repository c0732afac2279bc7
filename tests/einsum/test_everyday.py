"""Cascades that people write, with a word or two about how they run, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nkilab.einsum
from tests.einsum.test_mapped import text_of
from tests.einsum.test_mapped_forms import split

pytestmark = pytest.mark.corpus


def rotated(c: Any, s: Any, x: Any) -> Any:
    even, odd = x[:, ::2], x[:, 1::2]
    return np.stack([even * c - odd * s, even * s + odd * c], -1).reshape(x.shape)


def attended(k: Any, q: Any, v: Any) -> Any:
    scores = np.einsum("bhge,bshe->bhgs", q, k) / 4
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhgs,bshe->bhge", weights / weights.sum(-1, keepdims=True), v)


def routed(w: Any, x: Any) -> Any:
    scores = x @ w
    return scores * (scores >= scores.max(1, keepdims=True))


def gradients(d: Any, g: Any, x: Any) -> tuple[Any, Any]:
    r = 1 / np.sqrt((x * x).mean(1, keepdims=True) + 0.01)
    dx = r * (d * g - x * r * r * (d * g * x).mean(1, keepdims=True))
    return dx, (x * r * d).sum(0)


# tensors in the order of their names, which is that of the arguments
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "rotary embedding": (
        {
            "declaration": {"C": "TH", "S": "TH", "X": "TD", **dict.fromkeys("ABPQ", "TH"), "Z": "TD"},
            "expressions": [
                "A[t, h] = X[t, 2*h] . C[t, h] ;; M mul", "B[t, h] = X[t, 2*h+1] . S[t, h] ;; M mul",
                "P[t, h] = X[t, 2*h] . S[t, h] ;; M mul", "Q[t, h] = X[t, 2*h+1] . C[t, h] ;; M mul",
                "Z[t, 2*h] = A[t, h] . B[t, h] ;; M binary(subtract)",
                "Z[t, 2*h+1] = P[t, h] . Q[t, h] ;; M add",
            ],
            "shape": {"T": 130, "D": 16, "H": 8},
        },
        split("A", T=64), rotated,
    ),
    "attention with grouped queries": (
        {
            "declaration": {"K": "BSHE", "Q": "BHGE", "V": "BSHE", **dict.fromkeys("LP", "BHGS"),
                            **dict.fromkeys("MD", "BHG"), **dict.fromkeys("AZ", "BHGE")},
            "expressions": [
                "L[b, h, g, s] = Q[b, h, g, e] . K[b, s, h, e] . 0.25 ;; M mul V add",
                "M[b, h, g] = L[b, h, g, s] ;; V max",
                "P[b, h, g, s] = L[b, h, g, s] . M[b, h, g] ;; M binary(subtract_exp)",
                "D[b, h, g] = P[b, h, g, s] ;; V add",
                "A[b, h, g, e] = P[b, h, g, s] . V[b, s, h, e] ;; M mul V add",
                "Z[b, h, g, e] = A[b, h, g, e] . D[b, h, g] ;; M binary(divide)",
            ],
            "shape": {"B": 2, "H": 1, "G": 3, "S": 70, "E": 16},
        },
        split("A", S=64), attended,
    ),
    "a product with scales": (
        {
            "declaration": {"A": "MK", "B": "KN", "S": "M", "T": "N", "Z": "MN"},
            "expressions": ["Z[m, n] = A[m, k] . B[k, n] . S[m] . T[n] ;; M mul V add"],
            "shape": {"M": 130, "K": 150, "N": 40},
        },
        split("Z", M=64, K=128), lambda a, b, s, t: a @ b * s[:, None] * t,
    ),
    "the best of the experts": (
        {
            "declaration": {"W": "DE", "X": "TD", "L": "TE", "M": "T", "G": "TE", "Z": "TE"},
            "expressions": [
                "L[t, e] = X[t, d] . W[d, e] ;; M mul V add", "M[t] = L[t, e] ;; V max",
                "G[t, e] = L[t, e] . M[t] ;; M binary(greater_equal)", "Z[t, e] = G[t, e] . L[t, e] ;; M mul",
            ],
            "shape": {"T": 130, "D": 140, "E": 16},
        },
        split("M", T=64), routed,
    ),
    "the gradients of a norm": (
        {
            "declaration": {"D": "MN", "G": "N", "X": "MN", **dict.fromkeys("ACHPQ", "MN"),
                            **dict.fromkeys("SUVREF", "M"), "DX": "MN", "DG": "N"},
            "expressions": [
                "S[m] = X[m, n] . X[m, n] ;; M mul V add", "U[m] = S[m] . 0.025 ;; M mul",
                "V[m] = U[m] . 0.01 ;; M add", "R[m] = V[m] ;; M unary(rsqrt)",
                "A[m, n] = D[m, n] . G[n] ;; M mul", "E[m] = A[m, n] . X[m, n] ;; M mul V add",
                "F[m] = E[m] . R[m] . R[m] . 0.025 ;; M mul", "H[m, n] = X[m, n] . F[m] ;; M mul",
                "P[m, n] = A[m, n] . H[m, n] ;; M binary(subtract)", "DX[m, n] = P[m, n] . R[m] ;; M mul",
                "Q[m, n] = X[m, n] . R[m] ;; M mul", "DG[n] = Q[m, n] . D[m, n] ;; M mul V add",
            ],
            "shape": {"M": 130, "N": 40},
        },
        split("DX", M=64), gradients,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("is_mapped", [False, True], ids=["planned", "mapped"])
def test_it_is_right_with_and_without_a_mapping(name: str, is_mapped: bool) -> None:
    einsum, mapping, expected = CASES[name]
    used = " ".join(einsum["expressions"])
    declaration = {t: list(r) for t, r in einsum["declaration"].items() if f"{t}[" in used}
    outputs = [t for t in ("DX", "DG") if t in declaration] or ["Z"]
    document = {"einsum": {**einsum, "declaration": declaration}, "options": {"cascade-outputs": outputs}}
    kernel = nkilab.einsum.compile(text_of({**document, **({"mapping": mapping} if is_mapped else {})}))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(kernel.cascade.shape(t)) for t in kernel.inputs]
    results, wanted = kernel(*inputs), expected(*inputs)
    pairs = zip(results, wanted, strict=True) if len(outputs) > 1 else [(results, wanted)]
    for got, right in pairs:
        # float32 sums of at most 150 terms
        np.testing.assert_allclose(got, right, rtol=0, atol=1e-4 * np.abs(right).max())
