"""Random recurrences: state of one or two ranks, results that read each other, sums within a turn."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nkilab.einsum
from nkilab.einsum.language.ast import Cascade, Einsum, Iterate, Tensor
from nkilab.einsum.language.expressions import read_einsum
from tests.examples import examples

OPERATORS = st.sampled_from(["add", "subtract", "maximum", "multiply"])
INPUTS = [("X[i, m]", "M"), ("Y[i, n]", "N"), ("W[m, n]", "MN"), ("V[i, m, n]", "MN")]


def indexed(name: str, first: str, ranks: str) -> str:
    return f"{name}[{', '.join([first, *ranks.lower()])}]"


@st.composite
def recurrences(draw: st.DrawFn) -> tuple[Cascade, dict[str, int]]:
    """A block over i that carries S, with up to three results on the way."""
    sizes = {"M": draw(st.sampled_from([1, 3, 130, 256])), "N": draw(st.sampled_from([1, 2, 37]))}
    sizes |= {"I": draw(st.integers(1, 3))}
    sizes["I1"] = sizes["I"] + 1
    ranks = draw(st.sampled_from(["M", "MN"]))
    tensors = {"X": "IM", "Y": "IN", "W": "MN", "V": "IMN", "Z": ranks}
    known = [(indexed("S", "i", ranks), ranks), *INPUTS]
    body: list[str] = []
    for name in "ABC"[: draw(st.integers(0, 3))]:
        (left, one), (right, other) = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        ranks_read = "".join(r for r in "MN" if r in one + other)
        kept = "".join(r for r in ranks_read if draw(st.integers(0, 3)))
        action = f" V {draw(st.sampled_from(['add', 'maximum']))}" if kept != ranks_read else ""
        body.append(f"{indexed(name, 'i', kept)} = {left} . {right} ;; M binary({draw(OPERATORS)}){action}")
        tensors[name] = f"I{kept}"
        known.append((indexed(name, "i", kept), kept))
    (left, one), (right, other) = draw(st.sampled_from(known)), draw(st.sampled_from(known))
    action = " V add" if set(one + other) - set(ranks) else ""
    body.append(f"{indexed('S', 'i + 1', ranks)} = {left} . {right} ;; M binary({draw(OPERATORS)}){action}")
    steps: list[Einsum | Iterate] = [
        read_einsum(f"{indexed('S', '0', ranks)} = const({draw(st.integers(-1, 1))})"),
        Iterate("i", tuple(map(read_einsum, body))),
        read_einsum(f"Z[{', '.join(ranks.lower())}] = {indexed('S', 'I', ranks)} ;; M unary(abs)"),
    ]
    used = {t for e in map(read_einsum, body) for t in e.reads} | {
        "S",
        "Z",
        *(n for n in "ABC" if n in tensors),
    }
    declared = {n: Tensor(n, tuple(r)) for n, r in tensors.items() if n in used}
    declared["S"] = Tensor("S", ("I1", *ranks))
    outputs = ("Z", "S") if draw(st.booleans()) else ("Z",)
    ranks_used = {"I", *(r for t in declared.values() for r in t.ranks)}
    return Cascade(declared, tuple(steps), outputs), {r: n for r, n in sizes.items() if r in ranks_used}


@settings(max_examples=examples(20), deadline=None)
@given(recurrences(), st.sampled_from(["nki", "neuronxcc"]))
def test_a_random_recurrence_is_right(sized_case: tuple[Cascade, dict[str, int]], dialect: str) -> None:
    cascade, sizes = sized_case
    kernel = nkilab.einsum.compile(cascade, sizes=sizes, dialect=dialect)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-1, 2, kernel.cascade.shape(n)).astype(np.float32) for n in kernel.inputs]
    results, expected = kernel(*inputs), kernel.reference(*inputs)
    pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
    for got, wanted in pairs:
        largest = float(np.abs(wanted).max())
        # whole numbers; beyond 2**24 float32 rounds them
        if largest < 2**22:
            np.testing.assert_array_equal(got, wanted)
