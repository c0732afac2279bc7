"""Blocks whose turns only combine with one state run as scans, and windows are loaded once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.tree.nodes import run_by
from nkilab.tiles.dtypes import as_dtype

from .test_roofline import text_of

pytestmark = pytest.mark.corpus

RUNNING = """
einsum:
  declaration: {{A: [{axes}], S: [{states}]}}
  expressions:
    - S[{first}] = const({start})
    - iterate: i
      body: ["S[{after}] = {operands} ;; M {op}"]
  shape: {{I: {turns}, I1: {more}, M: {rows}}}
"""
OPERATIONS = {
    "add": (0, np.cumsum),
    "mul": (1, np.cumprod),
    "max": (-3, np.maximum.accumulate),
    "min": (3, np.minimum.accumulate),
}


def running(op: str, turns: int, rows: int, is_turned: bool = False, is_new_first: bool = False) -> str:
    """A specification of a running operation over I, with I outside or inside in memory."""
    new, old = ("A[m, i]", "S[m, i]") if is_turned else ("A[i, m]", "S[i, m]")
    return RUNNING.format(
        axes="M, I" if is_turned else "I, M",
        states="M, I1" if is_turned else "I1, M",
        first="m, 0" if is_turned else "0, m",
        after="m, i+1" if is_turned else "i+1, m",
        operands=f"{new} . {old}" if is_new_first else f"{old} . {new}",
        start=OPERATIONS[op][0], op=op, turns=turns, more=turns + 1, rows=rows,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op", "turns", "rows", "is_turned", "dialect"),
    [("add", 640, 128, False, "nki"), ("add", 131, 257, False, "neuronxcc"), ("add", 512, 3, True, "nki"),
     ("max", 600, 130, True, "neuronxcc"), ("min", 37, 1, False, "nki"), ("mul", 40, 5, False, "nki"),
     ("add", 2, 128, False, "nki")],
)  # fmt: skip
def test_a_running_operation_is_a_scan(op: str, turns: int, rows: int, is_turned: bool, dialect: str) -> None:
    kernel = einsum.compile(running(op, turns, rows, is_turned), dialect=dialect)
    shape = (rows, turns) if is_turned else (turns, rows)
    a = np.random.default_rng(7).uniform(0.5, 1.5, shape).astype(np.float32)
    a -= 0 if op == "mul" else 1
    axis = 1 if is_turned else 0
    start, accumulate = OPERATIONS[op]
    first = np.full((rows, 1) if is_turned else (1, rows), start, np.float64)
    expected = accumulate(np.concatenate([first, a.astype(np.float64)], axis), axis=axis)
    np.testing.assert_allclose(kernel(a), expected, rtol=1e-4, atol=1e-4)
    if rows > 1:
        # an instruction per 512 turns, not per turn
        assert "tensor_tensor_scan" in kernel.source
    if turns < 200:
        for verdict in kernel.verify():
            assert verdict.is_fine, verdict


def test_the_new_operand_may_stand_first() -> None:
    kernel = einsum.compile(running("add", 600, 128, is_new_first=True))
    assert "tensor_tensor_scan" in kernel.source
    a = np.random.default_rng(8).standard_normal((600, 128)).astype(np.float32)
    np.testing.assert_allclose(kernel(a)[1:], a.cumsum(0, dtype=np.float64), atol=1e-3)


Arrays = dict[str, np.ndarray]


def stepped(step: Callable[..., np.ndarray], first: np.ndarray, *inputs: np.ndarray) -> np.ndarray:
    """The states of a recurrence over the last axis of its inputs, the first of them too, in float64."""
    states = [first.astype(np.float64)]
    for t in range(inputs[0].shape[-1]):
        states.append(step(states[-1], *(x[..., t].astype(np.float64) for x in inputs)))
    return np.stack(states, -1)


def selective(x: Arrays) -> np.ndarray:
    """A state-space model whose coefficients depend on the input: [channels, states] of state."""
    h, y = np.zeros((x["A"].shape[0], x["A"].shape[1])), []
    for t in range(x["X"].shape[1]):
        d = x["D"][:, t, None].astype(np.float64)
        h = np.exp(d * x["A"]) * h + d * x["X"][:, t, None] * x["B"][None, :, t]
        y.append(h @ x["C"][:, t].astype(np.float64))
    return np.stack(y, 1)


def attended(x: Arrays) -> np.ndarray:
    """Linear attention with a gate for every key: [keys, values] of state, time outside."""
    s, o = np.zeros((x["K"].shape[1], x["V"].shape[1])), []
    for g, k, v, q in zip(x["G"], x["K"], x["V"], x["Q"], strict=True):
        s = g[:, None].astype(np.float64) * s + np.outer(k, v)
        o.append(q @ s)
    return np.stack(o)


@dataclass(frozen=True)
class Scanned:
    """A recurrence, what surrounds it, and what it computes; rows are M, time is T of 1 + T1 places."""

    tensors: str
    before: str
    body: tuple[str, ...]
    result: str
    expected: Callable[[Arrays], np.ndarray]
    sizes: dict[str, int] = field(default_factory=lambda: {"M": 131, "T": 37})
    behind: str = ""


SCANS = {
    # of one operator, of two, spelled otherwise
    "difference": Scanned(
        "A: M T, S: M T1", "S[m, 0] = const(1)", ("S[m, t+1] = A[m, t] . S[m, t] ;; M binary(subtract)",),
        "S",
        lambda x: stepped(lambda s, a: a - s, np.ones(131), x["A"]),
    ),
    "mean that forgets": Scanned(
        "X: M T, D: M T, E: M T, S: M T1", "S[m, 0] = const(0)",
        ("D[m, t] = X[m, t] . S[m, t] ;; M binary(subtract)", "E[m, t] = const(0.1) . D[m, t] ;; M mul",
         "S[m, t+1] = E[m, t] . S[m, t] ;; M add"), "S",
        lambda x: stepped(lambda s, v: 0.9 * s + 0.1 * v, np.zeros(131), x["X"]),
    ),
    "gated unit": Scanned(
        "Z: T M, N: T M, W: T M, U: T M, V: T M, H: T1 M", "H[0, m] = const(0)",
        ("W[t, m] = const(1) . Z[t, m] ;; M binary(subtract)", "U[t, m] = H[t, m] . W[t, m] ;; M mul",
         "V[t, m] = Z[t, m] . N[t, m] ;; M mul", "H[t+1, m] = V[t, m] . U[t, m] ;; M add"), "H",
        lambda x: stepped(lambda h, z, n: (1 - z) * h + z * n, np.zeros(131), x["Z"].T, x["N"].T).T,
    ),
    "divided by a constant": Scanned(
        "X: M T, U: M T, S: M T1", "S[m, 0] = const(2)",
        ("U[m, t] = S[m, t] . const(4) ;; M binary(divide)",
         "S[m, t+1] = U[m, t] . X[m, t] ;; M binary(subtract)"),
        "S", lambda x: stepped(lambda s, v: s / 4 - v, np.full(131, 2.0), x["X"]),
    ),
    "leaking maximum": Scanned(
        "X: M T, U: M T, S: M T1", "S[m, 0] = const(-inf)",
        ("U[m, t] = S[m, t] . const(0.1) ;; M binary(subtract)", "S[m, t+1] = X[m, t] . U[m, t] ;; M max"),
        "S",
        lambda x: stepped(lambda s, v: np.maximum(s - 0.1, v), np.full(131, -np.inf), x["X"]),
    ),
    "between two bounds": Scanned(
        "A: M T, B: M T, U: M T, S: M T1, H: M", "S[m, 0] = H[m]",
        ("U[m, t] = S[m, t] . A[m, t] ;; M max", "S[m, t+1] = U[m, t] . B[m, t] ;; M min"), "S",
        lambda x: stepped(lambda s, a, b: np.minimum(np.maximum(s, a), b), x["H"], x["A"], x["B"]),
    ),
    "which was greater": Scanned(
        "A: M T, S: M T1", "S[m, 0] = const(0)", ("S[m, t+1] = A[m, t] . S[m, t] ;; M binary(greater)",), "S",
        lambda x: stepped(lambda s, a: (a > s) * 1.0, np.zeros(131), x["A"]),
    ),
    # what stands around it
    "last value alone": Scanned(
        "A: M T, X: M T, U: M T, H: M T1, Z: M", "H[m, 0] = const(0)",
        ("U[m, t] = A[m, t] . H[m, t] ;; M mul", "H[m, t+1] = U[m, t] . X[m, t] ;; M add"), "Z",
        lambda x: np.abs(stepped(lambda h, a, v: a * h + v, np.zeros(131), x["A"], x["X"])[:, -1]),
        behind="Z[m] = H[m, T] ;; M unary(abs)",
    ),
    "state before each turn": Scanned(
        "X: M T, S: M T1, Y: M T, H: M", "S[m, 0] = H[m] . const(3) ;; M mul",
        ("S[m, t+1] = S[m, t] . X[m, t] ;; M add", "Y[m, t] = S[m, t] . X[m, t] ;; M mul"), "Y",
        lambda x: stepped(lambda s, v: s + v, 3.0 * x["H"], x["X"])[:, :-1] * x["X"],
    ),
    "returns, from the last turn on": Scanned(
        "R: M T, U: M T, G: M T1", "G[m, T] = const(0)",
        ("U[m, T-1-t] = G[m, T-t] . const(0.9) ;; M mul", "G[m, T-1-t] = U[m, T-1-t] . R[m, T-1-t] ;; M add"),
        "G",
        lambda x: stepped(lambda g, r: 0.9 * g + r, np.zeros(131), x["R"][:, ::-1])[:, ::-1],
        {"M": 131, "T": 1030},
    ),
    "return of the first turn alone": Scanned(
        "R: M T, U: M T, G: M T1, Z: M", "G[m, T] = const(0)",
        ("U[m, T-1-t] = G[m, T-t] . const(0.9) ;; M mul", "G[m, T-1-t] = U[m, T-1-t] . R[m, T-1-t] ;; M add"),
        "Z", lambda x: stepped(lambda g, r: 0.9 * g + r, np.zeros(131), x["R"][:, ::-1])[:, -1],
        behind="Z[m] = G[m, 0] ;; M unary(abs)",
    ),
    "one row": Scanned(
        "X: T, S: T1", "S[0] = const(0)", ("S[t+1] = S[t] . X[t] ;; M add",), "S",
        lambda x: stepped(lambda s, v: s + v, np.zeros(()), x["X"]), {"T": 37},
    ),
    # lanes of several ranks
    "selective states": Scanned(
        "D: M T, X: M T, A: M N, B: N T, C: N T, G: M N T, E: M N T, F: M T, I: M N T, U: M N T, H: M N T1, "
        "Y: M T",
        "H[m, n, 0] = const(0)",
        ("G[m, n, t] = D[m, t] . A[m, n] ;; M mul", "E[m, n, t] = G[m, n, t] ;; M unary(exp)",
         "F[m, t] = D[m, t] . X[m, t] ;; M mul", "I[m, n, t] = F[m, t] . B[n, t] ;; M mul",
         "U[m, n, t] = E[m, n, t] . H[m, n, t] ;; M mul", "H[m, n, t+1] = U[m, n, t] . I[m, n, t] ;; M add",
         "Y[m, t] = C[n, t] . H[m, n, t+1] ;; M mul V add"), "Y", selective, {"M": 131, "N": 3, "T": 37},
    ),
    "gated linear attention": Scanned(
        "G: T N, K: T N, V: T M, Q: T N, O: T N M, U: T N M, S: T1 N M, Y: T M", "S[0, n, m] = const(0)",
        ("O[t, n, m] = K[t, n] . V[t, m] ;; M mul", "U[t, n, m] = G[t, n] . S[t, n, m] ;; M mul",
         "S[t+1, n, m] = U[t, n, m] . O[t, n, m] ;; M add",
         "Y[t, m] = Q[t, n] . S[t+1, n, m] ;; M mul V add"),
        "Y", attended, {"M": 130, "N": 5, "T": 150},
    ),
}  # fmt: skip

# rows so long that few of them are scanned piece by piece, the last a ragged one
LONG = {
    "mean that forgets": {"M": 131, "T": 4099},
    "last value alone": {"M": 131, "T": 4099},
    "state before each turn": {"M": 131, "T": 4099},
    "returns, from the last turn on": {"M": 131, "T": 4099},
    "selective states": {"M": 131, "N": 3, "T": 4099},
}
SCANS |= {f"{name}, in pieces": replace(SCANS[name], sizes=sizes) for name, sizes in LONG.items()}


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("name", SCANS)
def test_a_recurrence_is_a_scan(name: str, dialect: str) -> None:
    case = SCANS[name]
    kernel = einsum.compile(specification(case), dialect=dialect)
    assert "tensor_tensor_scan" in kernel.source
    assert "in pieces" not in name or "_carry" in kernel.source
    # of a state whose last value alone is read, no other is kept
    assert not case.behind or "_scratch" not in kernel.source
    # no instruction is run turn by turn
    assert run_by(kernel.tree.body) < case.sizes["T"] * 20
    rng = np.random.default_rng(11)
    inputs = {n: rng.uniform(0.1, 0.9, kernel.cascade.shape(n)).astype(np.float32) for n in kernel.inputs}
    # states that decay
    inputs |= {"A": -inputs["A"]} if "selective" in name else {}
    np.testing.assert_allclose(kernel(*inputs.values()), case.expected(inputs), rtol=2e-4, atol=2e-4)


PAIRED = {
    "mul": np.multiply, "add": np.add, "binary(subtract)": np.subtract, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize("second", PAIRED)
@pytest.mark.parametrize("first", PAIRED)
def test_every_pair_of_operators_is_a_scan(first: str, second: str, is_left: bool) -> None:
    state, value = "S[m, t]", "P[m, t]"
    pairs = [(state, "A[m, t]"), (value, "X[m, t]")]
    one, two = (" . ".join(pair if is_left else pair[::-1]) for pair in pairs)
    case = Scanned(
        "A: M T, X: M T, P: M T, S: M T1", "S[m, 0] = const(0.5)",
        (f"P[m, t] = {one} ;; M {first}", f"S[m, t+1] = {two} ;; M {second}"), "S",
        lambda x: x["A"], {"M": 3, "T": 40},
    )  # fmt: skip
    kernel = einsum.compile(specification(case))
    assert "tensor_tensor_scan" in kernel.source
    rng = np.random.default_rng(7)
    inputs = {n: rng.uniform(-1, 1, (3, 40)).astype(np.float32) for n in kernel.inputs}

    def step(s: object, a: object, x: object) -> object:
        p = PAIRED[first](*((s, a) if is_left else (a, s)))
        return PAIRED[second](*((p, x) if is_left else (x, p)))

    wanted = stepped(step, np.full(3, 0.5), inputs["A"], inputs["X"])
    np.testing.assert_allclose(kernel(*inputs.values()), wanted, rtol=1e-4, atol=1e-4)


def specification(case: Scanned) -> str:
    """A recurrence as a specification."""
    declared = dict(t.split(":") for t in case.tensors.split(", "))
    steps = [case.before, {"iterate": "t", "body": list(case.body)}, *([case.behind] if case.behind else [])]
    return text_of({
        "einsum": {"declaration": {n: r.split() for n, r in declared.items()}, "expressions": steps,
                   "shape": {**case.sizes, "T1": case.sizes["T"] + 1}},
        "options": {"cascade-outputs": [case.result]},
    })  # fmt: skip


def test_sums_along_both_axes_are_a_scan_each() -> None:
    kernel = einsum.compile("""
