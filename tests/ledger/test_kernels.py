"""Every kernel of the ledger computes what it says, against NumPy in float64."""

from __future__ import annotations

import ast
from math import erf
from pathlib import Path

import numpy as np
import pytest

import nkilab
from nkilab.ledger import own_rows
from nkilab.ledger.reading import OWN

from .serving import kernel, off, random
from .serving import served as served

pytestmark = pytest.mark.usefixtures("served")

# float32 sums of some hundred terms, in another order than NumPy's
TOLERANCE = 2e-6


@pytest.mark.parametrize(
    ("name", "keywords"),
    [
        ("matmul.tiled", {}),
        ("matmul.tiled", {"repeats": 2}),
        ("matmul.block_free", {}),
        ("matmul.block_free", {"tiles_m": 1, "tiles_n": 1}),
        ("matmul.blocked", {"tiles_m": 2, "tiles_n": 1, "tiles_k": 2}),
        ("matmul.blocked_tiles", {"tiles_m": 2, "tiles_n": 1, "tiles_k": 2}),
        ("matmul.blocked_tiles", {"tiles_m": 1, "tiles_n": 2, "tiles_k": 1}),
        ("matmul.blocked", {"tiles_m": 1, "tiles_n": 2, "tiles_k": 1, "sums": "float32"}),
        ("tutorial.block_free", {"tiles_m": 1, "tiles_n": 1}),
        ("tutorial.block_free", {}),
        ("tutorial.blocked", {"tiles_m": 2, "tiles_n": 1, "tiles_k": 1}),
        ("tutorial.blocked", {"tiles_m": 1, "tiles_n": 2, "tiles_k": 2}),
        ("tutorial.grouped", {"tiles_m": 1, "tiles_n": 2}),
        ("tutorial.grouped", {"tiles_m": 2, "tiles_n": 2, "wide_m": 2, "wide_n": 2}),
        ("products.naive", {"tile_n": 256}),
        ("products.naive", {"tile_n": 512, "tile_k": 64}),
        ("products.hoist", {"tile_n": 128}),
        ("products.hoist", {"tile_n": 128, "tile_k": 64}),
    ],
)
def test_products_are_those_of_numpy(name, keywords):
    lhsT, rhs = random(256, 256), random(256, 1024)
    assert off(kernel(name)(lhsT, rhs, **keywords), lhsT.T.astype(float) @ rhs) < TOLERANCE


@pytest.mark.parametrize(
    ("name", "size"),
    [("add_chunks", 128), ("add_columns", 8), ("add_loaded_chunks", 64), ("add_loaded_blocks", 4),
     ("add_placed_blocks", 4)],
)  # fmt: skip
def test_sums_of_vectors_are_those_of_numpy(name, size):
    a, b = random(4096), random(4096, scale=2)
    np.testing.assert_array_equal(kernel(f"adding.{name}")(a, b, size).reshape(-1), a + b)


def test_a_transpose_moves_every_element():
    x = random(256, 384)
    np.testing.assert_array_equal(kernel("transposing.transpose")(x), x.T)


def test_silu_is_that_of_numpy():
    x = random(128, 2, 1024)
    assert off(kernel("workloads.silu")(x), x / (1 + np.exp(-x.astype(float)))) < TOLERANCE


def test_a_step_of_adamw_is_that_of_numpy():
    # the last rows are no whole tile; second moments are never negative
    theta, gradient, first = random(192, 1024), random(192, 1024, scale=2), random(192, 1024, scale=3)
    second = np.abs(random(192, 1024, scale=4))
    mean = 0.9 * first.astype(float) + (1 - 0.9) * gradient
    spread = (0.999 * second.astype(float) + (1 - 0.999) * gradient.astype(float) ** 2) / (1 - 0.999)
    wanted = theta * (1 - 1e-5) - 0.01 * mean / (np.sqrt(spread) + 1e-8)
    assert off(kernel("workloads.adamw")(theta, gradient, first, second), wanted) < TOLERANCE


def test_a_product_over_blocks_is_that_of_numpy():
    left, right = random(128, 2, 1024), random(128, 2, 1536)
    wanted = np.einsum("pkm,pkn->mn", left.astype(float), right.astype(float))
    assert off(kernel("workloads.product")(left, right).reshape(1024, 1536), wanted) < TOLERANCE


def test_a_normalized_product_is_that_of_numpy():
    x, weights = random(8, 128, 256), random(2, 128, 1024)
    scaled = x / np.sqrt((x.astype(float) ** 2).mean(2, keepdims=True))
    wanted = scaled.reshape(1024, 256) @ weights.reshape(256, 1024)
    assert off(kernel("workloads.normalized_product")(x, weights).reshape(1024, 1024), wanted) < TOLERANCE


