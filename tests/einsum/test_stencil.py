"""Blocks whose turns read neighbours of their state, and others whose steps keep engines busy."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum
from tests.einsum.numbers import numbers_of

RNG = np.random.default_rng(5)

HEAT = """
U[0, x, y] = X[x, y]
N[t, x, y] = U[t, x+1, y] + U[t, x-1, y] + U[t, x, y+1] + U[t, x, y-1]
U[t+1, x, y] = U[t, x, y] + 0.125 * (N[t, x, y] - 4 * U[t, x, y])
Z[x, y] = U[T, x, y]
"""
# each turn needs the one before the last as well; rows are read two apart, on one side alone
WAVE = """
U[0, x, y] = X[x, y]
U[1, x, y] = X[x, y]
U[t+2, x, y] = 2 * U[t+1, x, y] - U[t, x, y] + C[x, y] * (U[t+1, x+2, y-1] - U[t+1, x, y])
Z[x, y] = U[T+1, x, y]
"""
# what neighbours read is computed in the same turn, and what is there is read behind its new value
STAGGERED = """
U[0, x, y] = X[x, y]
V[t, x, y] = U[t, x, y] - U[t, x-1, y]
U[t+1, x, y] = U[t, x, y] + 0.5 * (V[t, x+1, y] - V[t, x, y]) * V[t, x, y-1]
Z[x, y] = U[T, x, y]
"""


def at(u: np.ndarray, down: int, right: int) -> np.ndarray:
    """Elements so far from their places, 0 beyond the edges."""
    padded = np.pad(u, 2)
    return padded[2 + down : 2 + down + u.shape[0], 2 + right : 2 + right + u.shape[1]]


def heated(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    for _ in range(3):
        x = x + 0.125 * (at(x, 1, 0) + at(x, -1, 0) + at(x, 0, 1) + at(x, 0, -1) - 4 * x)
    return x


def waved(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    before = x
    for _ in range(3):
        before, x = x, 2 * x - before + c * (at(x, 2, -1) - x)
    return x


def staggered(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    for _ in range(3):
        v = x - at(x, -1, 0)
        x = x + 0.5 * (at(v, 1, 0) - v) * at(v, 0, -1)
    return x


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("shape", [(30, 7), (384, 5), (131, 4)], ids=["a row", "three rows", "no whole rows"])
@pytest.mark.parametrize(("text", "expected"), [(HEAT, heated), (WAVE, waved), (STAGGERED, staggered)])
def test_neighbours_are_those_of_the_turn_before(
    text: str, expected, shape: tuple[int, int], dialect: str
) -> None:
    x, c = RNG.standard_normal((2, *shape)).astype(np.float32)
    arrays = {"X": x, "C": c} if "C[" in text else {"X": x}
    shapes = {n: a.shape for n, a in arrays.items()}
    kernel = einsum.compile(text, shapes=shapes, sizes={"T": 3}, outputs=["Z"], dialect=dialect)
    # sums of a few numbers of order 10 in three turns
    assert np.allclose(kernel(**arrays), expected(x.astype(float), c.astype(float)), rtol=1e-5, atol=1e-4)
    assert not any("PLANNED ANOTHER WAY" in change for change in kernel.changes)


def test_a_state_with_neighbours_stays_on_chip() -> None:
    kernel = einsum.compile(HEAT, shapes={"X": (384, 640)}, sizes={"T": 8}, outputs=["Z"])
    assert "private_hbm" not in kernel.source
    # three rows of a partition lie side by side, between those of its neighbours, which come once a turn
    assert "u_tile = nl.ndarray((128, 5, 642)" in numbers_of(kernel)
    turns = kernel.source.partition("for t in")[2].partition("return Z")[0]
    assert turns.count("dma_copy") == 3
    assert kernel.estimate.latency_us < 100


def test_neighbours_of_infinite_values_are_right() -> None:
    text = "U[0, x] = X[x]\nU[t+1, x] = max(U[t, x-1] - 1, U[t, x])\nZ[x] = U[T, x]"
    x = np.full(256, -np.inf, np.float32)
    x[3] = 5
    kernel = einsum.compile(text, shapes={"X": x.shape}, sizes={"T": 2}, outputs=["Z"])
    expected = np.full(256, -np.inf)
    # what comes from beyond the edge is 0 - 1, and one less a place on
    expected[[0, 1, 3, 4, 5]] = -1, -2, 5, 4, 3
    assert np.array_equal(kernel(x), expected)


ROWS = "S[r, 0] = X[r, 0]\nS[r, t] = {op}\n"


@pytest.mark.parametrize(
    ("op", "scan"),
    [
        ("S[r, t-1] + X[r, t]", np.add.accumulate),
        ("max(S[r, t-1], X[r, t])", np.maximum.accumulate),
        ("min(S[r, t-1], X[r, t])", np.minimum.accumulate),
    ],
)
def test_a_first_value_is_one_of_the_scan(op: str, scan) -> None:
    x = RNG.integers(-9, 9, (1024, 6)) * 1.0
    x[5, 0] = np.inf
    kernel = einsum.compile(ROWS.format(op=op), shapes={"X": x.shape})
    assert np.array_equal(kernel(x.astype(np.float32)), scan(x, axis=1))
    # rows in one transfer each way, eight of them side by side on a partition
    assert kernel.source.count("dma_copy") == 2
    assert "x_tile = nl.ndarray((128, 8, 6)" in numbers_of(kernel)


def test_a_first_value_that_no_turn_computes_stands_apart() -> None:
    x = RNG.standard_normal((130, 6)).astype(np.float32)
    text = "S[r, 0] = 2 * X[r, 0]\nS[r, t] = 0.5 * S[r, t-1] + X[r, t]"
    expected = [2.0 * x[:, 0]]
    for t in range(1, 6):
        expected.append(0.5 * expected[-1] + x[:, t])
    assert np.allclose(einsum.compile(text, shapes={"X": x.shape})(x), np.array(expected).T, rtol=1e-6)


FORWARD = """
F[0, b, s] = P[b, s]
F[t+1, b, j] = log(sum(exp(F[t, b, s]) * A[s, j], s)) + E[t, b, j]
Y[b, j] = F[T, b, j]
"""


def test_a_turn_that_takes_two_functions_loads_no_tables() -> None:
    """An exponential of 48 columns is a power, which needs none: two loads of 1.3 us a turn are saved."""
    sizes = {"T": 32, "B": 32, "S": 48, "J": 48}
    kernel = einsum.compile(FORWARD, sizes=sizes)
    assert "nl.power" in kernel.source
    assert "op=nl.exp" not in kernel.source
    assert kernel.estimate.latency_us < 32 * 2.65
    small = einsum.compile(FORWARD, sizes={"T": 3, "B": 4, "S": 6, "J": 6})
    p, e = RNG.standard_normal((4, 6)), RNG.standard_normal((3, 4, 6))
    p[0, 1] = -np.inf
    a = RNG.uniform(0.1, 1, (6, 6))
    expected = p
    for t in range(3):
        expected = np.log(np.exp(expected) @ a) + e[t]
    result = small(P=p.astype(np.float32), A=a.astype(np.float32), E=e.astype(np.float32))
    assert np.allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_a_wide_tile_keeps_its_function_on_scalar_engine() -> None:
    text = "Y[b, n] = log(exp(X[b, n]) + 1) * sigmoid(X[b, n])"
    assert "nl.power" not in einsum.compile(text, shapes={"X": (1024, 8192)}).source


def test_a_number_times_a_column_is_a_column() -> None:
    text = (
        "A[t, h] = exp(-8 * softplus(L[h]) * R[t, h])\nS[0, h] = 0\nS[t+1, h] = A[t, h] * S[t, h] + R[t, h]"
    )
    kernel = einsum.compile(text, sizes={"T": 256, "H": 128}, outputs=["S"])
    assert not any("PLANNED ANOTHER WAY" in change for change in kernel.changes)


@pytest.mark.parametrize("step", ["max(V[t, b, s] + A[s, j], s)", "max(V[t, b, s] + A[j, s], s)"])
def test_a_turn_reduces_what_lies_side_by_side_in_parts(step: str) -> None:
    """Sums and largest values along a stride take twice as long; engines share what comes in parts."""
    text = f"V[0, b, s] = P[b, s]\nV[t+1, b, j] = {step} + E[t, b, j]\nY[b, j] = V[T, b, j]"
    sizes = {"T": 16, "B": 128, "S": 32, "J": 32}
    kernel = einsum.compile(text, sizes=sizes)
    assert ".ap(" not in kernel.source.partition("tensor_reduce")[2].partition("axis=2")[0]
    # VectorE takes 1.07 us for the 1024 elements of a turn, GpSimdE as long beside it
    assert kernel.estimate.latency_us < 16 * 2.4 + 15
    p, a, e = (
        RNG.standard_normal((128, 32)),
        RNG.standard_normal((32, 32)),
        RNG.standard_normal((16, 128, 32)),
    )
    a[3] = -np.inf
    expected = p
    for t in range(16):
        pairs = expected[:, :, None] + (a if "A[s, j]" in step else a.T)[None]
        expected = pairs.max(1) + e[t]
    result = kernel(P=p.astype(np.float32), A=a.astype(np.float32), E=e.astype(np.float32))
    assert np.allclose(result, expected, rtol=1e-5, atol=1e-4)


def test_states_of_chunks_lie_as_their_products_read_them() -> None:
    text = """
    S[0, h, p, n] = 0
    S[t+1, h, p, n] = A[t, h] * S[t, h, p, n] + X[t, h, p] * B[t, n]
    Y[t, h, p] = C[t, n] * S[t+1, h, p, n]
    """
    kernel = einsum.compile(text, sizes={"T": 512, "H": 4, "P": 64, "N": 32}, outputs=["Y"])
    assert "s_states_tile = nl.ndarray((32, 4, 64)" in numbers_of(kernel)
