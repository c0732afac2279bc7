"""Cascades of papers on models: attention, recurrences, normalisations, losses; at the sizes they have."""

from __future__ import annotations

from tests.einsum.cascades import Steps
from tests.einsum.realistic import realistic


def softmax_steps(lanes: str, keys: str, scores: str = "S") -> Steps:
    return [
        f"G[{lanes}] = {scores}[{lanes}, {keys}] ;; V max",
        f"N[{lanes}, {keys}] = {scores}[{lanes}, {keys}] . G[{lanes}] ;; M binary(subtract_exp)",
        f"D[{lanes}] = N[{lanes}, {keys}] ;; V add",
    ]


ATTENTIONS = [
    realistic(
        "grouped_query_causal",
        "Q: H G P E, K: H M E, V: H M F, C: H G P M, S: H G P M, G: H G P, "
        "N: H G P M, D: H G P, A: H G P F, Z: H G P F",
        [
            "C[h, g, p, m] = Q[h, g, p, e] . K[h, m, e] ;; M mul V add",
            "S[h, g, p, m] = C[h, g, p, m] if m <= p else -1e30",
            *softmax_steps("h, g, p", "m"),
            "A[h, g, p, f] = N[h, g, p, m] . V[h, m, f] ;; M mul V add",
            "Z[h, g, p, f] = A[h, g, p, f] . D[h, g, p] ;; M binary(divide)",
        ],
        "H=2 G=2 P=1024 M=1024 E=128 F=128",
    ),
    realistic(
        "multi_query_tokens_first",
        "Q: P H E, K: M E, V: M F, S: H P M, G: H P, N: H P M, D: H P, A: P H F, Z: P H F",
        [
            "S[h, p, m] = Q[p, h, e] . K[m, e] ;; M mul V add",
            *softmax_steps("h, p", "m"),
            "A[p, h, f] = N[h, p, m] . V[m, f] ;; M mul V add",
            "Z[p, h, f] = A[p, h, f] . D[h, p] ;; M binary(divide)",
        ],
        "H=4 P=1024 M=1024 E=64 F=64",
    ),
    realistic(
        "bert_attention",
        "Q: B S H E, K: B T H E, V: B T H E, L: B H S T, G: B H S, N: B H S T, D: B H S, "
        "A: B S H E, Z: B S H E",
        [
            "L[b, h, s, t] = Q[b, s, h, e] . K[b, t, h, e] ;; M mul V add",
            *softmax_steps("b, h, s", "t", "L"),
            "A[b, s, h, e] = N[b, h, s, t] . V[b, t, h, e] ;; M mul V add",
            "Z[b, s, h, e] = A[b, s, h, e] . D[b, h, s] ;; M binary(divide)",
        ],
        "B=2 S=512 T=512 H=4 E=64",
    ),
    realistic(
        "sliding_window",
        "Q: P E, K: M E, V: M F, B: P M, C: P M, S: P M, G: P, N: P M, D: P, A: P F, Z: P F",
        [
            "B[p, m] = Q[p, e] . K[m, e] ;; M mul V add",
            "C[p, m] = B[p, m] if m <= p else -1e30",
            "S[p, m] = C[p, m] if m + 256 > p else -1e30",
            *softmax_steps("p", "m"),
            "A[p, f] = N[p, m] . V[m, f] ;; M mul V add",
            "Z[p, f] = A[p, f] . D[p] ;; M binary(divide)",
        ],
        "P=2048 M=2048 E=128 F=128",
    ),
    realistic(
        "biased_attention",
        "Q: H P E, K: H M E, V: H M F, B: H P M, C: H P M, S: H P M, G: H P, N: H P M, "
        "D: H P, A: H P F, Z: H P F",
        [
            "C[h, p, m] = Q[h, p, e] . K[h, m, e] ;; M mul V add",
            "S[h, p, m] = C[h, p, m] . B[h, p, m] ;; M add",
            *softmax_steps("h, p", "m"),
            "A[h, p, f] = N[h, p, m] . V[h, m, f] ;; M mul V add",
            "Z[h, p, f] = A[h, p, f] . D[h, p] ;; M binary(divide)",
        ],
        "H=4 P=512 M=512 E=32 F=32",
    ),
    realistic(
        "softcapped_attention",
        "Q: P E, K: M E, V: M F, B: P M, T: P M, S: P M, G: P, N: P M, D: P, A: P F, Z: P F",
        [
            "B[p, m] = Q[p, e] . K[m, e] ;; M mul V add",
            "T[p, m] = B[p, m] ;; M unary(tanh)",
            "S[p, m] = T[p, m] . cap ;; M mul",
            *softmax_steps("p", "m"),
            "A[p, f] = N[p, m] . V[m, f] ;; M mul V add",
            "Z[p, f] = A[p, f] . D[p] ;; M binary(divide)",
        ],
        "P=2048 M=2048 E=128 F=128",
        cap=30.0,
    ),
    realistic(
        "latent_decoding",
        "Q: H C, R: H E, K: S C, T: S E, A: H S, B: H S, L: H S, G: H, N: H S, D: H, O: H C, Z: H C",
        [
            "A[h, s] = Q[h, c] . K[s, c] ;; M mul V add",
            "B[h, s] = R[h, e] . T[s, e] ;; M mul V add",
            "L[h, s] = A[h, s] . B[h, s] ;; M add",
            *softmax_steps("h", "s", "L"),
            "O[h, c] = N[h, s] . K[s, c] ;; M mul V add",
            "Z[h, c] = O[h, c] . D[h] ;; M binary(divide)",
        ],
        "H=128 C=512 E=64 S=4096",
    ),
    realistic(
        "grouped_decoding",
        "Q: B H G E, K: B H S E, V: B H S E, L: B H G S, M: B H G, P: B H G S, D: B H G, "
        "A: B H G E, Z: B H G E",
        [
            "L[b, h, g, s] = Q[b, h, g, e] . K[b, h, s, e] ;; M mul V add",
            "M[b, h, g] = L[b, h, g, s] ;; V max",
            "P[b, h, g, s] = L[b, h, g, s] . M[b, h, g] ;; M binary(subtract_exp)",
            "D[b, h, g] = P[b, h, g, s] ;; V add",
            "A[b, h, g, e] = P[b, h, g, s] . V[b, h, s, e] ;; M mul V add",
            "Z[b, h, g, e] = A[b, h, g, e] . D[b, h, g] ;; M binary(divide)",
        ],
        "B=2 H=8 G=4 S=2048 E=128",
    ),
    realistic(
        "linear_attention",
        "Q: H P E, K: H M E, V: H M F, S: H E F, Z: H P F",
        [
            "S[h, e, f] = K[h, m, e] . V[h, m, f] ;; M mul V add",
            "Z[h, p, f] = Q[h, p, e] . S[h, e, f] ;; M mul V add",
        ],
        "H=8 P=1024 M=1024 E=64 F=64",
    ),
    realistic(
        "attention_gradient",
        "P: I J, V: J F, O: I F, G: I F, D: I, H: I J, T: I J, Z: I J",
        [
            "D[i] = O[i, f] . G[i, f] ;; M mul V add",
            "H[i, j] = G[i, f] . V[j, f] ;; M mul V add",
            "T[i, j] = H[i, j] . D[i] ;; M binary(subtract)",
            "Z[i, j] = T[i, j] . P[i, j] ;; M mul",
        ],
        "I=2048 J=2048 F=128",
    ),
    realistic(
        "additive_attention",
        "A: I K, B: J K, W: K, T: I J K, U: I J K, Z: I J",
        [
            "T[i, j, k] = A[i, k] . B[j, k] ;; M add",
            "U[i, j, k] = T[i, j, k] ;; M unary(tanh)",
            "Z[i, j] = U[i, j, k] . W[k] ;; M mul V add",
        ],
        "I=256 J=256 K=128",
    ),
]