def test_a_normalized_sum_is_that_of_numpy():
    x, weights, addend, scales = random(256, 256), random(256, 1024), random(256, 1024), random(1, 1024)
    added = x.astype(float) @ weights + addend
    wanted = added / np.sqrt((added**2).mean(1, keepdims=True) + 1e-8) * scales
    assert off(kernel("workloads.normalized_sum")(x, weights, addend, scales), wanted) < TOLERANCE


def test_a_softmax_of_products_is_that_of_numpy():
    left, right = random(2, 256, 64, scale=0.3), random(2, 64, 2048, scale=0.2)
    scores = left.astype(float) @ right
    powers = np.exp(scores - scores.max(2, keepdims=True))
    wanted = powers / powers.sum(2, keepdims=True)
    result = kernel("spilling.softmax_of_products")(left, right)
    assert off(result.reshape(2, 256, 2048), wanted) < 1e-5


def test_a_low_rank_product_is_that_of_numpy():
    x, weights = random(2, 4, 128, 8, 128), random(8, 128, 1024)
    inner, outer = random(8, 128, 128), random(128, 1024)
    rows = x.reshape(1024, 1024).astype(float)
    wanted = rows @ weights.reshape(1024, 1024) + rows @ inner.reshape(1024, 128) @ outer
    result = kernel("spilling.low_rank_product")(x, weights, inner, outer)
    assert off(result.reshape(1024, 1024), wanted) < TOLERANCE


def test_rows_are_normalized_as_numpy_does():
    x, weights = random(256, 96, scale=3), random(1, 96)
    wanted = x / np.sqrt((x.astype(float) ** 2).mean(1, keepdims=True) + 1e-6) * weights
    assert off(kernel("normalizing.rms_norm")(x, weights), wanted) < TOLERANCE


def test_calls_in_a_graph_follow_each_other():
    x, weights = random(256, 96, scale=3), random(1, 96)
    once = x / (1 + np.exp(-x.astype(float)))
    assert off(kernel("framework_calls.silu")(x, 2), once / (1 + np.exp(-once))) < TOLERANCE
    wanted = x / np.sqrt((x.astype(float) ** 2).mean(1, keepdims=True) + 1e-6) * weights
    assert off(kernel("framework_calls.rms_norm")(x, weights, 1), wanted) < TOLERANCE


def test_a_copy_is_the_same():
    x = random(256, 48)
    np.testing.assert_array_equal(kernel("copying.copy_tiled")(x), x)


def convolved(x, weights, bias, pool=1):
    """3x3 convolution without padding, bias, maximum of squares."""
    images, _, height, width = x.shape
    rows, columns = height - 2, width - 2
    out = np.zeros((images, len(weights), rows, columns))
    for p in range(3):
        for q in range(3):
            window = x[:, :, p : p + rows, q : q + columns].astype(float)
            out += np.einsum("oc,nchw->nohw", weights[:, :, p, q].astype(float), window)
    out += bias[None, :, None, None]
    return out.reshape(images, len(weights), rows // pool, pool, columns // pool, pool).max((3, 5))


@pytest.mark.parametrize(
    ("name", "last", "pool"),
    [("conv_rows", 1, 1), ("conv_rows", 2, 2), ("conv_groups", 3, 1), ("conv_tiles", False, 1),
     ("conv_tiles", True, 1), ("conv_rows_together", 1, 1), ("conv_rows_together", 2, 2)],
)  # fmt: skip
def test_convolutions_are_those_of_numpy(name, last, pool):
    x, weights, bias = random(2, 256, 8, 10), random(256, 256, 3, 3), random(256)
    result = kernel(f"convolving.{name}")(x, weights, bias, last)
    assert off(result, convolved(x, weights, bias, pool)) < TOLERANCE


@pytest.mark.parametrize("name", ["attention_in_phases", "attention_fused"])
@pytest.mark.parametrize("size", [512, 1024])
def test_attention_is_that_of_numpy(name, size):
    q, k, v = (random(128, size, scale=s) for s in (0.1, 0.2, 1.0))
    scores = q.T.astype(float) @ k
    powers = np.exp(scores - scores.max(1, keepdims=True))
    wanted = powers / powers.sum(1, keepdims=True) @ v.T
    # exp of float32 scores
    assert off(kernel(f"attention.{name}")(q, k, v), wanted) < 1e-5


@pytest.mark.parametrize("sums_with_powers", [False, True])
@pytest.mark.parametrize("name", ["by_steps", "again"])
def test_attention_of_the_search_is_that_of_numpy(name, sums_with_powers):
    q, k, v = (random(128, 1024, scale=0.3) for _ in range(3))
    scores = q.T.astype(float) @ k
    powers = np.exp(scores - scores.max(1, keepdims=True))
    wanted = powers / powers.sum(1, keepdims=True) @ v.T
    # weights and values in bfloat16 hold 8 bits
    tolerance = 2**-7 if name == "again" and sums_with_powers else 1e-5
    assert off(kernel(f"attention.attention_{name}")(q, k, v, sums_with_powers), wanted) < tolerance


def test_a_convolution_of_single_channels_is_that_of_numpy():
    x, taps = random(2, 256, 64), random(256, 3)
    wide = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1)))
    wanted = sum(wide[:, :, i : i + 64] * taps[:, i, None] for i in range(3))
    assert off(kernel("convolving.depthwise")(x, taps), wanted) < TOLERANCE


