"""Copies leave their readers the source, sums of sums are one sum; both mean the same as before."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum


def compiled(text: str, dialect: str = "nki", **sizes: int) -> einsum.CompiledEinsum:
    return einsum.compile(text, sizes=sizes, dialect=dialect)


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_a_staged_specification_is_the_product_that_it_means(dialect: str) -> None:
    kernel = compiled(
        "S[j, i, n] = B[j, i, n]; W[n, j, i] = A[j, i]; P[j, n] = S[j, i, n] . W[n, j, i] ;; M mul V add;"
        "T[n] = P[j, n] ;; V add",
        dialect, J=2, I=192, N=256,
    )  # fmt: skip
    notes = {change for change in kernel.changes if "left out" in change}
    assert notes == {
        "S is left out: its readers take what it copies", "W is left out: its readers take what it copies",
        "P is left out: T sums it at once",
    }  # fmt: skip
    random = np.random.default_rng(2)
    inputs = {"B": random.normal(size=(2, 192, 256)), "A": random.normal(size=(2, 192))}
    result = kernel.kernel(*(inputs[name].astype(np.float32) for name in kernel.inputs))
    wanted = np.einsum("jin,ji->n", inputs["B"], inputs["A"])
    assert np.abs(np.asarray(result) - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_a_copy_that_is_read_transposed_means_the_same() -> None:
    kernel = compiled("T[n, m] = A[m, n]; Z[n, k] = T[n, m] . B[m, k] ;; M mul V add", M=128, N=200, K=64)
    random = np.random.default_rng(3)
    a, b = (random.normal(size=s).astype(np.float32) for s in ((128, 200), (128, 64)))
    inputs = {"A": a, "B": b}
    result = np.asarray(kernel.kernel(*(inputs[name] for name in kernel.inputs)))
    assert np.abs(result - a.T @ b).max() <= 1e-5 * np.abs(a.T @ b).max()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        # another operation than that of the parts
        ("P[m, n] = A[m, n, k] ;; V add; Z[m] = P[m, n] ;; V max", "P"),
        # something is done between the sums
        ("P[m, n] = A[m, n, k] ;; V add; Z[m] = P[m, n] . B[n] ;; M mul V add", "P"),
        # two readers
        ("P[m, n] = A[m, n, k] ;; V add; Y[m, n] = P[m, n] . P[m, n] ;; M mul; Z[m] = Y[m, n] ;; V add", "P"),
    ],
)
def test_what_is_no_sum_of_sums_stays(text: str, kept: str) -> None:
    kernel = compiled(text, M=128, N=8, K=64)
    assert not any(change.startswith(f"{kept} is left out") for change in kernel.changes)


def test_a_copy_that_is_returned_stays() -> None:
    kernel = einsum.compile(
        "T[n, m] = A[m, n]; Z[n] = T[n, m] ;; V add", sizes={"M": 128, "N": 64}, outputs=["T", "Z"]
    )
    a = np.random.default_rng(5).normal(size=(128, 64)).astype(np.float32)
    copy, total = kernel.kernel(a)
    assert np.array_equal(copy, a.T)
    assert np.allclose(total, a.sum(0), atol=1e-4)


def test_parameters_make_numbers_in_python() -> None:
    text = "Z[m] = s * A[m] + (1 - s) * B[m] / (c + c * s)"
    kernel = einsum.compile(text, sizes={"m": 4}, scalars={"s": 0.25, "c": 2.0}, outputs=["Z"])
    assert "operand1=1.0 / (c + (c * s))," in kernel.source
    a, b = np.array([1.0, 2.0, -4.0, 0.5], np.float32), np.array([8.0, -16.0, 32.0, 2.0], np.float32)
    # 1 / 4 of A and 3 / 4 of B over 2.5, by hand
    np.testing.assert_allclose(kernel(a, b), [2.65, -4.3, 8.6, 0.725], rtol=1e-6)


def test_what_divides_by_a_parameter_that_is_zero_stays() -> None:
    kernel = einsum.compile("Z[m] = A[m] / c", sizes={"m": 2}, scalars={"c": 0.0}, outputs=["Z"])
    assert "1.0 / c" not in kernel.source
