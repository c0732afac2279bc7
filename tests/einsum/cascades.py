"""Cascades written after the compiler worked: expressions, extents, and what NumPy says they mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nkilab.einsum.language.ast import Cascade, Iterate, Tensor
from nkilab.einsum.language.expressions import read_einsum

Reference = Callable[..., Any]
Steps = list["str | tuple[str, list[str]]"]


@dataclass(frozen=True)
class Case:
    """One cascade.

    Args:
        name: of it.
        level: 0 moves, 1 element-wise, 2 reductions, 3 products, 4 cascades, 5 attention, 6 index
            expressions, 7 recurrences, 8 mixed.
        tensors: declaration, as "A: M N, Z: M".
        steps: expressions; (variable, body) iterates.
        outputs: tensors that are returned.
        sizes: extents that are no multiples of a tile.
        reference: of the inputs in order.
        scalars: parameters.
        derived: extents that follow from others.
    """

    name: str
    level: int
    tensors: str
    steps: Steps
    outputs: str
    sizes: dict[str, int]
    reference: Reference
    scalars: dict[str, float] = field(default_factory=dict)
    derived: dict[str, str] = field(default_factory=dict)

    @property
    def cascade(self) -> Cascade:
        """What the compiler gets."""
        declared = {}
        for entry in self.tensors.split(","):
            name, _, ranks = entry.partition(":")
            declared[name.strip()] = Tensor(name.strip(), tuple(ranks.split()))
        steps = [
            read_einsum(s) if isinstance(s, str) else Iterate(s[0], tuple(map(read_einsum, s[1])))
            for s in self.steps
        ]
        return Cascade(declared, tuple(steps), tuple(self.outputs.split()), self.scalars)

    def extents(self, **changes: int) -> dict[str, int]:
        """All extents, with some changed and those that follow from them."""
        extents = {**self.sizes, **changes}
        for rank, rule in self.derived.items():
            extents[rank] = eval(rule, {}, dict(extents))
        return extents


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


def _causal(q: Any, k: Any, v: Any) -> Any:
    s = q.T @ k
    return _softmax(np.where(np.tril(np.ones_like(s)) > 0, s, -np.inf)) @ v


def _ema(x: Any) -> Any:
    s = np.zeros((len(x) + 1, x.shape[1]))
    for t in range(len(x)):
        s[t + 1] = 0.9 * s[t] + 0.1 * x[t]
    return s


def _recurrent(w: Any, u: Any, x: Any) -> Any:
    h = np.zeros(w.shape[0])
    for row in x:
        h = np.tanh(h @ w + row @ u)
    return h


def _jacobi(a: Any, b: Any, d: Any, steps: int = 4) -> Any:
    x = np.zeros(len(b))
    for _ in range(steps):
        x = (b - a @ x) * d
    return x


def _normalised(x: Any) -> Any:
    return (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + 1e-5)


CASES = [
    Case(
        "rotate_axes",
        0,
        "A: M N K, Z: K M N",
        ["Z[k, m, n] = A[m, n, k]"],
        "Z",
        {"M": 5, "N": 7, "K": 131},
        lambda a: a.transpose(2, 0, 1),
    ),
    Case("diagonal", 0, "A: N N, Z: N", ["Z[n] = A[n, n]"], "Z", {"N": 11}, np.diag),
    Case(
        "downsample",
        6,
        "A: H W, Z: M N",
        ["Z[m, n] = A[2*m, 3*n + 1]"],
        "Z",
        {"M": 131, "N": 17},
        lambda a: a[::2, 1::3],
        derived={"H": "2*M", "W": "3*N"},
    ),
    Case(
        "bias_relu",
        1,
        "A: M N, B: N, S: M N, Z: M N",
        ["S[m, n] = A[m, n] . B[n] ;; M add", "Z[m, n] = S[m, n] ;; M unary(relu)"],
        "Z",
        {"M": 131, "N": 37},
        lambda a, b: np.maximum(a + b, 0),
    ),
    Case(
        "clamp",
        1,
        "A: M N, L: M N, Z: M N",
        ["L[m, n] = A[m, n] . low ;; M max", "Z[m, n] = L[m, n] . high ;; M min"],
        "Z",
        {"M": 131, "N": 37},
        lambda a: np.clip(a, -0.5, 0.5),
        {"low": -0.5, "high": 0.5},
    ),
    Case(
        "least_of_columns",
        2,
        "A: M N, Z: N",
        ["Z[n] = A[m, n] ;; V min"],
        "Z",
        {"M": 131, "N": 37},
        lambda a: a.min(0),
    ),
    Case(
        "product_of_rows",
        2,
        "A: M N, Z: M",
        ["Z[m] = A[m, n] ;; V mul"],
        "Z",
        {"M": 131, "N": 7},
        lambda a: a.prod(1),
    ),
    Case(
        "log_sum_exp",
        2,
        "A: M N, G: M, E: M N, S: M, Z: M",
        [
            "G[m] = A[m, n] ;; V max",
            "E[m, n] = A[m, n] . G[m] ;; M binary(subtract_exp)",
            "S[m] = E[m, n] ;; V add",
            "Z[m] = S[m] . G[m] ;; M binary(logexp)",
        ],
        "Z",
        {"M": 131, "N": 37},
        lambda a: np.log(np.exp(a).sum(1)),
    ),
    Case(
        "batched_outer",
        3,
        "A: B I, C: B J, Z: B I J",
        ["Z[b, i, j] = A[b, i] . C[b, j] ;; M mul"],
        "Z",
        {"B": 3, "I": 131, "J": 37},
        lambda a, c: a[:, :, None] * c[:, None],
    ),
    Case(
        "bilinear",
        3,
        "X: B I, W: I J, Y: B J, Z: B",
        ["Z[b] = X[b, i] . W[i, j] . Y[b, j] ;; M mul V add"],
        "Z",
        {"B": 13, "I": 131, "J": 37},
        lambda x, w, y: np.einsum("bi,ij,bj->b", x, w, y),
    ),
    Case(
        "two_sums",
        3,
        "A: M J K, B: J K N, Z: M N",
        ["Z[m, n] = A[m, j, k] . B[j, k, n] ;; M mul V add"],
        "Z",
        {"M": 131, "J": 5, "K": 37, "N": 29},
        lambda a, b: np.einsum("mjk,jkn->mn", a, b),
    ),
    Case(
        "perceptron",
        4,
        "X: M K, W: K F, B: F, V: F N, S: M F, T: M F, H: M F, Z: M N",
        [
            "S[m, f] = X[m, k] . W[k, f] ;; M mul V add",
            "T[m, f] = S[m, f] . B[f] ;; M add",
            "H[m, f] = T[m, f] ;; M unary(gelu)",
            "Z[m, n] = H[m, f] . V[f, n] ;; M mul V add",
        ],
        "Z",
        {"M": 131, "K": 37, "F": 139, "N": 19},
        lambda x, w, b, v: _gelu(x @ w + b) @ v,
    ),
    Case(
        "cosine",
        4,
        "A: M N, B: M N, D: M, P: M, Q: M, R: M, S: M, Z: M",
        [
            "D[m] = A[m, n] . B[m, n] ;; M mul V add",
            "P[m] = A[m, n] . A[m, n] ;; M mul V add",
            "Q[m] = B[m, n] . B[m, n] ;; M mul V add",
            "R[m] = P[m] . Q[m] ;; M mul",
            "S[m] = R[m] ;; M unary(rsqrt)",
            "Z[m] = D[m] . S[m] ;; M mul",
        ],
        "Z",
        {"M": 131, "N": 37},
        lambda a, b: (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1)),
    ),
    Case(
        "covariance",
        4,
        "X: M N, S: N, U: N, D: M N, Z: I J",
        [
            "S[n] = X[m, n] ;; V add",
            "U[n] = S[n] . share ;; M mul",
            "D[m, n] = X[m, n] . U[n] ;; M binary(subtract)",
            "Z[i, j] = D[m, i] . D[m, j] ;; M mul V add",
        ],
        "Z",
        {"M": 64, "N": 37},
        lambda x: (x - x.mean(0)).T @ (x - x.mean(0)),
        {"share": 1 / 64},
        {"I": "N", "J": "N"},
    ),
    Case(
        "instance_norm",
        4,
        "X: B C P, S: B C, U: B C, D: B C P, Q: B C, V: B C, W: B C, R: B C, Z: B C P",
        [
            "S[b, c] = X[b, c, p] ;; V add",
            "U[b, c] = S[b, c] . share ;; M mul",
            "D[b, c, p] = X[b, c, p] . U[b, c] ;; M binary(subtract)",
            "Q[b, c] = D[b, c, p] . D[b, c, p] ;; M mul V add",
            "V[b, c] = Q[b, c] . share ;; M mul",
            "W[b, c] = V[b, c] . eps ;; M add",
            "R[b, c] = W[b, c] ;; M unary(rsqrt)",
            "Z[b, c, p] = D[b, c, p] . R[b, c] ;; M mul",
        ],
        "Z",
        {"B": 2, "C": 131, "P": 32},
        _normalised,
        {"share": 1 / 32, "eps": 1e-5},
    ),
    Case(
        "causal_attention",
        5,
        "Q: E P, K: E M, V: M F, S: P M, C: P M, G: P, N: P M, D: P, R: P, A: P M, Z: P F",
        [
            "S[p, m] = Q[e, p] . K[e, m] ;; M mul V add",
            "C[p, m] = S[p, m] if m <= p else -1e30",
            "G[p] = C[p, m] ;; V max",
            "N[p, m] = C[p, m] . G[p] ;; M binary(subtract_exp)",
            "D[p] = N[p, m] ;; V add",
            "R[p] = D[p] ;; M unary(reciprocal)",
            "A[p, m] = N[p, m] . R[p] ;; M mul",
            "Z[p, f] = A[p, m] . V[m, f] ;; M mul V add",
        ],
        "Z",
        {"E": 37, "P": 131, "F": 19},
        _causal,
        derived={"M": "P"},
    ),
    Case(
        "mean_pool",
        6,
        "X: C W, S: C T, Z: C T",
        ["S[c, t] = X[c, 3*t + r] ;; V add", "Z[c, t] = S[c, t] . share ;; M mul"],
        "Z",
        {"C": 131, "T": 17, "R": 3},
        lambda x: x.reshape(len(x), -1, 3).mean(2),
        {"share": 1 / 3},
        {"W": "3*T"},
    ),
    Case(
        "moving_average",
        7,
        "X: T M, A: T M, B: T M, S: T1 M",
        [
            "S[0, m] = const(0)",
            (
                "t",
                [
                    "A[t, m] = S[t, m] . keep ;; M mul",
                    "B[t, m] = X[t, m] . add ;; M mul",
                    "S[t+1, m] = A[t, m] . B[t, m] ;; M add",
                ],
            ),
        ],
        "S",
        {"T": 5, "M": 131},
        _ema,
        {"keep": 0.9, "add": 0.1},
        {"T1": "T + 1"},
    ),
    Case(
        "recurrent_net",
        7,
        "W: K N, U: D N, X: T D, H: T1 K, A: T N, B: T N, C: T N, Z: K",
        [
            "H[0, k] = const(0)",
            (
                "t",
                [
                    "A[t, n] = H[t, k] . W[k, n] ;; M mul V add",
                    "B[t, n] = X[t, d] . U[d, n] ;; M mul V add",
                    "C[t, n] = A[t, n] . B[t, n] ;; M add",
                    "H[t+1, n] = C[t, n] ;; M unary(tanh)",
                ],
            ),
            "Z[k] = H[T, k]",
        ],
        "Z",
        {"K": 37, "D": 19, "T": 4},
        _recurrent,
        derived={"N": "K", "T1": "T + 1"},
    ),
    Case(
        "jacobi",
        7,
        "A: K J, B: K, D: K, X: I1 J, S: I K, T: I K, Z: J",
        [
            "X[0, j] = const(0)",
            (
                "i",
                [
                    "S[i, k] = A[k, j] . X[i, j] ;; M mul V add",
                    "T[i, k] = B[k] . S[i, k] ;; M binary(subtract)",
                    "X[i+1, k] = T[i, k] . D[k] ;; M mul",
                ],
            ),
            "Z[j] = X[I, j]",
        ],
        "Z",
        {"K": 131, "I": 4},
        lambda a, b, d: _jacobi(a, b, d),
        derived={"J": "K", "I1": "I + 1"},
    ),
    Case(
        "momentum",
        8,
        "P: M N, G: M N, V: M N, A: M N, NV: M N, S: M N, NP: M N",
        [
            "A[m, n] = V[m, n] . mu ;; M mul",
            "NV[m, n] = A[m, n] . G[m, n] ;; M add",
            "S[m, n] = NV[m, n] . rate ;; M mul",
            "NP[m, n] = P[m, n] . S[m, n] ;; M binary(subtract)",
        ],
        "NP NV",
        {"M": 131, "N": 37},
        lambda p, g, v: (p - 0.01 * (0.9 * v + g), 0.9 * v + g),
        {"mu": 0.9, "rate": 0.01},
    ),
    Case(
        "looked_up_scores",
        8,
        "W: V D, IX: T, H: T D, E: T D, Z: T",
        ["E[t, d] = W[IX[t], d]", "Z[t] = E[t, d] . H[t, d] ;; M mul V add"],
        "Z",
        {"V": 29, "D": 37, "T": 131},
        lambda w, ix, h: (w[ix] * h).sum(1),
    ),
]
