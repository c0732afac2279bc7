"""Formulas in the signs of arithmetic: what they compute, against NumPy, and their Einsums."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkilab import einsum
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.reference import evaluate
from tests.examples import examples

pytestmark = pytest.mark.corpus

RNG = np.random.default_rng(0)
M, N, K = 70, 90, 50
X, Y, A, B, C, V = (RNG.standard_normal(s).astype(np.float32)
                    for s in [(M, N), (M, N), (M, K), (K, N), (N,), (N, K)])  # fmt: skip
ARRAYS = {"X": X, "Y": Y, "A": A, "B": B, "C": C, "V": V}
ROWS, COLUMNS = np.arange(M)[:, None], np.arange(N)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


CASES = {
    "Z[m, n] = A[m, k] * B[k, n]": A @ B,
    "Z[m, n] = A[m, k] * B[k, n] + C[n]": A @ B + C,
    "Z[m, n] = 0.5*A[m, k]*B[k, n] - X[m, n]*C[n] - 1": 0.5 * (A @ B) - X * C - 1,
    "Z[m, n] = softmax(X[m, n], n)": softmax(X),
    "Z[m, n] = exp(X[m, n] - max(X[m, n], n)) / sum(exp(X[m, n] - max(X[m, n], n)), n)": softmax(X),
    "Z[m, k] = softmax(X[m, n], n) * V[n, k]": softmax(X) @ V,
    "Z[m] = sum(X[m, n])": X.sum(1),
    "Z[m] = sum(n, X[m, n] * Y[m, n])": (X * Y).sum(1),
    "Z[m] = X[m, n] + Y[m, n] * C[n]": X.sum(1) + (Y * C).sum(1),
    "Z[m] = sqrt(sum(X[m, n]**2, n))": np.sqrt((X**2).sum(1)),
    "Z[m] = mean(X[m, n], n)": X.mean(1),
    "Z[m, n] = (X[m, n] - mean(X[m, n], n)) / sqrt(mean((X[m, n] - mean(X[m, n], n))**2, n) + 1e-5) * C[n]":
        (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5) * C,
    "Z[m, n] = 1 / (1 + exp(-X[m, n]))": 1 / (1 + np.exp(-X)),
    "Z[m, n] = max(X[m, n], Y[m, n]) - min(X[m, n], 0)": np.maximum(X, Y) - np.minimum(X, 0),
    "Z[m, n] = X[m, n] * (X[m, n] > 0)": X * (X > 0),
    "Z[m, n] = -(X[m, n] - C[n])**2 / 2": -((X - C) ** 2) / 2,
    "Z[m, n] = X[m, n] * 2 ** -n": X * 2.0**-COLUMNS,
    "Z[m, n] = X[m, n] - 0.1 * (n - m)": X - 0.1 * (COLUMNS - ROWS),
    "Z[m, n] = (X[m, n] + C[n]) / N + (M - 1 - m)": (X + C) / N + (M - 1 - ROWS),
    "Z[m] = argmax(X[m, n], n)": X.argmax(1),
    "Z[m] = std(X[m, n], n) + var(Y[m, n], n)": X.std(1) + Y.var(1),
    "Z[m] = logsumexp(X[m, n], n)": np.log(np.exp(X).sum(1)),
    "Z[] = norm(X[m, n], m, n)": np.sqrt((X**2).sum()),
    "Z[m, n] = A[m, k] * B[k, n] if m >= n else -1": np.where(ROWS >= COLUMNS, A @ B, -1),
    "Z[m] = X[m, n] * Y[m, n] if n <= m else 0": np.where(COLUMNS <= ROWS, X * Y, 0).sum(1),
    "Z[m] = X[m, n] * Y[m, n] if 2 < n <= m else 0":
        np.where((COLUMNS > 2) & (COLUMNS <= ROWS), X * Y, 0).sum(1),
    "Z[m] = X[m, n] + Y[m, n] if m > 3 else 7": np.where(ROWS[:, 0] > 3, (X + Y).sum(1), 7),
    "Z[m] = max(X[m, n] - C[n] if n <= m else -inf, n)": np.where(COLUMNS <= ROWS, X - C, -np.inf).max(1),
    "Z[m, n] = exp(X[m, n] - C[n] if n <= m else 0)": np.exp(np.where(COLUMNS <= ROWS, X - C, 0)),
    "Z[m, n] = X[m, n] if n <= m and m - n < 4 else -1":
        np.where((COLUMNS <= ROWS) & (ROWS - COLUMNS < 4), X, -1),
    "Z[m, n] = X[m, n] if n < 3 or n > m else 2 * Y[m, n]":
        np.where((COLUMNS < 3) | (COLUMNS > ROWS), X, 2 * Y),
    "Z[m, n] = X[m, n] if not (n < 3 or n > m) else Y[m, n]":
        np.where((COLUMNS < 3) | (COLUMNS > ROWS), Y, X),
    "Z[m, n] = 1 if n == m else 0 if n < m else X[m, n] + C[n]":
        np.where(COLUMNS == ROWS, 1, np.where(COLUMNS < ROWS, 0, X + C)),
}  # fmt: skip


@pytest.mark.parametrize("formula", CASES)
def test_a_formula_computes_what_numpy_computes(formula: str) -> None:
    used = {name: array for name, array in ARRAYS.items() if f"{name}[" in formula}
    kernel = einsum.compile(formula, shapes={name: array.shape for name, array in used.items()})
    expected = CASES[formula]
    np.testing.assert_allclose(kernel(**used), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def written(text: str) -> list[str]:
    return [str(e) for e in spec_from(text).cascade.einsums]


def test_what_stands_twice_is_computed_once_and_sums_do_not_spread_over_terms() -> None:
    assert written("Z[m, n] = A[m, k] * B[k, n] + C[n]") == [
        "Z_sum[m, n] = A[m, k] . B[k, n] ;; M multiply V add",
        "Z[m, n] = Z_sum[m, n] . C[n] ;; M add",
    ]
    assert written("Z[m, n] = softmax(X[m, n], n)") == [
        "Z_max[m] = X[m, n] ;; V maximum",
        "Z_exp[m, n] = X[m, n] . Z_max[m] ;; M subtract_exp",
        "Z_sum[m] = Z_exp[m, n] ;; V add",
        "Z[m, n] = Z_exp[m, n] . Z_sum[m] ;; M divide",
    ]


def test_new_names_are_those_that_nothing_has() -> None:
    (first, _) = written("Z[m] = sqrt(sum(Z_sum[m, n], n))")
    assert first == "Z_sum1[m] = Z_sum[m, n] ;; V add"


def test_a_power_binds_closer_than_a_sign_and_a_quotient_goes_from_the_left() -> None:
    # as in Python: -(x**2), (a / b) / c, a - b - c
    arrays = {"X": X, "Y": Y + 3}
    kernel = einsum.compile(
        "Z[m, n] = -X[m, n]**2 - X[m, n] / Y[m, n] / 2 - 1", shapes={"X": (M, N), "Y": (M, N)}
    )
    np.testing.assert_allclose(kernel(**arrays), -(X**2) - X / (Y + 3) / 2 - 1, rtol=1e-4, atol=1e-3)


def test_formulas_stand_in_specifications_and_iterations() -> None:
    kernel = einsum.compile({
        "einsum": {
            "declaration": {"X": ["I", "J"], "A": ["T", "I"], "S": ["T1", "I"], "R": ["I"]},
            "expressions": [
                "R[p] = sqrt(sum(X[p, q]**2, q))",
                "S[0, i] = const(0)",
                {"iterate": "t", "body": ["S[t+1, i] = 0.5 * S[t, i] + A[t, i] * R[i]"]},
            ],
            "shape": {"I": 40, "J": 30, "T": 4, "T1": 5},
        },
        "options": {"cascade-outputs": ["S"]},
    })  # fmt: skip
    x, a = X[:40, :30], A[:4, :40]
    state, states = np.zeros(40), [np.zeros(40)]
    for row in a:
        state = 0.5 * state + row * np.sqrt((x**2).sum(1))
        states.append(state)
    np.testing.assert_allclose(kernel(X=x, A=a), states, rtol=1e-4, atol=1e-4)


SHAPE = {"m": 3, "n": 4, "k": 5}
TENSORS = {"P[m, n]": "mn", "Q[n, k]": "nk", "R[m, k]": "mk", "S[n]": "n", "T[m, n, k]": "mnk"}


class Drawn(NamedTuple):
    """A part of a formula, its values over m, n and k, and the variables that it has values for."""

    text: str
    values: np.ndarray
    variables: frozenset[str]


def leaf(access: str) -> Drawn:
    ranks = TENSORS[access]
    rng = np.random.default_rng(sorted(TENSORS).index(access))
    values = rng.uniform(0.5, 1.5, [SHAPE[v] for v in ranks])
    return Drawn(access, values.reshape([SHAPE[v] if v in ranks else 1 for v in SHAPE]), frozenset(ranks))


def joined(sign: str, one: Drawn, other: Drawn) -> Drawn:
    values = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[sign](one.values, other.values)
    return Drawn(f"({one.text} {sign} {other.text})", values, one.variables | other.variables)


def called(name: str, one: Drawn) -> Drawn:
    function = {"tanh": np.tanh, "abs": np.abs, "-": np.negative, "**2": np.square}[name]
    text = f"({one.text}){name}" if name == "**2" else f"{name}({one.text})"
    return Drawn(text, function(one.values), one.variables)


def reduced(name: str, one: Drawn) -> Drawn:
    """Over k, which is gone then; where it has none it stays as it is."""
    if "k" not in one.variables:
        return one
    function = {"sum": np.sum, "max": np.max, "mean": np.mean}[name]
    return Drawn(f"{name}({one.text}, k)", function(one.values, axis=2, keepdims=True), one.variables - {"k"})


def grown(parts: st.SearchStrategy[Drawn]) -> st.SearchStrategy[Drawn]:
    return st.one_of(
        st.builds(joined, st.sampled_from("+-*"), parts, parts),
        st.builds(joined, st.just("/"), parts, st.sampled_from(list(TENSORS)).map(leaf)),
        st.builds(called, st.sampled_from(["tanh", "abs", "-", "**2"]), parts),
        st.builds(reduced, st.sampled_from(["sum", "max", "mean"]), parts),
    )


PARTS = st.recursive(st.sampled_from(list(TENSORS)).map(leaf), grown, max_leaves=6)


@settings(max_examples=examples(60), deadline=None)
@given(PARTS.map(lambda part: reduced("sum", part)), st.sampled_from(["P[m, n]", "Q[n, k]", "T[m, n, k]"]))
def test_a_drawn_formula_is_what_numpy_makes_of_its_parts(part: Drawn, access: str) -> None:
    """Each of two terms is summed over k by itself, where it has it."""
    other = leaf(access)
    cascade = spec_from(f"Z[m, n] = 2 * {access} - {part.text} + P[m, n]").cascade
    arrays = {
        access[0]: leaf(access).values.reshape([SHAPE[v] for v in ranks]) for access, ranks in TENSORS.items()
    }
    results = evaluate(cascade, {name: arrays[name] for name in cascade.inputs})
    expected = 2 * other.values.sum(2) - part.values.sum(2) + arrays["P"]
    np.testing.assert_allclose(results["Z"], expected, rtol=1e-9)
