"""What is computed twice is computed once, whatever its variables are called; values stay as exact."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.language.ast import Cascade
from nkilab.einsum.rewrite.common import with_common_results, with_small_parts
from tests.einsum.test_derived import cascade_of

SIZES = {"N": 64, "C": 6, "K": 6, "M": 64}


def cascade_with(steps: list[str], tensors: str = "", outputs: str = "Z") -> Cascade:
    declared = f"X: N C, Y: N C, G: C, R: C, S: C, T: C, U: N C, V: N C, Z: N C, {tensors}".rstrip(", ")
    return cascade_of(declared, steps, outputs, SIZES)


def written(cascade: Cascade) -> list[str]:
    return [str(e) for e in cascade.einsums]


@pytest.mark.parametrize(
    "second",
    [
        "T[c] = X[n, c] ;; V add",
        # other names of both variables, of which one is summed over
        "T[k] = X[m, k] ;; V add",
    ],
)
def test_a_sum_under_other_names_is_read(second: str) -> None:
    other = with_common_results(
        cascade_with(["S[c] = X[n, c] ;; V add", second, "Z[n, c] = S[c] . T[c] . Y[n, c] ;; M mul"])
    )
    assert written(other) == ["S[c] = X[n, c] ;; V add", "Z[n, c] = S[c] . S[c] . Y[n, c] ;; M multiply"]
    assert "T" not in other.tensors


def test_operands_that_may_be_swapped_and_chains_are_compared() -> None:
    steps = [
        "U[n, c] = X[n, c] . Y[n, c] ;; M mul", "S[c] = U[n, c] ;; V add",
        "V[m, k] = Y[m, k] . X[m, k] ;; M mul", "T[k] = V[m, k] ;; V add",
        "Z[n, c] = S[c] . T[c] . U[n, c] ;; M mul",
    ]  # fmt: skip
    assert [e.name for e in with_common_results(cascade_with(steps)).einsums] == ["U", "S", "Z"]


@pytest.mark.parametrize(
    "second",
    [
        # what may not be swapped, another operator, another operand, an output whose axes it lacks
        "V[n, c] = Y[n, c] . X[n, c] ;; M sub",
        "V[n, c] = X[n, c] . Y[n, c] ;; M add",
        "V[n, c] = X[n, c] . X[n, c] ;; M sub",
        "V[n, c] = X[n, c] . Y[n, 0] ;; M sub",
        "V[n, c] = X[n, c] . Y[n, c] ;; M sub if c < 3 else 0",
    ],
)
def test_what_is_not_the_same_stays(second: str) -> None:
    cascade = cascade_with(
        ["U[n, c] = X[n, c] . Y[n, c] ;; M sub", second, "Z[n, c] = U[n, c] . V[n, c] ;; M mul"]
    )
    assert with_common_results(cascade) is cascade


def test_a_transposed_result_is_read_the_other_way_round() -> None:
    steps = ["U[n, c] = X[n, c] ;; M unary(exp)", "W[k, m] = X[m, k] ;; M unary(exp)",
             "Z[n, c] = U[n, c] . W[c, n] ;; M mul"]  # fmt: skip
    assert written(with_common_results(cascade_with(steps, "W: C N")))[1:] == [
        "Z[n, c] = U[n, c] . U[n, c] ;; M multiply"
    ]


def test_what_reads_beside_indices_reads_there_too() -> None:
    steps = ["U[n, c] = X[n, c] ;; M unary(exp)", "V[n, c] = X[n, c] ;; M unary(exp)",
             "Z[n, c] = U[n, c] . V[n - 1, c] . Y[n - 1, c + 1] ;; M mul"]  # fmt: skip
    (_, last) = written(with_common_results(cascade_with(steps)))
    assert last == "Z[n, c] = U[n, c] . U[n - 1, c] . Y[n - 1, c + 1] ;; M multiply"


def test_an_output_of_less_precision_is_not_computed_with() -> None:
    # of a mean of 100 bfloat16 has one and a half digits behind the point: the variance would be 2 % off
    kernel = einsum.compile(
        "M[c] = mean(X[n, c], n)\nV[c] = var(X[n, c], n)", shapes={"X": (300, 64)}, outputs=("M", "V"),
        dtypes={"X": "bfloat16", "M": "bfloat16", "V": "float32"},
    )  # fmt: skip
    x = (np.random.default_rng(0).standard_normal((300, 64)) + 100).astype(ml_dtypes.bfloat16)
    mean, variance = kernel(X=x.astype(np.float32))
    wanted = x.astype(float)
    assert np.abs(np.asarray(variance) / wanted.var(0) - 1).max() < 1e-4
    assert np.abs(np.asarray(mean, float) / wanted.mean(0) - 1).max() < 2**-8
    assert "V_sum1 is left out: others have its values" in kernel.changes


def test_small_operands_are_multiplied_before_large_ones() -> None:
    steps = ["U[n, c] = X[n, c] . R[c] ;; M mul", "Z[n, c] = U[n, c] . G[c] ;; M mul"]
    small = written(with_small_parts(cascade_with(steps)))[1:]
    assert small == ["Z_part[c] = R[c] . G[c] ;; M multiply", "Z[n, c] = X[n, c] . Z_part[c] ;; M multiply"]
    # operands of which one is as large stay, and so do those of other operators
    for steps in (["Z[n, c] = X[n, c] . Y[n, c] . G[c] ;; M mul"],
                  ["U[n, c] = X[n, c] . R[c] ;; M add", "Z[n, c] = U[n, c] . G[c] ;; M mul"]):  # fmt: skip
        cascade = cascade_with(steps)
        assert with_small_parts(cascade) is cascade


def test_a_single_row_behind_whole_blocks_is_the_last_one() -> None:
    # 257 rows are two blocks of partitions and one row, which is transposed apart
    kernel = einsum.compile("V[k] = var(P[q, k], q)", shapes={"P": (257, 128)})
    p = np.random.default_rng(4).standard_normal((257, 128)).astype(np.float32)
    assert np.abs(np.asarray(kernel(P=p)) / p.astype(float).var(0) - 1).max() < 1e-5
