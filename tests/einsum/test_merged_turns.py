"""Turns of few columns: one instruction for blocks of a state, no loop around the chain, one table."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.plan.merged_turns import merged
from nkilab.einsum.tree.expr import ZERO, expr, name_of
from nkilab.einsum.tree.nodes import SBUF, At, Buffer, Combine, Cut, Scale, View, upto

GATED = """
H[0, b, h] = 0
Z[t, b, g] = sigmoid(X[t, b, g] + sum(H[t, b, h] * U[h, g], h))
N[t, b, g] = tanh(K[t, b, g] + sum(H[t, b, h] * W[h, g], h))
H[t+1, b, g] = H[t, b, g] + Z[t, b, g] * (N[t, b, g] - H[t, b, g])
Y[b, g] = H[T, b, g]
"""


def part(name: str, at: At | Cut, *, axis: int = 1) -> View:
    """A part of a tile [128, 4, 32] or, along the last axis, [128, 128]."""
    shape = (128, 4, 32) if axis == 1 else (128, 128)
    return View(Buffer(name, shape, "float32", SBUF), (upto(128), at, *([upto(32)] if axis == 1 else [])))


def test_a_block_of_columns_is_a_position_along_an_axis_behind_the_partitions() -> None:
    turn = name_of("i")
    every = View(Buffer("c", (128, 32), "float32", SBUF), (upto(128), upto(32)))
    pieces = part("b", Cut(turn * 32, expr(32)), axis=2)
    one = merged(Combine(part("a", At(turn)), pieces, "add", every), "i", 4)
    assert isinstance(one, Combine)
    assert [[c.count.value for c in v.cuts] for v in (one.dst, one.left, one.right)] == [[128, 4, 32]] * 3
    assert one.left.index[1] == Cut(ZERO, expr(4), 32, Cut(ZERO, expr(32)))


def test_a_number_for_each_partition_that_changes_from_turn_to_turn_stays_in_its_own_instruction() -> None:
    turn = name_of("i")
    column = View(Buffer("s", (128, 4), "float32", SBUF), (upto(128), Cut(turn, expr(1))))
    assert merged(Scale(part("a", At(turn)), part("b", At(turn)), "multiply", column), "i", 4) is None
    # all turns write the same place: the last one stays
    assert merged(Scale(part("a", At(ZERO)), part("b", At(turn)), "multiply", 2.0), "i", 4) is None


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_a_turn_of_gates_loads_no_table_and_has_its_blocks_in_one_instruction(dialect: str) -> None:
    sizes = {"T": 6, "B": 8, "H": 256, "G": 256}
    kernel = einsum.compile(GATED, sizes=sizes, outputs=["Y"], dialect=dialect)
    turns = kernel.source[kernel.source.index("# turns of t") :]
    assert "sigmoid," not in turns
    assert "tanh," in turns
    rng = np.random.default_rng(2)
    x, k = 12 * rng.standard_normal((2, 6, 8, 256), np.float32)
    u, w = rng.standard_normal((2, 256, 256), np.float32) / 16
    state = np.zeros((8, 256))
    for t in range(6):
        gate = 1 / (1 + np.exp(-(x[t] + state @ u)))
        state = state + gate * (np.tanh(k[t] + state @ w) - state)
    named = {"X": x, "K": k, "U": u, "W": w}
    np.testing.assert_allclose(kernel(**named), state, rtol=1e-4, atol=1e-5)


def test_turns_of_few_columns_run_once_and_not_for_each_tile_of_their_lanes() -> None:
    text = """
    C[0, b, d] = 0
    C[t+1, b, d] = C[t, b, d] + sigmoid(F[d] * C[t, b, d]) * X[t, b, d]
    """
    kernel = einsum.compile(text, sizes={"T": 40, "B": 6, "D": 256}, outputs=["C"])
    assert kernel.source.count("# turns of t") == 1
    assert not any("share loops over d" in change for change in kernel.changes)
    rng = np.random.default_rng(3)
    f, x = rng.standard_normal(256), rng.standard_normal((40, 6, 256))
    states = np.zeros((41, 6, 256))
    for t in range(40):
        states[t + 1] = states[t] + x[t] / (1 + np.exp(-f * states[t]))
    result = kernel(F=f.astype(np.float32), X=x.astype(np.float32))
    np.testing.assert_allclose(result, states, rtol=1e-4, atol=1e-4)
