"""Other ways to the same sums: factors after them, rows side by side, stacks, diagonals, copies made once."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.compiled import CompiledEinsum
from nkilab.einsum.plan import edges
from nkilab.einsum.plan.contraction import Contraction

pytestmark = pytest.mark.corpus

DIALECTS = ["nki", "neuronxcc"]
CONVOLUTION = "Z[b, k, p, q] = X[b, c, p + r, q + s] . F[k, c, r, s] ;; M mul V add"
STRIDED = "Z[b, k, p, q] = X[b, c, 2*p + r - 1, 2*q + s - 1] . F[k, c, r, s] ;; M mul V add"
SOFTMAX = """
G[p] = X[m, p] ;; V max
N[m, p] = X[m, p] . G[p] ;; M binary(subtract_exp)
D[p] = N[m, p] ;; V add
R[p] = D[p] ;; M unary(reciprocal)
A[m, p] = N[m, p] . R[p] ;; M mul
Z[f, p] = A[m, p] . V[m, f] ;; M mul V add
"""


def text_of(spec: dict[str, object]) -> str:
    """YAML of a specification, a line per part."""
    return "\n".join(f"{part}: {json.dumps(value)}" for part, value in spec.items())


def whole(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Small whole numbers, which bfloat16 holds and float32 sums exactly."""
    return rng.integers(-3, 4, shape).astype(np.float32)


def convolved(x: np.ndarray, f: np.ndarray, step: int, pad: int, rows: int) -> np.ndarray:
    """A convolution as its definition has it, in float64."""
    padded = np.zeros((*x.shape[:2], x.shape[2] + 16, x.shape[3] + 16))
    padded[:, :, pad : pad + x.shape[2], pad : pad + x.shape[3]] = x
    sums = np.zeros((x.shape[0], f.shape[0], rows, rows))
    for r in range(f.shape[2]):
        for s in range(f.shape[3]):
            window = padded[:, :, r : r + step * rows : step, s : s + step * rows : step]
            sums += np.einsum("bcpq,kc->bkpq", window, f[:, :, r, s])
    return sums


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("channels", [3, 65, 130])
def test_short_rows_go_through_tensor_engine_side_by_side(dialect: str, channels: int) -> None:
    # 12 rows of 12 columns are 144 of the 512 columns that one product takes
    sizes = {"B": 2, "C": channels, "K": 32, "P": 12, "Q": 12, "R": 3, "S": 3}
    x, f = (
        whole(np.random.default_rng(n), *s)
        for n, s in enumerate([(2, channels, 14, 14), (32, channels, 3, 3)])
    )
    kernel = einsum.compile(CONVOLUTION, shapes={"X": x.shape, "F": f.shape}, sizes=sizes, dialect=dialect)
    assert np.array_equal(kernel(x, f), convolved(x, f, 1, 0, 12))
    assert "for p in" not in kernel.source
    # three channels lie on the partitions for each of three rows of the filter, 65 do not fit so often
    assert ("f_stack" in kernel.source) == (channels == 3)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stack_has_zeros_beyond_edges(dialect: str) -> None:
    x, f = (whole(np.random.default_rng(n), *s) for n, s in enumerate([(2, 3, 13, 13), (4, 3, 7, 7)]))
    sizes = {"P": 5, "Q": 5, "R": 7, "S": 7}
    kernel = einsum.compile(STRIDED, shapes={"X": x.shape, "F": f.shape}, sizes=sizes, dialect=dialect)
    assert "x_stack" in kernel.source
    assert np.array_equal(kernel(x, f), convolved(x, f, 2, 1, 5))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("channels", [128, 130])
def test_a_filter_for_each_channel_is_a_diagonal_matrix(dialect: str, channels: int) -> None:
    x, w = (whole(np.random.default_rng(n), *s) for n, s in enumerate([(channels, 4101), (channels, 4)]))
    kernel = einsum.compile(
        "Z[c, t] = X[c, t + r] . W[c, r] ;; M mul V add", shapes={"X": x.shape, "W": w.shape},
        sizes={"T": 4098}, dtypes="bfloat16", dialect=dialect,
    )  # fmt: skip
    assert "w_diagonal" in kernel.source
    expected = sum(x[:, r : r + 4098] * w[:, r : r + 1] for r in range(4))
    assert np.array_equal(np.asarray(kernel(x, w), np.float32), expected)


@pytest.mark.parametrize(
    ("dtype", "is_deferred"), [("bfloat16", True), ("float32", True), ("float16", False)]
)
def test_a_factor_follows_the_sum_unless_float16_has_no_room(dtype: str, is_deferred: bool) -> None:
    x, v = (
        np.random.default_rng(n).standard_normal(s, np.float32) for n, s in enumerate([(200, 70), (200, 30)])
    )
    kernel = einsum.compile(SOFTMAX, shapes={"X": x.shape, "V": v.shape}, dtypes=dtype)
    change = "A is left out: what Z does not sum over is multiplied after the sum"
    assert (change in kernel.changes) == is_deferred
    weights = np.exp(x - x.max(0)) / np.exp(x - x.max(0)).sum(0)
    assert np.allclose(np.asarray(kernel(x, v), np.float32), v.T @ weights, atol=0.03)


