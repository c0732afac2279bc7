"""What runs once per index because it reads what it wrote at another: against loops in NumPy."""

from collections.abc import Callable

import numpy as np
import pytest

from nkilab import einsum
from nkilab.errors import SpecError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 9))
SIGNS = np.where(RNG.random(9) < 0.5, -1.0, 1.0)


def _loop(
    first: list[np.ndarray], step: Callable[[list[np.ndarray], int], np.ndarray], upto: int
) -> np.ndarray:
    rows = [*first]
    while len(rows) < upto:
        rows.append(step(rows, len(rows)))
    return np.array(rows)


def _product_of_two(rows: list[np.ndarray], n: int) -> np.ndarray:
    return 0.5 * rows[-1] - 0.3 * rows[-2] * rows[-1] + X[n]


def _at(row: np.ndarray, apart: int) -> np.ndarray:
    """What lies so far behind each element, 0 beyond the edges."""
    places = np.arange(len(row)) + apart
    return np.where((places >= 0) & (places < len(row)), row[places.clip(0, len(row) - 1)], 0.0)


def _of_two_blocks() -> np.ndarray:
    state = np.ones(9) + 0j
    for x in X:
        state = (0.8 + 1j * SIGNS) * state + x
    last = state.real
    rows, other = [np.zeros(9)], np.ones(9)
    for x in X:
        rows, other = [*rows, 0.5 * rows[-1] + other * last + x], 0.5 * other - 0.1 * rows[-1]
    return np.array(rows)


CASES = {
    "S[0, m] = 0\nS[t+1, m] = S[t, m] + X[t, m]": np.concatenate([np.zeros((1, 9)), X.cumsum(0)]),
    "S[0, m] = X[0, m]\nS[t, m] = max(S[t-1, m], X[t, m])": np.maximum.accumulate(X),
    "S[T, m] = 0\nS[t, m] = X[t, m] + 0.9 * S[t+1, m]": _loop(
        [np.zeros(9)], lambda rows, n: X[12 - n] + 0.9 * rows[-1], 13
    )[::-1],
    "A[0, m] = 1\nB[0, m] = 0\nA[t+1, m] = 0.8 * A[t, m] - G[m] * B[t, m]\n"
    "B[t+1, m] = 0.8 * B[t, m] + G[m] * A[t, m]\nS[t, m] = A[t+1, m] * X[t, m]": X
    * ((0.8 + 1j * SIGNS) ** np.arange(1, 13)[:, None]).real,
    # the turns of one block read what the last of another left
    "A[0, m] = 1\nB[0, m] = 0\nA[t+1, m] = 0.8 * A[t, m] - G[m] * B[t, m] + X[t, m]\n"
    "B[t+1, m] = 0.8 * B[t, m] + G[m] * A[t, m]\nS[0, m] = 0\nC[0, m] = 1\n"
    "S[t+1, m] = 0.5 * S[t, m] + C[t, m] * A[12, m] + X[t, m]\nC[t+1, m] = 0.5 * C[t, m] - 0.1 * S[t, m]": (
        _of_two_blocks()
    ),
    # a wave of which each turn reads the neighbours, also beyond the edges
    "S[0, m] = X[0, m]\nS[t+1, m] = S[t, m] - 0.5 * S[t, m+1] + 0.25 * S[t, m-2] * X[t, m]": _loop(
        [X[0]], lambda rows, n: rows[-1] - 0.5 * _at(rows[-1], 1) + 0.25 * _at(rows[-1], -2) * X[n - 1], 13
    ),
    "S[0, m] = X[0, m]\nS[1, m] = X[1, m]\n"
    "S[t, m] = 0.5 * S[t-1, m] - 0.3 * S[t-2, m] * S[t-1, m] + X[t, m]": _loop([*X[:2]], _product_of_two, 12),
}


