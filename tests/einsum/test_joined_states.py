"""States with the same decays, keys and queries are columns of one: what turn after turn reads of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.compiler import _with_extents
from nkilab.einsum.language.ast import Cascade
from nkilab.einsum.language.extents import sized
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.rewrite.inlined import inlined
from nkilab.einsum.rewrite.joined_states import with_joined_chunks
from nkilab.einsum.rewrite.live import live
from nkilab.einsum.rewrite.recurrences import with_first_values, with_scans
from tests.einsum.turns import evaluated

TURNS = 47  # three chunks of 16, one turn less
SIZES = {"T": TURNS, "H": 2, "D": 3, "E": 4, "F": 2, "K": 3}
INPUTS = {
    "A": "TH",
    "G": "TH",
    "K": "THD",
    "V": "THE",
    "U": "THF",
    "Q": "THD",
    "P": "THD",
    "C": "HDE",
    "N": "HD",
}
MEMORY = """
S[0, h, d, e] = {first}
Z[0, h, k] = {begin}
{early}
S[t+1, h, d, e] = A[t, h] * S[t, h, d, e] + G[t, h] * K[t, h, d] * V[t, h, e]
Z[t+1, h, k] = A[t, h] * Z[t, h, k] + G[t, h] * K[t, h, k]
{late}
Y[t, h, e] = X[t, h, e] / (1 + R[t, h])
"""
READ = """
X[t, h, e] = sum(Q[t, h, d] * S[t+1, h, d, e], d)
R[t, h] = abs(sum(Z[t+1, h, k] * Q[t, h, k], k))
"""
BEFORE = READ.replace("t+1", "t")
LAST = "L[h, d, e] = S[T, h, d, e]\nM[h, k] = Z[T, h, k]\n"


def _scans(text: str, *outputs: str) -> Cascade:
    """A cascade as rewrites find it."""
    sizes = {rank: size for rank, size in SIZES.items() if f" {rank.lower()}" in text or rank == "T"}
    cascade = _with_extents(spec_from(text, None, outputs).cascade, sizes, {})
    return with_first_values(live(with_scans(inlined(live(sized(cascade))[0])[0])[0])[0])


def _inputs() -> dict[str, Any]:
    """Decays of 0, 1 and between; others of order 1."""
    rng = np.random.default_rng(23)
    inputs = {n: rng.standard_normal([SIZES[r] for r in ranks]) for n, ranks in INPUTS.items()}
    return inputs | {"A": rng.choice([0.0, 1.0, 0.9, 0.5, 1.0, 1e-20], inputs["A"].shape)}


def _joined(cascade: Cascade) -> tuple[dict[str, Any], int]:
    """The results of a cascade in chunks of 16 turns, and how many blocks there are."""
    chunks, inputs = with_joined_chunks(cascade, 16), _inputs()
    nothing = {n: np.nan * np.zeros(chunks.shape(n)) for n in chunks.inputs}
    return evaluated(chunks, {n: inputs.get(n, nothing[n]) for n in nothing}), len(chunks.blocks)


def _turn_after_turn(inputs: dict[str, Any], is_before: bool, has_first: bool) -> dict[str, Any]:
    state, norm = (inputs[n] * has_first for n in "CN")
    read = []
    for decay, gate, key, value, query in zip(*(inputs[n] for n in "AGKVQ"), strict=True):
        now = decay[:, None, None] * state + np.einsum("h,hd,he->hde", gate, key, value)
        sums = decay[:, None] * norm + gate[:, None] * key
        own, of = (state, norm) if is_before else (now, sums)
        total = np.einsum("hd,hde->he", query, own)
        read.append(total / (1 + np.abs((query * of).sum(-1)))[:, None])
        state, norm = now, sums
    return {"Y": np.array(read), "L": state, "M": norm}


@pytest.mark.parametrize(("read", "first"), [(READ, False), (BEFORE, False), (READ, True)])
def test_a_memory_and_its_normaliser_are_one_state_whatever_their_letters(read: str, first: bool) -> None:
    early, late = (read, "") if read is BEFORE else ("", read)
    begins = ("C[h, d, e]", "N[h, k]") if first else ("0", "0")
    text = MEMORY.format(first=begins[0], begin=begins[1], early=early, late=late) + LAST * first
    results, blocks = _joined(_scans(text, "Y", *"LM"[: 2 * first]))
    assert blocks == 1
    expected = _turn_after_turn(_inputs(), read is BEFORE, first)
    for name in "YLM"[: 3 if first else 1]:
        np.testing.assert_allclose(results[name], expected[name], rtol=1e-9, atol=1e-9)


def test_memories_that_take_products_away_are_one_state_too() -> None:
    text = MEMORY.format(first="0", begin="0", early="", late=READ).replace("+ G[t, h]", "- G[t, h]")
    results, blocks = _joined(_scans(text, "Y"))
    assert blocks == 1
    # memories are less than 0 by what they are above it else, and the normaliser is its magnitude
    expected = -_turn_after_turn(_inputs(), False, False)["Y"]
    np.testing.assert_allclose(results["Y"], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("decay", ["A[t, h]", "P[t, h, d]"])
def test_two_memories_of_one_key_stand_side_by_side(decay: str) -> None:
    text = f"""
