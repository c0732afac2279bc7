"""The delta rule in chunks of turns: the results of turn after turn, where states are within float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.compiler import _with_extents
from nkilab.einsum.language.ast import Cascade
from nkilab.einsum.language.extents import sized
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.rewrite.chunks import with_chunks
from nkilab.einsum.rewrite.inlined import inlined
from nkilab.einsum.rewrite.live import live
from nkilab.einsum.rewrite.recurrences import with_first_values, with_scans
from tests.einsum.turns import evaluated

SIZES = {"T": 96, "H": 2, "D": 6, "E": 5}
RULE = """
S[0, h, d, e] = 0
U[t, h, e] = B[t, h] * (V[t, h, e] - sum(S[t, h, d, e] * K[t, h, d], d))
S[t+1, h, d, e] = S[t, h, d, e] + K[t, h, d] * U[t, h, e]
O[t, h, e] = sum(Q[t, h, d] * S[t+1, h, d, e], d)
"""
GATED = """
A[t, h] = sigmoid(G[t, h])
S[0, h, d, e] = F[h, d, e]
P[t, h, d, e] = A[t, h] * S[t, h, d, e]
U[t, h, e] = B[t, h] * V[t, h, e] - B[t, h] * sum(K[t, h, d] * P[t, h, d, e], d)
S[t+1, h, d, e] = P[t, h, d, e] + K[t, h, d] * U[t, h, e]
O[t, h, e] = sum(Q[t, h, d] * S[t+1, h, d, e], d)
"""

# turns that add what they read besides a product of their own, and take the latter away
TERMS = """
S[0, h, d, e] = 0
U[t, h, e] = -sum(S[t, h, d, e] * K[t, h, d], d)
S[t+1, h, d, e] = W[t, h] * S[t, h, d, e] + K[t, h, d] * B[t, h] * U[t, h, e] - Q[t, h, d] * V[t, h, e]
O[t, h, e] = sum(Q[t, h, d] * S[t+1, h, d, e], d)
"""
GROWING = RULE.replace("= S[t, h, d, e] +", "= G[t, h] * S[t, h, d, e] +")


def _scans(text: str, *outputs: str) -> Cascade:
    """A cascade as rewrites find it."""
    cascade = live(sized(_with_extents(spec_from(text, None, outputs).cascade, SIZES, {})))[0]
    return with_first_values(live(with_scans(inlined(cascade)[0])[0])[0])


def _inputs(length: float = 1.0) -> dict[str, Any]:
    """Keys of a length; others of order 1."""
    rng = np.random.default_rng(11)
    shapes = {"Q": "THD", "K": "THD", "V": "THE", "B": "TH", "G": "TH", "F": "HDE"}
    inputs = {n: rng.standard_normal([SIZES[r] for r in ranks]) for n, ranks in shapes.items()}
    inputs["K"] *= length / np.linalg.norm(inputs["K"], axis=-1, keepdims=True)
    inputs["B"] = rng.uniform(0.0, 1.0, inputs["B"].shape)
    return inputs


def _turn_after_turn(inputs: dict[str, Any], is_gated: bool) -> tuple[Any, Any]:
    """What the rule says: outputs, and what turns add."""
    state = inputs["F"] if is_gated else np.zeros_like(inputs["F"])
    outputs, added = [], []
    for t in range(SIZES["T"]):
        state = state / (1.0 + np.exp(-inputs["G"][t]))[:, None, None] if is_gated else state
        read = np.einsum("hde,hd->he", state, inputs["K"][t])
        added.append(inputs["B"][t][:, None] * (inputs["V"][t] - read))
        state = state + np.einsum("hd,he->hde", inputs["K"][t], added[-1])
        outputs.append(np.einsum("hd,hde->he", inputs["Q"][t], state))
    return np.array(outputs), np.array(added)


def _evaluated(cascade: Cascade, inputs: dict[str, Any]) -> dict[str, Any]:
    """Every tensor; states, which chunks need no more, are still declared."""
    return evaluated(cascade, {n: inputs.get(n, np.nan * np.zeros(cascade.shape(n))) for n in cascade.inputs})


@pytest.mark.parametrize("text", [RULE, GATED])
def test_a_triangular_system_adds_what_turn_after_turn_adds(text: str) -> None:
    scans, inputs = _scans(text, "O", "U"), _inputs()
    chunks = with_chunks(scans, 128)
    # 96 turns are 2 chunks of 48, which no power of 2 divides
    assert [s.variable for s in chunks.blocks] == ["t_level", "t_chunk"]
    assert chunks.sizes["T_CHUNK"] == 2
    assert chunks.outputs == scans.outputs
    results = _evaluated(chunks, inputs)
    outputs, added = _turn_after_turn(inputs, text is GATED)
    np.testing.assert_allclose(results["O"], outputs, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(results["U"], added, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("turns", [96, 100])  # whole chunks, and one that has fewer turns
@pytest.mark.parametrize("left", ["TH", "THD"])
def test_products_beside_what_turns_read_are_added_too(
    left: str, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SIZES, "T", turns)
    text = TERMS if left == "TH" else TERMS.replace("W[t, h] ", "W[t, h, d] ")
    scans, inputs = _scans(text, "O"), _inputs()
    decay = np.random.default_rng(5).uniform(0.5, 1.0, [SIZES[r] for r in left])
    chunks = with_chunks(scans, 128)
    assert chunks is not scans
    results = _evaluated(chunks, {**inputs, "W": decay})["O"]
    state, outputs = np.zeros([SIZES[r] for r in "HDE"]), []
    for t in range(turns):
        read = np.einsum("hde,hd->he", state, inputs["K"][t])
        state = state * decay[t].reshape(2, -1, 1)
        state = state - np.einsum("hd,h,he->hde", inputs["K"][t], inputs["B"][t], read)
        state = state - np.einsum("hd,he->hde", inputs["Q"][t], inputs["V"][t])
        outputs.append(np.einsum("hd,hde->he", inputs["Q"][t], state))
    np.testing.assert_allclose(results, outputs, rtol=1e-9, atol=1e-9)


def test_what_is_taken_away_is_as_what_is_added() -> None:
    text = RULE.replace("V[t, h, e] - sum", "-V[t, h, e] + sum").replace("d, e] + K", "d, e] - K")
    inputs, chunks = _inputs(), with_chunks(_scans(text, "O"), 128)
    assert "t_chunk" in [s.variable for s in chunks.blocks]
    outputs, _ = _turn_after_turn({**inputs, "F": np.zeros_like(inputs["F"])}, False)
    np.testing.assert_allclose(_evaluated(chunks, inputs)["O"], outputs, rtol=1e-9, atol=1e-9)


def test_what_is_left_may_grow_beyond_float32_behind_turns_that_are_right() -> None:
    # 1e100 of each turn is left at the next one: 1e300 after 3, and infinite of what is left after 4
    inputs, chunks = _inputs(), with_chunks(_scans(GROWING, "O"), 128)
    inputs["G"][:] = 1e100
    with np.errstate(all="ignore"):
        results = _evaluated(chunks, inputs)["O"]
    state = np.zeros_like(inputs["F"])
    for t in range(3):
        added = inputs["B"][t][:, None] * (inputs["V"][t] - np.einsum("hde,hd->he", state, inputs["K"][t]))
        state = state * 1e100 + np.einsum("hd,he->hde", inputs["K"][t], added)
        np.testing.assert_allclose(results[t], np.einsum("hd,hde->he", inputs["Q"][t], state), rtol=1e-6)
    assert not np.isfinite(results[12:]).any()
    kernel = einsum.compile(GROWING, sizes={"T": 128, "H": 2, "D": 32, "E": 32}, outputs=["O"])
    assert (
        "S[t + 1, h, d, e]: G[t, h] may be beyond -1 and 1; results are right where its products over "
        "a chunk are within float32, and errors of rounding grow with these"
    ) in kernel.changes


def test_turns_before_a_state_without_end_are_right() -> None:
    # with keys as long, states become 1e99 times as large every other turn, and infinite at some turn
    inputs, chunks = _inputs(length=1e50), with_chunks(_scans(RULE, "O"), 128)
    with np.errstate(all="ignore"):
        outputs, _ = _turn_after_turn(inputs, False)
        results = _evaluated(chunks, inputs)["O"]
    assert np.isfinite(outputs[:3]).all()
    assert not np.isfinite(outputs[12:]).any()
    np.testing.assert_allclose(results[:3], outputs[:3], rtol=1e-6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- sum(S[t, h, d, e] * K[t, h, d], d))", "- sum(S[t, h, d, e] * K[t, h, d], d)**2)"),  # not linear
        ("- sum(S[t, h, d, e] * K[t, h, d], d))", "- max(S[t, h, d, e] * K[t, h, d], d))"),  # no sum
    ],
)
def test_other_rules_stay_turn_after_turn(old: str, new: str) -> None:
    assert old in RULE
    scans = _scans(RULE.replace(old, new), "O")
    assert with_chunks(scans, 128) is scans


@pytest.mark.corpus(drawn=False)
def test_a_long_delta_rule_takes_a_fifth_of_the_time_in_chunks() -> None:
    sizes = {"T": 512, "H": 4, "D": 64, "E": 64}
    kernel = einsum.compile(RULE, sizes=sizes, outputs=["O"])
    stepwise = einsum.compile(RULE, sizes={**sizes, "T": 31}, outputs=["O"])
    assert kernel.estimate.latency_us / 512 < stepwise.estimate.latency_us / 31 / 2.5
    # no turn of a chunk waits for the one before it
    assert kernel.roofline.times_ns["chain"] == 0
    smaller = einsum.compile(RULE, sizes={"T": 128, "H": 2, "D": 32, "E": 32}, outputs=["O"])
    assert "recurrences in chunks, as products" in " ".join(smaller.changes)
    assert all(verdict.is_fine for verdict in smaller.verify())


@pytest.mark.corpus(drawn=False)
def test_keys_of_all_levels_lie_in_hbm_between_those_of_others() -> None:
    # halves of blocks of 4, 8, ... turns are written by themselves, where there is no room on chip for all
    text = RULE.replace("= S[t, h, d, e] +", "= W[t, h, d] * S[t, h, d, e] +")
    sizes = {"T": 128, "H": 2, "D": 32, "E": 32}
    kernel = einsum.compile(text, sizes=sizes, outputs=["O"])
    assert "recurrences in chunks, as products" in " ".join(kernel.changes)
    assert not any("PLANNED ANOTHER WAY" in change for change in kernel.changes)
    rng = np.random.default_rng(3)
    inputs = {n: rng.standard_normal([sizes[r] for r in s]) for n, s in zip("QKV", ("THD", "THD", "THE"))}
    inputs["K"] /= np.linalg.norm(inputs["K"], axis=-1, keepdims=True)
    inputs |= {"B": rng.uniform(0.0, 1.0, (128, 2)), "W": rng.uniform(0.3, 1.0, (128, 2, 32))}
    results, state = kernel(**{n: a.astype(np.float32) for n, a in inputs.items()}), np.zeros((2, 32, 32))
    for t in range(128):
        read = np.einsum("hde,hd->he", state, inputs["K"][t])
        added = inputs["B"][t][:, None] * (inputs["V"][t] - read)
        state = inputs["W"][t][..., None] * state + np.einsum("hd,he->hde", inputs["K"][t], added)
        # of order 10, in float32
        assert np.allclose(results[t], np.einsum("hd,hde->he", inputs["Q"][t], state), atol=2e-5)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_the_fewest_turns_are_right(turns: int) -> None:
    inputs = {n: a[:turns] if n != "F" else a for n, a in _inputs().items()}
    kernel = einsum.compile(RULE, sizes={**SIZES, "T": turns}, outputs=["O"])
    states = np.zeros_like(inputs["F"])
    for t in range(turns):
        added = inputs["B"][t][:, None] * (inputs["V"][t] - np.einsum("hde,hd->he", states, inputs["K"][t]))
        states = states + np.einsum("hd,he->hde", inputs["K"][t], added)
    result = kernel(**{n: inputs[n].astype(np.float32) for n in "BVKQ"})
    assert np.allclose(result[-1], np.einsum("hd,hde->he", inputs["Q"][turns - 1], states), atol=1e-5)
