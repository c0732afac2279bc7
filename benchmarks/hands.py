"""Compiled Einsums against kernels by hand, on one clock: `python -m benchmarks.einsums --hand [NAME ...]`.

The hand kernels are those of `hand_kernels.py`, and, where NKILAB_SAMPLES names a checkout of the public
samples, the best of these too; each row is compared with the fastest that computes the same. Both have to be
right against the evaluator in float64 at the small extents, which stand behind the real ones.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tests.einsum.cascades import Case, Steps
from tests.einsum.realistic import realistic

import nkilab
import nkilab.einsum
from nkilab.errors import NkilabError

SAMPLES = "src/nki_samples/tutorials"
# largest difference from float64 over the largest value, by the type of inputs
MOST_ERROR = {"float32": 1e-4, "bfloat16": 3e-2}


@dataclass(frozen=True)
class Row:
    """An Einsum and a kernel that computes it.

    Args:
        case: the cascade at its real extents.
        small: extents at which both are held to the evaluator.
        kernel: its name in `hand_kernels.py`.
        order: inputs of the cascade as the kernel takes them.
        dtype: of inputs and outputs.
        sample: a file of the public samples, and the kernel in it that takes the same.
    """

    case: Case
    small: dict[str, int]
    kernel: str
    order: str
    dtype: str
    sample: tuple[str, str] = ("", "")


def row(
    name: str,
    tensors: str,
    steps: Steps,
    sizes: str,
    small: str,
    kernel: str,
    order: str,
    dtypes: str,
    sample: tuple[str, str] = ("", ""),
    outputs: str = "Z",
    **scalars: float,
) -> Iterator[Row]:
    """A row per type."""
    case = realistic(name, tensors, steps, sizes, outputs, **scalars)
    less = {k: int(v) for k, v in (p.split("=") for p in small.split())}
    for dtype in dtypes.split():
        yield Row(case, less, kernel, order, dtype, sample)


BOTH = "bfloat16 float32"
PRODUCT: Steps = ["Z[m, n] = A[k, m] . B[k, n] ;; M mul V add"]
SOFTMAX: Steps = [
    "G[p] = S[p, m] ;; V max",
    "N[p, m] = S[p, m] . G[p] ;; M binary(subtract_exp)",
    "D[p] = N[p, m] ;; V add",
]
WEIGHTED: Steps = [
    *SOFTMAX,
    "A[p, f] = N[p, m] . V[m, f] ;; M mul V add",
    "Z[p, f] = A[p, f] . D[p] ;; M binary(divide)",
]
SCORES = "[p, m] = Q[e, p] . K[e, m] ;; M mul V add"
NORM: Steps = [
    "S[m] = X[m, n] . X[m, n] ;; M mul V add",
    "U[m] = S[m] . share ;; M mul",
    "R[m] = U[m] ;; M unary(rsqrt)",
    "T[m, n] = X[m, n] . R[m] ;; M mul",
    "Z[m, n] = T[m, n] . G[n] ;; M mul",
]
LAYER: Steps = [
    "S[m] = X[m, n] ;; V add",
    "U[m] = S[m] . share ;; M mul",
    "C[m, n] = X[m, n] . U[m] ;; M binary(subtract)",
    "Q[m] = C[m, n] . C[m, n] ;; M mul V add",
    "W[m] = Q[m] . share ;; M mul",
    "R[m] = W[m] ;; M unary(rsqrt)",
    "T[m, n] = C[m, n] . R[m] ;; M mul",
    "Y[m, n] = T[m, n] . G[n] ;; M mul",
    "Z[m, n] = Y[m, n] . B[n] ;; M add",
]
GATED: Steps = [
    "G[m, f] = X[k, m] . W[k, f] ;; M mul V add",
    "H[m, f] = X[k, m] . U[k, f] ;; M mul V add",
    "S[m, f] = G[m, f] ;; M unary(silu)",
    "P[m, f] = S[m, f] . H[m, f] ;; M mul",
    "Z[m, n] = P[m, f] . V[f, n] ;; M mul V add",
]
ROTARY: Steps = [
    "A[t, h] = X[t, 2*h] . C[t, h] ;; M mul",
    "B[t, h] = X[t, 2*h+1] . S[t, h] ;; M mul",
    "P[t, h] = X[t, 2*h] . S[t, h] ;; M mul",
    "Q[t, h] = X[t, 2*h+1] . C[t, h] ;; M mul",
    "Z[t, 2*h] = A[t, h] . B[t, h] ;; M binary(subtract)",
    "Z[t, 2*h+1] = P[t, h] . Q[t, h] ;; M add",
]
DECODING: Steps = [
    "L[h, s] = Q[h, e] . K[h, e, s] ;; M mul V add",
    "G[h] = L[h, s] ;; V max",
    "P[h, s] = L[h, s] . G[h] ;; M binary(subtract_exp)",
    "D[h] = P[h, s] ;; V add",
    "A[h, e] = P[h, s] . V[h, s, e] ;; M mul V add",
    "Z[h, e] = A[h, e] . D[h] ;; M binary(divide)",
]
MATMULS = (
    f"{SAMPLES}/matrix_multiplication/matrix_multiplication_nki_kernels.py",
    "nki_matmul_fully_optimized_",
)
ATTENDED = "Q: E P, K: E M, V: M F, S: P M, G: P, N: P M, D: P, A: P F, Z: P F"


def rows() -> Iterator[Row]:
    """All of them."""
    for n in (512, 1024, 2048, 4096, 8192):
        yield from row(
            f"product_{n}",
            "A: K M, B: K N, Z: M N",
            PRODUCT,
            f"K={n} M={n} N={n}",
            "K=256 M=256 N=512",
            "product",
            "A B",
            BOTH,
            MATMULS if n >= 2048 else ("", ""),
        )
    for n in (2048, 8192):
        yield from row(
            f"rms_norm_{n}",
            "X: M N, G: N, S: M, U: M, R: M, T: M N, Z: M N",
            NORM,
            f"M=4096 N={n}",
            f"M=256 N={n}",
            "rms_norm",
            "X G",
            BOTH,
            share=1 / n,
        )
    layer = "X: M N, G: N, B: N, S: M, U: M, C: M N, Q: M, W: M, R: M, T: M N, Y: M N, Z: M N"
    yield from row(
        "layer_norm",
        layer,
        LAYER,
        "M=4096 N=4096",
        "M=256 N=4096",
        "layer_norm",
        "X G B",
        BOTH,
        share=1 / 4096,
    )
    yield from row(
        "softmax",
        "S: P M, G: P, N: P M, D: P, Z: P M",
        [*SOFTMAX, "Z[p, m] = N[p, m] . D[p] ;; M binary(divide)"],
        "P=4096 M=4096",
        "P=256 M=640",
        "softmax",
        "S",
        BOTH,
    )
    for s in (2048, 4096, 8192, 16384):
        yield from row(
            f"attention_{s}",
            ATTENDED,
            [f"S{SCORES}", *WEIGHTED],
            f"E=128 P={s} M={s} F=128",
            "E=128 P=512 M=512 F=128",
            "attention",
            "Q K V",
            "bfloat16",
        )
        yield from row(
            f"causal_{s}",
            ATTENDED + ", C: P M",
            [f"C{SCORES}", "S[p, m] = C[p, m] if m <= p else -1e30", *WEIGHTED],
            f"E=128 P={s} M={s} F=128",
            "E=128 P=512 M=512 F=128",
            "causal_attention",
            "Q K V",
            "bfloat16",
        )
    yield from row(
        "decoding",
        "Q: H E, K: H E S, V: H S E, L: H S, G: H, P: H S, D: H, A: H E, Z: H E",
        DECODING,
        "H=32 E=128 S=8192",
        "H=2 E=128 S=512",
        "decoding",
        "Q K V",
        "bfloat16",
    )
    for m, k, f in ((512, 1024, 2736), (2048, 2048, 5461)):
        yield from row(
            f"gated_{f}",
            "X: K M, W: K F, U: K F, G: M F, H: M F, S: M F, P: M F, V: F N, Z: M N",
            GATED,
            f"M={m} K={k} F={f} N={k}",
            "M=256 K=256 F=300 N=256",
            "gated_layer",
            "X W U V",
            "bfloat16",
        )
    yield from row(
        "rotary",
        "X: T D, C: T H, S: T H, A: T H, B: T H, P: T H, Q: T H, Z: T D",
        ROTARY,
        "T=4096 D=128 H=64",
        "T=256 D=128 H=64",
        "rotary",
        "X C S",
        BOTH,
    )
    yield from row(
        "running_sum",
        "X: M T, S: M T1, Z: M T",
        ["S[m, 0] = const(0)", ("t", ["S[m, t+1] = S[m, t] . X[m, t] ;; M add", "Z[m, t] = S[m, t+1]"])],
        "T=8192 T1=8193 M=2048",
        "T=300 T1=301 M=256",
        "running_sum",
        "X",
        "float32",
    )
    yield from row(
        "state_scan",
        "A: D T, X: D T, P: D T, H: D T1, Z: D T",
        [
            "H[d, 0] = const(0)",
            (
                "t",
                [
                    "P[d, t] = A[d, t] . H[d, t] ;; M mul",
                    "H[d, t+1] = P[d, t] . X[d, t] ;; M add",
                    "Z[d, t] = H[d, t+1]",
                ],
            ),
        ],
        "T=4096 T1=4097 D=2048",
        "T=300 T1=301 D=256",
        "state_scan",
        "A X",
        "float32",
    )
    yield from row(
        "depthwise",
        "X: C W, F: C R, Z: C T",
        ["Z[c, t] = X[c, t + r] . F[c, r] ;; M mul V add"],
        "C=4096 W=2051 R=4 T=2048",
        "C=128 W=103 R=4 T=100",
        "depthwise",
        "X F",
        BOTH,
    )
    yield from row(
        "depthwise_strided",
        "X: C W, F: C R, Z: C T",
        ["Z[c, t] = X[c, 2*t + r] . F[c, r] ;; M mul V add"],
        "C=2048 W=4098 R=4 T=2048",
        "C=128 W=202 R=4 T=100",
        "depthwise_strided",
        "X F",
        BOTH,
    )
    yield from row(
        "convolution",
        "X: C H W, F: C R S K, Z: K P Q",
        ["Z[k, p, q] = X[c, p + r, q + s] . F[c, r, s, k] ;; M mul V add"],
        "C=128 K=128 H=66 W=66 P=64 Q=64 R=3 S=3",
        "C=128 K=128 H=12 W=12 P=10 Q=10 R=3 S=3",
        "convolution",
        "X F",
        BOTH,
    )
    yield from row(
        "max_pool",
        "X: C H W, Z: C P Q",
        ["Z[c, p, q] = X[c, 2*p + r, 2*q + s] ;; V max"],
        "C=1024 H=64 W=64 P=32 Q=32 R=2 S=2",
        "C=128 H=12 W=12 P=6 Q=6 R=2 S=2",
        "max_pool",
        "X",
        BOTH,
    )
    yield from row(
        "transposition",
        "A: M N, Z: N M",
        ["Z[n, m] = A[m, n]"],
        "M=4096 N=4096",
        "M=512 N=256",
        "transposition",
        "A",
        BOTH,
    )


def module_at(path: Path) -> Any:
    """The module in a file, under the vendor's names."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kernels_of(one: Row) -> Iterator[Callable[..., Any]]:
    """The kernels by hand of a row."""
    yield getattr(module_at(Path(__file__).with_name("hand_kernels.py")), one.kernel)
    folder, (file, name) = os.environ.get("NKILAB_SAMPLES", ""), one.sample
    if folder and name:
        yield getattr(module_at(Path(folder) / file), name)


