"""Transposed convolutions: sums over an image become sums over the filter, for each rest of the place."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum


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
