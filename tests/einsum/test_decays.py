"""Coefficients of recurrences: which are decays whatever inputs are, and what others mean for a kernel."""

from __future__ import annotations

from functools import cache, reduce
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkilab import einsum
from nkilab.einsum.language.extents import sized
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.language.operators import OPERATORS
from nkilab.einsum.rewrite.decays import _applied, is_decay
from tests.examples import examples

SPEC = """
einsum:
  declaration: {{W: [T, K], U: [T, K], A: [T], B: [T, K], C: [T, K], S: [T1]}}
  expressions:
{steps}
    - S[0] = const(0)
  scalars: {{keep: 0.75, most: 1.5}}
options: {{cascade-outputs: [{name}]}}
"""


@pytest.mark.parametrize(
    ("steps", "is_known"),
    [
        (["B[t, k] = W[t, k] ;; M unary(sigmoid)"], True),
        (["B[t, k] = W[t, k] ;; M unary(exp)"], False),
        (["A = exp(-softplus(W))"], True),
        (["A = exp(softplus(W))"], False),
        (["A = exp(-exp(W) * softplus(U))"], True),
        (["A = exp(W * softplus(U))"], False),
        (["A = 1 - sigmoid(W)"], True),
        (["A = 1 + sigmoid(W)"], False),
        (["A = sigmoid(W) - sigmoid(U)"], True),
        (["A = sigmoid(W) - tanh(U)"], False),
        (["A = keep * tanh(W)"], True),
        (["A = most * tanh(W)"], False),
        (["A = 1 / (1 + exp(W))"], True),
        (["A = 1 / (0.5 + exp(W))"], False),
        (["B[t, k] = W[t, k] . const(-1) ;; M max", "C[t, k] = B[t, k] . const(1) ;; M min"], True),
        (["C[t, k] = W[t, k] . const(1) ;; M min"], False),
        (["B[t, k] = W[t, k] ;; M unary(tanh)", "A[t] = B[t, k] ;; V max"], True),
        (["B[t, k] = W[t, k] ;; M unary(tanh)", "A[t] = B[t, k] ;; V add"], False),
        (["B[t, k] = W[t, k] . U[t, k] ;; M binary(greater)"], True),
        (["B[t, k] = W[t, k] ;; M unary(sin)"], True),
    ],
)  # fmt: skip
def test_a_decay_is_known_by_what_it_is_computed_of(steps: list[str], is_known: bool) -> None:
    names = {"A =": "A[t, k] =", "W": "W[t, k]", "U": "U[t, k]"}
    every = [reduce(lambda s, n: s.replace(n, names[n]), names, s) if "A =" in s else s for s in steps]
    name = every[-1][0]
    text = SPEC.format(steps="\n".join(f"    - {s}" for s in every), name=name)
    text = text.replace("A: [T]", "A: [T, K]") if "A[t, k]" in text else text
    cascade = sized(spec_from(text).cascade, {"T": 4, "K": 2, "T1": 5})
    assert is_decay(cascade.einsum(name).output, cascade) is is_known


ENDS = (-np.inf, -3.0, -1.0, -0.25, 0.0, 0.5, 1.0, 4.0, np.inf)


@pytest.mark.parametrize("name", OPERATORS)
def test_what_an_operator_makes_of_an_interval_lies_between_what_is_said(name: str) -> None:
    operator = OPERATORS[name]
    intervals = [(low, high) for low, high in product(ENDS, ENDS) if low <= high and low < np.inf > -high]
    points = np.array([-7.0, -3.0, -1.5, -0.3, -0.0, 0.0, 0.2, 0.7, 1.0, 2.5, 40.0])
    for known in product(intervals, repeat=operator.arity or 2):
        inside = [points[(low <= points) & (points <= high)] for low, high in known]
        with np.errstate(all="ignore"):
            values = np.asarray(operator.function(*np.meshgrid(*inside)))
        low, high = _applied(name, known)
        finite = values[np.isfinite(values)]
        assert ((low <= finite) & (finite <= high)).all(), (known, low, high)


SCAN = """
einsum:
  declaration: {{X: [M, T], A: [M, T], L: [M, T], D: [M, T], P: [M, T], S: [M, T1]}}
  expressions:
    - L[m, t] = A[m, t] . const(-1) ;; M max
    - D[m, t] = L[m, t] . const(1) ;; M min
    - S[m, 0] = const(0)
    - iterate: t
      body: ["P[m, t] = {factor}[m, t] . S[m, t] ;; M mul", "S[m, t+1] = P[m, t] . X[m, t] ;; M add"]
options: {{cascade-outputs: [S]}}
"""
TURNS = 4096


@cache
def _scan(factor: str) -> einsum.CompiledEinsum:
    return einsum.compile(SCAN.format(factor=factor), sizes={"M": 1, "T": TURNS, "T1": TURNS + 1})


def test_coefficients_that_may_grow_leave_a_state_of_nothing_what_it_is() -> None:
    # 2 to the power of 512 is beyond float32, and infinity times 0 is no number; the last turn begins with 0
    added = np.zeros((1, TURNS), np.float32)
    added[0, -1] = 3.0
    kernel = _scan("A")
    inputs = {"A": np.full((1, TURNS), 2.0, np.float32), "X": added}
    states = kernel(**{n: inputs[n] for n in kernel.inputs})
    np.testing.assert_array_equal(states, [[0.0] * TURNS + [3.0]])
    (risk,) = (c for c in kernel.changes if "beyond" in c)
    assert risk == (
        "S[m, t + 1]: A[m, t] may be beyond -1 and 1, so that few rows are no parts for all lanes; "
        "limit it by min and max"
    )


FACTORS = st.sampled_from([0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, 1.0, -1.0, 0.5, 0.999, 3.0])
ADDED = st.sampled_from([0.0, 1e-30, -1e30, 1.0, -0.5])


@given(st.lists(FACTORS, min_size=1, max_size=40), st.lists(ADDED, min_size=1, max_size=40))
@settings(max_examples=examples(10), deadline=None)
def test_parts_of_limited_coefficients_are_as_good_as_turns(factors: list[float], added: list[float]) -> None:
    kernel = _scan("D")
    assert any("scans of few rows in parts" in change for change in kernel.changes)
    inputs: dict[str, Any] = {
        name: np.resize(np.array(values, np.float32), (1, TURNS))
        for name, values in {"A": factors, "X": added}.items()
    }
    states, wanted, size, most = kernel(**{n: inputs[n] for n in kernel.inputs}), [0.0], 0.0, [0.0]
    for a, x in zip(np.clip(inputs["A"][0].astype(float), -1, 1), inputs["X"][0].astype(float), strict=True):
        wanted.append(a * wanted[-1] + x)
        # what a sum of magnitudes is, by which roundings go
        size = abs(a) * size + abs(x)
        most.append(size)
    # of 4096 turns each rounds twice, by 2^-24 of the magnitudes
    assert (np.abs(states[0] - wanted) <= 2 * TURNS * 2.0**-24 * np.array(most) + 1e-37).all()
