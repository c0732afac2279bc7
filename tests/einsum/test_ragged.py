"""Extents that no block divides come in whole blocks and a rest; results stay on chip that fit there once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nkilab import api, einsum

pytestmark = pytest.mark.corpus

PRODUCT = "Z[m, n] = A[k, m] . B[k, n] ;; M mul V add"
GATED = """
    G[m, f] = X[k, m] . W[k, f] ;; M mul V add
    H[m, f] = X[k, m] . U[k, f] ;; M mul V add
    S[m, f] = G[m, f] ;; M unary(silu)
    P[m, f] = S[m, f] . H[m, f] ;; M mul
    Z[m, n] = P[m, f] . V[f, n] ;; M mul V add
"""
CAUSAL = """
    C[p, m] = Q[e, p] . K[e, m] ;; M mul V add
    S[p, m] = C[p, m] if m <= p else -1e30
    G[p] = S[p, m] ;; V max
    N[p, m] = S[p, m] . G[p] ;; M binary(subtract_exp)
    D[p] = N[p, m] ;; V add
    A[p, f] = N[p, m] . V[m, f] ;; M mul V add
    Z[p, f] = A[p, f] . D[p] ;; M binary(divide)
"""


def small_chip(folder: Path, kibibytes: int) -> str:
    """A machine file of a chip with less SBUF."""
    path = folder / "small.yaml"
    size = f"  sbuf_bytes_per_partition: {kibibytes * 1024}"
    head = ["schema: nkilab.machine/1", "chip: trn2", "source: no manual", "constants:"]
    path.write_text("\n".join([*head, size, ""]))
    return str(path)


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize(("m", "k", "n"), [(300, 1001, 1101), (1409, 131, 2049), (127, 1664, 1001)])
def test_a_product_of_ragged_extents_adds_up_every_block_and_its_rest(
    dialect: str, m: int, k: int, n: int, tmp_path: Path
) -> None:
    chip = small_chip(tmp_path, 16)
    kernel = einsum.compile(PRODUCT, sizes={"M": m, "K": k, "N": n}, dialect=dialect, target=chip)
    rng = np.random.default_rng(3)
    left, right = rng.normal(size=(k, m)).astype("f4"), rng.normal(size=(k, n)).astype("f4")
    with api.chosen(target=chip):
        np.testing.assert_allclose(kernel(left, right), left.T @ right, rtol=1e-4, atol=1e-3)


@pytest.mark.corpus(drawn=False)
def test_a_layer_of_prime_width_takes_little_longer_than_of_whole_blocks() -> None:
    def latency(width: int) -> float:
        sizes = {"M": 512, "K": 1024, "F": width, "N": 1024}
        return einsum.compile(GATED, sizes=sizes, dtypes="bfloat16").estimate.latency_us

    # blocks of 128 of the ragged width took more than twice as long
    assert latency(5099) < 1.25 * latency(5120)


def test_scores_that_fit_on_chip_once_do_not_go_to_hbm(tmp_path: Path) -> None:
    chip = small_chip(tmp_path, 48)
    kernel = einsum.compile(
        CAUSAL, sizes={"E": 64, "P": 256, "M": 2048, "F": 64}, dtypes="bfloat16", target=chip
    )
    assert not [change for change in kernel.changes if "kept in HBM" in change]
    assert "_selected" not in kernel.source


NORM = """
    Q[n] = X[n, d] . X[n, d] ;; M mul V add
    V[n] = Q[n] . 0.0125 ;; M mul
    R[n] = V[n] ;; M unary(rsqrt)
    T[n, d] = X[n, d] . R[n] ;; M mul
    Z[n, d] = T[n, d] . G[d] ;; M mul
