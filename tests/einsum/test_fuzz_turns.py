"""Random recurrences: state of one or two ranks, results that read each other, sums in turns and over all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkilab.einsum
from nkilab.einsum.compiled import CompiledEinsum
from nkilab.einsum.language.ast import Cascade, Einsum, Iterate, Tensor
from nkilab.einsum.language.expressions import read_einsum
from tests.einsum.test_fuzz import need_no_fault
from tests.examples import examples

OPERATORS = st.sampled_from(["add", "subtract", "maximum", "multiply"])
INPUTS = [("X[i, m]", "M"), ("Y[i, n]", "N"), ("W[m, n]", "MN"), ("V[i, m, n]", "MN")]


def indexed(name: str, first: str, ranks: str) -> str:
    return f"{name}[{', '.join([first, *ranks.lower()])}]"


def _plain(name: str, ranks: str) -> str:
    return f"{name}[{', '.join(ranks.lower())}]"


@st.composite
def recurrences(draw: st.DrawFn) -> tuple[Cascade, dict[str, int]]:
    """A block over i that carries S, perhaps U, with results on the way, one of which is read after it."""
    sizes = {"M": draw(st.sampled_from([1, 3, 130, 256])), "N": draw(st.sampled_from([1, 2, 37]))}
    sizes |= {"I": draw(st.integers(1, 3))}
    sizes["I1"] = sizes["I"] + 1
    ranks, states = draw(st.sampled_from(["M", "MN"])), draw(st.sampled_from(["S", "SU"]))
    tensors = {"X": "IM", "Y": "IN", "W": "MN", "V": "IMN", "Z": ranks}
    known = [*((indexed(name, "i", ranks), ranks) for name in states), *INPUTS]
    body: list[str] = []
    for name in draw(st.permutations([*"ABC"[: draw(st.integers(0, 3))], *states])):
        (left, one), (right, other) = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        ranks_read, turn = "".join(r for r in "MN" if r in one + other), "i"
        kept = "".join(r for r in ranks_read if draw(st.integers(0, 3)))
        action = f" V {draw(st.sampled_from(['add', 'maximum']))}" if kept != ranks_read else ""
        if name in states:
            turn, kept, action = "i + 1", ranks, " V add" if set(one + other) - set(ranks) else ""
        else:
            tensors[name] = f"I{kept}"
        body.append(f"{indexed(name, turn, kept)} = {left} . {right} ;; M binary({draw(OPERATORS)}){action}")
        known.append((indexed(name, turn, kept), kept))
    last = " . ".join(indexed(name, "I", ranks) for name in states)
    steps: list[Einsum | Iterate] = [
        *(read_einsum(f"{indexed(s, '0', ranks)} = const({draw(st.integers(-1, 1))})") for s in states),
        Iterate("i", tuple(map(read_einsum, body))),
        read_einsum(f"{_plain('Z', ranks)} = {last} ;; M {'add' if states[1:] else 'unary(abs)'}"),
    ]
    results = [(name, tensors[name][1:]) for name in "ABC" if name in tensors]
    if results and draw(st.booleans()):
        # of every turn, by a variable that has the name of the block's
        name, own = draw(st.sampled_from(results))
        tensors["H"] = draw(st.sampled_from([own, f"I{own}"]))
        action = "V add" if tensors["H"] == own else "M unary(abs)"
        steps.append(read_einsum(f"{_plain('H', tensors['H'])} = {_plain(name, f'I{own}')} ;; {action}"))
    used = {"Z", "H", *(n for n, _ in results), *(t for e in map(read_einsum, body) for t in e.reads)}
    declared = {n: Tensor(n, tuple(r)) for n, r in tensors.items() if n in used}
    declared |= {name: Tensor(name, ("I1", *ranks)) for name in states}
    outputs = ("Z", *(["S"] if draw(st.booleans()) else []), *(["H"] if "H" in tensors else []))
    ranks_used = {"I", *(r for t in declared.values() for r in t.ranks)}
    return Cascade(declared, tuple(steps), outputs), {r: n for r, n in sizes.items() if r in ranks_used}


@settings(max_examples=examples(20), deadline=None)
@given(recurrences(), st.sampled_from(["nki", "neuronxcc"]))
def test_a_random_recurrence_is_right(sized_case: tuple[Cascade, dict[str, int]], dialect: str) -> None:
    cascade, sizes = sized_case
    need_right(nkilab.einsum.compile(cascade, sizes=sizes, dialect=dialect))


def need_right(kernel: CompiledEinsum) -> None:
    """No plan of a kernel ended in a fault of ours, and it computes what NumPy does."""
    need_no_fault(kernel)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-1, 2, kernel.cascade.shape(n)).astype(np.float32) for n in kernel.inputs]
    results, expected = kernel(*inputs), kernel.reference(*inputs)
    pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
    for got, wanted in pairs:
        largest = float(np.abs(wanted).max())
        # whole numbers; beyond 2**24 float32 rounds them
        if largest < 2**22:
            np.testing.assert_array_equal(got, wanted)


OF_TURNS = {
    "a sum of all in each turn": """
      declaration: {S: [J, M, N], A: [I], Z: [M, N], H: []}
      expressions:
        - S[0, m, n] = const(1)
        - iterate: i
          body:
            - A[i] = S[i, m, n] . S[i, m, n] ;; M add V add
            - S[i + 1, m, n] = S[i, m, n] . S[i, m, n] ;; M add
        - Z[m, n] = S[I, m, n] ;; M unary(abs)
        - H[] = A[i] ;; V add
      shape: {M: 130, N: 2, I: 2, J: 3}""",
    "sums of sums of rows": """
      declaration: {S: [J, M, N], B: [I, M], W: [M, N], V: [I, M, N], X: [I, M], U: [J, M, N], A: [I, M],
                    H: [M], Z: [M, N]}
      expressions:
        - S[0, m, n] = const(0)
        - U[0, m, n] = const(-1)
        - iterate: i
          body:
            - U[i + 1, m, n] = X[i, m] . U[i, m, n] ;; M sub
            - B[i, m] = U[i, m, n] . X[i, m] ;; M sub V max
            - S[i + 1, m, n] = B[i, m] . V[i, m, n] ;; M max
            - A[i, m] = S[i, m, n] . W[m, n] ;; M add V add
        - Z[m, n] = S[I, m, n] . U[I, m, n] ;; M add
        - H[m] = A[i, m] ;; V add
      shape: {M: 256, N: 37, I: 2, J: 3}""",
    "one row and one column": """
      declaration: {S: [J, M, N], U: [J, M, N], W: [M, N], V: [I, M, N], X: [I, M], Y: [I, N], A: [I, M],
                    H: [I, M], Z: [M, N]}
      expressions:
        - S[0, m, n] = const(-1)
        - U[0, m, n] = const(-1)
        - iterate: i
          body:
            - S[i + 1, m, n] = Y[i, n] . W[m, n] ;; M sub
            - A[i, m] = X[i, m] . S[i, m, n] ;; M sub V add
            - U[i + 1, m, n] = U[i, m, n] . V[i, m, n] ;; M sub
        - Z[m, n] = S[I, m, n] . U[I, m, n] ;; M add
        - H[i, m] = A[i, m] ;; M unary(abs)
      shape: {M: 1, N: 1, I: 3, J: 4}""",
}


@pytest.mark.parametrize("name", OF_TURNS)
def test_sums_of_turns_are_read_after_the_block(name: str) -> None:
    outputs = "Z, H" if "all" in name else "Z, S, H"
    need_right(nkilab.einsum.compile(f"einsum:{OF_TURNS[name]}\noptions: {{cascade-outputs: [{outputs}]}}"))


def test_results_of_all_turns_are_kept_for_what_sums_them_after_the_block() -> None:
    block = Iterate("i", tuple(map(read_einsum, [
        "S[i + 1, m] = S[i, m] . S[i, m] ;; M mul", "A[i, m] = S[i + 1, m] . 3 ;; M mul",
    ])))  # fmt: skip
    after = ["Z[m] = A[i, m] ;; V add", "Y[m, i] = A[i, m] . A[i, m] ;; M add"]
    steps = (read_einsum("S[0, m] = X[m]"), block, *map(read_einsum, after))
    ranks = {"X": "M", "S": ("J", "M"), "A": "IM", "Z": "M", "Y": "MI"}
    tensors = {name: Tensor(name, tuple(own)) for name, own in ranks.items()}
    cascade = Cascade(tensors, steps, ("Z", "Y"))
    kernel = nkilab.einsum.compile(cascade, sizes={"M": 5, "I": 3, "J": 4})
    x = np.arange(-2, 3, dtype=np.float32)
    turns = 3 * np.stack([x**2, x**4, x**8])
    assert not [c for c in kernel.changes if "PLANNED ANOTHER WAY" in c]
    for got, wanted in zip(kernel(x), (turns.sum(0), 2 * turns.T), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_scan_of_what_another_state_was_before_the_iteration_is_right() -> None:
    text = """
    einsum:
      declaration: {X: [T, N], U: [T1, N], S: [T1, N]}
      expressions:
        - U[0, n] = const(1)
        - S[0, n] = const(0)
        - iterate: t
          body:
            - U[t+1, n] = U[t, n] . X[t, n] ;; M add
            - S[t+1, n] = S[t, n] . U[t, n] ;; M add
      shape: {T: 9, T1: 10, N: 5}
    options: {cascade-outputs: [S]}
    """
    x = np.arange(45, dtype=np.float32).reshape(9, 5) % 7
    u = 1 + np.cumsum(x, axis=0) - x
    kernel = nkilab.einsum.compile(text)
    need_no_fault(kernel)
    np.testing.assert_array_equal(kernel(x)[1:], np.cumsum(u, axis=0))


def test_states_that_read_each_other_are_overwritten_after_all_that_reads_them() -> None:
    text = """
    einsum:
      declaration: {X: [T, N], A: [T1, N], B: [T1, N], Y: [T, N]}
      expressions:
        - A[0, n] = const(1)
        - B[0, n] = const(0)
        - iterate: t
          body:
            - A[t+1, n] = 2 * A[t, n] - 3 * B[t, n] + X[t, n]
            - B[t+1, n] = 3 * A[t, n] + 2 * B[t, n]
            - Y[t, n] = 2 * A[t+1, n]
      shape: {T: 4, N: 5}
    options: {cascade-outputs: [Y]}
    """
    x = np.arange(20, dtype=np.float32).reshape(4, 5) - 8
    a, b, expected = np.ones(5), np.zeros(5), []
    for row in x:
        a, b = 2 * a - 3 * b + row, 3 * a + 2 * b
        expected.append(2 * a)
    for dialect in ("nki", "neuronxcc"):
        np.testing.assert_array_equal(nkilab.einsum.compile(text, dialect=dialect)(x), expected)
