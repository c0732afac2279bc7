"""What windows make of their elements once, sums of two filters one after the other, and whole bands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.language.ast import Cascade
from nkilab.einsum.reference import evaluate
from nkilab.einsum.rewrite.bands import with_whole_bands
from nkilab.einsum.rewrite.window_elements import with_elements_once
from tests.einsum.test_views import cascade_of, whole_numbers

SIZES = {"B": 2, "Y": 40, "X": 9, "R": 5, "S": 3, "D": 80, "L": 200}


def images(steps: list[str], tensors: dict[str, str] | None = None, **sizes: int) -> Cascade:
    """A cascade over images X and U with filters G and H, whose last tensor is returned."""
    written = {
        step.split("[")[0]: step.split("]")[0].split("[")[1].upper().replace(",", "") for step in steps
    }
    inputs = tensors or {"X": "B Y X", "U": "B Y X", "G": "R", "H": "S", "L": "B L X", "C": "X", "F": "R S"}
    return cascade_of(inputs | written, steps, **SIZES | sizes)


def filtered(x: np.ndarray, weights: np.ndarray, axis: int, first: int, step: int = 1) -> np.ndarray:
    """Sums over a filter that begins at `first` of each place of an axis, with zeros beyond its edges."""
    size = x.shape[axis]
    padded = np.pad(
        x, [(len(weights), step * size + len(weights)) if n == axis else (0, 0) for n in range(x.ndim)]
    )
    places = len(weights) + first + step * np.arange(-(-size // step))
    return sum(w * padded.take(places + k, axis) for k, w in enumerate(weights))


# squares of a window, of two windows, a product of two images, of which one is scaled, a filter for each axis
@pytest.mark.parametrize(
    ("steps", "expected", "once"),
    [
        (["Q[b, y, r, x] = X[b, y + r - 2, x] ;; M square",
          "Z[b, y, x] = G[r] . Q[b, y, r, x] ;; M mul V add"],
         lambda x, u, g, h, *_: filtered(x**2, g, 1, -2), 1),
        (["Q[b, y, r, x, s] = X[b, y + r - 2, x + s - 1] . 3 ;; M mul",
          "Z[b, y, x] = G[r] . H[s] . Q[b, y, r, x, s] ;; M mul V add"],
         lambda x, u, g, h, *_: filtered(filtered(3 * x, g, 1, -2), h, 2, -1), 2),
        (["Z[b, y, x] = X[b, y + r - 2, x] . G[r] . U[b, y + r - 2, x] ;; M mul V add"],
         lambda x, u, g, h, *_: filtered(x * u, g, 1, -2), 1),
        (["Z[b, y, x] = H[s] . X[b, y - r + 2, x + s - 1] . G[r] ;; M mul V add"],
         lambda x, u, g, h, *_: filtered(filtered(x, g[::-1], 1, -2), h, 2, -1), 1),
        (["Z[b, y, x] = H[s] . X[b, y + r - 2, x + s - 1] . L[b, y, r] ;; M mul V add"],
         lambda x, u, g, h, w, *_: sum(np.pad(filtered(x, h, 2, -1), ((0, 0), (2, 2), (0, 0)))[:, r : r + 40]
                                   * w[:, :40, r, None] for r in range(5)), 1),
        (["Q[b, y, x, r] = X[b, y + r - 2, x] ;; M max",
          "Z[b, y, x] = Q[b, y, x, r] . G[r] . U[b, y, x] ;; M mul V add"],
         lambda x, u, g, h, *_: filtered(x, g, 1, -2) * u, 1),
    ],
)  # fmt: skip
def test_windows_read_what_is_made_of_each_element_once(
    steps: list[str], expected: Callable[..., np.ndarray], once: int
) -> None:
    cascade = images(steps)
    other = with_elements_once(cascade)
    assert sum(e.name.endswith("_once") for e in other.einsums) >= once
    # nothing that is no sum has more elements than the images
    assert all(np.prod(other.shape(e.name)) <= 2 * 40 * 9 for e in other.einsums)
    arrays = {t: whole_numbers(*cascade.shape(t)) for t in cascade.inputs}
    assert np.array_equal(evaluate(other, arrays)["Z"], expected(*arrays.values()))


@pytest.mark.parametrize(
    "steps",
    [
        # has ones beyond an edge
        ["Q[b, y, r, x] = X[b, y + r - 2, x] ;; M exp", "Z[b, y, x] = G[r] . Q[b, y, r, x] ;; M mul V add"],
        # adds what windows do not have
        ["Q[b, y, r, x] = X[b, y + r - 2, x] . U[b, y, x] ;; M add",
         "Z[b, y, x] = G[r] . Q[b, y, r, x] ;; M mul V add"],
        # is read beyond its windows, where zeros stand
        ["Q[b, y, r, x] = X[b, y + r - 2, x] ;; M square",
         "Z[b, y, x] = G[r] . Q[b, y + 1, r, x] ;; M mul V add"],
        # adds what is no zero beyond an edge
        ["Q[b, y, r, x] = X[b, y + r - 2, x] . C[x] ;; M add",
         "Z[b, y, x] = G[r] . Q[b, y, r, x] ;; M mul V add"],
        # does not overlap
        ["Q[b, y, r, x] = L[b, 5*y + r, x] ;; M square", "Z[b, y, x] = G[r] . Q[b, y, r, x] ;; M mul V add"],
        # is no product of one axis alone
        ["Z[b, y, x] = G[r] . X[b, y + r - 2, x] . U[b, y + r - 1, x] ;; M mul V add"],
        # has no filter
        ["Z[b, y, x] = X[b, y + r - 2, x] . U[b, y + r - 2, x] . X[b, y + r - 2, x] ;; M mul V add"],
        # is no sum of products
        ["Z[b, y, x] = G[r] . U[b, y + r - 2, x] . X[b, y + r - 2, x] ;; M add V max"],
        # has a second operand along the filter
        ["Z[b, y, x] = G[r] . F[r, s] . X[b, y + r - 2, x + s - 1] ;; M mul V add"],
        # has one filter for both axes
        ["Z[b, y, x] = G[r] . U[b, y, x] . X[b, y + r - 2, x + r - 2] ;; M mul V add"],
        # has one window
        ["Z[b, y, x] = G[r] . U[b, y, x] . X[b, y + r - 2, x] ;; M mul V add"],
    ],
)  # fmt: skip
def test_what_differs_from_window_to_window_stays_as_it_is(steps: list[str]) -> None:
    cascade = images(steps)
    assert with_elements_once(cascade) is cascade


# backwards, in strides, of two axes at once, with a filter for each of few rows
@pytest.mark.parametrize(
    ("step", "tensors", "band", "expected"),
    [
        ("Z[b, y, x] = G[r] . X[b, y + r - 2, x] ;; M mul V add", {"X": "B Y X", "G": "R"},
         "G_band[y_band, y] = G[y_band - y + 2]", lambda x, g: filtered(x, g, 1, -2)),
        ("Z[b, y, x] = G[r] . X[b, y - r + 1, x] ;; M mul V add", {"X": "B Y X", "G": "R"},
         "G_band[y_band, y] = G[-y_band + y + 1]", lambda x, g: filtered(x, g[::-1], 1, -3)),
        ("Z[b, y, x] = X[b, 2*y + r - 1, x] . G[r] ;; M mul V add", {"X": "B D X", "G": "R"},
         "G_band[y_band, y] = G[y_band - 2*y + 1]", lambda x, g: filtered(x, g, 1, -1, 2)),
        ("Z[b, y, x] = X[b, y + r - 2, x + s - 1] . F[r, s] ;; M mul V add", {"X": "B Y X", "F": "R S"},
         "F_band[y_band, y, s] = F[y_band - y + 2, s]",
         lambda x, f: sum(filtered(filtered(x, f[:, s], 1, -2), np.eye(3)[s], 2, -1) for s in range(3))),
    ],
)  # fmt: skip
def test_a_whole_band_is_the_filter_again_at_each_place(
    step: str, tensors: dict[str, str], band: str, expected: Callable[..., np.ndarray]
) -> None:
    cascade = images([step], tensors, B=40)
    other = with_whole_bands(cascade, 128)
    copy, product = other.einsums
    assert str(copy) == band
    assert product.is_product
    assert [str(i) for a in product.accesses for i in a.affine].count("y_band") == 2
    arrays = {t: whole_numbers(*cascade.shape(t)) for t in cascade.inputs}
    assert np.array_equal(evaluate(other, arrays)["Z"], expected(*arrays.values()))


def test_two_sums_with_the_same_windows_share_a_band() -> None:
    steps = ["Z[b, y, x] = G[r] . X[b, y + r - 2, x] ;; M mul V add",
             "V[b, y, x] = U[b, y + r - 2, x] . G[r] ;; M mul V add",
             "W[b, y, x] = U[b, y + r - 1, x] . G[r] ;; M mul V add"]  # fmt: skip
    cascade = images(steps, B=40)
    assert [e.name for e in with_whole_bands(cascade, 128).einsums] == ["G_band", "Z", "V", "G_band_", "W"]


@pytest.mark.parametrize(
    ("step", "sizes"),
    [
        ("Z[b, y, x] = G[r] . X[b, y + r - 2, x] ;; M mul V max", {}),  # is no sum
        ("Z[b, y, x] = G[r] . X[b, y + 2*r, x] ;; M mul V add", {}),  # leaves elements out
        ("Z[b, y, x] = G[r] . X[b, y + r, y] ;; M mul V add", {}),  # has a place elsewhere, too
        ("Z[b, y, x] = G[r] . X[b, y + r, x] ;; M mul V add", {"B": 4}),  # is smaller than a band
        ("Z[b, y, x] = G[r] . X[b, y + r, x] ;; M mul V add", {"R": 2}),  # is a sum of two
        ("Z[b, y, x] = G[r] . X[b, y + r, x] ;; M mul V add", {"Y": 1100, "B": 400}),  # is mostly zeros
    ],
)
def test_what_a_band_gains_nothing_from_stays_as_it_is(step: str, sizes: dict[str, int]) -> None:
    cascade = images([step], B=sizes.pop("B", 40), **sizes)
    assert with_whole_bands(cascade, 128) is cascade


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_means_and_variances_of_windows_are_products_of_matrices(dialect: str) -> None:
    """Variances of 7 by 7 windows were sums of 49 elements, of squares kept in HBM for every window."""
    rng = np.random.default_rng(11)
    image, weights = rng.normal(size=(4, 120, 200)), rng.random(7)
    window = "G[r] * G[s] * I[b, y + r - 3, x + s - 3]"
    kernel = einsum.compile(
        f"M[b, y, x] = sum({window}, r, s)\nV[b, y, x] = sum({window}**2, r, s) - M[b, y, x]**2",
        shapes={"I": image.shape, "G": weights.shape}, sizes={"Y": 120, "X": 200}, outputs=["V"],
        dialect=dialect,
    )  # fmt: skip
    mean, squares = (filtered(filtered(i, weights, 1, -3), weights, 2, -3) for i in (image, image**2))
    np.testing.assert_allclose(kernel(I=image, G=weights), squares - mean**2, rtol=1e-4, atol=1e-3)
    assert kernel.estimate.latency_us < 4 * kernel.roofline.least_us
    assert "dma_transpose" not in kernel.source
    assert all(verdict.is_fine for verdict in kernel.verify())