"""


@pytest.mark.parametrize("rows", [36_000, 32_760])  # 125 * 288, 120 * 273
def test_short_rows_lie_side_by_side_where_128_does_not_divide_their_number(rows: int) -> None:
    def kernel_of(count: int) -> einsum.CompiledEinsum:
        return einsum.compile(NORM, sizes={"N": count, "D": 80}, dtypes="bfloat16")

    kernel, whole = kernel_of(rows), kernel_of(32_768)
    # one block of 128 rows after the other took five times as long
    assert kernel.estimate.latency_us < 1.3 * whole.estimate.latency_us
    # all five Einsums in one loop: X comes once, G beside it, and Z goes
    assert kernel.estimate.summary.values["hbm_read_bytes"] < 1.1 * rows * 80 * 2


def test_short_rows_side_by_side_are_normalised() -> None:
    kernel = einsum.compile(NORM, sizes={"N": 1500, "D": 80})
    x, g = np.random.default_rng(5).normal(size=(1500, 80)).astype("f4"), np.linspace(1, 2, 80, dtype="f4")
    expected = x * g / np.sqrt((x.astype("f8") ** 2).mean(1, keepdims=True))
    np.testing.assert_allclose(kernel(x, g), expected, rtol=1e-5, atol=1e-6)


GROUP_NORM = """
    S[b, g] = X[b, g, c, s] ;; V add
    U[b, g] = S[b, g] . 0.0001220703125 ;; M mul
    D[b, g, c, s] = X[b, g, c, s] . U[b, g] ;; M binary(subtract)
    Q[b, g] = D[b, g, c, s] . D[b, g, c, s] ;; M mul V add
    V[b, g] = Q[b, g] . 0.0001220703125 ;; M mul
    R[b, g] = V[b, g] ;; M unary(rsqrt)
    T[b, g, c, s] = D[b, g, c, s] . R[b, g] ;; M mul
    Z[b, g, c, s] = T[b, g, c, s] . W[g, c] ;; M mul
"""


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_small_operands_are_repeated_where_ranks_fill_partitions_together(dialect: str) -> None:
    sizes = {"B": 4, "G": 32, "C": 8, "S": 1024}
    kernel = einsum.compile(GROUP_NORM, sizes=sizes, dialect=dialect)
    rng = np.random.default_rng(7)
    x, w = rng.normal(size=(4, 32, 8, 1024)).astype("f4"), np.linspace(1, 2, 256, dtype="f4").reshape(32, 8)
    centred = x - x.mean((2, 3), dtype="f8", keepdims=True)
    expected = centred / np.sqrt((centred**2).mean((2, 3), keepdims=True)) * w[..., None]
    np.testing.assert_allclose(kernel(x, w), expected, rtol=1e-4, atol=1e-5)
    # on 32 partitions of 128, one b after the other, it took more than 100 us
    assert kernel.estimate.latency_us < 75


def test_the_last_of_tiles_put_side_by_side_is_shorter() -> None:
    mixed = "L[h, i, j] = Q[h, i, e] * K[h, j, e]\nM[g, i, j] = L[h, i, j] * P[h, g]\n"
    sizes = {"H": 12, "G": 12, "I": 128, "J": 384, "E": 8}
    kernel = einsum.compile(f"{mixed}Z[g, i] = max(M[g, i, j], j)", sizes=sizes)
    assert not any("PLANNED ANOTHER WAY" in change for change in kernel.changes)
    assert all(verdict.is_fine for verdict in kernel.verify())


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize(("rows", "columns"), [(300, 784), (40, 530)])
def test_the_largest_of_columns_that_do_not_fill_the_last_tile(dialect: str, rows: int, columns: int) -> None:
    # a tile has 512 columns, of which 128 at a time are turned: of the last tile there are 3 blocks, or 1
    x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    sums = np.abs(x).max(0) + x.sum(0, dtype=np.float64)
    for text, expected in (("max(X[m, n], m)", x.max(0)), ("max(abs(X[m, n]), m) + sum(X[m, n], m)", sums)):
        kernel = einsum.compile(f"M[n] = {text}", shapes={"X": x.shape}, dialect=dialect)
        # sums of 300 terms of order 1
        assert np.allclose(kernel(x), expected, rtol=1e-5, atol=1e-4)
        assert not any("PLANNED ANOTHER WAY" in change for change in kernel.changes)
