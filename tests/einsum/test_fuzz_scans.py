"""Random recurrences: operators, sizes, orders of indices, what they begin with, who reads them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nkilab.einsum
from nkilab.einsum.language.ast import Cascade, Einsum, Iterate, Tensor
from nkilab.einsum.language.expressions import read_einsum
from nkilab.errors import UnsupportedError
from tests.einsum.test_fuzz import need_no_fault
from tests.examples import examples

INPUTS = {"A": "TM", "B": "TMN", "C": "TN", "D": "M", "E": "N", "F": "T", "G": "MN"}
OPERATORS = st.sampled_from(["add", "add", "multiply", "multiply", "subtract", "maximum", "minimum"])


class _Writer:
    """Writes Einsums over a time that counts up or down, tensors with their ranks in any order."""

    def __init__(self, draw: st.DrawFn, is_descending: bool) -> None:
        self.draw, self.is_descending = draw, is_descending
        self.ranks: dict[str, str] = {}

    def access(self, tensor: str, ranks: str, time: str = "t") -> str:
        order = self.ranks.setdefault(tensor, "".join(self.draw(st.permutations(ranks))))
        return f"{tensor}[{', '.join(time if r == 'T' else r.lower() for r in order)}]"

    def at(self, turns: int) -> str:
        """The place of a state after some turns."""
        if self.is_descending:
            return "T - t" if not turns else f"T - t - {turns}"
        return f"t + {turns}" if turns else "t"

    def operand(self, ranks: str) -> str:
        """An input, or a number, that an Einsum over some ranks may read."""
        known = [n for n, r in INPUTS.items() if set(r) <= set(ranks)]
        name = self.draw(st.sampled_from([*known, *known, ""]))
        time = "T - 1 - t" if self.is_descending else "t"
        return (
            self.access(name, INPUTS[name], time)
            if name
            else f"const({self.draw(st.sampled_from([0.5, -1, 2]))})"
        )


@st.composite
def scans(draw: st.DrawFn) -> tuple[Cascade, dict[str, int]]:
    """A block over t that carries one state or two, and who reads them."""
    lanes = draw(st.sampled_from(["", "M", "N", "MN"]))
    ranks, writer = f"T{lanes}", _Writer(draw, draw(st.booleans()))
    time = "T - 1 - t" if writer.is_descending else "t"
    first = "T" if writer.is_descending else "0"
    before: list[Einsum | Iterate] = []
    body: list[str] = []
    results: dict[str, str] = {}
    for state in "SR"[: draw(st.sampled_from([1, 1, 2]))]:
        value, count = writer.access(state, ranks, writer.at(0)), draw(st.integers(0, 3))
        for number in range(count + 1):
            other = writer.operand(ranks)
            if number and not draw(st.integers(0, 4)):
                other = writer.access(state, ranks, writer.at(0))
            pair = [value, other] if draw(st.booleans()) else [other, value]
            op = draw(OPERATORS)
            name = state if number == count else f"{state}{number}"
            value = writer.access(name, ranks, writer.at(1) if name == state else time)
            body.append(f"{value} = {' . '.join(pair)} ;; M binary({op})")
            results[name] = ranks
        begun = draw(st.sampled_from(["", "const(0)", "const(-1)", "D", "made"]))
        start = writer.access(state, ranks, first)
        if begun == "D" and lanes == "M":
            before.append(read_einsum(f"{start} = D[m]"))
            writer.access("D", "M")
        elif begun == "made" and lanes in ("MN", "M"):
            other = f"G[{', '.join(writer.access('G', 'MN')[2:-1].split(', '))}]" if lanes == "MN" else "D[m]"
            writer.access("D", "M")
            before.append(read_einsum(f"{start} = {other} . const(0.5) ;; M mul"))
        elif begun.startswith("const"):
            before.append(read_einsum(f"{start} = {begun}"))
    state = writer.access("S", ranks, writer.at(draw(st.integers(0, 1))))
    kept = draw(st.sampled_from([ranks, "TM" if "N" in lanes and "M" in lanes else ranks]))
    action = " V add" if kept != ranks else ""
    body.append(f"{writer.access('Y', kept, time)} = {state} . {writer.operand(ranks)} ;; M mul{action}")
    results["Y"] = kept
    outputs = ["Y", *draw(st.sampled_from([[], ["S"], ["Z"]]))]
    steps = [*before, Iterate("t", tuple(map(read_einsum, body)))]
    if "Z" in outputs:
        last = writer.access("S", ranks, "0" if writer.is_descending else "T")
        steps.append(read_einsum(f"{writer.access('Z', lanes)} = {last} ;; M unary(abs)"))
        results["Z"] = lanes
    if "S" in outputs and not any(isinstance(s, Einsum) and s.name == "S" for s in before):
        steps.insert(0, read_einsum(f"{writer.access('S', ranks, first)} = const(0)"))
    tensors = {
        n: Tensor(n, tuple("T1" if r == "T" and n in "SR" else r for r in o)) for n, o in writer.ranks.items()
    }
    sizes = {
        "T": draw(st.sampled_from([1, 2, 3, 37, 131, 513])),
        "M": draw(st.sampled_from([1, 2, 5, 128, 131])),
    }
    sizes |= {"N": draw(st.sampled_from([1, 2, 3, 7]))}
    sizes["T1"] = sizes["T"] + 1
    used = {r for t in tensors.values() for r in t.ranks} | {"T"}
    return Cascade(tensors, tuple(steps), tuple(outputs)), {r: n for r, n in sizes.items() if r in used}


@settings(max_examples=examples(24), deadline=None)
@given(scans(), st.sampled_from(["nki", "neuronxcc"]))
def test_a_random_scan_is_right(sized_case: tuple[Cascade, dict[str, int]], dialect: str) -> None:
    try:
        check(*sized_case, dialect)
    except UnsupportedError as error:
        if "counts down and is no scan" not in str(error):
            raise


def check(cascade: Cascade, sizes: dict[str, int], dialect: str) -> None:
    """Compile a cascade and compare what it computes with the reference."""
    kernel = nkilab.einsum.compile(cascade, sizes=sizes, dialect=dialect)
    need_no_fault(kernel)
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-0.7, 0.7, kernel.cascade.shape(n)).astype(np.float32) for n in kernel.inputs]
    results = kernel(*inputs)
    # a product over many steps may leave float64; it is not compared
    with np.errstate(over="ignore", invalid="ignore"):
        expected = kernel.reference(*inputs)
    pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
    for got, wanted in pairs:
        largest = float(np.abs(wanted).max())
        if largest < 1e6:
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * max(1.0, largest))
