"""Windows with zeros around them, and indices that run backwards, against NumPy in both spellings."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from nkilab import einsum
from nkilab.errors import UnsupportedError
from tests.einsum.numbers import numbers_of

pytestmark = pytest.mark.corpus

dialects = pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
CONVOLUTION = "Z[b, k, p, q] = X[b, c, p + r - 1, q + s - 1] . F[k, c, r, s] ;; M mul V add"
STEM = "Z[b, k, p, q] = X[b, c, 2*p + r - 3, 2*q + s - 3] . F[k, c, r, s] ;; M mul V add"


def whole(seed: int, *shape: int) -> np.ndarray:
    """Small whole numbers, which float32 sums exactly."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def convolved(x: np.ndarray, f: np.ndarray) -> np.ndarray:
    """A convolution with a row of zeros around its input."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = padded.shape[2] - f.shape[2] + 1, padded.shape[3] - f.shape[3] + 1
    sums = np.zeros((x.shape[0], f.shape[0], rows, columns))
    for r, s in product(range(f.shape[2]), range(f.shape[3])):
        window = padded[:, :, r : r + rows, s : s + columns]
        sums += np.einsum("bcpq,kc->bkpq", window, f[:, :, r, s])
    return sums


@dialects
def test_rows_that_do_not_fit_on_chip_have_zeros_beyond_their_edges(dialect: str) -> None:
    # five rows of 15,002 elements of float32 are 300,040 bytes of the 212,984 that a partition has
    x, f = whole(0, 1, 2, 3, 15000), whole(1, 2, 2, 3, 3)
    sizes = {"P": 3, "Q": 15000}
    kernel = einsum.compile(CONVOLUTION, shapes={"X": x.shape, "F": f.shape}, sizes=sizes, dialect=dialect)
    assert "X: copied with zeros around it, as it is read beyond its edges" in kernel.changes
    assert np.array_equal(kernel(x, f), convolved(x, f))


@dialects
def test_a_filter_for_each_channel_reads_zeros_beyond_edges(dialect: str) -> None:
    # one nest needs all images of a channel at once, of 44 x 44: 123,904 bytes; no band leaves elements out
    x, f = whole(0, 16, 17, 40, 40), whole(1, 17, 3, 3)
    text = "Z[b, c, p, q] = X[b, c, p + 2*r - 2, q + 2*s - 2] . F[c, r, s] ;; M mul V add"
    sizes = {"P": 40, "Q": 40}
    kernel = einsum.compile(text, shapes={"X": x.shape, "F": f.shape}, sizes=sizes, dialect=dialect)
    assert "X: copied with zeros around it, as it is read beyond its edges" in kernel.changes
    padded, expected = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2))), np.zeros(x.shape)
    for r, s in product(range(0, 5, 2), range(0, 5, 2)):
        expected += padded[:, :, r : r + 40, s : s + 40] * f[:, r // 2, s // 2][:, None, None]
    assert np.array_equal(kernel(x, f), expected)


@dialects
def test_one_filter_is_a_stack_of_one_column(dialect: str) -> None:
    x, f = whole(0, 1, 3, 20), whole(1, 1, 3, 3)
    text, sizes = "Z[b, k, p] = X[b, c, p + r - 1] . F[k, c, r] ;; M mul V add", {"P": 20}
    kernel = einsum.compile(text, shapes={"X": x.shape, "F": f.shape}, sizes=sizes, dialect=dialect)
    assert "f_stack" in kernel.source
    padded = np.pad(x[0], ((0, 0), (1, 1)))
    expected = [[np.sum(padded[:, p : p + 3] * f[0]) for p in range(20)]]
    assert np.array_equal(kernel(x, f)[0], expected)


@dialects
def test_results_are_zero_beyond_their_edges(dialect: str) -> None:
    text = """
    Y[b, k, h, w] = X[b, c, h + r - 1, w + s - 1] . F[k, c, r, s] ;; M mul V add
    Z[b, l, h, w] = Y[b, k, h + r - 1, w + s - 1] . G[l, k, r, s] ;; M mul V add
    """
    x, f, g = whole(0, 2, 3, 8, 7), whole(1, 4, 3, 3, 3), whole(2, 5, 4, 3, 3)
    sizes = {"H": 8, "W": 7}
    kernel = einsum.compile(
        text, shapes={"X": x.shape, "F": f.shape, "G": g.shape}, sizes=sizes, dialect=dialect
    )
    assert np.array_equal(kernel(x, f, g), convolved(convolved(x, f), g))


@dialects
def test_a_transposed_convolution_reads_backwards(dialect: str) -> None:
    text = "Z[b, k, p, q] = X[b, c, p - r, q - s] . F[c, k, r, s] ;; M mul V add"
    x, f = whole(0, 2, 3, 8, 7), whole(1, 3, 4, 3, 2)
    sizes = {"P": 10, "Q": 8}
    kernel = einsum.compile(text, shapes={"X": x.shape, "F": f.shape}, sizes=sizes, dialect=dialect)
    expected = np.zeros((2, 4, 10, 8))
    for r, s in product(range(3), range(2)):
        expected[:, :, r : r + 8, s : s + 7] += np.einsum("bchw,ck->bkhw", x, f[:, :, r, s])
    assert np.array_equal(kernel(x, f), expected)


@dialects
@pytest.mark.parametrize("shape", [(9,), (9, 7), (3, 130, 4)])
def test_an_axis_is_turned_round(dialect: str, shape: tuple[int, ...]) -> None:
    names = ["n", "m", "l"][: len(shape)]
    indices = ", ".join(["N - n - 1", *names[1:]])
    text = f"Y[{', '.join(names)}] = X[{', '.join(names)}] ;; M unary(relu)\n"
    text += f"Z[{', '.join(names)}] = Y[{indices}] . X[{', '.join(names)}] ;; M add"
    x = whole(0, *shape)
    kernel = einsum.compile(text, shapes={"X": x.shape}, dialect=dialect)
    assert np.array_equal(kernel(x), np.maximum(x, 0)[::-1] + x)


@dialects
def test_numpy_convolves_alike(dialect: str) -> None:
    x, f = whole(0, 50), whole(1, 5)
    text, sizes = "Z[p] = X[p - r] . F[r] ;; M mul V add", {"P": 54}
    kernel = einsum.compile(text, shapes={"X": x.shape, "F": f.shape}, sizes=sizes, dialect=dialect)
    assert np.array_equal(kernel(x, f), np.convolve(x, f))


@pytest.mark.parametrize(
    ("text", "x", "f", "p", "q", "dtype"),
    [
        (STEM, (1, 3, 224, 224), (64, 3, 7, 7), 112, 112, "float32"),
        (CONVOLUTION, (1, 300, 90, 90), (8, 300, 3, 3), 90, 90, "float32"),
        (CONVOLUTION, (1, 1, 9, 1031), (8, 1, 3, 3), 9, 1031, "bfloat16"),
    ],
    ids=["stem", "many channels", "one channel"],
)
def test_padded_windows_of_any_size_are_proved(
    text: str, x: tuple[int, ...], f: tuple[int, ...], p: int, q: int, dtype: str
) -> None:
    kernel = einsum.compile(text, shapes={"X": x, "F": f}, sizes={"P": p, "Q": q}, dtypes=dtype)
    assert any(proof.startswith("every element of Z is stored") for proof in kernel.proofs)


def test_what_cannot_run_forwards_is_refused_where_it_stands() -> None:
    text = "Z[p] = X[p - r] . F[r - s, s] ;; M mul V add"
    with pytest.raises(UnsupportedError, match=r"the index p - r of X runs backwards"):
        einsum.compile(text, sizes={"P": 9, "R": 3}, shapes={"X": (8,), "F": (3, 2)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 0 beyond the edge, also beside -inf; what lies between is left out
        ("U[0, i] = X[i]\nU[t+1, i] = max(U[t, 2*i + 1], U[t, i])", [-1.0, *[0.0] * 7]),
        (
            "U[0, i] = X[i] if i > 0 else -inf\nU[t+1, i] = max(U[t, i + 1], U[t, i])",
            [-5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 0.0, 0.0],
        ),
        # a sum over a window of the state, and one over all of what neighbours gave
        (
            "U[0, i] = X[i]\nV[t, i] = U[t, i + r] * F[r]\nU[t+1, i] = V[t, i]",
            [-52.0, -44.0, -36.0, -28.0, -20.0, -12.0, -5.0, -1.0],
        ),
        (
            "U[0, i] = X[i]\nV[t, i] = U[t, i + 1]\nN[t] = max(V[t, i], i)\nU[t+1, i] = V[t, i] - N[t]",
            [-5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 0.0, 0.0],
        ),
    ],
)  # fmt: skip
def test_what_a_turn_reads_beyond_edges_of_what_it_computes_is_zero(text: str, expected: list[float]) -> None:
    """X is -8 .. -1, and there are three turns; the windows are the binomials 1 3 3 1, worked out by hand."""
    extra = {"F": np.ones(2)} if "F[" in text else {}
    kernel = einsum.compile(
        f"{text}\nZ[i] = U[T, i]",
        sizes={"I": 8, "T": 3},
        outputs=["Z"],
        shapes={n: a.shape for n, a in extra.items()},
    )
    assert list(kernel(X=np.arange(8.0) - 8, **extra)) == expected


@dialects
def test_columns_of_a_filter_share_the_partitions_with_its_rows(dialect: str) -> None:
    """Seven columns, at most six at once: what is read beyond a window counts nowhere, not even NaN."""
    x, f = whole(0, 1, 3, 20, 22), whole(1, 8, 3, 7, 7)
    text = "Z[b, k, p, q] = X[b, c, 2*p + r - 1, 2*q + s - 1] . F[k, c, r, s] ;; M mul V add"
    sizes = {"P": 8, "Q": 8}
    kernel = einsum.compile(text, shapes={"X": x.shape, "F": f.shape}, sizes=sizes, dialect=dialect)
    assert re.search(r"f_stack = nl\.ndarray\(\((nl\.par_dim\()?21\)?, 8, 7\)", numbers_of(kernel))
    # the last window ends at column 19
    x[..., 20:] = np.nan
    padded, expected = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), np.zeros((1, 8, 8, 8))
    for r, s in product(range(7), range(7)):
        expected += np.einsum("bcpq,kc->bkpq", padded[:, :, r : r + 16 : 2, s : s + 16 : 2], f[:, :, r, s])
    assert np.array_equal(kernel(x, f), expected)


@dialects
@pytest.mark.parametrize("text", [
    "Z[m, k] = A[I[m], k - 1]",
    "Z[m, k] = A[I[m], k + 2] . A[m, k] ;; M mul",
    "Z[k] = A[I[m], k - 1] ;; V max",
    "B[n, k] = A[n, k] ;; M exp\nZ[m, k] = B[I[m], k + 1]",
])  # fmt: skip
def test_rows_that_are_chosen_have_zeros_beyond_their_edges(text: str, dialect: str) -> None:
    kernel = einsum.compile(text, shapes={"A": (7, 6), "I": (5,)}, sizes={"K": 6}, dialect=dialect)
    rng = np.random.default_rng(0)
    values = {"A": rng.standard_normal((7, 6), np.float32), "I": np.array([6, 0, 3, 3, 1], np.int32)}
    inputs = [values[name] for name in kernel.inputs]
    np.testing.assert_allclose(kernel(*inputs), kernel.reference(*inputs), atol=1e-6)
