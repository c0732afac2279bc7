"""Chunks whose keys decay each by itself: the results of turn after turn, for any decays and turns."""

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
from nkilab.einsum.sets import Access, box, touched
from nkilab.einsum.tree.expr import ZERO, expr
from nkilab.einsum.tree.nodes import Buffer, Cut, Fill, View
from tests.einsum.turns import evaluated

SIZES = {"H": 2, "D": 3, "E": 4}
RANKS = {"Q": "THD", "R": "THD", "K": "THD", "V": "THE", "A": "THD", "B": "TH", "X": "TH", "F": "HDE"}
STEP = "S[t+1, h, d, e] = A[t, h, d] * S[t, h, d, e] + K[t, h, d] * V[t, h, e]\n"
READ = "Y[t, h, e] = sum(Q[t, h, d] * S[t+1, h, d, e], d)\n"
BEFORE = "Y[t, h, e] = sum(Q[t, h, d] * S[t, h, d, e], d)\n"
DELTA = """
S[0, h, d, e] = F[h, d, e]
A[t, h, d] = sigmoid(R[t, h, d])
P[t, h, d, e] = A[t, h, d] * S[t, h, d, e]
U[t, h, e] = B[t, h] * V[t, h, e] - B[t, h] * sum(K[t, h, d] * P[t, h, d, e], d)
S[t+1, h, d, e] = P[t, h, d, e] + K[t, h, d] * X[t, h] * U[t, h, e]
Y[t, h, e] = sum(Q[t, h, d] * S[t+1, h, d, e], d)
"""


def _scans(text: str, turns: int, *outputs: str) -> Cascade:
    """A cascade as rewrites find it."""
    cascade = _with_extents(spec_from(text, None, outputs).cascade, {**SIZES, "T": turns}, {})
    return with_first_values(live(with_scans(inlined(live(sized(cascade))[0])[0])[0])[0])


def _inputs(turns: int) -> dict[str, Any]:
    """Decays of 0, 1, -1, 1e-6 and between; others of order 1."""
    rng, sizes = np.random.default_rng(17), {**SIZES, "T": turns}
    inputs = {n: rng.standard_normal([sizes[r] for r in ranks]) for n, ranks in RANKS.items()}
    decays = rng.choice([0.0, -1.0, 1e-6, *[1.0] * 5], inputs["A"].shape)
    inputs["A"] = decays * rng.uniform(0.5, 1.0, decays.shape) ** rng.choice([0, 1], decays.shape)
    inputs["K"] /= np.linalg.norm(inputs["K"], axis=-1, keepdims=True)
    inputs["B"], inputs["X"] = rng.uniform(0.0, 1.0, (2, turns, SIZES["H"]))
    return inputs


def _turn_after_turn(inputs: dict[str, Any], is_before: bool, has_first: bool) -> tuple[Any, Any]:
    """What turns read, and the last state."""
    state, read = inputs["F"] if has_first else np.zeros_like(inputs["F"]), []
    for decay, key, value, query in zip(*(inputs[n] for n in "AKVQ"), strict=True):
        after = decay[..., None] * state + np.einsum("hd,he->hde", key, value)
        read.append(np.einsum("hd,hde->he", query, state if is_before else after))
        state = after
    return np.array(read), state


@pytest.mark.parametrize("turns", [48, 50, 31])
@pytest.mark.parametrize(("read", "first"), [(READ, "0"), (BEFORE, "0"), (READ, "F[h, d, e]")])
def test_blocks_of_halves_read_what_turn_after_turn_reads(read: str, first: str, turns: int) -> None:
    text = (
        f"S[0, h, d, e] = {first}\n{read}{STEP}"
        if read is BEFORE
        else f"S[0, h, d, e] = {first}\n{STEP}{read}"
    )
    has_first, inputs = first != "0", _inputs(turns)
    text += "Z[h, d, e] = S[T, h, d, e]\n" * has_first
    chunks = with_chunks(_scans(text, turns, "Y", *["Z"] * has_first), 16)
    assert chunks.sizes["T_ROW"] == 16
    results = evaluated(chunks, {n: inputs.get(n, np.nan * np.zeros(chunks.shape(n))) for n in chunks.inputs})
    expected, last = _turn_after_turn(inputs, read is BEFORE, has_first)
    np.testing.assert_allclose(results["Y"], expected, rtol=1e-9, atol=1e-9)
    if has_first:
        np.testing.assert_allclose(results["Z"], last, rtol=1e-9, atol=1e-9)