@pytest.mark.parametrize("split", [False, True])
def test_resident_products_are_those_of_numpy(split):
    lhs, rhs = random(128, 2, 512), random(128, 2, 96)
    result = kernel("products.resident")(lhs, rhs, 2, 48, split)
    wanted = np.einsum("pkm,pkn->mn", lhs.astype(float), rhs).reshape(4, 128, 96)
    # two bfloat16 hold 16 bits of a number
    assert off(result, wanted) < (2**-15 if split else TOLERANCE)


@pytest.mark.parametrize("name", ["phases", "fused", "fused_polynomial"])
def test_perceptrons_are_gelu_of_the_product(name):
    lhsT, rhs, bias = random(256, 256, scale=0.1), random(256, 512), random(1, 512)
    x = lhsT.T.astype(float) @ rhs + bias
    wanted = x / 2 * (1 + np.vectorize(erf)(x / 2**0.5))
    if name == "phases":
        result = kernel("perceptron.gelu")(kernel("perceptron.product")(lhsT, rhs, bias))
    else:
        result = kernel(f"perceptron.{name}")(lhsT, rhs, bias)
    # gelu of a float32 product; the polynomial is off by at most 5e-4 where values go to about 5
    assert off(result, wanted) < (2e-4 if name == "fused_polynomial" else 1e-5)


@pytest.mark.parametrize(
    ("name", "keywords"),
    [("scan_states_first", {}), ("scan_channels_first", {}), ("scan_in_pieces", {"piece": 16})],
)
def test_the_selective_scan_is_the_recurrence(name, keywords):
    states, size = 4, 64
    delta, u = np.abs(random(1, 256, size)), random(1, 256, size, scale=2)
    A, B, C = -np.abs(random(256, states)), random(1, states, size), random(1, states, size, scale=3)
    h, wanted = np.zeros((1, 256, states)), np.zeros((1, 256, size))
    for t in range(size):
        h = np.exp(delta[:, :, t, None] * A) * h + (delta * u)[:, :, t, None] * B[:, None, :, t]
        wanted[:, :, t] = (h * C[:, None, :, t]).sum(-1)
    # errors of 64 steps of float32 add up
    assert off(kernel(f"scanning.{name}")(delta, u, A, B, C, **keywords), wanted) < 2e-5


@pytest.mark.parametrize(
    ("name", "args", "value"),
    [
        ("matmuls", (32, "bfloat16", 8), 256.0),  # two of eight products of ones, 128 deep, in the last bank
        ("exponentials", ("psum", 8, "float32", 2), np.e),
        ("copies", ("scalar", 8, "float32", "bfloat16", 2), 1.0),
        ("copies", ("vector", 8, "bfloat16", "float32", 2), 1.0),
        ("reductions", ("add", "sbuf", 2, 4, 2), 4.0),
        ("reductions", ("maximum", "psum", 1, 4, 2), 1.0),
        ("scalings", ("psum", 8, 2), 1.0),
        ("additions", (8, 2), 2.0),
        ("reciprocals", (8, 2), 1.0),
        ("dependent_activations", (4,), 1.0),
    ],
)
def test_single_instructions_do_what_they_are_called(name, args, value):
    np.testing.assert_allclose(kernel(f"single.{name}")(*args).astype(np.float32), value, rtol=1e-6)


def test_loads_bring_the_first_column():
    x = random(16, 4, 8)
    np.testing.assert_array_equal(kernel("single.load")(x[:, :, 0])[:, 0], x[:, 0, 0])
    np.testing.assert_array_equal(kernel("single.load_strided")(x, 3)[:, 0], x[:, 0, 0])


def test_every_kernel_serves_a_row():
    used = {call.kernel for row in own_rows() for call in row.calls}
    written = set()
    for path in (OWN.parent / "kernels").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                written.add(f"{Path(path).stem}.{node.name}")
    assert written == used


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("all_reduce", lambda x, rank: x.sum(0)),
        ("all_gather", lambda x, rank: x.reshape(-1, 3)),
        ("reduce_scatter", lambda x, rank: x.sum(0)[2 * rank : 2 * rank + 2]),
        ("passed_on", lambda x, rank: x[rank - 1]),
    ],
)
def test_collectives_give_each_rank_its_part(name, expected):
    x = random(4, 8, 3)
    results = nkilab.launch(kernel(f"collecting.{name}"), 4)(nkilab.per_rank(x), 4)
    for rank in range(4):
        assert off(results[rank], expected(x.astype(float), rank)) < TOLERANCE
