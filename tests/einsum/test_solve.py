"""Turns that sum over all turns before them are solved in blocks, most of the sums on TensorE."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from nkilab import api, einsum
from tests.chips import SIZES, write_odd_chip
from tests.einsum.numbers import numbers_of

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


def solved(turns: int, columns: int, rest: list[str], equation: str, before: str = "j < i") -> str:
    """A specification of a recurrence over all turns before."""
    lines = "\n".join(f'        - "{line}"' for line in rest)
    return SOLVED.format(turns=turns, columns=columns, rest=lines, equation=equation, before=before)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("turns", "columns", "dialect"),
    [(64, 8, "nki"), (256, 1, "neuronxcc"), (256, 256, "nki"), (40, 8, "nki"), (64, 130, "nki")],
)
def test_a_triangular_system_is_solved_whatever_lies_above_its_diagonal(
    turns: int, columns: int, dialect: str
) -> None:
    kernel = einsum.compile(solved(turns, columns, DIVIDED, ", T: [I, N], D: [I]"), dialect=dialect)
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
    kernel = einsum.compile(solved(64, 4, rest, equation, "i > j"))
    rng = np.random.default_rng(6)
    matrix = np.tril(rng.normal(size=(64, 64)) / 8, -1)
    right = rng.normal(size=(64, 4))
    expected = np.linalg.solve(np.eye(64) + sign * matrix, right)
    solution = kernel(matrix.astype(np.float32), right.astype(np.float32))
    np.testing.assert_allclose(solution, expected, rtol=1e-3, atol=1e-4)
    assert re.search("for i_strip in range", kernel.source)


def test_turns_before_are_summed_by_products() -> None:
    kernel = einsum.compile(solved(256, 128, DIVIDED, ", T: [I, N], D: [I]"))
    # two blocks of 128 turns: a product for each block before, and one for each of its four strips
    assert "for i_strip in range(4)" in numbers_of(kernel)
    assert any(change.startswith("S: over blocks of turns before on TensorE") for change in kernel.changes)


def test_a_system_of_thousands_fits_on_chip() -> None:
    kernel = einsum.compile(solved(2048, 512, DIVIDED, ", T: [I, N], D: [I]"))
    assert "for i_strip in range(4)" in numbers_of(kernel)


@pytest.mark.corpus(drawn=False)
def test_a_search_of_a_blocked_solve_is_no_slower_than_its_rules() -> None:
    text = solved(256, 8, DIVIDED, ", T: [I, N], D: [I]")
    rules, searched = einsum.compile(text), einsum.compile(text, search=0.3)
    assert searched.estimate.latency_us <= rules.estimate.latency_us


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_blocks_have_as_many_turns_as_the_chip_has_partitions(dialect: str, tmp_path: Path) -> None:
    turns, chip = 2 * SIZES["partitions"], write_odd_chip(tmp_path)
    text = solved(turns, turns // 2, DIVIDED, ", T: [I, N], D: [I]")
    kernel = einsum.compile(text, dialect=dialect, target=chip)
    assert re.search(r"for i_block in (nl\.sequential_)?range\(2\)", numbers_of(kernel))
    rng = np.random.default_rng(7)
    matrix = np.tril(rng.normal(size=(turns, turns)) / turns, -1) + np.diag(rng.uniform(1, 2, turns))
    right = rng.normal(size=(turns, turns // 2))
    with api.chosen(target=chip):
        solution = kernel(matrix.astype(np.float32), right.astype(np.float32))
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, right), rtol=1e-4, atol=1e-4)


def test_what_a_turn_makes_of_its_sum_is_one_instruction_where_one_has_both_operators() -> None:
    rest = ["T[i, n] = S[i, n] . const(-1) ;; M mul", "X[i, n] = T[i, n] . B[i, n] ;; M add"]
    source = einsum.compile(solved(64, 4, rest, TERM)).source
    # (S * -1) + B for the first turn of a strip, and for the others
    assert source.count("scalar_tensor_tensor(") == 2
