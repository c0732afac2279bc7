"""Transfers and copies of several turns are one, and kernels compute what they did."""

from __future__ import annotations

import numpy as np
import pytest

import nkilab.einsum
from nkilab.einsum.plan.lower import lower
from nkilab.machine import machine_named
from tests.einsum.test_fuzz import need_no_fault

pytestmark = pytest.mark.corpus

# subscripts, shapes, and transfers at most: each operand and the result in a few, not one for each turn
CASES = [
    ("bnk,bmk->bnm", [(16, 50, 300), (16, 50, 300)], 16),
    ("btd,bsd->bts", [(6, 512, 64), (6, 77, 64)], 16),
    ("bhwc->bwc", [(3, 20, 30, 40)], 20),
    ("nd,nk->dk", [(4096, 64), (4096, 48)], 4),
]


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize(("subscripts", "shapes", "most"), CASES, ids=[c[0] for c in CASES])
def test_small_transfers_of_many_turns_are_few(
    subscripts: str, shapes: list[tuple[int, ...]], most: int, dialect: str
) -> None:
    operands = subscripts.partition("->")[0].split(",")
    names = {
        letter.upper(): n
        for o, s in zip(operands, shapes, strict=True)
        for letter, n in zip(o, s, strict=True)
    }
    kernel = nkilab.einsum.compile(subscripts, sizes=names, dialect=dialect)
    rng = np.random.default_rng(5)
    # whole numbers, which no type rounds
    arrays = [rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes]
    assert np.array_equal(np.asarray(kernel(*arrays)), np.einsum(subscripts, *arrays))
    # by the rules: the timing model may find transfers turn by turn faster
    tree, _ = lower(kernel.cascade, kernel.dtypes, machine_named("trn2"), "kernel")
    assert kernel.of_tree(tree).estimate.program.opcodes()["dma_copy"] <= most


def test_two_stores_of_a_turn_keep_what_they_write() -> None:
    # even and odd columns of a row, which every turn stores
    text = "Z[t, 2*h] = X[t, 2*h] . C[t, h] ;; M mul\nZ[t, 2*h+1] = X[t, 2*h+1] . C[t, h] ;; M mul"
    kernel = nkilab.einsum.compile(text, sizes={"T": 300, "H": 24, "X_1": 48, "Z_1": 48})
    rng = np.random.default_rng(6)
    inputs = {"X": rng.integers(-3, 4, (300, 48)), "C": rng.integers(-3, 4, (300, 24))}
    x, c = (inputs[name].astype(np.float32) for name in ("X", "C"))
    result = np.asarray(kernel(*(inputs[name].astype(np.float32) for name in kernel.inputs)))
    assert np.array_equal(result, x * np.repeat(c, 2, axis=1))


def test_what_is_loaded_and_stored_by_the_same_turns_is_widened_in_one_way() -> None:
    # heads side by side in the columns of a row, each of which is a matrix of its own in the result
    kernel = nkilab.einsum.compile("Z[h, s, d] = X[s, 64*h + d]", sizes={"H": 4, "S": 128, "D": 64})
    need_no_fault(kernel)
    x = np.arange(128 * 256, dtype=np.float32).reshape(128, 256)
    assert np.array_equal(np.asarray(kernel(x)), x.reshape(128, 4, 64).transpose(1, 0, 2))


def test_the_rank_of_states_over_all_iterations_is_not_divided_into_rows() -> None:
    text = """
    einsum:
      declaration: {X: [M, T], S: [M, T1]}
      expressions:
        - S[m, 0] = const(0)
        - {iterate: t, body: ["S[m, t+1] = S[m, t] . X[m, t] ;; M add"]}
      shape: {M: 2, T: 16384, T1: 16385}
    options: {cascade-outputs: [S]}
    """
    kernel = nkilab.einsum.compile(text)
    need_no_fault(kernel)
    x = np.random.default_rng(7).integers(-2, 3, (2, 16384)).astype(np.float32)
    assert np.array_equal(np.asarray(kernel(x))[:, 1:], np.cumsum(x, axis=1))


def test_a_chain_of_more_lanes_than_partitions_is_one() -> None:
    body = "        - S[t+1, b] = tanh(S[t, b] * S[t, b] + Z[t, b])\n        - Y[t, b] = S[t+1, b]"
    text = f"""
einsum:
  declaration: {{A: [B], Z: [T, B], S: [T1, B], Y: [T, B]}}
  expressions:
    - S[0, b] = A[b]
    - iterate: t
      body:
{body}
options: {{cascade-outputs: [Y]}}
"""
    wide, narrow = (nkilab.einsum.compile(text, sizes={"T": 8, "T1": 9, "B": b}) for b in (1000, 125))
    # eight tiles of lanes one after the other take several times as long
    assert wide.estimate.latency_us < 1.5 * narrow.estimate.latency_us
    rng = np.random.default_rng(1)
    state, inputs = rng.standard_normal(1000), rng.standard_normal((8, 1000))
    results = wide(A=state.astype(np.float32), Z=inputs.astype(np.float32))
    for turn, row in zip(inputs, np.asarray(results).reshape(8, 1000), strict=True):
        state = np.tanh(state * state + turn)
        np.testing.assert_allclose(row, state, atol=1e-4)