def test_a_factor_that_is_summed_over_stays_where_it_is() -> None:
    text = "A[m, p] = X[m, p] . R[m] ;; M mul\nZ[f, p] = A[m, p] . V[m, f] ;; M mul V add"
    x, r, v = (whole(np.random.default_rng(n), *s) for n, s in enumerate([(20, 7), (20,), (20, 3)]))
    kernel = einsum.compile(text, shapes={"X": x.shape, "R": r.shape, "V": v.shape})
    assert not any("left out" in change for change in kernel.changes)
    assert np.array_equal(kernel(x, r, v), v.T @ (x * r[:, None]))


def powers(turns: int, extent: int, dialect: str) -> CompiledEinsum:
    spec = {
        "einsum": {
            "declaration": {"A": ["M", "K"], "X0": ["K"], "X": ["I1", "K"], "Y": ["I", "M"], "Z": ["K"]},
            "expressions": [
                "X[0, k] = X0[k]",
                {"iterate": "i", "body": ["Y[i, m] = A[m, k] . X[i, k] ;; M mul V add",
                                          "X[i+1, m] = Y[i, m] . small ;; M mul"]},
                "Z[k] = X[I, k] ;; M unary(relu)",
            ],
            "shape": {"I": turns, "I1": turns + 1, "M": extent, "K": extent},
            "scalars": {"small": 0.5},
        },
        "options": {"cascade-outputs": ["Z"]},
    }  # fmt: skip
    return einsum.compile(text_of(spec), dtypes="bfloat16", dialect=dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_large_matrix_of_a_block_is_transposed_once(monkeypatch: pytest.MonkeyPatch, dialect: str) -> None:
    # on a chip that has no room for it
    monkeypatch.setattr(edges, "READ_AGAIN", 0.0)
    extent, turns = 1024, 8
    kernel = powers(turns, extent, dialect)
    assert "A_turned[" in kernel.source
    # twice a permutation: every turn moves elements and halves what it doubled
    order = np.random.default_rng(1).permutation(extent)
    a, x = np.zeros((extent, extent), np.float32), np.arange(extent) % 97
    a[np.arange(extent), order] = 2.0
    expected = x
    for _ in range(turns):
        expected = expected[order]
    assert np.array_equal(np.asarray(kernel(a, x.astype(np.float32)), np.float32), expected)


def test_a_matrix_that_stays_on_chip_is_not_copied() -> None:
    assert "A_turned[" not in powers(8, 1024, "nki").source


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("rows", [3072, 3328, 3300], ids=["banks", "half a bank more", "ragged"])
def test_an_operand_that_lies_turned_and_is_too_large_to_stay_is_turned_tile_by_tile(
    monkeypatch: pytest.MonkeyPatch, dialect: str, rows: int
) -> None:
    # on a chip that does not hold 8 blocks of `rows` float32, each is turned for its product
    monkeypatch.setattr(Contraction, "fits", lambda _, access: access.tensor != "I")
    d, i = (whole(np.random.default_rng(n), *s) for n, s in enumerate([(128, 1024), (rows, 1024)]))
    text = "Z[r, k] = D[r, n] . I[k, n] ;; M mul V add"
    kernel = einsum.compile(text, shapes={"D": d.shape, "I": i.shape}, dialect=dialect)
    assert "_block" not in kernel.source.replace("d_block", "")
    assert np.array_equal(kernel(d, i), d @ i.T)


def test_groups_of_channels_lie_with_the_batch_on_partitions() -> None:
    spec = """
    M[n, c // 4] = X[n, c, p] / (4 * P)
    D[n, c, p] = X[n, c, p] - M[n, c // 4]
    V[n, c // 4] = D[n, c, p]**2 / (4 * P)
    Y[n, c, p] = D[n, c, p] * rsqrt(V[n, c // 4] + 1e-5) * G[c]
    """
    kernel = einsum.compile(spec, sizes={"N": 4, "C": 128, "P": 64})
    assert any("small operands along ranks that they lack" in c for c in kernel.changes)
    assert not any("PLANNED ANOTHER WAY" in c for c in kernel.changes)
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(4, 128, 64)).astype("f4"), rng.normal(size=128).astype("f4")
    groups = x.reshape(4, 32, 256).astype(float)
    groups = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(kernel(X=x, G=g), groups.reshape(x.shape) * g[:, None], atol=1e-5)


def test_a_mean_between_products_keeps_no_matrices_apart() -> None:
    spec = "Z[i, j, z] = sum(mean(A[s, i, c] * B[s, j, d], s) * W[c, d, z], c, d)"
    sizes = {"S": 64, "I": 64, "J": 64, "C": 16, "D": 16, "Z": 32}
    kernel = einsum.compile(spec, sizes=sizes, dtypes="bfloat16")
    assert any(c.startswith("products between products as matrices") for c in kernel.changes)
