"""Turns that sum over all turns before them are solved in chunks, by products."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.language.ast import Cascade
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.rewrite.live import live
from nkilab.einsum.rewrite.recurrences import with_scans
from nkilab.einsum.rewrite.substitution import with_substitutions

SOLVED = """
einsum:
  declaration: {{L: [I, J], B: [I, N], S: [I, N]{equation}, X: [I, N]}}
  expressions:
    - iterate: i
      body:
        - "S[i, n] = L[i, j] . X[j, n] ;; M mul V add if {before} else 0"
{rest}
  shape: {{I: {turns}, J: {turns}, N: {columns}}}
"""
TERM = ", T: [I, N]"
DIVIDED = [
    "T[i, n] = B[i, n] . S[i, n] ;; M sub",
    "D[i] = L[i, i] ;; M unary(reciprocal)",
    "X[i, n] = T[i, n] . D[i] ;; M mul",
]
QUOTIENT = ["D[i] = L[i, i]", "X[i, n] = T[i, n] . D[i] ;; M divide"]
DIAGONAL = ", T: [I, N], D: [I]"


def solved(turns: int, columns: int, rest: list[str], equation: str, before: str = "j < i") -> str:
    """A specification of a recurrence over all turns before."""
    lines = "\n".join(f'        - "{line}"' for line in rest)
    return SOLVED.format(turns=turns, columns=columns, rest=lines, equation=equation, before=before)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("turns", "columns", "dialect"),
    [(256, 1, "neuronxcc"), (40, 8, "nki"), (17, 3, "nki")],
)
def test_a_triangular_system_is_solved_whatever_lies_above_its_diagonal(
    turns: int, columns: int, dialect: str
) -> None:
    kernel = einsum.compile(solved(turns, columns, DIVIDED, DIAGONAL), dialect=dialect)
    rng = np.random.default_rng(5)
    matrix = np.tril(rng.normal(size=(turns, turns)) / turns, -1) + np.diag(rng.uniform(1, 2, turns))
    right = rng.normal(size=(turns, columns))
    lower_triangle = np.where(np.tri(turns, dtype=bool), matrix, np.nan).astype(np.float32)
    solution = kernel(lower_triangle, right.astype(np.float32))
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, right), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("rest", "equation", "sign"),
    [
        (["X[i, n] = B[i, n] . S[i, n] ;; M sub"], "", 1),
        (["T[i, n] = S[i, n] . B[i, n] ;; M sub", "X[i, n] = T[i, n] . const(-1) ;; M mul"], TERM, 1),
        (["T[i, n] = S[i, n] . B[i, n] ;; M add", "X[i, n] = T[i, n] . const(1) ;; M mul"], TERM, -1),
        (["T[i, n] = S[i, n] . const(-1) ;; M mul", "X[i, n] = T[i, n] . B[i, n] ;; M add"], TERM, 1),
    ],
)
def test_turns_combine_their_sum_in_any_order(rest: list[str], equation: str, sign: int) -> None:
    """x_i = b_i -+ sum of l_ij x_j over j < i, against the inverse of 1 +- L."""
    kernel = einsum.compile(solved(32, 4, rest, equation, "i > j"))
    rng = np.random.default_rng(6)
    matrix = np.tril(rng.normal(size=(32, 32)) / 8, -1)
    right = rng.normal(size=(32, 4))
    expected = np.linalg.solve(np.eye(32) + sign * matrix, right)
    solution = kernel(matrix.astype(np.float32), right.astype(np.float32))
    np.testing.assert_allclose(solution, expected, rtol=1e-3, atol=1e-4)


def in_chunks(text: str, partitions: int = 128) -> Cascade | None:
    """The cascade of a specification in chunks; None where it stays as it is."""
    cascade = spec_from(text).cascade
    ahead = live(with_scans(cascade)[0])[0]
    other = with_substitutions(ahead, partitions)
    return None if other is ahead else other


@pytest.mark.parametrize(("partitions", "length"), [(128, 128), (100, 64), (16, 16)])
def test_chunks_are_as_long_as_there_are_partitions(partitions: int, length: int) -> None:
    other = in_chunks(solved(256, 3, DIVIDED, DIAGONAL, "j <= i - 1"), partitions)
    assert other is not None
    assert other.shape("X") == (256 // length, length, 3)


def test_a_quotient_is_a_product_with_a_reciprocal() -> None:
    """(1 + L / 2) x = b / 2 for diagonals of 2: the same as (2 + L) x = b."""
    kernel = einsum.compile(solved(64, 1, ["T[i, n] = B[i, n] . S[i, n] ;; M sub", *QUOTIENT], DIAGONAL))
    assert any("sums over all turns before in chunks" in change for change in kernel.changes)
    rng = np.random.default_rng(9)
    matrix = np.tril(rng.normal(size=(64, 64)) / 32, -1) + 2 * np.eye(64)
    right = rng.normal(size=(64, 1))
    solution = kernel(matrix.astype(np.float32), right.astype(np.float32))
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, right), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("rest", "before"),
    [
        (["T[i, n] = S[i, n] . S[i, n] ;; M mul", "X[i, n] = T[i, n] . B[i, n] ;; M add"], "j < i"),
        (["T[i, n] = S[i, n] . B[i, n] ;; M max", "X[i, n] = T[i, n] . const(1) ;; M mul"], "j < i"),
        (["T[i, n] = S[i, n] . B[i, n] ;; M mul", "X[i, n] = T[i, n] . const(1) ;; M add"], "j < i"),
        (["T[i, n] = S[i, n] . const(1) ;; M mul", "X[i, n] = T[i, n] . B[i, n] ;; M add"], "j < i + 1"),
    ],
)
def test_what_is_no_system_stays_turn_by_turn(rest: list[str], before: str) -> None:
    """A square, a maximum, factors that differ by columns, a turn that reads itself."""
    assert in_chunks(solved(64, 4, rest, TERM, before)) is None


def test_turns_before_are_summed_by_products() -> None:
    kernel = einsum.compile(solved(256, 128, DIVIDED, DIAGONAL))
    assert any("sums over all turns before in chunks" in change for change in kernel.changes)
    # 256 turns one by one take 234 us by the timing model
    assert kernel.roofline.least_us < kernel.estimate.latency_us < 100
    assert not any("step by step" in change for change in kernel.changes)
