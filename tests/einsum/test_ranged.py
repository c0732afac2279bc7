"""One kernel for ranges of sizes, against NumPy at sizes that it was and was not planned for."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab.einsum import compile, report
from nkilab.einsum.verb import sizes_of
from nkilab.errors import UnsupportedError, UsageError

PRODUCT = "Z[m, n] = A[m, k] . B[k, n] ;; M mul V add"
RNG = np.random.default_rng(7)


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_a_kernel_takes_the_size_it_runs_at(dialect):
    kernel = compile(PRODUCT, sizes={"m": range(128, 385, 128), "N": 64, "K": 128}, dialect=dialect)
    assert "def kernel(A, B, M):" in kernel.source
    assert "assert M in range(128, 385, 128)" in kernel.source
    for rows in (128, 256, 384):
        a, b = RNG.standard_normal((rows, 128), np.float32), RNG.standard_normal((128, 64), np.float32)
        assert np.allclose(kernel(a, b), a @ b, atol=1e-3)


def test_what_is_told_of_it_is_of_the_size_that_it_was_planned_for():
    kernel = compile(PRODUCT, sizes={"M": range(128, 385, 128), "N": 64, "K": 128})
    assert "planned for M=384" in report.explain(kernel)
    # each input once, and the result
    assert report.data(kernel)["traffic_bytes"] == 4 * (384 * 128 + 128 * 64 + 384 * 64)
    assert (
        kernel.estimate.latency_us
        == compile(PRODUCT, sizes={"M": 384, "N": 64, "K": 128}).estimate.latency_us
    )


def test_sizes_that_leave_ragged_tiles():
    kernel = compile("Y[m, n] = X[m, n] * R[n]", sizes={"M": range(100, 301, 67), "N": 8})
    for rows in (100, 167, 301):
        x, r = RNG.standard_normal((rows, 8), np.float32), RNG.standard_normal(8, np.float32)
        if rows == 301:
            with pytest.raises(AssertionError, match=r"M is 301; proved is M in range\(100, 301, 67\)"):
                kernel(x, r)
        else:
            assert np.allclose(kernel(x, r), x * r)


def test_two_sizes_of_a_softmax_and_what_was_proved():
    text = "Y[m, n] = exp(X[m, n] - max(X[m, n], n)) / sum(exp(X[m, n] - max(X[m, n], n)), n)"
    kernel = compile(text, sizes={"M": range(256, 513, 128), "N": 64})
    assert "all of it for each of 3 sizes: M in range(256, 513, 128)" in kernel.proofs
    x = RNG.standard_normal((256, 64), np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(kernel(x), e / e.sum(1, keepdims=True), atol=1e-5)


def test_where_no_plan_serves_all_the_error_says_which_sizes_one_serves():
    with pytest.raises(UnsupportedError, match=r"no plan serves all 4 sizes: .* fails at K=\d+: ") as refused:
        compile(PRODUCT, sizes={"K": range(128, 513, 128), "N": 512, "M": 128})
    served = [int(n) for n in refused.value.hint.partition("K ")[2].partition(", and")[0].split(", ")]
    step = served[1] - served[0]
    kernel = compile(PRODUCT, sizes={"K": range(served[0], served[-1] + 1, step), "N": 512, "M": 128})
    assert kernel.parameters == ("K",)


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [(range(128, 128), "the sizes of M are"), (range(4), "at least 1"), (range(1, 1000), "at most 64")],
)
def test_ranges_without_sense_are_refused(sizes, sentence):
    with pytest.raises(UsageError, match=sentence):
        compile(PRODUCT, sizes={"M": sizes, "N": 64, "K": 128})


def test_ranges_on_the_command_line():
    assert sizes_of(["M=512..2048:512,N=3..5", "K=64"]) == {
        "M": range(512, 2049, 512), "N": range(3, 6), "K": 64,
    }  # fmt: skip
    for wrong in ("M=512..", "M=1..4:0", "M=0", "M=..4"):
        with pytest.raises(UsageError, match=r"FIRST\.\.LAST:STEP"):
            sizes_of([wrong])
