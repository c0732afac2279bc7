"""Cascades as papers and libraries write them, at the sizes they have there: what no rule was written for."""

from __future__ import annotations

from hashlib import sha256

from tests.einsum.cascades import Case
from tests.einsum.model_papers import ATTENTIONS, LOSSES, NORMS, RECURRENCES, softmax_steps
from tests.einsum.realistic import realistic

Z = "Z"


def _np(name: str, subscripts: str, sizes: str) -> Case:
    """One Einsum as `np.einsum` writes it."""
    operands, _, output = subscripts.partition("->")
    parts = operands.split(",")
    names = [chr(ord("A") + n) for n in range(len(parts))]
    tensors = ", ".join(
        f"{n}: {' '.join(p.upper())}" for n, p in zip([*names, Z], [*parts, output], strict=True)
    )
    right = " . ".join(f"{n}[{', '.join(p)}]" for n, p in zip(names, parts, strict=True))
    ops = [*(["M mul"] if len(parts) > 1 else []), *(["V add"] if set("".join(parts)) - set(output) else [])]
    return realistic(
        name, tensors, [f"Z[{', '.join(output)}] = {right}{' ;; ' if ops else ''}{' '.join(ops)}"], sizes
    )


KERNELS = [
    realistic(
        "pairwise_distance",
        "X: I K, Y: J K, D: I J K, Z: I J",
        [
            "D[i, j, k] = X[i, k] . Y[j, k] ;; M binary(subtract)",
            "Z[i, j] = D[i, j, k] . D[i, j, k] ;; M mul V add",
        ],
        "I=256 J=256 K=64",
    ),
    realistic(
        "gaussian_kernel",
        "X: I K, Y: J K, A: I, B: J, P: I J, Q: I J, R: I J, S: I J, Z: I J",
        [
            "A[i] = X[i, k] . X[i, k] ;; M mul V add",
            "B[j] = Y[j, k] . Y[j, k] ;; M mul V add",
            "P[i, j] = X[i, k] . Y[j, k] ;; M mul V add",
            "Q[i, j] = P[i, j] . two ;; M mul",
            "R[i, j] = Q[i, j] . A[i] ;; M binary(subtract)",
            "S[i, j] = R[i, j] . B[j] ;; M binary(subtract)",
            "Z[i, j] = S[i, j] ;; M unary(exp)",
        ],
        "I=2048 J=2048 K=128",
        two=2.0,
    ),
    realistic(
        "graph_convolution",
        "A: I J, X: J F, W: F O, H: J O, S: I O, Z: I O",
        [
            "H[j, o] = X[j, f] . W[f, o] ;; M mul V add",
            "S[i, o] = A[i, j] . H[j, o] ;; M mul V add",
            "Z[i, o] = S[i, o] ;; M unary(relu)",
        ],
        "I=2708 J=2708 F=1433 O=16",
    ),
    realistic(
        "graph_attention",
        "L: I, R: J, M: I J, H: J F, T: I J, E: I J, S: I J, G: I, N: I J, D: I, A: I F, Z: I F",
        [
            "T[i, j] = L[i] . R[j] ;; M add",
            "E[i, j] = T[i, j] ;; M unary(relu)",
            "S[i, j] = E[i, j] . M[i, j] ;; M add",
            *softmax_steps("i", "j"),
            "A[i, f] = N[i, j] . H[j, f] ;; M mul V add",
            "Z[i, f] = A[i, f] . D[i] ;; M binary(divide)",
        ],
        "I=2048 J=2048 F=64",
    ),
    realistic(
        "page_rank",
        "A: K J, X: I1 J, S: I K, Z: J",
        [
            "X[0, j] = const(1)",
            ("i", ["S[i, k] = A[k, j] . X[i, j] ;; M mul V add", "X[i+1, k] = S[i, k] . damp ;; M mul"]),
            "Z[j] = X[I, j]",
        ],
        "K=2048 J=2048 I=16 I1=17",
        damp=0.0005,
    ),
    realistic(
        "heat_3d",
        "X: A B C, S: P Q R, T: P Q R, U: P Q R, V: P Q R, W: P Q R, Z: P Q R",
        [
            "S[p, q, r] = X[p, q+1, r+1] . X[p+2, q+1, r+1] ;; M add",
            "T[p, q, r] = X[p+1, q, r+1] . X[p+1, q+2, r+1] ;; M add",
            "U[p, q, r] = X[p+1, q+1, r] . X[p+1, q+1, r+2] ;; M add",
            "V[p, q, r] = S[p, q, r] . T[p, q, r] ;; M add",
            "W[p, q, r] = V[p, q, r] . U[p, q, r] ;; M add",
            "Z[p, q, r] = W[p, q, r] . sixth ;; M mul",
        ],
        "A=130 B=130 C=130 P=128 Q=128 R=128",
        sixth=1 / 6,
    ),
    realistic(
        "tucker",
        "X: I J K, A: I R, B: J S, C: K T, Z: R S T",
        ["Z[r, s, t] = X[i, j, k] . A[i, r] . B[j, s] . C[k, t] ;; M mul V add"],
        "I=256 J=256 K=256 R=32 S=32 T=32",
    ),
    realistic(
        "tensor_train",
        "A: I R, B: R J S, C: S K, Z: I J K",
        ["Z[i, j, k] = A[i, r] . B[r, j, s] . C[s, k] ;; M mul V add"],
        "I=128 J=128 K=128 R=32 S=32",
    ),
    realistic(
        "fourier_transform",
        "X: B N, Y: B N, C: N K, S: N K, A: B K, D: B K, E: B K, F: B K, Z: B K, W: B K",
        [
            "A[b, k] = X[b, n] . C[n, k] ;; M mul V add",
            "D[b, k] = Y[b, n] . S[n, k] ;; M mul V add",
            "E[b, k] = X[b, n] . S[n, k] ;; M mul V add",
            "F[b, k] = Y[b, n] . C[n, k] ;; M mul V add",
            "Z[b, k] = A[b, k] . D[b, k] ;; M binary(subtract)",
            "W[b, k] = E[b, k] . F[b, k] ;; M add",
        ],
        "B=1024 N=512 K=512",
        "Z W",
    ),
    realistic(
        "biaffine",
        "X: B I E, U: O E F, Y: B J F, Z: B O I J",
        ["Z[b, o, i, j] = X[b, i, e] . U[o, e, f] . Y[b, j, f] ;; M mul V add"],
        "B=4 O=8 I=64 J=64 E=128 F=128",
    ),
]

