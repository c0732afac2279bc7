"""Where results lie, in which pieces operands come, and what that is judged at."""

from __future__ import annotations

import numpy as np
import pytest

import nkilab.einsum
from nkilab.einsum.hardware import Hardware
from nkilab.einsum.tree.expr import ZERO, expr
from nkilab.einsum.tree.nodes import HBM, PSUM, SBUF, At, Buffer, Cut, Load, MatMul, View, all_of, upto
from nkilab.machine import MACHINES
from tests.einsum.test_batched import loaded, values

pytestmark = pytest.mark.corpus

TRN2 = MACHINES["trn2"]


def test_a_transfer_of_short_rows_costs_what_issues_its_descriptors() -> None:
    rows = Buffer("rows", (128, 32, 16), "bfloat16", SBUF)
    table = Buffer("table", (128, 32, 64), "bfloat16", HBM)
    part = View(table, (upto(128), upto(32), Cut(ZERO, expr(16))))
    # by hand: 128 * 32 pieces of 32 bytes, 1.05 ns each to issue, after 486 ns
    assert dict(Hardware(TRN2).times(Load(all_of(rows), part))) == {"dma": 486 + 4096 * 1.05}


@pytest.mark.parametrize(("apart", "columns"), [(1, 32), (4, 32), (4, 512)])
def test_weights_of_float32_that_lie_apart_load_longer_than_few_columns_take(
    apart: int, columns: int
) -> None:
    weights = Buffer("weights", (128, 128, apart), "float32", SBUF)
    stationary = View(weights, (upto(128), upto(128), At(ZERO)))
    moving, psum = (Buffer(n, (128, columns), "float32", m) for n, m in (("moving", SBUF), ("psum", PSUM)))
    spent = sum(ns for _, ns in Hardware(TRN2).times(MatMul(all_of(psum), stationary, all_of(moving), ())))
    # two halves, each of weights in two passes at 2.4 GHz, of neighbours 16 bytes apart half as fast
    loading = 2 * 2 * 128 / 2.4 * (2 if apart > 1 else 1)
    assert spent == pytest.approx(loading) if columns == 32 else spent > loading


def test_a_product_leaves_its_result_where_the_next_one_can_read_it() -> None:
    sizes = {"A": 8, "B": 64, "C": 64, "D": 32, "E": 48}
    kernel = nkilab.einsum.compile("abc,cbd,ade->ace", sizes=sizes)
    result, expected = values(kernel, "abc,cbd,ade->ace", (8, 64, 64), (64, 64, 32), (8, 32, 48))
    assert np.array_equal(result, expected)
    # with `a` on the partitions VectorE would multiply and add them up, with one instruction for each c
    assert "nisa.tensor_reduce(" not in kernel.source
    assert kernel.estimate.latency_us < 4 * kernel.roofline.least_us


@pytest.mark.corpus(drawn=False)
def test_the_order_of_four_factors_is_tried() -> None:
    kernel = nkilab.einsum.compile("ijkl,jr,kr,lr->ir", sizes={**dict.fromkeys("IJKL", 32), "R": 16})
    shapes = ((32, 32, 32, 32), (32, 16), (32, 16), (32, 16))
    result, expected = values(kernel, "ijkl,jr,kr,lr->ir", *shapes)
    assert np.array_equal(result, expected)
    assert any("which factors of Z go first" in line for line in (*kernel.changes, *kernel.alternatives))


