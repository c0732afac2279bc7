"""Transposed convolutions as sums over the filter, and sums over windows as products with bands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.language.ast import Cascade, Tensor
from nkilab.einsum.language.expressions import read_einsum
from nkilab.einsum.reference import evaluate
from nkilab.einsum.rewrite.bands import with_bands, with_bands_of_ones
from tests.einsum.test_views import cascade_of, whole_numbers


def spread(image: np.ndarray, weights: np.ndarray, step: int, before: int, places: int) -> np.ndarray:
    """What each element of an image adds, times a filter, to the places from its own on."""
    result = np.zeros((step * len(image) + len(weights) + places, weights.shape[2]))
    for q, row in enumerate(image):
        for k, matrix in enumerate(weights):
            result[step * q + k] += row @ matrix
    return result[before : before + places]


# step and length of the filter, places before the first, places in all: rests that no filter reaches, too
@pytest.mark.parametrize(
    ("step", "length", "before", "places"),
    [(2, 4, 0, 22), (2, 3, 1, 19), (3, 7, 2, 29), (3, 2, 0, 30), (1, 5, 0, 14)],
)
def test_a_transposed_convolution_sums_over_its_filter(
    step: int, length: int, before: int, places: int
) -> None:
    rng = np.random.default_rng(step * length)
    image, weights = rng.normal(size=(10, 6)), rng.normal(size=(length, 6, 5))
    shapes = {"X": image.shape, "W": weights.shape, "Y": (places, 5)}
    kernel = einsum.compile(f"Y[p, o] = X[q, c] * W[p + {before} - {step}*q, c, o]", shapes=shapes)
    expected = spread(image, weights, step, before, places)
    np.testing.assert_allclose(kernel(X=image, W=weights), expected, atol=1e-5)
    # a multiplication for each element of the filter and of the image, and what edges and rests leave
    assert kernel.roofline.times_ns["tensor"] <= 3 * times_of(10 * length * 6 * 5)


def test_rests_of_a_transposed_convolution_leave_in_rows() -> None:
    rng = np.random.default_rng(7)
    image, weights = rng.normal(size=(2, 5, 10)), rng.normal(size=(5, 6, 4))
    kernel = einsum.compile(
        "Y[n, o, p] = X[n, c, q] * W[c, o, p - 2*q]",
        shapes={"X": image.shape, "W": weights.shape, "Y": (2, 6, 22)},
    )
    expected = [spread(one.T, weights.transpose(2, 0, 1), 2, 0, 22).T for one in image]
    np.testing.assert_allclose(kernel(X=image, W=weights), expected, atol=1e-5)
    stores = [line for line in kernel.source.splitlines() if "dst=Y" in line]
    # both rests lie between each other on chip; sums take the filter backwards where it lies
    assert stores
    assert not [line for line in stores if ":2" in line]
    assert "private_hbm" not in kernel.source


def times_of(products: int) -> float:
    """Nanoseconds of TensorE at 128 * 128 products per column of 1/2.4 ns, in four passes."""
    return 4 * products / (128 * 128) / 2.4


def test_a_filter_longer_than_its_image_stays_as_it_is() -> None:
    shapes = {"X": (3, 6), "W": (40, 6, 5), "Y": (44, 5)}
    kernel = einsum.compile("Y[p, o] = X[q, c] * W[p - 2*q, c, o]", shapes=shapes)
    assert kernel.roofline.times_ns["tensor"] == pytest.approx(times_of(44 * 3 * 6 * 5))


# places, elements of the filter; places that blocks divide, a prime number of them, fewer than of the filter
@pytest.mark.parametrize(("places", "length"), [(96, 40), (131, 33), (40, 90)])
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_a_long_filter_is_a_product_with_a_band(places: int, length: int, dialect: str) -> None:
    rng = np.random.default_rng(places)
    signal, weights = rng.normal(size=(3, places + length - 1)), rng.normal(size=length)
    kernel = einsum.compile(
        "Y[m, i] = sum(X[m, i + k] * W[k], k)",
        shapes={"X": signal.shape, "W": weights.shape}, sizes={"I": places}, dialect=dialect,
    )  # fmt: skip
    expected = [np.correlate(row, weights, "valid") for row in signal]
    np.testing.assert_allclose(kernel(X=signal, W=weights), expected, atol=1e-4)
    assert "nc_matmul" in kernel.source
    assert kernel.source.count("in range(") + kernel.source.count("static_range(") < 8


def test_a_band_has_the_filter_again_in_each_row_moved_on_by_one() -> None:
    ranks = {"X": Tensor("X", ("L",)), "W": Tensor("W", ("K",)), "Y": Tensor("Y", ("I",))}
    sizes = {"L": 163, "K": 64, "I": 100}
    steps = (read_einsum("Y[i] = X[i + k] . W[k] ;; M mul V add"),)
    # of rows and blocks 100 and 2 * 100 have a divisor nearest to 14 below: 10
    assert [str(e) for e in with_bands(Cascade(ranks, steps, ("Y",), sizes=sizes), 128).einsums] == [
        "W_windows[i_row, k_band] = W[k_band - i_row]",
        "Y[i_block, i_row] = X[10*i_block + k_band] . W_windows[i_row, k_band] ;; M multiply V add",
    ]


# of U[t - s] and K[s], of a window that moves on by three, backwards, of a part of the filter, of channels
@pytest.mark.parametrize(
    ("text", "shapes", "expected"),
    [
        (
            "Y[t] = sum(K[t - s] * U[s], s)",
            {"K": (70,), "U": (70,), "Y": (70,)},
            lambda k, u: np.convolve(k, u)[:70],
        ),
        (
            "Y[i] = sum(X[3*i + r] * W[r + 2], r)",
            {"X": (150,), "W": (44,), "Y": (40,)},
            lambda x, w: np.correlate(np.pad(x, (0, 50)), w[2:], "valid")[:120:3],
        ),
        (
            "Y[i] = sum(T[s - i + 39] * X[s], s)",
            {"T": (109,), "X": (70,), "Y": (40,)},
            lambda t, x: np.correlate(t, x, "valid")[::-1],
        ),
        (
            "Y[t, d] = sum(K[t - s, d] * U[s, d], s) * U[t, d]",
            {"K": (70, 3), "U": (70, 3)},
            lambda k, u: np.stack([np.convolve(a, b)[:70] for a, b in zip(k.T, u.T, strict=True)], 1) * u,
        ),
        (
            "Y[y, x] = sum(X[y + r, x + s] * W[r, s], r, s)",
            {"X": (20, 72), "W": (3, 33), "Y": (18, 40)},
            lambda x, w: np.einsum("yxrs,rs->yx", np.lib.stride_tricks.sliding_window_view(x, w.shape), w),
        ),
    ],
)
def test_bands_go_whichever_way_a_window_does(
    text: str, shapes: dict[str, tuple[int, ...]], expected: Callable[..., np.ndarray]
) -> None:
    rng = np.random.default_rng(len(text))
    inputs = {n: rng.normal(size=shape) for n, shape in shapes.items() if n != "Y"}
    sizes = {"R": 42} if "W[r + 2]" in text else {}
    kernel = einsum.compile(text, shapes=shapes, sizes=sizes)
    np.testing.assert_allclose(kernel(**inputs), expected(*inputs.values()), atol=1e-4)
    assert "nc_matmul" in kernel.source


@pytest.mark.parametrize(
    "step",
    [
        "Y[i] = X[i + k] . W[k] ;; M mul V max",  # is no sum
        "Y[i, j] = X[i + k] . W[k, j] ;; M mul V add",  # has columns enough
        "Y[i] = X[i + k, i] . W[k] ;; M mul V add",  # has a place elsewhere, too
        "Y[i] = X[i + 2*k] . W[k] ;; M mul V add",  # leaves elements out
    ],
)
def test_what_is_no_long_window_has_no_band(step: str) -> None:
    tensors = {
        "X": ("L", "I")[: 1 + ("k, i]" in step)],
        "W": ("K", "J")[: 1 + ("j" in step)],
        "Y": ("I", "J"),
    }
    ranks = {n: Tensor(n, r if n != "Y" or "j" in step else r[:1]) for n, r in tensors.items()}
    sizes = {"L": 300, "K": 64, "I": 100, "J": 64}
    cascade = Cascade(ranks, (read_einsum(step),), ("Y",), sizes=sizes)
    assert with_bands(cascade, 128) is cascade


def windows(x: np.ndarray, axis: int, first: int, length: int, step: int = 1) -> np.ndarray:
    """Sums over windows of an axis, zero beyond its edges, with the first window beginning at `first`."""
    places = range(0, x.shape[axis], step)
    inside = [[n for n in range(p + first, p + first + length) if 0 <= n < x.shape[axis]] for p in places]
    return np.stack([x.take(own, axis).sum(axis) for own in inside], axis)


# forwards and backwards, of squares, of products scaled, over strides, of two axes, beyond an end
@pytest.mark.parametrize(
    ("step", "tensors", "expected"),
    [
        ("Z[c, p] = X[c + r - 2, p] ;; V add", "X: C P, Z: C P", lambda x: windows(x, 0, -2, 5)),
        ("Z[c, p] = X[c - r, p] ;; V add", "X: C P, Z: C P", lambda x: windows(x, 0, -4, 5)),
        ("Z[c, p] = X[c + r - 2, p] ;; M square V add", "X: C P, Z: C P", lambda x: windows(x**2, 0, -2, 5)),
        ("Z[c, p] = X[c - r, p] . U[c - r, p] . 3 ;; M mul V add", "X: C P, U: C P, Z: C P",
         lambda x, u: 3 * windows(x * u, 0, -4, 5)),
        ("Z[c, p] = X[2*c + r - 1, p] ;; V add", "X: D P, Z: C P", lambda x: windows(x, 0, -1, 5, 2)),
        ("Z[c, p] = X[c + r - 3, p + q - 1] ;; V add", "X: C P, Z: C P",
         lambda x: windows(windows(x, 0, -3, 5), 1, -1, 3)),
        ("Z[b, c, p] = X[b, c + r + 40, p] ;; V add", "X: B C P, Z: B C P",
         lambda x: windows(x, 1, 40, 5)),
    ],
)  # fmt: skip
def test_sums_over_windows_are_products_with_bands_of_ones(
    step: str, tensors: str, expected: Callable[..., np.ndarray]
) -> None:
    declared = dict(tensor.split(": ") for tensor in tensors.split(", "))
    cascade = cascade_of(declared, [step], B=2, C=42, D=84, P=6, R=5, Q=3)
    other = with_bands_of_ones(cascade, 64)
    assert [e.is_product for e in other.einsums][-1]
    assert not any("r" in i.variables for e in other.einsums for i in e.indices)
    arrays = {t: whole_numbers(*cascade.shape(t)) for t in cascade.inputs}
    assert np.array_equal(evaluate(other, arrays)["Z"], expected(*arrays.values()))


@pytest.mark.parametrize(
    ("step", "sizes"),
    [
        ("Z[c, p] = X[c + r - 2, p] ;; V max", {}),  # is no sum
        ("Z[c, p] = X[c + r - 2, p] ;; M exp V add", {}),  # has ones beyond an edge
        ("Z[c, p] = X[c + 2*r, p] ;; V add", {}),  # leaves elements out
        ("Z[c, p] = X[c + r, c] ;; V add", {}),  # has a place elsewhere, too
        ("Z[c, p] = X[c + r, p] . U[r, p] ;; M mul V add", {}),  # has numbers of its own for each element
        ("Z[c, p] = X[c + r, p] . 3 ;; M add V add", {}),  # adds a number as often as it has elements
        ("Z[c, p] = X[c + r, p] ;; V add", {"C": 31}),  # would leave half of the partitions empty
        ("Z[c, p] = X[c + r, p] ;; V add", {"R": 2}),  # is a sum of two
    ],
)
def test_what_is_no_window_of_ones_on_partitions_stays_as_it_is(step: str, sizes: dict[str, int]) -> None:
    tensors = {"X": "D P", "Z": "C P"} | ({"U": "R P"} if "U[" in step else {})
    cascade = cascade_of(tensors, [step], **{"C": 42, "D": 50, "P": 42, "R": 5, **sizes})
    assert with_bands_of_ones(cascade, 64) is cascade


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 2.0**-20), ("bfloat16", 2.0**-8)])
def test_a_window_along_partitions_is_summed_by_tensor_engine(dtype: str, unit: float) -> None:
    """A norm over neighbouring channels copied its image with zeros around it, and loaded it for each."""
    text = "S[n, c, p] = sum(X[n, c + r - 2, p]**2, r)\nY[n, c, p] = X[n, c, p] * rsqrt(1 + S[n, c, p])"
    shape = (2, 96, 300)
    kernel = einsum.compile(text, shapes={"X": shape}, sizes={"R": 5}, dtypes={"X": dtype}, outputs=["Y"])
    assert "nc_matmul" in kernel.source
    assert "X_edged" not in kernel.source
    x = np.random.default_rng(3).integers(-8, 9, shape).astype(np.float32)
    expected = x / np.sqrt(1 + windows(x.astype(float) ** 2, 1, -2, 5))
    got = np.asarray(kernel(X=x), np.float64)
    np.testing.assert_allclose(got, expected, rtol=unit)
    assert all(verdict.is_fine for verdict in kernel.verify())