CONVOLUTIONS = [
    realistic(
        "conv1d_strided",
        "X: B C W, F: K C R, Z: B K T",
        ["Z[b, k, t] = X[b, c, 2*t + r] . F[k, c, r] ;; M mul V add"],
        "B=4 C=128 W=2049 K=128 R=3 T=1024",
    ),
    realistic(
        "conv1d_causal_dilated",
        "X: C W, F: K C R, Z: K T",
        ["Z[k, t] = X[c, t + 4*r] . F[k, c, r] ;; M mul V add"],
        "C=256 W=4104 K=256 R=3 T=4096",
    ),
    realistic(
        "conv2d_depthwise",
        "X: B C H W, F: C R S, Z: B C P Q",
        ["Z[b, c, p, q] = X[b, c, p + r, q + s] . F[c, r, s] ;; M mul V add"],
        "B=2 C=256 H=58 W=58 P=56 Q=56 R=3 S=3",
    ),
    realistic(
        "conv2d_channels_last",
        "X: B H W C, F: R S C K, Z: B P Q K",
        ["Z[b, p, q, k] = X[b, p + r, q + s, c] . F[r, s, c, k] ;; M mul V add"],
        "B=2 H=34 W=34 C=128 K=128 P=32 Q=32 R=3 S=3",
    ),
    realistic(
        "patch_embedding",
        "X: C H W, F: K C R S, Z: P Q K",
        ["Z[p, q, k] = X[c, 16*p + r, 16*q + s] . F[k, c, r, s] ;; M mul V add"],
        "C=3 H=224 W=224 K=768 R=16 S=16 P=14 Q=14",
    ),
    realistic(
        "short_convolution_tokens_first",
        "X: T C, F: C R, Z: T C",
        ["Z[t, c] = X[t + r - 3, c] . F[c, r] ;; M mul V add"],
        "T=4096 C=1024 R=4",
    ),
    realistic(
        "mean_of_windows",
        "X: B C H W, S: B C P Q, Z: B C P Q",
        [
            "S[b, c, p, q] = X[b, c, 2*p + r, 2*q + s] ;; V add",
            "Z[b, c, p, q] = S[b, c, p, q] . quarter ;; M mul",
        ],
        "B=4 C=128 H=56 W=56 P=28 Q=28 R=2 S=2",
        quarter=0.25,
    ),
    realistic(
        "max_of_windows_channels_last",
        "X: H W C, Z: P Q C",
        ["Z[p, q, c] = X[2*p + r, 2*q + s, c] ;; V max"],
        "H=112 W=112 C=128 P=56 Q=56 R=2 S=2",
    ),
    realistic(
        "global_mean",
        "X: B C P, S: B C, Z: B C",
        ["S[b, c] = X[b, c, p] ;; V add", "Z[b, c] = S[b, c] . share ;; M mul"],
        "B=16 C=1024 P=196",
        share=1 / 196,
    ),
]

