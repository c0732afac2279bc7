"""Cascades as somebody writes them who has read the page on Einsums once, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nkilab import einsum
from nkilab.errors import SpecError, UsageError

STARTED = """
einsum:
  declaration: {X: [B, N], Y: [B, N]}
  expressions:
    - Y[b, r] = X[b, r]
    - Y[b, t+LAG] = X[b, t+LAG] + STEP
  shape: {B: 4, R: LAG, T: REST, N: 12}
"""
# the state is set together with other values of its tensor
STEPS: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "0.6 * Y[b, t]": (1, lambda last, old: 0.6 * old),
    "0.5 * tanh(Y[b, t+1])": (2, lambda last, old: 0.5 * np.tanh(last)),
    "0.5 * Y[b, t+1] * Y[b, t]": (2, lambda last, old: 0.5 * last * old),
    "0.25 * Y[b, t] ": (5, lambda last, old: 0.25 * old),
}
# of what a step back from the end leaves
FROM_BEHIND = {
    "a scan": ("X[N-1] = F[N-1]\nX[n] = F[n] - 0.5 * X[n+1]", lambda last: 0.5 * last),
    "no scan": ("X[N-1] = F[N-1]\nX[n] = F[n] - tanh(X[n+1])", np.tanh),
    "a scan that an index counts down": (
        "X[N] = 0\nX[N-1-n] = F[N-1-n] - 0.5 * X[N-n]",
        lambda last: 0.5 * last,
    ),
    "no scan, an index counts down": ("X[N] = 0\nX[N-1-n] = F[N-1-n] - tanh(X[N-n])", np.tanh),
}
VALUES: dict[str, tuple[str, dict[str, int], Callable[..., Any]]] = {
    "a neighbour": ("Y[n] = X[(n + 1) % N]", {"N": 9}, lambda x: np.roll(x, -1)),
    "two edges": (
        "Y[m, n] = X[(m + M - 1) % M, (n + 1) % N]", {"M": 4, "N": 9}, lambda x: np.roll(x, (1, -1), (0, 1)),
    ),
    "a circular convolution": (
        "Y[n] = H[k] * X[(n - k) % N]", {"N": 9, "K": 4},
        lambda h, x: sum(c * np.roll(x, k) for k, c in enumerate(h)),
    ),
    "turns on a ring": (
        "S[0, n] = X[n]\nS[t+1, n] = S[t, n] - 0.5 * S[t, (n + 1) % N]\nY[n] = S[T, n]", {"N": 9, "T": 2},
        lambda x: x - np.roll(x, -1) + 0.25 * np.roll(x, -2),
    ),
    "products and what is left": ("Y[m] = 3 - 2 * X[m]**2 % 5 * 4", {"M": 9}, lambda x: 3 - 2 * x**2 % 5 * 4),
    "of a product of indices": (
        "Y[m, n] = X[m] * ((m * n) % 5)", {"M": 6, "N": 7},
        lambda x: x[:, None] * (np.outer(np.arange(6), np.arange(7)) % 5),
    ),
    "a diagonal in turns": (
        "X[0, b, n] = 0\nX[t+1, b, n] = X[t, b, n] + (F[b, n] - sum(A[n, m] * X[t, b, m], m)) / A[n, n]\n"
        "Y[b, n] = X[T, b, n]", {"B": 3, "N": 6, "M": 6, "T": 2},
        lambda a, f: 2 * f / np.diag(a) - (f / np.diag(a)) @ a.T / np.diag(a),
    ),
    "experts of one matrix each, and their gates": (
        "E[b, k, f] = max(sum(X[b, d] * V[k, d, f], d), 0)\nG[b, t, k] = X[b, d] * W[t, d, k]\n"
        "Y[b, t, f] = G[b, t, k] * E[b, k, f]", {"B": 20, "D": 16, "K": 4, "F": 12, "T": 2},
        lambda v, w, x: np.einsum(
            "btk,bkf->btf", np.einsum("bd,tdk->btk", x, w), np.maximum(np.einsum("bd,kdf->bkf", x, v), 0)
        ),
    ),
    "a scan back over a scan": (
        "P[0, b] = F[0, b]\nP[n, b] = F[n, b] - 0.5 * P[n-1, b]\nX[N-1, b] = P[N-1, b]\n"
        "X[n, b] = P[n, b] - 0.5 * X[n+1, b]", {"N": 6, "B": 3},
        lambda f: np.linalg.solve((np.eye(6) + np.eye(6, k=-1) / 2) @ (np.eye(6) + np.eye(6, k=1) / 2), f),
    ),
}  # fmt: skip


def close(text: Any, wanted: Callable[..., Any], **options: Any) -> None:
    """Compare a kernel with NumPy, its inputs in the order of their names."""
    kernel, random = einsum.compile(text, **options), np.random.default_rng(3)
    inputs = {n: random.uniform(0.5, 1.5, kernel.cascade.shape(n)) for n in sorted(kernel.inputs)}
    got = kernel(**{n: a.astype(np.float32) for n, a in inputs.items()})
    assert np.allclose(got, wanted(*inputs.values()), rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("step", STEPS)
def test_a_state_that_is_set_among_other_values_begins_with_its_own(step: str) -> None:
    lag, own = STEPS[step]

    def wanted(x: Any) -> Any:
        y = x.copy()
        for t in range(lag, 12):
            y[:, t] += own(y[:, t - 1], y[:, t - lag])
        return y

    close(STARTED.replace("STEP", step).replace("LAG", str(lag)).replace("REST", str(12 - lag)), wanted)


def test_a_first_state_of_a_rank_of_its_own_is_the_first_state() -> None:
    text = "S[u, n] = X[u, n]\nS[t+1, n] = tanh(S[t, n])\nY[n] = S[T, n]"
    close(text, lambda x: np.tanh(np.tanh(x[0])), sizes={"N": 5, "T": 2, "U": 1})


@pytest.mark.parametrize("form", FROM_BEHIND)
def test_turns_run_from_the_last_element_to_the_first(form: str) -> None:
    text, step = FROM_BEHIND[form]

    def wanted(f: Any) -> Any:
        x = [0.0 if "X[N] =" in text else f[-1]]
        for value in f[::-1][len(x) - ("X[N] =" in text) :]:
            x.append(value - step(x[-1]))
        return np.array(x[::-1])

    close(text, wanted, sizes={"N": 7})


@pytest.mark.parametrize("what", VALUES)
def test_it_is_what_numpy_computes(what: str) -> None:
    text, sizes, wanted = VALUES[what]
    close(text, wanted, sizes=sizes)


@pytest.mark.parametrize("operand", ["K[b, i]", "K[b]", "K[i]"])
def test_a_state_read_beside_its_place_stays_on_chip_beside_operands_of_fewer_ranks(operand: str) -> None:
    text = f"V[0, b, i] = X[b, i]\nV[t+1, b, i] = max({operand}, 0.5 * V[t, b, i] + 0.4 * V[t, b, i+1])\n"
    sizes, wide = (
        {"B": 64, "I": 65, "T": 3},
        {"K[b, i]": ..., "K[b]": (..., None), "K[i]": (None, ...)}[operand],
    )

    def wanted(k: Any, x: Any) -> Any:
        for _ in range(3):
            x = np.maximum(k[wide], 0.5 * x + 0.4 * np.pad(x[:, 1:], ((0, 0), (0, 1))))
        return x

    close(text + "Y[b, i] = V[T, b, i]", wanted, sizes=sizes)
    # tiles with zeros around them in HBM took eight times as long
    whole = einsum.compile(
        text.replace(operand, "K[b, i]") + "Y[b, i] = V[T, b, i]", sizes={**sizes, "T": 32}
    )
    kernel = einsum.compile(text + "Y[b, i] = V[T, b, i]", sizes={**sizes, "T": 32})
    assert kernel.estimate.latency_us < 1.2 * whole.estimate.latency_us


@pytest.mark.parametrize(
    ("text", "sizes", "length"),
    [
        ("Y[t] = W[k] * X[t + k - 1]", {"T": 10, "K": 3}, 10),
        ("Y[t] = W[k] * X[t + k - K // 2]", {"T": 10, "K": 5}, 10),
        ("Y[t] = W[k] * X[t - k]", {"T": 10, "K": 3}, 10),
        ("Y[t] = X[t - 1] + X[t + 1]", {"T": 10}, 10),
        # what begins at 0 has no padding
        ("Y[t] = W[k] * X[t + k]", {"T": 10, "K": 3}, 12),
        ("Y[t] = X[(t + 1) % T]", {"T": 10}, 10),
    ],
)
def test_a_window_with_padding_reads_as_many_as_it_writes(
    text: str, sizes: dict[str, int], length: int
) -> None:
    kernel = einsum.compile(text, sizes=sizes)
    assert kernel.cascade.shape("X") == (length,)


REFUSED = {
    "Y[t] = W[k] * X[t + k - K // 2]": "which t + k - (K // 2) indexes, has no extent\n  hint: add X_0",
    "Y[n] = X[n] * 2 + Y[n - 3]": "Y is read here, and this expression is the first that writes it",
    "Y[t] = -X[t] % 2": "what stands before % is not clear",
    "Y[(t + 1) % T] = Z[t]": "(t + 1) goes on at the other edge",
    "Y[t] = Z[t] . X[(t + 1) % T] ;; M mul": "(t + 1) goes on at the other edge, from 1 to 10",
    "Y[t] = X[(t + 20) % T]": "from 20 to 29; rank X_0 of X has 10 elements",
}


def test_numbers_of_numpy_are_extents() -> None:
    declared = {"A": ("M", "N"), "Z": ("M",)}
    inputs = {"einsum": {"declaration": declared, "expressions": ["Z[m] = A[m, n]"]}}
    inputs["einsum"]["shape"] = {"M": np.int64(4), "N": 5}
    assert einsum.compile(inputs).cascade.shape("A") == (4, 5)


MEANT = {
    "einsums:\n  expressions:\n    - Z[m] = A[m]": "write einsum, if that is meant",
    "Z[m] = topk(A[m, n], n)": "write Z[m, k] = X[m, n] ;; V topk",
    "Z[m] = A[m] if A[m] > 1 & A[m] < 2 else 0": "write and between conditions",
    "Z[m] = Y[m] = A[m]": "write one result a line",
    "Z[m] = A[m] * (1 < m and m < 3)": "write 1 if X[m] > 0 and Y[m] > 0 else 0",
    "einsum:\n  declaration: [A, Z]\n  expressions:\n    - Z[m] = A[m]": "write declaration: {KEY: VALUE}",
}


@pytest.mark.parametrize("text", MEANT)
def test_a_mistake_is_told_what_was_meant(text: str) -> None:
    with pytest.raises(SpecError, match="hint: ") as refused:
        einsum.compile(text, sizes={"M": 4})
    assert f"hint: {MEANT[text]}" in str(refused.value)


def test_an_extent_of_no_rank_is_told_which_axes_have_names_of_their_own() -> None:
    with pytest.raises(UsageError) as refused:
        einsum.compile("Z[m] = A[I[m]]", sizes={"M": 4, "R": 9})
    hint = "leave R out; no variable indexes A_0 alone: its index tells it, or shapes={'A': [A_0]}"
    assert str(refused.value) == f"size of R is given; the ranks are A_0, M\n  hint: {hint}"


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_two_meanings_is_refused_with_one_thing_to_do(text: str) -> None:
    with pytest.raises(SpecError) as refused:
        einsum.compile(
            text, sizes={v.upper(): {"k": 4}.get(v, 10) for v in "ktn" if f"[{v}" in text or f"({v}" in text}
        )
    assert REFUSED[text] in str(refused.value)
    assert "hint: " in str(refused.value)
