"""Linear recurrences in chunks: products instead of a scan, with equal results, where they are cheaper."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.language.extents import sized
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.plan.knobs import Picker
from nkilab.einsum.plan.rewritten import REWRITES, rewritten_by
from nkilab.einsum.rewrite.recurrences import with_scans
from nkilab.einsum.timed import FAULT

CHUNKS = next(what for what in REWRITES if "chunks" in what)
LONG = {"T": 2048, "T1": 2049, "H": 8, "N": 64, "D": 64}
SIZES = {"T": 384, "T1": 385, "H": 2, "N": 32, "D": 40}


def _spec(
    body: list[str], tensors: str, outputs: str = "Y", first: str = "const(0)", behind: str = ""
) -> str:
    steps = "\n".join(f"        - {step}" for step in body)
    return f"""
einsum:
  declaration: {{{tensors}}}
  expressions:
    - S[0, h, n, d] = {first}
    - iterate: t
      body:
{steps}
{behind}
options: {{cascade-outputs: [{outputs}]}}
"""


STATE = "P: [T, H, N, D], B: [T, H, N, D], S: [T1, H, N, D], Y: [T, H, D]"
UPDATE = [
    "B[t, h, n, d] = K[t, n] . V[t, h, d] ;; M mul",
    "S[t+1, h, n, d] = P[t, h, n, d] . B[t, h, n, d] ;; M add",
]
READ = "Y[t, h, d] = Q[t, n] . S[t+1, h, n, d] ;; M mul V add"
READ_BEFORE = READ.replace("t+1", "t")
KEYS = "K: [T, N], V: [T, H, D], Q: [T, N]"
DECAYED = "P[t, h, n, d] = A[t, h] . S[t, h, n, d] ;; M mul"
FORMS = {
    "decays of turns and heads": _spec([DECAYED, *UPDATE, READ], f"A: [T, H], {KEYS}, {STATE}"),
    "a decay for each head": _spec(
        [DECAYED.replace("A[t, h]", "A[h]"), *UPDATE, READ], f"A: [H], {KEYS}, {STATE}"
    ),
    "no decay": _spec(
        [UPDATE[0], UPDATE[1].replace("P[t", "S[t"), READ],
        f"{KEYS}, {STATE.replace('P: [T, H, N, D], ', '')}",
    ),
    "the state of the turn before": _spec([READ_BEFORE, DECAYED, *UPDATE], f"A: [T, H], {KEYS}, {STATE}"),
    "a first and a last state, and steps": _spec(
        [DECAYED, "W[t, h, d] = V[t, h, d] . X[t, h] ;; M mul", UPDATE[0].replace("V[", "W["), *UPDATE[1:],
         READ],
        f"A: [T, H], X: [T, H], {KEYS}, W: [T, H, D], I: [H, N, D], F: [H, N, D], {STATE}", "Y, F",
        "I[h, n, d]", "    - F[h, n, d] = S[T, h, n, d]",
    ),
}  # fmt: skip


def _inputs(names: list[str]) -> dict[str, Any]:
    """Decays between -1 and 1, some of them 0; others of order 1."""
    rng = np.random.default_rng(3)
    shapes = {"A": "TH", "X": "TH", "K": "TN", "V": "THD", "Q": "TN", "I": "HND"}
    inputs = {n: rng.standard_normal([SIZES[r] for r in shapes[n]]) for n in names}
    if "A" in inputs:
        inputs["A"] = rng.uniform(0.5, 1.0, inputs["A"].shape) * rng.choice(
            [-1.0, 0.0, 1.0, 1.0, 1.0], inputs["A"].shape
        )
    return inputs


def _recurrence(inputs: dict[str, Any], is_before: bool) -> tuple[Any, Any]:
    """What the recurrence says, turn by turn."""
    state = inputs.get("I", np.zeros((SIZES["H"], SIZES["N"], SIZES["D"])))
    read = []
    for t in range(SIZES["T"]):
        before = state
        decay = (
            inputs["A"][t]
            if "A" in inputs and inputs["A"].ndim == 2
            else inputs.get("A", np.ones(SIZES["H"]))
        )
        values = inputs["V"][t] * (inputs["X"][t][:, None] if "X" in inputs else 1.0)
        state = decay[:, None, None] * state + np.einsum("n,hd->hnd", inputs["K"][t], values)
        read.append(np.einsum("n,hnd->hd", inputs["Q"][t], before if is_before else state))
    return np.array(read), state


@pytest.mark.corpus
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("name", FORMS)
def test_chunks_compute_what_the_recurrence_says(name: str, dialect: str) -> None:
    spec = spec_from(FORMS[name])
    sizes = {rank: size for rank, size in SIZES.items() if rank in FORMS[name]}
    kernel = einsum.compile(FORMS[name], sizes=sizes, dialect=dialect)
    assert any(change.startswith(CHUNKS) for change in kernel.changes)
    assert not any(FAULT in each for each in kernel.alternatives)
    inputs = _inputs(list(kernel.inputs))
    if "[h]" in FORMS[name]:
        inputs["A"] = inputs["A"][0] * 0.9
    got = kernel(*(inputs[n].astype(np.float32) for n in kernel.inputs))
    results = got if isinstance(got, tuple | list) else (got,)
    expected = _recurrence(inputs, "S[t, h, n, d] ;; M mul V add" in FORMS[name])
    for result, array in zip(results, expected):
        assert np.allclose(np.asarray(result), array, rtol=1e-5, atol=1e-4)
    assert spec.cascade.inputs == kernel.inputs


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("P[t, h, n, d] . B[t, h, n, d] ;; M add", "P[t, h, n, d] . B[t, h, n, d] ;; M max"),  # no sum
        (
            "Q[t, n] . S[t+1, h, n, d] ;; M mul V add",
            "Q[t, n] . S[t+1, h, n, d] ;; M mul V max",
        ),  # no sum is read
        ("K[t, n] . V[t, h, d] ;; M mul", "K[t, n] . V[t, h, d] ;; M add"),  # no product is added
    ],
)
def test_what_is_not_linear_has_no_chunks(old: str, new: str) -> None:
    text = FORMS["decays of turns and heads"]
    assert old in text
    cascade = sized(spec_from(text.replace(old, new)).cascade, SIZES)
    scans, _ = with_scans(cascade)
    picker = Picker()
    rewritten_by(picker, scans, 128)
    assert CHUNKS not in [d.what for d in picker.decisions]


def test_a_last_chunk_may_have_fewer_turns() -> None:
    text = FORMS["decays of turns and heads"]
    kernel = einsum.compile(text, sizes={**SIZES, "T": 383, "T1": 384})
    assert any(change.startswith(CHUNKS) for change in kernel.changes)
    inputs = {n: array[:383] for n, array in _inputs(list(kernel.inputs)).items()}
    got = kernel(**{n: array.astype(np.float32) for n, array in inputs.items()})
    expected = _recurrence(_inputs(list(kernel.inputs)), False)[0][:383]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


def test_keys_that_groups_of_heads_share_are_read_in_chunks() -> None:
    text = (
        "S[0, h, n, d] = 0\nS[t+1, h, n, d] = A[t, h] * S[t, h, n, d] + K[t, h // 2, n] * V[t, h, d]\n"
        "Y[t, h, d] = Q[t, h // 2, n] * S[t+1, h, n, d]"
    )
    shapes = {"A": (256, 6), "K": (256, 3, 24), "V": (256, 6, 40), "Q": (256, 3, 24)}
    kernel = einsum.compile(text, shapes=shapes, outputs=("Y",))
    assert any(change.startswith(CHUNKS) for change in kernel.changes)
    assert kernel.roofline.times_ns["chain"] == kernel.roofline.times_ns["scan"] == 0
    assert kernel.roofline.least_us < kernel.estimate.latency_us
    rng = np.random.default_rng(5)
    inputs = {n: rng.standard_normal(shape) for n, shape in shapes.items()}
    inputs["A"] = rng.uniform(0.5, 1.0, shapes["A"])
    state, read = np.zeros((6, 24, 40)), []
    for turn in range(256):
        keys, queries = (np.repeat(inputs[n][turn], 2, 0) for n in "KQ")
        state = inputs["A"][turn][:, None, None] * state + keys[:, :, None] * inputs["V"][turn][:, None]
        read.append(np.einsum("hn,hnd->hd", queries, state))
    got = kernel(**{n: array.astype(np.float32) for n, array in inputs.items()})
    np.testing.assert_allclose(got, read, rtol=1e-4, atol=1e-3)


@cache
def _long() -> einsum.CompiledEinsum:
    return einsum.compile(FORMS["decays of turns and heads"], sizes=LONG)


@pytest.mark.corpus(drawn=False)
def test_long_recurrences_are_several_times_as_fast_in_chunks() -> None:
    text = FORMS["decays of turns and heads"]
    scan = einsum.compile(
        text.replace("K[t, n] . V[t, h, d] ;; M mul", "K[t, n] . V[t, h, d] ;; M add"), sizes=LONG
    )
    # a sum of keys and values takes the scan as long as their product, and has no chunks
    assert _long().estimate.latency_us < scan.estimate.latency_us / 4


@pytest.mark.corpus(drawn=False)
def test_a_roofline_asks_for_no_state_where_chunks_need_none() -> None:
    roofline = _long().roofline
    assert roofline.times_ns["scan"] == 0
    # every state would go through VectorE: 2048 turns of 8 * 64 * 64 elements, 256 columns each, take 546 us
    assert roofline.least_us <= _long().estimate.latency_us < 546
    # decays lie for all chunks at once as scans and states take them; chunk by chunk they took 7 times
    assert _long().estimate.latency_us < 4 * roofline.least_us


@pytest.mark.corpus(drawn=False)
def test_chunks_are_judged_with_the_groups_of_steps_that_they_want() -> None:
    body = [
        "S[t+1, h, n, d] = A[t, h] * S[t, h, n, d] + K[t, n] * W[t, h, d]",
        "Y[t, h, d] = Q[t, n] * S[t+1, h, n, d]",
    ]
    tensors = "G: [T, H], L: [H], E: [T, H], A: [T, H], V: [T, H, D], W: [T, H, D], K: [T, N], Q: [T, N]"
    tensors += ", S: [T1, H, N, D], Y: [T, H, D]"
    first = "    - E[t, h] = softplus(G[t, h])\n"
    first += "    - A[t, h] = exp(-exp(L[h]) * E[t, h])\n    - W[t, h, d] = E[t, h] * V[t, h, d]\n    - S[0"
    kernel = einsum.compile(_spec(body, tensors).replace("    - S[0", first), sizes=LONG)
    # alone, chunks leave W with a chunk on each partition, where it has no room; a scan takes 4 ms
    assert any(change.startswith(CHUNKS) for change in kernel.changes)
    assert kernel.estimate.latency_us < 546