def compiled_of(one: Row, sizes: dict[str, int]) -> Any:
    """The Einsum as it is compiled."""
    tensors = {*one.case.cascade.inputs, *one.case.cascade.outputs}
    return nkilab.einsum.compile(one.case.cascade, sizes=sizes, dtypes=dict.fromkeys(tensors, one.dtype))


def error_of(one: Row, kernel: Callable[..., Any]) -> tuple[float, float]:
    """The largest errors at the small size, ours and the hand's, over the largest value."""
    compiled = compiled_of(one, one.small)
    rng = np.random.default_rng(0)
    types = {n: nkilab.spec((1,), one.dtype).dtype for n in compiled.inputs}
    inputs = {n: (rng.random(compiled.cascade.shape(n)) - 0.5).astype(types[n]) for n in compiled.inputs}
    expected = compiled.reference(*inputs.values())
    results = compiled(*inputs.values()), kernel(*(inputs[n] for n in one.order.split()))
    first, second = (
        float(np.abs(np.asarray(r, np.float64) - expected).max() / np.abs(expected).max()) for r in results
    )
    return first, second


def measured(one: Row) -> tuple[float, float, str]:
    """Microseconds of ours and of the fastest by hand; what is wrong with either."""
    compiled = compiled_of(one, one.case.extents())
    specs = [nkilab.spec(compiled.cascade.shape(n), one.dtype) for n in one.order.split()]
    best, notes = 0.0, []
    for kernel in kernels_of(one):
        errors = error_of(one, kernel) if not best else (0.0, 0.0)
        wrong = [w for w, e in zip(("ours", "hand"), errors, strict=True) if not e <= MOST_ERROR[one.dtype]]
        notes += [f"WRONG: {w} by {max(errors):.1e}" for w in wrong]
        latency = float(nkilab.estimate(kernel, *specs, target="trn2").latency_us)
        best = min(best or latency, latency)
    return compiled.estimate.latency_us, best, "; ".join(notes)


def table(names: list[str]) -> None:
    """Print a line per row, the worst ratio last, then the median and the worst."""
    warnings.simplefilter("ignore")
    done: list[tuple[float, str]] = []
    with nkilab.activate():
        for one in rows():
            name = f"{one.case.name} {one.dtype}"
            if names and not any(n in name for n in names):
                continue
            try:
                ours, hand, note = measured(one)
            except (NkilabError, AssertionError) as error:
                print(f"{name:32} {str(error).splitlines()[0][:120]}", flush=True)
                continue
            done.append((ours / hand, f"{name:32} {ours:10.1f} {hand:10.1f} {ours / hand:7.2f}  {note}"))
            print(done[-1][1], flush=True)
    print(f"\n{'einsum':32} {'us':>10} {'hand us':>10} {'ratio':>7}")
    for _, line in sorted(done):
        print(line)
    if done:
        ratios = [ratio for ratio, _ in done]
        above = sum(ratio > 1.1 for ratio in ratios)
        print(f"median {median(ratios):.2f}, worst {max(ratios):.2f}, above 1.1: {above} of {len(ratios)}")