@pytest.mark.corpus(drawn=False)
def test_rows_come_whole_of_which_a_loop_reads_short_pieces() -> None:
    text = """
    Y[b, p, q, k] = X[b, 4*p + r, 4*q + s, c] . F[r, s, c, k] ;; M mul V add
    M[b, p, q] = Y[b, p, q, k] ;; V add
    Z[b, p, q, k] = Y[b, p, q, k] . M[b, p, q] ;; M binary(subtract)
    """
    sizes = {"B": 4, "H": 128, "W": 128, "C": 3, "K": 32, "P": 32, "Q": 32, "R": 4, "S": 4}
    shapes = {"X": (4, 128, 128, 3), "F": (4, 4, 3, 32)}
    kernel = nkilab.einsum.compile(text, sizes={k: sizes[k] for k in "PQRS"}, shapes=shapes)
    rng = np.random.default_rng(7)
    x, f = (rng.integers(-2, 3, s).astype(np.float32) for s in shapes.values())
    y = np.einsum("bprqsc,rsck->bpqk", x.reshape(4, 32, 4, 32, 4, 3), f)
    assert np.array_equal(np.asarray(kernel(F=f, X=x)), y - y.sum(3, keepdims=True))
    # by the piece there would be one of each row of the filter for every q
    assert loaded(kernel) < sizes["R"] * sizes["Q"] / 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_an_innermost_batch_comes_with_whole_rows_of_a_block_of_the_result(dtype: str) -> None:
    sizes = {"I": 256, "J": 256, "K": 128, "C": 64}
    kernel = nkilab.einsum.compile("ikc,jkc->ijc", sizes=sizes, dtypes=dtype)
    assert kernel.estimate.latency_us < 5 * kernel.roofline.least_us
    small = nkilab.einsum.compile(
        "ikc,jkc->ijc", sizes={"I": 256, "J": 128, "K": 32, "C": 16}, dtypes="float32"
    )
    result, expected = values(small, "ikc,jkc->ijc", (256, 32, 16), (128, 32, 16))
    assert np.array_equal(result, expected)


def test_values_that_the_moving_operand_alone_has_are_columns_of_one_product() -> None:
    sizes = {"S": 64, "I": 8, "J": 32, "A": 32, "B": 32}
    kernel = nkilab.einsum.compile("sia,sjb->ijab", sizes=sizes)
    result, expected = values(kernel, "sia,sjb->ijab", (64, 8, 32), (64, 32, 32))
    assert np.array_equal(result, expected)
    program = kernel.estimate.program
    products = sum(program.forms[f].name == "nc_matmul" for f in program.form_column)
    # one product of 512 columns for 16 values of j
    assert products <= sizes["I"] * sizes["J"] / 16


@pytest.mark.corpus(drawn=False)
def test_sums_with_a_filter_per_channel_stay_on_chip_for_the_next_product() -> None:
    text = """
    Y[b, c, p, q] = X[b, c, p + r, q + s] . F[c, r, s] ;; M mul V add
    Z[b, k, p, q] = Y[b, c, p, q] . G[k, c] ;; M mul V add
    """
    shapes = {"X": (2, 128, 34, 34), "F": (128, 3, 3), "G": (64, 128)}
    kernel = nkilab.einsum.compile(text, sizes={"P": 32, "Q": 32}, shapes=shapes, dtypes="bfloat16")
    assert any("numbers of rows on diagonals of matrices" in change for change in kernel.changes)
    assert "y_scratch" not in kernel.source
    # the matrices are the same for both images
    assert kernel.source.count("dst=f_diagonal") == 1
    assert all(verdict.is_fine for verdict in kernel.verify())


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_windows_that_do_not_overlap_are_rows_of_a_matrix(dialect: str) -> None:
    shapes, sizes = {"X": (2, 64, 64, 3), "F": (4, 4, 3, 24)}, {"P": 16, "Q": 16, "R": 4, "S": 4}
    text = "Z[b, p, q, k] = X[b, 4*p + r, 4*q + s, c] . F[r, s, c, k] ;; M mul V add"
    kernel = nkilab.einsum.compile(text, sizes=sizes, shapes=shapes, dialect=dialect)
    rng = np.random.default_rng(7)
    x, f = (rng.integers(-2, 3, s).astype(np.float32) for s in shapes.values())
    expected = np.einsum("bprqsc,rsck->bpqk", x.reshape(2, 16, 4, 16, 4, 3), f)
    assert np.array_equal(np.asarray(kernel(F=f, X=x)), expected)
    assert any(sentence.startswith("windows as rows of a matrix") for sentence in kernel.changes)


def test_blocks_of_a_result_lie_behind_each_other_whichever_variable_is_on_the_partitions() -> None:
    # 35 p for 6 a: p lies on the partitions, and its elements side by side
    rng = np.random.default_rng(5)
    x, w, v = (rng.normal(size=shape) for shape in ((3, 6, 71), (71, 35), (3, 1)))
    kernel = nkilab.einsum.compile(
        "Y[m, 35*a + p] = X[m, a, c] * W[c, p]\nY[m, 210 + q] = V[m, q]",
        shapes={"X": x.shape, "W": w.shape, "V": v.shape, "Y": (3, 211)},
    )
    products = np.einsum("mac,cp->map", x, w).reshape(3, 210)
    np.testing.assert_allclose(kernel(X=x, W=w, V=v), np.concatenate([products, v], 1), atol=1e-4)
