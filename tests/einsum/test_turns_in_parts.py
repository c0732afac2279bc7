"""Blocks whose states need each other linearly, in parts of their turns: against loops in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from nkilab import einsum

WHAT = "turns of linear blocks in parts"
Arrays = dict[str, np.ndarray]


class Turns(NamedTuple):
    """Expressions and what they mean: states that a turn leaves, given those before and the inputs."""

    text: str
    begin: Callable[[Arrays], list[np.ndarray]]
    turn: Callable[[list[np.ndarray], Arrays, int], list[np.ndarray]]


def _holt(states: list[np.ndarray], inputs: Arrays, t: int) -> list[np.ndarray]:
    level, trend = states
    own = 0.3 * inputs["X"][t] + 0.7 * (level + trend)
    return [own, 0.1 * (own - level) + 0.9 * trend]


def _three(states: list[np.ndarray], inputs: Arrays, t: int) -> list[np.ndarray]:
    a, b, c = states
    return [0.5 * b - c, c - 0.25 * a, 0.75 * a + inputs["X"][t]]


CASES = {
    "a rotation of its own in each lane": Turns(
        "R[0, n] = 1\nI[0, n] = 0\nR[t+1, n] = G[n] * R[t, n] - 0.4 * I[t, n] + X[t, n]\n"
        "I[t+1, n] = G[n] * I[t, n] + 0.4 * R[t, n]\nZ[t, n] = R[t+1, n] * 2",
        lambda inputs: [np.ones(inputs["G"].shape), np.zeros(inputs["G"].shape)],
        lambda s, inputs, t: [
            inputs["G"] * s[0] - 0.4 * s[1] + inputs["X"][t],
            inputs["G"] * s[1] + 0.4 * s[0],
        ],
    ),
    "level and trend, of which one reads what the other has just written": Turns(
        "R[0, n] = G[n]\nB[0, n] = 0\nR[t+1, n] = 0.3 * X[t, n] + 0.7 * (R[t, n] + B[t, n])\n"
        "B[t+1, n] = 0.1 * (R[t+1, n] - R[t, n]) + 0.9 * B[t, n]\nZ[t, n] = 2 * R[t+1, n]",
        lambda inputs: [inputs["G"], np.zeros(inputs["G"].shape)],
        _holt,
    ),
    "what multiplies differs from turn to turn": Turns(
        "R[0, n] = 0\nQ[0, n] = G[n]\nR[t+1, n] = X[t, n] * R[t, n] + 0.2 * Q[t, n]\n"
        "Q[t+1, n] = 0.5 * Q[t, n] - X[t, n] * R[t, n] + 1\nZ[t, n] = 2 * R[t+1, n]",
        lambda inputs: [np.zeros(inputs["G"].shape), inputs["G"]],
        lambda s, inputs, t: [inputs["X"][t] * s[0] + 0.2 * s[1], 0.5 * s[1] - inputs["X"][t] * s[0] + 1],
    ),
    "three states": Turns(
        "R[0, n] = G[n]\nB[0, n] = 0\nC[0, n] = 1\nR[t+1, n] = 0.5 * B[t, n] - C[t, n]\n"
        "B[t+1, n] = C[t, n] - 0.25 * R[t, n]\nC[t+1, n] = 0.75 * R[t, n] + X[t, n]\nZ[t, n] = 2 * R[t+1, n]",
        lambda inputs: [inputs["G"], np.zeros(inputs["G"].shape), np.ones(inputs["G"].shape)],
        _three,
    ),
    "a filter of two turns before": Turns(
        "R[0, n] = 0\nR[1, n] = G[n]\nR[t+2, n] = X[t, n] - (0.5 * R[t, n] - 1.2 * R[t+1, n])\n"
        "Z[t, n] = 2 * R[t+2, n]",
        lambda inputs: [inputs["G"], np.zeros(inputs["G"].shape)],
        lambda s, inputs, t: [inputs["X"][t] + 1.2 * s[0] - 0.5 * s[1], s[0]],
    ),
}


def _expected(case: Turns, inputs: Arrays) -> np.ndarray:
    states, rows = case.begin(inputs), []
    for t in range(len(inputs["X"])):
        states = case.turn(states, inputs, t)
        rows.append(2 * states[0])
    return np.array(rows)


# 101 is prime: turns are left over behind all parts
@pytest.mark.parametrize(("turns", "lanes"), [(96, 5), (101, 40), (128, 200)])
@pytest.mark.parametrize("what", CASES)
@pytest.mark.corpus
def test_parts_have_the_values_of_turns_one_by_one(what: str, turns: int, lanes: int) -> None:
    case, rng = CASES[what], np.random.default_rng(turns)
    inputs = {"X": rng.uniform(-0.9, 0.9, (turns, lanes)), "G": rng.uniform(-0.8, 0.8, lanes)}
    shapes = {name: array.shape for name, array in inputs.items()}
    for dialect in ("nki", "neuronxcc"):
        kernel = einsum.compile(case.text, shapes=shapes, outputs=["Z"], dialect=dialect)
        result = kernel(**{name: array.astype(np.float32) for name, array in inputs.items()})
        # values of order 1 to 10, of which every turn keeps a part
        assert np.allclose(result, _expected(case, inputs), rtol=2e-5, atol=2e-5)
        assert not any("PLANNED ANOTHER WAY" in change for change in kernel.changes)
        assert not any("FAULT" in line for line in kernel.alternatives)
    if lanes == 5:
        assert any(change.startswith(WHAT) for change in kernel.changes)
        assert "_part" in kernel.source


def test_parts_of_few_lanes_take_less_than_their_chain_of_turns() -> None:
    case = CASES["level and trend, of which one reads what the other has just written"]
    sizes = {"X": (1024, 64), "G": (64,)}
    parts = einsum.compile(case.text, shapes=sizes, outputs=["Z"])
    # VectorE takes 60 ns for an instruction at least, and a turn has four after each other
    assert parts.estimate.latency_us < 1024 * 4 * 0.06
    assert any(
        "results are right where what becomes of 1 in a part is within float32" in c for c in parts.changes
    )
    # so that the chain is no bound
    assert parts.roofline.times_ns["chain"] == 0


def test_states_that_are_multiplied_with_each_other_stay_turn_by_turn() -> None:
    text = (
        "R[0, n] = 1\nQ[0, n] = 1\nR[t+1, n] = 0.5 * R[t, n] * Q[t, n] + X[t, n]\n"
        "Q[t+1, n] = 0.5 * Q[t, n] - 0.1 * R[t, n]\nZ[t, n] = R[t+1, n]"
    )
    kernel = einsum.compile(text, shapes={"X": (96, 5)}, outputs=["Z"])
    assert not any(line.startswith(WHAT) for line in (*kernel.alternatives, *kernel.changes))
    x = np.random.default_rng(3).uniform(-0.5, 0.5, (96, 5))
    r = q = np.ones(5)
    rows = []
    for row in x:
        r, q = 0.5 * r * q + row, 0.5 * q - 0.1 * r
        rows.append(r)
    assert np.allclose(kernel(X=x.astype(np.float32)), rows, rtol=1e-5, atol=1e-5)
