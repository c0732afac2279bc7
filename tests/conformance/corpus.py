"""The corpus of cascades that NKILAB_EINSUM_CORPUS names, as specifications, inputs and references."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from nkilab.einsum.language.ast import Cascade, Iterate, Tensor
from nkilab.einsum.language.expressions import read_einsum

VARIABLE = "NKILAB_EINSUM_CORPUS"


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _convolution(x: Any, f: Any, stride: int, pad: int) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    b, _, h, w = x.shape
    k, _, r, s = f.shape
    p, q = (h - r) // stride + 1, (w - s) // stride + 1
    z = np.zeros((b, k, p, q))
    for i in range(p):
        for j in range(q):
            window = x[:, :, i * stride : i * stride + r, j * stride : j * stride + s]
            z[:, :, i, j] = np.einsum("bcrs,kcrs->bk", window, f)
    return z


def _delta(k: Any, v: Any, q: Any, be: Any) -> Any:
    s = np.zeros((k.shape[1], v.shape[1]))
    out = np.zeros(v.shape)
    for t in range(len(k)):
        s = s + np.outer(k[t], be[t] * (v[t] - k[t] @ s))
        out[t] = q[t] @ s
    return out


def _power(a: Any, x: Any, steps: int) -> Any:
    n = 0.0
    for _ in range(steps):
        y = a @ x
        n = np.sqrt(y @ y)
        x = y / n
    return n


KNOWN = {
    "np": np,
    "math": math,
    "conv": _convolution,
    "delta": _delta,
    "power": _power,
    "silu": lambda x: x * _sigmoid(x),
}


@dataclass(frozen=True, eq=False)
class Entry:
    """One cascade of the corpus."""

    name: str
    number: int
    level: int
    cascade: Cascade
    integers: dict[str, list[str]]
    reference: str
    tiny: dict[str, int]

    def inputs(self, rng: np.random.Generator, sizes: dict[str, int] | None = None) -> dict[str, np.ndarray]:
        """Random inputs; those of the corpus lie between 0.1 and 1.1."""
        sizes = sizes or self.tiny
        inputs = {}
        for name in self.cascade.inputs:
            shape = [sizes[r] for r in self.cascade.tensors[name].ranks]
            if name in self.integers:
                driver = next(iter(self.cascade.tensors.values()))
                inputs[name] = rng.integers(0, sizes[driver.ranks[0]], shape)
            else:
                inputs[name] = rng.random(shape) + 0.1
        return inputs

    def expected(self, inputs: dict[str, Any], sizes: dict[str, int] | None = None) -> list[np.ndarray]:
        """What NumPy makes of the entry's reference."""
        names = {**KNOWN, **(sizes or self.tiny), **self.cascade.scalars, **inputs}
        value = eval(self.reference, names)
        return value if isinstance(value, list) else [value]


def entry_of(row: dict[str, Any]) -> Entry:
    """An entry of the file."""
    declared = {**row["inputs"], **row.get("intinputs", {}), **row["decl"]}
    steps = []
    for step in row["expr"]:
        if isinstance(step, str):
            steps.append(read_einsum(step))
        else:
            steps.append(Iterate(step["iterate"], tuple(read_einsum(b) for b in step["body"])))
    out = row["out"] if isinstance(row["out"], list) else [row["out"]]
    cascade = Cascade(
        {n: Tensor(n, tuple(r)) for n, r in declared.items()},
        tuple(steps),
        tuple(out),
        dict(row.get("scalars", {})),
    )
    return Entry(
        row["name"],
        row["id"],
        row["level"],
        cascade,
        row.get("intinputs", {}),
        row["ref"],
        dict(row["tiny"]),
    )


def corpus() -> list[Entry]:
    """All entries; none where the variable is not set."""
    named = os.environ.get(VARIABLE)
    if not named:
        return []
    return [entry_of(row) for row in YAML(typ="safe").load(Path(named).read_text())]


