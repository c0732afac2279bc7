"""Scans of few rows in parts, one for each lane: equal to the recurrence step by step, and faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.language.ast import Cascade
from nkilab.einsum.language.extents import sized
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.rewrite.live import live
from nkilab.einsum.rewrite.recurrences import with_scans
from nkilab.einsum.rewrite.scan_parts import with_scans_in_parts
from tests.einsum.turns import evaluated

LANES = 4


def _spec(body: str, first: str, more: str = "", behind: str = "", outputs: str = "S") -> str:
    return f"""
einsum:
  declaration: {{X: [M, T], A: [M, T], L: [M, T], D: [M, T], P: [M, T], S: [M, T1]{more}}}
  expressions:
    - L[m, t] = A[m, t] . const(-1) ;; M max
    - D[m, t] = L[m, t] . const(1) ;; M min
    - S[m, 0] = {first}
    - iterate: t
      body: [{body}]
{behind}
options: {{cascade-outputs: [{outputs}]}}
"""


Step = Callable[[Any, Any, Any], Any]
UP = '"P[m, t] = D[m, t] . S[m, t] ;; M {}", "S[m, t+1] = P[m, t] . X[m, t] ;; M {}"'
PLAIN = '"S[m, t+1] = S[m, t] . X[m, t] ;; M {}"'
FORMS: dict[str, tuple[str, float, Step]] = {
    "a sum": (PLAIN.format("add"), 2.0, lambda s, a, x: s + x),
    "a difference": (PLAIN.format("binary(subtract)"), 2.0, lambda s, a, x: s - x),
    "a product": (PLAIN.format("mul").replace("X", "D"), 2.0, lambda s, a, x: s * a),
    "a maximum": (PLAIN.format("max"), -1.0, lambda s, a, x: np.maximum(s, x)),
    "a minimum": (PLAIN.format("min"), 1.0, lambda s, a, x: np.minimum(s, x)),
    "decays of turns": (UP.format("mul", "add"), 2.0, lambda s, a, x: a * s + x),
    "decays and a difference": (UP.format("mul", "binary(subtract)"), 2.0, lambda s, a, x: a * s - x),
    "a sum, then a maximum": (UP.format("add", "max"), 0.0, lambda s, a, x: np.maximum(a + s, x)),
    "a number that decays": (UP.replace("D[m, t]", "0.75").format("mul", "add"), 2.0,
                             lambda s, a, x: 0.75 * s + x),
}  # fmt: skip


def _inputs(rows: int, turns: int) -> dict[str, Any]:
    """Decays between -1 and 1, some of them 0."""
    rng = np.random.default_rng(5)
    signs = rng.choice([-1.0, 0.0, 1.0, 1.0], (rows, turns))
    return {"X": rng.standard_normal((rows, turns)), "A": rng.uniform(0.5, 1.0, (rows, turns)) * signs}


def _scans(spec: str, rows: int, turns: int) -> Cascade:
    """The scans of a specification."""
    sizes = {"M": rows, "T": turns, "T1": turns + 1}
    return live(with_scans(sized(replace(spec_from(spec).cascade, sizes=sizes)))[0])[0]


def _by_steps(step: Step, first: float, inputs: dict[str, Any]) -> Any:
    """The states, one after the other."""
    states = [np.full(len(inputs["X"]), first)]
    for a, x in zip(inputs["A"].T, inputs["X"].T, strict=True):
        states.append(step(states[-1], a, x))
    return np.array(states).T


@pytest.mark.parametrize("turns", [128, 131, 259])
@pytest.mark.parametrize("form", FORMS)
def test_parts_have_the_states_of_turns_one_after_the_other(form: str, turns: int) -> None:
    body, first, step = FORMS[form]
    whole = _scans(_spec(body, f"const({first:g})"), 2, turns)
    parted = with_scans_in_parts(whole, LANES)
    inputs = _inputs(2, turns)
    known = {name: inputs.get(name, np.zeros((2, turns))) for name in parted.inputs}
    assert parted is not whole
    np.testing.assert_allclose(
        evaluated(parted, known)["S"], _by_steps(step, first, inputs), rtol=1e-10, atol=1e-10
    )


def test_rows_that_fill_half_of_the_lanes_stay_whole() -> None:
    whole = _scans(_spec(FORMS["a sum"][0], "const(0)"), 3, 256)
    assert with_scans_in_parts(whole, LANES) is whole


def test_what_grows_from_turn_to_turn_stays_whole() -> None:
    # 2 to the power of 64 turns times nothing is nothing, and no number times infinity
    whole = _scans(_spec(UP.replace("D[m, t]", "2.0").format("mul", "add"), "const(0)"), 1, 256)
    assert with_scans_in_parts(whole, LANES) is whole


def _run(compiled: einsum.CompiledEinsum, inputs: dict[str, Any]) -> Any:
    """What a kernel returns; what is declared and not used is 0."""
    arrays = {n: inputs.get(n, np.zeros_like(inputs["X"])) for n in compiled.inputs}
    return compiled(**{n: array.astype(np.float32) for n, array in arrays.items()})


BEFORE = '"S[m, t+1] = S[m, t] . X[m, t] ;; M add", "Y[m, t] = S[m, t] . A[m, t] ;; M mul"'


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_a_kernel_of_parts_reads_first_and_last_states_and_those_before(dialect: str) -> None:
    spec = _spec(BEFORE, "I[m]", ", I: [M], Y: [M, T], F: [M]", "    - F[m] = S[m, T]", "S, Y, F")
    inputs = _inputs(2, 4096) | {"I": np.array([3.0, -1.0])}
    compiled = einsum.compile(spec, sizes={"M": 2, "T": 4096, "T1": 4097}, dialect=dialect)
    assert "scans of few rows in parts" in " ".join(compiled.changes)
    states, products, last = _run(compiled, inputs)
    wanted = np.cumsum(np.c_[inputs["I"], inputs["X"]], axis=1)
    np.testing.assert_allclose(states, wanted, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(products, wanted[:, :-1] * inputs["A"], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(last, wanted[:, -1], rtol=1e-4, atol=1e-3)


def test_turns_that_parts_leave_follow_them() -> None:
    # 128 parts of 32 turns, and 84 turns; 4181 states are 113 times 37, and their rank stays whole
    inputs = _inputs(1, 4180)
    compiled = einsum.compile(_spec(FORMS["a sum"][0], "const(0)"), sizes={"M": 1, "T": 4180, "T1": 4181})
    assert "scans of few rows in parts" in " ".join(compiled.changes)
    states = _run(compiled, inputs)
    np.testing.assert_allclose(states[:, 1:], np.cumsum(inputs["X"], axis=1), rtol=1e-4, atol=1e-3)


def test_a_long_row_takes_a_fifth_of_the_time_of_one_lane() -> None:
    spec = _spec(FORMS["a sum"][0], "const(0)")
    parted = einsum.compile(spec, sizes={"M": 1, "T": 65536, "T1": 65537})
    # a lane takes an element of a scan in two cycles of 0.96 GHz
    assert parted.estimate.latency_us < 65536 * 2 / 0.96 / 1000 / 5
