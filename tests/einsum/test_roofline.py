"""Rooflines of cascades against hand calculations."""

from __future__ import annotations

import pytest

from nkilab import einsum

ATTENTION = """
QK[m, p] = Q[e, p] . K[e, m] ;; M mul V add
G[p] = QK[m, p] ;; V max
SN[m, p] = QK[m, p] . G[p] ;; M binary(subtract_exp)
A[f, p] = SN[m, p] . V[m, f] ;; M mul V add
Z[f, p] = A[f, p] . half ;; M mul
"""


def test_attention_needs_transposes_and_passes_over_psum() -> None:
    p, m, e, f = 1024, 512, 128, 128
    kernel = einsum.compile(
        ATTENTION, sizes={"P": p, "M": m, "E": e, "F": f}, scalars={"half": 0.5}, dtypes="bfloat16"
    )
    times = kernel.roofline.times_ns
    # a column of TensorE per 1/2.4 ns: both products, then the transposes of SN
    products = p * m * (e + f) / (128 * 128) / 2.4
    assert times["tensor"] == pytest.approx(products)
    assert times["turned"] == pytest.approx(products + p * m / 128 / 2.4)
    # VectorE has the maximum, 0.96 per ns; ScalarE the exponentials, 1.2 per ns; either copies SN, scales A
    maximum, exponentials = p * m / 128 / 0.96, p * m / 128 / 1.2
    either = (p * m + f * p) / 128
    # VectorE copies two elements at once; both engines end together
    end = (either + maximum * 1.92 + exponentials * 1.2) / (1.92 + 1.2)
    assert maximum < end
    assert times["psum"] == pytest.approx(end)
    assert kernel.estimate.latency_us >= kernel.roofline.least_us


def test_without_a_reduction_before_it_no_operand_is_turned() -> None:
    kernel = einsum.compile(
        "T[m, p] = Q[e, p] . K[e, m] ;; M mul V add\nS[m, p] = T[m, p] ;; M unary(relu)\n"
        "Z[f, p] = S[m, p] . V[m, f] ;; M mul V add",
        sizes={"P": 256, "M": 256, "E": 128, "F": 128},
    )
    assert kernel.roofline.times_ns["turned"] == 0


def test_products_of_three_count_in_their_cheapest_order() -> None:
    kernel = einsum.compile(
        "Z[i, r] = A[i, j, k] . B[j, r] . C[k, r] ;; M mul V add",
        sizes={"I": 64, "J": 128, "K": 256, "R": 16}, dtypes="bfloat16",
    )  # fmt: skip
    # k first leaves 128 products per i and r, j first would leave 256
    products = 64 * 128 * 256 * 16 + 64 * 128 * 16
    assert kernel.roofline.times_ns["tensor"] == pytest.approx(products / (128 * 128) / 2.4)
    assert kernel.estimate.latency_us >= kernel.roofline.least_us