# Extents per class of shapes; what follows from others (I1 = I + 1, HP = P + R - 1, ...) is written out.
EXACT = {
    "M": 256,
    "N": 1024,
    "K": 256,
    "I": 128,
    "J": 128,
    "B": 2,
    "R": 128,
    "L": 128,
    "F": 128,
    "E": 128,
    "P": 256,
    "D": 128,
    "T": 256,
    "C": 128,
    "V": 256,
    "H": 2,
    "G": 4,
    "S": 128,
}
RAGGED = {
    "M": 131,
    "N": 523,
    "K": 137,
    "I": 13,
    "J": 19,
    "B": 2,
    "R": 11,
    "L": 17,
    "F": 29,
    "E": 37,
    "P": 139,
    "D": 41,
    "T": 149,
    "C": 131,
    "V": 151,
    "H": 3,
    "G": 5,
    "S": 139,
}
OWN: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "gram": ({"I": 256, "J": 256, "K": 256}, {"I": 131, "J": 131, "K": 137}),
    "bmm": ({"B": 3, "M": 128, "N": 512, "K": 64}, {"B": 3, "M": 131, "N": 523, "K": 67}),
    "dot": ({"K": 4096}, {"K": 1031}),
    "pass_merge": ({"K": 4096}, {"K": 1031}),
    "ttm": ({"I": 4, "J": 128, "K": 128, "R": 64}, {"I": 5, "J": 131, "K": 137, "R": 61}),
    "mttkrp": ({"I": 128, "J": 8, "K": 128, "R": 32}, {"I": 131, "J": 7, "K": 137, "R": 31}),
    "chain3": ({"I": 256, "J": 128, "K": 512, "L": 128}, {"I": 131, "J": 67, "K": 137, "L": 71}),
    "softmax_online": ({"I": 4, "J": 128, "M": 128, "I1": 5}, {"I": 3, "J": 131, "M": 137, "I1": 4}),
    "qr_update": ({"M": 256, "N": 256}, {"M": 131, "N": 137}),
    "swiglu_mlp": ({"M": 128, "K": 128, "F": 256, "N": 512}, {"M": 131, "K": 137, "F": 139, "N": 149}),
    "lora_bwd": ({"K": 256, "N": 512, "M": 256, "R": 128}, {"K": 131, "N": 137, "M": 139, "R": 7}),
    "attention_3pass": ({"E": 128, "P": 256, "M": 256, "F": 128}, {"E": 67, "P": 131, "M": 137, "F": 71}),
    "attention_1pass": (
        {"E": 128, "P": 256, "I": 3, "I1": 4, "J": 128, "F": 128},
        {"E": 67, "P": 131, "I": 3, "I1": 4, "J": 137, "F": 71},
    ),
    "gqa_decode": ({"B": 2, "H": 2, "G": 4, "E": 128, "S": 256}, {"B": 2, "H": 3, "G": 5, "E": 67, "S": 131}),
    "conv1d_depthwise": ({"C": 128, "T": 512, "R": 4, "TP": 515}, {"C": 131, "T": 137, "R": 3, "TP": 139}),
    "conv2d": (
        {"B": 2, "C": 128, "K": 128, "P": 8, "Q": 16, "R": 3, "S": 3, "HP": 10, "WP": 18},
        {"B": 2, "C": 131, "K": 137, "P": 5, "Q": 7, "R": 3, "S": 2, "HP": 7, "WP": 8},
    ),
    "conv2d_stride_pad": (
        {"B": 2, "C": 3, "K": 64, "H": 16, "W": 16, "P": 8, "Q": 8, "R": 3, "S": 3},
        {"B": 2, "C": 5, "K": 131, "H": 11, "W": 13, "P": 6, "Q": 7, "R": 3, "S": 3},
    ),
    "conv_bias_maxpool": (
        {
            "B": 2,
            "C": 128,
            "K": 128,
            "P": 8,
            "Q": 8,
            "R": 3,
            "S": 3,
            "HP": 10,
            "WP": 10,
            "U": 4,
            "V": 4,
            "I": 2,
            "J": 2,
        },
        {
            "B": 1,
            "C": 131,
            "K": 137,
            "P": 6,
            "Q": 10,
            "R": 3,
            "S": 3,
            "HP": 8,
            "WP": 12,
            "U": 3,
            "V": 5,
            "I": 2,
            "J": 2,
        },
    ),
    "stencil5": ({"P": 256, "Q": 512, "HP": 258, "WP": 514}, {"P": 131, "Q": 137, "HP": 133, "WP": 139}),
    "cumsum": ({"I": 16, "I1": 17, "M": 128}, {"I": 7, "I1": 8, "M": 131}),
    "delta_rule": ({"T": 4, "T1": 5, "D": 128, "F": 128}, {"T": 3, "T1": 4, "D": 131, "F": 137}),
    "trisolve": ({"I": 128, "J": 128, "N": 128}, {"I": 13, "J": 13, "N": 131}),
    "power_iteration": ({"M": 256, "K": 256, "I": 3, "I1": 4}, {"M": 131, "K": 131, "I": 3, "I1": 4}),
    "moe_topk_gate": ({"T": 128, "D": 128, "E": 8, "F": 128}, {"T": 131, "D": 137, "E": 7, "F": 31}),
    "rmsnorm_linear": ({"M": 256, "K": 256, "N": 512}, {"M": 131, "K": 137, "N": 523}),
    "embedding_gather": ({"V": 256, "D": 512, "T": 256}, {"V": 151, "D": 523, "T": 131}),
}
# A pool of one window, a stencil on its border, one turn.
LEAST = {
    "conv_bias_maxpool": {"P": 2, "Q": 2, "HP": 2, "WP": 2, "I": 2, "J": 2},
    "stencil5": {"HP": 3, "WP": 3},
}
# Bench shapes for which the issue sets a bar.
BENCH = {
    "gemm_tn": ({"M": 4096, "N": 4096, "K": 4096}, "bfloat16"),
    "softmax_rows": ({"M": 8192, "N": 4096}, "float32"),
    "rmsnorm": ({"M": 4096, "N": 8192}, "bfloat16"),
    "attention_1pass": ({"P": 16384, "I": 32, "I1": 33, "J": 512, "E": 128, "F": 128}, "bfloat16"),
}


def extents(entry: Entry, kind: str) -> dict[str, int]:
    """Extents of a class: exact (tiles fit), ragged (primes) or one."""
    if kind == "one":
        sizes = {r: 2 if r in ("I1", "T1") else 1 for r in entry.tiny}
        return sizes | LEAST.get(entry.name, {})
    at = ("exact", "ragged").index(kind)
    if entry.name in OWN:
        return dict(OWN[entry.name][at])
    return {r: (EXACT, RAGGED)[at].get(r, 128) for r in entry.tiny}
