"""Transposed convolutions: sums over an image become sums over the filter, for each rest of the place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.language.ast import Cascade, Tensor
from nkilab.einsum.language.expressions import read_einsum
from nkilab.einsum.rewrite.bands import with_bands


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