RECURRENCES = [
    realistic(
        "selective_state_space",
        "A: D N, B: T N, C: T N, L: T D, X: T D, M: T D N, E: T D N, U: T D, "
        "V: T D N, P: T D N, H: T1 D N, Y: T D",
        [
            "M[t, d, n] = L[t, d] . A[d, n] ;; M mul",
            "E[t, d, n] = M[t, d, n] ;; M unary(exp)",
            "U[t, d] = L[t, d] . X[t, d] ;; M mul",
            "V[t, d, n] = U[t, d] . B[t, n] ;; M mul",
            "H[0, d, n] = const(0)",
            (
                "t",
                [
                    "P[t, d, n] = E[t, d, n] . H[t, d, n] ;; M mul",
                    "H[t+1, d, n] = P[t, d, n] . V[t, d, n] ;; M add",
                ],
            ),
            "Y[t, d] = C[t, n] . H[t+1, d, n] ;; M mul V add",
        ],
        "T=1024 T1=1025 D=512 N=16",
        "Y",
    ),
    realistic(
        "sum_of_one_row",
        "X: T, S: T1",
        ["S[0] = const(0)", ("t", ["S[t+1] = S[t] . X[t] ;; M add"])],
        "T=65536 T1=65537",
        "S",
    ),
    realistic(
        "sum_of_few_rows",
        "X: M T, S: M T1",
        ["S[m, 0] = const(0)", ("t", ["S[m, t+1] = S[m, t] . X[m, t] ;; M add"])],
        "M=8 T=16384 T1=16385",
        "S",
    ),
    realistic(
        "sums_of_short_rows",
        "X: B T, S: B T1",
        ["S[b, 0] = const(0)", ("t", ["S[b, t+1] = S[b, t] . X[b, t] ;; M add"])],
        "B=65536 T=32 T1=33",
        "S",
    ),
    realistic(
        "moving_averages_of_batches",
        "X: B T C, K: B T C, A: B T C, S: B T1 C",
        [
            "S[b, 0, c] = const(0)",
            (
                "t",
                [
                    "K[b, t, c] = S[b, t, c] . keep ;; M mul",
                    "A[b, t, c] = X[b, t, c] . add ;; M mul",
                    "S[b, t+1, c] = K[b, t, c] . A[b, t, c] ;; M add",
                ],
            ),
        ],
        "B=8 T=512 T1=513 C=256",
        "S",
        keep=0.9,
        add=0.1,
    ),
    realistic(
        "largest_so_far",
        "X: M T, S: M T1",
        ["S[m, 0] = const(-1e30)", ("t", ["S[m, t+1] = S[m, t] . X[m, t] ;; M max"])],
        "M=1024 T=4096 T1=4097",
        "S",
    ),
    realistic(
        "minimal_gated_unit",
        "F: T D, C: T D, K: T D, I: T D, A: T D, H: T1 D",
        [
            "H[0, d] = const(0)",
            (
                "t",
                [
                    "K[t, d] = F[t, d] . H[t, d] ;; M mul",
                    "I[t, d] = F[t, d] . one ;; M binary(subtract)",
                    "A[t, d] = I[t, d] . C[t, d] ;; M mul",
                    "H[t+1, d] = K[t, d] . A[t, d] ;; M binary(subtract)",
                ],
            ),
        ],
        "T=2048 T1=2049 D=1024",
        "H",
        one=1.0,
    ),
    realistic(
        "retention",
        "K: T E, V: T F, Q: T E, O: T E F, G: T E F, S: T1 E F, Y: T F",
        [
            "S[0, e, f] = const(0)",
            (
                "t",
                [
                    "O[t, e, f] = K[t, e] . V[t, f] ;; M mul",
                    "G[t, e, f] = S[t, e, f] . keep ;; M mul",
                    "S[t+1, e, f] = G[t, e, f] . O[t, e, f] ;; M add",
                    "Y[t, f] = Q[t, e] . S[t+1, e, f] ;; M mul V add",
                ],
            ),
        ],
        "T=512 T1=513 E=64 F=64",
        "Y",
        keep=0.97,
    ),
    realistic(
        "token_shift",
        "X: T D, U: D, A: T D, B: T D, Z: T D",
        [
            "A[t, d] = X[t, d] . X[t-1, d] ;; M binary(subtract)",
            "B[t, d] = A[t, d] . U[d] ;; M mul",
            "Z[t, d] = X[t, d] . B[t, d] ;; M binary(subtract)",
        ],
        "T=4096 D=1024",
    ),
]