def test_keys_and_decays_without_turns_are_scaled_once() -> None:
    text = f"S[0, h, d, e] = 0\n{STEP}{READ}".replace("A[t, h, d]", "A[h, d]").replace(
        "K[t, h, d]", "K[h, d]"
    )
    chunks, inputs = with_chunks(_scans(text, 50, "Y"), 16), _inputs(50)
    inputs |= {n: inputs[n][4] for n in "AK"}
    results = evaluated(chunks, {n: inputs.get(n, np.nan * np.zeros(chunks.shape(n))) for n in chunks.inputs})
    inputs |= {n: np.tile(inputs[n], (50, 1, 1)) for n in "AK"}
    expected, _ = _turn_after_turn(inputs, is_before=False, has_first=False)
    np.testing.assert_allclose(results["Y"], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("turns", [48, 50])
def test_a_delta_rule_whose_keys_decay_adds_what_turn_after_turn_adds(turns: int) -> None:
    chunks, inputs = with_chunks(_scans(DELTA, turns, "Y", "U"), 16), _inputs(turns)
    results = evaluated(chunks, {n: inputs.get(n, np.nan * np.zeros(chunks.shape(n))) for n in chunks.inputs})
    state, outputs, added = inputs["F"], [], []
    for t in range(turns):
        state = state / (1.0 + np.exp(-inputs["R"][t]))[..., None]
        error = inputs["V"][t] - np.einsum("hd,hde->he", inputs["K"][t], state)
        added.append(inputs["B"][t][:, None] * error)
        state = state + np.einsum("h,hd,he->hde", inputs["X"][t], inputs["K"][t], added[-1])
        outputs.append(np.einsum("hd,hde->he", inputs["Q"][t], state))
    np.testing.assert_allclose(results["Y"], outputs, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(results["U"], added, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("factor", ["K[t, h, d] * V[t, h]", "K[t, h, d] * V[t, h, e]"])
def test_decays_of_all_that_a_turn_adds_have_no_chunks(factor: str) -> None:
    decay = "A[t, h, d, e]" if "e]" in factor else "A[t, h, d]"
    text = f"S[0, h, d, e] = 0\nS[t+1, h, d, e] = {decay} * S[t, h, d, e] + {factor}\n{READ}"
    scans = _scans(text, 48, "Y")
    assert with_chunks(scans, 16) is scans


@pytest.mark.parametrize(
    "dialect", [pytest.param("nki"), pytest.param("neuronxcc", marks=pytest.mark.corpus(drawn=False))]
)
def test_kernels_go_through_both_halves_of_blocks_at_once(dialect: str) -> None:
    text, sizes = f"S[0, h, d, e] = 0\n{STEP}{READ}", {"T": 200, "H": 1, "D": 64, "E": 64}
    kernel = einsum.compile(text, outputs=["Y"], sizes=sizes, dialect=dialect)
    assert any(change.startswith("recurrences in chunks") for change in kernel.changes)
    # blocks of 4 turns of 128: 32 of 2 turns each, 4 apart
    pattern = "[4, 32], [1, 2]" if dialect == "nki" else "4 * nl.arange(32)[None, :, None] + nl.arange(2)"
    assert pattern in kernel.source
    assert all(verdict.is_fine for verdict in kernel.verify())


def test_parts_of_an_axis_have_the_positions_between_which_others_lie() -> None:
    buffer = Buffer("tile", (1, 16), "float32", "sbuf")
    parts = View(buffer, (Cut(ZERO, expr(1)), Cut(expr(1), expr(4), 4, Cut(ZERO, expr(2)))))
    assert [cut.count.value for cut in parts.cuts] == [1, 4, 2]
    points: list[Any] = []
    touched(Access(parts, True, (), 0, Fill(parts, 0.0))).foreach_point(points.append)
    assert len(points) == 8
    beyond = View(buffer, (Cut(ZERO, expr(1)), Cut(expr(3), expr(4), 4, Cut(ZERO, expr(2)))))
    assert not touched(Access(beyond, True, (), 0, Fill(beyond, 0.0))).is_subset(box(buffer))
