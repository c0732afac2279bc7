"""Products that fill TensorE once they are packed, or in an order in which their ranks are matrices."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.reference import evaluate
from nkilab.einsum.rewrite.batch_order import with_collected_results
from nkilab.einsum.rewrite.factor_matrices import with_factor_matrices
from nkilab.einsum.rewrite.flattened import with_flat_products
from nkilab.einsum.rewrite.packed import with_packed_products
from tests.einsum.test_views import cascade_of, whole_numbers

pytestmark = pytest.mark.corpus

SOBEL = "S[n, h, w] = X[n, h-1, w+1] - X[n, h-1, w-1] + X[n, h+1, w]"


def test_small_matrices_lie_on_the_diagonal_of_one() -> None:
    cascade = cascade_of(
        {"X": "G C T", "W": "G O C", "Z": "G O T"}, ["Z[g, o, t] = X[g, c, t] . W[g, o, c] ;; M mul V add"],
        G=8, C=4, O=3, T=50,
    )  # fmt: skip
    # row 3*g + o has its columns where those of the sum begin at 4*h, for h = g alone
    assert [str(e) for e in with_packed_products(cascade, 32).einsums] == [
        "W_rows[3*g + o, c] = W[g, o, c]",
        "W_places[go_, g_column] = 1 if 3*g_column <= go_ else 0",
        "W_places_[go_, g_column] = W_places[go_, g_column] if go_ < 3*g_column + 3 else 0",
        "W_diagonal[go_, g_column, c] = W_rows[go_, c] . W_places_[go_, g_column] ;; M multiply",
        "W_packed[go_, 4*g_column + c] = W_diagonal[go_, g_column, c]",
        "Z[go, t] = X[g_summedc, t] . W_packed[go, g_summedc] ;; M multiply V add",
    ]


def test_what_fills_the_array_by_itself_is_not_packed() -> None:
    # two matrices of 33 rows do not go into an array of 64
    cascade = cascade_of(
        {"X": "G C T", "W": "G O C", "Z": "G O T"}, ["Z[g, o, t] = X[g, c, t] . W[g, o, c] ;; M mul V add"],
        G=8, C=4, O=33, T=99,
    )  # fmt: skip
    assert with_packed_products(cascade, 64) is cascade


@pytest.mark.parametrize(("columns", "is_packed"), [(24, False), (25, False), (48, True)])
def test_two_matrices_are_packed_where_they_are_small_beside_what_they_multiply(
    columns: int, is_packed: bool
) -> None:
    # a matrix has 24 x 20 elements, what it multiplies 20 for each column: twice as many from 48 on
    cascade = cascade_of(
        {"X": "G C T", "W": "G O C", "Z": "G O T"}, ["Z[g, o, t] = X[g, c, t] . W[g, o, c] ;; M mul V add"],
        G=2, C=20, O=24, T=columns,
    )  # fmt: skip
    assert (with_packed_products(cascade, 64) is not cascade) == is_packed


@pytest.mark.parametrize("ranks", ["O G C", "G C O", "C G O"])
def test_small_matrices_in_any_order_give_the_same_sums(ranks: str) -> None:
    indices = ", ".join(ranks.lower().split())
    cascade = cascade_of(
        {"X": "T G C", "W": ranks, "Z": "T G O"}, [f"Z[t, g, o] = X[t, g, c] . W[{indices}] ;; M mul V add"],
        G=6, C=4, O=3, T=50,
    )  # fmt: skip
    packed = with_packed_products(cascade, 32)
    assert [t for t in packed.tensors if t.endswith("_packed")]
    arrays = {t: whole_numbers(*cascade.shape(t)) for t in cascade.inputs}
    parts = {t: a.reshape(packed.shape(t)) for t, a in arrays.items()}
    expected = np.einsum(f"tgc,{indices.replace(', ', '')}->tgo", arrays["X"], arrays["W"])
    assert np.array_equal(evaluate(packed, parts)["Z"].reshape(expected.shape), expected)


def test_groups_in_nhwc_have_the_rows_of_their_windows_last() -> None:
    """A grouped convolution whose channels lie last took a product for each row of its image."""
    step = "Z[n, y, x, g, o] = X[n, y + r - 1, x + q - 1, g, c] * W[r, q, g, c, o]"
    shapes = {"X": (2, 12, 14, 4, 32), "W": (3, 3, 4, 32, 24)}
    kernel = einsum.compile(step, shapes=shapes, sizes={"Y": 12, "X": 14})
    assert "small products of a batch packed: " in kernel.report
    assert "results of windows with their rows last: " in kernel.report
    x, w = (np.random.default_rng(4).standard_normal(shape).astype(np.float32) for shape in shapes.values())
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0), (0, 0)))
    taps = [(r, q) for r in range(3) for q in range(3)]
    expected = sum(np.einsum("nyxgc,gco->nyxgo", wide[:, r : r + 12, q : q + 14], w[r, q]) for r, q in taps)
    assert np.abs(kernel(X=x, W=w) - expected).max() < 1e-3


@pytest.mark.parametrize(
    ("tensors", "step", "sizes", "last"),
    [
        ("X: C U, W: C R, Z: C T", "Z[c, t] = X[c, 2*t + r] . W[c, r]", {"C": 12, "U": 12}, "t + r]"),
        ("X: C U, W: C R, Z: T C", "Z[t, c] = W[c, r] . X[c, t - r]", {"C": 6, "U": 5}, "t, c_column]"),
        ("X: B G C U, W: G C R, Z: B G C T", "Z[b, g, c, t] = X[b, g, c, t + r] . W[g, c, r]",
         {"B": 2, "G": 3, "C": 4, "U": 7}, "g, c_column, t]"),
    ],
    ids=["blocks", "backwards", "groups"],
)  # fmt: skip
def test_numbers_of_rows_on_diagonals_of_matrices_give_the_same_sums(
    tensors: str, step: str, sizes: dict[str, int], last: str
) -> None:
    declared = dict(tensor.split(": ") for tensor in tensors.split(", "))
    cascade = cascade_of(declared, [f"{step} ;; M mul V add"], **sizes, R=3, T=5)
    other = with_factor_matrices(cascade, 8)
    *_, factors, product = other.einsums
    # a row and a column of the matrix, for each value of the window
    assert factors.name in product.reads
    assert last in str(product)
    arrays = {t: whole_numbers(*cascade.shape(t)) for t in cascade.inputs}
    parts = {t: a.reshape(other.shape(t)) for t, a in arrays.items()}
    expected, result = evaluate(cascade, arrays)["Z"], evaluate(other, parts)["Z"]
    assert np.array_equal(result.reshape(expected.shape), expected)


def test_a_batch_of_matrices_has_no_numbers_of_rows() -> None:
    for ranks, result, step in (
        ("B K N", "B M N", "Z[b, m, n] = X[b, m, k] . W[b, k, n]"),
        ("B K", "B M", "Z[b, m] = X[b, m, k] . W[b, k]"),
    ):
        declared = {"X": "B M K", "W": ranks, "Z": result}
        cascade = cascade_of(declared, [f"{step} ;; M mul V add"], B=4, K=5, M=6, N=7)
        assert with_factor_matrices(cascade, 8) is cascade


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_grouped_convolution_and_a_block_transform_have_the_values_of_their_definition(dtype: str) -> None:
    x, w = whole_numbers(36, 8, 258), whole_numbers(36, 8, 4, 3)
    kernel = einsum.compile(
        "Z[g, o, t] = X[g, c, t + r] * W[g, c, o, r]",
        shapes={"X": x.shape, "W": w.shape},
        sizes={"T": 256},
        dtypes=dtype,
    )
    assert "w_packed" in kernel.source
    expected = sum(np.einsum("gct,gco->got", x[:, :, r : r + 256], w[..., r]) for r in range(3))
    np.testing.assert_array_equal(np.asarray(kernel(X=x, W=w), np.float32), expected)
    c, image = whole_numbers(4, 4), whole_numbers(32, 16)
    kernel = einsum.compile(
        "Z[p, u, q, v] = C[u, i] * X[4*p + i, 4*q + j] * C[v, j]",
        shapes={"C": c.shape, "X": image.shape}, sizes={"P": 8, "Q": 4}, dtypes=dtype,
    )  # fmt: skip
    blocks = np.einsum("ui,piqj,vj->puqv", c, image.reshape(8, 4, 4, 4), c)
    exact = {"float32": 0.0, "bfloat16": 2.0**-7}[dtype]
    np.testing.assert_allclose(
        np.asarray(kernel(C=c, X=image), np.float32), blocks, rtol=exact, atol=exact * 8
    )


def test_operands_and_results_of_products_are_matrices() -> None:
    cascade = cascade_of(
        {"A": "I K J L", "B": "M L N K", "Z": "I M J N"},
        ["Z[i, m, j, n] = A[i, k, j, l] . B[m, l, n, k] ;; M mul V add"], I=3, J=4, K=5, L=6, M=7, N=8,
    )  # fmt: skip
    # B is the larger operand: its order of l and k holds for both
    assert [str(e) for e in with_flat_products(cascade, 128).einsums] == [
        "A_order[i, j, l, k] = A[i, k, j, l]",
        "A_order_matrix[4*i + j, 5*l + k] = A_order[i, j, l, k]",
        "B_order[m, n, l, k] = B[m, l, n, k]",
        "B_order_matrix[8*m + n, 5*l + k] = B_order[m, n, l, k]",
        "Z_matrix[ij, mn] = A_order_matrix[ij, lk] . B_order_matrix[mn, lk] ;; M multiply V add",
        "Z_axes[i, j, m, n] = Z_matrix[4*i + j, 8*m + n]",
        "Z[i, m, j, n] = Z_axes[i, j, m, n]",
    ]


def test_what_lies_between_products_goes_from_one_order_into_the_other_in_long_rows() -> None:
    cascade = cascade_of(
        {"X": "B P Q", "G": "P U I", "W": "Q U J", "A": "B Q U I", "Z": "B I J"},
        ["A[b, q, u, i] = X[b, p, q] . G[p, u, i] ;; M mul V add",
         "Z[b, i, j] = A[b, q, u, i] . W[q, u, j] ;; M mul V add"], B=64, P=3, Q=4, U=5, I=2, J=6,
    )  # fmt: skip
    # both products keep b, the longest, and i; q and u end with the second
    steps = [str(e) for e in with_flat_products(cascade, 128).einsums]
    assert "A_matrix[ui, qb] = X_order_matrix[p, qb] . G_matrix[p, ui] ;; M multiply V add" in steps
    assert "A_axes_order[q, u, i, b] = A_axes[u, i, q, b]" in steps
    assert "Z_matrix[ib, j] = A_axes_order_matrix[qu, ib] . W_matrix[qu, j] ;; M multiply V add" in steps


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_chain_of_products_over_small_ranks_fills_partitions_and_columns(dtype: str) -> None:
    spec = """
    A[b, q, r, u, i] = X[b, p, q, r] * F[p, i, u]
    C[b, r, v, i, j] = A[b, q, r, u, i] * G[u, q, j, v]
    Y[b, i, j, k] = relu(sum(C[b, r, v, i, j] * H[v, r, k], v, r))
    """
    shapes = {"X": (160, 2, 4, 3), "F": (2, 8, 5), "G": (5, 4, 8, 7), "H": (7, 3, 8)}
    kernel = einsum.compile(spec, shapes=shapes, dtypes=dtype)
    assert any(c.startswith("products of matrices") for c in kernel.changes)
    # what TensorE alone reads behind copies and views has its type in HBM
    assert re.search(rf"c_matrix_scratch = .*dtype=nl.{dtype}, buffer=nl.private_hbm", kernel.source)
    x, f, g, h = (whole_numbers(*shape) / 8 for shape in shapes.values())
    expected = np.maximum(np.einsum("bpqr,piu,uqjv,vrk->bijk", x, f, g, h, optimize=True), 0)
    limit = np.abs(expected).max() * {"float32": 1e-6, "bfloat16": 2.0**-6}[dtype]
    np.testing.assert_allclose(np.asarray(kernel(X=x, F=f, G=g, H=h), np.float32), expected, atol=limit)


def test_a_few_elements_between_those_of_the_other_operand_are_collected() -> None:
    declared = {"X": "C P", "W": "C O B", "Z": "O P B"}
    few = cascade_of(declared, ["Z[o, p, b] = X[c, p] . W[c, o, b] ;; M mul V add"], C=8, O=6, P=9, B=4)
    assert [str(e) for e in with_collected_results(few).einsums][1:] == ["Z[o, p, b] = Z_batches[o, p, b]"]
    many = cascade_of(declared, ["Z[o, p, b] = X[c, p] . W[c, o, b] ;; M mul V add"], C=8, O=6, P=9, B=16)
    assert with_collected_results(many) is many


def test_rows_behind_an_edge_are_loaded_and_not_transposed_to_partitions_behind_it() -> None:
    # PSUM is copied to partitions from 0, 32, 64 or 96 on; h - 1 has its first row on partition 1
    x = whole_numbers(2, 20, 24)
    kernel = einsum.compile(SOBEL, shapes={"X": x.shape}, sizes={"N": 2, "H": 20, "W": 24}, dtypes="bfloat16")
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    expected = padded[:, :-2, 2:] - padded[:, :-2, :-2] + padded[:, 2:, 1:-1]
    np.testing.assert_array_equal(np.asarray(kernel(X=x), np.float32), expected)
