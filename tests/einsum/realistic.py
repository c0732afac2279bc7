"""Cascades of our own at the sizes that models have: what the baseline weighs besides small cases."""

from __future__ import annotations

from tests.einsum.cascades import Case, Steps


def _unknown(*_: object) -> None:
    """They are judged by their own probes, not by a formula."""


def realistic(
    name: str, tensors: str, steps: Steps, sizes: str, outputs: str = "Z", **scalars: float
) -> Case:
    extents = {rank: int(size) for rank, size in (part.split("=") for part in sizes.split())}
    return Case(name, 8, tensors, steps, outputs, extents, _unknown, scalars)


SOFTMAX: Steps = [
    "G[p] = S[p, m] ;; V max",
    "N[p, m] = S[p, m] . G[p] ;; M binary(subtract_exp)",
    "D[p] = N[p, m] ;; V add",
    "A[p, f] = N[p, m] . V[m, f] ;; M mul V add",
    "Z[p, f] = A[p, f] . D[p] ;; M binary(divide)",
]
ATTENTION = "Q: E P, K: E M, V: M F, S: P M, C: P M, G: P, N: P M, D: P, A: P F, Z: P F"

REALISTIC = [
    realistic("matrix_product", "A: M K, B: K N, Z: M N", ["Z[m, n] = A[m, k] . B[k, n] ;; M mul V add"],
          "M=2048 K=1024 N=2048"),
    realistic("tall_product", "A: K M, B: K N, Z: M N", ["Z[m, n] = A[k, m] . B[k, n] ;; M mul V add"],
          "M=8192 K=512 N=96"),
    realistic("ragged_product", "A: M K, B: K N, Z: M N", ["Z[m, n] = A[m, k] . B[k, n] ;; M mul V add"],
          "M=1000 K=700 N=1500"),
    realistic("matrix_times_vector", "A: M K, B: K, Z: M", ["Z[m] = A[m, k] . B[k] ;; M mul V add"],
          "M=4096 K=4096"),
    realistic("attention", ATTENTION.replace(" C: P M,", ""),
          ["S[p, m] = Q[e, p] . K[e, m] ;; M mul V add", *SOFTMAX], "E=128 P=1024 M=1024 F=128"),
    realistic("masked_attention", ATTENTION, ["C[p, m] = Q[e, p] . K[e, m] ;; M mul V add",
          "S[p, m] = C[p, m] if m <= p else -1e30", *SOFTMAX], "E=64 P=1024 M=1024 F=64"),
    realistic("decoding",
          "Q: B H E, K: B S H E, V: B S H E, L: B H S, M: B H, P: B H S, D: B H, A: B H E, Z: B H E",
          ["L[b, h, s] = Q[b, h, e] . K[b, s, h, e] ;; M mul V add", "M[b, h] = L[b, h, s] ;; V max",
           "P[b, h, s] = L[b, h, s] . M[b, h] ;; M binary(subtract_exp)", "D[b, h] = P[b, h, s] ;; V add",
           "A[b, h, e] = P[b, h, s] . V[b, s, h, e] ;; M mul V add",
           "Z[b, h, e] = A[b, h, e] . D[b, h] ;; M binary(divide)"], "B=4 H=8 S=1024 E=128"),
    realistic("gated_layer", "X: M K, W: K F, U: K F, G: M F, H: M F, S: M F, P: M F, V: F N, Z: M N",
          ["G[m, f] = X[m, k] . W[k, f] ;; M mul V add", "H[m, f] = X[m, k] . U[k, f] ;; M mul V add",
           "S[m, f] = G[m, f] ;; M unary(silu)", "P[m, f] = S[m, f] . H[m, f] ;; M mul",
           "Z[m, n] = P[m, f] . V[f, n] ;; M mul V add"], "M=512 K=768 F=2000 N=768"),
    realistic("row_norm", "X: M N, G: N, S: M, U: M, R: M, T: M N, Z: M N",
          ["S[m] = X[m, n] . X[m, n] ;; M mul V add", "U[m] = S[m] . share ;; M mul",
           "R[m] = U[m] ;; M unary(rsqrt)", "T[m, n] = X[m, n] . R[m] ;; M mul",
           "Z[m, n] = T[m, n] . G[n] ;; M mul"], "M=4096 N=2048", share=1 / 2048),
    realistic("softmax", "S: P M, G: P, N: P M, D: P, Z: P M",
          [*SOFTMAX[:3], "Z[p, m] = N[p, m] . D[p] ;; M binary(divide)"], "P=2048 M=4096"),
    realistic("rotary", "X: T D, C: T H, S: T H, A: T H, B: T H, P: T H, Q: T H, Z: T D",
          ["A[t, h] = X[t, 2*h] . C[t, h] ;; M mul", "B[t, h] = X[t, 2*h+1] . S[t, h] ;; M mul",
           "P[t, h] = X[t, 2*h] . S[t, h] ;; M mul", "Q[t, h] = X[t, 2*h+1] . C[t, h] ;; M mul",
           "Z[t, 2*h] = A[t, h] . B[t, h] ;; M binary(subtract)", "Z[t, 2*h+1] = P[t, h] . Q[t, h] ;; M add"],
          "T=4096 D=128 H=64"),
    realistic("running_sum", "X: T M, S: T1 M",
          ["S[0, m] = const(0)", ("t", ["S[t+1, m] = S[t, m] . X[t, m] ;; M add"])],
          "T=1024 T1=1025 M=512", "S"),
    realistic("state_space", "A: T D, X: T D, P: T D, H: T1 D",
          ["H[0, d] = const(0)", ("t", ["P[t, d] = A[t, d] . H[t, d] ;; M mul",
                                         "H[t+1, d] = P[t, d] . X[t, d] ;; M add"])],
          "T=256 T1=257 D=256", "H"),
    realistic("depthwise_convolution", "X: C W, F: C R, Z: C T",
          ["Z[c, t] = X[c, t + r] . F[c, r] ;; M mul V add"],
          "C=512 W=2051 R=4 T=2048"),
    realistic("convolution", "X: C H W, F: K C R S, Z: K P Q",
          ["Z[k, p, q] = X[c, p + r, q + s] . F[k, c, r, s] ;; M mul V add"],
          "C=64 K=128 H=34 W=34 P=32 Q=32 R=3 S=3"),
    realistic("largest_of_windows", "X: C H W, Z: C P Q", ["Z[c, p, q] = X[c, 2*p + r, 2*q + s] ;; V max"],
          "C=128 H=64 W=64 P=32 Q=32 R=2 S=2"),
    realistic("swapped_axes", "A: M N, Z: N M", ["Z[n, m] = A[m, n]"], "M=2048 N=2048"),
    realistic("look_up", "W: V D, IX: T, Z: T D", ["Z[t, d] = W[IX[t], d]"], "V=8192 D=1024 T=512"),
    realistic("optimiser", "P: M N, G: M N, V: M N, A: M N, B: M N, NV: M N, S: M N, NP: M N",
          ["A[m, n] = V[m, n] . mu ;; M mul", "B[m, n] = G[m, n] . rest ;; M mul",
           "NV[m, n] = A[m, n] . B[m, n] ;; M add", "S[m, n] = NV[m, n] . rate ;; M mul",
           "NP[m, n] = P[m, n] . S[m, n] ;; M binary(subtract)"], "M=2048 N=2048", "NP NV",
          mu=0.9, rest=0.1, rate=0.01),
    realistic("sums_of_columns", "A: M N, Z: N", ["Z[n] = A[m, n] ;; V add"], "M=8192 N=1024"),
]  # fmt: skip
