"""What a comparison of indices rules out is neither computed nor read, where that changes no result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.plan.shortened import without_ruled_out
from nkilab.einsum.prove import prove
from nkilab.einsum.sets import ProofError
from nkilab.einsum.tree import nodes
from nkilab.einsum.tree.along import floored
from nkilab.einsum.tree.expr import expr, name_of
from nkilab.einsum.tree.neutral import value_of

SCORES = "C[p, m] = Q[e, p] . K[e, m] ;; M mul V add"
SOFTMAX = [
    "G[p] = S[p, m] ;; V max", "N[p, m] = S[p, m] . G[p] ;; M binary(subtract_exp)",
    "D[p] = N[p, m] ;; V add", "A[p, f] = N[p, m] . V[m, f] ;; M mul V add",
    "Z[p, f] = A[p, f] . D[p] ;; M binary(divide)",
]  # fmt: skip
SKIPPED = "turns of p go through what comparisons leave, and no more"


def masked(conditions: list[str], rows: int, columns: int, otherwise: float) -> dict[str, Any]:
    """Products of scores, of softmax where masks stand for minus infinity, of which comparisons keep some."""
    names = ["C", *(f"S{n}" for n in range(1, len(conditions))), "S"]
    masks = [
        f"{after}[p, m] = {before}[p, m] if {condition} else {otherwise}"
        for before, after, condition in zip(names, names[1:], conditions, strict=False)
    ]
    tail = SOFTMAX if otherwise else ["Z[p, f] = S[p, m] . V[m, f] ;; M mul V add"]
    inner = {"A": ["P", "F"], "D": ["P"], "G": ["P"], "N": ["P", "M"]} if otherwise else {}
    scores = {name: ["P", "M"] for name in names}
    declared = {"Q": ["E", "P"], "K": ["E", "M"], "V": ["M", "F"], "Z": ["P", "F"]} | inner | scores
    shape = {"E": 64, "F": 64, "P": rows, "M": columns}
    return {"einsum": {"declaration": declared, "expressions": [SCORES, *masks, *tail], "shape": shape}}


def expected(q: Any, k: Any, v: Any, conditions: list[str], otherwise: float) -> Any:
    """The same in float64."""
    q, k, v = (a.astype(float) for a in (q, k, v))
    p, m = np.arange(q.shape[1])[:, None], np.arange(k.shape[1])[None]
    kept = np.logical_and.reduce([eval(c, {}, {"p": p, "m": m}) for c in conditions])
    scores = np.where(kept, q.T @ k, otherwise)
    if not otherwise:
        return scores @ v
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers @ v / powers.sum(1, keepdims=True)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("conditions", "rows", "columns", "otherwise", "is_skipped"),
    [
        (["m <= p"], 512, 512, -1e30, True),
        (["m < p + 1"], 640, 384, -1e30, True),
        (["m <= p + 100"], 256, 1280, -1e30, True),
        (["m >= p"], 384, 512, -1e30, True),
        (["m <= p", "m + 200 > p"], 640, 640, -1e30, True),
        (["m <= p", "m + 50 > p"], 640, 640, -1e30, True),
        (["2*m <= p"], 2048, 1536, 0.0, True),
        (["m > p"], 2048, 2048, 0.0, True),
        # the last row has nothing that it keeps: its softmax is that of equal numbers
        (["m > p"], 512, 512, -1e30, False),
        (["m <= p"], 512, 512, -5.0, False),
        (["m != p"], 512, 512, 0.0, False),
    ],
)
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_what_is_ruled_out_is_left_out_where_that_changes_nothing(
    conditions: list[str], rows: int, columns: int, otherwise: float, is_skipped: bool, dialect: str
) -> None:
    compiled = einsum.compile(masked(conditions, rows, columns, otherwise), dialect=dialect)
    assert (SKIPPED in compiled.changes) is is_skipped
    random = np.random.default_rng(11)
    shapes = (64, rows), (64, columns), (columns, 64)
    q, k, v = (random.normal(size=s).astype(np.float32) * 0.5 for s in shapes)
    result, wanted = np.asarray(compiled.kernel(q, k, v)), expected(q, k, v, conditions, otherwise)
    # float32 throughout, a few hundred additions
    assert np.abs(result - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("asked", "is_skipped"),
    [
        ("m <= p or m < 100", True),
        ("m <= p and (p - m < 150 or m < 4)", True),
        # together they keep columns from the first to the last
        ("m <= p or m > p + 100", False),
    ],
)
def test_columns_that_one_comparison_or_another_keeps_are_gone_through(asked: str, is_skipped: bool) -> None:
    text = f"""S[p, m] = 0.125 * sum(Q[p, e] * K[m, e], e)