einsum:
  declaration: {A: [M, N], R: [M, N1], S: [M1, N]}
  expressions:
    - R[m, 0] = const(0)
    - iterate: n
      body: ["R[m, n+1] = R[m, n] . A[m, n] ;; M add"]
    - S[0, n] = const(0)
    - iterate: m
      body: ["S[m+1, n] = S[m, n] . R[m, n+1] ;; M add"]
  shape: {M: 140, N: 37, M1: 141, N1: 38}
options: {cascade-outputs: [S]}
""")
    assert kernel.source.count("nisa.tensor_tensor_scan(") == 2
    a = np.random.default_rng(3).standard_normal((140, 37)).astype(np.float32)
    np.testing.assert_allclose(kernel(a)[1:], a.astype(np.float64).cumsum(0).cumsum(1), atol=2e-3)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (("S[m, t+1] = S[m, t] . S[m, t] ;; M mul",), "it multiplies the state with itself"),
        (("S[m, t+1] = A[m, t] . S[m, t] ;; M binary(divide)",), "it divides by the state"),
        (("U[m, t] = S[m, t] ;; M unary(tanh)", "S[m, t+1] = U[m, t] . A[m, t] ;; M add"),
         "it takes tanh of the state"),
        (("U[m, t] = S[m, t] . A[m, t] ;; M mul", "V[m, t] = U[m, t] . A[m, t] ;; M max",
          "S[m, t+1] = V[m, t] . A[m, t] ;; M min"),
         "it takes 3 operators of the state in a row (multiply, maximum, minimum); a scan takes two"),
        (("S[m, t+1] = S[n, t] . W[n, m] ;; M mul V add",), "S combines the state over n"),
        (("U[m, t] = S[m, t] . A[m, t] ;; M mul if m <= t else 0", "S[m, t+1] = U[m, t] . A[m, t] ;; M add"),
         "U has a condition"),
        (("U[m, t+1] = S[m, t] . A[m, t] ;; M add", "S[m, t+1] = U[m, t] . A[m, t] ;; M add"),
         "S and U depend on each other"),
    ],
)  # fmt: skip
def test_what_is_no_scan_says_why(body: tuple[str, ...], reason: str) -> None:
    known = "A: M T, W: M M, S: M T1, U: M T, V: M T"
    used = ", ".join(t for t in known.split(", ") if any(f"{t[0]}[" in line for line in body))
    used = used.replace("U: M T", "U: M T1") if any("U[m, t+1]" in line for line in body) else used
    case = Scanned(used, "S[m, 0] = const(1)", body, "S", selective, {"M": 5, "T": 6})
    kernel = einsum.compile(specification(case))
    (sentence,) = [line for line in kernel.report.splitlines() if "is lowered step by step" in line]
    ratio = kernel.estimate.latency_us / kernel.roofline.least_us
    assert sentence.startswith(f"  latency is {ratio:.3g}x its roofline: the chain S[")
    assert sentence.endswith(f" is lowered step by step because {reason}")


@pytest.mark.parametrize("wanted", ["S", "Y"])
def test_a_block_that_counts_down_and_is_no_scan_runs_in_the_order_of_its_turns(wanted: str) -> None:
    # every turn squares what the one before it left: at index 6 - n stands h to the power of 2**n
    body = ("S[m, T-1-t] = S[m, T-t] . S[m, T-t] ;; M mul",)
    case = Scanned("S: M T1, H: M", "S[m, T] = H[m]", body, "S", selective, {"M": 5, "T": 6})
    kernel = einsum.compile(specification(case))
    text = "S[m, T] = H[m]\nS[m, T-1-t] = S[m, T-t] * S[m, T-t]\nY[m, n] = 2 * S[m, n]"
    kernel = kernel if wanted == "S" else einsum.compile(text, sizes={"M": 5, "T": 6}, outputs=["Y"])
    h = np.linspace(0.5, 1.1, 5, dtype=np.float32)
    powers = h[:, None].astype(float) ** 2.0 ** np.arange(6, -1, -1)
    assert np.allclose(kernel(h), powers * (1 + (wanted == "Y")), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sum_along_a_scan_runs_on_over_all_of_its_pieces(dtype: str) -> None:
    text = """
    G[T, d] = 0
    G[t, d] = X[t, d] + A[t+1, d] * G[t+1, d]
    L[d] = sum(G[t, d] * R[t, d], t)
    """
    kernel = einsum.compile(text, sizes={"T": 1500, "D": 100}, dtypes=dtype, outputs=["L", "G"])
    assert not any("PLANNED ANOTHER WAY" in change for change in kernel.changes)
    rng = np.random.default_rng(9)
    x, r = (rng.integers(-2, 3, (1500, 100)).astype(as_dtype(dtype).storage) for _ in "XR")
    a = (rng.random((1501, 100)) < 0.5).astype(as_dtype(dtype).storage)
    g = np.zeros((1501, 100))
    for t in range(1499, -1, -1):
        g[t] = x[t] + a[t + 1] * g[t + 1]
    total, states = (np.asarray(v, float) for v in kernel(X=x, A=a, R=r))
    # whole numbers: states below 2^8 are exact, and so is what float32 adds up of them
    assert np.array_equal(states, g)
    assert np.allclose(total, (g[:1500] * r.astype(float)).sum(0), rtol=2.0**-8 if dtype == "bfloat16" else 0)


def test_the_roofline_of_a_scan_is_that_of_its_instruction() -> None:
    # a maximum: no product of chunks computes it. trn2: a column of 128 rows takes two cycles of 0.96 GHz
    body = ("S[m, t+1] = S[m, t] . A[m, t] ;; M max",)
    case = Scanned("A: M T, S: M T1", "S[m, 0] = const(0)", body, "S", selective, {"M": 256, "T": 512})
    roof = einsum.compile(specification(case)).roofline
    assert roof.times_ns["scan"] == pytest.approx(2 * 512 * 2 / 0.96)
    # a sum: TensorE takes a column of 128 turns in four cycles of 2.4 GHz, float32 as it is
    linear = replace(case, body=("S[m, t+1] = S[m, t] . A[m, t] ;; M add",))
    roof = einsum.compile(specification(linear)).roofline
    assert roof.times_ns["scan"] == pytest.approx(2 * 512 / (0.96 / 2 + 2.4 / 4))


def test_windows_are_loaded_once() -> None:
    kernel = einsum.compile(
        "M[k, u, v] = Y[k, 2*u + i, 2*v + j] ;; V max",
        sizes={"K": 130, "U": 7, "V": 9, "I": 2, "J": 2},
        shapes={"Y": (130, 14, 18)},
    )
    y = np.random.default_rng(5).standard_normal((130, 14, 18)).astype(np.float32)
    np.testing.assert_array_equal(kernel(y), y.reshape(130, 7, 2, 9, 2).max((2, 4)))
    # rows as they lie in HBM: no transfer picks single elements
    loads = re.findall(r"src=Y\[([^\]]*)\]", kernel.source)
    assert len(loads) == 1
    assert loads[0].endswith(", :, :")
