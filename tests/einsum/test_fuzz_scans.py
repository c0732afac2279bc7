"""Random recurrences: operators, sizes, orders of indices, what they begin with, who reads them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nkilab.einsum
from nkilab.einsum.language.ast import Cascade, Einsum, Iterate, Tensor
from nkilab.einsum.language.expressions import read_einsum
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


@st.composite
def attentions(draw: st.DrawFn) -> tuple[Cascade, dict[str, int]]:
    """Linear attention, whose state chunks of turns may go over together; it decays, or is corrected."""
    decay = draw(st.sampled_from(["", "G[]", "G[k]", "G[t]", "G[t, k]", "0.9"]))
    kept = f"S[t, k, v] . {decay} ;; M mul" if decay else "S[t, k, v]"
    lines = [f"D[t, k, v] = {kept}", "U[t, k, v] = K[t, k] . V[t, v] ;; M mul"]
    added = "D[t, k, v] . U[t, k, v] ;; M add"
    if draw(st.integers(0, 3)) == 0:
        lines += ["P[t, v] = K[t, k] . D[t, k, v] ;; M mul V add", "E[t, v] = V[t, v] . P[t, v] ;; M sub"]
        lines[1] = "U[t, k, v] = K[t, k] . E[t, v] ;; M mul"
        lines = [lines[0], *lines[2:], lines[1]]
    turn = draw(st.sampled_from(["t", "t + 1"]))
    lines += [f"S[t + 1, k, v] = {added}", f"O[t, v] = Q[t, k] . S[{turn}, k, v] ;; M mul V add"]
    block = Iterate("t", tuple(map(read_einsum, lines)))
    ranks = {"K": "TK", "V": "TV", "Q": "TK", "D": "TKV", "U": "TKV", "O": "TV", "P": "TV", "E": "TV"}
    ranks["G"] = "".join(c for c in decay[1:].upper() if c in "TK")
    read = {t for e in block.body for t in (e.name, *e.reads)}
    tensors = {n: Tensor(n, tuple(r)) for n, r in ranks.items() if n in read}
    tensors["S"] = Tensor("S", ("T1", "K", "V"))
    sizes = {"T": draw(st.sampled_from([1, 5, 64, 130, 257])), "K": draw(st.sampled_from([4, 16, 130]))}
    sizes |= {"V": draw(st.sampled_from([1, 8, 64])), "T1": sizes["T"] + 1}
    outputs = ("O", *draw(st.sampled_from([(), ("S",)])))
    return Cascade(tensors, (read_einsum("S[0, k, v] = const(0)"), block), outputs), sizes


@settings(max_examples=examples(6), deadline=None)
@given(attentions(), st.sampled_from(["nki", "neuronxcc"]))
def test_a_random_linear_attention_is_right(sized_case: tuple[Cascade, dict[str, int]], dialect: str) -> None:
    check(*sized_case, dialect)


@settings(max_examples=examples(18), deadline=None)
@given(scans(), st.sampled_from(["nki", "neuronxcc"]))
def test_a_random_scan_is_right(sized_case: tuple[Cascade, dict[str, int]], dialect: str) -> None:
    check(*sized_case, dialect)


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


def test_what_is_left_behind_whole_blocks_is_loaded_from_its_place() -> None:
    # of 257 steps that lie across, 256 are loaded together: the last one was that of step 0
    kernel = nkilab.einsum.compile("S[0, n] = 0\nS[t+1, n] = S[t, n] + C[t, n]", sizes={"T": 257, "N": 7})
    c = np.arange(257 * 7, dtype=np.float32).reshape(257, 7) % 11
    np.testing.assert_array_equal(kernel(c)[1:], np.cumsum(c, axis=0))