A[p, m] = S[p, m] if {asked} else -inf
Z[p, f] = softmax(A[p, m], m) * V[m, f]"""
    generator = np.random.default_rng(3)
    q, k, v = (generator.standard_normal((n, 64)).astype(np.float32) for n in (384, 512, 512))
    kernel = einsum.compile(text, shapes={"Q": q.shape, "K": k.shape, "V": v.shape})
    assert (SKIPPED in kernel.changes) == is_skipped
    kept = [[eval(asked, {}, {"p": p, "m": m}) for m in range(512)] for p in range(384)]
    powers = np.exp((q @ k.T).astype(float) / 8) * kept
    # float32, of which TensorE has all bits
    assert np.abs(kernel(q, k, v) - powers @ v / powers.sum(1, keepdims=True)).max() < 1e-5


def softmax_of(scores: Any, kept: Any) -> Any:
    """Rows of scores that are kept, as parts of one, in float64."""
    powers = np.exp(scores.astype(float)) * kept
    return powers / powers.sum(-1, keepdims=True)


def test_the_difference_of_two_softmaxes_goes_through_what_both_keep() -> None:
    text = """S[p, m] = sum(Q[p, e] * K[m, e], e) / 8 if m <= p else -inf
T[p, m] = sum(R[p, e] * K[m, e], e) / 8 if m <= p else -inf
D[p, m] = softmax(S[p, m], m) - 0.5 * softmax(T[p, m], m)
Z[p, f] = D[p, m] * V[m, f]"""
    generator = np.random.default_rng(4)
    q, r, k, v = (generator.standard_normal((n, 64)).astype(np.float32) for n in (384, 384, 384, 384))
    kernel = einsum.compile(text, shapes=dict.fromkeys("QRKV", (384, 64)))
    assert SKIPPED in kernel.changes
    kept = np.tri(384)
    wanted = (softmax_of(q @ k.T / 8, kept) - 0.5 * softmax_of(r @ k.T / 8, kept)) @ v
    # float32, of which TensorE has all bits
    assert np.abs(kernel(Q=q, R=r, K=k, V=v) - wanted).max() < 1e-5


def test_tiles_of_scores_are_as_wide_as_a_window_and_heads_of_a_group_sum_their_exponentials_along() -> None:
    text = """S[h, p, m] = sum(Q[h, p, e] * K[h // 4, m, e], e) / 8 if m <= p and m > p - 256 else -inf
Z[h, p, f] = softmax(S[h, p, m], m) * V[h // 4, m, f]"""
    generator = np.random.default_rng(5)
    shapes = {"Q": (8, 2048, 16), "K": (2, 2048, 16), "V": (2, 2048, 24)}
    q, k, v = (generator.standard_normal(s).astype(np.float32) for s in shapes.values())
    kernel = einsum.compile(text, shapes=shapes)
    assert SKIPPED in kernel.changes
    assert kernel.tree is not None
    every = [*nodes.statements(kernel.tree.body)]
    exponentials = [s for s in every if isinstance(s, nodes.Activate) and s.function == "exp"]
    # 256 positions behind a block of 128 rows, and the block's own
    assert (
        {s.src.buffer.shape[-1] for s in exponentials}
        == {s.dst.buffer.shape[-1] for s in exponentials}
        == {384}
    )
    assert all(s.total is not None for s in exponentials)
    p, m = np.arange(2048)[:, None], np.arange(2048)[None]
    scores = q @ np.repeat(k, 4, 0).transpose(0, 2, 1) / 8
    wanted = softmax_of(scores, (m <= p) & (m > p - 256)) @ np.repeat(v, 4, 0)
    # float32, of which TensorE has all bits
    assert np.abs(kernel(Q=q, K=k, V=v) - wanted).max() < 1e-5


@pytest.mark.parametrize(
    ("left", "op", "right", "result"),
    [
        (0.0, "subtract", 0.0, 0.0),
        (-np.inf, "maximum", -np.inf, -np.inf),
        (None, "multiply", 0.0, 0.0),
        # minus infinity less itself is no number
        (-np.inf, "subtract", -np.inf, None),
        (None, "subtract", 0.0, None),
        (2.0, "divide", 2.0, None),
    ],
)
def test_what_is_known_of_two_values_is_known_of_what_is_made_of_them(
    left: float | None, op: str, right: float | None, result: float | None
) -> None:
    tile = nodes.all_of(nodes.Buffer("t", (128, 8), "float32", nodes.SBUF))
    both = {"left": left, "right": right}
    assert value_of(nodes.Combine(tile, tile, op, tile), both) == result
    fused = nodes.ScaleCombine(tile, tile, "multiply", 2.0, "subtract", tile)
    # nothing times a number less nothing
    assert value_of(fused, {"src": 0.0, "right": 0.0}) == 0.0


@pytest.mark.corpus(drawn=False)
def test_a_causal_mask_halves_the_work_of_long_sequences() -> None:
    whole, causal = (
        einsum.compile(masked([c], 2048, 2048, -1e30)).estimate.program.opcodes()
        for c in ("m <= p + 4096", "m <= p")
    )
    # 16 x 16 blocks of weights are multiplied with values, or 16 + 15 + ... + 1 of them; besides them scores,
    # 512 columns at a time, and what else a plan multiplies
    assert whole["nc_matmul"] >= 256
    assert 136 <= causal["nc_matmul"] <= 136 + 48
    # those are transposed before
    assert causal["nc_transpose"] == 144


def test_leaving_out_what_a_comparison_keeps_is_refused_by_the_proof() -> None:
    compiled = einsum.compile(masked(["m <= p"], 512, 512, -1e30))
    kernel = compiled.tree
    assert kernel is not None
    changed = _with_longer_gaps(kernel.body)
    with pytest.raises(ProofError, match="leaves out elements that it keeps"):
        prove(replace(kernel, body=changed), compiled.machine)


def _with_longer_gaps(body: list[nodes.Statement]) -> list[nodes.Statement]:
    """Statements whose comparisons claim that one position more fails them."""
    result: list[nodes.Statement] = []
    for s in body:
        if isinstance(s, nodes.Loop):
            result.append(replace(s, body=_with_longer_gaps(s.body)))
        elif isinstance(s, nodes.Select):
            gaps = tuple(replace(g, start=g.start - 1, count=g.count + 1) for g in s.left)
            result.append(replace(s, left=gaps))
        else:
            result.append(s)
    return result


@pytest.mark.parametrize("divisor", [1, 2, 3, 128])
def test_a_quotient_is_taken_apart_and_stays_equal(divisor: int) -> None:
    p = name_of("p")
    for value in (p * 128 + 127, p * 4 - 3, p * -6 + 1, p * 3, expr(7), p - 1):
        quotient = floored(value, divisor)
        assert [quotient.at({"p": n}) for n in range(9)] == [value.at({"p": n}) // divisor for n in range(9)]


def test_a_kernel_without_comparisons_stays_as_it_is() -> None:
    compiled = einsum.compile(
        "Z[m, n] = A[k, m] . B[k, n] ;; M mul V add", sizes={"M": 256, "N": 64, "K": 256}
    )
    assert compiled.tree is not None
    assert without_ruled_out(compiled.tree, 128, str) == []


VALUES = np.random.default_rng(3)
LEFT, RIGHT = VALUES.standard_normal((140, 40)), VALUES.standard_normal((40, 90))
KEPT, ROWS = (VALUES.uniform(size=90) < 0.5) * 1.0, VALUES.standard_normal(140)
PRODUCT = LEFT @ RIGHT


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("formula", "expected", "chosen", "copied"),
    [
        ("where(K[n] > 0, 0.5 * P[m, n], -inf)", np.where(KEPT > 0, 0.5 * PRODUCT, -np.inf), 1, 0),
        ("where(K[n] > 0, 0, -2 * P[m, n])", np.where(KEPT > 0, 0, -2 * PRODUCT), 1, 0),
        ("where(K[n] > 0, 0.5 * P[m, n], 7)", np.where(KEPT > 0, 0.5 * PRODUCT, 7), 1, 0),
        ("where(R[m] > 0, P[m, n], R[m])", np.where(ROWS > 0, PRODUCT.T, ROWS).T, 1, 0),
        ("where(P[m, n] > 0, R[m], 2)", np.where(PRODUCT > 0, ROWS[:, None], 2), 1, 0),
        ("where(P[m, n] > 0, P[m, n]**2, n - m)",
         np.where(PRODUCT > 0, PRODUCT**2, np.arange(90) - np.arange(140)[:, None]), 0, 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_values_are_chosen_beside_a_number_by_one_instruction(
    formula: str, expected: Any, chosen: int, copied: int, dialect: str
) -> None:
    text = f"P[m, n] = A[m, k] * B[k, n]\nZ[m, n] = {formula}"
    arrays = {"A": LEFT, "B": RIGHT, "K": KEPT, "R": ROWS}
    arrays = {name: value.astype(np.float32) for name, value in arrays.items() if f"{name}[" in text}
    kernel = einsum.compile(text, shapes={n: v.shape for n, v in arrays.items()}, dialect=dialect)
    assert np.allclose(kernel(**arrays), expected, atol=1e-3)
    assert [kernel.source.count(f"nisa.{i}(") for i in ("select_reduce", "tensor_copy_predicated")] == [
        chosen,
        copied,
    ]


def test_a_mask_that_all_heads_share_is_spread_and_compared_once() -> None:
    scores = "S[h, q, n] = where(K[n] > 0, sum(Q[h, q, e] * C[h, n, e], e), -inf)"
    sizes = {"H": 8, "Q": 128, "N": 1024, "E": 64}
    kernel = einsum.compile(f"{scores}\nZ[h, q] = logsumexp(S[h, q, n], n)", sizes=sizes)
    tree = kernel.tree
    assert tree is not None
    compared = [s for s, _ in nodes.weighted(tree.body) if getattr(s, "op0", "") == "not_equal"]
    assert sum(n for s, n in nodes.weighted(tree.body) if s in compared) == len(compared) == 1


def test_a_state_that_a_mask_keeps_stays_where_it_is() -> None:
    """The plan by rules is proved: what is left there is the turn's before."""
    text = "H[0, c] = 0\nH[t+1, c] = where(R[t, c] > 0, tanh(H[t, c] + X[t, c]), H[t, c])\nZ[c] = H[T, c]"
    r, x = (VALUES.standard_normal((5, 40)).astype(np.float32) for _ in "rx")
    kernel, state = einsum.compile(text, shapes={"R": (5, 40), "X": (5, 40)}, sizes={"T": 5}), np.zeros(40)
    for mask, new in zip(r, x, strict=True):
        state = np.where(mask > 0, np.tanh(state + new), state)
    assert np.allclose(kernel(R=r, X=x), state, atol=1e-5)
    assert not any("PLANNED ANOTHER WAY" in change for change in kernel.changes)