OPTIMISERS = [
    realistic(
        "lion",
        "P: M N, G: M N, V: M N, A: M N, B: M N, C: M N, S: M N, U: M N, D: M N, E: M N, NV: M N, NP: M N",
        [
            "A[m, n] = V[m, n] . b1 ;; M mul",
            "B[m, n] = G[m, n] . c1 ;; M mul",
            "C[m, n] = A[m, n] . B[m, n] ;; M add",
            "S[m, n] = C[m, n] ;; M unary(sign)",
            "U[m, n] = S[m, n] . rate ;; M mul",
            "NP[m, n] = P[m, n] . U[m, n] ;; M binary(subtract)",
            "D[m, n] = V[m, n] . b2 ;; M mul",
            "E[m, n] = G[m, n] . c2 ;; M mul",
            "NV[m, n] = D[m, n] . E[m, n] ;; M add",
        ],
        "M=4096 N=4096",
        "NP NV",
        b1=0.9,
        c1=0.1,
        b2=0.99,
        c2=0.01,
        rate=1e-4,
    ),
    realistic(
        "shampoo",
        "G: M N, L: M K, R: J N, A: M N, Z: M N, P: M I, Q: N O",
        [
            "P[m, i] = G[m, n] . G[i, n] ;; M mul V add",
            "Q[n, o] = G[m, n] . G[m, o] ;; M mul V add",
            "A[m, n] = L[m, k] . G[k, n] ;; M mul V add",
            "Z[m, n] = A[m, j] . R[j, n] ;; M mul V add",
        ],
        "M=1024 N=1024 K=1024 J=1024 I=1024 O=1024",
        "Z P Q",
    ),
    realistic(
        "newton_schulz",
        "X: M N, A: M K, B: M K, C: M K, D: M N, E: M N, Z: M N",
        [
            "A[m, k] = X[m, n] . X[k, n] ;; M mul V add",
            "B[m, k] = A[m, i] . A[i, k] ;; M mul V add",
            "C[m, k] = A[m, k] . B[m, k] ;; M add",
            "D[m, n] = C[m, k] . X[k, n] ;; M mul V add",
            "Z[m, n] = D[m, n] . X[m, n] ;; M add",
        ],
        "M=512 N=2048 K=512 I=512",
    ),
    realistic(
        "weight_decay_row",
        "P: N, G: N, A: N, B: N, Z: N",
        [
            "A[n] = G[n] . rate ;; M mul",
            "B[n] = P[n] . keep ;; M mul",
            "Z[n] = B[n] . A[n] ;; M binary(subtract)",
        ],
        "N=8388608",
        rate=0.1,
        keep=0.99,
    ),
    realistic(
        "gated_layer_decoding",
        "X: M K, W: K F, U: K F, G: M F, H: M F, S: M F, P: M F, V: F N, Z: M N",
        [
            "G[m, f] = X[m, k] . W[k, f] ;; M mul V add",
            "H[m, f] = X[m, k] . U[k, f] ;; M mul V add",
            "S[m, f] = G[m, f] ;; M unary(silu)",
            "P[m, f] = S[m, f] . H[m, f] ;; M mul",
            "Z[m, n] = P[m, f] . V[f, n] ;; M mul V add",
        ],
        "M=1 K=2048 F=5504 N=2048",
    ),
    realistic(
        "rotary_halves",
        "X: T H E, C: T D, S: T D, A: T H D, B: T H D, P: T H D, Q: T H D, Z: T H E",
        [
            "A[t, h, d] = X[t, h, d] . C[t, d] ;; M mul",
            "B[t, h, d] = X[t, h, d + 64] . S[t, d] ;; M mul",
            "P[t, h, d] = X[t, h, d] . S[t, d] ;; M mul",
            "Q[t, h, d] = X[t, h, d + 64] . C[t, d] ;; M mul",
            "Z[t, h, d] = A[t, h, d] . B[t, h, d] ;; M binary(subtract)",
            "Z[t, h, d + 64] = P[t, h, d] . Q[t, h, d] ;; M add",
        ],
        "T=2048 H=8 E=128 D=64",
    ),
    realistic(
        "embeddings_with_positions",
        "W: V D, IX: T, P: T D, E: T D, Z: T D",
        ["E[t, d] = W[IX[t], d]", "Z[t, d] = E[t, d] . P[t, d] ;; M add"],
        "V=30522 D=768 T=2048",
    ),
    realistic(
        "embeddings_of_batches",
        "W: V D, IX: B T, Z: B T D",
        ["Z[b, t, d] = W[IX[b, t], d]"],
        "V=32000 D=1024 B=8 T=256",
    ),
    realistic(
        "bag_of_embeddings",
        "W: V D, IX: B K, E: B K D, Z: B D",
        ["E[b, k, d] = W[IX[b, k], d]", "Z[b, d] = E[b, k, d] ;; V add"],
        "V=100000 D=128 B=256 K=8",
    ),
    realistic(
        "expert_dispatch",
        "P: T E C, X: T D, W: E D F, A: E C D, H: E C F, Z: T F",
        [
            "A[e, c, d] = P[t, e, c] . X[t, d] ;; M mul V add",
            "H[e, c, f] = A[e, c, d] . W[e, d, f] ;; M mul V add",
            "Z[t, f] = P[t, e, c] . H[e, c, f] ;; M mul V add",
        ],
        "T=1024 E=8 C=128 D=512 F=512",
    ),
]