NORMS = [
    realistic(
        "group_norm",
        "X: B G C P, S: B G, U: B G, A: B G C P, Q: B G, V: B G, R: B G, Y: B G C P, W: G C, Z: B G C P",
        [
            "S[b, g] = X[b, g, c, p] ;; V add",
            "U[b, g] = S[b, g] . share ;; M mul",
            "A[b, g, c, p] = X[b, g, c, p] . U[b, g] ;; M binary(subtract)",
            "Q[b, g] = A[b, g, c, p] . A[b, g, c, p] ;; M mul V add",
            "V[b, g] = Q[b, g] . share ;; M mul",
            "R[b, g] = V[b, g] ;; M unary(rsqrt)",
            "Y[b, g, c, p] = A[b, g, c, p] . R[b, g] ;; M mul",
            "Z[b, g, c, p] = Y[b, g, c, p] . W[g, c] ;; M mul",
        ],
        "B=8 G=32 C=8 P=1024",
        share=1 / 8192,
    ),
    realistic(
        "batch_norm",
        "X: B C P, S: C, U: C, Q: C, V: C, W: C, E: C, R: C, A: B C P, Z: B C P",
        [
            "S[c] = X[b, c, p] ;; V add",
            "U[c] = S[c] . share ;; M mul",
            "Q[c] = X[b, c, p] . X[b, c, p] ;; M mul V add",
            "V[c] = Q[c] . share ;; M mul",
            "W[c] = U[c] . U[c] ;; M mul",
            "E[c] = V[c] . W[c] ;; M binary(subtract)",
            "R[c] = E[c] ;; M unary(rsqrt)",
            "A[b, c, p] = X[b, c, p] . U[c] ;; M binary(subtract)",
            "Z[b, c, p] = A[b, c, p] . R[c] ;; M mul",
        ],
        "B=16 C=256 P=784",
        share=1 / 12544,
    ),
    realistic(
        "layer_norm_channels_first",
        "X: B C P, S: B P, U: B P, A: B C P, Q: B P, V: B P, R: B P, Y: B C P, W: C, Z: B C P",
        [
            "S[b, p] = X[b, c, p] ;; V add",
            "U[b, p] = S[b, p] . share ;; M mul",
            "A[b, c, p] = X[b, c, p] . U[b, p] ;; M binary(subtract)",
            "Q[b, p] = A[b, c, p] . A[b, c, p] ;; M mul V add",
            "V[b, p] = Q[b, p] . share ;; M mul",
            "R[b, p] = V[b, p] ;; M unary(rsqrt)",
            "Y[b, c, p] = A[b, c, p] . R[b, p] ;; M mul",
            "Z[b, c, p] = Y[b, c, p] . W[c] ;; M mul",
        ],
        "B=8 C=192 P=784",
        share=1 / 192,
    ),
    realistic(
        "heads_normed",
        "X: T H E, G: E, S: T H, U: T H, R: T H, Y: T H E, Z: T H E",
        [
            "S[t, h] = X[t, h, e] . X[t, h, e] ;; M mul V add",
            "U[t, h] = S[t, h] . share ;; M mul",
            "R[t, h] = U[t, h] ;; M unary(rsqrt)",
            "Y[t, h, e] = X[t, h, e] . R[t, h] ;; M mul",
            "Z[t, h, e] = Y[t, h, e] . G[e] ;; M mul",
        ],
        "T=2048 H=16 E=128",
        share=1 / 128,
    ),
    realistic(
        "squeeze_and_excite",
        "X: B C P, S: B C, U: B C, W: C R, H: B R, K: B R, V: R C, E: B C, F: B C, Z: B C P",
        [
            "S[b, c] = X[b, c, p] ;; V add",
            "U[b, c] = S[b, c] . share ;; M mul",
            "H[b, r] = U[b, c] . W[c, r] ;; M mul V add",
            "K[b, r] = H[b, r] ;; M unary(relu)",
            "E[b, c] = K[b, r] . V[r, c] ;; M mul V add",
            "F[b, c] = E[b, c] ;; M unary(sigmoid)",
            "Z[b, c, p] = X[b, c, p] . F[b, c] ;; M mul",
        ],
        "B=16 C=256 P=784 R=16",
        share=1 / 784,
    ),
    realistic(
        "attention_weights_of_heads",
        "S: B H P M, G: B H P, N: B H P M, D: B H P, Z: B H P M",
        [*softmax_steps("b, h, p", "m"), "Z[b, h, p, m] = N[b, h, p, m] . D[b, h, p] ;; M binary(divide)"],
        "B=2 H=8 P=512 M=512",
    ),
    realistic(
        "softmax_of_columns",
        "S: M P, G: P, N: M P, D: P, Z: M P",
        [
            "G[p] = S[m, p] ;; V max",
            "N[m, p] = S[m, p] . G[p] ;; M binary(subtract_exp)",
            "D[p] = N[m, p] ;; V add",
            "Z[m, p] = N[m, p] . D[p] ;; M binary(divide)",
        ],
        "M=1024 P=2048",
    ),
]