def test_what_every_iteration_computes_alike_is_computed_before_a_block() -> None:
    # without the exponential in the block it is a scan
    text = """
    einsum:
      declaration: {H: [T1, C], X: [T, C], L: [C], G: [C], Y: [T, C]}
      expressions:
        - H[0, c] = 0
        - iterate: t
          body:
            - G[c] = exp(-L[c])
            - H[t+1, c] = G[c] * H[t, c] + X[t, c]
            - Y[t, c] = H[t+1, c] * G[c]
    options: {cascade-outputs: [Y]}
    """
    kernel = einsum.compile(text, sizes={"T1": 13, "T": 12, "C": 9})
    rows = _loop([np.zeros(9)], lambda rows, n: np.exp(-np.abs(SIGNS)) * rows[-1] + X[n - 1], 13)
    result = kernel(X=X.astype(np.float32), L=np.abs(SIGNS).astype(np.float32))
    assert np.allclose(result, rows[1:] * np.exp(-1.0), rtol=1e-5, atol=1e-5)
    assert "a scan over t" in kernel.source


@pytest.mark.parametrize("text", CASES)
def test_expressions_that_read_what_they_wrote_run_once_per_index(text: str) -> None:
    inputs = {"X": X, "G": SIGNS} if "G[" in text else {"X": X}
    kernel = einsum.compile(text, shapes={name: array.shape for name, array in inputs.items()}, outputs=["S"])
    result = kernel(**{name: array.astype(np.float32) for name, array in inputs.items()})
    # values of order 100 after at most 12 turns of a few roundings each
    assert np.allclose(result, CASES[text], rtol=1e-5, atol=1e-4)
    assert not any("PLANNED ANOTHER WAY" in change for change in kernel.changes)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("S[0, m] = 0\nS[t+1, m] = S[t, m] + S[t+2, m]", "2:1: .*: S is carried up and down t\n"),
        (
            "S[0, m] = 0\nS[t+1, m+1] = S[t, m+1] + S[t+1, m] + S[t+1, m+2]",
            "2:1: .*: S is carried up and down m\n",
        ),
        (
            "S[0, m] = 0\nA[t, m] = S[t, m] * X[t, m]\nB[m] = A[0, m]\nS[t+1, m] = A[t, m] + B[m]",
            "B has no t and stands among expressions that run once per t\n",
        ),
        (
            "S[0, m] = X[0, m]\nS[t, m] = S[t, m] + X[t, m]",
            r"S\[t, m\] is read where nothing has written it\n",
        ),
    ],
)
def test_what_is_carried_another_way_is_refused_at_its_line(text: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        einsum.compile(text, sizes={"T": 12, "M": 9})


@pytest.mark.parametrize("size", [8, 128])
def test_a_square_matrix_and_its_transpose_are_two_tiles(size: int) -> None:
    x = RNG.standard_normal((size, size)).astype(np.float32)
    assert np.array_equal(einsum.compile("Z[i, j] = S[i, j] - S[j, i]", shapes={"S": x.shape})(x), x - x.T)


def test_a_copy_of_a_state_keeps_what_it_was_before_the_state_is_overwritten() -> None:
    text = """
    Y[0, m] = 1
    D[0, m] = 2
    D[t+1, m] = Y[t, m]
    Y[t+1, m] = D[t, m] * Y[t, m] + X[t, m]
    """
    before, now = np.full(9, 2.0), np.ones(9)
    for row in X[:6]:
        before, now = now, before * now + row
    result = einsum.compile(text, shapes={"X": (6, 9)})(X[:6].astype(np.float32))
    assert np.allclose(result[-1], now, rtol=1e-4)


def test_a_state_as_a_coefficient_of_another_scan_is_read_a_turn_late() -> None:
    text = """
    A[m, 0] = 2
    B[m, 0] = 0
    A[m, t+1] = max(B[m, t], A[m, t])
    B[m, t+1] = 0.9 * B[m, t] + X[m, t]
    Z[m, t] = A[m, t+1] * A[m, t]
    """
    a, b, products = np.full(12, 2.0), np.zeros(12), []
    for column in X.T:
        a, b, old = np.maximum(a, b), 0.9 * b + column, a
        products.append(a * old)
    kernel = einsum.compile(text, shapes={"X": X.shape}, outputs=["Z"])
    assert np.allclose(kernel(X.astype(np.float32)), np.array(products).T, rtol=1e-5)


def test_neighbours_along_two_axes_are_chosen_one_after_the_other() -> None:
    text = """
    U[0, x, y] = X[x, y]
    N[t, x, y] = U[t, x-1, y-1] + U[t, x+1, y-1] + U[t, x, y+1]
    U[t+1, x, y] = (N[t, x, y] == 2) + (N[t, x, y] == 1) * U[t, x, y]
    Z[x, y] = U[T, x, y]
    """
    first = (RNG.random((12, 9)) < 0.5) * 1.0
    kernel = einsum.compile(text, shapes={"X": first.shape}, sizes={"T": 4}, outputs=["Z"])
    now = first
    for _ in range(4):
        padded = np.pad(now, 1)
        count = padded[:-2, :-2] + padded[2:, :-2] + padded[1:-1, 2:]
        now = (count == 2) + (count == 1) * now
    assert np.array_equal(kernel(first.astype(np.float32)), now)


def test_a_formula_stands_in_a_block_that_counts_down() -> None:
    spec = """
einsum:
  declaration: {X: [T, M], S: [T1, M]}
  expressions:
    - S[T, m] = const(0)
    - {iterate: t, body: ["S[T-1-t, m] = 3 * abs(X[T-1-t, m]) + 0.5 * S[T-t, m]"]}
"""
    last, rows = np.zeros(9), []
    for row in X[::-1]:
        last = 3 * abs(row) + 0.5 * last
        rows.append(last)
    result = einsum.compile(spec, sizes={"T": 12, "T1": 13, "M": 9})(X.astype(np.float32))
    assert np.allclose(result[:-1], rows[::-1], rtol=1e-6, atol=1e-6)


def test_blocks_of_partitions_are_columns_where_one_number_scales_them() -> None:
    text = """
    X[0, n] = 0
    R[0, n] = B[n]
    Q[k, n] = sum(A[n, m] * R[k, m], m)
    L[k] = sum(R[k, n]**2, n) / sum(R[k, n] * Q[k, n], n)
    X[k+1, n] = X[k, n] + L[k] * R[k, n]
    R[k+1, n] = R[k, n] - L[k] * Q[k, n]
    Z[n] = X[K, n]
    """
    rng = np.random.default_rng(5)
    half = rng.standard_normal((256, 256), np.float32) / 16
    a, b = half @ half.T + np.eye(256, dtype=np.float32), rng.standard_normal(256, np.float32)
    kernel = einsum.compile(text, sizes={"k": 8}, shapes={"A": a.shape, "B": b.shape}, outputs=["Z"])
    x, r = np.zeros(256), b.astype(np.float64)
    for _ in range(8):
        q = a @ r
        step = (r @ r) / (r @ q)
        x, r = x + step * r, r - step * q
    np.testing.assert_allclose(kernel(A=a, B=b), x, rtol=1e-4, atol=1e-5)
    # both blocks of a state in one instruction, and the matrix loaded once
    assert "dst=x_tile[:, :, 0]" in kernel.source
    turns = kernel.source[kernel.source.index("# turns of k") :]
    assert "src=A" not in turns


def test_a_state_that_is_read_beyond_its_edge_lies_on_chip_with_zeros_around_it() -> None:
    text = """
V[0, b, s] = 1
P[t, b, s] = V[t, b, s-1] - 1 if s >= 2 else V[t, b, s-1] + 2
V[t+1, b, s] = E[t, b, s] + max(V[t, b, s], P[t, b, s])
Z[b] = max(V[T, b, s], s)
"""
    values = np.random.default_rng(2).standard_normal((5, 4, 9)).astype(np.float32)
    kernel = einsum.compile(text, shapes={"E": values.shape}, sizes={"T": 5}, outputs=["Z"])
    state, shift = np.ones((4, 9)), np.where(np.arange(9) >= 2, -1.0, 2.0)
    for turn in values:
        before = np.concatenate([np.zeros((4, 1)), state[:, :-1]], 1)
        state = turn + np.maximum(state, before + shift)
    np.testing.assert_allclose(kernel(E=values), state.max(1), rtol=1e-5)
    turns = kernel.source.split("# Z[b]")[0].split("# turns of t")[1]
    assert "scratch" not in turns
