"""Ranks joined behind windows and before readers, by views in HBM; channels innermost; trials worth it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum import timed
from nkilab.einsum.language.ast import Cascade, Kind, Tensor
from nkilab.einsum.language.expressions import read_einsum
from nkilab.einsum.plan.context import Plan, Planner
from nkilab.einsum.plan.knobs import Knobs
from nkilab.einsum.rewrite.bands import with_bands
from nkilab.einsum.rewrite.batch_order import with_rows_behind_scales, with_windows_last
from nkilab.einsum.rewrite.repeated import with_repeated_operands
from nkilab.einsum.rewrite.splits import with_split_ranks
from nkilab.einsum.rewrite.views import with_matrices_between, with_views
from nkilab.einsum.rewrite.window_rows import with_overlapping_rows, with_windows_as_rows
from nkilab.einsum.tree.nodes import Kernel

pytestmark = pytest.mark.corpus

LAST = "Z[p, q, c] = X[p + r, q + s, c] . F[r, s, c] ;; M mul V add"
PATCHES = "Z[p, q, k] = X[c, 4*p + r, 4*q + s] . F[k, c, r, s] ;; M mul V add"


def cascade_of(tensors: dict[str, str], steps: list[str], **sizes: int) -> Cascade:
    """A cascade whose last tensor is returned."""
    declared = {name: Tensor(name, tuple(ranks.split())) for name, ranks in tensors.items()}
    return Cascade(declared, tuple(map(read_einsum, steps)), ([*tensors][-1],), sizes=sizes)


def whole_numbers(*shape: int) -> np.ndarray:
    """Small whole numbers, which bfloat16 holds and float32 sums exactly."""
    return np.random.default_rng(len(shape)).integers(-2, 3, shape).astype(np.float32)


def windows_last(x: np.ndarray, f: np.ndarray) -> np.ndarray:
    """A convolution of each channel by itself, channels innermost, as its definition has it."""
    p, q = x.shape[0] - f.shape[0] + 1, x.shape[1] - f.shape[1] + 1
    taps = [(r, s) for r in range(f.shape[0]) for s in range(f.shape[1])]
    return sum((x[r : r + p, s : s + q] * f[r, s] for r, s in taps), np.zeros((p, q, x.shape[2])))


def test_what_reads_a_convolution_has_one_long_index() -> None:
    cascade = cascade_of(
        {"X": "C H W", "F": "C R", "D": "C P Q", "Y": "C P Q", "Z": "C P Q"},
        ["D[c, p, q] = X[c, p + r, q] . F[c, r] ;; M mul V add", "Y[c, p, q] = D[c, p, q] ;; M unary(exp)",
         "Z[c, p, q] = Y[c, p, q] . X[c, p + 1, q] ;; M add"],
        C=128, H=14, W=10, R=3, P=12, Q=10,
    )  # fmt: skip
    result = with_views(cascade, 128)
    assert [str(e) for e in result.einsums] == [
        "X_part[c, p, q] = X[c, p + 1, q]",
        "X_rows[c, 10*p + q] = X_part[c, p, q]",
        "D[c, p, q] = X[c, p + r, q] . F[c, r] ;; M multiply V add",
        "D_rows[c, 10*p + q] = D[c, p, q]",
        "Y[c, pq] = D_rows[c, pq] ;; M exp",
        "Z[c, pq] = Y[c, pq] . X_rows[c, pq] ;; M add",
    ]
    assert [t for t, derived in result.derived.items() if derived.kind is Kind.VIEW] == ["D_rows", "X_rows"]


def test_a_convolution_alone_stays_as_it_is() -> None:
    cascade = cascade_of(
        {"X": "C H", "F": "C R", "Z": "C P"},
        ["Z[c, p] = X[c, p + r] . F[c, r] ;; M mul V add"], C=8, H=14, R=3, P=12,
    )  # fmt: skip
    assert with_views(cascade, 128) is cascade


def test_an_outer_product_is_read_as_a_matrix() -> None:
    cascade = cascade_of(
        {"A": "S I C", "B": "S J D", "W": "C D K", "O": "I J C D", "Z": "I J K"},
        ["O[i, j, c, d] = A[s, i, c] . B[s, j, d] ;; M mul V add",
         "Z[i, j, k] = O[i, j, c, d] . W[c, d, k] ;; M mul V add"],
        S=16, I=6, J=5, C=4, D=3, K=7,
    )  # fmt: skip
    # 12 rows of 30 values, as W and Z have them: one product of matrices reads them
    assert [str(e) for e in with_matrices_between(cascade, 128).einsums] == [
        "O[c, d, i, j] = A[s, i, c] . B[s, j, d] ;; M multiply V add",
        "O_rows[3*c + d, 5*i + j] = O[c, d, i, j]",
        "Z[ij, k] = O_rows[cd, ij] . W[cd, k] ;; M multiply V add",
    ]


def test_a_product_that_is_one_of_matrices_stays_as_it_is() -> None:
    cascade = cascade_of(
        {"A": "M K", "B": "K N", "C": "M N", "Z": "M N"},
        ["C[m, n] = A[m, k] . B[k, n] ;; M mul V add", "Z[m, n] = C[m, n] ;; M unary(exp)"], M=6, K=5, N=4,
    )  # fmt: skip
    assert with_matrices_between(cascade, 128) is cascade


def test_frames_are_rows_of_one_view_in_which_neighbours_are_last() -> None:
    cascade = cascade_of(
        {"X": "L", "C": "F N", "D": "F N", "R": "T F", "Z": "T F"},
        ["R[t, f] = X[4*t + n] . C[f, n] ;; M mul V add", "Z[t, f] = X[4*t + n] . D[f, n] ;; M mul V add"],
        L=36, F=5, N=8, T=8,
    )  # fmt: skip
    assert [str(e) for e in with_overlapping_rows(cascade).einsums] == [
        "X_windows[t, n] = X[4*t + n]",
        "R[t, f] = X_windows[t, n] . C[f, n] ;; M multiply V add",
        "Z[t, f] = X_windows[t, n] . D[f, n] ;; M multiply V add",
    ]


def test_both_factors_may_be_rows_that_overlap() -> None:
    step = "Z[i, j] = X[i + t] . X[3*j + t] ;; M mul V add"
    cascade = cascade_of({"X": "L", "Z": "I J"}, [step], L=36, I=7, J=6, T=20)
    assert [str(e) for e in with_overlapping_rows(cascade).einsums] == [
        "X_windows[t, i] = X[i + t]",
        "X_windows_[j, t] = X[3*j + t]",
        "Z[i, j] = X_windows[t, i] . X_windows_[j, t] ;; M multiply V add",
    ]


@pytest.mark.parametrize(
    ("index", "order"), [("t + n", "n, t"), ("t + 3*n", "n, t"), ("2*t + n", "t, n"), ("2*t + 3*n", "n, t")]
)
def test_the_index_of_the_smaller_step_is_that_of_neighbours(index: str, order: str) -> None:
    step = f"Z[t, f] = X[{index}] . C[f, n] ;; M mul V add"
    cascade = cascade_of({"X": "L", "C": "F N", "Z": "T F"}, [step], L=60, F=5, N=8, T=8)
    assert str(with_overlapping_rows(cascade).einsums[0]) == f"X_windows[{order}] = X[{index}]"


@pytest.mark.parametrize(
    "step",
    [
        "Z[t, f] = X[4*t + n] . C[f, n] ;; M mul V max",  # is no sum
        "Z[t] = X[4*t + n] . X[n] ;; M mul V add",  # is no product of matrices
    ],
)
def test_what_is_no_product_of_frames_stays_as_it_is(step: str) -> None:
    ranks = {"X": "L", "C": "F N", "Z": "T F" if "f" in step else "T"}
    cascade = cascade_of(ranks, [step], L=36, F=5, N=8, T=8)
    assert with_overlapping_rows(cascade) is cascade


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_frames_are_multiplied_by_tensor_engine_and_copied_nowhere(dialect: str) -> None:
    x, c = whole_numbers(2, 659), whole_numbers(33, 100)
    text = "Z[b, t, f] = X[b, 4*t + n] . C[f, n] ;; M mul V add"
    kernel = einsum.compile(
        text, shapes={"X": x.shape, "C": c.shape}, sizes={"T": 140}, dtypes="bfloat16", dialect=dialect
    )
    frames = np.lib.stride_tricks.sliding_window_view(x, 100, axis=1)[:, : 4 * 140 : 4]
    # sums of whole numbers below 256 are themselves in bfloat16
    assert np.array_equal(np.asarray(kernel(C=c, X=x), np.float32), frames @ c.T)
    assert "private_hbm" not in kernel.source
    assert "nc_matmul" in kernel.source
    assert kernel.estimate.latency_us < 30.0


def test_windows_stand_apart_from_the_rows_that_they_are() -> None:
    cascade = cascade_of(
        {"X": "C H W", "F": "K C R S", "Z": "P Q K"}, [PATCHES], C=3, H=20, W=12, K=8, R=4, S=4, P=5, Q=3
    )
    rows = with_windows_as_rows(cascade, 128)
    # the image is cut as its windows are; the rows, which are a view, are not
    assert [str(e) for e in with_split_ranks(rows).einsums] == [
        "X_windows[p, q, c, r, s] = X[c, p, r, q, s]",
        "X_windows_rows[3*p + q, 16*c + 4*r + s] = X_windows[p, q, c, r, s]",
        "Z[pq, k] = X_windows_rows[pq, crs] . F[k, crs] ;; M multiply V add",
    ]


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_channels_innermost_lie_on_partitions(dialect: str) -> None:
    x, f = whole_numbers(20, 21, 96), whole_numbers(5, 5, 96)
    sizes = {"P": 16, "Q": 17}
    wide = einsum.compile(LAST, shapes={"X": x.shape, "F": f.shape}, sizes=sizes, dialect=dialect)
    narrow = einsum.compile(LAST, shapes={"X": x.shape, "F": f.shape}, sizes=sizes, dtypes="bfloat16",
                            dialect=dialect)  # fmt: skip
    # a multiplication and an addition go together where each partition has one number of the filter
    assert "scalar_tensor_tensor" in wide.source
    assert "f_diagonal" in narrow.source
    assert np.array_equal(wide(x, f), windows_last(x, f))
    # 25 products of numbers up to 2 are at most 100 together
    assert np.array_equal(np.asarray(narrow(x, f), np.float32), windows_last(x, f))


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_patches_are_rows_of_one_matrix(dialect: str) -> None:
    x, f = whole_numbers(3, 40, 48), whole_numbers(20, 3, 4, 4)
    kernel = einsum.compile(
        PATCHES, shapes={"X": x.shape, "F": f.shape}, sizes={"P": 10, "Q": 12}, dialect=dialect
    )
    patches = x.reshape(3, 10, 4, 12, 4)
    assert np.array_equal(kernel(x, f), np.einsum("cprqs,kcrs->pqk", patches, f))
    # 120 patches as columns of one product, not 12 of each of 10 rows, are tried at least
    assert any(each.startswith("windows as rows of a matrix") for each in kernel.alternatives)


def test_rows_of_windows_come_last_in_results() -> None:
    cascade = cascade_of(
        {"X": "H W C", "F": "R S C K", "Z": "P Q K"},
        ["Z[p, q, k] = X[p + r, q + s, c] . F[r, s, c, k] ;; M mul V add"],
        H=9, W=8, C=4, R=3, S=3, K=5, P=7, Q=6,
    )  # fmt: skip
    assert [str(e) for e in with_windows_last(cascade).einsums] == [
        "Z_batches[k, p, q] = X[p + r, q + s, c] . F[r, s, c, k] ;; M multiply V add",
        "Z[p, q, k] = Z_batches[k, p, q]",
    ]


def test_few_rows_are_columns_beside_the_scales_of_a_block() -> None:
    cascade = cascade_of(
        {"X": "M K", "W": "K N", "S": "B N", "Y": "M N"},
        ["Y[m, n] = X[m, 8*b + i] . W[8*b + i, n] . S[b, n] ;; M mul V add"],
        M=4, K=24, B=3, N=20, I=8,
    )  # fmt: skip
    assert [str(e) for e in with_rows_behind_scales(cascade, 16).einsums] == [
        "X_batches[k0, k1, m] = X[m, k1, k0]",
        "S_batches[n, b] = S[b, n]",
        "Y_batches[n, m] = X_batches[i, b, m] . W[b, i, n] . S_batches[n, b] ;; M multiply V add",
        "Y[m, n] = Y_batches[n, m]",
    ]
    assert with_rows_behind_scales(cascade, 15) is cascade


def test_zeros_around_a_block_are_made_on_chip() -> None:
    x = whole_numbers(6, 7, 8)
    kernel = einsum.compile(
        "Y[i, j, k] = X[i-1, j, k] + X[i+1, j, k] + X[i, j-1, k] + X[i, j+1, k]"
        " + X[i, j, k-1] + X[i, j, k+1]",
        shapes={"X": x.shape, "Y": x.shape},
    )
    wide = np.pad(x, 1)
    around = [np.roll(wide, step, axis)[1:-1, 1:-1, 1:-1] for axis in range(3) for step in (-1, 1)]
    assert np.array_equal(kernel(x), sum(around, np.zeros(x.shape)))
    # the block once with zeros around rows and columns, and once from each row of partitions beside it
    assert kernel.source.count("src=X") == 3
    assert "private_hbm" not in kernel.source


def test_what_is_plainly_slower_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = {"X": (3, 64, 64), "F": (32, 3, 7, 7), "Z": (32, 29, 29)}
    text = "Z[k, p, q] = X[c, 2*p + r, 2*q + s] . F[k, c, r, s] ;; M mul V add"
    usual, begin = einsum.compile(text, shapes=shapes), timed.Timed.__init__

    def with_dear_others(self: timed.Timed, built: Planner, latency: timed.Measure, *rest: Any) -> None:
        price, proved, trees = *rest, list[Kernel]()

        def noted(knobs: Knobs) -> Plan:
            plan = built(knobs)
            trees.append(plan[0])
            return plan

        begin(self, noted, latency, lambda tree: price(tree) * (1.0 if tree is trees[0] else 1000.0), proved)

    monkeypatch.setattr(timed.Timed, "__init__", with_dear_others)
    unseen = einsum.compile(text, shapes=shapes)
    assert unseen.alternatives
    assert not any(line.endswith(" by the timing model") for line in unseen.changes)
    assert all(timed.BUSIEST in line for line in unseen.alternatives)
    assert any(timed.BUSIEST not in line for line in usual.alternatives)


def test_small_results_are_repeated_as_inputs_are() -> None:
    cascade = cascade_of(
        {"A": "N M", "G": "N M", "X": "B H N M", "Z": "B H N M"},
        ["G[n, m] = A[n, m] ;; M unary(exp)", "Z[b, h, n, m] = G[n, m] . X[b, h, n, m] ;; M mul"],
        B=16, H=4, N=8, M=8,
    )  # fmt: skip
    assert "G_repeated[8*h + n, m] = G[n, m]" in [str(e) for e in with_repeated_operands(cascade).einsums]


def test_bands_of_filters_of_two_axes_come_in_runs_of_the_axis_that_moves() -> None:
    cascade = cascade_of(
        {"W": "A B", "S": "I J", "C": "P Q"},
        ["C[p, q] = W[a, b] . S[p + a, q + b] ;; M mul V add"],
        A=6, B=11, I=133, J=138, P=128, Q=128,
    )  # fmt: skip
    assert "W_part[b, a] = W[a, b]" in [str(e) for e in with_bands(cascade, 128).einsums]


def test_ranks_are_split_early_where_an_operand_has_a_part_of_them_alone() -> None:
    sizes = {"H": 8, "G": 2, "R": 4, "J": 5}
    tensors = {"Q": "H J", "K": "G J", "S": "H J"}
    heads = cascade_of(tensors, ["S[4*g + r, j] = Q[4*g + r, j] . K[g, j] ;; M mul"], **sizes)
    assert [len(e.output.indices) for e in with_split_ranks(heads, are_shared=True).einsums][:1] == [3]
    # windows that are put back have all parts of their places
    windows = cascade_of({"W": "G R J", "O": "H J"}, ["O[4*g + r, j] = W[g, r, j]"], **sizes)
    assert with_split_ranks(windows, are_shared=True) is windows