LOSSES = [
    realistic(
        "log_sum_exp_of_rows",
        "A: M N, G: M, E: M N, S: M, Z: M",
        [
            "G[m] = A[m, n] ;; V max",
            "E[m, n] = A[m, n] . G[m] ;; M binary(subtract_exp)",
            "S[m] = E[m, n] ;; V add",
            "Z[m] = S[m] . G[m] ;; M binary(logexp)",
        ],
        "M=2048 N=32000",
    ),
    realistic(
        "cross_entropy",
        "A: T V, Y: T, G: T, E: T V, S: T, U: T, L: T, W: T, Z:",
        [
            "G[t] = A[t, v] ;; V max",
            "E[t, v] = A[t, v] . G[t] ;; M binary(subtract_exp)",
            "S[t] = E[t, v] ;; V add",
            "U[t] = S[t] . G[t] ;; M binary(logexp)",
            "L[t] = A[t, Y[t]]",
            "W[t] = U[t] . L[t] ;; M binary(subtract)",
            "Z[] = W[t] ;; V add",
        ],
        "T=1024 V=32000",
    ),
    realistic(
        "mean_squared_error",
        "A: M N, B: M N, D: M N, Z:",
        ["D[m, n] = A[m, n] . B[m, n] ;; M binary(subtract)", "Z[] = D[m, n] . D[m, n] ;; M mul V add"],
        "M=4096 N=4096",
    ),
    realistic(
        "divergence",
        "P: M N, Q: M N, R: M N, L: M N, K: M N, Z: M",
        [
            "R[m, n] = P[m, n] . Q[m, n] ;; M binary(divide)",
            "L[m, n] = R[m, n] ;; M unary(log)",
            "Z[m] = P[m, n] . L[m, n] ;; M mul V add",
        ],
        "M=4096 N=4096",
    ),
    realistic(
        "contrastive",
        "A: I E, B: J E, S: I J, G: I, N: I J, D: I, U: I, Z: I",
        [
            "S[i, j] = A[i, e] . B[j, e] ;; M mul V add",
            "G[i] = S[i, j] ;; V max",
            "N[i, j] = S[i, j] . G[i] ;; M binary(subtract_exp)",
            "D[i] = N[i, j] ;; V add",
            "Z[i] = D[i] . G[i] ;; M binary(logexp)",
        ],
        "I=2048 J=2048 E=512",
    ),
]
