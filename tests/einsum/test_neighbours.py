"""Products of what lies near places as products of blocks of places; comparisons there, and frames."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.reference import evaluate
from nkilab.einsum.rewrite.neighbours import with_neighbours_as_products
from tests.einsum.test_views import cascade_of, whole_numbers


def near(k: np.ndarray, y: int, x: int) -> np.ndarray:
    """What lies at two places of the last axes of an array, zero beyond its edges."""
    inside = 0 <= y < k.shape[-2] and 0 <= x < k.shape[-1]
    return k[..., y, x] if inside else np.zeros(k.shape[:-2])


SIZES = {"B": 2, "Y": 5, "X": 7, "I": 3, "J": 4, "D": 9}


# blocks of 8 places end in the midst of a row; one of 128 has all
@pytest.mark.parametrize("partitions", [8, 128])
# two axes; channels in front, steps, places and what moves them in another order; back along one axis alone
@pytest.mark.parametrize(
    ("ranks", "output", "index", "steps"),
    [
        ("B Y X D", "B Y X I J", "b, y + i - 1, x + j - 2, d", ((1, -1), (1, -2))),
        ("B D Y X", "B I Y J X", "b, d, y + 2*i - 1, x + 3*j", ((2, -1), (3, 0))),
        ("D Y X B", "J B Y X I", "d, y - i, x - 2*j + 1, b", ((-1, 0), (-2, 1))),
    ],
)
def test_products_with_neighbours_that_are_kept_are_diagonals_of_blocks(
    ranks: str, output: str, index: str, steps: tuple[tuple[int, int], ...], partitions: int
) -> None:
    here = ", ".join(ranks.lower().split())
    step = f"Z[{', '.join(output.lower().split())}] = Q[{here}] . K[{index}] ;; M mul V add"
    cascade = cascade_of({"Q": ranks, "K": ranks, "Z": output}, [step], **SIZES)
    other = with_neighbours_as_products(cascade, partitions)
    assert [e.is_product for e in other.einsums].count(True) == 1
    q, k = (whole_numbers(*cascade.shape(t)) for t in "QK")
    order = [ranks.split().index(r) for r in "BDYX"]
    (dy, y0), (dx, x0) = steps
    expected = np.zeros([SIZES[r] for r in "BYXIJ"])
    for y, x, i, j in np.ndindex(5, 7, 3, 4):
        neighbours = near(k.transpose(order), y + dy * i + y0, x + dx * j + x0)
        expected[:, y, x, i, j] = (q.transpose(order)[..., y, x] * neighbours).sum(1)
    expected = expected.transpose(["BYXIJ".index(r) for r in output.split()])
    assert np.array_equal(evaluate(other, {"Q": q, "K": k})["Z"], expected)


@pytest.mark.parametrize("partitions", [8, 128])
def test_sums_over_neighbours_are_products_with_diagonals(partitions: int) -> None:
    step = "Z[y, d, b, x] = V[b, d, y + i - 1, x + j - 2] . P[y, i, j, b, x] ;; M mul V add"
    cascade = cascade_of({"V": "B D Y X", "P": "Y I J B X", "Z": "Y D B X"}, [step], **SIZES)
    other = with_neighbours_as_products(cascade, partitions)
    v, p = (whole_numbers(*cascade.shape(t)) for t in "VP")
    expected = np.zeros((5, 9, 2, 7))
    for y, x, i, j in np.ndindex(5, 7, 3, 4):
        expected[y, :, :, x] += near(v, y + i - 1, x + j - 2).T * p[y, i, j, :, x]
    assert np.array_equal(evaluate(other, {"V": v, "P": p})["Z"], expected)
    assert [e.is_product for e in other.einsums].count(True) == 1


@pytest.mark.parametrize(
    ("step", "sizes"),
    [
        ("Z[b, y, i] = Q[b, y, d] . K[b, y + i, d] ;; M mul V add", {"D": 7}),  # sums a few numbers
        ("Z[b, y, i] = Q[b, y, d] . K[b, 2*y + i, d] ;; M mul V add", {}),  # leaves places out
        ("Z[b, y, i] = Q[b, y, d] . K[y, y + i, d] ;; M mul V add", {}),  # has a place elsewhere, too
        ("Z[b, y, i] = Q[b, y, d] . K[b, y + i, d] ;; M add V add", {}),  # is no product
        ("Z[b, i, d] = Q[b, y, d] . K[b, y + i, d] ;; M mul V add", {}),  # sums over places
        ("Z[b, y, d] = P[b, y, i] . K[b, y + 2*i, d] ;; M mul V add", {}),  # would leave gaps
        ("Z[b, y, d] = P[b, y, i + 1] . K[b, y + i, d] ;; M mul V add", {}),  # has a part of the window
    ],
)
def test_other_products_stay_as_they_are(step: str, sizes: dict[str, int]) -> None:
    tensors = {"K": "B Y D", "Z": "B I D" if "i, d] =" in step else "B Y I" if "i] =" in step else "B Y D"}
    tensors |= {"P": "B Y I"} if "P[" in step else {"Q": "B Y D"}
    cascade = cascade_of(tensors, [step], **{**SIZES, **sizes})
    assert with_neighbours_as_products(cascade, 128) is cascade


ATTENTION = """S[h, y, x, i, j] = sum(Q[h, y, x, d] * K[h, y+i-2, x+j-1, d], d)
M[h, y, x, i, j] = S[h, y, x, i, j] if 0 <= y+i-2 < Y and 0 <= x+j-1 < X else -inf
P[h, y, x, i, j] = softmax(M[h, y, x, i, j], i, j)
O[h, y, x, d] = sum(P[h, y, x, i, j] * V[h, y+i-2, x+j-1, d], i, j)"""


def test_attention_to_neighbours_is_two_products() -> None:
    rng, shape = np.random.default_rng(5), (2, 11, 20, 16)
    q, k, v = rng.normal(size=(3, *shape))
    kernel = einsum.compile(
        ATTENTION, shapes=dict.fromkeys(("Q", "K", "V", "O"), shape), sizes={"I": 5, "J": 3}, outputs=["O"]
    )
    assert "_diagonals" in kernel.source
    assert not [change for change in kernel.changes if "PLANNED ANOTHER WAY" in change]
    expected = np.zeros(shape)
    for h, y, x in np.ndindex(2, 11, 20):
        rows, columns = slice(max(y - 2, 0), y + 3), slice(max(x - 1, 0), x + 2)
        weights = np.exp(k[h, rows, columns] @ q[h, y, x])
        expected[h, y, x] = np.tensordot(weights / weights.sum(), v[h, rows, columns], 2)
    np.testing.assert_allclose(kernel(Q=q, K=k, V=v), expected, atol=1e-4)


def test_frames_of_a_signal_lie_in_rows_where_they_are_read() -> None:
    rng = np.random.default_rng(3)
    signal, window, weights = (
        rng.normal(size=(2, 16 * 139 + 40)),
        rng.normal(size=40),
        rng.normal(size=(40, 21)),
    )
    kernel = einsum.compile(
        "F[b, t, n] = X[b, 16*t + n] * W[n]\nY[b, t, f] = sum(F[b, t, n] * C[n, f], n)",
        shapes={"X": signal.shape, "W": (40,), "C": (40, 21), "Y": (2, 140, 21)}, outputs=["Y"],
    )  # fmt: skip
    # rows of 40 elements, 16 apart, on the partitions
    assert "[[16, " in kernel.source
    frames = np.lib.stride_tricks.sliding_window_view(signal, 40, axis=1)[:, ::16]
    np.testing.assert_allclose(kernel(X=signal, W=window, C=weights), frames * window @ weights, atol=1e-3)


def test_numbers_without_axes_are_no_frames() -> None:
    kernel = einsum.compile(
        "Y[] = sum(A[k] * B[k], k)\nX[] = sum(A[k], k)\nZ[] = Y[] * X[]", sizes={"K": 7}, outputs=["Z"]
    )
    a, b = np.arange(7.0), np.arange(7.0)[::-1]
    # 35 and 21
    assert kernel(A=a, B=b) == 735
