"""Comparisons of parts of indices, tables that lie across, windows of distances: as NumPy has them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.language.extents import sized
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.rewrite.compared import with_compared_values

RNG = np.random.default_rng(11)
ROWS, COLUMNS = np.arange(60)[:, None], np.arange(90)[None]
RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq}


def _draw(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def _softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("i // 15 >= j // 30", ROWS // 15 >= COLUMNS // 30),
        (
            "i // 15 % 2 == j // 15 % 2 and j < 60 + i",
            (ROWS // 15 % 2 == COLUMNS // 15 % 2) & (COLUMNS < 60 + ROWS),
        ),
        ("i % 3 == j % 3", ROWS % 3 == COLUMNS % 3),
        ("10 * (j // 15) <= i", COLUMNS // 15 * 10 <= ROWS),
    ],
)
def test_parts_that_are_compared_choose_what_attention_sees(condition: str, kept: Any) -> None:
    text = f"S[i, j] = sum(Q[i, e] * K[j, e], e) if {condition} else -inf\n"
    q, k, v = _draw(60, 8), _draw(90, 8), _draw(90, 5)
    text += "Y[i, d] = softmax(S[i, j], j) * V[j, d]"
    kernel = einsum.compile(text, shapes={"Q": q.shape, "K": k.shape, "V": v.shape})
    assert "PLANNED ANOTHER WAY" not in kernel.report
    expected = _softmax(np.where(kept, q.astype(float) @ k.T, -np.inf)) @ v
    assert np.abs(kernel(Q=q, K=k, V=v) - expected).max() < 1e-5


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("left", "right"), [(4, 4), (2, 6), (3, 1)])
def test_all_that_is_kept_lies_within_what_follows_from_a_comparison(
    relation: str, left: int, right: int
) -> None:
    text = f"Y[i, j] = X[i, j] if i // {left} {relation} j // {right} + 1 else 0"
    cascade = with_compared_values(sized(spec_from(text, None, ()).cascade, {"I": 24, "J": 36}))
    i, j = np.arange(24)[:, None], np.arange(36)[None]
    kept = RELATIONS[relation](i // left, j // right + 1)
    bounds = [e.condition for e in cascade.einsums if e.condition is not None]
    assert len(bounds) == 1 + (relation == "==")
    for bound in bounds:
        terms = bound.difference.terms
        values = sum(({"i": i, "j": j}[v] * c for v, c in terms), np.array(bound.difference.constant))
        within = RELATIONS[bound.relation](values, 0)
        assert (within | ~kept).all()
        # nothing closer follows along either axis: at some edge of what is kept the bound ends, too
        assert (kept & ~RELATIONS[bound.relation](values - 2 * max(abs(c) for _, c in terms), 0)).any()


def test_a_table_of_short_rows_is_picked_out_of_by_each_lane() -> None:
    table, buckets, scores = _draw(9, 3), RNG.integers(0, 9, (40, 50)).astype(np.int32), _draw(3, 40, 50)
    kernel = einsum.compile(
        "Y[h, i, j] = S[h, i, j] + T[B[i, j], h]", shapes={"S": (3, 40, 50), "T": (9, 3), "B": (40, 50)}
    )
    assert np.array_equal(kernel(S=scores, T=table, B=buckets), scores + table[buckets].transpose(2, 0, 1))
    assert "nc_n_gather" in kernel.source
    assert "vector_offset" not in kernel.source


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Y[h, i, j] = S[h, i, j] + T[i - j + 39, h]", lambda t, b, d: t[d + 39]),
        ("Y[h, i, j] = S[h, i, j] + T[i - j, h]", lambda t, b, d: t[d] * (d >= 0)[..., None]),
        ("Y[h, i, j] = S[h, i, j] + T[B[i - j + 39], h]", lambda t, b, d: t[b[d + 39]]),
    ],
)
def test_what_depends_on_a_distance_is_a_window(text: str, expected: Callable[..., Any]) -> None:
    scores, table, buckets = _draw(3, 30, 40), _draw(69, 3), RNG.integers(0, 69, 69).astype(np.int32)
    arrays = {"S": scores, "T": table} | ({"B": buckets} if "B[" in text else {})
    kernel = einsum.compile(text, shapes={name: value.shape for name, value in arrays.items()})
    distances = np.arange(30)[:, None] - np.arange(40)[None]
    added = expected(table, buckets, distances).transpose(2, 0, 1)
    assert np.abs(kernel(**arrays) - (scores + added)).max() < 1e-6


def test_indices_are_turned_by_tensor_engine() -> None:
    x, books = _draw(16, 256), _draw(16, 128)
    words = RNG.integers(0, 16, (256, 128)).astype(np.int32)
    shapes = {"X": x.shape, "B": books.shape, "W": words.shape}
    kernel = einsum.compile("Y[m, n] = X[m, k] * B[W[k, n], n]", shapes=shapes)
    expected = x.astype(float) @ np.take_along_axis(books, words, 0)
    assert np.abs(kernel(X=x, B=books, W=words) - expected).max() < 1e-4
    # single elements of a matrix of 256 x 128 indices alone take more than 30 us
    assert kernel.estimate.latency_us < 30.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Y[e] = X[e + D // 2]", lambda x: x[4:]),
        ("Y[e] = X[e] if e < E // 2 else 0", lambda x: np.where(np.arange(8) < 4, x, 0)),
        ("Y[e] = X[e] / (E // 2) + e // 2", lambda x: x / 4 + np.arange(8) // 2),
        ("Y[e] = X[e + 1 - 2*(e % 2)]", lambda x: x.reshape(4, 2)[:, ::-1].reshape(8)),
        ("Y[e // 2] = X[e]", lambda x: x.reshape(4, 2).sum(1)),
    ],
)
def test_parts_of_extents_are_numbers(text: str, expected: Callable[..., Any]) -> None:
    x, sizes = np.arange(8, dtype=np.float32), {"D": 8, "E": 4} if "D" in text else {"E": 8}
    kernel = einsum.compile(text, shapes={"X": (8,)}, sizes=sizes)
    assert np.array_equal(kernel(X=x), expected(x))