S[0, h, d, e] = 0
W[0, h, d, f] = 0
S[t+1, h, d, e] = {decay} * S[t, h, d, e] + K[t, h, d] * V[t, h, e]
W[t+1, h, d, f] = {decay} * W[t, h, d, f] + K[t, h, d] * U[t, h, f]
Y[t, h, e] = sum(Q[t, h, d] * S[t+1, h, d, e], d)
X[t, h, f] = sum(Q[t, h, d] * W[t+1, h, d, f], d)
"""
    inputs, state = _inputs(), np.zeros((2, 3, 6))
    results, blocks = _joined(_scans(text, "Y", "X"))
    assert blocks == 1
    for t in range(TURNS):
        left = inputs["P"][t] if "d" in decay else inputs["A"][t][:, None]
        values = np.concatenate([inputs["V"][t], inputs["U"][t]], axis=-1)
        state = left[..., None] * state + np.einsum("hd,he->hde", inputs["K"][t], values)
        read = np.einsum("hd,hde->he", inputs["Q"][t], state)
        np.testing.assert_allclose(results["Y"][t], read[:, :4], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(results["X"][t], read[:, 4:], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Z[t+1, h, k] * Q[t, h, k]", "Z[t+1, h, k] * P[t, h, k]"),  # another query
        ("A[t, h] * Z", "G[t, h] * Z"),  # another decay
        ("G[t, h] * K[t, h, k]", "G[t, h] * P[t, h, k]"),  # another key
    ],
)
def test_states_that_differ_in_more_than_values_stay_two(old: str, new: str) -> None:
    text = MEMORY.format(first="0", begin="0", early="", late=READ)
    assert old in text
    assert _joined(_scans(text.replace(old, new), "Y"))[1] == 2


def test_a_normaliser_that_adds_what_is_read_of_the_memory_stays_apart() -> None:
    text = MEMORY.format(first="0", begin="0", early="", late=READ.strip().split("\n")[1])
    text = text.replace("G[t, h] * K[t, h, k]", "B[t, h] * K[t, h, k]")
    waits = READ.strip().split("\n")[0] + "\nB[t, h] = G[t, h] * sum(X[t, h, e], e)\nZ[t+1, h, k] = "
    assert _joined(_scans(text.replace("Z[t+1, h, k] = ", waits), "Y"))[1] == 2


def test_kernels_of_a_gated_memory_read_its_normaliser_as_a_column() -> None:
    text = MEMORY.format(first="0", begin="0", early="A[t, h] = sigmoid(B[t, h])", late=READ)
    kernel = einsum.compile(text, outputs=["Y"], sizes={"T": 300, "H": 2, "D": 16, "E": 24, "K": 16})
    assert any(change.startswith("recurrences in chunks") for change in kernel.changes)
    assert "S_read" in kernel.source
    assert all(verdict.is_fine for verdict in kernel.verify())
