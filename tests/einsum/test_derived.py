"""What rewrites add to a cascade: every kind rests on a law, which is tried by evaluating both sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from nkilab.einsum.language.additions import Additions
from nkilab.einsum.language.ast import Cascade, Iterate, Kind, Tensor, declared
from nkilab.einsum.language.expressions import read_einsum
from nkilab.einsum.language.extents import sized
from nkilab.einsum.plan.edges import turned_once, with_edges
from nkilab.einsum.plan.forwards import with_forward_indices
from nkilab.einsum.plan.knobs import RULES
from nkilab.einsum.plan.normal import normal
from nkilab.einsum.plan.recurrence import without_turns
from nkilab.einsum.reference import evaluate
from nkilab.einsum.rewrite.bands import with_bands_of_ones
from nkilab.einsum.rewrite.batch_order import with_batches_first
from nkilab.einsum.rewrite.common import with_small_parts
from nkilab.einsum.rewrite.defer import deferred
from nkilab.einsum.rewrite.few_rows import with_full_lanes
from nkilab.einsum.rewrite.gathered import with_chosen_operands
from nkilab.einsum.rewrite.live import live
from nkilab.einsum.rewrite.mixtures import with_mixed_operands
from nkilab.einsum.rewrite.packed import with_packed_products
from nkilab.einsum.rewrite.pieces import with_pieces
from nkilab.einsum.rewrite.recurrences import with_scans
from nkilab.einsum.rewrite.repeated import with_repeated_operands
from nkilab.einsum.rewrite.scan_parts import with_scans_in_parts
from nkilab.einsum.rewrite.turns_in_parts import with_turns_in_parts
from nkilab.einsum.rewrite.views import with_matrices_between, with_views
from nkilab.einsum.rewrite.window_elements import with_elements_once
from nkilab.einsum.rewrite.window_rows import with_overlapping_rows, with_windows_as_rows
from nkilab.machine import MACHINES
from tests.einsum.cascades import Steps
from tests.einsum.turns import evaluated


def cascade_of(tensors: str, steps: Steps, outputs: str, sizes: Mapping[str, int]) -> Cascade:
    """A cascade whose sizes are given."""
    pairs = (entry.partition(":") for entry in tensors.split(","))
    declared_tensors = {n.strip(): Tensor(n.strip(), tuple(r.split())) for n, _, r in pairs}
    read = tuple(
        read_einsum(s) if isinstance(s, str) else Iterate(s[0], tuple(map(read_einsum, s[1]))) for s in steps
    )
    return Cascade(declared_tensors, read, tuple(outputs.split()), sizes=sizes)


def padded(cascade: Cascade) -> Cascade:
    return with_edges(cascade, cascade.types({}), MACHINES["trn2"], RULES)[0]


HISTORY = cascade_of(
    "X: T, Y: T1, S: T",
    ["Y[0] = const(0)", ("t", ["S[t] = Y[t] . X[t] ;; M add", "Y[t+1] = S[t] . Y[t] ;; M max"])],
    "Y", {"T": 4, "T1": 5},
)  # fmt: skip
SWAPPED = cascade_of(
    "X: T, A: T1, B: T1",
    ["A[0] = const(1)", "B[0] = const(2)",
     ("t", ["A[t+1] = B[t] . X[t] ;; M add", "B[t+1] = A[t] . X[t] ;; M mul"])],
    "A B", {"T": 4, "T1": 5},
)  # fmt: skip
SOLVED = cascade_of(
    "L: I J, B: I N, X: I N, D: I, S: I N",
    [("i", ["D[i] = L[i, i] ;; M unary(reciprocal)",
            "S[i, n] = L[i, j] . X[j, n] ;; M mul V add if j < i else 0",
            "X[i, n] = B[i, n] . S[i, n] ;; M binary(subtract)"])],
    "X", {"I": 64, "J": 64, "N": 32},
)  # fmt: skip
TRN2 = MACHINES["trn2"]
MATRIX = cascade_of(
    "W: K J, X: T1 J, S: T K", ["X[0, j] = const(1)", ("t", ["S[t, k] = W[k, j] . X[t, j] ;; M mul V add",
                                                           "X[t+1, k] = S[t, k] ;; M unary(tanh)"])],
    "X", {"T": 8, "T1": 9, "K": 2304, "J": 2304},
)  # fmt: skip
LAWS: dict[Kind, tuple[Callable[[Cascade], Cascade], Cascade]] = {
    Kind.PART: (lambda c: normal(c, 128), cascade_of("A: I J, B: J K, C: K L, Z: I L",
                                   ["Z[i, l] = A[i, j] . B[j, k] . C[k, l] ;; M mul V add"], "Z",
                                   {"I": 3, "J": 5, "K": 2, "L": 7})),
    Kind.WINDOW: (lambda c: with_windows_as_rows(c, 128), cascade_of("X: C H W, F: K C R S, Z: P Q K",
                  ["Z[p, q, k] = X[c, 2*p + r, 3*q + s] . F[k, c, r, s] ;; M mul V add"], "Z",
                  {"C": 3, "H": 8, "W": 12, "K": 5, "R": 2, "S": 3, "P": 4, "Q": 4})),
    Kind.BAND: (lambda c: with_bands_of_ones(c, 8), cascade_of("X: C P, Z: C P",
                ["Z[c, p] = X[c + r - 1, p] ;; M unary(square) V add"], "Z", {"C": 9, "P": 4, "R": 3})),
    Kind.ONCE: (with_elements_once, cascade_of("X: P, G: R, Y: Q R, Z: Q",
                ["Y[q, r] = X[q + r] ;; M unary(exp)", "Z[q] = Y[q, r] . G[r] ;; M mul V add"], "Z",
                {"P": 8, "Q": 6, "R": 3})),
    Kind.OVERLAP: (with_overlapping_rows, cascade_of("X: B L, F: K N, Z: B T K",
                   ["Z[b, t, k] = X[b, 2*t + 3*n] . F[k, n] ;; M mul V add"], "Z",
                   {"B": 2, "L": 19, "K": 5, "N": 4, "T": 5})),
    Kind.VIEW: (lambda c: with_matrices_between(with_views(c, 128), 128),
                cascade_of("X: C H W, F: C R, D: C P Q, Y: C P Q, U: C P Q, A: S I C, B: S J, O: I J C, "
                           "W: C K, V: I J K",
                           ["D[c, p, q] = X[c, p + r, q] . F[c, r] ;; M mul V add",
                            "Y[c, p, q] = D[c, p, q] ;; M unary(tanh)",
                            "U[c, p, q] = Y[c, p, q] . X[c, p + 1, q] ;; M add",
                            "O[i, j, c] = A[s, i, c] . B[s, j] ;; M mul V add",
                            "V[i, j, k] = O[i, j, c] . W[c, k] ;; M mul V add"], "U V",
                           {"C": 128, "H": 14, "W": 10, "R": 3, "P": 12, "Q": 10, "S": 3, "I": 4, "J": 5,
                            "K": 6})),
    Kind.REPEATED: (with_repeated_operands, cascade_of("X: B C S, W: C, Z: B C S",
                    ["Z[b, c, s] = X[b, c, s] . W[c] ;; M mul"], "Z", {"B": 4, "C": 3, "S": 32})),
    Kind.PARTS: (lambda c: with_full_lanes(c, 128),
                 cascade_of("X: N P G, S: N G, R: N G, Z: N P G",
                            ["S[n, g] = X[n, p, g] . X[n, p, g] ;; M mul V add",
                             "R[n, g] = S[n, g] ;; M unary(tanh)",
                             "Z[n, p, g] = X[n, p, g] . R[n, g] ;; M mul"],
                            "Z S", {"N": 3, "P": 80, "G": 4})),
    Kind.LARGEST: (lambda c: with_full_lanes(c, 128), sized(cascade_of(
        "X: N P, S: N K, I: N K, J: N",
        ["S[n, k] = X[n, p] ;; V topk", "I[n, k] = X[n, p] ;; V argtopk", "J[n] = X[n, p] ;; V argmax"],
        "S I J", {"N": 3, "P": 80, "K": 2}))),
    Kind.STATE: (lambda c: with_scans_in_parts(live(with_scans(c)[0])[0], 2),
                 cascade_of("X: T, Y: T1", ["Y[0] = const(2)", ("t", ["Y[t+1] = Y[t] . X[t] ;; M add"])], "Y",
                            {"T": 67, "T1": 68})),
    Kind.LINEAR: (lambda c: with_turns_in_parts(c, 2),
                  cascade_of("X: T N, Y: T1 N, B: T1 N", ["Y[0, n] = const(2)", "B[0, n] = const(1)",
                             ("t", ["Y[t+1, n] = B[t, n] . X[t, n] ;; M add",
                                    "B[t+1, n] = Y[t, n] . X[t, n] ;; M mul"])], "Y",
                             {"T": 67, "T1": 68, "N": 3})),
    Kind.NOW: (without_turns, HISTORY),
    Kind.NEXT: (without_turns, SWAPPED),
    Kind.SUM: (deferred, cascade_of("S: M P, R: P, A: M P, V: M F, Z: P F",
                                    ["A[m, p] = S[m, p] . R[p] ;; M mul",
                                     "Z[p, f] = A[m, p] . V[m, f] ;; M mul V add"], "Z",
                                    {"M": 5, "P": 3, "F": 4})),
    Kind.EXACT: (lambda c: with_mixed_operands(deferred(c, {"W": "int8", "X": "bfloat16"}), 128),
                 cascade_of("X: M B K, W: B K N, Z: B N, D: B K N, Y: M N, Q: H M E, K: H N E, T: H M N, "
                            "P: H G, R: G M N, V: G N F, A: F G, U: F M N, C: F M G",
                            ["D[b, k, n] = Z[b, n] . W[b, k, n] ;; M binary(subtract)",
                             "Y[m, n] = X[m, b, k] . D[b, k, n] ;; M mul V add",
                             "T[h, m, n] = Q[h, m, e] . K[h, n, e] ;; M mul V add",
                             "R[g, m, n] = P[h, g] . T[h, m, n] ;; M mul V add",
                             "U[f, m, n] = A[f, g] . R[g, m, n] ;; M mul V add",
                             "C[f, m, g] = U[f, m, n] . V[g, n, f] ;; M mul V add"], "Y C",
                            {"M": 20, "B": 3, "K": 17, "N": 30, "H": 3, "E": 2, "G": 4, "F": 2})),
    Kind.DIAGONAL: (lambda c: with_scans(c)[0], SOLVED),
    Kind.TRANSPOSED: (lambda c: turned_once(c, dict.fromkeys(c.tensors, "bfloat16"), TRN2), MATRIX),
    Kind.REVERSED: (lambda c: with_forward_indices(c)[0],
                    cascade_of("X: P, Y: P, Z: P",
                               ["Y[p] = X[p] ;; M unary(exp)", "Z[p] = Y[4 - p] . X[p] ;; M mul"], "Z",
                               {"P": 5})),
    Kind.FACTOR: (with_small_parts,
                  cascade_of("X: N C, R: C, G: C, Y: N C, Z: N C",
                             ["Y[n, c] = X[n, c] . R[c] ;; M mul", "Z[n, c] = Y[n, c] . G[c] ;; M mul"],
                             "Z", {"N": 32, "C": 3})),
    Kind.CHOSEN: (with_chosen_operands,
                   cascade_of("W: V D F, I: U, X: U T D, Y: U T F",
                              ["I[u] = const(1) . (2 - u) ;; M mul",
                               "Y[u, t, f] = X[u, t, d] . W[I[u], d, f] ;; M mul V add"], "Y",
                              {"V": 3, "D": 4, "F": 5, "U": 3, "T": 2})),
    Kind.PIECE: (with_pieces, cascade_of("X: M N, Y: M N, Z: M N",
                                         ["Y[m, n] = X[m, n] if n < 20 else 1",
                                          "Z[m, n] = X[m, n] . Y[m, n] ;; M mul"], "Z", {"M": 3, "N": 45})),
    Kind.PADDED: (padded, cascade_of("X: P, Y: P, Z: P R",
                                     ["Y[p] = X[p] ;; M unary(exp)", "Z[p, r] = Y[p + r - 1]"], "Z",
                                     {"P": 5, "R": 3})),
    Kind.PACKED: (lambda c: with_packed_products(c, 16),
                  cascade_of("C: U I, X: B P I Q J, Y: B P U Q V",
                             ["Y[b, p, u, q, v] = C[u, i] . X[b, p, i, q, j] . C[v, j] ;; M mul V add"], "Y",
                             {"B": 2, "P": 8, "Q": 4, "U": 3, "V": 3, "I": 3, "J": 3})),
}  # fmt: skip


@pytest.mark.parametrize("kind", LAWS, ids=lambda k: k.value)
def test_both_sides_of_a_law_are_equal(kind: Kind) -> None:
    rewrite, cascade = LAWS[kind]
    other = rewrite(cascade)
    assert kind in {d.kind for d in other.derived.values()}
    rng = np.random.default_rng(0)
    inputs = {t: rng.standard_normal(cascade.shape(t)) / 8 for t in cascade.inputs}
    # what nothing writes any more is read by nothing
    unread = {t: np.full(cascade.shape(t), np.nan) for t in other.inputs if t not in inputs}
    # the same elements in the same order
    views = {t: array.reshape(other.shape(t)) for t, array in inputs.items()}
    before, after = evaluate(cascade, inputs), evaluated(other, views | unread)
    for name in cascade.outputs:
        got = after[name].reshape(cascade.shape(name))
        np.testing.assert_allclose(got, before[name], rtol=1e-10, atol=1e-10)


def test_every_kind_has_a_law_that_is_tried() -> None:
    assert set(LAWS) == set(Kind)


def test_an_added_tensor_takes_no_name_of_another() -> None:
    cascade = cascade_of("X: M, X_turned: M, Z: M", ["Z[m] = X[m] . X_turned[m] ;; M mul"], "Z", {"M": 3})
    added = Additions(cascade)
    name = added.tensor("X_turned", ("M",), "X", Kind.TRANSPOSED)
    assert name == "X_turned_"
    after = added.applied(cascade.steps)
    # the declared one is itself, the added one a copy of X with its type
    assert [declared(t, ("X", "X_turned"), after.derived) for t in ("X_turned", name)] == ["X_turned", "X"]
    assert after.types({"X": "bfloat16", "X_turned": "int32"}) == {
        "X": "bfloat16", "X_turned": "int32", "Z": "float32", name: "bfloat16",
    }  # fmt: skip


def test_an_added_rank_is_named_as_no_variable() -> None:
    cascade = cascade_of("X: M, Z: M", ["Z[m_rows] = X[m_rows]"], "Z", {"M": 3})
    assert Additions(cascade).rank("M_ROWS", 128) == "M_ROWS_"


def test_tensors_of_a_batch_have_it_in_front_and_the_same_results() -> None:
    # an input, a computed operand and an output end with c, of which each value is a product by itself
    cascade = cascade_of(
        "A: K I C, B: K J C, P: K I C, Z: I J C",
        ["P[k, i, c] = A[k, i, c] ;; M unary(tanh)", "Z[i, j, c] = P[k, i, c] . B[k, j, c] ;; M mul V add"],
        "Z", {"K": 3, "I": 4, "J": 5, "C": 2},
    )  # fmt: skip
    other = with_batches_first(cascade)
    product = next(e for e in other.einsums if e.reduce_op)
    assert [[i.plain for i in a.indices] for a in product.every_access] == [
        list("cij"),
        list("cki"),
        list("ckj"),
    ]
    rng = np.random.default_rng(0)
    inputs = {t: rng.standard_normal(cascade.shape(t)) for t in cascade.inputs}
    expected = np.einsum("kic,kjc->ijc", np.tanh(inputs["A"]), inputs["B"])
    np.testing.assert_allclose(evaluate(other, inputs)["Z"], expected, rtol=1e-12)


def test_rows_that_a_mask_or_a_scan_asks_for_stay_whole() -> None:
    masked = cascade_of("X: N P, Z: N P", ["Z[n, p] = X[n, p] if p <= n else 0"], "Z", {"N": 3, "P": 80})
    assert with_full_lanes(masked, 128) is masked
    full = cascade_of("X: N P, Z: N P", ["Z[n, p] = X[n, p] ;; M unary(tanh)"], "Z", {"N": 100, "P": 80})
    assert with_full_lanes(full, 128) is full
