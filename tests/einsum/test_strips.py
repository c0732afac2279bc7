"""Several turns of a loop together: values, names and versions of tiles; layouts that come with them."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.hardware import Hardware
from nkilab.einsum.plan.strips import Strips
from nkilab.einsum.tree.nodes import PSUM, SBUF, Alloc, Buffer, Copy, Loop, all_of
from nkilab.machine import MACHINES

TRN2 = MACHINES["trn2"]
WINDOWS = """
L[w, h, i, j] = Q[w, h, i, e] . K[w, h, j, e] ;; M mul V add
G[w, h, i] = L[w, h, i, j] ;; V max
N[w, h, i, j] = L[w, h, i, j] . G[w, h, i] ;; M binary(subtract_exp)
D[w, h, i] = N[w, h, i, j] ;; V add
A[w, i, h, f] = N[w, h, i, j] . V[w, h, j, f] ;; M mul V add
Z[w, i, h, f] = A[w, i, h, f] . D[w, h, i] ;; M binary(divide)
"""


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_windows_of_attention_in_strips_have_the_values_of_numpy(dialect: str) -> None:
    sizes = {"W": 24, "H": 4, "I": 49, "J": 49, "E": 32, "F": 32}
    kernel = einsum.compile(WINDOWS, sizes=sizes, dialect=dialect)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((24, 4, 49, 32), np.float32) for _ in range(3))
    scores = np.exp(np.einsum("whie,whje->whij", q, k).astype(np.float64))
    expected = np.einsum("whij,whjf->wihf", scores / scores.sum(-1, keepdims=True), v)
    assert np.allclose(kernel(q, k, v), expected, atol=1e-4)
    # of either the timing model takes the faster
    assert any("together, part by part" in c or "turns ahead" in c for c in kernel.changes)


def strips_of(memory: str, outside: bool = False) -> Strips:
    """A loop of two copies, by way of a tile; the last result in a tile that all turns write, if asked."""
    first, between, last = (
        Buffer(n, (128, 64), "float32", m) for n, m in (("a", SBUF), ("b", memory), ("c", SBUF))
    )
    tiles = [Alloc(between)] if outside else [Alloc(between), Alloc(last)]
    body = [*tiles, Copy(all_of(between), all_of(first)), Copy(all_of(last), all_of(between))]
    return Strips(Loop("i", 8, body), Hardware(TRN2))


def test_what_goes_through_psum_stays_in_one_part() -> None:
    assert len(strips_of(SBUF).parts) == 2
    assert len(strips_of(PSUM).parts) == 1


def test_a_tile_of_a_strip_has_a_version_for_each_of_its_turns() -> None:
    strips = strips_of(SBUF)
    assert strips.is_free
    (loop,) = strips.statements(4, "j")
    assert isinstance(loop, Loop)
    assert loop.trips == 2
    assert [s.buffer.shape for s in loop.body if isinstance(s, Alloc)] == [(128, 4, 64)]
    assert [s.trips for s in loop.body if isinstance(s, Loop)] == [4, 4]


def test_one_strip_of_all_turns_needs_no_loop_around_it() -> None:
    statements = strips_of(SBUF).statements(8, "j")
    assert [s.trips for s in statements if isinstance(s, Loop)] == [8, 8]
    assert [s.buffer.shape for s in statements if isinstance(s, Alloc)] == [(128, 8, 64)]


def test_turns_that_transfers_hide_are_taken_one_by_one() -> None:
    text = "Y[m, n] = exp(X[m, n] - max(X[m, n], n)) / sum(exp(X[m, n] - max(X[m, n], n)), n)"
    kernel = einsum.compile(text, sizes={"M": 512, "N": 2048})
    assert not any("part by part" in change for change in kernel.changes)


def test_parts_that_write_the_same_tile_in_all_turns_stay_in_order() -> None:
    strips = strips_of(SBUF, outside=True)
    assert strips.is_free
    (loop,) = strips.statements(4, "j")
    assert isinstance(loop, Loop)
    assert [s.is_sequential for s in loop.body if isinstance(s, Loop)] == [False, True]
    # a loop that is told to be in order for no reason that is known here stays as it is
    assert not Strips(Loop("i", 8, strips_of(SBUF).loop.body, is_sequential=True), Hardware(TRN2)).is_free


def test_what_a_turn_hands_on_stays_in_one_part() -> None:
    # functions of three tables before a scan over 4 turns of 512 columns: the two tangents together
    text = """
    A[t, c] = tanh(L[c] * R[t, c])
    H[0, c] = 0
    H[t+1, c] = A[t, c] * H[t, c] + softplus(sin(X[t, c])) * tanh(X[t, c])
    """
    kernel = einsum.compile(text, sizes={"T": 2048, "C": 128}, outputs=("H",))
    assert any("together, part by part" in c for c in kernel.changes)
    rng = np.random.default_rng(1)
    lanes, r, x = rng.uniform(0.1, 1, 128), *rng.standard_normal((2, 2048, 128))
    gates, states = np.tanh(lanes * r), np.zeros((2049, 128))
    added = np.log1p(np.exp(np.sin(x))) * np.tanh(x)
    for t in range(2048):
        states[t + 1] = gates[t] * states[t] + added[t]
    named = {n: a.astype(np.float32) for n, a in {"L": lanes, "R": r, "X": x}.items()}
    assert np.allclose(kernel(**named), states, rtol=1e-4, atol=1e-5)


def test_windows_that_do_not_fit_on_chip_are_stored_whole() -> None:
    # every part of a window is written to one tile, which leaves in one transfer behind their loops
    text = "U[p, q, 6*r + 2*s + c] = X[2*p + r, 2*q + s, c]"
    x = np.random.default_rng(0).standard_normal((13, 13, 2), np.float32)
    kernel = einsum.compile(
        text, shapes={"X": x.shape}, sizes={"P": 6, "Q": 6, "R": 3, "S": 3, "C": 2, "U_2": 18}
    )
    expected = np.stack([x[r : r + 11 : 2, s : s + 11 : 2] for r in range(3) for s in range(3)], 2)
    assert np.array_equal(kernel(x), expected.reshape(6, 6, 18))


def test_few_rows_fill_all_partitions() -> None:
    # 2 images of 1,024 places: 64 parts of each lie on the partitions together
    text = """
    S[n, g] = X[n, p, g, d] ;; V add
    Z[n, p, g, d] = X[n, p, g, d] . S[n, g] ;; M binary(subtract)
    """
    x = np.random.default_rng(0).integers(-3, 4, (2, 1024, 8, 8)).astype(np.float32)
    kernel = einsum.compile(text, shapes={"X": x.shape})
    assert "few rows in parts, one for each lane" in " ".join(kernel.changes)
    assert np.array_equal(kernel(x), x - x.sum((1, 3), keepdims=True))


def test_products_of_small_matrices_on_vector_engine_are_read_by_what_follows() -> None:
    # the mixing of modes of a Fourier neural operator: sums that TensorE does not compute, then a difference
    text = """
    A[b, o, x, y] = R[b, i, x, y] . V[i, o, x, y] ;; M mul V add
    B[b, o, x, y] = J[b, i, x, y] . W[i, o, x, y] ;; M mul V add
    Z[b, o, x, y] = A[b, o, x, y] . B[b, o, x, y] ;; M binary(subtract)
    """
    rng = np.random.default_rng(0)
    r, j = (rng.integers(-3, 4, (16, 32, 12, 12)).astype(np.float32) for _ in range(2))
    v, w = (rng.integers(-3, 4, (32, 32, 12, 12)).astype(np.float32) for _ in range(2))
    kernel = einsum.compile(text, shapes={"R": r.shape, "V": v.shape, "J": j.shape, "W": w.shape})
    named = {"R": r, "V": v, "J": j, "W": w}
    expected = np.einsum("bixy,ioxy->boxy", r, v) - np.einsum("bixy,ioxy->boxy", j, w)
    assert np.array_equal(kernel(**named), expected)


def test_heads_are_taken_together_with_the_blocks_of_each() -> None:
    text = "Z[h, q, e] = sum(softmax(sum(Q[h, q, d] * K[h, k, d], d), k) * V[h, k, e], k)"
    q, k, v = (np.random.default_rng(n).normal(size=s).astype("f4") / 4
               for n, s in enumerate([(6, 256, 32), (6, 150, 32), (6, 150, 24)]))  # fmt: skip
    kernel = einsum.compile(text, shapes={"Q": q.shape, "K": k.shape, "V": v.shape})
    assert any("turns of q together, part by part" in c for c in kernel.changes)
    assert any(c.startswith("turns of h: ") for c in kernel.changes)
    scores = np.exp(np.einsum("hqd,hkd->hqk", q, k).astype(float))
    wanted = np.einsum("hqk,hke->hqe", scores / scores.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(kernel(Q=q, K=k, V=v), wanted, atol=1e-5)