STRINGS = [
    _np("einsum_bmm", "bij,bjk->bik", "B=16 I=256 J=256 K=256"),
    _np("einsum_heads", "bqhd,bkhd->bhqk", "B=2 Q=512 K=512 H=8 D=64"),
    _np("einsum_values", "bhqk,bkhd->bqhd", "B=2 Q=512 K=512 H=8 D=64"),
    _np("einsum_rows_dot", "ij,ij->i", "I=4096 J=4096"),
    _np("einsum_many_dots", "bhd,bhd->bh", "B=2048 H=16 D=128"),
    _np("einsum_reversed_axes", "abc->cba", "A=128 B=64 C=256"),
    _np("einsum_heads_out", "bshd->bhsd", "B=4 S=1024 H=8 D=64"),
    _np("einsum_two_ranks_summed", "abcd,cd->ab", "A=64 B=64 C=64 D=64"),
    _np("einsum_swapped_result", "ijk,jil->kl", "I=96 J=160 K=200 L=120"),
    _np("einsum_batched_outer", "bi,bj->bij", "B=64 I=300 J=500"),
    _np("einsum_project_heads", "bsd,dhe->bshe", "B=4 S=512 D=512 H=8 E=64"),
    _np("einsum_merge_heads", "bshe,hed->bsd", "B=4 S=512 D=512 H=8 E=64"),
    _np("einsum_channel_scale", "bchw,c->bchw", "B=8 C=64 H=56 W=56"),
    _np("einsum_middle_sum", "abc->ac", "A=256 B=128 C=256"),
    _np("einsum_small_batches", "nij,njk->nik", "N=1024 I=16 J=16 K=16"),
    _np("einsum_small_vectors", "nij,nj->ni", "N=8192 I=16 J=16"),
    _np("einsum_ragged_product", "ki,kj->ij", "K=1000 I=777 J=1333"),
    _np("einsum_trace_of_product", "ij,ji->", "I=2048 J=2048"),
    _np("einsum_quadratic", "bi,ij,bj->b", "B=1024 I=256 J=256"),
    _np("einsum_cp", "ir,jr,kr->ijk", "I=128 J=128 K=128 R=16"),
]

PAPERS = [*ATTENTIONS, *RECURRENCES, *NORMS, *LOSSES, *KERNELS, *CONVOLUTIONS, *OPTIMISERS, *STRINGS]


def is_kept_back(name: str) -> bool:
    """Whether a cascade is one of the third that rules are not written for: they are judged by it."""
    return sha256(name.encode()).digest()[0] % 3 == 0
